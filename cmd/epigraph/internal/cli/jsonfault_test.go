package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
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
