package workgraph

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestValueFault(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ in, want string }{
		"Plain":           {`{"a": [1, "x"]}`, ""},
		"DeepEnough":      {nested(MaxValueDepth), ""},
		"TooDeep":         {nested(MaxValueDepth + 1), "is nested more than 1000 deep"},
		"DeeperThanJSON":  {nested(20_000), "is nested more than 1000 deep"},
		"BracketsInTexts": {`"` + strings.Repeat(`\"[`, 2*MaxValueDepth) + `"`, ""},
		"ManySiblings":    {"[" + strings.Repeat("[],", 5*MaxValueDepth) + "0]", ""},
		"Garbage":         {`{"a"`, "is not JSON"},
		"Empty":           {"", "is not JSON"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, ValueFault(json.RawMessage(tc.in))) })
	}
}

func TestDeepValues(t *testing.T) {
	t.Parallel()
	t.Run("Outcome/TooDeepFailsItsVisit", func(t *testing.T) {
		res, err := Run(t.Context(), NewBuilder("").Node("a", "x").Graph(), Actors{"x": ActorFunc(func(context.Context, *Call) (Outcome, error) {
			return Outcome{Values: []json.RawMessage{json.RawMessage(nested(MaxValueDepth + 1))}}, nil
		})}, Input{})
		require.NoError(t, err)
		require.Equal(t, StatusFailed, res.Status)
		require.Equal(t, "value 0 is nested more than 1000 deep", res.Error.Message)
	})
	t.Run("Loop/CannotWrapItsResultForEver", func(t *testing.T) {
		// Each round puts the previous round's result into a list of slots.
		g := &Graph{Nodes: []Node{{ID: "m", Actor: "x", Map: &Map{Over: "[args[0]]"}, MaxVisits: Unlimited, PassDown: FirstArg()}},
			Edges: []Edge{{From: "m", To: "m", Kind: BackEdge, When: "visit < 2000"}}}
		res, err := Run(t.Context(), g, Actors{"x": ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
			return Outcome{Values: []json.RawMessage{c.Args[0]}}, nil
		})}, Input{Args: []json.RawMessage{json.RawMessage("1")}})
		require.NoError(t, err)
		require.Equal(t, StatusFailed, res.Status)
		require.Contains(t, res.Error.Message, "nested")
	})
	t.Run("Graph/SaysWhere", func(t *testing.T) {
		g := &Graph{Nodes: []Node{{ID: "a", Actor: "x", Named: map[string]json.RawMessage{"k": json.RawMessage(nested(MaxValueDepth + 1))},
			OnError: OnError{Action: Fallback, Value: json.RawMessage(nested(MaxValueDepth + 1))}, Retry: Retry{Multiplier: math.Inf(1)}}}}
		var fields []string
		for _, f := range faultsOf(g, nil) {
			fields = append(fields, f.Field)
		}
		require.ElementsMatch(t, []string{"named.k", "on_error.value", "retry.multiplier"}, fields)
	})
}
