package workgraph

import (
	"encoding/json"
	"errors"
	"time"
)

// Command is an input of the machine. The concrete types are Begin (of a run), Attempt, Ended, TimerDue,
// Reconcile, Recover, Cancel, Pause, EndLoops, Resume and Settled; from outside of the run come ChildEnded,
// Answered, AttemptCompleted, Signaled, Delivered, Amended and DeadlinePassed. Now is the caller's clock,
// since the machine has none.
type Command interface{ command() }

// Begin starts the run.
type Begin struct {
	Input   Input
	Context json.RawMessage // the CEL variable "context"
	Budget  *Budget         // what the run may use; nil stands for no limit
	// Reuse are saved outcomes of an earlier run. A listed visit that would start completes with that outcome
	// at once, without an attempt, and counts as reused. A listed visit that is never reached has no effect.
	Reuse []ReusedVisit
	// Held begins the run with starts held back, as in a pause. It is for a run that is ended right after it
	// begins.
	Held bool
	Now  time.Time
}

// ReusedVisit is how a visit of another run ended.
type ReusedVisit struct {
	Ref     Ref     `json:"ref"`
	Outcome Outcome `json:"outcome"`
	// Decision is the one on the visit's approval, if there was one.
	Decision string `json:"decision,omitempty"`
	// Seen and Workflows are what the interrupt covers besides the graph; see Detail.
	Seen      map[string]string `json:"seen,omitempty"`
	Workflows map[string]string `json:"workflows,omitempty"`
}

// ChildEnded reports the end of a visit's child. It is refused with ErrStale if no visit waits for the child.
type ChildEnded struct {
	Ref
	Slot ChildSlot
	Now  time.Time
}

// Answered closes the interrupt with the id. Decision is "", APPROVED or REJECTED. An interrupt that is not
// open is ErrStale.
type Answered struct {
	ID       string
	Answer   json.RawMessage
	Decision string
	By       string
	Now      time.Time
}

// AttemptCompleted ends a visit's wait for a completion. Attempt is the one whose outcome began the wait.
// Exactly one of Outcome, of which only Values count, and Err, which is final, must be set. ErrStale if the
// visit does not wait for this completion.
type AttemptCompleted struct {
	Ref
	Attempt int
	Outcome *Outcome
	Err     *Error
	By      string
	Now     time.Time
}

// Signaled brings a signal. It is kept until a visit waits for its name.
type Signaled struct {
	Name    string
	Payload json.RawMessage
	Now     time.Time
}

// Delivered brings a message to the inbox of Node or, if Node is empty, to every inbox that takes messages
// from the sender. A message in the name of a node of the run, or of InputSender, is ErrSender unless a call
// of that node sent it.
type Delivered struct {
	From string
	Node string
	// Call and Attempt are the node's own call that sent the message. They are zero for an outside sender.
	// The caller guarantees that State.Speaks allowed the call to send at that time.
	Call    Ref
	Attempt int
	Message json.RawMessage
	Now     time.Time
}

// Amended replaces the run's graph. Revision is the one of the State for which the change was made; any other
// is ErrState. PlanAmend says what the change would do to visits. A change to what has ended is refused.
type Amended struct {
	Program  *Program
	Revision int64
	By       string
	Now      time.Time
}

// DeadlinePassed ends the run as FAILED with DEADLINE_EXCEEDED once all attempts in flight have reported
// their ends.
type DeadlinePassed struct{ Now time.Time }

// Attempt records the intent to perform an UNSAFE attempt. It must be durable before the actor is called. It
// is refused with ErrStale if the attempt is no longer wanted.
type Attempt struct {
	Ref
	Attempt int
	Now     time.Time
}

// Ended reports the end of an attempt. Exactly one of Outcome and Err must be set. Every Start needs one
// Ended, also if it was canceled or never began; only a start whose Attempt was refused needs none. A second
// or late report is refused with ErrStale and changes nothing.
type Ended struct {
	Ref
	Attempt int
	Outcome *Outcome
	Err     *Error
	Now     time.Time
	// Capped says that the attempt was not begun because a cap above the run leaves no room for it: Err is
	// NOT_PERFORMED with ReasonCap. The attempt is put back and the run pauses.
	Capped bool
}

// TimerDue fires every timer that is due at Now.
type TimerDue struct{ Now time.Time }

// Reconcile tells the outcome, or the definite error, of an attempt whose outcome was unknown, as a person or
// a probe found it out. An Err of type NotPerformed starts the attempt again under the same effect key.
// Reconcile does not end the pause.
type Reconcile struct {
	Ref
	Outcome *Outcome
	Err     *Error
	By      string // the person or probe
	Now     time.Time
}

// Recover prepares a run for a new owner after the former one is gone. UNSAFE attempts whose intent was
// journaled count as lost and need reconciliation. Canceled attempts have ended. Outstanding lists everything
// else that is in flight.
type Recover struct{ Now time.Time }

// Cancel ends the run as CANCELED once all attempts in flight have reported their ends.
type Cancel struct {
	Reason string
	Now    time.Time
}

