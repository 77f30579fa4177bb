package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// TestAnswers asks for answers of 12 MiB, as a caller would who reads none of them.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const size = 12 * mib
	open := func(t *testing.T, timeout time.Duration) (*rig, *inflight.Budget) {
		t.Helper()
		budget := inflight.New(128 * mib)
		r := start(t, options{
			config: func(c *gateway.Config) {
				c.Keys = []grpckit.APIKey{{Name: "ada", Namespace: "a", Secret: conf.NewSecret("key-a")}, {Name: "bob", Namespace: "b", Secret: conf.NewSecret("key-b")}}
				c.WriteTimeout = timeout
			},
			deps: func(d *gateway.Deps) { d.Budget = budget },
		})
		r.executor.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: "run_1", ThreadId: "thr_1", State: executorv1.RunState_RUN_STATE_PAUSED, StateReason: strings.Repeat("x", size)}, nil
		}
		r.executor.watch = func(_ *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			for {
				if err := s.Send(&executorv1.RunEvent{RunId: strings.Repeat("x", 4*mib)}); err != nil {
					return err
				}
			}
		}
		return r, budget
	}
	get := func(r *rig, key string) reply {
		return r.call(t, "GET", "/v1/runs/run_1", "", "Authorization", "Bearer "+key)
	}
	unreadHTTP := func(t *testing.T, r *rig, method, path, body string) {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-a\r\nContent-Length: %d\r\n\r\n%s", method, path, len(body), body)
		require.NoError(t, err)
	}
	rest := func(t *testing.T, r *rig) {
		t.Helper()
		unreadHTTP(t, r, http.MethodGet, "/v1/runs/run_1", "")
	}
	unread := func(method string, m any) func(*testing.T, *rig) {
		return func(t *testing.T, r *rig) {
			t.Helper()
			conn, err := grpckit.Dial(strings.TrimPrefix(r.url, "http://"), grpckit.DialOptions{Token: conf.NewSecret("key-a")})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, method)
			require.NoError(t, err)
			require.NoError(t, s.SendMsg(m))
			require.NoError(t, s.CloseSend())
		}
	}
	for name, ask := range map[string]func(*testing.T, *rig){
		"REST": rest,
		"A2A": func(t *testing.T, r *rig) {
			t.Helper()
			unreadHTTP(t, r, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"run_1","historyLength":0}}`)
		},
		"GRPCUnary":  unread(executorv1.ExecutorService_GetRun_FullMethodName, &executorv1.GetRunRequest{RunId: "run_1"}),
		"GRPCStream": unread(executorv1.ExecutorService_WatchRun_FullMethodName, &executorv1.WatchRunRequest{RunId: "run_1"}),
	} {
		t.Run(name+"/NotReadHoldNoMoreThanAShare", func(t *testing.T) {
			t.Parallel()
			r, budget := open(t, time.Hour)
			for range 40 {
				ask(t, r)
			}
			testkit.Eventually(t, func() bool { return budget.Used() >= 20*mib }, "what nobody reads counts")
			require.LessOrEqual(t, budget.Used(), int64(48*mib))
			require.Equal(t, http.StatusOK, get(r, "key-b").status, "others do not notice")
		})
		t.Run(name+"/NotReadIsGivenUp", func(t *testing.T) {
			t.Parallel()
			r, budget := open(t, 50*time.Millisecond)
			ask(t, r)
			testkit.Eventually(t, func() bool { return budget.Used() > 0 }, "it counts")
			testkit.Eventually(t, func() bool { return budget.Used() == 0 }, "it is given up")
		})
	}
	t.Run("REST/TheLogIsNotToldLoudly", func(t *testing.T) {
		t.Parallel()
		r, _ := open(t, 50*time.Millisecond)
		rest(t, r)
		testkit.Eventually(t, func() bool {
			return strings.Contains(r.logs.String(), `"level":"DEBUG","msg":"the answer was not taken"`)
		}, "it is told to those who debug")
	})
	t.Run("Read/IsGivenBack", func(t *testing.T) {
		t.Parallel()
		r, budget := open(t, time.Hour)
		for range 8 {
			res := get(r, "key-a")
			require.Equal(t, http.StatusOK, res.status)
			require.Greater(t, len(res.body), size)
		}
		testkit.Eventually(t, func() bool { return budget.Used() == 0 }, "all is given back")
	})
}
