package stack

import (
	"errors"
	"net"
	"sync"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
)

// shared is a listener that a stand-in may serve for a while before the server itself does.
type shared struct {
	net.Listener
	begin sync.Once
	end   sync.Once
	conns chan net.Conn
	done  chan struct{} // no more connections come
}

func share(lis net.Listener) *shared {
	return &shared{Listener: lis, conns: make(chan net.Conn), done: make(chan struct{})}
}

// accept hands connections to whoever serves.
func (s *shared) accept() {
	defer s.end.Do(func() { close(s.done) })
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return
		}
		select {
		case s.conns <- c:
		case <-s.done:
			_ = c.Close() // nobody has spoken on it
			return
		}
	}
}

// Accept implements net.Listener.
func (s *shared) Accept() (net.Conn, error) { return s.next(nil) }

// next is the next connection, unless stop closes first.
func (s *shared) next(stop <-chan struct{}) (net.Conn, error) {
	s.begin.Do(func() { go s.accept() })
	select {
	case <-stop:
		return nil, net.ErrClosed
	case <-s.done:
		return nil, net.ErrClosed
	case c := <-s.conns:
		return c, nil
	}
}

// Close implements net.Listener.
func (s *shared) Close() error {
	s.end.Do(func() { close(s.done) })
	return s.Listener.Close()
}

// turn is a shared listener until it is closed, which leaves the address listened on.
type turn struct {
	*shared
	stop chan struct{}
	once sync.Once
}

func (t *turn) Accept() (net.Conn, error) { return t.next(t.stop) }

func (t *turn) Close() error {
	t.once.Do(func() { close(t.stop) })
	return nil
}

// standIn answers every call in the place of a service whose database has been away since the start: callers
// are told so, and not that nobody answers. stop leaves the listener to the service.
func (p *Process) standIn(lis *shared) (stop func(), err error) {
	secure, err := p.cfg.GRPC.TLS.server()
	if err != nil {
		return nil, err
	}
	server := grpckit.StandIn(errs.DatabaseUnreachable(p.name).Set(errs.MetaNothingDone, "true").Hint("nothing was changed; try again when the database is back"), secure)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(&turn{shared: lis, stop: make(chan struct{})}) // it ends when it is stopped
	}()
	return func() {
		server.Stop()
		<-ended
	}, nil
}

// databaseAway reports whether a service cannot be opened since its database does not answer.
func databaseAway(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Kind == errs.Unavailable && e.Reason == dbkit.ReasonUnreachable
}
