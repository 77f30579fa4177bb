package workgraph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// MachineVersion is stored with every event and run. A binary replays events of its own version and of every
// earlier one.
const MachineVersion = 1

// EventKind names what happened.
type EventKind string

// The kinds of journal events. AttemptStarted is written before the actor is called, for UNSAFE attempts
// only.
const (
	RunStarted         EventKind = "RUN_STARTED"
	AttemptStarted     EventKind = "ATTEMPT_STARTED"
	AttemptEnded       EventKind = "ATTEMPT_ENDED"
	TimerFired         EventKind = "TIMER_FIRED"
	Reconciled         EventKind = "RECONCILED"
	CancelRequested    EventKind = "CANCEL_REQUESTED"
	RunPaused          EventKind = "RUN_PAUSED"
	RunResumed         EventKind = "RUN_RESUMED"
	RunEnded           EventKind = "RUN_ENDED"
	ChildClosed        EventKind = "CHILD_ENDED"
	InterruptClosed    EventKind = "INTERRUPT_CLOSED"
	CompletionReceived EventKind = "COMPLETION_RECEIVED"
	SignalReceived     EventKind = "SIGNAL_RECEIVED"
	MessageReceived    EventKind = "MESSAGE_DELIVERED"
	GraphAmended       EventKind = "GRAPH_AMENDED"
	DeadlineReached    EventKind = "DEADLINE_PASSED"
	// VisitsReused continues the list of reused visits of RUN_STARTED.
	VisitsReused EventKind = "VISITS_REUSED"
	// BudgetChanged changes the budget without ending a pause: the run goes on, or stays paused for another
	// reason.
	BudgetChanged EventKind = "BUDGET_CHANGED"
	// UsageSettled prices usage that had no price when it was used.
	UsageSettled EventKind = "USAGE_SETTLED"
	// StopRequested asks the loops of the run to end.
	StopRequested EventKind = "STOP_REQUESTED"
)

// Event is one entry of a run's journal: what happened and, in Steps, every decision that followed. A replay
// applies the steps and evaluates nothing. Events are immutable once made. Seq counts from 1 within a run,
// without gaps.
type Event struct {
	Version int       `json:"v"`
	Seq     int64     `json:"seq"`
	Kind    EventKind `json:"kind"`
	At      time.Time `json:"at"`

	// Ref names the attempt in events of the ATTEMPT, TIMER and RECONCILED kinds, and the waiting visit in
	// events that end a wait.
	Ref
	Attempt int `json:"attempt,omitempty"`
	// Generation is that of the call that ATTEMPT_STARTED announces. EffectKey makes the call's effect key of
	// it.
	Generation int `json:"generation,omitempty"`

	Input   *Input          `json:"input,omitempty"`   // RUN_STARTED
	Context json.RawMessage `json:"context,omitempty"` // RUN_STARTED
	// Outcome and Error are as the actor gave them: ATTEMPT_ENDED, RECONCILED, COMPLETION_RECEIVED.
	Outcome *Outcome `json:"outcome,omitempty"`
	Error   *Error   `json:"error,omitempty"`
	// Reason: CANCEL_REQUESTED, STOP_REQUESTED, RUN_PAUSED, RUN_RESUMED, BUDGET_CHANGED. In TIMER_FIRED it is
	// INTERRUPT_EXPIRED, COMPLETION_EXPIRED or SIGNAL_EXPIRED if such a wait ended, else empty.
	Reason string  `json:"reason,omitempty"`
	By     string  `json:"by,omitempty"`  // RECONCILED, INTERRUPT_CLOSED, COMPLETION_RECEIVED: the caller
	End    *RunEnd `json:"end,omitempty"` // RUN_ENDED
	// Step says that the run pauses again after one round of a loop: RUN_RESUMED.
	Step bool `json:"step,omitempty"`

	Child *ChildSlot `json:"child,omitempty"` // CHILD_ENDED
	Usage []Usage    `json:"usage,omitempty"` // CHILD_ENDED: the child's
	// Spent is what counts against budgets: CHILD_ENDED, if the child had a budget.
	Spent *Spent `json:"spent,omitempty"`
	// Budget is the budget from here on, if it changed: RUN_STARTED, RUN_RESUMED, BUDGET_CHANGED.
	Budget *Budget `json:"budget,omitempty"`
	// Unsettled is usage to price from here on. In RUN_RESUMED and BUDGET_CHANGED it is what was used before
	// a first cap in money; in CHILD_ENDED it is what the child had not settled. Usage of calls says by
	// itself whether it is unsettled.
	Unsettled []Unsettled `json:"unsettled,omitempty"`
	// Costs are the prices of the oldest unsettled usage, in nano-USD: USAGE_SETTLED. Nil stands for a price
	// that is not known.
	Costs []*int64 `json:"costs,omitempty"`
	// Closed: INTERRUPT_CLOSED by an answer, TIMER_FIRED by the expiry of an interrupt.
	Closed   *ClosedInterrupt `json:"closed,omitempty"`
	Signal   string           `json:"signal,omitempty"`   // SIGNAL_RECEIVED
	Payload  json.RawMessage  `json:"payload,omitempty"`  // SIGNAL_RECEIVED
	Message  *Message         `json:"message,omitempty"`  // MESSAGE_DELIVERED: to Node or all that take it
	Graph    *Graph           `json:"graph,omitempty"`    // GRAPH_AMENDED: the new graph as a whole
	Revision int64            `json:"revision,omitempty"` // GRAPH_AMENDED: that of the replaced graph

	Steps []Step `json:"steps,omitempty"`
}

