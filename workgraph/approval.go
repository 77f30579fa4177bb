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

// This file is what an approval binds. A question of approval covers the node that asks and everything that
// may run because of the answer, as the graph has it when the question is asked. A rejection ends the visit
// unless the graph says what follows from it. A change of what is covered makes the approval void: the
// question is asked again, and nothing that follows from it runs before.

// ReasonRejected is the reason of a visit whose question of approval was answered with a rejection of which
// the graph says nothing.
const ReasonRejected = "APPROVAL_REJECTED"

// CodeApproved refuses a change of what was approved when some of it has run already.
const CodeApproved = "APPROVED"

// ApproveHash names what is approved: the hex SHA-256 of its canonical JSON, so that spacing and the order of
// keys do not matter, and of what binds names beside it.
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

// seen and workflows are what the visit's question of approval covers beside the graph.
func (ns *nodeState) seen() map[string]string {
	if ns.kept == nil {
		return nil
	}
	return ns.kept.Seen
}

func (ns *nodeState) workflows() map[string]string {
	if ns.kept == nil {
		return nil
	}
	return ns.kept.Workflows
}

// recordDecision remembers a decision. Of those on the items of a map a rejection counts.
func (ns *nodeState) recordDecision(decision string) {
	if decision != "" && ns.given() != Rejected {
		ns.saveOutcome().Decision = decision
	}
}

// decided completes a unit with an answer, or fails it if that is a rejection and the graph does not say what
// follows.
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

