package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// PositionHead is what the engine stores before the machine's snapshot.
type PositionHead struct {
	// Nodes is the tally.
	Nodes map[string]nodeState `json:"nodes"`
	// Recorded reports that every child spawned so far is known to be recorded.
	Recorded bool `json:"children_recorded,omitempty"`
	// Details are the last heartbeat details.
	Details []Detail `json:"details,omitempty"`
	// Refusal is the last amendment if it was refused when it was applied.
	Refusal *AmendRefused `json:"refused_amendment,omitempty"`
	// Unheard are the keys of the last LEAVEs that nobody heard.
	Unheard Unheard `json:"unheard,omitempty"`
}

// maxUnheard is how many keys are remembered: each snapshot holds them. The caller of a command looks
// for its key within seconds.
const maxUnheard = 256

// Unheard are keys of commands that nobody heard, the oldest first. The stored form of one key is a
// text, as it was before there could be several.
type Unheard []string

// With returns the keys with one more. It does not change those that somebody else reads.
func (u Unheard) With(key string) Unheard {
	if slices.Contains(u, key) {
		return u
	}
	from := max(0, len(u)+1-maxUnheard)
	return append(slices.Clone(u[from:]), key)
}

// MarshalJSON implements json.Marshaler.
func (u Unheard) MarshalJSON() ([]byte, error) {
	if len(u) == 1 {
		return json.Marshal(u[0])
	}
	return json.Marshal([]string(u))
}

// UnmarshalJSON implements json.Unmarshaler.
func (u *Unheard) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*u = Unheard{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(u))
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

// DecodePosition reads a position: the tally, the head and the snapshot of the machine. total is the number
// of nodes of the run. The error is workgraph.ErrCorrupt, or one of the JSON decoder.
func DecodePosition(b []byte, total int) (*NodeTally, PositionHead, []byte, error) {
	var h PositionHead
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b)) {
		return nil, h, nil, workgraph.ErrCorrupt
	}
	n := 4 + int(binary.BigEndian.Uint32(b))
	dec := json.NewDecoder(bytes.NewReader(b[4:n]))
	dec.DisallowUnknownFields() // a later version may have added a field that this one would drop
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

// Detail is the detail of a call's last heartbeat. The next attempt of its visit or item receives it.
type Detail struct {
	Ref     workgraph.Ref   `json:"ref"`
	Attempt int             `json:"attempt"`
	Said    json.RawMessage `json:"said"`
}

// AmendRefused is an amendment that was durable and then refused, because the run had moved on. It is kept
// in the position until the next amendment, for clients that did not wait for the result.
type AmendRefused struct {
	Time      time.Time `json:"time"`
	By        string    `json:"by,omitempty"`
	RequestID string    `json:"request_id,omitempty"`
	Message   string    `json:"message"`
}

// detailWeight estimates the memory of a detail apart from its content.
const detailWeight = 256

// Size estimates the memory of a detail; 0 for nil.
func (d *Detail) Size() int64 {
	if d == nil {
		return 0
	}
	return int64(len(d.Said)) + detailWeight
}
