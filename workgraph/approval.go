package workgraph

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// This file is what an approval binds. A question of approval covers the node that asks and everything that may run because of the answer, as the graph
// has it when the question is asked. A rejection ends the visit unless the graph says what follows from it. A change of what is covered makes the
// approval void: the question is asked again, and nothing that follows from it runs before.

// ReasonRejected is the reason of a visit whose question of approval was answered with a rejection of which the graph says nothing.
const ReasonRejected = "APPROVAL_REJECTED"

// CodeApproved refuses a change of what was approved when some of it has run already.
const CodeApproved = "APPROVED"

// ApproveHash names what is approved: the hex SHA-256 of its canonical JSON, so that spacing and the order of keys do not matter, and of what binds
// names beside it.
func ApproveHash(approve json.RawMessage, binds string) string {
	b, err := canonicalJSON(approve)
	if err != nil {
		b = approve
	}
	sum := sha256.Sum256(append(append(slices.Clip(b), '\n'), binds...))
	return hex.EncodeToString(sum[:])
}

// approves reports whether the wait is for an approval.
func (w *Wait) approves() bool { return w.Interrupt != nil && len(w.Interrupt.Approve) > 0 }

// given is the decision on the visit's question of approval, or empty.
func (ns *nodeState) given() string {
	if ns.kept == nil {
		return ""
	}
	return ns.kept.Decision
}

// binds names what an approval of the visit covers besides what is asked; empty before it is asked.
func (ns *nodeState) binds() string {
	if ns.kept == nil {
		return ""
	}
	return ns.kept.Binds
}

// keepDecision remembers a decision. Of those on the items of a map a rejection counts.
func (ns *nodeState) keepDecision(decision string) {
	if decision != "" && ns.given() != Rejected {
		ns.keep().Decision = decision
	}
}

// decided completes a unit with an answer, or fails it if that is a rejection and the graph does not say what follows.
func (s *State) decided(u unit, o *Outcome, value json.RawMessage, decision, by string) bool {
	if decision != Rejected || s.heedsAnswer(u.ns) {
		return false
	}
	s.failWait(u, Errorf(Permanent, ReasonRejected, "%s", rejection(by, value)))
	return true
}

// maxWhy bounds how much of the answer that came with a rejection its message repeats, in bytes.
const maxWhy = 500

