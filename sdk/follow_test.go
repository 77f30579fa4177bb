package epigraph_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// replica is an executor that reports its own address.
type replica struct {
	executorv1.UnimplementedExecutorServiceServer
	addr string
	lis  *bufconn.Listener
	srv  *grpc.Server
}

func (r *replica) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.addr}, nil
}

func (r *replica) StartRun(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.addr}, nil
}

// replicas are those behind one name.
type replicas struct {
	mu    sync.Mutex
	named []string
	all   map[string]*replica
}

// serve starts a replica at an address, which no name has yet.
func (r *replicas) serve(t *testing.T, addr string) *replica {
	t.Helper()
	one := &replica{addr: addr, lis: bufconn.Listen(64 << 10), srv: grpc.NewServer()}
	executorv1.RegisterExecutorServiceServer(one.srv, one)
	done := make(chan struct{})
	go func() { defer close(done); _ = one.srv.Serve(one.lis) }()
	t.Cleanup(func() { one.srv.Stop(); <-done })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[addr] = one
	return one
}

func (r *replicas) name(addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.named = addrs
}

func (r *replicas) lookup(context.Context, string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.named), nil
}

func (r *replicas) dial(ctx context.Context, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	one := r.all[host]
	r.mu.Unlock()
	if one == nil {
		return nil, errors.New("nobody is there")
	}
	return one.lis.DialContext(ctx)
}

// TestReplaced replaces all servers behind a name, at addresses of their own, while a client calls.
func TestReplaced(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*grpc.Server){"Stopped": (*grpc.Server).GracefulStop, "Killed": (*grpc.Server).Stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Context(t, time.Minute)
			all := &replicas{all: map[string]*replica{}}
			one, two := all.serve(t, "10.0.0.1"), all.serve(t, "10.0.0.2")
			all.name("10.0.0.1", "10.0.0.2")
			c, err := epigraph.Dial("dns:///executors:7402", epigraph.WithLookup(all.lookup), epigraph.WithGRPC(grpc.WithContextDialer(all.dial)))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			// until calls until each of them has answered. No call fails meanwhile.
			until := func(addrs ...string) {
				seen := map[string]bool{}
				testkit.Eventually(t, func() bool {
					read, err := c.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: "run_1"})
					require.NoError(t, err)
					started, err := c.Executor.StartRun(ctx, &executorv1.StartRunRequest{})
					require.NoError(t, err)
					seen[read.GetId()], seen[started.GetId()] = true, true
					return !slices.ContainsFunc(addrs, func(a string) bool { return !seen[a] })
				}, "%v of %v answer", seen, addrs)
			}
			until("10.0.0.1", "10.0.0.2")
			all.serve(t, "10.0.0.3")
			all.serve(t, "10.0.0.4")
			all.name("10.0.0.3", "10.0.0.4")
			stop(one.srv)
			stop(two.srv)
			until("10.0.0.3", "10.0.0.4")
		})
	}
}
