package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestFairness(t *testing.T) {
	t.Parallel()
	wide := func(n int) *workgraph.Graph {
		g := &workgraph.Graph{}
		for i := range n {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "hangs"})
		}
		return g
	}
	t.Run("Namespace/HangingCallsDoNotDelayOthers", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l := run(t, sqliteStore(t), actors{"hangs": g, "ok": &recorder{}}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 16 })
		greedy := func(r *command.StartRequest) { r.Namespace = "greedy" }
		for range 3 {
			l.start(t, wide(20), greedy)
		}
		for range 14 { // seven eighths
			g.next(t)
		}
		for range 3 {
			l.wait(t, l.start(t, chain(4, "ok")), journal.StateCompleted)
		}
		require.Empty(t, g.called, "the rest of the places stays free for others")
		close(g.open) // then the other namespace's calls begin, too
		testkit.Eventually(t, func() bool { return g.ended.Load() == 60 })
	})
	t.Run("Namespace/FarOverItsShareMakesOneCallAtATime", func(t *testing.T) {
		t.Parallel()
		const mib = 1 << 20
		g := newGate()
		l := run(t, sqliteStore(t), actors{"hangs": g, "ok": &recorder{}, "big": outcome(func(*workgraph.Call) workgraph.Outcome {
			return workgraph.Outcome{Values: []json.RawMessage{big(mib)}}
		})}, func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes, c.Parallel = 4*mib, 16 })
		graph := chain(4, "big") // what it holds then is not evicted, as it is the only run
		for i := range 4 {
			last := fmt.Sprint("last", i)
			graph.Nodes = append(graph.Nodes, workgraph.Node{ID: last, Actor: "hangs"})
			graph.Edges = append(graph.Edges, workgraph.Edge{From: "n3", To: last})
		}
		id := l.start(t, graph, func(r *command.StartRequest) { r.Namespace = "greedy" })
		g.next(t)
		testkit.Eventually(t, func() bool { return l.Held("greedy") != nil })
		l.wait(t, l.start(t, chain(4, "ok")), journal.StateCompleted)
		close(g.open)
		testkit.Eventually(t, func() bool {
			row, err := l.j.Get(t.Context(), "greedy", id)
			return err == nil && row.State == journal.StateCompleted
		})
		testkit.Eventually(t, func() bool { return l.Held("greedy") == nil })
	})
	t.Run("Namespace/TakesAllOfAFewSlots", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		defer close(g.open)
		l := run(t, sqliteStore(t), actors{"hangs": g}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 2 })
		l.start(t, wide(3))
		g.next(t)
		g.next(t)
	})
}
