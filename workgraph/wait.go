package workgraph

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// WaitKind says what a waiting visit waits for.
type WaitKind string

// The kinds of waits.
const (
	WaitTimer      WaitKind = "TIMER"
	WaitChildren   WaitKind = "CHILDREN"
	WaitInterrupt  WaitKind = "INTERRUPT"
	WaitCompletion WaitKind = "COMPLETION"
	WaitSignal     WaitKind = "SIGNAL"
)

// Bounds of one wait.
const (
	MaxChildren   = 10_000
	maxSignalName = 256
	maxWaitID     = 512
)

// kind is what the wait is for. It is empty unless exactly one field is set.
func (w *Wait) kind() WaitKind {
	var k WaitKind
	n := 0
	for _, c := range [...]struct {
		set  bool
		kind WaitKind
	}{{w.Timer != nil, WaitTimer}, {w.Children != nil, WaitChildren}, {w.Interrupt != nil, WaitInterrupt}, {w.Completion != nil, WaitCompletion},
		{w.Signal != nil, WaitSignal}} {
		if c.set {
			n++
			k = c.kind
		}
	}
	if n != 1 {
		return ""
	}
	return k
}

// due is when the wait ends by itself, or zero.
func (w *Wait) due(now time.Time) time.Time {
	var after Duration
	switch w.kind() {
	case WaitTimer:
		if !w.Timer.Until.IsZero() {
			return instant(w.Timer.Until)
		}
		return instant(now.Add(time.Duration(w.Timer.After)))
	case WaitChildren:
		after = w.Children.Timeout
	case WaitInterrupt:
		after = w.Interrupt.Timeout
	case WaitCompletion:
		after = w.Completion.Timeout
	case WaitSignal:
		after = w.Signal.Timeout
	}
	if after <= 0 {
		return time.Time{}
	}
	return instant(now.Add(time.Duration(after)))
}

// approval is the value of an answered approval.
type approval struct {
	Decision string          `json:"decision"`
	By       string          `json:"by,omitempty"`
	Hash     string          `json:"approve_hash"`
	Answer   json.RawMessage `json:"answer,omitempty"`
}

// answerValue is the visit's value for an answered interrupt.
func answerValue(q *Interrupt, binds string, answer json.RawMessage, decision, by string) json.RawMessage {
	if len(q.Approve) == 0 {
		if len(answer) == 0 {
			return rawNull
		}
		return answer
	}
	b, err := json.Marshal(approval{Decision: decision, By: by, Hash: ApproveHash(q.Approve, binds), Answer: answer})
	if err != nil {
		return rawNull // cannot happen: the answer was checked to be JSON
	}
	return b
}

// waitState is an open wait of a visit or item.
type waitState struct {
	kind  WaitKind
	out   *Outcome // applies, except for its values, when the wait ends
	order int64
	at    int32 // place in State.waits
	// slots are those of the children, nil while a child goes on. place finds them by id.
	slots []*ChildSlot
	left  int
	place map[string]int
}

func newWait(o *Outcome) *waitState {
	w := &waitState{kind: o.Wait.kind(), out: o}
	if w.kind == WaitChildren {
		runs := o.Wait.Children.Runs
		w.slots, w.left, w.place = make([]*ChildSlot, len(runs)), len(runs), make(map[string]int, len(runs))
		for i := range runs {
			w.place[runs[i].ID] = i
		}
	}
	return w
}

// values is the list of the children's slots, or the result of the one child that stands for the visit.
func (w *waitState) values() []json.RawMessage {
	if w.out.Wait.Children.AsResult {
		if sl := w.slots[0]; sl != nil && len(sl.Result) > 0 {
			return []json.RawMessage{sl.Result}
		}
		return []json.RawMessage{rawNull}
	}
	list := make([]json.RawMessage, len(w.slots))
	for i, sl := range w.slots {
		if sl == nil {
			sl = &ChildSlot{RunID: w.out.Wait.Children.Runs[i].ID, Status: StatusTimedOut, Reason: ReasonTimeout}
		}
		var value any = sl
		if w.out.Wait.Children.Bare {
			value = sl.bare()
		}
		b, err := json.Marshal(value)
		if err != nil {
			b = rawNull // cannot happen: its parts were checked to be JSON
		}
		list[i] = b
	}
	return []json.RawMessage{joinList(list)}
}

