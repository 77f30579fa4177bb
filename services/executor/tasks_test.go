package executor_test

import (
	"cmp"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

func (b *fakeRegistry) GetTask(_ context.Context, r *registryv1.GetTaskRequest) (*registryv1.Task, error) {
	if b.down.Load() {
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tasks[r.GetTaskId()]; t != nil {
		return t, nil
	}
	return nil, errs.New(errs.NotFound, "TASK_NOT_FOUND", "there is no task")
}

func (b *fakeRegistry) GetEpic(_ context.Context, r *registryv1.GetEpicRequest) (*registryv1.Epic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.epics[r.GetEpicId()]; e != nil {
		return e, nil
	}
	out := &registryv1.Epic{Id: r.GetEpicId(), UserId: "ada"}
	if strings.HasPrefix(r.GetEpicId(), "ep_default") {
		out.WorkflowSlug = "work@1"
	}
	if run, is := strings.CutPrefix(r.GetEpicId(), "ep_by_"); is {
		out.Labels = map[string]string{"created_by_run": run}
	}
	return out, nil
}

// order has the registry hand out an order until it is acknowledged. An order to start stays.
func (b *fakeRegistry) order(kind registryv1.OrderKind, id, task, run, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwanted = append(b.unwanted, &registryv1.Order{Kind: kind, Id: id, Namespace: "acme", TaskId: task, RunId: run, Reason: reason, CreateTime: timestamppb.Now(), Confirmed: run != ""})
}

// start has a task started.
func (b *fakeRegistry) start(t *registryv1.Task) {
	b.mu.Lock()
	if b.tasks == nil {
		b.tasks = map[string]*registryv1.Task{}
	}
	t.State = registryv1.TaskState_TASK_STATE_PENDING
	b.tasks[t.GetId()] = t
	b.mu.Unlock()
	b.order(registryv1.OrderKind_ORDER_KIND_START, "or_"+t.GetId(), t.GetId(), "", "TASK_READY")
}

// refusal waits until the start of a task is refused for good.
func (b *fakeRegistry) refusal(t *testing.T, task string) (out *registryv1.RefusedStart) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, r := range b.refused {
			if r.GetOrder().GetTaskId() == task {
				out = r
			}
		}
		return out != nil
	})
	return out
}

// leases counts how often orders were asked for.
func (b *fakeRegistry) leases() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leased
}

func (c *fakeCatalog) DiscoverWorkflows(_ context.Context, r *registryv1.DiscoverWorkflowsRequest) (*registryv1.DiscoverWorkflowsResponse, error) {
	switch {
	case strings.Contains(r.GetRequirementsJson(), "much"):
		return &registryv1.DiscoverWorkflowsResponse{Matches: []*registryv1.WorkflowMatch{{Slug: "other", Version: 2, MatchScore: 0.94, Missing: []string{"much"}}}}, nil
	case strings.Contains(r.GetRequirementsJson(), "nothing"):
		return &registryv1.DiscoverWorkflowsResponse{}, nil
	}
	return &registryv1.DiscoverWorkflowsResponse{Matches: []*registryv1.WorkflowMatch{{Slug: "work", Version: 1, MatchScore: 0.95}}}, nil
}

