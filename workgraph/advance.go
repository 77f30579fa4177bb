package workgraph

import (
	"fmt"
	"time"
)

// Advance decides what cmd means, changes the state and returns the events to journal, with the effects to
// act on once the events are durable. An error leaves the state unchanged, except ErrAborted, after which the
// State must be discarded.
func (s *State) Advance(cmd Command) ([]Event, Effects, error) {
	if s.end != nil {
		return nil, Effects{}, ErrEnded
	}
	s.open()
	return s.close(s.dispatch(cmd))
}

// advanceEnded is Advance for the most frequent command. It avoids moving the command to the heap.
func (s *State) advanceEnded(c *Ended) ([]Event, Effects, error) {
	if s.end != nil {
		return nil, Effects{}, ErrEnded
	}
	s.open()
	return s.close(s.ended(c))
}

// open prepares the scratch of a command.
func (s *State) open() {
	if cap(s.starts)-len(s.starts) < 2 {
		s.starts = make([]Start, 0, startChunk)
	}
	s.fxs = Effects{Starts: s.starts[len(s.starts):len(s.starts):cap(s.starts)]}
	s.fx, s.evs = &s.fxs, nil
}

// close hands out the events and effects of a command. The starts are cut out of their common chunk, unless
// they outgrew it.
func (s *State) close(err error) ([]Event, Effects, error) {
	s.closeEvent()
	evs, fx := s.evs, s.fxs
	s.fx, s.evs, s.fxs = nil, nil, Effects{}
	if s.evaluations.close() {
		err = ErrAborted
	}
	if err != nil {
		return nil, Effects{}, err
	}
	n := len(fx.Starts)
	if n == 0 {
		fx.Starts = nil
	} else if free := s.starts[len(s.starts):cap(s.starts)]; len(free) >= n && &free[0] == &fx.Starts[0] {
		s.starts = s.starts[:len(s.starts)+n]
		fx.Starts = fx.Starts[:n:n]
	}
	return evs, fx, nil
}

func (s *State) dispatch(cmd Command) error {
	if _, ok := cmd.(Begin); !ok && s.root == nil {
		return fmt.Errorf("%w: the run has not begun", ErrState)
	}
	switch c := cmd.(type) {
	case Begin:
		return s.begin(c)
	case Attempt:
		return s.attempt(c)
	case Ended:
		return s.ended(&c)
	case TimerDue:
		return s.timerDue(c)
	case Reconcile:
		return s.reconcile(c)
	case Recover:
		return s.recover(c)
	case Cancel:
		return s.cancel(c)
	case Pause:
		return s.pause(c)
	case EndLoops:
		return s.endLoops(c)
	case Resume:
		return s.resume(c)
	case Settled:
		return s.settled(c)
	case ChildEnded:
		return s.childEnded(c)
	case Answered:
		return s.answered(c)
	case AttemptCompleted:
		return s.attemptCompleted(c)
	case Signaled:
		return s.signaled(c)
	case Delivered:
		return s.delivered(c)
	case DeadlinePassed:
		return s.deadlinePassed(c)
	case Amended:
		return s.amend(c)
	}
	return fmt.Errorf("%w: unknown command %T", ErrState, cmd)
}

// openEvent adds an event. Steps are recorded into the newest event.
func (s *State) openEvent(kind EventKind, now time.Time) *Event {
	s.closeEvent()
	s.seq++
	s.at = now
	s.evs = append(s.evs, Event{Version: MachineVersion, Seq: s.seq, Kind: kind, At: now})
	s.ev = &s.evs[len(s.evs)-1]
	if cap(s.steps)-len(s.steps) < 4 {
		s.steps = make([]Step, 0, stepChunk)
	}
	s.ev.Steps = s.steps[len(s.steps):len(s.steps):cap(s.steps)]
	return s.ev
}

// The numbers of steps, starts and upstream entries that are allocated at once.
const (
	stepChunk     = 8
	startChunk    = 2
	upstreamChunk = 4
)

// closeEvent cuts the steps of the newest event out of their common chunk, unless they outgrew it.
func (s *State) closeEvent() {
	if s.ev == nil {
		return
	}
	n := len(s.ev.Steps)
	if n == 0 {
		s.ev.Steps = nil
	} else if free := s.steps[len(s.steps):cap(s.steps)]; len(free) >= n && &free[0] == &s.ev.Steps[0] {
		s.steps = s.steps[:len(s.steps)+n]
		s.ev.Steps = s.ev.Steps[:n:n]
	}
	s.ev = nil
}

