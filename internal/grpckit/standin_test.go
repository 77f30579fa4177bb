package grpckit_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// A server that refuses a call before it has read the request is heard, however much of it is still to be
// sent.
func TestStandIn(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpckit.StandIn(errs.DatabaseUnreachable("executor"), nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	conn, err := grpckit.Dial(lis.Addr().String(), grpckit.DialOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		s.Stop()
		require.NoError(t, <-served)
	})
	large := strings.Repeat("x", 1<<20)
	refused := func(t *testing.T, err error) {
		t.Helper()
		require.Equal(t, errs.ReasonDatabaseUnreachable, errs.ReasonOf(err), "%v", err)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
	}
	client := executorv1.NewExecutorServiceClient(conn)
	t.Run("Call/ThatIsSentAgain", func(t *testing.T) {
		t.Parallel()
		_, err := client.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: large})
		refused(t, err)
	})
	t.Run("Call/ThatIsSentOnce", func(t *testing.T) {
		t.Parallel()
		_, err := client.StartRun(t.Context(), &executorv1.StartRunRequest{BusinessKey: large})
		refused(t, err)
	})
	t.Run("Stream/WithOneRequest", func(t *testing.T) {
		t.Parallel()
		w, err := client.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: large})
		if err == nil {
			_, err = w.Recv()
		}
		refused(t, err)
	})
}
