// Package memory counts the bytes that live runs hold against a budget that namespaces share fairly. It knows
// runs by their ids, and nothing of what they are.
package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/memlimit"
)

// ReasonMemoryFull is the reason when no more runs are taken into memory for the moment.
const ReasonMemoryFull = errs.ReasonMemoryFull

const (
	// defaultLive is what live runs may take in a process that has no memory limit, minLive in one with a
	// small limit.
	defaultLive = 1 << 30
	minLive     = 32 << 20
)

// DefaultLive is what live runs may take together unless the configuration says otherwise: an eighth of Go's
// memory limit, 1 GiB without one. Requests under way have a fifth; calls and their results, what is made of
// requests, and what is encoded and sent take as much again. So less than half of the limit is in use when
// one tenant takes all that it may: beyond that the collector runs without a pause, and all tenants wait for
// it.
func DefaultLive() int64 {
	limit := memlimit.Bytes()
	if limit == 0 {
		return defaultLive
	}
	return max(limit/8, minLive)
}

// Ledger counts the bytes that live runs hold, with their graphs and with what they have waiting to be
// written, against a budget. Only runs that are to become live wait for room or are refused. What a live run
// takes later is counted without a check, and relieve evicts runs when that is too much. It is safe for
// concurrent use.
type Ledger struct {
	*inflight.Budget
	Total int64
	// Canceled bounds what canceled runs hold that were read though the budget had no room for them. The
	// budget counts it as well, as it does what live runs are given.
	Canceled *inflight.Budget

	mu sync.Mutex
	// grants is what is kept for runs that stood in line, by run.
	grants map[string]Grant
	// reading counts runs that are being read, of which it is not known yet what they take.
	reading int

	// unwritten is how much of what each namespace holds waits to be written.
	unwritten map[string]int64

	// Over gets a value when a namespace holds more than it may.
	Over chan struct{}
}

// Grant is what is kept for a run: in the budget, or in that of canceled runs.
type Grant struct {
	Size     int64
	canceled bool
}

// CanceledShare is the part of the memory of live runs that canceled ones may take beyond it while they end,
// which they do at once: none of what they did goes on.
const CanceledShare = 8

// New returns a ledger with a budget of total bytes.
func New(total int64) *Ledger {
	return &Ledger{Budget: inflight.New(total), Total: total, Canceled: inflight.New(max(total/CanceledShare, 1)), grants: map[string]Grant{}, unwritten: map[string]int64{},
		Over: make(chan struct{}, 1)}
}

// Add counts n bytes more, or less, of what the live runs of a namespace hold.
func (m *Ledger) Add(namespace string, n int64) {
	if m.Budget.Add(namespace, n) && n > 0 {
		select {
		case m.Over <- struct{}{}:
		default:
		}
	}
}

// Write counts n bytes more, or less, that wait to be written.
func (m *Ledger) Write(namespace string, n int64) {
	m.mu.Lock()
	if m.unwritten[namespace] += n; m.unwritten[namespace] == 0 {
		delete(m.unwritten, namespace)
	}
	m.mu.Unlock()
	m.Add(namespace, n)
}

// IsWriting reports whether something of the namespace waits to be written.
func (m *Ledger) IsWriting(namespace string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unwritten[namespace] > 0
}

// Wait stands in line for the room that a run lacks, which is kept for it until take or forfeit.
func (m *Ledger) Wait(ctx context.Context, run string, lacks *FullError) error {
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

// Claim returns what is kept for a run. It stays counted, and is the caller's to give back.
func (m *Ledger) Claim(run string) Grant {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grants[run]
	delete(m.grants, run)
	return g
}

// Take counts a run of this size that was read, and reports whether there is room for it. A run that was
// canceled may exceed the budget within m.canceled: then beyond is what it has of that, for the caller to
// give back.
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

// Forfeit gives back what is kept for a run that was not read, if anything is.
func (m *Ledger) Forfeit(run, namespace string) {
	switch g := m.Claim(run); {
	case g.canceled:
		m.Canceled.Add(namespace, -g.Size)
	case g.Size > 0:
		m.Add(namespace, -g.Size)
	}
}

// Read takes a place to read a run, and reports whether there was one. How much a run takes is known only
// after it was read, so there are as many places as runs of most bytes would fit. There is always one.
func (m *Ledger) Read(most int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reading > 0 && m.Used()+int64(m.reading+1)*most > m.Total {
		return false
	}
	m.reading++
	return true
}

// WasRead gives the place back.
func (m *Ledger) WasRead() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading--
}

// FullError says that a run was not brought into memory, since there is no room of this size for it.
type FullError struct {
	Namespace string
	Size      int64
	// Canceled says that the run was canceled: it is read as soon as there is room among those that were.
	Canceled bool
}

// OfCanceled is the same of a run that was canceled.
func (e *FullError) OfCanceled() *FullError { return &FullError{e.Namespace, e.Size, true} }

func (e *FullError) Error() string {
	return fmt.Sprintf("there is no room for a run of %d bytes", e.Size)
}
