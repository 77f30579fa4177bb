// Command waiting measures the capacity of one database: runs that wait (for people, timers, signals and
// children) in rows, bytes, log and the executor's memory, and how soon they go on when they are woken; the
// memory of live runs; how many runs a second go through gRPC with one executor and with two; and what agents
// that loop at once take of memory, and their calls of time beyond that of the model. It must not
// know how the executor works: it starts executors as processes, calls their API, and reads the database from
// outside.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type options struct {
	dir                      string
	postgres, sqlite         int
	wake, atOnce, clients    int
	timers, live, throughput int
	agents, rounds           int
	delays                   []time.Duration
	profiles, only           string
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", ".", "directory of the bench module")
	flag.IntVar(&o.postgres, "postgres", 100_000, "runs that wait on PostgreSQL; 0 leaves it out")
	flag.IntVar(&o.sqlite, "sqlite", 20_000, "runs that wait on SQLite; 0 leaves it out")
	flag.IntVar(&o.wake, "wake", 1000, "how many of them to wake, at random")
	flag.IntVar(&o.atOnce, "at-once", 4, "how many are woken at once")
	flag.IntVar(&o.clients, "clients", 64, "starts in flight")
	flag.IntVar(&o.timers, "timers", 50, "timers that come due together, beside what waits")
	flag.IntVar(&o.live, "live", 5000, "runs that are live at once, to see what memory each takes; 0 leaves it out")
	flag.IntVar(&o.throughput, "runs", 5000, "runs of 10 nodes to push through one executor, and through two; 0 leaves it out")
	flag.IntVar(&o.agents, "agents", 1000, "agents that loop at once; 0 leaves them out")
	flag.IntVar(&o.rounds, "rounds", 6, "calls of a model by each agent, but for the last, while calls are timed")
	delays := flag.String("delays", "5s,2s", "how long the model takes, one measurement after the other")
	flag.StringVar(&o.profiles, "profiles", "", "directory for profiles of the executor: memory while all agents ask the model, and CPU while calls are timed")
	flag.StringVar(&o.only, "store", "", "postgres or sqlite; both when empty")
	flag.Parse()
	for _, text := range strings.Split(*delays, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			fmt.Fprintf(os.Stderr, "waiting: -delays: %q is no length of time\n", text)
			os.Exit(2)
		}
		o.delays = append(o.delays, d)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measureAll(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "waiting:", err)
		os.Exit(1)
	}
}

// measureAll does one part after the other, each with a fresh database and fresh processes.
func measureAll(ctx context.Context, o options, out io.Writer) (err error) {
	tmp, err := os.MkdirTemp("", "epigraph-waiting-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	binary := filepath.Join(tmp, "host")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./contestant/host")
	build.Dir, build.Env = o.dir, append(os.Environ(), "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the executor: %w\n%s", err, text)
	}
	var stores []store
	if o.only != "sqlite" && (o.postgres > 0 || o.throughput > 0 || o.live > 0 || o.agents > 0) {
		p, err := openPostgres(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.close()) }()
		stores = append(stores, p)
	}
	if o.only != "postgres" && (o.sqlite > 0 || o.agents > 0) {
		stores = append(stores, &sqliteStore{dir: tmp})
	}
	for _, s := range stores {
		n := o.postgres
		if s.name() == "SQLite" {
			n = o.sqlite
		}
		fmt.Fprintf(out, "## %s\n\n", s.name())
		if o.throughput > 0 {
			for _, executors := range s.executors() {
				if err := in(ctx, binary, s, executors, func(r *rig) error { return r.push(ctx, o, out) }); err != nil {
					return fmt.Errorf("throughput: %w", err)
				}
			}
		}
		if o.live > 0 {
			if err := in(ctx, binary, s, 1, func(r *rig) error { return r.live(ctx, o, out) }); err != nil {
				return fmt.Errorf("live runs: %w", err)
			}
		}
		if o.agents > 0 {
			m, err := openModel()
			if err != nil {
				return err
			}
			err = in(ctx, binary, s, 1, func(r *rig) error { return r.agents(ctx, o, m, out) }, "-model", m.url)
			if err = errors.Join(err, m.close()); err != nil {
				return fmt.Errorf("agents: %w", err)
			}
		}
		if n > 0 {
			if err := in(ctx, binary, s, 1, func(r *rig) error { return r.wait(ctx, o, n, out) }); err != nil {
				return fmt.Errorf("waiting runs: %w", err)
			}
		}
	}
	return nil
}
