// Command floor is what the databases themselves allow: the same loads by bare SQL, one commit per node (one)
// or with what waits of all runs grouped into one multi-row insert and commit (group); and the limits that
// need no load: bare commits, batched inserts of rows of the same size, and unary calls by gRPC. It must not
// know the harness beyond its protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
)

func main() {
	store := flag.String("store", "", "PostgreSQL URL, or the path of a SQLite file")
	mode := flag.String("mode", "", "one, group, limits or echo")
	flag.Parse()
	os.Exit(drive.Main(func(ctx context.Context) (drive.Engine, error) { return open(ctx, *store, *mode) }))
}

// row is one entry of a journal: the start of a run (node -1), or the end of a node.
type row struct {
	run  string
	seq  int64
	node int
	at   time.Time
	data []byte
}

// table is the one table of the floors. insert writes all rows in one commit; it may be called concurrently.
type table interface {
	insert(ctx context.Context, rows []row) error
	count(ctx context.Context) (int64, error)
	// most is how many commits may usefully be under way.
	most() int
	Close() error
}

func open(ctx context.Context, store, mode string) (drive.Engine, error) {
	if mode == "echo" {
		return openEcho()
	}
	var t table
	var err error
	if isPostgres(store) {
		t, err = openPostgres(ctx, store)
	} else {
		t, err = openSQLite(ctx, store)
	}
	if err != nil {
		return nil, err
	}
	switch mode {
	case "one":
		return &floor{table: t, write: func(ctx context.Context, r row) error { return t.insert(ctx, []row{r}) }}, nil
	case "group":
		g := &group{table: t, wake: make(chan struct{}, 1), over: make(chan struct{})}
		g.done.Go(func() { g.flush(ctx) })
		return &floor{table: t, write: g.write, stop: g.stop}, nil
	case "limits":
		return &limits{floor{table: t}}, nil
	}
	return nil, errors.Join(fmt.Errorf("unknown mode %q", mode), t.Close())
}

// floor runs graphs and writes one row for the start and one for each node.
type floor struct {
	table table
	write func(ctx context.Context, r row) error
	stop  func()
}

func (f *floor) Run(ctx context.Context, r *drive.Run) error {
	id := fmt.Sprintf("run_%022d", r.Number)
	if err := f.write(ctx, row{run: id, seq: 0, node: -1, at: time.Now(), data: []byte(r.Graph.Name)}); err != nil {
		return err
	}
	return drive.Walk(ctx, r, func(ctx context.Context, node int, result []byte) error {
		return f.write(ctx, row{run: id, seq: int64(node) + 1, node: node, at: time.Now(), data: result})
	})
}

func (f *floor) Verify(ctx context.Context, runs, nodes int64) error {
	n, err := f.table.count(ctx)
	if err == nil && n != runs+nodes {
		err = fmt.Errorf("%d rows for %d runs of %d nodes", n, runs, nodes)
	}
	return err
}

func (f *floor) Close() error {
	if f.stop != nil {
		f.stop()
	}
	return f.table.Close()
}

// most rows that go into one commit.
const mostRows = 1000

// group writes what waits of all runs in one commit, acknowledges it, and takes what came meanwhile.
type group struct {
	table table
	wake  chan struct{}
	over  chan struct{}
	done  sync.WaitGroup

	mu   sync.Mutex
	rows []row
	acks []chan error
}

func (g *group) write(ctx context.Context, r row) error {
	ack := make(chan error, 1)
	g.mu.Lock()
	g.rows, g.acks = append(g.rows, r), append(g.acks, ack)
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
	select {
	case err := <-ack:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (g *group) flush(ctx context.Context) {
	for {
		select {
		case <-g.wake:
		case <-g.over:
			return
		}
		for {
			g.mu.Lock()
			n := min(len(g.rows), mostRows)
			rows, acks := g.rows[:n:n], g.acks[:n:n]
			g.rows, g.acks = g.rows[n:], g.acks[n:]
			g.mu.Unlock()
			if n == 0 {
				break
			}
			err := g.table.insert(ctx, rows)
			for _, a := range acks {
				a <- err
			}
		}
	}
}

func (g *group) stop() {
	close(g.over)
	g.done.Wait()
}
