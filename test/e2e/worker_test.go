package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

// npmLimit bounds the installation of the example worker's packages, which come from a registry.
const npmLimit = 5 * time.Minute

// typescriptWorker is the built example worker: its main file.
var typescriptWorker = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(workDir, "worker-typescript")
	if err := os.CopyFS(dir, os.DirFS("../../examples/worker-typescript")); err != nil {
		return "", err
	}
	run := func(args ...string) error {
		ctx, cancel := context.WithTimeout(context.Background(), npmLimit)
		defer cancel()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
		text, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, text)
		}
		return nil
	}
	if err := run("npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"); err != nil {
		return "", err
	}
	return filepath.Join(dir, "dist", "main.js"), run("npx", "--no-install", "tsc")
})

// startTypescript starts the example worker against these executors.
func startTypescript(t *testing.T, key string, addrs ...string) *process {
	t.Helper()
	main, err := typescriptWorker()
	require.NoError(t, err)
	protos, err := filepath.Abs("../../proto")
	require.NoError(t, err)
	cmd := exec.Command("node", main)
	cmd.Env = append(os.Environ(), "EPIGRAPH_ADDR=ipv4:"+strings.Join(addrs, ","), "EPIGRAPH_API_KEY="+key, "EPIGRAPH_PROTO="+protos)
	p := launch(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.output())
		}
		p.kill()
	})
	testkit.Within(t, timeout, 10*time.Millisecond, func() bool { return strings.Contains(p.output(), "connected to") }, "%v", p)
	return p
}

// TestWorkerInAnotherLanguage lets a worker that knows only gRPC finish its visits while executors are killed
// and others go on.
func TestWorkerInAnotherLanguage(t *testing.T) {
	s := start(t, options{store: "postgres", env: []string{
		"EPIGRAPH_AUTH_KEYS=[{name: a, namespace: " + namespaceA + ", secret: " + keyA + ", scopes: [run, worker, approve, admin]}]",
		"EPIGRAPH_EXECUTOR_LEASE=2s", "EPIGRAPH_EXECUTOR_SCAN_INTERVAL=200ms", "EPIGRAPH_EXECUTOR_DRAIN=500ms",
		"EPIGRAPH_EXECUTOR_WORKERS_HEARTBEAT_INTERVAL=500ms", "EPIGRAPH_EXECUTOR_WORKERS_HEARTBEAT_TIMEOUT=2s",
	}})
	second := func(addr string) *process {
		cmd := s.command("serve", "executor")
		cmd.Env = append(cmd.Env, "EPIGRAPH_EXECUTOR_ID=second", "EPIGRAPH_GRPC_EXECUTOR_ADDR="+addr, "EPIGRAPH_UPSTREAM_REGISTRY="+s.procs["registry"].addr)
		p := launch(t, cmd)
		p.await(t, "starting", func(line logLine) bool { p.addr = line.Addr; return line.Msg == "starting" })
		t.Cleanup(func() {
			if c := p.complaints(); c != "" && t.Failed() {
				t.Log(c)
			}
			p.kill()
		})
		return p
	}
	a, b := s.procs["executor"], second("127.0.0.1:0")
	w := startTypescript(t, keyA, a.addr, b.addr)

	dial := func(addr string) *epigraph.Client {
		c, err := epigraph.Dial(addr, epigraph.WithKey(keyA))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	onA, onB := dial(a.addr), dial(b.addr)
	graph := workgraph.NewBuilder("steps").Node("count", "ts/word-count", workgraph.Named("text", json.RawMessage(`"one two three"`)))
	ids := []string{"count"}
	for i := range 8 {
		id := fmt.Sprint("step", i)
		graph.Node(id, "ts/slow", workgraph.Named("millis", json.RawMessage(`150`)), func(n *workgraph.Node) {
			n.Retry = workgraph.Retry{MaxAttempts: 10, InitialBackoff: workgraph.Duration(50 * time.Millisecond)}
		})
		ids = append(ids, id)
	}
	g := graph.Chain(ids...).Graph()
	var runs []string
	for i := range 20 {
		c := onA
		if i%2 == 1 {
			c = onB
		}
		r, err := c.StartRun(t.Context(), g)
		require.NoError(t, err)
		runs = append(runs, r.ID)
	}
	done := func(c *epigraph.Client) (n int) {
		for _, id := range runs {
			m, err := c.Run(id).Get(t.Context())
			require.NoError(t, err)
			n += int(m.GetNodes().GetCompleted())
		}
		return n
	}
	past := func(c *epigraph.Client, n int) {
		t.Helper()
		testkit.Within(t, 2*timeout, 50*time.Millisecond, func() bool { return done(c) >= n }, "nobody goes on")
	}
	past(onB, 30)
	a.kill() // the one that the worker is connected to
	before := done(onB)
	past(onB, before+20) // the other one goes on, with its own runs and then with those of the first
	s.serve(t, "executor", a.addr)
	s.awaitReady(t)
	before = done(onA)
	past(onA, min(before+20, 150))
	b.kill()
	second(b.addr)
	for _, id := range runs {
		m, err := onA.Run(id).Wait(testContext(t))
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, m.GetState(), "%v", m.GetError())
		require.JSONEq(t, `"done"`, string(m.GetResult().GetJson()))
		require.EqualValues(t, len(ids), m.GetNodes().GetCompleted())
		vs, err := onA.Executor.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: id, PageSize: 100})
		require.NoError(t, err)
		require.Len(t, vs.GetVisits(), len(ids), "every visit ended once")
	}
	require.NoError(t, w.cmd.Process.Signal(os.Interrupt))
	require.Zero(t, w.exitCode(t), "%v", w)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
