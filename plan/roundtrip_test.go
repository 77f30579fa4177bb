package plan_test

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/plantest"
)

func sortedEdges(g plan.Graph) []string {
	out := []string{}
	for _, e := range g.Edges {
		out = append(out, e.From+" -> "+e.To)
	}
	sort.Strings(out)
	return out
}

func drawGraph(t *rapid.T) plan.Graph {
	n := rapid.IntRange(2, 12).Draw(t, "problems")
	var g plan.Graph
	name := rapid.StringMatching(`[A-Za-z][A-Za-z0-9_]{0,8}( [A-Z][a-z]{1,6})?`)
	for i := range n {
		g.Problems = append(g.Problems, plan.Problem{ID: name.Draw(t, "name") + fmt.Sprintf("_%d", i)})
	}
	for i := 1; i < n; i++ {
		for range rapid.IntRange(0, 2).Draw(t, "in") {
			from := rapid.IntRange(0, i-1).Draw(t, "from")
			g.Edges = append(g.Edges, plan.Edge{From: g.Problems[from].ID, To: g.Problems[i].ID})
		}
	}
	return g
}

// plain returns a graph without spaces in its names, and with each edge once.
func plain(g plan.Graph) plan.Graph {
	name := func(id string) string { return strings.ReplaceAll(id, " ", "") }
	out, seen := plan.Graph{}, map[plan.Edge]bool{}
	for _, p := range g.Problems {
		p.ID = name(p.ID)
		out.Problems = append(out.Problems, p)
	}
	for _, e := range g.Edges {
		if e.From, e.To = name(e.From), name(e.To); !seen[e] {
			seen[e] = true
			out.Edges = append(out.Edges, e)
		}
	}
	return out
}

// TestRoundTrip writes random graphs in every dialect, reads them back, and damages the texts.
func TestRoundTrip(t *testing.T) {
	for _, name := range plantest.Notations() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := drawGraph(t)
				switch name {
				case "arrows", "table":
					// The general reader reads these. It gives numbers to steps whose names have spaces.
					g = plain(g)
				}
				r, err := plantest.Render(g, name)
				if errors.Is(err, plantest.ErrCannotExpress) {
					return
				}
				require.NoError(t, err)
				same := func(text string) bool {
					res := plan.Parse(text)
					if res.NoPlan != nil || ids(res.Graph) != ids(r.Want) {
						return false
					}
					return !r.Edges || strings.Join(sortedEdges(res.Graph), "\n") == strings.Join(sortedEdges(r.Want), "\n")
				}
				require.True(t, same(r.Text), "%s\n%v", r.Text, plan.Parse(r.Text))
				for _, m := range plantest.Mutants(r.Text) {
					if m.Harmless {
						require.True(t, same(m.Text), "%s\n%v", m.Text, plan.Parse(m.Text))
						continue
					}
					if res := plan.Parse(m.Text); !same(m.Text) && res.NoPlan == nil {
						require.NotEmpty(t, res.Diagnostics, "silently wrong after %s:\n%s", m.Kind, m.Text)
					}
				}
			})
		})
	}
}
