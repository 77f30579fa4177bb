package workgraph

import (
	"context"
	"fmt"
	"slices"
)

// Codes of refusals: an amendment must leave these things as they are, because they have happened.
const (
	CodeNodeEnded       = "NODE_ENDED"
	CodeInputsDelivered = "INPUTS_DELIVERED"
	CodeEdgeDecided     = "EDGE_DECIDED"
	CodeLoopBegun       = "LOOP_BEGUN"
	CodeStateChanged    = "STATE_CHANGED"
	CodeUnsafeInFlight  = "UNSAFE_IN_FLIGHT"
	CodeReconcileFirst  = "NEEDS_RECONCILIATION"
	CodeUnknownEdge     = "UNKNOWN_EDGE"
	CodeCannotExpand    = "CANNOT_EXPAND" // of an expansion: its content or its place is not allowed
)

// amendment is an examined change from one program to another.
type amendment struct {
	s                     *State
	q                     *Program
	nodes, edges, regions []int32
	diff                  GraphDiff
	refusals              Faults
	// changedNode and changedEdge are the fields that differ, by old node and edge.
	changedNode map[int32][]string
	changedEdge map[int32][]string
	// resets are the visits under way that must begin again or go away.
	resets []*nodeState
	// reopens are visits that begin again because an approval is void: visits that have ended, and those that
	// wait for them.
	reopens []*nodeState
	// hadEdge says which edges of the new program the old one had.
	hadEdge []bool
}

// refuse records a refusal, up to MaxFaults of them.
func (a *amendment) refuse(f Fault) {
	switch n := len(a.refusals); {
	case n < MaxFaults:
		a.refusals = append(a.refusals, f)
	case n == MaxFaults:
		a.refusals = append(a.refusals, Fault{Code: CodeMoreFaults, Message: "and more of the kind", Hint: "mend these and ask again"})
	}
}

// examineAmend finds what the change means for the visits of the run, and every reason to refuse it. The
// error is that of ctx.
func (s *State) examineAmend(ctx context.Context, q *Program) (*amendment, error) {
	diff, err := Diff(ctx, s.p.g, q.g)
	if err != nil {
		return nil, err
	}
	a := &amendment{s: s, q: q, diff: diff, changedNode: map[int32][]string{}, changedEdge: map[int32][]string{}, hadEdge: make([]bool, len(q.edges))}
	a.nodes, a.edges, a.regions = q.match(s.p)
	for _, e := range a.edges {
		if e >= 0 {
			a.hadEdge[e] = true
		}
	}
	for _, c := range a.diff.ChangedNodes {
		a.changedNode[s.p.index[c.ID]] = c.Fields
	}
	for _, c := range a.diff.ChangedEdges {
		if e, ok := s.edgeOf(c.From, c.To, c.Kind); ok {
			a.changedEdge[e] = c.Fields
		}
	}
	for _, k := range a.diff.ChangedState {
		a.refuse(Fault{Code: CodeStateChanged, Field: "state." + k, Message: "the declaration of a run's state cannot change while it goes on",
			Hint: "leave the key as it is"})
	}
	was, is := inLists(s.p), inLists(q)
	frozen := a.frozen()
	for i := range s.p.nodes {
		a.node(int32(i), was[i], is)
	}
	for e := range s.p.edges {
		a.edge(int32(e))
	}
	for r := range s.p.regions {
		if frozen[r] {
			a.region(int32(r))
		}
	}
	a.newEdges(frozen)
	a.senders()
	return a, a.approvals(ctx)
}

// inLists are the edges into every node, including BACK edges, in declared order.
func inLists(p *Program) [][]int32 {
	in := make([][]int32, len(p.nodes))
	for e := range p.edges {
		to := p.edges[e].to
		if p.edges[e].message {
			continue // later messages are no inputs of visits that have begun
		}
		in[to] = append(in[to], int32(e))
	}
	return in
}

// ended reports whether a visit of the node is over, and whether one is under way.
func (a *amendment) ended(n int32) (ended, begun bool) {
	for _, ns := range a.s.visitsOf(n) {
		switch {
		case ns.resolved():
			ended = true
		case ns.status != VisitPending:
			begun = true
		}
	}
	return ended, begun
}

