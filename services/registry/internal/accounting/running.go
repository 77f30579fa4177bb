package accounting

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// RunEpic has an epic run by itself, with so many tasks at once; 0 leaves the limit that it has, at first
// epic.DefaultParallel. A workflow that is not empty becomes that of tasks which name neither one nor
// requirements.
func (b *Accounts) RunEpic(ctx context.Context, namespace, id string, c Change, parallel int32, workflow string) (epic.Epic, error) {
	return b.changeEpic(ctx, namespace, "RunEpic", id, c, func(_ context.Context, _ store.Tx, e *epic.Epic, _ time.Time) error {
		if e.State != epic.Planning && e.State != epic.Active {
			return epic.NotActive(*e)
		}
		switch {
		case parallel > 0:
			e.Parallel = parallel
		case e.Parallel == 0:
			e.Parallel = epic.DefaultParallel
		}
		if workflow != "" {
			e.WorkflowSlug = workflow
		}
		return nil
	})
}

// follow does what a change of an epic implies for its runs and its tasks. It may change the epic,
// which is locked and not saved.
func follow(ctx context.Context, tx store.Tx, before epic.Epic, e *epic.Epic, now time.Time) error {
	raised := e.PauseReason == epic.ReasonBudgetExhausted && e.State == epic.Paused && !sameBudget(before, *e)
	switch {
	case raised && e.CheckBudget() == nil:
		if err := e.Move(epic.Active, now); err != nil {
			return err
		}
		fallthrough
	case before.State == epic.Paused && e.State == epic.Active:
		e.PauseReason = ""
		if err := tx.OrderRuns(ctx, e.Namespace, e.ID, "", epic.OrderResume, epic.ReasonEpicResumed); err != nil {
			return err
		}
	case before.State == epic.Active && e.State != epic.Active:
		if err := halt(ctx, tx, e); err != nil {
			return err
		}
	}
	if e.State != epic.Paused {
		e.PauseReason = ""
	}
	return advance(ctx, tx, e, now)
}

func sameBudget(a, b epic.Epic) bool {
	same := func(x, y *int64) bool { return x == y || x != nil && y != nil && *x == *y }
	return same(a.BudgetTokens, b.BudgetTokens) && same(a.BudgetNanoUSD, b.BudgetNanoUSD)
}

// halt withdraws the orders to start tasks of an epic that is not active any more, and pauses its runs
// if it is paused.
func halt(ctx context.Context, tx store.Tx, e *epic.Epic) error {
	if e.Parallel > 0 {
		if err := tx.ForgetStarts(ctx, e.Namespace, e.ID, ""); err != nil {
			return err
		}
	}
	if e.State != epic.Paused {
		return nil
	}
	if e.PauseReason == epic.ReasonNamespaceCap {
		return nil // its runs stop at their next calls, and ask for room by themselves
	}
	return tx.OrderRuns(ctx, e.Namespace, e.ID, "", epic.OrderPause, epic.ReasonEpicPaused)
}

// stop pauses an epic for a reason that nobody asked for.
func stop(ctx context.Context, tx store.Tx, e *epic.Epic, reason string, now time.Time) error {
	if err := e.Move(epic.Paused, now); err != nil {
		return err
	}
	e.PauseReason = reason
	e.Touch(now, "")
	return halt(ctx, tx, e)
}

// advance ends an epic that runs by itself when its tasks have ended, also if a cap has stopped it, pauses it
// when its budget is spent, and else orders the start of tasks that are ready, as many as there is room for.
// The epic is locked and not saved.
func advance(ctx context.Context, tx store.Tx, e *epic.Epic, now time.Time) error {
	stopped := e.State == epic.Paused && (e.PauseReason == epic.ReasonBudgetExhausted || e.PauseReason == epic.ReasonNamespaceCap)
	if e.Parallel == 0 || e.State != epic.Active && !stopped {
		return nil
	}
	open, err := tx.AnyOpen(ctx, e.Namespace, e.ID)
	switch {
	case err != nil:
		return err
	case !open && e.TotalTasks > 0:
		return finish(ctx, tx, e, now)
	case !open || stopped:
		return nil
	case e.CheckBudget() != nil:
		return stop(ctx, tx, e, epic.ReasonBudgetExhausted, now)
	}
	busy, err := tx.Busy(ctx, e.Namespace, e.ID, int(e.Parallel))
	if err != nil || busy >= int(e.Parallel) {
		return err
	}
	ready, err := tx.Ready(ctx, e.Namespace, e.ID, int(e.Parallel)-busy)
	if err != nil || len(ready) == 0 {
		return err
	}
	if ready, err = affordable(ctx, tx, e, ready, busy); err != nil || len(ready) == 0 {
		return err
	}
	return tx.OrderStarts(ctx, e.Namespace, e.ID, ready)
}

// finish ends an epic whose tasks have all ended. One that stood still for its budget passes through
// ACTIVE: its last runs ended although it did.
func finish(ctx context.Context, tx store.Tx, e *epic.Epic, now time.Time) error {
	if e.FailedTasks > 0 {
		// Somebody may mend what failed and try it again, which an epic that has ended does not allow.
		if again, err := tx.AnyRetryable(ctx, e.Namespace, e.ID); err != nil || again {
			return err
		}
	}
	to := epic.Canceled
	switch {
	case e.FailedTasks > 0:
		to = epic.Failed
	case e.CompletedTasks > 0:
		to = epic.Completed
	}
	if e.State == epic.Paused {
		if err := e.Move(epic.Active, now); err != nil {
			return err
		}
	}
	e.PauseReason = ""
	if err := e.Move(to, now); err != nil {
		return err
	}
	e.Touch(now, "")
	return nil
}

