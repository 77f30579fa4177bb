package executor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// said is a node that results in a text.
func said(id, text string) *graphv1.Node {
	return &graphv1.Node{Id: id, Actor: "does", Named: map[string]*graphv1.Payload{"text": value(`"` + text + `"`)}}
}

func compared(t *testing.T, f steering, req *executorv1.CompareRunsRequest) *executorv1.CompareRunsResponse {
	t.Helper()
	c, err := f.CompareRuns(t.Context(), req)
	require.NoError(t, err)
	return c
}

// visitsOf names the visits of a comparison with what differs.
func visitsOf(c *executorv1.CompareRunsResponse) (out []string) {
	for _, v := range c.GetVisits() {
		out = append(out, v.GetNodeId()+": "+strings.Join(v.GetDifferences(), ","))
	}
	return out
}

func TestCompareRuns(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		first := f.begin(t, nodes(said("a", "one"), said("b", "two"), said("c", "three")))
		run{t, f, &executorv1.Run{Id: first}}.is(completed)
		forked, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: first, Visit: &executorv1.VisitRef{NodeId: "b"},
			Named: map[string]*graphv1.Payload{"text": value(`"zwei"`)}})
		require.NoError(t, err)
		fork := forked.GetId()
		run{t, f, forked}.is(completed)
		other, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(said("a", "one"), said("x", "nine")),
			Named: map[string]*graphv1.Payload{"city": value(`"Rome"`)}})
		require.NoError(t, err)
		run{t, f, other}.is(completed)

		t.Run("Fork/ItsOriginByDefault", func(t *testing.T) {
			c := compared(t, f, &executorv1.CompareRunsRequest{RunId: fork})
			require.Equal(t, []string{first, fork}, []string{c.GetBase().GetId(), c.GetRun().GetId()})
			require.Equal(t, []string{"b: values,arguments"}, visitsOf(c))
			require.EqualValues(t, 2, c.GetSameVisits())
			require.EqualValues(t, 1, c.GetDifferentVisits())
		})
		t.Run("Graph/NamesTheArgument", func(t *testing.T) {
			c := compared(t, f, &executorv1.CompareRunsRequest{RunId: fork})
			require.False(t, c.GetGraph().GetSame())
			require.Len(t, c.GetGraph().GetChangedNodes(), 1)
			require.Equal(t, []string{"named.text"}, c.GetGraph().GetChangedNodes()[0].GetFields())
			require.EqualValues(t, 1, c.GetGraph().GetDifferences())
		})
		t.Run("First/HasTheValuesOfBoth", func(t *testing.T) {
			d := compared(t, f, &executorv1.CompareRunsRequest{RunId: fork}).GetFirstDifference()
			require.Equal(t, "b", d.GetNodeId())
			require.JSONEq(t, `"two"`, string(d.GetBase().GetValues()[0].GetJson()))
			require.JSONEq(t, `"zwei"`, string(d.GetRun().GetValues()[0].GetJson()))
			require.NotZero(t, d.GetRun().GetEndTime())
		})
		t.Run("AllVisits/ThoseThatAreTheSameToo", func(t *testing.T) {
			c := compared(t, f, &executorv1.CompareRunsRequest{RunId: fork, AllVisits: true})
			require.Len(t, c.GetVisits(), 3)
			require.Contains(t, visitsOf(c), "a: ")
		})
		t.Run("Others/NodesEdgesInputAndResult", func(t *testing.T) {
			c := compared(t, f, &executorv1.CompareRunsRequest{RunId: other.GetId(), BaseRunId: first})
			require.Equal(t, []string{"x"}, c.GetGraph().GetAddedNodes())
			require.ElementsMatch(t, []string{"b", "c"}, c.GetGraph().GetRemovedNodes())
			require.Equal(t, []string{"a -> x"}, c.GetGraph().GetAddedEdges())
			require.ElementsMatch(t, []string{"a -> b", "b -> c"}, c.GetGraph().GetRemovedEdges())
			require.Equal(t, []string{"named.city"}, c.GetInputFields())
			require.True(t, c.GetResultDiffers())
			require.JSONEq(t, `"three"`, string(c.GetBaseResult().GetJson()))
			require.JSONEq(t, `"nine"`, string(c.GetRunResult().GetJson()))
			require.Equal(t, []string{"x: presence", "b: presence", "c: presence"}, visitsOf(c))
			require.Nil(t, c.GetVisits()[1].GetRun())
		})
		t.Run("Pages/HaveEachVisitOnce", func(t *testing.T) {
			var seen []string
			req := &executorv1.CompareRunsRequest{RunId: other.GetId(), BaseRunId: first, PageSize: 1, AllVisits: true}
			for n := 0; ; n++ {
				c := compared(t, f, req)
				require.Equal(t, n == 0, c.GetRun() != nil)
				seen = append(seen, visitsOf(c)...)
				if req.PageToken = c.GetNextPageToken(); req.GetPageToken() == "" {
					break
				}
			}
			require.Equal(t, []string{"a: ", "x: presence", "b: presence", "c: presence"}, seen)
		})
		t.Run("Loop/EachVisitByItself", func(t *testing.T) {
			loop := func(last string) string {
				g := nodes(&graphv1.Node{Id: "n", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"visit < 3 ? string(visit) : '` + last + `'"`)}})
				g.Edges = append(g.Edges, &graphv1.Edge{From: "n", To: "n", Kind: graphv1.EdgeKind_EDGE_KIND_BACK, When: "visit < 3"})
				return f.begin(t, g)
			}
			one, two := loop("x"), loop("y")
			run{t, f, &executorv1.Run{Id: one}}.is(completed)
			run{t, f, &executorv1.Run{Id: two}}.is(completed)
			c := compared(t, f, &executorv1.CompareRunsRequest{RunId: two, BaseRunId: one, AllVisits: true})
			require.Equal(t, []string{"n: arguments", "n: arguments", "n: values,arguments"}, visitsOf(c))
			require.EqualValues(t, 3, c.GetVisits()[2].GetVisit())
		})
		for _, c := range []struct {
			name, reason string
			req          *executorv1.CompareRunsRequest
		}{
			{"NoFork", "BASE_RUN_NEEDED", &executorv1.CompareRunsRequest{RunId: first}},
			{"Itself", "SAME_RUN", &executorv1.CompareRunsRequest{RunId: first, BaseRunId: first}},
			{"Unknown", "RUN_NOT_FOUND", &executorv1.CompareRunsRequest{RunId: first, BaseRunId: "run_none"}},
			{"TokenOfAnother", "PAGE_TOKEN_MISMATCH", &executorv1.CompareRunsRequest{RunId: fork, PageToken: tokenOf(t, f, other.GetId(), first)}},
		} {
			t.Run("Refused/"+c.name, func(t *testing.T) {
				_, err := f.CompareRuns(t.Context(), c.req)
				require.Equal(t, c.reason, errs.ReasonOf(err), err)
			})
		}
	})
}

func tokenOf(t *testing.T, f steering, id, base string) string {
	t.Helper()
	return compared(t, f, &executorv1.CompareRunsRequest{RunId: id, BaseRunId: base, PageSize: 1}).GetNextPageToken()
}
