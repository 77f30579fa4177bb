package workgraph

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The saved types are the JSON form of a State. Arguments are not saved, because they follow from the inputs
// of every visit.

type savedState struct {
	Version    int                        `json:"v"`
	RunID      string                     `json:"run"`
	Seq        int64                      `json:"seq"`
	Status     Status                     `json:"status"`
	Paused     bool                       `json:"paused,omitempty"`
	Reason     string                     `json:"reason,omitempty"`
	Stopping   bool                       `json:"stopping,omitempty"`
	Stepping   bool                       `json:"stepping,omitempty"`
	Drain      string                     `json:"drain,omitempty"`
	Failed     *Ref                       `json:"failed,omitempty"`
	Failure    *Error                     `json:"failure,omitempty"`
	End        *RunEnd                    `json:"end,omitempty"`
	Input      Input                      `json:"input"`
	Context    json.RawMessage            `json:"context,omitempty"`
	Vars       map[string]json.RawMessage `json:"vars,omitempty"`
	Usage      []Usage                    `json:"usage,omitempty"`
	Order      int64                      `json:"order"`
	Begun      bool                       `json:"begun,omitempty"`
	Frames     []savedFrame               `json:"frames,omitempty"`
	Latest     []int32                    `json:"latest,omitempty"`
	Granted    map[int32]int              `json:"granted,omitempty"`
	Limited    []savedLimit               `json:"limited,omitempty"`
	Terminated []savedRef                 `json:"terminated,omitempty"`
	Flights    []savedFlight              `json:"flights,omitempty"`
	Held       []savedFlight              `json:"held,omitempty"`

	Signals map[string][]json.RawMessage `json:"signals,omitempty"`
	Inboxes map[int32][]Message          `json:"inboxes,omitempty"`
	// Graph is the run's own graph. It is set once it differs from the one that the run began with.
	Graph    *Graph                    `json:"graph,omitempty"`
	Revision int64                     `json:"rev,omitempty"`
	Removed  map[string]attemptNumbers `json:"removed,omitempty"`

	Budget *Budget `json:"budget,omitempty"`
	Spent  *Spent  `json:"spent,omitempty"` // with a budget

	Unsettled []Unsettled `json:"unsettled,omitempty"`
	Refused   *Refused    `json:"refused,omitempty"`
}

// savedRef is a visit by node index and visit number.
type savedRef struct {
	N int32 `json:"n"`
	V int32 `json:"v"`
}

type savedFlight struct {
	savedRef
	Item  int32 `json:"i,omitempty"`
	Order int64 `json:"o,omitempty"`
}

type savedLimit struct {
	Region     int32     `json:"r"`
	Parent     int32     `json:"p"`
	Prev       int32     `json:"prev,omitempty"`
	Node       int32     `json:"n"`
	Edge       int32     `json:"e,omitempty"`
	Src        *savedRef `json:"s,omitempty"`
	Propagated *Input    `json:"t,omitempty"`
}

type savedFrame struct {
	Region   int32           `json:"r"`
	Serial   int32           `json:"s"`
	Parent   int32           `json:"p,omitempty"`
	Prev     int32           `json:"prev,omitempty"`
	Open     int32           `json:"open,omitempty"`
	BackSeen int32           `json:"bs,omitempty"`
	BackLive int32           `json:"bl,omitempty"`
	Nodes    []savedNode     `json:"nodes"`
	Edges    []savedEdge     `json:"edges,omitempty"`
	Insts    []savedInstance `json:"insts,omitempty"`
	// TokenEdge is the edge of a visit in an irreducible loop plus one. It is 0 for other frames.
	TokenEdge int32     `json:"te,omitempty"`
	TokenSrc  *savedRef `json:"ts,omitempty"`
	Messages  []Message `json:"msg,omitempty"`
}

type savedJoin struct {
	Seen int32 `json:"s,omitempty"`
	Live int32 `json:"l,omitempty"`
	Ran  bool  `json:"r,omitempty"`
}

type savedInstance struct {
	Join    savedJoin   `json:"j,omitzero"`
	Opened  bool        `json:"o,omitempty"`
	Closed  bool        `json:"c,omitempty"`
	Active  int32       `json:"a,omitempty"`
	Limited int32       `json:"l,omitempty"`
	Entries int32       `json:"e,omitempty"`
	Last    int32       `json:"n,omitempty"`
	Exits   []savedExit `json:"x,omitempty"`
}