// TestTaskStarts starts tasks by orders of the registry, which hands them out again and again.
func TestTaskStarts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		f := serve(t, nil, store)
		f.catalog.triggered = map[string]*registryv1.ResolveWorkflowResponse{
			"work": {Ref: "work@1", Version: 1, Graph: nodes(actorNode("say", "cel", `{"expr": "input.named.title + ', ' + input.named.topic + ', ' + input.named.task_id"}`))},
			"bad":  {Ref: "bad@1", Version: 1, Graph: nodes(actorNode("say", "nobody", `{}`))},
		}
		runs := func(t *testing.T, task string) []*executorv1.Run {
			t.Helper()
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{TaskId: task})
			require.NoError(t, err)
			return list.GetRuns()
		}
		// started waits until the task has a run, and requires that the repeated order starts no other
		// one.
		started := func(t *testing.T, task string) *executorv1.Run {
			t.Helper()
			testkit.Eventually(t, func() bool { return len(runs(t, task)) > 0 })
			from := f.registry.leases()
			testkit.Eventually(t, func() bool { return f.registry.leases() >= from+3 })
			require.Len(t, runs(t, task), 1)
			return f.wait(t, runs(t, task)[0].GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		}
		input := &graphv1.Payload{Json: []byte(`{"topic": "cats"}`)}
		for name, task := range map[string]*registryv1.Task{
			"ByName":         {WorkflowSlug: "work@1"},
			"ByRequirements": {Requirements: value(`{"tools": ["code"]}`)},
			"ByItsEpic":      {EpicId: "ep_default"},
		} {
			t.Run("Workflow/"+name, func(t *testing.T) {
				t.Parallel()
				task.Id, task.EpicId, task.Title, task.Input = "tk_"+name, cmp.Or(task.GetEpicId(), "ep_1"), "Write", input
				f.registry.start(task)
				r := started(t, task.GetId())
				require.JSONEq(t, `"Write, cats, `+task.GetId()+`"`, string(r.GetResult().GetJson()))
				require.Equal(t, "work@1", r.GetWorkflow())
				require.Equal(t, "ada", r.GetUserId())
			})
		}
		for name, task := range map[string]*registryv1.Task{
			"Inline":   {Definition: "name: Own\nsteps:\n  - {id: say, type: transform, template: \"{{ inputs.title }}, {{ inputs.topic }}\"}\nbudget: {tokens: 700}\n"},
			"Graph":    {Definition: `{"name": "Own", "nodes": [{"id": "say", "actor": "cel", "named": {"expr": "input.named.title + ', ' + input.named.topic"}}]}`},
			"Template": {WorkflowSlug: "gone@1", Definition: "name: Own\nsteps:\n  - {id: say, type: transform, template: \"{{ inputs.title }}, {{ inputs.topic }}\"}\n"},
		} {
			t.Run("Definition/"+name, func(t *testing.T) {
				t.Parallel()
				task.Id, task.EpicId, task.Title, task.Input = "tk_"+name, "ep_1", "Write", input
				f.registry.start(task)
				r := started(t, task.GetId())
				require.Contains(t, string(r.GetResult().GetJson()), "Write, cats")
				require.Empty(t, r.GetWorkflow(), "it is none of the catalog")
				if name == "Inline" {
					require.Equal(t, int64(700), r.GetBudget().GetTokens(), "the cap of its author")
				}
			})
		}
		for name, tc := range map[string]struct {
			task           *registryv1.Task
			reason, saying string
		}{
			"BadDefinition":   {&registryv1.Task{Definition: "name: Own\nsteps: []\n"}, "TASK_DEFINITION_INVALID", "epigraph tasks update tk_BadDefinition --definition"},
			"NoWorkflow":      {&registryv1.Task{}, "TASK_WITHOUT_WORKFLOW", "epigraph tasks update tk_NoWorkflow --workflow"},
			"NoMatch":         {&registryv1.Task{Requirements: value(`{"tools": ["much"]}`)}, "NO_WORKFLOW_MATCHES", "the best is other with 0.94, which lacks much"},
			"EmptyCatalog":    {&registryv1.Task{Requirements: value(`{"tools": ["nothing"]}`)}, "NO_WORKFLOW_MATCHES", "there is none in the catalog"},
			"UnknownWorkflow": {&registryv1.Task{WorkflowSlug: "gone"}, "WORKFLOW_NOT_FOUND", "gone"},
			"UnknownActor":    {&registryv1.Task{WorkflowSlug: "bad@1"}, "GRAPH_INVALID", ""},
		} {
			t.Run("Refused/"+name, func(t *testing.T) {
				t.Parallel()
				tc.task.Id, tc.task.EpicId = "tk_"+name, "ep_1"
				f.registry.start(tc.task)
				got := f.registry.refusal(t, tc.task.GetId())
				require.Equal(t, tc.reason, got.GetReason(), "%s", got.GetMessage())
				require.Equal(t, "or_"+tc.task.GetId(), got.GetOrder().GetId())
				require.Contains(t, got.GetMessage(), tc.saying)
				require.Empty(t, runs(t, tc.task.GetId()))
			})
		}
	})
}

