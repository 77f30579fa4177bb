package workgraph

import (
	"encoding/json"
	"slices"
	"time"
)

// This file holds the only code that changes a state because of a step. Advance calls it while it decides,
// and Apply while it replays. Nothing here evaluates an expression or looks for consequences.

// newFrame opens a frame in which nothing is decided.
func (s *State) newFrame(region int32, serial int32, parent, prev *frame, inst *instance) *frame {
	r := &s.p.regions[region]
	f := &frame{region: region, serial: serial, parent: parent, prev: prev, inst: inst, tokenEdge: -1}
	s.p.layOut(f, r)
	f.open = int32(len(f.nodes) + len(f.insts))
	return f
}

// layOut gives a frame its places for nodes, edges and loops.
func (p *Program) layOut(f *frame, r *region) {
	nodes, edges, children := r.nodes, r.edges, r.children
	if g := r.expanded[f.serial]; g != nil {
		nodes, edges, children = slices.Concat(nodes, g.nodes), slices.Concat(edges, g.edges), slices.Concat(children, g.children)
	}
	f.nodes = make([]nodeState, len(nodes))
	for i, n := range nodes {
		ns := &f.nodes[i]
		ns.f, ns.n, ns.status, ns.pos = f, n, VisitPending, -1
	}
	f.edges = make([]edgeState, len(edges))
	f.insts = nil
	if len(children) > 0 {
		f.insts = make([]instance, len(children))
		for i, c := range children {
			f.insts[i].exits = make([]exitState, len(p.regions[c].exits))
		}
	}
}

func (s *State) applyBegin(in *Input, context json.RawMessage) error {
	if in != nil {
		s.input = *in
	}
	s.context = context
	s.vars = make(map[string]*stateVar, len(s.p.g.State))
	for k, d := range s.p.g.State {
		v, err := newStateVar(d)
		if err != nil {
			return err
		}
		s.vars[k] = v
	}
	s.status = StatusRunning
	s.root = s.newFrame(0, 1, nil, nil, nil)
	return nil
}

// applyLoop opens a frame of a loop: the first of its instance if prev is nil, else the next one.
func (s *State) applyLoop(region int32, parent, prev *frame) *frame {
	inst := &parent.insts[s.p.regions[region].slot]
	if s.frames == nil {
		s.frames = map[int32][]*frame{}
	}
	serial := int32(len(s.frames[region]) + 1)
	f := s.newFrame(region, serial, parent, prev, inst)
	s.frames[region] = append(s.frames[region], f)
	inst.opened = true
	inst.active++
	inst.last = serial
	return f
}

// applyToken makes a visit in an irreducible loop from one live delivery. e is -1 for a start node.
func (s *State) applyToken(region, n, e int32, src *nodeState, propagated *Input) *nodeState {
	inst := &s.root.insts[s.p.regions[region].slot]
	if s.tokens == nil {
		s.tokens = map[int32][]*nodeState{}
	}
	serial := int32(len(s.tokens[n]) + 1)
	f := &frame{region: region, serial: serial, parent: s.root, inst: inst, open: 1, tokenEdge: e, tokenSrc: src}
	f.nodes = []nodeState{{f: f, n: n, try: try{status: VisitPending, pos: -1}}}
	f.edges = []edgeState{{src: src, propagated: propagated}}
	ns := &f.nodes[0]
	s.tokens[n] = append(s.tokens[n], ns)
	inst.opened = true
	inst.active++
	if e < 0 {
		inst.entries++
	}
	if src != nil {
		src.superseded = src.superseded || s.p.nodes[src.n].region == region
	}
	return ns
}

