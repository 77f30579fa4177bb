package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Every decision leads to calls of allowed actors only, with the fixed arguments unchanged.
func TestActKeepsToThePolicy(t *testing.T) {
	t.Parallel()
	const rule = `{"reasoner": "r", "max_actions": 4, "max_result_bytes": 1000, "allow_graph": true, "actions": {
		"a": {"actor": "one", "named": {"url": "fixed"}},
		"b": {"actor": "two", "named": {"url": "fixed", "n": 1}, "schema": {"properties": {"n": {"type": "integer"}}, "additionalProperties": false}},
		"s": {"actor": "spawn", "named": {"ref": "workflow/x@1"}},
		"x-list": {"actor": "one", "named": {"url": "fixed"}}, "gather": {"actor": "one", "named": {"url": "fixed"}},
		"sub": {"actor": "agent/sub", "share_thread": true, "schema": {"properties": {"q": {}, "n": {}, "url": {}}, "additionalProperties": false}}}}`
	d := defaultDefinition()
	require.NoError(t, json.Unmarshal([]byte(rule), &d))
	require.NoError(t, d.check(t.Context()))
	whole, err := actor.Encode(&d)
	require.NoError(t, err)
	own := map[string]json.RawMessage{"definition": whole}
	allowed := []string{"one", "two", "spawn"} // a graph has no agent on the thread of its caller
	l := &loop{definitions: newDefinitions(), plans: newPlans()}
	names := rapid.SampledFrom([]string{"a", "b", "s", "x-list", "gather", "sub", "one", "spawn", "expand", "agent", "loop/act", ""})
	values := rapid.SampledFrom([]string{`1`, `"x"`, `null`, `{"nodes":[{"id":"e","actor":"http"}]}`, `["url"]`})
	keys := rapid.SampledFrom([]string{"url", "n", "graph", "runs", "ref", "q", "thread_id", "shared_thread"})
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
	keeps := func(t *rapid.T, name string, named map[string]json.RawMessage) {
		switch name {
		case "one", "two":
			require.Equal(t, `"fixed"`, string(named["url"]))
		case "spawn":
			require.Equal(t, `"workflow/x@1"`, string(named["ref"]))
			require.NotContains(t, named, "graph")
			require.NotContains(t, named, "runs")
		case "agent/sub":
			require.NotContains(t, named, "thread_id")
			require.JSONEq(t, `{"thread": "thr_1", "seq": 1, "runs": ["run"]}`, string(named["shared_thread"]), "where the agent stands, whatever the reasoner says")
		}
	}
	acted := 0
	rapid.Check(t, func(t *rapid.T) {
		var said any
		if rapid.Bool().Draw(t, "graph") {
			said = map[string]any{"graph": map[string]any{"nodes": rapid.SliceOfN(node, 1, 3).Draw(t, "nodes"), "edges": []any{
				map[string]any{"from": "x", "to": "y", "result_pass_down_mode": map[string]any{"mode": rapid.SampledFrom([]string{"KEY", "NO_PASS_DOWN"}).Draw(t, "mode"), "key": keys.Draw(t, "edge")}}}}}
		} else {
			said = map[string]any{"actions": rapid.SliceOfN(rapid.SliceOfN(one, 1, 2), 1, 3).Draw(t, "groups")}
		}
		raw, err := json.Marshal(said)
		require.NoError(t, err)
		out, err := l.act(t.Context(), workgraph.NewCall(workgraph.Start{RunID: "run", Ref: workgraph.Ref{Visit: 1}, Own: own,
			Upstream: []workgraph.Upstream{{Node: nodeReason, Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{raw}}}}, workgraph.CallOptions{Scope: firstRound{}}))
		require.NoError(t, err)
		var v verdict
		require.NoError(t, json.Unmarshal(out.Values[0], &v))
		to := out.Select.Names[0]
		switch {
		case v.Refused != "":
			require.Equal(t, nodeObserve, to)
			return
		case v.Arguments != nil:
			a := d.Actions[strings.TrimPrefix(to, "do.")]
			require.NotNil(t, a, to)
			delete(v.Arguments, argPrevious)
			keeps(t, a.Actor, v.Arguments)
		case v.Groups != nil:
			for _, g := range v.Groups {
				for _, w := range g {
					keeps(t, d.Actions[w.Action].Actor, w.Arguments)
				}
			}
		default:
			for i := range v.Graph.Nodes {
				n := &v.Graph.Nodes[i]
				require.Contains(t, allowed, n.Actor)
				require.Nil(t, n.Map)
				require.Empty(t, n.Args)
				keeps(t, n.Actor, n.Named)
				for _, down := range append([]workgraph.PassDown{n.PassDown}, passes(v.Graph)...) {
					require.False(t, down.Mode == workgraph.KeyPassDown && down.Key == "url")
				}
			}
		}
		acted++
	})
	require.NotZero(t, acted)
}

