package accounting

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	// estimateHeld is how long a run of which nothing is heard holds the estimate of its task: one that waits
	// for a person or a time must not keep others from starting for days. Its next call holds the rest again.
	estimateHeld = 15 * time.Minute
	// quietAtOnce is how many epics are read at once.
	quietAtOnce = 100
)

// quiet is the time before which something must have been heard of a run that holds an estimate.
func quiet() time.Time { return dbkit.Now().Add(-estimateHeld) }

// AdvanceQuiet starts tasks of epics that run by themselves for which there is room since runs of the epic
// wait: nothing tells when the time of an estimate is over.
func (b *Accounts) AdvanceQuiet(ctx context.Context) error {
	var failed error
	for after := (store.EpicKey{}); ; {
		found, err := b.store.QuietEpics(ctx, quiet(), after, quietAtOnce)
		if err != nil {
			return errors.Join(failed, err)
		}
		for _, k := range found {
			failed = errors.Join(failed, b.changeIfThere(ctx, k.Namespace, k.ID, func(ctx context.Context, tx store.Tx, e *epic.Epic) (bool, error) {
				was := e.State
				err := advance(ctx, tx, e, dbkit.Now())
				return e.State != was, err
			}))
			after = k
		}
		if len(found) < quietAtOnce || ctx.Err() != nil {
			return failed
		}
	}
}

// estimateFits refuses to start a task that is estimated to use more tokens than a hard cap of its
// epic, of itself or of the namespace leaves: what is spent, what is reserved for calls, and what other
// claims hold of the estimates of their tasks count. What would not fit into the budget of the epic
// even if nothing else were under way is refused as a budget that is used up is; all else may fit
// later. The epic is locked, so two claims in it do not both take what is left, and the account of the
// namespace is locked for the same reason.
func (w *work) estimateFits(ctx context.Context) error {
	want := min(w.task.EstimatedTokens, epic.MaxEstimate)
	if want <= 0 {
		return nil
	}
	whole := ledger.ID{Level: ledger.Namespace}
	ids := []ledger.ID{{Level: ledger.Epic, Name: w.epic.ID}, {Level: ledger.Task, Name: w.task.ID}, whole}
	accounts, err := w.tx.Accounts(ctx, w.task.Namespace, ids)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if a.Hard.Tokens == nil {
			continue
		}
		var others int64
		switch a.Level {
		case ledger.Epic:
			others, err = w.tx.Estimated(ctx, w.task.Namespace, w.epic.ID, w.task.ID, quiet())
		case ledger.Namespace:
			var locked []ledger.Account
			if locked, err = w.tx.LockAccounts(ctx, w.task.Namespace, []ledger.ID{whole}); err == nil && len(locked) > 0 {
				a = locked[0]
				others, err = w.tx.Estimated(ctx, w.task.Namespace, "", w.task.ID, quiet())
			}
		}
		if err != nil {
			return err
		}
		if no := a.AdmitEstimate(want, others); no != nil {
			return estimateRefused(&w.task, &a, no, others)
		}
	}
	return nil
}

func estimateRefused(t *epic.Task, a *ledger.Account, no *ledger.Refusal, others int64) error {
	kind, reason := errs.ResourceExhausted, epic.ReasonEstimateWaits
	if a.Level == ledger.Epic && no.Exceeds(no.Cap, no.Spent) {
		kind, reason = errs.FailedPrecondition, epic.ReasonBudgetExhausted
	}
	whose := a.Level.String()
	if a.Name != "" {
		whose += " " + a.Name
	}
	return errs.New(kind, reason, "task %s is estimated to use %d tokens, which do not fit: %s has spent %d of %d, reserved %d for calls, and work under way is estimated to use %d more",
		t.ID, no.Asks, whose, no.Spent, no.Cap, a.Reserved.Tokens, others).
		Set("task_id", t.ID).Set("spent", strconv.FormatInt(no.Spent, 10)).Set("budget", strconv.FormatInt(no.Cap, 10)).
		Hint("raise the cap, lower estimated_tokens of the task, or wait for the work under way")
}

// affordable are the first of the ready tasks whose estimates fit into the budget of their epic beside
// what is spent, reserved and estimated of work under way. The others are held back until some of it
// has ended. If nothing is under way, the first is started whatever its estimate is: its claim is
// refused then, with the numbers, and pauses the epic.
func affordable(ctx context.Context, tx store.Tx, e *epic.Epic, ready []epic.Ready, busy int) ([]epic.Ready, error) {
	var wanted int64
	for _, r := range ready {
		wanted += min(max(r.EstimatedTokens, 0), epic.MaxEstimate)
	}
	if e.BudgetTokens == nil || wanted == 0 {
		return ready, nil
	}
	accounts, err := tx.Accounts(ctx, e.Namespace, []ledger.ID{{Level: ledger.Epic, Name: e.ID}})
	if err != nil {
		return nil, err
	}
	a := ledger.Account{ID: ledger.ID{Level: ledger.Epic, Name: e.ID}}
	if len(accounts) > 0 {
		a.Reserved = accounts[0].Reserved
	}
	// The epic is locked and not saved: its budget may be newer than that of its account.
	a.Hard.Tokens, a.Spent.Tokens = e.BudgetTokens, e.Spent.Tokens
	others, err := tx.Estimated(ctx, e.Namespace, e.ID, "", quiet())
	if err != nil {
		return nil, err
	}
	starting, err := tx.EstimatedStarts(ctx, e.Namespace, e.ID)
	if err != nil {
		return nil, err
	}
	others += starting
	for i, r := range ready {
		if want := min(max(r.EstimatedTokens, 0), epic.MaxEstimate); want > 0 {
			if a.AdmitEstimate(want, others) != nil {
				if busy == 0 {
					i = max(i, 1)
				}
				return ready[:i], nil
			}
			others += want
		}
	}
	return ready, nil
}
