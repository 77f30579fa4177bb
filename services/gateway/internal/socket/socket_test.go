package socket_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/socket"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// feed gives events to whoever watches.
type feed struct {
	registryv1.RegistryServiceClient
	events chan *registryv1.FeedEvent
}

func (f feed) WatchEvents(ctx context.Context, _ *registryv1.WatchEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[registryv1.FeedEvent], error) {
	return stream{ctx: ctx, events: f.events}, nil
}

type stream struct {
	grpc.ServerStreamingClient[registryv1.FeedEvent]

	ctx    context.Context
	events chan *registryv1.FeedEvent
}

func (s stream) Recv() (*registryv1.FeedEvent, error) {
	select {
	case ev := <-s.events:
		return ev, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// open serves and connects once.
func open(t *testing.T, f feed, budget *inflight.Budget, idle time.Duration) (c *websocket.Conn, ended chan struct{}) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	s := socket.New(socket.Options{
		Registry: f, Budget: budget, Encode: func(m proto.Message) ([]byte, error) { return protojson.Marshal(m) },
		Describe:   func(err error) proto.Message { return &errorsv1.Error{Message: err.Error()} },
		FromStatus: func(err error) error { return err }, Log: slog.New(slog.DiscardHandler),
		WriteTimeout: time.Second, Idle: idle, Pong: idle,
		Stopping: func(context.Context) <-chan struct{} { return stop },
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Serve(w, r.WithContext(grpckit.WithNamespace(r.Context(), "default")), func() { close(ended) })
	}))
	conn, res, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1), nil)
	require.NoError(t, err)
	if res.Body != nil {
		require.NoError(t, res.Body.Close())
	}
	t.Cleanup(func() {
		_ = conn.CloseNow()
		close(stop)
		server.Close()
		s.Wait(context.Background())
	})
	return conn, ended
}

func TestPing(t *testing.T) {
	t.Parallel()
	const idle = 50 * time.Millisecond
	t.Run("WhoAnswersStays", func(t *testing.T) {
		t.Parallel()
		f := feed{events: make(chan *registryv1.FeedEvent)}
		c, _ := open(t, f, inflight.New(0), idle)
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`{"type":"subscribe","channel":"feed","from":0}`)))
		go func() {
			time.AfterFunc(10*idle, func() {
				f.events <- &registryv1.FeedEvent{Seq: 1, Event: &registryv1.FeedEvent_TaskDeleted{TaskDeleted: &registryv1.TaskDeleted{TaskId: "tk_1"}}}
			})
			f.events <- &registryv1.FeedEvent{Event: &registryv1.FeedEvent_KeepAlive{KeepAlive: &registryv1.FeedKeepAlive{}}}
		}()
		for _, want := range []string{`"subscribed"`, `"task_deleted"`} { // reading answers pings
			_, data, err := c.Read(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(data), want)
		}
	})
	t.Run("WhoDoesNotIsCutOff", func(t *testing.T) {
		t.Parallel()
		_, ended := open(t, feed{}, inflight.New(0), idle) // nobody reads, so nobody answers
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("the connection is still open")
		}
	})
}

func TestHeld(t *testing.T) {
	t.Parallel()
	t.Run("NothingIsHeldWhenAllHaveGone", func(t *testing.T) {
		t.Parallel()
		budget := inflight.New(0)
		f := feed{events: make(chan *registryv1.FeedEvent, 100)}
		c, _ := open(t, f, budget, time.Minute)
		f.events <- &registryv1.FeedEvent{Event: &registryv1.FeedEvent_KeepAlive{KeepAlive: &registryv1.FeedKeepAlive{}}}
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`{"type":"subscribe","channel":"feed","from":0}`)))
		for i := range 50 {
			f.events <- &registryv1.FeedEvent{Seq: int64(i + 1), Event: &registryv1.FeedEvent_EpicUpdated{EpicUpdated: &registryv1.Epic{Title: strings.Repeat("x", 1000)}}}
		}
		for range 51 {
			_, _, err := c.Read(t.Context())
			require.NoError(t, err)
		}
		require.Greater(t, budget.Used(), int64(50_000), "what is kept for those who come back is counted")
		require.Less(t, budget.Used(), int64(2<<20))
		require.NoError(t, c.CloseNow())
		testkit.Eventually(t, func() bool { return budget.Used() == 0 })
	})
}
