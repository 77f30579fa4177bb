package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// policy says what a decision may ask for.
type policy struct {
	Actions         map[string]*action `json:"actions"`
	AllowGraph      bool               `json:"allow_graph,omitempty"`
	ResultSchema    json.RawMessage    `json:"result_schema,omitempty"`
	MaxActions      int                `json:"max_actions"`
	MaxResultBytes  int                `json:"max_result_bytes"`
	MaxHistoryBytes int                `json:"max_history_bytes"`

	result *workgraph.Schema
}

var policyFields = []string{"actions", "allow_graph", "result_schema", "max_actions", "max_result_bytes", "max_history_bytes"}

// action is one thing that may be done.
type action struct {
	Actor       string                     `json:"actor"`
	Description string                     `json:"description,omitempty"`
	Named       map[string]json.RawMessage `json:"named,omitempty"`
	Schema      json.RawMessage            `json:"schema,omitempty"`
	Timeout     workgraph.Duration         `json:"timeout,omitempty"`
	MaxAttempts int                        `json:"max_attempts,omitempty"`
	Effect      workgraph.Effect           `json:"effect,omitempty"`

	schema *workgraph.Schema
	// open are the arguments that the schema names; closed says that it restricts other arguments too.
	open   map[string]bool
	closed bool
}

const maxActionNames = 64

var actionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// guarded are the arguments of actors with which a reasoner could run anything. It may never state them.
func guarded(actorName string) []string {
	switch actorName {
	case "spawn":
		return []string{"graph", "ref", "runs", "task_id", "budget", "labels"}
	case actorAgent:
		return slices.Concat(policyFields, []string{"system", "reasoner", "reasoner_args", "max_rounds", "timeout"})
	}
	return nil
}

func defaults() policy {
	return policy{MaxActions: 16, MaxResultBytes: 16 << 10, MaxHistoryBytes: 256 << 10}
}

// check reports what cannot be used, and makes the rest ready.
func (p *policy) check(ctx context.Context) error {
	if len(p.Actions) == 0 || len(p.Actions) > maxActionNames {
		return actor.BadArguments("actions: name 1 to %d actions in the node's own arguments, there are %d", maxActionNames, len(p.Actions))
	}
	for _, b := range []struct {
		name         string
		v, low, high int
	}{{"max_actions", p.MaxActions, 1, 100}, {"max_result_bytes", p.MaxResultBytes, 256, 1 << 20}, {"max_history_bytes", p.MaxHistoryBytes, 4 << 10, 4 << 20}} {
		if b.v < b.low || b.v > b.high {
			return actor.BadArguments("%s must be from %d to %d", b.name, b.low, b.high)
		}
	}
	if len(p.ResultSchema) > 0 {
		var err error
		if p.result, err = workgraph.CompileSchema(ctx, p.ResultSchema); err != nil {
			return actor.BadArguments("result_schema: %v", err)
		}
	}
	for _, name := range sorted(p.Actions) {
		if !actionName.MatchString(name) {
			return actor.BadArguments("actions: %.80q is no name: use up to 64 letters, digits, _, . and -", name)
		}
		if p.Actions[name] == nil {
			p.Actions[name] = &action{}
		}
		if err := p.Actions[name].check(ctx, name); err != nil {
			return actor.BadArguments("actions.%s: %v", name, err)
		}
	}
	return nil
}

func (a *action) check(ctx context.Context, name string) error {
	if a.Actor == "" {
		a.Actor = name
	}
	switch {
	case strings.HasPrefix(a.Actor, actorAgent+"/"):
		return fmt.Errorf("%s is a step of an agent and no action", a.Actor)
	case a.Actor == "expand":
		return fmt.Errorf("expand cannot be an action: use spawn with as_result, and fix its graph")
	case a.Timeout < 0:
		return fmt.Errorf("timeout is negative")
	case a.MaxAttempts < 0 || a.MaxAttempts > 100:
		return fmt.Errorf("max_attempts must be from 1 to 100")
	}
	switch a.Effect {
	case "", workgraph.Pure, workgraph.Idempotent, workgraph.Unsafe:
	default:
		return fmt.Errorf("effect %q is none of PURE, IDEMPOTENT and UNSAFE", string(a.Effect))
	}
	if len(a.Schema) == 0 {
		return nil
	}
	var err error
	if a.schema, err = workgraph.CompileSchema(ctx, a.Schema); err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(a.Schema, &parts) != nil {
		return fmt.Errorf("schema: write an object")
	}
	var properties map[string]json.RawMessage
	if raw, ok := parts["properties"]; ok {
		if err := json.Unmarshal(raw, &properties); err != nil {
			return fmt.Errorf("schema: properties: %w", err)
		}
	}
	a.open = make(map[string]bool, len(properties))
	for k := range properties {
		a.open[k] = true
	}
	for k := range parts {
		switch k {
		case "type", "properties", "required", "description", "title", "$schema", "examples":
		default:
			a.closed = true // it may well speak of arguments that it does not list
		}
	}
	return nil
}

// takes says why an argument is not a reasoner's to give, or nothing.
func (a *action) takes(key string) string {
	if slices.Contains(guarded(a.Actor), key) {
		return "is not yours to give"
	}
	if _, ok := a.Named[key]; ok && !a.open[key] {
		return "is fixed"
	}
	return ""
}

