package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// instant is an actor that costs nothing, so that the engine and its journal are measured.
func instant() actors {
	return actors{"ok": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"ok"`)}}, nil
	})}
}

func quiet(_ *engine.Config, d *engine.Deps) { d.Logger = nil }

// ended is an engine.Watcher that waits for the end of a run.
type ended struct{}

func (ended) Event(feed.Event) error { return nil }
func (ended) KeepAlive(int64) error  { return nil }

func eachBench(b *testing.B, f func(b *testing.B, s store)) {
	for _, open := range []func(testing.TB) store{sqliteStore, pgStore} {
		s := open(b)
		b.Run(s.name, func(b *testing.B) { f(b, s) })
	}
}

// floor is how long one commit of one small row takes on this database, one commit after the other.
func floor(b *testing.B, s store) time.Duration {
	b.Helper()
	const n = 200
	ctx := b.Context()
	var commit func() error
	if s.name == "SQLite" {
		db, err := dbkit.OpenSQLite(ctx, filepath.Join(b.TempDir(), "floor.db"))
		require.NoError(b, err)
		defer func() { require.NoError(b, db.Close()) }()
		_, err = db.Write.ExecContext(ctx, `CREATE TABLE floor (id INTEGER PRIMARY KEY, data BLOB)`)
		require.NoError(b, err)
		commit = func() error {
			_, err := db.Write.ExecContext(ctx, `INSERT INTO floor (data) VALUES (?)`, make([]byte, 400))
			return err
		}
	} else {
		pool, err := dbkit.OpenPostgres(ctx, pgtest.New(b), "public", dbkit.PostgresOptions{})
		require.NoError(b, err)
		defer pool.Close()
		_, err = pool.Exec(ctx, `CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, data bytea)`)
		require.NoError(b, err)
		commit = func() error {
			_, err := pool.Exec(ctx, `INSERT INTO floor (data) VALUES ($1)`, make([]byte, 400))
			return err
		}
	}
	begin := time.Now()
	for range n {
		require.NoError(b, commit())
	}
	return time.Since(begin) / n
}

// BenchmarkChain100 measures the latency of one run of 100 steps in a row. Each step must be durable before
// the next begins.
func BenchmarkChain100(b *testing.B) {
	eachBench(b, func(b *testing.B, s store) {
		bare := floor(b, s)
		l := run(b, s, instant(), quiet)
		g := chain(100, "ok")
		b.ResetTimer()
		for range b.N {
			id := l.start(b, g)
			require.NoError(b, l.Feed().Watch(b.Context(), feed.WatchRequest{Namespace: ns, RunID: id}, ended{}))
		}
		b.StopTimer()
		step := b.Elapsed() / time.Duration(100*b.N)
		b.ReportMetric(float64(step.Microseconds()), "µs/step")
		b.ReportMetric(float64(bare.Microseconds()), "µs/bare-commit")
		b.ReportMetric(float64(step)/float64(bare), "x-floor")
		l.stop()
	})
}

// BenchmarkRuns measures the throughput of runs of ten nodes, 64 at a time.
func BenchmarkRuns(b *testing.B) {
	eachBench(b, func(b *testing.B, s store) {
		l := run(b, s, instant(), quiet)
		b.ResetTimer()
		runTrees(b, l, 10)
		b.StopTimer()
		b.ReportMetric(float64(10*b.N)/b.Elapsed().Seconds(), "nodes/s")
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		b.ReportMetric(rawRate(b, l.j, l.Owner()), "raw-events/s")
		l.stop()
	})
}

// runTrees runs graphs of so many nodes, 64 at a time.
func runTrees(b *testing.B, l *live, size int) {
	b.Helper()
	g := &workgraph.Graph{}
	for i := range size {
		g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "ok"})
		if i > 0 {
			g.Edges = append(g.Edges, workgraph.Edge{From: fmt.Sprintf("n%d", (i-1)/2), To: fmt.Sprintf("n%d", i)})
		}
	}
	gate := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for range b.N {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			id, _, err := l.Start(b.Context(), command.StartRequest{Namespace: ns, Graph: g})
			if err != nil {
				b.Error(err)
				return
			}
			if err := l.Feed().Watch(b.Context(), feed.WatchRequest{Namespace: ns, RunID: id}, ended{}); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// deaf is a registry that takes every change of a run.
type deaf struct{ outbox.Registry }

func (deaf) RecordChanges(context.Context, string, outbox.Changes) error { return nil }

// BenchmarkToldRuns measures what it costs runs that the registry is told of them: the rows of the
// outbox, and their delivery, at once or with those of other runs.
func BenchmarkToldRuns(b *testing.B) {
	for _, open := range []func(testing.TB) store{sqliteStore, pgStore} {
		s := open(b)
		for _, size := range []int{1, 10} {
			for name, gather := range map[string]time.Duration{"no": 0, "at-once": 1, "gathered": 100 * time.Millisecond} {
				b.Run(fmt.Sprintf("%s/nodes=%d/told=%s", s.name, size, name), func(b *testing.B) { benchTold(b, open(b), size, gather) })
			}
		}
	}
}

// benchTold measures runs of so many nodes. They are not told of if gather is 0.
func benchTold(b *testing.B, s store, size int, gather time.Duration) {
	b.Helper()
	var wake atomic.Pointer[outbox.Deliverer]
	l := run(b, s, instant(), quiet, func(_ *engine.Config, d *engine.Deps) {
		if gather > 0 {
			d.Claims, d.WakeOutbox = books{}, func(urgent bool) { wake.Load().Wake(urgent) }
		}
	})
	box, err := outbox.New(l.j, deaf{}, outbox.Options{Gather: gather})
	require.NoError(b, err)
	wake.Store(box)
	ctx, stop := context.WithCancel(b.Context())
	var delivery sync.WaitGroup
	delivery.Go(func() { _ = box.Run(ctx) })
	b.ResetTimer()
	before := processTime(b)
	runTrees(b, l, size)
	b.StopTimer()
	// Unlike the time that passes it depends little on what else the machine does.
	b.ReportMetric(float64((processTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/run")
	stop()
	delivery.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
	l.stop()
}

// processTime is the time of the processor that this process has used. That of PostgreSQL is not in it.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rawRate is how many events per second the journal takes in full batches without an engine.
func rawRate(b *testing.B, j journal.Journal, _ journal.Owner) float64 {
	b.Helper()
	owner, err := j.Register(b.Context(), "raw", "")
	require.NoError(b, err)
	now := dbkit.Now()
	data := make([]byte, 400)
	const batches, runs, events = 4, 90, 11
	begin := time.Now()
	for range batches {
		var ws []journal.Write
		for range runs {
			id := ids.New("run")
			evs := make([]journal.Event, events)
			for k := range evs {
				evs[k] = journal.Event{Time: now, Kind: 12, NodeID: "n", Visit: 1, Data: data}
			}
			ws = append(ws, journal.Write{Start: &journal.Start{Append: journal.Append{Graph: []byte("{}"), Events: evs}, Run: journal.Run{ID: id, Namespace: ns, GraphHash: "h",
				CreateTime: now, Status: journal.Status{State: journal.StateCompleted, UpdateTime: now}}}})
		}
		_, err := j.Commit(b.Context(), owner, ws)
		require.NoError(b, err)
	}
	return float64(batches*runs*events) / time.Since(begin).Seconds()
}