// replaces reports whether the wait gives values of its own.
func (o *Outcome) replaces() bool { return o.Wait != nil && o.Wait.Timer == nil }

// waits reports whether the outcome waits for anything. A timer that is already due does not count.
func (o *Outcome) waits(now time.Time) bool {
	return o.Wait != nil && (o.Wait.Timer == nil || o.Wait.due(now).After(now))
}

// await keeps the unit open for what its outcome waits for.
func (s *State) await(u unit, o *Outcome, now time.Time) {
	if s.drain != "" {
		s.drop(u)
		return
	}
	d := &Detail{Due: o.Wait.due(now)}
	if o.Wait.approves() && (u.ns.kept == nil || u.ns.kept.Binds == "") {
		var err error
		if d.Binds, d.Seen, err = s.questioned(s.evaluation(), u.ns, o.Wait.Interrupt); err != nil {
			s.attemptFailed(u, unknownCover(err), false, now)
			return
		}
	}
	st := s.step(OpWait, u.ns, d)
	st.Item = int(u.item)
	s.record(st)
	s.addToThreads(u)
	w := s.applyWait(u, o, d)
	switch {
	case w.kind == WaitChildren && w.left == 0:
		s.endWait(u)
		s.waited(u, o, w.values(), now)
	case w.kind == WaitSignal && len(s.signals[o.Wait.Signal.Name]) > 0:
		s.waited(u, o, []json.RawMessage{s.takeSignal(u)}, now)
	}
}

// endWait records that the unit's wait is over, and removes it.
func (s *State) endWait(u unit) {
	st := s.step(OpWake, u.ns, nil)
	st.Item = int(u.item)
	s.record(st)
	s.applyEndWait(u)
}

// waited completes a unit with the values of its wait.
func (s *State) waited(u unit, o *Outcome, values []json.RawMessage, now time.Time) {
	fin := *o
	fin.Values, fin.Wait, fin.Usage = values, nil, nil
	err := deepValues(values)
	if err == nil {
		err = s.examineValues(u, &fin)
	}
	if err != nil {
		s.attemptFailed(u, err, false, now)
		return
	}
	s.performed(u, &fin, false, now)
	s.keepOutcome(u, o, fin)
}

// keepOutcome asks for the outcome of children to be kept if their visit or item completed with it.
func (s *State) keepOutcome(u unit, asked *Outcome, got Outcome) {
	if asked.Wait.Children == nil || asked.Wait.Children.Keep == nil || u.try().status != VisitCompleted {
		return
	}
	s.fx.Kept = append(s.fx.Kept, KeptOutcome{Ref: s.ref(u.ns, u.item), KeepAs: *asked.Wait.Children.Keep, Outcome: got, Alone: len(asked.Wait.Children.Runs) == 1})
}

// failWait ends a unit whose wait failed. It is not retried.
func (s *State) failWait(u unit, err *Error) {
	if u.item > 0 {
		s.itemEnded(u, nil, err)
		return
	}
	s.failVisit(u.ns, err, false)
}

