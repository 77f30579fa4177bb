package workgraph

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSkips(t *testing.T) {
	t.Parallel()
	edge := func(from, to, note string) *Step { return &Step{Op: OpEdge, Node: from, To: to, Note: note} }
	skip := func(node, note string) *Step { return &Step{Op: OpSkip, Node: node, Note: note} }
	tell := func(steps ...*Step) (reason, message string) {
		var k Skips
		for _, st := range steps {
			reason, message = k.Step(st)
		}
		return reason, message
	}
	t.Run("Condition/IsFalse", func(t *testing.T) {
		t.Parallel()
		reason, message := tell(skip("a", ReasonConditionFalse))
		require.Equal(t, []string{ReasonConditionFalse, ""}, []string{reason, message})
	})
	t.Run("Condition/UsesAMissingKey", func(t *testing.T) {
		t.Parallel()
		reason, message := tell(skip("a", missingNote+"no such key: rows"))
		require.Equal(t, []string{ReasonKeyMissing, "no such key: rows"}, []string{reason, message})
	})
	t.Run("Edges/OfTheNodeAreNamed", func(t *testing.T) {
		t.Parallel()
		reason, message := tell(edge("a", "c", missingNote+"no such key: x"), edge("a", "d", missingNote+"no such key: y"),
			edge("b", "c", ReasonConditionFalse), skip("c", ReasonNoLiveInput))
		require.Equal(t, []string{ReasonNoLiveInput, "the edge from a: no such key: x"}, []string{reason, message})
	})
	t.Run("Edges/AFewOfManyAreNamed", func(t *testing.T) {
		t.Parallel()
		var steps []*Step
		for i := range 10_000 {
			steps = append(steps, edge(fmt.Sprint("n", i), "z", missingNote+"k"))
		}
		_, message := tell(append(steps, skip("z", ReasonNoLiveInput))...)
		require.Equal(t, "the edge from n0: k; the edge from n1: k; the edge from n2: k; the edge from n3: k; and 9996 more", message)
	})
}
