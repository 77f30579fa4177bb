package form

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawn returns the nodes and the links of the first diagram of a text.
func drawn(text string) string {
	all := Diagrams(NewSource(text))
	if len(all) == 0 {
		return "none"
	}
	var out []string
	for _, n := range all[0].Nodes {
		out = append(out, n.ID)
	}
	for _, l := range all[0].Links {
		out = append(out, l.From+">"+l.To)
	}
	return strings.Join(out, " ")
}

func TestD2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"labels":     {"direction: right\na: Dig a hole\nb: Plant\n\na -> b: then {\n  style.stroke: red\n}\n", "a b a>b"},
		"fence":      {"```d2\na -> b -> c\n```\n", "a b c a>b b>c"},
		"containers": {"one: {\n  a; b\n  a -> b\n}\ntwo: {\n  c\n}\none -> two\n", "a b c a>b b>c"},
		"paths":      {"x.shape: oval\np.a -> q.b\np.a.style.fill: red\nx -> p.a\n", "a b x a>b x>a"},
		"no links":   {"direction: right\na: Dig\n", "none"},
		"yaml":       {"direction: right\nsteps:\n  - a -> b\n", "none"},
		"no D2":      {"a -> b\nb -> c\n", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, drawn(c.text))
		})
	}
}

func TestDrawings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a line beside a box": {"            ┌───┐\n        ┌──▶│ b │──┐\n┌──────┐│   └───┘  │  ┌───┐\n│ a    │┤          ├─▶│ d │\n└──────┘│   ┌───┐  │  └───┘\n        └──▶│ c │──┘\n            └───┘\n", "a b c d a>b a>c b>d c>d"},
		"titles in brackets":  {"A (dig) ---> B (plant) --+\n                         |\n                         v\n                       C (water)\n", "A B C A>B B>C"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := Drawings(NewSource(c.text))
			require.Len(t, all, 1)
			var ids, links []string
			for _, n := range all[0].Nodes {
				ids = append(ids, n.ID)
			}
			for _, l := range all[0].Links {
				links = append(links, l.From+">"+l.To)
			}
			require.ElementsMatch(t, strings.Fields(c.want), append(ids, links...))
		})
	}
}

func TestNotesInDrawings(t *testing.T) {
	t.Parallel()
	all := Drawings(NewSource("+---+     +---+\n| a | --> | b |\n+---+     +---+\n            |\n            | (nightly)\n            v\n          +---+\n          | c |\n          +---+\n"))
	require.Len(t, all, 1)
	require.Len(t, all[0].Nodes, 3)
	require.Len(t, all[0].Links, 2)
}
