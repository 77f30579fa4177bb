package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/workgraph"
)

// policy says what a decision may ask for.
type policy struct {
	Actions        map[string]*action `json:"actions"`
	AllowGraph     bool               `json:"allow_graph,omitempty"`
	ResultSchema   json.RawMessage    `json:"result_schema,omitempty"`
	MaxActions     int                `json:"max_actions"`
	MaxResultBytes int                `json:"max_result_bytes"`
	// Signals are tools that end the turn.
	Signals map[string]*signal `json:"signals,omitempty"`

	result *workgraph.Schema
	// resultFault says why there is no result although there is a ResultSchema.
	resultFault error
}

var policyFields = []string{"actions", "allow_graph", "result_schema", "max_actions", "max_result_bytes", argSignals}

// action is one thing that may be done.
type action struct {
	Actor string `json:"actor"`
	// Description says what the action does. The agent's call fills in that of the actor if there is none.
	Description string                     `json:"description,omitempty"`
	Named       map[string]json.RawMessage `json:"named,omitempty"`
	Schema      json.RawMessage            `json:"schema,omitempty"`
	Timeout     workgraph.Duration         `json:"timeout,omitempty"`
	MaxAttempts int                        `json:"max_attempts,omitempty"`
	Effect      workgraph.Effect           `json:"effect,omitempty"`
	// OwnEffect is the effect of a call with the arguments in Named alone, if other arguments may change the
	// effect; else empty. The agent's call fills it in.
	OwnEffect workgraph.Effect `json:"own_effect,omitempty"`
	// HandOver lets an agent that is called go on in the place of its caller.
	HandOver bool `json:"hand_over,omitempty"`
	// ShareThread lets an agent that is called work on the thread of its caller. Nil is what HandOver is.
	ShareThread *bool `json:"share_thread,omitempty"`
	// ActorSchema is the schema that the actor itself states. The agent's call fills it in.
	ActorSchema json.RawMessage `json:"actor_schema,omitempty"`

	schema, actorSchema *workgraph.Schema
	// types are the schemas of single arguments.
	types map[string]json.RawMessage
	// open are the arguments that the schema names; closed says that it restricts other arguments too.
	open   map[string]bool
	closed bool
	// fault says why the action cannot be done. It is of definitions that were checked before.
	fault error
}

const (
	maxActionNames = 64
	// maxDescription bounds what an actor says of itself to a reasoner, in bytes.
	maxDescription = 1 << 10
)

var actionName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// guarded are the arguments of actors with which a reasoner could run anything. It may never state them.
func guarded(actorName string) []string {
	switch actorName {
	case "spawn":
		return []string{"graph", "ref", "runs", "task_id", "budget", "labels", argPrevious}
	}
	if isAgent(actorName) {
		return slices.Concat(policyFields, definitionFields, callFields, []string{"thread_id", "conversation", "shared_thread", argPrevious})
	}
	switch actorName {
	case actorLLM:
		return []string{argUpstream, argPrevious}
	case "memory_read":
		return []string{"agent", argPrevious}
	case "team":
		return []string{"team", "input", "thread_id", "conversation", argPrevious}
	}
	return []string{argPrevious}
}

// isAgent reports whether the actor is the agent actor, or an agent with a name.
func isAgent(actorName string) bool {
	return actorName == actorAgent || strings.HasPrefix(actorName, actorAgent+"/")
}

const (
	// argPrevious is the argument with the results that came before an action. Only the agent states it.
	argPrevious = "previous_action_results"
	// argUpstream is the argument of agents and models that says whether they are told the results of the
	// nodes before them.
	argUpstream = "upstream"
)

// undisturbed are the arguments of a node of the loop: the nodes before it are the loop's own, which a
// model or an agent is not told of. It is told previous_action_results.
func undisturbed(actorName string, named map[string]json.RawMessage) map[string]json.RawMessage {
	if _, stated := named[argUpstream]; stated || actorName != actorLLM && !isAgent(actorName) {
		return named
	}
	out := map[string]json.RawMessage{argUpstream: json.RawMessage("false")}
	maps.Copy(out, named)
	return out
}

func defaults() policy {
	return policy{MaxActions: 16, MaxResultBytes: 16 << 10}
}

