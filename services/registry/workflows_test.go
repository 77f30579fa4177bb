package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
)

const letter = `name: Letter
version: first
tags: [mail]
description: Writes a letter.
steps:
  - {id: text, type: transform, template: "Dear {{ inputs.name }}"}
  - {id: say, type: reply_chat, message: "{{ text }}"}
`

func TestWorkflows(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T) registry.Config{
		"sqlite": sqliteConfig,
		"postgres": func(t *testing.T) registry.Config {
			cfg := registry.DefaultConfig()
			cfg.Store, cfg.PostgresURL, cfg.MaxConns = "postgres", conf.NewSecret(pgtest.New(t)), 4
			return cfg
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{}, nil)
			conn := dial("")
			c := registryv1.NewWorkflowServiceClient(conn)
			t.Run("RunsInTheFeed", func(t *testing.T) {
				t.Parallel()
				runsInTheFeed(t, grpckit.WithNamespace(t.Context(), "runs"), c, registryv1.NewRegistryServiceClient(conn))
			})
			t.Run("ThreadsInTheFeed", func(t *testing.T) {
				t.Parallel()
				threadsInTheFeed(t, grpckit.WithNamespace(t.Context(), "threads"), registryv1.NewRegistryServiceClient(conn))
			})
			for name, run := range map[string]func(*testing.T, context.Context, registryv1.WorkflowServiceClient){
				"Life": func(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient) {
					workflowLife(t, ctx, c, registryv1.NewRegistryServiceClient(conn))
				}, "Faults": workflowFaults, "Pages": workflowPages, "Fork": workflowFork, "Discover": workflowDiscover,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					run(t, grpckit.WithNamespace(t.Context(), strings.ToLower(name)), c)
				})
			}
		})
	}
}