// A call that is ended while it reads a response says nothing of the response.
func TestActThatIsEnded(t *testing.T) {
	t.Parallel()
	var act workgraph.Actor
	for _, s := range Specs(nil, nil) {
		if s.Name == actorAct {
			act = s.Actor
		}
	}
	call := workgraph.NewCall(workgraph.Start{Ref: workgraph.Ref{Visit: 1},
		Own:      map[string]json.RawMessage{"definition": json.RawMessage(`{"reasoner": "r", "form": "prompt", "dispatch": "plan", "solver": {"actor": "s"}, "max_actions": 4}`)},
		Upstream: []workgraph.Upstream{{Node: nodeReason, Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{json.RawMessage(`"1. Buy tea\n2. Buy milk"`)}}}}, workgraph.CallOptions{Scope: firstRound{}})
	out, err := act.Call(t.Context(), call)
	require.NoError(t, err)
	require.Equal(t, []string{nodeGroups}, out.Select.Names)
	ended, end := context.WithCancel(t.Context())
	end()
	out, err = act.Call(ended, call)
	require.Error(t, err)
	require.Empty(t, out.Values, "no refusal is recorded")
}

// Whatever tools and arguments a plan names, the solver alone is called, with its own arguments.
func TestPlanKeepsToTheSolver(t *testing.T) {
	t.Parallel()
	d := defaultDefinition()
	require.NoError(t, json.Unmarshal([]byte(`{"dispatch": "plan", "actions": {"a": {"actor": "one"}}, "solver": {"actor": "solver", "url": "fixed"}}`), &d))
	tools := rapid.SampledFrom([]string{"", "a", "one", "spawn", "expand", "agent", "loop/act", "solver", "http"})
	compiled := 0
	rapid.Check(t, func(t *rapid.T) {
		var problems []map[string]any
		for i := range rapid.IntRange(1, 4).Draw(t, "problems") {
			p := map[string]any{"id": fmt.Sprint("p", i), "request": "x", "needs": []string{}, "args": map[string]any{rapid.SampledFrom([]string{"url", "q", "graph"}).Draw(t, "name"): "evil"}}
			if tool := tools.Draw(t, "tool"); tool != "" {
				p["tool"] = tool
			}
			problems = append(problems, p)
		}
		said, err := json.Marshal(problems)
		require.NoError(t, err)
		r, err := d.readPlan(t.Context(), said, true, true)
		if err != nil {
			return
		}
		compiled++
		g, err := workgraph.Decode(r.Graph)
		require.NoError(t, err)
		for i := range g.Nodes {
			require.Equal(t, "solver", g.Nodes[i].Actor)
			require.Equal(t, `"fixed"`, string(g.Nodes[i].Named["url"]))
		}
	})
	require.NotZero(t, compiled)
}

// A plan is read and compiled once for the two steps that need it.
func TestPlanIsReadOnce(t *testing.T) {
	t.Parallel()
	d := defaultDefinition()
	d.Dispatch, d.Solver = dispatchPlan, map[string]json.RawMessage{"actor": json.RawMessage(`"s"`)}
	c := workgraph.NewCall(workgraph.Start{Own: map[string]json.RawMessage{"definition": json.RawMessage(`{}`)}}, workgraph.CallOptions{})
	k, text := newPlans(), json.RawMessage(`"1. Buy tea\n2. Buy milk"`)
	first, err := k.read(t.Context(), &d, c, text, true, true)
	require.NoError(t, err)
	require.True(t, first.Compiled)
	again, err := k.read(t.Context(), &d, c, text, true, true)
	require.NoError(t, err)
	require.Same(t, first, again)
	later, err := k.read(t.Context(), &d, c, text, false, false)
	require.NoError(t, err)
	require.False(t, later.Compiled, "in a later round it is an answer")
	_, fault := k.read(t.Context(), &d, c, json.RawMessage(`"Hm."`), true, true)
	_, same := k.read(t.Context(), &d, c, json.RawMessage(`"Hm."`), true, true)
	require.Error(t, fault)
	require.Same(t, fault, same)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = k.read(ended, &d, c, json.RawMessage(`"1. Buy tea"`), true, true)
	require.Error(t, err)
	first, err = k.read(t.Context(), &d, c, json.RawMessage(`"1. Buy tea"`), true, true)
	require.NoError(t, err, "what a call that was ended read is not kept")
	require.True(t, first.Compiled)
}

func passes(g *workgraph.Graph) []workgraph.PassDown {
	out := make([]workgraph.PassDown, len(g.Edges))
	for i := range g.Edges {
		out[i] = g.Edges[i].PassDown
	}
	return out
}

// firstRound is the scope of a loop in its first round.
type firstRound struct{}

func (firstRound) Var(name string) (json.RawMessage, bool) {
	switch name {
	case "input":
		return json.RawMessage(`{"named": {"agent": {"thread": "thr_1"}}}`), true
	case "state":
		return json.RawMessage(`{"at": {"thread": "thr_1", "seq": 1, "runs": ["run"]}}`), true
	}
	return nil, false
}

func (firstRound) Ancestor(string) (workgraph.NodeResult, bool) { return workgraph.NodeResult{}, false }
func (firstRound) Ancestors() []string                          { return nil }
func (firstRound) Rounds(string) []json.RawMessage              { return nil }