// applyEdge decides an edge and returns the frame in which it was delivered, or nil if it waits for the end
// of a loop.
func (s *State) applyEdge(t *edgeTask) *frame {
	if pe := &s.p.edges[t.e]; pe.message {
		if t.live {
			s.applyDelivery(pe.to, Message{From: s.node(t.src).ID, Body: single(s.passed(pe, t.src)), At: s.at})
		}
		return nil
	}
	scope := s.p.edges[t.e].scope
	f := t.src.f
	// An amendment has added the edge after the end of the loop.
	for f.region != scope && f.inst.closed {
		f = f.parent
	}
	if f.region == scope {
		if !s.p.regions[scope].token {
			s.setEdge(f, t)
		}
		return f
	}
	s.leave(f, t)
	return nil
}

// leave records an edge that leaves a loop. The live delivery of the latest visit counts.
func (s *State) leave(f *frame, t *edgeTask) {
	slot, _ := slices.BinarySearch(s.p.regions[f.region].exits, t.e)
	x := &f.inst.exits[slot]
	if t.src == nil {
		return
	}
	if x.src == nil || t.live && (!x.live || t.src.f.serial >= x.src.f.serial) {
		*x = exitState{src: t.src, live: t.live, propagated: t.propagated}
	}
}

func (s *State) setEdge(f *frame, t *edgeTask) {
	pe := &s.p.edges[t.e]
	es := &f.edges[s.p.localEdge[t.e]]
	es.src, es.propagated, es.state = t.src, t.propagated, edgeDead
	if t.live {
		es.state = edgeLive
	}
	r := s.p.nodes[pe.to].region
	if pe.kind == BackEdge {
		f.backSeen++
		if t.live {
			f.backLive++
		}
		return
	}
	var j *joinCount
	switch {
	case r == f.region:
		j = &f.nodes[s.p.localNode[pe.to]].join
	case s.p.regions[r].token:
		f.insts[s.p.regions[r].slot].entries++
		return
	default:
		j = &f.insts[s.p.regions[r].slot].join
	}
	j.seen++
	if t.live {
		j.live++
	}
	j.ran = j.ran || t.src != nil && t.src.status != VisitSkipped && t.src.status != VisitCanceled
}

// applyLoopEnd delivers the edges that left the loop. It returns those delivered in the parent frame, in
// declared order.
func (s *State) applyLoopEnd(region int32, inst *instance, parent *frame) []edgeTask {
	inst.closed = true
	parent.open--
	s.closeFrame(parent)
	exits := s.p.regions[region].exits
	tasks := make([]edgeTask, len(exits))
	for i, e := range exits {
		x := &inst.exits[i] // its src is nil if no visit ever reached it
		tasks[i] = edgeTask{e: e, src: x.src, live: x.live, propagated: x.propagated}
	}
	s.newest(tasks)
	var out []edgeTask
	for _, t := range tasks {
		if s.p.edges[t.e].scope == parent.region {
			s.setEdge(parent, &t)
			out = append(out, t)
			continue
		}
		s.leave(parent, &t)
	}
	return out
}

// resolve counts a visit as over.
func (s *State) resolve(ns *nodeState) {
	if ns.f.messages != nil {
		ns.f.messages, ns.named = nil, nil
	}
	ns.failed = nil // a failed visit has its error in err
	ns.f.open--
	s.closeFrame(ns.f)
}

func (s *State) closeFrame(f *frame) {
	if f.open == 0 && f.inst != nil {
		f.inst.active--
	}
}

// markInputs marks the live edges that a visit runs on. Nil refs mark every live one.
func (s *State) markInputs(ns *nodeState, refs []InputRef) {
	if s.p.regions[ns.f.region].token {
		return
	}
	edges, f := s.sources(ns)
	if refs == nil {
		for _, e := range edges {
			if es := &f.edges[s.p.localEdge[e]]; es.state == edgeLive {
				es.state = edgeUsed
			}
		}
		return
	}
	for _, r := range refs {
		kind := r.Kind
		if kind == "" {
			kind = DataEdge
		}
		if e, ok := s.p.edgeIndex[edgeKey{s.p.index[r.Node], ns.n, kind}]; ok {
			if es := &f.edges[s.p.localEdge[e]]; es.state == edgeLive {
				es.state = edgeUsed
			}
		}
	}
}

