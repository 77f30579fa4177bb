// Command host is the executor as a part of another program: the service with its journal and its gRPC server
// on a loopback address, and an actor of the program's own, in Go, that does nothing or sleeps. It must not
// know the harness beyond its protocol: it prints where it serves and stops when its standard input ends.
// SIGUSR1 gives unused memory back to the system, SIGUSR2 starts a CPU profile and, the next time, ends it.
// With -debug it serves profiles and what memory is in use over HTTP.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	netpprof "net/http/pprof"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

func main() {
	store := flag.String("store", "", "PostgreSQL URL, or the path of a SQLite file")
	id := flag.String("id", "bench", "name of this executor among those of its database")
	parallel := flag.Int("parallel", 20_000, "attempts that run at once: sleepers take a place while they sleep")
	profile := flag.String("cpuprofile", "", "prefix of the files of CPU profiles")
	model := flag.String("model", "", "URL of a model server for the actor llm")
	debug := flag.Bool("debug", false, "serve /debug/pprof/ and /memory on a loopback address")
	flag.Parse()
	if *debug {
		runtime.MemProfileRate = 16 << 10 // before anything is allocated that lives long
	}
	if err := run(*store, *id, *model, *parallel, *profile, *debug); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// actor is the node that the loads call.
func actor(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	now := time.Now()
	if us, ok := c.Named["us"]; ok {
		var n int64
		if err := json.Unmarshal(us, &n); err != nil {
			return workgraph.Outcome{}, err
		}
		load.Sleep(time.Duration(n) * time.Microsecond)
	}
	return workgraph.Outcome{Values: []json.RawMessage{load.Result(now)}}, nil
}

// where is the actor that says besides on which executor it was called.
func where(id string) workgraph.ActorFunc {
	return func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		raw, err := json.Marshal(drive.Called{At: time.Now().UnixNano(), Executor: id})
		return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
	}
}

func run(store, id, model string, parallel int, profile string, debugged bool) error {
	ctx, stop := host.Signals(context.Background())
	defer stop()
	go func() { // the harness is gone when this ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	go memory(ctx)
	go profiles(ctx, profile)

	cfg := executor.DefaultConfig()
	cfg.ID, cfg.Parallel = id, parallel
	if strings.HasPrefix(store, "postgres://") {
		cfg.Store, cfg.PostgresURL = "postgres", conf.NewSecret(store)
	} else {
		cfg.SQLitePath = store
	}
	if model != "" {
		cfg.Models.Change("default", func(p *llm.Profile) { p.BaseURL, p.APIKey, p.Model = model, conf.NewSecret("bench"), "fake-1" })
	}
	report := obs.DefaultConfig()
	report.ServiceName, report.LogLevel = "executor", "warn"
	tel, err := obs.Setup(ctx, report)
	if err != nil {
		return err
	}
	s, err := executor.Open(ctx, cfg, executor.Deps{Telemetry: tel, Actors: workgraph.Actors{"bench": workgraph.ActorFunc(actor), "where": where(id)}})
	if err != nil {
		return err
	}
	server, err := grpckit.NewServer(grpckit.Options{Telemetry: tel})
	if err != nil {
		return err
	}
	s.Register(server)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server.SetServing(true)
	answer := drive.Answer{Ready: true, Addr: lis.Addr().String()}
	if debugged {
		if answer.Debug, err = serveDebug(); err != nil {
			return err
		}
	}
	ready := func(ctx context.Context) error {
		if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	return host.Run(ctx, host.Flush(time.Second, tel.Shutdown), s, host.GRPC(server, lis, time.Second),
		host.Func(ready, func() error { return nil }))
}

// serveDebug serves until the process ends.
func serveDebug() (addr string, err error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", netpprof.Index)
	mux.HandleFunc("/debug/pprof/profile", netpprof.Profile)
	mux.HandleFunc("/memory", func(w http.ResponseWriter, _ *http.Request) {
		runtime.GC() // twice, since finalizers keep what they are about to free
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(w).Encode(drive.Memory{Heap: int64(m.HeapAlloc), Stacks: int64(m.StackInuse), Goroutines: runtime.NumGoroutine()})
	})
	go func() { _ = http.Serve(lis, mux) }()
	return lis.Addr().String(), nil
}

func memory(ctx context.Context) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	for {
		select {
		case <-c:
			debug.FreeOSMemory()
		case <-ctx.Done():
			return
		}
	}
}

func profiles(ctx context.Context, prefix string) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR2)
	var f *os.File
	for n := 1; ; {
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
		switch {
		case prefix == "":
		case f == nil:
			var err error
			if f, err = os.Create(fmt.Sprintf("%s.%03d.pprof", prefix, n)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			if err := pprof.StartCPUProfile(f); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			n++
		default:
			pprof.StopCPUProfile()
			if err := f.Close(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			f = nil
		}
	}
}
