// Package feed owns what the registry tells of its changes: events, their kinds, and the cursors by
// which they are read. It must not know any database or protocol.
package feed

import (
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// ReasonCursorGone refuses a cursor behind which events were removed.
	ReasonCursorGone = "FEED_CURSOR_GONE"
	// ReasonCursorAhead refuses a cursor that the feed has not reached.
	ReasonCursorAhead = "FEED_CURSOR_AHEAD"
)

// Kind says what changed. Its text is the name of the event in the API, and is stored.
type Kind string

// The kinds.
const (
	EpicCreated       Kind = "epic_created"
	EpicUpdated       Kind = "epic_updated"
	EpicDeleted       Kind = "epic_deleted"
	TaskCreated       Kind = "task_created"
	TaskUpdated       Kind = "task_updated"
	TaskDeleted       Kind = "task_deleted"
	UsageBooked       Kind = "usage_booked"
	BudgetReached     Kind = "budget_reached"
	PriceCreated      Kind = "price_created"
	WorkflowPublished Kind = "workflow_published"
	MemoryWritten     Kind = "memory_written"
	MemoryDeleted     Kind = "memory_deleted"
	RunStarted        Kind = "run_started"
	RunEnded          Kind = "run_ended"
	RunPaused         Kind = "run_paused"
	RunResumed        Kind = "run_resumed"
	RunAmended        Kind = "run_amended"
	RunDeleted        Kind = "run_deleted"
	ThreadCreated     Kind = "thread_created"
	ThreadMessage     Kind = "thread_message"
	ThreadDeleted     Kind = "thread_deleted"
)

// Kinds are all kinds, in the order of the API.
func Kinds() []Kind {
	return []Kind{
		EpicCreated, EpicUpdated, EpicDeleted, TaskCreated, TaskUpdated, TaskDeleted, UsageBooked, BudgetReached, PriceCreated,
		WorkflowPublished, MemoryWritten, MemoryDeleted, RunStarted, RunEnded, RunPaused, RunResumed,
		RunAmended, RunDeleted, ThreadCreated, ThreadMessage, ThreadDeleted,
	}
}

// Known reports whether there is such a kind.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// Event is one change, as it was when its transaction committed.
type Event struct {
	Namespace string
	// Seq counts the events of a namespace from 1, without a gap and in the order of their commits. It
	// is the cursor of whoever has read as far as this event.
	Seq  int64
	Time time.Time
	Kind Kind
	// EpicID is empty for a change that concerns no epic, Slug for one that concerns no workflow.
	EpicID, Slug string
	// ThreadID is empty for a change that is not of a thread.
	ThreadID string
	Body     Body
}

// Size is about how many bytes the event adds to an answer.
func (e Event) Size() int {
	return e.Body.size + len(e.EpicID) + len(e.Slug) + len(e.ThreadID) + len(e.Namespace)
}

// Body is what changed: the fields that the kind needs. It is stored as JSON by the names of the fields
// here and of the values in them, so a field that is renamed keeps its name in JSON.
type Body struct {
	// ID is that of an epic or a task that was deleted, IDs are those of entries of the memory.
	ID   string     `json:",omitempty"`
	IDs  []string   `json:",omitempty"`
	Gone *Gone      `json:",omitempty"`
	Epic *epic.Epic `json:",omitempty"`
	Task *epic.Task `json:",omitempty"`
	// Brief says that the task comes without its long texts, which have not changed.
	Brief    bool               `json:",omitempty"`
	Usage    []usage.Entry      `json:",omitempty"`
	Budget   *Budget            `json:",omitempty"`
	Price    *usage.Price       `json:",omitempty"`
	Workflow *catalog.Workflow  `json:",omitempty"`
	Version  int64              `json:",omitempty"`
	Change   WorkflowChangeKind `json:",omitempty"`
	Memory   *Memory            `json:",omitempty"`
	// State is that of a run whose state has changed.
	State *RunState `json:",omitempty"`
	// Thread is a thread that was made or deleted, or has a new message.
	Thread *ThreadState `json:",omitempty"`
	// Run is the run within which the change was made, empty for none.
	Run string `json:",omitempty"`

	size int
}

// Sized returns the body with the number of bytes that it was stored in.
func (b Body) Sized(n int) Body {
	b.size = n
	return b
}

// Gone is what is told of an epic or a task that was deleted, as it was before. Events of earlier versions of
// the registry have none.
type Gone struct {
	Title string
	// State has the number of the API.
	State int16
	// Tasks counts the tasks that went with an epic.
	Tasks int64 `json:",omitempty"`
	// RunID is the last run of a task.
	RunID string `json:",omitempty"`
}

