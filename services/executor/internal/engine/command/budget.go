package command

import (
	"strconv"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonBudgetInvalid is the reason for a budget with impossible values.
const ReasonBudgetInvalid = "BUDGET_INVALID"

// CheckBudget refuses a budget that no run can have.
func CheckBudget(b *workgraph.Budget) error {
	if fault := b.Fault(); fault != "" {
		return errs.New(errs.InvalidArgument, ReasonBudgetInvalid, "the budget's %s", fault).
			Violate("budget", ReasonBudgetInvalid, fault).Hint("leave a cap out for no limit; 0 lets nothing start")
	}
	return nil
}

// budgetUsedUp is the refusal to resume a run whose budget is used up.
func budgetUsedUp(runID string, b *workgraph.Budget, used workgraph.Spent) error {
	e := errs.New(errs.FailedPrecondition, workgraph.ReasonBudget, "the run has used up its budget: %s", phrase.Spent(b, used))
	if b.NanoUSD != nil {
		e = e.Set("used_nano_usd", strconv.FormatInt(used.NanoUSD, 10)).Set("budget_nano_usd", strconv.FormatInt(*b.NanoUSD, 10))
	}
	if b.Tokens != nil {
		e = e.Set("used_tokens", strconv.FormatInt(used.Tokens, 10)).Set("budget_tokens", strconv.FormatInt(*b.Tokens, 10))
	}
	return e.Hint(phrase.RaiseHint(runID, b, used))
}
