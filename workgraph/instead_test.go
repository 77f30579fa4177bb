package workgraph

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the user asks for in place of an answer must reach whoever is above.
func TestAnotherRequest(t *testing.T) {
	t.Parallel()
	turned := ActorFunc(func(context.Context, *Call) (Outcome, error) {
		return Outcome{}, Errorf(Permanent, ReasonAnotherRequest, "What is open?")
	})
	broken := ActorFunc(func(context.Context, *Call) (Outcome, error) {
		return Outcome{}, Errorf(Permanent, "BROKEN", "it is broken")
	})
	after := ActorFunc(func(context.Context, *Call) (Outcome, error) { return Outcome{Values: one(`"after"`)}, nil })
	actors := Actors{"turned": turned, "broken": broken, "after": after}
	for name, on := range map[string]OnError{"Fallback": {Action: Fallback, Value: json.RawMessage("null")}, "Continue": {Action: Continue}} {
		t.Run(name+"/EndsTheRunWithIt", func(t *testing.T) {
			t.Parallel()
			g := NewBuilder("").Add(Node{ID: "a", Actor: "turned", OnError: on}).Add(Node{ID: "b", Actor: "after"}).Edge("a", "b").Graph()
			res, err := Run(t.Context(), g, actors, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusFailed, res.Status)
			require.Equal(t, ReasonAnotherRequest, res.Error.Reason)
			require.Contains(t, res.Error.Message, "What is open?")
		})
		t.Run(name+"/HidesAnyOtherFailure", func(t *testing.T) {
			t.Parallel()
			g := NewBuilder("").Add(Node{ID: "a", Actor: "broken", OnError: on}).Add(Node{ID: "b", Actor: "after"}).Edge("a", "b").Graph()
			res, err := Run(t.Context(), g, actors, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusCompleted, res.Status)
		})
	}
	t.Run("Child/GoesUpAsItIs", func(t *testing.T) {
		t.Parallel()
		err := childFailure(&ChildSlot{RunID: "run_1", Error: &Error{Reason: ReasonAnotherRequest, Message: "What is open?"}})
		require.Equal(t, ReasonAnotherRequest, err.Reason)
		require.Equal(t, "What is open?", err.Message)
	})
}