// node returns the node that makes the action with these arguments, or their faults.
func (a *action) node(ctx context.Context, place, name string, arguments map[string]json.RawMessage, f *faults) workgraph.Node {
	n := workgraph.Node{Name: name, Actor: a.Actor, Timeout: a.Timeout, Effect: a.Effect, Retry: workgraph.Retry{MaxAttempts: a.MaxAttempts}}
	for _, k := range sorted(arguments) {
		if why := a.takes(k); why != "" {
			f.add("%s: argument %q of %s %s: leave it out", place, k, name, why)
		}
	}
	asked := map[string]json.RawMessage{}
	for k, v := range a.Named {
		if a.open[k] {
			asked[k] = v
		}
	}
	maps.Copy(asked, arguments)
	if a.schema != nil {
		raw, err := encode(asked)
		if err == nil {
			err = a.schema.Check(ctx, raw)
		}
		if err != nil {
			f.add("%s: the arguments of %s are not what its schema asks for: %s", place, name, plain(err))
		}
	}
	if len(a.Named)+len(asked) > 0 {
		n.Named = maps.Clone(a.Named)
		if n.Named == nil {
			n.Named = map[string]json.RawMessage{}
		}
		maps.Copy(n.Named, asked)
	}
	return n
}

// plain is an error of a schema, short enough for a reasoner.
func plain(err error) string { return errs.Clip(err.Error(), 1000) }

// checkResult returns a result that fits its schema: as it is, or parsed from its text, since models are
// asked for texts. The error is for the reasoner.
func (p *policy) checkResult(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	if p.result == nil {
		return raw, nil
	}
	first := p.result.Check(ctx, raw)
	if first == nil {
		return raw, nil
	}
	inner := json.RawMessage(unfence(text(raw)))
	if len(raw) > 0 && raw[0] == '"' && json.Valid(inner) {
		if first = p.result.Check(ctx, inner); first == nil {
			return inner, nil
		}
	}
	return nil, fmt.Errorf("the result is not what its schema asks for: %s", plain(first))
}

// catalog is the description of the actions for the reasoner.
func (p *policy) catalog() map[string]any {
	type entry struct {
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"schema,omitempty"`
	}
	out := make(map[string]any, len(p.Actions))
	for name, a := range p.Actions {
		out[name] = entry{a.Description, a.Schema}
	}
	return out
}

// instructions is the system prompt that explains decisions to a model.
func (p *policy) instructions(system string) string {
	var b strings.Builder
	if system != "" {
		b.WriteString(system + "\n\n")
	}
	fmt.Fprintf(&b, `You work toward the user's goal in rounds. In each round you decide, as one JSON object and nothing else, either what is done next or what the result is:
{"actions": [[{"action": NAME, "arguments": {...}}, ...], ...]}: the groups are done one after the other, the actions of one group at the same time, at most %d in all. After a failure the groups that follow are skipped.
{"result": ...}: the goal is reached, or cannot be reached; this ends the work.
`, p.MaxActions)
	if p.AllowGraph {
		fmt.Fprintf(&b, `{"graph": {"nodes": [{"id": ID, "actor": NAME OF AN ACTION, "named": {ARGUMENTS}}, ...], "edges": [{"from": ID, "to": ID}, ...]}}: actions that depend on each other, at most %d.
`, p.MaxActions)
	}
	b.WriteString(`Leave out or set to null what you do not use. Arguments and the result may also be JSON in a text.
After each round you are told what became of all rounds so far: of each action "ok" with its result, "error", or "skipped". What was "refused" was not done: mend it. Of a round that "failed" some actions may have been done.
`)
	if len(p.ResultSchema) > 0 {
		fmt.Fprintf(&b, "The result must fit this JSON Schema: %s\n", p.ResultSchema)
	}
	b.WriteString("These actions exist and no others:")
	for _, name := range sorted(p.Actions) {
		a := p.Actions[name]
		fmt.Fprintf(&b, "\n- %s", name)
		if a.Description != "" {
			b.WriteString(": " + a.Description)
		}
		if len(a.Schema) > 0 {
			fmt.Fprintf(&b, " Arguments: %s", a.Schema)
		}
	}
	return b.String()
}

// decisionSchema is the JSON Schema of a decision. It is closed and requires every field, as strict model
// servers demand: values without a fixed shape are texts in it.
func (p *policy) decisionSchema() map[string]any {
	object := func(properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": false}
	}
	properties := map[string]any{
		"actions": map[string]any{
			"type": []string{"array", "null"}, "description": "Groups of actions, or null.",
			"items": map[string]any{"type": "array", "items": object(map[string]any{
				"action":    map[string]any{"type": "string", "enum": sorted(p.Actions)},
				"arguments": map[string]any{"type": "string", "description": "The arguments: a JSON object as a text."},
			})},
		},
		"result": map[string]any{"type": []string{"string", "null"}, "description": "The result, or null while there is something to do."},
	}
	if p.AllowGraph {
		properties["graph"] = map[string]any{"type": []string{"string", "null"}, "description": "A graph of actions: a JSON object as a text, or null."}
	}
	return object(properties)
}
