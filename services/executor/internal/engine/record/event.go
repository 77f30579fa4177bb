// Package record has the stored forms of a run: events, positions from which a replay continues, and
// payloads of commands. It converts between bytes and values and decides nothing.
package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Durable is an entry of a run's journal: the event of the machine, and what only the engine knows of it.
type Durable struct {
	workgraph.Event
	// StartTime is the start of the attempt that ended; zero for other kinds.
	StartTime time.Time
	// Actor is the actor of that attempt.
	Actor string
	// RequestID is the id of the request that caused the event, if it had one and may be repeated.
	RequestID string
	// Principal is the caller whose request caused the event, or whose worker reported the end of the
	// attempt, by the API key. It is empty if neither did.
	Principal string
	// Cached reports that the outcome was taken from the node cache.
	Cached bool
	// GraphChange is the change of the graph; nil if there is none.
	GraphChange *GraphChange
}

// GraphChange is a change of a run's graph.
type GraphChange struct {
	// Was and Hash are the content hashes of the graph before and after. Between several changes that are
	// applied together they are empty.
	Was  string `json:"was,omitempty"`
	Hash string `json:"hash,omitempty"`
	// Added, Removed and Changed are the nodes of an amendment.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
}

// rowKind is the number of a kind of event in the journal, or 0 if there is none. The numbers are stored
// and must not change.
func rowKind(k workgraph.EventKind) int32 {
	switch k {
	case workgraph.RunStarted:
		return 10
	case workgraph.AttemptStarted:
		return 11
	case workgraph.AttemptEnded:
		return 12
	case workgraph.TimerFired:
		return 13
	case workgraph.RunPaused:
		return 14
	case workgraph.RunResumed:
		return 15
	case workgraph.CancelRequested:
		return 16
	case workgraph.RunEnded:
		return 17
	case workgraph.Reconciled:
		return 20
	case workgraph.ChildClosed:
		return 22
	case workgraph.InterruptClosed:
		return 24
	case workgraph.SignalReceived:
		return 25
	case workgraph.MessageReceived:
		return 26
	case workgraph.GraphAmended:
		return 28
	case workgraph.CompletionReceived:
		return 29
	case workgraph.DeadlineReached:
		return 31
	case workgraph.VisitsReused:
		return 32
	case workgraph.BudgetChanged:
		return 33
	case workgraph.UsageSettled:
		return 34
	case workgraph.StopRequested:
		return 35
	}
	return 0
}

// record is the JSON form of an event.
type record struct {
	Event       json.RawMessage `json:"event"`
	StartTime   time.Time       `json:"start_time,omitzero"`
	Actor       string          `json:"actor,omitempty"`
	RequestID   string          `json:"request_id,omitempty"`
	Principal   string          `json:"principal,omitempty"`
	Cached      bool            `json:"cached,omitempty"`
	GraphChange *GraphChange    `json:"graph_change,omitempty"`
}

// EncodeEvent is the row of an event: compact if that form can express it, otherwise JSON.
func EncodeEvent(d *Durable) (journal.Event, error) {
	ev := &d.Event
	kind := rowKind(ev.Kind)
	if kind == 0 {
		return journal.Event{}, fmt.Errorf("encode event: unknown kind %q", ev.Kind)
	}
	row := journal.Event{Time: dbkit.Micros(ev.At), Kind: kind, NodeID: ev.Node, Visit: int32(min(ev.Visit, 1<<31-1))}
	if data, ok := compactEvent(d, row); ok {
		row.Data = data
		return row, nil
	}
	data, err := plainEvent(d)
	if err != nil {
		return journal.Event{}, err
	}
	row.Data = data
	return row, nil
}

// plainEvent is d in JSON. It is written in one pass, since encoding/json would scan a RawMessage again.
func plainEvent(d *Durable) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Event       *workgraph.Event `json:"event"`
		StartTime   time.Time        `json:"start_time,omitzero"`
		Actor       string           `json:"actor,omitempty"`
		RequestID   string           `json:"request_id,omitempty"`
		Principal   string           `json:"principal,omitempty"`
		Cached      bool             `json:"cached,omitempty"`
		GraphChange *GraphChange     `json:"graph_change,omitempty"`
	}{&d.Event, d.StartTime, d.Actor, d.RequestID, d.Principal, d.Cached, d.GraphChange})
	if err != nil {
		return nil, fmt.Errorf("encode event %d: %w", d.Seq, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeEvent reads an event from its row. The error names the run and the event.
func DecodeEvent(row journal.Event) (*Durable, error) {
	if len(row.Data) > 0 && row.Data[0] == compactForm {
		d, ok := expandEvent(row)
		if !ok || d.Version > workgraph.MachineVersion {
			return nil, fmt.Errorf("run %s, event %d: not in a form that this binary knows", row.RunID, row.Seq)
		}
		return d, nil
	}
	var rec record
	if err := json.Unmarshal(row.Data, &rec); err != nil {
		return nil, fmt.Errorf("decode event %d of run %s: %w", row.Seq, row.RunID, err)
	}
	ev, err := workgraph.DecodeEvent(rec.Event)
	if err != nil {
		return nil, fmt.Errorf("run %s, event %d: %w", row.RunID, row.Seq, err)
	}
	if ev.Seq != row.Seq {
		return nil, fmt.Errorf("run %s: event %d stands at %d", row.RunID, ev.Seq, row.Seq)
	}
	return &Durable{Event: ev, StartTime: rec.StartTime, Actor: rec.Actor, RequestID: rec.RequestID, Principal: rec.Principal, Cached: rec.Cached, GraphChange: rec.GraphChange}, nil
}

// GraphHash is the content hash of the graph that the event brings, or empty.
func (d *Durable) GraphHash() string {
	if d.GraphChange != nil && d.GraphChange.Hash != "" {
		return d.GraphChange.Hash
	}
	if d.Graph == nil {
		return ""
	}
	body, err := d.Graph.Canonical()
	if err != nil {
		return ""
	}
	return GraphHash(body)
}

// GraphHash is the content hash of a graph in canonical form.
func GraphHash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
