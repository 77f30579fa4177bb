package workflow

import (
	"encoding/json"
	"time"

	"github.com/epigraph-run/epigraph/workflow/team"
)

// This file builds teams in Go. A builder writes a definition, so that what it makes is checked, stored
// and shown like any other.

// Condition is a condition on what was said. See Says, Expr, HandsOver, Any, All, Not and Else.
type Condition struct{ when any }

// Says holds if a text is a part of what was said.
func Says(text string) Condition { return Condition{map[string]any{"text": text}} }

// Expr holds if a CEL expression over result, what was said, and state does.
func Expr(src string) Condition { return Condition{map[string]any{"expr": src}} }

// HandsOver holds if the speaker hands over to an agent.
func HandsOver(to Agent) Condition { return Condition{map[string]any{"handoff": to.Name}} }

// Any holds if one of several conditions does.
func Any(of ...Condition) Condition { return Condition{map[string]any{"any": conditionParts(of)}} }

// All holds if all of several conditions do.
func All(of ...Condition) Condition { return Condition{map[string]any{"all": conditionParts(of)}} }

// Not holds if a condition does not.
func Not(c Condition) Condition { return Condition{map[string]any{"not": c.when}} }

// Else holds if no other transition of the speaker does. It is no part of another condition.
func Else() Condition { return Condition{"else"} }

func conditionParts(of []Condition) []any {
	out := make([]any, len(of))
	for i := range of {
		out[i] = of[i].when
	}
	return out
}

// GraphBuilder says who speaks after whom. Faults are told by New. It is for one goroutine.
type GraphBuilder struct {
	agents             []Agent
	start              []string
	transitions, loops []any
}

// NewGraph is a graph without agents.
func NewGraph() *GraphBuilder { return &GraphBuilder{} }

// AddAgent adds agents. Those of transitions must be among them.
func (g *GraphBuilder) AddAgent(agents ...Agent) *GraphBuilder {
	g.agents = append(g.agents, agents...)
	return g
}

// AddTransition lets to speak after from, if all conditions hold for what from said.
func (g *GraphBuilder) AddTransition(from, to Agent, when ...Condition) *GraphBuilder {
	e := map[string]any{"from": from.Name, "to": to.Name}
	if w := whole(when); w != nil {
		e["when"] = w
	}
	g.transitions = append(g.transitions, e)
	return g
}

// AddLoop lets two agents speak in turn for as long as all conditions hold for what the second one said.
// Twice the same agent goes on by itself.
func (g *GraphBuilder) AddLoop(first, second Agent, while ...Condition) *GraphBuilder {
	between := []string{first.Name, second.Name}
	if first.Name == second.Name {
		between = between[:1]
	}
	l := map[string]any{"between": between}
	if w := whole(while); w != nil {
		l["while"] = w
	}
	g.loops = append(g.loops, l)
	return g
}

// Start names who speaks first. Without it those do to whom nothing leads, or the first agent.
func (g *GraphBuilder) Start(agents ...Agent) *GraphBuilder {
	for _, a := range agents {
		g.start = append(g.start, a.Name)
	}
	return g
}

// whole is one condition of several that must all hold, nil for none.
func whole(of []Condition) any {
	switch len(of) {
	case 0:
		return nil
	case 1:
		return of[0].when
	}
	return map[string]any{"all": conditionParts(of)}
}

// Source are those whose messages a route takes.
type Source []string

// From are agents.
func From(agents ...Agent) Source {
	out := make(Source, len(agents))
	for i := range agents {
		out[i] = agents[i].Name
	}
	return out
}

// FromAny is everybody, the input of the workflow included.
func FromAny() Source { return Source{team.AnyOne} }

// FromInput is what the workflow is told.
func FromInput() Source { return Source{team.Input} }

// RouterBuilder says who hears whom. Faults are told by New. It is for one goroutine.
type RouterBuilder struct {
	agents []Agent
	routes []any
}

// NewRouter is a router without routes.
func NewRouter() *RouterBuilder { return &RouterBuilder{} }

// AddAgent adds agents, where there is no graph that has them.
func (r *RouterBuilder) AddAgent(agents ...Agent) *RouterBuilder {
	r.agents = append(r.agents, agents...)
	return r
}

// RouteOption is an option of a route.
type RouteOption func(route map[string]any)

