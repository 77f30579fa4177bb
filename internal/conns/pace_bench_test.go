package conns_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/epigraph-run/epigraph/internal/conns"
)

// endless is a connection that delivers the same bytes again and again, and accepts all writes.
type endless struct {
	net.Conn
	addr *net.TCPAddr
	all  []byte
	at   int
}

func (e *endless) RemoteAddr() net.Addr        { return e.addr }
func (e *endless) Write(b []byte) (int, error) { return len(b), nil }
func (e *endless) Close() error                { return nil }
func (e *endless) Read(b []byte) (int, error) {
	n := copy(b, e.all[e.at:])
	e.at = (e.at + n) % len(e.all)
	return n, nil
}

// paced is the connection as its server reads it: one that is answered, so that nothing of it is held up.
func paced(b *testing.B, e *endless) net.Conn {
	b.Helper()
	lis := once{conns: make(chan net.Conn, 1)}
	lis.conns <- e
	c, err := conns.New(conns.Bounds{Strangers: 10, Namespace: 10, Total: 20}).List().Listen(lis).Accept()
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Write(frame(headers, endStream, 10)); err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkPace reads what clients send, with its frames counted and without, in turns so that both see the
// same machine: "ratio" is how many times as long it takes to read it counted. "ns/read" is what counting
// adds to a read of 32 KiB, which is made from memory here, not from a socket.
func BenchmarkPace(b *testing.B) {
	call := append(frame(headers, 0, 50), frame(data, endStream, 200)...)
	for name, all := range map[string][]byte{
		"Calls": bytes.Repeat(call, 2000),
		"Large": bytes.Repeat(frame(data, 0, 16<<10), 32),
		"Small": bytes.Repeat(frame(data, endStream, 40), 8000),
	} {
		b.Run(name, func(b *testing.B) {
			e := &endless{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, all: []byte(preface)}
			c := paced(b, e)
			buf := make([]byte, 32<<10)
			if _, err := io.ReadFull(c, buf[:len(preface)]); err != nil {
				b.Fatal(err)
			}
			e.all, e.at = all, 0
			// through reads everything once.
			through := func(c io.Reader) time.Duration {
				start := time.Now()
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(c, int64(len(all))), buf); err != nil {
					b.Fatal(err)
				}
				return time.Since(start)
			}
			var counted, plain time.Duration
			for b.Loop() {
				counted += through(c)
				plain += through(e)
			}
			reads := float64(b.N) * float64(len(all)) / float64(len(buf))
			b.ReportMetric(float64(counted)/float64(plain), "ratio")
			b.ReportMetric(float64(counted-plain)/reads, "ns/read")
			b.ReportMetric(float64(counted-plain)/float64(b.N)/float64(len(all))*float64(1<<20), "ns/MiB")
		})
	}
}