func workflowLife(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient, r registryv1.RegistryServiceClient) {
	w, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter, RequestId: "r"})
	require.NoError(t, err)
	again, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter, RequestId: "r"})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(w, again, protocmp.Transform()))
	require.Equal(t, []any{"letter", int64(1), int32(3), []string{"mail"}, registryv1.WorkflowState_WORKFLOW_STATE_ACTIVE},
		[]any{w.GetSlug(), w.GetLatestVersion(), w.GetSize().GetNodes(), w.GetTags(), w.GetState()})
	require.Nil(t, w.GetHistory().SuccessRate, "nothing has run")

	second := strings.Replace(letter, "Dear", "Hello", 1)
	v, err := c.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: "letter", Source: second, Etag: w.GetEtag()})
	require.NoError(t, err)
	require.Equal(t, []any{"letter", int64(2), "first", second}, []any{v.GetWorkflow(), v.GetVersion(), v.GetLabel(), v.GetSource()})
	got, err := c.GetWorkflowVersion(ctx, &registryv1.GetWorkflowVersionRequest{Workflow: w.GetId(), Version: 2})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(v, got, protocmp.Transform()))

	_, err = c.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: "letter", Source: second, Version: 7})
	require.Contains(t, requireError(t, err, errs.AlreadyExists, "WORKFLOW_VERSION_TAKEN").Message, "as version 2")
	_, err = c.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: "letter", Source: second, Version: 2})
	require.NoError(t, err, "it is that version")

	_, err = c.SetWorkflowAlias(ctx, &registryv1.SetWorkflowAliasRequest{Workflow: "letter", Alias: "prod", Versions: []*registryv1.WorkflowWeight{{Version: 1}}})
	require.NoError(t, err)
	for ref, want := range map[string]int64{"letter": 2, "letter@1": 1, "letter@prod": 1, "workflow/letter@2": 2, w.GetId(): 2} {
		got, err := c.ResolveWorkflow(ctx, &registryv1.ResolveWorkflowRequest{Ref: ref})
		require.NoError(t, err)
		require.Equal(t, []any{want, fmt.Sprint("letter@", want), 3}, []any{got.GetVersion(), got.GetRef(), len(got.GetGraph().GetNodes())}, ref)
	}
	for _, ref := range []string{"@1", "letter@", "letter@0", "letter@01", "letter@99999999999999999999"} {
		_, err := c.ResolveWorkflow(ctx, &registryv1.ResolveWorkflowRequest{Ref: ref})
		requireError(t, err, errs.InvalidArgument, "WORKFLOW_REF_INVALID")
	}
	ended := registryv1.RunChangeKind_RUN_CHANGE_KIND_ENDED
	n, err := r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Runs: []*registryv1.RunChange{
		{RunId: "run_1", Seq: 3, Kind: ended, Workflow: "letter@1", Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED},
		{RunId: "run_2", Seq: 3, Kind: ended, Workflow: "letter@2", Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED},
		{RunId: "run_3", Seq: 3, Kind: ended, Workflow: "letter@2", Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_CANCELED},
	}})
	require.NoError(t, err)
	require.Equal(t, int32(3), n.GetRecorded())
	w, err = c.GetWorkflow(ctx, &registryv1.GetWorkflowRequest{Workflow: "letter"})
	require.NoError(t, err)
	rate := 0.5
	require.Empty(t, cmp.Diff(&registryv1.WorkflowHistory{Completed: 1, Failed: 1, Canceled: 1, SuccessRate: &rate}, w.GetHistory(), protocmp.Transform()))
	for range 2 { // told twice
		_, err = r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Runs: []*registryv1.RunChange{
			{RunId: "run_4", Seq: 3, Kind: ended, Workflow: "letter@2", Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED, Usage: &registryv1.WorkflowRunUsage{CostNanoUsd: 5, Tokens: 7},
				Duration: durationpb.New(1500 * time.Millisecond)},
		}})
		require.NoError(t, err)
	}
	forecast, err := c.ForecastWorkflow(ctx, &registryv1.ForecastWorkflowRequest{Ref: "letter"})
	require.NoError(t, err)
	require.NotEmpty(t, forecast.GetNotes())
	forecast.Notes = nil
	amount := func(n int64) *registryv1.ForecastAmount { return &registryv1.ForecastAmount{P50: &n, P90: &n, Runs: 1} }
	require.Empty(t, cmp.Diff(&registryv1.WorkflowForecast{Ref: "letter@2", Basis: registryv1.ForecastBasis_FORECAST_BASIS_HISTORY, Runs: 2, FailedRuns: 1,
		CostNanoUsd: amount(5), Tokens: amount(7), DurationMs: amount(1500)}, forecast, protocmp.Transform()))
	_, err = c.ForecastWorkflow(ctx, &registryv1.ForecastWorkflowRequest{Ref: "letter@"})
	requireError(t, err, errs.InvalidArgument, "WORKFLOW_REF_INVALID")
	_, err = c.ForecastWorkflow(ctx, &registryv1.ForecastWorkflowRequest{Ref: strings.Repeat("x", 300)})
	require.Error(t, err, "a reference is bounded")
	w, err = c.GetWorkflow(ctx, &registryv1.GetWorkflowRequest{Workflow: "letter"})
	require.NoError(t, err)
	require.Equal(t, []int64{5, 7}, []int64{w.GetHistory().GetNanoUsd(), w.GetHistory().GetTokens()}, "what all runs below it used, too")

	_, err = c.DeprecateWorkflow(ctx, &registryv1.DeprecateWorkflowRequest{Workflow: "letter", Message: "x", Undo: true})
	requireError(t, err, errs.InvalidArgument, "FIELD_NOT_USED")
	_, err = c.ExposeWorkflow(ctx, &registryv1.ExposeWorkflowRequest{Workflow: "letter", Version: "1", Undo: true})
	requireError(t, err, errs.InvalidArgument, "FIELD_NOT_USED")
	w, err = c.ExposeWorkflow(ctx, &registryv1.ExposeWorkflowRequest{Workflow: "letter", Version: "1", RequestId: "expose"})
	require.NoError(t, err)
	require.Equal(t, "1", w.GetExposed())
	exposed, err := c.ListWorkflows(ctx, &registryv1.ListWorkflowsRequest{Exposed: true})
	require.NoError(t, err)
	require.Len(t, exposed.GetWorkflows(), 1)
	_, err = c.DeleteWorkflow(ctx, &registryv1.DeleteWorkflowRequest{Workflow: "letter", Etag: w.GetEtag()})
	require.NoError(t, err)
	_, err = c.ResolveWorkflow(ctx, &registryv1.ResolveWorkflowRequest{Ref: "letter@1"})
	requireError(t, err, errs.NotFound, "WORKFLOW_NOT_FOUND")
}

