package outbox

import (
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ThreadState is what became of a thread, in the words of the outbox.
type ThreadState string

// The states that are told.
const (
	Created ThreadState = "CREATED"
	Message ThreadState = "MESSAGE"
	Deleted ThreadState = "DELETED"
)

// ThreadChange tells the feed what became of a thread, without what is said in it.
type ThreadChange struct {
	ThreadID string      `json:"-"`
	State    ThreadState `json:"state"`
	// Seq is that of the message, and of a fork the last item that both share.
	Seq int64 `json:"seq,omitempty"`
	// Role is that of the author of a message.
	Role string `json:"role,omitempty"`
	// RunID made the thread or appended the message.
	RunID string `json:"run_id,omitempty"`
	// What follows is of a thread that was made or deleted.
	Agent    string    `json:"agent,omitempty"`
	Title    string    `json:"title,omitempty"`
	UserID   string    `json:"user_id,omitempty"`
	Parent   string    `json:"parent,omitempty"`
	PartOf   string    `json:"part_of,omitempty"`
	Lifetime string    `json:"lifetime,omitempty"`
	Time     time.Time `json:"time,omitzero"`
}

// threadItem is the stored form of what one transaction changed of a thread.
type threadItem struct {
	ThreadID string         `json:"thread_id"`
	Changes  []ThreadChange `json:"changes"`
}

// OfThread is the stored form of what a transaction changed of a thread.
func OfThread(t thread.Told) journal.Out {
	it := threadItem{ThreadID: t.ID}
	about := func(state ThreadState, of *thread.Thread) {
		it.Changes = append(it.Changes, ThreadChange{
			State: state, Seq: of.ParentSeq, RunID: t.RunID, Agent: of.Agent, Title: of.Title, UserID: of.UserID, Parent: of.ParentID, PartOf: of.PartOf,
			Lifetime: lifetime(of.Lifetime), Time: t.Time,
		})
	}
	if t.Made != nil {
		about(Created, t.Made)
	}
	for _, m := range t.Said {
		it.Changes = append(it.Changes, ThreadChange{State: Message, Seq: m.Seq, Role: m.Role, RunID: m.RunID, Time: m.Time})
	}
	if t.Gone != nil {
		about(Deleted, t.Gone)
	}
	o, err := encode(KindThread, it)
	if err != nil {
		panic(fmt.Sprintf("outbox: texts and numbers cannot be encoded: %v", err))
	}
	return o
}

func lifetime(l thread.Lifetime) string {
	switch l {
	case workgraph.ThreadEphemeral:
		return "ephemeral"
	case workgraph.ThreadOfRun:
		return "run"
	}
	return "conversation"
}

// threadChanges are the changes that an item tells.
func threadChanges(it journal.OutboxItem) ([]ThreadChange, error) {
	v, err := decode[threadItem](it)
	for i := range v.Changes {
		v.Changes[i].ThreadID = v.ThreadID
	}
	return v.Changes, err
}
