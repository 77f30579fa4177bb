package workgraph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Stop says what a visit means for the rest of its run.
type Stop string

// Proceed (the zero value) goes on. Terminate ends the run as COMPLETED once all attempts in flight have
// ended. AbstainResult leaves the visit's value out and makes its edges dead.
const (
	Proceed       Stop = ""
	Terminate     Stop = "TERMINATE"
	AbstainResult Stop = "ABSTAIN_RESULT"
)

// Outcome is the result of a successful attempt.
type Outcome struct {
	// Values holds nothing, one value, or the elements of a tuple.
	Values []json.RawMessage `json:"values,omitempty"`
	Stop   Stop              `json:"stop,omitempty"`
	// Select narrows which outgoing edges may fire. Nil leaves that to their conditions.
	Select *Select `json:"select,omitempty"`
	// Expand is a graph to insert after the visit's node. It runs before the node's successors, on what the
	// visit passes down, and the successors run on what its sinks give. Its ids become "node#visit/id".
	Expand *Graph `json:"expand,omitempty"`
	Wait   *Wait  `json:"wait,omitempty"`
	// State holds updates by key. The key's reducer combines each with the current value.
	State map[string]json.RawMessage `json:"state,omitempty"`
	Usage []Usage                    `json:"usage,omitempty"`
	// Threads are items for threads. They become durable together with the end of the attempt, and are no
	// part of its event. The attempt fails with ReasonThreadConflict if one cannot be added.
	Threads []ThreadAppend `json:"-"`
	// Payer says who pays for the calls of the run from now on. It becomes durable together with the end of
	// the attempt, and is no part of its event. The machine does not read it. nil changes nothing.
	Payer *Payer `json:"-"`
	// Pause, if it is not empty, is the reason for which the run pauses as soon as the visit has completed.
	// Its successors start when the run is resumed. A run that is ending, or paused already, ignores it.
	Pause string `json:"pause,omitempty"`
	// Routed are the decisions about who goes on that the outcome contains. Only internal actors tell them.
	Routed []Routed `json:"routed,omitempty"`
	// Saved is what an earlier, equal call used whose outcome this is. It is told and not counted. The caller
	// that gives the outcome to the machine sets it, whatever the actor says.
	Saved *Used `json:"saved,omitempty"`
}

// Payer is the epic that the run steers, or the task that it does itself.
type Payer struct {
	EpicID string
	// TaskID is a task of the epic that the run does itself from now on, or with Done no longer. If it is
	// empty, the run has changed the epic, and goes on with the task that it does, if there is one; or with
	// Done it has ended the epic, which pays no longer.
	TaskID string
	Done   bool
}

// Routed is a decision about who goes on, for readers and metrics. The machine does not read it.
type Routed struct {
	// Workflow is the graph that it is of. Empty is that of the run.
	Workflow string `json:"workflow,omitempty"`
	From     string `json:"from,omitempty"`
	To       string `json:"to"`
	How      string `json:"how"`
	// Why is the condition, or the tool, that decided; empty if How says it all.
	Why string `json:"why,omitempty"`
}

// How a decision came about: by a condition that held, because no other one did, by an agent that hands over,
// by a tool of an agent that sets what a condition reads, by a model that chooses, or by who hears whom.
const (
	RoutedByCondition = "condition"
	RoutedElse        = "else"
	RoutedByHandoff   = "handoff"
	RoutedByTool      = "tool"
	RoutedBySelector  = "selector"
	RoutedByRouter    = "router"
)

// Select is a visit's own choice among its out-edges.
type Select struct {
	// Self fires the node's own BACK edge (From == To) if its condition holds as well.
	Self bool `json:"self,omitempty"`
	// Others says whether the other outgoing edges may fire. The empty value is SelectAll.
	Others Others `json:"others,omitempty"`
	// Names are the targets that may fire under SelectNames.
	Names []string `json:"names,omitempty"`
}

// Others is the part of a Select about edges to other nodes.
type Others string

// SelectNames limits the edges to the targets in Select.Names.
const (
	SelectAll   Others = "ALL"
	SelectNone  Others = "NONE"
	SelectNames Others = "NAMES"
)

