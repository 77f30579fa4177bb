package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// cellServer is the executor and the registry of a cell.
type cellServer struct {
	*grpckit.Server
	executor *executor
	registry *registry
}

// startCells starts a gateway before two cells, east and west, each with an executor and runs of its own.
func startCells(t *testing.T, change func(*gateway.Config)) (*rig, map[string]*cellServer) {
	t.Helper()
	servers := map[string]*cellServer{}
	lines := &grpckit.BufNet{}
	conns := map[string]gateway.CellConns{}
	for _, name := range []string{"east", "west"} {
		s, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{ServiceToken: conf.NewSecret(serviceToken)}})
		require.NoError(t, err)
		c := &cellServer{Server: s, executor: &executor{}, registry: &registry{}}
		c.executor.get = func(ctx context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: r.GetRunId(), Namespace: grpckit.Namespace(ctx), StateReason: name}, nil
		}
		c.executor.start = func(ctx context.Context, _ *executorv1.StartRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: "run_1", Namespace: grpckit.Namespace(ctx), StateReason: name}, nil
		}
		c.executor.watch = func(r *executorv1.WatchRunRequest, out grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			return out.Send(&executorv1.RunEvent{RunId: r.GetRunId(), Seq: 1, Event: &executorv1.RunEvent_RunEnded{RunEnded: &executorv1.RunEnded{Reason: name}}})
		}
		c.registry.createEpic = func(context.Context, *registryv1.CreateEpicRequest) (*registryv1.Epic, error) {
			return &registryv1.Epic{Title: name}, nil
		}
		executorv1.RegisterExecutorServiceServer(s, c.executor)
		registryv1.RegisterRegistryServiceServer(s, c.registry)
		s.SetServing(true)
		lis, err := lines.Listen(name)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(lis)
		}()
		t.Cleanup(func() { s.Stop(); <-done })
		dial := func() *grpc.ClientConn {
			conn, err := grpckit.Dial(name, grpckit.DialOptions{Token: conf.NewSecret(serviceToken), Buf: lines, Telemetry: obs.Noop()})
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		conns[name] = gateway.CellConns{Executor: dial(), Registry: dial()}
		servers[name] = c
	}
	r := start(t, options{
		config: func(c *gateway.Config) {
			c.Cells = []gateway.Cell{{Name: "east", Executor: "e:1", Registry: "e:2"}, {Name: "west", Executor: "w:1", Registry: "w:2"}}
			c.Placements = []gateway.PlacementRule{{Namespaces: "east-shut", Cell: "east", Closed: true}, {Namespaces: "east-*", Cell: "east"}, {Namespaces: "west-*", Cell: "west"}}
			if change != nil {
				change(c)
			}
		},
		deps: func(d *gateway.Deps) { d.Executor, d.Registry, d.Cells = nil, nil, conns },
	})
	return r, servers
}

// ask makes a call for a namespace; empty means none in particular.
func ask(r *rig, method, path, body, namespace string) (int, string) {
	got := r.call(r.t, method, path, body, grpckit.HeaderNamespace, namespace)
	return got.status, got.body
}

