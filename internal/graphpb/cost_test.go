package graphpb_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func TestCost(t *testing.T) {
	t.Parallel()
	computes := func(actor string) bool { return actor == "cel" }
	text := func(actor string) *graphv1.Graph {
		return &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "a", Actor: actor, Named: map[string]*graphv1.Payload{
			"text": {Json: []byte(`"` + strings.Repeat("x", 10_000) + `"`)}}}}}
	}
	cost := func(g *graphv1.Graph) int { return graphpb.Cost(g, computes, g) }
	t.Run("Texts/CostLittle", func(t *testing.T) {
		t.Parallel()
		require.Less(t, cost(text("llm")), admission.Free/10)
	})
	t.Run("Expressions/CostMuch", func(t *testing.T) {
		t.Parallel()
		require.Greater(t, cost(text("cel")), admission.Free)
		for name, g := range map[string]*graphv1.Graph{
			"when":      {Nodes: []*graphv1.Node{{When: strings.Repeat("1", 10_000)}}},
			"transform": {Nodes: []*graphv1.Node{{Transform: strings.Repeat("1", 10_000)}}},
			"key":       {Nodes: []*graphv1.Node{{ConcurrencyKey: strings.Repeat("1", 10_000)}}},
			"check":     {Nodes: []*graphv1.Node{{Check: &graphv1.Check{Cel: strings.Repeat("1", 10_000)}}}},
			"map":       {Nodes: []*graphv1.Node{{Map: &graphv1.Map{Over: strings.Repeat("1", 10_000)}}}},
			"merge":     {Nodes: []*graphv1.Node{{ResultPassDownMode: &graphv1.PassDown{Mode: &graphv1.PassDown_Merge{Merge: strings.Repeat("1", 10_000)}}}}},
			"edge":      {Edges: []*graphv1.Edge{{When: strings.Repeat("1", 10_000)}}},
			"edgemerge": {Edges: []*graphv1.Edge{{ResultPassDownMode: &graphv1.PassDown{Mode: &graphv1.PassDown_Merge{Merge: strings.Repeat("1", 10_000)}}}}},
		} {
			require.Greater(t, cost(g), admission.Free, name)
		}
	})
	t.Run("Nodes/AreCounted", func(t *testing.T) {
		t.Parallel()
		require.GreaterOrEqual(t, cost(&graphv1.Graph{Nodes: make([]*graphv1.Node, 300), Edges: make([]*graphv1.Edge, 700)}), 1000)
	})
}
