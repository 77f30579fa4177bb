package planner_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// TestLargeValues calls every RPC of the planner with problems and arguments of 3 KB, which come back whole.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	c := client(t)
	request := strings.TrimSpace(strings.Repeat("three kilobytes ", 192))
	value := []byte(`{"big":"` + request + `"}`)
	named := map[string]*graphv1.Payload{"big": {Json: value}}
	text := `{"task_nodes": [{"task": "` + request + `", "arguments": ["` + request + `"]}, {"task": "second"}],
		"task_links": [{"source": "` + request + `", "target": "second"}]}`
	// whole checks a graph of a problem that leads to another.
	whole := func(t *testing.T, r *plannerv1.CompilePlanResponse, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Len(t, r.GetGraph().GetNodes(), 2)
		require.Len(t, r.GetGraph().GetEdges(), 1)
		for _, n := range r.GetGraph().GetNodes() {
			require.JSONEq(t, string(value), string(n.GetNamed()["big"].GetJson()))
		}
		require.Contains(t, r.GetGraph().GetNodes()[0].String(), request)
	}
	t.Run("ParsePlan", func(t *testing.T) {
		t.Parallel()
		r, err := c.ParsePlan(t.Context(), &plannerv1.ParsePlanRequest{Text: text})
		require.NoError(t, err)
		require.Len(t, r.GetGraph().GetProblems(), 2)
		require.Equal(t, request, r.GetGraph().GetProblems()[0].GetRequest())
		require.Len(t, r.GetGraph().GetEdges(), 1)
	})
	t.Run("CompilePlan/Text", func(t *testing.T) {
		t.Parallel()
		r, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Named: named,
			Plan: &plannerv1.CompilePlanRequest_Text{Text: text}})
		whole(t, r, err)
		require.Equal(t, request, r.GetPlan().GetGraph().GetProblems()[0].GetRequest())
	})
	t.Run("CompilePlan/Graph", func(t *testing.T) {
		t.Parallel()
		graph := &planv1.ProblemGraph{Problems: []*planv1.Problem{{Id: "a", Request: request}, {Id: "b", Request: "second"}},
			Edges: []*planv1.ProblemEdge{{From: "a", To: "b"}}}
		r, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Named: named, Plan: &plannerv1.CompilePlanRequest_Graph{Graph: graph}})
		whole(t, r, err)
	})
	t.Run("CompilePlan/ActorOfALargeProblem", func(t *testing.T) {
		t.Parallel()
		r, err := c.CompilePlan(t.Context(), &plannerv1.CompilePlanRequest{Named: named, Actors: map[string]string{request: "template"},
			Plan: &plannerv1.CompilePlanRequest_Text{Text: text}})
		whole(t, r, err)
		require.Equal(t, "template", r.GetGraph().GetNodes()[0].GetActor())
	})
}
