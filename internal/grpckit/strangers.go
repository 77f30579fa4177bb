package grpckit

import (
	"container/list"
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/stats"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// maxStrangers bounds the connections on which nobody has said yet who they are. With one more, the
	// oldest is closed.
	maxStrangers = 512
	// maxChecks bounds the health checks under way on one connection, since they need no credentials.
	maxChecks = 8
)

// Strangers are the connections of a server on which no call has shown valid credentials. It hears of
// connections from the listener, which has them from the beginning, and from the server, which ties calls to
// them. It is safe for concurrent use.
type Strangers struct {
	max int

	mu     sync.Mutex
	order  list.List // of *guest, the oldest first
	byAddr map[string]*guest
}

// guest is one connection.
type guest struct {
	of     *Strangers
	conn   net.Conn
	addr   string
	place  *list.Element // nil when it is no stranger any more
	known  atomic.Bool
	checks atomic.Int32
}

// NewStrangers returns an empty list, for one server.
func NewStrangers() *Strangers { return &Strangers{max: maxStrangers, byAddr: map[string]*guest{}} }

// Listen returns l such that the list hears of its connections. The oldest stranger is closed when there are
// too many.
func (s *Strangers) Listen(l net.Listener) net.Listener { return &listener{l, s} }

// listener tells of the connections that it accepts.
type listener struct {
	net.Listener
	strangers *Strangers
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, ok := c.RemoteAddr().(*net.TCPAddr); ok { // others have no address of their own, and do not leave the machine
		l.strangers.admit(c)
	}
	return c, nil
}

func (s *Strangers) admit(c net.Conn) {
	g := &guest{of: s, conn: c, addr: c.RemoteAddr().String()}
	s.mu.Lock()
	if before := s.byAddr[g.addr]; before != nil {
		s.drop(before)
	}
	g.place = s.order.PushBack(g)
	s.byAddr[g.addr] = g
	var oldest *guest
	if s.order.Len() > s.max {
		oldest = s.order.Front().Value.(*guest)
		s.drop(oldest)
	}
	s.mu.Unlock()
	if oldest != nil {
		_ = oldest.conn.Close() // it may have gone by itself
	}
}

// drop takes a connection out of the list, if it is there. The lock is held.
func (s *Strangers) drop(g *guest) {
	if g.place == nil {
		return
	}
	s.order.Remove(g.place)
	g.place = nil
	if s.byAddr[g.addr] == g {
		delete(s.byAddr, g.addr)
	}
}

func (s *Strangers) leave(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(g)
}

type guestKey struct{}

func guestOf(ctx context.Context) *guest {
	g, _ := ctx.Value(guestKey{}).(*guest)
	return g
}

// Know is told of a call with valid credentials, by its context: its connection is no stranger's.
func Know(ctx context.Context) {
	if g := guestOf(ctx); g != nil && !g.known.Swap(true) {
		g.of.leave(g)
	}
}

// check lets a health check begin; done is called when it has ended.
func (s *Strangers) check(ctx context.Context) (done func(), err error) {
	g := guestOf(ctx)
	if g == nil {
		return func() {}, nil
	}
	done = func() { g.checks.Add(-1) }
	if g.checks.Add(1) > maxChecks {
		done()
		return nil, errs.New(errs.ResourceExhausted, "TOO_MANY_HEALTH_CHECKS", "more than %d health checks at once on one connection", maxChecks)
	}
	return done, nil
}

// TagConn implements stats.Handler.
func (s *Strangers) TagConn(ctx context.Context, i *stats.ConnTagInfo) context.Context {
	return s.Tag(ctx, i.RemoteAddr)
}

// Tag ties a context to the connection from an address.
func (s *Strangers) Tag(ctx context.Context, from net.Addr) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.byAddr[from.String()]
	if g == nil {
		return ctx
	}
	return context.WithValue(ctx, guestKey{}, g)
}

// Gone is told of the end of the connection from an address.
func (s *Strangers) Gone(from net.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.byAddr[from.String()]; g != nil {
		s.drop(g)
	}
}

// HandleConn implements stats.Handler.
func (s *Strangers) HandleConn(ctx context.Context, c stats.ConnStats) {
	if _, ok := c.(*stats.ConnEnd); ok {
		if g := guestOf(ctx); g != nil {
			s.leave(g)
		}
	}
}

// TagRPC implements stats.Handler.
func (s *Strangers) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (s *Strangers) HandleRPC(context.Context, stats.RPCStats) {}
