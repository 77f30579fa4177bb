package grpckit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // as a dependency of a service may
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/extent"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// raw sends bytes as they are, and takes answers as they come.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (raw) Unmarshal(b mem.BufferSlice, v any) error {
	return proto.Unmarshal(b.Materialize(), v.(proto.Message))
}
func (raw) Name() string { return "proto" }

// emptyNodes is a StartRunRequest with a graph of n nodes that say nothing: two bytes each.
func emptyNodes(n int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), bytes.Repeat([]byte{0x12, 0x00}, n))
}

// allocated is how many bytes f allocates, in the whole process.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// holder is a service whose handlers wait for a signal before they return.
type holder struct {
	executorv1.UnimplementedExecutorServiceServer
	executorv1.UnimplementedWorkerServiceServer
	entered chan struct{}
	leave   chan struct{}
	got     chan *executorv1.WorkRequest
}

func (h *holder) StartRun(ctx context.Context, r *executorv1.StartRunRequest) (*executorv1.Run, error) {
	if r.GetTaskId() == "hold" {
		h.entered <- struct{}{}
		select {
		case <-h.leave:
		case <-ctx.Done():
		}
	}
	return &executorv1.Run{Id: "run_1"}, nil
}

func (h *holder) Work(s grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		h.got <- m
	}
}

type guarded struct {
	*holder
	net    *grpckit.BufNet
	server *grpckit.Server
	budget *inflight.Budget
}

// guard serves a holder to the namespaces a and b.
func guard(t *testing.T, o grpckit.Options) *guarded {
	t.Helper()
	g := &guarded{holder: &holder{entered: make(chan struct{}), leave: make(chan struct{}), got: make(chan *executorv1.WorkRequest, 8)},
		net: &grpckit.BufNet{}, budget: inflight.New(64 << 20)}
	o.Budget = g.budget
	o.Auth = grpckit.AuthConfig{Keys: []grpckit.APIKey{
		{Name: "ada", Namespace: "a", Secret: conf.NewSecret("key-a"), Scopes: access.Scopes()}, {Name: "bob", Namespace: "b", Secret: conf.NewSecret("key-b")}}}
	s, err := grpckit.NewServer(o)
	require.NoError(t, err)
	g.server = s
	executorv1.RegisterExecutorServiceServer(s, g.holder)
	executorv1.RegisterWorkerServiceServer(s, g.holder)
	s.Intern((*executorv1.StartRunRequest)(nil), "graph")
	lis, err := g.net.Listen("x")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(lis)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return g
}