// runsInTheFeed tells changes of runs twice, as an outbox may, and finds each once in the feed.
func runsInTheFeed(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient, r registryv1.RegistryServiceClient) {
	_, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter})
	require.NoError(t, err)
	record := func(list ...*registryv1.RunChange) []int32 {
		var out []int32
		for range 2 {
			n, err := r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Runs: list})
			require.NoError(t, err)
			out = append(out, n.GetRecorded())
		}
		return out
	}
	const started, paused, resumed, ended = registryv1.RunChangeKind_RUN_CHANGE_KIND_STARTED, registryv1.RunChangeKind_RUN_CHANGE_KIND_PAUSED,
		registryv1.RunChangeKind_RUN_CHANGE_KIND_RESUMED, registryv1.RunChangeKind_RUN_CHANGE_KIND_ENDED
	at := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	require.Equal(t, []int32{2, 0}, record(&registryv1.RunChange{RunId: "run_1", Workflow: "letter@1", Seq: 1, Kind: started, ChangeTime: at},
		&registryv1.RunChange{RunId: "run_2", Seq: 1, Kind: started, ParentRunId: "run_1"}))
	require.Equal(t, []int32{1, 0}, record(&registryv1.RunChange{RunId: "run_1", Workflow: "letter@1", Seq: 4, Kind: paused, Reason: "WHY"}))
	require.Equal(t, []int32{1, 0}, record(&registryv1.RunChange{RunId: "run_1", Workflow: "letter@1", Seq: 4, Kind: paused, Reason: "WHY"},
		&registryv1.RunChange{RunId: "run_1", Workflow: "letter@1", Seq: 5, Kind: resumed, Reason: "WHY"}), "a repetition with something new behind it")
	require.Equal(t, []int32{1, 0}, record(&registryv1.RunChange{RunId: "run_3", Workflow: "nobody@1", Seq: 6, Kind: resumed}), "of a workflow that is gone")
	require.Equal(t, []int32{2, 0}, record(
		&registryv1.RunChange{RunId: "run_1", Workflow: "letter@1", Seq: 9, Kind: ended, Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED, Reason: "BAD", Usage: &registryv1.WorkflowRunUsage{CostNanoUsd: 5, Tokens: 7}},
		&registryv1.RunChange{RunId: "run_2", Seq: 3, Kind: ended, Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED}))
	require.Equal(t, []int32{0, 0}, record())

	all := &registryv1.ListEventsRequest{Kinds: []string{"run_started", "run_paused", "run_resumed", "run_ended"}}
	list := func(req *registryv1.ListEventsRequest) (out []string) {
		page, err := r.ListEvents(ctx, req)
		require.NoError(t, err)
		for _, e := range page.GetEvents() {
			m := e.ProtoReflect()
			kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
			x, ok := m.Get(kind).Message().Interface().(*registryv1.RunChanged)
			if !ok {
				out = append(out, string(kind.Name()))
				continue
			}
			require.Equal(t, x.GetRunId(), e.GetCausedByRunId())
			out = append(out, fmt.Sprintf("%s %s %s<%s> %d %s %d", kind.Name(), x.GetRunId(), x.GetWorkflow(), x.GetParentRunId(), x.GetOutcome(), x.GetReason(), x.GetUsage().GetTokens()))
		}
		return out
	}
	of1 := []string{"run_started run_1 letter@1<> 0  0", "run_paused run_1 letter@1<> 0 WHY 0", "run_resumed run_1 letter@1<> 0 WHY 0", "run_ended run_1 letter@1<> 2 BAD 7"}
	of2 := []string{"run_started run_2 <run_1> 0  0", "run_ended run_2 <> 1  0"}
	require.Equal(t, []string{of1[0], of2[0], of1[1], of1[2], "run_resumed run_3 nobody@1<> 0  0", of1[3], of2[1]}, list(all))
	require.Equal(t, of1, list(&registryv1.ListEventsRequest{WorkflowSlug: "letter", Kinds: all.Kinds}))
	require.Equal(t, of1, list(&registryv1.ListEventsRequest{RunId: "run_1"}))
	require.Equal(t, of2, list(&registryv1.ListEventsRequest{RunId: "run_2"}))
	first, err := r.ListEvents(ctx, &registryv1.ListEventsRequest{RunId: "run_1", PageSize: 1})
	require.NoError(t, err)
	require.Equal(t, at.AsTime(), first.GetEvents()[0].GetRunStarted().GetChangeTime().AsTime())

	require.Equal(t, []int32{4, 0}, record(&registryv1.RunChange{RunId: "run_4", Seq: 1, Kind: started, TaskId: "tk_1", EpicId: "ep_1"},
		&registryv1.RunChange{RunId: "run_4", Seq: 2, Kind: registryv1.RunChangeKind_RUN_CHANGE_KIND_AMENDED, TaskId: "tk_1", EpicId: "ep_1"},
		&registryv1.RunChange{RunId: "run_4", Seq: 3, Kind: ended, Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_FAILED, TaskId: "tk_1", EpicId: "ep_1",
			ActivitySummary: &registryv1.RunActivity{TotalNodes: 4, CompletedNodes: 2, FailedNodes: 1, SkippedNodes: 1, Calls: 5, Duration: durationpb.New(time.Second)}},
		&registryv1.RunChange{RunId: "run_4", Seq: 4, Kind: registryv1.RunChangeKind_RUN_CHANGE_KIND_DELETED, TaskId: "tk_1", EpicId: "ep_1", Runs: 3}))
	ofEpic := &registryv1.ListEventsRequest{EpicId: "ep_1"}
	require.Equal(t, []string{"run_started run_4 <> 0  0", "run_amended run_4 <> 0  0", "run_ended run_4 <> 2  0", "run_deleted run_4 <> 0  0"}, list(ofEpic))
	page, err := r.ListEvents(ctx, ofEpic)
	require.NoError(t, err)
	require.Equal(t, []string{"ep_1", "tk_1"}, []string{page.GetEvents()[0].GetEpicId(), page.GetEvents()[0].GetRunStarted().GetTaskId()})
	require.Empty(t, cmp.Diff(&registryv1.RunActivity{TotalNodes: 4, CompletedNodes: 2, FailedNodes: 1, SkippedNodes: 1, Calls: 5, Duration: durationpb.New(time.Second)},
		page.GetEvents()[2].GetRunEnded().GetActivitySummary(), protocmp.Transform()))
	require.EqualValues(t, 3, page.GetEvents()[3].GetRunDeleted().GetRuns())

	refuse := func(reason string, change *registryv1.RunChange) {
		change.RunId, change.Seq = "run_9", 1
		_, err := r.RecordChanges(ctx, &registryv1.RecordChangesRequest{Runs: []*registryv1.RunChange{change}})
		requireError(t, err, errs.InvalidArgument, reason)
	}
	refuse("WORKFLOW_REF_INVALID", &registryv1.RunChange{Workflow: "letter", Kind: started})
	refuse("OUTCOME_MISSING", &registryv1.RunChange{Kind: ended})
	refuse("TIME_INVALID", &registryv1.RunChange{Kind: started, ChangeTime: &timestamppb.Timestamp{Seconds: 1 << 60}})
	require.Empty(t, list(&registryv1.ListEventsRequest{RunId: "run_9"}))
}

