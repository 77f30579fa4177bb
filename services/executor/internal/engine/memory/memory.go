// Package memory counts the bytes that live runs hold against a budget that namespaces share fairly. It
// knows runs by their ids only.
package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/memlimit"
)

// ReasonMemoryFull is the reason when no further run is loaded for the moment.
const ReasonMemoryFull = errs.ReasonMemoryFull

const (
	// defaultLive is the default budget in a process without a memory limit. minLive is the least one in a
	// process with a small limit.
	defaultLive = 1 << 30
	minLive     = 32 << 20
)

// DefaultLive is the default budget of all live runs: an eighth of Go's memory limit, or 1 GiB without a
// limit. Requests under way have a fifth. Calls and their results, decoded requests, and encoded responses
// take as much again. So one tenant that takes all it may fills less than half of the limit. Beyond that
// the collector would run without a pause, at the expense of all tenants.
func DefaultLive() int64 {
	limit := memlimit.Bytes()
	if limit == 0 {
		return defaultLive
	}
	return max(limit/8, minLive)
}

// Ledger counts the bytes that live runs hold, with their graphs and their unwritten events, against a
// budget. Only a run that is about to be loaded waits for room or is refused. Later growth of a live run is
// counted without a check, and relieve evicts runs when it exceeds the budget. It is safe for concurrent
// use.
type Ledger struct {
	*inflight.Budget
	Total int64
	// Canceled bounds what canceled runs hold that were loaded beyond the budget. These bytes count in the
	// budget, too.
	Canceled *inflight.Budget

	mu sync.Mutex
	// grants is the room that is reserved for runs that waited, by run id.
	grants map[string]Grant
	// reading counts runs that are being read, whose size is not known yet.
	reading int

	// unwritten is how many of the bytes of each namespace wait to be written.
	unwritten map[string]int64

	// Over gets a value when a namespace exceeds its share.
	Over chan struct{}
}

// Grant is reserved room: in the budget, or in that of canceled runs.
type Grant struct {
	Size     int64
	canceled bool
}

// CanceledShare is the part of the budget, as its divisor, that canceled runs may take in addition while
// they end. They end at once, since none of their calls continues.
const CanceledShare = 8

// New returns a ledger with a budget of total bytes.
func New(total int64) *Ledger {
	return &Ledger{Budget: inflight.New(total), Total: total, Canceled: inflight.New(max(total/CanceledShare, 1)), grants: map[string]Grant{}, unwritten: map[string]int64{},
		Over: make(chan struct{}, 1)}
}

// Add adds n bytes, which may be negative, to what the live runs of a namespace hold.
func (m *Ledger) Add(namespace string, n int64) {
	if m.Budget.Add(namespace, n) && n > 0 {
		select {
		case m.Over <- struct{}{}:
		default:
		}
	}
}

// Plenty reports whether so little is held that a namespace could start runs which fill its share.
func (m *Ledger) Plenty() bool { return m.Used() < m.Total/4 }

// Write adds n bytes, which may be negative, to what waits to be written.
func (m *Ledger) Write(namespace string, n int64) {
	m.mu.Lock()
	if m.unwritten[namespace] += n; m.unwritten[namespace] == 0 {
		delete(m.unwritten, namespace)
	}
	m.mu.Unlock()
	m.Add(namespace, n)
}

// IsWriting reports whether bytes of the namespace wait to be written.
func (m *Ledger) IsWriting(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten[namespace] > 0
}

// Await waits for the room that a run lacks. The room is reserved until Take or Forfeit.
func (m *Ledger) Await(ctx context.Context, run string, lacks *FullError) error {
	budget := m.Budget
	if lacks.Canceled {
		budget = m.Canceled
	}
	if err := budget.Await(ctx, lacks.Namespace, lacks.Size); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants[run] = Grant{lacks.Size, lacks.Canceled}
	return nil
}

// Claim returns the reservation of a run. It stays counted, and the caller must give it back.
func (m *Ledger) Claim(run string) Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grants[run]
	delete(m.grants, run)
	return g
}

// Take counts a run of this size that was read, and reports whether there is room for it. A canceled run
// may exceed the budget within m.Canceled. Then beyond is what it takes of that, and the caller must give
// it back.
func (m *Ledger) Take(run, namespace string, size int64, canceled bool) (beyond int64, ok bool) {
	switch g := m.Claim(run); {
	case g.canceled:
		beyond = g.Size
	case g.Size > 0:
		m.Add(namespace, size-g.Size)
		return 0, true
	case m.Try(namespace, size):
		return 0, true
	case canceled && m.Canceled.Try(namespace, size):
		beyond = size
	default:
		return 0, false
	}
	m.Add(namespace, size)
	return beyond, true
}

// Forfeit gives back the reservation, if there is one, of a run that was not read.
func (m *Ledger) Forfeit(run, namespace string) {
	switch g := m.Claim(run); {
	case g.canceled:
		m.Canceled.Add(namespace, -g.Size)
	case g.Size > 0:
		m.Add(namespace, -g.Size)
	}
}

// BeginRead takes a slot to read a run, and reports whether there was one. The size of a run is known only
// after it was read, so there are as many slots as runs of most bytes would fit, and at least one.
func (m *Ledger) BeginRead(most int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading > 0 && m.Used()+int64(m.reading+1)*most > m.Total {
		return false
	}
	m.reading++
	return true
}

// EndRead gives the slot back.
func (m *Ledger) EndRead() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading--
}

// FullError reports that a run was not loaded, because there is no room of this size for it.
type FullError struct {
	Namespace string
	Size      int64
	// Canceled reports that the run was canceled. It is loaded as soon as there is room among the canceled
	// runs.
	Canceled bool
}

// ForCanceled is the same error for a canceled run.
func (e *FullError) ForCanceled() *FullError { return &FullError{e.Namespace, e.Size, true} }

func (e *FullError) Error() string {
	return fmt.Sprintf("there is no room for a run of %d bytes", e.Size)
}