type savedExit struct {
	Src        *savedRef `json:"s,omitempty"`
	Live       bool      `json:"l,omitempty"`
	Propagated *Input    `json:"t,omitempty"`
}

type savedEdge struct {
	State      uint8     `json:"s,omitempty"`
	Moot       bool      `json:"m,omitempty"`
	Src        *savedRef `json:"f,omitempty"`
	Propagated *Input    `json:"t,omitempty"`
}

type savedTry struct {
	Status VisitStatus `json:"st,omitempty"`
	No     int32       `json:"no,omitempty"`
	Gen    int32       `json:"gen,omitempty"`
	Lost   int32       `json:"lost,omitempty"`
	Failed *Error      `json:"failed,omitempty"`
	Intent bool        `json:"in,omitempty"`
	Found  bool        `json:"found,omitempty"`
	Due    time.Time   `json:"due,omitzero"`
	Wait   *Outcome    `json:"wait,omitempty"`
	// Order and Slots are those of the wait.
	Order int64        `json:"wo,omitempty"`
	Slots []*savedSlot `json:"slots,omitempty"`
}

// savedSlot is a child's end. It is null while the child goes on.
type savedSlot ChildSlot

type savedNode struct {
	savedTry
	N          int32             `json:"n,omitempty"` // visits of irreducible loops only
	Moot       int32             `json:"moot,omitempty"`
	Join       savedJoin         `json:"j,omitzero"`
	Values     []json.RawMessage `json:"val,omitempty"`
	Err        *Error            `json:"err,omitempty"`
	Key        string            `json:"key,omitempty"`
	Note       string            `json:"note,omitempty"`
	Superseded bool              `json:"sup,omitempty"`
	Reused     bool              `json:"reused,omitempty"`
	Kept       *savedOutcome     `json:"kept,omitempty"`
	Map        *savedMap         `json:"map,omitempty"`
	Before     int32             `json:"before,omitempty"`
	Entered    int64             `json:"ent,omitempty"`
	Ended      int64             `json:"end,omitempty"`
}

type savedMap struct {
	List  []json.RawMessage `json:"list,omitempty"`
	Items []savedItem       `json:"items,omitempty"` // only started ones
	Next  int               `json:"next,omitempty"`
	Open  int               `json:"open,omitempty"`
	Done  int               `json:"done,omitempty"`
	Bad   int               `json:"bad,omitempty"`
}

type savedItem struct {
	savedTry
	Result json.RawMessage `json:"res,omitempty"`
}

// Snapshot is the state as bytes for Restore, of this or a later machine version. It is a cache: without it a
// replay takes longer.
func (s *State) Snapshot() ([]byte, error) {
	c := savedState{Version: MachineVersion, RunID: s.runID, Seq: s.seq, Status: s.status, Paused: s.paused, Reason: s.reason, Stopping: s.stopping, Stepping: s.stepping,
		Drain: s.drain, Failed: s.failed, Failure: s.failure, End: s.end, Input: s.input, Context: s.context, Usage: s.usage,
		Order: s.order, Begun: s.root != nil, Granted: s.granted, Signals: s.signals}
	if s.root == nil {
		return json.Marshal(c)
	}
	if s.budget != nil {
		c.Budget, c.Spent, c.Unsettled = s.budget, &s.spent, s.unsettled
	}
	c.Refused = s.noRoom
	if c.Revision, c.Removed = s.revision, s.removed; s.revision > 0 {
		c.Graph = s.p.g
	}
	c.Vars = s.StateValues()
	c.Frames = append(c.Frames, saveFrame(s.root))
	for r := range s.p.regions {
		for _, f := range s.frames[int32(r)] {
			c.Frames = append(c.Frames, saveFrame(f))
		}
	}
	for n := range s.p.nodes {
		for _, ns := range s.tokens[int32(n)] {
			c.Frames = append(c.Frames, saveFrame(ns.f))
		}
	}
	for n, b := range s.inboxes {
		if len(b.messages) > 0 {
			if c.Inboxes == nil {
				c.Inboxes = map[int32][]Message{}
			}
			c.Inboxes[n] = b.messages
		}
	}
	c.Latest = make([]int32, len(s.latest))
	for i, ns := range s.latest {
		if ns != nil {
			c.Latest[i] = ns.f.serial
		}
	}
	for _, l := range s.limited {
		sl := savedLimit{Region: l.region, Parent: l.parent.serial, Node: l.node, Edge: l.edge, Src: saveRef(l.src), Propagated: l.propagated}
		if l.prev != nil {
			sl.Prev = l.prev.serial
		}
		c.Limited = append(c.Limited, sl)
	}
	for _, ns := range s.terminated {
		c.Terminated = append(c.Terminated, *saveRef(ns))
	}
	for _, f := range s.flights {
		c.Flights = append(c.Flights, savedFlight{savedRef: *saveRef(f.ns), Item: f.item, Order: f.order})
	}
	for _, u := range s.held {
		if u.try().status == VisitHeld {
			c.Held = append(c.Held, savedFlight{savedRef: *saveRef(u.ns), Item: u.item})
		}
	}
	return json.Marshal(c)
}

