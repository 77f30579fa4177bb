package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// ReasonIDTaken is the reason when another live process uses this executor's id.
const ReasonIDTaken = "EXECUTOR_ID_TAKEN"

// ensureUniqueID returns an error if another live process uses this executor's id: the two would take each
// other's runs for ever. A registration without heartbeats for a whole lease belongs to an earlier process,
// and this one replaces it.
func (e *Engine) ensureUniqueID(ctx context.Context) error {
	window := e.cfg.IDWait
	if window <= 0 {
		window = e.cfg.Lease
	}
	pauses := min(window/20, time.Second)
	var first journal.Owner
	var since time.Time // the end of the first look
	for {
		begin := time.Now()
		now, there, err := e.namesake(ctx)
		if err != nil || !there || e.outlived(now.Owner) || now.SinceHeartbeat >= window {
			return err
		}
		switch {
		case first.IsZero():
			first, since = now.Owner, time.Now()
			e.log.InfoContext(ctx, "an executor with this id was alive a moment ago; waiting to see whether it still is", "executor", e.cfg.ID, "addr", now.Addr)
		case now.Owner != first || now.SinceHeartbeat < begin.Sub(since):
			// There was a heartbeat after the first look.
			return errs.New(errs.FailedPrecondition, ReasonIDTaken, "another executor with the id %q is at work on this database, at %q", e.cfg.ID, now.Addr).
				Hint(fmt.Sprintf("give each executor an id of its own (executor.id, EPIGRAPH_EXECUTOR_ID; the name of its host if unset), or stop the other one first; one that has died makes room within %s", window))
		}
		if !sleep.For(ctx, pauses) {
			return ctx.Err()
		}
	}
}

// namesake returns the executor that is registered under this id.
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
