package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/money"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// ReasonBudget is the reason of a run that is paused because its budget is used up, and of a resume that would not change that.
	ReasonBudget = workgraph.ReasonBudget
	// ReasonBudgetInvalid is the reason of a budget that nothing can be.
	ReasonBudgetInvalid = "BUDGET_INVALID"
	// reasonParentBudget is why a child may use more: the run that spawned it may.
	reasonParentBudget = "PARENT_BUDGET"
)

// Prices knows what calls cost.
type Prices interface {
	// Prices is what each entry costs in nano-USD, in their order; nil where no price is known. Nothing is booked.
	Prices(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error)
}

func budgetFits(b *workgraph.Budget) error {
	if fault := b.Fault(); fault != "" {
		return errs.New(errs.InvalidArgument, ReasonBudgetInvalid, "the budget's %s", fault).
			Violate("budget", ReasonBudgetInvalid, fault).Hint("leave a cap out for no limit; 0 lets nothing start")
	}
	return nil
}

// barred says why an attempt that was given out must not begin; nil if it may.
func (r *run) barred() *workgraph.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state.Draining():
		return notPerformed(errDraining)
	case r.state.Budget().UsedUp(r.state.Spent()):
		return workgraph.Errorf(workgraph.NotPerformed, ReasonBudget, "the run's budget was used up before the call began; it waits for more")
	}
	return nil
}

// rebudget writes a budget that has changed into the run's row, and lets children know that they may use more. The caller holds r.mu.
func (r *run) rebudget(w *journal.Append, evs []workgraph.Event, now time.Time) error {
	at := -1
	for i := range evs {
		if k := evs[i].Kind; evs[i].Budget != nil && (k == workgraph.RunResumed || k == workgraph.BudgetChanged) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	m, err := decodeMeta(r.metadata)
	if err != nil {
		return err
	}
	m.Budget = evs[at].Budget
	if w.Metadata, err = json.Marshal(m); err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	r.metadata = w.Metadata
	r.state.Allowances(func(child string, b *workgraph.Budget) bool {
		var body []byte
		if body, err = (&Letter{Reason: reasonParentBudget, Budget: b, Raise: true}).Encode(); err != nil {
			return false
		}
		w.Mail = append(w.Mail, journal.Mail{Namespace: r.namespace, RunID: child, Kind: journal.MailResume,
			Key: "budget/" + strconv.FormatInt(evs[at].Seq, 10), Body: body, Time: now})
		return true
	})
	return err
}

// errAllowance puts a child's start off: what its parent has left has changed since the start was put together.
var errAllowance = errs.New(errs.Unavailable, "BUDGET_CHANGED", "the parent's budget has changed meanwhile")

// allowance is what a child may use that begins now, in a form that can be compared. The caller holds r.mu.
func (r *run) allowance(own *workgraph.Budget) (*workgraph.Budget, string) {
	b := r.state.Allowance(own)
	if b.IsZero() {
		return nil, ""
	}
	return b, amounts(b)
}

func amounts(b *workgraph.Budget) string {
	text, _ := json.Marshal(b) //nolint:errchkjson // numbers always marshal
	return string(text)
}

const (
	// priceTries and pricePause are how long the price of calls is asked for until they count as calls without one.
	priceTries = 5
	pricePause = 100 * time.Millisecond
	priceTime  = 2 * time.Second
)

// price finds out what calls cost that count against a budget in money; usage is changed. The price book goes first; where it knows no price,
// what the call says itself stays. What ends while the term is left is asked for like everything else, for as long as calls may take then.
func (t *term) price(a *attempt, usage []workgraph.Usage) {
	if t.e.prices == nil || len(usage) == 0 {
		return
	}
	r := a.run
	r.mu.Lock()
	b := r.state.Budget()
	r.mu.Unlock()
	if b == nil || b.NanoUSD == nil {
		return
	}
	entries := r.entries(a, usage, false, dbkit.Now())
	for try := 1; len(entries) > 0; try++ {
		ctx, cancel := context.WithTimeout(t.calls, priceTime)
		costs, err := t.e.prices.Prices(ctx, r.namespace, entries)
		cancel()
		switch {
		case err == nil:
			for i, cost := range costs[:min(len(costs), len(usage))] {
				if cost != nil {
					usage[i].CostNanoUSD = cost
				}
			}
			return
		case try == priceTries || t.calls.Err() != nil || !passing(err):
			t.e.log.WarnContext(t.calls, "calls are not priced, so they do not count against their run's budget", "err", err, "run_id", r.id)
			return
		}
		pause := time.NewTimer(pricePause << try)
		select {
		case <-pause.C:
		case <-t.calls.Done():
			pause.Stop()
		}
	}
}

// usedUp refuses to let a run go on whose budget is used up.
func usedUp(runID string, b *workgraph.Budget, used workgraph.Spent) error {
	e := errs.New(errs.FailedPrecondition, ReasonBudget, "the run has used up its budget: %s", spent(b, used))
	if b.NanoUSD != nil {
		e = e.Set("used_nano_usd", strconv.FormatInt(used.NanoUSD, 10)).Set("budget_nano_usd", strconv.FormatInt(*b.NanoUSD, 10))
	}
	if b.Tokens != nil {
		e = e.Set("used_tokens", strconv.FormatInt(used.Tokens, 10)).Set("budget_tokens", strconv.FormatInt(*b.Tokens, 10))
	}
	return e.Hint(raiseHint(runID, b, used))
}

// spent says how much of a budget is used.
func spent(b *workgraph.Budget, used workgraph.Spent) string {
	var parts []string
	if b.NanoUSD != nil {
		parts = append(parts, fmt.Sprintf("%s of %s", money.Dollars(used.NanoUSD), money.Dollars(*b.NanoUSD)))
	}
	if b.Tokens != nil {
		parts = append(parts, fmt.Sprintf("%d of %s", used.Tokens, counted(int(min(*b.Tokens, 1<<62)), "token")))
	}
	text := strings.Join(parts, ", ")
	if b.NanoUSD != nil && used.Unpriced > 0 {
		text += fmt.Sprintf("; %s without a known price not counted", counted(int(used.Unpriced), "call"))
	}
	return text
}

// raiseHint is the command that gives a run more than it has used.
func raiseHint(runID string, b *workgraph.Budget, used workgraph.Spent) string {
	hint := "epigraph runs resume " + runID
	if b.NanoUSD != nil && used.NanoUSD >= *b.NanoUSD {
		hint += " --budget-usd X"
	}
	if b.Tokens != nil && used.Tokens >= *b.Tokens {
		hint += " --budget-tokens N"
	}
	return hint + " lets it go on, with more than it has used"
}
