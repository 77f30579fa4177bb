// Package agent is the actor that lets a reasoner decide, round by round, on the next actions. It owns the
// reading of decisions, the policy of allowed actions and the observations for the reasoner. It must not know
// which reasoner that is, nor how visits are started and journaled: the loop is a graph of ordinary nodes in
// a run of its own.
package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The actors, and the nodes of the loop.
const (
	actorAgent, actorAct, actorGraph, actorResults, actorObserve = "agent", "agent/act", "agent/graph", "agent/results", "agent/observe"
	nodeReason, nodeAct, nodeObserve, nodeResults                = "reason", "act", "observe", "results"
)

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "goal": {"description": "What is wanted; user_input, request or the first positional argument when absent."},
    "user_input": {"description": "The same as goal."},
    "request": {"description": "The same as goal."},
    "tool": {"description": "The tool that a plan names for the problem, told to the reasoner."},
    "arguments": {"type": "array", "description": "The arguments that a plan gave the problem, told to the reasoner.", "items": {"type": "object"}},
    "attachments": {"type": "array", "description": "Documents for the reasoner; results of the nodes before this one are added.", "items": {"type": "object"}},
    "previous_agent_results": {"description": "Results of earlier steps, told to the reasoner when the nodes before this one are not known."},
    "system": {"type": "string", "description": "Who the reasoner is to be; how to decide is told to it besides."},
    "reasoner": {"type": "string", "minLength": 1, "description": "The actor that decides: llm when absent, or any other, a remote worker's included."},
    "reasoner_args": {"type": "object", "description": "Named arguments of the reasoner, such as the model."},
    "actions": {
      "type": "object", "minProperties": 1, "maxProperties": 64,
      "description": "What may be done, by name. Nothing else is, whatever the reasoner writes. Read from the node's own arguments only, as all that follow.",
      "propertyNames": {"pattern": "^[A-Za-z0-9_.-]{1,64}$"},
      "additionalProperties": {
        "type": "object",
        "properties": {
          "actor": {"type": "string", "minLength": 1, "description": "The actor that does it; the one of the action's name when absent."},
          "description": {"type": "string", "description": "What it does, for the reasoner."},
          "named": {"type": "object", "description": "Arguments that it is called with. They are fixed, but those that the schema names among its properties may be given by the reasoner."},
          "schema": {"type": "object", "description": "JSON Schema of the arguments; without one any that named does not fix are taken."},
          "timeout": {"type": "string", "description": "How long one call may take, like 30s."},
          "max_attempts": {"type": "integer", "minimum": 1, "maximum": 100},
          "effect": {"enum": ["PURE", "IDEMPOTENT", "UNSAFE"], "description": "Overrides what the actor says of itself."}
        },
        "additionalProperties": false
      }
    },
    "allow_graph": {"type": "boolean", "description": "Whether the reasoner may also write a graph of actions."},
    "result_schema": {"type": "object", "description": "JSON Schema of the result; another result is given back to the reasoner."},
    "max_rounds": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "Decisions before the agent's run pauses; 10 when absent."},
    "max_actions": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Actions in one round; 16 when absent."},
    "max_result_bytes": {"type": "integer", "minimum": 256, "maximum": 1048576, "description": "What the reasoner is told of one result; 16384 when absent."},
    "max_history_bytes": {"type": "integer", "minimum": 4096, "maximum": 4194304, "description": "What the reasoner is told of all rounds; 262144 when absent. The oldest give way."},
    "timeout": {"type": "string", "description": "How long the agent may take at most, like 1h."}
  }
}`

// Specs describes the actor and the actors of its loop. All of them compute: validation by an agent's schemas
// may take seconds, without I/O.
func Specs() []actor.Spec {
	step := func(name, properties, description string, f workgraph.ActorFunc) actor.Spec {
		return actor.Spec{Name: name, Version: "1", Effect: workgraph.Pure, SeesPlace: true, Computes: true, Actor: f, Expands: name == actorAct,
			Schema:      `{"type": "object", "additionalProperties": false, "properties": {` + properties + `}}`,
			Description: description + " The agent actor uses it."}
	}
	return []actor.Spec{
		{Name: actorAgent, Version: "1", Effect: workgraph.Idempotent, Computes: true, Schema: schema, Examine: examine, Inner: inner, WaitsFor: []string{"timeout"},
			Actor:       workgraph.ActorFunc(call),
			Description: "Works toward a goal: a reasoner decides which of the allowed actions are done, hears their results, and decides again until it has a result."},
		step(actorAct, `"policy": {"type": "object"}`, "Turns a reasoner's decision into actions, or refuses it.", act),
		step(actorGraph, `"graph": {"type": "object"}`, "Runs the graph of a reasoner's decision.", runGraph),
		step(actorResults, `"steps": {"type": "array"}, "max_bytes": {"type": "integer"}`, "Lists what became of the actions of a round.", results),
		step(actorObserve, `"limits": {"type": "object"}, "history": {"type": "array"}`, "Ends an agent's round: the history goes back to the reasoner, or its result is the agent's.", observe),
	}
}

// arguments are those that only the node itself may state: propagated inputs may come from the caller of the
// run, or from a model.
type arguments struct {
	policy
	System       string                     `json:"system"`
	Reasoner     string                     `json:"reasoner"`
	ReasonerArgs map[string]json.RawMessage `json:"reasoner_args"`
	MaxRounds    int                        `json:"max_rounds"`
	Timeout      string                     `json:"timeout"`
}

// given are the arguments that may be propagated inputs.
type given struct {
	Goal        json.RawMessage   `json:"goal"`
	UserInput   json.RawMessage   `json:"user_input"`
	Request     json.RawMessage   `json:"request"`
	Attachments []json.RawMessage `json:"attachments"`
	Tool        json.RawMessage   `json:"tool"`
	Arguments   []json.RawMessage `json:"arguments"`
	Previous    json.RawMessage   `json:"previous_agent_results"`
}

// ownArguments reads what only the node itself may give.
func ownArguments(ctx context.Context, c *workgraph.Call) (a arguments, timeout workgraph.Duration, err error) {
	a = arguments{policy: defaults(), Reasoner: "llm", MaxRounds: 10}
	if err := own(c, &a.policy, policyFields); err != nil {
		return a, 0, err
	}
	if err := own(c, &a, []string{"system", "reasoner", "reasoner_args", "max_rounds", "timeout"}); err != nil {
		return a, 0, err
	}
	if timeout, err = wait.Timeout(a.Timeout); err != nil {
		return a, 0, err
	}
	if a.MaxRounds < 1 || a.MaxRounds > 1000 {
		return a, 0, actor.BadArguments("max_rounds must be from 1 to 1000")
	}
	return a, timeout, a.check(ctx)
}

// examine returns the faults of the arguments that only the node itself may state, as far as the schema does
// not find them.
func examine(ctx context.Context, n *workgraph.Node) []workgraph.Argument {
	if len(n.Named["actions"]) == 0 {
		return []workgraph.Argument{{Arg: "actions", Fault: "actions are missing: name 1 to 64 of them", Hint: "they are read from the node's own arguments only"}}
	}
	if text, ok := actor.OwnText(n, "timeout"); ok {
		if _, err := wait.Timeout(text); err != nil {
			return actor.Faulty("timeout", err)
		}
	}
	_, _, err := ownArguments(ctx, &workgraph.Call{Start: workgraph.Start{Own: n.Named}})
	if bad, ok := errors.AsType[*workgraph.Error](err); ok && strings.HasPrefix(bad.Message, "actions.") {
		return actor.Faulty("actions", err)
	}
	return nil
}

// inner are the reasoner and the actions, which are called once the loop runs.
func inner(n *workgraph.Node) []workgraph.InnerNode {
	a := arguments{Reasoner: "llm"}
	c := &workgraph.Call{Start: workgraph.Start{Own: n.Named}}
	if own(c, &a, []string{"reasoner", "reasoner_args"}) != nil || own(c, &a.policy, []string{"actions"}) != nil {
		return nil // examine has said so
	}
	out := []workgraph.InnerNode{{Node: &workgraph.Node{Actor: a.Reasoner, Named: a.ReasonerArgs}, Place: "named.reasoner", ActorPlace: "named.reasoner"}}
	for _, name := range sorted(a.Actions) {
		x := a.Actions[name]
		if x == nil {
			x = &action{}
		}
		place := "named.actions." + errs.Clip(name, 64)
		in := workgraph.InnerNode{Node: &workgraph.Node{Actor: x.Actor, Named: x.Named, Timeout: x.Timeout}, Place: place, ActorPlace: place + ".actor"}
		if x.Actor == "" {
			in.Node.Actor, in.ActorPlace = name, place
		}
		out = append(out, in)
	}
	return out
}

func call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	a, timeout, err := ownArguments(ctx, c)
	if err != nil {
		return workgraph.Outcome{}, err
	}
	var in given
	if err := actor.Decode(c.Named, &in); err != nil {
		return workgraph.Outcome{}, err
	}
	goal := in.goal(c)
	if goal == "" {
		return workgraph.Outcome{}, actor.BadArguments("goal is missing: give goal, user_input or request")
	}
	// The reasoner's inputs are propagated inputs, so that any actor can be the reasoner, also one that knows
	// none of them.
	told := map[string]any{
		"request": goal, "history": []any{}, "actions": a.catalog(), "attachments": in.documents(c),
		"system": a.instructions(a.System), "response_schema": a.decisionSchema(),
	}
	if len(in.Arguments) > 0 {
		told["arguments"] = in.Arguments
	}
	if len(in.Tool) > 0 {
		told["tool"] = in.Tool
	}
	input := workgraph.Input{Named: map[string]json.RawMessage{}}
	for k, v := range told {
		if _, ok := a.ReasonerArgs[k]; ok {
			continue
		}
		if input.Named[k], err = encode(v); err != nil {
			return workgraph.Outcome{}, actor.BadArguments("%s: %v", k, err)
		}
	}
	g, err := a.loop()
	if err != nil {
		return workgraph.Outcome{}, err
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{
		Runs: []workgraph.Child{{Graph: g, Input: input}}, Timeout: timeout, AsResult: true}}}, nil
}

// loop is the graph of the agent's run. A round is a visit of each node; the expansion of act stands between
// it and observe.
func (a *arguments) loop() (*workgraph.Graph, error) {
	rules, err := encode(&a.policy)
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	bounds, err := encode(limits{a.MaxResultBytes, a.MaxHistoryBytes})
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	keep := workgraph.PassDown{Mode: workgraph.NoPassDown}
	return &workgraph.Graph{
		Name: "agent",
		Nodes: []workgraph.Node{
			{ID: nodeReason, Kind: workgraph.AgentKind, Actor: a.Reasoner, Named: a.ReasonerArgs, MaxVisits: a.MaxRounds},
			// The reasoner's inputs are not propagated to the actions, which would take them for arguments.
			{ID: nodeAct, Actor: actorAct, Named: map[string]json.RawMessage{"policy": rules}, MaxVisits: workgraph.Unlimited, PassDown: workgraph.Merge("{'args': [], 'named': {}}"),
				OnError: workgraph.OnError{Action: workgraph.Route}},
			{ID: nodeObserve, Kind: workgraph.SummarizerKind, Actor: actorObserve, Named: map[string]json.RawMessage{"limits": bounds}, MaxVisits: workgraph.Unlimited},
		},
		Edges: []workgraph.Edge{
			{From: nodeReason, To: nodeAct},
			{From: nodeReason, To: nodeObserve},
			{From: nodeAct, To: nodeObserve, PassDown: keep},
			{From: nodeAct, To: nodeObserve, Kind: workgraph.ErrorEdge, PassDown: keep},
			// observe selects it
			{From: nodeObserve, To: nodeReason, Kind: workgraph.BackEdge, When: "true", PassDown: workgraph.Key("history")},
		},
	}, nil
}

// goal is the text of the goal.
func (in *given) goal(c *workgraph.Call) string {
	for _, raw := range []json.RawMessage{in.Goal, in.UserInput, in.Request} {
		if t := text(raw); t != "" && t != "null" {
			return t
		}
	}
	if len(c.Args) > 0 {
		return text(c.Args[0])
	}
	return ""
}

// documents are the attachments and what the nodes before the agent gave.
func (in *given) documents(c *workgraph.Call) []json.RawMessage {
	type document struct {
		ID          string          `json:"id"`
		Description string          `json:"description"`
		Content     json.RawMessage `json:"content"`
	}
	out := slices.Clip(slices.Clone(in.Attachments))
	if out == nil {
		out = []json.RawMessage{}
	}
	add := func(id, description string, content json.RawMessage) {
		if raw, err := encode(document{id, description, content}); err == nil {
			out = append(out, raw)
		}
	}
	told := false
	for _, u := range c.Upstream {
		if u.Outcome == workgraph.VisitCompleted && len(u.Values) > 0 {
			told = true
			add(u.Node, "result of an earlier step", actor.Result(u.Values))
		}
	}
	if !told && len(in.Previous) > 0 && string(in.Previous) != "null" {
		add("earlier steps", "results of earlier steps", in.Previous)
	}
	return out
}

// own reads some of the node's own arguments; the others stay as they are.
func own(c *workgraph.Call, dst any, fields []string) error {
	asked := map[string]json.RawMessage{}
	for _, f := range fields {
		if v, ok := c.Own[f]; ok && string(v) != "null" {
			asked[f] = v
		}
	}
	raw, err := encode(asked)
	if err != nil {
		return actor.BadArguments("%v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(dst); err != nil {
		return actor.BadArguments("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// encode writes JSON without the escapes that are for web pages, which cost tokens.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

func value(v any) (workgraph.Outcome, error) {
	raw, err := encode(v)
	if err != nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, workgraph.ReasonBadOutcome, "%v", err)
	}
	return workgraph.Outcome{Values: []json.RawMessage{raw}}, nil
}

// text is a JSON string's text, and any other value as JSON.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// faults collects the faults of a decision, for the reasoner.
type faults []string

const maxFaults = 10

func (f *faults) add(format string, args ...any) {
	*f = append(*f, fmt.Sprintf(format, args...))
}

func (f faults) String() string {
	if n := len(f) - maxFaults; n > 0 {
		return strings.Join(f[:maxFaults], "\n") + fmt.Sprintf("\nand %d more", n)
	}
	return strings.Join(f, "\n")
}
