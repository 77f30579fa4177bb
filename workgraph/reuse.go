package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// An event of reused visits is closed when it reaches one of these sizes.
const (
	reuseSteps = 1_000
	reuseBytes = 1 << 20
)

// savedOutcome is what a visit's outcome contained besides its values, so that a fork can reuse it.
type savedOutcome struct {
	State  map[string]json.RawMessage `json:"state,omitempty"` // all updates, combined
	Select *Select                    `json:"select,omitempty"`
	Expand *Graph                     `json:"expand,omitempty"`
	// Decision is the one on the visit's approval, and Binds names what the interrupt covers. Seen
	// are digests of state values, updated by changes that follow from the approval itself. Workflows are
	// hashes of graphs by name.
	Decision  string            `json:"decision,omitempty"`
	Binds     string            `json:"binds,omitempty"`
	Seen      map[string]string `json:"seen,omitempty"`
	Workflows map[string]string `json:"workflows,omitempty"`
}

func (ns *nodeState) saveOutcome() *savedOutcome {
	if ns.kept == nil {
		ns.kept = &savedOutcome{}
	}
	return ns.kept
}

// recordSelection saves the Select of a visit that completes.
func (ns *nodeState) recordSelection(o *Outcome) {
	if o != nil && o.Select != nil {
		ns.saveOutcome().Select = o.Select
	}
}

// recordUpdates adds to the state updates of a visit. Updates of the items of a map are combined.
func (s *State) recordUpdates(ns *nodeState, up map[string]json.RawMessage) {
	if len(up) == 0 {
		return
	}
	k := ns.saveOutcome()
	if len(k.State) == 0 {
		k.State = up
		return
	}
	sum := make(map[string]json.RawMessage, len(k.State)+len(up))
	for key, v := range k.State {
		sum[key] = v
	}
	for key, v := range up {
		if old, ok := sum[key]; ok && s.vars[key] != nil {
			both, err := newStateVar(StateKey{Reducer: s.vars[key].reducer})
			if err != nil {
				continue // cannot happen: an empty variable can always be made
			}
			both.update(old)
			both.update(v)
			v = both.value()
		}
		sum[key] = v
	}
	k.State = sum
}

// checkReused refuses outcomes that cannot be journaled.
func checkReused(list []ReusedVisit) error {
	for i := range list {
		a := &list[i]
		if a.Ref.Item != 0 || a.Ref.Visit < 1 {
			return fmt.Errorf("%w: reused visit %s: a whole visit must be named, counted from 1", ErrState, a.Ref)
		}
		if a.Outcome.Wait != nil {
			return fmt.Errorf("%w: reused visit %s still waits", ErrState, a.Ref)
		}
		if err := checkOutcome(&a.Outcome); err != nil {
			return fmt.Errorf("%w: reused visit %s: %w", ErrState, a.Ref, err)
		}
	}
	return nil
}

// reuseVisit completes a visit with its outcome in another run. Check and transform were applied there.
func (s *State) reuseVisit(ns *nodeState, refs []InputRef, args []json.RawMessage, named map[string]json.RawMessage, a *ReusedVisit) {
	o := &a.Outcome
	up := make(map[string]json.RawMessage, len(o.State))
	for k, v := range o.State {
		if sv := s.vars[k]; sv != nil && sv.check(v) == nil {
			up[k] = v
		}
	}
	d := &Detail{Inputs: refs, State: up, Select: o.Select, Decision: a.Decision, Seen: a.Seen, Workflows: a.Workflows}
	s.record(s.step(OpReuse, ns, d))
	s.applyReuse(ns, args, named, d)
	for _, v := range o.Values {
		s.reused += len(v)
	}
	c := *o
	c.State, c.Usage = nil, nil
	if o.Expand == nil {
		s.succeed(ns, o.Values, &c, nil)
		return
	}
	task, faults := s.planExpansion(ns, o.Expand)
	if len(faults) > 0 {
		s.attemptFailed(unit{ns, 0}, RefusedExpansion(faults), false, s.at)
		return
	}
	task.o, task.values, task.now = &c, o.Values, s.at
	s.expandQ = append(s.expandQ, task)
}

