package workgraph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// MachineVersion is stored with every event and run. A binary replays events of its own and of every earlier
// version.
const MachineVersion = 1

// EventKind names what happened.
type EventKind string

// The kinds of journal events. AttemptStarted is written for UNSAFE attempts only, before the actor is
// called.
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
	// VisitsReused goes on with the adoptions of RUN_STARTED.
	VisitsReused EventKind = "VISITS_REUSED"
	// BudgetChanged changes the budget of a run that goes on, or stays paused for another reason.
	BudgetChanged EventKind = "BUDGET_CHANGED"
	// UsageSettled prices what could not be priced when it was used.
	UsageSettled EventKind = "USAGE_SETTLED"
)

// Event is one entry of a run's journal: what happened and, in Steps, everything that was decided because of
// it. Replaying applies the steps and evaluates nothing. Events are immutable once made; Seq is dense from 1
// within a run.
type Event struct {
	Version int       `json:"v"`
	Seq     int64     `json:"seq"`
	Kind    EventKind `json:"kind"`
	At      time.Time `json:"at"`

	// Ref names the attempt of the ATTEMPT, TIMER and RECONCILED kinds, and the visit that waits of those
	// that end a wait.
	Ref
	Attempt int `json:"attempt,omitempty"`
	// Generation is that of the call that ATTEMPT_STARTED announces: with it, EffectKey gives the key that the
	// call carries.
	Generation int `json:"generation,omitempty"`

	Input   *Input          `json:"input,omitempty"`   // RUN_STARTED
	Context json.RawMessage `json:"context,omitempty"` // RUN_STARTED
	Outcome *Outcome        `json:"outcome,omitempty"` // ATTEMPT_ENDED, RECONCILED, COMPLETION_RECEIVED: as the actor gave it
	Error   *Error          `json:"error,omitempty"`   // ATTEMPT_ENDED, RECONCILED, COMPLETION_RECEIVED: as the actor gave it
	Reason  string          `json:"reason,omitempty"`  // CANCEL_REQUESTED, RUN_PAUSED, RUN_RESUMED, BUDGET_CHANGED; TIMER_FIRED: INTERRUPT_EXPIRED, COMPLETION_EXPIRED, SIGNAL_EXPIRED if it was such a wait
	By      string          `json:"by,omitempty"`      // RECONCILED, INTERRUPT_CLOSED, COMPLETION_RECEIVED: who said so
	End     *RunEnd         `json:"end,omitempty"`     // RUN_ENDED

	Child  *ChildSlot `json:"child,omitempty"`  // CHILD_ENDED
	Usage  []Usage    `json:"usage,omitempty"`  // CHILD_ENDED: the child's
	Spent  *Spent     `json:"spent,omitempty"`  // CHILD_ENDED: what counts against budgets, where the child had one
	Budget *Budget    `json:"budget,omitempty"` // RUN_STARTED, RUN_RESUMED, BUDGET_CHANGED: what holds from here on, where it has changed
	// Unsettled is what is to be priced from here on. RUN_RESUMED, BUDGET_CHANGED: what was used before a
	// first cap in money; CHILD_ENDED: what the child had not settled. What a call used says so itself.
	Unsettled []Unsettled `json:"unsettled,omitempty"`
	// Costs are those of the oldest of what is unsettled, in nano-USD; nil where nobody knows a price.
	// USAGE_SETTLED
	Costs    []*int64         `json:"costs,omitempty"`
	Closed   *ClosedInterrupt `json:"closed,omitempty"`   // INTERRUPT_CLOSED: by an answer; TIMER_FIRED: a question that expired
	Signal   string           `json:"signal,omitempty"`   // SIGNAL_RECEIVED
	Payload  json.RawMessage  `json:"payload,omitempty"`  // SIGNAL_RECEIVED
	Message  *Message         `json:"message,omitempty"`  // MESSAGE_DELIVERED: to Node, or to all who take it
	Graph    *Graph           `json:"graph,omitempty"`    // GRAPH_AMENDED: the new graph as a whole
	Revision int64            `json:"revision,omitempty"` // GRAPH_AMENDED: that of the graph that it replaced

	Steps []Step `json:"steps,omitempty"`
}