// unmarkInputs undoes markInputs for a visit that does not run after all.
func (s *State) unmarkInputs(ns *nodeState) {
	if s.p.regions[ns.f.region].token {
		return
	}
	edges, f := s.sources(ns)
	for _, e := range edges {
		if es := &f.edges[s.p.localEdge[e]]; es.state == edgeUsed {
			es.state = edgeLive
		}
	}
}

// applyEnter lets a visit run with its propagated arguments.
func (s *State) applyEnter(ns *nodeState, args []json.RawMessage, named map[string]json.RawMessage, mapped bool, items []json.RawMessage, key string) {
	ns.args, ns.named, ns.key = args, named, key
	if f, ok := s.removed[s.node(ns).ID]; ok && ns.no == 0 {
		ns.no, ns.gen, ns.before = f.No, f.Gen, f.No
	}
	ns.no, ns.gen = ns.no+1, ns.gen+1 // 1 and 1 unless an amendment has taken the visit back
	s.order++
	ns.enteredAt = s.order
	if !mapped {
		s.launch(ns, 0)
		return
	}
	ns.status = VisitRunning
	ns.m = &mapState{list: items, items: make([]itemState, len(items))}
	for i := range ns.m.items {
		ns.m.items[i].pos = -1
	}
}

// applyNextItem starts the first attempt of a map's next item.
func (s *State) applyNextItem(ns *nodeState) {
	m := ns.m
	m.next++
	m.open++
	it := &m.items[m.next-1]
	it.no, it.gen = ns.no, ns.gen
	s.launch(ns, int32(m.next))
}

// launch starts the unit's current attempt, or holds it while the run is paused.
func (s *State) launch(ns *nodeState, item int32) {
	u := unit{ns, item}
	t := u.try()
	t.intent = false
	t.due = time.Time{}
	if s.paused {
		t.status = VisitHeld
		s.held = append(s.held, u)
		return
	}
	t.status = VisitRunning
	t.pos = int32(len(s.flights))
	s.order++
	s.flights = append(s.flights, flight{u, s.order})
	s.fx.Starts = append(s.fx.Starts, Start{})
	s.makeStart(&s.fx.Starts[len(s.fx.Starts)-1], ns, item)
}

// land removes the unit's attempt from those in flight.
func (s *State) land(u unit) {
	t := u.try()
	last := len(s.flights) - 1
	moved := s.flights[last]
	s.flights[t.pos] = moved
	moved.try().pos = t.pos
	s.flights[last] = flight{}
	s.flights = s.flights[:last]
	t.pos = -1
}

// applyRetry delays the next attempt after one that ended with err.
func (s *State) applyRetry(u unit, d *Detail, err *Error) {
	t := u.try()
	t.recordError(err)
	t.no, t.gen, t.lost = int32(d.Attempt), int32(d.Generation), int32(d.Lost)
	s.suspend(u, VisitBackoff, d.Due)
}

// applyNotPerformed numbers the attempt that replaces one that was found not to have been performed.
func (t *try) applyNotPerformed() { t.no, t.lost = t.no+1, t.lost+1 }

func (s *State) suspend(u unit, status VisitStatus, due time.Time) {
	t := u.try()
	t.status, t.due = status, due
	s.suspended++
	s.order++
	if !due.IsZero() {
		s.timers.push(timer{due: due, unit: u, order: s.order})
	}
}

// endSuspension ends a back-off or a wait.
func (s *State) endSuspension(u unit) {
	s.suspended--
	u.try().due = time.Time{}
}

// applyUpdates combines state updates. They were checked when they were decided.
func (s *State) applyUpdates(ns *nodeState, up map[string]json.RawMessage) {
	s.recordUpdates(ns, up)
	var before map[string]string
	for _, k := range sortedKeys(up) {
		if v := s.vars[k]; v != nil {
			if s.watched {
				if before == nil {
					before = map[string]string{}
				}
				before[k] = v.digest()
			}
			v.update(up[k])
		}
	}
	if before != nil {
		s.moveOn(ns, before)
	}
}