// BatchSize is how many messages at least call the agent.
func BatchSize(n int) RouteOption { return func(route map[string]any) { route["batch_size"] = n } }

// TTL is how long a message waits to be heard.
func TTL(d time.Duration) RouteOption {
	return func(route map[string]any) { route["ttl"] = d.String() }
}

// AddRoute lets an agent hear others.
func (r *RouterBuilder) AddRoute(from Source, to Agent, options ...RouteOption) *RouterBuilder {
	route := map[string]any{"from": []string(from), "to": to.Name}
	for _, o := range options {
		o(route)
	}
	r.routes = append(r.routes, route)
	return r
}

// Option is a part of a workflow that New makes.
type Option func(definition map[string]any)

// WithGraph has a graph say who speaks.
func WithGraph(g *GraphBuilder) Option {
	return func(d map[string]any) {
		withAgents(d, g.agents)
		graph := map[string]any{"transitions": append([]any{}, g.transitions...), "loops": append([]any{}, g.loops...)}
		if len(g.start) > 0 {
			graph["start"] = g.start
		}
		d["graph"] = graph
	}
}

// WithRouter has a router say who hears whom.
func WithRouter(r *RouterBuilder) Option {
	return func(d map[string]any) {
		withAgents(d, r.agents)
		d["router"] = append([]any{}, r.routes...)
	}
}

// StopCondition ends a team: its keys are those of `stop` in the language, such as {"text": "DONE"}.
type StopCondition map[string]any

// WithStop says when the team is over. Several conditions are alternatives.
func WithStop(of ...StopCondition) Option {
	return func(d map[string]any) {
		parts := make([]any, len(of))
		for i := range of {
			parts[i] = of[i]
		}
		d["stop"] = map[string]any{"any": parts}
	}
}

// WithTask is what the agents are told, with references such as {{ inputs.topic }}.
func WithTask(task string) Option { return func(d map[string]any) { d["task"] = task } }

// withAgents adds agents to a definition.
func withAgents(d map[string]any, agents []Agent) {
	all, _ := d["agents"].(map[string]any) // it is one, or there is none yet
	if all == nil {
		all = map[string]any{}
		d["agents"] = all
	}
	for i := range agents {
		all[agents[i].Name] = agents[i].source()
	}
}

// source is the agent as a definition has it.
func (a *Agent) source() map[string]any {
	out := map[string]any{"instructions": a.Instructions}
	if a.Description != "" {
		out["description"] = a.Description
	}
	if a.MaxRounds > 0 {
		out["max_rounds"] = a.MaxRounds
	}
	if model := a.Model.source(); len(model) > 0 {
		out["model"] = model
	}
	if a.Memory {
		out["memory"] = true
	}
	if len(a.Capabilities) > 0 {
		out["capabilities"] = a.Capabilities
	}
	var tools []any
	for _, t := range a.Tools {
		tool := map[string]any{"actor": t.Actor}
		for key, text := range map[string]string{"name": t.Name, "description": t.Description} {
			if text != "" {
				tool[key] = text
			}
		}
		if len(t.Arguments) > 0 {
			tool["with"] = t.Arguments
		}
		tools = append(tools, tool)
	}
	if tools != nil {
		out["tools"] = tools
	}
	return out
}

func (m Model) source() map[string]any {
	out := map[string]any{}
	if m.Profile != "" {
		out["profile"] = m.Profile
	}
	if m.Name != "" {
		out["model_name"] = m.Name
	}
	if m.Temperature != nil {
		out["temperature"] = *m.Temperature
	}
	if m.MaxTokens > 0 {
		out["max_tokens"] = m.MaxTokens
	}
	return out
}

// New makes a definition of a team that was built in Go. The faults are those of Read and of Compile; text
// is the definition as JSON, to which their places belong.
func New(name string, options ...Option) (d *Definition, text []byte, faults Faults) {
	of := map[string]any{"name": name}
	for _, o := range options {
		o(of)
	}
	text, err := json.MarshalIndent(of, "", "  ")
	if err != nil {
		return nil, nil, Faults{{Code: "BAD_ARGUMENT", Message: err.Error()}}
	}
	if d, faults = Read(text); len(faults) > 0 {
		return nil, text, faults
	}
	if _, faults = Compile(d); len(faults) > 0 {
		return nil, text, faults
	}
	return d, text, nil
}