func saveRef(ns *nodeState) *savedRef {
	if ns == nil {
		return nil
	}
	return &savedRef{N: ns.n, V: ns.f.serial}
}

func saveTry(t *try) savedTry {
	c := savedTry{Status: t.status, No: t.no, Gen: t.gen, Lost: t.lost, Failed: t.failed, Intent: t.intent, Found: t.found, Due: t.due}
	if w := t.wait; w != nil {
		c.Wait, c.Order = w.out, w.order
		for _, sl := range w.slots {
			c.Slots = append(c.Slots, (*savedSlot)(sl))
		}
	}
	return c
}

func saveFrame(f *frame) savedFrame {
	c := savedFrame{Region: f.region, Serial: f.serial, Open: f.open, BackSeen: f.backSeen, BackLive: f.backLive,
		TokenEdge: f.tokenEdge + 1, TokenSrc: saveRef(f.tokenSrc), Messages: f.messages}
	if f.parent != nil {
		c.Parent = f.parent.serial
	}
	if f.prev != nil {
		c.Prev = f.prev.serial
	}
	for i := range f.nodes {
		c.Nodes = append(c.Nodes, saveNode(&f.nodes[i]))
	}
	for i := range f.edges {
		es := &f.edges[i]
		c.Edges = append(c.Edges, savedEdge{State: es.state, Moot: es.moot, Src: saveRef(es.src), Propagated: es.propagated})
	}
	for i := range f.insts {
		in := &f.insts[i]
		si := savedInstance{Join: savedJoin{in.join.seen, in.join.live, in.join.ran}, Opened: in.opened, Closed: in.closed,
			Active: in.active, Limited: in.limited, Entries: in.entries, Last: in.last}
		for _, x := range in.exits {
			si.Exits = append(si.Exits, savedExit{Src: saveRef(x.src), Live: x.live, Propagated: x.propagated})
		}
		c.Insts = append(c.Insts, si)
	}
	return c
}

func saveNode(ns *nodeState) savedNode {
	c := savedNode{savedTry: saveTry(&ns.try), N: ns.n, Moot: ns.moot, Join: savedJoin{ns.join.seen, ns.join.live, ns.join.ran},
		Values: ns.values, Err: ns.err, Key: ns.key, Note: ns.note, Superseded: ns.superseded, Before: ns.before, Reused: ns.reused, Kept: ns.kept,
		Entered: ns.enteredAt, Ended: ns.endedAt}
	if c.Status == VisitPending {
		c.Status = ""
	}
	if m := ns.m; m != nil {
		c.Map = &savedMap{List: m.list, Next: m.next, Open: m.open, Done: m.done, Bad: m.bad}
		for i := range m.next {
			c.Map.Items = append(c.Map.Items, savedItem{savedTry: saveTry(&m.items[i].try), Result: m.items[i].result})
		}
	}
	return c
}

// restorer turns a savedState back into a State.
type restorer struct {
	s     *State
	err   error
	waits []restoredWait
}

type restoredWait struct {
	u unit
	w *waitState
}

func (r *restorer) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: snapshot: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
}

func (r *restorer) visit(ref *savedRef) *nodeState {
	if ref == nil {
		return nil
	}
	if ref.N < 0 || int(ref.N) >= len(r.s.p.nodes) {
		r.fail("node %d", ref.N)
		return nil
	}
	ns := r.s.lookup(r.s.p.nodes[ref.N].ID, int(ref.V))
	if ns == nil {
		r.fail("visit %d of %s", ref.V, r.s.p.nodes[ref.N].ID)
	}
	return ns
}

