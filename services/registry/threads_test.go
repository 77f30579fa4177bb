package registry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// threadsInTheFeed tells changes of threads twice, as an outbox may, and finds each once in the feed.
func threadsInTheFeed(t *testing.T, ctx context.Context, r registryv1.RegistryServiceClient) {
	const created, message, deleted = registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_CREATED, registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_MESSAGE,
		registryv1.ThreadChangeKind_THREAD_CHANGE_KIND_DELETED
	record := func(list ...*registryv1.ThreadChange) (out []int32) {
		for range 2 {
			n, err := r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Threads: list})
			require.NoError(t, err)
			out = append(out, n.GetRecorded())
		}
		return out
	}
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	one := &registryv1.ThreadChange{ThreadId: "thr_1", Kind: created, Agent: "a", Title: "t", UserId: "ada", Lifetime: "conversation", ChangeTime: at}
	said := func(id string, seq int64, role string) *registryv1.ThreadChange {
		return &registryv1.ThreadChange{ThreadId: id, Kind: message, Sequence: seq, Role: role, RunId: "run_1"}
	}
	require.Equal(t, []int32{2, 0}, record(one, said("thr_1", 1, "user")))
	require.Equal(t, []int32{1, 0}, record(said("thr_1", 1, "user"), said("thr_1", 3, "assistant")), "a repetition with something new behind it")
	fork := &registryv1.ThreadChange{ThreadId: "thr_2", Kind: created, Sequence: 1, ParentThreadId: "thr_1"}
	require.Equal(t, []int32{2, 0}, record(fork, said("thr_2", 2, "user")), "a fork begins behind the items of its parent")
	require.Equal(t, []int32{1, 0}, record(&registryv1.ThreadChange{ThreadId: "thr_1", Kind: deleted, Agent: "a", Title: "t"}))
	require.Equal(t, []int32{0, 0}, record(said("thr_1", 4, "user")), "nothing comes behind the end")
	_, err := r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Runs: []*registryv1.RunChange{
		{RunId: "thr_1", Seq: 1, Kind: registryv1.RunChangeKind_RUN_CHANGE_KIND_STARTED},
	}})
	require.NoError(t, err)

	list := func(req *registryv1.ListEventsRequest) (out []string) {
		page, err := r.ListEvents(ctx, req)
		require.NoError(t, err)
		for _, e := range page.GetEvents() {
			m := e.ProtoReflect()
			kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
			x, ok := m.Get(kind).Message().Interface().(*registryv1.ThreadChanged)
			if !ok {
				out = append(out, string(kind.Name()))
				continue
			}
			require.Equal(t, x.GetRunId(), e.GetCausedByRunId())
			out = append(out, fmt.Sprintf("%s %s %d %s%s", kind.Name(), x.GetThreadId(), x.GetSequence(), x.GetRole(), x.GetAgent()))
		}
		return out
	}
	of1 := []string{"thread_created thr_1 0 a", "thread_message thr_1 1 user", "thread_message thr_1 3 assistant", "thread_deleted thr_1 0 a"}
	of2 := []string{"thread_created thr_2 1 ", "thread_message thr_2 2 user"}
	require.Equal(t, []string{of1[0], of1[1], of1[2], of2[0], of2[1], of1[3], "run_started"}, list(&registryv1.ListEventsRequest{}), "ids of runs and threads are apart")
	require.Equal(t, of1, list(&registryv1.ListEventsRequest{ThreadId: "thr_1"}))
	require.Equal(t, of2, list(&registryv1.ListEventsRequest{ThreadId: "thr_2"}))
	require.Equal(t, []string{of1[1], of1[2]}, list(&registryv1.ListEventsRequest{ThreadId: "thr_1", RunId: "run_1"}))
	require.Empty(t, list(&registryv1.ListEventsRequest{ThreadId: "thr_3"}))
	watch, err := r.WatchEvents(ctx, &registryv1.WatchEventsRequest{After: new(int64), ThreadId: "thr_2"})
	require.NoError(t, err)
	e, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, "thr_1", e.GetThreadCreated().GetParentThreadId())
	first, err := r.ListEvents(ctx, &registryv1.ListEventsRequest{ThreadId: "thr_1", PageSize: 1})
	require.NoError(t, err)
	made := first.GetEvents()[0].GetThreadCreated()
	require.Equal(t, []any{"t", "ada", "conversation", at.AsTime()}, []any{made.GetTitle(), made.GetUserId(), made.GetLifetime(), made.GetChangeTime().AsTime()})
	_, err = r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Threads: []*registryv1.ThreadChange{{ThreadId: "thr_9", Kind: created, ChangeTime: &timestamppb.Timestamp{Seconds: 1 << 60}}}})
	requireError(t, err, errs.InvalidArgument, "TIME_INVALID")
	require.Empty(t, list(&registryv1.ListEventsRequest{ThreadId: "thr_9"}))
}
