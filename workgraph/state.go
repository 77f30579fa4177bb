package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sort"
	"time"
)

// State is the whole position of one run. It is not safe for concurrent use; the caller holds the run's lock.
// Memory grows with the visits of the run, the cost of a command with the edges it touches.
//
// Two ways lead in. Advance takes a command, decides, changes the state and returns the events that record
// the decision: the caller may advance further at once, but must make the events durable, in order, before it
// acts on the Effects that came with them or tells any reader. If the events can never be made durable the
// State must be discarded and rebuilt. Apply takes an event that was journaled earlier and decides nothing.
type State struct {
	p     *Program
	runID string
	seq   int64

	status Status
	paused bool
	// stopping says that loops are to end, stepping that the run pauses after one more round of one.
	stopping, stepping bool
	reason             string // of the pause
	drain              string // why nothing starts any more: one of the drain constants
	failed             *Ref
	failure            *Error
	end                *RunEnd

	input   Input
	context json.RawMessage
	vars    map[string]*stateVar
	usage   []Usage
	spending

	root *frame
	// frames are those of each loop by serial number. tokens are the visits of nodes in irreducible loops.
	frames map[int32][]*frame
	tokens map[int32][]*nodeState
	// latest is the last completed visit of every node.
	latest  []*nodeState
	granted map[int32]int // visits granted beyond max_visits by Resume
	limited []limitedVisit
	// terminated are the visits that ended the run with TERMINATE.
	terminated []*nodeState

	flights   []flight
	order     int64 // counts starts, waits, and visits that begin and complete
	held      []unit
	timers    timerHeap
	suspended int // visits and items in back-off or waiting
	expected
	at      time.Time // of the newest event
	unknown int       // visits and items in need of reconciliation

	// revision counts the changes of the graph. removed are the last attempts, by node id, of nodes that an
	// amendment has removed.
	revision int64
	removed  map[string]attemptNumbers
	approvalState

	// evaluates is what OnEvaluation set.
	evaluates func() (context.Context, context.CancelFunc)

	scratch
}

// spending is the budget of a run and what counts against it.
type spending struct {
	// budget is nil for a run without one. spent is then not counted.
	budget *Budget
	spent  Spent
	// unsettled is usage that counts against a cap in money and has no price yet.
	unsettled []Unsettled
	// noRoom is the first call since the run went on last for which a cap above it left no room, or
	// nil.
	noRoom *Refused
}

// expected is what a run waits for, and what has come before it waits for it.
type expected struct {
	// waits are the open ones, in no order. asks are the interrupts among them by id, and listeners the waits
	// for signals by name.
	waits     []unit
	asks      map[string]unit
	listeners map[string][]listener
	// signals are those that no visit has taken yet, by name.
	signals     map[string][]json.RawMessage
	signalCount int
	signalBytes int
	// inboxes by node, created on first use.
	inboxes map[int32]*inboxState
}

// approvalState is what was approved, and what follows from that.
type approvalState struct {
	// watched says that some approval covers values of the state or workflows. approvedVisits are the visits
	// whose approval was granted, and approved are those of them that cover such values. outdated are, by
	// key, the nodes that follow from an approval of another value. All are computed on demand and nil until
	// then.
	watched        bool
	approvedVisits []*nodeState
	approved       []*nodeState
	outdated       map[string][]bool
}

// scratch is what the current command works with. It means nothing between two commands.
type scratch struct {
	evaluations evaluations
	ev          *Event
	evs         []Event
	fxs         Effects
	steps       []Step // chunks from which steps, starts and sources are allocated
	starts      []Start
	upstreams   []Upstream
	fx          *Effects
	adds        adding
	edgeQ       []edgeTask
	instQ       []instTask
	expandQ     []expansionTask
	doubts      []doubt
	// woken is the visit or item whose wait ended last, and woke its outcome.
	woken Ref
	woke  *Outcome
	// reuse are outcomes of another run by visit, while the run begins. reused counts their bytes in the
	// newest event.
	reuse  map[Ref]*ReusedVisit
	reused int
	// wantPause is the reason for a pause that came up in this command.
	wantPause string
	// halted says that this command has stopped new starts because of the budget.
	halted bool
}

const (
	drainFail      = "FAIL"
	drainTerminate = "TERMINATE"
	drainCancel    = "CANCEL"
	drainDeadline  = "DEADLINE"
)

