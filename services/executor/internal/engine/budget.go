package engine

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// reasonParentBudget is why a child may use more: the run that spawned it may.
const reasonParentBudget = "PARENT_BUDGET"

// barred says why an attempt that was given out must not begin; nil if it may.
func (r *run) attemptBlocker() *workgraph.Error {
	r.lock()
	defer r.mu.Unlock()
	return r.attemptBlockerLocked()
}

// blocker is barred for a caller that holds r.mu.
func (r *run) attemptBlockerLocked() *workgraph.Error {
	if r.State.Draining() {
		return notPerformed(errDraining)
	}
	switch why := r.State.Barred(); why {
	case workgraph.ReasonBudget:
		return workgraph.Errorf(workgraph.NotPerformed, why, "the run's budget was used up before the call began; it waits for more")
	case workgraph.ReasonUnsettled:
		return workgraph.Errorf(workgraph.NotPerformed, why, "what the run has spent was not known before the call began; it waits for that")
	}
	return nil
}

// rebudget writes a budget that has changed into the run's row, and lets children know that they may use
// more: also once it is settled how much that is. The caller holds r.mu.
func (r *run) writeBudget(w *journal.Append, evs []workgraph.Event, now time.Time) (err error) {
	at, changed := -1, -1
	for i := range evs {
		switch evs[i].Kind {
		case workgraph.RunResumed, workgraph.BudgetChanged:
			if evs[i].Budget != nil {
				at, changed = i, i
			}
		case workgraph.UsageSettled:
			if len(r.State.Unsettled()) == 0 {
				at = i
			}
		}
	}
	if at < 0 {
		return nil
	}
	if changed >= 0 {
		m, err := record.DecodeMetadata(r.metadata)
		if err != nil {
			return err
		}
		m.Budget = evs[changed].Budget
		if w.Metadata, err = json.Marshal(m); err != nil {
			return fmt.Errorf("encode metadata: %w", err)
		}
		r.metadata = w.Metadata
	}
	r.State.Allowances(func(child string, b *workgraph.Budget) bool {
		var body []byte
		if body, err = (&record.Payload{Reason: reasonParentBudget, Budget: b, Raise: true}).Encode(); err != nil {
			return false
		}
		w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: child, Kind: journal.CommandResume,
			Key: "budget/" + strconv.FormatInt(evs[at].Seq, 10), Body: body, Time: now})
		return true
	})
	return err
}

// errAllowance puts a child's start off: what its parent has left has changed since the start was put
// together.
var errBudgetChanged = errs.New(errs.Unavailable, "BUDGET_CHANGED", "the parent's budget has changed meanwhile")

// allowance is what a child may use that begins now, in a form that can be compared. The caller holds r.mu.
func (r *run) allowance(own *workgraph.Budget) (*workgraph.Budget, string) {
	b := r.State.Allowance(own)
	if b.IsZero() {
		return nil, ""
	}
	return b, amounts(b)
}

func amounts(b *workgraph.Budget) string {
	text, _ := json.Marshal(b) //nolint:errchkjson // numbers always marshal
	return string(text)
}