// Ref names a visit, or one item of a mapped visit: the Visit-th time the run reached Node, and there the
// Item-th item, both counted from 1. Item is 0 for a visit that is not mapped.
type Ref struct {
	Node  string `json:"node,omitempty"`
	Visit int    `json:"visit,omitempty"`
	Item  int    `json:"item,omitempty"`
}

// String reads node, node@visit or node@visit[item], leaving out a first visit.
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
	// OpEdge resolves the edge Node -> To of Kind: Live or dead. Note tells why it is dead.
	OpEdge Op = "EDGE"
	// OpEnter lets a visit run on the sources in Inputs.
	OpEnter Op = "ENTER"
	// OpReuse lets a visit take over what it ended in in another run, with its State updates and Select, on
	// the sources in Inputs. It is complete with the next step about it.
	OpReuse Op = "REUSE"
	// OpSkip resolves a visit without running it; Note tells why.
	OpSkip Op = "SKIP"
	// OpComplete ends a visit with Values.
	OpComplete Op = "COMPLETE"
	// OpFail ends a visit with Error; Action is the policy that was applied.
	OpFail Op = "FAIL"
	// OpUpdate applies the State updates of the visit.
	OpUpdate Op = "UPDATE"
	// OpItem ends one item of a map with Values or Error.
	OpItem Op = "ITEM"
	// OpRetry puts an attempt off until Due.
	OpRetry Op = "RETRY"
	// OpWait keeps a visit open for what the outcome waits for, at the longest until Due unless that is zero.
	OpWait Op = "WAIT"
	// OpWake ends the wait of a visit, which has got what it waited for; a wait for a signal takes the oldest
	// one kept.
	OpWake Op = "WAKE"
	// OpStart starts the next attempt of a visit that was put off.
	OpStart Op = "START"
	// OpReconcile marks an UNSAFE attempt whose effect is unknown.
	OpReconcile Op = "RECONCILE"
	// OpLimit stops a loop at MaxVisits before the named visit.
	OpLimit Op = "LIMIT"
	// OpLoop opens the named visit of a loop's head, or of a node in an irreducible loop.
	OpLoop Op = "LOOP"
	// OpUnlimit lets a loop that stood at its limit go on with the named visit.
	OpUnlimit Op = "UNLIMIT"
	// OpLoopEnd ends the loop of the named head within the enclosing visit Within; Node is any node of an
	// irreducible one.
	OpLoopEnd Op = "LOOP_END"
	// OpDeliver puts the event's message, or at the start the run's input, into the inbox of Node.
	OpDeliver Op = "DELIVER"
	// OpTake drops the Expired oldest messages of Node's inbox and, if any are Taken then, opens the named
	// visit for them.
	OpTake Op = "TAKE"
	// OpMoot marks the edge Node -> To as needed by nobody any more.
	OpMoot Op = "MOOT"
	// OpCancel asks an attempt in flight to stop.
	OpCancel Op = "CANCEL"
	// OpDrop gives up a visit that will not be needed: not started, put off or waiting.
	OpDrop Op = "DROP"
	// OpExpand inserts Graph after the visit's node. The steps after it are about the grown graph.
	OpExpand Op = "EXPAND"
	// OpReset takes a visit that has not ended back to before it began; its attempts, waits and items are
	// given up.
	OpReset Op = "RESET"
	// OpReopen takes a visit, which may have ended, back to before it began, and its edges to before they
	// were decided: an approval does not hold.
	OpReopen Op = "REOPEN"
	// OpRecount counts joins anew, after visits were taken back without a change of the graph.
	OpRecount Op = "RECOUNT"
	// OpGraph goes over to the event's Graph.
	OpGraph Op = "GRAPH"
	// OpDrain stops new starts; Note is FAIL, TERMINATE, CANCEL or DEADLINE.
	OpDrain Op = "DRAIN"
	// OpPause stops new starts; Note is the reason. RUN_PAUSED follows, unless the run ends or was begun to be
	// ended.
	OpPause Op = "PAUSE"
)

