package workflow

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// This file has the parts of a workflow that is written in Go. Their fields are the keys of the
// language, which docs/workflow-reference.md explains. A field that is empty is left out. New writes
// the text, so that what is built in Go is checked, stored and shown like any other.

// Spec is a workflow. It has Steps, or a Graph, a Router or both. Values of the type any are what JSON
// can hold, or json.RawMessage, which keeps the order of its keys; texts in them may have references,
// such as {{ inputs.topic }}.
type Spec struct {
	Name        string   `key:"name"`
	Version     string   `key:"version"`
	Description string   `key:"description"`
	Tags        []string `key:"tags"`
	// Inputs is a JSON Schema, or its properties alone, all of which must be given then.
	Inputs   any       `key:"inputs"`
	Triggers []Trigger `key:"triggers"`
	Model    Model     `key:"model"`
	State    []StateKey
	// Threads are those that agents share by name. Without any, agents may name any; else all that they
	// name must be here.
	Threads []Thread
	Agents  []Agent
	Steps   Steps          `key:"steps"`
	Graph   *GraphBuilder  `key:"graph"`
	Router  *RouterBuilder `key:"router"`
	Stop    StopCondition  `key:"stop"`
	// MaxTurns pauses a team.
	MaxTurns int `key:"max_turns"`
	// Task is what a team is told.
	Task     string `key:"task"`
	ThreadID string `key:"thread_id"`
	// Outputs are the results of the run by name.
	Outputs any    `key:"outputs"`
	Budget  Budget `key:"budget"`
}

// Agent is an agent of a workflow, or with Actor, Workflow, Inner or Human something else that speaks
// in a team.
type Agent struct {
	Name         string
	Description  string `key:"description"`
	Instructions string `key:"instructions"`
	Model        Model  `key:"model"`
	Tools        []Tool `key:"tools"`
	// Servers are MCP servers of the configuration, all of whose tools the agent has.
	Servers   []string `key:"mcp_servers"`
	MaxRounds int      `key:"max_rounds"`
	// Memory lets it go on with its thread from run to run, for each user and chat.
	Memory bool `key:"memory"`
	// Thread is a name: agents with the same one share a thread.
	Thread       string   `key:"thread"`
	Capabilities []string `key:"capabilities"`

	// Actor is called, with With as its arguments.
	Actor string `key:"actor"`
	With  any    `key:"with"`
	// Workflow is one of the catalog, as NAME@VERSION or NAME@ALIAS. Inner is one that is written here.
	Workflow string `key:"workflow"`
	Inner    *Spec
	// Human has a person asked.
	Human *Question

	// What follows is for agents of teams.

	// Hears are those whose messages it hears, each turn. Nil hears all; empty hears none.
	Hears []Hearing `key:"hears"`
	// Task is an expression over result and state that gives what it is told, in place of what it
	// hears.
	Task string `key:"task"`
	// Set are keys of the state that are set when it has answered.
	Set any `key:"set"`
	// Tells has its failures told to the others. Else they end the team.
	Tells bool
	Cache Cache `key:"cache"`
}

// Hearing narrows what an agent hears of somebody: the First or the Last messages, or all of them.
type Hearing struct {
	// From is an agent, or input.
	From  string `key:"from"`
	First int    `key:"first"`
	Last  int    `key:"last"`
}

// Question is what is asked of a person, and what can be answered.
type Question struct {
	Schema       any           `key:"schema"`
	Choices      []string      `key:"choices"`
	Multiple     bool          `key:"multiple"`
	AnswerWithin time.Duration `key:"answer_within"`
	// Default is the answer when nobody gives one in time.
	Default any `key:"default"`
}

