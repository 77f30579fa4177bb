package grpckit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// replica is an executor of a test that counts what it answers.
type replica struct {
	executorv1.UnimplementedExecutorServiceServer
	server *grpckit.Server
	calls  atomic.Int64
	// full is the error of starts; 0 accepts them.
	full errs.Kind
}

func (r *replica) StartRun(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
	r.calls.Add(1)
	if r.full != 0 {
		return nil, errs.New(r.full, errs.ReasonMemoryFull, "full").RetryAfter(time.Hour)
	}
	return &executorv1.Run{}, nil
}

func (r *replica) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	r.calls.Add(1)
	return &executorv1.Run{}, nil
}

// CancelRun is no method that gRPC may send again.
func (r *replica) CancelRun(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error) {
	r.calls.Add(1)
	return &executorv1.Run{}, nil
}

// startReplica serves at an address of this machine.
func startReplica(t *testing.T, addr string) *replica {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	r := &replica{}
	r.server, err = grpckit.NewServer(grpckit.Options{})
	require.NoError(t, err)
	executorv1.RegisterExecutorServiceServer(r.server, r)
	done := make(chan struct{})
	go func() { defer close(done); _ = r.server.Serve(lis) }()
	t.Cleanup(func() { r.server.Stop(); <-done })
	return r
}

// names is a server of names whose answer a test changes.
type names struct {
	mu   sync.Mutex
	has  map[string][]string
	fail bool
}

func (n *names) set(host string, ips ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.has[host] = ips
}

func (n *names) away(is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fail = is
}

func (n *names) lookup(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail || len(n.has[host]) == 0 {
		return nil, errors.New("no such host")
	}
	return n.has[host], nil
}

// freePort is one that nobody has on any address of this machine.
func freePort(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, lis.Close())
	_, port, err := net.SplitHostPort(lis.Addr().String())
	require.NoError(t, err)
	return port
}

// TestRollout calls without a pause while the servers behind a name are replaced.
func TestRollout(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dial := func(t *testing.T, target string, n *names) executorv1.ExecutorServiceClient {
		conn, err := grpckit.Dial(target, grpckit.DialOptions{Lookup: n.lookup})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return executorv1.NewExecutorServiceClient(conn)
	}
	// load calls until the test ends and returns how many calls failed, and a text of one.
	load := func(t *testing.T, c executorv1.ExecutorServiceClient) (stop func() (int64, error)) {
		var failed atomic.Int64
		var last atomic.Pointer[error]
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					var err error
					if i%2 == 0 {
						_, err = c.GetRun(context.WithoutCancel(ctx), &executorv1.GetRunRequest{RunId: "run_1"})
					} else {
						_, err = c.CancelRun(context.WithoutCancel(ctx), &executorv1.CancelRunRequest{RunId: "run_1"})
					}
					if err != nil {
						failed.Add(1)
						last.Store(&err)
					}
				}
			})
		}
		var once sync.Once
		stop = func() (int64, error) {
			once.Do(func() { cancel(); wg.Wait() })
			if e := last.Load(); e != nil {
				return failed.Load(), *e
			}
			return failed.Load(), nil
		}
		t.Cleanup(func() { _, _ = stop() })
		return stop
	}
	t.Run("Name/TwoRestartsInARowRefuseNoCall", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		n := &names{has: map[string][]string{"executor": {"127.0.0.21"}}}
		old := startReplica(t, "127.0.0.21:"+port)
		stop := load(t, dial(t, "executor:"+port, n))
		testkit.Eventually(t, func() bool { return old.calls.Load() > 10 })
		for i := range 2 {
			ip := fmt.Sprintf("127.0.0.%d", 22+i)
			next := startReplica(t, ip+":"+port)
			begin := time.Now()
			n.set("executor", ip)
			old.server.GracefulStop()
			testkit.Eventually(t, func() bool { return next.calls.Load() > 0 })
			t.Logf("the new address was used after %v", time.Since(begin).Round(time.Millisecond))
			old = next
		}
		failed, err := stop()
		require.Zero(t, failed, "%v", err)
	})
	t.Run("Name/ANewReplicaIsFoundWithoutAFailure", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		n := &names{has: map[string][]string{"executor": {"127.0.0.31"}}}
		startReplica(t, "127.0.0.31:"+port)
		stop := load(t, dial(t, "dns:///executor:"+port, n))
		more := startReplica(t, "127.0.0.32:"+port)
		n.set("executor", "127.0.0.32", "127.0.0.31")
		testkit.Eventually(t, func() bool { return more.calls.Load() > 0 })
		n.away(true) // a failed lookup says nothing about servers
		before := more.calls.Load()
		testkit.Eventually(t, func() bool { return more.calls.Load() > before+100 })
		failed, err := stop()
		require.Zero(t, failed, "%v", err)
	})
	t.Run("List/OneThatIsAwayIsPassedOver", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		n := &names{has: map[string][]string{"b": {"127.0.0.42"}}}
		first, second := startReplica(t, "127.0.0.41:"+port), startReplica(t, "127.0.0.42:"+port)
		stop := load(t, dial(t, "127.0.0.41:"+port+", b:"+port, n))
		testkit.Eventually(t, func() bool { return first.calls.Load() > 10 && second.calls.Load() > 10 })
		first.server.GracefulStop()
		before := second.calls.Load()
		testkit.Eventually(t, func() bool { return second.calls.Load() > before+100 })
		failed, err := stop()
		require.Zero(t, failed, "%v", err)
		again := startReplica(t, "127.0.0.41:"+port)
		stop = load(t, dial(t, "127.0.0.41:"+port+",b:"+port, n))
		testkit.Eventually(t, func() bool { return again.calls.Load() > 10 })
		failed, err = stop()
		require.Zero(t, failed, "%v", err)
	})
	t.Run("Target/Nonsense", func(t *testing.T) {
		t.Parallel()
		for _, target := range []string{"a", "a:1,b", ",", "dns://8.8.8.8/a:1"} {
			_, err := grpckit.Dial(target, grpckit.DialOptions{})
			require.Equal(t, "TARGET_INVALID", errs.ReasonOf(err), "%s: %v", target, err)
		}
	})
}

