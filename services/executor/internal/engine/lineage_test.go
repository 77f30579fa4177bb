package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/descendants"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestLineage(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		const most = 8
		a := actors{"self": spawns(workgraph.Child{Ref: "self"}, workgraph.Child{Ref: "self"}, workgraph.Child{Ref: "self"})}
		l := run(t, s, a, func(c *engine.Config, _ *engine.Deps) { c.MaxDescendants, c.MaxRecursion = most, 5 })
		l.jobs(t)
		id := l.start(t, chain(1, "self"))
		l.wait(t, id, journal.StateCompleted)
		below, err := l.j.Descendants(t.Context(), ns, id)
		require.NoError(t, err)
		require.Len(t, below, 6, "children come together or not at all")
		for _, d := range below {
			row := l.row(t, d.RunID)
			if row.State == journal.StateFailed {
				require.Contains(t, string(row.Error), descendants.ReasonDescendantQuota)
				require.Contains(t, string(row.Error), "raise max_descendants")
			}
		}
		// Another root has a quota of its own.
		l.wait(t, l.start(t, chain(1, "self")), journal.StateCompleted)
	})
}

// A run counts the runs on the way to it that a model chose, also across those that were not.
func TestDelegated(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var deepest atomic.Int64
		a := actors{"delegate": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			n := actor.DelegatedOf(ctx)
			deepest.Store(int64(n))
			if n == 2 {
				return text("done"), nil
			}
			chosen := workgraph.Child{Graph: chain(1, "within"), Delegated: true}
			return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{chosen}, AsResult: true}}}, nil
		}), "within": spawns(workgraph.Child{Graph: chain(1, "delegate")})}
		l := run(t, s, a, func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = time.Millisecond })
		l.jobs(t)
		l.wait(t, l.start(t, chain(1, "delegate")), journal.StateCompleted)
		require.Equal(t, int64(2), deepest.Load())
	})
}

// Children that have ended make room for others, up to the bound of all.
func TestDescendantsThatEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		all, open int
		want      journal.State
		fault     string
	}{
		{"OneAfterTheOther", 100, 3, journal.StateCompleted, ""},
		{"TooManyAtOnce", 100, 1, journal.StateFailed, "raise max_open_descendants"},
		{"TooManyInAll", 6, 3, journal.StateFailed, "raise max_descendants"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := actors{"spawn": spawns(workgraph.Child{Graph: chain(1, "ok")}), "ok": &recorder{}}
			l := run(t, sqliteStore(t), a, func(cfg *engine.Config, _ *engine.Deps) { cfg.MaxDescendants, cfg.MaxOpenDescendants = c.all, c.open })
			l.jobs(t)
			id := l.start(t, chain(10, "spawn"))
			row := l.wait(t, id, c.want)
			require.Contains(t, string(row.Error), c.fault)
		})
	}
}

// startsAtOnce is a journal, fast enough for large commits, that counts the children whose starts it gets at
// once.
type startsAtOnce struct {
	journal.Journal
	now, most atomic.Int64
}

func (j *startsAtOnce) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	n := int64(0)
	for _, w := range ws {
		if w.Start != nil && w.Start.Run.ParentID != "" {
			n++
		}
	}
	if n > 0 {
		now := j.now.Add(n)
		defer j.now.Add(-n)
		for m := j.most.Load(); now > m && !j.most.CompareAndSwap(m, now); m = j.most.Load() {
		}
		pause := time.NewTimer(5 * time.Millisecond)
		defer pause.Stop()
		<-pause.C
	}
	return j.Journal.Commit(ctx, o, ws)
}

func TestStartsOfChildrenTakeTurns(t *testing.T) {
	t.Parallel()
	const parents = 3 * engine.ChildStarts
	j := &startsAtOnce{}
	open := make(chan struct{})
	a := actors{"spawn": spawns(workgraph.Child{Graph: chain(1, "ok")}, workgraph.Child{Graph: chain(1, "ok")}), "ok": &recorder{},
		"wait": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			select {
			case <-open:
			case <-ctx.Done():
			}
			return text("done"), ctx.Err()
		})}
	l := run(t, sqliteStore(t), a, func(c *engine.Config, d *engine.Deps) {
		c.Parallel = 2 * parents
		j.Journal, d.Journal = d.Journal, j
	})
	l.jobs(t)
	var ids []string
	for range parents {
		g := chain(2, "spawn")
		g.Nodes[0].Actor = "wait"
		ids = append(ids, l.start(t, g))
	}
	close(open)
	for _, id := range ids {
		l.wait(t, id, journal.StateCompleted)
	}
	require.LessOrEqual(t, j.most.Load(), int64(engine.ChildStarts))
}

// countsAtOnce is a journal that counts how many counts of descendants run at the same time.
type countsAtOnce struct {
	journal.Journal
	now, most, all atomic.Int64
}

func (j *countsAtOnce) CountBelow(ctx context.Context, namespace, runID string, most int) (all, running int, err error) {
	now := j.now.Add(1)
	defer j.now.Add(-1)
	j.all.Add(1)
	for m := j.most.Load(); now > m && !j.most.CompareAndSwap(m, now); m = j.most.Load() {
	}
	pause := time.NewTimer(5 * time.Millisecond)
	defer pause.Stop()
	<-pause.C
	return j.Journal.CountBelow(ctx, namespace, runID, most)
}

func TestDescendantsAreCountedInTurn(t *testing.T) {
	t.Parallel()
	const roots = 20
	j := &countsAtOnce{}
	l := run(t, sqliteStore(t), actors{"spawn": spawns(workgraph.Child{Graph: chain(1, "ok")}), "ok": &recorder{}}, func(_ *engine.Config, d *engine.Deps) {
		j.Journal, d.Journal = d.Journal, j
	})
	l.jobs(t)
	var ids []string
	for range roots {
		ids = append(ids, l.start(t, chain(1, "spawn")))
	}
	for _, id := range ids {
		l.wait(t, id, journal.StateCompleted)
	}
	require.EqualValues(t, roots, j.all.Load())
	require.EqualValues(t, 1, j.most.Load())
}