// Tool is something that an agent may call: an Actor, or in a team a tool with Set, Handoff, Say or
// Ask, which ends the agent's turn.
type Tool struct {
	Name        string `key:"name"`
	Description string `key:"description"`
	// Actor does it, with With as fixed arguments.
	Actor string `key:"actor"`
	With  any    `key:"with"`
	// ShareThread lets an Actor that is an agent work on the thread of the one who calls it.
	ShareThread bool `key:"share_thread"`

	// Parameters is the JSON Schema of what the model gives to a tool that ends the turn.
	Parameters any `key:"parameters"`
	// Set are keys of the state; {{ ARGUMENT }} is what the model gives.
	Set     any    `key:"set"`
	Handoff string `key:"handoff"`
	// Say is what is said if the model says nothing, and Reply what the model is answered.
	Say   string `key:"say"`
	Reply string `key:"reply"`
	// Ask are the agents whom it may ask, or AnyAgent.
	Ask []string `key:"ask"`
}

// AnyAgent stands for all other agents where names are listed.
const AnyAgent = "any"

// Cache says how long results are kept for equal calls. The zero value keeps none.
type Cache struct {
	TTL time.Duration `key:"ttl"`
	// Scope says who shares them: chat, which is the default, user or namespace.
	Scope string `key:"scope"`
	// Key is an expression whose value stands for what a step is given.
	Key string `key:"key"`
}

// New makes a definition of a workflow that was written in Go, and its text. The faults are those of
// Read and of Compile; their paths name agents, steps and transitions.
func New(s *Spec) (d *Definition, text []byte, faults Faults) {
	v, text, faults := written(s)
	if len(faults) > 0 {
		return nil, nil, faults
	}
	if d, faults = Read(text); len(faults) == 0 {
		_, faults = Compile(d)
	}
	if len(faults) > 0 {
		return nil, text, withoutLines(v, faults)
	}
	return d, text, nil
}

// source is the workflow as the language has it.
func (s *Spec) source() any {
	state := pairs{}
	for _, k := range s.State {
		state = append(state, pair{k.Name, pairs{{"type", k.Type}, {"reducer", strings.ToLower(string(k.Reducer))}, {"initial", k.Initial}}})
	}
	threads := pairs{}
	for i := range s.Threads {
		threads = append(threads, pair{s.Threads[i].Name, pairs{{"memory", s.Threads[i].Memory}}})
	}
	agents := pairs{}
	for _, a := range s.allAgents() {
		agents = append(agents, pair{a.Name, keep{a}})
	}
	return append(pairsOf(s), pair{"state", state}, pair{"threads", threads}, pair{"agents", agents})
}

// allAgents are those of the workflow, and those that its graphs and routers add. One that was added
// twice, and says the same each time, is one.
func (s *Spec) allAgents() []*Agent {
	var out []*Agent
	add := func(agents []Agent) {
		for i := range agents {
			a := &agents[i]
			if !slices.ContainsFunc(out, func(x *Agent) bool { return x.Name == a.Name && reflect.DeepEqual(x, a) }) {
				out = append(out, a)
			}
		}
	}
	add(s.Agents)
	s.Graph.withAgents(add)
	s.Router.withAgents(add)
	s.Steps.each(maxDepth, func(do Action) {
		if t, ok := do.(TeamStep); ok {
			t.Graph.withAgents(add)
			t.Router.withAgents(add)
		}
	})
	return out
}

// source is the agent as the language has it.
func (a *Agent) source() any {
	out := pairsOf(a)
	if a.Human != nil {
		out = append(out, pair{"human", true})
		out = append(out, pairsOf(a.Human)...)
	}
	if a.Inner != nil {
		out = append(out, pair{"workflow", a.Inner})
	}
	if a.Tells {
		out = append(out, pair{"on_error", "tell"})
	}
	return out
}

// source is the tool as the language has it. The name of an actor alone may be that of a tool which
// agents have.
func (t *Tool) source() any {
	if reflect.DeepEqual(*t, Tool{Actor: t.Actor}) {
		return t.Actor
	}
	return pairsOf(t)
}

// source is the model as the language has it.
func (m *Model) source() any {
	return pairs{{"profile", m.Profile}, {"model_name", m.Name}, {"temperature", m.Temperature}, {"max_tokens", m.MaxTokens}}
}

// source is the budget as the language has it.
func (b *Budget) source() any { return pairs{{"usd", b.USD}, {"tokens", b.Tokens}} }
