package author

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Started is the code of an answer that changes a task which was told as certain before.
const Started plan.Code = "TASK_STARTED"

// Part is a part of a plan that is certain: nodes, and all edges into them.
type Part struct {
	Nodes []workgraph.Node
	Edges []workgraph.Edge
}

// Listener is told of a plan while a model writes it. The methods are called one at a time. An error ends the
// authoring.
type Listener interface {
	// Begin is called once, after the request was checked and before the model is asked for the first time.
	// limit bounds the time until the authoring ends.
	Begin(ctx context.Context, limit time.Duration) error
	// Text is a piece of the answer of a round.
	Text(round int, text string)
	// Round is an answer with faults, after which the model is asked again.
	Round(r *Round)
	// Usable names the nodes of a part that may be told, by index. The others wait for the whole plan, and so
	// do all that need them.
	Usable(ctx context.Context, nodes []workgraph.Node) ([]bool, error)
	// Part is told once for each node, predecessors first. The authoring then lets no answer change it.
	Part(p Part)
	// Check returns the faults of the whole plan beside those that the author finds itself.
	Check(ctx context.Context, g *workgraph.Graph) ([]workgraph.Fault, error)
}

// Stream is Create that tells what is certain while the model writes. The graph of the result contains every
// part as it was told.
func (a *Author) Stream(ctx context.Context, o Order, l Listener) (Made, Report, error) {
	return a.create(ctx, o, l)
}

// draft is a plan that is being written.
type draft struct {
	a    *Author
	kit  *kit
	how  compile.Options
	to   Listener
	read *plan.Reader
	// round counts the answers, from 1.
	round int
	// seen counts the finished problems of this answer that were looked at, and listed those of them that
	// were told before.
	seen, listed int
	// reached are the nodes of this answer that were told or wait for it; waiting are the latter, in order.
	reached map[string]bool
	waiting []*told
	// broken says that nothing more of this answer is told.
	broken bool
	// told are the tasks that were told, by node id, and order lists them as they were told.
	told  map[string]*told
	order []string
}

// told is a node that was told, with the edges into it.
type told struct {
	node workgraph.Node
	in   []workgraph.Edge
}

// begin prepares for the next answer.
func (d *draft) begin(ctx context.Context) {
	d.round++
	d.seen, d.listed, d.reached, d.waiting, d.broken = 0, 0, map[string]bool{}, nil, false
	d.read = plan.NewReader(plan.WithLimits(d.a.limits), plan.WithContext(ctx))
}

// write takes a piece of the answer. The error is that of ctx, or of the listener.
func (d *draft) write(ctx context.Context, text string) error {
	if text == "" {
		return ctx.Err()
	}
	d.to.Text(d.round, text)
	_, _ = d.read.Write([]byte(text)) // it never fails
	if d.broken || !d.read.Due() {
		return ctx.Err()
	}
	leave, err := d.a.enter(ctx, d.read.Len(), 0)
	if err != nil {
		return ctx.Err() // others have their turn; the next piece asks again
	}
	g := d.finished(ctx)
	leave()
	d.take(g)
	if d.broken || ctx.Err() != nil {
		return ctx.Err()
	}
	return d.tell(ctx)
}

// finished compiles the problems that have been finished since the last call, as far as they may be told,
// with bare ones in place of those that they need. So each problem of an answer is compiled once.
func (d *draft) finished(ctx context.Context) *workgraph.Graph {
	ready := d.read.Ready()
	fresh := ready.Problems[d.seen:]
	d.seen = len(ready.Problems)
	in := map[string][]plan.Edge{}
	for i := range fresh {
		in[fresh[i].ID] = nil
	}
	for _, e := range ready.Edges {
		if _, ok := in[e.To]; ok {
			in[e.To] = append(in[e.To], e)
		}
	}
	var part plan.Graph
	has, certain := map[string]bool{}, map[string]bool{}
	add := func(p plan.Problem) {
		if !has[p.ID] {
			has[p.ID] = true
			part.Problems = append(part.Problems, p)
		}
	}
	for i := range fresh {
		p := &fresh[i]
		if p.ParentID != "" {
			d.broken = true // a later line may make a group of any problem
			return nil
		}
		needs := d.needs(p, in[p.ID], certain)
		if needs == nil || d.reached[p.ID] || certain[p.ID] {
			continue
		}
		if found, err := d.kit.check(ctx, plan.Graph{Problems: fresh[i : i+1]}); err != nil || len(found) > 0 {
			continue
		}
		for _, id := range needs {
			add(plan.Problem{ID: id})
		}
		add(*p)
		certain[p.ID] = true
		part.Edges = append(part.Edges, in[p.ID]...)
	}
	if len(certain) == 0 {
		return nil
	}
	g, err := compile.Graph(ctx, part, d.how)
	if err != nil {
		return nil // the check of the whole answer says why
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n workgraph.Node) bool { return !certain[n.Name] })
	return g
}

