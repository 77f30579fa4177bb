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

// reasonParentBudget is the reason of a child's larger budget: its parent got more.
const reasonParentBudget = "PARENT_BUDGET"

// attemptBlocker returns the error of an attempt that must not begin any more, or nil.
func (r *run) attemptBlocker() *workgraph.Error {
	r.lock()
	defer r.mu.Unlock()
	return r.attemptBlockerLocked()
}

// attemptBlockerLocked is attemptBlocker for a caller that holds r.mu.
func (r *run) attemptBlockerLocked() *workgraph.Error {
	if r.State.Draining() {
		return notPerformed(errDraining)
	}
	switch why := r.State.BudgetBlocker(); why {
	case workgraph.ReasonBudget:
		return workgraph.Errorf(workgraph.NotPerformed, why, "the run's budget was used up before the call began; the run waits for more")
	case workgraph.ReasonUnsettled:
		return workgraph.Errorf(workgraph.NotPerformed, why, "the cost of earlier calls was not known before the call began; the run waits for it")
	}
	return nil
}

// writeBudget writes a changed budget into the run's row, and sends children what they may use now. It also
// does so once usage is settled that was unknown. The caller holds r.mu.
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

// errBudgetChanged delays a child's start: the parent's remaining budget has changed since the start was
// prepared.
var errBudgetChanged = errs.New(errs.Unavailable, "BUDGET_CHANGED", "the parent's budget has changed meanwhile")

// allowance is what a child that begins now may use, also as text that can be compared. The caller holds
// r.mu.
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
