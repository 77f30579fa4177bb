package executor_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// fakeCatalog has the versions of one workflow, `welcome`, in namespace acme.
type fakeCatalog struct {
	registryv1.UnimplementedWorkflowServiceServer
	mu   sync.Mutex
	down bool
	keys []string
	// triggered are what references to workflows with triggers stand for.
	triggered map[string]*registryv1.ResolveWorkflowResponse
}

func (c *fakeCatalog) set(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *fakeCatalog) ResolveWorkflow(ctx context.Context, r *registryv1.ResolveWorkflowRequest) (*registryv1.ResolveWorkflowResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	if r.GetTriggers() {
		if v := c.triggered[r.GetRef()]; v != nil && grpckit.Namespace(ctx) == "acme" {
			return v, nil
		}
		return nil, errs.New(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", r.GetRef())
	}
	c.keys = append(c.keys, r.GetRef()+" "+r.GetKey())
	for _, v := range c.triggered {
		if v.GetRef() == r.GetRef() && v.GetGraph() != nil {
			return v, nil
		}
	}
	if r.GetRef() == "welcome@3" {
		return &registryv1.ResolveWorkflowResponse{Ref: "welcome@3", Version: 3, Graph: nodes(actorNode("say", "cel", `{"expr": "int(input.named.who)"}`))}, nil
	}
	switch r.GetRef() { // one that asks a model and runs another one, which asks it, too
	case "welcome@4":
		return &registryv1.ResolveWorkflowResponse{Ref: "welcome@4", Version: 4, Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"}, actorNode("b", "spawn", `{"ref": "workflow/welcome@5"}`))}, nil
	case "welcome@6": // one whose actor no executor has
		return &registryv1.ResolveWorkflowResponse{Ref: "welcome@6", Version: 6, Graph: nodes(&graphv1.Node{Id: "a", Actor: "nobody"})}, nil
	case "welcome@5":
		return &registryv1.ResolveWorkflowResponse{Ref: "welcome@5", Version: 5, Graph: nodes(&graphv1.Node{Id: "a", Actor: "model"})}, nil
	}
	text := map[string]string{"welcome@1": `"hello {{ named.who }}"`, "welcome@2": `"hi {{ named.who }}"`, "welcome": `"hi {{ named.who }}"`, "welcome@prod": `"hello {{ named.who }}"`}[r.GetRef()]
	if text == "" || grpckit.Namespace(ctx) != "acme" {
		return nil, errs.New(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", r.GetRef())
	}
	version := int64(2)
	if strings.Contains(text, "hello") {
		version = 1
	}
	tokens := int64(1000)
	return &registryv1.ResolveWorkflowResponse{
		Ref: map[int64]string{1: "welcome@1", 2: "welcome@2"}[version], Version: version, BudgetTokens: &tokens,
		Graph: &graphv1.Graph{Name: "welcome", Nodes: []*graphv1.Node{{Id: "say", Actor: "template", Named: map[string]*graphv1.Payload{"text": {Json: []byte(text)}}}}},
	}, nil
}

// RecordChanges implements registryv1.RegistryServiceServer.
func (b *fakeRegistry) RecordChanges(_ context.Context, r *registryv1.RecordChangesRequest) (*registryv1.RecordChangesResponse, error) {
	if b.down.Load() {
		return nil, errs.New(errs.Unavailable, "DOWN", "down")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changes = append(b.changes, r.GetRuns()...)
	b.threads = append(b.threads, r.GetThreads()...)
	return &registryv1.RecordChangesResponse{}, nil
}

// changesOf are the changes of a run that the registry was told.
func (b *fakeRegistry) changesOf(run string) (out []*registryv1.RunChange) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.changes {
		if c.GetRunId() == run {
			out = append(out, c)
		}
	}
	return out
}

// ended waits until the registry was told of the end of a run.
func (f *fixture) ended(t *testing.T, run string) *registryv1.RunChange {
	t.Helper()
	var out *registryv1.RunChange
	testkit.Eventually(t, func() bool {
		for _, c := range f.registry.changesOf(run) {
			if c.GetKind() == registryv1.RunChangeKind_RUN_CHANGE_KIND_ENDED {
				out = c
			}
		}
		return out != nil
	})
	return out
}

func who(name string) map[string]*graphv1.Payload {
	return map[string]*graphv1.Payload{"who": {Json: []byte(`"` + name + `"`)}}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	completed := executorv1.RunState_RUN_STATE_COMPLETED
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{"model": model("priced", false)}, store)
		start := func(r *executorv1.StartRunRequest) (*executorv1.Run, error) { return f.StartRun(t.Context(), r) }
		t.Run("Start/ByName", func(t *testing.T) {
			for ref, want := range map[string][2]string{"welcome": {"welcome@2", `"hi ada"`}, "welcome@1": {"welcome@1", `"hello ada"`}, "welcome@prod": {"welcome@1", `"hello ada"`}, "workflow/welcome@2": {"welcome@2", `"hi ada"`}} {
				r, err := start(&executorv1.StartRunRequest{Workflow: ref, Named: who("ada"), UserId: "u1"})
				require.NoError(t, err)
				require.Equal(t, want[0], r.GetWorkflow(), "the version is pinned")
				require.EqualValues(t, 1000, r.GetBudget().GetTokens(), "the budget of the workflow")
				r = f.wait(t, r.GetId(), completed)
				require.JSONEq(t, want[1], string(r.GetResult().GetJson()))
				end := f.ended(t, r.GetId())
				require.Equal(t, want[0], end.GetWorkflow())
				require.Equal(t, registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED, end.GetOutcome())
			}
			require.Contains(t, f.catalog.keys, "welcome@prod u1", "the user chooses among the versions of an alias")
		})
		t.Run("Start/TheSmallerBudgetHolds", func(t *testing.T) {
			for mine, want := range map[int64]int64{500: 500, 5000: 1000} {
				usd := int64(7)
				r, err := start(&executorv1.StartRunRequest{Workflow: "welcome@1", Named: who("ada"), Budget: &executorv1.RunBudget{Tokens: &mine, NanoUsd: &usd}})
				require.NoError(t, err)
				require.Equal(t, want, r.GetBudget().GetTokens())
				require.Equal(t, usd, r.GetBudget().GetNanoUsd(), "the workflow has no such cap")
			}
		})
		t.Run("Start/AThreadDrawsItsVersionOnce", func(t *testing.T) {
			_, err := start(&executorv1.StartRunRequest{Workflow: "welcome@prod", Named: who("ada"), Thread: &executorv1.Thread{Key: "talk"}})
			require.NoError(t, err)
			f.catalog.mu.Lock()
			defer f.catalog.mu.Unlock()
			require.Contains(t, f.catalog.keys, "welcome@prod talk")
		})
		t.Run("End/CountsTheWholeTreeOnce", func(t *testing.T) {
			r, err := start(&executorv1.StartRunRequest{Workflow: "welcome@4"})
			require.NoError(t, err)
			f.wait(t, r.GetId(), completed)
			l, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.GetId()})
			require.NoError(t, err)
			used := func(run string) []int64 {
				u := f.ended(t, run).GetUsage()
				return []int64{u.GetCostNanoUsd(), u.GetTokens()}
			}
			require.Equal(t, []int64{140, 26}, used(r.GetId()), "with what the run below it used")
			require.Equal(t, []int64{70, 13}, used(l.GetRuns()[0].GetId()), "a workflow of its own")
			whole := f.wait(t, r.GetId(), completed)
			require.Equal(t, whole.GetEndTime().AsTime().Sub(whole.GetStartTime().AsTime()), f.ended(t, r.GetId()).GetDuration().AsDuration(), "for forecasts")
		})
		t.Run("Start/FailedRunsCountAsFailed", func(t *testing.T) {
			r, err := start(&executorv1.StartRunRequest{Workflow: "welcome@3", Named: who("ada")})
			require.NoError(t, err)
			f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_FAILED)
			require.Equal(t, registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED, f.ended(t, r.GetId()).GetOutcome())
		})
		t.Run("Start/Refused", func(t *testing.T) {
			_, err := start(&executorv1.StartRunRequest{Workflow: "nothing"})
			require.Equal(t, "WORKFLOW_NOT_FOUND", errs.ReasonOf(err), "got %v", err)
			_, err = start(&executorv1.StartRunRequest{})
			require.ErrorContains(t, err, "nothing to start")
			_, err = start(&executorv1.StartRunRequest{Workflow: "welcome", Graph: nodes(actorNode("a", "template", `{"text": "x"}`))})
			require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		})
		t.Run("Start/IsRepeatable", func(t *testing.T) {
			a, err := start(&executorv1.StartRunRequest{Workflow: "welcome", Named: who("ada"), RequestId: "r"})
			require.NoError(t, err)
			b, err := start(&executorv1.StartRunRequest{Workflow: "welcome", Named: who("ada"), RequestId: "r"})
			require.NoError(t, err)
			require.Equal(t, a.GetId(), b.GetId())
			_, err = start(&executorv1.StartRunRequest{Workflow: "welcome@1", Named: who("ada"), RequestId: "r"})
			require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		})
		t.Run("Start/BySignal", func(t *testing.T) {
			r, err := f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "s", Start: &executorv1.StartRunRequest{Workflow: "welcome@1", Named: who("ada"), BusinessKey: "signaled"}})
			require.NoError(t, err)
			require.Equal(t, "welcome@1", r.GetWorkflow())
			_, err = f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "s", Start: &executorv1.StartRunRequest{BusinessKey: "signaled"}})
			require.ErrorContains(t, err, "nothing to start")
		})
		t.Run("Start/AnOpenRunIsFoundThoughItsWorkflowIsNot", func(t *testing.T) {
			g := nodes(actorNode("w", "signal", `{"name": "go", "timeout": "1h"}`))
			open, err := start(&executorv1.StartRunRequest{Graph: g, BusinessKey: "open"})
			require.NoError(t, err)
			gone := &executorv1.StartRunRequest{Workflow: "gone@1", BusinessKey: "open", ConflictPolicy: executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING}
			r, err := start(gone)
			require.NoError(t, err)
			require.Equal(t, open.GetId(), r.GetId())
			asked := proto.CloneOf(gone)
			asked.RequestId = "asked"
			r, err = start(asked)
			require.NoError(t, err)
			require.Equal(t, open.GetId(), r.GetId())
			_, err = start(&executorv1.StartRunRequest{Workflow: "gone@1", BusinessKey: "open"})
			require.Equal(t, "WORKFLOW_NOT_FOUND", errs.ReasonOf(err), "another policy starts a run: %v", err)
			signal := func() (*executorv1.Run, error) {
				return f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "go", Start: &executorv1.StartRunRequest{Workflow: "gone@1", BusinessKey: "open", RequestId: "once"}})
			}
			for range 2 {
				r, err = signal()
				require.NoError(t, err)
				require.Equal(t, open.GetId(), r.GetId())
			}
			f.wait(t, open.GetId(), completed)
			r, err = signal()
			require.NoError(t, err, "the same request has the same answer when the run has ended")
			require.Equal(t, open.GetId(), r.GetId())
			_, err = start(gone)
			require.Equal(t, "WORKFLOW_NOT_FOUND", errs.ReasonOf(err), "the key is free: %v", err)
			asked.Workflow = "gone@1"
			r, err = start(asked)
			require.NoError(t, err, "the answer is kept with the request")
			require.Equal(t, open.GetId(), r.GetId())
			other := proto.CloneOf(asked)
			other.BusinessKey = "free"
			_, err = start(other)
			require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err), "got %v", err)
			_, err = f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "go", Start: &executorv1.StartRunRequest{Workflow: "gone@1", BusinessKey: "open"}})
			require.Equal(t, "WORKFLOW_NOT_FOUND", errs.ReasonOf(err), "%v", err)
		})
		t.Run("Children/ByNumber", func(t *testing.T) {
			child := func(ref string, want executorv1.RunState) *executorv1.Run {
				r, err := start(&executorv1.StartRunRequest{Graph: nodes(actorNode("d", "spawn", `{"ref": "`+ref+`", "input": {"named": {"who": "ada"}}}`))})
				require.NoError(t, err)
				return f.wait(t, r.GetId(), want)
			}
			r := child("workflow/welcome@2", completed)
			l, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.GetId()})
			require.NoError(t, err)
			require.Len(t, l.GetRuns(), 1)
			require.Equal(t, "welcome@2", l.GetRuns()[0].GetWorkflow())
			require.Equal(t, "welcome@2", f.ended(t, l.GetRuns()[0].GetId()).GetWorkflow())
		})
		t.Run("Children/ByAlias", func(t *testing.T) {
			g := nodes(actorNode("s", "spawn", `{"ref": "workflow/welcome@prod", "as_result": true, "input": {"named": {"who": "ada"}}}`))
			for user, key := range map[string]string{"u7": "u7", "": ""} {
				r, err := start(&executorv1.StartRunRequest{Graph: g, UserId: user})
				require.NoError(t, err)
				r = f.wait(t, r.GetId(), completed)
				require.JSONEq(t, `"hello ada"`, string(r.GetResult().GetJson()))
				l, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.GetId()})
				require.NoError(t, err)
				require.Equal(t, "welcome@1", l.GetRuns()[0].GetWorkflow(), "the child is pinned to the version")
				require.Equal(t, "welcome@1", f.ended(t, l.GetRuns()[0].GetId()).GetWorkflow(), "the history is that of the version")
				f.catalog.mu.Lock()
				require.Contains(t, f.catalog.keys, "welcome@prod "+cmp.Or(key, r.GetId()), "the user chooses, or else the root run")
				f.catalog.mu.Unlock()
			}
		})
		t.Run("Children/WithoutActors", func(t *testing.T) {
			r, err := start(&executorv1.StartRunRequest{Graph: nodes(actorNode("s", "spawn", `{"ref": "workflow/welcome@6"}`))})
			require.NoError(t, err)
			r = f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_FAILED)
			require.Equal(t, "CHILD_INVALID", r.GetError().GetReason())
			require.Contains(t, r.GetError().GetMessage(), "nobody")
		})
		t.Run("Children/OfNoAlias", func(t *testing.T) {
			r, err := start(&executorv1.StartRunRequest{Graph: nodes(actorNode("s", "spawn", `{"ref": "workflow/welcome@none"}`))})
			require.NoError(t, err)
			r = f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_FAILED)
			require.Equal(t, "WORKFLOW_NOT_FOUND", r.GetError().GetReason())
		})
	})
}