func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func (s *State) record(st Step) { s.ev.Steps = append(s.ev.Steps, st) }

// step is a step about a visit.
func (s *State) step(op Op, ns *nodeState, d *Detail) Step {
	return Step{Op: op, Node: s.node(ns).ID, Visit: int(ns.f.serial), Detail: d}
}

func (s *State) begin(c Begin) error {
	if s.root != nil {
		return fmt.Errorf("%w: the run has begun", ErrState)
	}
	if err := checkInput(&c); err != nil {
		return err
	}
	if err := checkReused(c.Reuse); err != nil {
		return err
	}
	now := instant(c.Now)
	ev := s.openEvent(RunStarted, now)
	in := c.Input
	ev.Input, ev.Context = &in, c.Context
	if err := s.applyBegin(ev.Input, ev.Context); err != nil {
		return err
	}
	if !c.Budget.IsZero() {
		ev.Budget = c.Budget
		s.applyBudget(c.Budget, nil)
		s.checkBudget()
	}
	if c.Held && !s.paused {
		s.record(Step{Op: OpPause, Note: ReasonCanceled})
		s.applyPause(ReasonCanceled)
	}
	if len(c.Reuse) > 0 {
		s.reuse = make(map[Ref]*ReusedVisit, len(c.Reuse))
		for i := range c.Reuse {
			s.reuse[c.Reuse[i].Ref] = &c.Reuse[i]
		}
		defer func() { s.reuse = nil }()
	}
	s.deliverInput()
	for _, n := range s.p.starts {
		s.startNode(n)
		if s.drain != "" {
			break
		}
	}
	s.conclude(now)
	return nil
}

func checkInput(c *Begin) error {
	if fault := inputFault(&c.Input); fault != "" {
		return fmt.Errorf("%w: %s", ErrState, fault)
	}
	if len(c.Context) > 0 && !validJSON(c.Context) {
		return fmt.Errorf("%w: the context is not JSON", ErrState)
	}
	if fault := c.Budget.Fault(); fault != "" {
		return fmt.Errorf("%w: the budget's %s", ErrState, fault)
	}
	return nil
}

func inputFault(in *Input) string {
	for i, a := range in.Args {
		if !validJSON(a) {
			return fmt.Sprintf("input argument %d is not JSON", i)
		}
	}
	for k, a := range in.Named {
		if !validJSON(a) {
			return fmt.Sprintf("input argument %q is not JSON", k)
		}
	}
	return ""
}

// startNode starts a node without in-edges.
func (s *State) startNode(n int32) {
	r := s.p.nodes[n].region
	switch {
	case r == 0:
		s.enter(&s.root.nodes[s.p.localNode[n]])
	case s.p.regions[r].token:
		s.tokenVisit(r, n, -1, nil, nil)
	default:
		s.openLoop(r, s.root, nil, verdictRun)
	}
}

func (s *State) attempt(c Attempt) error {
	u, ok := s.find(c.Ref)
	if !ok || u.try().pos < 0 || u.try().no != int32(c.Attempt) || u.try().intent || u.try().status != VisitRunning {
		return ErrStale
	}
	ev := s.openEvent(AttemptStarted, instant(c.Now))
	ev.Ref, ev.Attempt, ev.Generation = c.Ref, c.Attempt, int(u.try().gen)
	u.try().intent = true
	return nil
}

func (s *State) ended(c *Ended) error {
	u, ok := s.find(c.Ref)
	if !ok || u.try().pos < 0 || u.try().no != int32(c.Attempt) {
		return ErrStale
	}
	if (c.Outcome == nil) == (c.Err == nil) {
		return fmt.Errorf("%w: an attempt ends in an outcome or an error", ErrState)
	}
	out, ferr, now := c.Outcome, c.Err, instant(c.Now)
	if ferr != nil {
		ferr = typed(ferr)
	}
	if out != nil {
		// An outcome that is not JSON cannot be journaled, so the whole report becomes a failure.
		if err := checkOutcome(out); err != nil {
			out, ferr = nil, err
		}
	}
	if out != nil && len(out.Threads) > 0 {
		// What waits or is recorded has no part in them.
		kept := *out
		s.adds, kept.Threads, out = adding{u, out.Threads}, nil, &kept
		defer func() { s.adds = adding{} }()
	}
	if s.blocked(u, ferr, c.Capped) {
		s.putBack(u, c.Attempt, ferr, now)
	} else {
		s.endAttempt(AttemptEnded, u, c.Attempt, out, ferr, now)
	}
	s.conclude(now)
	return nil
}

