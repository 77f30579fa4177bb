package workgraph

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"
)

func validJSON(b json.RawMessage) bool { return json.Valid(b) }

// checkOutcome refuses an outcome that cannot be journaled or is not supported.
func checkOutcome(o *Outcome) *Error {
	bad := func(reason, format string, args ...any) *Error {
		e := Errorf(Permanent, reason, format, args...)
		e.Usage = o.Usage
		return e
	}
	for i, v := range o.Values {
		if fault := ValueFault(v); fault != "" {
			return bad(ReasonBadOutcome, "value %d %s", i, fault)
		}
	}
	for k, v := range o.State {
		if fault := ValueFault(v); fault != "" {
			return bad(ReasonBadOutcome, "the update of state %q %s", k, fault)
		}
	}
	switch o.Stop {
	case Proceed, Terminate, AbstainResult:
	default:
		return bad(ReasonBadOutcome, "unknown stop %q", string(o.Stop))
	}
	if fault := expandFault(o); fault != "" {
		return bad(ReasonBadOutcome, "%s", fault)
	}
	if o.Wait != nil {
		if fault := waitFault(o.Wait); fault != "" {
			return bad(ReasonBadOutcome, "%s", fault)
		}
	}
	return nil
}

// outcome takes a successful attempt: its check, then its wait if it asked for one. The values of an attempt
// that lost are kept, but it begins nothing new: it does not wait and inserts nothing.
func (s *State) outcome(u unit, o *Outcome, canceling bool, now time.Time) {
	if u.item > 0 && u.ns.resolved() { // its map ended without it
		return
	}
	if err := s.examine(u, o); err != nil {
		s.attemptFailed(u, err, canceling, now)
		return
	}
	if s.lost(u, canceling) && o.waits(now) {
		s.giveUp(u, Errorf(Permanent, ReasonCanceled, "nobody needs what it would wait for"), true)
		return
	}
	if o.Wait != nil && o.Wait.Children != nil {
		if given, why := s.otherGraphs(u.ns, o.Wait.Children.Runs); s.doubted(doubt{u: u, given: given, why: why}) {
			return
		}
	}
	if o.waits(now) {
		s.await(u, o, now)
		return
	}
	s.performed(u, o, canceling, now)
}

// lost reports whether the run goes on and nothing in it needs the unit's result. That holds for an attempt
// that was asked to stop, and for an UNSAFE call, which is never asked, if no join needs it any more.
func (s *State) lost(u unit, canceling bool) bool {
	if s.drain != "" {
		return false
	}
	return canceling || u.ns.moot > 0 && int(u.ns.moot) == len(s.out(u.ns))
}

// maxPauseReason bounds Outcome.Pause, in bytes.
const maxPauseReason = 128

// examine applies the rules on state, selection and waits. Unless the values are still to come, it also
// applies the node's check.
func (s *State) examine(u unit, o *Outcome) *Error {
	for k, v := range o.State {
		sv, ok := s.vars[k]
		if !ok {
			return Errorf(Permanent, ReasonStateRefused, "the graph declares no state %q", k)
		}
		if err := sv.check(v); err != nil {
			return Errorf(Permanent, ReasonStateRefused, "state %q: %v", k, err)
		}
	}
	switch {
	case o.Expand != nil && u.item > 0:
		return Errorf(Permanent, ReasonBadOutcome, "an item of a map cannot expand")
	case o.Pause != "" && u.item > 0:
		return Errorf(Permanent, ReasonBadOutcome, "an item of a map cannot pause its run")
	case len(o.Pause) > maxPauseReason || !utf8.ValidString(o.Pause):
		return Errorf(Permanent, ReasonBadOutcome, "the reason of a pause must be a text of at most %d bytes", maxPauseReason)
	}
	if o.Select != nil {
		if err := s.checkSelect(u, o.Select); err != nil {
			return err
		}
	}
	if o.replaces() {
		if q := o.Wait.Interrupt; q != nil {
			if _, open := s.asks[q.ID]; open {
				return Errorf(Permanent, ReasonBadOutcome, "an interrupt with the id %q is open already", q.ID)
			}
			if len(q.Approve) > 0 {
				if _, err := s.p.digested(s.evaluation()); err != nil {
					return unknownCover(err)
				}
			}
		}
		return nil
	}
	return s.examineValues(u, o)
}