// frame is the whole graph, or one round of one loop. It holds the state of the nodes directly in it and of
// the edges that it delivers.
type frame struct {
	region   int32
	serial   int32 // the visit number of its nodes
	parent   *frame
	prev     *frame // the frame whose BACK edges opened this one
	inst     *instance
	nodes    []nodeState
	edges    []edgeState
	insts    []instance // one per child region
	open     int32      // nodes and child loops that have not ended
	backSeen int32
	backLive int32
	// tokenEdge and tokenSrc are the only input of a visit in an irreducible loop. tokenEdge is -1 for a
	// start node.
	tokenEdge int32
	tokenSrc  *nodeState
	// messages are those that started a visit of an inbox, until the visit is over.
	messages []Message
}

// instance is one loop within one frame of the enclosing region, from the first entry to the last exit.
type instance struct {
	join    joinCount // of the edges that enter
	opened  bool
	closed  bool
	active  int32 // frames with open nodes or loops
	limited int32
	entries int32 // token loops: entering edges decided
	last    int32 // serial of the newest frame
	exits   []exitState
}

type exitState struct {
	src        *nodeState
	propagated *Input
	live       bool
}

type joinCount struct {
	seen, live int32
	ran        bool // the source of a dead edge had run
}

type edgeState struct {
	src        *nodeState
	propagated *Input
	state      uint8
	moot       bool // the target no longer needs it
}

const (
	edgeOpen uint8 = iota
	edgeDead
	edgeLive
	edgeUsed // live and an input of its target's visit
)

// try is the state of a visit, or of one item, with its attempts.
type try struct {
	status VisitStatus
	no     int32 // attempt
	gen    int32
	lost   int32 // attempts that do not count against retry.max_attempts
	intent bool
	// found says that an attempt whose outcome was unknown was found to have been performed.
	found bool
	pos   int32 // index in flights when in flight
	due   time.Time
	wait  *waitState
	// failed is the error of the previous attempt, while another attempt is to come or the outcome is
	// unknown.
	failed *Error
}

// recordError keeps the error of an attempt for State.Why, or clears it if err is nil.
func (t *try) recordError(err *Error) {
	if t.failed = nil; err != nil {
		t.failed = &Error{Type: err.Type, Reason: err.Reason, Message: err.Message, Lost: err.Lost}
	}
}

type nodeState struct {
	try
	f      *frame
	n      int32
	moot   int32 // outgoing edges that are not needed
	join   joinCount
	args   []json.RawMessage // propagated
	named  map[string]json.RawMessage
	values []json.RawMessage
	err    *Error
	key    string
	note   string
	m      *mapState
	// superseded says that a later visit of an irreducible loop went on from here.
	superseded bool
	// enteredAt and endedAt are positions in State.order at which the visit began to run and completed.
	enteredAt, endedAt int64
	// before counts the attempts that amendments have canceled.
	before     int32
	propagated bool // scratch of Restore
	reused     bool // its outcome is that of another run
	kept       *savedOutcome
}

type mapState struct {
	list  []json.RawMessage
	bound map[string]json.RawMessage // once an item has begun
	items []itemState
	next  int // index of the next item to start
	open  int // items started and not ended
	done  int
	bad   int // failed items among done
}

type itemState struct {
	try
	result json.RawMessage // an object with ok, error or abstained
}

type unit struct {
	ns   *nodeState
	item int32
}

type flight struct {
	unit
	order int64
}

type limitedVisit struct {
	region int32
	parent *frame
	prev   *frame
	node   int32
	// edge, src and propagated are the edge, its source and its input that arrived in an irreducible loop.
	edge       int32
	src        *nodeState
	propagated *Input
}

type edgeTask struct {
	e          int32
	src        *nodeState
	live       bool
	note       string
	propagated *Input
}

// instTask checks whether a loop has ended.
type instTask struct {
	region int32
	parent *frame
}

// New is the state of a run before its first event.
func New(p *Program, runID string) *State {
	return &State{p: p, runID: runID, status: StatusPending, latest: make([]*nodeState, len(p.nodes))}
}

// RunID is the id the state was made with.
func (s *State) RunID() string { return s.runID }

// Seq is the number of the last event.
func (s *State) Seq() int64 { return s.seq }

// Status is where the run stands, with the reason of a pause, a drain or the end.
func (s *State) Status() (Status, string) {
	switch {
	case s.end != nil:
		return s.end.Status, s.end.Reason
	case s.drain != "":
		return StatusDraining, s.drain
	case s.paused:
		return StatusPaused, s.reason
	}
	return s.status, ""
}

// Draining reports that nothing new may start. An attempt that was given out and has not begun must not
// begin; the caller reports it by Ended with a NOT_PERFORMED error.
func (s *State) Draining() bool { return s.drain != "" }

// Stopping reports that the loops of the run were asked to end.
func (s *State) Stopping() bool { return s.stopping }

// InFlight counts attempts that were started and have not ended.
func (s *State) InFlight() int { return len(s.flights) }