// waitDue ends a wait that is due. The wait was removed before.
func (s *State) waitDue(u unit, w *waitState, now time.Time) {
	o := w.out
	switch w.kind {
	case WaitTimer:
		fin := *o
		fin.Wait = nil
		s.performed(u, &fin, false, now)
	case WaitChildren:
		if c := o.Wait.Children; c.strict() {
			s.failWait(u, Errorf(Permanent, ReasonChildFailed, "%d of %d children had not ended within %s", w.left, len(w.slots), time.Duration(c.Timeout)))
			return
		}
		s.waited(u, o, w.values(), now)
	case WaitInterrupt:
		q := o.Wait.Interrupt
		if len(q.Default) == 0 {
			s.failWait(u, Errorf(Permanent, ReasonInterruptExpired, "nobody answered within %s", time.Duration(q.Timeout)))
			return
		}
		value, decision := s.defaultAnswer(u.ns, q), ""
		if len(q.Approve) > 0 {
			decision = defaultDecision(q)
		}
		if !s.superseding(u, decision) && !s.decided(u, o, value, decision, "") {
			s.waited(u, o, []json.RawMessage{value}, now)
		}
	case WaitCompletion:
		s.failWait(u, Errorf(Permanent, ReasonCompletionExpired, "it was not completed within %s", time.Duration(o.Wait.Completion.Timeout)))
	case WaitSignal:
		s.failWait(u, Errorf(Permanent, ReasonSignalExpired, "no signal %q came within %s", o.Wait.Signal.Name, time.Duration(o.Wait.Signal.Timeout)))
	}
}

// defaultAnswer is the visit's value for an interrupt that expired.
func (s *State) defaultAnswer(ns *nodeState, q *Interrupt) json.RawMessage {
	if len(q.Approve) > 0 {
		return answerValue(q, ns.binds(), nil, defaultDecision(q), "")
	}
	return q.Default
}

// waitingFor finds the unit of a report from outside, if it waits for that kind.
func (s *State) waitingFor(r Ref, kind WaitKind) (unit, *waitState, bool) {
	u, ok := s.find(r)
	if !ok {
		return unit{}, nil, false
	}
	t := u.try()
	if t.status != VisitWaiting || t.wait == nil || t.wait.kind != kind {
		return unit{}, nil, false
	}
	return u, t.wait, true
}

func (s *State) childEnded(c ChildEnded) error {
	u, w, ok := s.waitingFor(c.Ref, WaitChildren)
	if !ok {
		return ErrStale
	}
	i, ok := w.place[c.Slot.RunID]
	if !ok || w.slots[i] != nil {
		return ErrStale
	}
	if err := slotFault(&c.Slot); err != nil {
		return err
	}
	slot, now := c.Slot, instant(c.Now)
	slot.Usage = nil
	ev := s.openEvent(ChildClosed, now)
	ev.Ref, ev.Attempt, ev.Child, ev.Usage, ev.Spent = c.Ref, int(u.try().no), &slot, c.Slot.Usage, c.Slot.Spent
	ev.Unsettled, slot.Unsettled, slot.Spent = c.Slot.Unsettled, nil, nil
	s.applyChild(w, i, &slot, ev)
	s.checkBudget()
	switch o := w.out; {
	case o.Wait.Children.fails(&slot):
		s.endWait(u)
		s.failWait(u, childFailure(&slot))
	case w.left == 0:
		s.endWait(u)
		s.waited(u, o, w.values(), now)
	}
	s.conclude(now)
	return nil
}

// childFailure is the failure of a visit whose child has failed. What the user asks for in place of an answer
// goes up as it is, to whoever hears it.
func childFailure(sl *ChildSlot) *Error {
	if sl.Error != nil && sl.Error.Reason == ReasonAnotherRequest {
		return Errorf(Permanent, ReasonAnotherRequest, "%s", sl.Error.Message)
	}
	err := Errorf(Permanent, ReasonChildFailed, "child %s ended %s", sl.RunID, sl.Status)
	if sl.Error != nil {
		err.Message += ": " + sl.Error.Error()
	}
	return err
}

func slotFault(sl *ChildSlot) error {
	switch sl.Status {
	case StatusCompleted, StatusFailed, StatusCanceled, StatusTimedOut:
	default:
		return fmt.Errorf("%w: a child does not end %q", ErrState, string(sl.Status))
	}
	if len(sl.Result) > 0 && !validJSON(sl.Result) {
		return fmt.Errorf("%w: the child's result is not JSON", ErrState)
	}
	for k, v := range sl.Outputs {
		if !validJSON(v) {
			return fmt.Errorf("%w: the child's output %q is not JSON", ErrState, k)
		}
	}
	return nil
}

