// Package wait holds the actors that wait for somebody: a person's answer, a signal, the end of work outside.
// They hold nothing meanwhile: each only returns the condition of its visit. They must not know how it is
// fulfilled.
package wait

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxWait bounds one wait, so that a slip of a digit does not keep a run for ever. Leaving the timeout out
// does, when it is meant.
const maxWait = 366 * 24 * time.Hour

const timeoutSchema = `{"type": "string", "description": "How long to wait at most, like 72h; without it the wait has no end."}`

const humanSchema = `{
  "type": "object",
  "additionalProperties": false,
  "anyOf": [{"required": ["prompt"]}, {"required": ["approve"]}],
  "properties": {
    "prompt": {"description": "What is asked, for a person: a text, or JSON that a client shows."},
    "schema": {"type": "object", "description": "JSON Schema of the answer; another answer is refused and the interrupt stays open."},
    "timeout": ` + timeoutSchema + `,
    "default": {"description": "The answer when nobody gives one in time; without it the visit fails with INTERRUPT_EXPIRED."},
    "approve": {"description": "Exactly what is to be approved. The result then is an object with decision, by, approve_hash and answer."},
    "choices": {
      "type": "array", "minItems": 1, "maxItems": 100,
      "description": "The answers to choose from. Another answer is refused. Each is a value, or an object with value and the label that a person sees.",
      "items": {"anyOf": [
        {"type": ["string", "number", "boolean"]},
        {"type": "object", "required": ["value"], "additionalProperties": false, "properties": {"value": {"type": ["string", "number", "boolean"]}, "label": {"type": "string", "minLength": 1, "maxLength": 200}}}
      ]}
    },
    "multiple": {"type": "boolean", "description": "Whether several choices may be given, as a list; false when absent."}
  }
}`

// Human describes the actor that asks a person.
func Human() actor.Spec {
	return actor.Spec{
		Name: "human", Version: "1", Elsewhere: true, Computes: true, Effect: workgraph.Pure, Schema: humanSchema, Examine: examine, WaitsFor: []string{"timeout"},
		Uncached:    func(*workgraph.Node) string { return "a person is asked each time" },
		Approves:    func(n *workgraph.Node) bool { return len(n.Named["approve"]) > 0 },
		Description: "Asks a person and waits for the answer, which is the result: in free form, one of several choices, or the approval of something.",
		Actor:       workgraph.ActorFunc(human),
	}
}

// examine returns the faults of a node's own texts and values. Missing ones may come with the input.
func examine(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	var out []workgraph.Argument
	if text, ok := actor.OwnText(n, "timeout"); ok {
		_, err := Timeout(text)
		out = append(out, actor.Faulty("timeout", err)...)
	}
	if n.Actor != "human" {
		return out
	}
	if len(n.Named["default"]) > 0 && len(n.Named["approve"]) > 0 {
		if answer, _ := actor.OwnText(n, "default"); answer != workgraph.Approved && answer != workgraph.Rejected {
			out = append(out, workgraph.Argument{Arg: "default", Fault: `the default of an approval must be "APPROVED" or "REJECTED"`})
		}
	}
	if len(n.Named["choices"]) > 0 {
		return append(out, examineChoices(ctx, n)...)
	}
	if raw := n.Named["schema"]; len(raw) > 0 {
		if err := answerable(ctx, raw, n.Named["default"]); err != nil {
			arg := "schema"
			if strings.HasPrefix(err.Message, "default:") {
				arg = "default"
			}
			// The reader of the fault sees the argument beside it.
			out = append(out, workgraph.Argument{Arg: arg, Fault: strings.TrimPrefix(err.Message, arg+": ")})
		}
	}
	return out
}

// answerable checks the schema of answers, and the default answer against it.
func answerable(ctx context.Context, raw, standard json.RawMessage) *workgraph.Error {
	schema, err := workgraph.CompileSchema(ctx, raw)
	if err != nil {
		return actor.BadArguments("schema: %v", err)
	}
	if len(standard) == 0 {
		return nil
	}
	if err := schema.Check(ctx, standard); err != nil {
		return actor.BadArguments("default: %v", err)
	}
	return nil
}

func human(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Prompt  json.RawMessage `json:"prompt"`
		Schema  json.RawMessage `json:"schema"`
		Timeout string          `json:"timeout"`
		Default json.RawMessage `json:"default"`
		Approve json.RawMessage `json:"approve"`

		Choices  json.RawMessage `json:"choices"`
		Multiple bool            `json:"multiple"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.Prompt) == 0 && len(a.Approve) == 0 {
		return workgraph.Outcome{}, actor.BadArguments("give a prompt, or what is to be approved")
	}
	timeout, err := Timeout(a.Timeout)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	if len(a.Default) > 0 && timeout == 0 {
		return workgraph.Outcome{}, actor.BadArguments("a default needs a timeout")
	}
	if len(a.Choices) > 0 {
		if a.Schema, err = choose(a.Choices, a.Multiple, len(a.Schema) > 0, len(a.Approve) > 0); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	if len(a.Schema) > 0 {
		if err := answerable(ctx, a.Schema, a.Default); err != nil {
			return workgraph.Outcome{}, err
		}
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Interrupt: &workgraph.Interrupt{
		Prompt: a.Prompt, Schema: a.Schema, Timeout: timeout, Default: a.Default, Approve: a.Approve}}}, nil
}

const signalSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["name"],
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The signal to wait for."},
    "timeout": ` + timeoutSchema + `
  }
}`

// Signal describes the actor that waits for a signal.
func Signal() actor.Spec {
	return actor.Spec{
		Name: "signal", Version: "1", Elsewhere: true, Effect: workgraph.Pure, Schema: signalSchema, Examine: examine, WaitsFor: []string{"timeout"}, Uncached: actor.Waits,
		Description: "Waits for a signal to the run, one that came before included; what it carries is the result.",
		Actor:       workgraph.ActorFunc(signal),
	}
}

func signal(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Name    string `json:"name"`
		Timeout string `json:"timeout"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	if a.Name == "" || len(a.Name) > 256 {
		return workgraph.Outcome{}, actor.BadArguments("name must have 1 to 256 characters")
	}
	timeout, err := Timeout(a.Timeout)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Signal: &workgraph.SignalWait{Name: a.Name, Timeout: timeout}}}, nil
}

const completionSchema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {"timeout": ` + timeoutSchema + `}
}`

// Completion describes the actor that waits for work that goes on outside.
func Completion() actor.Spec {
	return actor.Spec{
		Name: "completion", Version: "1", Elsewhere: true, Effect: workgraph.Pure, Schema: completionSchema, Examine: examine, WaitsFor: []string{"timeout"}, Uncached: actor.Waits,
		Description: "Waits until somebody completes the attempt by the token that the visit shows; the result is what it is completed with.",
		Actor:       workgraph.ActorFunc(completion),
	}
}

func completion(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	var a struct {
		Timeout string `json:"timeout"`
	}
	if err := actor.Decode(c.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	timeout, err := Timeout(a.Timeout)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Completion: &workgraph.CompletionWait{Timeout: timeout}}}, nil
}

// Timeout reads the text of a wait's length; an empty one is no end. An error is of the arguments.
func Timeout(s string) (workgraph.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := actor.Duration("timeout", s)
	if err != nil {
		return 0, err
	}
	if d <= 0 || d > maxWait {
		return 0, actor.BadArguments("timeout must be above 0 and at most %d days", maxWait/(24*time.Hour))
	}
	return workgraph.Duration(d), nil
}
