package epigraph

import (
	"context"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// AmendOption says more about a change of a live run.
type AmendOption func(*executorv1.AmendRunRequest)

// AmendedBy names who changes the run, for whoever reads its history.
func AmendedBy(who string) AmendOption { return func(r *executorv1.AmendRunRequest) { r.By = who } }

// AmendRequestID makes the change repeatable over restarts of this program. Without it an id is made for this
// call alone.
func AmendRequestID(id string) AmendOption {
	return func(r *executorv1.AmendRunRequest) { r.RequestId = id }
}

// Amend changes the graph of a live run. expected is the graph_revision that the change was made for: after
// another change the reason is GRAPH_REVISION_MISMATCH and nothing happens. Ended visits stay as they are;
// visits under way at nodes that change are canceled. Compare shows a change beforehand.
func (r *Run) Amend(ctx context.Context, p workgraph.Patch, expected int64, opts ...AmendOption) (*executorv1.AmendRunResponse, error) {
	req, err := r.amendment(p, expected)
	if err != nil {
		return nil, err
	}
	for _, f := range opts {
		f(req)
	}
	return r.c.Executor.AmendRun(ctx, req)
}

// Compare returns what Amend would change and which visits it would cancel, and changes nothing. It refuses
// what Amend would refuse.
func (r *Run) Compare(ctx context.Context, p workgraph.Patch, expected int64) (*executorv1.GraphDiff, error) {
	req, err := r.amendment(p, expected)
	if err != nil {
		return nil, err
	}
	req.DryRun = true
	m, err := r.c.Executor.AmendRun(ctx, req)
	return m.GetDiff(), err
}

func (r *Run) amendment(p workgraph.Patch, expected int64) (*executorv1.AmendRunRequest, error) {
	w := wire{}
	m := &executorv1.GraphPatch{RemoveNodes: p.RemoveNodes, RemoveEdges: w.edges(p.RemoveEdges), AddEdges: w.edges(p.AddEdges)}
	for i := range p.PutNodes {
		m.PutNodes = append(m.PutNodes, w.node(&p.PutNodes[i]))
	}
	if err := w.fault("PATCH_INVALID", "the change"); err != nil {
		return nil, err
	}
	return &executorv1.AmendRunRequest{RunId: r.ID, ExpectedRevision: expected, Patch: m}, nil
}

// Graph reads the graph that the run is pinned to now, and its revision, which a change must name.
func (r *Run) Graph(ctx context.Context) (g *graphv1.Graph, revision int64, err error) {
	// A change between the two calls must not give the old graph the new revision.
	before, err := r.Get(ctx)
	if err != nil {
		return nil, 0, err
	}
	m, err := r.c.Executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: r.ID})
	return m.GetGraph(), before.GetGraphRevision(), err
}

// ForkOption changes something in the new run of a fork.
type ForkOption func(*executorv1.ForkRunRequest) error

// ForkNamed overrides a named argument of the node that the fork begins at.
func ForkNamed(name string, v any) ForkOption {
	return func(r *executorv1.ForkRunRequest) error {
		p, err := Payload(v)
		if r.Named == nil {
			r.Named = map[string]*graphv1.Payload{}
		}
		r.Named[name] = p
		return err
	}
}

// ForkArgs replaces the positional arguments of the node that the fork begins at. Without values the node
// gets none.
func ForkArgs(values ...any) ForkOption {
	return func(r *executorv1.ForkRunRequest) error {
		r.Args, r.ReplaceArgs = nil, true
		for _, v := range values {
			p, err := Payload(v)
			if err != nil {
				return err
			}
			r.Args = append(r.Args, p)
		}
		return nil
	}
}

// ForkGraph gives the new run another graph. Nodes whose visits are reused must be unchanged.
func ForkGraph(g *workgraph.Graph) ForkOption {
	return func(r *executorv1.ForkRunRequest) (err error) {
		r.Graph, err = Graph(g)
		return err
	}
}

// ForkUnsafe lets UNSAFE visits that were performed run again.
func ForkUnsafe() ForkOption {
	return func(r *executorv1.ForkRunRequest) error { r.AllowUnsafe = true; return nil }
}

// ForkWithoutTask starts the new run without a task. Without this option it works on the task of the old run,
// and is refused if it cannot claim that task.
func ForkWithoutTask() ForkOption {
	return func(r *executorv1.ForkRunRequest) error { r.WithoutTask = true; return nil }
}

// ForkFrom starts a new run that reuses the history of this one, except for the first visit of a node and
// everything after it. An empty node reuses all completed visits. Fork has further choices, such as another
// visit.
func (r *Run) ForkFrom(ctx context.Context, node string, opts ...ForkOption) (*Run, error) {
	req := &executorv1.ForkRunRequest{}
	if node != "" {
		req.Visit = &executorv1.VisitRef{NodeId: node, Visit: 1}
	}
	for _, f := range opts {
		if err := f(req); err != nil {
			return nil, err
		}
	}
	return r.Fork(ctx, req)
}
