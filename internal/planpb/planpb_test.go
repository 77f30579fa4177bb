package planpb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/planpb"
	"github.com/epigraph-run/epigraph/plan"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
)

func TestGraphRoundTrip(t *testing.T) {
	t.Parallel()
	g := plan.Graph{
		Problems: []plan.Problem{
			{ID: "P", Request: "group", Line: 1, Column: 1},
			{ID: "A", Request: "do it", Details: "with care\n- twice", ParentID: "P", Tool: "search", Line: 2, Column: 3, Args: []plan.Arg{{Name: "n", Kind: plan.Literal, Value: "9007199254740993"}, {Kind: plan.Referring, Value: `"$1"`}}},
			{ID: "B", Refs: []plan.Reference{{Arg: "x", Text: "$1.y", To: "A", Path: "y"}}},
		},
		Edges: []plan.Edge{
			{From: "A", To: "B", Source: plan.Variable, Line: 4, Column: 5},
			{From: "A", To: "B", Source: plan.Stated}, {From: "A", To: "B", Source: plan.Numbering}, {From: "A", To: "B", Source: plan.ListedOrder},
			{From: "A", To: "B", Source: plan.RunningText},
		},
	}
	back, err := planpb.FromGraph(planpb.Graph(g))
	require.NoError(t, err)
	require.Equal(t, g, back)
}

func TestFromGraph(t *testing.T) {
	t.Parallel()
	t.Run("NamesEveryValueThatIsNotJSON", func(t *testing.T) {
		t.Parallel()
		bad := &planv1.Argument{Value: &graphv1.Payload{Json: []byte("{")}}
		_, err := planpb.FromGraph(&planv1.ProblemGraph{Problems: []*planv1.Problem{{Id: "A", Arguments: []*planv1.Argument{bad}}, {Id: "B", Arguments: []*planv1.Argument{bad}}}})
		e := errs.From(err)
		require.Equal(t, errs.InvalidArgument, e.Kind)
		require.Len(t, e.Violations, 2)
		require.Equal(t, "graph.problems[1].arguments[0].value", e.Violations[1].Field)
	})
	t.Run("AnUntoldSourceIsStated", func(t *testing.T) {
		t.Parallel()
		g, err := planpb.FromGraph(&planv1.ProblemGraph{Edges: []*planv1.ProblemEdge{{From: "A", To: "B"}}})
		require.NoError(t, err)
		require.Equal(t, plan.Stated, g.Edges[0].Source)
	})
}

func TestResponse(t *testing.T) {
	t.Parallel()
	t.Run("EdgesOfSentencesSayProse", func(t *testing.T) {
		t.Parallel()
		r := planpb.Response(plan.Parse("First sweep the yard, then paint the fence, and finally invite the guests."))
		require.NotEmpty(t, r.GetGraph().GetEdges())
		for _, e := range r.GetGraph().GetEdges() {
			require.Equal(t, planv1.EdgeSource_EDGE_SOURCE_PROSE, e.GetSource())
		}
	})
	t.Run("NoPlanHasNoGraph", func(t *testing.T) {
		t.Parallel()
		r := planpb.Response(plan.Result{NoPlan: &plan.NoPlan{Reason: plan.Refusal, Message: "the text declines to plan"}})
		require.True(t, r.GetNoPlan())
		require.Equal(t, "REFUSAL", r.GetNoPlanReason())
		require.Equal(t, "the text declines to plan", r.GetNoPlanMessage())
		require.Nil(t, r.GetGraph())
		require.Empty(t, r.GetHash())
	})
	t.Run("CarriesFindings", func(t *testing.T) {
		t.Parallel()
		r := planpb.Response(plan.Result{
			Dialect:      "arrows",
			Diagnostics:  []plan.Diagnostic{{Code: plan.Cycle, Severity: plan.Error, Element: "A"}, {Code: plan.AssumedOrder, Severity: plan.Warning}, {Code: plan.OpenEnd, Severity: plan.Info}},
			Repairs:      []plan.Repair{{Code: plan.ReusedTool}, {Code: plan.FenceRemoved, Applied: true}},
			Surroundings: []plan.LineRange{{First: 2, Last: 5}},
		})
		require.Len(t, r.GetSurroundings(), 1)
		require.Equal(t, []int32{2, 5}, []int32{r.GetSurroundings()[0].GetFirst(), r.GetSurroundings()[0].GetLast()})
		require.Equal(t, planv1.Severity_SEVERITY_ERROR, r.GetDiagnostics()[0].GetSeverity())
		require.Equal(t, planv1.Severity_SEVERITY_WARNING, r.GetDiagnostics()[1].GetSeverity())
		require.Equal(t, planv1.Severity_SEVERITY_INFO, r.GetDiagnostics()[2].GetSeverity())
		require.False(t, r.GetRepairs()[0].GetApplied())
		require.True(t, r.GetRepairs()[1].GetApplied())
		require.Len(t, r.GetHash(), 64)
	})
}