// typed completes an error's type. An unknown type counts as Unknown: the attempt may have had its effect.
func typed(e *Error) *Error {
	switch e.Type {
	case Retryable, Permanent, Unknown, NotPerformed:
		return e
	}
	c := *e
	c.Type = Unknown
	return &c
}

// endAttempt journals the end of one attempt and decides what follows.
func (s *State) endAttempt(kind EventKind, u unit, attempt int, out *Outcome, err *Error, now time.Time) {
	s.openEvent(kind, now)
	s.endOpened(u, attempt, out, err, now)
}

// endOpened is endAttempt for an event that is already open.
func (s *State) endOpened(u unit, attempt int, out *Outcome, err *Error, now time.Time) {
	ev := s.ev
	ev.Ref, ev.Attempt, ev.Outcome, ev.Error = s.ref(u.ns, u.item), attempt, out, err
	canceling := u.try().status == VisitCanceling
	s.applyEnded(u, out, err)
	s.checkBudget()
	if !canceling && s.foundVoid(u) {
		return
	}
	if out != nil {
		s.outcome(u, out, canceling, now)
		return
	}
	s.attemptFailed(u, err, canceling, now)
}

func (s *State) timerDue(c TimerDue) error {
	now := instant(c.Now)
	if s.drain != "" {
		return nil
	}
	for s.drain == "" {
		s.timers.prune()
		if len(s.timers) == 0 || s.timers[0].due.After(now) {
			break
		}
		u := s.timers.pop().unit
		ev := s.openEvent(TimerFired, now)
		ev.Ref, ev.Attempt = s.ref(u.ns, u.item), int(u.try().no)
		if u.try().status == VisitBackoff {
			s.endSuspension(u)
			s.restart(u)
		} else {
			ev.Closed, ev.Reason = s.expired(u), expiryReason(u.try().wait.kind)
			s.waitDue(u, s.expire(u), now)
		}
		s.runQueues()
	}
	s.conclude(now)
	return nil
}

// expiryReason is the journaled reason for the expiry of a wait of this kind.
func expiryReason(k WaitKind) string {
	switch k {
	case WaitInterrupt:
		return ReasonInterruptExpired
	case WaitCompletion:
		return ReasonCompletionExpired
	case WaitSignal:
		return ReasonSignalExpired
	}
	return ""
}

// restart starts the unit's next attempt.
func (s *State) restart(u unit) {
	t := u.try()
	st := s.step(OpStart, u.ns, &Detail{Attempt: int(t.no), Generation: int(t.gen)})
	st.Item = int(u.item)
	s.record(st)
	s.launch(u.ns, u.item)
}