func workflowFaults(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient) {
	const bad = "name: x\nsteps:\n  - {id: a, type: nope}\n  - {id: b, type: reply_chat}\n  - {id: c, type: reply_chat, message: \"{{ nobody }}\"}\nmore: 1\n"
	v, err := c.ValidateWorkflow(ctx, &registryv1.ValidateWorkflowRequest{Source: bad})
	require.NoError(t, err)
	require.False(t, v.GetValid())
	require.GreaterOrEqual(t, len(v.GetFaults()), 3)
	_, err = c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: bad})
	e := requireError(t, err, errs.InvalidArgument, "WORKFLOW_INVALID")
	require.Len(t, e.Violations, len(v.GetFaults()))
	for i, f := range v.GetFaults() {
		require.Equal(t, f.GetCode(), e.Violations[i].Reason)
		require.Equal(t, fmt.Sprintf("%d:%d %s", f.GetLine(), f.GetColumn(), f.GetPath()), e.Violations[i].Field)
		require.Contains(t, e.Violations[i].Message, f.GetMessage())
		require.Contains(t, e.Violations[i].Message, f.GetHint())
	}
	v, err = c.ValidateWorkflow(ctx, &registryv1.ValidateWorkflowRequest{Source: letter})
	require.NoError(t, err)
	require.True(t, v.GetValid())
	require.Equal(t, "Letter", v.GetName())
	l, err := c.ListWorkflows(ctx, &registryv1.ListWorkflowsRequest{})
	require.NoError(t, err)
	require.Empty(t, l.GetWorkflows(), "validation keeps nothing")
	_, err = c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter, Slug: "../x"})
	require.Error(t, err, "a reference is bounded")
	_, err = c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: strings.Repeat("a", 1<<20+1)})
	require.Error(t, err, "a reference is bounded")
}

