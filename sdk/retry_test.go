package epigraph_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// busy is an executor that is full for the first calls, and says for how long.
type busy struct {
	executorv1.UnimplementedExecutorServiceServer
	mu    sync.Mutex
	full  int
	pause *durationpb.Duration
	ids   []string
}

func (b *busy) refuse(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids = append(b.ids, id)
	if len(b.ids) > b.full {
		return nil
	}
	st := status.New(codes.ResourceExhausted, "full")
	if b.pause != nil {
		st, _ = st.WithDetails(&errdetails.RetryInfo{RetryDelay: b.pause}) // RetryInfo is a valid detail
	}
	return st.Err()
}

func (b *busy) StartRun(_ context.Context, r *executorv1.StartRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{Id: "run_1"}, b.refuse(r.GetRequestId())
}

func (b *busy) CompleteAttempt(context.Context, *executorv1.CompleteAttemptRequest) (*executorv1.CompleteAttemptResponse, error) {
	return &executorv1.CompleteAttemptResponse{}, b.refuse("")
}

func TestFull(t *testing.T) {
	t.Parallel()
	serve := func(t *testing.T, b *busy) *epigraph.Client {
		t.Helper()
		lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s := grpc.NewServer()
		executorv1.RegisterExecutorServiceServer(s, b)
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(lis) }()
		t.Cleanup(func() { s.Stop(); <-done })
		c, err := epigraph.Dial(lis.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	soon := durationpb.New(time.Millisecond)
	t.Run("AStartIsSentAgainWithItsID", func(t *testing.T) {
		t.Parallel()
		b := &busy{full: 2, pause: soon}
		_, err := serve(t, b).Executor.StartRun(t.Context(), &executorv1.StartRunRequest{})
		require.NoError(t, err)
		require.Len(t, b.ids, 3)
		require.NotEmpty(t, b.ids[0])
		require.Equal(t, []string{b.ids[0], b.ids[0], b.ids[0]}, b.ids)
	})
	t.Run("NotForEver", func(t *testing.T) {
		t.Parallel()
		b := &busy{full: 100, pause: soon}
		_, err := serve(t, b).Executor.StartRun(t.Context(), &executorv1.StartRunRequest{})
		require.Error(t, err)
		require.Len(t, b.ids, 5)
	})
	for name, b := range map[string]*busy{"NotWhenItDoesNotSay": {full: 1}, "NotWhenItSaysMuchLater": {full: 1, pause: durationpb.New(time.Hour)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, b).Executor.StartRun(t.Context(), &executorv1.StartRunRequest{})
			require.Error(t, err)
			require.Len(t, b.ids, 1)
		})
	}
	t.Run("NotWhenTheCallEndsBefore", func(t *testing.T) {
		t.Parallel()
		b := &busy{full: 1, pause: durationpb.New(9 * time.Second)}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := serve(t, b).Executor.StartRun(ctx, &executorv1.StartRunRequest{})
		require.Error(t, err)
		require.NoError(t, ctx.Err(), "it is told at once")
	})
	t.Run("NotWhatMayNotBeRepeated", func(t *testing.T) {
		t.Parallel()
		b := &busy{full: 1, pause: soon}
		_, err := serve(t, b).Executor.CompleteAttempt(t.Context(), &executorv1.CompleteAttemptRequest{AttemptToken: "t"})
		require.Error(t, err)
		require.Len(t, b.ids, 1)
	})
}
