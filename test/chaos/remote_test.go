package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
)

// envWorker makes this binary a worker for the executors at these addresses.
const envWorker = "EPIGRAPH_CHAOS_WORKER"

// envWorkerLog is the file in which it writes down what it does.
const envWorkerLog = "EPIGRAPH_CHAOS_WORKER_LOG"

// The actors that remote workers serve.
const (
	remotePut  = "chaos/put"
	remotePost = "chaos/post"
)

// target is what both take.
type target struct {
	URL string `json:"url"`
}

// serveRemote does the work of remote actors for all executors until it is stopped.
func serveRemote(addrs string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file, err := os.OpenFile(os.Getenv(envWorkerLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	log := slog.New(slog.NewTextHandler(file, nil))
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errv []error
	)
	for addr := range strings.SplitSeq(addrs, ",") {
		client, err := epigraph.Dial(addr, epigraph.WithNamespace(namespace))
		if err != nil {
			return err
		}
		defer client.Close()
		w := worker.New(client, worker.Options{Slots: 16, Version: "1", Logger: log})
		worker.Register(w, remotePut, calls(log, http.MethodPut), worker.Effect(worker.Idempotent))
		worker.Register(w, remotePost, calls(log, http.MethodPost), worker.Effect(worker.Unsafe))
		wg.Go(func() {
			err := w.Run(ctx)
			mu.Lock()
			defer mu.Unlock()
			errv = append(errv, err)
		})
	}
	wg.Wait()
	return errors.Join(errv...)
}

// calls is a function that makes one call with the key of its visit, and uses some tokens.
func calls(log *slog.Logger, method string) func(context.Context, target) (worker.Result, error) {
	return func(ctx context.Context, in target) (none worker.Result, err error) {
		v := worker.Call(ctx)
		log.InfoContext(ctx, "begins", "run_id", v.RunID, "node", v.NodeID, "attempt", v.Attempt)
		defer func() {
			log.InfoContext(ctx, "ends", "run_id", v.RunID, "node", v.NodeID, "attempt", v.Attempt, "err", err, "cause", context.Cause(ctx))
		}()
		req, err := http.NewRequestWithContext(ctx, method, in.URL, http.NoBody)
		if err != nil {
			return none, worker.NotPerformed("REQUEST_INVALID", err)
		}
		req.Header.Set("Idempotency-Key", v.EffectKey)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return none, err // nobody knows whether it came
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return none, err
		}
		return worker.Values(v.EffectKey).Used(&executorv1.ModelUsage{Provider: "chaos", Model: "chaos", InputTokens: 6, OutputTokens: 4}), nil
	}
}

// remote is a slot for a worker process; processes follow each other there.
type remote struct {
	c    *cluster
	name string

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
	words *bytes.Buffer
}

// employ starts workers for the cluster's executors and waits until these know what they serve.
func (c *cluster) employ(n int) {
	c.t.Helper()
	for i := range n {
		r := &remote{c: c, name: fmt.Sprintf("worker-%d", i)}
		c.remotes = append(c.remotes, r)
		require.NoError(c.t, r.start())
		c.t.Cleanup(func() { r.kill() })
	}
	testkit.Within(c.t, timeout, 20*time.Millisecond, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		list, err := c.replicas[0].exec.ListActors(ctx, &executorv1.ListActorsRequest{})
		found := 0
		for _, a := range list.GetActors() {
			if a.GetName() == remotePut || a.GetName() == remotePost {
				found++
			}
		}
		return err == nil && found == 2
	}, "the workers' actors do not become known")
}

func (r *remote) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var addrs []string
	for _, e := range r.c.replicas {
		addrs = append(addrs, r.c.addr(e.name))
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	words := &bytes.Buffer{}
	cmd.Env, cmd.Stderr = append(os.Environ(), envWorker+"="+strings.Join(addrs, ","), envWorkerLog+"="+filepath.Join(r.c.dir, r.name+".log"), "GOMEMLIMIT=128MiB"), words
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	r.cmd, r.ended, r.words = cmd, ended, words
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// kill is kill -9, and what the process has said.
func (r *remote) kill() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.cmd.Process.Kill()
	<-r.ended
	return r.words.String()
}

// torture kills the worker again and again until stop is closed, and leaves a running one.
func (r *remote) torture(stop <-chan struct{}) {
	for {
		pause := time.NewTimer(time.Second + rand.N(3*time.Second))
		select {
		case <-stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		if words := r.kill(); words != "" {
			r.c.t.Errorf("%s: %s", r.name, words)
		}
		r.c.kills.Add(1)
		totals.kill("remote worker, kill -9")
		if err := r.start(); err != nil {
			r.c.t.Errorf("start %s: %v", r.name, err)
			return
		}
	}
}
