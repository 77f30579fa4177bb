package accounting

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// noteAuthor signs the remarks of the registry itself.
const noteAuthor = "registry"

// ClaimTask reserves a task for a run. A repetition renews the lease of an unconfirmed claim, so that a run
// may wait longer or, with the shortest lease, give the task back. To wait longer it passes the same gate as
// a new claim: the epic may have been paused, or have spent its budget, meanwhile. A claim of another run
// whose lease ended unconfirmed is taken over. database is the one that the run is recorded in.
func (b *Accounts) ClaimTask(ctx context.Context, namespace, taskID, runID, database string, lease time.Duration) (t epic.Task, until time.Time, err error) {
	if lease, err = epic.CheckLease(lease); err != nil {
		return epic.Task{}, time.Time{}, err
	}
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		w, err := open(ctx, tx, namespace, taskID, dbkit.Now())
		if err != nil {
			return err
		}
		clock, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		mine, err := tx.Claim(ctx, namespace, taskID, runID)
		if err != nil {
			return err
		}
		ends := clock.Add(lease).Truncate(time.Microsecond)
		if mine != nil && mine.Holds(clock) {
			if mine.State == epic.Claimed {
				if ends.After(mine.LeaseUntil) {
					if err := epic.Claimable(w.epic, w.task, nil, clock); err != nil {
						return err
					}
					if err := w.estimateFits(ctx); err != nil {
						return err
					}
				}
				mine.LeaseUntil = ends
			}
			t, until = w.task, mine.LeaseUntil
			return tx.PutClaim(ctx, *mine)
		}
		if mine != nil && (mine.State == epic.Settled || mine.State == epic.Released) {
			return errs.New(errs.FailedPrecondition, epic.ReasonNotClaimable, "run %s is done with task %s", runID, taskID).
				Set("state", w.task.State.String()).Set("task_id", taskID).Hint("work on it again with another run")
		}
		holder, err := w.holder(ctx)
		if err != nil {
			return err
		}
		if err := epic.Claimable(w.epic, w.task, holder, clock); err != nil {
			return err
		}
		if err := w.estimateFits(ctx); err != nil {
			return err
		}
		c := epic.Claim{
			Namespace: namespace, TaskID: taskID, RunID: runID, Database: database, State: epic.Claimed, LeaseUntil: ends,
			EstimatedTokens: min(max(w.task.EstimatedTokens, 0), epic.MaxEstimate), TokensBefore: w.task.Actual.Tokens,
		}
		if err := tx.PutClaim(ctx, c); err != nil {
			return err
		}
		if w.warn() {
			if err := w.save(ctx, w.task.State); err != nil {
				return err
			}
		}
		t, until = w.task, ends
		return nil
	})
	return t, until, err
}

// warn leaves a note on a task that starts under a budget which cannot be held exactly, and reports whether
// it did. A task that keeps no more notes goes without.
func (w *work) warn() bool {
	text := w.epic.BudgetNote()
	return text != "" && w.task.AddNote(epic.Note{Author: noteAuthor, Text: text}, w.now) == nil
}

// ConfirmClaim makes a claim last until it is settled and moves the task to running. It changes nothing when
// the claim is confirmed or over. A run whose lease was lost gets the task back if nobody else has taken it,
// since the run has begun. A run that begins on a task that it may no longer take, or that is gone, is
// canceled: a task has at most one run, and this one could not be reached when the task changed, because its
// start was under way. workflow is the version of the catalog that the run runs, which may be empty. The task
// keeps it with the run.
func (b *Accounts) ConfirmClaim(ctx context.Context, namespace, taskID, runID, database, workflow string, start time.Time) (out epic.Task, err error) {
	now := dbkit.Now()
	if start = dbkit.Micros(start); start.IsZero() {
		start = now
	}
	var lost error
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		lost = nil
		w, mine, err := openClaim(ctx, tx, namespace, taskID, runID, now)
		if errs.ReasonOf(err) == store.ReasonTaskNotFound {
			lost = err
			return tx.CancelRun(ctx, namespace, taskID, runID, database, epic.ReasonTaskDeleted)
		}
		if err != nil {
			return err
		}
		out = w.task
		if mine.State == epic.Confirmed || mine.State == epic.Settled {
			return nil
		}
		took, holder, err := w.begin(ctx, *mine, workflow, start)
		if err != nil {
			return err
		}
		out = w.task
		if took {
			return nil
		}
		lost = epic.LostClaim(w.task, runID, holder)
		reason := epic.ReasonClaimLost
		if w.task.State == epic.TaskCanceled {
			reason = epic.ReasonTaskCanceled
		}
		return tx.CancelRun(ctx, namespace, taskID, runID, database, reason)
	})
	if err == nil {
		err = lost
	}
	return out, err
}