func (a *amendment) node(n int32, was []int32, is [][]int32) {
	ended, begun := a.ended(n)
	if !ended && !begun {
		return
	}
	id, now, fields := a.s.p.nodes[n].ID, a.nodes[n], a.changedNode[n]
	var moved bool
	if now >= 0 {
		moved = !slices.EqualFunc(was, is[now], func(o, n int32) bool { return a.edges[o] == n && a.changedEdge[o] == nil })
		if a.q.nodes[now].region != a.regions[a.s.p.nodes[n].region] {
			a.refuse(Fault{Code: CodeLoopBegun, Node: id, Message: "the node would change into or out of a loop, and the run has reached it",
				Hint: "build the loop from new nodes"})
		}
	}
	if ended {
		for _, f := range fields {
			a.refuse(Fault{Code: CodeNodeEnded, Node: id, Field: f, Message: "the node has visits that have ended, so it stays as it is",
				Hint: "add a node that does it the new way"})
		}
		switch {
		case now < 0:
			a.refuse(Fault{Code: CodeNodeEnded, Node: id, Message: "the node has visits that have ended, so it cannot be removed",
				Hint: "remove what comes after it instead"})
		case moved:
			a.refuse(Fault{Code: CodeInputsDelivered, Node: id, Field: "edges", Message: "the node has visits that have ended, and the edges into it would change",
				Hint: "lead the edges to a node that has not ended"})
		}
		if now < 0 || len(fields) > 0 || moved {
			return
		}
	}
	if now >= 0 && len(fields) == 0 && !moved || !begun {
		return
	}
	r := &a.s.p.regions[a.s.p.nodes[n].region]
	if moved && (r.token || r.head == n) {
		a.refuse(Fault{Code: CodeLoopBegun, Node: id, Field: "edges", Message: "the loop has begun, and the edges into it would change",
			Hint: "wait for its end, or lead the edges elsewhere"})
		return
	}
	for _, ns := range a.s.visitsOf(n) {
		if !ns.resolved() && ns.status != VisitPending && a.mayReset(ns) {
			a.resets = append(a.resets, ns)
		}
	}
}

// mayReset refuses to take back a visit with a call that must never be repeated blindly.
func (a *amendment) mayReset(ns *nodeState) bool {
	f := a.s.irrevocable(ns)
	if f != nil {
		a.refuse(*f)
	}
	return f == nil
}

// irrevocable is the reason why a visit that has not ended cannot be taken back, or nil if it can.
func (s *State) irrevocable(ns *nodeState) *Fault {
	units := []unit{{ns, 0}}
	if ns.m != nil {
		for i := range ns.m.next {
			units = append(units, unit{ns, int32(i + 1)})
		}
	}
	for _, u := range units {
		switch t := u.try(); {
		case t.status == VisitReconciliation:
			return &Fault{Code: CodeReconcileFirst, Node: s.node(ns).ID, Message: fmt.Sprintf("nobody knows yet what %s did", s.ref(ns, u.item)),
				Hint: "reconcile the visit first"}
		case t.pos >= 0 && t.intent:
			return &Fault{Code: CodeUnsafeInFlight, Node: s.node(ns).ID, Message: fmt.Sprintf("%s is calling an UNSAFE actor, and that call cannot be taken back", s.ref(ns, u.item)),
				Hint: "wait for its end"}
		case u.item > 0 && s.node(ns).Effect == Unsafe && t.no > 0 && t.status != VisitBackoff && t.status != VisitHeld && t.pos < 0:
			return &Fault{Code: CodeUnsafeInFlight, Node: s.node(ns).ID, Message: fmt.Sprintf("%s has called an UNSAFE actor, and the map would call it again", s.ref(ns, u.item)),
				Hint: "wait for the end of the map"}
		}
	}
	return nil
}

// edge refuses changes to edges that have been decided.
func (a *amendment) edge(e int32) {
	pe, now := &a.s.p.edges[e], a.edges[e]
	ended, _ := a.ended(pe.from)
	if !ended || a.nodes[pe.from] < 0 || a.nodes[pe.to] < 0 {
		return
	}
	from, to := a.s.p.nodes[pe.from].ID, a.s.p.nodes[pe.to].ID
	if now < 0 {
		a.refuse(Fault{Code: CodeEdgeDecided, From: from, To: to, Message: "the edge was decided when its source ended, so it cannot be removed",
			Hint: "remove or replace the node that it leads to"})
		return
	}
	for _, f := range a.changedEdge[e] {
		a.refuse(Fault{Code: CodeEdgeDecided, From: from, To: to, Field: f, Message: "the edge was decided when its source ended, so it stays as it is",
			Hint: "replace the node that it leads to"})
	}
	if pe.scope >= 0 && a.regions[pe.scope] != a.q.edges[now].scope {
		a.refuse(Fault{Code: CodeLoopBegun, From: from, To: to, Message: "the edge was decided, and would come to lie in another loop", Hint: "build the loop from new nodes"})
	}
}

