package workgraph

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
)

// Apply replays one journaled event. Its Seq must follow the last one applied. Nothing is decided: the steps
// in the event are carried out. The effects are those of the original decision; a recovering owner ignores
// them in favor of Outstanding.
//
// A replay ends with ctx, whose error is returned then: it compiles the graph of an expanded or amended run
// again, once for each change. After any error some of the event's steps may have been carried out, and the
// state must be discarded. So a replay may be interrupted only while nothing else uses the state. A caller
// that replays a run that is going on, or that must report the outcome of a call, needs a context that lasts
// as long as the run.
func (s *State) Apply(ctx context.Context, ev Event) (fx Effects, err error) {
	if ctx.Err() != nil {
		return Effects{}, context.Cause(ctx)
	}
	if ev.Version < 1 || ev.Version > MachineVersion {
		return Effects{}, fmt.Errorf("%w: machine version %d", ErrCorrupt, ev.Version)
	}
	if s.end != nil || ev.Seq != s.seq+1 || (ev.Kind == RunStarted) != (s.root == nil) {
		return Effects{}, fmt.Errorf("%w: event %d of kind %s does not follow event %d", ErrCorrupt, ev.Seq, ev.Kind, s.seq)
	}
	s.fx, s.woken, s.woke = &fx, Ref{}, nil
	defer func() {
		s.fx = nil
		err = corrupt(recover(), err)
	}()
	s.at = ev.At
	if err := s.applyEvent(&ev); err != nil {
		return Effects{}, err
	}
	for i := range ev.Steps {
		if err := s.applyStep(ctx, &ev, &ev.Steps[i]); err != nil {
			return Effects{}, fmt.Errorf("event %d step %d: %w", ev.Seq, i+1, err)
		}
	}
	s.seq = ev.Seq
	return fx, nil
}

// corrupt turns an index or nil fault into ErrCorrupt. Only a journal or snapshot of another program can
// cause one.
func corrupt(fault any, err error) error {
	switch f := fault.(type) {
	case nil:
		return err
	case runtime.Error:
		return fmt.Errorf("%w: %w", ErrCorrupt, f)
	default:
		panic(fault)
	}
}

func (s *State) applyEvent(ev *Event) error {
	switch ev.Kind {
	case RunStarted:
		if err := s.applyBegin(ev.Input, ev.Context); err != nil {
			return err
		}
		s.applyBudget(ev.Budget, nil)
	case AttemptStarted, AttemptEnded, TimerFired, Reconciled:
		u, ok := s.find(ev.Ref)
		if !ok {
			return fmt.Errorf("%w: no visit %s", ErrCorrupt, ev.Ref)
		}
		return s.applyAttempt(ev, u)
	case ChildClosed, InterruptClosed, CompletionReceived:
		return s.replayWait(ev)
	case SignalReceived:
		s.applySignal(ev.Signal, ev.Payload)
	case DeadlineReached, MessageReceived, VisitsReused:
	case CancelRequested:
		s.reason = ev.Reason
	case GraphAmended:
		if ev.Graph == nil {
			return fmt.Errorf("%w: an amendment without a graph", ErrCorrupt)
		}
	case RunPaused:
		s.applyPause(ev.Reason)
	case StopRequested:
		s.stopping = true
	case RunResumed:
		s.applyBudget(ev.Budget, ev.Unsettled)
		s.applyResume()
		s.applyStepping(ev)
	case BudgetChanged:
		s.applyBudget(ev.Budget, ev.Unsettled)
	case UsageSettled:
		if err := s.applySettled(ev.Costs); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	case RunEnded:
		if ev.End == nil {
			return fmt.Errorf("%w: an end without how", ErrCorrupt)
		}
		s.end = ev.End
		s.fx.Ended = ev.End
	default:
		return fmt.Errorf("%w: unknown kind %q", ErrCorrupt, ev.Kind)
	}
	return nil
}

