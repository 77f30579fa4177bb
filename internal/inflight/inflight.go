// Package inflight owns how namespaces share memory: one budget for requests under way and their answers, one
// for live runs. No namespace can have all of one, and a request without room queues behind those of its own
// namespace. The package must not know what is held, nor how its size is computed. It is written here because
// semaphores know neither namespaces nor claims that grow.
package inflight

import (
	"context"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/memlimit"
)

const (
	// Tiny is what a request may hold without being counted: less than a call costs anyway.
	Tiny = 4 << 10
	// Small is the size up to which a request may use the last quarter of a share, so that a namespace whose
	// large requests hold all that they may is still answered.
	Small = 64 << 10

	// maxWait is how long a request waits for memory, and maxLine how many of one namespace may wait: they
	// hold a connection meanwhile.
	maxWait = 5 * time.Second
	maxLine = 64

	// defaultTotal is the budget of a process that has no memory limit.
	defaultTotal = 512 << 20
	// minTotal lets one request of the largest size pass whatever the memory limit is.
	minTotal = 64 << 20
)

// Reasons of the errors that a Share returns.
const (
	// ReasonBusy is a request that would pass after others have ended.
	ReasonBusy = "REQUEST_MEMORY_EXHAUSTED"
	// ReasonTooLarge is a request that would not pass even alone.
	ReasonTooLarge = "REQUEST_TOO_LARGE"
)

// DefaultTotal is the budget of this process unless its configuration says otherwise: a fifth of Go's memory
// limit, 512 MiB without one. Memory that serving a request allocates is not counted, and may be twice as
// much again.
func DefaultTotal() int64 {
	limit := memlimit.Bytes()
	if limit == 0 {
		return defaultTotal
	}
	return min(max(limit/5, minTotal), 4*defaultTotal)
}

// Share is what one request holds. It is for one goroutine, and must be freed. The zero Share counts nothing.
type Share struct {
	budget    *Budget
	namespace string
	held      int64
	counted   bool
}

// Take adds n bytes to what the request holds. It never waits: if there is no room, or others wait for it,
// nothing is added, and the error says whether a retry is worth it. A request that holds something already
// goes before those that wait.
func (s *Share) Take(n int64) error {
	c, err := s.claim(n)
	if c == nil {
		return err
	}
	if !s.budget.try(c) {
		return s.busy(c)
	}
	s.held, s.counted = c.held, true
	return nil
}

// Wait is Take, but stands in line until ctx ends. It refuses what would not pass even alone at once, and, of
// requests that all hold something and wait for more, the last one, since none of them would ever give
// anything back.
func (s *Share) Wait(ctx context.Context, n int64) error {
	c, err := s.claim(n)
	if c == nil {
		return err
	}
	if s.budget.await(ctx, c) != nil {
		return s.busy(c)
	}
	s.held, s.counted = c.held, true
	return nil
}

// Queue is Wait, but only for seconds, and only while few requests of the namespace do so. It is for large
// requests that arrive together.
func (s *Share) Queue(ctx context.Context, n int64) error {
	err := s.Take(n)
	if errs.ReasonOf(err) != ReasonBusy || !s.budget.enter(s.namespace) {
		return err
	}
	defer s.budget.leave(s.namespace)
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	return s.Wait(ctx, n)
}

// claim is what n bytes more have to be let in as. It is nil if they need not be, or never can.
func (s *Share) claim(n int64) (*claim, error) {
	if s.budget == nil || n <= 0 {
		return nil, nil
	}
	held := s.held + n
	if !s.counted && held <= Tiny {
		s.held = held
		return nil, nil
	}
	if most := s.budget.Most(); held > Small && held > most {
		return nil, errs.New(errs.ResourceExhausted, ReasonTooLarge, "the request would take %s of memory, and one request may take %s", size(held), size(most)).
			Hint("send less at once")
	}
	c := &claim{namespace: s.namespace, add: n, held: held, large: held > Small, grows: s.counted, begins: !s.counted}
	if !s.counted {
		c.add = held
	}
	c.needs = c.add
	return c, nil
}

func (s *Share) busy(c *claim) error {
	of, bound := s.budget.short(c)
	return errs.New(errs.ResourceExhausted, ReasonBusy, "%s that are under way hold the memory that they may (%s)", of, size(bound)).
		Hint("send it again in a moment, or less at once").RetryAfter(time.Second)
}

// Free gives back what the request holds. It is idempotent, and the share can be used again.
func (s *Share) Free() {
	n, counted := s.held, s.counted
	s.held, s.counted = 0, false
	if counted {
		s.budget.free(s.namespace, n, true)
	}
}

// shrink gives back what the request holds beyond n bytes.
func (s *Share) shrink(n int64) {
	if n <= 0 {
		s.Free() // it holds nothing then, and nobody waits for it
		return
	}
	if s.counted && s.held > n {
		free := s.held - n
		s.held = n
		s.budget.free(s.namespace, free, false)
	}
}

// size writes a number of bytes as people say it.
func size(n int64) string {
	if n < 1<<20 {
		return strconv.FormatInt((n+1<<10-1)>>10, 10) + " KiB"
	}
	return strconv.FormatInt((n+1<<20-1)>>20, 10) + " MiB"
}