func (s *State) answered(c Answered) error {
	u, ok := s.asks[c.ID]
	if !ok {
		return ErrStale
	}
	q := u.try().wait.out.Wait.Interrupt
	switch {
	case len(c.Answer) > 0 && !validJSON(c.Answer):
		return fmt.Errorf("%w: the answer is not JSON", ErrState)
	case len(q.Approve) > 0 && c.Decision != Approved && c.Decision != Rejected:
		return fmt.Errorf("%w: interrupt %s asks for approval: decide %s or %s", ErrState, c.ID, Approved, Rejected)
	case len(q.Approve) == 0 && c.Decision != "":
		return fmt.Errorf("%w: interrupt %s does not ask for approval: give an answer without a decision", ErrState, c.ID)
	}
	now, o := instant(c.Now), u.try().wait.out
	value := answerValue(q, u.ns.binds(), c.Answer, c.Decision, c.By)
	ev := s.openEvent(InterruptClosed, now)
	ev.Ref, ev.Attempt, ev.By = s.ref(u.ns, u.item), int(u.try().no), c.By
	ev.Closed = &ClosedInterrupt{ID: c.ID, How: InterruptAnswered, Answer: value, Decision: c.Decision, By: c.By}
	s.applyWake(u, ev.Closed)
	if !s.superseding(u, c.Decision) && !s.decided(u, o, value, c.Decision, c.By) {
		s.waited(u, o, []json.RawMessage{value}, now)
	}
	s.conclude(now)
	return nil
}

func (s *State) attemptCompleted(c AttemptCompleted) error {
	u, w, ok := s.waitingFor(c.Ref, WaitCompletion)
	if !ok || int(u.try().no) != c.Attempt {
		return ErrStale
	}
	if (c.Outcome == nil) == (c.Err == nil) {
		return fmt.Errorf("%w: a completion has an outcome or an error", ErrState)
	}
	now := instant(c.Now)
	var values []json.RawMessage
	if c.Outcome != nil {
		for i, v := range c.Outcome.Values {
			if !validJSON(v) {
				return fmt.Errorf("%w: value %d is not JSON", ErrState, i)
			}
		}
		values = c.Outcome.Values
	}
	ev := s.openEvent(CompletionReceived, now)
	ev.Ref, ev.Attempt, ev.By = c.Ref, c.Attempt, c.By
	if c.Err != nil {
		ev.Error = typed(c.Err)
	} else {
		ev.Outcome = &Outcome{Values: values, Usage: c.Outcome.Usage}
	}
	s.applyCompletion(u, ev)
	s.checkBudget()
	if c.Err != nil {
		s.failWait(u, ev.Error)
	} else {
		s.waited(u, w.out, values, now)
	}
	s.conclude(now)
	return nil
}

// The rest of this file changes the state, in Advance and in Apply alike.

// applyWait suspends a unit until its wait ends.
func (s *State) applyWait(u unit, o *Outcome, d *Detail) *waitState {
	due := d.Due
	if d.Binds != "" {
		s.recordCover(u.ns, d.Binds, d.Seen, o.Wait.Interrupt.Workflows)
	}
	w := newWait(o)
	s.suspend(u, VisitWaiting, due)
	w.order = s.order
	s.addWait(u, w)
	switch w.kind {
	case WaitChildren:
		s.fx.Spawns = s.spawns(s.fx.Spawns, u)
	case WaitInterrupt:
		s.fx.Opened = append(s.fx.Opened, OpenedInterrupt{Ref: s.ref(u.ns, u.item), Interrupt: *o.Wait.Interrupt, Binds: u.ns.binds(), Due: due})
	}
	return w
}

