package workgraph_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestEvalEvent(t *testing.T) {
	t.Parallel()
	event := json.RawMessage(`{"kind": "task_updated"}`)
	t.Run("KnowsTheEvent", func(t *testing.T) {
		t.Parallel()
		e, err := workgraph.CompileEventExpr(t.Context(), `event.kind == "task_updated"`)
		require.NoError(t, err)
		v, err := e.EvalEvent(t.Context(), event)
		require.NoError(t, err)
		require.Equal(t, "true", string(v))
	})
	t.Run("CostsLessThanAnExpressionOfARunMay", func(t *testing.T) {
		t.Parallel()
		e, err := workgraph.CompileEventExpr(t.Context(), `lists.range(200).map(a, lists.range(200).map(b, b)).size() > 0 && event.kind != ""`)
		require.NoError(t, err)
		_, err = e.Eval(t.Context(), map[string]json.RawMessage{"event": event})
		require.NoError(t, err)
		_, err = e.EvalEvent(t.Context(), event)
		require.ErrorContains(t, err, "cost limit of 100000 units")
	})
}
