package host

import (
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/epigraph-run/epigraph/internal/conns"
)

// encrypted accepts connections of TLS in place of the HTTP server, which would hide their plain text from
// the list of connections. The handshake is made with the first read, and so within the time for headers.
type encrypted struct {
	net.Listener
	config *tls.Config
}

func newEncrypted(lis net.Listener, c *tls.Config) *encrypted {
	c = c.Clone()
	c.NextProtos = []string{"h2", "http/1.1"}
	return &encrypted{lis, c}
}

// Accept implements net.Listener.
func (e *encrypted) Accept() (net.Conn, error) {
	raw, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conns.Secured(raw, strict{tls.Server(raw, e.config)}), nil
}

// strict is a connection that answers requests which are not encrypted as the HTTP server would.
type strict struct{ *tls.Conn }

// Read implements net.Conn.
func (s strict) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok && e.Conn != nil && spokenPlainly(e.RecordHeader) {
		_, _ = io.WriteString(e.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	return n, err
}

// spokenPlainly reports whether a connection began with a request.
func spokenPlainly(first [5]byte) bool {
	switch string(first[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "PATCH", "DELET":
		return true
	}
	return false
}
