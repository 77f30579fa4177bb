package workgraph_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestOutcomePause(t *testing.T) {
	t.Parallel()
	pauses := func(reason string) workgraph.Actor {
		return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}, Pause: reason}, nil
		})
	}
	next := 0
	actors := func(reason string) workgraph.Actors {
		return workgraph.Actors{"p": pauses(reason), "n": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			next++
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`2`)}}, nil
		})}
	}
	g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "p"}, {ID: "b", Actor: "n"}}, Edges: []workgraph.Edge{{From: "a", To: "b"}}}
	var events []workgraph.Event
	res, err := workgraph.Run(t.Context(), g, actors("LOOK_FIRST"), workgraph.Input{}, workgraph.WithProgress(func(e workgraph.Event) { events = append(events, e) }))
	require.NoError(t, err)
	require.Equal(t, []any{workgraph.StatusPaused, "LOOK_FIRST", 0}, []any{res.Status, res.Reason, next}, "the successor is held")
	require.Equal(t, workgraph.RunPaused, events[len(events)-1].Kind)

	last := &workgraph.Graph{Nodes: g.Nodes[:1]}
	res, err = workgraph.Run(t.Context(), last, actors("LOOK_FIRST"), workgraph.Input{})
	require.NoError(t, err)
	require.Equal(t, workgraph.StatusCompleted, res.Status, "a run that has come to its end does not pause")

	res, err = workgraph.Run(t.Context(), last, actors(string(make([]byte, 200))), workgraph.Input{})
	require.NoError(t, err)
	require.Equal(t, workgraph.ReasonBadOutcome, res.Error.Reason)
	mapped := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "p", Map: &workgraph.Map{Over: "[1]"}}}}
	res, err = workgraph.Run(t.Context(), mapped, actors("LOOK_FIRST"), workgraph.Input{})
	require.NoError(t, err)
	require.Contains(t, res.Error.Message, "cannot pause its run")
}
