package record

import (
	"fmt"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// GraphChanges returns, by index of the event, how events change the graph: together they lead from the
// graph with the hash was to that with the hash now. The result must not be changed and may be nil.
func GraphChanges(evs []workgraph.Event, was, now string, amended *GraphChange) map[int]*GraphChange {
	if now == "" {
		return nil
	}
	out := map[int]*GraphChange{}
	last := -1
	for i := range evs {
		if !changesGraph(&evs[i]) {
			continue
		}
		g := &GraphChange{}
		if evs[i].Kind == workgraph.GraphAmended && amended != nil {
			*g = *amended
		}
		if last < 0 {
			g.Was = was
		}
		out[i], last = g, i
	}
	if last >= 0 {
		out[last].Hash = now
	}
	return out
}

func changesGraph(ev *workgraph.Event) bool {
	if ev.Kind == workgraph.GraphAmended {
		return true
	}
	for i := range ev.Steps {
		if op := ev.Steps[i].Op; op == workgraph.OpGraph || op == workgraph.OpExpand {
			return true
		}
	}
	return false
}

// GraphBefore is the content hash of the graph before the first of these events that changes it, or empty
// if none does.
func GraphBefore(events []journal.Event) (string, error) {
	for _, ev := range events {
		d, err := DecodeEvent(ev)
		if err != nil {
			return "", fmt.Errorf("event %d cannot be read: %w", ev.Seq, err)
		}
		if d.GraphChange != nil {
			return d.GraphChange.Was, nil
		}
	}
	return "", nil
}
