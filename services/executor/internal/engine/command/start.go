package command

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// IDPrefix is the prefix of run ids.
const IDPrefix = "run"

// StartRequest describes a new run. Its byte slices are kept, not copied.
type StartRequest struct {
	Namespace string
	Graph     *workgraph.Graph
	// CheckInputs has inputs refused at once that the workflow of the graph does not declare. Else the run
	// fails at its first node.
	CheckInputs bool
	// Source says who made Graph.
	Source program.Source
	// Memo, if not nil, keeps what is computed about Graph for the next start with it.
	Memo    *program.Memo
	Input   workgraph.Input
	Context json.RawMessage

	TaskID, UserID, ChatID, ThreadID string
	// NewThread is the thread of the run in place of ThreadID. If it has a key that another thread has, that
	// one is taken; else it is made with the run.
	NewThread *workgraph.ThreadCreate
	// Imported make threads with their items in the commit that records the run. The first one is the thread
	// of the run, in place of ThreadID and NewThread. If another thread has its key, the start is refused.
	Imported    []thread.Append
	BusinessKey string
	Conflict    journal.ConflictPolicy
	Labels      map[string]string
	// Priority is 1 (first) to 4; 0 means DefaultPriority.
	Priority              int
	Metadata, Attachments []byte
	Request               journal.Request

	// ID, if set, becomes the id of the run. A second start with it fails with ReasonRunExists. It must not
	// collide with ids that others generate.
	ID string
	// StartTime is when the run begins; it is pending until then. The zero time and a past time mean now.
	StartTime time.Time
	// Budget is what the run may use before it is paused; nil means no limit.
	Budget *workgraph.Budget
	// Timeout, if above 0, ends the run this long after its start. Deadline, if earlier, ends it at that
	// time.
	Timeout  time.Duration
	Deadline time.Time
	// Pending leaves the start to the run's job, even if StartTime has passed.
	Pending bool
	// ForkedFrom is the run that this run is forked from. ScheduleID is the schedule that starts it.
	ForkedFrom, ScheduleID string
	// EpicID is the epic of a task that is claimed already.
	EpicID string
	// Reuse are the visits that are reused from another run.
	Reuse []workgraph.ReusedVisit
	// Shared are the ends of threads that the agents of the run share and go on with, by their names.
	// SharedThreads makes its own forks of them in the commit that records the run.
	Shared map[string]SharedEnd
	// Signal is sent to the run in the transaction that records it; nil sends none.
	Signal *Signal
	// Webhooks receive the events of the run.
	Webhooks []webhook.Hook
	// Turn is the number of the turn of ThreadID that starts the run; 0 means none.
	Turn int64
	// Principal is the caller that the start is attributed to, for a schedule, a trigger or a turn. Else it
	// is the caller of the request.
	Principal string

	// RootID is the root of the run's lineage, if the run has a parent.
	RootID  string
	Lineage record.Lineage
	// Lock, if not nil, is held while Before runs and, if Before returns nil, during the start.
	Lock   sync.Locker
	Before func() error
	// Origin is the span that recorded the run that this one is forked from. Its trace is linked.
	Origin trace.SpanContext
	// Full reports that the namespace has no room for another open run at the moment.
	Full bool
}

// Signal is a named message to a run.
type Signal struct {
	Name    string
	Payload json.RawMessage
}

// EndsAt is the time at which the run is ended at the latest, or zero.
func (req *StartRequest) EndsAt(now time.Time) time.Time {
	d := req.Deadline
	if req.Timeout > 0 {
		from := now
		if req.StartTime.After(now) {
			from = req.StartTime
		}
		if at := from.Add(req.Timeout); d.IsZero() || at.Before(d) {
			d = at
		}
	}
	return dbkit.Micros(d)
}

// argAttachments is the named argument that passes the run's attachments to its nodes.
const argAttachments = "attachments"

// Propagates is the input of the start nodes: the caller's input, and the attachments unless the caller
// used their name for another argument.
func (req *StartRequest) Propagates() workgraph.Input {
	if len(req.Attachments) == 0 || req.Input.Named[argAttachments] != nil {
		return req.Input
	}
	in := workgraph.Input{Args: req.Input.Args, Named: maps.Clone(req.Input.Named)}
	if in.Named == nil {
		in.Named = make(map[string]json.RawMessage, 1)
	}
	in.Named[argAttachments] = req.Attachments
	return in
}

// Started is the result of a start.
type Started struct {
	ID      string
	Created bool
	// Run is the row as it was written; nil unless Created.
	Run *journal.Run
	// Interrupts is how many interrupts the run had at its start.
	Interrupts int
}
