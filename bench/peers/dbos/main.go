// Command dbos runs the loads on DBOS for Go: a run is a workflow, a node a step of it; started at once, or
// through a queue. It must not know the harness beyond its protocol.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // how DBOS finds its driver
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/epigraph-run/epigraph/bench/drive"
)

func main() {
	store := flag.String("store", "", "PostgreSQL URL, or the path of a SQLite file")
	conns := flag.Int("conns", 0, "connections; 0 leaves it to DBOS")
	queue := flag.Bool("queue", false, "start runs through a queue")
	poll := flag.Duration("poll", 0, "time between two looks into the queue; 0 leaves it to DBOS")
	flag.Parse()
	os.Exit(drive.Main(func(ctx context.Context) (drive.Engine, error) {
		return open(ctx, *store, int32(*conns), *queue, *poll)
	}))
}

const queueName = "bench"

type engine struct {
	dbos  dbos.Context
	count func(ctx context.Context) (int64, error)
	close func()
	queue bool

	mu   sync.Mutex
	runs map[string]*drive.Run
}

func open(ctx context.Context, store string, conns int32, queue bool, poll time.Duration) (drive.Engine, error) {
	e := &engine{queue: queue, runs: map[string]*drive.Run{}, close: func() {}}
	cfg := dbos.Config{AppName: "bench", ApplicationVersion: "1", Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))}
	if strings.HasPrefix(store, "postgres://") {
		cfg.DatabaseURL = store
		pc, err := pgxpool.ParseConfig(store)
		if err != nil {
			return nil, err
		}
		if conns > 0 {
			pc.MaxConns = conns
			if cfg.SystemDBPool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
				return nil, err
			}
			e.close = cfg.SystemDBPool.Close
		}
		e.count = func(ctx context.Context) (n int64, err error) {
			pool, err := pgxpool.New(ctx, store)
			if err != nil {
				return 0, err
			}
			defer pool.Close()
			err = pool.QueryRow(ctx, `SELECT count(*) FROM dbos.operation_outputs WHERE output IS NOT NULL`).Scan(&n)
			return n, err
		}
	} else {
		cfg.DatabaseURL = "sqlite:" + store
		e.count = func(ctx context.Context) (n int64, err error) {
			db, err := sql.Open("sqlite", store)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			err = db.QueryRowContext(ctx, `SELECT count(*) FROM operation_outputs WHERE output IS NOT NULL`).Scan(&n)
			return n, err
		}
	}
	var err error
	if e.dbos, err = dbos.NewContext(context.WithoutCancel(ctx), cfg); err != nil {
		return nil, err
	}
	dbos.RegisterWorkflow(e.dbos, e.workflow, dbos.WithWorkflowName("run"))
	if err := dbos.Launch(e.dbos); err != nil {
		return nil, err
	}
	if queue {
		var opts []dbos.QueueOption
		if poll > 0 {
			opts = append(opts, dbos.WithQueueBasePollingInterval(poll))
		}
		if _, err := dbos.RegisterQueue(e.dbos, queueName, opts...); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// workflow is a run. Steps must be numbered the same way when it is replayed, so those of a graph that is no
// chain are all made at the beginning, in order, and each waits for the steps it depends on.
func (e *engine) workflow(ctx dbos.Context, id string) (string, error) {
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r == nil {
		return "", errors.New("the run is gone")
	}
	if chain(r) {
		last := ""
		for i := range r.Graph.Nodes {
			var err error
			if last, err = dbos.RunAsStep(ctx, func(context.Context) (string, error) { return string(r.Exec(i)), nil }, dbos.WithStepName("node")); err != nil {
				return "", err
			}
		}
		return last, nil
	}
	done := make([]chan struct{}, len(r.Graph.Nodes))
	outs := make([]<-chan dbos.StepOutcome[string], len(r.Graph.Nodes))
	for i := range done {
		done[i] = make(chan struct{})
	}
	for i, n := range r.Graph.Nodes {
		var err error
		outs[i], err = dbos.Go(ctx, func(ctx context.Context) (string, error) {
			for _, d := range n.Deps {
				select {
				case <-done[d]:
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return string(r.Exec(i)), nil
		}, dbos.WithStepName("node"))
		if err != nil {
			return "", err
		}
	}
	faults, last := make([]error, len(outs)), make([]string, len(outs))
	var wg sync.WaitGroup
	for i, out := range outs {
		wg.Go(func() {
			o := <-out // comes after the step's result was recorded
			last[i], faults[i] = o.Result, o.Err
			close(done[i])
		})
	}
	wg.Wait()
	return last[len(last)-1], errors.Join(faults...)
}

func chain(r *drive.Run) bool {
	for i, n := range r.Graph.Nodes {
		if i > 0 && (len(n.Deps) != 1 || n.Deps[0] != i-1) {
			return false
		}
	}
	return true
}

func (e *engine) Run(_ context.Context, r *drive.Run) error {
	id := "run-" + strconv.FormatInt(r.Number, 10)
	e.mu.Lock()
	e.runs[id] = r
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.runs, id)
		e.mu.Unlock()
	}()
	opts := []dbos.WorkflowOption{dbos.WithWorkflowID(id)}
	var get []dbos.GetResultOption
	if e.queue {
		q, err := dbos.RetrieveQueue(e.dbos, queueName)
		if err != nil {
			return err
		}
		opts = append(opts, dbos.WithQueue(q))
		get = append(get, dbos.WithHandlePollingInterval(5*time.Millisecond))
	}
	h, err := dbos.RunWorkflow(e.dbos, e.workflow, id, opts...)
	if err != nil {
		return err
	}
	_, err = h.GetResult(get...)
	return err
}

func (e *engine) Verify(ctx context.Context, runs, nodes int64) error {
	n, err := e.count(ctx)
	if err == nil && n != nodes {
		err = fmt.Errorf("%d step results for %d nodes of %d runs", n, nodes, runs)
	}
	return err
}

func (e *engine) Close() error {
	dbos.Shutdown(e.dbos, 2*time.Second)
	e.close()
	return nil
}