// noActions is the fault of an agent that does not say what it may do.
const noActions = "actions are missing in the node's own arguments: name what the agent may do, or write {} for one that only talks"

// check reports what cannot be used, and makes the rest ready. Without a need for actions they may be left
// out.
func (p *policy) check(ctx context.Context, needed bool) error {
	switch {
	case needed && p.Actions == nil:
		return badArgument("actions", noActions)
	case len(p.Actions) > maxActionNames:
		return badArgument("actions", "actions: there are %d, the limit is %d", len(p.Actions), maxActionNames)
	}
	if err := cmp.Or(inBounds("max_actions", p.MaxActions), inBounds("max_result_bytes", p.MaxResultBytes)); err != nil {
		return err
	}
	p.complete()
	if p.compile(ctx); p.resultFault != nil {
		return badArgument("result_schema", "result_schema: %v", p.resultFault)
	}
	for _, name := range sorted(p.Actions) {
		if !actionName.MatchString(name) {
			return badArgument("actions", "actions: %.80q is no name: use up to 64 letters, digits, _, . and -", name)
		}
		if err := p.Actions[name].fault; err != nil {
			return badArgument("actions", "actions.%s: %v", name, err)
		}
	}
	return nil
}

// complete fills in the actors of actions that name none.
func (p *policy) complete() {
	for name, a := range p.Actions {
		if a == nil {
			a = &action{}
			p.Actions[name] = a
		}
		if a.Actor == "" {
			a.Actor = name
		}
	}
	for name, s := range p.Signals {
		if s == nil {
			p.Signals[name] = &signal{}
		}
	}
}

// compile checks the actions and compiles all schemas. It notes the faults.
func (p *policy) compile(ctx context.Context) {
	for _, a := range p.Actions {
		a.fault = a.check(ctx)
	}
	if len(p.ResultSchema) > 0 {
		p.result, p.resultFault = workgraph.CompileSchema(ctx, p.ResultSchema)
	}
	for _, s := range p.Signals {
		s.fault = s.check(ctx)
	}
}

