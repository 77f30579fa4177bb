package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Event is one thing that happened in a run. Exactly one of Durable and Ephemeral is set.
type Event struct {
	Namespace, RunID, RootID string
	// GraphHash may be set with the event that begins a run; else the run's row tells it.
	GraphHash string
	// Durable is an entry of the journal.
	Durable *Durable
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
			n += int(inputSize(*d.Input, d.Context))
		}
		if d.Outcome != nil {
			n += outcomeSize(*d.Outcome) + waitSize(d.Outcome)
		}
	} else if p := e.Ephemeral; p != nil {
		n += len(p.Text) + len(p.Progress)
	}
	return n
}

// Durable is an entry of a run's journal: what the machine recorded and what only the engine knows of it.
type Durable struct {
	workgraph.Event
	// StartTime is when the attempt that ended was started; zero for other kinds.
	StartTime time.Time
	// Actor is the actor of that attempt.
	Actor string
	// RequestID is the id of the request that caused it, if that had one and may be repeated.
	RequestID string
	// Principal is whose request it was, or whose worker told how an attempt ended, from the API key that was
	// shown; empty if none caused it.
	Principal string
	// Cached says that the outcome of the attempt is that of an equal earlier call.
	Cached bool
	// GraphChange tells how the graph changed; nil when it did not.
	GraphChange *GraphChange
}

// GraphChange is a change of a run's graph.
type GraphChange struct {
	// Was and Hash are the content hashes of the graph before and after; either is empty in the middle of several changes at once.
	Was  string `json:"was,omitempty"`
	Hash string `json:"hash,omitempty"`
	// Added, Removed and Changed are the nodes of an amendment.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
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

// rowKind is the number of a kind of event in the journal; 0 if there is none. The numbers are stored and never change.
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
	}
	return 0
}

// record is the stored form of an event.
type record struct {
	Event       json.RawMessage `json:"event"`
	StartTime   time.Time       `json:"start_time,omitzero"`
	Actor       string          `json:"actor,omitempty"`
	RequestID   string          `json:"request_id,omitempty"`
	Principal   string          `json:"principal,omitempty"`
	Cached      bool            `json:"cached,omitempty"`
	GraphChange *GraphChange    `json:"graph_change,omitempty"`
}

func encodeEvent(d *Durable) (journal.Event, error) {
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
	// Written directly, since a RawMessage would be scanned once more.
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
	}{ev, d.StartTime, d.Actor, d.RequestID, d.Principal, d.Cached, d.GraphChange})
	if err != nil {
		return journal.Event{}, fmt.Errorf("encode event %d: %w", ev.Seq, err)
	}
	row.Data = bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return row, nil
}

func decodeEvent(row journal.Event) (*Durable, error) {
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

// nodeState is where the last visit of a node stands.
type nodeState uint8

const (
	nodeRunning nodeState = iota + 1
	nodeCompleted
	nodeFailed
	nodeSkipped
)

// tally counts how many nodes stand where. It follows the steps of events and nothing else.
type tally struct {
	Last   map[string]nodeState
	counts journal.NodeCounts
}

func newTally(total int) *tally {
	return &tally{Last: map[string]nodeState{}, counts: journal.NodeCounts{Total: int32(total)}}
}

// total says how many nodes there are by now.
func (t *tally) total(n int) { t.counts.Total = int32(n) }

func (t *tally) slot(s nodeState) *int32 {
	switch s {
	case nodeRunning:
		return &t.counts.Running
	case nodeCompleted:
		return &t.counts.Completed
	case nodeFailed:
		return &t.counts.Failed
	case nodeSkipped:
		return &t.counts.Skipped
	}
	return nil
}

func (t *tally) set(node string, s nodeState) {
	if p := t.slot(t.Last[node]); p != nil {
		*p--
	}
	if s == 0 { // it has not been reached
		delete(t.Last, node)
		return
	}
	t.Last[node] = s
	*t.slot(s)++
}

func (t *tally) apply(ev *workgraph.Event) {
	for i := range ev.Steps {
		s := &ev.Steps[i]
		switch s.Op {
		case workgraph.OpEnter, workgraph.OpReuse:
			t.set(s.Node, nodeRunning)
		case workgraph.OpReset, workgraph.OpReopen:
			// A later visit of a loop, which has visits before it, begins again in the same event.
			t.set(s.Node, 0)
		case workgraph.OpComplete:
			t.set(s.Node, nodeCompleted)
		case workgraph.OpFail:
			if s.Note == workgraph.ReasonCanceled {
				t.set(s.Node, nodeSkipped)
			} else {
				t.set(s.Node, nodeFailed)
			}
		case workgraph.OpSkip:
			t.set(s.Node, nodeSkipped)
		case workgraph.OpDrop:
			if s.Item == 0 {
				t.set(s.Node, nodeSkipped)
			}
		}
	}
	if ev.Kind == workgraph.RunEnded {
		// What has not been reached will not run any more.
		c := &t.counts
		c.Running = 0
		c.Skipped = c.Total - c.Completed - c.Failed
	}
}

// snapshotHead is what the engine keeps in front of the machine's snapshot.
type snapshotHead struct {
	// Nodes is the tally.
	Nodes map[string]nodeState `json:"nodes"`
	// Recorded says that every child that was spawned by then is known to have been recorded.
	Recorded bool `json:"children_recorded,omitempty"`
	// Details are what heartbeats said last.
	Details []detail `json:"details,omitempty"`
	// Refusal is the last amendment that was refused when it was taken up.
	Refusal *refusal `json:"refused_amendment,omitempty"`
}

func encodeSnapshot(h snapshotHead, machine []byte) ([]byte, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 4+len(head)+len(machine))
	out = binary.BigEndian.AppendUint32(out, uint32(len(head)))
	out = append(out, head...)
	return append(out, machine...), nil
}

func decodeSnapshot(b []byte, total int) (*tally, snapshotHead, []byte, error) {
	var h snapshotHead
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, h, nil, workgraph.ErrCorrupt
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	dec := json.NewDecoder(bytes.NewReader(b[4:n]))
	dec.DisallowUnknownFields() // a later version may have added what this one would drop
	if err := dec.Decode(&h); err != nil {
		return nil, h, nil, fmt.Errorf("decode snapshot: %w", err)
	}
	t := newTally(total)
	for node, s := range h.Nodes {
		if s < nodeRunning || s > nodeSkipped {
			return nil, h, nil, workgraph.ErrCorrupt
		}
		t.set(node, s)
	}
	return t, h, b[n:], nil
}
