package workgraph_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// TestRounds reads what a node gave in all rounds of a loop: those of the last time that it was
// entered.
func TestRounds(t *testing.T) {
	t.Parallel()
	value := func(v any) (workgraph.Outcome, error) {
		raw, err := json.Marshal(v)
		return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
	}
	actors := workgraph.Actors{
		"visit":   workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) { return value(c.Visit) }),
		"collect": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) { return value(c.Rounds("inner")) }),
	}
	g := workgraph.NewBuilder("nested").
		Node("head", "visit").Node("inner", "visit").Node("all", "collect").Node("end", "collect").
		Edge("head", "inner").Edge("inner", "all").Edge("all", "end").
		Back("inner", "inner", "result % 3 != 0").Back("all", "head", "visit < 2").
		Graph()
	res, err := workgraph.Run(t.Context(), g, actors, workgraph.Input{})
	require.NoError(t, err)
	require.Equal(t, workgraph.StatusCompleted, res.Status, "%+v", res)
	require.JSONEq(t, "[1, 2, 3, 4, 5, 6]", string(res.Result), "behind both loops: all rounds of the inner one")

	var seen []string
	actors["collect"] = workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		out, err := value(c.Rounds("inner"))
		seen = append(seen, string(out.Values[0]))
		return out, err
	})
	_, err = workgraph.Run(t.Context(), g, actors, workgraph.Input{}, workgraph.WithParallel(1))
	require.NoError(t, err)
	require.Equal(t, []string{"[1,2,3]", "[4,5,6]", "[1,2,3,4,5,6]"}, seen)
	require.Nil(t, (&workgraph.Call{}).Rounds("inner"), "a call outside of a run has seen none")
}

// TestBindLast takes items of a list from its end.
func TestBindLast(t *testing.T) {
	t.Parallel()
	give := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{c.Named["give"]}}, nil
	})
	for field, want := range map[string]string{"[-1]": "3", "[-3]": "1", "[0]": "1", "[-4]": "", "[3]": ""} {
		g := &workgraph.Graph{Nodes: []workgraph.Node{
			{ID: "a", Actor: "give", Named: map[string]json.RawMessage{"give": json.RawMessage("[1,2,3]")}},
			{ID: "b", Actor: "give", Bind: map[string]workgraph.Binding{"give": {Uses: []workgraph.ResultUse{{Node: "a", Field: field}}}}},
		}, Edges: []workgraph.Edge{{From: "a", To: "b"}}}
		res, err := workgraph.Run(t.Context(), g, workgraph.Actors{"give": give}, workgraph.Input{})
		require.NoError(t, err)
		if want == "" {
			require.Contains(t, res.Message, "BINDING_FAILED", field)
			require.Contains(t, res.Message, "it is a list of 3", field)
			continue
		}
		require.Equal(t, want, string(res.Result), field)
	}
}