// unknownCover is the error of an approval whose cover could not be computed before the command's
// context ended.
func unknownCover(late error) *Error {
	return Errorf(Retryable, ReasonTimeout, "what the approval covers cannot be worked out in time: %v", late)
}

// examineValues applies the node's check.
func (s *State) examineValues(u unit, o *Outcome) *Error {
	n := s.node(u.ns)
	if o.Stop == AbstainResult {
		return nil
	}
	if n.schema != nil {
		if err := n.schema.Check(s.evaluation(), single(o.Values)); err != nil {
			return Errorf(Retryable, ReasonCheckFailed, "%v", err)
		}
	}
	if n.test != nil {
		ok, note, err := s.cond(n.test, s.outcomeScope(u.ns, u.item, o.Values))
		switch {
		case err != nil:
			return Errorf(Permanent, ReasonCheckFailed, "check: %v", err)
		case !ok:
			return Errorf(Retryable, ReasonCheckFailed, "the result does not satisfy %s (%s)", n.Check.CEL, note)
		}
	}
	return nil
}

func (s *State) checkSelect(u unit, sel *Select) *Error {
	switch sel.Others {
	case "", SelectAll, SelectNone, SelectNames:
	default:
		return Errorf(Permanent, ReasonBadOutcome, "unknown selection %q", string(sel.Others))
	}
	if u.item > 0 {
		return Errorf(Permanent, ReasonBadOutcome, "an item of a map cannot select edges")
	}
	targets := map[string]bool{}
	for _, e := range s.out(u.ns) {
		targets[s.p.nodes[s.p.edges[e].to].ID] = true
	}
	if sel.Self && !targets[s.node(u.ns).ID] {
		return Errorf(Permanent, ReasonUnknownSelection, "the node selects itself, but has no BACK edge to itself")
	}
	for _, name := range sel.Names {
		if !targets[name] {
			return Errorf(Permanent, ReasonUnknownSelection, "no edge leads to %q", name)
		}
	}
	return nil
}

// performed completes a unit whose outcome stands. A unit that was asked to stop while the run goes on
// neither ends the run nor changes its state, because it is a matter of chance whether it still answers.
func (s *State) performed(u unit, o *Outcome, canceling bool, now time.Time) {
	var task expansionTask
	stopped := canceling && s.drain == ""
	if o.Expand != nil && s.drain == "" && !s.lost(u, canceling) {
		var faults []Fault
		if task, faults = s.planExpansion(u.ns, o.Expand); len(faults) > 0 {
			s.attemptFailed(u, RefusedExpansion(faults), false, now)
			return
		}
	}
	if len(o.State) > 0 && !stopped {
		s.record(s.step(OpUpdate, u.ns, &Detail{State: o.State}))
		s.applyUpdates(u.ns, o.State)
	}
	if u.item > 0 {
		if !stopped {
			s.addToThreads(u)
		}
		s.itemEnded(u, o, nil)
		return
	}
	values := o.Values
	if n := s.node(u.ns); n.transform != nil && o.Stop != AbstainResult {
		v, err := s.transform(u.ns, values)
		if err != nil {
			s.attemptFailed(u, err, stopped, now)
			return
		}
		values = v
	}
	if !stopped {
		s.addToThreads(u)
	}
	if task.ns != nil {
		task.o, task.values, task.now = o, values, now
		s.expandQ = append(s.expandQ, task)
		return
	}
	if stopped && (o.Stop == Terminate || o.Pause != "") {
		late := *o
		late.Pause = ""
		if late.Stop == Terminate {
			late.Stop = Proceed
		}
		o = &late
	}
	s.succeed(u.ns, values, o, nil)
}

func (s *State) transform(ns *nodeState, values []json.RawMessage) ([]json.RawMessage, *Error) {
	v, err := s.eval(s.node(ns).transform, s.outcomeScope(ns, 0, values))
	if err != nil {
		return nil, Errorf(Permanent, ReasonTransformFailed, "transform: %v", err)
	}
	raw, err := celJSON(v)
	if err != nil {
		return nil, Errorf(Permanent, ReasonTransformFailed, "transform: %v", err)
	}
	return []json.RawMessage{raw}, nil
}

