package stack

import (
	"crypto/tls"
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

// standIn answers every call in place of a service that waits at its start for its database, so that callers
// get the reason instead of no answer.
type standIn struct {
	name   string
	lis    *shared
	secure *tls.Config

	mu     sync.Mutex
	reason string // the present reason; empty before the first one
	end    func() // ends the server that answers with it
	closed bool
}

// answer answers callers with why from now on.
func (s *standIn) answer(why *errs.Error, hint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.reason == why.Reason {
		return
	}
	if s.end != nil {
		s.end()
	}
	s.reason = why.Reason
	server := grpckit.StandIn(why.Set(errs.MetaNothingDone, "true").Hint(hint), s.secure)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(&turn{shared: s.lis, stop: make(chan struct{})}) // it ends when it is stopped
	}()
	s.end = func() {
		server.Stop()
		<-ended
	}
}

func (s *standIn) unreachable() {
	s.answer(errs.DatabaseUnreachable(s.name), "nothing was changed; try again when the database is back")
}

func (s *standIn) notReady() {
	s.answer(errs.DatabaseNotReady(s.name), "nothing was changed; try again later: readyz at the service's admin address tells what it waits for")
}

// close leaves the listener to the service.
func (s *standIn) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.end != nil {
		s.end()
	}
}

// databaseAway reports whether a service cannot be opened since its database does not answer.
func databaseAway(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Kind == errs.Unavailable && e.Reason == dbkit.ReasonUnreachable
}