func (s *State) applyComplete(ns *nodeState, values []json.RawMessage, stop Stop, err *Error) {
	ns.values, ns.err = values, err
	if stop == AbstainResult {
		ns.status, ns.values = VisitAbstained, nil
	} else {
		ns.status = VisitCompleted
		s.order++
		ns.endedAt = s.order
		s.latest[ns.n] = ns
	}
	if stop == Terminate {
		s.terminated = append(s.terminated, ns)
	}
	s.resolve(ns)
}

func (s *State) applyFail(ns *nodeState, status VisitStatus, err *Error, action ErrorAction) {
	ns.status, ns.err = status, err
	if action == Fail {
		r := s.ref(ns, 0)
		s.failed, s.failure = &r, err
	}
	s.resolve(ns)
}

func (s *State) applySkip(ns *nodeState, note string) {
	ns.status, ns.note = VisitSkipped, note
	s.resolve(ns)
}

// applyItem ends an item.
func (s *State) applyItem(ns *nodeState, item int32, values []json.RawMessage, stop Stop, err *Error) {
	it := &ns.m.items[item-1]
	it.failed = nil
	ns.m.open--
	ns.m.done++
	switch {
	case err != nil:
		it.status, it.result = VisitFailed, itemError(err)
		ns.m.bad++
	case stop == AbstainResult:
		it.status, it.result = VisitAbstained, itemAbstained
	default:
		it.status, it.result = VisitCompleted, itemOK(single(values))
	}
}

// applyReconcile marks an attempt whose outcome is unknown.
func (s *State) applyReconcile(u unit, err *Error) {
	u.try().recordError(err)
	u.try().status = VisitReconciliation
	s.unknown++
}

func (s *State) applyCancel(u unit) {
	u.try().status = VisitCanceling
	s.fx.Cancels = append(s.fx.Cancels, s.ref(u.ns, u.item))
}

// applyDrop gives up a unit. The unit may be counted as in flight only if its call has not begun.
func (s *State) applyDrop(u unit) {
	t := u.try()
	s.letGo(u)
	t.status = VisitCanceled
	if u.item > 0 {
		it := &u.ns.m.items[u.item-1]
		it.result = itemError(&Error{Type: NotPerformed, Reason: ReasonCanceled})
		u.ns.m.open--
		u.ns.m.done++
		return
	}
	s.resolve(u.ns)
}

// letGo removes a unit from flight, back-off or wait.
func (s *State) letGo(u unit) {
	t := u.try()
	switch t.status {
	case VisitBackoff:
		s.endSuspension(u)
	case VisitWaiting:
		s.applyWake(u, nil)
	case VisitRunning, VisitCanceling:
		if t.pos >= 0 {
			s.land(u)
			s.fx.Cancels = append(s.fx.Cancels, s.ref(u.ns, u.item))
		}
	}
}

func (s *State) applyDrain(kind string) {
	if s.drain == "" { // a run that fails stays failed if it is canceled later
		s.drain = kind
	}
	s.paused = false
	s.timers, s.held = nil, nil // the steps that follow drop what they held
}

// applyEnded is the part of an attempt's end that does not depend on the next decision.
func (s *State) applyEnded(u unit, out *Outcome, err *Error) {
	t := u.try()
	if t.pos >= 0 {
		s.land(u)
	} else {
		s.unknown-- // it needed reconciliation
		t.status = VisitRunning
		t.found = err == nil || err.Type != NotPerformed
	}
	if out != nil {
		s.use(out.Usage)
	} else {
		s.use(err.Usage)
	}
	if u.item > 0 && u.ns.resolved() { // its map ended without it
		t.status = VisitCanceled
		if out != nil {
			t.status = VisitCompleted
		}
	}
}