func (s *State) reconcile(c Reconcile) error {
	u, ok := s.find(c.Ref)
	if !ok || u.try().status != VisitReconciliation {
		return ErrStale
	}
	if (c.Outcome == nil) == (c.Err == nil) || c.Err != nil && c.Err.Type == Unknown {
		return fmt.Errorf("%w: reconciling needs an outcome or a definite error", ErrState)
	}
	if c.Outcome != nil {
		if err := checkOutcome(c.Outcome); err != nil {
			return fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	now := instant(c.Now)
	t := u.try()
	if c.Err != nil && c.Err.Type == NotPerformed && s.drain == "" && !u.ns.resolved() && !s.lost(u, false) {
		ev := s.openEvent(Reconciled, now)
		ev.Ref, ev.Attempt, ev.Error, ev.By = c.Ref, int(t.no), c.Err, c.By
		s.applyEnded(u, nil, c.Err)
		t.applyNotPerformed()
		s.restart(u)
	} else {
		s.openEvent(Reconciled, now).By = c.By
		s.endOpened(u, int(t.no), c.Outcome, c.Err, now)
	}
	s.conclude(now)
	return nil
}

func (s *State) recover(c Recover) error {
	now := instant(c.Now)
	for i := 0; i < len(s.flights); {
		u := s.flights[i].unit
		t := u.try()
		var err *Error
		switch {
		case s.node(u.ns).Effect == Unsafe && t.intent:
			err = Lostf(Unknown, "the owner was lost while the attempt was in flight")
		case t.status == VisitCanceling:
			err = Errorf(NotPerformed, ReasonCanceled, "canceled, and the owner was lost")
		default:
			i++
			continue
		}
		s.endAttempt(AttemptEnded, u, int(t.no), nil, err, now) // another flight takes its place at i
		s.runQueues()
	}
	s.conclude(now)
	for _, u := range s.openWaits() {
		switch t := u.try(); t.wait.kind {
		case WaitChildren:
			s.fx.Spawns = s.spawns(s.fx.Spawns, u)
		case WaitInterrupt:
			s.fx.Opened = append(s.fx.Opened, OpenedInterrupt{Ref: s.ref(u.ns, u.item), Interrupt: *t.wait.out.Wait.Interrupt, Binds: u.ns.binds(), Due: t.due})
		}
	}
	return nil
}

// deadlinePassed ends the run. A run that is being canceled, or whose deadline has already passed, stays as
// it is.
func (s *State) deadlinePassed(c DeadlinePassed) error {
	if s.drain == drainCancel || s.drain == drainDeadline {
		return nil
	}
	now := instant(c.Now)
	s.openEvent(DeadlineReached, now)
	s.drainNow(drainDeadline)
	s.conclude(now)
	return nil
}

func (s *State) cancel(c Cancel) error {
	if s.drain == drainCancel {
		return nil
	}
	now := instant(c.Now)
	s.openEvent(CancelRequested, now).Reason = c.Reason
	s.reason = c.Reason
	s.drainNow(drainCancel)
	s.conclude(now)
	return nil
}

func (s *State) pause(c Pause) error {
	if s.drain != "" {
		return fmt.Errorf("%w: the run is ending", ErrState)
	}
	if s.paused && !EndsByItself(s.reason) {
		return nil
	}
	s.openEvent(RunPaused, instant(c.Now)).Reason = c.Reason
	s.applyPause(c.Reason)
	return nil
}

func (s *State) endLoops(c EndLoops) error {
	if s.drain != "" {
		return fmt.Errorf("%w: the run is ending", ErrState)
	}
	now := instant(c.Now)
	if !s.stopping {
		s.openEvent(StopRequested, now).Reason = c.Reason
		s.stopping = true
	}
	budget, spent := s.Under(nil)
	if !s.paused || s.unknown > 0 || s.pricing() || budget.UsedUp(spent) {
		return nil
	}
	ev := s.openEvent(RunResumed, now)
	ev.Reason = ReasonStopped
	s.goOn(ev, now)
	return nil
}

// conclude follows everything that the command set in motion, and then decides whether the run pauses or
// ends.
func (s *State) conclude(now time.Time) {
	s.runQueues()
	for s.quiesce() {
		s.runQueues()
	}
	if s.wantPause != "" {
		if s.drain == "" && !s.paused {
			s.openEvent(RunPaused, now).Reason = s.wantPause
			s.applyPause(s.wantPause)
		}
		s.wantPause = ""
	}
	end := s.ending()
	if s.halted {
		s.halted = false
		if end == nil && s.paused {
			s.openEvent(RunPaused, now).Reason = s.reason
		}
	}
	if end != nil {
		s.openEvent(RunEnded, now).End = end
		s.end = end
		s.fx.Ended = end
	}
}

// runQueues follows edges until none is left, and only then checks which loops have ended: an edge under way
// may open the next round of a loop that looks finished.
func (s *State) runQueues() {
	for s.drain == "" {
		if len(s.edgeQ) > 0 {
			for i := 0; i < len(s.edgeQ) && s.drain == ""; i++ {
				s.splitReuse()
				s.follow(&s.edgeQ[i])
			}
			s.edgeQ = s.edgeQ[:0]
			continue
		}
		if len(s.expandQ) > 0 {
			s.expandNext()
			continue
		}
		if len(s.doubts) > 0 {
			s.askDoubtsAgain()
			continue
		}
		if len(s.instQ) == 0 {
			return
		}
		t := s.instQ[0]
		s.instQ = s.instQ[1:]
		s.checkLoop(t)
	}
	s.completeUnexpanded()
	s.edgeQ, s.instQ, s.doubts = s.edgeQ[:0], nil, nil
}
