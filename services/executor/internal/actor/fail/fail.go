// Package fail is the actor for drills: it fails on purpose, in every way an actor can.
package fail

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "mode": {"enum": ["error", "panic", "hang"], "description": "How it fails: error is the default; hang goes on until it is canceled."},
    "type": {"enum": ["RETRYABLE", "PERMANENT", "UNKNOWN", "NOT_PERFORMED"], "description": "What is known of the error; PERMANENT is the default."},
    "reason": {"type": "string", "description": "The error's reason; DRILL when absent."},
    "message": {"type": "string", "description": "The error's message."},
    "attempts": {"type": "integer", "minimum": 0, "description": "Fails only the first so many attempts of a visit; always when absent."},
    "value": {"description": "The result once it no longer fails; null when absent."}
  }
}`

// Spec describes the actor.
func Spec() actor.Spec {
	return actor.Spec{
		Name: "fail", Version: "1", Effect: workgraph.Pure, Schema: schema,
		Description: "Fails on purpose, for drills: with any kind of error, a panic, or by hanging.",
		Actor:       workgraph.ActorFunc(call),
	}
}

func call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	a := struct {
		Mode     string              `json:"mode"`
		Type     workgraph.ErrorType `json:"type"`
		Reason   string              `json:"reason"`
		Message  string              `json:"message"`
		Attempts *int                `json:"attempts"`
		Value    json.RawMessage     `json:"value"`
	}{Mode: "error", Type: workgraph.Permanent, Reason: "DRILL", Message: "failed on purpose"}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Attempts != nil && c.Attempt > *a.Attempts {
		if len(a.Value) == 0 {
			a.Value = json.RawMessage("null")
		}
		return workgraph.Outcome{Values: []json.RawMessage{a.Value}}, nil
	}
	switch a.Type {
	case workgraph.Retryable, workgraph.Permanent, workgraph.Unknown, workgraph.NotPerformed:
	default:
		return workgraph.Outcome{}, actor.BadArguments("type %q: use RETRYABLE, PERMANENT, UNKNOWN or NOT_PERFORMED", a.Type)
	}
	switch a.Mode {
	case "error":
		return workgraph.Outcome{}, workgraph.Errorf(a.Type, a.Reason, "%s", a.Message)
	case "panic":
		panic("fail: " + a.Message)
	case "hang":
		<-ctx.Done()
		return workgraph.Outcome{}, context.Cause(ctx)
	}
	return workgraph.Outcome{}, actor.BadArguments("mode %q: use error, panic or hang", a.Mode)
}
