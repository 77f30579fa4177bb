package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// subject is what the order is about: its run, or the task to start.
func (o *Order) subject() string {
	if o.Kind == OrderStart {
		return o.TaskID
	}
	return o.RunID
}

// request makes what carries out the order repeatable.
func (o *Order) request() journal.Request {
	return journal.Request{ID: o.ID + "/" + o.subject(), BodyHash: o.TaskID}
}

// carryOut carries out an order. certain reports that the registry may forget the order: what it asks
// for will happen, or never can. refused is why a task cannot be started.
func (e *Engine) carryOut(ctx context.Context, o Order) (certain bool, refused error) {
	var err error
	switch o.Kind {
	case OrderStart:
		return e.startTask(ctx, o)
	case OrderPause:
		err = e.Pause(ctx, command.PauseRequest{Namespace: o.Namespace, RunID: o.RunID, Reason: o.Reason, Request: o.request()})
	case OrderResume:
		err = e.resumePaused(ctx, o)
	default:
		_, err = e.Cancel(ctx, command.CancelRequest{Namespace: o.Namespace, RunID: o.RunID, Reason: o.Reason})
	}
	switch errs.ReasonOf(err) {
	case "":
		if err == nil {
			e.log.InfoContext(ctx, "order to run carried out", "order", o.Kind.String(), "run_id", o.RunID, "task_id", o.TaskID, "reason", o.Reason)
			return true, nil
		}
	case journal.ReasonRunNotFound:
		// A confirmed run was recorded, so it is deleted by now. Else its start may be in progress: the
		// task is claimed before the run is recorded.
		return o.Confirmed || time.Since(o.Time) > slowestStart, nil
	case journal.ReasonRunEnded:
		return true, nil
	}
	if ctx.Err() == nil {
		e.log.WarnContext(ctx, "order to run is not carried out yet", "err", err, "order", o.Kind.String(), "run_id", o.RunID, "task_id", o.TaskID)
	}
	return false, nil
}

// errPausing says that an earlier order to pause the run is not applied yet.
func errPausing(runID string) error {
	return errs.New(errs.Unavailable, errs.ReasonNotReady, "the pause of run %q is not applied yet", runID)
}

// resumePaused resumes a run that was paused with its epic. A pause for any other reason stays, and so
// does one that the run cannot leave without help: it is told to whoever looks at the run.
func (e *Engine) resumePaused(ctx context.Context, o Order) error {
	if _, unread, err := e.journal.FindCommand(ctx, o.Namespace, o.RunID, journal.CommandPause, "pause", false); err != nil || unread {
		if err == nil {
			err = errPausing(o.RunID)
		}
		return err
	}
	row, err := e.journal.Head(ctx, o.Namespace, o.RunID)
	if err != nil || row.State != journal.StatePaused || row.Reason != ReasonEpicPaused {
		return err
	}
	// With the revision, no pause by somebody else is ended.
	err = e.Resume(ctx, command.ResumeRequest{Namespace: o.Namespace, RunID: o.RunID, Reason: o.Reason, Revision: row.Revision, Request: o.request()})
	switch errs.ReasonOf(err) {
	case command.ReasonNotPaused, command.ReasonReconciliationNeeded, workgraph.ReasonBudget:
		return nil
	}
	return err
}

// startTask starts the run of a task. The registry forgets the order when the run confirms its claim,
// so that it is repeated until then.
func (e *Engine) startTask(ctx context.Context, o Order) (certain bool, refused error) {
	if e.tasks == nil {
		return false, nil
	}
	lasting, err := e.tasks.StartTask(ctx, o)
	switch {
	case err == nil || ctx.Err() != nil:
		return false, nil
	case lasting:
		e.log.InfoContext(ctx, "task cannot be started", "err", err, "task_id", o.TaskID)
		return true, err
	}
	e.log.InfoContext(ctx, "task is not started yet", "err", err, "task_id", o.TaskID)
	return false, nil
}