// TestChainsGoOnThroughTasks has runs that a trigger started, and those that follow them, make tasks of which
// an epic that runs by itself starts the runs.
func TestChainsGoOnThroughTasks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		f := serve(t, nil, store)
		f.catalog.stands("work@1", 1)
		f.catalog.stands("after", 1, `{"id": "w", "type": "workflow", "workflow": "work", "on": "ended"}`)
		after := f.activate(t, "after")["w"]
		// heard is the delivery of the end of a run.
		heard := func(t *testing.T, run string) (out *executorv1.TriggerDelivery) {
			t.Helper()
			testkit.Eventually(t, func() bool {
				for _, d := range f.delivered(t, after, 1) {
					if d.GetEventId() == run {
						out = d
					}
				}
				return out != nil
			})
			return out
		}
		// ofTask is the run of a task.
		ofTask := func(t *testing.T, task *registryv1.Task) (run string) {
			t.Helper()
			task.WorkflowSlug = "work@1"
			f.registry.start(task)
			testkit.Eventually(t, func() bool {
				list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{TaskId: task.GetId()})
				if err == nil && len(list.GetRuns()) > 0 {
					run = list.GetRuns()[0].GetId()
				}
				return run != ""
			})
			return run
		}
		by := func(run string) map[string]string { return map[string]string{"created_by_run": run} }
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Workflow: "work@1"})
		require.NoError(t, err)
		first := heard(t, r.GetId())
		require.EqualValues(t, 1, first.GetDepth())
		run := ofTask(t, &registryv1.Task{Id: "tk_1", EpicId: "ep_1", Labels: by(first.GetRunId())})
		require.EqualValues(t, 2, heard(t, run).GetDepth(), "the run of a task of a run that a trigger started")
		next := ofTask(t, &registryv1.Task{Id: "tk_2", EpicId: "ep_1", Labels: by(run)})
		require.EqualValues(t, 2, heard(t, next).GetDepth(), "the run of a task of the run of such a task")
		next = ofTask(t, &registryv1.Task{Id: "tk_3", EpicId: "ep_by_" + heard(t, next).GetRunId()})
		require.EqualValues(t, 3, heard(t, next).GetDepth(), "the run of a task in an epic of a run that a trigger started")
		next = ofTask(t, &registryv1.Task{Id: "tk_4", EpicId: "ep_1"})
		require.EqualValues(t, 1, heard(t, next).GetDepth(), "the run of a task that no run made")
	})
}

// TestTaskStartsRefusedByTheRegistry has the registry refuse the claims of all tasks.
func TestTaskStartsRefusedByTheRegistry(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	f.catalog.triggered = map[string]*registryv1.ResolveWorkflowResponse{"work": {Ref: "work@1", Version: 1, Graph: nodes(actorNode("say", "cel", `{"expr": "1"}`))}}
	t.Run("Later/ComesAgainUntilItStarts", func(t *testing.T) {
		for _, reason := range []string{"EPIC_NOT_ACTIVE", "TASK_NOT_CLAIMABLE", "DATABASE_BUSY"} {
			kind := errs.FailedPrecondition
			if reason == "DATABASE_BUSY" {
				kind = errs.Unavailable
			}
			f.registry.set(errs.New(kind, reason, "not now"))
			f.registry.start(&registryv1.Task{Id: "tk_" + reason, EpicId: "ep_1", WorkflowSlug: "work@1"})
			from := f.registry.leases()
			testkit.Eventually(t, func() bool { return f.registry.leases() >= from+3 })
			f.registry.mu.Lock()
			require.Empty(t, f.registry.refused)
			f.registry.mu.Unlock()
			f.registry.set(nil)
			testkit.Eventually(t, func() bool {
				list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{TaskId: "tk_" + reason})
				require.NoError(t, err)
				return len(list.GetRuns()) == 1
			})
		}
	})
	t.Run("Budget/IsToldToTheRegistry", func(t *testing.T) {
		f.registry.set(errs.New(errs.FailedPrecondition, "BUDGET_EXHAUSTED", "all is spent"))
		f.registry.start(&registryv1.Task{Id: "tk_budget", EpicId: "ep_1", WorkflowSlug: "work@1"})
		require.Equal(t, "BUDGET_EXHAUSTED", f.registry.refusal(t, "tk_budget").GetReason())
	})
}