// succeed completes a visit with values. o is the outcome of its attempt, or nil; failure is the error that a
// fallback replaces, or nil.
func (s *State) succeed(ns *nodeState, values []json.RawMessage, o *Outcome, failure *Error) {
	var stop Stop
	var sel *Select
	if o != nil {
		stop, sel = o.Stop, o.Select
	}
	from := len(s.edgeQ)
	if s.drain == "" && stop != Terminate {
		if err := s.decideEdges(ns, values, stop, sel); err != nil {
			s.edgeQ = s.edgeQ[:from]
			if !s.lost(unit{ns, 0}, false) {
				s.failVisit(ns, err, failure != nil)
				return
			}
			s.deadEdges(ns, ReasonCanceled) // no join that they lead to waits for them
		}
	}
	var d *Detail
	switch {
	case failure != nil:
		d = &Detail{Values: values, Error: failure, Action: Fallback}
	case stop != Proceed:
		d = &Detail{Values: values, Stop: stop}
	case o == nil || o != s.ev.Outcome || len(values) != len(o.Values) || len(values) > 0 && &values[0] != &o.Values[0]:
		d = &Detail{Values: values}
	}
	s.record(s.step(OpComplete, ns, d))
	ns.recordSelection(o)
	s.applyComplete(ns, values, stop, failure)
	switch {
	case s.drain != "":
	case stop == Terminate:
		s.drainNow(drainTerminate)
	default:
		why := ""
		if s.stepping && s.turns(s.edgeQ[from:]) {
			why = ReasonStep
		}
		if o != nil && o.Pause != "" {
			why = o.Pause
		}
		if why != "" && !s.paused {
			s.record(Step{Op: OpPause, Note: why})
			s.applyPause(why)
			s.halted = true
		}
		s.afterVisit(ns)
	}
}

// turns reports whether a loop goes on by one of the edges.
func (s *State) turns(edges []edgeTask) bool {
	return slices.ContainsFunc(edges, func(t edgeTask) bool { return t.live && s.p.edges[t.e].kind == BackEdge })
}

// afterVisit queues a check of the loop that the end of a visit may have ended.
func (s *State) afterVisit(ns *nodeState) {
	if f := ns.f; f.inst != nil {
		s.instQ = append(s.instQ, instTask{f.region, f.parent})
	}
}

// decideEdges evaluates every outgoing edge of a visit that succeeded and queues the decisions.
func (s *State) decideEdges(ns *nodeState, values []json.RawMessage, stop Stop, sel *Select) *Error {
	var sc *scope
	for _, e := range s.out(ns) {
		pe := &s.p.edges[e]
		t := edgeTask{e: e, src: ns}
		switch {
		case stop == AbstainResult:
			t.note = "ABSTAINED"
		case pe.kind == ErrorEdge:
			t.note = "NO_ERROR"
		case pe.kind == BackEdge && s.stopping && !sel.names(s.p.nodes[pe.to].ID):
			t.note = ReasonStopped
		case !selected(sel, pe, s.p.nodes[pe.to].ID):
			t.note = "NOT_SELECTED"
		case ns.decision() == Rejected && !s.p.onResult(pe):
			t.note = Rejected
		default:
			t.live = true
		}
		if err := s.evalEdge(&t, &sc, values); err != nil {
			return err
		}
		s.edgeQ = append(s.edgeQ, t)
	}
	return nil
}

// evalEdge evaluates the condition and MERGE expression of an edge that is live so far.
func (s *State) evalEdge(t *edgeTask, sc **scope, values []json.RawMessage) *Error {
	pe := &s.p.edges[t.e]
	if !t.live || pe.when == nil && pe.merge == nil {
		return nil
	}
	if *sc == nil {
		*sc = s.outcomeScope(t.src, 0, values)
	}
	(*sc).over = pe.kind != ErrorEdge
	(*sc).at = s.p.nodes[pe.to].ID // an edge out of an expansion was written in the enclosing graph
	if pe.when != nil {
		ok, note, err := s.cond(pe.when, *sc)
		if err != nil {
			return Errorf(Permanent, ReasonConditionFailed, "condition %q of the edge to %s: %v", pe.when.src, s.p.nodes[pe.to].ID, err)
		}
		t.live, t.note = ok, note
	}
	if t.live && pe.merge != nil {
		var err error
		if t.propagated, err = s.mergePropagated(pe.merge, *sc); err != nil {
			return Errorf(Permanent, ReasonPassDownFailed, "passing down to %s: %v", s.p.nodes[pe.to].ID, err)
		}
	}
	return nil
}

