package actor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/template"
	"github.com/epigraph-run/epigraph/workgraph"
)

// lookup is a scope of variables alone.
type lookup func(string) (json.RawMessage, bool)

func (l lookup) Var(name string) (json.RawMessage, bool)         { return l(name) }
func (lookup) Ancestor(string) (r workgraph.NodeResult, ok bool) { return r, false }
func (lookup) Ancestors() []string                               { return nil }
func (lookup) Rounds(string) []json.RawMessage                   { return nil }

func TestExpressions(t *testing.T) {
	t.Parallel()
	list := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("1,", 2000), ",") + "]")
	t.Run("Cancel/StopsAnEvaluation", func(t *testing.T) {
		t.Parallel()
		over := errors.New("the node's time is up")
		for _, spec := range []actor.Spec{cel.Spec(), template.Spec()} {
			ctx, cancel := context.WithCancelCause(t.Context())
			asked := 0
			call := workgraph.NewCall(workgraph.Start{Named: map[string]json.RawMessage{
				"expr": json.RawMessage(`"state.all(x, state.all(y, x == y))"`), "text": json.RawMessage(`"{{ state.all(x, state.all(y, x == y)) }}"`),
			}}, workgraph.CallOptions{Scope: lookup(func(string) (json.RawMessage, bool) {
				asked++
				cancel(over)
				return list, true
			})})
			_, err := spec.Actor.Call(ctx, call)
			require.ErrorIs(t, err, over, spec.Name)
			_, typed := errors.AsType[*workgraph.Error](err)
			require.False(t, typed, "what ended the call is the engine's to tell")
			require.Equal(t, 1, asked)
		}
	})
	t.Run("Repeat/IsNotCompiledAgain", func(t *testing.T) {
		t.Parallel()
		x := actor.NewExpressions()
		none := lookup(func(string) (json.RawMessage, bool) { return nil, false })
		ctx, cancel := context.WithCancel(t.Context())
		first, err := x.Eval(ctx, "1 + 2", none)
		require.NoError(t, err)
		require.Equal(t, "3", string(first))
		require.True(t, x.Keeps("1 + 2"))
		for range 20 {
			text := `"` + strings.Repeat("x", 15_000) + `" + "` + strings.Repeat("y", x.Kept()%100) + `"`
			_, err := x.Eval(ctx, text, none)
			require.NoError(t, err)
			require.LessOrEqual(t, x.Kept(), 256<<10)
		}
		cancel()
		_, err = x.Eval(ctx, "1 + 2", none)
		require.ErrorIs(t, err, context.Canceled)
	})
}
