package executor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// answer sets what the registry answers to claims from now on.
func (b *fakeRegistry) answer(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = err
}

func (b *fakeRegistry) holder(task string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.claimed[task]
}

func (b *fakeRegistry) settledRun(run string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.settled {
		if s.GetRunId() == run {
			return true
		}
	}
	return false
}

// TestGate tries every way in which a run begins. A run with a task of its own claims it, and is refused with
// the registry's error. Only spawned runs without a task of their own claim none: they work under the claim
// of the run above.
func TestGate(t *testing.T) {
	t.Parallel()
	f := serve(t, workgraph.Actors{}, func(c *executor.Config) { c.ScanInterval = 20 * time.Millisecond })
	schedules := executorv1.NewScheduleServiceClient(f.conn)
	say := func() *graphv1.Graph { return nodes(actorNode("say", "template", `{"text": "hi"}`)) }
	waits := func() *graphv1.Graph { return nodes(actorNode("wait", "signal", `{"name": "go"}`)) }
	n := 0
	fresh := func() string { n++; return fmt.Sprint("tk_", n) }
	ended := func(t *testing.T, task string, g *graphv1.Graph, want executorv1.RunState) string {
		t.Helper()
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g, TaskId: task, Labels: map[string]string{"task": task}})
		require.NoError(t, err)
		f.wait(t, r.GetId(), want)
		testkit.Eventually(t, func() bool { return f.registry.settledRun(r.GetId()) })
		return r.GetId()
	}
	started := func(r *executorv1.Run, err error) (string, error) { return r.GetId(), err }
	scheduled := func(s *executorv1.ScheduleStart, err error) (string, error) {
		if err == nil && s.GetRunId() == "" {
			reason, message, _ := strings.Cut(s.GetMessage(), ": ")
			err = errs.New(errs.FailedPrecondition, reason, "%s", message)
		}
		return s.GetRunId(), err
	}
	schedule := func(t *testing.T, task string) string {
		t.Helper()
		id := "s" + task[3:]
		_, err := schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: id, Cron: "0 3 * * *",
			Start: &executorv1.StartRunRequest{Graph: say(), TaskId: task}}})
		require.NoError(t, err)
		return id
	}

	for name, way := range map[string]func(t *testing.T, task string) (begin func() (run string, err error)){
		"StartRun": func(t *testing.T, task string) func() (string, error) {
			return func() (string, error) {
				return started(f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: say(), TaskId: task}))
			}
		},
		"RunAndWait": func(t *testing.T, task string) func() (string, error) {
			return func() (string, error) {
				return started(f.RunAndWait(t.Context(), &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: say(), TaskId: task}}))
			}
		},
		"SignalWithStart": func(t *testing.T, task string) func() (string, error) {
			return func() (string, error) {
				return started(f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "go",
					Start: &executorv1.StartRunRequest{Graph: waits(), TaskId: task, BusinessKey: task}}))
			}
		},
		"BusinessKey/CancelExisting": func(t *testing.T, task string) func() (string, error) {
			_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits(), BusinessKey: task})
			require.NoError(t, err)
			return func() (string, error) {
				return started(f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: say(), TaskId: task, BusinessKey: task,
					ConflictPolicy: executorv1.ConflictPolicy_CONFLICT_POLICY_CANCEL_EXISTING}))
			}
		},
		"RetryRun": func(t *testing.T, task string) func() (string, error) {
			id := ended(t, task, nodes(failsNode()), executorv1.RunState_RUN_STATE_FAILED)
			return func() (string, error) {
				return started(f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: id}))
			}
		},
		"ForkRun": func(t *testing.T, task string) func() (string, error) {
			id := ended(t, task, say(), executorv1.RunState_RUN_STATE_COMPLETED)
			return func() (string, error) {
				return started(f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "say"}}))
			}
		},
		"BulkRetryRuns": func(t *testing.T, task string) func() (string, error) {
			ended(t, task, nodes(failsNode()), executorv1.RunState_RUN_STATE_FAILED)
			return func() (string, error) {
				r, err := f.BulkRetryRuns(t.Context(), &executorv1.BulkRetryRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"task": task}}})
				if len(r.GetFailures()) > 0 {
					return "", errs.New(errs.FailedPrecondition, r.GetFailures()[0].GetReason(), "%s", r.GetFailures()[0].GetMessage())
				}
				if len(r.GetRunIds()) == 0 {
					return "", err
				}
				return r.GetRunIds()[0], err
			}
		},
		"TriggerSchedule": func(t *testing.T, task string) func() (string, error) {
			id := schedule(t, task)
			return func() (string, error) {
				r, err := schedules.TriggerSchedule(t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: id})
				return scheduled(r.GetStart(), err)
			}
		},
		"BackfillSchedule": func(t *testing.T, task string) func() (string, error) {
			id := schedule(t, task)
			return func() (string, error) {
				r, err := schedules.BackfillSchedule(t.Context(), &executorv1.BackfillScheduleRequest{ScheduleId: id,
					BeginTime: timestamppb.New(time.Now().Add(-24 * time.Hour)), EndTime: timestamppb.New(time.Now())})
				if err != nil || len(r.GetStarts()) == 0 {
					return "", err
				}
				return scheduled(r.GetStarts()[0], nil)
			}
		},
	} {
		t.Run(name+"/ClaimsItsTask", func(t *testing.T) {
			f.registry.answer(nil)
			task := fresh()
			begin := way(t, task)
			id, err := begin()
			require.NoError(t, err)
			got, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
			require.NoError(t, err)
			require.Equal(t, task, got.GetTaskId())
			testkit.Eventually(t, func() bool { return f.registry.holder(task) == id || f.registry.settledRun(id) })
		})
		for _, refusal := range []*errs.Error{
			errs.New(errs.FailedPrecondition, "BUDGET_EXHAUSTED", "the epic has spent its budget"), errs.New(errs.FailedPrecondition, "EPIC_NOT_ACTIVE", "the epic is PAUSED"),
			errs.New(errs.FailedPrecondition, "EPIC_ENDED", "the epic is CANCELED"), errs.New(errs.FailedPrecondition, "TASK_NOT_CLAIMABLE", "the task is CANCELED"),
			errs.New(errs.NotFound, "TASK_NOT_FOUND", "there is no such task"),
		} {
			t.Run(name+"/IsRefused/"+refusal.Reason, func(t *testing.T) {
				f.registry.answer(nil)
				task := fresh()
				begin := way(t, task)
				f.registry.answer(refusal)
				defer f.registry.answer(nil)
				before, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{PageSize: 1000})
				require.NoError(t, err)
				_, err = begin()
				require.Equal(t, refusal.Reason, errs.ReasonOf(err), "%v", err)
				after, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{PageSize: 1000})
				require.NoError(t, err)
				require.Len(t, after.GetRuns(), len(before.GetRuns()), "nothing was started, not without the task either")
			})
		}
	}

	t.Run("StartTime/ClaimsAgainWhenItBegins", func(t *testing.T) {
		task := fresh()
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: say(), TaskId: task, StartTime: timestamppb.New(time.Now().Add(3 * time.Second))})
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_PENDING, r.GetState())
		f.registry.answer(errs.New(errs.FailedPrecondition, "EPIC_NOT_ACTIVE", "the epic is PAUSED"))
		defer f.registry.answer(nil)
		f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_CANCELED)
		why := ""
		for _, ev := range f.watch(t, &executorv1.WatchRunRequest{RunId: r.GetId(), DurableOnly: true}) {
			why += ev.String()
		}
		require.Contains(t, why, "EPIC_NOT_ACTIVE")
	})

	t.Run("BusinessKey/ReturnExistingGivesTheClaimBack", func(t *testing.T) {
		task := fresh()
		one, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits(), BusinessKey: task})
		require.NoError(t, err)
		two, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits(), BusinessKey: task, TaskId: task, ConflictPolicy: executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING})
		require.NoError(t, err)
		require.Equal(t, one.GetId(), two.GetId())
		require.Empty(t, f.registry.holder(task))
	})

	t.Run("WithoutTask/IsSaidAndNotAssumed", func(t *testing.T) {
		task := fresh()
		failed := ended(t, task, nodes(failsNode()), executorv1.RunState_RUN_STATE_FAILED)
		f.registry.answer(errs.New(errs.FailedPrecondition, "TASK_NOT_CLAIMABLE", "the task is COMPLETED"))
		defer f.registry.answer(nil)
		_, err := f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: failed})
		require.Contains(t, errs.From(err).HintText(), "without_task")
		r, err := f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: failed, WithoutTask: true})
		require.NoError(t, err)
		require.Empty(t, r.GetTaskId())
		r, err = f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: failed, WithoutTask: true})
		require.NoError(t, err)
		require.Empty(t, r.GetTaskId())
	})

	spawns := func(t *testing.T, more string) *graphv1.Graph {
		t.Helper()
		g, err := json.Marshal(map[string]any{"nodes": []any{map[string]any{"id": "c", "actor": "template", "named": map[string]any{"text": "hi"}}}})
		require.NoError(t, err)
		return nodes(actorNode("spawn", "spawn", `{"runs": [{"graph": `+string(g)+more+`}]}`))
	}
	t.Run("Spawn/WorksUnderTheClaimAbove", func(t *testing.T) {
		task := fresh()
		parent := ended(t, task, spawns(t, ""), executorv1.RunState_RUN_STATE_COMPLETED)
		list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: parent})
		require.NoError(t, err)
		require.Equal(t, task, list.GetRuns()[0].GetTaskId())
		require.False(t, f.registry.settledRun(list.GetRuns()[0].GetId()))
	})
	t.Run("Spawn/ClaimsATaskOfItsOwn", func(t *testing.T) {
		task := fresh()
		parent := ended(t, fresh(), spawns(t, `, "task_id": "`+task+`"`), executorv1.RunState_RUN_STATE_COMPLETED)
		list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: parent})
		require.NoError(t, err)
		testkit.Eventually(t, func() bool { return f.registry.settledRun(list.GetRuns()[0].GetId()) })
	})
	t.Run("Spawn/IsRefusedATaskOfItsOwn", func(t *testing.T) {
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("wait", "signal", `{"name": "go"}`), spawns(t, `, "task_id": "tk_taken"`).GetNodes()[0]), TaskId: fresh()})
		require.NoError(t, err)
		f.registry.answer(errs.New(errs.FailedPrecondition, "EPIC_NOT_ACTIVE", "the epic is PAUSED"))
		defer f.registry.answer(nil)
		_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: r.GetId(), Name: "go"})
		require.NoError(t, err)
		f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		list, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: r.GetId(), NodeId: "spawn"})
		require.NoError(t, err)
		require.Contains(t, string(list.GetVisits()[0].GetValues()[0].GetJson()), "EPIC_NOT_ACTIVE", "the visit is told that its child was refused")
	})
}
