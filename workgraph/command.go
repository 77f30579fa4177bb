package workgraph

import (
	"encoding/json"
	"errors"
	"time"
)

// Command asks the machine to take something into account. The concrete types are Begin (of a run), Attempt,
// Ended, TimerDue, Reconcile, Recover, Cancel, Pause, Resume, Settled, and what comes in from outside:
// ChildEnded, Answered, AttemptCompleted, Signaled, Delivered, Amended and DeadlinePassed. Now is the caller's
// clock; the machine has none.
type Command interface{ command() }

// Begin starts the run.
type Begin struct {
	Input   Input
	Context json.RawMessage // the CEL variable "context"
	Budget  *Budget         // what the run may use; nil is no limit
	// Reuse gives the ends of visits of an earlier run: a visit that would start and is listed here completes
	// with that outcome at once, without an attempt, and counts as adopted. What is listed and never reached
	// is left out.
	Reuse []ReusedVisit
	// Held starts nothing, as in a pause: for a run that is ended right after it was begun.
	Held bool
	Now  time.Time
}

// ReusedVisit is how a visit of another run ended.
type ReusedVisit struct {
	Ref     Ref     `json:"ref"`
	Outcome Outcome `json:"outcome"`
	// Decision is that on the visit's question of approval, if it had one.
	Decision string `json:"decision,omitempty"`
	// Seen and Workflows are what the question covers beside the graph: see Detail.
	Seen      map[string]string `json:"seen,omitempty"`
	Workflows map[string]string `json:"workflows,omitempty"`
}

// ChildEnded tells that a child of a visit has ended. A child that no visit waits for (any more) is ErrStale.
type ChildEnded struct {
	Ref
	Slot ChildSlot
	Now  time.Time
}

// Answered closes a question by its id. Decision is "", APPROVED or REJECTED. A question that is not open is
// ErrStale.
type Answered struct {
	ID       string
	Answer   json.RawMessage
	Decision string
	By       string
	Now      time.Time
}

// AttemptCompleted ends a visit's wait for a completion; Attempt is the one whose outcome began the wait. Exactly one of
// Outcome (of which only Values count) and Err, which is final, is set. A visit that does not wait for it
// (any more) is ErrStale.
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

// Delivered brings a message for inboxes: of the named node, or of all that take messages from the sender. One
// in the name of a node of the run, or of InputSender, is ErrSender unless a call of that node sent it.
type Delivered struct {
	From string
	Node string
	// Call and Attempt are the node's own call that sent it; zero for a sender outside. Whoever gives the
	// command vouches that State.Speaks allowed the call to send when it did.
	Call    Ref
	Attempt int
	Message json.RawMessage
	Now     time.Time
}

// Amended goes over to another graph. Revision is the State's that the change was made for; another one is
// ErrState. What the change would do to visits is worked out by PlanAmend, and refused if it touches what has
// ended.
type Amended struct {
	Program  *Program
	Revision int64
	By       string
	Now      time.Time
}

// DeadlinePassed ends the run as FAILED with DEADLINE_EXCEEDED once attempts in flight have reported their
// ends.
type DeadlinePassed struct{ Now time.Time }

// Attempt records the intent to perform an UNSAFE attempt. It must be durable before the actor is called, and
// is refused with ErrStale when the attempt is no longer wanted.
type Attempt struct {
	Ref
	Attempt int
	Now     time.Time
}

// Ended reports the end of an attempt: exactly one of Outcome and Err is set. Every Start is answered by one
// Ended, also when it was canceled or never began; only a start whose Attempt was refused needs no answer. A
// second or late report is refused with ErrStale and changes nothing.
type Ended struct {
	Ref
	Attempt int
	Outcome *Outcome
	Err     *Error
	Now     time.Time
}

// TimerDue lets everything happen that is due at Now.
type TimerDue struct{ Now time.Time }

// Reconcile settles a visit in need of reconciliation: with the outcome or the definite error that a human or
// a probe found out. An Err of type NotPerformed starts the attempt again under the same effect key. It does
// not end the pause.
type Reconcile struct {
	Ref
	Outcome *Outcome
	Err     *Error
	By      string // who says so
	Now     time.Time
}

// Recover takes over a run whose owner is gone: UNSAFE attempts whose intent was journaled are lost and need
// reconciliation, canceled attempts have ended. Everything else that is in flight is given out again by
// Outstanding.
type Recover struct{ Now time.Time }

// Cancel ends the run as CANCELED once every attempt in flight has reported its end.
type Cancel struct {
	Reason string
	Now    time.Time
}

// Pause holds back new starts; attempts in flight go on.
type Pause struct {
	Reason string
	Now    time.Time
}

// Resume ends a pause. A loop that stood at its limit gets its node's MaxVisits again. A run whose budget is
// used up, with Budget taken into account, is refused with ErrBudget. A run that is not paused takes the
// Budget alone.
type Resume struct {
	Reason string
	// Budget, if not nil, has caps that take the place of the run's; those that it does not name stay.
	Budget *Budget
	// Raise says that more may be used, and nothing else: caps are only raised, no other pause than that for
	// the budget is ended, and nothing is refused.
	Raise bool
	// Price has what was used before a first cap in money priced: until it is Settled the run stands still.
	// Without it only what calls said themselves counts.
	Price bool
	Now   time.Time
}

