package engine

import (
	"context"
	"runtime"
	"time"

	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ChildStarts is how many children of a namespace are started at once.
const ChildStarts = childStarts

// ComputingLimit is how many turns a namespace has.
func ComputingLimit() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// LateTurns is how many evaluations began without a turn that was waited for before the run was locked.
func (e *Engine) LateTurns() int64 { return e.lateTurns.Load() }

// LiveBytes is how much memory counts for live runs.
func (e *Engine) LiveBytes() int64 { return e.current().memory.Used() }

// FinishBlocked ends a queued attempt of a live run as one that the budget of the run kept from beginning.
func (e *Engine) FinishBlocked(runID, node string) bool {
	t := e.current()
	r := t.get(runID)
	for _, a := range r.inFlight() {
		if a.start.Node == node && t.sched.Remove(&a.task) {
			a.blocked = true
			t.finish(a, nil, workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonBudget, "blocked"), tracing.OfSpan(r.trace))
			return true
		}
	}
	return false
}

// LockAfterWrite holds the lock of a live run with a write in progress, as a long evaluation does, until
// unlock is called.
func (e *Engine) LockAfterWrite(runID string) (unlock func()) {
	r := e.current().get(runID)
	r.mu.Lock()
	r.write(&journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Progress: true})
	return r.mu.Unlock
}

// LoadBeside loads a run again and again that another goroutine reads and finds no turn for, until end is
// called. It returns once the lack of a turn is known.
func (e *Engine) LoadBeside(namespace, runID string) (end func()) {
	t := e.current()
	l := &loading{done: make(chan struct{}), err: &noTurnError{namespace}}
	close(l.done)
	b := &pendingLoad{namespace: namespace, id: runID, wait: soonestTry}
	t.mu.Lock()
	t.loading[runID] = l
	t.mu.Unlock()
	t.queueLoad(b, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.pendingLoads[runID] {
		t.mu.Unlock()
		runtime.Gosched()
		t.mu.Lock()
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.loading, runID)
	}
}

// LoadSoon loads a run that may be this executor's.
func (e *Engine) LoadSoon(namespace, runID string) { e.current().loadSoon(namespace, runID) }

// Turns are the turns to compute of this executor.
func (e *Engine) Turns() *turns.Turns { return e.computing }

// Evaluating reports whether a live run is evaluating expressions.
func (e *Engine) Evaluating(runID string) bool {
	t := e.current()
	if t == nil {
		return false
	}
	r := t.get(runID)
	if r == nil {
		return false
	}
	r.amu.Lock()
	defer r.amu.Unlock()
	return r.evaluating != nil
}

// GiveBackAfter sets how long a run waits here for room before it is handed back.
func (e *Engine) GiveBackAfter(d time.Duration) { e.roomWait = d }

// KeepTurnsOfSuspects sets how long a suspect may keep its turn.
func (e *Engine) KeepTurnsOfSuspects(d time.Duration) { e.suspects.MaxHold.Store(int64(d)) }

// Expedite lets runs ask for prices now, as when the price book answers again.
func (e *Engine) Expedite(ctx context.Context) { e.current().expedite(ctx) }

// StateVisits are the visits of a run in the machine, without the items of maps.
func (e *Engine) StateVisits(ctx context.Context, namespace, runID string) (visits []workgraph.VisitInfo, err error) {
	look, _, err := e.Inspect(ctx, namespace, runID)
	if err != nil {
		return nil, err
	}
	look(func(s *workgraph.State) {
		s.Visits(func(v workgraph.VisitInfo) bool {
			if v.Item == 0 {
				visits = append(visits, v)
			}
			return true
		})
	})
	return visits, nil
}
