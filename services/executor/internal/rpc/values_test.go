package rpc

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestAttemptEnded(t *testing.T) {
	t.Parallel()
	ref := workgraph.Ref{Node: "a", Visit: 1}
	ended := func(d *workgraph.Detail) *record.Durable {
		return &record.Durable{Event: workgraph.Event{
			Kind: workgraph.AttemptEnded, Ref: ref, Attempt: 1,
			Outcome: &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"own"`)}},
			Steps:   []workgraph.Step{{Op: workgraph.OpComplete, Node: "a", Visit: 1, Detail: d}},
		}}
	}
	t.Run("Values/AreTheOutcomesWhenTheStepLeavesThemOut", func(t *testing.T) {
		t.Parallel()
		m := attemptEnded(ended(nil))
		require.Len(t, m.GetValues(), 1)
		require.Equal(t, `"own"`, string(m.GetValues()[0].GetJson()))
	})
	t.Run("Values/AreTheStepsWhenItHasThem", func(t *testing.T) {
		t.Parallel()
		m := attemptEnded(ended(&workgraph.Detail{Values: []json.RawMessage{json.RawMessage(`1`), json.RawMessage(`2`)}}))
		require.Len(t, m.GetValues(), 2)
	})
}