func workflowPages(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient) {
	for i := range 5 {
		_, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter})
		require.NoError(t, err)
		if i > 0 {
			_, err = c.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: "letter", Source: fmt.Sprintf("%s# %d\n", letter, i)})
			require.NoError(t, err)
		}
	}
	var slugs []string
	for token := ""; ; {
		r, err := c.ListWorkflows(ctx, &registryv1.ListWorkflowsRequest{PageSize: 2, PageToken: token, Tags: []string{"mail"}})
		require.NoError(t, err)
		for _, w := range r.GetWorkflows() {
			slugs = append(slugs, w.GetSlug())
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, []string{"letter-5", "letter-4", "letter-3", "letter-2", "letter"}, slugs)
	var numbers []int64
	for token := ""; ; {
		r, err := c.ListWorkflowVersions(ctx, &registryv1.ListWorkflowVersionsRequest{Workflow: "letter", PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, v := range r.GetVersions() {
			require.Empty(t, v.GetSource())
			numbers = append(numbers, v.GetVersion())
		}
		if token = r.GetNextPageToken(); token == "" {
			break
		}
		_, err = c.ListWorkflowVersions(ctx, &registryv1.ListWorkflowVersionsRequest{Workflow: "letter-2", PageToken: token})
		requireError(t, err, errs.InvalidArgument, page.ReasonMismatch)
	}
	require.Equal(t, []int64{5, 4, 3, 2, 1}, numbers)
}

func workflowDiscover(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient) {
	_, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter})
	require.NoError(t, err)
	want := &registryv1.WorkflowMatch{
		Slug: "letter", Name: "Letter", Description: "Writes a letter.", Tags: []string{"mail"}, MatchScore: 0.55, Recommendation: "fork_and_patch",
		HasCapabilities: &registryv1.WorkflowCapabilities{NodeTypes: []string{"reply_chat"}}, MissingCapabilities: &registryv1.WorkflowCapabilities{Tools: []string{"http"}},
		ExtraCapabilities: &registryv1.WorkflowCapabilities{Triggers: []string{"manual"}, NodeTypes: []string{"transform"}}, SuccessRate: 0.5, Version: 1,
		Has: []string{"reply_chat"}, Missing: []string{"http"}, Extra: []string{"manual", "transform"},
	}
	for _, req := range []*registryv1.DiscoverWorkflowsRequest{
		{Requirements: &registryv1.WorkflowRequirements{NodeTypes: []string{"reply_chat"}, Tools: []string{"http"}}},
		{RequirementsJson: `{"node_type": "reply_chat", "tools": ["http"]}`},
	} {
		r, err := c.DiscoverWorkflows(ctx, req)
		require.NoError(t, err)
		require.Equal(t, int64(1), r.GetTotalSearched())
		require.Len(t, r.GetMatches(), 1)
		require.Empty(t, cmp.Diff(want, r.GetMatches()[0], protocmp.Transform(), protocmp.IgnoreFields(want, "workflow_id")))
	}
	_, err = c.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{RequirementsJson: `{"tols": 1, "tags": {}}`})
	require.Len(t, requireError(t, err, errs.InvalidArgument, "REQUIREMENTS_INVALID").Violations, 2)
	_, err = c.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{RequirementsJson: "{}", Requirements: &registryv1.WorkflowRequirements{}})
	requireError(t, err, errs.InvalidArgument, "FIELD_NOT_USED")

	for range 6 {
		_, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter})
		require.NoError(t, err)
	}
	found := func() (slugs []string, total int64) {
		r, err := c.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{RequirementsJson: `{"node_types": ["reply_chat"]}`})
		require.NoError(t, err)
		for _, m := range r.GetMatches() {
			slugs = append(slugs, m.GetSlug())
		}
		return slugs, r.GetTotalSearched()
	}
	slugs, total := found()
	require.Len(t, slugs, 5, "as many as are told if nobody says")
	require.Equal(t, int64(7), total)
	_, err = c.DeprecateWorkflow(ctx, &registryv1.DeprecateWorkflowRequest{Workflow: slugs[0], Message: "old"})
	require.NoError(t, err)
	_, err = c.DeleteWorkflow(ctx, &registryv1.DeleteWorkflowRequest{Workflow: slugs[1]})
	require.NoError(t, err)
	left, total := found()
	require.Equal(t, int64(5), total, "neither is looked at")
	require.NotContains(t, left, slugs[0])
	require.NotContains(t, left, slugs[1])
	_, err = c.DeprecateWorkflow(ctx, &registryv1.DeprecateWorkflowRequest{Workflow: slugs[0], Undo: true})
	require.NoError(t, err)
	_, total = found()
	require.Equal(t, int64(6), total)
}

