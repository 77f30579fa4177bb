package engine_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestVisitsThatEndBeforeTheyBegin covers visits whose condition, list, key or quorum fails, so that no call
// is made.
func TestVisitsThatEndBeforeTheyBegin(t *testing.T) {
	t.Parallel()
	fallback := workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage("7")}
	for name, c := range map[string]struct {
		node   func(*workgraph.Node)
		state  journal.State
		status workgraph.VisitStatus
		reason string
	}{
		"Condition": {func(n *workgraph.Node) {
			n.When = "1/0 == 1"
		}, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonConditionFailed},
		"Key": {func(n *workgraph.Node) {
			n.ConcurrencyKey = "dyn(1 + 1)"
		}, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonKeyFailed},
		"List": {func(n *workgraph.Node) {
			n.Map = &workgraph.Map{Over: "dyn(5)"}
		}, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonMapFailed},
		"List/Continue": {func(n *workgraph.Node) {
			n.Map, n.OnError = &workgraph.Map{Over: "dyn(5)"}, workgraph.OnError{Action: workgraph.Continue}
		}, journal.StateCompleted, workgraph.VisitFailed, workgraph.ReasonMapFailed},
		"List/Fallback": {func(n *workgraph.Node) {
			n.Map, n.OnError = &workgraph.Map{Over: "dyn(5)"}, fallback
		}, journal.StateCompleted, workgraph.VisitCompleted, workgraph.ReasonMapFailed},
		"Quorum": {func(n *workgraph.Node) {
			n.Join = workgraph.Join{Mode: workgraph.Quorum, N: 2}
		}, journal.StateFailed, workgraph.VisitFailed, workgraph.ReasonQuorumUnreachable},
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
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Node: "it"})
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

// TestCountsOfCanceledVisits compares the counts of nodes with the outcome of a call that was canceled in
// flight.
func TestCountsOfCanceledVisits(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	a := payments(&recorder{})
	a["hangs"] = hanging(begun)
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

// TestCancelBeforeTheStart cancels runs that wait for their start. Nothing in their history may look like a
// call.
func TestCancelBeforeTheStart(t *testing.T) {
	t.Parallel()
	mapped, unsafe, skipped := does("it", "does"), does("it", "does"), does("it", "does")
	mapped.Map = &workgraph.Map{Over: "[1,2,3]"}
	unsafe.Effect, skipped.When = workgraph.Unsafe, "false"
	for name, c := range map[string]struct {
		node  workgraph.Node
		state journal.State
	}{
		"Node":    {does("it", "does"), journal.StateCanceled},
		"Map":     {mapped, journal.StateCanceled},
		"Unsafe":  {unsafe, journal.StateCanceled},
		"Skipped": {skipped, journal.StateCompleted}, // it ended when it began
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, s store) {
				calls := &recorder{}
				l := run(t, s, payments(calls))
				g := &workgraph.Graph{Nodes: []workgraph.Node{c.node}}
				id := l.start(t, g, func(r *command.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
				_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
				require.NoError(t, err)
				row := l.wait(t, id, c.state)
				require.Equal(t, journal.NodeCounts{Total: 1, Skipped: 1}, row.Nodes)
				for _, ev := range l.events(t, id) {
					require.NotContains(t, []workgraph.EventKind{workgraph.AttemptStarted, workgraph.AttemptEnded}, ev.Durable.Kind)
				}
				visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
				require.NoError(t, err)
				require.Len(t, visits, 1)
				require.Zero(t, visits[0].Attempts)
				l.asStateHas(t, id)
				l.sound(t, id)
			})
		})
	}
}

// TestAttemptsThatNeverBegan covers attempts that were queued when their run was canceled.
func TestAttemptsThatNeverBegan(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 1)
	a := payments(&recorder{})
	a["hangs"] = hanging(begun)
	l := run(t, sqliteStore(t), a)
	one, other := does("one", "hangs"), does("other", "hangs")
	one.ConcurrencyKey, other.ConcurrencyKey = "'key'", "'key'"
	id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{one, other}})
	<-begun
	_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
	require.NoError(t, err)
	l.wait(t, id, journal.StateCanceled)
	visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
	require.NoError(t, err)
	total := 0
	for _, v := range visits {
		total += v.Attempts
	}
	require.Equal(t, 1, total, "attempts of which a call was made")
}

// hanging is an actor that signals its call, and ends when the call is canceled.
func hanging(begun chan<- struct{}) workgraph.Actor {
	return workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return workgraph.Outcome{}, ctx.Err()
	})
}
