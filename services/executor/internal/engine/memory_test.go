package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func big(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }

// TestMemoryCountsWhatComes sends live runs what they keep, and holds that it counts while they keep it, and is refused when there is no room.
func TestMemoryCountsWhatComes(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	t.Run("Signals", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l := run(t, sqliteStore(t), actors{"gate": g}, func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes = 8 * mib })
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "gate"}}})
		g.next(t)
		before := l.LiveBytes()
		signal := func(name string, n int) error {
			_, err := l.Signal(t.Context(), engine.SignalRequest{Namespace: ns, RunID: id, Signal: engine.Signal{Name: name, Payload: big(n)}})
			return err
		}
		require.NoError(t, signal("go", mib))
		testkit.Eventually(t, func() bool { return l.LiveBytes() >= before+mib }, time.Minute, time.Millisecond)
		err := signal("go", 5*mib/2) // large ones have three quarters of the namespace's half
		require.Equal(t, engine.ReasonMemoryFull, errs.ReasonOf(err), "got %v", err)
		require.True(t, errs.Is(err, errs.ResourceExhausted))
		require.NoError(t, signal("go", 1000), "what is small passes")
		_, err = l.Cancel(t.Context(), engine.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
		testkit.Eventually(t, func() bool { return l.LiveBytes() == 0 }, time.Minute, time.Millisecond, "all is given back")
	})
	t.Run("AttemptsInLine", func(t *testing.T) {
		t.Parallel()
		const n = 500
		g := newGate()
		l := run(t, sqliteStore(t), actors{"gate": g}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 2 })
		graph := &workgraph.Graph{}
		for i := range n {
			graph.Nodes = append(graph.Nodes, workgraph.Node{ID: fmt.Sprint("n", i), Actor: "gate"})
		}
		id := l.start(t, graph)
		g.next(t)
		testkit.Eventually(t, func() bool { return l.LiveBytes() >= int64(n)*(2<<10+600) }, time.Minute, time.Millisecond)
		_, err := l.Cancel(t.Context(), engine.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
		testkit.Eventually(t, func() bool { return l.LiveBytes() == 0 }, time.Minute, time.Millisecond, "all is given back")
	})
}
