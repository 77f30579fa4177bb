// Package actortest calls actors in tests as an engine would, without one.
package actortest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Call calls the actor with named arguments given as one JSON object; change adjusts the attempt.
func Call(t *testing.T, s actor.Spec, named string, change ...func(*workgraph.Start)) (workgraph.Outcome, error) {
	t.Helper()
	start := workgraph.Start{RunID: "run_1", Ref: workgraph.Ref{Node: "n", Visit: 1}, Attempt: 1, Generation: 1, Actor: s.Name}
	require.NoError(t, json.Unmarshal([]byte(named), &start.Named))
	start.Own, start.Effect = start.Named, s.Effect
	if s.EffectOf != nil {
		start.Effect = s.EffectOf(&workgraph.Node{Named: start.Named})
	}
	for _, f := range change {
		f(&start)
	}
	return s.Actor.Call(t.Context(), workgraph.NewCall(start, workgraph.CallOptions{}))
}

// Value calls the actor and returns its single value.
func Value(t *testing.T, s actor.Spec, named string, change ...func(*workgraph.Start)) string {
	t.Helper()
	out, err := Call(t, s, named, change...)
	require.NoError(t, err)
	require.Len(t, out.Values, 1)
	return string(out.Values[0])
}

// Fails calls the actor and returns the typed error that it must give.
func Fails(t *testing.T, s actor.Spec, named string, change ...func(*workgraph.Start)) *workgraph.Error {
	t.Helper()
	_, err := Call(t, s, named, change...)
	var e *workgraph.Error
	require.ErrorAs(t, err, &e)
	return e
}
