package program

import (
	"context"
	"fmt"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxInner bounds the depth of nodes in arguments of nodes.
const maxInner = 8

// warnings returns the warnings of the program of g, and those about the calls that its nodes declare to
// make. It also returns what the calls of each node may do.
func (s *Set) warnings(ctx context.Context, namespace string, p *workgraph.Program, g *workgraph.Graph, in *workgraph.Input) (workgraph.Faults, []Behavior, error) {
	list, err := p.Warnings(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	w := inner{s: s, namespace: namespace, faults: list, behaviors: make([]Behavior, len(g.Nodes)), index: make(map[string]int, len(g.Nodes))}
	for i := range g.Nodes {
		id := g.Nodes[i].ID
		w.index[id] = i
		w.behaviors[i] = Behavior{Node: id, Effect: workgraph.Pure}
	}
	if err := w.look(ctx, g); err != nil {
		return nil, nil, err
	}
	return w.all(), w.behaviors, nil
}

// inner collects warnings about nodes inside of arguments.
type inner struct {
	s         *Set
	namespace string
	faults    workgraph.Faults
	more      int
	// behaviors are those of the graph's nodes, by index.
	behaviors []Behavior
	index     map[string]int
	// names are the actors of the namespace, read when the first one is unknown.
	names         []string
	hinted, steps int
}

// within is a node in the arguments of a graph's node, or that node itself.
type within struct {
	workgraph.InnerNode
	outer string // the node of the graph
}

// look descends level by level, so that the actors of a level are looked up together.
func (w *inner) look(ctx context.Context, g *workgraph.Graph) error {
	w.steps = MaxNearSteps
	level := make([]within, len(g.Nodes))
	for i := range g.Nodes {
		level[i] = within{workgraph.InnerNode{Node: &g.Nodes[i], ActorPlace: "actor"}, g.Nodes[i].ID}
	}
	for depth := 0; len(level) > 0 && depth <= maxInner; depth++ {
		names := make([]string, 0, len(level))
		for i := range level {
			names = append(names, level[i].Node.Actor)
		}
		slices.Sort(names)
		known, err := w.s.KnownActors(ctx, w.namespace, slices.Compact(names), FromCaller)
		if err != nil {
			return err
		}
		var next []within
		for _, x := range level {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			info, ok := known[x.Node.Actor]
			if !ok {
				w.may(x, workgraph.Unsafe)
				w.unknown(ctx, x)
				continue
			}
			w.unused(x, info.WaitsFor)
			w.behave(x, &info.ActorInfo, depth == 0)
			if info.Inner == nil {
				continue
			}
			inside := info.Inner(x.Node)
			if len(inside) == 0 || depth == maxInner {
				w.may(x, workgraph.Unsafe) // the calls are known to nobody yet
			}
			for _, in := range inside {
				in.Place, in.ActorPlace = below(x.Place, in.Place), below(x.Place, in.ActorPlace)
				next = append(next, within{in, x.outer})
			}
		}
		level = next
	}
	return nil
}

// may adds an effect to what calls of the outer node may do.
func (w *inner) may(x within, e workgraph.Effect) {
	b := &w.behaviors[w.index[x.outer]]
	if e == workgraph.Unsafe || b.Effect == workgraph.Pure {
		b.Effect = e
	}
}

// behave adds what calls of a node may do. own says that it is a node of the graph.
func (w *inner) behave(x within, info *workgraph.ActorInfo, own bool) {
	e := x.Node.Effect
	if e == "" && info.EffectOf != nil {
		e = info.EffectOf(x.Node)
	}
	if e == "" {
		e = info.Effect
	}
	if e == "" {
		e = workgraph.Unsafe
	}
	w.may(x, e)
	if own {
		w.behaviors[w.index[x.outer]].Approves = info.Approves != nil && info.Approves(x.Node)
	}
}

func below(place, field string) string {
	if place == "" {
		return field
	}
	return place + "." + field
}

// full reports that no further warning fits, and counts it.
func (w *inner) full() bool {
	if len(w.faults) < workgraph.MaxFaults {
		return false
	}
	w.more++
	return true
}

func (w *inner) all() workgraph.Faults {
	if w.more == 0 || len(w.faults) > workgraph.MaxFaults { // the program has counted some already
		return w.faults
	}
	return append(w.faults, workgraph.Fault{Code: workgraph.CodeMoreFaults, Message: fmt.Sprintf("and %d more warnings", w.more), Hint: "mend these and ask again"})
}

// unknown warns about an actor that a call would not find now.
func (w *inner) unknown(ctx context.Context, x within) {
	if w.full() {
		return
	}
	f := workgraph.Fault{Code: workgraph.CodeUnknownActor, Node: x.outer, Field: x.ActorPlace,
		Message: fmt.Sprintf("no actor is called %q, so that the call fails unless a worker that serves it comes before", errs.Clip(x.Node.Actor, 80))}
	if w.names == nil {
		w.names, _ = w.s.actors.Names(ctx, w.namespace) // without the names there is no hint
	}
	if w.hinted++; w.hinted <= maxHints {
		f.Hint = hint(x.Node.Actor, w.names, &w.steps)
	}
	w.faults = append(w.faults, f)
}

// unused warns about a node's timeouts that do not bound the wait with which calls of its actor end.
func (w *inner) unused(x within, waitsFor []string) {
	if len(waitsFor) == 0 {
		return
	}
	for _, t := range []struct {
		field string
		d     workgraph.Duration
	}{{"timeout", x.Node.Timeout}, {"idle_timeout", x.Node.IdleTimeout}} {
		if t.d <= 0 || w.full() {
			continue
		}
		f := workgraph.Fault{Code: workgraph.CodeUnused, Node: x.outer, Field: below(x.Place, t.field), Hint: "set " + below(x.Place, "named."+waitsFor[0]),
			Message: fmt.Sprintf("it bounds a call, which is over when %q begins to wait", x.Node.Actor)}
		for _, arg := range waitsFor {
			if len(x.Node.Named[arg]) > 0 {
				f.Hint = "drop it, " + below(x.Place, "named."+arg) + " bounds the wait"
				break
			}
		}
		w.faults = append(w.faults, f)
	}
}
