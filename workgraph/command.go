package workgraph

import (
	"encoding/json"
	"errors"
	"time"
)

// Command asks the machine to take something into account. The concrete types are Begin (of a run), Attempt, Ended, TimerDue,
// Reconcile, Recover, Cancel, Pause and Resume. Now is the caller's clock; the machine has none.
type Command interface{ command() }

// Begin starts the run.
type Begin struct {
	Input   Input
	Context json.RawMessage // the CEL variable "context"
	Now     time.Time
}

// Attempt records the intent to perform an UNSAFE attempt. It must be durable before the actor is called, and is refused with
// ErrStale when the attempt is no longer wanted.
type Attempt struct {
	Ref
	Attempt int
	Now     time.Time
}

// Ended reports the end of an attempt: exactly one of Outcome and Err is set. Every Start is answered by one Ended, also when
// it was canceled or never began; only a start whose Attempt was refused needs no answer. A second or late report is refused with ErrStale and changes nothing.
type Ended struct {
	Ref
	Attempt int
	Outcome *Outcome
	Err     *Error
	Now     time.Time
}

// TimerDue lets everything happen that is due at Now.
type TimerDue struct{ Now time.Time }

// Reconcile settles a visit in need of reconciliation: with the outcome or the definite error that a human or a probe found
// out. An Err of type NotPerformed starts the attempt again under the same effect key. It does not end the pause.
type Reconcile struct {
	Ref
	Outcome *Outcome
	Err     *Error
	By      string // who says so
	Now     time.Time
}

// Recover takes over a run whose owner is gone: UNSAFE attempts whose intent was journaled are lost and need reconciliation,
// canceled attempts have ended. Everything else that is in flight is given out again by Outstanding.
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

// Resume ends a pause. A loop that stood at its limit gets its node's MaxVisits again.
type Resume struct {
	Reason string
	Now    time.Time
}

func (Begin) command()     {}
func (Attempt) command()   {}
func (Ended) command()     {}
func (TimerDue) command()  {}
func (Reconcile) command() {}
func (Recover) command()   {}
func (Cancel) command()    {}
func (Pause) command()     {}
func (Resume) command()    {}

// Errors of Advance and Apply. An error leaves the state as it was, except ErrCorrupt, after which the state must be discarded.
var (
	// ErrStale refuses a report on an attempt that is not in flight, such as a second end.
	ErrStale = errors.New("workgraph: the attempt is not in flight")
	// ErrEnded refuses a command to a run that has ended.
	ErrEnded = errors.New("workgraph: the run has ended")
	// ErrState refuses a command that does not fit the run's status.
	ErrState = errors.New("workgraph: the command does not fit the run's state")
	// ErrReconcile refuses to resume while a visit needs reconciliation.
	ErrReconcile = errors.New("workgraph: a visit needs reconciliation")
	// ErrCorrupt refuses a journal or snapshot that does not belong to the program or is not in order.
	ErrCorrupt = errors.New("workgraph: journal and program do not fit")
)

// Effects is what the caller should do once the events it came with are durable, and not before.
type Effects struct {
	// Starts may run now, in any order. Limits on how many run at once are the caller's. A start that has not begun when the
	// state is Draining must not begin.
	Starts []Start
	// Cancels are attempts in flight that should stop. Each still has to be reported by Ended.
	Cancels []Ref
	// Ended is set when the run has ended.
	Ended *RunEnd
}

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
}

// NeedsIntent reports whether an Attempt command must be durable before the actor is called.
func (s *Start) NeedsIntent() bool { return s.Effect == Unsafe }

// EffectKey is the stable key of the call's effect: run/node/visit/item/generation. Attempts that may repeat one effect share it.
func (s *Start) EffectKey() string {
	return s.RunID + "/" + s.Node + "/" + itoa(s.Visit) + "/" + itoa(s.Item) + "/" + itoa(s.Generation)
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

// The statuses of a visit. Held visits wait for the end of a pause, Backoff and Waiting ones for a timer, Canceling ones for
// the end of an attempt that was asked to stop.
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
