// Package sleep is the actor that waits. It holds nothing while it does: the visit waits for a durable timer.
package sleep

import (
	"context"
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "anyOf": [{"required": ["duration"]}, {"required": ["seconds"]}, {"required": ["until"]}],
  "properties": {
    "duration": {"type": "string", "description": "How long to wait, like 1m30s."},
    "seconds": {"type": "number", "minimum": 0, "description": "How long to wait, in seconds."},
    "until": {"type": "string", "format": "date-time", "description": "When to go on."},
    "value": {"description": "The result; null when absent."}
  }
}`

// maxSleep bounds one wait, so that a slip of a digit does not keep a run for ever.
const maxSleep = 366 * 24 * time.Hour

// Spec describes the actor.
func Spec() actor.Spec {
	return actor.Spec{
		Name: "sleep", Version: "1", Elsewhere: true, Effect: workgraph.Pure, Schema: schema, Examine: examine,
		WaitsFor: []string{"duration", "seconds", "until"}, Uncached: actor.Waits,
		Description: "Waits for a duration or until a time, through restarts, without holding anything.",
		Actor:       workgraph.ActorFunc(call),
	}
}

// arguments are those of a call.
type arguments struct {
	Duration *string         `json:"duration"`
	Seconds  *float64        `json:"seconds"`
	Until    *time.Time      `json:"until"`
	Value    json.RawMessage `json:"value"`
}

// examine returns the faults of a node's own arguments. A missing one may come with the input.
func examine(_ context.Context, n *workgraph.Node) []workgraph.Argument {
	var a arguments
	if err := actor.Decode(n.Named, &a); err != nil {
		if text, ok := actor.OwnText(n, "until"); ok {
			if _, err := time.Parse(time.RFC3339, text); err != nil {
				return []workgraph.Argument{{Arg: "until", Fault: "it is no time", Hint: "write it like 2026-01-31T18:00:00Z"}}
			}
		}
		return nil // the schema says what type each has
	}
	var first string
	for _, x := range []struct {
		name  string
		given bool
	}{{"duration", a.Duration != nil}, {"seconds", a.Seconds != nil}, {"until", a.Until != nil}} {
		switch {
		case x.given && first == "":
			first = x.name
		case x.given:
			return []workgraph.Argument{{Arg: x.name, Fault: first + " is given too", Hint: "give exactly one of duration, seconds and until"}}
		}
	}
	if first == "" {
		return nil
	}
	_, err := a.outcome()
	return actor.Faulty(first, err)
}

func call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a arguments
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	return a.outcome()
}

func (a *arguments) outcome() (workgraph.Outcome, error) {
	given := 0
	for _, set := range []bool{a.Duration != nil, a.Seconds != nil, a.Until != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		return workgraph.Outcome{}, actor.BadArguments("give exactly one of duration, seconds and until")
	}
	out := workgraph.Outcome{Wait: &workgraph.Wait{Timer: &workgraph.Timer{}}, Values: []json.RawMessage{json.RawMessage("null")}}
	if len(a.Value) > 0 {
		out.Values[0] = a.Value
	}
	var d time.Duration
	switch {
	case a.Duration != nil:
		parsed, err := actor.Duration("duration", *a.Duration)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		d = parsed
	case a.Seconds != nil:
		if *a.Seconds > maxSleep.Seconds() {
			return workgraph.Outcome{}, actor.BadArguments("seconds must be at most %.0f", maxSleep.Seconds())
		}
		d = time.Duration(*a.Seconds * float64(time.Second))
	default:
		if time.Until(*a.Until) > maxSleep {
			return workgraph.Outcome{}, actor.BadArguments("until must be within %d days", maxSleep/(24*time.Hour))
		}
		out.Wait.Timer.Until = *a.Until
		return out, nil
	}
	if d < 0 || d > maxSleep {
		return workgraph.Outcome{}, actor.BadArguments("the wait must be between 0 and %d days", maxSleep/(24*time.Hour))
	}
	if d == 0 {
		out.Wait = nil
		return out, nil
	}
	out.Wait.Timer.After = workgraph.Duration(d)
	return out, nil
}
