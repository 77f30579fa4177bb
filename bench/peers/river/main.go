// Command river is a plain River job per node: a job makes its node's result durable, counts down what its
// successors wait for, inserts jobs for those that became ready and completes itself, in one transaction. It
// must not know the harness beyond its protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/epigraph-run/epigraph/bench/drive"
)

func main() {
	store := flag.String("store", "", "PostgreSQL URL, or the path of a SQLite file")
	cooldown := flag.Duration("cooldown", river.FetchCooldownDefault, "least time between two fetches")
	poll := flag.Duration("poll", river.FetchPollIntervalDefault, "time between two fetches that nobody asked for")
	workers := flag.Int("workers", 100, "jobs that run at once")
	conns := flag.Int("conns", 16, "connections")
	flag.Parse()
	os.Exit(drive.Main(func(ctx context.Context) (drive.Engine, error) {
		cfg := river.Config{FetchCooldown: *cooldown, FetchPollInterval: *poll, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: *workers}}}
		if !strings.HasPrefix(*store, "postgres://") {
			db, err := openSQLite(ctx, *store)
			if err != nil {
				return nil, err
			}
			return open(ctx, riversqlite.New(db.DB), db, cfg)
		}
		db, err := openPostgres(ctx, *store, int32(*conns))
		if err != nil {
			return nil, err
		}
		return open(ctx, riverpgxv5.New(db.Pool), db, cfg)
	}))
}

type nodeArgs struct {
	Run  int64 `json:"run"`
	Node int   `json:"node"`
}

func (nodeArgs) Kind() string { return "node" }

// tables are those of the harness, beside River's own.
type tables[TTx any] interface {
	begin(ctx context.Context, f func(tx TTx) error) error
	// add records the nodes of a run, each with how many it waits for.
	add(ctx context.Context, tx TTx, run int64, waits []int32) error
	// finish records a node's result and counts down what next waits for. It returns those that wait for
	// nothing any more.
	finish(ctx context.Context, tx TTx, run int64, node int, result []byte, next []int) (ready []int, err error)
	count(ctx context.Context) (done, jobs int64, err error)
	close()
}

type engine[TDriver riverdriver.Driver[TTx], TTx any] struct {
	tables tables[TTx]
	client *river.Client[TTx]

	mu   sync.Mutex
	runs map[int64]*job
}

// MayRepeat says that River's jobs come at least once: a job whose transaction was rolled back runs again.
func (*engine[TDriver, TTx]) MayRepeat() {}

// job is a run under way.
type job struct {
	run  *drive.Run
	next [][]int
	done chan struct{}

	mu   sync.Mutex
	left int
}

type worker[TDriver riverdriver.Driver[TTx], TTx any] struct {
	river.WorkerDefaults[nodeArgs]
	e *engine[TDriver, TTx]
}

func open[TDriver riverdriver.Driver[TTx], TTx any](ctx context.Context, driver TDriver, db tables[TTx], cfg river.Config) (drive.Engine, error) {
	e := &engine[TDriver, TTx]{tables: db, runs: map[int64]*job{}}
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	cfg.Workers = river.NewWorkers()
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	river.AddWorker(cfg.Workers, &worker[TDriver, TTx]{e: e})
	if e.client, err = river.NewClient(driver, &cfg); err != nil {
		return nil, err
	}
	return e, e.client.Start(context.WithoutCancel(ctx))
}

func (e *engine[TDriver, TTx]) Run(ctx context.Context, r *drive.Run) error {
	j := &job{run: r, next: r.Graph.Successors(), done: make(chan struct{}), left: len(r.Graph.Nodes)}
	e.mu.Lock()
	e.runs[r.Number] = j
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.runs, r.Number)
		e.mu.Unlock()
	}()
	waits, ready := make([]int32, len(r.Graph.Nodes)), []int(nil)
	for i, n := range r.Graph.Nodes {
		if waits[i] = int32(len(n.Deps)); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	err := e.tables.begin(ctx, func(tx TTx) error {
		if err := e.tables.add(ctx, tx, r.Number, waits); err != nil {
			return err
		}
		return e.insert(ctx, tx, r.Number, ready)
	})
	if err != nil {
		return err
	}
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (e *engine[TDriver, TTx]) insert(ctx context.Context, tx TTx, run int64, nodes []int) error {
	if len(nodes) == 1 {
		_, err := e.client.InsertTx(ctx, tx, nodeArgs{run, nodes[0]}, nil)
		return err
	}
	params := make([]river.InsertManyParams, len(nodes))
	for i, n := range nodes {
		params[i].Args = nodeArgs{run, n}
	}
	_, err := e.client.InsertManyFastTx(ctx, tx, params)
	return err
}

func (w *worker[TDriver, TTx]) Timeout(*river.Job[nodeArgs]) time.Duration { return time.Minute }

func (w *worker[TDriver, TTx]) Work(ctx context.Context, rj *river.Job[nodeArgs]) error {
	e, a := w.e, rj.Args
	e.mu.Lock()
	j := e.runs[a.Run]
	e.mu.Unlock()
	if j == nil {
		return river.JobCancel(errors.New("the run is gone"))
	}
	result := j.run.Exec(a.Node)
	err := e.tables.begin(ctx, func(tx TTx) error {
		ready, err := e.tables.finish(ctx, tx, a.Run, a.Node, result, j.next[a.Node])
		if err != nil {
			return err
		}
		if len(ready) > 0 {
			if err := e.insert(ctx, tx, a.Run, ready); err != nil {
				return err
			}
		}
		_, err = river.JobCompleteTx[TDriver](ctx, tx, rj)
		return err
	})
	if err != nil {
		return fmt.Errorf("node %s: %w", strconv.Itoa(a.Node), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.left--; j.left == 0 {
		close(j.done)
	}
	return nil
}

func (e *engine[TDriver, TTx]) Verify(ctx context.Context, runs, nodes int64) error {
	done, jobs, err := e.tables.count(ctx)
	if err != nil {
		return err
	}
	if done != nodes || jobs != nodes {
		return fmt.Errorf("%d results and %d completed jobs for %d nodes of %d runs", done, jobs, nodes, runs)
	}
	return nil
}

func (e *engine[TDriver, TTx]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := e.client.StopAndCancel(ctx)
	e.tables.close()
	return err
}
