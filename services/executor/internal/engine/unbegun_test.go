package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestVisitsThatEndBeforeTheyBegin is about visits whose condition, list, key or quorum fails, so that no call
// is ever made.
func TestVisitsThatEndBeforeTheyBegin(t *testing.T) {
	t.Parallel()
	fallback := workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage("7")}
	for name, c := range map[string]struct {
		node   func(*workgraph.Node)
		state  journal.State
		status workgraph.VisitStatus
		reason string
	}{
		"Condition": {func(n *workgraph.Node) { n.When = "1/0 == 1" }, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonConditionFailed},
		"Key":       {func(n *workgraph.Node) { n.ConcurrencyKey = "1 + 1" }, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonKeyFailed},
		"List":      {func(n *workgraph.Node) { n.Map = &workgraph.Map{Over: "5"} }, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonMapFailed},
		"List/Continue": {func(n *workgraph.Node) {
			n.Map, n.OnError = &workgraph.Map{Over: "5"}, workgraph.OnError{Action: workgraph.Continue}
		}, journal.StateCompleted, workgraph.VisitFailed, workgraph.ReasonMapFailed},
		"List/Fallback": {func(n *workgraph.Node) { n.Map, n.OnError = &workgraph.Map{Over: "5"}, fallback }, journal.StateCompleted, workgraph.VisitCompleted,
			workgraph.ReasonMapFailed},
		"Quorum": {func(n *workgraph.Node) { n.Join = workgraph.Join{Mode: workgraph.Quorum, N: 2} }, journal.StateFailed, workgraph.VisitFailed,
			workgraph.ReasonQuorumUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := run(t, sqliteStore(t), payments(&recorder{}))
			g := flow(does("first", "does"), does("it", "does"), does("after", "does"))
			g.Nodes = append(g.Nodes, does("skipped", "does"))
			g.Nodes[3].When = "false"
			g.Edges = append(g.Edges, workgraph.Edge{From: "skipped", To: "it"})
			c.node(&g.Nodes[1])
			id := l.start(t, g)
			l.wait(t, id, c.state)
			l.asStateHas(t, id)
			visits, _, err := l.Visits(t.Context(), engine.VisitsRequest{Namespace: ns, RunID: id, Node: "it"})
			require.NoError(t, err)
			require.Len(t, visits, 1)
			v := visits[0]
			require.Equal(t, c.status, v.Status)
			require.NotNil(t, v.Error)
			require.Equal(t, c.reason, v.Error.Reason)
			require.Zero(t, v.Attempts)
			require.False(t, v.End.IsZero())
		})
	}
}

// TestCountsOfCanceledVisits holds the counts of nodes against what became of a call that was canceled under way.
func TestCountsOfCanceledVisits(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	a := payments(&recorder{})
	a["hangs"] = workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return workgraph.Outcome{}, ctx.Err()
	})
	l := run(t, sqliteStore(t), a)
	g := &workgraph.Graph{Nodes: []workgraph.Node{does("ask", "hears"), does("slow", "hangs"), does("never", "does"), does("join", "does")},
		Edges: []workgraph.Edge{{From: "ask", To: "join"}, {From: "slow", To: "never"}, {From: "never", To: "join"}}}
	g.Nodes[3].Join = workgraph.Join{Mode: workgraph.Any, Losers: workgraph.CancelLosers}
	id := l.start(t, g)
	<-begun
	l.entered(t, id, "ask")
	l.signal(t, id)
	row := l.wait(t, id, journal.StateCompleted)
	require.Equal(t, journal.NodeCounts{Total: 4, Completed: 2, Skipped: 2}, row.Nodes)
	l.asStateHas(t, id)
}
