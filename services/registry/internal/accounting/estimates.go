package accounting

import (
	"context"
	"slices"
	"strconv"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

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
			others, err = w.tx.Estimated(ctx, w.task.Namespace, w.epic.ID, w.task.ID)
		case ledger.Namespace:
			var locked []ledger.Account
			if locked, err = w.tx.LockAccounts(ctx, w.task.Namespace, []ledger.ID{whole}); err == nil && len(locked) > 0 {
				a = locked[0]
				others, err = w.tx.Estimated(ctx, w.task.Namespace, "", w.task.ID)
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
	others, err := tx.Estimated(ctx, e.Namespace, e.ID, "")
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

// estimateOutputs sets what calls without a limit may put out: the 90th percentile of what calls of
// their model have put out in the namespace, else all that the least of their run budgets in tokens
// leaves. It marks those of which neither is known.
func (b *Accounts) estimateOutputs(ctx context.Context, namespace string, calls []Call, in []Reservation) error {
	var models []string
	var runs []ledger.ID
	for i := range calls {
		if calls[i].Unlimited {
			models = append(models, calls[i].Model)
			for _, r := range calls[i].Runs {
				runs = append(runs, ledger.ID{Level: ledger.Run, Name: r.RunID})
			}
		}
	}
	if len(models) == 0 {
		return nil
	}
	slices.Sort(models)
	slices.SortFunc(runs, ledger.ID.Compare)
	var samples map[string][]int64
	accounts := map[string]ledger.Account{}
	err := b.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) (err error) {
		if samples, err = r.OutputSamples(ctx, namespace, slices.Compact(models)); err != nil {
			return err
		}
		there, err := r.Accounts(ctx, namespace, slices.Compact(runs))
		for _, a := range there {
			accounts[a.Name] = a
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := range calls {
		c := &calls[i]
		if !c.Unlimited {
			continue
		}
		if c.OutputTokens = usage.P90(samples[c.Model]); c.OutputTokens > 0 {
			continue
		}
		in[i].unestimated = true
		for _, r := range c.Runs {
			if r.Hard.Tokens == nil {
				continue
			}
			a, ok := accounts[r.RunID]
			if !ok {
				a.Spent = r.Spent
			}
			left := max(*r.Hard.Tokens-a.Spent.Tokens-a.Reserved.Tokens-c.InputTokens, 0)
			if in[i].unestimated || left < c.OutputTokens {
				c.OutputTokens, in[i].unestimated = left, false
			}
		}
	}
	return nil
}