// needs are the problems that a problem needs; nil if one of them is neither reached nor certain.
func (d *draft) needs(p *plan.Problem, in []plan.Edge, certain map[string]bool) []string {
	out := []string{}
	for _, e := range in {
		out = append(out, e.From)
	}
	for _, r := range p.Refs {
		out = append(out, r.To)
	}
	if slices.ContainsFunc(out, func(id string) bool { return !d.reached[id] && !certain[id] }) {
		return nil
	}
	return out
}

// take lets the nodes of a part wait that are new.
func (d *draft) take(g *workgraph.Graph) {
	if g == nil {
		return
	}
	in := edgesInto(g)
	for i := range g.Nodes {
		n := g.Nodes[i]
		switch t := d.told[n.ID]; {
		case t != nil && !t.equals(&n, in[n.ID]):
			d.broken = true // the check of the whole answer names it
			return
		case t != nil:
			d.listed++
		case n.ID != n.Name || !allIn(d.reached, in[n.ID]):
			continue // an id that had to change may be another one in the whole plan
		default:
			d.waiting = append(d.waiting, &told{n, in[n.ID]})
		}
		d.reached[n.ID] = true
	}
}

// tell tells the nodes that wait, unless the listener wants some to wait for the whole plan. A new answer is
// trusted once it has listed all that was told.
func (d *draft) tell(ctx context.Context) error {
	if len(d.waiting) == 0 || d.listed < len(d.told) {
		return nil
	}
	nodes := make([]workgraph.Node, len(d.waiting))
	for i, t := range d.waiting {
		nodes[i] = t.node
	}
	usable, err := d.to.Usable(ctx, nodes)
	if err != nil {
		return ctx.Err() // the listener cannot say now; the next piece asks again
	}
	var p Part
	for i, t := range d.waiting {
		id := t.node.ID
		if d.reached[id] = usable[i] && allIn(d.reached, t.in); !d.reached[id] {
			continue
		}
		d.told[id] = t
		d.listed++
		d.order = append(d.order, id)
		p.Nodes, p.Edges = append(p.Nodes, t.node), append(p.Edges, t.in...)
	}
	d.waiting = nil
	if len(p.Nodes) > 0 {
		d.to.Part(p)
	}
	return ctx.Err()
}

// allIn reports whether the edges come from nodes of a set.
func allIn(set map[string]bool, edges []workgraph.Edge) bool {
	for i := range edges {
		if !set[edges[i].From] {
			return false
		}
	}
	return true
}

func edgesInto(g *workgraph.Graph) map[string][]workgraph.Edge {
	in := map[string][]workgraph.Edge{}
	for i := range g.Edges {
		in[g.Edges[i].To] = append(in[g.Edges[i].To], g.Edges[i])
	}
	return in
}

func (t *told) equals(n *workgraph.Node, in []workgraph.Edge) bool {
	return reflect.DeepEqual(&t.node, n) && (len(t.in) == 0 && len(in) == 0 || reflect.DeepEqual(t.in, in))
}

// changed are the findings about tasks that were told and are not the same in the whole plan.
func (d *draft) changed(g *workgraph.Graph, read plan.Graph) (out []plan.Diagnostic) {
	at := make(map[string]*workgraph.Node, len(g.Nodes))
	for i := range g.Nodes {
		at[g.Nodes[i].ID] = &g.Nodes[i]
	}
	place := make(map[string]*plan.Problem, len(read.Problems))
	for i := range read.Problems {
		place[read.Problems[i].ID] = &read.Problems[i]
	}
	in := edgesInto(g)
	for _, id := range d.order {
		n, t := at[id], d.told[id]
		if n != nil && t.equals(n, in[id]) {
			continue
		}
		found := plan.Diagnostic{Code: Started, Severity: plan.Error, Element: id, Message: "this task was begun as it was written before, and is missing now",
			Hint: "list it again as it was"}
		if p := place[id]; p != nil {
			found.Line, found.Column, found.Message = p.Line, p.Column, "this task was begun as it was written before, and is another one now"
		}
		out = append(out, found)
	}
	return out
}

// maxFixed bounds the list of tasks that the model is told as fixed, in bytes.
const maxFixed = 32 << 10

// fixed tells the model which tasks it must list again as they are; empty if there are none.
func (d *draft) fixed() string {
	if len(d.order) == 0 {
		return ""
	}
	var lines []string
	size, actor := 0, cmp.Or(d.how.DefaultActor, compile.DefaultActor)
	for i, id := range d.order {
		t := d.told[id]
		line := taskLine(&t.node, t.in, actor, argsOf(&t.node, actor, d.how.Named))
		if size += len(line); size > maxFixed {
			lines = append(lines, fmt.Sprintf("and %d more", len(d.order)-i))
			break
		}
		lines = append(lines, line)
	}
	return "These tasks have begun as they were written. List each of them again, unchanged, in the notation of your answer:\n" + strings.Join(lines, "\n")
}
