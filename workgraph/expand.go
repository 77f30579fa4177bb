package workgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file lets a visit insert a sub-graph after its node. Outside of loops the expanded graph could have
// been written by hand: the node leads to the sub-graph's start nodes, and its sinks lead where the node's
// DATA edges led. In a loop the node keeps its edges for its other visits.

// expansionTask is a visit that waits for its expansion. Expansions happen between the edges that are
// followed.
type expansionTask struct {
	ns     *nodeState
	o      *Outcome
	values []json.RawMessage
	sub    *Graph
	now    time.Time
	// expanded is the program that from becomes by the expansion, unless another expansion comes first.
	from, expanded *Program
}

// maxFaultsListed bounds how many faults the error of a refused expansion lists.
const maxFaultsListed = 20

// RefusedExpansion is the error of a visit whose sub-graph has these faults. Its message lists the first of
// them with their codes.
func RefusedExpansion(faults []Fault) *Error {
	more := ""
	if n := len(faults) - maxFaultsListed; n > 0 {
		faults, more = faults[:maxFaultsListed], "\nand "+itoa(n)+" more"
	}
	return Errorf(Permanent, ReasonExpandRefused, "%s%s", Faults(faults).Error(), more)
}

// expandFault says why an outcome cannot expand to any graph. It is empty if nothing prevents it.
func expandFault(o *Outcome) string {
	switch sel := o.Select; {
	case o.Expand == nil:
		return ""
	case o.Stop != Proceed:
		return "an outcome that stops cannot expand: leave one of the two out"
	case sel != nil && sel.Others != "" && sel.Others != SelectAll:
		return "an outcome that expands cannot select among the edges that its sub-graph leads on: put conditions on the sub-graph's edges"
	}
	if _, err := json.Marshal(o.Expand); err != nil {
		return "the sub-graph to expand to is not JSON: " + err.Error()
	}
	return ""
}

// planExpansion checks the sub-graph by itself and at its place, and fills in its defaults and effects.
func (s *State) planExpansion(ns *nodeState, sub *Graph) (expansionTask, []Fault) {
	filled, faults := s.fillExpansion(ns, sub)
	if len(faults) > 0 {
		return expansionTask{}, faults
	}
	q, faults := s.expandWith(ns, int(ns.f.serial), filled)
	return expansionTask{ns: ns, sub: filled, from: s.p, expanded: q}, faults
}

// expandWith is the program of the run's graph with sub inserted, within the limits. A replay does not check
// the limits, because an earlier decision stays.
func (s *State) expandWith(ns *nodeState, visit int, sub *Graph) (*Program, []Fault) {
	q, faults, err := s.p.expandWith(s.evaluation(), ns.n, visit, sub)
	if err != nil {
		return nil, []Fault{s.expandsTooLong(ns, err)}
	}
	limit := s.p.limits.Edges
	if len(faults) > 0 || limit <= 0 || len(q.g.Edges) <= limit {
		return q, faults
	}
	return nil, []Fault{{Code: CodeTooLarge, Node: s.node(ns).ID, Field: "expand", Hint: "let fewer nodes begin or end the sub-graph: each is led to from the node, and on to all that follow",
		Message: fmt.Sprintf("the run would have %d edges, the limit is %d", len(q.g.Edges), limit)}}
}

// expandsTooLong is the fault of a sub-graph that could not be checked before the command's context ended.
func (s *State) expandsTooLong(ns *nodeState, err error) Fault {
	return Fault{Code: CodeTooLarge, Node: s.node(ns).ID, Field: "expand", Message: "the sub-graph cannot be checked in time: " + err.Error(),
		Hint: "expand to less at once"}
}

