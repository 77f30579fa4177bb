package record

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Lineage is where a run stands among others, and what its children inherit from it. It does not change.
type Lineage struct {
	// Parent is the run that spawned it, at the visit Ref; both are empty for a top run.
	Parent string
	Ref    workgraph.Ref
	// Depth is 0 for a top run; see below.
	Depth int
	// Borrowed says that the task is an ancestor's: costs are booked on it, but it is neither claimed nor
	// ended with this run.
	Borrowed bool
	// Approved says of which approval in a run above it the run follows, or the run of which it is a fork;
	// nil of none.
	Approved *Approval
	// Hooks are told what becomes of the run; children do not inherit them.
	Hooks []webhook.Hook
	// Asks are the places of those hooks of its root that are told of questions, the root's own ones
	// included.
	Asks []int

	User, Chat, Thread string
}

// Below is the depth of a child. It counts how often work hands work on: a run that only holds a part of its
// parent's own work, such as a late round of an agent, stands as deep as its parent.
func (f *Lineage) Below(c *workgraph.Child) int {
	if c.SameDepth {
		return f.Depth
	}
	return f.Depth + 1
}

// LineageOf reads the family of a run from its row.
func LineageOf(row journal.Run) (Lineage, error) {
	f := Lineage{Parent: row.ParentID, User: row.UserID, Chat: row.ChatID, Thread: row.ThreadID}
	m, err := DecodeMetadata(row.Metadata)
	if err != nil {
		return f, err
	}
	if m.Ref != nil {
		f.Ref = *m.Ref
	}
	f.Depth, f.Borrowed, f.Hooks, f.Asks, f.Approved = m.Depth, m.Borrowed, m.Webhooks, m.Asks, m.Approved
	if f.Parent == "" {
		f.Asks = webhook.Wanting(f.Hooks, webhook.InterruptOpened)
	}
	return f, nil
}

// Approval says of which approval a run follows: that at the visit At of the run Run. Its graph stays as it
// is, since it is part of what was approved.
type Approval struct {
	Run string        `json:"run"`
	At  workgraph.Ref `json:"at"`
	// Workflows are the hashes of the graphs that were approved, by what names them.
	Workflows map[string]string `json:"workflows,omitempty"`
}
