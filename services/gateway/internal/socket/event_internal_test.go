package socket

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// The channel of a workflow has what the filter workflow_slug of the feed has, which a replay reads.
func TestChannelsOfAnEvent(t *testing.T) {
	t.Parallel()
	run := &registryv1.RunChanged{RunId: "run_1", Workflow: "letter@2"}
	for name, c := range map[string]struct {
		event *registryv1.FeedEvent
		want  []string
	}{
		"Published":         {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_WorkflowPublished{WorkflowPublished: &registryv1.WorkflowPublished{Slug: "letter"}}}, []string{"feed", "workflow:letter"}},
		"RunEnded":          {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunEnded{RunEnded: run}}, []string{"feed", "workflow:letter"}},
		"RunStarted":        {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunStarted{RunStarted: run}}, []string{"feed", "workflow:letter"}},
		"RunOfAnEpic":       {&registryv1.FeedEvent{EpicId: "ep_1", Event: &registryv1.FeedEvent_RunEnded{RunEnded: run}}, []string{"feed", "epic:ep_1", "workflow:letter"}},
		"RunAmended":        {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunAmended{RunAmended: run}}, []string{"feed", "workflow:letter"}},
		"RunDeleted":        {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunDeleted{RunDeleted: run}}, []string{"feed", "workflow:letter"}},
		"RunPaused":         {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunPaused{RunPaused: run}}, []string{"feed", "workflow:letter"}},
		"MemoryOfAWorkflow": {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_MemoryWritten{MemoryWritten: &registryv1.MemoryWritten{Scope: "workflow/letter"}}}, []string{"feed", "workflow:letter"}},
		"MemoryOfAnEpic":    {&registryv1.FeedEvent{EpicId: "ep_1", Event: &registryv1.FeedEvent_MemoryWritten{MemoryWritten: &registryv1.MemoryWritten{Scope: "epic/ep_1"}}}, []string{"feed", "epic:ep_1"}},
		"ThreadMade":        {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_ThreadCreated{ThreadCreated: &registryv1.ThreadChanged{ThreadId: "thr_1"}}}, []string{"feed", "thread:thr_1"}},
		"ThreadMessage":     {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_ThreadMessage{ThreadMessage: &registryv1.ThreadChanged{ThreadId: "thr_1"}}}, []string{"feed", "thread:thr_1"}},
		"ThreadDeleted":     {&registryv1.FeedEvent{Event: &registryv1.FeedEvent_ThreadDeleted{ThreadDeleted: &registryv1.ThreadChanged{ThreadId: "thr_1"}}}, []string{"feed", "thread:thr_1"}},
		"Task":              {&registryv1.FeedEvent{EpicId: "ep_1", Event: &registryv1.FeedEvent_TaskUpdated{TaskUpdated: &registryv1.Task{WorkflowSlug: "letter"}}}, []string{"feed", "epic:ep_1"}},
	} {
		t.Run("Channels/"+name, func(t *testing.T) {
			t.Parallel()
			e, err := ofFeed(c.event, func(proto.Message) ([]byte, error) { return []byte(`{}`), nil })
			require.NoError(t, err)
			require.Equal(t, c.want, e.channels)
		})
	}
}

// The end of an execution tells what it did, under the name that clients of Pipelit know.
func TestExecutionCompleted(t *testing.T) {
	t.Parallel()
	ev := &executorv1.RunEvent{RunId: "run_1", Event: &executorv1.RunEvent_RunEnded{RunEnded: &executorv1.RunEnded{State: executorv1.RunState_RUN_STATE_COMPLETED,
		ActivitySummary: &executorv1.ActivitySummary{Nodes: &executorv1.NodeCounts{Total: 2, Completed: 2}}}}}
	parts, err := ofRun(ev, "run_1", func(m proto.Message) ([]byte, error) { return protojson.Marshal(m) })
	require.NoError(t, err)
	require.Len(t, parts, 2)
	require.Equal(t, "execution_completed", parts[1].kind)
	require.JSONEq(t, `{"run_id": "run_1", "activity_summary": {"nodes": {"total": 2, "completed": 2}}}`, string(parts[1].data))
}