// Pause holds back new starts. Attempts in flight go on.
type Pause struct {
	Reason string
	Now    time.Time
}

// EndLoops asks the loops of the run to end. From then on no BACK edge is followed, unless the outcome of its
// source selects it by name, and calls are told by Start.Stopping. Nothing under way is broken off. A paused
// run goes on to its end. It stays paused while its budget is used up, while an outcome is unknown, and while
// its calls are not priced.
type EndLoops struct {
	Reason string
	Now    time.Time
}

// Resume ends a pause. A loop at its limit gets MaxVisits more visits. Resume is refused with ErrBudget if
// the run's budget, changed by Budget, is used up. A run that is not paused only takes the Budget.
type Resume struct {
	Reason string
	// Budget, if not nil, has caps that replace those of the run. Caps that it does not name stay.
	Budget *Budget
	// Step pauses the run again after one round of a loop: when a BACK edge has been followed.
	Step bool
	// Raise limits the command to a higher budget. Caps are only raised, a pause ends only if the budget was
	// its reason, and nothing is refused because of the run's state.
	Raise bool
	// Price has usage priced that came before a first cap in money. The run stands still until it is Settled.
	// Without Price only the costs count that calls reported themselves.
	Price bool
	Now   time.Time
}

// Settled gives the costs of the oldest entries of State.Unsettled. Nil stands for a price that is not known.
// A run that stood still for these prices goes on.
type Settled struct {
	Costs []*int64
	Now   time.Time
}

func (Begin) command()            {}
func (ChildEnded) command()       {}
func (Answered) command()         {}
func (AttemptCompleted) command() {}
func (Signaled) command()         {}
func (Delivered) command()        {}
func (Amended) command()          {}
func (DeadlinePassed) command()   {}
func (Attempt) command()          {}
func (Ended) command()            {}
func (TimerDue) command()         {}
func (Reconcile) command()        {}
func (Recover) command()          {}
func (Cancel) command()           {}
func (Pause) command()            {}
func (EndLoops) command()         {}
func (Resume) command()           {}
func (Settled) command()          {}

// Errors of Advance and Apply. An error leaves the state unchanged, except ErrCorrupt and ErrAborted, after
// which the state must be discarded.
var (
	// ErrStale refuses a report on an attempt that is not in flight, such as a second end.
	ErrStale = errors.New("workgraph: the attempt is not in flight")
	// ErrEnded refuses a command to a run that has ended.
	ErrEnded = errors.New("workgraph: the run has ended")
	// ErrState refuses a command that does not fit the run's state.
	ErrState = errors.New("workgraph: the command does not fit the run's state")
	// ErrReconcile refuses to resume while a visit needs reconciliation.
	ErrReconcile = errors.New("workgraph: a visit needs reconciliation")
	// ErrBudget refuses to resume a run whose budget is used up.
	ErrBudget = errors.New("workgraph: the run's budget is used up")
	// ErrUnsettled refuses to resume a run that goes on by itself once its calls are priced.
	ErrUnsettled = errors.New("workgraph: calls of the run are not priced yet")
	// ErrCorrupt refuses a journal or snapshot that does not belong to the program or is out of order.
	ErrCorrupt = errors.New("workgraph: journal and program do not fit")
)

// Effects is what the caller must do after the events that came with it are durable.
type Effects struct {
	// Starts may run now, in any order. The caller limits how many run at once. A start that has not begun
	// when the state is Draining must not begin.
	Starts []Start
	// Cancels are attempts in flight that should stop. Each must still be reported by Ended.
	Cancels []Ref
	// Spawns are runs to start. A start must be idempotent: Recover asks again for those that have not ended.
	Spawns []Spawn
	// CancelChildren are the ids of child runs to cancel. The caller records the request in the transaction
	// of the events. The ends of these runs need not be reported.
	CancelChildren []string
	// Opened and Closed are interrupts to record in the transaction of the events. Recover names the open
	// ones again.
	Opened []OpenedInterrupt
	Closed []ClosedInterrupt
	// Threads are items to add to threads in the transaction of the events.
	Threads []ThreadsOf
	// Kept are outcomes of children to keep for equal calls, in the transaction of the events.
	Kept []KeptOutcome
	// Graph is the run's new graph if an expansion or an amendment changed it, else nil.
	Graph *Graph
	// Ended is set if the run has ended.
	Ended *RunEnd
}

// KeptOutcome is what the children of a visit gave, for calls whose key is the same; see Children.Keep.
type KeptOutcome struct {
	Ref
	KeepAs
	Outcome Outcome
	// Alone says that there was one child. The event of its end tells what it used.
	Alone bool
}

// ThreadsOf are what an attempt of a visit adds to threads.
type ThreadsOf struct {
	Ref
	Appends []ThreadAppend
}

// Spawn is a child run to start for a visit.
type Spawn struct {
	Ref
	Child Child
}

// OpenedInterrupt is an interrupt that a visit has opened. Due is zero if it has no timeout.
type OpenedInterrupt struct {
	Ref
	Interrupt Interrupt
	// Binds names what an approval covers besides the value to approve; see ApproveHash.
	Binds string
	Due   time.Time
}