// names reports whether an outcome selects an edge by the name of its target.
func (sel *Select) names(to string) bool {
	return sel != nil && sel.Others == SelectNames && slices.Contains(sel.Names, to)
}

func selected(sel *Select, pe *pedge, to string) bool {
	if pe.from == pe.to {
		if sel == nil {
			// An unconditional one-node loop goes round only if its node selects itself.
			return pe.when != nil
		}
		return sel.Self
	}
	if sel == nil {
		return true
	}
	switch sel.Others {
	case SelectNone:
		return false
	case SelectNames:
		return slices.Contains(sel.Names, to)
	}
	return true
}

// attemptFailed takes a failed attempt: it needs reconciliation, is retried, or ends the unit.
func (s *State) attemptFailed(u unit, err *Error, canceling bool, now time.Time) {
	n, t := s.node(u.ns), u.try()
	if n.Effect == Unsafe && err.Type == Unknown {
		var d *Detail
		if s.ev.Error != err {
			d = &Detail{Error: err}
		}
		st := s.step(OpReconcile, u.ns, d)
		st.Item = int(u.item)
		s.record(st)
		s.applyReconcile(u, err)
		s.wantPause = ReasonReconciliation
		return
	}
	if u.item > 0 && u.ns.resolved() {
		return
	}
	if s.drain != "" || canceling {
		s.giveUp(u, err, canceling)
		return
	}
	if err.Type == NotPerformed && s.lost(u, false) {
		s.giveUp(u, err, true)
		return
	}
	if (err.Lost || int(t.no-u.ns.before-t.lost) < n.maxAttempts) && mayRetry(n.Effect, err.Type) {
		s.retry(u, err, now)
		return
	}
	if u.item > 0 {
		s.itemEnded(u, nil, err)
		return
	}
	s.failVisit(u.ns, err, false)
}

func mayRetry(effect Effect, t ErrorType) bool {
	if effect == Unsafe {
		return t == NotPerformed
	}
	return t != Permanent
}

// MaxLost is how many lost attempts of a visit pause the run. It stops a call that brings down every worker
// that takes it.
const MaxLost = 10

func (s *State) retry(u unit, err *Error, now time.Time) {
	t := u.try()
	attempt, gen, lost := int(t.no)+1, int(t.gen), int(t.lost)
	// Failures and losses back off separately, each by its own count.
	nth := attempt - int(u.ns.before) - lost
	if err.Lost {
		lost++
		nth = lost + 1
		if lost%MaxLost == 0 {
			s.wantPause = ReasonCallsLost
		}
	}
	if err.Type == Retryable {
		// The failure is definite. Other failed attempts may have had their effect, so they keep the key.
		gen++
	}
	wait := s.node(u.ns).backoff(nth, s.seed(u.ns, u.item, attempt))
	due := instant(now.Add(max(wait, min(time.Duration(err.RetryAfter), MaxRetryAfter))))
	d := &Detail{Attempt: attempt, Generation: gen, Lost: lost, Due: due, Error: err}
	if s.ev.Error == err {
		d.Error = nil
	}
	st := s.step(OpRetry, u.ns, d)
	st.Item = int(u.item)
	s.record(st)
	s.applyRetry(u, d, err)
}

// giveUp ends a unit that nothing waits for any more.
func (s *State) giveUp(u unit, err *Error, canceling bool) {
	if u.item > 0 {
		s.itemEnded(u, nil, err)
		return
	}
	status, note := VisitFailed, ""
	if canceling || err.Type == NotPerformed {
		status, note = VisitCanceled, ReasonCanceled
	}
	st := s.step(OpFail, u.ns, &Detail{Error: err})
	st.Note = note
	s.record(st)
	s.applyFail(u.ns, status, err, "")
	if s.drain == "" {
		s.deadEdges(u.ns, note)
		s.afterVisit(u.ns)
	}
}