// check makes a complete action ready, or says why it cannot be done.
func (a *action) check(ctx context.Context) error {
	switch {
	case strings.HasPrefix(a.Actor, loopPrefix) || strings.HasPrefix(a.Actor, "team/"):
		return fmt.Errorf("%s is for the loop of an agent or a team and no action", a.Actor)
	case a.ShareThread != nil && !isAgent(a.Actor):
		return fmt.Errorf("share_thread: %s is no agent", a.Actor)
	case a.HandOver && !isAgent(a.Actor):
		return fmt.Errorf("hand_over: %s is no agent", a.Actor)
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
	var err error
	if len(a.ActorSchema) > 0 {
		if a.actorSchema, err = workgraph.CompileSchema(ctx, a.ActorSchema); err != nil {
			return fmt.Errorf("the schema of the actor %s: %w", a.Actor, err)
		}
		a.types = properties(a.ActorSchema)
	}
	if len(a.Schema) == 0 {
		return nil
	}
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
	a.types = properties
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

// shares reports whether the agent that is called works on the thread of its caller.
func (a *action) shares() bool {
	if a.ShareThread != nil {
		return *a.ShareThread
	}
	return a.HandOver
}

// properties are the schemas of single arguments in a schema.
func properties(schema json.RawMessage) map[string]json.RawMessage {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	return s.Properties
}

// typed are arguments that were written as texts, with the types that the schema asks for.
func (a *action) typed(arguments map[string]json.RawMessage) map[string]json.RawMessage {
	out := make(map[string]json.RawMessage, len(arguments))
	for k, v := range arguments {
		out[k] = v
		var s struct {
			Type json.RawMessage `json:"type"`
		}
		if len(v) == 0 || v[0] != '"' || json.Unmarshal(a.types[k], &s) != nil || len(s.Type) == 0 || bytes.Contains(s.Type, []byte(`"string"`)) {
			continue
		}
		if inner, err := response.Inner(actor.AsText(v)); err == nil {
			out[k] = inner
		}
	}
	return out
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
	n := workgraph.Node{Name: name, Kind: workgraph.ToolKind, Actor: a.Actor, Timeout: a.Timeout, Effect: cmp.Or(a.Effect, a.OwnEffect), Retry: workgraph.Retry{MaxAttempts: a.MaxAttempts}}
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
		raw, err := actor.Encode(asked)
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
	a.checkEffect(ctx, place, name, &n, f)
	if a.actorSchema != nil {
		raw := json.RawMessage("{}")
		var err error
		if n.Named != nil {
			raw, err = actor.Encode(n.Named)
		}
		if err == nil {
			err = a.actorSchema.Check(ctx, raw)
		}
		if err != nil {
			f.add("%s: the arguments of %s are not what the actor %s takes: %s", place, name, a.Actor, plain(err))
		}
	}
	return n
}

// visible is the schema of the arguments that a reasoner may give: without those that are fixed, and without
// those that are never its own.
func (a *action) visible() json.RawMessage {
	schema := a.Schema
	switch {
	case len(schema) > 0:
	case a.HandOver && a.shares():
		return json.RawMessage(handOverTool)
	case isAgent(a.Actor):
		return json.RawMessage(agentTool)
	default:
		schema = a.ActorSchema
	}
	return actor.SchemaWithout(schema, func(k string) bool { return a.takes(k) != "" })
}

// agentTool is what a reasoner may give an agent that it calls, and handOverTool what it may give one that
// goes on with the conversation.
const (
	agentTool    = `{"type":"object","required":["user_input"],"properties":{"user_input":{"type":"string","description":"What the agent is to do, with all that it must know."},` + agentToolRest
	handOverTool = `{"type":"object","properties":{"user_input":{"type":"string","description":"What the agent is to do, if the conversation does not say it."},` + agentToolRest

	agentToolRest = `"context":{"type":"string"},"attachments":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"description":{"type":"string"},"content":{},"uri":{"type":"string"}},"additionalProperties":false}}}}`
)

// plain is an error of a schema, short enough for a reasoner.
func plain(err error) string { return errs.Clip(err.Error(), 1000) }

// checkResult returns a result that fits its schema: as it is, or parsed from its text, since models are
// asked for texts. The error is for the reasoner.
func (p *policy) checkResult(ctx context.Context, raw json.RawMessage) (json.RawMessage, error) {
	if len(p.ResultSchema) == 0 {
		return raw, nil
	}
	if p.resultFault != nil {
		return nil, p.resultFault
	}
	first := p.result.Check(ctx, raw)
	if first == nil {
		return raw, nil
	}
	if len(raw) > 0 && raw[0] == '"' {
		if inner, err := response.Inner(actor.AsText(raw)); err == nil {
			if first = p.result.Check(ctx, inner); first == nil {
				return inner, nil
			}
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
		out[name] = entry{a.Description, a.visible()}
	}
	return out
}

// tools is the description of the actions as the text of a prompt.
func (p *policy) tools() string {
	var b strings.Builder
	for i, name := range sorted(p.Actions) {
		if i > 0 {
			b.WriteByte('\n')
		}
		a := p.Actions[name]
		b.WriteString("- " + name)
		if a.Description != "" {
			b.WriteString(": " + strings.Join(strings.Fields(a.Description), " "))
		}
		if s := a.visible(); len(s) > 0 {
			fmt.Fprintf(&b, " Arguments: %s", s)
		}
	}
	return b.String()
}

// checkEffect refuses arguments of a reasoner that make a call do more than the action itself would.
func (a *action) checkEffect(ctx context.Context, place, name string, n *workgraph.Node, f *faults) {
	if a.OwnEffect == "" {
		return
	}
	known, err := actor.DirectoryOf(ctx).Find(ctx, []string{a.Actor})
	of := known[a.Actor].EffectOf
	if err != nil || of == nil {
		f.add("%s: %s cannot be done now: the effect of its arguments is not known", place, name)
		return
	}
	// The effect that the action declares is about its own arguments.
	if e := of(n); strength(e) > strength(a.OwnEffect) && strength(e) > strength(n.Effect) {
		f.add("%s: these arguments make the call of %s %s, and the action is %s: leave out or change those that do", place, name, e, n.Effect)
	}
}

// strength orders effects by what a repeated call does.
func strength(e workgraph.Effect) int {
	return slices.Index([]workgraph.Effect{workgraph.Pure, workgraph.Idempotent, workgraph.Unsafe}, e)
}