// Restore rebuilds a state from a snapshot that was made with the same program, by this or an earlier machine
// version. The snapshot of a run whose graph has changed contains the graph; p may then be the program that
// the run began with or any later one, and gives actors and limits. The graph is compiled within ctx, whose
// error is returned if it ends first.
func Restore(ctx context.Context, p *Program, snapshot []byte) (st *State, err error) {
	defer func() { err = corrupt(recover(), err) }()
	var c savedState
	if err := json.Unmarshal(snapshot, &c); err != nil {
		return nil, fmt.Errorf("%w: snapshot: %w", ErrCorrupt, err)
	}
	if c.Version < 1 || c.Version > MachineVersion {
		return nil, fmt.Errorf("%w: snapshot of machine version %d", ErrCorrupt, c.Version)
	}
	if c.Graph != nil {
		if p, err = p.recompiled(ctx, c.Graph); err != nil {
			return nil, fmt.Errorf("snapshot: %w", err)
		}
	}
	s := New(p, c.RunID)
	s.seq, s.revision, s.removed = c.Seq, c.Revision, c.Removed
	if !c.Begun {
		return s, nil
	}
	if err := s.applyBegin(&c.Input, c.Context); err != nil {
		return nil, err
	}
	s.status, s.paused, s.reason, s.drain, s.failed, s.failure, s.end = c.Status, c.Paused, c.Reason, c.Drain, c.Failed, c.Failure, c.End
	s.usage, s.granted, s.order = c.Usage, c.Granted, c.Order
	s.stopping, s.stepping = c.Stopping, c.Stepping
	if c.Budget != nil && c.Spent != nil {
		s.budget, s.spent, s.unsettled = c.Budget, *c.Spent, c.Unsettled
	}
	s.noRoom = c.Refused
	for k, raw := range c.Vars {
		v, err := newStateVar(StateKey{Reducer: p.g.State[k].Reducer, Initial: raw})
		if err != nil {
			return nil, fmt.Errorf("%w: snapshot: state %q: %w", ErrCorrupt, k, err)
		}
		s.vars[k] = v
	}
	r := &restorer{s: s}
	r.frames(&c)
	if r.err == nil {
		r.rest(&c)
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// frames makes all frames before it links them, because they refer to each other.
func (r *restorer) frames(c *savedState) {
	s := r.s
	made := make([]*frame, len(c.Frames))
	for i := range c.Frames {
		sf := &c.Frames[i]
		if made[i] = r.makeFrame(sf); r.err != nil {
			return
		}
	}
	for i := range c.Frames {
		r.linkFrame(made[i], &c.Frames[i])
	}
	for i := range c.Frames {
		if r.err == nil {
			r.fillFrame(made[i], &c.Frames[i])
		}
	}
	if r.err != nil {
		return
	}
	for _, f := range made {
		for i := range f.nodes {
			s.propagateAgain(&f.nodes[i])
		}
	}
}

func (r *restorer) makeFrame(sf *savedFrame) *frame {
	s := r.s
	if sf.Region == 0 {
		return s.root
	}
	if sf.Region < 0 || int(sf.Region) >= len(s.p.regions) {
		r.fail("region %d", sf.Region)
		return nil
	}
	if !s.p.regions[sf.Region].token {
		f := s.newFrame(sf.Region, sf.Serial, nil, nil, nil)
		if s.frames == nil {
			s.frames = map[int32][]*frame{}
		}
		s.frames[sf.Region] = append(s.frames[sf.Region], f)
		return f
	}
	if len(sf.Nodes) != 1 || len(sf.Edges) != 1 || sf.Nodes[0].N < 0 || int(sf.Nodes[0].N) >= len(s.p.nodes) {
		r.fail("visit of an irreducible loop")
		return nil
	}
	n := sf.Nodes[0].N
	f := &frame{region: sf.Region, serial: sf.Serial, tokenEdge: sf.TokenEdge - 1, edges: make([]edgeState, 1)}
	f.nodes = []nodeState{{f: f, n: n, try: try{status: VisitPending, pos: -1}}}
	if s.tokens == nil {
		s.tokens = map[int32][]*nodeState{}
	}
	s.tokens[n] = append(s.tokens[n], &f.nodes[0])
	return f
}

func (r *restorer) linkFrame(f *frame, sf *savedFrame) {
	f.open, f.backSeen, f.backLive = sf.Open, sf.BackSeen, sf.BackLive
	if sf.Region == 0 {
		return
	}
	reg := &r.s.p.regions[sf.Region]
	if f.parent = r.s.frameAt(reg.parent, int(sf.Parent)); f.parent == nil {
		r.fail("frame %d of region %d has no parent", sf.Serial, sf.Region)
		return
	}
	f.inst = &f.parent.insts[reg.slot]
	if sf.Prev > 0 {
		f.prev = r.s.frameAt(sf.Region, int(sf.Prev))
	}
}

func (r *restorer) fillFrame(f *frame, sf *savedFrame) {
	if len(sf.Nodes) != len(f.nodes) || len(sf.Edges) != len(f.edges) || len(sf.Insts) != len(f.insts) {
		r.fail("frame %d of region %d does not fit the program", sf.Serial, sf.Region)
		return
	}
	f.tokenSrc, f.messages = r.visit(sf.TokenSrc), sf.Messages
	for i := range sf.Nodes {
		r.fillNode(&f.nodes[i], &sf.Nodes[i])
	}
	for i := range sf.Edges {
		e := &sf.Edges[i]
		f.edges[i] = edgeState{src: r.visit(e.Src), propagated: e.Propagated, state: e.State, moot: e.Moot}
	}
	for i := range sf.Insts {
		in, si := &f.insts[i], &sf.Insts[i]
		in.join = joinCount{si.Join.Seen, si.Join.Live, si.Join.Ran}
		in.opened, in.closed, in.active, in.limited, in.entries, in.last = si.Opened, si.Closed, si.Active, si.Limited, si.Entries, si.Last
		if len(si.Exits) != len(in.exits) {
			r.fail("loop exits")
			return
		}
		for k, x := range si.Exits {
			in.exits[k] = exitState{src: r.visit(x.Src), live: x.Live, propagated: x.Propagated}
		}
	}
}

func (r *restorer) fillNode(ns *nodeState, sn *savedNode) {
	r.fillTry(unit{ns, 0}, &ns.try, &sn.savedTry)
	if ns.status == "" {
		ns.status = VisitPending
	}
	ns.moot, ns.join = sn.Moot, joinCount{sn.Join.Seen, sn.Join.Live, sn.Join.Ran}
	ns.values, ns.err, ns.key, ns.note, ns.superseded, ns.before = sn.Values, sn.Err, sn.Key, sn.Note, sn.Superseded, sn.Before
	ns.enteredAt, ns.endedAt = sn.Entered, sn.Ended
	ns.reused, ns.kept = sn.Reused, sn.Kept
	r.s.watched = r.s.watched || len(ns.seen()) > 0 || len(ns.workflows()) > 0
	if sn.Map == nil {
		return
	}
	m := &mapState{list: sn.Map.List, next: sn.Map.Next, open: sn.Map.Open, done: sn.Map.Done, bad: sn.Map.Bad}
	m.items = make([]itemState, len(m.list))
	ns.m = m
	if len(sn.Map.Items) != m.next || m.next > len(m.list) {
		r.fail("items of a map")
		return
	}
	for i := range m.items {
		m.items[i].pos = -1
		if i < m.next {
			m.items[i].result = sn.Map.Items[i].Result
			r.fillTry(unit{ns, int32(i + 1)}, &m.items[i].try, &sn.Map.Items[i].savedTry)
		}
	}
}

func (r *restorer) fillTry(u unit, t *try, st *savedTry) {
	t.status, t.no, t.gen, t.lost, t.intent, t.found, t.failed = st.Status, st.No, st.Gen, st.Lost, st.Intent, st.Found, st.Failed
	switch t.status {
	case VisitBackoff, VisitWaiting:
		t.due = st.Due
		r.s.suspended++
		if !t.due.IsZero() {
			r.s.timers.push(timer{due: t.due, unit: u})
		}
		if t.status == VisitWaiting {
			r.fillWait(u, st)
		}
	case VisitReconciliation:
		r.s.unknown++
	}
}

func (r *restorer) fillWait(u unit, st *savedTry) {
	if st.Wait == nil || st.Wait.Wait == nil || st.Wait.Wait.kind() == "" {
		r.fail("a visit waits for nothing")
		return
	}
	w := newWait(st.Wait)
	w.order = st.Order
	if len(st.Slots) != len(w.slots) {
		r.fail("children of a wait")
		return
	}
	for i, sl := range st.Slots {
		if sl != nil {
			w.slots[i] = (*ChildSlot)(sl)
			w.left--
		}
	}
	r.waits = append(r.waits, restoredWait{u, w})
}

func (r *restorer) rest(c *savedState) {
	s := r.s
	if len(c.Latest) != len(s.latest) {
		r.fail("latest visits")
		return
	}
	for i, v := range c.Latest {
		if v > 0 {
			s.latest[i] = r.visit(&savedRef{int32(i), v})
		}
	}
	// Waits receive signals in the order in which they began.
	slices.SortStableFunc(r.waits, func(a, b restoredWait) int { return cmp.Compare(a.w.order, b.w.order) })
	for _, x := range r.waits {
		s.addWait(x.u, x.w)
	}
	for name, list := range c.Signals {
		for _, payload := range list {
			s.applySignal(name, payload)
		}
	}
	for n, messages := range c.Inboxes {
		if n < 0 || int(n) >= len(s.p.nodes) || s.p.nodes[n].inbox == nil {
			r.fail("messages of a node without an inbox")
			return
		}
		for _, m := range messages {
			s.applyDelivery(n, m)
		}
	}
	for i := range c.Terminated {
		s.terminated = append(s.terminated, r.visit(&c.Terminated[i]))
	}
	for _, l := range c.Limited {
		if l.Region < 1 || int(l.Region) >= len(s.p.regions) {
			r.fail("region of a limit")
			return
		}
		o := limitedVisit{region: l.Region, node: l.Node, edge: l.Edge, src: r.visit(l.Src), propagated: l.Propagated}
		if o.parent = s.frameAt(s.p.regions[l.Region].parent, int(l.Parent)); o.parent == nil {
			r.fail("parent of a limit")
			return
		}
		if l.Prev > 0 {
			o.prev = s.frameAt(l.Region, int(l.Prev))
		}
		s.limited = append(s.limited, o)
	}
	for _, f := range c.Flights {
		u, ok := r.unit(f)
		if !ok {
			return
		}
		u.try().pos = int32(len(s.flights))
		s.flights = append(s.flights, flight{u, f.Order})
	}
	for _, f := range c.Held {
		u, ok := r.unit(f)
		if !ok {
			return
		}
		s.held = append(s.held, u)
	}
}

func (r *restorer) unit(f savedFlight) (unit, bool) {
	ns := r.visit(&f.savedRef)
	if ns == nil || f.Item < 0 || f.Item > 0 && (ns.m == nil || int(f.Item) > len(ns.m.items)) {
		r.fail("attempt in flight")
		return unit{}, false
	}
	return unit{ns, f.Item}, true
}

// entered reports whether the visit has arguments.
func (ns *nodeState) entered() bool {
	return (ns.no > ns.before || ns.m != nil || ns.reused) && ns.status != VisitPending
}

// propagateAgain computes a visit's arguments again from its inputs, after those of the inputs.
func (s *State) propagateAgain(ns *nodeState) {
	todo := []*nodeState{ns}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		if !v.entered() || v.propagated {
			todo = todo[:len(todo)-1]
			continue
		}
		n := len(todo)
		for _, src := range s.inputsOf(v) {
			if !src.propagated && src.entered() {
				todo = append(todo, src)
			}
		}
		if len(todo) > n {
			continue
		}
		v.args, v.named = s.propagate(v)
		v.propagated = true
		todo = todo[:n-1]
	}
}

func (s *State) inputsOf(ns *nodeState) []*nodeState {
	if s.p.regions[ns.f.region].token {
		if ns.f.tokenSrc == nil {
			return nil
		}
		return []*nodeState{ns.f.tokenSrc}
	}
	edges, f := s.sources(ns)
	var out []*nodeState
	for _, e := range edges {
		if es := &f.edges[s.p.localEdge[e]]; es.state == edgeUsed {
			out = append(out, es.src)
		}
	}
	return out
}
