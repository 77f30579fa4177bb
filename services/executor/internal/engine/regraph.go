package engine

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// regraphs tells for each event how it changed the graph: from the one with the hash was, by all of them together, to the one with the hash
// now. The result is read only; it may be nil.
func regraphs(evs []workgraph.Event, was, now string, amended *GraphChange) map[int]*GraphChange {
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

// FirstGraph is the content hash of the graph that a run began with.
func (e *Engine) FirstGraph(ctx context.Context, row journal.Run) (string, error) {
	if row.GraphRevision == 0 {
		return row.GraphHash, nil
	}
	hash := ""
	_, err := e.happened(ctx, row, func(d *Durable) bool {
		if d.GraphChange == nil {
			return false
		}
		hash = d.GraphChange.Was
		return true
	})
	return hash, err
}

// fromFirst makes the program of the run that of the graph it began with, so that its journal can be replayed from the beginning. events
// are all that there are.
func (r *run) fromFirst(ctx context.Context, row journal.Run, events []journal.Event) error {
	if row.GraphRevision == 0 {
		return nil
	}
	hash, err := graphBefore(events)
	if err != nil {
		return err
	}
	if hash == "" {
		return fmt.Errorf("the journal does not say with which graph run %s began: %w", r.id, workgraph.ErrCorrupt)
	}
	body, err := r.t.e.journal.GraphBody(ctx, r.namespace, hash)
	if err != nil {
		return fmt.Errorf("graph of the beginning: %w", err)
	}
	r.program, err = r.t.e.programs.stored(ctx, hash, body)
	return err
}

// graphBefore is the content hash of the graph before the first of these events that changes it; empty if
// none does.
func graphBefore(events []journal.Event) (string, error) {
	for _, ev := range events {
		d, err := decodeEvent(ev)
		if err != nil {
			return "", fmt.Errorf("event %d cannot be read: %w", ev.Seq, err)
		}
		if d.GraphChange != nil {
			return d.GraphChange.Was, nil
		}
	}
	return "", nil
}