// Wait keeps the visit open after the attempt. Exactly one field must be set. A visit that waits uses no
// memory but its place in the state. A command ends the wait.
type Wait struct {
	// Timer ends the visit at a time, with the outcome's values.
	Timer *Timer `json:"timer,omitempty"`
	// Children spawns runs. The visit's value is the list of their slots (ChildSlot) in the order of Runs.
	Children *Children `json:"children,omitempty"`
	// Interrupt asks a person. The visit's value is the answer.
	Interrupt *Interrupt `json:"interrupt,omitempty"`
	// Completion waits for work that goes on outside. The visit's values are those of the completion.
	Completion *CompletionWait `json:"completion,omitempty"`
	// Signal takes the first signal of a name that no earlier wait took. The visit's value is its payload.
	Signal *SignalWait `json:"signal,omitempty"`
}

// Children are runs that a visit spawns and waits for.
type Children struct {
	Runs []Child `json:"runs"`
	// Timeout, if above 0, ends the wait. Children that still run are then canceled, and their slots say
	// TIMED_OUT.
	Timeout Duration `json:"timeout,omitempty"`
	// FailFast fails the visit with CHILD_FAILED at the first child that does not complete, and cancels the
	// others.
	FailFast bool `json:"fail_fast,omitempty"`
	// AsResult makes the only run stand for the visit: the visit's value is that run's result instead of a
	// list of slots. The visit fails with CHILD_FAILED if the run does not complete or its result was left
	// out. Exactly one run must be given.
	AsResult bool `json:"as_result,omitempty"`
	// Bare makes the visit's value the list of the results of the children, without their slots. In place of
	// the result of a child that did not complete, or that was left out, stands a BareFault.
	Bare bool `json:"bare,omitempty"`
	// Keep says under which key the outcome is to be kept for equal calls once the visit has completed. The
	// caller that gives the outcome to the machine sets it, whatever the actor says.
	Keep *KeepAs `json:"keep,omitempty"`
}

// KeepAs is where, and for how long, an outcome is kept for equal calls.
type KeepAs struct {
	Key string   `json:"key"`
	For Duration `json:"for"`
}

// strict reports whether the first child that does not complete fails the visit.
func (c *Children) strict() bool { return c.FailFast || c.AsResult }

// fails reports whether the end of a child fails the visit. A child that completed has an error if its result
// was left out.
func (c *Children) fails(sl *ChildSlot) bool {
	return c.strict() && sl.Status != StatusCompleted || c.AsResult && sl.Error != nil
}