// End is how the run ended, or nil.
func (s *State) End() *RunEnd { return s.end }

// Usage sums up what every attempt reported, by provider and model, in the order of first use.
func (s *State) Usage() []Usage { return s.usage }

// NextTimer is the earliest time at which TimerDue would do something. ok is false if no timer is set.
func (s *State) NextTimer() (at time.Time, ok bool) {
	s.timers.prune()
	if len(s.timers) == 0 || s.drain != "" || s.end != nil {
		return time.Time{}, false
	}
	return s.timers[0].due, true
}

// Outstanding lists every attempt in flight, in the order of their starts. After Recover the new owner must
// start these again.
func (s *State) Outstanding() []Start {
	fs := append([]flight(nil), s.flights...)
	sort.Slice(fs, func(i, j int) bool { return fs[i].order < fs[j].order })
	out := make([]Start, len(fs))
	for i, f := range fs {
		s.makeStart(&out[i], f.ns, f.item)
		out[i].Canceled = f.try().status == VisitCanceling
	}
	return out
}

// Starting is the attempt in flight at a visit or an item, as Outstanding lists it. ok is false if none is.
func (s *State) Starting(ref Ref) (st Start, ok bool) {
	for i := range s.flights {
		f := &s.flights[i]
		if s.ref(f.ns, f.item) != ref {
			continue
		}
		s.makeStart(&st, f.ns, f.item)
		st.Canceled = f.try().status == VisitCanceling
		return st, true
	}
	return Start{}, false
}

// VisitInfo is one visit, or one item of a visit, as a reader sees it.
type VisitInfo struct {
	Ref
	Status     VisitStatus
	Attempt    int
	Generation int
	Due        time.Time // end of the back-off or wait
	Wait       WaitKind  // of a visit that waits
	Values     []json.RawMessage
	Error      *Error
	Note       string // why it was skipped
	Reused     bool   // its outcome is that of another run; there was no attempt
	// Of is the number of the last attempt that may be made.
	Of int
}

// Visits calls yield for every visit that the run has reached or skipped, and for every started item, node by
// node in declared order, until yield returns false.
func (s *State) Visits(yield func(VisitInfo) bool) {
	if s.root == nil {
		return
	}
	for i := range s.p.nodes {
		for _, ns := range s.visitsOf(int32(i)) {
			if ns.status == VisitPending {
				continue
			}
			if !yield(s.info(ns)) {
				return
			}
			if ns.m == nil {
				continue
			}
			for k := range ns.m.items {
				if ns.m.items[k].status == "" {
					continue
				}
				if !yield(s.itemInfo(ns, k)) {
					return
				}
			}
		}
	}
}

// Visit returns the visit or item that ref names, if the run has reached or skipped it.
func (s *State) Visit(ref Ref) (v VisitInfo, ok bool) {
	ns := s.lookup(ref.Node, ref.Visit)
	switch {
	case ns == nil || ns.status == VisitPending:
		return v, false
	case ref.Item == 0:
		return s.info(ns), true
	case ns.m == nil || ref.Item < 1 || ref.Item > len(ns.m.items) || ns.m.items[ref.Item-1].status == "":
		return v, false
	}
	return s.itemInfo(ns, ref.Item-1), true
}

func (s *State) itemInfo(ns *nodeState, k int) VisitInfo {
	it := &ns.m.items[k]
	return VisitInfo{Ref: s.ref(ns, int32(k+1)), Status: it.status, Attempt: int(it.no), Generation: int(it.gen),
		Due: it.due, Wait: it.waitKind(), Values: []json.RawMessage{it.result}}
}

func (s *State) info(ns *nodeState) VisitInfo {
	return VisitInfo{Ref: s.ref(ns, 0), Status: ns.status, Attempt: int(ns.no), Generation: int(ns.gen), Due: ns.due,
		Wait: ns.waitKind(), Values: ns.values, Error: ns.err, Note: ns.note, Reused: ns.reused,
		Of: s.lastAttempt(unit{ns: ns})}
}

// lastAttempt is the number of the last attempt that may be made of a unit. Lost attempts, and those that
// amendments canceled, do not count.
func (s *State) lastAttempt(u unit) int {
	return s.node(u.ns).maxAttempts + int(u.ns.before) + int(u.try().lost)
}

func (t *try) waitKind() WaitKind {
	if t.wait == nil {
		return ""
	}
	return t.wait.kind
}

// visitsOf lists the visits of a node in their order.
func (s *State) visitsOf(n int32) []*nodeState {
	out := make([]*nodeState, s.visitCount(n))
	for i := range out {
		out[i] = s.visitAt(n, i)
	}
	return out
}