// Ref names a visit, or one item of a mapped visit: the Visit-th time that the run reached Node, and there
// the Item-th item. Both count from 1. Item is 0 for a visit that is not mapped.
type Ref struct {
	Node  string `json:"node,omitempty"`
	Visit int    `json:"visit,omitempty"`
	Item  int    `json:"item,omitempty"`
}

// String reads node, node@visit or node@visit[item]. A first visit is left out.
func (r Ref) String() string {
	s := r.Node
	if r.Visit > 1 {
		s = fmt.Sprintf("%s@%d", s, r.Visit)
	}
	if r.Item > 0 {
		s = fmt.Sprintf("%s[%d]", s, r.Item)
	}
	return s
}

// Input is what a run starts from: the arguments that every start node receives.
type Input struct {
	Args  []json.RawMessage          `json:"args,omitempty"`
	Named map[string]json.RawMessage `json:"named,omitempty"`
}

// Op names a step of a decision.
type Op string

// The steps. Unless said otherwise a step names a visit by Node and Visit.
const (
	// OpEdge decides the edge Node -> To of Kind: Live or dead. Note says why it is dead.
	OpEdge Op = "EDGE"
	// OpEnter lets a visit run on the sources in Inputs.
	OpEnter Op = "ENTER"
	// OpReuse lets a visit run on the sources in Inputs with the saved outcome of another run, its State
	// updates and its Select. A later step ends the visit.
	OpReuse Op = "REUSE"
	// OpSkip ends a visit without running it. Note says why.
	OpSkip Op = "SKIP"
	// OpComplete ends a visit with Values.
	OpComplete Op = "COMPLETE"
	// OpFail ends a visit with Error. Action is the policy that was applied.
	OpFail Op = "FAIL"
	// OpUpdate applies the State updates of the visit.
	OpUpdate Op = "UPDATE"
	// OpItem ends one item of a map with Values or Error.
	OpItem Op = "ITEM"
	// OpRetry puts an attempt off until Due.
	OpRetry Op = "RETRY"
	// OpWait keeps a visit open for what the outcome waits for, at most until Due unless Due is zero.
	OpWait Op = "WAIT"
	// OpWake ends the wait of a visit. A wait for a signal takes the oldest one in store.
	OpWake Op = "WAKE"
	// OpStart starts the next attempt of a visit that was put off.
	OpStart Op = "START"
	// OpReconcile marks an UNSAFE attempt whose effect is unknown.
	OpReconcile Op = "RECONCILE"
	// OpLimit stops a loop at MaxVisits before the named visit.
	OpLimit Op = "LIMIT"
	// OpLoop opens the named visit of a loop's head, or of a node in an irreducible loop.
	OpLoop Op = "LOOP"
	// OpUnlimit lets a loop that is at its limit go on with the named visit.
	OpUnlimit Op = "UNLIMIT"
	// OpLoopEnd ends the loop of the named head within the enclosing visit Within. For an irreducible loop
	// Node is any of its nodes.
	OpLoopEnd Op = "LOOP_END"
	// OpDeliver puts the event's message into the inbox of Node. In RUN_STARTED the message is the run's
	// input.
	OpDeliver Op = "DELIVER"
	// OpTake drops the Expired oldest messages of Node's inbox. If Taken is above 0, it then opens the named
	// visit for that many.
	OpTake Op = "TAKE"
	// OpMoot marks the edge Node -> To as no longer needed.
	OpMoot Op = "MOOT"
	// OpCancel asks an attempt in flight to stop.
	OpCancel Op = "CANCEL"
	// OpDrop gives up a visit that is not needed: one that was not started, was put off, or waits.
	OpDrop Op = "DROP"
	// OpExpand inserts Graph after the visit's node. The steps after it refer to the expanded graph.
	OpExpand Op = "EXPAND"
	// OpReset takes a visit that has not ended back to the state before it began. Its attempts, waits and
	// items are given up.
	OpReset Op = "RESET"
	// OpReopen takes a visit, ended or not, back to the state before it began, and its edges to before they
	// were decided: an approval is void.
	OpReopen Op = "REOPEN"
	// OpRecount recounts joins after visits were taken back without a change of the graph.
	OpRecount Op = "RECOUNT"
	// OpGraph replaces the run's graph by the event's Graph.
	OpGraph Op = "GRAPH"
	// OpDrain stops new starts. Note is FAIL, TERMINATE, CANCEL or DEADLINE.
	OpDrain Op = "DRAIN"
	// OpPause stops new starts. Note is the reason. RUN_PAUSED follows, unless the run ends or was begun as
	// Held.
	OpPause Op = "PAUSE"
)