// addWait registers a wait with the index that finds it.
func (s *State) addWait(u unit, w *waitState) {
	u.try().wait = w
	w.at = int32(len(s.waits))
	s.waits = append(s.waits, u)
	switch w.kind {
	case WaitInterrupt:
		if s.asks == nil {
			s.asks = map[string]unit{}
		}
		s.asks[w.out.Wait.Interrupt.ID] = u
	case WaitSignal:
		if s.listeners == nil {
			s.listeners = map[string][]listener{}
		}
		name := w.out.Wait.Signal.Name
		s.listeners[name] = append(s.listeners[name], listener{u, w})
	}
}

// spawns adds the children of a unit's wait that have not ended.
func (s *State) spawns(list []Spawn, u unit) []Spawn {
	w := u.try().wait
	for i, sl := range w.slots {
		if sl == nil {
			list = append(list, Spawn{Ref: s.ref(u.ns, u.item), Child: w.out.Wait.Children.Runs[i]})
		}
	}
	return list
}

// applyWake ends a wait. Children that still run are canceled. An open interrupt is closed: as how says, or
// as canceled if how is nil.
func (s *State) applyWake(u unit, how *ClosedInterrupt) *waitState {
	t := u.try()
	w := t.wait
	s.endSuspension(u)
	t.status, t.wait = VisitRunning, nil
	s.woken, s.woke = s.ref(u.ns, u.item), w.out
	last := len(s.waits) - 1
	moved := s.waits[last]
	moved.waitAt(w.at)
	s.waits[w.at] = moved
	s.waits[last] = unit{}
	s.waits = s.waits[:last]
	switch w.kind {
	case WaitChildren:
		for i, sl := range w.slots {
			if sl == nil {
				s.fx.CancelChildren = append(s.fx.CancelChildren, w.out.Wait.Children.Runs[i].ID)
			}
		}
	case WaitInterrupt:
		id := w.out.Wait.Interrupt.ID
		delete(s.asks, id)
		if how == nil {
			how = &ClosedInterrupt{ID: id, How: InterruptCanceled}
		}
		u.ns.recordDecision(how.Decision)
		s.forgetApprovals()
		s.fx.Closed = append(s.fx.Closed, *how)
	}
	return w
}

// applyEndWait ends a wait that got what it waited for.
func (s *State) applyEndWait(u unit) {
	if w := s.applyWake(u, nil); w.kind == WaitSignal {
		s.dropSignal(w.out.Wait.Signal.Name)
	}
}

// waitAt records the place of a unit's wait in State.waits.
func (u unit) waitAt(at int32) {
	if w := u.try().wait; w != nil {
		w.at = at
	}
}

// expire ends a wait that is due.
func (s *State) expire(u unit) *waitState { return s.applyWake(u, s.expired(u)) }

// expired is how the interrupt of a due wait closes. It is nil if the unit waits for something else.
func (s *State) expired(u unit) *ClosedInterrupt {
	w := u.try().wait
	if w.kind != WaitInterrupt {
		return nil
	}
	q := w.out.Wait.Interrupt
	how := &ClosedInterrupt{ID: q.ID, How: InterruptExpired}
	if len(q.Default) > 0 {
		how.Answer = s.defaultAnswer(u.ns, q)
		if len(q.Approve) > 0 {
			how.Decision = defaultDecision(q)
		}
	}
	return how
}

func (s *State) applyChild(w *waitState, i int, slot *ChildSlot, ev *Event) {
	w.slots[i] = slot
	w.left--
	s.addUsage(ev.Usage)
	switch {
	case s.budget == nil:
	case ev.Spent != nil:
		s.spent.NanoUSD = plus(s.spent.NanoUSD, ev.Spent.NanoUSD)
		s.spent.Tokens = plus(s.spent.Tokens, ev.Spent.Tokens)
		s.spent.Unpriced = plus(s.spent.Unpriced, ev.Spent.Unpriced)
	default:
		s.spent.add(ev.Usage)
	}
	for i := range ev.Unsettled {
		if !s.budget.capsMoney() {
			s.put(&ev.Unsettled[i].Usage, nil)
			continue
		}
		s.unsettled = append(s.unsettled, ev.Unsettled[i])
	}
}