// ClosedInterrupt is a question that is no longer open. If it was answered, Answer is the visit's value. If
// it expired, Answer is the default, if there was one. Otherwise the interrupt was given up with its visit.
type ClosedInterrupt struct {
	ID       string          `json:"id"`
	How      InterruptEnd    `json:"how"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Decision string          `json:"decision,omitempty"`
	By       string          `json:"by,omitempty"`
}

// InterruptEnd says why an interrupt is closed.
type InterruptEnd string

// The ends of an interrupt.
const (
	InterruptAnswered InterruptEnd = "ANSWERED"
	InterruptExpired  InterruptEnd = "EXPIRED"
	InterruptCanceled InterruptEnd = "CANCELED"
)

// Start is one attempt to perform. Its slices and maps are shared with the state and must not be changed.
type Start struct {
	Ref
	RunID   string
	Actor   string
	Attempt int
	// Generation changes only after a definite failure. It is a part of the effect key.
	Generation int
	Args       []json.RawMessage
	Named      map[string]json.RawMessage
	// Own are the node's own named arguments, without the propagated ones that overlay them in Named.
	Own map[string]json.RawMessage
	// Upstream lists the sources of the visit in declared edge order, including those that failed or
	// abstained.
	Upstream       []Upstream
	Effect         Effect
	Timeout        time.Duration
	IdleTimeout    time.Duration
	Cache          *Cache // the node's; nil for none
	ConcurrencyKey string
	Thread         string
	Kind           Kind
	// Name is the node's name, which may be empty.
	Name string
	// Canceled says that the attempt was already asked to stop. It is set in Outstanding only.
	Canceled bool
	// Details are those of the last heartbeat of an earlier attempt. The caller that starts attempts sets
	// them.
	Details json.RawMessage
	// AttemptToken names the attempt to an outside party that completes its work. The caller that starts
	// attempts sets it.
	AttemptToken string
	// RootRunID is the root of the run, which is the run itself if it has no parent. The caller that starts
	// attempts sets it.
	RootRunID string
	// Stopping says that the loops of the run are to end: a call that would go on with one ends it instead.
	Stopping bool
	// ParentRunID is the run that waits for this one, empty for a root. The caller that starts attempts sets
	// it.
	ParentRunID string
	// InTurn says that the run is the workflow that takes a turn of the chat whose thread is Thread. The
	// caller that starts attempts sets it.
	InTurn bool
	// UserID and ChatID are those of the run, and GraphName is the name of its graph. The caller that starts
	// attempts sets them.
	UserID, ChatID, GraphName string
	// Agent is the agent whose own work the run does, nil if none. The caller that starts attempts sets it.
	Agent *AgentRun
	// Messages are those that started a visit of an inbox, oldest first. Such a visit has no propagated
	// arguments.
	Messages []Message
}

// Message is one message of an inbox.
type Message struct {
	From string          `json:"from"`
	Body json.RawMessage `json:"body"`
	At   time.Time       `json:"at"`
}

// NeedsIntent reports whether an Attempt command must be durable before the actor is called.
func (s *Start) NeedsIntent() bool { return s.Effect == Unsafe }

// EffectKey is the stable key of the call's effect. Attempts that may repeat one effect share it.
func (s *Start) EffectKey() string { return EffectKey(s.RunID, s.Ref, s.Generation) }

// EffectKey is the key that a call of the visit or item carries: run/node/visit/item/generation. It is empty
// for generation 0, which no call has.
func EffectKey(runID string, r Ref, generation int) string {
	if generation == 0 {
		return ""
	}
	return runID + "/" + r.Node + "/" + itoa(r.Visit) + "/" + itoa(r.Item) + "/" + itoa(generation)
}

// Upstream is one source of a visit. Values are its result after its transform. Error is set if it FAILED.
type Upstream struct {
	Node    string            `json:"node"`
	Visit   int               `json:"visit"`
	Outcome VisitStatus       `json:"outcome"`
	Values  []json.RawMessage `json:"values,omitempty"`
	Error   *Error            `json:"error,omitempty"`
}

// VisitStatus is where a visit, or an item of one, stands.
type VisitStatus string

// The statuses of a visit. HELD waits for the end of a pause, BACKOFF for a timer, WAITING for what its
// outcome waits for, and CANCELING for the end of an attempt that was asked to stop.
const (
	VisitPending        VisitStatus = "PENDING"
	VisitHeld           VisitStatus = "HELD"
	VisitRunning        VisitStatus = "RUNNING"
	VisitCanceling      VisitStatus = "CANCELING"
	VisitBackoff        VisitStatus = "BACKOFF"
	VisitWaiting        VisitStatus = "WAITING"
	VisitReconciliation VisitStatus = "NEEDS_RECONCILIATION"
	VisitCompleted      VisitStatus = "COMPLETED"
	VisitAbstained      VisitStatus = "ABSTAINED"
	VisitFailed         VisitStatus = "FAILED"
	VisitSkipped        VisitStatus = "SKIPPED"
	VisitCanceled       VisitStatus = "CANCELED"
)
