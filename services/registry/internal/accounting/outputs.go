package accounting

import (
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// enoughOutputs is from how many samples on the 90th percentile of a model goes before the limit that holds
// for calls which state none. It is the second largest of 20, so one call that went astray does not set it.
const enoughOutputs = 20

// guessed says how far the estimate of a call without a limit of its own reaches.
type guessed struct {
	// tokens and money say that nothing tells how many tokens, or how much money, the call may take.
	tokens, money bool
	// left is what the least of the run budgets in money leaves, if the call is estimated by budgets.
	left *int64
}

// expectOutputs sets what calls without a limit of their own may put out: the 90th percentile of what calls
// of their model have put out in the namespace, else the limit that is sent for them, else all that the least
// of their run budgets in tokens leaves. A limit that is sent bounds the percentile. A call of which only run
// budgets in money are known takes the money that the least of them leaves. It marks those of which nothing
// is known.
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
		if c := &calls[i]; c.Unlimited && !c.expectOutput(samples[c.Model]) {
			in[i].guessed = c.expectLeft(accounts)
		}
	}
	return nil
}

// expectOutput sets what the call may put out by samples of its model or by the limit that is sent for it. It
// reports whether there is either.
func (c *Call) expectOutput(samples []int64) bool {
	sent := c.OutputTokens
	switch p90 := usage.P90(samples); {
	case sent > 0 && len(samples) >= enoughOutputs:
		c.OutputTokens = min(p90, sent)
	case sent == 0:
		c.OutputTokens = p90 // few samples tell more than none
	}
	return c.OutputTokens > 0
}

// expectLeft sets what the call may put out to all that the least of its run budgets in tokens leaves.
func (c *Call) expectLeft(accounts map[string]ledger.Account) guessed {
	out := guessed{tokens: true, money: true}
	for _, r := range c.Runs {
		a, ok := accounts[r.RunID]
		if !ok {
			a.Spent = r.Spent
		}
		if r.Hard.Tokens != nil {
			left := max(*r.Hard.Tokens-a.Spent.Tokens-a.Reserved.Tokens-c.InputTokens, 0)
			if out.tokens || left < c.OutputTokens {
				c.OutputTokens, out.tokens, out.money = left, false, false
			}
		}
		if r.Hard.NanoUSD != nil {
			if left := max(*r.Hard.NanoUSD-a.Spent.NanoUSD-a.Reserved.NanoUSD, 0); out.left == nil || left < *out.left {
				out.left, out.money = &left, false
			}
		}
	}
	return out
}

// bounded is the price of a call as far as run budgets estimate it: the money that they leave, unless its
// tokens are known and cost less. The prompt costs what it costs. An unknown price stays so.
func (g guessed) bounded(priced *int64) *int64 {
	if g.left == nil || priced == nil {
		return priced
	}
	if g.tokens {
		most := max(*g.left, *priced)
		return &most
	}
	least := min(*g.left, *priced)
	return &least
}
