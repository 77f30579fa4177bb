package workgraph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Stop says what a visit means for the rest of its run.
type Stop string

// Proceed (the zero value) goes on; Terminate ends the run as COMPLETED once what is in flight has ended;
// AbstainResult leaves the visit's value out and makes its edges dead.
const (
	Proceed       Stop = ""
	Terminate     Stop = "TERMINATE"
	AbstainResult Stop = "ABSTAIN_RESULT"
)

// Outcome is what a successful attempt gives.
type Outcome struct {
	// Values holds nothing, one value, or the elements of a tuple.
	Values []json.RawMessage `json:"values,omitempty"`
	Stop   Stop              `json:"stop,omitempty"`
	// Select narrows which out-edges may fire; nil leaves it to their conditions.
	Select *Select `json:"select,omitempty"`
	// Expand is inserted after the visit's node: it runs before the node's successors, on what the visit
	// passes down, and they run on what its sinks give. Its ids become "node#visit/id".
	Expand *Graph `json:"expand,omitempty"`
	Wait   *Wait  `json:"wait,omitempty"`
	// State holds updates by key, combined by the key's reducer.
	State map[string]json.RawMessage `json:"state,omitempty"`
	Usage []Usage                    `json:"usage,omitempty"`
}

// Select is a visit's own choice among its out-edges.
type Select struct {
	// Self fires the node's own BACK edge (From == To), if its condition holds too.
	Self bool `json:"self,omitempty"`
	// Others says whether the other out-edges may fire; the empty value is SelectAll.
	Others Others `json:"others,omitempty"`
	// Names are the targets that may fire under SelectNames.
	Names []string `json:"names,omitempty"`
}

// Others is the part of a Select that is not the node itself.
type Others string

// SelectNames limits the edges to the targets in Select.Names.
const (
	SelectAll   Others = "ALL"
	SelectNone  Others = "NONE"
	SelectNames Others = "NAMES"
)

// Wait keeps the visit open after the attempt. Exactly one field is set. While it waits the visit holds
// nothing but its place in the state; what it waits for comes in by a command.
type Wait struct {
	// Timer ends the visit with the outcome's values at a time.
	Timer *Timer `json:"timer,omitempty"`
	// Children spawns runs; the visit's value is the list of their slots (ChildSlot) in the order asked.
	Children *Children `json:"children,omitempty"`
	// Interrupt asks somebody; the visit's value is the answer.
	Interrupt *Interrupt `json:"interrupt,omitempty"`
	// Completion waits for work that goes on outside; the visit's values are those that it is completed with.
	Completion *CompletionWait `json:"completion,omitempty"`
	// Signal takes the first signal of a name that no earlier wait took; the visit's value is its payload.
	Signal *SignalWait `json:"signal,omitempty"`
}

// Children are runs that a visit spawns and waits for.
type Children struct {
	Runs []Child `json:"runs"`
	// Timeout, if above 0, ends the wait: children that still go on are canceled and their slots say
	// TIMED_OUT.
	Timeout Duration `json:"timeout,omitempty"`
	// FailFast fails the visit with CHILD_FAILED, and cancels the others, at the first child that does not
	// complete.
	FailFast bool `json:"fail_fast,omitempty"`
	// AsResult, with exactly one run, makes that run stand for the visit: its result is the visit's value in
	// place of the list of slots, and unless it completes, and its result comes along, the visit fails with
	// CHILD_FAILED.
	AsResult bool `json:"as_result,omitempty"`
}

// strict tells that the visit fails with the first child that does not complete.
func (c *Children) strict() bool { return c.FailFast || c.AsResult }

// fails tells that the visit fails by what became of a child. One that completed has an error if its result
// was left out.
func (c *Children) fails(sl *ChildSlot) bool {
	return c.strict() && sl.Status != StatusCompleted || c.AsResult && sl.Error != nil
}

