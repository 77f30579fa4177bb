package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
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
	t.Run("Namespace/CallsThatHangDoNotHoldUpOthers", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l := run(t, sqliteStore(t), actors{"hangs": g, "ok": &recorder{}}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 16 })
		greedy := func(r *engine.StartRequest) { r.Namespace = "greedy" }
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
		close(g.open) // then the greedy one gets on, too
		testkit.Eventually(t, func() bool { return g.ended.Load() == 60 }, 60*time.Second, time.Millisecond)
	})
	t.Run("Namespace/AFewPlacesAreNotKeptBack", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		defer close(g.open)
		l := run(t, sqliteStore(t), actors{"hangs": g}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 2 })
		l.start(t, wide(3))
		g.next(t)
		g.next(t)
	})
}
