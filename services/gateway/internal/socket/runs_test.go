package socket_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/socket"
)

// silent is an executor with runs in which nothing happens.
type silent struct {
	executorv1.ExecutorServiceClient
}

func (silent) WatchRun(ctx context.Context, _ *executorv1.WatchRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[executorv1.RunEvent], error) {
	return silence{ctx: ctx}, nil
}

type silence struct {
	grpc.ServerStreamingClient[executorv1.RunEvent]

	ctx context.Context
}

func (silence) Header() (metadata.MD, error) {
	return metadata.Pairs(grpckit.HeaderWatching, "true"), nil
}

func (s silence) Recv() (*executorv1.RunEvent, error) {
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

// dials serves connections of the namespace that a request names.
func dials(t *testing.T, executor executorv1.ExecutorServiceClient) (dial func(namespace string) *websocket.Conn) {
	t.Helper()
	stop := make(chan struct{})
	s := socket.New(socket.Options{
		Executor: executor, Budget: inflight.New(0), Encode: func(m proto.Message) ([]byte, error) { return protojson.Marshal(m) },
		Describe:   func(err error) proto.Message { return &errorsv1.Error{Reason: errs.ReasonOf(err)} },
		FromStatus: func(err error) error { return err }, Log: slog.New(slog.DiscardHandler),
		WriteTimeout: 10 * time.Second, Idle: time.Minute, Pong: time.Minute,
		Stopping: func(context.Context) <-chan struct{} { return stop },
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Serve(w, r.WithContext(grpckit.WithNamespace(r.Context(), r.URL.Query().Get("ns"))), func() {})
	}))
	t.Cleanup(func() {
		close(stop)
		server.Close()
		s.Wait(context.Background())
	})
	return func(namespace string) *websocket.Conn {
		conn, res, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1)+"?ns="+namespace, nil)
		require.NoError(t, err)
		if res.Body != nil {
			require.NoError(t, res.Body.Close())
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		return conn
	}
}

// TestRuns follows as many runs as a namespace may at one gateway.
func TestRuns(t *testing.T) {
	t.Parallel()
	const most, each = 1000, 100
	dial := dials(t, silent{})
	// ask subscribes to a run and returns the type of the answer, or the reason of the error.
	ask := func(c *websocket.Conn, run string) string {
		t.Helper()
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"subscribe","channel":"run:%s"}`, run)))
		_, data, err := c.Read(t.Context())
		require.NoError(t, err)
		var m struct {
			Type string `json:"type"`
			Data struct {
				Reason string `json:"reason"`
			} `json:"data"`
		}
		require.NoError(t, json.Unmarshal(data, &m))
		return m.Type + m.Data.Reason
	}
	var first *websocket.Conn
	for i := range most / each {
		c := dial("a")
		if i == 0 {
			first = c
		}
		for j := range each {
			require.Equal(t, "subscribed", ask(c, fmt.Sprintf("run_%d_%d", i, j)))
		}
	}
	more := dial("a")
	require.Equal(t, "errorTOO_MANY_CHANNELS", ask(more, "run_more"))
	require.Equal(t, "subscribed", ask(more, "run_0_0"), "a run that is followed already costs nothing more")
	require.Equal(t, "subscribed", ask(dial("b"), "run_more"), "another namespace has its own")
	require.NoError(t, first.CloseNow())
	testkit.Eventually(t, func() bool { return ask(more, "run_more") == "subscribed" }, "who goes makes room")
}

// crowded is an executor with a run that has come to event 5. It has no room for a watch from before that
// at first.
type crowded struct {
	executorv1.ExecutorServiceClient

	refused atomic.Bool
}

func (c *crowded) WatchRun(ctx context.Context, req *executorv1.WatchRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[executorv1.RunEvent], error) {
	if req.GetAfterSeq() == 5 {
		return silence{ctx: ctx}, nil
	}
	if !c.refused.Swap(true) {
		return nil, errs.New(errs.ResourceExhausted, "TOO_MANY_WATCHES", "there is no room")
	}
	return &rest{silence: silence{ctx: ctx}, at: req.GetAfterSeq()}, nil
}

// rest are the events of such a run behind one of them.
type rest struct {
	silence

	at int64
}

func (r *rest) Recv() (*executorv1.RunEvent, error) {
	if r.at == 5 {
		return r.silence.Recv()
	}
	r.at++
	return &executorv1.RunEvent{RunId: "r", Seq: r.at, Event: &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{}}}, nil
}

func TestFollowedRunWaitsForRoomToReadWhatItMissed(t *testing.T) {
	t.Parallel()
	executor := &crowded{}
	dial := dials(t, executor)
	next := func(c *websocket.Conn) (m struct{ Type, Cursor string }) {
		t.Helper()
		_, data, err := c.Read(t.Context())
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &m))
		return m
	}
	from := func(cursor int) *websocket.Conn {
		t.Helper()
		c := dial("a")
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"subscribe","channel":"run:r","from":"%d"}`, cursor)))
		require.Equal(t, "subscribed", next(c).Type)
		return c
	}
	from(5)
	late := from(1)
	for seq := 2; seq <= 5; seq++ {
		m := next(late)
		require.Equal(t, "run_paused", m.Type)
		require.Equal(t, strconv.Itoa(seq), m.Cursor)
	}
	require.True(t, executor.refused.Load())
}