// Step is one decision of the machine, complete enough to be applied without deciding anything again.
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
	// Items is the list that a map runs over; Mapped tells an empty list from none.
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
	// Attempt and Generation number the attempt that follows.
	Attempt    int `json:"next_attempt,omitempty"`
	Generation int `json:"generation,omitempty"`
	// Lost is how many attempts do not count against retry.max_attempts so far.
	Lost int `json:"lost,omitempty"`
	// From is the visit whose BACK edges opened a loop's visit, 0 when it was entered from outside; Within is
	// the visit of the enclosing loop.
	From   int `json:"from_visit,omitempty"`
	Within int `json:"within,omitempty"`
	// Select is an adopted visit's.
	Select *Select `json:"select,omitempty"`
	// Decision is that on an adopted visit's question of approval; Binds is what a question of approval
	// covers.
	Decision string `json:"decision,omitempty"`
	Binds    string `json:"binds,omitempty"`
	// Seen are digests of the values of the state that a question of approval covers, by key; Workflows, of
	// an adopted visit, hashes of graphs.
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

// InputRef names one input of a join: the edge by its source and kind, and the visit of the source that
// delivered.
type InputRef struct {
	Node  string   `json:"node"`
	Visit int      `json:"visit"`
	Kind  EdgeKind `json:"kind,omitempty"`
}

// Status is where a run stands.
type Status string

// A run is Draining when nothing new may start but attempts are still in flight.
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
	ReasonTerminated     = "TERMINATED"
	ReasonNodeFailed     = "NODE_FAILED"
	ReasonStarved        = "STARVED"
	ReasonCancelRequest  = "CANCEL_REQUESTED"
	ReasonMaxVisits      = "MAX_VISITS"
	ReasonReconciliation = "NEEDS_RECONCILIATION"
	// ReasonCallsLost is the reason when attempts of one visit were lost MaxLost times with what carried
	// them.
	ReasonCallsLost = "CALLS_LOST"
	// ReasonBudget is also the reason of a NOT_PERFORMED error that puts back an attempt which had not begun
	// when the budget was used up.
	ReasonBudget = "BUDGET_EXHAUSTED"
	// ReasonUnsettled is the reason of a pause that ends by itself, once it is known what calls cost that
	// count against a cap in money; and of a NOT_PERFORMED error that puts back an attempt which had not
	// begun by then.
	ReasonUnsettled = "BUDGET_UNSETTLED"
	// ReasonSettled is the reason of the resumption then.
	ReasonSettled = "BUDGET_SETTLED"
)

// RunEnd is how a run ended. Outputs holds the value of every effective sink by node id; Result is the only
// one's value, else the list of them in declared order, else null.
type RunEnd struct {
	Status  Status                     `json:"status"`
	Reason  string                     `json:"reason,omitempty"`
	Message string                     `json:"message,omitempty"`
	Outputs map[string]json.RawMessage `json:"outputs,omitempty"`
	Result  json.RawMessage            `json:"result,omitempty"`
	// Failed is the visit whose failure ended the run.
	Failed *Ref   `json:"failed,omitempty"`
	Error  *Error `json:"error,omitempty"`
	// Unknown are the UNSAFE calls of which nobody knew, when the run ended, whether they were performed.
	Unknown []Ref `json:"unknown,omitempty"`
}

// ValuesOf are the values with which a COMPLETE or ITEM step of this event ends its visit or item. A step
// without a Detail leaves them out because they are the outcome's own.
func (ev *Event) ValuesOf(st *Step) []json.RawMessage {
	switch {
	case st.Detail != nil:
		return st.Detail.Values
	case ev.Outcome != nil:
		return ev.Outcome.Values
	}
	return nil
}

// PutBack reports whether the event tells of an attempt that was not begun, since its run was barred by then,
// and that starts when it goes on.
func (ev *Event) PutBack() bool {
	return ev.Kind == AttemptEnded && ev.Error != nil && (ev.Error.Reason == ReasonBudget || ev.Error.Reason == ReasonUnsettled) && len(ev.Steps) == 1 && ev.Steps[0].Op == OpStart &&
		ev.Steps[0].Detail != nil && ev.Steps[0].Node == ev.Node && ev.Steps[0].Visit == ev.Visit && ev.Steps[0].Item == ev.Item
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
