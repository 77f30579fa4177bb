package accounting

import (
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// expectOutputs sets what calls without a limit may put out: the 90th percentile of what calls of
// their model have put out in the namespace, else all that the least of their run budgets in tokens
// leaves. It marks those of which neither is known.
func (b *Accounts) expectOutputs(ctx context.Context, namespace string, calls []Call, in []Reservation) error {
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