// Child is a run to be. ID must be set, unique and stable, by whoever gives the outcome to the machine.
type Child struct {
	ID string `json:"id"`
	// Exactly one of Graph and Ref ("self" or "workflow/SLUG@version") is set.
	Graph  *Graph            `json:"graph,omitempty"`
	Ref    string            `json:"ref,omitempty"`
	Input  Input             `json:"input,omitzero"`
	TaskID string            `json:"task_id,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// SameDepth says that the child is a part of the work of the run that spawns it, moved to a run of its
	// own to keep that one small: it stands no deeper, so that a bound on nesting does not count it.
	SameDepth bool `json:"same_depth,omitempty"`
	// Workflow is what named the graph, and WorkflowHash its hash when the child was asked for. Who gives the
	// outcome to the machine sets them.
	Workflow     string `json:"workflow,omitempty"`
	WorkflowHash string `json:"workflow_hash,omitempty"`
	// Budget is what it may use. It gets at most what the run that spawns it has left by then.
	Budget *Budget `json:"budget,omitempty"`
	// TraceParent and TraceState are the W3C trace context of the call that asked for the child. The machine
	// keeps them and does not read them.
	TraceParent string `json:"trace_parent,omitempty"`
	TraceState  string `json:"trace_state,omitempty"`
}

// ChildSlot is what became of one child: Status is COMPLETED, FAILED, CANCELED or TIMED_OUT. Usage rolls up
// into the parent's.
type ChildSlot struct {
	RunID   string                     `json:"run_id"`
	Status  Status                     `json:"status"`
	Reason  string                     `json:"reason,omitempty"`
	Result  json.RawMessage            `json:"result,omitempty"`
	Outputs map[string]json.RawMessage `json:"outputs,omitempty"`
	Error   *Error                     `json:"error,omitempty"`
	Usage   []Usage                    `json:"-"`
	// Spent is what counts against the parent's budget; nil counts Usage.
	Spent *Spent `json:"-"`
	// Unsettled is what the child used and could not price; Usage and Spent have none of its money.
	Unsettled []Unsettled `json:"-"`
}

// StatusTimedOut is the status of a child's slot whose wait ended before the child.
const StatusTimedOut Status = "TIMED_OUT"

// Interrupt is a question. ID must be set, unique and stable, by whoever gives the outcome to the machine.
type Interrupt struct {
	ID     string          `json:"id"`
	Prompt json.RawMessage `json:"prompt,omitempty"`
	// Schema is the JSON Schema of the answer; who takes the answer in checks it.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Timeout, if above 0, closes the question: the answer then is Default, or without one the visit fails
	// with INTERRUPT_EXPIRED.
	Timeout Duration        `json:"timeout,omitempty"`
	Default json.RawMessage `json:"default,omitempty"`
	// Approve makes it a question of approval of exactly this. The visit's value then is
	// {"decision": "APPROVED" | "REJECTED", "by": …, "approve_hash": …, "answer": …}.
	Approve json.RawMessage `json:"approve,omitempty"`
	// Workflows are the hashes of the graphs of the workflows that what is to be approved names, by what
	// names them. Who gives the outcome to the machine sets it: the machine compares with it what children
	// are made of.
	Workflows map[string]string `json:"workflows,omitempty"`
}

// CompletionWait is work that goes on outside. A Timeout above 0 fails the visit with COMPLETION_EXPIRED.
type CompletionWait struct {
	Timeout Duration `json:"timeout,omitempty"`
}

// SignalWait names a signal. A Timeout above 0 fails the visit with SIGNAL_EXPIRED.
type SignalWait struct {
	Name    string   `json:"name"`
	Timeout Duration `json:"timeout,omitempty"`
}

// Timer is due at Until, or After the attempt's end when Until is zero.
type Timer struct {
	Until time.Time `json:"until,omitzero"`
	After Duration  `json:"after,omitempty"`
}

// Usage is what one model call consumed. Costs are integers; CostNanoUSD is nil when the actor does not know
// a price.
type Usage struct {
	Provider        string `json:"provider,omitempty"`
	Model           string `json:"model,omitempty"`
	InputTokens     int64  `json:"input_tokens,omitempty"`
	OutputTokens    int64  `json:"output_tokens,omitempty"`
	CachedTokens    int64  `json:"cached_tokens,omitempty"`
	ReasoningTokens int64  `json:"reasoning_tokens,omitempty"`
	CostNanoUSD     *int64 `json:"cost_nano_usd,omitempty"`
	// Call tells several calls of one attempt apart in the books.
	Call string `json:"call,omitempty"`
	// Unsettled is set by whoever ran the call when its price could not be asked for: under a cap in money
	// nothing starts until Settled tells it.
	Unsettled bool `json:"unsettled,omitempty"`
}

// ErrorType says what is known about an attempt that failed.
type ErrorType string

// Retryable and Permanent are definite failures. Unknown means that the effect may or may not have happened;
// NotPerformed that it surely has not.
const (
	Retryable    ErrorType = "RETRYABLE"
	Permanent    ErrorType = "PERMANENT"
	Unknown      ErrorType = "UNKNOWN"
	NotPerformed ErrorType = "NOT_PERFORMED"
)

// Reasons that the machine and the runner give themselves. Actors add their own.
const (
	ReasonCheckFailed       = "CHECK_FAILED"
	ReasonTransformFailed   = "TRANSFORM_FAILED"
	ReasonConditionFailed   = "CONDITION_FAILED"
	ReasonPassDownFailed    = "PASS_DOWN_FAILED"
	ReasonMapFailed         = "MAP_FAILED"
	ReasonKeyFailed         = "CONCURRENCY_KEY_FAILED"
	ReasonTooManyArguments  = "TOO_MANY_ARGUMENTS"
	ReasonArgumentsTooLarge = "ARGUMENTS_TOO_LARGE"
	ReasonUnknownSelection  = "UNKNOWN_SELECTION"
	ReasonBadOutcome        = "BAD_OUTCOME"
	ReasonUnsupported       = "NOT_SUPPORTED"
	ReasonInterruptExpired  = "INTERRUPT_EXPIRED"
	ReasonCompletionExpired = "COMPLETION_EXPIRED"
	ReasonSignalExpired     = "SIGNAL_EXPIRED"
	ReasonChildFailed       = "CHILD_FAILED"
	ReasonBadChild          = "BAD_CHILD"
	ReasonTooDeep           = "TOO_DEEP"
	ReasonExpandRefused     = "EXPAND_REFUSED"
	ReasonDeadline          = "DEADLINE_EXCEEDED"
	ReasonStateRefused      = "STATE_REFUSED"
	ReasonQuorumUnreachable = "QUORUM_UNREACHABLE"
	ReasonTimeout           = "TIMEOUT"
	ReasonIdleTimeout       = "IDLE_TIMEOUT"
	ReasonCanceled          = "CANCELED"
	ReasonLost              = "LOST"
	ReasonPanic             = "PANIC"
	ReasonActorError        = "ACTOR_ERROR"
)

// Error is the typed failure of an attempt. As a Go error it may be returned by an Actor.
type Error struct {
	Type ErrorType `json:"type"`
	// Reason is a stable word. An actor whose context has ended may leave it out: TIMEOUT, IDLE_TIMEOUT or
	// CANCELED takes its place, by what ended the context.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter delays the next attempt at least this long when the other side asked for it.
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Usage is what the failed attempt consumed all the same.
	Usage []Usage `json:"usage,omitempty"`
	// Lost says that what carried the call went away in the middle of it: an executor, a worker, the
	// connection to it. Such an attempt does not count against retry.max_attempts.
	Lost bool `json:"lost,omitempty"`
}

// Lostf makes the error of an attempt that was lost with what carried it.
func Lostf(t ErrorType, format string, args ...any) *Error {
	e := Errorf(t, ReasonLost, format, args...)
	e.Lost = true
	return e
}

// Error reads "REASON: message".
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Reason
	}
	return e.Reason + ": " + e.Message
}

// Errorf makes a typed error.
func Errorf(t ErrorType, reason, format string, args ...any) *Error {
	return &Error{Type: t, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Classify makes a typed error of what the call of an actor returned. The type and reason that the actor gave
// stand. cut is the error of a call whose context ended first, or nil: it names the reason if the actor gave
// none. Of an UNSAFE call that failed without a type it is unknown whether it was performed; others may be
// tried again.
func Classify(err error, effect Effect, cut *Error) *Error {
	unclear := Retryable
	if effect == Unsafe {
		unclear = Unknown
	}
	typed, ok := errors.AsType[*Error](err)
	switch {
	case ok && typed != nil:
		e := *typed
		e.Type = cmp.Or(e.Type, unclear)
		if e.Reason == "" && cut != nil {
			e.Reason, e.Message = cut.Reason, cut.Message
		}
		return &e
	case cut != nil:
		return cut
	}
	return Errorf(unclear, ReasonActorError, "%v", err)
}
