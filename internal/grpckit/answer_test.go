package grpckit_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// GetRun answers with a run of 6 MiB.
func (h *holder) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: "run_1", StateReason: strings.Repeat("x", 6*mib)}, nil
}

// WatchRun sends 1 MiB again and again.
func (h *holder) WatchRun(_ *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
	for {
		if err := s.Send(&executorv1.RunEvent{RunId: strings.Repeat("x", mib)}); err != nil {
			return err
		}
	}
}

// unread makes a call and reads no answer.
func unread(t *testing.T, ctx context.Context, c *grpc.ClientConn, method string, m any) grpc.ClientStream {
	t.Helper()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	require.NoError(t, err)
	require.NoError(t, s.SendMsg(m))
	require.NoError(t, s.CloseSend())
	return s
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const getRun, watchRun = executorv1.ExecutorService_GetRun_FullMethodName, executorv1.ExecutorService_WatchRun_FullMethodName
	get, watch := &executorv1.GetRunRequest{RunId: "run_1"}, &executorv1.WatchRunRequest{RunId: "run_1"}
	refused := func(t *testing.T, c *grpc.ClientConn) {
		t.Helper()
		e := errs.From(c.Invoke(t.Context(), getRun, get, &executorv1.Run{}))
		require.Equal(t, inflight.ReasonBusy, e.Reason, "%v", e)
		require.NotEmpty(t, e.Meta[errs.MetaRetryAfter])
	}
	answered := func(t *testing.T, c *grpc.ClientConn) {
		t.Helper()
		require.NoError(t, c.Invoke(t.Context(), getRun, get, &executorv1.Run{}))
	}
	t.Run("Unary/NotReadCountsUntilItIsGivenUp", func(t *testing.T) {
		t.Parallel()
		g := guard(t, grpckit.Options{})
		a, b := g.conn(t, "key-a"), g.conn(t, "key-b")
		answered(t, a)
		testkit.Eventually(t, func() bool { return g.budget.Used() == 0 }, "an answer that is read is given back")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for n := range 2 {
			unread(t, ctx, a, getRun, get)
			testkit.Eventually(t, func() bool { return g.budget.Used() >= int64(n+1)*6*mib && g.budget.Used() < int64(n+1)*6*mib+mib }, "its bytes count, and no more")
		}
		refused(t, a)
		answered(t, b)
		require.Less(t, g.budget.Used(), int64(13*mib))
		cancel()
		testkit.Eventually(t, func() bool { return g.budget.Used() == 0 }, "what is given up is given back")
		answered(t, a)
	})
	t.Run("Unary/AConnectionThatEndsGivesAllBack", func(t *testing.T) {
		t.Parallel()
		g := guard(t, grpckit.Options{})
		a, err := grpckit.Dial("x", grpckit.DialOptions{Token: conf.NewSecret("key-a"), Buf: g.net})
		require.NoError(t, err)
		for range 2 {
			unread(t, t.Context(), a, getRun, get)
		}
		testkit.Eventually(t, func() bool { return g.budget.Used() > 12*mib }, "two answers count")
		require.NoError(t, a.Close())
		testkit.Eventually(t, func() bool { return g.budget.Used() == 0 }, "nothing counts any more")
	})
	t.Run("Stream/ManyThatNobodyReadsHoldNoMoreThanAShare", func(t *testing.T) {
		t.Parallel()
		g := guard(t, grpckit.Options{})
		a, b := g.conn(t, "key-a"), g.conn(t, "key-b")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 300 {
			unread(t, ctx, a, watchRun, watch)
		}
		testkit.Eventually(t, func() bool { return g.budget.Used() >= 23*mib }, "the share is used up")
		require.LessOrEqual(t, g.budget.Used(), int64(24*mib))
		answered(t, b)
		cancel()
		testkit.Eventually(t, func() bool { return g.budget.Used() == 0 }, "all is given back")
		answered(t, a)
	})
	t.Run("Timeout/WhoDoesNotReadLosesTheConnection", func(t *testing.T) {
		t.Parallel()
		for name, call := range map[string]func(*grpc.ClientConn) grpc.ClientStream{
			"unary":  func(c *grpc.ClientConn) grpc.ClientStream { return unread(t, t.Context(), c, getRun, get) },
			"stream": func(c *grpc.ClientConn) grpc.ClientStream { return unread(t, t.Context(), c, watchRun, watch) },
		} {
			g := guard(t, grpckit.Options{WriteTimeout: 50 * time.Millisecond})
			lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			go func() { _ = g.server.Serve(lis) }()
			conn, err := grpckit.Dial(lis.Addr().String(), grpckit.DialOptions{Token: conf.NewSecret("key-a")})
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			call(conn)
			testkit.Eventually(t, func() bool { return g.budget.Used() > 0 }, "%s: it counts", name)
			testkit.Eventually(t, func() bool { return g.budget.Used() == 0 }, "%s: nothing counts any more", name)
		}
	})
}
