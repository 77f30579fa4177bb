package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/registry"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The environment of a child process.
const (
	envDir   = "EPIGRAPH_CHAOS_DIR"
	envStore = "EPIGRAPH_CHAOS_STORE"
	envURL   = "EPIGRAPH_CHAOS_URL"
	envLife  = "EPIGRAPH_CHAOS_LIFE"
	// envParallel is how many actors work at once, if not parallel.
	envParallel = "EPIGRAPH_CHAOS_PARALLEL"
	// envAgent is the address of the remote agent a2a/tester, if there is one.
	envAgent = "EPIGRAPH_CHAOS_AGENT"
)

// TestMain turns this binary into a process that is killed when the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv(envDir) != "" {
		if err := child(os.Getenv(envDir)); err != nil {
			fmt.Fprintln(os.Stderr, "child failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if addrs := os.Getenv(envWorker); addrs != "" {
		if err := serveRemote(addrs); err != nil {
			fmt.Fprintln(os.Stderr, "worker failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if url := os.Getenv(envNeighbor); url != "" {
		if err := beNeighbor(url, os.Getenv(envNeighborTime)); err != nil {
			fmt.Fprintln(os.Stderr, "tenant B failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		// Most of their time trials wait for leases to end.
		_ = f.Value.Set("4")
	}
	begin := time.Now()
	code := m.Run()
	if err := os.RemoveAll(workshop); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if testing.Verbose() {
		totals.print(os.Stdout, time.Since(begin))
	}
	os.Exit(code)
}

// child serves an executor and a registry on one port until it is killed, or asked to stop.
func child(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	tel := obs.Noop()
	tel.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

	life, err := strconv.Atoi(os.Getenv(envLife))
	if err != nil {
		return err
	}
	effects, err := os.OpenFile(filepath.Join(dir, "effects.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer effects.Close()

	rcfg := registry.DefaultConfig()
	rcfg.SQLitePath = filepath.Join(dir, "registry.db")
	ecfg := executor.DefaultConfig()
	ecfg.SQLitePath, ecfg.ID, ecfg.Parallel = filepath.Join(dir, "executor.db"), "chaos", parallel
	ecfg.Actors.HTTP.AllowPrivate = []string{"127.0.0.1/32"}
	if url := os.Getenv(envAgent); url != "" {
		if err := remoteAgent(&ecfg, url); err != nil {
			return err
		}
	}
	if n, err := strconv.Atoi(os.Getenv(envParallel)); err == nil && n > 0 {
		ecfg.Parallel = n
	}
	if os.Getenv(envStore) == "postgres" {
		rcfg.Store, rcfg.PostgresURL = "postgres", conf.NewSecret(os.Getenv(envURL))
		ecfg.Store, ecfg.PostgresURL = "postgres", conf.NewSecret(os.Getenv(envURL))
	}
	reg, err := registry.Open(ctx, rcfg, registry.Deps{Telemetry: tel})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	conn, err := grpckit.Dial(listener.Addr().String(), grpckit.DialOptions{})
	if err != nil {
		return err
	}
	exec, err := executor.Open(ctx, ecfg, executor.Deps{
		Registry: registryv1.NewRegistryServiceClient(conn), Telemetry: tel,
		Actors: workgraph.Actors{"work": &clerk{effects: effects, life: life}, "poison": workgraph.ActorFunc(poison)},
	})
	if err != nil {
		return err
	}
	srv, err := grpckit.NewServer(grpckit.Options{Telemetry: tel})
	if err != nil {
		return err
	}
	reg.Register(srv)
	exec.Register(srv)
	srv.SetServing(true)
	var g errgroup.Group
	g.Go(func() error { return srv.Serve(listener) })
	g.Go(func() error { return reg.Run(ctx) })
	g.Go(func() error {
		err := exec.Run(ctx)
		srv.Stop()
		return err
	})
	// The name appears at once and whole.
	ready := filepath.Join(dir, "addr")
	if err := os.WriteFile(ready+".tmp", []byte(fmt.Sprintf("%d %s", life, listener.Addr())), 0o600); err != nil {
		return err
	}
	if err := os.Rename(ready+".tmp", ready); err != nil {
		return err
	}
	return errors.Join(g.Wait(), exec.Close(), reg.Close(), conn.Close())
}

// parallel is how many actors work at once; few, so that the work lasts for all the kills.
const parallel = 8

// clerk is an actor that writes down, durably, that it was called and that it has done its work.
type clerk struct {
	effects *os.File
	life    int
}

// Info makes the actor repeatable: a repetition is recognized by its key.
func (*clerk) Info() workgraph.ActorInfo {
	return workgraph.ActorInfo{Effect: workgraph.Idempotent, Version: "1"}
}

func (w *clerk) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	if err := w.note("begin", c); err != nil {
		return workgraph.Outcome{}, err
	}
	select {
	case <-time.After(workTime(c.Node)):
	case <-ctx.Done():
		return workgraph.Outcome{}, ctx.Err()
	}
	var values []string
	for _, u := range c.Upstream {
		for _, v := range u.Values {
			values = append(values, string(v))
		}
	}
	if err := w.note("end", c); err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(result(c.Node, values))},
		Usage: []workgraph.Usage{{Provider: "chaos", Model: "chaos-model", InputTokens: tokens(c.Node), OutputTokens: 1}}}, nil
}

// note appends one line in one write and waits until it is on the disk.
func (w *clerk) note(what string, c *workgraph.Call) error {
	line := fmt.Sprintf("%s %s %s %d %d %d\n", what, c.RunID, c.Node, c.Visit, c.Attempt, w.life)
	if _, err := w.effects.WriteString(line); err != nil {
		return err
	}
	return w.effects.Sync()
}

// result is what a node gives for what its parents gave.
func result(node string, parents []string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node + "|" + strings.Join(parents, "|")))
	return fmt.Sprintf(`"%s-%016x"`, node, h.Sum64())
}

func workTime(node string) time.Duration {
	return time.Duration(5+2*(tokens(node)%10)) * time.Millisecond
}

func tokens(node string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(node))
	return int64(h.Sum32()%90) + 10
}
