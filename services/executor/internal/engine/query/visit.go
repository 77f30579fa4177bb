package query

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonVisitNotFound is the reason when a run has no such visit.
const ReasonVisitNotFound = "VISIT_NOT_FOUND"

// maxChildren bounds the child runs that are named.
const maxChildren = 1000

// VisitRequest names a visit, or an item of one, and the page of its attempts that is wanted.
type VisitRequest struct {
	Namespace, RunID string
	Ref              workgraph.Ref
	Size             int32
	Token            string
}

// VisitDetails is a visit with its arguments and attempts.
type VisitDetails struct {
	Visit Visit
	// Known reports whether there are arguments: those of the last attempt that began.
	Known    bool
	Args     []json.RawMessage
	Named    map[string]json.RawMessage
	Attempts []Attempt
	// Next is the token of the next page of attempts.
	Next     string
	Children []string
}

// Attempt is one try of a visit or an item. End is zero while it is under way.
type Attempt struct {
	record.Durable
	// Flight is set for an attempt under way, and Durable is not.
	Flight *engine.Flight
}

// Size implements page.Row.
func (a Attempt) Size() int {
	n := 512
	if a.Error != nil {
		n += len(a.Error.Message)
	}
	return n
}

// Visit shows one visit in detail. It replays the history of the run: the arguments of a visit are stored
// nowhere, since they follow from the results before it.
func (q *Query) Visit(ctx context.Context, req VisitRequest) (out VisitDetails, err error) {
	ref := req.Ref
	whole := workgraph.Ref{Node: ref.Node, Visit: ref.Visit}
	pg, err := page.Parse(req.Size, req.Token, page.Query{Method: "GetVisit", Parent: req.Namespace + "/" + req.RunID, Filter: fmt.Sprintf("%d/%d/%s", ref.Visit, ref.Item, ref.Node)})
	if err != nil {
		return out, err
	}
	from := int64(0)
	if pg.After.ID != "" {
		if from, err = strconv.ParseInt(pg.After.ID, 10, 64); err != nil {
			return out, errs.New(errs.InvalidArgument, page.ReasonInvalid, "page_token is not valid").With(err)
		}
	}
	row, err := q.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return out, err
	}
	nodes, err := q.engine.Positions().Nodes(ctx, row)
	if err != nil {
		return out, err
	}
	state, err := q.beginning(ctx, row)
	if err != nil {
		return out, err
	}
	f := newFolder(nodes, ref.Node)
	var found *Visit
	const chunk = 500
	for after := int64(0); after < row.LastSeq; {
		evs, err := q.engine.Feed().Events(ctx, row, after, chunk)
		if err != nil {
			return out, err
		}
		for _, ev := range evs {
			d := ev.Durable
			if d.Seq > row.LastSeq {
				break
			}
			for _, v := range f.apply(d) {
				if v.Node == ref.Node && v.Visit == ref.Visit {
					found = v
				}
			}
			if _, err := state.Apply(ctx, d.Event); err != nil {
				return out, fmt.Errorf("apply event %d of run %s: %w", d.Seq, row.ID, err)
			}
			if touches(d, ref) {
				if st, ok := state.Starting(ref); ok {
					out.Known, out.Args, out.Named = true, st.Args, st.Named
				}
			}
			out.note(d, ref, from, pg.Limit)
		}
		if len(evs) == 0 {
			break
		}
		after = evs[len(evs)-1].Durable.Seq
	}
	if v := f.open[whole]; v != nil {
		found = v
	}
	if found == nil {
		return out, errs.New(errs.NotFound, ReasonVisitNotFound, "run %s has no visit %d of node %q", row.ID, ref.Visit, ref.Node).
			Hint("ListVisits shows those that it has")
	}
	if found.EndSeq == 0 {
		if row.State == journal.StatePaused {
			if err := q.heldVisits(ctx, row, []*Visit{found}); err != nil {
				return out, err
			}
		}
		flights := q.flights(req.Namespace, req.RunID)[whole]
		found.overlay(flights)
		for i := range flights {
			if (ref.Item == 0 || flights[i].Ref.Item == ref.Item) && len(out.Attempts) < pg.Limit {
				out.Attempts = append(out.Attempts, Attempt{Flight: &flights[i]})
			}
		}
	}
	out.Visit = *found
	out.Attempts, out.Next = page.Cut(pg, out.Attempts, func(a Attempt) page.Cursor { return page.Cursor{ID: strconv.FormatInt(a.Seq, 10)} })
	return out, nil
}

// beginning is the machine of a run before its first event.
func (q *Query) beginning(ctx context.Context, row journal.Run) (*workgraph.State, error) {
	hash, err := firstGraph(ctx, q.journal, row)
	if err != nil {
		return nil, err
	}
	body, err := q.journal.GraphBody(ctx, row.Namespace, hash)
	if err != nil {
		return nil, err
	}
	p, err := program.StoredProgram(ctx, hash, body)
	if err != nil {
		return nil, err
	}
	return workgraph.New(p, row.ID), nil
}

// touches reports whether an event moves a visit or an item.
func touches(d *record.Durable, ref workgraph.Ref) bool {
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Node == ref.Node && s.Visit == ref.Visit && (s.Item == ref.Item || s.Item == 0) {
			return true
		}
	}
	return false
}

// note takes down what an event tells of the attempts and the children of a visit.
func (o *VisitDetails) note(d *record.Durable, ref workgraph.Ref, from int64, limit int) {
	if d.Kind != workgraph.AttemptEnded || d.Node != ref.Node || d.Visit != ref.Visit || ref.Item != 0 && d.Item != ref.Item || d.PutBack() {
		return
	}
	if d.Outcome != nil && d.Outcome.Wait != nil && d.Outcome.Wait.Children != nil {
		for i := range d.Outcome.Wait.Children.Runs {
			if len(o.Children) < maxChildren {
				o.Children = append(o.Children, d.Outcome.Wait.Children.Runs[i].ID)
			}
		}
	}
	if d.Seq <= from || len(o.Attempts) > limit {
		return
	}
	a := Attempt{Durable: *d}
	a.Steps, a.Graph = nil, nil
	if a.Outcome != nil {
		a.Outcome = &workgraph.Outcome{Usage: d.Outcome.Usage, Wait: d.Outcome.Wait}
	}
	o.Attempts = append(o.Attempts, a)
}
