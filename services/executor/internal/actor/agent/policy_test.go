package agent

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Every decision leads to calls of allowed actors only, with the fixed arguments unchanged.
func TestActKeepsToThePolicy(t *testing.T) {
	t.Parallel()
	const rule = `{"policy": {"max_actions": 4, "max_result_bytes": 1000, "max_history_bytes": 5000, "allow_graph": true, "actions": {
		"a": {"actor": "one", "named": {"url": "fixed"}},
		"b": {"actor": "two", "named": {"url": "fixed", "n": 1}, "schema": {"properties": {"n": {"type": "integer"}}, "additionalProperties": false}},
		"s": {"actor": "spawn", "named": {"ref": "workflow/x@1"}}}}}`
	var own map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(rule), &own))
	allowed := []string{"one", "two", "spawn", actorGraph, actorResults}
	names := rapid.SampledFrom([]string{"a", "b", "s", "one", "spawn", "expand", "agent", "agent/act", ""})
	values := rapid.SampledFrom([]string{`1`, `"x"`, `null`, `{"nodes":[{"id":"e","actor":"http"}]}`, `["url"]`})
	keys := rapid.SampledFrom([]string{"url", "n", "graph", "runs", "ref", "q"})
	arguments := rapid.Custom(func(t *rapid.T) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for k, v := range rapid.MapOfN(keys, values, 0, 3).Draw(t, "arguments") {
			m[k] = json.RawMessage(v)
		}
		return m
	})
	one := rapid.Custom(func(t *rapid.T) any {
		return map[string]any{"action": names.Draw(t, "action"), "arguments": arguments.Draw(t, "with")}
	})
	node := rapid.Custom(func(t *rapid.T) any {
		m := map[string]any{"id": rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "id"), "actor": names.Draw(t, "actor"), "named": arguments.Draw(t, "named")}
		switch rapid.IntRange(0, 9).Draw(t, "more") {
		case 0:
			m["map"] = map[string]any{"over": "['evil']", "as": "url"}
		case 1:
			m["args"] = []any{1}
		case 2:
			m["result_pass_down_mode"] = map[string]any{"mode": "KEY", "key": keys.Draw(t, "key")}
		case 3:
			m["transform"] = "'evil'"
		}
		return m
	})
	var check func(t *rapid.T, g *workgraph.Graph)
	check = func(t *rapid.T, g *workgraph.Graph) {
		for i := range g.Nodes {
			n := &g.Nodes[i]
			require.Contains(t, allowed, n.Actor)
			require.Nil(t, n.Map)
			require.Empty(t, n.Args)
			switch {
			case n.Actor == "one", n.Actor == "two":
				require.Equal(t, `"fixed"`, string(n.Named["url"]))
				for _, down := range append([]workgraph.PassDown{n.PassDown}, passes(g)...) {
					require.False(t, down.Mode == workgraph.KeyPassDown && down.Key == "url")
				}
			case n.Actor == actorGraph:
				inner, err := workgraph.Decode(n.Named["graph"])
				require.NoError(t, err)
				check(t, inner)
			case n.Actor == "spawn":
				require.Equal(t, `"workflow/x@1"`, string(n.Named["ref"]))
				require.NotContains(t, n.Named, "graph")
				require.NotContains(t, n.Named, "runs")
			}
		}
	}
	acted := 0
	rapid.Check(t, func(t *rapid.T) {
		var d any
		if rapid.Bool().Draw(t, "graph") {
			d = map[string]any{"graph": map[string]any{"nodes": rapid.SliceOfN(node, 1, 3).Draw(t, "nodes"), "edges": []any{
				map[string]any{"from": "x", "to": "y", "result_pass_down_mode": map[string]any{"mode": rapid.SampledFrom([]string{"KEY", "NO_PASS_DOWN"}).Draw(t, "mode"), "key": keys.Draw(t, "edge")}}}}}
		} else {
			d = map[string]any{"actions": rapid.SliceOfN(rapid.SliceOfN(one, 1, 2), 1, 3).Draw(t, "groups")}
		}
		raw, err := json.Marshal(d)
		require.NoError(t, err)
		out, err := act(t.Context(), workgraph.NewCall(workgraph.Start{Own: own,
			Upstream: []workgraph.Upstream{{Node: nodeReason, Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{raw}}}}, workgraph.CallOptions{}))
		require.NoError(t, err)
		if out.Expand != nil {
			acted++
			require.True(t, slices.ContainsFunc(out.Expand.Nodes, func(n workgraph.Node) bool { return n.Actor == actorResults }))
			check(t, out.Expand)
		}
	})
	require.NotZero(t, acted)
}

func passes(g *workgraph.Graph) []workgraph.PassDown {
	out := make([]workgraph.PassDown, len(g.Edges))
	for i := range g.Edges {
		out[i] = g.Edges[i].PassDown
	}
	return out
}