// Settled tells what the oldest of State.Unsettled cost: nil where nobody knows a price. A run that stood
// still for that goes on by it.
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
func (Resume) command()           {}
func (Settled) command()          {}

// Errors of Advance and Apply. An error leaves the state as it was, except ErrCorrupt, after which the state
// must be discarded.
var (
	// ErrStale refuses a report on an attempt that is not in flight, such as a second end.
	ErrStale = errors.New("workgraph: the attempt is not in flight")
	// ErrEnded refuses a command to a run that has ended.
	ErrEnded = errors.New("workgraph: the run has ended")
	// ErrState refuses a command that does not fit the run's status.
	ErrState = errors.New("workgraph: the command does not fit the run's state")
	// ErrReconcile refuses to resume while a visit needs reconciliation.
	ErrReconcile = errors.New("workgraph: a visit needs reconciliation")
	// ErrBudget refuses to resume a run whose budget is used up.
	ErrBudget = errors.New("workgraph: the run's budget is used up")
	// ErrUnsettled refuses to resume a run that goes on by itself once its calls are priced.
	ErrUnsettled = errors.New("workgraph: calls of the run are not priced yet")
	// ErrCorrupt refuses a journal or snapshot that does not belong to the program or is not in order.
	ErrCorrupt = errors.New("workgraph: journal and program do not fit")
)

// Effects is what the caller should do once the events it came with are durable, and not before.
type Effects struct {
	// Starts may run now, in any order. Limits on how many run at once are the caller's. A start that has not
	// begun when the state is Draining must not begin.
	Starts []Start
	// Cancels are attempts in flight that should stop. Each still has to be reported by Ended.
	Cancels []Ref
	// Spawns are runs to start. Starting one must be idempotent: after Recover those that have not ended are
	// asked for again.
	Spawns []Spawn
	// CancelChildren are the ids of child runs that should end; asking for it is to be recorded in the same
	// transaction as the events. Their ends need not be reported.
	CancelChildren []string
	// Opened and Closed are questions to record, in the same transaction as the events. After Recover open
	// ones are named again.
	Opened []OpenedInterrupt
	Closed []ClosedInterrupt
	// Graph is set when the run's graph has become another one, by an expansion or an amendment.
	Graph *Graph
	// Ended is set when the run has ended.
	Ended *RunEnd
}

// Spawn is a child run to start for a visit.
type Spawn struct {
	Ref
	Child Child
}

// OpenedInterrupt is a question that a visit has asked; Due is zero when it stays open for ever.
type OpenedInterrupt struct {
	Ref
	Interrupt Interrupt
	// Binds names what a question of approval covers besides what it asks: see ApproveHash.
	Binds string
	Due   time.Time
}

// ClosedInterrupt is a question that is no longer open: answered (Answer is what the visit got), expired
// (Answer is the default, if there was one) or given up with its visit.
type ClosedInterrupt struct {
	ID       string          `json:"id"`
	How      InterruptEnd    `json:"how"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Decision string          `json:"decision,omitempty"`
	By       string          `json:"by,omitempty"`
}

// InterruptEnd says why a question is closed.
type InterruptEnd string

// The ends of a question.
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
	// Generation changes the effect key only after a definite failure.
	Generation int
	Args       []json.RawMessage
	Named      map[string]json.RawMessage
	// Own are the node's own named arguments, before what travels overlays them in Named.
	Own map[string]json.RawMessage
	// Upstream lists the sources of the visit in declared edge order, also those that failed or abstained.
	Upstream       []Upstream
	Effect         Effect
	Timeout        time.Duration
	IdleTimeout    time.Duration
	CacheTTL       time.Duration
	ConcurrencyKey string
	Thread         string
	Kind           Kind
	// Canceled tells, in Outstanding only, that the attempt was asked to stop already.
	Canceled bool
	// Details are those of the last heartbeat of an earlier attempt, set by whoever starts attempts.
	Details json.RawMessage
	// AttemptToken names the attempt to whoever finishes its work from outside; set by whoever starts attempts.
	AttemptToken string
	// RootRunID is the top of the run's family, the run itself if nobody spawned it; set by whoever starts
	// attempts.
	RootRunID string
	// Messages are what an inbox hands over, oldest first; the visit has no arguments that travel then.
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

// Upstream is one source of a visit. Values are its result, after its transform; Error is set when it FAILED.
type Upstream struct {
	Node    string            `json:"node"`
	Visit   int               `json:"visit"`
	Outcome VisitStatus       `json:"outcome"`
	Values  []json.RawMessage `json:"values,omitempty"`
	Error   *Error            `json:"error,omitempty"`
}

// VisitStatus is where a visit, or an item of one, stands.
type VisitStatus string

// The statuses of a visit. Held visits wait for the end of a pause, Backoff and Waiting ones for a timer,
// Canceling ones for the end of an attempt that was asked to stop.
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
