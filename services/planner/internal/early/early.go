// Package early runs a plan while a model still writes it. It owns the run: its start before the model is
// asked, the amendments that add the tasks which are certain, the one that makes the run's graph that of the
// whole plan, and the cancel of a run whose plan does not come. It must not know how plans are written, nor
// the wire form of requests.
package early

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Run is a run as an executor started it.
type Run struct {
	ID string
	// Existing says that an earlier request with the same id started it.
	Existing bool
}

// Behavior is what calls of a node may do.
type Behavior struct {
	Effect workgraph.Effect
	// Approves says that a call asks for an approval.
	Approves bool
}

// Executor has the run. Implementations are safe for concurrent use. Errors are *errs.Error values.
type Executor interface {
	Start(ctx context.Context, g *workgraph.Graph) (Run, error)
	// Examine returns the faults of a graph, or what its nodes do, in the order of the graph. The faults of
	// known input are those of a run with this request's input.
	Examine(ctx context.Context, g *workgraph.Graph, knownInput bool) ([]Behavior, []workgraph.Fault, error)
	// Amend changes the graph of a run at a revision. Exactly one of patch and whole is not nil. A repeat
	// with the same id does nothing.
	Amend(ctx context.Context, runID, id string, revision int64, patch *workgraph.Patch, whole *workgraph.Graph) error
	// Graph is the run's graph as it is now, with its revision.
	Graph(ctx context.Context, runID string) (*workgraph.Graph, int64, error)
	Cancel(ctx context.Context, runID, reason string) error
}

// The reasons of an executor that decide how an amendment goes on, and the one of this package.
const (
	reasonRevision = "GRAPH_REVISION_MISMATCH"
	reasonEnded    = "RUN_ENDED"
	// ReasonRunEnded is the reason when the run ends before its plan is complete.
	ReasonRunEnded = "PLAN_RUN_ENDED"
)

// Placeholder is the id of the node that keeps the run open while the plan is written.
const Placeholder = "plan-in-writing"

// grace is the time for which the placeholder waits beyond the limit of the authoring.
const grace = time.Minute

// Batch is a part of the plan and what became of it.
type Batch struct {
	Nodes []workgraph.Node
	Edges []workgraph.Edge
	// Started says that the nodes are in the run.
	Started bool
	// Waits is why they wait for the whole plan; empty if they are started.
	Waits string
}

// Launch is a run that grows with its plan. Its methods may be called concurrently. Finish comes after all
// others, and Cancel ends everything.
type Launch struct {
	ex   Executor
	run  Run
	tell func(Batch)
	// fail ends the authoring.
	fail context.CancelCauseFunc

	wake, stop, done chan struct{}
	// halt closes stop once; abandon ends an amendment under way.
	halt, abandon func()

	mu      sync.Mutex
	pending []node
	waits   map[string]string // why nodes wait, by id

	// The rest belongs to the goroutine that amends, and to Finish once that has ended.
	in       map[string]bool // nodes in the run
	put      map[string][]workgraph.Edge
	revision int64
	changes  int
	// others is the graph as somebody else has changed it, as far as it was read; nil if nobody has.
	others *workgraph.Graph
}

type node struct {
	workgraph.Node
	in []workgraph.Edge
}

// Begin starts the run with a placeholder that lasts for limit and a grace. For an existing run it returns a
// launch that only says so. tell is called for every batch of nodes, from one goroutine at a time. fail is
// called once if the run ends before its plan.
func Begin(ctx context.Context, ex Executor, name, mark string, limit time.Duration, tell func(Batch), fail context.CancelCauseFunc) (*Launch, error) {
	timeout, _ := workgraph.Duration(limit + grace).MarshalText() // it never fails
	wait := waiting(Placeholder, string(timeout))
	wait.Name, wait.Retry = "a model writes the plan of request "+mark, workgraph.Retry{MaxAttempts: 1}
	g := &workgraph.Graph{Name: name, Nodes: []workgraph.Node{wait}}
	run, err := ex.Start(ctx, g)
	if err != nil {
		return nil, err
	}
	l := &Launch{ex: ex, run: run, tell: tell, fail: fail, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		waits: map[string]string{}, in: map[string]bool{}, put: map[string][]workgraph.Edge{}}
	l.halt, l.abandon = sync.OnceFunc(func() { close(l.stop) }), func() {}
	if run.Existing {
		close(l.done)
		return l, nil
	}
	// The authoring ends before the last amendment may have.
	ctx, l.abandon = context.WithCancel(context.WithoutCancel(ctx))
	go l.grow(ctx)
	return l, nil
}

// waiting is a node that only waits.
func waiting(id, timeout string) workgraph.Node {
	return workgraph.Node{ID: id, Actor: "completion", Named: map[string]json.RawMessage{"timeout": json.RawMessage(strconv.Quote(timeout))}}
}

// Run is the run.
func (l *Launch) Run() Run { return l.run }