func TestFull(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T, kinds ...errs.Kind) (calls func() int64, err error) {
		t.Helper()
		var addrs []string
		var rs []*replica
		for _, kind := range kinds {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			addrs = append(addrs, lis.Addr().String())
			require.NoError(t, lis.Close())
			r := startReplica(t, addrs[len(addrs)-1])
			r.full = kind
			rs = append(rs, r)
		}
		made := func() (n int64) {
			for _, r := range rs {
				n += r.calls.Load()
			}
			return n
		}
		conn, err := grpckit.Dial(strings.Join(addrs, ","), grpckit.DialOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		c := executorv1.NewExecutorServiceClient(conn)
		testkit.Eventually(t, func() bool { // all are connected when calls go round all
			for range 2 * len(rs) {
				_, _ = c.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "r"})
			}
			for _, r := range rs {
				if r.calls.Load() == 0 {
					return false
				}
			}
			return true
		})
		before := made()
		_, err = c.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a", Actor: "cel"}}}})
		return func() int64 { return made() - before }, err
	}
	t.Run("TheNextOneIsAsked", func(t *testing.T) {
		t.Parallel()
		for range 4 { // whichever is asked first
			_, err := start(t, errs.ResourceExhausted, 0)
			require.NoError(t, err)
		}
	})
	t.Run("OneAloneIsAskedTwiceAtMost", func(t *testing.T) {
		t.Parallel()
		calls, err := start(t, errs.ResourceExhausted)
		require.Equal(t, errs.ReasonMemoryFull, errs.ReasonOf(err))
		require.LessOrEqual(t, calls(), int64(2))
	})
	t.Run("ManyAreNotAllAsked", func(t *testing.T) {
		t.Parallel()
		calls, err := start(t, errs.ResourceExhausted, errs.ResourceExhausted, errs.ResourceExhausted, errs.ResourceExhausted, errs.ResourceExhausted)
		require.Equal(t, errs.ReasonMemoryFull, errs.ReasonOf(err))
		require.EqualValues(t, 3, calls())
	})
	t.Run("WhatMayHaveHappenedIsNotRepeated", func(t *testing.T) {
		t.Parallel()
		calls, err := start(t, errs.Unavailable, errs.Unavailable)
		require.Equal(t, errs.ReasonMemoryFull, errs.ReasonOf(err))
		require.EqualValues(t, 1, calls())
	})
}