func (s *State) deadEdges(ns *nodeState, note string) {
	for _, e := range s.out(ns) {
		s.edgeQ = append(s.edgeQ, edgeTask{e: e, src: ns, note: note})
	}
}

// failVisit applies the node's error policy. plain says that the policy itself failed, which fails the run.
func (s *State) failVisit(ns *nodeState, err *Error, plain bool) {
	n := s.node(ns)
	action := n.OnError.Action
	asked := err.Reason == ReasonAnotherRequest && (action == Fallback || action == Continue)
	if plain || asked { // what the user asks for is for somebody above, and must not be lost here
		action = Fail
	}
	if s.drain != "" {
		s.giveUp(unit{ns, 0}, err, false)
		return
	}
	from := len(s.edgeQ)
	switch action {
	case Fallback:
		value := n.OnError.Value
		if value == nil {
			value = itemError(err)
		}
		s.succeed(ns, []json.RawMessage{value}, nil, err)
		return
	case Route:
		routed, rerr := s.route(ns, err)
		if rerr != nil || !routed {
			s.edgeQ = s.edgeQ[:from]
			action = Fail
			if rerr != nil {
				err = rerr
			}
		}
	}
	s.record(s.step(OpFail, ns, &Detail{Error: err, Action: action}))
	s.applyFail(ns, VisitFailed, err, action)
	if action == Fail {
		s.drainNow(drainFail)
		return
	}
	if action == Continue {
		s.deadEdges(ns, "FAILED")
	}
	s.afterVisit(ns)
}

// route queues the edges of a visit whose failure is routed. It is false if no ERROR edge is live.
func (s *State) route(ns *nodeState, failure *Error) (bool, *Error) {
	var sc *scope
	routed := false
	values := []json.RawMessage{errorJSON(failure)}
	for _, e := range s.out(ns) {
		t := edgeTask{e: e, src: ns, note: "FAILED"}
		if s.p.edges[e].kind == ErrorEdge {
			t.live, t.note = true, ""
		}
		if err := s.evalEdge(&t, &sc, values); err != nil {
			return false, err
		}
		routed = routed || t.live
		s.edgeQ = append(s.edgeQ, t)
	}
	return routed, nil
}

// drainNow stops everything that has not begun, and the attempts in flight that this kind of drain cancels.
func (s *State) drainNow(kind string) {
	s.record(Step{Op: OpDrain, Note: kind})
	s.edgeQ, s.instQ = s.edgeQ[:0], nil
	var drops, cancels []unit
	for _, f := range s.flights {
		t := f.try()
		unsafe := s.node(f.ns).Effect == Unsafe
		switch {
		case unsafe && !t.intent:
			drops = append(drops, f.unit)
		case t.status == VisitCanceling || kind == drainTerminate || unsafe && kind == drainFail:
		default:
			cancels = append(cancels, f.unit)
		}
	}
	for _, t := range s.timers {
		if t.valid() && t.try().status == VisitBackoff {
			drops = append(drops, t.unit)
		}
	}
	drops = append(drops, s.openWaits()...)
	for _, u := range s.held {
		if u.try().status == VisitHeld {
			drops = append(drops, u)
		}
	}
	s.applyDrain(kind)
	for _, u := range cancels {
		s.cancelUnit(u)
	}
	for _, u := range drops {
		s.drop(u)
	}
}

func (s *State) cancelUnit(u unit) {
	st := s.step(OpCancel, u.ns, nil)
	st.Item = int(u.item)
	s.record(st)
	s.applyCancel(u)
}

// drop gives up a unit that is not in flight. If it was the last open item of a mapped visit, it drops the
// visit.
func (s *State) drop(u unit) {
	st := s.step(OpDrop, u.ns, nil)
	st.Item = int(u.item)
	s.record(st)
	s.applyDrop(u)
	if u.item > 0 && s.drain != "" && u.ns.m.open == 0 && !u.ns.resolved() {
		s.drop(unit{u.ns, 0})
	}
}
