// Command river is a plain River job per node: a job makes its node's result durable, counts down what its successors wait for,
// inserts jobs for those that became ready and completes itself, in one transaction. It must not know the harness beyond its
// protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/epigraph-run/epigraph/bench/drive"
)

func main() {
	store := flag.String("store", "", "PostgreSQL URL")
	cooldown := flag.Duration("cooldown", river.FetchCooldownDefault, "least time between two fetches")
	poll := flag.Duration("poll", river.FetchPollIntervalDefault, "time between two fetches that nobody asked for")
	workers := flag.Int("workers", 100, "jobs that run at once")
	conns := flag.Int("conns", 16, "connections")
	flag.Parse()
	os.Exit(drive.Main(func(ctx context.Context) (drive.Engine, error) {
		return open(ctx, *store, int32(*conns), river.Config{
			FetchCooldown: *cooldown, FetchPollInterval: *poll, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: *workers}},
		})
	}))
}

type nodeArgs struct {
	Run  int64 `json:"run"`
	Node int   `json:"node"`
}

func (nodeArgs) Kind() string { return "node" }

type engine struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]

	mu   sync.Mutex
	runs map[int64]*job
}

// job is a run under way.
type job struct {
	run  *drive.Run
	next [][]int
	done chan struct{}

	mu   sync.Mutex
	left int
}

type worker struct {
	river.WorkerDefaults[nodeArgs]
	e *engine
}

func open(ctx context.Context, url string, conns int32, cfg river.Config) (drive.Engine, error) {
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	pc.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, err
	}
	e := &engine{pool: pool, runs: map[int64]*job{}}
	driver := riverpgxv5.New(pool)
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, `CREATE TABLE node (run bigint, node int, waits int, data bytea, PRIMARY KEY (run, node))`); err != nil {
		return nil, err
	}
	cfg.Workers = river.NewWorkers()
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	river.AddWorker(cfg.Workers, &worker{e: e})
	if e.client, err = river.NewClient(driver, &cfg); err != nil {
		return nil, err
	}
	return e, e.client.Start(context.WithoutCancel(ctx))
}

func (e *engine) Run(ctx context.Context, r *drive.Run) error {
	j := &job{run: r, next: r.Graph.Successors(), done: make(chan struct{}), left: len(r.Graph.Nodes)}
	e.mu.Lock()
	e.runs[r.Number] = j
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.runs, r.Number)
		e.mu.Unlock()
	}()
	nodes, waits, ready := make([]int32, len(r.Graph.Nodes)), make([]int32, len(r.Graph.Nodes)), []int(nil)
	for i, n := range r.Graph.Nodes {
		if nodes[i], waits[i] = int32(i), int32(len(n.Deps)); waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO node (run, node, waits) SELECT $1, n, w FROM unnest($2::int[], $3::int[]) AS t (n, w)`, r.Number, nodes, waits); err != nil {
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

func (e *engine) insert(ctx context.Context, tx pgx.Tx, run int64, nodes []int) error {
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

func (w *worker) Timeout(*river.Job[nodeArgs]) time.Duration { return time.Minute }

func (w *worker) Work(ctx context.Context, rj *river.Job[nodeArgs]) error {
	e, a := w.e, rj.Args
	e.mu.Lock()
	j := e.runs[a.Run]
	e.mu.Unlock()
	if j == nil {
		return river.JobCancel(errors.New("the run is gone"))
	}
	result := j.run.Exec(a.Node)
	err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE node SET data = $3 WHERE run = $1 AND node = $2`, a.Run, a.Node, result); err != nil {
			return err
		}
		if len(j.next[a.Node]) > 0 {
			// Counted down in order of the nodes, so that two that end at once do not wait for each other.
			rows, err := tx.Query(ctx, `UPDATE node SET waits = waits - 1 WHERE (run, node) IN (
				SELECT run, node FROM node WHERE run = $1 AND node = ANY ($2) ORDER BY node FOR UPDATE) RETURNING node, waits`, a.Run, j.next[a.Node])
			if err != nil {
				return err
			}
			var ready []int
			var node, waits int
			if _, err := pgx.ForEachRow(rows, []any{&node, &waits}, func() error {
				if waits == 0 {
					ready = append(ready, node)
				}
				return nil
			}); err != nil {
				return err
			}
			if len(ready) > 0 {
				if err := e.insert(ctx, tx, a.Run, ready); err != nil {
					return err
				}
			}
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, rj)
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

func (e *engine) Verify(ctx context.Context, runs, nodes int64) error {
	var done, jobs int64
	if err := e.pool.QueryRow(ctx, `SELECT count(*) FROM node WHERE data IS NOT NULL AND waits = 0`).Scan(&done); err != nil {
		return err
	}
	if err := e.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state = 'completed'`).Scan(&jobs); err != nil {
		return err
	}
	if done != nodes || jobs != nodes {
		return fmt.Errorf("%d results and %d completed jobs for %d nodes of %d runs", done, jobs, nodes, runs)
	}
	return nil
}

func (e *engine) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := e.client.StopAndCancel(ctx)
	e.pool.Close()
	return err
}
