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

// This file decides what an approval binds. An approval covers the node that asks and everything
// that may run because of the answer, in the graph at the time of asking. A rejection fails the visit unless
// the graph handles it. A change of what is covered makes the approval void: the interrupt is opened again,
// and nothing that follows from it runs before the new answer.

// ReasonRejected is the reason of a visit whose approval was rejected in a graph that does not
// handle rejections.
const ReasonRejected = "APPROVAL_REJECTED"

// CodeApproved refuses a change of what was approved if some of it has already run.
const CodeApproved = "APPROVED"

// ApproveHash is the hex SHA-256 that names what is approved: the canonical JSON of approve, so that spacing
// and the order of keys do not matter, and binds, which names what is covered besides.
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

// decision is the one on the visit's approval, or empty.
func (ns *nodeState) decision() string {
	if ns.kept == nil {
		return ""
	}
	return ns.kept.Decision
}

// binds names what an approval of the visit covers besides the value to approve. It is empty before the
// interrupt is opened.
func (ns *nodeState) binds() string {
	if ns.kept == nil {
		return ""
	}
	return ns.kept.Binds
}

// seen and workflows are what the visit's approval covers besides the graph.
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

// recordDecision saves a decision on the visit. Among the decisions on items of a map a rejection wins.
func (ns *nodeState) recordDecision(decision string) {
	if decision != "" && ns.decision() != Rejected {
		ns.saveOutcome().Decision = decision
	}
}

// decided fails a unit if its answer is a rejection that the graph does not handle, and reports whether it
// did.
func (s *State) decided(u unit, o *Outcome, value json.RawMessage, decision, by string) bool {
	if decision != Rejected || s.usesAnswer(u.ns) {
		return false
	}
	s.failWait(u, Errorf(Permanent, ReasonRejected, "%s", rejection(by, value)))
	return true
}

// maxWhy bounds, in bytes, how much of a rejection's answer its message repeats.
const maxWhy = 500

// rejection is the message of a rejection: who rejected and, if the answer is a text, why.
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

// usesAnswer reports whether an edge out of the visit has a condition on the visit's result.
func (s *State) usesAnswer(ns *nodeState) bool {
	return slices.ContainsFunc(s.out(ns), func(e int32) bool { return s.p.onResult(&s.p.edges[e]) })
}

// onResult reports whether the edge has a condition on its source's result.
func (p *Program) onResult(pe *pedge) bool {
	return pe.kind != ErrorEdge && pe.when != nil && (pe.when.ofResult || slices.Contains(pe.when.nodeRefs, p.nodes[pe.from].ID))
}

// touched are the nodes that a change touches, by number in the old and in the new program: changed, added
// and removed nodes, and nodes with a change among the edges into them.
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

// approvals makes the approvals void that cover a touched node; their interrupts are opened again. Each
// search through the graph is done once for all approvals together.
func (a *amendment) approvals(ctx context.Context) error {
	old, now := a.touched()
	if len(old)+len(now) == 0 {
		return nil
	}
	var asked []*nodeState
	for i := range a.s.p.nodes {
		for _, ns := range a.s.visitsOf(int32(i)) {
			if ns.asksApproval() || ns.decision() == Approved {
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
		a.mayReset(ns) // this records what is in its way
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

// asksApproval reports whether an approval of the visit, or of one of its items, is open.
func (ns *nodeState) asksApproval() bool {
	open := func(t *try) bool {
		return t.status == VisitWaiting && t.wait != nil && t.wait.out.Wait.approves()
	}
	if open(&ns.try) {
		return true
	}
	return ns.m != nil && slices.ContainsFunc(ns.m.items, func(it itemState) bool { return open(&it.try) })
}

// revoked lists the visits that begin again if these approvals, given at visits that have ended, are void:
// these visits, and those that wait for them or were skipped. stuck are the ones that cannot be asked again
// because something that follows from them has run. may reports whether a visit under way can be taken back.
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
		case ns.status == VisitSkipped, ns.resolved() && ns.decision() != "": // a decision can be made again
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

// applyReopen takes a visit back to the state before it began, and the edges out of it to before they were
// decided, so that its join is met again. Afterwards the graph changes and joins are recounted.
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

// voids finds the approvals of an earlier run that do not hold for a new run with the graph after. An
// approval is void if something that follows from it would run a second time, differs from what was approved,
// or takes in something that is made anew.
func (a *reuseFinder) voids(ctx context.Context, after *Graph) (more bool, err error) {
	s := a.s
	var given []*nodeState
	for i := range s.p.nodes {
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.decision() == Approved && !a.void[ns] && a.stable(ns) {
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
		// The node was done, or its result was taken in, and it runs again; or it differs.
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

// changes are the nodes of the old graph that the new one changes, lacks, or gives other incoming edges. It
// also sets leadsOn to the nodes that lead to a new node.
func (a *reuseFinder) changes(ctx context.Context, after *Graph) (map[string]bool, error) {
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
