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

// This file keeps approvals valid while a run goes on. An approval keeps digests of the state
// values that the nodes following from it read, and hashes of the workflows that they name. These are
// compared when the answer comes, when a following node begins, and when it has evaluated expressions or
// spawns runs. A following node may change the state itself: that is part of what was approved.

// ReasonApprovalVoid is the reason of a visit that differs from what was approved, if the interrupt cannot be
// asked again.
const ReasonApprovalVoid = "APPROVAL_VOID"

// questioned computes what the visit's approval covers: a digest of everything, and the digests
// of the state values. The error is that of ctx.
func (s *State) questioned(ctx context.Context, ns *nodeState, q *Interrupt) (binds string, seen map[string]string, err error) {
	c, err := s.p.digested(ctx) // examine has computed it before
	if err != nil {
		return "", nil, err
	}
	if c.reads != nil {
		var all stateReads
		for _, n := range marked(c.out.from(ctx, ns.n)) {
			all.add(c.reads[n].keys, c.reads[n].all)
		}
		if ctx.Err() != nil {
			return "", nil, context.Cause(ctx)
		}
		for _, k := range all.in(s.vars) {
			if seen == nil {
				seen = map[string]string{}
			}
			seen[k] = s.vars[k].digest()
		}
	}
	sum := jsonDigest(struct {
		Propagated       Input
		Graph            []byte
		State, Workflows map[string]string
	}{Input{Args: ns.args, Named: ns.named}, c.digests[s.p.reaches().comp[ns.n]][:], seen, q.Workflows})
	return hex.EncodeToString(sum[:]), seen, nil
}

// approvals are the visits with a granted approval that covers state values or workflows.
func (s *State) approvals() []*nodeState {
	if !s.watched {
		return nil
	}
	if s.approved == nil {
		s.approved = []*nodeState{}
		for _, ns := range s.allApproved() {
			if len(ns.kept.Seen) > 0 || len(ns.kept.Workflows) > 0 {
				s.approved = append(s.approved, ns)
			}
		}
	}
	return s.approved
}

// allApproved are the visits with a granted approval, by node.
func (s *State) allApproved() []*nodeState {
	if s.approvedVisits == nil {
		s.approvedVisits = []*nodeState{}
		for i := range s.p.nodes {
			for _, ns := range s.visitsOf(int32(i)) {
				if ns.decision() == Approved {
					s.approvedVisits = append(s.approvedVisits, ns)
				}
			}
		}
	}
	return s.approvedVisits
}

// forgetApprovals drops the computed lists of approvals.
func (s *State) forgetApprovals() { s.approvedVisits, s.approved, s.outdated = nil, nil, nil }

// recordCover saves what the visit's approval covers.
func (s *State) recordCover(ns *nodeState, binds string, seen, workflows map[string]string) {
	if binds == "" && len(seen) == 0 && len(workflows) == 0 {
		return
	}
	k := ns.saveOutcome()
	k.Seen = make(map[string]string, len(seen)) // a copy, because moveOn changes it
	for key, v := range seen {
		k.Seen[key] = v
	}
	k.Binds, k.Workflows = binds, workflows
	s.watched = s.watched || len(seen) > 0 || len(workflows) > 0
	s.forgetApprovals()
}

// holds reports whether the state values that the visit's approval covers are unchanged.
func (s *State) holds(ns *nodeState) bool {
	for k, was := range ns.kept.Seen {
		if v := s.vars[k]; v != nil && v.digest() != was {
			return false
		}
	}
	return true
}