// stopOverspent pauses those of the locked epics that run by themselves and have spent their budget.
func stopOverspent(ctx context.Context, tx store.Tx, namespace string, epics []string, now time.Time) error {
	if len(epics) == 0 {
		return nil
	}
	over, err := tx.Overspent(ctx, namespace, epics)
	if err != nil {
		return err
	}
	for _, id := range over {
		e, err := tx.LockEpic(ctx, namespace, id)
		if err != nil {
			return err
		}
		read := e.Revision
		if err := stop(ctx, tx, &e, epic.ReasonBudgetExhausted, now); err != nil {
			return err
		}
		e.UpdateTime = now
		if err := tx.PutEpic(ctx, e, read); err != nil {
			return err
		}
	}
	return nil
}

// stopRefused pauses the epics that run by themselves for which a call was refused that does not fit under
// their budget, or under a cap of their namespace, whatever calls under way will use. It has a transaction of
// its own: reservations lock accounts before epics, and bookings the other way round.
func (b *Accounts) stopRefused(ctx context.Context, namespace string, in []Reservation, answers []Reserved) error {
	if err := b.stopAtNamespaceCap(ctx, namespace, in, answers); err != nil {
		return err
	}
	refused := map[string]*ledger.Refusal{}
	for i := range answers {
		if r := answers[i].Refusal; r != nil && r.Account.Level == ledger.Epic && r.Exceeds(r.Cap, r.Spent) {
			refused[r.Account.Name] = r
		}
	}
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		r := refused[id]
		err := b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
			e, err := tx.LockEpic(ctx, namespace, id)
			if err != nil || e.Parallel == 0 || e.State != epic.Active {
				return err
			}
			budget, spent := e.BudgetTokens, e.Spent.Tokens
			if r.Money {
				budget, spent = e.BudgetNanoUSD, e.Spent.NanoUSD
			}
			if budget == nil || !r.Exceeds(*budget, spent) {
				return nil // it was raised meanwhile
			}
			now, read := dbkit.Now(), e.Revision
			if err := stop(ctx, tx, &e, epic.ReasonBudgetExhausted, now); err != nil {
				return err
			}
			e.UpdateTime = now
			return tx.PutEpic(ctx, e, read)
		})
		if err != nil && errs.ReasonOf(err) != store.ReasonEpicNotFound {
			return err
		}
	}
	return nil
}

// maxLeased is how many orders are handed out at once.
const maxLeased = 1000

// LeaseOrders returns at most limit orders to runs of a database, and hides them from others during
// hold. The caller acknowledges those that are carried out; the others come again.
func (b *Accounts) LeaseOrders(ctx context.Context, database string, limit int, hold time.Duration) ([]epic.Order, error) {
	hold, err := epic.CheckLease(hold)
	if err != nil {
		return nil, err
	}
	return b.store.LeaseOrders(ctx, database, min(max(limit, 1), maxLeased), hold)
}

// AcknowledgeOrders forgets orders that have reached their runs. Those to start end with the start and
// stay.
func (b *Accounts) AcknowledgeOrders(ctx context.Context, done []epic.Order) error {
	done = slices.DeleteFunc(slices.Clone(done), func(o epic.Order) bool { return o.RunID == "" })
	if len(done) == 0 {
		return nil
	}
	return b.store.AcknowledgeOrders(ctx, done)
}

// RefuseStart carries the refusal of a start into its task, which has failed then, or into its epic, if
// that has spent its budget. An order that is not there any more changes nothing. Trying again would
// end in the same way, so that is left to whoever mends it.
func (b *Accounts) RefuseStart(ctx context.Context, r epic.RefusedStart) error {
	now := dbkit.Now()
	err := b.store.Update(ctx, r.Namespace, func(ctx context.Context, tx store.Tx) error {
		w, err := open(ctx, tx, r.Namespace, r.TaskID, now)
		if err != nil {
			return err
		}
		id, err := tx.StartOrder(ctx, r.Namespace, r.TaskID)
		if err != nil || id == "" || id != r.ID {
			return err
		}
		if r.Cause == epic.ReasonBudgetExhausted {
			if r.Message != "" && w.task.AddNote(epic.Note{Author: noteAuthor, Text: "not started: " + r.Message}, now) == nil {
				if err := w.save(ctx, w.task.State); err != nil {
					return err
				}
			}
			if err := stop(ctx, tx, &w.epic, r.Cause, now); err != nil {
				return err
			}
			return w.saveEpic(ctx)
		}
		holder, err := w.holder(ctx)
		if err != nil || holder != nil {
			return err
		}
		for _, to := range []epic.TaskState{epic.TaskRunning, epic.TaskFailed} {
			if err := w.task.Move(to, now); err != nil {
				return err
			}
		}
		w.task.ErrorMessage = "not started: " + r.Cause
		if r.Message != "" {
			w.task.ErrorMessage += ": " + r.Message
		}
		return w.save(ctx, epic.TaskPending)
	})
	if errs.ReasonOf(err) == store.ReasonTaskNotFound {
		return nil
	}
	return err
}

// again lets a task be tried again whose run has failed, if its epic runs by itself and the task may
// be.
func (w *work) again() error {
	if w.task.State != epic.TaskFailed || w.epic.Parallel == 0 || w.epic.State.Ended() || w.task.RetryCount >= max(w.task.MaxRetries, 0) {
		return nil
	}
	return w.task.Move(epic.TaskPending, w.now)
}
