package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// ReasonIDTaken is the reason when another process is at work under the id of this executor.
const ReasonIDTaken = "EXECUTOR_ID_TAKEN"

// alone makes sure that nobody else is at work under this executor's id: two would take the runs from each
// other for ever. Who is registered under it and sends no heartbeat until its lease has ended is the life
// before this one, and this one takes its place.
func (e *Engine) ensureUniqueID(ctx context.Context) error {
	window := e.cfg.IDWait
	if window <= 0 {
		window = e.cfg.Lease
	}
	pauses := min(window/20, time.Second)
	var first journal.Owner
	var since time.Time // when the first look was over
	for {
		begin := time.Now()
		now, there, err := e.namesake(ctx)
		if err != nil || !there || e.outlived(now.Owner) || now.SinceHeartbeat >= window {
			return err
		}
		switch {
		case first.IsZero():
			first, since = now.Owner, time.Now()
			e.log.InfoContext(ctx, "an executor with this id was there a moment ago; it is seen whether it still is", "executor", e.cfg.ID, "addr", now.Addr)
		case now.Owner != first || now.SinceHeartbeat < begin.Sub(since):
			// The newest heartbeat is younger than the first look is long ago.
			return errs.New(errs.FailedPrecondition, ReasonIDTaken, "another executor with the id %q is at work on this database, at %q", e.cfg.ID, now.Addr).
				Hint(fmt.Sprintf("give each executor an id of its own (executor.id, EPIGRAPH_EXECUTOR_ID; the name of its host if unset), or stop the other one first; one that has died makes room within %s", window))
		}
		if !sleep.For(ctx, pauses) {
			return ctx.Err()
		}
	}
}

// namesake is who is registered under the id of this executor.
func (e *Engine) namesake(ctx context.Context) (journal.Executor, bool, error) {
	all, err := e.journal.Executors(ctx)
	if err != nil {
		return journal.Executor{}, false, fmt.Errorf("look for executors: %w", err)
	}
	for _, x := range all {
		if x.ID == e.cfg.ID {
			return x, true, nil
		}
	}
	return journal.Executor{}, false, nil
}
