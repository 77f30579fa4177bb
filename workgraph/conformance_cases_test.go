package workgraph

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestA10Cases(t *testing.T) {
	t.Run("Case1/Chains", func(t *testing.T) {
		result(t, 12, newTrace(t).on("A", add(1)).on("B", double).run(nodes(FirstArg(), "A", "B").Chain("A", "B").Graph(), 5))
		result(t, 22, newTrace(t).on("A", add(1)).on("B", double).on("C", add(10)).run(nodes(FirstArg(), "A", "B", "C").Chain("A", "B", "C").Graph(), 5))
		tr := newTrace(t)
		ids := []string{"1", "2", "3", "4", "5"}
		for _, id := range ids {
			tr.on(id, add(1))
		}
		result(t, 5, tr.run(nodes(FirstArg(), ids...).Chain(ids...).Graph(), 0))
	})
	t.Run("Case2/Forks", func(t *testing.T) {
		fork := func() *Graph {
			return nodes(FirstArg(), "A", "x", "y", "z").Edge("A", "x").Edge("A", "y").Edge("A", "z").Graph()
		}
		result(t, []any{11, 12, 13}, newTrace(t).on("A", double).on("x", add(1)).on("y", add(2)).on("z", add(3)).run(fork(), 5))
		result(t, []any{"string_5", map[string]any{"value": 5}, []any{5, 10}}, newTrace(t).on("A", add(0)).
			on("x", func(a []any, _ map[string]any) any { return fmt.Sprintf("string_%d", a[0]) }).
			on("y", func(a []any, _ map[string]any) any { return map[string]any{"value": a[0]} }).
			on("z", func(a []any, _ map[string]any) any { return []any{a[0], a[0].(int) * 2} }).run(fork(), 5))
	})
	t.Run("Case3/Joins", func(t *testing.T) {
		result(t, 23, newTrace(t).on("A", add(0)).on("B", add(1)).on("C", add(2)).on("D", sum).run(diamond(FirstArg()), 10))
		g := nodes(FirstArg(), "A", "x", "y", "z", "J").Edge("A", "x").Edge("A", "y").Edge("A", "z").Edge("x", "J").Edge("y", "J").Edge("z", "J").Graph()
		result(t, 6, newTrace(t).on("A", add(0)).on("x", add(1)).on("y", add(2)).on("z", add(3)).on("J", sum).run(g, 0))
	})
	t.Run("Case4/TwoStarts", func(t *testing.T) {
		tr := newTrace(t).on("A", add(2)).on("B", add(35))
		result(t, []any{12, 45}, tr.run(nodes(FirstArg(), "A", "B").Graph(), 10))
		tr = newTrace(t).on("A", add(2)).on("B", add(4)).on("J", sum)
		result(t, 6, tr.run(nodes(FirstArg(), "A", "B", "J").Edge("A", "J").Edge("B", "J").Graph(), 0))
	})
	t.Run("Case5/Modes", func(t *testing.T) {
		tr := newTrace(t).on("A", func([]any, map[string]any) any { return tuple{1, 2, 3} }).on("B", sum)
		result(t, 7, tr.run(nodes(LeadingArgs(), "A", "B").Chain("A", "B").Graph(), 1))
		result(t, 6, newTrace(t).on("A", text("ignored")).on("B", add(1)).run(nodes(PassDown{}, "A", "B").Chain("A", "B").Graph(), 5))
		tr = newTrace(t).on("A", double).on("B", func(_ []any, k map[string]any) any { return fmt.Sprintf("got_%v", k["k"]) })
		result(t, "got_10", tr.run(nodes(Key("k"), "A", "B").Chain("A", "B").Graph(), 5))
	})
	t.Run("Case6/AccumulatingHistory", func(t *testing.T) {
		// Ours: the original's callable becomes a MERGE expression.
		mode := Merge(`{"named": {"history": ("history" in named ? named.history : []) + [result]}}`)
		history := func(k map[string]any) int { h, _ := k["history"].([]any); return len(h) }
		tr := newTrace(t).on("A", text("A_1")).
			on("B", func(_ []any, k map[string]any) any { return fmt.Sprintf("B_with_history_%d", history(k)) }).
			on("C", func(_ []any, k map[string]any) any { return k["history"] })
		result(t, []any{"A_1", "B_with_history_1"}, tr.run(nodes(mode, "A", "B", "C").Chain("A", "B", "C").Graph()))
	})
	t.Run("Case7/Terminate", func(t *testing.T) {
		tr := newTrace(t).on("A", add(1)).raw("B1", stop(Terminate, 2)).on("B2", add(1))
		tr.run(nodes(FirstArg(), "A", "B1", "B2").Edge("A", "B1").Edge("A", "B2").Graph(), 0)
		require.Equal(t, []string{"A", "B1"}, tr.calls)

		g := nodes(FirstArg(), "A", "B", "C", "D", "E").Edge("A", "B").Edge("A", "C").Edge("B", "D").Edge("C", "D").Edge("D", "E").Graph()
		tr = newTrace(t).on("A", add(0)).on("B", add(1)).on("C", add(2)).raw("D", stop(Terminate, "d")).on("E", add(1))
		result(t, "d", tr.run(g, 1))
		require.Equal(t, []string{"A", "B", "C", "D"}, tr.calls)

		// The graph is data, so it runs again without the terminating condition.
		result(t, 7, newTrace(t).on("A", add(0)).on("B", add(1)).on("C", add(2)).on("D", sum).on("E", add(2)).run(g, 1))
	})
	t.Run("Case8/AbstainCasesAreInA1", func(t *testing.T) {
		tr := newTrace(t).on("A", text("a")).raw("B", stop(AbstainResult, "b")).on("C", text("c1")).on("D", args)
		result(t, []any{"c1"}, tr.run(diamond(FirstArg())))
	})
	t.Run("Case9/RetryCasesAreInA6", func(t *testing.T) {
		g := nodes(FirstArg(), "A").Graph()
		g.Nodes[0].Retry = Retry{MaxAttempts: 2, InitialBackoff: 1}
		tr := newTrace(t).raw("A", func(*Call) (Outcome, error) { return Outcome{}, fmt.Errorf("no") })
		require.Equal(t, ReasonActorError, tr.run(g).Error.Reason)
	})
	t.Run("Case10/SelectorLoopsAreInA5", func(t *testing.T) {
		g := nodes(FirstArg(), "n").Edge("n", "n", func(e *Edge) { e.Kind, e.When = BackEdge, "result < 3" }).Graph()
		result(t, 3, newTrace(t).on("n", add(1)).run(g, 0))
	})
}

func one(raw string) []json.RawMessage { return []json.RawMessage{json.RawMessage(raw)} }

func nodesOf(actor string, g *Graph) *Graph {
	for i := range g.Nodes {
		g.Nodes[i].Actor = actor
		if g.Nodes[i].Effect == "" {
			g.Nodes[i].Effect = Idempotent
		}
	}
	return g
}
