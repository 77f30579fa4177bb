package engine

import (
	"context"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/purse"
)

// maxBudgets bounds the budgets that one call counts on, as the registry does: those of the nearest runs.
const maxBudgets = 64

// lineageBudgets are the budgets that the calls of a run count on, as they were a moment ago.
type lineageBudgets struct {
	mu    sync.Mutex
	of    []purse.RunBudget
	until time.Time
}

// budgets are what the calls of a run count on beside the run's own journal: the budgets of the runs
// above it, and its own while it has children. They are read from the rows of these runs, so that a
// change of one holds for all runs below it after purse.Fresh, whichever executor decides for them. A
// run alone has none, and neither has a child without a budget: it would have a part of its parent's.
func (t *session) budgets(ctx context.Context, r *run) ([]purse.RunBudget, error) {
	r.lock()
	id, none := r.id, r.State.Budget().IsZero()
	if len(r.children) == 0 {
		id = r.lineage.Parent
	}
	r.mu.Unlock()
	if none || id == "" {
		return nil, nil
	}
	b := &r.above
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.until) && (len(b.of) == 0 || b.of[0].RunID == id) {
		return b.of, nil
	}
	var of []purse.RunBudget
	err := t.untilAnswered(ctx, func() (err error) {
		of, err = t.readBudgets(ctx, r.namespace, id)
		return err
	})
	if err != nil {
		return nil, err
	}
	b.of, b.until = of, time.Now().Add(purse.Fresh)
	return of, nil
}

// readBudgets reads the budgets of a run and of those above it.
func (t *session) readBudgets(ctx context.Context, namespace, id string) (out []purse.RunBudget, err error) {
	for id != "" && len(out) < maxBudgets {
		row, err := t.e.journal.Head(ctx, namespace, id)
		if errs.ReasonOf(err) == journal.ReasonRunNotFound {
			return out, nil // it was deleted, and its budget with it
		}
		if err != nil {
			return nil, err
		}
		given, err := record.DecodeMetadata(row.Metadata)
		if err != nil {
			return nil, err
		}
		if given.Budget.IsZero() {
			return out, nil // those above it have none, or it would have a part of theirs
		}
		booked, err := t.e.journal.Accounting(ctx, namespace, id, "")
		if err != nil {
			return nil, err
		}
		// The row counts children that have ended, and what was booked counts those under way, too. Neither
		// has all: the usage of an ended child may still be on its way to the registry.
		out = append(out, purse.RunBudget{
			RunID: id, Tokens: given.Budget.Tokens, NanoUSD: given.Budget.NanoUSD, SpentNanoUSD: booked.CostNanoUSD,
			SpentTokens: max(row.Usage.InputTokens+row.Usage.OutputTokens, booked.InputTokens+booked.OutputTokens),
		})
		id = row.ParentID
	}
	return out, nil
}