// splitReuse begins a new event when the current one has become large.
func (s *State) splitReuse() {
	if s.reuse != nil && (len(s.ev.Steps) >= reuseSteps || s.reused >= reuseBytes) {
		s.reused = 0
		s.openEvent(VisitsReused, s.at)
	}
}

// applyReuse enters a visit without an attempt.
func (s *State) applyReuse(ns *nodeState, args []json.RawMessage, named map[string]json.RawMessage, d *Detail) {
	ns.args, ns.named, ns.reused, ns.status = args, named, true, VisitRunning
	ns.recordDecision(d.Decision)
	s.recordCover(ns, "", d.Seen, d.Workflows)
	s.forgetApprovals()
	s.order++
	ns.enteredAt = s.order
	s.applyUpdates(ns, d.State)
}

// ReuseFrom lists the ended visits of an earlier run that a new run may reuse. Everything from the visit from
// on runs again; if from is nil, only what did not complete runs again. A visit is reused if it completed or
// abstained and depends on nothing that runs again. These run again: visits of inboxes and of irreducible
// loops, because their numbers are a matter of chance; a visit that ended its run by TERMINATE; and a visit
// whose approval does not hold for the graph after, where nil stands for the same graph.
//
// unsafeAgain are the UNSAFE visits that were, or may have been, performed and are not reused. The earlier
// run may still be going on; a visit that is under way or waits has not ended. The error is that of ctx.
func ReuseFrom(ctx context.Context, old *State, from *Ref, before, after *Graph) (reused []ReusedVisit, unsafeAgain []Ref, err error) {
	if old.root == nil {
		return nil, nil, nil
	}
	a := &reuseFinder{s: old, from: from, visits: map[*nodeState]bool{}, loops: map[loopKey]bool{}, ended: map[*nodeState]bool{}, before: before, void: map[*nodeState]bool{}}
	for _, ns := range old.terminated {
		a.ended[ns] = true
	}
	for more := true; more; {
		if more, err = a.voids(ctx, after); err != nil {
			return nil, nil, err
		}
		clear(a.visits)
		clear(a.loops)
	}
	for i := range old.p.nodes {
		for _, ns := range old.visitsOf(int32(i)) {
			switch {
			case ns.status != VisitPending && ns.status != VisitSkipped && a.stable(ns):
				reused = append(reused, ReusedVisit{Ref: old.ref(ns, 0), Outcome: ns.outcome(), Decision: ns.decision(), Seen: maps.Clone(ns.seen()), Workflows: ns.workflows()})
			case old.p.nodes[i].Effect == Unsafe && ns.performed():
				unsafeAgain = append(unsafeAgain, old.ref(ns, 0))
			}
		}
	}
	return reused, unsafeAgain, nil
}

// outcome is how the visit ended, in the form in which it can be reused.
func (ns *nodeState) outcome() Outcome {
	o := Outcome{Values: ns.values}
	if ns.status == VisitAbstained {
		o.Stop = AbstainResult
	}
	if k := ns.kept; k != nil {
		o.State, o.Select, o.Expand = k.State, k.Select, k.Expand
	}
	return o
}

// performed reports whether an UNSAFE visit has, or may have, had its effect.
func (ns *nodeState) performed() bool {
	if ns.m == nil {
		return ns.reused || ns.done(ns.err)
	}
	for i := range ns.m.items {
		var end struct {
			Error *Error `json:"error"`
		}
		it := &ns.m.items[i]
		if it.status == VisitFailed && json.Unmarshal(it.result, &end) != nil {
			return true
		}
		if it.done(end.Error) {
			return true
		}
	}
	return false
}

func (t *try) done(err *Error) bool {
	if t.found {
		return true
	}
	switch t.status {
	case VisitCompleted, VisitAbstained, VisitReconciliation, VisitWaiting:
		return t.no > 0
	case VisitRunning, VisitCanceling, VisitCanceled:
		return t.intent
	case VisitFailed:
		return t.no > 0 && err != nil && (err.Type == Unknown || afterwards(err.Reason))
	}
	return false
}

