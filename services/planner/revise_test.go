package planner_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// begun is a run whose first of two nodes has ended.
func begun(t *testing.T, c plannerv1.PlannerServiceClient) *plannerv1.RevisePlanRequest {
	t.Helper()
	r, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: `[{"id": "find", "request": "Find a flight", "needs": []}, {"id": "pick", "request": "Pick one", "needs": ["find"]}]`}})
	require.NoError(t, err)
	return &plannerv1.RevisePlanRequest{
		RunId: "run_1", ExpectedRevision: 3, Graph: r.GetGraph(), Goal: "Fly to Oslo", Context: "There is a strike.", Tools: []*plannerv1.PlanTool{searchTool()},
		Visits: []*executorv1.Visit{
			{NodeId: "find", State: executorv1.VisitState_VISIT_STATE_FAILED, Error: &executorv1.RunError{Reason: "GONE", Message: "no flights"}},
			{NodeId: "pick", State: executorv1.VisitState_VISIT_STATE_HELD},
		},
	}
}

func TestRevisePlan(t *testing.T) {
	t.Parallel()
	const (
		better = "[\n{\"id\": \"train\", \"request\": \"Find a train\", \"tool\": \"search\", \"args\": {\"q\": \"trains\"}, \"needs\": [\"find\"]},\n{\"id\": \"pick\", \"request\": \"Pick one\", \"needs\": [\"find\", \"train\"]}\n]"
		again  = `[{"id": "find", "request": "Find a flight again", "needs": []}]`
	)
	t.Run("AnswersWithAnAmendment", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(better), nil, nil)
		req := begun(t, c)
		req.DefaultActor, req.Named = "agent", map[string]*graphv1.Payload{"team": {Json: []byte(`"north"`)}}
		r, err := c.RevisePlan(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_COMPLETE, r.GetAuthoring().GetEnd())
		a := r.GetAmendment()
		require.Equal(t, "run_1", a.GetRunId())
		require.EqualValues(t, 3, a.GetExpectedRevision())
		require.Empty(t, a.GetPatch().GetRemoveNodes())
		require.Len(t, a.GetPatch().GetPutNodes(), 1)
		require.Equal(t, "search", a.GetPatch().GetPutNodes()[0].GetActor())
		require.Equal(t, `"north"`, string(a.GetPatch().GetPutNodes()[0].GetNamed()["team"].GetJson()))
		require.Len(t, a.GetPatch().GetAddEdges(), 2)
		require.Len(t, r.GetGraph().GetNodes(), 3)
		require.Len(t, r.GetPlan().GetGraph().GetProblems(), 2)
		told := fake.Requests()[0].Messages[1].Content
		for _, want := range []string{"There is a strike.", "- \"find\": Find a flight\n  FAILED: GONE: no flights", `{"id":"pick","request":"Pick one","tool":"llm","needs":["find"]}`, "- search: Searches"} {
			require.Contains(t, told, want)
		}
	})
	t.Run("WhatHasBegunIsToldBack", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, answers(again, better), nil, nil)
		r, err := c.RevisePlan(t.Context(), begun(t, c))
		require.NoError(t, err)
		require.NotNil(t, r.GetAmendment())
		require.Contains(t, fake.Requests()[1].Messages[3].Content, `TASK_BEGUN "find"`)
	})
	t.Run("EndsWithoutAnAmendment", func(t *testing.T) {
		t.Parallel()
		c, _ := writing(t, answers(again), nil, nil)
		r, err := c.RevisePlan(t.Context(), begun(t, c))
		require.NoError(t, err)
		require.Nil(t, r.GetAmendment())
		require.Nil(t, r.GetGraph())
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_NO_PROGRESS, r.GetAuthoring().GetEnd())
	})
	t.Run("NothingIsLeft", func(t *testing.T) {
		t.Parallel()
		c, _ := writing(t, answers("```json\n[]\n```"), nil, nil)
		r, err := c.RevisePlan(t.Context(), begun(t, c))
		require.NoError(t, err)
		require.Equal(t, []string{"pick"}, r.GetAmendment().GetPatch().GetRemoveNodes())
	})
	t.Run("BadRequestsAreRefused", func(t *testing.T) {
		t.Parallel()
		c, fake := writing(t, fakellm.Script{}, nil, nil)
		for reason, change := range map[string]func(*plannerv1.RevisePlanRequest){
			"UNKNOWN_NODE":    func(r *plannerv1.RevisePlanRequest) { r.Visits[0].NodeId = "look" },
			"UNKNOWN_PROFILE": func(r *plannerv1.RevisePlanRequest) { r.Profile = "nobody" },
			"TOOLS_INVALID":   func(r *plannerv1.RevisePlanRequest) { r.Tools = append(r.Tools, searchTool()) },
			"GRAPH_INVALID": func(r *plannerv1.RevisePlanRequest) {
				r.Graph.Nodes[0].Named["x"] = &graphv1.Payload{Json: []byte("{")}
			},
		} {
			req := begun(t, c)
			change(req)
			_, err := c.RevisePlan(t.Context(), req)
			require.Equal(t, reason, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.InvalidArgument), "got %v", err)
		}
		require.Empty(t, fake.Requests())
	})
}