// Step is one decision of the machine, complete enough to be applied without another decision.
type Step struct {
	Op    Op       `json:"op"`
	Node  string   `json:"node,omitempty"`
	Visit int      `json:"visit,omitempty"`
	Item  int      `json:"item,omitempty"`
	To    string   `json:"to,omitempty"`
	Kind  EdgeKind `json:"kind,omitempty"`
	Live  bool     `json:"live,omitempty"`
	Note  string   `json:"note,omitempty"`
	*Detail
}

// Detail is the part of a step that most steps do not have.
type Detail struct {
	// Inputs are the sources whose live edges a visit runs on, in declared edge order.
	Inputs []InputRef `json:"inputs,omitempty"`
	// Items is the list that a map runs over. Mapped tells an empty list from no list.
	Mapped bool              `json:"mapped,omitempty"`
	Items  []json.RawMessage `json:"items,omitempty"`
	// Key is the evaluated concurrency key.
	Key string `json:"key,omitempty"`
	// Propagated is what a MERGE edge carries.
	Propagated *Input            `json:"propagated,omitempty"`
	Values     []json.RawMessage `json:"values,omitempty"`
	Error      *Error            `json:"failure,omitempty"`
	Action     ErrorAction       `json:"action,omitempty"`
	Stop       Stop              `json:"stop,omitempty"`
	Due        time.Time         `json:"due,omitzero"`
	// Attempt and Generation are the numbers of the next attempt.
	Attempt    int `json:"next_attempt,omitempty"`
	Generation int `json:"generation,omitempty"`
	// Lost is how many attempts so far do not count against retry.max_attempts.
	Lost int `json:"lost,omitempty"`
	// From is the visit whose BACK edges opened a loop's visit, or 0 if the loop was entered from outside.
	// Within is the visit of the enclosing loop.
	From   int `json:"from_visit,omitempty"`
	Within int `json:"within,omitempty"`
	// Select is that of a reused visit.
	Select *Select `json:"select,omitempty"`
	// Decision is the one on a reused visit's approval. Binds names what an approval
	// covers.
	Decision string `json:"decision,omitempty"`
	Binds    string `json:"binds,omitempty"`
	// Seen are digests of the state values that an approval covers, by key. Workflows, of a reused
	// visit, are hashes of graphs.
	Seen      map[string]string `json:"seen,omitempty"`
	Workflows map[string]string `json:"workflows,omitempty"`
	// Expired and Taken count messages.
	Expired int `json:"expired,omitempty"`
	Taken   int `json:"taken,omitempty"`
	// State are the updates that take effect with this step.
	State map[string]json.RawMessage `json:"state,omitempty"`
	// Graph is a sub-graph with every default and effect filled in.
	Graph *Graph `json:"graph,omitempty"`
}

// InputRef names one input of a join: the edge by its source and kind, and the source's visit that delivered.
type InputRef struct {
	Node  string   `json:"node"`
	Visit int      `json:"visit"`
	Kind  EdgeKind `json:"kind,omitempty"`
}

// Status is where a run stands.
type Status string

// A run is DRAINING if nothing new may start and attempts are still in flight.
const (
	StatusPending   Status = "PENDING"
	StatusRunning   Status = "RUNNING"
	StatusPaused    Status = "PAUSED"
	StatusDraining  Status = "DRAINING"
	StatusCompleted Status = "COMPLETED"
	StatusFailed    Status = "FAILED"
	StatusCanceled  Status = "CANCELED"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCanceled
}