func (s *State) applyAttempt(ev *Event, u unit) error {
	t := u.try()
	misfit := fmt.Errorf("%w: %s of %s, which is %s", ErrCorrupt, ev.Kind, ev.Ref, t.status)
	switch ev.Kind {
	case AttemptStarted:
		if t.pos < 0 || ev.Generation < 1 {
			return misfit
		}
		// The call was made with the key of this generation. If it was not performed, it is repeated with the
		// same key.
		t.intent, t.gen = true, int32(ev.Generation)
	case TimerFired:
		if t.status != VisitBackoff && t.status != VisitWaiting {
			return misfit
		}
		if t.status == VisitBackoff {
			s.endSuspension(u)
			t.status = VisitRunning
			return nil
		}
		s.expire(u)
	default:
		if (t.pos < 0) != (ev.Kind == Reconciled) || ev.Kind == Reconciled && t.status != VisitReconciliation ||
			(ev.Outcome == nil) == (ev.Error == nil) {
			return misfit
		}
		s.applyEnded(u, ev.Outcome, ev.Error)
		if ev.PutBack() {
			s.applyRefused(ev)
		}
		if ev.Kind == Reconciled && ev.Error != nil && ev.Error.Type == NotPerformed && len(ev.Steps) == 1 && ev.Steps[0].Op == OpStart {
			t.applyNotPerformed()
		}
	}
	return nil
}

// outcomeOf is the outcome for a step that has no values of its own.
func (s *State) outcomeOf(ev *Event, u unit) *Outcome {
	if ev.Outcome != nil {
		return ev.Outcome
	}
	if w := u.try().wait; w != nil {
		return w.out
	}
	if s.woke != nil && s.woke.Wait.Timer != nil && s.woken == s.ref(u.ns, u.item) {
		return s.woke
	}
	return &Outcome{}
}

// chosen is the outcome whose Select applies to a visit that completes, or nil.
func (s *State) chosen(ev *Event, ns *nodeState) *Outcome {
	switch ref := s.ref(ns, 0); {
	case s.woke != nil && s.woken == ref:
		return s.woke
	case (ev.Kind == AttemptEnded || ev.Kind == Reconciled) && ev.Ref == ref:
		return ev.Outcome
	}
	return nil
}

func (s *State) applyStep(ctx context.Context, ev *Event, st *Step) error {
	d := st.Detail
	if d == nil {
		d = &Detail{}
	}
	switch st.Op {
	case OpDrain:
		s.applyDrain(st.Note)
		return nil
	case OpPause:
		s.applyPause(st.Note)
		return nil
	case OpExpand:
		return s.replayExpand(ctx, st, d)
	case OpReset:
		return s.replayReset(st)
	case OpReopen:
		return s.replayReopen(st)
	case OpRecount:
		s.applyRecount()
		return nil
	case OpGraph:
		return s.replayGraph(ctx, ev)
	case OpEdge, OpMoot:
		return s.replayEdge(st, d)
	case OpDeliver, OpTake:
		return s.replayInbox(ev, st, d)
	case OpLoop, OpLoopEnd, OpLimit, OpUnlimit:
		return s.replayLoop(st, d)
	}
	if st.Op == OpStart && st.Item > 0 {
		if ns := s.lookup(st.Node, st.Visit); ns != nil && ns.m != nil && st.Detail == nil {
			if ns.m.next != st.Item-1 || st.Item > len(ns.m.items) {
				return fmt.Errorf("%w: item %d starts out of order", ErrCorrupt, st.Item)
			}
			s.applyNextItem(ns)
			return nil
		}
	}
	u, ok := s.find(Ref{Node: st.Node, Visit: st.Visit, Item: st.Item})
	if ns := s.lookup(st.Node, st.Visit); !ok && ns != nil && st.Item == 0 {
		u, ok = unit{ns, 0}, true // steps about a mapped visit as a whole
	}
	if !ok {
		return fmt.Errorf("%w: no visit %s@%d[%d]", ErrCorrupt, st.Node, st.Visit, st.Item)
	}
	return s.replayVisit(ev, st, d, u)
}

