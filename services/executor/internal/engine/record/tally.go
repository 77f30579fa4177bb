package record

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// nodeState is where the last visit of a node stands.
type nodeState uint8

const (
	nodeRunning nodeState = iota + 1
	nodeCompleted
	nodeFailed
	nodeSkipped
)

// NodeTally counts how many nodes stand where. It follows the steps of events and nothing else.
type NodeTally struct {
	Last   map[string]nodeState
	Counts journal.NodeCounts
}

// NewNodeTally returns the tally of a run with this many nodes, none of which has begun.
func NewNodeTally(total int) *NodeTally {
	return &NodeTally{Last: map[string]nodeState{}, Counts: journal.NodeCounts{Total: int32(total)}}
}

// Total says how many nodes there are by now.
func (t *NodeTally) Total(n int) { t.Counts.Total = int32(n) }

func (t *NodeTally) slot(s nodeState) *int32 {
	switch s {
	case nodeRunning:
		return &t.Counts.Running
	case nodeCompleted:
		return &t.Counts.Completed
	case nodeFailed:
		return &t.Counts.Failed
	case nodeSkipped:
		return &t.Counts.Skipped
	}
	return nil
}

func (t *NodeTally) set(node string, s nodeState) {
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

// Apply counts what an event changed.
func (t *NodeTally) Apply(ev *workgraph.Event) {
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
		c := &t.Counts
		c.Running = 0
		c.Skipped = c.Total - c.Completed - c.Failed
	}
}
