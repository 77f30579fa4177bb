package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// wake is the argument of a job about a run: what the journal needs, and the exact instant of a timer.
type wake struct {
	journal.JobArgs
	Due time.Time `json:"due,omitzero"`
	// Start is set if the run is to begin.
	Start bool `json:"start,omitempty"`
}

// Work carries out a job about a run: it claims the run, and continues it now or at its instant. After an
// error the job should come again, perhaps at another executor. An errs.Unavailable error is no fault.
func (e *Engine) Work(ctx context.Context, args []byte) error {
	t := e.current()
	if t == nil {
		return e.notReady()
	}
	var w wake
	if err := json.Unmarshal(args, &w); err != nil || w.RunID == "" {
		return errs.New(errs.InvalidArgument, "JOB_INVALID", "the job names no run").With(err)
	}
	trace.SpanFromContext(ctx).SetAttributes(tracing.RunAttribute(w.RunID))
	if w.Start {
		// A run for which its namespace has no room is not even claimed. It begins when there is room.
		if room, err := e.quotas.Room(ctx, w.Namespace); err != nil || !room {
			return err
		}
	}
	return t.claim(ctx, w)
}

// claim claims a run without an owner, and continues it at its time.
func (t *session) claim(ctx context.Context, w wake) error {
	if r := t.get(w.RunID); r != nil && !r.gone.Load() {
		t.pollCommandsSoon()
		return nil
	}
	if !t.memory.Room(w.Namespace, 1) {
		return t.errFull(errs.Unavailable)
	}
	owner, err := t.e.journal.ClaimRun(ctx, t.owner, w.Namespace, w.RunID, t.e.TakeOverPolicy())
	switch {
	case errs.ReasonOf(err) == journal.ReasonRunNotFound:
		return nil
	case err != nil:
		return err
	case owner != t.owner:
		return nil // it has another owner, or it has ended
	}
	failpoint.Hit(failpoint.ClaimAfter)
	if at := w.Due.Add(-holdBefore); time.Now().Before(at) {
		t.alarms.set(w.Namespace, w.RunID, at)
		return nil
	}
	t.loadSoon(w.Namespace, w.RunID)
	return nil
}

// wake claims a run for which a command was enqueued here. It may fail, since there is also a job.
func (t *session) wake(namespace, id string) {
	err := t.claim(t.background, wake{JobArgs: journal.JobArgs{Namespace: namespace, RunID: id}})
	if err != nil && t.background.Err() == nil && !journal.IsFenced(err) {
		t.e.log.DebugContext(t.background, "run not claimed here", "err", err, "run_id", id)
	}
}

// holdBefore is how long before its timer a run is read, so that it is ready at the instant. It is several
// times what reading takes, since a busy process may serve other runs first.
const holdBefore = 50 * time.Millisecond

// canClaim reports whether runs may be claimed for this session: it can read them now.
func (t *session) canClaim() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && !t.memory.Full()
}

// beginCommand is the command that begins a recorded run, made from its row.
func (r *run) beginCommand(now time.Time) (workgraph.Begin, error) {
	if r.pendingStart == nil {
		return workgraph.Begin{}, fmt.Errorf("run %s has begun: %w", r.id, workgraph.ErrState)
	}
	b := *r.pendingStart
	b.Now = now
	return b, nil
}

// Live is how many runs are in memory here.
func (e *Engine) Live() int {
	t := e.current()
	if t == nil {
		return 0
	}
	return t.live()
}