func TestCatalogAway(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	start := func(ref string) (*executorv1.Run, error) {
		return f.StartRun(t.Context(), &executorv1.StartRunRequest{Workflow: ref, Named: who("ada")})
	}
	_, err := start("welcome@2")
	require.NoError(t, err)
	f.catalog.set(true)
	f.registry.down.Store(true)
	r, err := start("welcome@2")
	require.NoError(t, err, "a version that is known goes on without the registry")
	f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	for _, ref := range []string{"welcome@1", "welcome", "welcome@prod"} {
		_, err = start(ref)
		require.Equal(t, "CATALOG_UNREACHABLE", errs.ReasonOf(err), "got %v", err)
	}
	f.catalog.set(false)
	f.registry.down.Store(false)
	require.Equal(t, "welcome@2", f.ended(t, r.GetId()).GetWorkflow(), "the end is told once the registry is back")
}

// changesInWords are the changes of a run that the registry was told, once there are so many.
func (f *fixture) changesInWords(t *testing.T, run string, n int) (out []string) {
	t.Helper()
	testkit.Eventually(t, func() bool { return len(f.registry.changesOf(run)) >= n })
	seq := int64(0)
	for _, c := range f.registry.changesOf(run) {
		require.Greater(t, c.GetSeq(), seq, "in the order of the run")
		require.False(t, c.GetChangeTime().AsTime().Before(time.Now().Add(-time.Hour)))
		seq = c.GetSeq()
		what := strings.TrimPrefix(c.GetKind().String(), "RUN_CHANGE_KIND_")
		for _, s := range []string{c.GetWorkflow(), c.GetReason()} {
			if s != "" {
				what += " " + s
			}
		}
		if c.GetParentRunId() != "" {
			what += " below"
		}
		if c.GetUsage() != nil {
			what += fmt.Sprint(" ", c.GetUsage().GetTokens())
		}
		out = append(out, what)
	}
	return out
}

