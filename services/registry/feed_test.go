package registry_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// change renames an epic, so that the feed has one event more.
func change(t *testing.T, c registryv1.RegistryServiceClient, id, title string) {
	t.Helper()
	_, err := c.UpdateEpic(t.Context(), &registryv1.UpdateEpicRequest{Epic: &registryv1.Epic{Id: id, Title: title}})
	require.NoError(t, err)
}

type eventStream = grpc.ServerStreamingClient[registryv1.FeedEvent]

func watchEvents(t *testing.T, c registryv1.RegistryServiceClient, req *registryv1.WatchEventsRequest) (eventStream, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := c.WatchEvents(ctx, req)
	require.NoError(t, err)
	return stream, cancel
}

// titled receives an event of an epic and returns its sequence and the title.
func titled(t *testing.T, stream eventStream) (int64, string) {
	t.Helper()
	ev, err := stream.Recv()
	require.NoError(t, err)
	if e := ev.GetEpicCreated(); e != nil {
		return ev.GetSeq(), e.GetTitle()
	}
	return ev.GetSeq(), ev.GetEpicUpdated().GetTitle()
}

func TestEventsFeed(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, config(t))
			e, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "one"}})
			require.NoError(t, err)
			t.Run("List/Pages", func(t *testing.T) {
				change(t, c, e.GetId(), "two")
				first, err := c.ListEvents(t.Context(), &registryv1.ListEventsRequest{PageSize: 1})
				require.NoError(t, err)
				require.False(t, first.GetEnd())
				require.Empty(t, cmp.Diff(e, first.GetEvents()[0].GetEpicCreated(), protocmp.Transform()))
				second, err := c.ListEvents(t.Context(), &registryv1.ListEventsRequest{After: first.GetCursor()})
				require.NoError(t, err)
				require.True(t, second.GetEnd())
				require.Len(t, second.GetEvents(), 1)
				require.Equal(t, "two", second.GetEvents()[0].GetEpicUpdated().GetTitle())
			})
			t.Run("List/RefusesWhatItDoesNotKnow", func(t *testing.T) {
				_, err := c.ListEvents(t.Context(), &registryv1.ListEventsRequest{Kinds: []string{"epic_created", "epic_eaten"}})
				require.Equal(t, "kinds[1]", requireError(t, err, errs.InvalidArgument, "EVENT_KIND_UNKNOWN").Violations[0].Field)
				_, err = c.ListEvents(t.Context(), &registryv1.ListEventsRequest{After: 1000})
				requireError(t, err, errs.FailedPrecondition, "FEED_CURSOR_AHEAD")
			})
			t.Run("Watch/GoesOnBehindTheLastSequence", func(t *testing.T) {
				after := int64(0)
				for i := range 5 {
					stream, hangUp := watchEvents(t, c, &registryv1.WatchEventsRequest{After: &after})
					if i > 0 {
						change(t, c, e.GetId(), string(rune('a'+i)))
					}
					seq, _ := titled(t, stream)
					require.Equal(t, after+1, seq, "connection %d has no gap and no repetition", i)
					after = seq
					hangUp()
				}
			})
			t.Run("Watch/BeginsNowWithoutACursor", func(t *testing.T) {
				stream, _ := watchEvents(t, c, &registryv1.WatchEventsRequest{})
				begins, err := stream.Recv()
				require.NoError(t, err)
				cursor := begins.GetKeepAlive().GetCursor()
				require.Positive(t, cursor)
				change(t, c, e.GetId(), "now")
				seq, title := titled(t, stream)
				require.Equal(t, cursor+1, seq)
				require.Equal(t, "now", title)
			})
			t.Run("Watch/FiltersByEpic", func(t *testing.T) {
				other, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "other"}})
				require.NoError(t, err)
				change(t, c, e.GetId(), "not told")
				change(t, c, other.GetId(), "told")
				stream, _ := watchEvents(t, c, &registryv1.WatchEventsRequest{After: proto.Int64(0), EpicId: other.GetId()})
				_, first := titled(t, stream)
				_, second := titled(t, stream)
				require.Equal(t, []string{"other", "told"}, []string{first, second})
			})
			t.Run("Watch/RefusesACursorAhead", func(t *testing.T) {
				stream, _ := watchEvents(t, c, &registryv1.WatchEventsRequest{After: proto.Int64(100_000)})
				_, err := stream.Recv()
				requireError(t, err, errs.FailedPrecondition, "FEED_CURSOR_AHEAD")
			})
		})
	}
}

// TestEventsOfOthers has two registries on one database: a watch at the one is told at once what the other
// writes.
func TestEventsOfOthers(t *testing.T) {
	t.Parallel()
	cfg := postgresConfig(t)
	var clients [2]registryv1.RegistryServiceClient
	for i := range clients {
		client, s := serveAs(t, cfg, grpckit.AuthConfig{}, nil)
		clients[i] = client("")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	}
	e, err := clients[0].CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "one"}})
	require.NoError(t, err)
	stream, _ := watchEvents(t, clients[1], &registryv1.WatchEventsRequest{After: proto.Int64(0)})
	_, title := titled(t, stream)
	require.Equal(t, "one", title)
	// The first may have come before the processes listened: then the watch looked by itself.
	change(t, clients[0], e.GetId(), "two")
	_, title = titled(t, stream)
	require.Equal(t, "two", title)
	const most = 3 * time.Second // less than the watch waits before it looks by itself
	begun := time.Now()
	change(t, clients[0], e.GetId(), "three")
	_, title = titled(t, stream)
	require.Equal(t, "three", title)
	require.Less(t, time.Since(begun), most, "it was notified")
}

// TestEventKindsAreThoseOfTheProto holds that the filter takes the name of every event that can be sent.
func TestEventKindsAreThoseOfTheProto(t *testing.T) {
	t.Parallel()
	c := serve(t, sqliteConfig(t))
	never := map[protoreflect.Name]bool{"usage_recorded": true, "keep_alive": true}
	fields := (&registryv1.FeedEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event").Fields()
	for i := range fields.Len() {
		name := fields.Get(i).Name()
		_, err := c.ListEvents(t.Context(), &registryv1.ListEventsRequest{Kinds: []string{string(name)}})
		require.Equal(t, never[name], err != nil, "%s: %v", name, err)
	}
}
