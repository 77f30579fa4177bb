package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A run that waits for a child is evicted after a moment. A large one, which costs much to read again, stays
// while there is plenty of memory.
func TestIdleParents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		runs          int
		bytes, memory int64
		stays         bool
	}{
		"Small":               {runs: 1, bytes: 10, memory: 1 << 30, stays: false},
		"Large":               {runs: 1, bytes: 900 << 10, memory: 1 << 30, stays: true},
		"LargeAndMemoryShort": {runs: 2, bytes: 900 << 10, memory: 6 << 20, stays: false},
	} {
		t.Run("IdleParents/"+name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			own := actors{"gate": g, "hold": spawns(workgraph.Child{Graph: chain(1, "gate")})}
			l := run(t, sqliteStore(t), own, func(cfg *engine.Config, _ *engine.Deps) {
				cfg.IdleTTL, cfg.MaxLiveBytes = time.Second, c.memory
			})
			start := func(ns string, bytes int64) string {
				id, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "hold"), Input: workgraph.Input{Args: []json.RawMessage{big(int(bytes))}}})
				require.NoError(t, err)
				g.next(t)
				return id
			}
			for i := range c.runs {
				start(fmt.Sprint(ns, i), c.bytes)
			}
			if !c.stays {
				testkit.Within(t, 30*time.Second, 10*time.Millisecond, func() bool { return l.Live() < 2*c.runs })
				return
			}
			small := start(ns, 10) // it is evicted, although the large one began to wait before it
			testkit.Eventually(t, func() bool { return l.row(t, small).Owner.IsZero() })
			require.Equal(t, 3, l.Live())
		})
	}
}
