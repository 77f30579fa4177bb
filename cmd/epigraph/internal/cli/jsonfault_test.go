package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestBrokenGraph(t *testing.T) {
	t.Parallel()
	const begin = "{\n  \"nodes\": [{\"id\": \"a\", \"actor\": \"cel\"}"
	for _, c := range []struct{ name, text, says string }{
		{"TrailingComma", begin + ",\n  ]\n}", "line 2, column 40: the graph is not JSON: nothing follows this comma"},
		{"TrailingCommaOfAnObject", begin + "],\n}", "line 2, column 41: the graph is not JSON: nothing follows this comma"},
		{"MissingComma", begin + "]\n  \"edges\": []}", `line 3, column 3: the graph is not JSON: a comma is missing before "\""`},
		{"Comment", begin + "] // that is all\n}", "JSON has no comments"},
		{"SingleQuotes", begin + ", {'id': 1}]}", "double quotes"},
		{"BrokenOff", begin, "line 2, column 40: the graph is not JSON: it ends in the middle"},
		{"LineBreakInAText", "{\"nodes\": [{\"actor\": \"c\nel\"}]}", "a text must end on the line"},
		{"BraceTooMany", begin + "]}}", "something follows the end"},
		{"MissingColon", `{"nodes": [{"actor": "x", "id" "a"}]}`, "a colon is expected"},
		{"Word", `{"nodes": [{"actor": nothing}]}`, "no value"},
		{"NoNodes", `{"nodes": []}`, "line 1, column 11: the graph has no nodes"},
		{"SingleQuotesOnly", `{'nodes': [{'id': 'a', 'actor': 'cel'}]}`, "line 1, column 2: the graph is not JSON: JSON puts texts in double quotes"},
		{"CommentFirst", "// mine\n" + begin + "]}", "line 1, column 1: the graph is not JSON: JSON has no comments"},
		{"NoQuotes", `{nodes: [{id: "a", actor: "cel"}]}`, "line 1, column 2: the graph is not JSON: a key in double quotes is expected here"},
		{"MissingLastBrace", begin + "]", "line 2, column 41: the graph is not JSON: it ends in the middle: } is missing at the end"},
		{"MissingSeveral", `{"nodes": [{"id": "a", "actor": "c`, `it ends in the middle: "}]} is missing at the end`},
		{"MissingInnerBrace", `{"nodes": [{"id": "a", "actor": "cel"]}`, "line 1, column 38: the graph is not JSON: a closing } is missing before this ]"},
		{"MissingFirstBrace", `"nodes": [{"id": "a", "actor": "cel"}]}`, "line 1, column 1: the graph is not JSON: an opening { is missing"},
		{"YAML", "name: g\nnodes:\n  - id: a\n    actor: cel\n", "line 2, column 1: this is a graph in YAML"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := findGraph(c.text)
			require.ErrorContains(t, err, c.says)
		})
	}
	for _, text := range []string{"A -> B", `{"problems": [}`, "<Problem>a</Problem>", `{"a": `, "nodes: a and b\nthe actor: Bob"} {
		raw, err := findGraph(text)
		require.NoError(t, err, text)
		require.Nil(t, raw)
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	const text = `{"name": "g",
  "nodes": [
    {"id": "a", "actor": 5, "named": {"x.y": 1, "long": "0123456789 0123456789 0123456789 0123456789"}},
    {"id": "1", "max_visits": 3}],
  "edges": [{"from": "a", "to": "1", "when": "tru"}]}`
	at := func(text, field string) [2]int {
		line, column := lineColumn(text, locate(text, field).offset)
		return [2]int{line, column}
	}
	for field, want := range map[string][2]int{
		"graph":                           {1, 1},
		"graph.nodes[0].actor":            {3, 26},
		"graph.nodes[a].actor":            {3, 26},
		"graph.nodes[1].maxVisits":        {4, 31},
		"graph.nodes[a].named.x.y":        {3, 46},
		"graph.nodes[a].named.long":       {3, 49},
		"graph.nodes[a].timeout":          {3, 5},
		"graph.nodes[nobody]":             {2, 12},
		"graph.edges[a -> 1].when":        {5, 46},
		"graph.name":                      {1, 10},
		"graph.nothing.of[that].is.there": {1, 1},
	} {
		require.Equal(t, want, at(text, field), field)
	}
	require.Equal(t, [2]int{1, 11}, at(`{"graph": {"nodes": []}}`, "graph"), "the graph within an answer")
	ds := placed(text, []errs.Violation{{Field: "graph.edges[a -> 1].when", Reason: "EXPR_INVALID", Message: "column 3: no"}, {Field: "graph.nodes[0].actor", Message: "no"}})
	require.Equal(t, int32(3), ds[0].GetLine(), "what stands further up comes first")
	require.Equal(t, int32(49), ds[1].GetColumn(), "the place in the expression")
	require.Equal(t, `5`, locate(text, "graph.nodes[a].actor").text)
}

func FuzzLocate(f *testing.F) {
	f.Add(`{"nodes": [{"id": "a"}]}`, "graph.nodes[a].x")
	f.Add(`{"a\"": {}}`, `graph.a".b`)
	f.Fuzz(func(t *testing.T, text, field string) {
		offset := locate(text, field).offset
		require.GreaterOrEqual(t, offset, 0)
		require.LessOrEqual(t, offset, len(text))
	})
}
