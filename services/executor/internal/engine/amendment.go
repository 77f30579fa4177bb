package engine

import (
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// amendment is the command of a letter that goes over to another graph, in its stored form.
func (r *run) amendment(l *Letter, now time.Time) (workgraph.Command, error) {
	p, err := r.t.e.programs.stored(sum(l.Graph), l.Graph)
	if err != nil {
		return nil, err
	}
	return workgraph.Amended{Program: p.p, Revision: l.Revision, By: l.By, Now: now}, nil
}
