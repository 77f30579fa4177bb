package grpckit

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type nothing struct {
	executorv1.UnimplementedExecutorServiceServer
}

func (nothing) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{}, nil
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	key := conf.NewSecret("svc")
	start := func(t *testing.T, bound int) (*Server, string) {
		t.Helper()
		s, err := NewServer(Options{Auth: AuthConfig{ServiceToken: key}})
		require.NoError(t, err)
		s.chain.strangers.max = bound
		executorv1.RegisterExecutorServiceServer(s, nothing{})
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(lis)
		}()
		t.Cleanup(func() { s.Stop(); <-done })
		return s, lis.Addr().String()
	}
	dial := func(t *testing.T, addr string, token conf.Secret) *grpc.ClientConn {
		t.Helper()
		c, err := Dial(addr, DialOptions{Token: token})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	count := func(s *Server) int {
		s.chain.strangers.mu.Lock()
		defer s.chain.strangers.mu.Unlock()
		return s.chain.strangers.order.Len()
	}
	ask := &executorv1.GetRunRequest{RunId: "run_1"}
	t.Run("Connections/TheOldestIsClosedAndWhoIsKnownStays", func(t *testing.T) {
		t.Parallel()
		s, addr := start(t, 4)
		known := dial(t, addr, key)
		client := executorv1.NewExecutorServiceClient(known)
		_, err := client.GetRun(t.Context(), ask)
		require.NoError(t, err)
		require.Zero(t, count(s))
		state := known.GetState()
		var conns []net.Conn
		for range 12 {
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer c.Close()
			conns = append(conns, c)
		}
		for _, c := range conns[:8] {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err := io.Copy(io.Discard, c)
			late, timed := errors.AsType[net.Error](err)
			require.False(t, timed && late.Timeout(), "an old stranger is closed")
		}
		require.LessOrEqual(t, count(s), 4)
		require.Equal(t, state, known.GetState())
		_, err = client.GetRun(t.Context(), ask)
		require.NoError(t, err)
		_, err = executorv1.NewExecutorServiceClient(dial(t, addr, key)).GetRun(t.Context(), ask)
		require.NoError(t, err, "whoever comes says at once who they are")
	})
	t.Run("Connections/AWrongKeyMakesNobodyKnown", func(t *testing.T) {
		t.Parallel()
		s, addr := start(t, maxStrangers)
		c := dial(t, addr, conf.NewSecret("wrong"))
		_, err := executorv1.NewExecutorServiceClient(c).GetRun(t.Context(), ask)
		require.True(t, errs.Is(err, errs.Unauthenticated))
		_, err = healthpb.NewHealthClient(c).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, 1, count(s))
	})
	t.Run("Connections/WhoHasGoneIsForgotten", func(t *testing.T) {
		t.Parallel()
		s, addr := start(t, maxStrangers)
		c := dial(t, addr, conf.Secret{})
		_, err := healthpb.NewHealthClient(c).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Equal(t, 1, count(s))
		s.GracefulStop()
		require.Zero(t, count(s))
		require.Empty(t, s.chain.strangers.byAddr)
	})
	t.Run("Health/SoManyAtOnceOnOneConnection", func(t *testing.T) {
		t.Parallel()
		_, addr := start(t, maxStrangers)
		c := dial(t, addr, conf.Secret{})
		refused := make(chan error, 1)
		for range maxChecks + 1 { // calls whose message does not come
			s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, healthpb.Health_Check_FullMethodName)
			require.NoError(t, err)
			go func() {
				if err := s.RecvMsg(&healthpb.HealthCheckResponse{}); errs.ReasonOf(err) == "TOO_MANY_HEALTH_CHECKS" {
					refused <- err
				}
			}()
		}
		require.Error(t, <-refused)
		_, err := healthpb.NewHealthClient(dial(t, addr, conf.Secret{})).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err, "others go on")
	})
}