func TestCells(t *testing.T) {
	t.Parallel()

	t.Run("Calls/GoWhereTheNamespaceLives", func(t *testing.T) {
		t.Parallel()
		r, _ := startCells(t, nil)
		for _, cell := range []string{"east", "west"} {
			ns := cell + "-1"
			status, body := ask(r, http.MethodGet, "/v1/runs/run_1", "", ns)
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"stateReason":"`+cell+`"`)
			status, body = ask(r, http.MethodPost, "/v1/epics", `{"title":"x"}`, ns)
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"title":"`+cell+`"`)
			status, body = ask(r, http.MethodGet, "/v1/runs/run_1/events", "", ns)
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"reason":"`+cell+`"`)
		}
	})

	t.Run("Namespace/PlacedNowhereIsRefused", func(t *testing.T) {
		t.Parallel()
		r, _ := startCells(t, nil)
		status, body := ask(r, http.MethodGet, "/v1/runs/run_1", "", "north-1")
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, body, "NAMESPACE_NOT_PLACED")
		require.Contains(t, body, "north-1")
	})

	t.Run("Namespace/LivesInTheDefaultCell", func(t *testing.T) {
		t.Parallel()
		r, _ := startCells(t, func(c *gateway.Config) { c.DefaultCell = "west" })
		_, body := ask(r, http.MethodGet, "/v1/runs/run_1", "", "north-1")
		require.Contains(t, body, `"stateReason":"west"`)
	})

	t.Run("Namespace/BeingMovedIsReadOnly", func(t *testing.T) {
		t.Parallel()
		r, _ := startCells(t, nil)
		status, body := ask(r, http.MethodGet, "/v1/runs/run_1", "", "east-shut")
		require.Equal(t, http.StatusOK, status, body)
		status, body = ask(r, http.MethodPost, "/v1/runs", `{"graph":{"nodes":[{"id":"a","actor":"cel"}]}}`, "east-shut")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, "NAMESPACE_MOVING")
	})

	t.Run("Cell/ThatIsAwayIsNamedAndHarmsNoOther", func(t *testing.T) {
		t.Parallel()
		r, servers := startCells(t, nil)
		servers["west"].Stop()
		for range 20 { // more than the breaker lets fail
			status, body := ask(r, http.MethodPost, "/v1/runs", `{"graph":{"nodes":[{"id":"a","actor":"cel"}]}}`, "west-1")
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, body, "CELL_UNAVAILABLE")
			require.Contains(t, body, `"cell":"west"`)
			status, body = ask(r, http.MethodGet, "/v1/runs/run_1/events", "", "west-1")
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, body, "CELL_UNAVAILABLE")
			status, body = ask(r, http.MethodGet, "/v1/runs/run_1", "", "east-1")
			require.Equal(t, http.StatusOK, status, body)
		}
		status, body := ask(r, http.MethodGet, "/readyz", "", "")
		require.Equal(t, http.StatusOK, status, "the gateway serves the other cell: %s", body)
		require.Contains(t, body, `"east":"SERVING"`)
		require.Contains(t, body, `"west":"AWAY"`)
		servers["east"].Stop()
		testkit.Eventually(t, func() bool {
			status, body = ask(r, http.MethodGet, "/readyz", "", "")
			return strings.Contains(body, `"east":"AWAY"`)
		})
		require.Equal(t, http.StatusOK, status, "its readiness is its own")
		require.Contains(t, body, "west/executor")
	})

	t.Run("Cell/ThatHangsFillsUpAlone", func(t *testing.T) {
		t.Parallel()
		r, servers := startCells(t, func(c *gateway.Config) { c.CellInFlight = 4 })
		free := make(chan struct{})
		arrived := make(chan struct{}, 4)
		servers["west"].executor.start = func(ctx context.Context, _ *executorv1.StartRunRequest) (*executorv1.Run, error) {
			arrived <- struct{}{}
			select {
			case <-free:
			case <-ctx.Done():
			}
			return &executorv1.Run{}, nil
		}
		const body = `{"graph":{"nodes":[{"id":"a","actor":"cel"}]}}`
		answers := make(chan int, 4)
		fill := func(key string) {
			for range 2 {
				go func() {
					status, _ := ask(r, http.MethodPost, "/v1/runs", body, key)
					answers <- status
				}()
				<-arrived
			}
			status, text := ask(r, http.MethodPost, "/v1/runs", body, key)
			require.Equal(t, http.StatusTooManyRequests, status, "half is for one namespace")
			require.Contains(t, text, "CELL_BUSY")
		}
		fill("west-1")
		fill("west-2")
		status, text := ask(r, http.MethodPost, "/v1/runs", body, "east-1")
		require.Equal(t, http.StatusOK, status, text)
		close(free)
		for range 4 {
			require.Equal(t, http.StatusOK, <-answers)
		}
	})

	t.Run("Cell/ThatTimesOutIsLeftAloneForAWhile", func(t *testing.T) {
		t.Parallel()
		r, servers := startCells(t, func(c *gateway.Config) { c.RequestTimeout = 50 * time.Millisecond })
		servers["west"].executor.start = func(ctx context.Context, _ *executorv1.StartRunRequest) (*executorv1.Run, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		const body = `{"graph":{"nodes":[{"id":"a","actor":"cel"}]}}`
		testkit.Eventually(t, func() bool { // at first each waits for its timeout
			_, text := ask(r, http.MethodPost, "/v1/runs", body, "west-1")
			return strings.Contains(text, "CELL_UNAVAILABLE")
		})
		testkit.Eventually(t, func() bool { // a busy machine may not answer so soon
			status, _ := ask(r, http.MethodGet, "/v1/runs/run_1", "", "east-1")
			return status == http.StatusOK
		})
		testkit.Eventually(t, func() bool { // one is let through to see whether it is back
			status, _ := ask(r, http.MethodGet, "/v1/runs/run_1", "", "west-1")
			return status == http.StatusOK
		})
	})
}

func TestCellConfig(t *testing.T) {
	t.Parallel()
	two := []gateway.Cell{{Name: "a", Executor: "a:1", Registry: "a:2"}, {Name: "b", Executor: "b:1", Registry: "b:2"}}
	for _, tc := range []struct {
		name, fault string
		change      func(*gateway.Config)
	}{
		{"Name/NotValid", "is not valid", func(c *gateway.Config) { c.Cells = []gateway.Cell{{Name: "A b", Executor: "x", Registry: "y"}} }},
		{"Name/Twice", "another cell", func(c *gateway.Config) { c.Cells = []gateway.Cell{two[0], {Name: "a", Executor: "x", Registry: "y"}} }},
		{"Address/Missing", "registry must be", func(c *gateway.Config) { c.Cells = []gateway.Cell{{Name: "a", Executor: "x"}} }},
		{"Address/OfAnother", "is that of cell", func(c *gateway.Config) {
			c.Cells = []gateway.Cell{two[0], {Name: "b", Executor: "a:1", Registry: "b:2"}}
		}},
		{"Placement/UnknownCell", `no cell "z"`, func(c *gateway.Config) {
			c.Cells, c.Placements = two, []gateway.PlacementRule{{Namespaces: "x", Cell: "z"}}
		}},
		{"Placement/NoPattern", "must be a namespace or a pattern", func(c *gateway.Config) {
			c.Cells, c.Placements = two, []gateway.PlacementRule{{Namespaces: "x[", Cell: "a"}}
		}},
		{"Placement/WithoutCells", "need cells", func(c *gateway.Config) { c.DefaultCell = "a" }},
		{"Default/UnknownCell", `no cell "z"`, func(c *gateway.Config) { c.Cells, c.DefaultCell = two, "z" }},
		{"Key/PlacedNowhere", "placed in no cell", func(c *gateway.Config) {
			c.Cells, c.Keys = two, []grpckit.APIKey{{Name: "k", Namespace: "n", Secret: conf.NewSecret("s")}}
		}},
		{"InFlight/Zero", "cell_in_flight", func(c *gateway.Config) { c.CellInFlight = 0 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := gateway.DefaultConfig()
			tc.change(&c)
			require.ErrorContains(t, c.Validate(), tc.fault)
		})
	}
}