// TestRunChanges finds what the registry is told of runs: all of roots and of runs of workflows.
func TestRunChanges(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{"model": model("priced", false)}, store)
		t.Run("Root/OfAGraph", func(t *testing.T) {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "template", `{"text": "x"}`))})
			require.NoError(t, err)
			require.Equal(t, []string{"STARTED", "ENDED 0"}, f.changesInWords(t, r.GetId(), 2))
			end := f.ended(t, r.GetId())
			whole := f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			require.Equal(t, whole.GetEndTime().AsTime().Sub(whole.GetStartTime().AsTime()), end.GetDuration().AsDuration())
			require.Equal(t, registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED, end.GetOutcome())
		})
		t.Run("Root/ThatIsPausedAndCanceled", func(t *testing.T) {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "human", `{"prompt": "?"}`))})
			require.NoError(t, err)
			_, err = f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: r.GetId(), Reason: "LUNCH"})
			require.NoError(t, err)
			f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_PAUSED)
			_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: r.GetId(), Reason: "LATE"})
			require.NoError(t, err)
			got := f.changesInWords(t, r.GetId(), 4)
			require.Equal(t, []string{"STARTED", "PAUSED LUNCH"}, got[:2])
			require.Contains(t, got[2], "RESUMED")
			require.Equal(t, "ENDED CANCEL_REQUESTED 0", got[3])
		})
		t.Run("Task/ItsEpicAndItsWorkflowAreTold", func(t *testing.T) {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Workflow: "welcome@2", TaskId: "tk_told", Named: who("ada")})
			require.NoError(t, err)
			f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			end := f.ended(t, r.GetId())
			for _, c := range f.registry.changesOf(r.GetId()) {
				require.Equal(t, []string{"tk_told", "ep_of_tk_told"}, []string{c.GetTaskId(), c.GetEpicId()})
			}
			whole := f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			require.Equal(t, []any{whole.GetNodes().GetTotal(), whole.GetNodes().GetCompleted(), whole.GetUsage().GetCalls()},
				[]any{end.GetActivitySummary().GetTotalNodes(), end.GetActivitySummary().GetCompletedNodes(), end.GetActivitySummary().GetCalls()})
			require.Positive(t, end.GetActivitySummary().GetCompletedNodes())
			require.Equal(t, whole.GetEndTime().AsTime().Sub(whole.GetStartTime().AsTime()), end.GetActivitySummary().GetDuration().AsDuration())
			f.registry.mu.Lock()
			defer f.registry.mu.Unlock()
			told := map[string]string{}
			for _, c := range f.registry.confirmed {
				told["confirm "+c.GetTaskId()] = c.GetRunId() + " " + c.GetWorkflow()
			}
			for _, s := range f.registry.settled {
				told["settle "+s.GetTaskId()] = s.GetRunId() + " " + s.GetWorkflow()
			}
			want := r.GetId() + " welcome@2"
			require.Equal(t, []string{want, want}, []string{told["confirm tk_told"], told["settle tk_told"]})
		})
		t.Run("Root/ThatIsAmendedAndDeleted", func(t *testing.T) {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "human", `{"prompt": "?"}`), actorNode("b", "template", `{"text": "x"}`))})
			require.NoError(t, err)
			_, err = f.AmendRun(t.Context(), &executorv1.AmendRunRequest{RunId: r.GetId(), Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{actorNode("c", "template", `{"text": "y"}`)}}})
			require.NoError(t, err)
			f.changesInWords(t, r.GetId(), 2)
			_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: r.GetId(), Reason: "LATE"})
			require.NoError(t, err)
			f.ended(t, r.GetId()) // what a deleted run used is not known any more
			_, err = f.DeleteRun(t.Context(), &executorv1.DeleteRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			got := f.changesInWords(t, r.GetId(), 4)
			require.Equal(t, []string{"STARTED", "AMENDED", "ENDED CANCEL_REQUESTED 0", "DELETED"}, got)
			require.EqualValues(t, 1, f.registry.changesOf(r.GetId())[3].GetRuns())
		})
		t.Run("Below/OfAWorkflowAlone", func(t *testing.T) {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(
				actorNode("a", "spawn", `{"ref": "workflow/welcome@5"}`),
				actorNode("b", "spawn", `{"graph": {"nodes": [{"id": "x", "actor": "template", "named": {"text": "y"}}]}}`))})
			require.NoError(t, err)
			f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			f.ended(t, r.GetId())
			l, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.GetId()})
			require.NoError(t, err)
			require.Len(t, l.GetRuns(), 2)
			for _, child := range l.GetRuns() {
				if child.GetWorkflow() == "" {
					require.Empty(t, f.registry.changesOf(child.GetId()), "it is a part of the run above")
					continue
				}
				require.Equal(t, []string{"STARTED welcome@5 below", "ENDED welcome@5 below 13"}, f.changesInWords(t, child.GetId(), 2))
			}
		})
	})
}
