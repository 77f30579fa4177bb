package journal

import "time"

// State is where a run stands. The numbers are those of the API and never change.
type State int32

// The states.
const (
	StatePending     State = 1
	StateRunning     State = 2
	StateWaiting     State = 3
	StatePaused      State = 4
	StateQuarantined State = 5
	StateCompleted   State = 6
	StateFailed      State = 7
	StateCanceled    State = 8
)

// States are all states.
func States() []State {
	return append([]State{StatePending, StateRunning, StateWaiting, StatePaused, StateQuarantined}, EndedStates()...)
}

// AllStates are all that a run may be in.
func AllStates() []State {
	return []State{StatePending, StateRunning, StateWaiting, StatePaused, StateQuarantined, StateCompleted, StateFailed, StateCanceled}
}

// EndedStates are those of runs that are over.
func EndedStates() []State { return []State{StateCompleted, StateFailed, StateCanceled} }

// Ended reports whether a run in this state is over. An ended run holds no business key.
func (s State) Ended() bool { return s >= StateCompleted && s <= StateCanceled }

// String is the name that the API gives the state.
func (s State) String() string {
	names := [...]string{"", "PENDING", "RUNNING", "WAITING", "PAUSED", "QUARANTINED", "COMPLETED", "FAILED", "CANCELED"}
	if s > 0 && int(s) < len(names) {
		return names[s]
	}
	return "UNKNOWN"
}

// Run is one row of runs with all that hangs on it. Byte fields are opaque; an empty one is kept as nil,
// here and everywhere in the journal.
type Run struct {
	ID, Namespace    string
	GraphName        string
	GraphHash        string
	TaskID, UserID   string
	ChatID, ThreadID string
	BusinessKey      string
	ParentID, RootID string
	MachineVersion   int
	TraceParent      string
	TraceState       string
	Sampled          bool
	CreateTime       time.Time
	// Priority is 1 (first) to 4; 0 means the usual 2.
	Priority int32
	// Deadline is when the run is to be ended whatever it does; zero means never.
	Deadline time.Time
	// ForkedFrom is the run of which this is a fork, ScheduleID the schedule that started it.
	ForkedFrom, ScheduleID string
	// EpicID is the epic of the task, or else the one that paid when the run was recorded; empty if there
	// is none. WorkflowVersion is the version of the catalog that the graph was taken from, as SLUG@VERSION.
	EpicID, WorkflowVersion string
	Labels                  map[string]string
	Metadata                []byte
	Args, Named             []byte
	Context                 []byte
	Attachments             []byte

	Status
	Outcome

	// What follows is kept by the journal; a Start need not set it.

	// Owner is who may write; zero after a release or a quarantine.
	Owner Owner
	// Takeovers counts them since the run last made progress.
	Takeovers int
	// Doing is what the run, which must be a suspect, keeps a processor of its owner busy with. DiedDoing
	// is what it did when an owner went down while it did something. See TakeOverPolicy.
	Doing, DiedDoing string
	// LastSeq is the sequence of the last event, 0 before the first.
	LastSeq int64
	// Revision rises with every change of the row itself: see Append. The etag is made of it.
	Revision int64
	// GraphRevision counts how often the run was pinned to another graph.
	GraphRevision int64
	// CostNanoUSD and UnpricedCalls are what acknowledged outbox items added.
	CostNanoUSD, UnpricedCalls int64
	// CancelTime is zero unless somebody asked for the end, by commands or by taking the business key.
	CancelTime   time.Time
	CancelReason string
}

// Status is what changes while a run goes on. All numbers are absolute, not additions.
type Status struct {
	State  State
	Reason string
	// StartTime, EndTime and WakeTime may be zero. WakeTime is when a waiting run wants to go on.
	StartTime, EndTime, UpdateTime, WakeTime time.Time
	Usage                                    Usage
	Nodes                                    NodeCounts
}

// Usage counts what models and tools used.
type Usage struct {
	InputTokens, CachedInputTokens, OutputTokens, ReasoningTokens, Calls int64
}

// NodeCounts says how many nodes stand where.
type NodeCounts struct {
	Total, Completed, Failed, Skipped, Running int32
}

// Outcome is what a run ended with. Opaque.
type Outcome struct {
	Result, Outputs, Error []byte
}

// Event is one line of a journal.
type Event struct {
	// RunID and Seq are set on reading; on writing the place in the Write decides.
	RunID string
	Seq   int64
	Time  time.Time
	// Kind says what Data is; above 0.
	Kind int32
	// NodeID and Visit are empty for events of the whole run.
	NodeID string
	Visit  int32
	Data   []byte
}

// Size implements page.Row.
func (e Event) Size() int { return rowSize + len(e.Data) }

// rowSize is what a row takes beside its texts.
const rowSize = 512

// Size implements page.Row for a run without its arguments and results.
func (r Run) Size() int {
	n := rowSize + len(r.GraphName) + len(r.BusinessKey) + len(r.Metadata) + len(r.Reason) + len(r.CancelReason) + len(r.Error) + len(r.TraceState)
	for k, v := range r.Labels {
		n += len(k) + len(v)
	}
	return n
}
