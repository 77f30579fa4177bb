// Command worker serves the actor of the loads from a process of its own: it takes visits over a stream from
// an executor. It must not know the harness beyond its protocol: it prints the address of the executor when
// it serves, and stops when its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/bench/load"
	"github.com/epigraph-run/epigraph/internal/host"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
)

func main() {
	addr := flag.String("addr", "", "where the executor serves")
	slots := flag.Int("slots", 20_000, "visits that are taken at once: sleepers take a place while they sleep")
	flag.Parse()
	if err := run(*addr, *slots); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// args are the named arguments of a node.
type args struct {
	Us int64 `json:"us,omitempty"`
}

func run(addr string, slots int) (err error) {
	ctx, stop := host.Signals(context.Background())
	defer stop()
	go func() { // the harness is gone when this ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	client, err := epigraph.Dial(addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	w := worker.New(client, worker.Options{ID: "bench", Slots: slots, Version: "1", DrainTimeout: time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	worker.Register(w, "bench", func(_ context.Context, in args) (json.RawMessage, error) {
		now := time.Now()
		if in.Us > 0 {
			load.Sleep(time.Duration(in.Us) * time.Microsecond)
		}
		return load.Result(now), nil
	}, worker.Effect(worker.Idempotent))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	ready, giveUp := context.WithTimeout(ctx, time.Minute)
	defer giveUp()
	if err := w.Ready(ready); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(drive.Answer{Ready: true, Addr: addr}); err != nil {
		return err
	}
	return <-ended
}
