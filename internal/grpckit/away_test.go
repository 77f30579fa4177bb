package grpckit_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// dry is a service whose database does not answer.
type dry struct {
	executorv1.UnimplementedExecutorServiceServer
	starts atomic.Int32
}

func (*dry) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return nil, errs.DatabaseUnreachable("executor")
}

func (*dry) CancelRun(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error) {
	return nil, errs.DatabaseUnreachable("executor")
}

// StartRun is refused before anything is done, and works when it is asked again.
func (d *dry) StartRun(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
	if d.starts.Add(1) == 1 {
		return nil, errs.DatabaseUnreachable("executor").Set(errs.MetaNothingDone, "true")
	}
	return &executorv1.Run{}, nil
}

// TestDatabaseUnreachable checks the error that a caller gets while a database does not answer, also after
// gRPC's own retries and through a gateway.
func TestDatabaseUnreachable(t *testing.T) {
	t.Parallel()
	token := conf.NewSecret("svc")
	s, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{ServiceToken: token}})
	require.NoError(t, err)
	executorv1.RegisterExecutorServiceServer(s, &dry{})
	net := buffered(t, s, "executor")
	conn, err := grpckit.Dial("executor", grpckit.DialOptions{Token: token, Buf: net})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	c := executorv1.NewExecutorServiceClient(conn)
	ctx := grpckit.WithNamespace(t.Context(), "a")

	t.Run("Read/ChangedNothing", func(t *testing.T) {
		t.Parallel()
		_, err := c.GetRun(ctx, &executorv1.GetRunRequest{RunId: "run_1"})
		x := errs.From(err)
		require.Equal(t, "DATABASE_UNREACHABLE", x.Reason)
		require.Equal(t, "the database of the executor does not answer", x.Message)
		require.Equal(t, "nothing was changed; try again when the database is back", x.HintText())
		again := errs.From(grpckit.FromStatus(grpckit.ToStatus(ctx, err).Err()))
		require.Equal(t, x.Message, again.Message, "the next hop says the same")
	})
	t.Run("Write/MayHaveChanged", func(t *testing.T) {
		t.Parallel()
		_, err := c.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: "run_1"})
		require.Equal(t, "the change may have been made: look when the database is back, or repeat the call with the same request_id", errs.From(err).HintText())
	})
	t.Run("Write/ThatDidNothingIsSentAgain", func(t *testing.T) {
		t.Parallel()
		_, err := c.StartRun(ctx, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a"}}}})
		require.NoError(t, err)
	})
}
