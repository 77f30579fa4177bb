package feed

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Event is something that happened in a run. Exactly one of Durable and Ephemeral is set.
type Event struct {
	Namespace, RunID, RootID string
	// GraphHash may be set with the event that begins a run. If it is empty, the run's row has the hash.
	GraphHash string
	// Durable is an entry of the journal.
	Durable *record.Durable
	// Ephemeral reports on an attempt under way. It is not stored.
	Ephemeral *Ephemeral
	// Unbooked counts the attempts whose usage was not booked in time. It is set with the end of a watched
	// run.
	Unbooked int64
	// Ended is the row of a watched run, without what is large. It is set with the end of the run.
	Ended *journal.Run
}

// size estimates the memory that the event takes.
func (e *Event) size() int {
	n := 1 << 10
	if d := e.Durable; d != nil {
		if d.Input != nil {
			n += int(record.InputSize(*d.Input, d.Context))
		}
		if d.Outcome != nil {
			n += record.OutcomeSize(*d.Outcome) + record.WaitSize(d.Outcome)
		}
	} else if p := e.Ephemeral; p != nil {
		n += len(p.Text) + len(p.Progress)
	}
	return n
}

// Ephemeral is a report on an attempt under way: its start, a piece of text, or its progress.
type Ephemeral struct {
	workgraph.Ref
	Attempt int
	At      time.Time
	Started bool
	Actor   string
	Text    string
	// Offset is how many bytes of text of this kind the attempt had written before.
	Offset int64
	// Raw says that the text is in a form for programs.
	Raw      bool
	Progress json.RawMessage
	// Queued is set if the run has not begun. The event concerns no attempt then.
	Queued *Queued
}
