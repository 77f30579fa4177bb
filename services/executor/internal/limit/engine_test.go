package limit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	limitpg "github.com/epigraph-run/epigraph/services/executor/internal/limit/pg"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := journalpg.Open(ctx, url, journalpg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

var errCut = errors.New("the line is cut")

// cut is a line to the database that can be cut for good, as if the process had died there.
type cut struct {
	journal.Journal
	limit.Store
	dead atomic.Bool
}

func (c *cut) Close() error { return errors.Join(c.Store.Close(), c.Journal.Close()) }

func (c *cut) List(ctx context.Context, ns, after string, most int) ([]limit.Limit, error) {
	return c.Store.List(ctx, ns, after, most)
}

func (c *cut) Heartbeat(ctx context.Context, o journal.Owner) error {
	if c.dead.Load() {
		return errCut
	}
	return c.Journal.Heartbeat(ctx, o)
}

func (c *cut) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	if c.dead.Load() {
		return nil, errCut
	}
	return c.Journal.Commit(ctx, o, ws)
}

func (c *cut) TakeOver(ctx context.Context, o journal.Owner, opts journal.TakeOverOptions) (journal.TakeOverResult, error) {
	if c.dead.Load() {
		return journal.TakeOverResult{}, errCut
	}
	return c.Journal.TakeOver(ctx, o, opts)
}

func (c *cut) Deregister(ctx context.Context, o journal.Owner) error {
	if c.dead.Load() {
		return errCut
	}
	return c.Journal.Deregister(ctx, o)
}

func (c *cut) Sync(ctx context.Context, o journal.Owner, turn int64, asks []limit.Ask) ([]limit.Grant, error) {
	if c.dead.Load() {
		return nil, errCut
	}
	return c.Store.Sync(ctx, o, turn, asks)
}

// journalOnly hides the limits of a cut: both have a List.
type journalOnly struct {
	journal.Journal
	c *cut
}

func (j journalOnly) Heartbeat(ctx context.Context, o journal.Owner) error {
	return j.c.Heartbeat(ctx, o)
}
func (j journalOnly) Deregister(ctx context.Context, o journal.Owner) error {
	return j.c.Deregister(ctx, o)
}

func (j journalOnly) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	return j.c.Commit(ctx, o, ws)
}

func (j journalOnly) TakeOver(ctx context.Context, o journal.Owner, opts journal.TakeOverOptions) (journal.TakeOverResult, error) {
	return j.c.TakeOver(ctx, o, opts)
}

// pure calls are made again when their executor dies.
var pure = program.ActorInfo{ActorInfo: workgraph.ActorInfo{Effect: workgraph.Pure}}

// actors are the same in every namespace.
type actors map[string]workgraph.Actor

func (a actors) Find(_ context.Context, _ string, names []string) (map[string]program.ActorInfo, error) {
	out := map[string]program.ActorInfo{}
	for _, n := range names {
		if _, ok := a[n]; ok {
			out[n] = pure
		}
	}
	return out, nil
}

func (a actors) Actor(_ context.Context, _, name string) (workgraph.Actor, program.ActorInfo, bool, error) {
	x, ok := a[name]
	return x, pure, ok, nil
}

func (a actors) Names(context.Context, string) ([]string, error) { return nil, nil }

// replica is an engine with its limiter.
type replica struct {
	*engine.Engine
	*cut
	kill func() // as by the death of the process
}

