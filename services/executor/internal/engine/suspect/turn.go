// Package suspect lets one suspect run at a time work on this process. It remembers the owners whose deaths
// are explained by such a run.
package suspect

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// TurnTime is how long a suspect excludes others. Longer work continues beside the next one, and stays
// recorded.
const TurnTime = 3 * time.Second

// maxExplained bounds the owners that are remembered.
const maxExplained = 100

// Turn lets one suspect of this process work at a time. It is safe for concurrent use.
type Turn struct {
	taken chan struct{}
	// MaxHold is a time.Duration: how long one suspect excludes others.
	MaxHold atomic.Int64
}

// NewTurn returns a free turn that excludes others for maxHold at most.
func NewTurn(maxHold time.Duration) *Turn {
	s := &Turn{taken: make(chan struct{}, 1)}
	s.MaxHold.Store(int64(maxHold))
	return s
}

// Take waits for the turn until ctx ends. After success the caller must call leave.
func (s *Turn) Take(ctx context.Context) (leave func(), err error) {
	select {
	case s.taken <- struct{}{}:
		return s.begin(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Try takes the turn if it is free. After success the caller must call leave.
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
	late := time.AfterFunc(time.Duration(s.MaxHold.Load()), once)
	return func() {
		late.Stop()
		once()
	}
}

// Explained remembers owners whose death is explained by a known run, so that their other runs are not
// suspect. It is safe for concurrent use.
type Explained struct {
	mu     sync.Mutex
	owners []journal.Owner
}

// Add remembers owners and drops the oldest beyond maxExplained.
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
