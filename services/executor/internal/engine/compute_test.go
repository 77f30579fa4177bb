package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// computes is a set of actors of which the named ones compute.
type computes struct {
	actors
	names map[string]bool
}

func (c computes) Actor(ctx context.Context, namespace, name string) (workgraph.Actor, program.ActorInfo, bool, error) {
	a, info, ok, err := c.actors.Actor(ctx, namespace, name)
	info.Computes = c.names[name]
	return a, info, ok, err
}

func TestComputing(t *testing.T) {
	t.Parallel()
	t.Run("Namespace/ComputesAFewAtOnce", func(t *testing.T) {
		t.Parallel()
		var now, most, ended atomic.Int32
		open := make(chan struct{})
		busy := workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			select {
			case <-open:
			case <-ctx.Done():
			}
			ended.Add(1)
			return workgraph.Outcome{}, nil
		})
		set := actors{"busy": busy, "ok": &recorder{}}
		l := run(t, sqliteStore(t), set, func(c *engine.Config, d *engine.Deps) {
			c.Parallel = 64
			d.Actors = computes{set, map[string]bool{"busy": true}}
		})
		g := &workgraph.Graph{}
		for i := range 40 {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "busy", Effect: workgraph.Pure})
		}
		id := l.start(t, g, func(r *command.StartRequest) { r.Namespace = "greedy" })
		limit := int32(engine.ComputingLimit())
		testkit.Eventually(t, func() bool { return now.Load() == limit })
		l.wait(t, l.start(t, chain(3, "ok")), journal.StateCompleted)
		other := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "busy", Effect: workgraph.Pure}}}, func(r *command.StartRequest) { r.Namespace = "other" })
		testkit.Eventually(t, func() bool { return now.Load() == limit+1 })
		close(open)
		testkit.Eventually(t, func() bool { return ended.Load() == 41 })
		require.LessOrEqual(t, most.Load(), limit+1)
		require.NotEqual(t, id, other)
	})
}
