package record

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// nodeState is the state of the last visit of a node.
type nodeState uint8

const (
	nodeRunning nodeState = iota + 1
	nodeCompleted
	nodeFailed
	nodeSkipped
)

// NodeTally counts nodes by state. It depends on the steps of events only.
type NodeTally struct {
	Last   map[string]nodeState
	Counts journal.NodeCounts
}

// NewNodeTally returns the tally of a run with this many nodes, none of which has begun.
func NewNodeTally(total int) *NodeTally {
	return &NodeTally{Last: map[string]nodeState{}, Counts: journal.NodeCounts{Total: int32(total)}}
}

// Total sets the number of nodes.
func (t *NodeTally) Total(n int) { t.Counts.Total = int32(n) }

func (t *NodeTally) counter(s nodeState) *int32 {
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
	if p := t.counter(t.Last[node]); p != nil {
		*p--
	}
	if s == 0 { // the node has not been reached
		delete(t.Last, node)
		return
	}
	t.Last[node] = s
	*t.counter(s)++
}

// Apply counts the changes of an event.
func (t *NodeTally) Apply(ev *workgraph.Event) {
	for i := range ev.Steps {
		s := &ev.Steps[i]
		switch s.Op {
		case workgraph.OpEnter, workgraph.OpReuse:
			t.set(s.Node, nodeRunning)
		case workgraph.OpReset, workgraph.OpReopen:
			// A later round of a loop begins in the same event.
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
		// The remaining nodes will not run.
		c := &t.Counts
		c.Running = 0
		c.Skipped = c.Total - c.Completed - c.Failed
	}
}
