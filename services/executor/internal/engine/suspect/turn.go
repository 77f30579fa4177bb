// Package suspect lets one run at a time work on this process that may bring it down, and remembers which
// owners are known to have gone down by such a run.
package suspect

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// TurnTime is how long a suspect keeps others from their turn. What takes longer goes on, and stays recorded,
// beside them.
const TurnTime = 3 * time.Second

// maxExplained is how many owners are remembered whose end another run has caused than those they left.
const maxExplained = 100

// Turn lets one suspect of this process work at a time. It is safe for concurrent use.
type Turn struct {
	taken chan struct{}
	// Most is a time.Duration: for how long it is kept from others.
	Most atomic.Int64
}

// NewTurn returns a free turn that is kept from others for most at the longest.
func NewTurn(most time.Duration) *Turn {
	s := &Turn{taken: make(chan struct{}, 1)}
	s.Most.Store(int64(most))
	return s
}

// Take waits for the turn until ctx ends. After success leave must be called.
func (s *Turn) Take(ctx context.Context) (leave func(), err error) {
	select {
	case s.taken <- struct{}{}:
		return s.begin(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Try takes the turn if it is free.
func (s *Turn) Try() (leave func(), ok bool) {
	select {
	case s.taken <- struct{}{}:
		return s.begin(), true
	default:
		return func() {}, false
	}
}

func (s *Turn) begin() (leave func()) {
	once := sync.OnceFunc(func() { <-s.taken })
	late := time.AfterFunc(time.Duration(s.Most.Load()), once)
	return func() {
		late.Stop()
		once()
	}
}

// Explained are owners that went down while a run was at work that is known.
type Explained struct {
	mu     sync.Mutex
	owners []journal.Owner
}

// Add remembers owners, and forgets the oldest beyond maxExplained.
func (x *Explained) Add(owners []journal.Owner) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.owners = append(x.owners, owners...)
	x.owners = slices.Delete(x.owners, 0, max(0, len(x.owners)-maxExplained))
}

// Has reports whether an owner is remembered.
func (x *Explained) Has(o journal.Owner) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Contains(x.owners, o)
}