// Reasons of a run's end or pause.
const (
	ReasonTerminated    = "TERMINATED"
	ReasonNodeFailed    = "NODE_FAILED"
	ReasonStarved       = "STARVED"
	ReasonCancelRequest = "CANCEL_REQUESTED"
	ReasonMaxVisits     = "MAX_VISITS"
	// ReasonStep is the reason of a run that was resumed for one round of a loop.
	ReasonStep = "STEP"
	// ReasonStopped is why a BACK edge of a run that was asked to stop is dead, why a call of such a run was
	// not made, and why it went on when it was paused.
	ReasonStopped = "STOPPED"
	// ReasonParentPaused is the reason of a run that was paused together with the one above it, and
	// ReasonParentResumed that of its resume together with that one.
	ReasonParentPaused  = "PARENT_PAUSED"
	ReasonParentResumed = "PARENT_RESUMED"
	// ReasonParentStopped is the reason of the stop of a run together with the one above it.
	ReasonParentStopped  = "PARENT_STOPPED"
	ReasonReconciliation = "NEEDS_RECONCILIATION"
	// ReasonCallsLost pauses a run after MaxLost attempts of one visit were lost; see Error.Lost.
	ReasonCallsLost = "CALLS_LOST"
	// ReasonBudget is also the reason of a NOT_PERFORMED error that puts back an attempt which had not begun
	// when the budget was used up.
	ReasonBudget = "BUDGET_EXHAUSTED"
	// ReasonCap pauses a run because a cap above it, such as that of its epic, leaves no room for a call. It
	// is the reason of the NOT_PERFORMED error that puts the attempt back and pauses the run.
	ReasonCap = "CAP_REACHED"
	// ReasonRoom is the reason of a resumption by itself: the cap has room for the call that was
	// refused.
	ReasonRoom = "CAP_HAS_ROOM"
	// ReasonUnsettled is the reason of a pause until the costs of calls are known, under a cap in money. The
	// pause ends by itself. It is also the reason of a NOT_PERFORMED error that puts back an attempt which
	// had not begun by then.
	ReasonUnsettled = "BUDGET_UNSETTLED"
	// ReasonSettled is the reason of the RUN_RESUMED that ends such a pause.
	ReasonSettled = "BUDGET_SETTLED"
)

// RunEnd is how a run ended. Outputs holds the value of every effective sink by node id. Result is the value
// of the only sink, or the list of values in declared order, or null if there is no sink.
type RunEnd struct {
	Status  Status                     `json:"status"`
	Reason  string                     `json:"reason,omitempty"`
	Message string                     `json:"message,omitempty"`
	Outputs map[string]json.RawMessage `json:"outputs,omitempty"`
	Result  json.RawMessage            `json:"result,omitempty"`
	// Failed is the visit whose failure ended the run.
	Failed *Ref   `json:"failed,omitempty"`
	Error  *Error `json:"error,omitempty"`
	// Unknown are the UNSAFE calls whose outcome was not known when the run ended.
	Unknown []Ref `json:"unknown,omitempty"`
}

// ValuesOf are the values with which a COMPLETE or ITEM step of this event ends its visit or item. A step
// without a Detail has the outcome's values.
func (ev *Event) ValuesOf(st *Step) []json.RawMessage {
	switch {
	case st.Detail != nil:
		return st.Detail.Values
	case ev.Outcome != nil:
		return ev.Outcome.Values
	}
	return nil
}

// PutBack reports whether the event puts back an attempt that had not begun when a budget or a cap blocked
// it. The attempt starts when the run goes on.
func (ev *Event) PutBack() bool {
	if ev.Kind != AttemptEnded || ev.Error == nil {
		return false
	}
	steps := ev.Steps
	switch ev.Error.Reason {
	case ReasonBudget, ReasonUnsettled:
	case ReasonCap:
		if len(steps) > 0 && steps[0].Op == OpPause {
			steps = steps[1:]
		}
	default:
		return false
	}
	return len(steps) == 1 && steps[0].Op == OpStart && steps[0].Detail != nil && steps[0].Detail.Attempt == ev.Attempt && steps[0].Node == ev.Node &&
		steps[0].Visit == ev.Visit && steps[0].Item == ev.Item
}

// DecodeEvent reads one event from JSON. A version newer than MachineVersion is an error.
func DecodeEvent(b []byte) (Event, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var ev Event
	if err := dec.Decode(&ev); err != nil {
		return Event{}, fmt.Errorf("decode event: %w", err)
	}
	if ev.Version < 1 || ev.Version > MachineVersion {
		return Event{}, fmt.Errorf("decode event: machine version %d, this binary knows 1 to %d", ev.Version, MachineVersion)
	}
	return ev, nil
}