// Memory is an entry of the memory that was written, without what it says: whoever may read the feed need
// not be one who may read the scope.
type Memory struct {
	ID, Key  string
	Kind     memory.Kind
	Scope    memory.Scope
	Revision int64
}

// Budget is a cap that was reached. Name is that of the level: of an epic, task or run, or of the
// namespace.
type Budget struct {
	Level string
	Name  string
	Hard  bool
	// Tokens or NanoUSD is the cap; the other one is nil.
	Tokens, NanoUSD *int64
}

// RunState is what became of a run.
type RunState struct {
	RunID string
	// Parent is the run that spawned it; empty for a root.
	Parent string `json:",omitempty"`
	// Time is when the run changed; zero in events of versions of the registry that did not store it.
	Time time.Time `json:",omitzero"`
	// Version is that of the workflow; 0 for a run of none.
	Version int64
	// History counts the run, if it has ended, as the catalog does.
	History catalog.History
	Reason  string
	// TaskID is the task that it works on, or that pays for it; empty for none.
	TaskID string `json:",omitempty"`
	// Activity sums up what a run that has ended did; nil if its executor did not tell.
	Activity *Activity `json:",omitempty"`
	// Runs is how many runs are gone with one that was deleted, itself included.
	Runs int64 `json:",omitempty"`
}

// Activity sums up what a run has done. Nodes are counted by where they stand.
type Activity struct {
	Total, Completed, Failed, Skipped int32 `json:",omitempty"`
	Calls                             int64 `json:",omitempty"`
	// Duration is nil for a run that never started.
	Duration *time.Duration `json:",omitempty"`
}

// ThreadState is what became of a thread. Texts of messages are not told: whoever may read the feed need not
// be one who may read the thread.
type ThreadState struct {
	// Seq is the place of a message among the items, and of a new fork the last item that both share.
	Seq int64 `json:",omitempty"`
	// Role is that of the author of a message.
	Role string `json:",omitempty"`
	// RunID made the thread or appended the message.
	RunID string `json:",omitempty"`
	// What follows is of a thread that was made or deleted.
	Agent    string `json:",omitempty"`
	Title    string `json:",omitempty"`
	UserID   string `json:",omitempty"`
	Parent   string `json:",omitempty"`
	PartOf   string `json:",omitempty"`
	Lifetime string `json:",omitempty"`
	// Time is when the thread changed.
	Time time.Time `json:",omitzero"`
}

// WorkflowChangeKind says what happened to a workflow. Its numbers are those of the API.
type WorkflowChangeKind int16

// The changes of workflows.
const (
	// WorkflowCreated is a new workflow with its first version.
	WorkflowCreated WorkflowChangeKind = iota + 1
	// WorkflowVersioned is a new version.
	WorkflowVersioned
	// WorkflowChanged is a moved alias or a deprecation.
	WorkflowChanged
	// WorkflowDeleted is a deletion.
	WorkflowDeleted
)

// Query filters events; all filters that are set must hold.
type Query struct {
	Namespace    string
	EpicID, Slug string
	// RunID leaves in what was made within a run, and what became of it.
	RunID    string
	ThreadID string
	Kinds    []Kind
	// After is the cursor: events behind it are read. 0 begins with the oldest one that is kept.
	After int64
	Limit int
}

// Has reports whether an event is one that the filters leave in.
func (q Query) Has(e Event) bool {
	return (q.EpicID == "" || q.EpicID == e.EpicID) && (q.Slug == "" || q.Slug == e.Slug) && (q.RunID == "" || q.RunID == e.Body.Run) && (q.ThreadID == "" || q.ThreadID == e.ThreadID) && (len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind))
}

// Page is what a query found.
type Page struct {
	Events []Event
	// Cursor is behind all that was looked at: events of other kinds and those that the filters leave
	// out are before it, too.
	Cursor int64
	// End says that nothing was behind the cursor.
	End bool
}

// Bounds say how much of a feed is kept: all must hold.
type Bounds struct {
	// Rows are those of a namespace, and Bytes those of their bodies.
	Rows, Bytes int64
	Age         time.Duration
}

// CheckCursor refuses a cursor of a feed of which the events up to gone were removed, and that has come
// to last.
func CheckCursor(after, gone, last int64) error {
	if after > 0 && after < gone {
		return errs.New(errs.FailedPrecondition, ReasonCursorGone, "the events behind cursor %d are not kept any more: the oldest one is %d", after, gone+1).
			Hint("read what you need anew, for example with ListEpics, and read the feed from its end on; 0 begins with the oldest event that is kept")
	}
	if after > last {
		return errs.New(errs.FailedPrecondition, ReasonCursorAhead, "the feed has not come to cursor %d: its last event is %d", after, last).
			Hint("a cursor belongs to one namespace of one database; read what you need anew, and the feed from its end on")
	}
	return nil
}
