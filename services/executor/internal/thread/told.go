package thread

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Told is what a transaction changed of a thread, as the feed is told of it: without what is said.
type Told struct {
	ID string
	// Made is the thread if it is new, and Gone if it was deleted.
	Made, Gone *Thread
	// RunID made it, or is empty.
	RunID string
	// Said are new messages, in their order.
	Said []Said
	Time time.Time
}

// Said is a message without its text.
type Said struct {
	Seq   int64
	Role  string
	RunID string
	Time  time.Time
}

// maxSaid is how many messages one Told has at most.
const maxSaid = 400

// lastPlace is behind all items of a thread.
const lastPlace = 1<<63 - 1

// Place orders what is told of a thread: that it was made, its messages, that it was deleted.
func (t *Told) Place() int64 {
	switch {
	case t.Gone != nil:
		return lastPlace
	case t.Made != nil:
		return t.Made.ParentSeq
	}
	return t.Said[0].Seq
}

// Tell is what is told of new threads and items, all of one run or of none. Items of a thread come in their
// order.
func Tell(made []Thread, items []ItemOf, runID string) (out []Told) {
	for i := range made {
		out = append(out, Told{ID: made[i].ID, Made: &made[i], RunID: runID, Time: made[i].CreateTime})
	}
	for _, it := range items {
		if it.Kind != workgraph.ThreadMessage {
			continue
		}
		at := -1
		for i := range slices.Backward(out) {
			if out[i].ID == it.Thread {
				at = i
				break
			}
		}
		if at < 0 || len(out[at].Said) == maxSaid {
			out, at = append(out, Told{ID: it.Thread, Time: it.Time}), len(out)
		}
		out[at].Said = append(out[at].Said, Said{Seq: it.Seq, Role: it.Role, RunID: it.RunID, Time: it.Time})
	}
	return out
}

// maxRole bounds the role of a message that is told, in bytes.
const maxRole = 64

// RoleOf is the role that a message in the form of model servers states; empty if it states none. Only what
// comes before the role is read.
func RoleOf(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return ""
		}
		if name != "role" {
			var skipped json.RawMessage
			if d.Decode(&skipped) != nil {
				return ""
			}
			continue
		}
		var role string
		if d.Decode(&role) != nil || len(role) > maxRole {
			return ""
		}
		return strings.ToValidUTF8(strings.ReplaceAll(role, "\x00", ""), "")
	}
	return ""
}
