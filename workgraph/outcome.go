package workgraph

import (
	"encoding/json"
	"fmt"
	"time"
)

// Stop says what a visit means for the rest of its run.
type Stop string

// Proceed (the zero value) goes on; Terminate ends the run as COMPLETED once what is in flight has ended; AbstainResult leaves
// the visit's value out and makes its edges dead.
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
	// Expand is refused in this release.
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

// Wait keeps the visit open after the attempt. Exactly one field is set; only Timer is supported in this release.
type Wait struct {
	// Timer ends the visit with the outcome's values at a time.
	Timer *Timer `json:"timer,omitempty"`
	// Children, Interrupt and Task are refused in this release.
	Children  json.RawMessage `json:"children,omitempty"`
	Interrupt json.RawMessage `json:"interrupt,omitempty"`
	Task      json.RawMessage `json:"task,omitempty"`
}

// Timer is due at Until, or After the attempt's end when Until is zero.
type Timer struct {
	Until time.Time `json:"until,omitzero"`
	After Duration  `json:"after,omitempty"`
}

// Usage is what one model call consumed. Costs are integers; CostNanoUSD is nil when the actor does not know a price.
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
}

// ErrorType says what is known about an attempt that failed.
type ErrorType string

// Retryable and Permanent are definite failures. Unknown means that the effect may or may not have happened; NotPerformed
// that it surely has not.
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
	Type    ErrorType `json:"type"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// RetryAfter delays the next attempt at least this long when the other side asked for it.
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Usage is what the failed attempt consumed all the same.
	Usage []Usage `json:"usage,omitempty"`
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
