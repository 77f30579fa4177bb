package host_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
)

// TestStrangers opens more connections that say nothing than an HTTP server keeps, and holds that the oldest
// of them are closed, and those of known callers are not.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for name, h2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				grpckit.Know(r.Context())
				_, _ = io.WriteString(w, r.RemoteAddr)
			}), host.HTTPOptions{})
			p := new(http.Protocols)
			p.SetHTTP1(!h2)
			p.SetUnencryptedHTTP2(h2)
			tr := &http.Transport{Protocols: p}
			t.Cleanup(tr.CloseIdleConnections)
			ask := func() string {
				resp, err := (&http.Client{Transport: tr}).Get(url)
				require.NoError(t, err)
				defer func() { require.NoError(t, resp.Body.Close()) }()
				b, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return string(b)
			}
			own := ask()
			var conns []net.Conn
			for range 600 {
				c, err := net.Dial("tcp", url[len("http://"):])
				require.NoError(t, err)
				defer func() { _ = c.Close() }()
				_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and nothing more, which is no fault for two minutes
				conns = append(conns, c)
			}
			for _, c := range conns[:600-512] {
				require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
				_, err := io.Copy(io.Discard, c)
				late, timed := errors.AsType[net.Error](err)
				require.False(t, timed && late.Timeout(), "an old stranger is closed")
			}
			require.Equal(t, own, ask(), "the known connection stays")
		})
	}
}
