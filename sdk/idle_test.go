package epigraph_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

type anyRun struct {
	executorv1.UnimplementedExecutorServiceServer
}

func (anyRun) GetRun(_ context.Context, r *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.GetRunId()}, nil
}

// TestIdle leaves a client alone for longer than a gateway keeps an idle connection. A client that reconnects
// at once without a call would take the place of a client with one.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 16)
		s := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 2 * time.Minute}))
		executorv1.RegisterExecutorServiceServer(s, anyRun{})
		done := make(chan error, 1)
		go func() { done <- s.Serve(lis) }()
		c, err := epigraph.Dial("passthrough:///gateway", epigraph.WithGRPC(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })))
		require.NoError(t, err)
		for range 2 {
			_, err := c.Executor.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_1"})
			require.NoError(t, err)
			time.Sleep(3 * time.Minute) //nolint:forbidigo // the time of the bubble
			require.Equal(t, connectivity.Idle, c.Conn().GetState())
		}
		require.NoError(t, c.Close())
		s.Stop()
		require.NoError(t, <-done)
	})
}
