package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// appendCount is a journal that counts what is appended to runs.
type appendCount struct {
	journal.Journal
	appends atomic.Int64
}

func (c *appendCount) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for i := range ws {
		if ws[i].Append != nil {
			c.appends.Add(1)
		}
	}
	return c.Journal.Commit(ctx, o, ws)
}

// A map whose items wait for places is canceled in a few commits, however many they are.
func TestCanceledMap(t *testing.T) {
	t.Parallel()
	busy := newGate()
	c := &appendCount{}
	l := run(t, sqliteStore(t), actors{"busy": busy}, func(cfg *engine.Config, d *engine.Deps) {
		cfg.Parallel = 4
		c.Journal, d.Journal = d.Journal, c
	})
	items := "[" + strings.TrimSuffix(strings.Repeat("1,", workgraph.MaxParallelItems), ",") + "]"
	id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "m", Actor: "busy", Effect: workgraph.Pure, Map: &workgraph.Map{Over: items, MaxParallel: workgraph.MaxParallelItems}}}})
	for range 4 {
		busy.next(t)
	}
	before := c.appends.Load()
	_, err := l.Cancel(t.Context(), engine.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
	require.NoError(t, err)
	l.wait(t, id, journal.StateCanceled)
	require.Less(t, c.appends.Load()-before, int64(20))
	require.Empty(t, busy.called, "no other item was called")
	ended := 0
	for _, ev := range l.events(t, id) {
		if ev.Durable != nil && ev.Durable.Kind == workgraph.AttemptEnded {
			require.Equal(t, "busy", ev.Durable.Actor, fmt.Sprint(ev.Durable.Ref))
			ended++
		}
	}
	require.Equal(t, workgraph.MaxParallelItems, ended, "each has its end in the journal")
	testkit.Eventually(t, func() bool { return l.Live() == 0 }, time.Minute, time.Millisecond)
}
