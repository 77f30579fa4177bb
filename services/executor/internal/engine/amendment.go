package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// amendment decodes the command that moves the run to another graph, with what the graph changes. It
// evaluates like expressions, and is interrupted like them. The caller holds r.mu.
func (r *run) amendment(l *record.Payload, now time.Time) (workgraph.Command, *record.GraphChange, error) {
	ctx, end := r.evaluation()
	defer end()
	p, err := r.t.e.programs.Stored(ctx, record.GraphHash(l.Graph), l.Graph)
	if err != nil {
		return nil, nil, err
	}
	d, err := workgraph.Diff(ctx, r.State.Graph(), p.Machine.Graph())
	if err != nil {
		return nil, nil, err
	}
	change := &record.GraphChange{Added: d.AddedNodes, Removed: d.RemovedNodes}
	for i := range d.ChangedNodes {
		change.Changed = append(change.Changed, d.ChangedNodes[i].ID)
	}
	return workgraph.Amended{Program: p.Machine, Revision: l.Revision, By: l.By, Now: now}, change, nil
}

// maxRefusal bounds the stored message of a refusal.
const maxRefusal = 1000

func refusalOf(l *record.Payload, err error, now time.Time) *record.AmendRefused {
	out := &record.AmendRefused{Time: now, By: l.By, RequestID: l.RequestID, Message: err.Error()}
	if refused, ok := errors.AsType[*workgraph.AmendRefused](err); ok {
		var places []string
		for _, f := range refused.Refusals {
			at := f.Node
			if f.From != "" || f.To != "" {
				at = f.From + " -> " + f.To
			}
			places = append(places, fmt.Sprintf("%s at %s: %s", f.Code, at, f.Message))
		}
		out.Message = strings.Join(places, "; ")
	}
	out.Message = phrase.Cut(out.Message, maxRefusal)
	return out
}
