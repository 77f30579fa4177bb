package engine_test

import (
	"context"
	"encoding/json"
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

// positions counts the positions of runs that are written without events.
type positions struct {
	journal.Journal
	alone atomic.Int64
}

func (p *positions) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for _, w := range ws {
		if w.Append != nil && len(w.Append.Snapshot) > 0 && len(w.Append.Events) == 0 {
			p.alone.Add(1)
		}
	}
	return p.Journal.Commit(ctx, o, ws)
}

func TestDetailsOfManyVisits(t *testing.T) {
	t.Parallel()
	const visits, size = 64, 60 << 10
	said := json.RawMessage(`"` + strings.Repeat("x", size) + `"`)
	begun, again := make(chan int64, visits), make(chan int64, visits)
	next, end := make(chan struct{}), make(chan struct{})
	a := actors{"beats": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		wait, told, fail := next, begun, workgraph.Errorf(workgraph.Retryable, "BUSY", "once more")
		if c.Attempt > 1 {
			wait, told, fail = end, again, nil
		}
		c.Heartbeat(said)
		told <- int64(len(c.Details))
		select {
		case <-wait:
		case <-ctx.Done():
			return workgraph.Outcome{}, ctx.Err()
		}
		if fail != nil {
			return workgraph.Outcome{}, fail
		}
		return text("done"), nil
	})}
	g := &workgraph.Graph{}
	for i := range visits {
		n := chain(1, "beats").Nodes[0]
		n.ID += strings.Repeat("i", i+1)
		n.Effect, n.Retry = workgraph.Pure, workgraph.Retry{MaxAttempts: 2, InitialBackoff: workgraph.Duration(time.Millisecond)}
		g.Nodes = append(g.Nodes, n)
	}
	var j *positions
	l := run(t, sqliteStore(t), a, func(c *engine.Config, d *engine.Deps) {
		c.DetailsEvery = time.Hour
		j = &positions{Journal: d.Journal}
		d.Journal = j
	})
	id := l.start(t, g)
	for range visits {
		require.Zero(t, <-begun)
	}
	held := l.LiveBytes()
	t.Run("CountAsTheRunsMemory", func(t *testing.T) {
		require.Greater(t, held, int64(900<<10), "bytes of live runs")
	})
	t.Run("AreBoundedTogether", func(t *testing.T) {
		require.Less(t, held, int64(2<<20), "bytes of live runs")
	})
	close(next)
	kept := int64(0)
	for range visits {
		kept += <-again
	}
	t.Run("NextAttemptsGetTheStoredDetails", func(t *testing.T) {
		require.Greater(t, kept, int64(900<<10))
		require.LessOrEqual(t, kept, int64(1<<20))
	})
	close(end)
	l.wait(t, id, journal.StateCompleted)
	t.Run("AreWrittenOncePerIntervalForAllVisits", func(t *testing.T) {
		require.EqualValues(t, 1, j.alone.Load(), "positions written for heartbeats alone")
	})
	t.Run("AreGivenBackWithTheRun", func(t *testing.T) {
		testkit.Eventually(t, func() bool { return l.LiveBytes() == 0 })
	})
}