// TestPauseOrders pauses and resumes runs by orders of the registry.
func TestPauseOrders(t *testing.T) {
	t.Parallel()
	const paused, waiting = executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_WAITING
	const pause, resume = registryv1.OrderKind_ORDER_KIND_PAUSE, registryv1.OrderKind_ORDER_KIND_RESUME
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		f := serve(t, nil, store)
		begin := func(t *testing.T, task string) string {
			t.Helper()
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{TaskId: task, Graph: nodes(actorNode("wait", "signal", `{"name": "go"}`))})
			require.NoError(t, err)
			f.wait(t, r.GetId(), waiting)
			return r.GetId()
		}
		// do has an order carried out.
		do := func(t *testing.T, kind registryv1.OrderKind, id, task, run string) {
			t.Helper()
			reason := "EPIC_PAUSED"
			if kind == resume {
				reason = "EPIC_RESUMED"
			}
			f.registry.order(kind, id, task, run, reason)
			testkit.Eventually(t, func() bool { return f.registry.wanted(run) })
		}
		t.Run("Pause/StopsTheRunAndResumeContinuesIt", func(t *testing.T) {
			t.Parallel()
			id := begin(t, "tk_1")
			for _, round := range []string{"1", "2"} {
				do(t, pause, "or_p"+round, "tk_1", id)
				require.Equal(t, "EPIC_PAUSED", f.wait(t, id, paused).GetStateReason())
				x, err := f.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: id})
				require.NoError(t, err)
				require.Contains(t, x.GetBlockers()[0].GetHint(), "epics resume EPIC")
				do(t, resume, "or_r"+round, "tk_1", id)
				f.wait(t, id, waiting)
			}
		})
		t.Run("Pause/RepeatedAfterAResumeDoesNothing", func(t *testing.T) {
			t.Parallel()
			id := begin(t, "tk_2")
			do(t, pause, "or_p", "tk_2", id)
			f.wait(t, id, paused)
			_, err := f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: id})
			require.NoError(t, err)
			f.wait(t, id, waiting)
			do(t, pause, "or_p", "tk_2", id)
			f.wait(t, id, waiting)
		})
		t.Run("Resume/LeavesThePauseOfSomebodyElse", func(t *testing.T) {
			t.Parallel()
			id := begin(t, "tk_3")
			_, err := f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: id, Reason: "mine"})
			require.NoError(t, err)
			f.wait(t, id, paused)
			do(t, pause, "or_p", "tk_3", id)
			do(t, resume, "or_r", "tk_3", id)
			require.Equal(t, "mine", f.wait(t, id, paused).GetStateReason())
		})
		t.Run("Order/ToARunThatIsGoneOrHasEndedIsDone", func(t *testing.T) {
			t.Parallel()
			id := begin(t, "tk_4")
			_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: id})
			require.NoError(t, err)
			f.wait(t, id, executorv1.RunState_RUN_STATE_CANCELED)
			for _, kind := range []registryv1.OrderKind{pause, resume} {
				do(t, kind, "or_x"+kind.String(), "tk_4", id)
				do(t, kind, "or_y"+kind.String(), "tk_gone", "run_gone")
			}
		})
	})
}
