package author

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
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
	// checked are the problems of this answer that were looked at, by id, and whether they may be told.
	checked map[string]bool
	// broken says that this answer contradicts what was told; nothing of it is told any more.
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
	d.checked, d.broken = map[string]bool{}, false
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
	part, ok := d.certain(ctx)
	leave()
	if !ok || ctx.Err() != nil {
		return ctx.Err()
	}
	return d.tell(ctx, part)
}

// certain compiles the finished problems that may be told, with those that were told before. ok is false if
// there is nothing new among them.
func (d *draft) certain(ctx context.Context) (g *workgraph.Graph, ok bool) {
	ready := d.read.Ready()
	in := map[string][]string{}
	for _, e := range ready.Edges {
		in[e.To] = append(in[e.To], e.From)
	}
	part, has, fresh := plan.Graph{}, map[string]bool{}, false
	for i := range ready.Problems {
		p := &ready.Problems[i]
		if p.ParentID != "" {
			return nil, false // a later line may make a group of any problem
		}
		may, known := d.checked[p.ID]
		if !known {
			found, err := d.kit.check(ctx, plan.Graph{Problems: ready.Problems[i : i+1]})
			if err != nil {
				return nil, false
			}
			may = len(found) == 0
			d.checked[p.ID] = may
		}
		for _, from := range in[p.ID] {
			may = may && has[from]
		}
		for _, r := range p.Refs {
			may = may && has[r.To]
		}
		if !may || has[p.ID] {
			continue
		}
		has[p.ID], fresh = true, fresh || d.told[p.ID] == nil
		part.Problems = append(part.Problems, *p)
	}
	if !fresh {
		return nil, false
	}
	for _, e := range ready.Edges {
		if has[e.To] {
			part.Edges = append(part.Edges, e)
		}
	}
	g, err := compile.Graph(ctx, part, d.how)
	return g, err == nil
}

// tell tells the nodes that are new, unless the listener wants some to wait.
func (d *draft) tell(ctx context.Context, g *workgraph.Graph) error {
	in := edgesInto(g)
	var fresh []workgraph.Node
	reached, listed := map[string]bool{}, 0
	for i := range g.Nodes {
		n := g.Nodes[i]
		t := d.told[n.ID]
		if t != nil && !t.equals(&n, in[n.ID]) {
			d.broken = true // the check of the whole answer names it
			return nil
		}
		if t != nil {
			listed++
		}
		// an id that had to change may be another one in the whole plan
		if reached[n.ID] = t != nil || n.ID == n.Name && allIn(reached, in[n.ID]); t == nil && reached[n.ID] {
			fresh = append(fresh, n)
		}
	}
	// A new answer is trusted once it has listed all that was told.
	if len(fresh) == 0 || listed < len(d.told) {
		return nil
	}
	usable, err := d.to.Usable(ctx, fresh)
	if err != nil {
		return ctx.Err() // the listener cannot say now; the next piece asks again
	}
	var p Part
	has := map[string]bool{}
	for id := range d.told {
		has[id] = true
	}
	for i, n := range fresh {
		d.checked[n.ID] = usable[i]
		if !usable[i] || !allIn(has, in[n.ID]) {
			continue
		}
		has[n.ID] = true
		d.told[n.ID] = &told{n, in[n.ID]}
		d.order = append(d.order, n.ID)
		p.Nodes, p.Edges = append(p.Nodes, n), append(p.Edges, in[n.ID]...)
	}
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

// whole are the findings about a plan that the author itself has no fault with.
func (d *draft) whole(ctx context.Context, g *workgraph.Graph, read plan.Graph) ([]plan.Diagnostic, error) {
	if found := d.changed(g, read); len(found) > 0 {
		return found, nil
	}
	faults, err := d.to.Check(ctx, g)
	return ofGraph(faults), err
}

// maxFixed bounds the list of tasks that the model is told as fixed, in bytes.
const maxFixed = 32 << 10

// fixed tells the model which tasks it must list again as they are; empty if there are none.
func (d *draft) fixed() string {
	if len(d.order) == 0 {
		return ""
	}
	var lines []string
	size := 0
	for i, id := range d.order {
		t := d.told[id]
		line := taskLine(&t.node, t.in, cmp.Or(d.how.DefaultActor, compile.DefaultActor))
		if size += len(line); size > maxFixed {
			lines = append(lines, fmt.Sprintf("and %d more", len(d.order)-i))
			break
		}
		lines = append(lines, line)
	}
	return "These tasks have begun as they were written. List each of them again, unchanged, in the notation of your answer:\n" + strings.Join(lines, "\n")
}
