package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// asStateHas requires that the list of a run's visits, in pages of any size, and the counts of its nodes
// agree with the machine's state.
func (l *live) asStateHas(t *testing.T, id string) {
	t.Helper()
	state, err := l.StateVisits(t.Context(), ns, id)
	require.NoError(t, err)
	row := l.row(t, id)
	says := func(node string, visit int, status workgraph.VisitStatus, values []json.RawMessage) string {
		return fmt.Sprintf("%s@%d %s %s", node, visit, status, values)
	}
	var want []string
	last := map[string]workgraph.VisitStatus{}
	for _, v := range state {
		want = append(want, says(v.Node, v.Visit, v.Status, v.Values))
		last[v.Node] = v.Status
	}
	for _, size := range []int32{100, 1, 2} {
		var got []string
		for token := ""; ; {
			visits, next, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Size: size, Token: token})
			require.NoError(t, err)
			for _, v := range visits {
				got = append(got, says(v.Node, v.Visit, v.Status, v.Values))
			}
			if token = next; token == "" {
				break
			}
		}
		require.ElementsMatch(t, want, got, "in pages of %d", size)
	}
	counts := journal.NodeCounts{Total: row.Nodes.Total}
	for _, status := range last {
		switch status {
		case workgraph.VisitCompleted:
			counts.Completed++
		case workgraph.VisitFailed:
			counts.Failed++
		case workgraph.VisitSkipped, workgraph.VisitCanceled:
			counts.Skipped++
		default:
			counts.Running++
		}
	}
	if row.State.Ended() {
		counts.Running, counts.Skipped = 0, counts.Total-counts.Completed-counts.Failed
	}
	require.Equal(t, counts, row.Nodes)
}

// restarts returns the engine after a restart; before it, a snapshot was taken every few events.
func restarts(t *testing.T, s store, l *live, a actors) *live {
	t.Helper()
	l.stop()
	return run(t, s, a, oftenSnapshots)
}

func oftenSnapshots(c *engine.Config, _ *engine.Deps) { c.SnapshotEvery = 2 }

func TestVisitsTakenBack(t *testing.T) {
	t.Parallel()
	amend := func(t *testing.T, l *live, id string) {
		t.Helper()
		_, err := l.Amend(t.Context(), command.AmendRequest{Namespace: ns, RunID: id, Patch: workgraph.Patch{PutNodes: []workgraph.Node{does("pay", "does", "amount", "7000")}}})
		require.NoError(t, err)
	}
	// byAmendment is a run whose approval became void because its subject was amended.
	byAmendment := func(t *testing.T, l *live) string {
		t.Helper()
		id := l.start(t, flow(does("ask", "asks"), does("hear", "hears"), does("pay", "does", "amount", "7"), does("end", "does")))
		l.approve(t, l.question(t, id))
		l.entered(t, id, "hear")
		l.wait(t, id, journal.StateWaiting)
		l.asStateHas(t, id)
		amend(t, l, id)
		return id
	}
	t.Run("Amendment/WhileItGoesOn", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			a := payments(&recorder{})
			l := run(t, s, a, oftenSnapshots)
			id := byAmendment(t, l)
			q := l.question(t, id)
			l.wait(t, id, journal.StateWaiting)
			l.asStateHas(t, id)
			l = restarts(t, s, l, a)
			l.asStateHas(t, id)
			l.approve(t, q)
			l.signal(t, id)
			l.wait(t, id, journal.StateCompleted)
			l.asStateHas(t, id)
		})
	})
	t.Run("Amendment/WhileItIsPaused", func(t *testing.T) {
		t.Parallel()
		s, a := sqliteStore(t), payments(&recorder{})
		l := run(t, s, a, oftenSnapshots)
		id := l.start(t, flow(does("ask", "asks"), does("hear", "hears"), does("pay", "does", "amount", "7"), does("end", "does")))
		l.approve(t, l.question(t, id))
		l.entered(t, id, "hear")
		err := l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		l.wait(t, id, journal.StatePaused)
		amend(t, l, id)
		l.asStateHas(t, id)
		l = restarts(t, s, l, a)
		l.asStateHas(t, id)
	})
	t.Run("Amendment/WithoutAnotherAnswerUntilTheEnd", func(t *testing.T) {
		t.Parallel()
		l := run(t, sqliteStore(t), payments(&recorder{}))
		id := byAmendment(t, l)
		l.question(t, id)
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
		l.asStateHas(t, id)
	})
	t.Run("State", func(t *testing.T) {
		t.Parallel()
		s, a, change := sqliteStore(t), payments(&recorder{}), make(chan struct{})
		a["moves"] = workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			select {
			case <-change:
			case <-ctx.Done():
				return workgraph.Outcome{}, ctx.Err()
			}
			return workgraph.Outcome{State: map[string]json.RawMessage{"x": json.RawMessage("7000")}}, nil
		})
		l := run(t, s, a, oftenSnapshots)
		g := flow(does("ask", "asks"), does("pay", "does"), does("send", "does"))
		g.Nodes[1].When = "state.x > 0"
		g.Nodes = append(g.Nodes, does("slow", "hears"), does("aside", "moves"))
		g.Edges = append(g.Edges, workgraph.Edge{From: "slow", To: "pay"})
		g.State = map[string]workgraph.StateKey{"x": {Reducer: workgraph.Replace, Initial: json.RawMessage("7")}}
		id := l.start(t, g)
		l.approve(t, l.question(t, id))
		l.ended(t, id, "ask")
		close(change)
		l.ended(t, id, "aside")
		l.signal(t, id)
		q := l.question(t, id)
		l.wait(t, id, journal.StateWaiting) // counts are written when the state of the run changes
		l.asStateHas(t, id)
		l = restarts(t, s, l, a)
		l.asStateHas(t, id)
		l.approve(t, q)
		l.wait(t, id, journal.StateCompleted)
		l.asStateHas(t, id)
		l.sound(t, id) // "ask" completed twice, which is no fault
	})
}

// entered waits until the first visit of a node waits.
func (l *live) entered(t *testing.T, id, node string) {
	t.Helper()
	l.visit(t, id, workgraph.VisitWaiting, node)
}

// ended waits until the first visit of a node has completed.
func (l *live) ended(t *testing.T, id, node string) {
	t.Helper()
	l.visit(t, id, workgraph.VisitCompleted, node)
}

func (l *live) visit(t *testing.T, id string, status workgraph.VisitStatus, node string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		// The visit is durable after the state is.
		visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		return slices.ContainsFunc(visits, func(v query.Visit) bool { return v.Node == node && v.Visit == 1 && v.Status == status })
	})
}
