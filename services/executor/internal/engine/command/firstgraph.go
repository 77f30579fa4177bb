package command

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// FirstGraph is the content hash of the graph with which a run began.
func (h *Handler) FirstGraph(ctx context.Context, row journal.Run) (string, error) {
	if row.GraphRevision == 0 {
		return row.GraphHash, nil
	}
	hash := ""
	_, err := h.findEvent(ctx, row, func(d *record.Durable) bool {
		if d.GraphChange == nil {
			return false
		}
		hash = d.GraphChange.Was
		return true
	})
	return hash, err
}