// outdatedFor marks the nodes that follow from an approval of another value of the key than its current one.
// The error is that of ctx; nothing is kept then.
func (s *State) outdatedFor(ctx context.Context, key string) ([]bool, error) {
	if marks, ok := s.outdated[key]; ok {
		return marks, nil
	}
	var from []int32
	for _, ns := range s.approvals() {
		if was, ok := ns.kept.Seen[key]; ok && was != s.vars[key].digest() {
			from = append(from, ns.n)
		}
	}
	var marks []bool
	if len(from) > 0 {
		c, err := s.p.covers(ctx)
		if err != nil {
			return nil, err
		}
		if marks = c.out.from(ctx, from...); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if s.outdated == nil {
		s.outdated = map[string][]bool{}
	}
	s.outdated[key] = marks
	return marks, nil
}

// ApprovedAt is the last visit with a granted approval from which the visit ref follows, with the workflows
// that all such interrupts covered. ok is false if there is none.
func (s *State) ApprovedAt(ref Ref) (at Ref, workflows map[string]string, ok bool) {
	n, known := s.p.index[ref.Node]
	if !known || s.root == nil {
		return Ref{}, nil, false
	}
	for _, ns := range s.allApproved() {
		if !s.p.leadsTo(ns.n, n) {
			continue
		}
		at, ok = s.ref(ns, 0), true
		for k, v := range ns.workflows() {
			if workflows == nil {
				workflows = map[string]string{}
			}
			workflows[k] = v
		}
	}
	return at, workflows, ok
}

// void are the approvals that cover node n and whose state values differ from those that n would read now,
// with the names of the keys. named are the propagated arguments. If the command's context ends first, late
// is its cause, and given are all approvals that may cover the node.
func (s *State) void(n int32, named map[string]json.RawMessage) (given []*nodeState, why string, late error) {
	if len(s.approvals()) == 0 || len(s.vars) == 0 {
		return nil, "", nil
	}
	ctx := s.evaluation()
	c, err := s.p.covers(ctx)
	if err != nil {
		return s.covering(n), "", err
	}
	reads := c.reads[n]
	if s.p.evaluated != nil && len(named) > 0 {
		reads.keys = slices.Clone(reads.keys)
		pn := &s.p.nodes[n]
		all := make(map[string]json.RawMessage, len(pn.Named)+len(named))
		for k, v := range pn.Named {
			all[k] = v
		}
		for k, v := range named {
			all[k] = v
		}
		s.p.callReads(&reads, pn.Actor, all)
	}
	var keys []string
	for _, k := range reads.in(s.vars) {
		marks, err := s.outdatedFor(ctx, k)
		if err != nil {
			return s.covering(n), "", err
		}
		if marks != nil && marks[n] {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, "", nil
	}
	for _, ns := range s.approvals() {
		if slices.ContainsFunc(keys, func(k string) bool {
			was, ok := ns.kept.Seen[k]
			return ok && was != s.vars[k].digest()
		}) && s.p.leadsTo(ns.n, n) {
			given = append(given, ns)
		}
	}
	return given, "state " + strings.Join(keys, ", ") + " has changed", nil
}

// covering are the approvals from which the node follows.
func (s *State) covering(n int32) []*nodeState {
	return slices.DeleteFunc(slices.Clone(s.approvals()), func(ns *nodeState) bool { return !s.p.leadsTo(ns.n, n) })
}

// superseding puts a unit aside if it was approved for other values than the current ones, and reports
// whether it did.
func (s *State) superseding(u unit, decision string) bool {
	return decision == Approved && !s.holds(u.ns) && s.doubted(doubt{u: u, given: []*nodeState{u.ns}, why: "what was asked has changed"})
}

// otherGraphs are the approvals that cover the visit and were given for other graphs of the workflows that it
// is to run.
func (s *State) otherGraphs(ns *nodeState, runs []Child) (given []*nodeState, why string) {
	for _, a := range s.approvals() {
		for i := range runs {
			c := &runs[i]
			was, ok := a.kept.Workflows[c.Workflow]
			if !ok || c.Workflow == "" || was == c.WorkflowHash || !s.p.leadsTo(a.n, ns.n) {
				continue
			}
			given, why = append(given, a), "the graph of "+c.Workflow+" is another one"
			break
		}
	}
	return given, why
}

// enteredVoid puts a visit aside that would begin with another state than was approved, and reports whether
// it did.
func (s *State) enteredVoid(ns *nodeState, named map[string]json.RawMessage) bool {
	if !s.watched || s.reuse != nil && s.reuse[s.ref(ns, 0)] != nil {
		return false
	}
	given, why, late := s.void(ns.n, named)
	return s.doubted(doubt{u: unit{ns, 0}, given: given, why: why, late: late})
}

// loopVoid puts a loop aside that would begin with another state than was approved, and reports whether it
// did.
func (s *State) loopVoid(region int32) bool {
	if !s.watched || s.reuse != nil {
		return false
	}
	given, why, late := s.void(s.p.regions[region].head, nil)
	if len(given) == 0 || s.drain != "" {
		return false
	}
	s.doubts = append(s.doubts, doubt{region: region, given: given, why: why, late: late})
	return true
}

// foundVoid puts a visit aside whose call has evaluated expressions over a state that was not approved. It
// does not undo the effects of the call.
func (s *State) foundVoid(u unit) bool {
	n := s.node(u.ns)
	if !s.watched || s.p.evaluated == nil || n.Effect == Unsafe || u.ns.resolved() || s.p.evaluated(n.Actor, n.Named) == nil {
		return false
	}
	given, why, late := s.void(u.ns.n, u.ns.named)
	return s.doubted(doubt{u: u, given: given, why: why, late: late})
}

// doubt is a visit that differs from what was approved at the given visits.
type doubt struct {
	u unit
	// region is set instead of u for a loop that would begin.
	region int32
	given  []*nodeState
	why    string
	// late is the error if the comparison could not be made in time.
	late error
}

// doubted queues a visit or item for askDoubtsAgain, and reports whether it is put aside.
func (s *State) doubted(d doubt) bool {
	if len(d.given) == 0 || s.drain != "" {
		return false
	}
	if !slices.ContainsFunc(s.doubts, func(o doubt) bool { return o.u == d.u }) {
		s.doubts = append(s.doubts, d)
	}
	return true
}

// askDoubtsAgain opens again the interrupts whose approval does not hold, or fails the unit that was put
// aside if something that follows from the approval has run. If the command's context ends first, the unit
// fails: it must not run unless it is known to be what was approved.
func (s *State) askDoubtsAgain() {
	d := s.doubts[0]
	s.doubts = s.doubts[1:]
	if d.region == 0 && d.u.ns.resolved() {
		return
	}
	ctx := s.evaluation()
	var c *cover
	if d.late == nil {
		c, d.late = s.p.covers(ctx)
	}
	if d.late != nil {
		s.refuseDoubted(d, s.unsure(d.late))
		return
	}
	var given []*nodeState
	var again, held []*nodeState
	for _, ns := range d.given {
		switch {
		case ns.resolved():
			given = append(given, ns)
		case s.irrevocable(ns) == nil: // its answer has only just come
			again = append(again, ns)
		default:
			held = append(held, ns)
		}
	}
	more, stuck := s.revoked(ctx, c, given, func(ns *nodeState) bool { return s.irrevocable(ns) == nil })
	if ctx.Err() != nil {
		s.refuseDoubted(d, s.unsure(context.Cause(ctx)))
		return
	}
	stuck = append(stuck, held...)
	if len(stuck) > 0 {
		id := s.node(stuck[0]).ID
		s.refuseDoubted(d, Errorf(Permanent, ReasonApprovalVoid, "%s since it was approved at %s, and some of what follows from the approval has run: fork the run from %s, it is asked again there",
			d.why, s.ref(stuck[0], 0), id))
		return
	}
	for _, ns := range append(again, more...) {
		delete(s.reuse, s.ref(ns, 0))
		op := OpReopen
		if s.p.nodes[ns.n].region != 0 {
			op = OpReset
		}
		s.record(s.step(op, ns, nil))
		if op == OpReset {
			s.applyReset(ns)
		} else {
			s.applyReopen(ns)
		}
	}
	s.record(Step{Op: OpRecount})
	s.applyRecount()
	s.unstart()
	s.wake()
}

// unsure is the error of a unit that could not be compared with what was approved in time.
func (s *State) unsure(late error) *Error {
	return Errorf(Permanent, ReasonApprovalVoid, "whether it is what was approved cannot be worked out in time: %v", late)
}

// refuseDoubted fails a unit or loop that was put aside.
func (s *State) refuseDoubted(d doubt, err *Error) {
	switch {
	case d.region > 0:
		s.openRound(d.region, s.root, nil, verdictRun) // its head then fails
	case d.u.ns.status == VisitPending:
		s.failVisit(d.u.ns, err, false)
	default:
		s.failWait(d.u, err)
	}
}

// applyRecount recounts joins after visits were taken back.
func (s *State) applyRecount() { s.recount(s.root) }

// unstart removes starts of this command that are no longer wanted.
func (s *State) unstart() {
	gone := map[Ref]bool{}
	s.fx.Starts = slices.DeleteFunc(s.fx.Starts, func(st Start) bool {
		u, ok := s.find(st.Ref)
		if ok && u.try().pos >= 0 && int(u.try().no) == st.Attempt {
			return false
		}
		gone[st.Ref] = true
		return true
	})
	s.fx.Cancels = slices.DeleteFunc(s.fx.Cancels, func(r Ref) bool { return gone[r] })
}

// moveOn updates approvals after a following node has changed the state. before are the digests of the
// changed values.
func (s *State) moveOn(ns *nodeState, before map[string]string) {
	s.outdated = nil
	for _, a := range s.approvals() {
		for k, was := range before {
			if a.kept.Seen[k] == was && (a == ns || s.p.leadsTo(a.n, ns.n)) {
				a.kept.Seen[k] = s.vars[k].digest()
			}
		}
	}
}

// digest names the value of the variable. Elements of a list that only grows are not read again.
func (v *stateVar) digest() string {
	if v.reducer != Append && v.reducer != AppendByID {
		if v.sum == "" {
			sum := jsonDigest(v.scalar)
			v.sum = hex.EncodeToString(sum[:])
		}
		return v.sum
	}
	for ; v.summed < len(v.list); v.summed++ {
		el := jsonDigest(v.list[v.summed])
		v.chain = sha256.Sum256(append(v.chain[:], el[:]...))
	}
	return fmt.Sprintf("%d/%x", len(v.list), v.chain)
}
