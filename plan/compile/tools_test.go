package compile_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

// withTools are plans in which step a names the tool search with the argument q, in several notations.
var withTools = map[string]string{
	"a task list":           `[{"id":"a","tool":"search","args":{"q":"tower"},"depends_on":[]},{"id":"b","tool":"mail","args":{"body":"$a"},"depends_on":["a"]}]`,
	"fields of other names": `{"schritte":[{"id":"a","werkzeug":"search","tool":"search","args":{"q":"tower"},"danach":["b"]},{"id":"b","tool":"mail","args":{"body":"{{a.output}}"}}]}`,
	"YAML":                  "steps:\n  - id: a\n    tool: search\n    args: {q: tower}\n  - id: b\n    tool: mail\n    args:\n      body: \"{{a.output}}\"\n",
	"labeled calls":         `[{"name":"search","arguments":{"q":"tower"},"label":"a"},{"name":"mail","arguments":{"body":"$a.text$"},"label":"b"}]`,
}

func TestToolBecomesActor(t *testing.T) {
	t.Parallel()
	for name, text := range withTools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := plan.Parse(text)
			require.Nil(t, r.NoPlan)
			require.Equal(t, "search", r.Graph.Problems[0].Tool)
			o := compile.Options{Known: func(actor string) bool { return actor == "search" }}
			g, err := compile.Graph(t.Context(), r.Graph, o)
			require.NoError(t, err)
			require.Equal(t, "search", g.Nodes[0].Actor)
			require.NotContains(t, g.Nodes[0].Named, compile.ArgTool)
			require.Equal(t, compile.DefaultActor, g.Nodes[1].Actor)
			require.JSONEq(t, `"mail"`, string(g.Nodes[1].Named[compile.ArgTool]), "the actor that works it is told")
			require.JSONEq(t, `"tower"`, string(g.Nodes[0].Named["q"]), "a tool gets its arguments by name")
			require.NotContains(t, g.Nodes[0].Named, compile.ArgArguments)
			require.Contains(t, string(g.Nodes[1].Named[compile.ArgReferences]), `"argument":"body"`)

			both, err := compile.Graph(t.Context(), r.Graph, compile.Options{Known: func(string) bool { return true }})
			require.NoError(t, err)
			mail := both.Nodes[1]
			require.Equal(t, "mail", mail.Actor)
			for _, arg := range []string{compile.ArgArguments, compile.ArgReferences, "body"} {
				require.NotContains(t, mail.Named, arg)
			}
			body := mail.Bind["body"]
			require.Len(t, body.Uses, 1)
			require.Equal(t, "a", body.Uses[0].Node)
			require.Equal(t, body.Uses[0].Field != "", body.Uses[0].OrWhole, "output and text mean the result itself")
			require.JSONEq(t, string(body.Value), strconv.Quote(body.Uses[0].Mark))
			faults, err := workgraph.Validate(t.Context(), both, nil)
			require.NoError(t, err)
			require.Empty(t, faults)

			ds := compile.Tools(r.Graph, o)
			require.Len(t, ds, 1)
			require.Equal(t, plan.UnknownTool, ds[0].Code)
			require.Equal(t, plan.Warning, ds[0].Severity)
			require.Equal(t, "b", ds[0].Element)
			require.Contains(t, ds[0].Message, `"mail"`)
		})
	}
}

func TestToolYieldsToNamedActor(t *testing.T) {
	t.Parallel()
	g := plan.Graph{Problems: []plan.Problem{{ID: "a", Tool: "search"}, {ID: "b", Tool: "mail"}, {ID: "c"}}}
	o := compile.Options{Actors: map[string]string{"a": "mail"}}
	out, err := compile.Graph(t.Context(), g, o)
	require.NoError(t, err)
	require.Equal(t, "mail", out.Nodes[0].Actor)
	require.Equal(t, "mail", out.Nodes[1].Actor, "an actor that the options name is known")
	require.Equal(t, compile.DefaultActor, out.Nodes[2].Actor)
	require.JSONEq(t, `"search"`, string(out.Nodes[0].Named[compile.ArgTool]))
	require.Empty(t, compile.Tools(g, o))
	require.Len(t, compile.Tools(g, compile.Options{}), 2)

	o.Named = map[string]json.RawMessage{compile.ArgTool: json.RawMessage(`"hammer"`)}
	out, err = compile.Graph(t.Context(), g, o)
	require.NoError(t, err)
	require.JSONEq(t, `"hammer"`, string(out.Nodes[0].Named[compile.ArgTool]), "what the options give goes before")
}

func TestArgumentsByName(t *testing.T) {
	t.Parallel()
	one := plan.Problem{ID: "a", Tool: "t", Args: []plan.Arg{
		{Name: "lit", Kind: plan.Literal, Value: `{"n": 1}`}, {Name: "lit", Kind: plan.Literal, Value: "2"}, {Value: `"bare"`}, {Name: "x -> a", Value: `"why"`},
		{Name: "ref", Kind: plan.Referring, Value: `["$x.city", "in $x.city and $x"]`}, {Name: "all", Kind: plan.Literal, Value: "3"}, {Name: "request", Kind: plan.Literal, Value: `"own"`},
	}, Refs: []plan.Reference{
		{Text: "$x.city", To: "x", Path: "city", Arg: "ref"}, {Text: "$x.city", To: "x", Path: "city", Arg: "ref"}, {Text: "$x", To: "x", Arg: "ref"}, {Text: "$x", To: "x"},
	}}
	g := plan.Graph{Problems: []plan.Problem{{ID: "x"}, one}, Edges: []plan.Edge{{From: "x", To: "a"}}}
	o := compile.Options{Known: func(name string) bool { return name == "t" }, Named: map[string]json.RawMessage{"all": json.RawMessage(`"of all"`)}}
	out, err := compile.Graph(t.Context(), g, o)
	require.NoError(t, err)
	raw, err := json.Marshal(out.Nodes[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"id": "a", "name": "a", "kind": "PROBLEM", "actor": "t", "result_pass_down_mode": {"mode": "KEY", "key": "previous_agent_results"},
		"named": {"lit": 2, "all": "of all", "request": "own", "arguments": [{"value": "bare"}, {"name": "x -> a", "value": "why"}], "references": [{"text": "$x", "node": "x"}]},
		"bind": {"ref": {"value": ["$x.city", "in $x.city and $x"], "uses": [{"mark": "$x.city", "node": "x", "field": "city"}, {"mark": "$x", "node": "x"}]}}}`, string(raw))
	require.NotContains(t, out.Nodes[0].Named, "lit")

	o = compile.Options{DefaultActor: "mine"}
	g.Problems[1].Tool = compile.DefaultActor
	out, err = compile.Graph(t.Context(), g, o)
	require.NoError(t, err)
	require.Equal(t, "mine", out.Nodes[1].Actor, "the default actor is the one of the options alone")
	require.JSONEq(t, `"llm"`, string(out.Nodes[1].Named[compile.ArgTool]))
	g.Problems[1].Tool = "mine"
	out, err = compile.Graph(t.Context(), g, o)
	require.NoError(t, err)
	require.NotContains(t, out.Nodes[1].Named, "lit", "the default actor is no tool")
}