func (s *State) applyCompletion(u unit, ev *Event) {
	if ev.Outcome != nil {
		s.use(ev.Outcome.Usage)
	} else {
		s.use(ev.Error.Usage)
	}
	s.applyWake(u, nil)
}

// Spawns are the children that a visit waits for and that have not ended, in the order in which the waits
// began.
func (s *State) Spawns() (list []Spawn) {
	for _, u := range s.openWaits() {
		if u.try().wait.kind == WaitChildren {
			list = s.spawns(list, u)
		}
	}
	return list
}

// openWaits are the waits in the order in which they began.
func (s *State) openWaits() []unit {
	us := slices.Clone(s.waits)
	slices.SortFunc(us, func(a, b unit) int {
		return cmp.Compare(a.try().wait.order, b.try().wait.order)
	})
	return us
}

// replayWait applies an event that ends a wait or brings it closer to its end.
func (s *State) replayWait(ev *Event) error {
	kind := map[EventKind]WaitKind{ChildClosed: WaitChildren, InterruptClosed: WaitInterrupt, CompletionReceived: WaitCompletion}[ev.Kind]
	u, w, ok := s.waitingFor(ev.Ref, kind)
	if !ok {
		return fmt.Errorf("%w: %s of %s, which does not wait for it", ErrCorrupt, ev.Kind, ev.Ref)
	}
	switch ev.Kind {
	case ChildClosed:
		if ev.Child == nil {
			return fmt.Errorf("%w: a child's end without the child", ErrCorrupt)
		}
		i, ok := w.place[ev.Child.RunID]
		if !ok || w.slots[i] != nil {
			return fmt.Errorf("%w: %s does not wait for child %s", ErrCorrupt, ev.Ref, ev.Child.RunID)
		}
		s.applyChild(w, i, ev.Child, ev)
	case InterruptClosed:
		if ev.Closed == nil || ev.Closed.ID != w.out.Wait.Interrupt.ID {
			return fmt.Errorf("%w: an answer to another interrupt than that of %s", ErrCorrupt, ev.Ref)
		}
		s.applyWake(u, ev.Closed)
	case CompletionReceived:
		if (ev.Outcome == nil) == (ev.Error == nil) {
			return fmt.Errorf("%w: a completion without an outcome", ErrCorrupt)
		}
		s.applyCompletion(u, ev)
	}
	return nil
}

// WaitInfo is one open wait as a reader sees it.
type WaitInfo struct {
	Ref
	Kind WaitKind
	// Attempt is the one whose outcome began the wait.
	Attempt int
	// Due is when the wait ends by itself. It is zero if it does not.
	Due time.Time
	// Children are the ids of those that have not ended.
	Children []string
	// Interrupt is what the visit waits for.
	Interrupt *Interrupt
	// Signal is the name waited for.
	Signal string
}

// Waits calls yield for every open wait, oldest first, until yield returns false.
func (s *State) Waits(yield func(WaitInfo) bool) {
	for _, u := range s.openWaits() {
		if !yield(s.waitInfo(u)) {
			return
		}
	}
}

func (s *State) waitInfo(u unit) WaitInfo {
	t := u.try()
	w := t.wait
	in := WaitInfo{Ref: s.ref(u.ns, u.item), Kind: w.kind, Attempt: int(t.no), Due: t.due}
	switch w.kind {
	case WaitChildren:
		for i, sl := range w.slots {
			if sl == nil {
				in.Children = append(in.Children, w.out.Wait.Children.Runs[i].ID)
			}
		}
	case WaitInterrupt:
		in.Interrupt = w.out.Wait.Interrupt
	case WaitSignal:
		in.Signal = w.out.Wait.Signal.Name
	}
	return in
}
