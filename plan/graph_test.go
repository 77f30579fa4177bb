package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/plan"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	a := plan.Parse("A -> B\nB -> C").Graph
	b := plan.Parse("Here is the graph:\n\n  A -> B\n  B   ->  C\n").Graph
	c := plan.Parse("A -> C\nC -> B").Graph
	t.Run("SameMeaning/SameHash", func(t *testing.T) {
		require.Equal(t, string(a.Canonical()), string(b.Canonical()))
		require.Equal(t, a.Hash(), b.Hash())
		require.Len(t, a.Hash(), 64)
	})
	t.Run("OtherMeaning/OtherHash", func(t *testing.T) { require.NotEqual(t, a.Hash(), c.Hash()) })
	t.Run("Form/IsJSON", func(t *testing.T) {
		require.True(t, json.Valid(a.Canonical()))
		require.True(t, json.Valid(plan.Graph{}.Canonical()))
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	validate := func(g plan.Graph) []plan.Diagnostic {
		ds, err := plan.Validate(t.Context(), g)
		require.NoError(t, err)
		return ds
	}
	codes := func(g plan.Graph) map[plan.Code]string {
		out := map[plan.Code]string{}
		for _, d := range validate(g) {
			if _, ok := out[d.Code]; !ok {
				out[d.Code] = d.Element
			}
		}
		return out
	}
	p := func(ids ...string) (out []plan.Problem) {
		for _, id := range ids {
			out = append(out, plan.Problem{ID: id})
		}
		return out
	}
	t.Run("AllFaultsAtOnce", func(t *testing.T) {
		g := plan.Graph{Problems: p("a", "b", "b", "c", ""), Edges: []plan.Edge{{From: "a", To: "c"}, {From: "c", To: "a"}, {From: "b", To: "b"}, {From: "x", To: "a"}}}
		require.Equal(t, map[plan.Code]string{plan.DuplicateID: "b", plan.EmptyID: "problem 5", plan.UnknownReference: "x", plan.SelfLoop: "b", plan.Cycle: "a"}, codes(g))
	})
	t.Run("EmptyPlan", func(t *testing.T) { require.Contains(t, codes(plan.Graph{}), plan.EmptyPlan) })
	t.Run("ParentCycle", func(t *testing.T) {
		g := plan.Graph{Problems: []plan.Problem{{ID: "a", ParentID: "b"}, {ID: "b", ParentID: "a"}}}
		require.Contains(t, codes(g), plan.ParentCycle)
	})
	t.Run("CyclePath/IsNamed", func(t *testing.T) {
		g := plan.Graph{Problems: p("a", "b", "c"), Edges: []plan.Edge{{From: "a", To: "b"}, {From: "b", To: "c"}, {From: "c", To: "a"}}}
		require.Contains(t, validate(g)[0].Message, "a -> b -> c -> a")
	})
	t.Run("DidYouMean", func(t *testing.T) {
		g := plan.Graph{Problems: p("Audio Splicer"), Edges: []plan.Edge{{From: "Audio Splicer", To: "audio_splicer"}}}
		require.Contains(t, validate(g)[0].Message, `did you mean "Audio Splicer"`)
	})
	t.Run("Cycle/FoundIffItExists", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 8).Draw(t, "n")
			var g plan.Graph
			for i := range n {
				g.Problems = append(g.Problems, plan.Problem{ID: string(rune('a' + i))})
			}
			reach := make([][]bool, n)
			for i := range reach {
				reach[i] = make([]bool, n)
			}
			for range rapid.IntRange(0, 12).Draw(t, "m") {
				a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
				g.Edges = append(g.Edges, plan.Edge{From: g.Problems[a].ID, To: g.Problems[b].ID})
				reach[a][b] = true
			}
			for k := range n {
				for i := range n {
					for j := range n {
						reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
					}
				}
			}
			cyclic := false
			for i := range n {
				cyclic = cyclic || reach[i][i]
			}
			_, found := codes(g)[plan.Cycle]
			require.Equal(t, cyclic, found)
		})
	})
}
