package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// counted counts the events that were read by page.
type counted struct {
	journal.Journal
	read atomic.Int64
}

func (c *counted) Events(ctx context.Context, namespace, runID string, after int64, limit int) ([]journal.Event, error) {
	evs, err := c.Journal.Events(ctx, namespace, runID, after, limit)
	c.read.Add(int64(len(evs)))
	return evs, err
}

func TestVisitPages(t *testing.T) {
	t.Parallel()
	plain := sqliteStore(t)
	j := &counted{Journal: plain.open(t)}
	var calls atomic.Int64
	flaky := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		if calls.Add(1); c.Attempt == 1 {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "BUSY", "later")
		}
		return workgraph.Outcome{}, nil
	})
	l := run(t, store{plain.name, func(testing.TB) journal.Journal { return j }}, actors{"ok": &recorder{}, "flaky": flaky, "asks": payments(&recorder{})["asks"]})
	all := func(t *testing.T, id string, size int32) (out []query.Visit) {
		token := ""
		for {
			visits, next, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Size: size, Token: token})
			require.NoError(t, err)
			out = append(out, visits...)
			if token = next; next == "" {
				return out
			}
		}
	}
	t.Run("Pages/AgreeWithTheWhole", func(t *testing.T) {
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "ok"}, {ID: "m", Actor: "flaky", Map: &workgraph.Map{Over: "[1,2,3,4,5]"},
			Retry: workgraph.Retry{InitialBackoff: workgraph.Duration(time.Millisecond)}}}}
		for _, n := range []string{"b", "c", "d"} {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: n, Actor: "flaky", Retry: workgraph.Retry{InitialBackoff: workgraph.Duration(time.Millisecond)}},
				workgraph.Node{ID: n + "2", Actor: "ok"}, workgraph.Node{ID: n + "3", Actor: "ok", When: "false"})
			g.Edges = append(g.Edges, workgraph.Edge{From: "a", To: n}, workgraph.Edge{From: n, To: n + "2"}, workgraph.Edge{From: n, To: n + "3"})
		}
		id := l.start(t, g)
		l.wait(t, id, journal.StateCompleted)
		whole := all(t, id, 1000)
		require.Len(t, whole, 11)
		for _, size := range []int32{1, 2, 3, 7} {
			paged := all(t, id, size)
			require.Len(t, paged, len(whole))
			for i := range whole {
				w, p := whole[i], paged[i]
				require.Equal(t, []any{w.Node, w.Status, w.Attempts, w.Start, w.End, w.EndSeq, w.Duration, w.ItemsTotal, w.ItemsDone},
					[]any{p.Node, p.Status, p.Attempts, p.Start, p.End, p.EndSeq, p.Duration, p.ItemsTotal, p.ItemsDone}, "page size %d", size)
			}
		}
	})
	t.Run("Pages/CostDoesNotDependOnTheHistory", func(t *testing.T) {
		id := l.start(t, chain(700, "ok"))
		l.wait(t, id, journal.StateCompleted)
		token, before := "", int64(0)
		for range 65 {
			before = j.read.Load()
			visits, next, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Size: 10, Token: token})
			require.NoError(t, err)
			require.Len(t, visits, 10)
			token = next
		}
		require.Less(t, j.read.Load()-before, int64(100), "the last page was read from the beginning")
	})
	t.Run("Compare/PagesDoNotReadTheHistoriesAgain", func(t *testing.T) {
		one, two := l.start(t, chain(300, "ok")), l.start(t, chain(300, "ok"))
		l.wait(t, one, journal.StateCompleted)
		l.wait(t, two, journal.StateCompleted)
		token, seen := "", 0
		for first := true; first || token != ""; first = false {
			before := j.read.Load()
			c, err := l.Compare(t.Context(), query.CompareRequest{Namespace: ns, RunID: two, Base: one, All: true, Size: 10, Token: token})
			require.NoError(t, err)
			seen += len(c.Pairs)
			if token = c.Next; first {
				require.Greater(t, j.read.Load()-before, int64(600))
			} else {
				require.LessOrEqual(t, j.read.Load()-before, int64(20), "the values of the visits of the page")
			}
		}
		require.Equal(t, 300, seen)
	})
	t.Run("Pages/CostOfARunWithInterruptsDoesNotEither", func(t *testing.T) {
		g := chain(700, "ok")
		g.Nodes[0].Actor = "asks"
		id := l.start(t, g)
		l.approve(t, l.question(t, id))
		l.wait(t, id, journal.StateCompleted)
		page := func(token string) (next string, read int64) {
			before := j.read.Load()
			visits, next, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Size: 10, Token: token})
			require.NoError(t, err)
			require.Len(t, visits, 10)
			return next, j.read.Load() - before
		}
		token, _ := page("")
		for range 60 {
			var read int64
			token, read = page(token)
			require.Less(t, read, int64(100))
		}
	})
}
