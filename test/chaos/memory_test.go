package chaos_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// TestMemory starts many more large runs than an executor with a limit of 256 MiB can hold. It stays near its
// limit, refuses starts rather than being killed, completes all accepted runs, and does not delay another
// namespace's runs.
func TestMemory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{store: "sqlite", replicas: 1})
	x := c.replicas[0]
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	other, err := grpckit.Dial(c.addr(x.name), grpckit.DialOptions{Namespace: "bystander"})
	require.NoError(t, err)
	defer other.Close()
	bystander := executorv1.NewExecutorServiceClient(other)

	var peak atomic.Int64
	watched, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			peak.Store(max(peak.Load(), anonymous(x.cmd.Process.Pid)))
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	var mu sync.Mutex
	var started []string
	refused := 0
	var g errgroup.Group
	g.SetLimit(8)
	for i := range 60 {
		g.Go(func() error {
			req := largeRun(t, i)
			for {
				r, err := x.exec.StartRun(ctx, req)
				switch e := errs.From(grpckit.FromStatus(err)); {
				case err == nil:
					mu.Lock()
					started = append(started, r.GetId())
					mu.Unlock()
					return nil
				case errs.Is(e, errs.ResourceExhausted) && e.Meta[errs.MetaRetryAfter] != "":
					mu.Lock()
					refused++
					mu.Unlock()
					still(200 * time.Millisecond)
				default:
					return fmt.Errorf("start %d: %w", i, err)
				}
			}
		})
	}
	small := &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "n", Actor: "template", Named: map[string]*graphv1.Payload{"text": {Json: []byte(`"hi"`)}}}}}}
	for range 20 {
		r, err := bystander.StartRun(ctx, small)
		require.NoError(t, err, "another namespace is not refused")
		completes(ctx, t, bystander, r.GetId())
	}
	require.NoError(t, g.Wait())
	for _, id := range started {
		completes(ctx, t, x.exec, id)
	}
	close(stop)
	<-watched
	t.Logf("%d runs, %d refusals, at most %d MiB of memory", len(started), refused, peak.Load()>>20)
	require.Len(t, started, 60)
	require.Positive(t, refused, "it was never full")
	require.Equal(t, 1, x.generation)
	if runtime.GOOS == "linux" {
		require.Less(t, peak.Load(), int64(400<<20))
	}
}

// largeRun is a run with 2 MiB in its graph or in its input, which some nodes hand on.
func largeRun(t *testing.T, i int) *executorv1.StartRunRequest {
	t.Helper()
	raw := make([]byte, 1<<20)
	_, err := rand.Read(raw)
	require.NoError(t, err)
	big := []byte(`"` + hex.EncodeToString(raw) + `"`)
	g := &graphv1.Graph{Nodes: []*graphv1.Node{
		{Id: "wait", Actor: "sleep", Named: map[string]*graphv1.Payload{"seconds": {Json: []byte("1")}}},
		{Id: "a", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": {Json: []byte(`"size(named.big)"`)}}},
		{Id: "b", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": {Json: []byte(`"named.big"`)}}},
	}, Edges: []*graphv1.Edge{{From: "wait", To: "a"}, {From: "wait", To: "b"}}}
	req := &executorv1.StartRunRequest{Graph: g, RequestId: fmt.Sprintf("large-%d", i)}
	if i%2 == 0 {
		req.Named = map[string]*graphv1.Payload{"big": {Json: big}}
	} else {
		for _, n := range g.Nodes[1:] {
			n.Named["big"] = &graphv1.Payload{Json: big}
		}
	}
	return req
}

// completes waits until a run has completed.
func completes(ctx context.Context, t *testing.T, x executorv1.ExecutorServiceClient, id string) {
	t.Helper()
	testkit.Within(t, timeout, 50*time.Millisecond, func() bool {
		r, err := x.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
		require.NoError(t, err)
		switch r.GetState() {
		case executorv1.RunState_RUN_STATE_COMPLETED:
			return true
		case executorv1.RunState_RUN_STATE_FAILED, executorv1.RunState_RUN_STATE_CANCELED, executorv1.RunState_RUN_STATE_QUARANTINED:
			t.Fatalf("run %s: %s, %s", id, r.GetState(), r.GetError())
		}
		return false
	})
}

// anonymous is the memory of a process besides files, 0 if it is unknown.
func anonymous(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := bytes.Cut(b, []byte("RssAnon:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		n, _ := strconv.ParseInt(string(f[0]), 10, 64)
		return n << 10
	}
	return 0
}
