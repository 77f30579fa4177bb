package executor_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The steps of an agent's loop read a thread as their definition says, so only the agent actor may make them.
func TestLoopSteps(t *testing.T) {
	t.Parallel()
	const completed, failed = executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED
	const steps = `{"nodes": [{"id": "x", "actor": "loop/begin", "named": {"definition": {"history": {"messages": 1000000000}}}}]}`
	var sub workgraph.Graph
	require.NoError(t, json.Unmarshal([]byte(steps), &sub))
	f := serve(t, workgraph.Actors{"delegates": asks(workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{{Graph: &sub}}}})})
	agent := actorNode("a", "agent", `{"user_input": "x", "branch": false, "reasoner": "cel", "actions": {"again": {"actor": "spawn", "named": {"ref": "self"}}},
		"reasoner_args": {"expr": "named.round == 1 ? dyn({'actions': ['again']}) : dyn({'result': size(named.action_results)})"}}`)
	over := func(t *testing.T, id string) *executorv1.Run {
		return talking{fixture: f}.ends(t, id)
	}
	end := func(t *testing.T, n *graphv1.Node) *executorv1.Run {
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(n)})
		require.NoError(t, err)
		return over(t, r.GetId())
	}
	loop := func(t *testing.T) (string, *graphv1.Graph) {
		r := end(t, agent)
		require.Equal(t, completed, r.GetState(), "%v", r.GetError())
		below, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.GetId()})
		require.NoError(t, err)
		require.Len(t, below.GetRuns(), 1)
		id := below.GetRuns()[0].GetId()
		g, err := f.GetRunGraph(t.Context(), &executorv1.GetRunGraphRequest{RunId: id})
		require.NoError(t, err)
		return id, g.GetGraph()
	}
	t.Run("Hint/NamesTheAgent", func(t *testing.T) {
		t.Parallel()
		v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: nodes(actorNode("a", "loop/begin", `{}`))})
		require.NoError(t, err)
		require.Len(t, v.GetFaults(), 1)
		require.Contains(t, v.GetFaults()[0].GetHint(), "such as agent")
	})
	t.Run("List/HidesThem", func(t *testing.T) {
		t.Parallel()
		list, err := f.ListActors(t.Context(), &executorv1.ListActorsRequest{})
		require.NoError(t, err)
		for _, a := range list.GetActors() {
			require.NotContains(t, a.GetName(), "loop/")
		}
	})
	for name, n := range map[string]*graphv1.Node{
		"Spawn":  actorNode("a", "spawn", `{"graph": `+steps+`}`),
		"Expand": actorNode("a", "expand", `{"graph": `+steps+`}`),
		"Worker": actorNode("a", "delegates", `{}`),
	} {
		t.Run("Outcome/"+name, func(t *testing.T) {
			t.Parallel()
			r := end(t, n)
			require.Equal(t, failed, r.GetState())
			require.Contains(t, r.GetError().GetMessage(), `no actor is called "loop/begin"`)
		})
	}
	for _, part := range []string{`"reasoner": "loop/begin"`, `"dispatch": "loop/act"`, `"dispatch": "plan", "solver": {"actor": "loop/act"}`, `"summarizer": {"actor": "loop/gather"}`,
		`"history": {"summarize": {"actor": "loop/gather"}}`} {
		t.Run("Definition/"+part, func(t *testing.T) {
			t.Parallel()
			r := end(t, actorNode("a", "agent", `{"user_input": "x", "actions": {"cel": {}}, `+part+`}`))
			require.Equal(t, "AGENT_ACTIONS_UNUSABLE", r.GetError().GetReason(), "%v", r.GetError())
		})
	}
	t.Run("Self/OfALoopIsRefused", func(t *testing.T) {
		t.Parallel()
		id, _ := loop(t)
		below, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: id})
		require.NoError(t, err)
		require.Empty(t, below.GetRuns())
	})
	t.Run("Copy/OfALoopIsRefused", func(t *testing.T) {
		t.Parallel()
		_, g := loop(t)
		_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
		require.Contains(t, errs.From(err).Violations[0].Message, "no actor is called")
	})
	t.Run("Fork/KeepsThemOrIsRefused", func(t *testing.T) {
		t.Parallel()
		id, g := loop(t)
		again, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "reason"}, Graph: g})
		require.NoError(t, err)
		require.Equal(t, completed, over(t, again.GetId()).GetState())
		_, err = f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "begin"}, Named: map[string]*graphv1.Payload{"definition": value(`{}`)}})
		require.Len(t, errs.From(err).Violations, 1, "%v", err)
		require.Contains(t, errs.From(err).Violations[0].Message, "is internal")
		more := nodes(actorNode("a", "cel", `{"expr": "1"}`), actorNode("b", "loop/begin", `{"definition": {}}`))
		_, err = f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: end(t, more.GetNodes()[0]).GetId(), Visit: &executorv1.VisitRef{NodeId: "a"}, Graph: more})
		require.Contains(t, errs.From(err).Violations[0].Message, "is internal")
	})
	t.Run("Amend/MayNotAddThem", func(t *testing.T) {
		t.Parallel()
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "human", `{"prompt": "x"}`))})
		require.NoError(t, err)
		_, err = f.AmendRun(t.Context(), &executorv1.AmendRunRequest{RunId: r.GetId(), Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{actorNode("b", "loop/begin", `{"definition": {}}`)}}})
		require.Contains(t, errs.From(err).Violations[0].Message, "is internal")
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: r.GetId()})
		require.NoError(t, err)
	})
}