func (g *guarded) conn(t *testing.T, key string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpckit.Dial("x", grpckit.DialOptions{Token: conf.NewSecret(key), Buf: g.net})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// next is the next message of a stream.
func (g *guarded) next(t *testing.T) *executorv1.WorkRequest {
	t.Helper()
	select {
	case m := <-g.got:
		return m
	case <-time.After(time.Minute):
		require.Fail(t, "no message came")
		return nil
	}
}

func send(ctx context.Context, c *grpc.ClientConn, b []byte, o ...grpc.CallOption) error {
	return c.Invoke(ctx, executorv1.ExecutorService_StartRun_FullMethodName, b, &executorv1.Run{}, append(o, grpc.ForceCodecV2(raw{}))...)
}

const mib = 1 << 20

// TestUntrusted attacks a server as callers without a key, and with one, would. It runs alone, since it
// measures the memory of the process.
func TestUntrusted(t *testing.T) {
	bomb := emptyNodes(8_000_000)
	methods := []string{executorv1.ExecutorService_StartRun_FullMethodName, executorv1.ExecutorService_WatchRun_FullMethodName,
		executorv1.WorkerService_Work_FullMethodName, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", healthpb.Health_Watch_FullMethodName}
	t.Run("NoKey/RefusedBeforeAByteIsSent", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		for _, key := range []string{"", "wrong"} {
			conn := g.conn(t, key)
			for _, method := range methods {
				s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
				require.NoError(t, err)
				e := errs.From(s.RecvMsg(&executorv1.Run{}))
				require.Equal(t, errs.Unauthenticated, e.Kind, "%s: %v", method, e)
				require.Contains(t, []string{"CREDENTIALS_MISSING", "CREDENTIALS_INVALID"}, e.Reason)
				require.NotEmpty(t, e.HintText())
				require.NotEmpty(t, e.Meta[grpckit.MetaRequestID])
			}
		}
	})
	t.Run("NoKey/CostsNothing", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		conn := g.conn(t, "")
		for name, o := range map[string][]grpc.CallOption{"gzip": {grpc.UseCompressor("gzip")}, "plain": nil} {
			require.Equal(t, "CREDENTIALS_MISSING", errs.ReasonOf(send(t.Context(), conn, emptyNodes(1), o...)))
			got := allocated(func() {
				for range 5 {
					require.True(t, errs.Is(send(t.Context(), conn, bomb, o...), errs.Unauthenticated))
				}
			})
			require.Less(t, got, uint64(32*mib), "%s: both sides together; decoded it would be 8 GB", name)
		}
	})
	t.Run("Key/CompressedIsRefused", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		conn := g.conn(t, "key-a")
		got := allocated(func() {
			e := errs.From(send(t.Context(), conn, bomb, grpc.UseCompressor("gzip")))
			require.Equal(t, grpckit.ReasonCompressed, e.Reason, "%v", e)
			require.Equal(t, errs.InvalidArgument, e.Kind)
			require.NotEmpty(t, e.HintText())
		})
		require.Less(t, got, uint64(32*mib))
	})
	t.Run("Key/ElementsAreCountedBeforeTheyAreMade", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		conn := g.conn(t, "key-a")
		some := emptyNodes(1_000_000)
		got := allocated(func() {
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					e := errs.From(send(t.Context(), conn, some))
					if e.Reason != "REQUEST_INVALID" || len(e.Violations) != 1 || e.Violations[0].Field != "graph.nodes" || e.Violations[0].Reason != "REPEATED_MAX_ITEMS" {
						t.Errorf("got %v", e)
					}
				})
			}
			wg.Wait()
		})
		require.Less(t, got, uint64(100*mib), "the nodes would be 2 GB")
		many := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), bytes.Repeat([]byte{0x22, 0x00}, extent.MaxElements))
		e := errs.From(send(t.Context(), conn, many))
		require.Equal(t, extent.ReasonTooMany, e.Reason)
		require.Equal(t, errs.InvalidArgument, e.Kind)
		require.Equal(t, "graph.state", e.Violations[0].Field)
		require.Contains(t, e.Message, "500000")
	})
	t.Run("Key/MessageTooLargeIsRefusedBeforeItIsSent", func(t *testing.T) {
		g := guard(t, grpckit.Options{MaxRecvBytes: 1 << 20})
		e := errs.From(send(t.Context(), g.conn(t, "key-a"), bomb))
		require.Equal(t, grpckit.ReasonMessageTooLarge, e.Reason)
		require.Equal(t, "1048576", e.Meta["limit_bytes"], "it was this server that read the length, not gRPC")
	})
	t.Run("Key/MalformedIsTheCallersFault", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		e := errs.From(send(t.Context(), g.conn(t, "key-a"), []byte{0x0a, 0x05, 0x01}))
		require.Equal(t, "MESSAGE_MALFORMED", e.Reason)
		require.Equal(t, errs.InvalidArgument, e.Kind)
	})
	t.Run("Key/ManySmallOnesAreHeldToTheBudget", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		conn := g.conn(t, "key-a")
		nodes := emptyNodes(90_000) // 180 KB on the wire
		runtime.GC()
		got := allocated(func() {
			var wg sync.WaitGroup
			for range 30 {
				wg.Go(func() {
					if e := errs.From(send(t.Context(), conn, nodes)); e.Reason != inflight.ReasonTooLarge {
						t.Errorf("got %v", e)
					}
				})
			}
			wg.Wait()
		})
		require.Less(t, got, uint64(100*mib), "the nodes would be 1 GB")
	})
	t.Run("Headers/AreBounded", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		conn := g.conn(t, "")
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-much", strings.Repeat("a", 64<<10))
		require.Error(t, send(ctx, conn, nil))
		require.Equal(t, "CREDENTIALS_MISSING", errs.ReasonOf(send(t.Context(), conn, nil)), "the connection goes on")
	})
	t.Run("Health/TakesNoMoreThanAName", func(t *testing.T) {
		g := guard(t, grpckit.Options{})
		h := healthpb.NewHealthClient(g.conn(t, ""))
		_, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("a", 8<<10)})
		require.Equal(t, grpckit.ReasonMessageTooLarge, errs.ReasonOf(err))
	})
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	// big is a request that holds about n bytes.
	big := func(task string, n int) *executorv1.StartRunRequest {
		return &executorv1.StartRunRequest{TaskId: task, Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "n", Actor: "cel",
			// once as received, once decoded
			Args: []*graphv1.Payload{{Json: bytes.Repeat([]byte("1"), n/2)}}}}}}
	}
	t.Run("Namespace/OneThatHoldsItsWholeShareHindersNoOther", func(t *testing.T) {
		t.Parallel()
		g := guard(t, grpckit.Options{})
		a, b := executorv1.NewExecutorServiceClient(g.conn(t, "key-a")), executorv1.NewExecutorServiceClient(g.conn(t, "key-b"))
		hold := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.StartRun(t.Context(), big("hold", 11*mib))
				hold <- err
			}()
			<-g.entered
		}
		_, err := a.StartRun(t.Context(), big("", 11*mib))
		e := errs.From(err)
		require.Equal(t, inflight.ReasonBusy, e.Reason, "%v", err)
		require.Equal(t, "1", e.Meta[errs.MetaRetryAfter])
		st, ok := status.FromError(e.Err)
		require.True(t, ok)
		require.Equal(t, codes.ResourceExhausted, st.Code())
		var pause time.Duration
		for _, d := range st.Details() {
			if r, ok := d.(*errdetails.RetryInfo); ok {
				pause = r.GetRetryDelay().AsDuration()
			}
		}
		require.Equal(t, time.Second, pause)
		for _, c := range []executorv1.ExecutorServiceClient{a, b} {
			_, err = c.StartRun(t.Context(), big("", 10))
			require.NoError(t, err, "a trivial request always passes")
			_, err = c.StartRun(t.Context(), big("", 50<<10))
			require.NoError(t, err)
		}
		_, err = b.StartRun(t.Context(), big("", 11*mib))
		require.NoError(t, err)
		close(g.leave)
		require.NoError(t, <-hold)
		require.NoError(t, <-hold)
		_, err = a.StartRun(t.Context(), big("", 11*mib))
		require.NoError(t, err)
		testkit.Eventually(t, func() bool { return g.budget.Used() == 0 })
	})
	t.Run("Stream/WaitsForRoom", func(t *testing.T) {
		t.Parallel()
		g := guard(t, grpckit.Options{})
		c := executorv1.NewExecutorServiceClient(g.conn(t, "key-a"))
		hold := make(chan error, 1)
		go func() {
			_, err := c.StartRun(t.Context(), big("hold", 20*mib))
			hold <- err
		}()
		<-g.entered
		w, err := executorv1.NewWorkerServiceClient(g.conn(t, "key-a")).Work(t.Context())
		require.NoError(t, err)
		answer := func(n int) *executorv1.WorkRequest {
			return &executorv1.WorkRequest{Message: &executorv1.WorkRequest_Outcome{Outcome: &executorv1.AttemptOutcome{Token: "t",
				Outcome: &executorv1.Outcome{Values: []*graphv1.Payload{{Json: bytes.Repeat([]byte("1"), n)}}}}}}
		}
		require.NoError(t, w.Send(answer(10)))
		require.NotNil(t, g.next(t).GetMessage())
		sent := make(chan error, 2)
		go func() { // unread bytes stay with the sender
			sent <- w.Send(answer(4 * mib))
			sent <- w.Send(answer(10))
		}()
		require.Never(t, func() bool { return len(g.got) > 0 }, 20*time.Millisecond, time.Millisecond)
		close(g.leave)
		require.NoError(t, <-hold)
		require.Len(t, g.next(t).GetOutcome().GetOutcome().GetValues()[0].GetJson(), 4*mib)
		require.Len(t, g.next(t).GetOutcome().GetOutcome().GetValues()[0].GetJson(), 10)
		require.NoError(t, <-sent)
		require.NoError(t, <-sent)
		require.NoError(t, w.CloseSend())
		_, err = w.Recv()
		require.ErrorIs(t, err, io.EOF)
	})
	t.Run("Stream/ElementsOfEachMessageAreCounted", func(t *testing.T) {
		t.Parallel()
		g := guard(t, grpckit.Options{})
		s, err := g.conn(t, "key-a").NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, executorv1.WorkerService_Work_FullMethodName,
			grpc.ForceCodecV2(raw{}))
		require.NoError(t, err)
		// A field that nobody knows, over and over.
		require.NoError(t, s.SendMsg(bytes.Repeat([]byte{0xf8, 0x3f, 0x00}, extent.MaxElements+1)))
		require.Equal(t, extent.ReasonTooMany, errs.ReasonOf(s.RecvMsg(&executorv1.WorkResponse{})))
	})
	t.Run("Slow/AMessageThatDoesNotComeIsNotWaitedForLong", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			g := guard(t, grpckit.Options{UnaryTimeout: time.Minute})
			for method, want := range map[string]struct {
				key   string
				after time.Duration
			}{
				executorv1.ExecutorService_StartRun_FullMethodName: {"key-a", time.Minute},
				executorv1.ExecutorService_WatchRun_FullMethodName: {"key-a", time.Minute},
				healthpb.Health_Check_FullMethodName:               {"", 5 * time.Second},
			} {
				begin := time.Now()
				s, err := g.conn(t, want.key).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
				require.NoError(t, err)
				e := errs.From(s.RecvMsg(&executorv1.Run{}))
				require.Equal(t, grpckit.ReasonMessageTimeout, e.Reason, "%s: %v", method, e)
				require.Equal(t, errs.DeadlineExceeded, e.Kind)
				require.Equal(t, want.after, time.Since(begin))
			}
			// A stream has no end, but each of its messages has.
			s, err := executorv1.NewWorkerServiceClient(g.conn(t, "key-a")).Work(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Hour) //nolint:forbidigo // the bubble's time
			require.NoError(t, s.Send(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Drain{Drain: &executorv1.WorkerDrain{}}}))
			require.NotNil(t, g.next(t).GetDrain())
			require.NoError(t, s.CloseSend())
			_, err = s.Recv()
			require.ErrorIs(t, err, io.EOF)
		})
	})
}
