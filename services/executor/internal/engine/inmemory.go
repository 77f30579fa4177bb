package engine

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// liveRuns gives package command access to the runs in memory here.
type liveRuns struct{ *Engine }

// Look implements command.Live.
func (l liveRuns) Look(namespace, runID string) (func(f func(*workgraph.State)), bool) {
	r := l.live(namespace, runID)
	if r == nil || r.gone.Load() {
		return nil, false
	}
	return func(f func(*workgraph.State)) {
		r.lock()
		defer r.mu.Unlock()
		f(r.State)
	}, true
}

// Refused implements command.Live.
func (l liveRuns) Refused(namespace, runID string) (*record.AmendRefused, bool) {
	r := l.live(namespace, runID)
	if r == nil || r.gone.Load() {
		return nil, false
	}
	r.lock()
	defer r.mu.Unlock()
	return r.Refusal, true
}

// Unheard implements command.Live.
func (l liveRuns) Unheard(namespace, runID string) (record.Unheard, bool) {
	r := l.live(namespace, runID)
	if r == nil || r.gone.Load() {
		return nil, false
	}
	r.lock()
	defer r.mu.Unlock()
	return r.Unheard, true
}

// AwaitPause implements command.Live.
func (l liveRuns) AwaitPause(ctx context.Context, namespace, runID string) {
	r := l.live(namespace, runID)
	if r == nil {
		return
	}
	r.lock()
	if status, _ := r.State.Status(); status != workgraph.StatusPaused {
		r.mu.Unlock()
		return
	}
	quiet := r.awaitQuiet()
	r.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// Claimant implements command.Live.
func (l liveRuns) Claimant() journal.Owner {
	if t := l.current(); t != nil && t.canClaim() {
		return t.owner
	}
	return journal.Owner{}
}

// Room implements command.Live. It refuses a large command for a run that is in memory here if there is no
// room for it. A run elsewhere applies the command there, and an evicted run is read when there is room for
// it and its commands.
func (l liveRuns) Room(namespace, runID string, n int64) error {
	r := l.live(namespace, runID)
	if n <= inflight.Small || r == nil || r.gone.Load() || r.t.memory.Room(namespace, n) {
		return nil
	}
	return r.t.errFull(errs.ResourceExhausted)
}

// ApplySoon has a command that was enqueued here applied at once, if the run is this executor's or has no
// owner. Another owner gets notice from the journal, and a job wakes a run without one.
func (e *Engine) ApplySoon(p journal.Enqueued) {
	t := e.current()
	switch {
	case t == nil:
	case p.Claimed && p.Owner == t.owner:
		failpoint.Hit(failpoint.ClaimAfter)
		t.loadSoon(p.Run.Namespace, p.Run.ID)
	case !p.New:
	case p.Owner == t.owner:
		t.pollCommandsSoon()
	case p.Owner.IsZero():
		t.spawn(func() { t.wake(p.Run.Namespace, p.Run.ID) })
	}
}
