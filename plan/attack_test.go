package plan_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan"
)

func TestAttacks(t *testing.T) {
	t.Parallel()
	t.Run("Validate/ManyUnknownNamesNearMany", func(t *testing.T) {
		t.Parallel()
		var g plan.Graph
		for i := range 1_000 {
			g.Problems = append(g.Problems, plan.Problem{ID: fmt.Sprintf("%s-%d", strings.Repeat("A_b", 100), i)})
		}
		for i := range 100_000 {
			g.Edges = append(g.Edges, plan.Edge{From: fmt.Sprintf("unknown %d", i), To: g.Problems[i%1_000].ID, Source: plan.Stated})
		}
		g.Edges[0].From = strings.Repeat("a-B", 100) + "7"
		ds := plan.Validate(g)
		require.Len(t, ds, 1_001, "what is said about a graph is bounded")
		require.Contains(t, ds[0].Message, "did you mean")
		require.Equal(t, plan.LimitReached, ds[1_000].Code)
	})
	t.Run("Parse/StopsWithItsContext", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		text := "A, B -> C\nC -> D"
		require.NotEmpty(t, plan.Parse(text, plan.WithContext(ctx)).Graph.Problems)
		cancel()
		require.Empty(t, plan.Parse(text, plan.WithContext(ctx)).Graph.Problems)
	})
	t.Run("Parse/GroupsOfManyTimesMany", func(t *testing.T) {
		t.Parallel()
		var from, to []string
		for i := range 1_000 {
			from, to = append(from, fmt.Sprintf("a%d", i)), append(to, fmt.Sprintf("b%d", i))
		}
		r := plan.Parse(strings.Join(from, ", ") + " -> " + strings.Join(to, ", "))
		require.LessOrEqual(t, len(r.Graph.Edges), 100_000)
		require.True(t, r.HasErrors())
	})
}
