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

// This file explains runs that have ended.

// explainEnded says what the run ended with, and what of it nobody knows.
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
		if json.Unmarshal(row.Error, &e) == nil { // else the API says so when the run itself is asked for
			out.Error = &e
		}
	}
	if row.State == journal.StateFailed {
		out.Hint = phrase.Command("runs retry "+row.ID) + " runs again what failed, in a new run"
	}
	return out
}

// failed says what the run ended with, and at which attempt of which visit.
func (h *Blocker) failed(v workgraph.VisitInfo) {
	if h.Error == nil {
		return
	}
	if v.Node == "" {
		h.Message += ": " + said(h.Error)
		return
	}
	h.Ref, h.Attempt, h.Of = v.Ref, v.Attempt, v.Of
	at := ""
	// No other attempt follows a rejection, however many there may be
	if h.Attempt > 0 && h.Error.Reason != workgraph.ReasonRejected {
		at = " at " + h.attempt()
	}
	h.Message += fmt.Sprintf(": %s failed%s with %s", h.Ref, at, said(h.Error))
}

// unknownAtEnd tells of the UNSAFE calls of a run that ended before anybody said whether they were performed.
// The key is that of the first one.
func unknownAtEnd(row journal.Run, calls []workgraph.Ref, key string) Blocker {
	names := make([]string, 0, shownUnknown+1)
	for _, c := range calls[:min(len(calls), shownUnknown)] {
		names = append(names, c.String())
	}
	if more := len(calls) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return Blocker{Kind: BlockerReconciliation, Ref: calls[0], EffectKey: key, Since: row.EndTime,
		Message: "the run ended before anybody knew whether " + phrase.Counted(len(calls), "UNSAFE call") + " had been performed: " + strings.Join(names, ", "),
		Hint:    "find out what became of it; " + phrase.Command("runs retry "+row.ID+" --allow-unsafe") + " lets it be made again"}
}

// shownUnknown is how many calls of unknown outcome are named.
const shownUnknown = 5