func (s *State) replayVisit(ev *Event, st *Step, d *Detail, u unit) error {
	ns, t := u.ns, u.try()
	misfit := func() error { return fmt.Errorf("%w: %s of a visit that is %s", ErrCorrupt, st.Op, t.status) }
	over := ns.resolved()
	switch st.Op {
	case OpEnter:
		if t.status != VisitPending || d.Mapped != (s.node(ns).Map != nil) {
			return misfit()
		}
		s.markInputs(ns, d.Inputs)
		args, named := s.propagate(ns)
		s.applyEnter(ns, args, named, d.Mapped, d.Items, d.Key)
	case OpSkip, OpComplete, OpFail, OpItem:
		if over || st.Op == OpItem && (u.item == 0 || t.status == "") {
			return misfit()
		}
		s.replayEnd(ev, st, d, u)
	case OpUpdate:
		s.applyUpdates(ns, d.State)
	case OpReuse:
		if t.status != VisitPending {
			return misfit()
		}
		s.markInputs(ns, d.Inputs)
		args, named := s.propagate(ns)
		s.applyReuse(ns, args, named, d)
		if d.Select != nil {
			ns.saveOutcome().Select = d.Select
		}
	case OpRetry, OpWait:
		if over || t.pos >= 0 {
			return misfit()
		}
		if st.Op == OpRetry {
			s.applyRetry(u, d, cmp.Or(d.Error, ev.Error))
			return nil
		}
		o := s.outcomeOf(ev, u)
		if o.Wait == nil || o.Wait.kind() == "" {
			return misfit()
		}
		s.applyWait(u, o, d)
	case OpWake:
		if t.status != VisitWaiting || t.wait == nil {
			return misfit()
		}
		s.applyEndWait(u)
	case OpStart:
		if over || t.pos >= 0 {
			return misfit()
		}
		s.launch(ns, u.item)
	case OpReconcile:
		s.applyReconcile(u, cmp.Or(d.Error, ev.Error))
	case OpCancel:
		if t.pos < 0 {
			return misfit()
		}
		s.applyCancel(u)
	case OpDrop:
		if u.item == 0 && over {
			return misfit()
		}
		s.applyDrop(u)
	default:
		return fmt.Errorf("%w: unknown step %q", ErrCorrupt, st.Op)
	}
	return nil
}

func (s *State) replayEnd(ev *Event, st *Step, d *Detail, u unit) {
	switch st.Op {
	case OpSkip:
		s.applySkip(u.ns, st.Note)
	case OpComplete:
		values := d.Values
		if st.Detail == nil {
			values = s.outcomeOf(ev, u).Values
		}
		if d.Error == nil {
			u.ns.recordSelection(s.chosen(ev, u.ns))
		}
		s.applyComplete(u.ns, values, d.Stop, d.Error)
	case OpFail:
		status := VisitFailed
		if st.Note == ReasonCanceled {
			status = VisitCanceled
		}
		s.applyFail(u.ns, status, d.Error, d.Action)
	case OpItem:
		switch {
		case d.Error != nil:
			s.applyItem(u.ns, u.item, nil, "", d.Error)
		case st.Detail == nil && ev.Error != nil:
			s.applyItem(u.ns, u.item, nil, "", ev.Error)
		default:
			values := d.Values
			if values == nil {
				values = s.outcomeOf(ev, u).Values
			}
			s.applyItem(u.ns, u.item, values, d.Stop, nil)
		}
	}
}

// edgeOf finds an edge by its ends and kind.
func (s *State) edgeOf(from, to string, kind EdgeKind) (int32, bool) {
	if kind == "" {
		kind = DataEdge
	}
	a, okA := s.p.index[from]
	b, okB := s.p.index[to]
	e, ok := s.p.edgeIndex[edgeKey{a, b, kind}]
	return e, ok && okA && okB
}