// applyMoot marks an open edge as no longer needed. It returns the edge's source if that has no other use.
func (s *State) applyMoot(f *frame, e int32) *nodeState {
	f.edges[s.p.localEdge[e]].moot = true
	u := &f.nodes[s.p.localNode[s.p.edges[e].from]]
	if u.moot++; int(u.moot) < len(s.out(u)) {
		return nil
	}
	return u
}

func (s *State) applyLimit(l limitedVisit) {
	s.limited = append(s.limited, l)
	if l.parent != nil {
		l.parent.insts[s.p.regions[l.region].slot].limited++
	}
}

func (s *State) applyPause(reason string) {
	// A pause that ends by itself gives way to another one, but that of a cap stays while usage is unsettled.
	if !s.paused || s.reason == ReasonUnsettled || s.reason == ReasonCap && reason != ReasonUnsettled {
		s.paused, s.reason = true, reason
	}
	if reason != ReasonUnsettled {
		s.stepping = false
	}
}

// applyStepping notes whether a resumed run pauses again after one round of a loop.
func (s *State) applyStepping(ev *Event) { s.stepping = s.stepping || ev.Step }

// applyResume starts what was held, unless usage is still unsettled. Loops at their limit follow by their own
// steps.
func (s *State) applyResume() {
	s.noRoom = nil
	if len(s.unsettled) > 0 {
		s.paused, s.reason = true, ReasonUnsettled
	} else {
		s.paused, s.reason = false, ""
		held := s.held
		s.held = nil
		for _, u := range held {
			if u.try().status == VisitHeld {
				s.launch(u.ns, u.item)
			}
		}
	}
	for _, l := range s.limited {
		if s.granted == nil {
			s.granted = map[int32]int{}
		}
		s.granted[l.node] += max(1, s.p.nodes[l.node].maxVisits)
	}
}

// applyUnlimit removes a loop from those at their limit.
func (s *State) applyUnlimit(l limitedVisit) {
	s.limited = slices.DeleteFunc(s.limited, func(o limitedVisit) bool { return o == l })
	if l.parent != nil {
		l.parent.insts[s.p.regions[l.region].slot].limited--
	}
}

// use counts the usage of the run's own calls.
func (s *State) use(us []Usage) {
	if s.budget.capsMoney() {
		us = s.putOff(us)
	}
	s.addUsage(us)
	if s.budget != nil {
		s.spent.add(us)
	}
}

// putOff removes unsettled costs from us and records them as unsettled.
func (s *State) putOff(us []Usage) []Usage {
	if !slices.ContainsFunc(us, func(u Usage) bool { return u.Unsettled }) {
		return us
	}
	us = slices.Clone(us)
	for i := range us {
		if us[i].Unsettled {
			us[i].Unsettled = false
			s.unsettled = append(s.unsettled, Unsettled{Usage: us[i], At: s.at})
			us[i].CostNanoUSD = new(int64)
		}
	}
	return us
}

func (s *State) addUsage(us []Usage) {
next:
	for _, u := range us {
		for i := range s.usage {
			t := &s.usage[i]
			if t.Provider != u.Provider || t.Model != u.Model {
				continue
			}
			t.InputTokens += u.InputTokens
			t.OutputTokens += u.OutputTokens
			t.CachedTokens += u.CachedTokens
			t.ReasoningTokens += u.ReasoningTokens
			t.charge(u.CostNanoUSD)
			continue next
		}
		u.Call, u.Unsettled = "", false
		s.usage = append(s.usage, u)
	}
}

func itemOK(v json.RawMessage) json.RawMessage {
	b := make([]byte, 0, len(v)+7)
	b = append(b, `{"ok":`...)
	b = append(b, v...)
	return append(b, '}')
}

func itemError(e *Error) json.RawMessage {
	b := append([]byte(`{"error":`), errorJSON(e)...)
	return append(b, '}')
}

var itemAbstained = json.RawMessage(`{"abstained":true}`)