func workflowFork(t *testing.T, ctx context.Context, c registryv1.WorkflowServiceClient) {
	_, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter})
	require.NoError(t, err)
	const document = "based_on: letter\npatches:\n  - {action: update_config, step_id: text, config: {template: Hello}}\n"
	w, err := c.ForkWorkflow(ctx, &registryv1.ForkWorkflowRequest{Source: document, RequestId: "r"})
	require.NoError(t, err)
	require.Equal(t, []string{"letter-fork", "Letter (fork)", "letter@1"}, []string{w.GetSlug(), w.GetName(), w.GetForkedFrom()})
	again, err := c.ForkWorkflow(ctx, &registryv1.ForkWorkflowRequest{Source: document, RequestId: "r"})
	require.NoError(t, err)
	require.Equal(t, w.GetId(), again.GetId())
	base, err := c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: letter, Slug: "base"})
	require.NoError(t, err)
	fork := &registryv1.ForkWorkflowRequest{Source: strings.Replace(document, "letter", "base", 1), Slug: "of-base", RequestId: "s"}
	w, err = c.ForkWorkflow(ctx, fork)
	require.NoError(t, err)
	_, err = c.DeleteWorkflow(ctx, &registryv1.DeleteWorkflowRequest{Workflow: "base"})
	require.NoError(t, err)
	again, err = c.ForkWorkflow(ctx, fork)
	require.NoError(t, err, "what it is based on is not needed to answer again")
	require.Equal(t, w.GetId(), again.GetId())
	require.Equal(t, "base@1", w.GetForkedFrom())
	require.Equal(t, base.GetId()+"@1", again.GetForkedFrom(), "the slug may be that of another workflow some day")
	l, err := c.ListWorkflows(ctx, &registryv1.ListWorkflowsRequest{})
	require.NoError(t, err)
	of := map[string]string{}
	for _, w := range l.GetWorkflows() {
		of[w.GetSlug()] = w.GetForkedFrom()
	}
	require.Equal(t, map[string]string{"letter": "", "letter-fork": "letter@1", "of-base": base.GetId() + "@1"}, of)
	_, err = c.DeleteWorkflow(ctx, &registryv1.DeleteWorkflowRequest{Workflow: "of-base"})
	require.NoError(t, err)
	d, err := c.DiffWorkflowVersions(ctx, &registryv1.DiffWorkflowVersionsRequest{From: "letter@1", To: "letter-fork"})
	require.NoError(t, err)
	require.Equal(t, []string{"letter@1", "letter-fork@1"}, []string{d.GetFrom(), d.GetTo()})
	var paths []string
	for _, x := range d.GetChanges() {
		paths = append(paths, x.GetKind()+" "+x.GetPath())
	}
	require.Equal(t, []string{"changed name", "changed steps.text.template"}, paths)
	require.Contains(t, d.GetText(), "text")

	bad := document + "  - {action: remove_step, step_id: nobody}\n  - {action: update_prompt, step_id: say, prompt: x}\n"
	_, err = c.ForkWorkflow(ctx, &registryv1.ForkWorkflowRequest{Source: bad})
	require.NotEmpty(t, requireError(t, err, errs.InvalidArgument, "WORKFLOW_INVALID").Violations)
	_, err = c.ForkWorkflow(ctx, &registryv1.ForkWorkflowRequest{Source: "based_on: nothing\npatches: []\n"})
	require.True(t, errs.Is(err, errs.NotFound) || errs.Is(err, errs.InvalidArgument), "got %v", err)
	l, err = c.ListWorkflows(ctx, &registryv1.ListWorkflowsRequest{})
	require.NoError(t, err)
	require.Len(t, l.GetWorkflows(), 2, "whole or not at all")
	_, err = c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: `{"nodes":[{"id":"a","actor":"cel"}],"edges":[{"from":"a","to":"nobody"}]}`, Form: registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH, Slug: "bad"})
	require.Contains(t, requireError(t, err, errs.InvalidArgument, "WORKFLOW_INVALID").Violations[0].Message, "nobody", "a graph that nobody could run")

	_, err = c.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: `{"nodes":[{"id":"a","actor":"cel","named":{"expr":"1"}}]}`, Form: registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH, Slug: "graph"})
	require.NoError(t, err)
	_, err = c.DiffWorkflowVersions(ctx, &registryv1.DiffWorkflowVersionsRequest{From: "letter", To: "graph"})
	requireError(t, err, errs.FailedPrecondition, "WORKFLOW_IS_A_GRAPH")
}