// Child is a run to spawn. The caller that gives the outcome to the machine must set ID, unique and stable.
type Child struct {
	ID string `json:"id"`
	// Exactly one of Graph and Ref ("self", "workflow/SLUG@version" or "workflow/SLUG@alias") is set.
	Graph  *Graph            `json:"graph,omitempty"`
	Ref    string            `json:"ref,omitempty"`
	Input  Input             `json:"input,omitzero"`
	TaskID string            `json:"task_id,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	// Delegated says that a model chose what the child runs. The machine keeps it and does not read it.
	Delegated bool `json:"delegated,omitempty"`
	// SameDepth says that the child is a part of the spawning run's own work, moved to another run to keep
	// that one small. The child has the depth of its parent, so that a bound on nesting does not count it.
	SameDepth bool `json:"same_depth,omitempty"`
	// Apart says that the child is one of several that the visit asks for. The caller that gives the
	// outcome to the machine sets it.
	Apart bool `json:"apart,omitempty"`
	// Workflow is the name by which the graph was given, and WorkflowHash the graph's hash when the child was
	// asked for. WorkflowVersion is the version that the name stood for, if it is an alias. The caller that
	// gives the outcome to the machine sets them.
	Workflow        string `json:"workflow,omitempty"`
	WorkflowHash    string `json:"workflow_hash,omitempty"`
	WorkflowVersion string `json:"workflow_version,omitempty"`
	// Budget is what the child may use. It gets at most what its parent has left when it is spawned.
	Budget *Budget `json:"budget,omitempty"`
	// Agent says that the child does an agent's own work. The machine keeps it and does not read it.
	Agent *AgentRun `json:"agent,omitempty"`
	// TraceParent and TraceState are the W3C trace context of the call that asked for the child. The machine
	// keeps them and does not read them.
	TraceParent string `json:"trace_parent,omitempty"`
	TraceState  string `json:"trace_state,omitempty"`
}

// AgentRun says whose work the run of an agent does. Traces and metrics are named by it.
type AgentRun struct {
	// Name is the actor that was called as the agent.
	Name string `json:"name"`
	// Thread is the thread that the agent works on. It is empty if that is not known yet when the run is
	// asked for.
	Thread string `json:"thread,omitempty"`
	// Round says that the run carries out one round. Else it is the agent's loop as a whole.
	Round bool `json:"round,omitempty"`
	// Configured says that the configuration of the server defines the agent, and with it the names of its
	// tools.
	Configured bool `json:"configured,omitempty"`
}

// StateToolCalls is the key of the state of an agent's run with the ids by which a model asked for tools: an
// object with the nodes that carry out the calls.
const StateToolCalls = "tool_calls"

// ChildSlot is the end of one child. Status is COMPLETED, FAILED, CANCELED or TIMED_OUT. Usage is added to
// the parent's.
type ChildSlot struct {
	RunID   string                     `json:"run_id"`
	Status  Status                     `json:"status"`
	Reason  string                     `json:"reason,omitempty"`
	Result  json.RawMessage            `json:"result,omitempty"`
	Outputs map[string]json.RawMessage `json:"outputs,omitempty"`
	Error   *Error                     `json:"error,omitempty"`
	Usage   []Usage                    `json:"-"`
	// Spent is what counts against the parent's budget. If it is nil, Usage counts.
	Spent *Spent `json:"-"`
	// Unsettled is usage of the child that has no price yet. Usage and Spent do not contain its cost.
	Unsettled []Unsettled `json:"-"`
}

// BareFault stands in a list of results for that of a child that has none. Its name is that of other systems.
type BareFault struct {
	Error  string `json:"_error"`
	RunID  string `json:"run_id"`
	Status Status `json:"status"`
}

// maxBareFault bounds the text of a BareFault in bytes.
const maxBareFault = 500

// bare is the result of the child, or a BareFault.
func (sl *ChildSlot) bare() any {
	fault := BareFault{RunID: sl.RunID, Status: sl.Status}
	switch {
	case sl.Status == StatusTimedOut:
		fault.Error = "Child execution timed out"
		return fault
	case sl.Error != nil:
		fault.Error = "Child execution failed: " + sl.Error.Error()
	case sl.Status == StatusCompleted && len(sl.Result) > 0:
		return sl.Result
	case sl.Status == StatusCompleted:
		return rawNull
	case sl.Reason != "":
		fault.Error = "Child execution failed: " + string(sl.Status) + ", " + sl.Reason
	default:
		fault.Error = "Child execution failed: " + string(sl.Status)
	}
	fault.Error = strings.ToValidUTF8(fault.Error[:min(len(fault.Error), maxBareFault)], "")
	return fault
}

// StatusTimedOut is the status of a child's slot if the wait ended before the child did.
const StatusTimedOut Status = "TIMED_OUT"

// Interrupt is a question to a person. The caller that gives the outcome to the machine must set ID, unique
// and stable.
type Interrupt struct {
	ID     string          `json:"id"`
	Prompt json.RawMessage `json:"prompt,omitempty"`
	// Schema is the JSON Schema of the answer. The caller that accepts the answer checks it.
	Schema json.RawMessage `json:"schema,omitempty"`
	// Timeout, if above 0, closes the interrupt. The answer is then Default; without one the visit fails with
	// INTERRUPT_EXPIRED.
	Timeout Duration        `json:"timeout,omitempty"`
	Default json.RawMessage `json:"default,omitempty"`
	// Approve makes it an approval of exactly this value. The visit's value then is {"decision":
	// "APPROVED" | "REJECTED", "by": …, "approve_hash": …, "answer": …}.
	Approve json.RawMessage `json:"approve,omitempty"`
	// Workflows are graph hashes of the workflows that the value to approve names, by name. The caller that
	// gives the outcome to the machine sets them. The machine compares them with the graphs of children.
	Workflows map[string]string `json:"workflows,omitempty"`
	// OfAgent says that an agent's own loop asks, so that a message to the agent answers it. The caller that
	// gives the outcome to the machine sets it, whatever the actor says.
	OfAgent bool `json:"of_agent,omitempty"`
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

// Timer is due at Until, or if Until is zero, After the end of the attempt.
type Timer struct {
	Until time.Time `json:"until,omitzero"`
	After Duration  `json:"after,omitempty"`
}

// Usage is what one model call consumed. Costs are integers. CostNanoUSD is nil if the actor does not know a
// price.
type Usage struct {
	Provider        string `json:"provider,omitempty"`
	Model           string `json:"model,omitempty"`
	InputTokens     int64  `json:"input_tokens,omitempty"`
	OutputTokens    int64  `json:"output_tokens,omitempty"`
	CachedTokens    int64  `json:"cached_tokens,omitempty"`
	ReasoningTokens int64  `json:"reasoning_tokens,omitempty"`
	CostNanoUSD     *int64 `json:"cost_nano_usd,omitempty"`
	// Call tells several calls of one attempt apart in the accounting.
	Call string `json:"call,omitempty"`
	// Unsettled is set by the caller of the actor if the price could not be asked for. Under a cap in money
	// nothing starts until a Settled command gives the price.
	Unsettled bool `json:"unsettled,omitempty"`
	// Unlimited is set by the caller of the actor in what a call wants that states no limit of its answer:
	// OutputTokens is the one that is sent for it then, and the call is expected to use less.
	Unlimited bool `json:"unlimited,omitempty"`
}

// EmbeddingCall is the Call of usage of a model that makes vectors.
const EmbeddingCall = "embed"

// ErrorType says what is known about an attempt that failed.
type ErrorType string

// Retryable and Permanent are definite failures. Unknown means that the effect may or may not have happened.
// NotPerformed means that it has not happened for certain.
const (
	Retryable    ErrorType = "RETRYABLE"
	Permanent    ErrorType = "PERMANENT"
	Unknown      ErrorType = "UNKNOWN"
	NotPerformed ErrorType = "NOT_PERFORMED"
)

// Reasons that the machine and the runner use. Actors add their own.
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
	// ReasonAnotherRequest is the reason when the user asks for something else in place of an answer; the
	// message says for what. Visits above fail with the same error, up to one that handles it.
	ReasonAnotherRequest    = "ANOTHER_REQUEST"
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

// MaxRetryAfter is the longest delay that the other side of a call may ask for. Without it a server could
// park a run for good.
const MaxRetryAfter = time.Hour

// Error is the typed failure of an attempt. An Actor may return it as a Go error.
type Error struct {
	Type ErrorType `json:"type"`
	// Reason is a stable word. An actor whose context has ended may leave it empty: the cause of that end,
	// TIMEOUT, IDLE_TIMEOUT or CANCELED, then takes its place.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// RetryAfter is the least delay before the next attempt, as the other side asked for it; a longer one
	// than MaxRetryAfter counts as that.
	RetryAfter Duration `json:"retry_after,omitempty"`
	// Usage is what the failed attempt consumed.
	Usage []Usage `json:"usage,omitempty"`
	// Lost says that the executor, the worker or the connection to it went away during the call. Such an
	// attempt does not count against retry.max_attempts.
	Lost bool `json:"lost,omitempty"`
	// Wanted is what the call may use at most for which a cap above the run leaves no room:
	// NOT_PERFORMED with ReasonCap.
	Wanted *Usage `json:"wanted,omitempty"`
}

// Lostf makes the error of a lost attempt; see Error.Lost.
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

// Classify makes a typed error of the error that an actor returned. The type and reason of the actor stand.
// cut is the error of a call whose context ended first, or nil; it gives the reason if the actor gave none.
// An UNSAFE call that failed without a type is UNKNOWN. Other calls without a type are RETRYABLE.
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
