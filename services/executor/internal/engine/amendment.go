package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// amendment is the command of a letter that goes over to another graph, in its stored form, with what it changes.
func (r *run) amendment(l *Letter, now time.Time) (workgraph.Command, *Regraph, error) {
	p, err := r.t.e.programs.stored(sum(l.Graph), l.Graph)
	if err != nil {
		return nil, nil, err
	}
	d, _ := workgraph.Diff(context.Background(), r.state.Graph(), p.p.Graph()) // its context does not end
	change := &Regraph{Added: d.AddedNodes, Removed: d.RemovedNodes}
	for i := range d.ChangedNodes {
		change.Changed = append(change.Changed, d.ChangedNodes[i].ID)
	}
	return workgraph.Amended{Program: p.p, Revision: l.Revision, By: l.By, Now: now}, change, nil
}
