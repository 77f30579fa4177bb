package record

import (
	"cmp"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Lineage is the place of a run below its root, and what its children inherit. It does not change.
type Lineage struct {
	// Parent is the run that spawned this one, at the visit Ref. Both are empty for a root.
	Parent string
	Ref    workgraph.Ref
	// Depth is 0 for a root; see ChildDepth.
	Depth int
	// Delegated is how many runs that a model chose stand on the way from the root to this one, itself
	// included.
	Delegated int
	// Borrowed reports that the task belongs to an ancestor. Costs are booked on it, but this run neither
	// claims nor ends it.
	Borrowed bool
	// Approved is the approval, in an ancestor or in the run that was forked, from which this run follows;
	// nil if none.
	Approved *Approval
	// Hooks are the run's webhooks. Children do not inherit them.
	Hooks []webhook.Hook
	// Asks are the indexes of the root's hooks that receive opened interrupts of its descendants, and of
	// the root itself.
	Asks []int
	// Agent is the agent whose own work the run does; nil if none.
	Agent *workgraph.AgentRun
	// Workflow is the version of the catalog that the graph was taken from, as SLUG@VERSION; empty for other
	// graphs.
	Workflow string
	// Within is the version of the nearest run above that has one; empty if there is none.
	Within string
	// TurnOf is the version whose chat the run is a turn of, as SLUG@VERSION: a child of the run has
	// its graph. Children have none.
	TurnOf string
	// Origin is the trigger that started the run, or what the run of a task has of the runs that triggers
	// started before it; nil if none did. Children have none.
	Origin *Origin

	// Standing is where the run stands among those that work on the thread of the root.
	Standing workgraph.Standing

	// Payer is who pays for the calls of a run without a task when the run starts or is read; nil for its
	// namespace alone.
	Payer *Payer

	// Maker is who makes what the run makes. Children have that of their parents, and forks that of the
	// run that was forked.
	Maker access.Maker

	User, Chat, Thread string
	// Forked says that the run began with visits of another one.
	Forked bool
}

// Origin names the trigger and the delivery that started a run. The run of a task names none, and has the
// depth of the run that made the task.
type Origin struct {
	Trigger  string `json:"trigger"`
	Delivery string `json:"delivery"`
	// Depth is how many runs that triggers started stand before it.
	Depth int `json:"depth,omitempty"`
}

// ChildDepth is the depth of a child. The depth counts how often work is delegated. A run that continues
// its parent's own work, such as a late round of an agent, has the depth of its parent.
func (f *Lineage) ChildDepth(c *workgraph.Child) int {
	if c.SameDepth {
		return f.Depth
	}
	return f.Depth + 1
}

// ChildDelegated is the count Delegated of a child.
func (f *Lineage) ChildDelegated(c *workgraph.Child) int {
	if c.Delegated {
		return f.Delegated + 1
	}
	return f.Delegated
}

// Cataloged is the version of the catalog that the run is of, or one within, as SLUG@VERSION; empty if
// none.
func (f *Lineage) Cataloged() string { return cmp.Or(f.Workflow, f.Within) }

// LineageOf reads the lineage of a run from its row.
func LineageOf(row journal.Run) (Lineage, error) {
	f := Lineage{Parent: row.ParentID, User: row.UserID, Chat: row.ChatID, Thread: row.ThreadID, Forked: row.ForkedFrom != ""}
	m, err := DecodeMetadata(row.Metadata)
	if err != nil {
		return f, err
	}
	if m.Ref != nil {
		f.Ref = *m.Ref
	}
	f.Depth, f.Borrowed, f.Hooks, f.Asks, f.Approved, f.Agent, f.Workflow, f.Within, f.TurnOf, f.Origin = m.Depth, m.Borrowed, m.Webhooks, m.Asks, m.Approved, m.Agent, m.Workflow, m.Within, m.TurnOf, m.Origin
	f.Payer, f.Delegated, f.Maker = m.Payer, m.Delegated, m.MakerOf(row.RootID)
	if m.Standing != nil {
		f.Standing = *m.Standing
	}
	if f.Parent == "" {
		f.Asks = webhook.Wanting(f.Hooks, webhook.InterruptOpened)
	}
	return f, nil
}

// Payer is who pays for the calls of a run that works on no task of its own: the task that it does itself, or
// else the epic that it steers.
type Payer struct {
	Epic string `json:"epic"`
	Task string `json:"task,omitempty"`
}

// Then is the payer after an attempt has said something about it; nil for none. p may be nil.
func (p *Payer) Then(said *workgraph.Payer) *Payer {
	var was Payer
	if p != nil {
		was = *p
	}
	if said.Done && said.TaskID == "" {
		if was.Epic == said.EpicID {
			return nil
		}
		return p // another epic has ended
	}
	next := Payer{Epic: said.EpicID, Task: was.Task}
	switch {
	case said.TaskID == "" && was.Task != "":
		next.Epic = was.Epic
	case said.TaskID != "" && !said.Done:
		next.Task = said.TaskID
	case said.TaskID == was.Task:
		next.Task = ""
	case was.Task != "":
		next.Epic = was.Epic // another task has ended, and the run still does this one
	}
	return &next
}

// Approval names the approval from which a run follows: that at the visit At of the run Run. The graph of
// the run cannot be changed, since it is part of what was approved.
type Approval struct {
	Run string        `json:"run"`
	At  workgraph.Ref `json:"at"`
	// Workflows are the hashes of the approved graphs, by their names.
	Workflows map[string]string `json:"workflows,omitempty"`
}
