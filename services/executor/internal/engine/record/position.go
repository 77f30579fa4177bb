package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// PositionHead is what the engine keeps in front of the machine's snapshot.
type PositionHead struct {
	// Nodes is the tally.
	Nodes map[string]nodeState `json:"nodes"`
	// Recorded says that every child that was spawned by then is known to have been recorded.
	Recorded bool `json:"children_recorded,omitempty"`
	// Details are what heartbeats said last.
	Details []Detail `json:"details,omitempty"`
	// Refusal is the last amendment that was refused when it was taken up.
	Refusal *AmendRefused `json:"refused_amendment,omitempty"`
}

// EncodePosition is the stored form of a position: the head, then the snapshot of the machine.
func EncodePosition(h PositionHead, machine []byte) ([]byte, error) {
	head, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 4+len(head)+len(machine))
	out = binary.BigEndian.AppendUint32(out, uint32(len(head)))
	out = append(out, head...)
	return append(out, machine...), nil
}

// DecodePosition reads a position back: the tally, the head and the snapshot of the machine. total is the
// number of nodes of the run. The error is workgraph.ErrCorrupt, or that of the JSON.
func DecodePosition(b []byte, total int) (*NodeTally, PositionHead, []byte, error) {
	var h PositionHead
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, h, nil, workgraph.ErrCorrupt
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	dec := json.NewDecoder(bytes.NewReader(b[4:n]))
	dec.DisallowUnknownFields() // a later version may have added what this one would drop
	if err := dec.Decode(&h); err != nil {
		return nil, h, nil, fmt.Errorf("decode snapshot: %w", err)
	}
	t := NewNodeTally(total)
	for node, s := range h.Nodes {
		if s < nodeRunning || s > nodeSkipped {
			return nil, h, nil, workgraph.ErrCorrupt
		}
		t.set(node, s)
	}
	return t, h, b[n:], nil
}

// Detail is what the last heartbeat of a call said; the next attempt of its visit or item begins with it.
type Detail struct {
	Ref     workgraph.Ref   `json:"ref"`
	Attempt int             `json:"attempt"`
	Said    json.RawMessage `json:"said"`
}

// AmendRefused is an amendment that was recorded and then refused, since the run had moved on. It stands in
// the run's position until the next amendment, for those who did not wait for the answer.
type AmendRefused struct {
	Time      time.Time `json:"time"`
	By        string    `json:"by,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Message   string    `json:"message"`
}

// detailWeight is about what a detail takes besides what it says.
const detailWeight = 256

// Size is about what it takes in memory; 0 for none.
func (d *Detail) Size() int64 {
	if d == nil {
		return 0
	}
	return int64(len(d.Said)) + detailWeight
}
