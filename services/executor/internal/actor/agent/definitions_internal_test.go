package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestDefinitions(t *testing.T) {
	t.Parallel()
	text := func(system string) json.RawMessage {
		return fmt.Appendf(nil, `{"system": %q, "reasoner": "llm", "form": "prompt", "dispatch": "groups", "actions": {"good": {"schema": {"type": "object"}}, "bad": {"schema": {"type": 7}}}}`, system)
	}
	of := func(k *definitions, raw json.RawMessage) (*definition, error) {
		return k.of(workgraph.NewCall(workgraph.Start{Own: map[string]json.RawMessage{"definition": raw}}, workgraph.CallOptions{}))
	}
	t.Run("Text/IsDecodedOnce", func(t *testing.T) {
		t.Parallel()
		k := newDefinitions()
		first, err := of(k, text("a"))
		require.NoError(t, err)
		require.Equal(t, "good", first.Actions["good"].Actor)
		again, err := of(k, text("a"))
		require.NoError(t, err)
		require.Same(t, first, again)
		other, err := of(k, text("b"))
		require.NoError(t, err)
		require.NotSame(t, first, other)
	})
	t.Run("Schemas/AreCompiledOnce", func(t *testing.T) {
		t.Parallel()
		k := newDefinitions()
		var schemas [8]*workgraph.Schema
		var g sync.WaitGroup
		for i := range schemas {
			g.Go(func() {
				d, err := k.whole(t.Context(), text("a"))
				if err == nil {
					schemas[i] = d.Actions["good"].schema
				}
			})
		}
		g.Wait()
		for _, s := range schemas {
			require.NotNil(t, s)
			require.Same(t, schemas[0], s)
		}
	})
	t.Run("Schemas/AFaultIsOfItsActionAlone", func(t *testing.T) {
		t.Parallel()
		d, err := newDefinitions().whole(t.Context(), text("a"))
		require.NoError(t, err)
		require.NoError(t, d.Actions["good"].fault)
		require.ErrorContains(t, d.Actions["bad"].fault, "schema")
	})
	t.Run("Schemas/ACanceledCallLeavesThemToTheNext", func(t *testing.T) {
		t.Parallel()
		k := newDefinitions()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := k.whole(ctx, text("a"))
		require.Equal(t, &workgraph.Error{Type: workgraph.NotPerformed}, err)
		d, err := k.whole(t.Context(), text("a"))
		require.NoError(t, err)
		require.NoError(t, d.Actions["good"].fault)
	})
	t.Run("Memory/IsBounded", func(t *testing.T) {
		t.Parallel()
		k := newDefinitions()
		long := strings.Repeat("x", 100<<10)
		for i := range 100 {
			_, err := of(k, text(fmt.Sprint(i, long)))
			require.NoError(t, err)
		}
		require.Less(t, k.kept.Len(), 30)
		_, err := of(k, text(strings.Repeat("x", 4<<20)))
		require.NoError(t, err, "one that is not kept")
	})
	t.Run("History/IsWithinTheBoundsWhoeverWroteIt", func(t *testing.T) {
		t.Parallel()
		d, err := of(newDefinitions(), json.RawMessage(`{"history": {"messages": 1000000000, "tokens": 1000000000000, "summarize": {"above": 1000000000000, "keep": 1000000000000}}}`))
		require.NoError(t, err)
		require.Equal(t, []int64{maxMessages, maxTokens, maxTokens, maxTokens / 2}, []int64{int64(d.History.Messages), d.History.Tokens, d.History.Summarize.Above, d.History.Summarize.Keep})
	})
	t.Run("Absent/IsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := of(newDefinitions(), nil)
		require.ErrorContains(t, err, "definition is missing")
	})
}
