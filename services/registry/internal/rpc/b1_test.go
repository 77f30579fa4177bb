package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

// TestB1 shows which field of ours holds each field of the epics and tasks of other systems, and which state
// each of their states.
func TestB1(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message protoreflect.ProtoMessage
		fields  map[string]string // theirs to ours
	}{
		"Epic": {&registryv1.Epic{}, map[string]string{
			"id": "id", "title": "title", "description": "description", "tags": "tags", "status": "state", "priority": "priority",
			"budget_tokens": "budget_tokens", "budget_usd": "budget_nano_usd", "spent_tokens": "spent_tokens", "spent_usd": "spent_nano_usd",
			"agent_overhead_tokens": "agent_overhead_tokens", "agent_overhead_usd": "agent_overhead_nano_usd",
			"total_tasks": "total_tasks", "completed_tasks": "completed_tasks", "failed_tasks": "failed_tasks",
			"created_by_node_id": "created_by_node_id", "workflow_id": "workflow_slug", "user_profile_id": "user_id", "result_summary": "result_summary",
			"created_at": "create_time", "updated_at": "update_time", "completed_at": "end_time",
		}},
		"Task": {&registryv1.Task{}, map[string]string{
			"id": "id", "epic_id": "epic_id", "title": "title", "description": "description", "tags": "tags", "status": "state", "priority": "priority",
			"depends_on": "depends_on", "requirements": "requirements", "workflow_id": "workflow_slug", "workflow_slug": "workflow_slug",
			"execution_id": "run_id", "workflow_source": "workflow_source", "estimated_tokens": "estimated_tokens", "actual_tokens": "actual_tokens",
			"actual_usd": "actual_nano_usd", "llm_calls": "llm_calls", "tool_invocations": "tool_invocations", "duration_ms": "duration",
			"started_at": "start_time", "completed_at": "end_time", "result_summary": "result_summary", "error_message": "error_message",
			"retry_count": "retry_count", "max_retries": "max_retries", "notes": "notes", "created_by_node_id": "created_by_node_id",
		}},
	} {
		t.Run(name+"/HasEachField", func(t *testing.T) {
			t.Parallel()
			for theirs, ours := range c.fields {
				require.NotNil(t, c.message.ProtoReflect().Descriptor().Fields().ByTextName(ours), theirs)
			}
		})
	}
	t.Run("States/AreAllThere", func(t *testing.T) {
		t.Parallel()
		for _, word := range []string{"PLANNING", "ACTIVE", "PAUSED", "COMPLETED", "FAILED", "CANCELED"} {
			require.Contains(t, registryv1.EpicState_value, "EPIC_STATE_"+word)
		}
		for _, word := range []string{"PENDING", "BLOCKED", "RUNNING", "COMPLETED", "FAILED", "CANCELED"} {
			require.Contains(t, registryv1.TaskState_value, "TASK_STATE_"+word)
		}
		for _, word := range []string{"INLINE", "EXISTING", "CREATED", "TEMPLATE"} {
			require.Contains(t, registryv1.WorkflowSource_value, "WORKFLOW_SOURCE_"+word)
		}
	})
	t.Run("Defaults/AreThose", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		e := epic.New("ns", epic.Epic{Title: "x"}, now)
		require.Equal(t, []any{epic.Planning, epic.Medium}, []any{e.State, e.Priority}, "MEDIUM, where others have HIGH")
		v, err := epic.NewTask("ns", epic.Task{Title: "x"}, now)
		require.NoError(t, err)
		require.Equal(t, []any{epic.TaskPending, epic.Medium, epic.Inline, int32(2), int32(0)}, []any{v.State, v.Priority, v.Source, v.MaxRetries, v.RetryCount})
	})
	t.Run("Transitions/OfTheDiagramAreAllThere", func(t *testing.T) {
		t.Parallel()
		for from, to := range map[epic.State][]epic.State{
			epic.Planning: {epic.Active}, epic.Active: {epic.Completed, epic.Paused, epic.Failed, epic.Canceled}, epic.Paused: {epic.Active, epic.Canceled},
		} {
			for _, s := range to {
				e := epic.Epic{State: from}
				require.NoError(t, e.Move(s, time.Now()))
				require.Equal(t, s, e.State)
			}
		}
		for from, to := range map[epic.TaskState][]epic.TaskState{
			epic.TaskPending: {epic.TaskBlocked, epic.TaskRunning, epic.TaskCanceled}, epic.TaskBlocked: {epic.TaskPending, epic.TaskCanceled},
			epic.TaskRunning: {epic.TaskCompleted, epic.TaskFailed}, epic.TaskFailed: {epic.TaskPending},
		} {
			for _, s := range to {
				v := epic.Task{State: from, MaxRetries: 1}
				require.NoError(t, v.Move(s, time.Now()))
				require.Equal(t, s, v.State)
			}
		}
	})
}