// frozen are the loops that have begun, and those within them.
func (a *amendment) frozen() []bool {
	s := a.s
	out := make([]bool, len(s.p.regions))
	limited := make(map[int32]bool, len(s.limited))
	for _, l := range s.limited {
		limited[l.region] = true
	}
	for r := range s.p.regions {
		if r == 0 {
			continue
		}
		out[r] = len(s.frames[int32(r)]) > 0 || limited[int32(r)]
		if s.p.regions[r].token {
			out[r] = out[r] || slices.ContainsFunc(s.p.regions[r].nodes, func(n int32) bool { return len(s.tokens[n]) > 0 })
		}
	}
	for r := range s.p.regions {
		for up := s.p.regions[r].parent; up > 0; up = s.p.regions[up].parent {
			out[r] = out[r] || out[up]
		}
	}
	return out
}

// region refuses changes to the shape of a loop that has begun.
func (a *amendment) region(k int32) {
	old := &a.s.p.regions[k]
	member := old.member()
	refuse := func(format string, args ...any) {
		a.refuse(Fault{Code: CodeLoopBegun, Node: a.s.p.nodes[member].ID, Message: "the loop has begun, so its shape stays as it is: " + fmt.Sprintf(format, args...),
			Hint: "change fields of nodes that it has not reached, or what comes after it"})
	}
	if a.regions[k] < 0 {
		refuse("it would go")
		return
	}
	now := &a.q.regions[a.regions[k]]
	wasNodes, wasEdges := old.all()
	isNodes, isEdges := now.all()
	if a.regions[old.parent] != now.parent {
		refuse("it would come to lie in another loop")
	}
	for _, n := range wasNodes {
		if to := a.nodes[n]; to < 0 || a.q.nodes[to].region != a.regions[k] {
			refuse("node %q would leave it", a.s.p.nodes[n].ID)
		}
	}
	if len(isNodes) > len(wasNodes) {
		refuse("nodes would be added to it")
	}
	for _, e := range wasEdges {
		if a.edges[e] < 0 {
			refuse("the edge from %q to %q would go", a.s.p.nodes[a.s.p.edges[e].from].ID, a.s.p.nodes[a.s.p.edges[e].to].ID)
		}
	}
	if len(isEdges) > len(wasEdges) {
		refuse("edges would be added to it")
	}
	if !old.token && a.nodes[old.head] != now.head || len(old.children) != len(now.children) || old.in != now.in {
		refuse("its entry or the loops in it would change")
	}
}

// all are the members of a region in any round.
func (r *region) all() (nodes, edges []int32) {
	nodes, edges = r.nodes, r.edges
	for _, g := range r.expanded {
		nodes, edges = slices.Concat(nodes, g.nodes), slices.Concat(edges, g.edges)
	}
	return nodes, edges
}

// newEdges refuses new edges out of loops that go on, because earlier rounds were decided without them.
func (a *amendment) newEdges(frozen []bool) {
	back := make([]int32, len(a.q.nodes))
	for i := range back {
		back[i] = -1
	}
	for o, n := range a.nodes {
		if n >= 0 {
			back[n] = int32(o)
		}
	}
	for e := range a.q.edges {
		pe := &a.q.edges[e]
		if a.hadEdge[e] || back[pe.from] < 0 {
			continue
		}
		old := back[pe.from]
		r := a.s.p.nodes[old].region
		if r == 0 {
			continue
		}
		from, to := a.q.nodes[pe.from].ID, a.q.nodes[pe.to].ID
		if len(a.s.visitsOf(old)) == 0 && a.over(r) {
			a.refuse(Fault{Code: CodeLoopBegun, From: from, To: to, Message: "the run has passed by the source for good without a visit, so nothing would ever come over the edge",
				Hint: "lead the edge from another node"})
			continue
		}
		if !frozen[r] {
			continue
		}
		if pe.scope > 0 || !a.over(r) {
			a.refuse(Fault{Code: CodeLoopBegun, From: from, To: to, Message: "the edge would lead out of a loop that goes on, and rounds that are over were decided without it",
				Hint: "lead the edge from a node after the loop, or wait for the loop's end"})
		}
	}
}

// over reports whether the loop and all enclosing loops have ended.
func (a *amendment) over(r int32) bool {
	for a.s.p.regions[r].parent != 0 {
		r = a.s.p.regions[r].parent
	}
	return a.s.root.insts[a.s.p.regions[r].slot].closed
}
