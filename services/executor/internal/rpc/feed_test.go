package rpc

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/workflow"
)

func TestHeard(t *testing.T) {
	t.Parallel()
	at := timestamppb.New(time.Unix(1_700_000_000, 0))
	for name, tt := range map[string]struct {
		event *registryv1.FeedEvent
		want  trigger.Heard
		body  string
	}{
		"Task": {
			&registryv1.FeedEvent{Seq: 7, Time: at, EpicId: "ep_1", CausedByRunId: "run_2", Event: &registryv1.FeedEvent_TaskUpdated{TaskUpdated: &registryv1.Task{
				Id: "tk_1", EpicId: "ep_1", Title: "Write", State: registryv1.TaskState_TASK_STATE_FAILED, ErrorMessage: "BAD", WorkflowSlug: "job@2", RunId: "run_2", RetryCount: 1,
				ActualNanoUsd: 1_500_000_000, Labels: map[string]string{createdByRun: "run_1"},
			}}},
			trigger.Heard{Seq: 7, Kind: "task_updated", Epic: "ep_1", Workflow: "job", Runs: []string{"run_2", "run_1"}},
			`{"seq": 7, "time": "2023-11-14T22:13:20Z", "kind": "task_updated", "epic_id": "ep_1", "workflow": "job", "run_id": "run_2", "task": {"id": "tk_1", "epic_id": "ep_1",
			"title": "Write", "status": "failed", "error": "BAD", "workflow": "job@2", "run_id": "run_2", "tags": [], "depends_on": [], "retry_count": 1, "max_retries": 0, "tokens": 0, "cost_usd": 1.5}}`,
		},
		"Epic": {
			&registryv1.FeedEvent{Seq: 8, Time: at, EpicId: "ep_1", Event: &registryv1.FeedEvent_EpicUpdated{EpicUpdated: &registryv1.Epic{
				Id: "ep_1", Title: "Goal", State: registryv1.EpicState_EPIC_STATE_PAUSED, PauseReason: "BUDGET_EXHAUSTED", TotalTasks: 3, Tags: []string{"a"},
				Labels: map[string]string{createdByRun: "run_1"}}}},
			trigger.Heard{Seq: 8, Kind: "epic_updated", Epic: "ep_1", Runs: []string{"run_1"}},
			`{"seq": 8, "time": "2023-11-14T22:13:20Z", "kind": "epic_updated", "epic_id": "ep_1", "epic": {"id": "ep_1", "title": "Goal", "status": "paused", "pause_reason": "BUDGET_EXHAUSTED",
			"tags": ["a"], "total_tasks": 3, "completed_tasks": 0, "failed_tasks": 0, "spent_tokens": 0, "spent_usd": 0}}`,
		},
		"Canceled": {
			&registryv1.FeedEvent{Seq: 8, Time: at, EpicId: "ep_1", Event: &registryv1.FeedEvent_TaskUpdated{TaskUpdated: &registryv1.Task{Id: "tk_1", EpicId: "ep_1", State: registryv1.TaskState_TASK_STATE_CANCELED}}},
			trigger.Heard{Seq: 8, Kind: "task_updated", Epic: "ep_1"},
			`{"seq": 8, "time": "2023-11-14T22:13:20Z", "kind": "task_updated", "epic_id": "ep_1", "task": {"id": "tk_1", "epic_id": "ep_1",
			"title": "", "status": "canceled", "tags": [], "depends_on": [], "retry_count": 0, "max_retries": 0, "tokens": 0, "cost_usd": 0}}`,
		},
		"Deleted": {
			&registryv1.FeedEvent{Seq: 9, Time: at, EpicId: "ep_1", Event: &registryv1.FeedEvent_TaskDeleted{TaskDeleted: &registryv1.TaskDeleted{TaskId: "tk_1"}}},
			trigger.Heard{Seq: 9, Kind: "task_deleted", Epic: "ep_1"},
			`{"seq": 9, "time": "2023-11-14T22:13:20Z", "kind": "task_deleted", "epic_id": "ep_1", "id": "tk_1"}`,
		},
		"Budget": {
			&registryv1.FeedEvent{Seq: 10, Time: at, Event: &registryv1.FeedEvent_BudgetReached{BudgetReached: &registryv1.BudgetReached{ResourceId: "ep_1", Level: "epic", Hard: true, BudgetTokens: proto.Int64(5)}}},
			trigger.Heard{Seq: 10, Kind: "budget_reached"},
			`{"seq": 10, "time": "2023-11-14T22:13:20Z", "kind": "budget_reached", "budget": {"level": "epic", "id": "ep_1", "hard": true, "tokens": 5}}`,
		},
		"Workflow": {
			&registryv1.FeedEvent{Seq: 11, Time: at, Event: &registryv1.FeedEvent_WorkflowPublished{WorkflowPublished: &registryv1.WorkflowPublished{Slug: "job", Version: 2, Change: registryv1.Publication_PUBLICATION_VERSION_CREATED}}},
			trigger.Heard{Seq: 11, Kind: "workflow_published", Workflow: "job"},
			`{"seq": 11, "time": "2023-11-14T22:13:20Z", "kind": "workflow_published", "workflow": "job", "version": 2, "change": "version_created"}`,
		},
		"Run": {
			&registryv1.FeedEvent{Seq: 12, Time: at, CausedByRunId: "run_1", Event: &registryv1.FeedEvent_RunEnded{RunEnded: &registryv1.RunChanged{
				RunId: "run_1", Workflow: "job@2", Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED, Reason: "BAD", Usage: &registryv1.WorkflowRunUsage{Tokens: 3}}}},
			trigger.Heard{Seq: 12, Kind: "run_ended", Workflow: "job", Runs: []string{"run_1"}},
			`{"seq": 12, "time": "2023-11-14T22:13:20Z", "kind": "run_ended", "workflow": "job", "run_id": "run_1", "run": {"id": "run_1", "workflow": "job@2", "outcome": "failed", "reason": "BAD", "tokens": 3, "cost_usd": 0}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := heard(tt.event)
			require.NoError(t, err)
			require.JSONEq(t, tt.body, string(got.Body))
			got.Body, tt.want.Time = nil, at.AsTime()
			require.Equal(t, tt.want, got)
		})
	}
	t.Run("LongTextsAreCut", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("\u0001", 64<<10) // six bytes each in JSON
		got, err := heard(&registryv1.FeedEvent{Seq: 1, Time: at, Event: &registryv1.FeedEvent_TaskCreated{TaskCreated: &registryv1.Task{Description: long, ResultSummary: long, ErrorMessage: long}}})
		require.NoError(t, err)
		require.LessOrEqual(t, len(got.Body), trigger.MaxEvent)
		require.Contains(t, string(got.Body), `"brief":true`)
	})
	t.Run("AnythingFits", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("\u0001", 64<<10)
		list := slices.Repeat([]string{strings.Repeat("\u0001", 128)}, 1000)
		for name, event := range map[string]*registryv1.FeedEvent{
			"Task": {Event: &registryv1.FeedEvent_TaskUpdated{TaskUpdated: &registryv1.Task{Id: "tk_1", Title: long, Description: long, ResultSummary: long, ErrorMessage: long,
				WorkflowSlug: long, Tags: list, DependsOn: list}}},
			"Lists": {Event: &registryv1.FeedEvent_TaskUpdated{TaskUpdated: &registryv1.Task{Id: "tk_1", Tags: list, DependsOn: list}}},
			"Epic": {Event: &registryv1.FeedEvent_EpicUpdated{EpicUpdated: &registryv1.Epic{Id: "tk_1", Title: long, Description: long, ResultSummary: long, PauseReason: long,
				WorkflowSlug: long, Tags: list}}},
			"Run": {Event: &registryv1.FeedEvent_RunEnded{RunEnded: &registryv1.RunChanged{RunId: "tk_1", Workflow: long, Reason: long}}},
		} {
			got, err := heard(event)
			require.NoError(t, err, name)
			require.LessOrEqual(t, len(got.Body), trigger.MaxEvent, name)
			require.Contains(t, string(got.Body), `"brief":true`, name)
			require.Contains(t, string(got.Body), `"id":"tk_1"`, name)
		}
	})
	t.Run("EveryKindHasANameOfTheFeed", func(t *testing.T) {
		t.Parallel()
		fields := (&registryv1.FeedEvent{}).ProtoReflect().Descriptor().Oneofs().ByName("event").Fields()
		known := map[string]bool{}
		for i := range fields.Len() {
			known[string(fields.Get(i).Name())] = true
		}
		for _, kind := range workflow.EventKinds() {
			require.True(t, known[kind], kind)
		}
	})
}