func open(t *testing.T, url, id string, a actors) *replica {
	t.Helper()
	j, err := journalpg.Open(t.Context(), url, journalpg.Options{MaxReaders: 2})
	require.NoError(t, err)
	s, err := limitpg.Open(t.Context(), url, nil)
	require.NoError(t, err)
	c := &cut{Journal: j, Store: s}
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	l := limit.New(c, testkit.Logger(t))
	require.NoError(t, l.Refresh(t.Context()))
	cfg := engine.DefaultConfig()
	cfg.ID, cfg.Lease, cfg.ScanInterval, cfg.Drain, cfg.Grace = id, 2*time.Second, 20*time.Millisecond, time.Millisecond, 100*time.Millisecond
	e, err := engine.New(cfg, engine.Deps{Journal: journalOnly{j, c}, Actors: a, Gates: l.Gates(), Logger: testkit.Logger(t)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	wg.Go(func() { _ = l.Run(ctx) })
	stop := sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	select {
	case <-e.Ready():
	case <-time.After(20 * time.Second):
		require.Fail(t, "engine not ready")
	}
	return &replica{Engine: e, cut: c, kill: func() {
		c.dead.Store(true)
		stop()
	}}
}

// TestReplicas shows that limits hold over several executors while some of them die.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const ns = "n"
	start := func(t *testing.T, r *replica, g *workgraph.Graph, priority int) string {
		t.Helper()
		id, _, err := r.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: g, Priority: priority})
		require.NoError(t, err)
		return id
	}
	ended := func(t *testing.T, r *replica, ids []string) {
		t.Helper()
		for _, id := range ids {
			testkit.Within(t, 2*time.Minute, 5*time.Millisecond, func() bool {
				row, err := r.Journal.Get(t.Context(), ns, id)
				require.NoError(t, err)
				return row.State == journal.StateCompleted
			}, "run %s", id)
		}
	}
	t.Run("Keys/NeverOverlapWhileOwnersDie", func(t *testing.T) {
		t.Parallel()
		url := template.New(t)
		var (
			mu     sync.Mutex
			inside = map[string]int{}
			worst  = map[string]int{}
			calls  atomic.Int64
		)
		move := func(k string, by int) {
			mu.Lock()
			defer mu.Unlock()
			inside[k] += by
			worst[k] = max(worst[k], inside[k])
		}
		a := actors{"work": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			for _, k := range []string{c.ConcurrencyKey, "actor"} {
				move(k, 1)
				defer move(k, -1)
			}
			calls.Add(1)
			select {
			case <-ctx.Done():
				return workgraph.Outcome{}, context.Cause(ctx)
			case <-time.After(time.Duration(1+rand.IntN(3)) * time.Millisecond):
				return workgraph.Outcome{}, nil
			}
		})}
		g := &workgraph.Graph{}
		for i := range 9 {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprint("n", i), Actor: "work", ConcurrencyKey: fmt.Sprintf("'k%d'", i%5)})
		}
		rs := []*replica{open(t, url, "a", a), open(t, url, "b", a), open(t, url, "c", a)}
		_, err := rs[0].Update(t.Context(), limit.ActorKey(ns, "work"), limit.To(limit.Limit{Key: limit.ActorKey(ns, "work"), MaxConcurrent: 4}))
		require.NoError(t, err)
		var ids []string
		for i := range 18 {
			ids = append(ids, start(t, rs[i%3], g, 1+i%4))
		}
		for i := range 2 {
			at := calls.Load() + 20
			testkit.Eventually(t, func() bool { return calls.Load() > at })
			rs[i].kill()
			rs[i] = open(t, url, fmt.Sprint("new", i), a)
		}
		ended(t, rs[2], ids)
		for k, n := range worst {
			if k != "actor" {
				require.Equal(t, 1, n, "calls with key %s overlapped", k)
			}
		}
		require.NotEmpty(t, worst)
		// The limit of the actor was set a moment before the first start; an executor that had not received
		// it yet began at most a few.
		require.LessOrEqual(t, worst["actor"], 5, "there are five keys")
	})
	t.Run("Rates/HoldWhileOwnersDie", func(t *testing.T) {
		t.Parallel()
		url := template.New(t)
		const n, interval = 10, 500 * time.Millisecond
		var (
			mu   sync.Mutex
			when []time.Time
		)
		a := actors{"work": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			mu.Lock()
			defer mu.Unlock()
			when = append(when, time.Now())
			return workgraph.Outcome{}, nil
		})}
		first := open(t, url, "a", a)
		_, err := first.Update(t.Context(), limit.ActorKey(ns, "work"), limit.To(limit.Limit{Key: limit.ActorKey(ns, "work"), MaxRate: n, RateInterval: interval}))
		require.NoError(t, err)
		// these have known the limit from the beginning
		rs := []*replica{open(t, url, "b", a), open(t, url, "c", a)}
		g := &workgraph.Graph{}
		for i := range 10 {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprint("n", i), Actor: "work"})
		}
		var ids []string
		for i := range 6 {
			ids = append(ids, start(t, rs[i%2], g, 0))
		}
		testkit.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(when) > 15 })
		rs[0].kill()
		last := open(t, url, "d", a)
		ended(t, last, ids)
		mu.Lock()
		defer mu.Unlock()
		slices.SortFunc(when, time.Time.Compare)
		require.GreaterOrEqual(t, len(when), 60)
		for i := n; i < len(when); i++ {
			// From the pass to the actor it is a few steps, which take longer on a loaded machine.
			require.Greater(t, when[i].Sub(when[i-n]), interval*9/10, "calls %d to %d", i-n, i)
		}
	})
}

// BenchmarkUnbounded is what limits cost calls that none concerns, in a namespace that has some.
func BenchmarkUnbounded(b *testing.B) {
	l := limit.New(fixed{}, nil)
	require.NoError(b, l.Refresh(b.Context()))
	gates := l.Gates()
	req := sched.GateRequest{Namespace: "n", RunID: "run", Actor: "free", Priority: 2, Queued: time.Now()}
	b.ReportAllocs()
	for b.Loop() {
		for _, g := range gates {
			if g.Concerns(req) {
				b.Fatal("concerned")
			}
		}
	}
}

func TestUnboundedCallsCostNothing(t *testing.T) {
	l := limit.New(fixed{}, nil)
	require.NoError(t, l.Refresh(t.Context()))
	gates := l.Gates()
	req := sched.GateRequest{Namespace: "n", RunID: "run", Actor: "free", Priority: 2, Queued: time.Now()}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		for _, g := range gates {
			if g.Concerns(req) {
				panic("concerned")
			}
		}
	}))
}

// fixed is a store with one limit.
type fixed struct{ limit.Store }

func (fixed) All(context.Context, int64) (int64, []limit.Limit, error) {
	return 1, []limit.Limit{{Key: limit.ActorKey("n", "bounded"), MaxConcurrent: 1}}, nil
}
