package conns_test

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conns"
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	data, headers, reset, ping = 0, 1, 3, 6
	endStream                  = 1
)

// frame is one frame with a body of n bytes.
func frame(kind, flags byte, n int) []byte {
	return append([]byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags, 0, 0, 0, 1}, make([]byte, n)...)
}

// wire is a connection that delivers the pieces put on it, one for each read.
type wire struct {
	net.Conn
	addr   *net.TCPAddr
	pieces chan []byte
	rest   []byte
}

func (w *wire) RemoteAddr() net.Addr        { return w.addr }
func (w *wire) Write(b []byte) (int, error) { return len(b), nil }
func (w *wire) Close() error                { return nil }
func (w *wire) Read(b []byte) (int, error) {
	if len(w.rest) == 0 {
		p, ok := <-w.pieces
		if !ok {
			return 0, io.EOF
		}
		w.rest = p
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// once accepts each of its connections once.
type once struct {
	net.Listener
	conns chan net.Conn
}

func (o once) Accept() (net.Conn, error) { return <-o.conns, nil }

// rig is a server's list of connections, without a network.
type rig struct {
	list *conns.List
	port int
}

func newRig() *rig {
	return &rig{list: conns.New(conns.Bounds{Strangers: 10, Namespace: 10, Total: 20}).List()}
}

// newcomer returns a new connection as its server sees it, and the wire behind it.
func (r *rig) newcomer() (net.Conn, *wire) {
	r.port++
	w := &wire{addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: r.port}, pieces: make(chan []byte, 10)}
	lis := once{conns: make(chan net.Conn, 1)}
	lis.conns <- w
	c, _ := r.list.Listen(lis).Accept()
	return c, w
}

// connect returns one that has begun and had an answer, with nothing left of what that allows.
func (r *rig) connect(t *testing.T) (net.Conn, *wire) {
	t.Helper()
	c, w := r.newcomer()
	_, err := c.Write(frame(headers, endStream, 10))
	require.NoError(t, err)
	require.Zero(t, took(t, c, w, []byte(preface), bytes.Repeat(frame(ping, 0, 8), 4)))
	return c, w
}

// took is how long it takes to read the pieces.
func took(t *testing.T, c net.Conn, w *wire, pieces ...[]byte) time.Duration {
	t.Helper()
	b := make([]byte, 1<<20)
	start := time.Now()
	for _, p := range pieces {
		w.pieces <- p
		_, err := io.ReadFull(c, b[:len(p)])
		require.NoError(t, err)
		require.Equal(t, p, b[:len(p)])
	}
	return time.Since(start)
}

// most is how much one read takes.
func most(t *testing.T, c net.Conn) int {
	t.Helper()
	n, err := c.Read(make([]byte, 32<<10))
	require.NoError(t, err)
	return n
}

// TestPace checks how fast connections are read that send many frames without work.
func TestPace(t *testing.T) {
	t.Parallel()
	pings := func(n int) []byte { return bytes.Repeat(frame(ping, 0, 8), n) }
	next := []byte("x")
	for name, f := range map[string]func(t *testing.T, r *rig){
		"Stranger/OwesByItself": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			require.Zero(t, took(t, c, w, pings(2000)))
			require.Equal(t, 30*time.Second, took(t, c, w, next))
			c, w = r.connect(t)
			require.Zero(t, took(t, c, w, pings(500), next))
		},
		"Namespace/OwesTogether": func(t *testing.T, r *rig) {
			for i, want := range []time.Duration{time.Second, 4 * time.Second} {
				c, w := r.connect(t)
				require.NoError(t, conns.Know(r.list.Tag(t.Context(), c.RemoteAddr()), "a"))
				require.Zero(t, took(t, c, w, pings(6500)))
				got := took(t, c, w, next)
				require.Equal(t, want-time.Duration(i)*time.Second, got, "what was owed grows, and goes down with time")
			}
			c, w := r.connect(t)
			require.NoError(t, conns.Know(r.list.Tag(t.Context(), c.RemoteAddr()), "b"))
			require.Zero(t, took(t, c, w, pings(4500), next), "another namespace")
		},
		"Service/IsReadAtOnce": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			conns.Trust(r.list.Tag(t.Context(), c.RemoteAddr()))
			require.Zero(t, took(t, c, w, pings(50_000), pings(50_000), next))
		},
		"Answers/AllowMore": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			_, err := c.Write(bytes.Repeat(frame(data, 0, 10), 1000))
			require.NoError(t, err)
			require.Zero(t, took(t, c, w, pings(4500), next))
		},
		"AnswersToPings/AllowNothing": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			_, err := c.Write(pings(1000))
			require.NoError(t, err)
			require.Zero(t, took(t, c, w, pings(1500)))
			require.Equal(t, 20*time.Second, took(t, c, w, next))
		},
		"Calls/CostNothing": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			call := append(frame(headers, 0, 50), frame(data, endStream, 10)...)
			long := append(frame(data, 0, 16<<10), frame(data, 0, 6)...)
			require.Zero(t, took(t, c, w, bytes.Repeat(call, 5000), bytes.Repeat(long, 50), bytes.Repeat(frame(data, 0, 40), 5000), next))
		},
		"Crumbs/Cost": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			require.Zero(t, took(t, c, w, bytes.Repeat(frame(data, 0, 1), 1501)))
			require.Equal(t, 20*time.Second, took(t, c, w, next))
		},
		"CallsEndedAtOnce/Cost": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			call := append(frame(headers, 0, 50), frame(reset, 0, 4)...)
			require.Zero(t, took(t, c, w, bytes.Repeat(call, 375)))
			require.Equal(t, 20*time.Second, took(t, c, w, next))
		},
		"PiecesOfFrames/AreCountedOnce": func(t *testing.T, r *rig) {
			c, w := r.newcomer()
			all := append([]byte(preface), pings(600)...)
			var pieces [][]byte
			for cut := range 5 {
				pieces = append(pieces, all[cut*len(all)/5:(cut+1)*len(all)/5])
			}
			require.Zero(t, took(t, c, w, pieces...))
			require.Equal(t, 2*time.Second, took(t, c, w, next))
		},
		"OtherProtocols/CostNothing": func(t *testing.T, r *rig) {
			c, w := r.newcomer()
			require.Zero(t, took(t, c, w, []byte("GET / HTTP/1.1\r\n"), pings(5000), next))
		},
		"Encrypted/IsCountedByItsPlainText": func(t *testing.T, r *rig) {
			raw, _ := r.connect(t)
			plain := &wire{pieces: make(chan []byte, 10)}
			c := conns.Secured(raw, plain)
			require.Zero(t, took(t, c, plain, []byte(preface), pings(1500)))
			require.Equal(t, 20*time.Second, took(t, c, plain, next))
		},
		"FirstCalls/EndedAtOnceAreFew": func(t *testing.T, r *rig) {
			c, w := r.newcomer()
			call := append(frame(headers, 0, 33), frame(reset, 0, 4)...)
			w.pieces <- append([]byte(preface), bytes.Repeat(call, 600)...)
			require.Equal(t, 2<<10, most(t, c), "what is read at once before it is owed for")
		},
		"FirstCalls/AnsweredAreReadWhole": func(t *testing.T, r *rig) {
			c, w := r.newcomer()
			_, err := c.Write(frame(headers, endStream, 10))
			require.NoError(t, err)
			w.pieces <- append([]byte(preface), bytes.Repeat(frame(headers, endStream, 33), 700)...)
			require.Equal(t, 24+700*42, most(t, c))
		},
		"FirstMessage/IsReadByItsFrames": func(t *testing.T, r *rig) {
			c, w := r.newcomer()
			w.pieces <- append(append([]byte(preface), frame(headers, 0, 33)...), bytes.Repeat(frame(data, 0, 16<<10), 4)...)
			require.Equal(t, 2<<10, most(t, c))
			require.Equal(t, 16<<10+9+24+42, most(t, c), "the rest of the frame, and a little of the next")
		},
		"OtherProtocols/AreReadWhole": func(t *testing.T, r *rig) {
			c, w := r.newcomer()
			require.Zero(t, took(t, c, w, []byte("POST / HTTP/1.1\r\n\r\n")))
			w.pieces <- make([]byte, 30_000)
			require.Equal(t, 30_000, most(t, c))
		},
		"Closed/IsNotWaitedFor": func(t *testing.T, r *rig) {
			c, w := r.connect(t)
			require.Zero(t, took(t, c, w, pings(5000)))
			time.AfterFunc(time.Second, func() { _ = c.Close() })
			start := time.Now()
			_, err := c.Read(make([]byte, 1))
			require.ErrorIs(t, err, net.ErrClosed)
			require.Equal(t, time.Second, time.Since(start))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, newRig()) })
		})
	}
}