// Usable reports which nodes have no fault that the executor knows of.
func (l *Launch) Usable(ctx context.Context, nodes []workgraph.Node) ([]bool, error) {
	out := make([]bool, len(nodes))
	g := apart(nodes)
	found, faults, err := l.ex.Examine(ctx, g, false)
	switch {
	case err != nil:
		return nil, err
	case len(faults) == 0 && len(found) == len(g.Nodes):
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, b := range found[:len(nodes)] {
			out[i] = true
			if why := b.waits(); why != "" {
				l.waits[nodes[i].ID] = why
			} else if nodes[i].ID == Placeholder {
				l.waits[nodes[i].ID] = "its id is taken until the plan is complete"
			} else {
				delete(l.waits, nodes[i].ID)
			}
		}
	case len(nodes) > 1:
		for i := range nodes {
			one, err := l.Usable(ctx, nodes[i:i+1])
			if err != nil {
				return nil, err
			}
			out[i] = one[0]
		}
	}
	return out, nil
}

// apart is a graph of the nodes, with others that only wait in place of those whose results they use.
func apart(nodes []workgraph.Node) *workgraph.Graph {
	g := &workgraph.Graph{Nodes: slices.Clone(nodes)}
	has, leads := map[string]bool{}, map[[2]string]bool{}
	for i := range nodes {
		has[nodes[i].ID] = true
	}
	for i := range nodes {
		for _, arg := range slices.Sorted(maps.Keys(nodes[i].Bind)) {
			for _, u := range nodes[i].Bind[arg].Uses {
				if !has[u.Node] {
					has[u.Node] = true
					g.Nodes = append(g.Nodes, waiting(u.Node, "1s"))
				}
				if e := [2]string{u.Node, nodes[i].ID}; !leads[e] {
					leads[e] = true
					g.Edges = append(g.Edges, workgraph.Edge{From: e[0], To: e[1]})
				}
			}
		}
	}
	return g
}

// waits is why a node with this behavior waits for the whole plan, or empty.
func (b Behavior) waits() string {
	switch {
	case b.Effect != workgraph.Pure && b.Effect != workgraph.Idempotent:
		return "its call may be UNSAFE to repeat"
	case b.Approves:
		return "an approval is asked for the whole plan"
	}
	return ""
}

// Check returns the faults that the executor finds in the whole graph.
func (l *Launch) Check(ctx context.Context, g *workgraph.Graph) ([]workgraph.Fault, error) {
	_, faults, err := l.ex.Examine(ctx, g, true)
	return faults, err
}