// visitCount is how many visits visitAt has of a node.
func (s *State) visitCount(n int32) int {
	r := s.p.nodes[n].region
	switch {
	case r == 0:
		return 1
	case s.p.regions[r].token:
		return len(s.tokens[n])
	}
	if round := int(s.p.nodes[n].round); round > 0 {
		if round > len(s.frames[r]) {
			return 0
		}
		return 1
	}
	return len(s.frames[r])
}

// visitAt is a visit of a node by its place among all of them. A loop may have many, so who needs the last
// ones alone does not list them.
func (s *State) visitAt(n int32, i int) *nodeState {
	r := s.p.nodes[n].region
	switch {
	case r == 0:
		return &s.root.nodes[s.p.localNode[n]]
	case s.p.regions[r].token:
		return s.tokens[n][i]
	}
	if round := int(s.p.nodes[n].round); round > 0 {
		i = round - 1
	}
	return &s.frames[r][i].nodes[s.p.localNode[n]]
}

// StateValues is the run's state by key.
func (s *State) StateValues() map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(s.vars))
	for k, v := range s.vars {
		out[k] = v.value()
	}
	return out
}

// StateValue is one value of the run's state. It is nil if the state has no such key.
func (s *State) StateValue(key string) json.RawMessage {
	if v, ok := s.vars[key]; ok {
		return v.value()
	}
	return nil
}

// lookup finds a visit. It is nil if there is none.
func (s *State) lookup(node string, visit int) *nodeState {
	n, ok := s.p.index[node]
	if !ok || s.root == nil {
		return nil
	}
	r := s.p.nodes[n].region
	switch {
	case r == 0 && visit == 1:
		return &s.root.nodes[s.p.localNode[n]]
	case r == 0 || visit < 1:
		return nil
	case s.p.regions[r].token:
		if visit > len(s.tokens[n]) {
			return nil
		}
		return s.tokens[n][visit-1]
	case visit > len(s.frames[r]), s.p.nodes[n].round > 0 && int(s.p.nodes[n].round) != visit:
		return nil
	}
	return &s.frames[r][visit-1].nodes[s.p.localNode[n]]
}

// find finds the unit that a Ref names.
func (s *State) find(r Ref) (unit, bool) {
	ns := s.lookup(r.Node, r.Visit)
	if ns == nil || r.Item < 0 || (ns.m == nil) != (r.Item == 0) || r.Item > 0 && r.Item > len(ns.m.items) {
		return unit{}, false
	}
	return unit{ns, int32(r.Item)}, true
}

func (u unit) try() *try {
	if u.item == 0 {
		return &u.ns.try
	}
	return &u.ns.m.items[u.item-1].try
}

func (s *State) ref(ns *nodeState, item int32) Ref {
	return Ref{Node: s.p.nodes[ns.n].ID, Visit: int(ns.f.serial), Item: int(item)}
}

func (s *State) node(ns *nodeState) *pnode { return &s.p.nodes[ns.n] }

// resolved reports whether the visit is over.
func (ns *nodeState) resolved() bool {
	switch ns.status {
	case VisitCompleted, VisitAbstained, VisitFailed, VisitSkipped, VisitCanceled:
		return true
	}
	return false
}

// seed is a hash that replaces randomness in back-offs, so that replays agree.
func (s *State) seed(ns *nodeState, item int32, attempt int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%d/%d/%d", s.runID, s.node(ns).ID, ns.f.serial, item, attempt)
	return h.Sum64()
}

// timer is one entry of the heap. It is void if the unit's due time has changed.
type timer struct {
	due time.Time
	unit
	order int64
}

func (t timer) valid() bool {
	tr := t.try()
	return (tr.status == VisitBackoff || tr.status == VisitWaiting) && tr.due.Equal(t.due)
}

type timerHeap []timer

func (h timerHeap) less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].order < h[j].order
}

func (h *timerHeap) push(t timer) {
	*h = append(*h, t)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if !a.less(i, up) {
			break
		}
		a[i], a[up] = a[up], a[i]
		i = up
	}
}

func (h *timerHeap) pop() timer {
	a := *h
	top := a[0]
	n := len(a) - 1
	a[0], a[n] = a[n], timer{}
	a = a[:n]
	for i := 0; ; {
		small := i
		for _, c := range [...]int{2*i + 1, 2*i + 2} {
			if c < n && a.less(c, small) {
				small = c
			}
		}
		if small == i {
			break
		}
		a[i], a[small] = a[small], a[i]
		i = small
	}
	*h = a
	return top
}

func (h *timerHeap) prune() {
	for len(*h) > 0 && !(*h)[0].valid() {
		h.pop()
	}
}