func (s *State) replayEdge(st *Step, d *Detail) error {
	e, ok := s.edgeOf(st.Node, st.To, st.Kind)
	if !ok {
		return fmt.Errorf("%w: no edge %s -> %s", ErrCorrupt, st.Node, st.To)
	}
	if st.Op == OpMoot {
		f := s.frameAt(s.p.edges[e].scope, st.Visit)
		if f == nil || s.p.nodes[s.p.edges[e].from].region != f.region {
			return fmt.Errorf("%w: no frame %d", ErrCorrupt, st.Visit)
		}
		s.applyMoot(f, e)
		return nil
	}
	src := s.lookup(st.Node, st.Visit)
	if src == nil || !src.resolved() {
		return fmt.Errorf("%w: edge of %s@%d, which is not over", ErrCorrupt, st.Node, st.Visit)
	}
	s.applyEdge(&edgeTask{e: e, src: src, live: st.Live, propagated: d.Propagated})
	return nil
}

// frameAt finds a frame by its region and serial number.
func (s *State) frameAt(region int32, serial int) *frame {
	if region == 0 && serial == 1 {
		return s.root
	}
	if region <= 0 || serial < 1 || serial > len(s.frames[region]) {
		return nil
	}
	return s.frames[region][serial-1]
}

func (s *State) replayLoop(st *Step, d *Detail) error {
	n, ok := s.p.index[st.Node]
	if !ok {
		return fmt.Errorf("%w: no node %s", ErrCorrupt, st.Node)
	}
	region := s.p.nodes[n].region
	if region == 0 {
		return fmt.Errorf("%w: node %s is in no loop", ErrCorrupt, st.Node)
	}
	r := &s.p.regions[region]
	l := limitedVisit{region: region, parent: s.frameAt(r.parent, d.Within), node: n, propagated: d.Propagated}
	if d.From > 0 {
		l.prev = s.frameAt(region, d.From)
	}
	if r.token {
		l.edge = -1
		if len(d.Inputs) > 0 {
			in := d.Inputs[0]
			e, ok := s.edgeOf(in.Node, st.Node, in.Kind)
			if l.src = s.lookup(in.Node, in.Visit); !ok || l.src == nil {
				return fmt.Errorf("%w: no input of %s", ErrCorrupt, st.Node)
			}
			l.edge = e
		}
	}
	if l.parent == nil || d.From > 0 && l.prev == nil || !r.token && st.Op != OpLoopEnd && n != r.head {
		return fmt.Errorf("%w: loop of %s", ErrCorrupt, st.Node)
	}
	switch st.Op {
	case OpLoop:
		if r.token {
			s.applyToken(region, n, l.edge, l.src, l.propagated)
			return nil
		}
		s.applyLoop(region, l.parent, l.prev)
	case OpLoopEnd:
		inst := &l.parent.insts[r.slot]
		if inst.closed {
			return fmt.Errorf("%w: the loop of %s ends twice", ErrCorrupt, st.Node)
		}
		s.applyLoopEnd(region, inst, l.parent)
	case OpLimit:
		s.applyLimit(l)
	case OpUnlimit:
		for _, o := range s.limited {
			if o.region == l.region && o.node == l.node && o.parent == l.parent && o.prev == l.prev && o.src == l.src && o.edge == l.edge {
				s.applyUnlimit(o)
				return nil
			}
		}
		return fmt.Errorf("%w: %s stands at no limit", ErrCorrupt, st.Node)
	}
	return nil
}

// Replay rebuilds the state of a run from its journal. See Apply for ctx.
func Replay(ctx context.Context, p *Program, runID string, events []Event) (*State, error) {
	s := New(p, runID)
	for _, ev := range events {
		if _, err := s.Apply(ctx, ev); err != nil {
			return nil, err
		}
	}
	return s, nil
}
