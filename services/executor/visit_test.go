package executor_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func TestGetVisit(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		f.calls.fail["bad"] = true
		pass := said("a", "one")
		pass.ResultPassDownMode = &graphv1.PassDown{Mode: &graphv1.PassDown_Key{Key: "draft"}}
		items := &graphv1.Node{Id: "each", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"args[0] * 2"`)}, Map: &graphv1.Map{Over: "[4, 5]"}}
		child := actorNode("child", "spawn", `{"graph": {"nodes": [{"id": "x", "actor": "cel", "named": {"expr": "1"}}]}}`)
		id := f.begin(t, nodes(pass, said("b", "two"), items, child, said("bad", "no")))
		run{t, f, &executorv1.Run{Id: id}}.is(executorv1.RunState_RUN_STATE_FAILED)
		get := func(t *testing.T, req *executorv1.GetVisitRequest) *executorv1.GetVisitResponse {
			t.Helper()
			req.RunId = id
			v, err := f.GetVisit(t.Context(), req)
			require.NoError(t, err)
			return v
		}
		t.Run("Arguments/OwnOnesAndThoseThatWerePassedOn", func(t *testing.T) {
			v := get(t, &executorv1.GetVisitRequest{NodeId: "b"})
			require.True(t, v.GetArgumentsKnown())
			require.JSONEq(t, `"two"`, string(v.GetNamed()["text"].GetJson()))
			require.JSONEq(t, `"one"`, string(v.GetNamed()["draft"].GetJson()))
			require.JSONEq(t, `"two"`, string(v.GetVisit().GetValues()[0].GetJson()))
		})
		t.Run("Item/HasItsOwn", func(t *testing.T) {
			v := get(t, &executorv1.GetVisitRequest{NodeId: "each", Item: 2})
			require.JSONEq(t, `5`, string(v.GetArgs()[0].GetJson()))
			require.Len(t, v.GetAttempts(), 1)
			require.EqualValues(t, 2, v.GetAttempts()[0].GetItem())
		})
		t.Run("Map/AttemptsOfAllItems", func(t *testing.T) {
			v := get(t, &executorv1.GetVisitRequest{NodeId: "each"})
			var of []int32
			for _, a := range v.GetAttempts() {
				of = append(of, a.GetItem())
			}
			slices.Sort(of)
			require.Equal(t, []int32{1, 2}, of)
		})
		t.Run("Attempts/HaveErrorAndTimes", func(t *testing.T) {
			a := get(t, &executorv1.GetVisitRequest{NodeId: "bad"}).GetAttempts()
			require.Len(t, a, 1)
			require.Equal(t, "REFUSED", a[0].GetError().GetReason())
			require.EqualValues(t, 1, a[0].GetAttempt())
			require.NotNil(t, a[0].GetStartTime())
			require.NotNil(t, a[0].GetEndTime())
			require.Equal(t, "does", a[0].GetActor())
		})
		t.Run("Children/OfAVisitThatHasEnded", func(t *testing.T) {
			v := get(t, &executorv1.GetVisitRequest{NodeId: "child"})
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: id})
			require.NoError(t, err)
			require.Equal(t, []string{list.GetRuns()[0].GetId()}, v.GetChildRunIds())
		})
		t.Run("Attempts/APageAtATime", func(t *testing.T) {
			one := get(t, &executorv1.GetVisitRequest{NodeId: "each", PageSize: 1})
			require.Len(t, one.GetAttempts(), 1)
			two := get(t, &executorv1.GetVisitRequest{NodeId: "each", PageSize: 1, PageToken: one.GetNextPageToken()})
			require.Len(t, two.GetAttempts(), 1)
			require.NotEqual(t, one.GetAttempts()[0].GetItem(), two.GetAttempts()[0].GetItem())
			require.Empty(t, two.GetNextPageToken())
		})
		t.Run("Unknown/IsRefused", func(t *testing.T) {
			for _, req := range []*executorv1.GetVisitRequest{{RunId: id, NodeId: "none"}, {RunId: id, NodeId: "b", Visit: 2}} {
				_, err := f.GetVisit(t.Context(), req)
				require.Equal(t, "VISIT_NOT_FOUND", errs.ReasonOf(err), err)
			}
		})
		t.Run("Graph/ItsShapeAlone", func(t *testing.T) {
			g, err := f.GetRunGraph(t.Context(), &executorv1.GetRunGraphRequest{RunId: id, View: executorv1.GraphView_GRAPH_VIEW_SHAPE})
			require.NoError(t, err)
			require.Len(t, g.GetGraph().GetNodes(), 5)
			require.Len(t, g.GetGraph().GetEdges(), 4)
			n := g.GetGraph().GetNodes()[2]
			require.Equal(t, "cel", n.GetActor())
			require.NotNil(t, n.GetMap())
			require.Empty(t, n.GetNamed())
			again, err := f.GetRunGraph(t.Context(), &executorv1.GetRunGraphRequest{RunId: id, UnlessHash: g.GetGraphHash()})
			require.NoError(t, err)
			require.Nil(t, again.GetGraph())
			require.Equal(t, g.GetGraphHash(), again.GetGraphHash())
		})
	})
}
