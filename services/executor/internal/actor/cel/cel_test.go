package cel_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestCEL(t *testing.T) {
	t.Parallel()
	upstream := func(s *workgraph.Start) {
		s.Upstream = []workgraph.Upstream{{Node: "a", Outcome: workgraph.VisitCompleted, Values: []json.RawMessage{json.RawMessage(`{"n": 9007199254740993}`)}}}
	}
	t.Run("Eval/SeesArgumentsAndResults", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "9007199254740994", actortest.Value(t, cel.Spec(), `{"expr": "nodes.a.result.n + named.by", "by": 1}`, upstream))
	})
	t.Run("Eval/MayGiveMaps", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"ok": [1, 2]}`, actortest.Value(t, cel.Spec(), `{"expr": "{'ok': [1, 2]}"}`))
	})
	for name, named := range map[string]string{
		"Refuse/Syntax": `{"expr": "1 +"}`, "Refuse/MissingKey": `{"expr": "named.nothing"}`,
		"Refuse/Runaway": `{"expr": "[1,2,3,4,5,6,7,8,9,10].map(a,[1,2,3,4,5,6,7,8,9,10].map(b,[1,2,3,4,5,6,7,8,9,10].map(c,[1,2,3,4,5,6,7,8,9,10].map(d,[1,2,3,4,5,6,7,8,9,10].map(e,[1,2,3,4,5,6,7,8,9,10].map(f,a+b+c+d+e+f))))))"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := actortest.Fails(t, cel.Spec(), named)
			require.Equal(t, cel.ReasonExpression, e.Reason)
			require.Equal(t, workgraph.Permanent, e.Type)
		})
	}
	t.Run("Refuse/NoExpression", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "ARGUMENTS_INVALID", actortest.Fails(t, cel.Spec(), `{}`).Reason)
	})
}
