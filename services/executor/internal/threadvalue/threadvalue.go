// Package threadvalue is about threads that are passed as values: a document with the items of a thread
// and of all its parts, which another server, or a later request, makes anew. It owns the form of the
// document, what is checked of one that comes from elsewhere, and how the ids in it become new ones. It
// must not know the databases, nor what agents make of items.
package threadvalue

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Format is what a document says of its form.
const Format = "epigraph.thread/1"

// ReasonInvalid is the reason of a document that breaks a rule.
const ReasonInvalid = "THREAD_VALUE_INVALID"

// document is the form of a value.
type document struct {
	Format  string  `json:"format"`
	Threads entries `json:"threads"`
}

// entry is one thread. The first one is the whole; each other one follows that of which it is a part.
type entry struct {
	// ID is a name within the document, whatever its form.
	ID     string `json:"id"`
	PartOf string `json:"part_of,omitempty"`
	// Name is that by which a part is found: its key follows from the whole and the name.
	Name  string          `json:"name,omitempty"`
	Agent string          `json:"agent,omitempty"`
	Title string          `json:"title,omitempty"`
	Items json.RawMessage `json:"items"`

	items []item
}

// item is one item of a thread. Its sequence is its place, from 1.
type item struct {
	Kind  string          `json:"kind"`
	Time  time.Time       `json:"time,omitzero"`
	Brief json.RawMessage `json:"brief,omitempty"`
	Body  json.RawMessage `json:"body"`

	kind workgraph.ThreadKind
	// team is what the state of a team says; nil for anything else.
	team *team.Kept
}

// kinds are the names of kinds of items.
func kinds() map[string]workgraph.ThreadKind {
	return map[string]workgraph.ThreadKind{"message": workgraph.ThreadMessage, "state": workgraph.ThreadState, "learning": workgraph.ThreadLearning, "summary": workgraph.ThreadSummary}
}

// kindName is the name of a kind.
func kindName(k workgraph.ThreadKind) string {
	for name, one := range kinds() {
		if one == k {
			return name
		}
	}
	return ""
}

// invalid is the error of a document, with the place of its fault.
func invalid(place, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	return errs.New(errs.InvalidArgument, ReasonInvalid, "the thread cannot be made: %s %s", place, what).
		Violate(place, ReasonInvalid, what).Hint("pass what ExportThread gave, unchanged")
}
