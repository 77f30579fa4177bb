package rpc

import (
	"cmp"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// TestFieldsOfOtherSystems answers each field of the epics and tasks of other systems in a field of ours,
// with its value, and has each of their states.
func TestFieldsOfOtherSystems(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	tokens, nano := int64(1), int64(2)
	e := epic.Epic{
		ID: "ep_1", Title: "title", Description: "description", Tags: []string{"tag"}, State: epic.Active, Priority: epic.High, BudgetTokens: &tokens, BudgetNanoUSD: &nano,
		Spent:      usage.Totals{Tokens: 3, NanoUSD: 4, OverheadTokens: 5, OverheadNanoUSD: 6},
		TotalTasks: 7, CompletedTasks: 8, FailedTasks: 9, CreatedByNode: "node", WorkflowSlug: "workflow", UserID: "user", ResultSummary: "result",
		CreateTime: at(1), UpdateTime: at(2), EndTime: at(3),
	}
	v := epic.Task{
		ID: "tk_1", EpicID: "ep_1", Title: "title", Description: "description", Tags: []string{"tag"}, State: epic.TaskRunning, Priority: epic.Low, DependsOn: []string{"tk_0"},
		Requirements: []byte(`{"tools":["code"]}`), WorkflowSlug: "workflow", RunID: "run_1", Source: epic.Created, EstimatedTokens: 1,
		Actual:   usage.Totals{Tokens: 2, NanoUSD: 3, ModelCalls: 4, ToolCalls: 5},
		Duration: 6 * time.Second, StartTime: at(4), EndTime: at(5), ResultSummary: "result", ErrorMessage: "error", RetryCount: 7, MaxRetries: 8,
		Notes: []epic.Note{{Text: "note", Time: at(6)}}, CreatedByNode: "node",
	}
	type want struct {
		ours  string
		value string // JSON
	}
	for name, c := range map[string]struct {
		message proto.Message
		fields  map[string]want // theirs to ours
	}{
		"Epic": {epicTo(e), map[string]want{
			"id": {"id", `"ep_1"`}, "title": {"title", `"title"`}, "description": {"description", `"description"`}, "tags": {"tags", `["tag"]`},
			"status": {"state", `"EPIC_STATE_ACTIVE"`}, "priority": {"priority", `"PRIORITY_HIGH"`}, "budget_tokens": {"budget_tokens", `"1"`}, "budget_usd": {"budget_nano_usd", `"2"`},
			"spent_tokens": {"spent_tokens", `"3"`}, "spent_usd": {"spent_nano_usd", `"4"`}, "agent_overhead_tokens": {"agent_overhead_tokens", `"5"`},
			"agent_overhead_usd": {"agent_overhead_nano_usd", `"6"`}, "total_tasks": {"total_tasks", `7`}, "completed_tasks": {"completed_tasks", `8`}, "failed_tasks": {"failed_tasks", `9`},
			"created_by_node_id": {"created_by_node_id", `"node"`}, "workflow_id": {"workflow_slug", `"workflow"`}, "user_profile_id": {"user_id", `"user"`},
			"result_summary": {"result_summary", `"result"`}, "created_at": {"create_time", `"2026-01-02T03:04:01Z"`}, "updated_at": {"update_time", `"2026-01-02T03:04:02Z"`},
			"completed_at": {"end_time", `"2026-01-02T03:04:03Z"`},
		}},
		"Task": {taskTo(v), map[string]want{
			"id": {"id", `"tk_1"`}, "epic_id": {"epic_id", `"ep_1"`}, "title": {"title", `"title"`}, "description": {"description", `"description"`}, "tags": {"tags", `["tag"]`},
			"status": {"state", `"TASK_STATE_RUNNING"`}, "priority": {"priority", `"PRIORITY_LOW"`}, "depends_on": {"depends_on", `["tk_0"]`},
			"requirements": {"requirements", `{"json":"eyJ0b29scyI6WyJjb2RlIl19"}`}, "workflow_id": {"workflow_slug", `"workflow"`}, "workflow_slug": {"workflow_slug", `"workflow"`},
			"execution_id": {"run_id", `"run_1"`}, "workflow_source": {"workflow_source", `"WORKFLOW_SOURCE_CREATED"`}, "estimated_tokens": {"estimated_tokens", `"1"`},
			"actual_tokens": {"actual_tokens", `"2"`}, "actual_usd": {"actual_nano_usd", `"3"`}, "llm_calls": {"llm_calls", `"4"`}, "tool_invocations": {"tool_invocations", `"5"`},
			"duration_ms": {"duration", `"6s"`}, "started_at": {"start_time", `"2026-01-02T03:04:04Z"`}, "completed_at": {"end_time", `"2026-01-02T03:04:05Z"`},
			"result_summary": {"result_summary", `"result"`}, "error_message": {"error_message", `"error"`}, "retry_count": {"retry_count", `7`}, "max_retries": {"max_retries", `8`},
			"notes": {"notes", `[{"time":"2026-01-02T03:04:06Z","text":"note"}]`}, "created_by_node_id": {"created_by_node_id", `"node"`},
		}},
	} {
		raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(c.message)
		require.NoError(t, err)
		var got map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &got))
		for theirs, w := range c.fields {
			t.Run(name+"/"+theirs, func(t *testing.T) {
				t.Parallel()
				require.JSONEq(t, w.value, cmp.Or(string(got[w.ours]), "null"))
			})
		}
	}
	t.Run("States/AreThoseOfTheAPI", func(t *testing.T) {
		t.Parallel()
		for state, word := range map[epic.State]string{epic.Planning: "PLANNING", epic.Active: "ACTIVE", epic.Paused: "PAUSED", epic.Completed: "COMPLETED", epic.Failed: "FAILED", epic.Canceled: "CANCELED"} {
			require.Equal(t, "EPIC_STATE_"+word, epicTo(epic.Epic{State: state}).GetState().String())
		}
		for state, word := range map[epic.TaskState]string{epic.TaskPending: "PENDING", epic.TaskBlocked: "BLOCKED", epic.TaskRunning: "RUNNING", epic.TaskCompleted: "COMPLETED", epic.TaskFailed: "FAILED", epic.TaskCanceled: "CANCELED"} {
			require.Equal(t, "TASK_STATE_"+word, taskTo(epic.Task{State: state}).GetState().String())
		}
		for source, word := range map[epic.Source]string{epic.Inline: "INLINE", epic.Existing: "EXISTING", epic.Created: "CREATED", epic.Template: "TEMPLATE"} {
			require.Equal(t, "WORKFLOW_SOURCE_"+word, taskTo(epic.Task{Source: source}).GetWorkflowSource().String())
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
