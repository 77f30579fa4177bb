package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// goingAway is a journal that becomes unreachable with the commit that applies commands.
type goingAway struct {
	journal.Journal
	away  atomic.Bool
	tried chan struct{}
}

func (j *goingAway) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	if j.away.Load() {
		select {
		case j.tried <- struct{}{}:
		default:
		}
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	for _, w := range ws {
		if w.Append != nil && len(w.Append.Applied) > 0 {
			j.away.Store(true)
		}
	}
	return j.Journal.Commit(ctx, o, ws)
}

func TestLeavesWhileJournalIsAway(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		j := &goingAway{tried: make(chan struct{})}
		l := run(t, s, actors{"gate": g}, func(c *engine.Config, d *engine.Deps) {
			c.Parallel = 1
			j.Journal = d.Journal
			d.Journal = j
		})
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "gate"}, {ID: "b", Actor: "gate"}}})
		g.next(t)
		_, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Reason: "enough", Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandCancel, Body: []byte(`{"reason":"enough"}`), Time: time.Now()}})
		require.NoError(t, err)
		<-j.tried // the end of the attempt that had not begun
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			l.stop()
		}()
		select {
		case <-stopped:
		case <-time.After(time.Minute):
			j.away.Store(false)
			require.Fail(t, "the executor does not leave")
		}
	})
}
