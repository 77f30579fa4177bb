package engine

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// FirstGraph is the content hash of the graph that a run began with.
func (e *Engine) FirstGraph(ctx context.Context, row journal.Run) (string, error) {
	if row.GraphRevision == 0 {
		return row.GraphHash, nil
	}
	hash := ""
	_, err := e.happened(ctx, row, func(d *record.Durable) bool {
		if d.GraphChange == nil {
			return false
		}
		hash = d.GraphChange.Was
		return true
	})
	return hash, err
}

// fromFirst makes the program of the run that of the graph it began with, so that its journal can be replayed
// from the beginning. events are all that there are.
func (r *run) fromFirst(ctx context.Context, row journal.Run, events []journal.Event) error {
	if row.GraphRevision == 0 {
		return nil
	}
	hash, err := record.GraphBefore(events)
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
	r.program, err = r.t.e.programs.Stored(ctx, hash, body)
	return err
}