func openClaim(ctx context.Context, tx store.Tx, namespace, taskID, runID string, now time.Time) (*work, *epic.Claim, error) {
	w, err := open(ctx, tx, namespace, taskID, now)
	if err != nil {
		return nil, nil, err
	}
	mine, err := tx.Claim(ctx, namespace, taskID, runID)
	if err != nil {
		return nil, nil, err
	}
	if mine == nil {
		return nil, nil, errs.New(errs.FailedPrecondition, epic.ReasonClaimNotFound, "run %s has not claimed task %s", runID, taskID).
			Hint("claim the task first")
	}
	return w, mine, nil
}

// begin confirms a claim and moves its task to running, unless the task is no longer the run's to
// take; then it returns who has it, if anybody does.
func (w *work) begin(ctx context.Context, mine epic.Claim, workflow string, start time.Time) (took bool, holder *epic.Claim, err error) {
	if mine.State == epic.Released || w.task.State != epic.TaskPending {
		holder, err = w.tx.ActiveClaim(ctx, w.task.Namespace, w.task.ID)
		return false, holder, err
	}
	if mine.State == epic.Lost {
		if holder, err = w.holder(ctx); err != nil || holder != nil {
			return false, holder, err
		}
	}
	if err := w.claim(ctx, mine, epic.Confirmed); err != nil {
		return false, nil, err
	}
	if err := w.task.Move(epic.TaskRunning, start); err != nil {
		return false, nil, err
	}
	w.task.RunID, w.task.RunWorkflow = mine.RunID, workflow
	if err := w.save(ctx, epic.TaskPending); err != nil || w.epic.State != epic.Paused {
		return true, nil, err
	}
	// The epic was paused while the start was under way.
	return true, nil, w.tx.OrderRuns(ctx, w.task.Namespace, w.epic.ID, w.task.ID, epic.OrderPause, epic.ReasonEpicPaused)
}

// Settlement is the outcome of a run.
type Settlement struct {
	// State is one of the ends.
	State          epic.TaskState
	Summary, Error string
	// Workflow is the version of the catalog that the run ran. It counts if the claim was not confirmed.
	Workflow string
	Duration time.Duration
	// End is when the run ended; zero means now.
	End time.Time
}

// SettleClaim ends a claim with the outcome of its run, and with it an order that has not reached the
// run. A run that lost the task to another changes nothing of the task, and neither does a repetition, so
// that a message may arrive late and more than once.
func (b *Accounts) SettleClaim(ctx context.Context, namespace, taskID, runID string, s Settlement) (out epic.Task, err error) {
	now := dbkit.Now()
	if s.End = dbkit.Micros(s.End); s.End.IsZero() {
		s.End = now
	}
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		w, mine, err := openClaim(ctx, tx, namespace, taskID, runID, now)
		if err != nil {
			return err
		}
		if err := tx.ForgetOrder(ctx, namespace, taskID, runID); err != nil {
			return err
		}
		err = w.settleClaim(ctx, *mine, s)
		out = w.task
		return err
	})
	return out, err
}

func (w *work) settleClaim(ctx context.Context, mine epic.Claim, s Settlement) error {
	ours := mine.State == epic.Confirmed
	switch mine.State {
	case epic.Settled:
		return nil
	case epic.Claimed, epic.Lost:
		// The confirmation was lost or is late.
		took, _, err := w.begin(ctx, mine, s.Workflow, s.End.Add(-max(s.Duration, 0)).Truncate(time.Microsecond))
		if err != nil {
			return err
		}
		ours = took
	}
	if err := w.claim(ctx, mine, epic.Settled); err != nil {
		return err
	}
	was := w.task.State
	if !ours {
		// Somebody else ended or took the task, and it stays as it is. Only the time of its run is added.
		if w.task.RunID != mine.RunID {
			return nil
		}
		w.task.AddDuration(s.Duration)
		return w.save(ctx, was)
	}
	if err := w.task.Move(s.State, s.End); err != nil {
		return err
	}
	if s.Summary != "" {
		w.task.ResultSummary = s.Summary
	}
	if s.Error != "" || s.State == epic.TaskCompleted { // then one of an earlier try is dealt with
		w.task.ErrorMessage = s.Error
	}
	w.task.AddDuration(s.Duration)
	if err := w.again(); err != nil {
		return err
	}
	return w.save(ctx, was)
}