// touched are the nodes that a change touches, by their numbers in the old and in the new program: those that
// are changed, added or removed, and those into which edges change.
func (a *amendment) touched() (old, now []int32) {
	touch := func(id string) {
		if n, ok := a.s.p.index[id]; ok {
			old = append(old, n)
		}
		if n, ok := a.q.index[id]; ok {
			now = append(now, n)
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

// approvals makes approvals void whose covered nodes the change touches: their questions are asked again.
// What is reached from what is touched, what that is reached from, and what guards what, is searched for all
// approvals together.
func (a *amendment) approvals(ctx context.Context) error {
	old, now := a.touched()
	if len(old)+len(now) == 0 {
		return nil
	}
	var asked []*nodeState
	for i := range a.s.p.nodes {
		for _, ns := range a.s.visitsOf(int32(i)) {
			if ns.asksApproval() || ns.given() == Approved {
				asked = append(asked, ns)
			}
		}
	}
	if len(asked) == 0 {
		return nil
	}
	before, err := a.s.p.covers(ctx)
	if err != nil {
		return err
	}
	after, err := a.q.covers(ctx)
	if err != nil {
		return err
	}
	was, is := before.before(ctx, old...), after.before(ctx, now...)
	asked = slices.DeleteFunc(asked, func(ns *nodeState) bool {
		to := a.nodes[ns.n]
		return !was[ns.n] && (to < 0 || !is[to])
	})
	firsts := slices.CompactFunc(slices.Clone(asked), func(x, y *nodeState) bool { return x.n == y.n })
	if err := a.stillGuarded(ctx, firsts); err != nil {
		return err
	}
	var given []*nodeState
	for _, ns := range asked {
		switch {
		case ns.resolved():
			given = append(given, ns)
		case a.mayReset(ns):
			a.resets = append(a.resets, ns)
		}
	}
	again, stuck := a.s.revoked(ctx, before, given, func(ns *nodeState) bool {
		a.mayReset(ns) // what is in its way is told
		return true
	})
	for _, ns := range stuck {
		id := a.s.node(ns).ID
		a.refuse(Fault{Code: CodeApproved, Node: id, Message: fmt.Sprintf("what was approved at %s would change, and some of what follows from the approval has run", a.s.ref(ns, 0)),
			Hint: "fork the run from " + id + ": it is asked again there"})
	}
	a.reopens = again
	return ctx.Err()
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

// revoked lists the visits that begin again when these approvals, given at visits that have ended, do not
// hold: they, and what waits for them or was skipped. stuck are those that cannot be asked again, since
// something that follows from them has run. may says of a visit under way whether it can be taken back.
func (s *State) revoked(ctx context.Context, c *cover, given []*nodeState, may func(*nodeState) bool) (again, stuck []*nodeState) {
	if len(given) == 0 {
		return nil, nil
	}
	asked := make(map[*nodeState]bool, len(given))
	var from, ran []int32
	for _, ns := range given {
		asked[ns] = true
		from = append(from, ns.n)
	}
	again = slices.Clone(given)
	for _, n := range marked(c.out.from(ctx, from...)) {
		if r := s.p.nodes[n].region; r != 0 {
			for s.p.regions[r].parent != 0 {
				r = s.p.regions[r].parent
			}
			inst := &s.root.insts[s.p.regions[r].slot]
			if b := s.inboxes[n]; inst.opened || inst.closed || inst.limited > 0 || inst.entries > 0 || b != nil && len(b.messages) > 0 {
				ran = append(ran, n)
			}
			continue
		}
		switch ns := &s.root.nodes[s.p.localNode[n]]; {
		case ns.status == VisitPending, asked[ns]:
		case ns.status == VisitSkipped, ns.resolved() && ns.given() != "": // somebody decided: that can be asked again
			again = append(again, ns)
		case !ns.resolved() && may(ns):
			again = append(again, ns)
		default:
			ran = append(ran, n)
		}
	}
	led := c.in.from(ctx, ran...)
	for _, ns := range given {
		if led[ns.n] || s.p.nodes[ns.n].region != 0 {
			stuck = append(stuck, ns)
		}
	}
	return again, stuck
}

// applyReopen takes a visit back to before it began, and the edges out of it to before they were decided, so
// that its join is met again. The graph changes after it, and joins are counted anew then.
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
	s.forgetApprovals()
	s.unmarkInputs(ns)
	no, gen := ns.no, ns.gen
	ns.try = try{status: VisitPending, no: no, gen: gen, pos: -1}
	ns.before, ns.m, ns.args, ns.named, ns.key = no, nil, nil, nil, ""
	ns.values, ns.err, ns.note, ns.kept, ns.reused = nil, nil, "", nil, false
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

// voids finds the approvals of an earlier run that do not hold for a new run with the graph after: something
// that follows from them would run that has run before, or is other than what was approved, or takes in what
// is made anew.
func (a *adopter) voids(ctx context.Context, after *Graph) (more bool, err error) {
	s := a.s
	var given []*nodeState
	for i := range s.p.nodes {
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.given() == Approved && !a.void[ns] && a.stable(ns) {
				given = append(given, ns)
			}
		}
	}
	if len(given) == 0 {
		return false, nil
	}
	c, err := s.p.covers(ctx)
	if err != nil {
		return false, err
	}
	if a.changed == nil {
		if a.changed, err = a.changes(ctx, after); err != nil {
			return false, err
		}
	}
	var other []int32
	for n := range s.p.nodes {
		again, ran := len(s.visitsOf(int32(n))) == 0, false
		for _, v := range s.visitsOf(int32(n)) {
			if v.status == VisitPending || !a.stable(v) {
				again = true
				ran = ran || v.status == VisitCompleted || v.status == VisitAbstained
			}
		}
		// What was approved was done, or what it takes in was there, and comes anew; or it is other than it
		// was.
		if again && ran || a.changed[s.p.nodes[n].ID] {
			other = append(other, int32(n))
		}
	}
	hit, leadsOn := c.before(ctx, other...), c.in.from(ctx, a.leadsOn...)
	for _, ns := range given {
		if hit[ns.n] || leadsOn[ns.n] || slices.Contains(a.leadsOn, ns.n) {
			a.void[ns] = true
			more = true
		}
	}
	return more, ctx.Err()
}

// changes are the nodes of the old graph that the new one changes or lacks, or into which it changes edges;
// leadsOn are those that lead to a node that is new.
func (a *adopter) changes(ctx context.Context, after *Graph) (map[string]bool, error) {
	touched := map[string]bool{}
	if after == nil {
		return touched, nil
	}
	d, err := Diff(ctx, a.before, after)
	if err != nil {
		return nil, err
	}
	for _, c := range d.ChangedNodes {
		touched[c.ID] = true
	}
	for _, e := range slices.Concat(d.AddedEdges, d.RemovedEdges) {
		touched[e.To] = true
		if _, ok := a.s.p.index[e.To]; !ok {
			if n, ok := a.s.p.index[e.From]; ok {
				a.leadsOn = append(a.leadsOn, n)
			}
		}
	}
	for _, c := range d.ChangedEdges {
		touched[c.To] = true
	}
	for _, id := range d.RemovedNodes {
		touched[id] = true
	}
	return touched, nil
}
