package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/buildinfo"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// behind is an unreachable executor, as a gateway reports it.
type behind struct {
	executorv1.UnimplementedExecutorServiceServer
}

func (behind) ListRuns(ctx context.Context, _ *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error) {
	return nil, grpckit.ToStatus(ctx, grpckit.ServiceAway("executor")).Err()
}

func TestMisaddressed(t *testing.T) {
	t.Parallel()
	serving := func(t *testing.T, register func(*grpc.Server)) string {
		t.Helper()
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s := grpc.NewServer()
		register(s)
		go func() { _ = s.Serve(lis) }()
		t.Cleanup(s.Stop)
		return lis.Addr().String()
	}
	web := func(t *testing.T, h http.Handler) string {
		t.Helper()
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = &http.Protocols{}
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	listRuns := func(t *testing.T, addr string) (int, string) {
		t.Helper()
		var out, errs bytes.Buffer
		code := Main(t.Context(), buildinfo.Info{Version: "test"}, []string{"--addr", addr, "runs", "list"}, IO{In: strings.NewReader(""), Out: &out, Err: &errs})
		return code, errs.String()
	}
	t.Run("Service/Another", func(t *testing.T) {
		t.Parallel()
		addr := serving(t, func(s *grpc.Server) {
			plannerv1.RegisterPlannerServiceServer(s, plannerv1.UnimplementedPlannerServiceServer{})
		})
		code, said := listRuns(t, addr)
		require.Equal(t, exitUsage, code)
		require.Contains(t, said, addr+" is the address of the planner, and this command asks the executor [ADDRESS_INVALID]")
		require.Contains(t, said, "EPIGRAPH_EXECUTOR_ADDR")
	})
	t.Run("Service/Unknown", func(t *testing.T) {
		t.Parallel()
		code, said := listRuns(t, serving(t, func(*grpc.Server) {}))
		require.Equal(t, exitFailed, code)
		require.Contains(t, said, "RPC_UNIMPLEMENTED")
	})
	t.Run("Gateway/AnswersAndTheServiceDoesNot", func(t *testing.T) {
		t.Parallel()
		addr := serving(t, func(s *grpc.Server) { executorv1.RegisterExecutorServiceServer(s, behind{}) })
		code, said := listRuns(t, addr)
		require.Equal(t, exitNoServer, code)
		require.Contains(t, said, "the gateway at "+addr+" answers, and the executor behind it does not [SERVICE_UNAVAILABLE]")
		require.Contains(t, said, "/readyz")
	})
	t.Run("Web/AdminPort", func(t *testing.T) {
		t.Parallel()
		mux := http.NewServeMux()
		for _, path := range []string{"/livez", "/readyz"} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		}
		addr := web(t, mux)
		code, said := listRuns(t, addr)
		require.Equal(t, exitNoServer, code)
		require.Contains(t, said, addr+" is the admin port of a process of the suite")
		require.Contains(t, said, DefaultAddr)
	})
	t.Run("Web/Other", func(t *testing.T) {
		t.Parallel()
		code, said := listRuns(t, web(t, http.NotFoundHandler()))
		require.Equal(t, exitNoServer, code)
		require.Contains(t, said, "a web server answers at")
	})
}

// An empty variable is one that is not set.
func TestEmptyVariables(t *testing.T) {
	for _, name := range append(ClientEnv, "EPIGRAPH_CONFIG") {
		t.Setenv(name, "")
	}
	var cmds commands
	parser, err := kong.New(&cmds, kong.Vars{"default_addr": DefaultAddr}, kong.ExplicitGroups([]kong.Group{
		{Key: "work"}, {Key: "accounting"}, {Key: "server"}, {Key: "other"}, {Key: "connection"}}))
	require.NoError(t, err)
	ignoreEmpty(parser.Model)
	_, err = parser.Parse([]string{"runs", "list"})
	require.NoError(t, err)
	require.Equal(t, DefaultAddr, cmds.Client.Addr)
	require.False(t, cmds.Client.TLS)
}
