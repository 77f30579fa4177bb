//go:build chaos

package chaos_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy passes connections on to a server, and can cut, hold up and slow them down.
type proxy struct {
	l       net.Listener
	network string
	target  string

	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   bool
	delay time.Duration
	// gate is closed while bytes may pass.
	gate chan struct{}
}

func newProxy(t *testing.T, network, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{l: l, network: network, target: target, conns: map[net.Conn]bool{}, gate: make(chan struct{})}
	close(p.gate)
	t.Cleanup(func() {
		_ = l.Close()
		p.sever(true)
		p.hold(false)
	})
	go p.serve()
	return p
}

// postgres is the URL of the database behind the proxy.
func (p *proxy) postgres(url string) string {
	_, rest, _ := strings.Cut(url, "@/")
	name, _, _ := strings.Cut(rest, "?")
	return "postgres://postgres@" + p.l.Addr().String() + "/" + name + "?sslmode=disable&connect_timeout=2"
}

func (p *proxy) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		go p.pass(in)
	}
}

func (p *proxy) pass(in net.Conn) {
	out, err := net.Dial(p.network, p.target)
	if err != nil || !p.keep(in, out) {
		_ = in.Close()
		if out != nil {
			_ = out.Close()
		}
		return
	}
	defer p.drop(in, out)
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(out, in) })
	wg.Go(func() { p.copy(in, out) })
	wg.Wait()
}

func (p *proxy) keep(cs ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, c := range cs {
		p.conns[c] = true
	}
	return true
}

func (p *proxy) drop(cs ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cs {
		delete(p.conns, c)
		_ = c.Close()
	}
}

func (p *proxy) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		gate, delay := p.gate, p.delay
		p.mu.Unlock()
		<-gate
		if delay > 0 {
			pause := time.NewTimer(delay)
			<-pause.C
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}

// sever breaks all connections; while on, new ones are refused.
func (p *proxy) sever(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = on
	if on {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

// hold stops all bytes while on, and closes nothing.
func (p *proxy) hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		if on {
			p.gate = make(chan struct{})
		}
	default:
		if !on {
			close(p.gate)
		}
	}
}

// slow makes every piece wait.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}
