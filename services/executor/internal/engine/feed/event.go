package feed

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Event is one thing that happened in a run. Exactly one of Durable and Ephemeral is set.
type Event struct {
	Namespace, RunID, RootID string
	// GraphHash may be set with the event that begins a run; else the run's row tells it.
	GraphHash string
	// Durable is an entry of the journal.
	Durable *record.Durable
	// Ephemeral tells of an attempt under way; it is not kept.
	Ephemeral *Ephemeral
	// Unbooked counts, with the end of a watched run, the attempts whose usage was not booked in time.
	Unbooked int64
}

// size is about what it takes in memory.
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

// Ephemeral is what an attempt tells while it is under way: its start, a piece of text, or how far it is.
type Ephemeral struct {
	workgraph.Ref
	Attempt  int
	At       time.Time
	Started  bool
	Actor    string
	Text     string
	Progress json.RawMessage
	// Queued is set when the run has not begun; no attempt is meant then.
	Queued *Queued
}
