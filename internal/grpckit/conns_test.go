package grpckit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type nothing struct {
	executorv1.UnimplementedExecutorServiceServer
}

func (nothing) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return &executorv1.Run{}, nil
}

func (nothing) WatchRun(_ *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
	if err := s.Send(&executorv1.RunEvent{}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// bearer shows a key with every call, if there is one.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if b == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }

// client hears of the ends of its connections.
type client struct {
	*grpc.ClientConn
	ended chan struct{}
}

type watched struct {
	net.Conn
	ended chan<- struct{}
}

// Close is called by gRPC when the server has closed the connection, or asked the client to leave.
func (w *watched) Close() error {
	w.ended <- struct{}{}
	return w.Conn.Close()
}

func TestConnections(t *testing.T) {
	t.Parallel()
	service, a, b := conf.NewSecret("svc"), conf.NewSecret("key-a"), conf.NewSecret("key-b")
	start := func(t *testing.T, bounds conns.Bounds, idle time.Duration) (*conns.Pool, *grpckit.Server, string) {
		t.Helper()
		pool := conns.New(bounds)
		s, err := grpckit.NewServer(grpckit.Options{Connections: pool, MaxConnectionIdle: idle, Auth: grpckit.AuthConfig{ServiceToken: service, Keys: []grpckit.APIKey{
			{Name: "a", Namespace: "a", Secret: a}, {Name: "b", Namespace: "b", Secret: b},
		}}})
		require.NoError(t, err)
		executorv1.RegisterExecutorServiceServer(s, nothing{})
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Serve(lis)
		}()
		t.Cleanup(func() { s.Stop(); <-done })
		return pool, s, lis.Addr().String()
	}
	dial := func(t *testing.T, addr string, token conf.Secret) *client {
		t.Helper()
		c := &client{ended: make(chan struct{}, 100)}
		var err error
		c.ClientConn, err = grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearer(token.Reveal())),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				n, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				return &watched{Conn: n, ended: c.ended}, err
			}))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	get := func(t *testing.T, c *client) error {
		t.Helper()
		_, err := executorv1.NewExecutorServiceClient(c).GetRun(t.Context(), &executorv1.GetRunRequest{RunId: "run_1"})
		return grpckit.FromStatus(err)
	}
	watch := func(t *testing.T, c *client) grpc.ServerStreamingClient[executorv1.RunEvent] {
		t.Helper()
		s, err := executorv1.NewExecutorServiceClient(c).WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: "run_1"})
		require.NoError(t, err)
		_, err = s.Recv()
		require.NoError(t, err)
		return s
	}
	stays := func(t *testing.T, c *client) {
		t.Helper()
		require.NoError(t, get(t, c))
		require.Empty(t, c.ended)
	}
	wide := conns.Bounds{Strangers: 512, Namespace: 512, Total: 512}
	t.Run("Strangers/TheOldestIsClosedAndWhoIsKnownStays", func(t *testing.T) {
		t.Parallel()
		pool, _, addr := start(t, conns.Bounds{Strangers: 4, Namespace: 9, Total: 9}, 0)
		known := dial(t, addr, a)
		require.NoError(t, get(t, known))
		require.Equal(t, 1, pool.Known("a"))
		var open []net.Conn
		for range 12 {
			c, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			open = append(open, c)
		}
		for _, c := range open[:8] {
			require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
			_, err := io.Copy(io.Discard, c)
			late, timed := errors.AsType[net.Error](err)
			require.False(t, timed && late.Timeout(), "an old stranger is closed")
		}
		stays(t, known)
		require.NoError(t, get(t, dial(t, addr, a)), "whoever comes says at once who they are")
	})
	t.Run("Strangers/AWrongKeyMakesNobodyKnown", func(t *testing.T) {
		t.Parallel()
		pool, s, addr := start(t, wide, 0)
		c := dial(t, addr, conf.NewSecret("wrong"))
		require.True(t, errs.Is(get(t, c), errs.Unauthenticated))
		_, err := healthpb.NewHealthClient(c).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Zero(t, pool.Known("a")+pool.Known("b")+pool.Known("default"))
		require.Equal(t, 1, s.Strangers())
		s.GracefulStop()
		require.Zero(t, s.Strangers(), "who has gone is forgotten")
	})
	t.Run("Namespace/TheOneIdleLongestIsClosed", func(t *testing.T) {
		t.Parallel()
		pool, _, addr := start(t, conns.Bounds{Strangers: 512, Namespace: 2, Total: 512}, 0)
		other := dial(t, addr, b)
		require.NoError(t, get(t, other))
		streaming, first, second := dial(t, addr, a), dial(t, addr, a), dial(t, addr, a)
		watch(t, streaming)
		require.NoError(t, get(t, first))
		require.NoError(t, get(t, second))
		<-first.ended
		require.Equal(t, 2, pool.Known("a"))
		stays(t, second)
		stays(t, streaming)
		stays(t, other)
	})
	t.Run("Namespace/IsRefusedWithoutAnIdleOne", func(t *testing.T) {
		t.Parallel()
		pool, _, addr := start(t, conns.Bounds{Strangers: 512, Namespace: 1, Total: 512}, 0)
		streaming := dial(t, addr, a)
		watch(t, streaming)
		require.Equal(t, conns.ReasonTooMany, errs.ReasonOf(get(t, dial(t, addr, a))))
		require.Equal(t, 1, pool.Known("a"))
		stays(t, streaming)
		require.NoError(t, get(t, dial(t, addr, b)))
	})
	t.Run("Total/TheNamespaceWithTheMostMakesRoom", func(t *testing.T) {
		t.Parallel()
		pool, _, addr := start(t, conns.Bounds{Strangers: 512, Namespace: 3, Total: 3}, 0)
		first, second, third := dial(t, addr, a), dial(t, addr, a), dial(t, addr, b)
		require.NoError(t, get(t, third)) // it is idle for longer than the others
		watch(t, first)
		require.NoError(t, get(t, second))
		require.NoError(t, get(t, dial(t, addr, b)))
		<-second.ended
		require.Equal(t, 1, pool.Known("a"))
		require.Equal(t, 2, pool.Known("b"))
		stays(t, third)
	})
	t.Run("Total/StreamsOfTheNamespaceWithTheMostEndForAnother", func(t *testing.T) {
		t.Parallel()
		_, _, addr := start(t, conns.Bounds{Strangers: 512, Namespace: 3, Total: 2}, 0)
		watch(t, dial(t, addr, a))
		last := watch(t, dial(t, addr, a))
		require.NoError(t, get(t, dial(t, addr, b)))
		_, err := last.Recv()
		require.True(t, errs.Is(grpckit.FromStatus(err), errs.Unavailable), "got %v", err)
	})
	t.Run("Services/AreNotCounted", func(t *testing.T) {
		t.Parallel()
		pool, s, addr := start(t, conns.Bounds{Strangers: 512, Namespace: 1, Total: 1}, 0)
		var services []*client
		for range 3 {
			c := dial(t, addr, service)
			require.NoError(t, get(t, c))
			services = append(services, c)
		}
		for range 3 {
			require.NoError(t, get(t, dial(t, addr, a)))
		}
		require.Equal(t, 1, pool.Known("a"))
		for _, c := range services {
			stays(t, c)
		}
		_, err := healthpb.NewHealthClient(dial(t, addr, service)).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		require.Zero(t, s.Strangers(), "a service that asks for health is none")
	})
	t.Run("Idle/IsToldToGoAndAStreamIsNotIdle", func(t *testing.T) {
		t.Parallel()
		_, _, addr := start(t, wide, 20*time.Millisecond)
		streaming, idle := dial(t, addr, a), dial(t, addr, a)
		stream := watch(t, streaming)
		for range 3 {
			require.NoError(t, get(t, idle))
			<-idle.ended
		}
		stays(t, streaming)
		require.NoError(t, stream.Context().Err())
	})
	t.Run("Idle/AClientGoesByItselfAndDoesNotComeBackForNothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var net grpckit.BufNet
			s, err := grpckit.NewServer(grpckit.Options{})
			require.NoError(t, err)
			executorv1.RegisterExecutorServiceServer(s, nothing{})
			lis, err := net.Listen("executor")
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- s.Serve(lis) }()
			c, err := grpckit.Dial("executor", grpckit.DialOptions{Buf: &net})
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, get(t, &client{ClientConn: c}))
				time.Sleep(6 * time.Minute) //nolint:forbidigo // the time of the bubble
				require.Equal(t, connectivity.Idle, c.GetState())
			}
			require.NoError(t, c.Close())
			s.Stop()
			require.NoError(t, <-done)
		})
	})
	t.Run("Health/SoManyAtOnceOnOneConnection", func(t *testing.T) {
		t.Parallel()
		_, _, addr := start(t, wide, 0)
		c := dial(t, addr, conf.Secret{})
		refused := make(chan error, 1)
		for range 9 { // calls whose message never arrives
			s, err := c.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, healthpb.Health_Check_FullMethodName)
			require.NoError(t, err)
			go func() {
				if err := s.RecvMsg(&healthpb.HealthCheckResponse{}); errs.ReasonOf(grpckit.FromStatus(err)) == "TOO_MANY_HEALTH_CHECKS" {
					refused <- err
				}
			}()
		}
		require.Error(t, <-refused)
		_, err := healthpb.NewHealthClient(dial(t, addr, conf.Secret{})).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err, "others go on")
	})
}
