package cli

import (
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// runBudget are the flags that say what a run may use.
type runBudget struct {
	BudgetTokens *int64   `help:"Budget in tokens, at which the run is paused; 0 starts nothing." placeholder:"N"`
	BudgetUSD    *float64 `help:"Budget in dollars, at which the run is paused; 0 starts nothing." name:"budget-usd" placeholder:"X"`
}

// message is the budget of a request; nil when no flag was given.
func (f *runBudget) message() (*executorv1.RunBudget, error) {
	if f.BudgetTokens == nil && f.BudgetUSD == nil {
		return nil, nil
	}
	if f.BudgetTokens != nil && *f.BudgetTokens < 0 {
		return nil, usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "--budget-tokens must not be below 0"))
	}
	b := &executorv1.RunBudget{Tokens: f.BudgetTokens}
	if f.BudgetUSD != nil {
		nano, err := nanoUSD("--budget-usd", *f.BudgetUSD)
		if err != nil {
			return nil, err
		}
		b.NanoUsd = &nano
	}
	return b, nil
}

// budgetText says what a run may use; empty when nothing limits it.
func budgetText(b *executorv1.RunBudget) string {
	var parts []string
	if b != nil && b.NanoUsd != nil {
		parts = append(parts, view.Money(b.GetNanoUsd()))
	}
	if b != nil && b.Tokens != nil {
		parts = append(parts, view.Plural(int(b.GetTokens()), "token"))
	}
	return strings.Join(parts, ", ")
}
