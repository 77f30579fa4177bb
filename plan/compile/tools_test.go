package compile_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
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
			require.Contains(t, string(g.Nodes[0].Named[compile.ArgArguments]), `{"name":"q","value":"tower"}`)
			require.Contains(t, string(g.Nodes[1].Named[compile.ArgReferences]), `"argument":"body"`)

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