func (s *State) fillExpansion(ns *nodeState, sub *Graph) (*Graph, []Fault) {
	node := s.node(ns)
	if node.inbox != nil {
		return nil, []Fault{{Code: CodeCannotExpand, Node: node.ID, Field: "expand", Message: "a node that messages wake cannot expand",
			Hint: "lead to a node that expands"}}
	}
	if s.p.regions[ns.f.region].token {
		return nil, []Fault{{Code: CodeCannotExpand, Node: node.ID, Field: "expand", Message: "a node of a loop that can be entered at several nodes cannot expand",
			Hint: "give the loop a single entry"}}
	}
	depth, nodes := s.p.limits.Depth, s.p.limits.Nodes
	def(&depth, DefaultDepth)
	def(&nodes, DefaultNodes)
	if d := depthOf(node.ID) + 1; d > depth {
		return nil, []Fault{{Code: CodeTooDeep, Node: node.ID, Field: "expand", Message: fmt.Sprintf("expansions would lie %d deep in each other, the limit is %d", d, depth),
			Hint: "return the remaining work as values, or expand to more nodes at once"}}
	}
	if n := len(s.p.nodes) + len(sub.Nodes); n > nodes {
		return nil, []Fault{{Code: CodeTooLarge, Node: node.ID, Field: "expand", Message: fmt.Sprintf("the run would have %d nodes, the limit is %d", n, nodes),
			Hint: "use a map for many like items"}}
	}
	ctx := s.evaluation()
	c := &checker{ctx: ctx, actors: s.p.actors, exprs: maps.Clone(s.p.exprs), outer: func(id string) (declared, before bool) {
		x, ok := s.p.resolve(node.ID, id)
		return ok, ok && (x == ns.n || s.p.leadsTo(x, ns.n))
	}}
	p, faults, err := build(c, sub)
	if err != nil {
		return nil, []Fault{s.expandsTooLong(ns, err)}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	prefix := len(expansionPrefix(node.ID, int(ns.f.serial)))
	for i := range p.nodes {
		if id := p.nodes[i].ID; prefix+len(id) > MaxIDLen {
			faults = append(faults, Fault{Code: CodeBadID, Node: id, Field: "id", Hint: "use shorter ids",
				Message: fmt.Sprintf("with the %d bytes that the expansion puts before it, the id is longer than %d bytes", prefix, MaxIDLen)})
		}
	}
	for i := range p.nodes {
		if p.nodes[i].inbox != nil {
			faults = append(faults, Fault{Code: CodeCannotExpand, Node: p.nodes[i].ID, Field: "on.inbox", Message: "a sub-graph cannot have inboxes",
				Hint: "declare the inbox in the run's graph"})
		}
	}
	for _, k := range sortedKeys(p.g.State) {
		have, ok := s.p.g.State[k]
		if want := p.g.State[k]; !ok || have.Reducer != want.Reducer || !bytes.Equal(have.Initial, want.Initial) {
			faults = append(faults, Fault{Code: CodeCannotExpand, Field: "state." + k, Message: "a sub-graph cannot declare state of its own",
				Hint: "declare the key in the run's graph"})
		}
	}
	return p.g, faults
}

// expandWith is the program of the graph with sub inserted after a visit of node n. The error is that of ctx.
func (p *Program) expandWith(ctx context.Context, n int32, visit int, sub *Graph) (*Program, []Fault, error) {
	node := &p.nodes[n]
	keeps := node.region != 0 && node.round == 0
	c := &checker{ctx: ctx, expanded: true, exprs: maps.Clone(p.exprs), schemas: maps.Clone(p.schemas)}
	q, faults, err := build(c, inserted(p.g, node.Node, visit, keeps, sub))
	if err != nil || len(faults) > 0 {
		return nil, faults, err
	}
	for i := range q.nodes {
		if q.regions[q.nodes[i].region].token && q.origins[i].node >= 0 && q.roundOf(q.nodes[q.origins[i].node].region, int32(i)) > 0 {
			return nil, []Fault{{Code: CodeCannotExpand, Node: q.nodes[i].ID, Message: "a sub-graph within a loop cannot have a loop that can be entered at several nodes",
				Hint: "give the loop a single entry"}}, nil
		}
	}
	q.inherit(p)
	return q, nil, nil
}

// inherit takes over the settings of a program that are not part of its graph.
func (p *Program) inherit(from *Program) {
	p.actors, p.limits, p.evaluated = from.actors, from.limits, from.evaluated
	if from.outcomes != nil {
		p.outcomes = from.outcomes
	}
	p.fineCancel = p.fineCancel || from.fineCancel
}

// inserted is g with sub after the node. keeps says that the node's DATA edges stay for its other visits.
func inserted(g *Graph, node *Node, visit int, keeps bool, sub *Graph) *Graph {
	prefix := expansionPrefix(node.ID, visit)
	out := &Graph{Name: g.Name, State: g.State, Nodes: make([]Node, 0, len(g.Nodes)+len(sub.Nodes)),
		Edges: make([]Edge, 0, len(g.Edges)+2*len(sub.Nodes)+len(sub.Edges))}
	leads, entered, takeFrom := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range sub.Edges {
		e := &sub.Edges[i]
		if e.Kind == DataEdge || e.Kind == "" {
			leads[e.From] = true
		}
		if e.Kind != BackEdge {
			entered[e.To] = true
		}
	}
	for i := 0; i < len(g.Nodes); i++ {
		out.Nodes = append(out.Nodes, g.Nodes[i])
		if g.Nodes[i].ID != node.ID {
			continue
		}
		for i+1 < len(g.Nodes) && strings.HasPrefix(g.Nodes[i+1].ID, node.ID+"#") {
			i++
			out.Nodes = append(out.Nodes, g.Nodes[i])
		}
		for k := range sub.Nodes {
			n := sub.Nodes[k]
			n.ID = prefix + n.ID
			out.Nodes = append(out.Nodes, n)
		}
	}
	for i := range g.Edges {
		e := g.Edges[i]
		from, _, _, made := expansionID(e.To)
		if e.From != node.ID || e.Kind != DataEdge || made && from == node.ID {
			out.Edges = append(out.Edges, e)
			continue
		}
		if keeps {
			out.Edges = append(out.Edges, e)
		}
		takeFrom[e.To] = true
		if e.PassDown.Mode == "" {
			e.PassDown = node.PassDown
		}
		for k := range sub.Nodes {
			if id := sub.Nodes[k].ID; !leads[id] {
				e.From = prefix + id
				out.Edges = append(out.Edges, e)
			}
		}
	}
	for i := range out.Nodes {
		if n := &out.Nodes[i]; takeFrom[n.ID] && n.On != nil && n.On.Inbox != nil && slices.Contains(n.On.Inbox.From, node.ID) {
			in := *n.On.Inbox
			in.From = slices.Clone(in.From)
			for k := range sub.Nodes {
				if id := sub.Nodes[k].ID; !leads[id] {
					in.From = append(in.From, prefix+id)
				}
			}
			n.On = &Trigger{Inbox: &in}
		}
	}
	for k := range sub.Nodes {
		if id := sub.Nodes[k].ID; !entered[id] {
			out.Edges = append(out.Edges, Edge{From: node.ID, To: prefix + id, Kind: DataEdge})
		}
	}
	for i := range sub.Edges {
		e := sub.Edges[i]
		e.From, e.To = prefix+e.From, prefix+e.To
		out.Edges = append(out.Edges, e)
	}
	return out
}

// resolve finds the node that id means in an expression at the node named at: one of the same sub-graph, or
// else of the enclosing graphs.
func (p *Program) resolve(at, id string) (int32, bool) {
	for p.origins != nil {
		from, _, given, ok := expansionID(at)
		if !ok {
			break
		}
		if n, ok := p.index[at[:len(at)-len(given)]+id]; ok {
			return n, true
		}
		at = from
	}
	n, ok := p.index[id]
	return n, ok
}

// expandNext inserts the sub-graph of the visit that has waited longest, and completes the visit.
func (s *State) expandNext() {
	t := s.expandQ[0]
	s.expandQ = s.expandQ[1:]
	ref := s.ref(t.ns, 0)
	q := t.expanded
	if t.from != s.p {
		var faults []Fault
		if _, faults = s.fillExpansion(t.ns, t.sub); len(faults) == 0 {
			q, faults = s.expandWith(t.ns, ref.Visit, t.sub)
		}
		if len(faults) > 0 {
			s.attemptFailed(unit{t.ns, 0}, RefusedExpansion(faults), false, t.now)
			return
		}
	}
	s.record(s.step(OpExpand, t.ns, &Detail{Graph: t.sub}))
	s.applyGraph(q)
	ns := s.lookup(ref.Node, ref.Visit)
	ns.saveOutcome().Expand = t.sub
	s.succeed(ns, t.values, t.o, nil)
}

// completeUnexpanded completes visits whose expansion comes too late because the run is ending.
func (s *State) completeUnexpanded() {
	for len(s.expandQ) > 0 {
		t := s.expandQ[0]
		s.expandQ = s.expandQ[1:]
		s.succeed(t.ns, t.values, t.o, nil)
	}
	s.expandQ = nil
}

// applyGraph replaces the run's graph.
func (s *State) applyGraph(q *Program) {
	s.remap(q)
	s.revision++
	s.fx.Graph = q.g
}

func (s *State) replayExpand(ctx context.Context, st *Step, d *Detail) error {
	ns := s.lookup(st.Node, st.Visit)
	if ns == nil || ns.resolved() || d.Graph == nil {
		return fmt.Errorf("%w: no visit %s@%d to expand", ErrCorrupt, st.Node, st.Visit)
	}
	q, faults, err := s.p.expandWith(ctx, ns.n, st.Visit, d.Graph)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: expansion of %s@%d: %w", ErrCorrupt, st.Node, st.Visit, Faults(faults))
	}
	s.applyGraph(q)
	s.lookup(st.Node, st.Visit).saveOutcome().Expand = d.Graph
	return nil
}

// MayExpand reports whether some open wait of the run ends in an expansion.
func (s *State) MayExpand() bool {
	return slices.ContainsFunc(s.waits, func(u unit) bool { return u.try().wait.out.Expand != nil })
}

// Graph is a copy of the run's current graph, including expansions and amendments.
func (s *State) Graph() *Graph { return s.p.Graph() }

// Program is the program of the run's current graph.
func (s *State) Program() *Program { return s.p }

// GraphRevision counts the changes of the run's graph.
func (s *State) GraphRevision() int64 { return s.revision }

// UseActors sets the actors that expansions may call from now on. Restored and replayed states need it if
// their program was compiled without actors, or if the set of actors has changed.
func (s *State) UseActors(actors ActorSet) { s.p = s.p.WithActors(actors) }
