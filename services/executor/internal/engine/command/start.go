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
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// IDPrefix is the prefix of run ids.
const IDPrefix = "run"

// StartRequest says what is to run. Byte fields are kept as they are.
type StartRequest struct {
	Namespace string
	Graph     *workgraph.Graph
	// Known, if not nil, keeps what is found out about Graph for the next start of it.
	Known   *program.Known
	Input   workgraph.Input
	Context json.RawMessage

	TaskID, UserID, ChatID, ThreadID string
	BusinessKey                      string
	Conflict                         journal.ConflictPolicy
	Labels                           map[string]string
	// Priority is 1 (first) to 4; 0 means DefaultPriority.
	Priority              int
	Metadata, Attachments []byte
	Request               journal.Request

	// ID, if set, is the run's; it must be an id of a run that nobody else gives. A second start with it is
	// ReasonRunExists.
	ID string
	// StartTime is when the run is to begin; the zero time and one that has passed mean now. Until then it is
	// pending.
	StartTime time.Time
	// Budget is what it may use before it is paused; nil is no limit.
	Budget *workgraph.Budget
	// Timeout, if above 0, is how long after its start the run is ended whatever it does; Deadline, if
	// earlier, says when.
	Timeout  time.Duration
	Deadline time.Time
	// Pending leaves the start to whoever takes the run's job, though it may begin now.
	Pending bool
	// ForkedFrom is the run of which this is a fork, ScheduleID the schedule that starts it.
	ForkedFrom, ScheduleID string
	// Reuse are the visits that are taken over from another run.
	Reuse []workgraph.ReusedVisit
	// Signal is given to the run in the transaction that records it; nil gives none.
	Signal *Signal
	// Webhooks are told what becomes of it.
	Webhooks []webhook.Hook
	// Principal is who asks for it, of the start of a schedule; else the caller's is taken.
	Principal string

	// RootID is the top of the run's family, if it has a parent.
	RootID  string
	Lineage record.Lineage
	// Lock, if not nil, is held while before, and if that finds nothing against it the start, are carried
	// out.
	Lock   sync.Locker
	Before func() error
	// Origin is the span that recorded the run of which this is a fork; its trace is linked.
	Origin trace.SpanContext
	// Full says that the namespace has no room for the run at the moment.
	Full bool
}

// Signal is what a run may wait for by its name.
type Signal struct {
	Name    string
	Payload json.RawMessage
}

// EndsAt is when the run is to be ended, or zero.
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

// argAttachments is the named argument under which the run's documents travel to its nodes.
const argAttachments = "attachments"

// Propagates is the input that start nodes receive: the caller's, and the documents unless the caller gave
// that name a meaning.
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

// Started is what became of a start.
type Started struct {
	ID      string
	Created bool
	// Run is the row as it was written, so that nobody need read it; nil unless Created.
	Run *journal.Run
	// Asks is how many questions it began with.
	Asks int
}
