package query

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// explainEnded describes the end of the run, and its calls with unknown outcomes.
func (q *Query) explainEnded(ctx context.Context, x *Explanation, look func(func(*workgraph.State))) error {
	row := x.Row
	h := ended(row)
	var visit workgraph.VisitInfo
	var unknown []workgraph.Ref
	first := ""
	if h.Error != nil && h.Error.Node != "" || row.State != journal.StateCompleted || row.Reason != "" {
		look(func(s *workgraph.State) {
			if h.Error != nil {
				visit, _ = s.Visit(workgraph.Ref{Node: h.Error.Node, Visit: h.Error.Visit})
			}
			if unknown = s.Unknown(); len(unknown) > 0 {
				v, _ := s.Visit(unknown[0])
				first = workgraph.EffectKey(row.ID, v.Ref, v.Generation)
			}
		})
	}
	h.failed(visit)
	x.Blockers = []Blocker{h}
	if len(unknown) > 0 {
		x.Blockers = append(x.Blockers, unknownAtEnd(row, unknown, first))
	}
	if err := q.failedChildren(ctx, x); err != nil {
		return err
	}
	x.Arrange(nil)
	return nil
}

func ended(row journal.Run) Blocker {
	out := Blocker{Kind: BlockerEnded, Since: row.EndTime, Message: "the run has ended: " + row.State.String()}
	if row.Reason != "" {
		out.Message += ", " + row.Reason
	}
	if len(row.Error) > 0 {
		var e record.RunError
		if json.Unmarshal(row.Error, &e) == nil { // the API reports it otherwise
			out.Error = &e
		}
	}
	if row.State == journal.StateFailed {
		out.Hint = phrase.Command("runs retry "+row.ID) + " starts a new run that repeats the failed visits"
	}
	return out
}

// failed describes the failure that ended the run, with its visit and attempt.
func (h *Blocker) failed(v workgraph.VisitInfo) {
	if h.Error == nil {
		return
	}
	if v.Node == "" {
		h.Message += ": " + errorText(h.Error)
		return
	}
	h.Ref, h.Attempt, h.Of = v.Ref, v.Attempt, v.Of
	at := ""
	// No further attempt follows a rejection.
	if h.Attempt > 0 && h.Error.Reason != workgraph.ReasonRejected {
		at = " at " + h.attempt()
	}
	h.Message += fmt.Sprintf(": %s failed%s with %s", h.Ref, at, errorText(h.Error))
}

// unknownAtEnd reports the UNSAFE calls with unknown outcomes of an ended run. key is the effect key of the
// first one.
func unknownAtEnd(row journal.Run, calls []workgraph.Ref, key string) Blocker {
	names := make([]string, 0, shownUnknown+1)
	for _, c := range calls[:min(len(calls), shownUnknown)] {
		names = append(names, c.String())
	}
	if more := len(calls) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return Blocker{Kind: BlockerReconciliation, Ref: calls[0], EffectKey: key, Since: row.EndTime,
		Message: "the run ended while the outcome of " + phrase.Counted(len(calls), "UNSAFE call") + " was unknown: " + strings.Join(names, ", "),
		Hint:    "find out whether it was performed; " + phrase.Command("runs retry "+row.ID+" --allow-unsafe") + " repeats it"}
}

// shownUnknown bounds the calls with unknown outcomes that are named.
const shownUnknown = 5
