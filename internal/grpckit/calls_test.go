package grpckit_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// mute is a service whose streams of workers stay open.
type mute struct {
	executorv1.UnimplementedExecutorServiceServer
	executorv1.UnimplementedWorkerServiceServer
	working *atomic.Int32 // streams of workers under way
}

func (mute) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{}, nil
}

func (m mute) Work(s grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	m.working.Add(1)
	<-s.Context().Done()
	return nil
}

// TestCalls has one namespace open more streams than a server takes of it, through the one connection that a
// gateway has, and holds that another's call passes.
func TestCalls(t *testing.T) {
	t.Parallel()
	const most = 1100 // more than the thousand calls that one connection could once have
	token := conf.NewSecret("svc")
	s, err := grpckit.NewServer(grpckit.Options{Auth: grpckit.AuthConfig{ServiceToken: token}, MaxCalls: most})
	require.NoError(t, err)
	service := mute{working: new(atomic.Int32)}
	executorv1.RegisterExecutorServiceServer(s, service)
	executorv1.RegisterWorkerServiceServer(s, service)
	net := buffered(t, s, "executor")
	conn, err := grpckit.Dial("executor", grpckit.DialOptions{Token: token, OnBehalf: true, Buf: net})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	as := func(ctx context.Context, ns string) context.Context {
		return grpckit.WithPrincipal(grpckit.WithNamespace(ctx, ns), access.Principal{Kind: access.Key, Name: ns, Scopes: []access.Scope{access.Run, access.Worker}})
	}
	get := func(ctx context.Context, ns string) error {
		_, err := executorv1.NewExecutorServiceClient(conn).GetRun(as(ctx, ns), &executorv1.GetRunRequest{RunId: "run_1"})
		return err
	}
	streams, end := context.WithCancel(t.Context())
	defer end()
	for range most {
		_, err := executorv1.NewWorkerServiceClient(conn).Work(as(streams, "a"))
		require.NoError(t, err)
	}
	// A call made while the last stream is on its way would take that stream's place.
	testkit.Eventually(t, func() bool { return service.working.Load() == most })
	require.Equal(t, grpckit.ReasonTooManyCalls, errs.ReasonOf(get(t.Context(), "a")))
	require.NoError(t, get(t.Context(), "b"), "a neighbor's call passes, on the same connection")
	end()
	testkit.Eventually(t, func() bool { return get(t.Context(), "a") == nil })
}
