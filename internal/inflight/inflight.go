// Package inflight owns how much memory requests under way, and their answers, may hold: one budget for a process, of which no namespace can have all. It must not know what
// requests are, nor how their size is told.
package inflight

import (
	"context"
	"math"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// Tiny is what a request may hold without being counted: less than a call costs anyway.
	Tiny = 4 << 10
	// Small is what a request may hold and still use the last quarter of a share, so that a namespace whose large requests hold
	// all that they may is answered all the same.
	Small = 64 << 10

	// patience is how long a request stands in line for memory, and maxLine how many of one namespace may: they hold a connection meanwhile.
	patience = 5 * time.Second
	maxLine  = 64

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

// DefaultTotal is the budget of this process unless its configuration says otherwise: a quarter of Go's memory limit, 512 MiB without one.
func DefaultTotal() int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return defaultTotal
	}
	return min(max(limit/4, minTotal), 4*defaultTotal)
}

// Budget bounds what the requests under way hold together. It is safe for concurrent use.
type Budget struct {
	total int64
	share int64

	mu   sync.Mutex
	used int64
	by   map[string]int64
	line map[string]int
	// waiting are the bytes of answers that wait for room.
	waiting map[string]int64
	freed   chan struct{} // closed when something is given back; nil while nobody waits
}

// New returns a budget of total bytes, half of which a namespace may have. Zero or less means DefaultTotal.
func New(total int64) *Budget {
	if total <= 0 {
		total = DefaultTotal()
	}
	return &Budget{total: total, share: total / 2, by: map[string]int64{}, line: map[string]int{}, waiting: map[string]int64{}}
}

// Most is what one request may hold at most.
func (b *Budget) Most() int64 { return large(b.share) }

// Used is what is held and counted now.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// large is the part of a bound that is open to requests that are not small.
func large(bound int64) int64 { return bound / 4 * 3 }

// Share returns the empty share of a request of a namespace.
func (b *Budget) Share(namespace string) Share { return Share{budget: b, namespace: namespace} }

// Share is what one request holds. It is for one goroutine, and must be freed. The zero Share counts nothing.
type Share struct {
	budget    *Budget
	namespace string
	held      int64
	counted   bool
}

// Take adds n bytes to what the request holds. It never waits: if there is no room, nothing is added, and the error says whether it is worth trying again.
func (s *Share) Take(n int64) error {
	if s.budget == nil || n <= 0 {
		return nil
	}
	if !s.counted && s.held+n <= Tiny {
		s.held += n
		return nil
	}
	_, err := s.take(n, false)
	return err
}

// Wait is Take, but waits for others to give back until ctx ends. It refuses what would not pass even alone at once.
func (s *Share) Wait(ctx context.Context, n int64) error {
	if s.budget == nil || n <= 0 || !s.counted && s.held+n <= Tiny {
		return s.Take(n)
	}
	return s.wait(ctx, n)
}

// Queue is Wait, but only for seconds, and only while few requests of the namespace do: what large requests that come together need.
func (s *Share) Queue(ctx context.Context, n int64) error {
	err := s.Take(n)
	if errs.ReasonOf(err) != ReasonBusy || !s.budget.enter(s.namespace) {
		return err
	}
	defer s.budget.leave(s.namespace)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.wait(ctx, n)
}

func (b *Budget) enter(namespace string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line[namespace] >= maxLine {
		return false
	}
	b.line[namespace]++
	return true
}

func (b *Budget) leave(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.line[namespace]--; b.line[namespace] == 0 {
		delete(b.line, namespace)
	}
}

func (s *Share) wait(ctx context.Context, n int64) error {
	for {
		freed, err := s.take(n, true)
		if freed == nil {
			return err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return err
		}
	}
}

// take returns what to wait for before it can succeed, if waiting helps and is wanted.
func (s *Share) take(n int64, wait bool) (<-chan struct{}, error) {
	b := s.budget
	add, held := n, s.held+n
	if !s.counted {
		add = held
	}
	share, total := b.share, b.total
	if held > Small {
		if held > large(share) {
			return nil, errs.New(errs.ResourceExhausted, ReasonTooLarge, "the request would take %s of memory, and one request may take %s", size(held), size(large(share))).
				Hint("send less at once")
		}
		share, total = large(share), large(total)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var of string
	switch {
	case b.by[s.namespace]+add > share:
		of = "the requests of this namespace"
	case b.used+add > total:
		of, share = "the requests of all namespaces", total
	default:
		b.used += add
		b.by[s.namespace] += add
		s.held, s.counted = held, true
		return nil, nil
	}
	if wait && b.freed == nil {
		b.freed = make(chan struct{})
	}
	return b.freed, errs.New(errs.ResourceExhausted, ReasonBusy, "%s that are under way hold the memory that they may (%s)", of, size(share)).
		Hint("send it again in a moment, or less at once").RetryAfter(time.Second)
}

// Free gives back what the request holds. It is idempotent, and the share can be used again.
func (s *Share) Free() {
	if !s.counted {
		s.held = 0
		return
	}
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.give(s.namespace, s.held)
	s.held, s.counted = 0, false
}

// give takes back n bytes. The lock is held.
func (b *Budget) give(namespace string, n int64) {
	b.used -= n
	if b.by[namespace] -= n; b.by[namespace] == 0 {
		delete(b.by, namespace)
	}
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// size writes a number of bytes as people say it.
func size(n int64) string {
	if n < 1<<20 {
		return strconv.FormatInt((n+1<<10-1)>>10, 10) + " KiB"
	}
	return strconv.FormatInt((n+1<<20-1)>>20, 10) + " MiB"
}
