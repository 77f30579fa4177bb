package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func told(seq int64, title string) *registryv1.FeedEvent {
	return &registryv1.FeedEvent{Seq: seq, EpicId: "ep_1", Event: &registryv1.FeedEvent_EpicUpdated{EpicUpdated: &registryv1.Epic{Id: "ep_1", Title: title}}}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	t.Run("Stream/EventsHaveTheirCursorAsId", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.registry.watchEvents = func(req *registryv1.WatchEventsRequest, s grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
			require.Equal(t, int64(5), req.GetAfter())
			require.Equal(t, "ep_1", req.GetEpicId())
			require.Equal(t, []string{"epic_updated", "task_updated"}, req.GetKinds())
			require.NoError(t, s.Send(told(6, "one")))
			require.NoError(t, s.Send(&registryv1.FeedEvent{Event: &registryv1.FeedEvent_KeepAlive{KeepAlive: &registryv1.FeedKeepAlive{Cursor: 9}}}))
			require.NoError(t, s.Send(told(10, "two")))
			return errs.New(errs.Unavailable, errs.ReasonStopping, "this replica is stopping")
		}
		res := r.events(t, "/v1/events:watch?after=5&epic_id=ep_1&kinds=epic_updated&kinds=task_updated")
		require.Equal(t, http.StatusOK, res.StatusCode)
		in := newReader(res.Body)
		var got []sse
		for e, ok := in.next(); ok; e, ok = in.next() {
			got = append(got, e)
		}
		require.Len(t, got, 6)
		require.NotEmpty(t, got[0].retry)
		require.Equal(t, []string{"6", "epic_updated"}, []string{got[1].id, got[1].event})
		require.Contains(t, got[1].data, `"seq":"6"`)
		require.Contains(t, got[1].data, `"title":"one"`)
		require.Equal(t, "keep-alive", got[2].comment)
		require.Equal(t, sse{id: "9"}, got[3], "the cursor moves without an event")
		require.Equal(t, "10", got[4].id)
		require.Equal(t, "stopping, connect again", got[5].comment)
	})
	t.Run("Cursor/TheHeaderWins", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.registry.watchEvents = func(req *registryv1.WatchEventsRequest, s grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
			return s.Send(told(req.GetAfter()+1, "next"))
		}
		e := newReader(r.events(t, "/v1/events:watch?after=5", "Last-Event-ID", "70").Body).all()
		require.Len(t, e, 1)
		require.Equal(t, "71", e[0].id)
	})
	t.Run("Cursor/NoneBeginsNow", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.registry.watchEvents = func(req *registryv1.WatchEventsRequest, s grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
			require.Nil(t, req.After)
			return s.Send(told(1, "now"))
		}
		require.Len(t, newReader(r.events(t, "/v1/events:watch").Body).all(), 1)
	})
	t.Run("Refused/BeforeTheStreamBegins", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.registry.watchEvents = func(*registryv1.WatchEventsRequest, grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
			return errs.New(errs.FailedPrecondition, "FEED_CURSOR_GONE", "the events behind cursor 5 are not kept any more")
		}
		for path, reason := range map[string]string{
			"/v1/events:watch?after=5":    "FEED_CURSOR_GONE",
			"/v1/events:watch?after=-1":   "WRONG_TYPE",
			"/v1/events:watch?aftr=5":     "UNKNOWN_FIELD",
			"/v1/events:watch?after=five": "WRONG_TYPE",
		} {
			res := r.events(t, path)
			require.Equal(t, http.StatusBadRequest, res.StatusCode, path)
			require.True(t, strings.HasPrefix(res.Header.Get("Content-Type"), "application/json"), path)
			body := make([]byte, 4096)
			n, _ := res.Body.Read(body)
			require.Contains(t, string(body[:n]), reason, path)
		}
		require.Equal(t, http.StatusBadRequest, r.events(t, "/v1/events:watch", "Last-Event-ID", "x").StatusCode)
	})
}
