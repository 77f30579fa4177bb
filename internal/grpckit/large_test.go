package grpckit_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// counted is a listener that counts its connections.
type counted struct {
	net.Listener
	open, ever atomic.Int64
}

type countedConn struct {
	net.Conn
	of     *counted
	closed atomic.Bool
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	c.ever.Add(1)
	return &countedConn{Conn: conn, of: c}, nil
}

func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.of.open.Add(-1)
	}
	return c.Conn.Close()
}

// TestLargeRequests sends large requests on a connection of their own, where no small one stands behind them.
func TestLargeRequests(t *testing.T) {
	t.Parallel()
	r := start(t, grpckit.Options{})
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	lis := &counted{Listener: tcp}
	go func() { _ = r.server.Serve(lis) }()
	conn, err := grpckit.Dial(tcp.Addr().String(), grpckit.DialOptions{})
	require.NoError(t, err)
	c := executorv1.NewExecutorServiceClient(conn)
	for range 3 {
		_, err := c.GetRun(t.Context(), ask)
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, lis.ever.Load())
	for range 3 {
		_, err := c.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: strings.Repeat("x", 100<<10)})
		require.ErrorContains(t, err, "run_id", "it arrives, and is refused there")
	}
	require.EqualValues(t, 2, lis.ever.Load())
	require.EqualValues(t, 2, lis.open.Load())
	require.NoError(t, conn.Close())
	testkit.Eventually(t, func() bool { return lis.open.Load() == 0 }, "both are closed")
}

// asBytes sends bytes as they are.
type asBytes struct{}

func (asBytes) Name() string { return "proto" }

func (asBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asBytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// TestLargeRequestsPassedOn checks that proxied requests and streams whose first message is large take the
// connection for large requests.
func TestLargeRequestsPassedOn(t *testing.T) {
	t.Parallel()
	r := start(t, grpckit.Options{})
	tcp, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	lis := &counted{Listener: tcp}
	go func() { _ = r.server.Serve(lis) }()
	for name, call := range map[string]func(conn *grpc.ClientConn, size int) error{
		"Unary": func(conn *grpc.ClientConn, size int) error {
			in, err := proto.Marshal(&executorv1.GetRunRequest{RunId: strings.Repeat("x", size)})
			require.NoError(t, err)
			var out []byte
			return conn.Invoke(t.Context(), executorv1.ExecutorService_GetRun_FullMethodName, &in, &out, grpc.ForceCodecV2(asBytes{}))
		},
		"Stream": func(conn *grpc.ClientConn, size int) error {
			s, err := executorv1.NewExecutorServiceClient(conn).WatchRun(grpckit.WithRequestSize(t.Context(), size), &executorv1.WatchRunRequest{RunId: strings.Repeat("x", size)})
			require.NoError(t, err)
			_, err = s.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpckit.Dial(tcp.Addr().String(), grpckit.DialOptions{})
			require.NoError(t, err)
			before := lis.ever.Load()
			for range 2 {
				require.ErrorContains(t, call(conn, 10<<10), "run_id", "it arrives, and is refused there")
			}
			require.EqualValues(t, 1, lis.ever.Load()-before)
			for range 2 {
				require.ErrorContains(t, call(conn, 100<<10), "run_id")
			}
			require.EqualValues(t, 2, lis.ever.Load()-before)
			require.NoError(t, conn.Close())
		})
	}
}