// Add hands over nodes that are certain, predecessors first, with the edges into them.
func (l *Launch) Add(nodes []workgraph.Node, edges []workgraph.Edge) {
	in := map[string][]workgraph.Edge{}
	for i := range edges {
		in[edges[i].To] = append(in[edges[i].To], edges[i])
	}
	l.mu.Lock()
	for _, n := range nodes {
		l.pending = append(l.pending, node{n, in[n.ID]})
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// rest is how many times the duration of an amendment passes before the next one: amendments take a fifth of
// the time at most.
const rest = 4

// grow amends the run until it is stopped. Nodes that come while an amendment is under way join the next one.
func (l *Launch) grow(ctx context.Context) {
	defer close(l.done)
	for {
		select {
		case <-l.wake:
		case <-l.stop:
			return
		}
		began := time.Now()
		if !l.batch(ctx) {
			return
		}
		pause := time.NewTimer(rest * time.Since(began))
		select {
		case <-pause.C:
		case <-l.stop:
		}
		pause.Stop()
	}
}

// batch adds what is pending to the run. It returns false when there is no use in going on.
func (l *Launch) batch(ctx context.Context) bool {
	var now Batch
	var held []Batch
	l.mu.Lock()
	for _, n := range l.pending {
		why := l.waits[n.ID]
		for i := 0; i < len(n.in) && why == ""; i++ {
			if from := n.in[i].From; l.waits[from] != "" {
				why = fmt.Sprintf("it needs %q, which waits", errs.Clip(from, 100))
			}
		}
		if why != "" {
			l.waits[n.ID] = why
			held = append(held, Batch{Nodes: []workgraph.Node{n.Node}, Edges: n.in, Waits: why})
			continue
		}
		now.Nodes, now.Edges = append(now.Nodes, n.Node), append(now.Edges, n.in...)
	}
	l.pending = nil
	l.mu.Unlock()
	for _, b := range held {
		l.tell(b)
	}
	if len(now.Nodes) == 0 {
		return true
	}
	err := l.amend(ctx, &workgraph.Patch{PutNodes: now.Nodes, AddEdges: now.Edges}, nil)
	switch {
	case err == nil:
		l.entered(now)
		now.Started = true
	case ctx.Err() != nil:
		return false
	case errs.ReasonOf(err) == ReasonRunEnded:
		l.fail(err)
		return false
	default:
		now.Waits = "the executor did not take it: " + errs.Clip(errs.From(err).Message, 300)
		l.mu.Lock()
		for i := range now.Nodes {
			l.waits[now.Nodes[i].ID] = now.Waits
		}
		l.mu.Unlock()
	}
	l.tell(now)
	return true
}

func (l *Launch) entered(b Batch) {
	for i := range b.Nodes {
		l.in[b.Nodes[i].ID] = true
	}
	for i := range b.Edges {
		l.put[b.Edges[i].To] = append(l.put[b.Edges[i].To], b.Edges[i])
	}
}

const (
	// tries bounds how often one amendment is sent.
	tries = 8
	// firstPause is that before an amendment is sent again; it doubles.
	firstPause = 50 * time.Millisecond
)

// amend sends one change until the run has it. Another change of the graph in between, such as an expansion,
// leads to a new try at its revision.
func (l *Launch) amend(ctx context.Context, patch *workgraph.Patch, whole *workgraph.Graph) error {
	l.changes++
	pause := firstPause
	for n := 1; ; n++ {
		id := fmt.Sprintf("plan-%s-%d-%d", l.run.ID, l.changes, l.revision)
		err := l.ex.Amend(ctx, l.run.ID, id, l.revision, l.behindExpansions(patch), whole)
		switch {
		case err == nil:
			l.revision++
			return nil
		case ctx.Err() != nil || n == tries:
			return err
		case errs.ReasonOf(err) == reasonEnded:
			return errs.New(errs.FailedPrecondition, ReasonRunEnded, "run %q ended before its plan was complete", l.run.ID).
				Hint("epigraph explain "+l.run.ID+" says why").Set("run_id", l.run.ID)
		case errs.ReasonOf(err) == reasonRevision:
			g, at, err := l.ex.Graph(ctx, l.run.ID)
			if err != nil {
				return err
			}
			l.revision, l.others = at, g
			if whole != nil {
				return errs.New(errs.Conflict, reasonRevision, "somebody else has changed the graph of run %q", l.run.ID)
			}
		case errs.Is(err, errs.Unavailable):
			if !sleep.For(ctx, pause) {
				return err
			}
			pause *= 2
		default:
			return err
		}
	}
}

// behindExpansions is a patch whose new edges lead from where the expansions of their nodes end, as the edges
// that were there before an expansion do.
func (l *Launch) behindExpansions(p *workgraph.Patch) *workgraph.Patch {
	if p == nil || l.others == nil {
		return p
	}
	out := *p
	out.AddEdges = nil
	for _, e := range p.AddEdges {
		ends := l.ends(e.From)
		if len(ends) == 0 {
			out.AddEdges = append(out.AddEdges, e)
			continue
		}
		if at := slices.IndexFunc(l.others.Nodes, func(n workgraph.Node) bool { return n.ID == e.From }); at >= 0 && e.PassDown.Mode == "" {
			e.PassDown = l.others.Nodes[at].PassDown
		}
		for _, id := range ends {
			e.From = id
			out.AddEdges = append(out.AddEdges, e)
		}
	}
	return &out
}

// ends are the last nodes of what a node expanded to.
func (l *Launch) ends(id string) (out []string) {
	within := func(n string) bool { return strings.HasPrefix(n, id+"#") }
	leads := map[string]bool{}
	for i := range l.others.Edges {
		if e := &l.others.Edges[i]; within(e.To) && (e.Kind == workgraph.DataEdge || e.Kind == "") {
			leads[e.From] = true
		}
	}
	for i := range l.others.Nodes {
		if n := l.others.Nodes[i].ID; within(n) && !leads[n] {
			out = append(out, n)
		}
	}
	return out
}

// Finish makes the run's graph that of the whole plan. After an error the run still has the placeholder.
func (l *Launch) Finish(ctx context.Context, g *workgraph.Graph) error {
	l.halt()
	<-l.done
	defer l.abandon()
	if l.others == nil {
		err := l.amend(ctx, nil, g)
		if errs.ReasonOf(err) != reasonRevision {
			return err
		}
	}
	// Nodes that others have added stay.
	p := workgraph.Patch{RemoveNodes: []string{Placeholder}}
	for i := range g.Nodes {
		if !l.in[g.Nodes[i].ID] {
			p.PutNodes = append(p.PutNodes, g.Nodes[i])
		}
	}
	for i := range g.Edges {
		if e := g.Edges[i]; !slices.Contains(l.put[e.To], e) {
			p.AddEdges = append(p.AddEdges, e)
		}
	}
	return l.amend(ctx, &p, nil)
}

// cancelTime bounds a cancel, which is sent also when the caller has gone.
const cancelTime = 10 * time.Second

// Cancel cancels the run, whose plan will not come. A run that cannot be reached fails when the placeholder's
// time is over.
func (l *Launch) Cancel(ctx context.Context, reason string) {
	l.halt()
	l.abandon()
	<-l.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	pause := firstPause
	for {
		err := l.ex.Cancel(ctx, l.run.ID, errs.Clip(reason, 1000))
		if err == nil || !errs.Is(err, errs.Unavailable) || !sleep.For(ctx, pause) {
			return
		}
		pause *= 2
	}
}