// afterwards reports whether the machine itself fails a visit for this reason after its actor has succeeded.
func afterwards(reason string) bool {
	switch reason {
	case ReasonCheckFailed, ReasonTransformFailed, ReasonConditionFailed, ReasonPassDownFailed, ReasonUnknownSelection, ReasonBadOutcome,
		ReasonStateRefused, ReasonInterruptExpired, ReasonCompletionExpired, ReasonSignalExpired, ReasonChildFailed, ReasonAnotherRequest, ReasonExpandRefused, ReasonRejected:
		return true
	}
	return false
}

type loopKey struct {
	region int32
	within *frame
}

// reuseFinder finds the visits whose outcome a new run may reuse.
type reuseFinder struct {
	s      *State
	from   *Ref
	visits map[*nodeState]bool
	loops  map[loopKey]bool
	ended  map[*nodeState]bool
	// before is the graph with which the graph of the new run is compared. void are the approvals that do not
	// hold for the new run. changed and leadsOn are the difference; see changes.
	before  *Graph
	void    map[*nodeState]bool
	changed map[string]bool
	leadsOn []int32
}

// stable reports whether the visit has ended and everything that led to it is stable.
func (a *reuseFinder) stable(ns *nodeState) bool {
	if known, ok := a.visits[ns]; ok {
		return known
	}
	a.visits[ns] = false // a visit does not depend on itself
	ok := false
	switch ref := a.s.ref(ns, 0); {
	case a.s.p.regions[ns.f.region].token, a.ended[ns], a.void[ns]:
	case a.from != nil && a.from.Node == ref.Node && a.from.Visit == ref.Visit:
	case ns.status == VisitCompleted, ns.status == VisitAbstained, ns.status == VisitSkipped:
		ok = a.sources(ns)
	}
	a.visits[ns] = ok
	return ok
}

func (a *reuseFinder) sources(ns *nodeState) bool {
	s := a.s
	edges, f := s.sources(ns)
	some := s.node(ns).quorum > 0 && ns.status != VisitSkipped
	for _, e := range edges {
		if some && f.edges[s.p.localEdge[e]].state != edgeUsed {
			continue // the join was decided without it
		}
		from := s.p.edges[e].from
		r := s.p.nodes[from].region
		if r == f.region {
			if !a.stable(&f.nodes[s.p.localNode[from]]) {
				return false
			}
			continue
		}
		for s.p.regions[r].parent != f.region && s.p.regions[r].parent >= 0 {
			r = s.p.regions[r].parent
		}
		if !a.loop(r, f) {
			return false
		}
	}
	return true
}

// loop reports whether a whole loop within a frame has ended and is stable.
func (a *reuseFinder) loop(region int32, within *frame) bool {
	key := loopKey{region, within}
	if known, ok := a.loops[key]; ok {
		return known
	}
	a.loops[key] = false
	s := a.s
	r := &s.p.regions[region]
	ok := !r.token && within.insts[r.slot].closed
	for _, f := range s.frames[region] {
		if !ok {
			break
		}
		if f.parent != within {
			continue
		}
		for i := range f.nodes {
			ok = ok && a.stable(&f.nodes[i])
		}
		children := r.children
		if g := r.expanded[f.serial]; g != nil {
			children = slices.Concat(children, g.children)
		}
		for _, c := range children {
			ok = ok && a.loop(c, f)
		}
	}
	a.loops[key] = ok
	return ok
}

// PerformedUnsafe lists the UNSAFE visits of a run that were, or may have been, performed.
func PerformedUnsafe(s *State) []Ref {
	if s.root == nil {
		return nil
	}
	var out []Ref
	for i := range s.p.nodes {
		if s.p.nodes[i].Effect != Unsafe {
			continue
		}
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.performed() {
				out = append(out, s.ref(ns, 0))
			}
		}
	}
	return out
}
