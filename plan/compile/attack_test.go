package compile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
)

// TestAttacks compiles graphs that unfold into far more than their size. The bounds count work, so these
// tests need no clock.
func TestAttacks(t *testing.T) {
	t.Parallel()
	limited := func(t *testing.T, g plan.Graph, o compile.Options) {
		t.Helper()
		_, err := compile.Graph(t.Context(), g, o)
		x, ok := errors.AsType[*compile.Error](err)
		require.True(t, ok, "got %v", err)
		require.Equal(t, plan.LimitReached, x.Diagnostics[0].Code)
	}
	t.Run("Groups/InEachOther", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		for _, side := range []string{"l", "r"} {
			for i := range 100 {
				p := plan.Problem{ID: fmt.Sprintf("%s-group-%d", side, i)}
				if i > 0 {
					p.ParentID = fmt.Sprintf("%s-group-%d", side, i-1)
				}
				g.Problems = append(g.Problems, p)
			}
			for i := range 1_000 {
				g.Problems = append(g.Problems, plan.Problem{ID: fmt.Sprintf("%s-%d", side, i), ParentID: side + "-group-99"})
			}
		}
		for i := range 100 {
			for k := range 100 {
				g.Edges = append(g.Edges, plan.Edge{From: fmt.Sprintf("l-group-%d", i), To: fmt.Sprintf("r-group-%d", k)})
			}
		}
		limited(t, g, compile.Options{})
	})
	t.Run("Groups/DeepWithManyEdges", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		for i := range 9_000 {
			p := plan.Problem{ID: fmt.Sprintf("g%d", i)}
			if i > 0 {
				p.ParentID = fmt.Sprintf("g%d", i-1)
			}
			g.Problems = append(g.Problems, p)
		}
		for i := range 900 {
			g.Problems = append(g.Problems, plan.Problem{ID: fmt.Sprintf("x%d", i), ParentID: "g8999"})
		}
		for i := range 100_000 {
			g.Edges = append(g.Edges, plan.Edge{From: fmt.Sprintf("x%d", i%899), To: fmt.Sprintf("x%d", i%899+1)})
		}
		limited(t, g, compile.Options{})
	})
	t.Run("Named/RepeatedInEveryNode", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		for i := range 10_000 {
			g.Problems = append(g.Problems, plan.Problem{ID: fmt.Sprintf("p%d", i)})
		}
		limited(t, g, compile.Options{Named: map[string]json.RawMessage{"doc": json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}})
	})
	t.Run("Ids/AllAlikeWhenCleaned", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		for i := range 10_000 { // ids that become equal without the characters that a node id may not have
			g.Problems = append(g.Problems, plan.Problem{ID: "a" + strings.NewReplacer("0", "#", "1", "/").Replace(fmt.Sprintf("%014b", i)) + "a"})
		}
		for i := range 10_000 {
			g.Problems[i].ID = strings.Trim(strings.Map(func(r rune) rune { return r }, g.Problems[i].ID), "")
		}
		out, err := compile.Graph(t.Context(), g, compile.Options{})
		require.NoError(t, err)
		seen := map[string]bool{}
		for i := range out.Nodes {
			seen[out.Nodes[i].ID] = true
		}
		require.Len(t, seen, 10_000)
	})
	t.Run("SplitReused/ManyUsesOfTwoTools", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		var renames []string
		for i := range 10_000 {
			g.Problems = append(g.Problems, plan.Problem{ID: []string{"x", "y"}[i%2], Refs: []plan.Reference{{To: "x"}}})
			renames = append(renames, fmt.Sprintf("p%d", i))
		}
		for range 100_000 {
			g.Edges = append(g.Edges, plan.Edge{From: "x", To: "y"})
		}
		out, lost := compile.SplitReused(g, renames)
		require.Empty(t, lost)
		require.Len(t, out.Edges, 100_000)
		seen := map[plan.Edge]bool{}
		for _, e := range out.Edges {
			require.False(t, seen[e], "no pair is used twice")
			seen[e] = true
		}
	})
	t.Run("Context/StopsTheWork", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := compile.Graph(ctx, plan.Graph{Problems: []plan.Problem{{ID: "a"}}}, compile.Options{})
		require.ErrorIs(t, err, context.Canceled)
	})
}