// rejection says who rejected, and why if the answer is a text.
func rejection(by string, value json.RawMessage) string {
	text := "it was rejected"
	if by != "" {
		text = by + " rejected it"
	}
	var given struct {
		Answer any `json:"answer"`
	}
	if json.Unmarshal(value, &given) != nil {
		return text
	}
	why, _ := given.Answer.(string)
	if len(why) > maxWhy {
		why = strings.ToValidUTF8(why[:maxWhy], "") + "…"
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// heedsAnswer reports whether an edge out of the visit has a condition on what the visit gives.
func (s *State) heedsAnswer(ns *nodeState) bool {
	return slices.ContainsFunc(s.out(ns), func(e int32) bool { return s.p.onResult(&s.p.edges[e]) })
}

// onResult reports whether the edge has a condition on what its source gives.
func (p *Program) onResult(pe *pedge) bool {
	return pe.kind != ErrorEdge && pe.when != nil && (pe.when.ofResult || slices.Contains(pe.when.nodeRefs, p.nodes[pe.from].ID))
}

// lead is where edges lead from each node, or come from; BACK edges count.
type lead [][]int32

// leads are made once for a program: a run may have thousands of questions of approval.
func (p *Program) leads() (out, in lead) {
	r := p.reach
	r.leadsOnce.Do(func() {
		r.out, r.in = make(lead, len(p.nodes)), make(lead, len(p.nodes))
		for e := range p.edges {
			pe := &p.edges[e]
			r.out[pe.from], r.in[pe.to] = append(r.out[pe.from], pe.to), append(r.in[pe.to], pe.from)
		}
	})
	return r.out, r.in
}

// from marks what can be reached from these nodes, and not the node except.
func (l lead) from(except int32, nodes ...int32) map[int32]bool {
	marked := map[int32]bool{}
	for ; len(nodes) > 0; nodes = nodes[1:] {
		for _, n := range l[nodes[0]] {
			if n != except && !marked[n] {
				marked[n] = true
				nodes = append(nodes, n)
			}
		}
	}
	return marked
}

// covered are the nodes that a question of approval of node n covers besides it: below may run because of the answer, and all has also what hands
// values to these.
func (p *Program) covered(n int32) (below, all map[int32]bool) {
	out, in := p.leads()
	below = out.from(n, n)
	nodes := make([]int32, 0, len(below))
	for m := range below {
		nodes = append(nodes, m)
	}
	all = in.from(n, nodes...)
	for m := range below {
		all[m] = true
	}
	return below, all
}

// binds names what an approval of the visit covers: the definitions of its node, of what follows and of what hands values to that, the edges between
// them, and what has traveled to the visit.
func (s *State) binds(ns *nodeState) string {
	_, covered := s.p.covered(ns.n)
	covered[ns.n] = true
	h := sha256.New()
	write := func(v any) {
		b, err := json.Marshal(v)
		if err == nil {
			b, err = canonicalJSON(b)
		}
		if err != nil {
			b = []byte(err.Error())
		}
		sum := sha256.Sum256(b)
		h.Write(sum[:])
	}
	write(Input{Args: ns.args, Named: ns.named})
	for i := range s.p.nodes {
		if !covered[int32(i)] {
			continue
		}
		def, ok := s.defs[int32(i)]
		if !ok {
			b, err := json.Marshal(s.p.nodes[i].Node)
			if err == nil {
				b, err = canonicalJSON(b)
			}
			if err != nil {
				b = []byte(err.Error())
			}
			if def = sha256.Sum256(b); s.defs == nil {
				s.defs = map[int32][sha256.Size]byte{}
			}
			s.defs[int32(i)] = def
		}
		h.Write(def[:])
	}
	for e := range s.p.g.Edges {
		if covered[s.p.index[s.p.g.Edges[e].To]] {
			write(&s.p.g.Edges[e])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// touched are the nodes that a change touches, by their numbers in the old and in the new program: those that are changed, added or removed, and those
// into which edges change.
func (a *amendment) touched() (old, now map[int32]bool) {
	old, now = map[int32]bool{}, map[int32]bool{}
	touch := func(id string) {
		if n, ok := a.s.p.index[id]; ok {
			old[n] = true
		}
		if n, ok := a.q.index[id]; ok {
			now[n] = true
		}
	}
	for _, id := range slices.Concat(a.diff.AddedNodes, a.diff.RemovedNodes) {
		touch(id)
	}
	for _, c := range a.diff.ChangedNodes {
		touch(c.ID)
	}
	for _, e := range slices.Concat(a.diff.AddedEdges, a.diff.RemovedEdges) {
		touch(e.To)
	}
	for _, c := range a.diff.ChangedEdges {
		touch(c.To)
	}
	return old, now
}

func meets(a, b map[int32]bool) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	for n := range a {
		if b[n] {
			return true
		}
	}
	return false
}

// approvals makes approvals void whose covered nodes the change touches: their questions are asked again.
func (a *amendment) approvals() {
	old, now := a.touched()
	if len(old)+len(now) == 0 {
		return
	}
	for i := range a.s.p.nodes {
		n := int32(i)
		var below map[int32]bool
		void := false
		for _, ns := range a.s.visitsOf(n) {
			if !ns.asksApproval() && ns.given() != Approved {
				continue
			}
			if below == nil {
				var all map[int32]bool
				below, all = a.s.p.covered(n)
				void = meets(all, old)
				if to := a.nodes[n]; to >= 0 && !void {
					_, all = a.q.covered(to)
					void = meets(all, now)
				}
			}
			if void {
				a.void(ns, below)
			}
		}
	}
}

// asksApproval reports whether a question of approval of the visit, or of one of its items, is open.
func (ns *nodeState) asksApproval() bool {
	open := func(t *try) bool {
		return t.status == VisitWaiting && t.wait != nil && t.wait.out.Wait.approves()
	}
	if open(&ns.try) {
		return true
	}
	return ns.m != nil && slices.ContainsFunc(ns.m.items, func(it itemState) bool { return open(&it.try) })
}

// void lets a visit ask again. One that has ended is taken back with what waits for it; when something that it covers has run already, the change is
// refused.
func (a *amendment) void(ns *nodeState, below map[int32]bool) {
	s := a.s
	if !ns.resolved() {
		if !slices.Contains(a.resets, ns) && a.mayReset(ns) {
			a.resets = append(a.resets, ns)
		}
		return
	}
	again := []*nodeState{ns}
	refused := s.p.nodes[ns.n].region != 0
	for n := range s.p.nodes {
		if !below[int32(n)] || refused {
			continue
		}
		if r := s.p.nodes[n].region; r != 0 {
			for s.p.regions[r].parent != 0 {
				r = s.p.regions[r].parent
			}
			inst := &s.root.insts[s.p.regions[r].slot]
			refused = inst.opened || inst.closed || inst.limited > 0
			continue
		}
		switch v := &s.root.nodes[s.p.localNode[n]]; {
		case v.status == VisitPending:
		case v.status == VisitSkipped:
			again = append(again, v)
		case v.resolved():
			refused = true
		case a.mayReset(v):
			again = append(again, v)
		}
	}
	if refused {
		id := s.node(ns).ID
		a.refuse(Fault{Code: CodeApproved, Node: id, Message: fmt.Sprintf("what was approved at %s would change, and some of what follows from the approval has run", s.ref(ns, 0)),
			Hint: "fork the run from " + id + ": it is asked again there"})
		return
	}
	for _, v := range again {
		if !slices.Contains(a.reopens, v) {
			a.reopens = append(a.reopens, v)
		}
	}
}

// applyReopen takes a visit back to before it began, and the edges out of it to before they were decided, so that its join is met again. The graph
// changes after it, and joins are counted anew then.
func (s *State) applyReopen(ns *nodeState) {
	for _, e := range s.out(ns) {
		if s.p.edges[e].scope == ns.f.region {
			ns.f.edges[s.p.localEdge[e]] = edgeState{}
		}
	}
	if !ns.resolved() {
		if ns.status != VisitPending {
			s.applyReset(ns)
		}
		return
	}
	s.unmarkInputs(ns)
	no, gen := ns.no, ns.gen
	ns.try = try{status: VisitPending, no: no, gen: gen, pos: -1}
	ns.before, ns.m, ns.args, ns.named, ns.key = no, nil, nil, nil, ""
	ns.values, ns.err, ns.note, ns.kept, ns.adopted = nil, nil, "", nil, false
	if s.latest[ns.n] == ns {
		s.latest[ns.n] = nil
	}
}

func (s *State) replayReopen(st *Step) error {
	ns := s.lookup(st.Node, st.Visit)
	if ns == nil || ns.f != s.root {
		return fmt.Errorf("%w: no visit %s@%d to ask again", ErrCorrupt, st.Node, st.Visit)
	}
	s.applyReopen(ns)
	return nil
}

// voids finds the approvals of an earlier run that do not hold for a new run with the graph after: something that follows from them would run that has
// run before, or is other than what was approved, or takes in what is made anew.
func (a *adopter) voids(after *Graph) bool {
	s := a.s
	var old map[int32]bool
	var gone, added map[string]bool
	more := false
	for i := range s.p.nodes {
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.given() != Approved || a.void[ns] || !a.stable(ns) {
				continue
			}
			if old == nil {
				old, gone, added = a.changed(after)
			}
			if a.breaks(ns, old, gone, added) {
				a.void[ns] = true
				more = true
			}
		}
	}
	return more
}

// changed are the nodes that the new graph changes, or into which it changes edges, those that it lacks, and those that it adds.
func (a *adopter) changed(after *Graph) (touched map[int32]bool, gone, added map[string]bool) {
	touched, gone, added = map[int32]bool{}, map[string]bool{}, map[string]bool{}
	if after == nil {
		return touched, gone, added
	}
	touch := func(id string) {
		if n, ok := a.s.p.index[id]; ok {
			touched[n] = true
		}
	}
	d, _ := Diff(context.Background(), a.before, after) // its context does not end
	for _, c := range d.ChangedNodes {
		touch(c.ID)
	}
	for _, e := range slices.Concat(d.AddedEdges, d.RemovedEdges) {
		touch(e.To)
		if _, ok := a.s.p.index[e.To]; !ok {
			added[e.From] = true
		}
	}
	for _, c := range d.ChangedEdges {
		touch(c.To)
	}
	for _, id := range d.RemovedNodes {
		gone[id] = true
	}
	return touched, gone, added
}

// breaks reports whether the approval given at ns does not hold in the new run.
func (a *adopter) breaks(ns *nodeState, touched map[int32]bool, gone, added map[string]bool) bool {
	s := a.s
	_, all := s.p.covered(ns.n)
	if added[s.p.nodes[ns.n].ID] {
		return true
	}
	for n := range all {
		node := &s.p.nodes[n]
		again, ran := len(s.visitsOf(n)) == 0, false
		for _, v := range s.visitsOf(n) {
			if v.status == VisitPending || !a.stable(v) {
				again = true
				ran = ran || v.status == VisitCompleted || v.status == VisitAbstained
			}
		}
		switch {
		case touched[n] || gone[node.ID] || added[node.ID]:
			return true
		case again && ran: // what was approved was done, or what it takes in was there, and comes anew
			return true
		}
	}
	return false
}
