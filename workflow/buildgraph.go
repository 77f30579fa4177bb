package workflow

import (
	"time"

	"github.com/epigraph-run/epigraph/workflow/team"
)

// This file builds graphs and routers of teams.

// Condition is a condition on what was said. See Says, Expr, HandsOver, Any, All, Not and Else.
type Condition struct{ when any }

// Says holds if a text is a part of what was said.
func Says(text string) Condition { return Condition{pairs{{"text", text}}} }

// Expr holds if a CEL expression over result, what was said, and state does.
func Expr(src string) Condition { return Condition{pairs{{"expr", src}}} }

// HandsOver holds if the speaker hands over to an agent.
func HandsOver(to Agent) Condition { return Condition{pairs{{"handoff", to.Name}}} }

// Any holds if one of several conditions does.
func Any(of ...Condition) Condition { return Condition{pairs{{"any", conditionParts(of)}}} }

// All holds if all of several conditions do.
func All(of ...Condition) Condition { return Condition{pairs{{"all", conditionParts(of)}}} }

// Not holds if a condition does not.
func Not(c Condition) Condition { return Condition{pairs{{"not", c.when}}} }

// Else holds if no other transition of the speaker does. It is no part of another condition.
func Else() Condition { return Condition{"else"} }

func conditionParts(of []Condition) []any {
	out := make([]any, len(of))
	for i := range of {
		out[i] = of[i].when
	}
	return out
}

// whole is one condition of several that must all hold, nil for none.
func whole(of []Condition) any {
	switch len(of) {
	case 0:
		return nil
	case 1:
		return of[0].when
	}
	return pairs{{"all", conditionParts(of)}}
}

// TransitionOption is a Condition, or how a transition joins others into its target: JoinAny and
// JoinGroup.
type TransitionOption interface{ of(*transitionSpec) }

// transitionSpec is a transition as the language has it.
type transitionSpec struct {
	from, to    string
	when        []Condition
	join, group string
}

func (c Condition) of(t *transitionSpec) { t.when = append(t.when, c) }

type transitionOption func(*transitionSpec)

func (o transitionOption) of(t *transitionSpec) { o(t) }

// JoinAny lets the transition call its target without waiting for others.
func JoinAny() TransitionOption { return transitionOption(func(t *transitionSpec) { t.join = "any" }) }

// JoinGroup has the transition wait for those into its target that are of the same group, and for no
// others.
func JoinGroup(name string) TransitionOption {
	return transitionOption(func(t *transitionSpec) { t.group = name })
}

func (t *transitionSpec) source() any {
	return pairs{{"from", t.from}, {"to", t.to}, {"when", whole(t.when)}, {"group", t.group}, {"join", t.join}}
}

// GraphBuilder says who speaks after whom. Faults are told by New. It is for one goroutine.
type GraphBuilder struct {
	agents      []Agent
	start       []string
	transitions []*transitionSpec
	loops       []any
	choice      *Choice
	handoffs    pairs
	anyHandoff  bool
	otherwise   string
}

// NewGraph is a graph without agents.
func NewGraph() *GraphBuilder { return &GraphBuilder{} }

// AddAgent adds agents. Those of transitions must be among them, or among those of the workflow.
func (g *GraphBuilder) AddAgent(agents ...Agent) *GraphBuilder {
	g.agents = append(g.agents, agents...)
	return g
}

// Previous is whoever spoke before the speaker, as the target of a transition.
func Previous() Agent { return Agent{Name: team.Previous} }

// AddTransition lets to speak after from, if all conditions hold for what from said.
func (g *GraphBuilder) AddTransition(from, to Agent, options ...TransitionOption) *GraphBuilder {
	t := &transitionSpec{from: from.Name, to: to.Name}
	for _, o := range options {
		o.of(t)
	}
	g.transitions = append(g.transitions, t)
	return g
}

// AddLoop lets two agents speak in turn for as long as all conditions hold for what the second one
// said. Twice the same agent goes on by itself.
func (g *GraphBuilder) AddLoop(first, second Agent, while ...Condition) *GraphBuilder {
	between := []string{first.Name, second.Name}
	if first.Name == second.Name {
		between = between[:1]
	}
	g.loops = append(g.loops, pairs{{"between", between}, {"while", whole(while)}})
	return g
}

// Start names who speaks first. Without it those do to whom nothing leads, or the first agent.
func (g *GraphBuilder) Start(agents ...Agent) *GraphBuilder {
	g.start = append(g.start, agentsOf(agents)...)
	return g
}

// Choice says how a model chooses who speaks. The zero value chooses among all, by a prompt of the
// package team.
type Choice struct {
	// Prompt has {participants} and {history}, and may have {roles}.
	Prompt string `key:"prompt"`
	Model  Model  `key:"model"`
	// Attempts is how often it is asked for one choice at most.
	Attempts int `key:"attempts"`
	// Candidates is an expression over result and state that gives the names among which it chooses, or
	// null for all.
	Candidates string `key:"candidates"`
	// Repeat lets somebody speak twice in a row.
	Repeat bool `key:"repeat"`
}

// Choose lets a model choose who speaks, in place of transitions.
func (g *GraphBuilder) Choose(c Choice) *GraphBuilder {
	g.choice = &c
	return g
}

// AddHandoff gives an agent tools that hand over to others. Whoever hands over to nobody goes on,
// unless Otherwise says who does.
func (g *GraphBuilder) AddHandoff(from Agent, to ...Agent) *GraphBuilder {
	g.handoffs = append(g.handoffs, pair{from.Name, agentsOf(to)})
	return g
}

// HandoffToAny gives all agents tools that hand over to all others.
func (g *GraphBuilder) HandoffToAny() *GraphBuilder {
	g.anyHandoff = true
	return g
}

// Otherwise names who speaks if nobody is handed over to.
func (g *GraphBuilder) Otherwise(a Agent) *GraphBuilder {
	g.otherwise = a.Name
	return g
}

// OtherwiseEnd ends the team if nobody is handed over to.
func (g *GraphBuilder) OtherwiseEnd() *GraphBuilder {
	g.otherwise = "end"
	return g
}

// withAgents gives the agents of a graph, if there is one.
func (g *GraphBuilder) withAgents(add func([]Agent)) {
	if g != nil {
		add(g.agents)
	}
}

func (g *GraphBuilder) source() any {
	if len(g.agents) == 1 && len(g.transitions)+len(g.loops)+len(g.handoffs) == 0 && g.choice == nil && !g.anyHandoff {
		return agentsOf(g.agents) // it speaks, and that is all
	}
	out := pairs{{"start", g.start}, {"transitions", g.transitions}, {"loops", g.loops}}
	if g.choice != nil {
		out = append(out, pair{"choose", keep{g.choice}})
	}
	if g.anyHandoff {
		out = append(out, pair{"handoffs", AnyAgent})
	}
	return append(out, pair{"handoffs", g.handoffs}, pair{"otherwise", g.otherwise})
}

// agentsOf are the names of agents.
func agentsOf(agents []Agent) []string {
	out := make([]string, len(agents))
	for i := range agents {
		out[i] = agents[i].Name
	}
	return out
}

// Source are those whose messages a route takes.
type Source []string

// From are agents.
func From(agents ...Agent) Source { return agentsOf(agents) }

// FromAny is everybody, the input of the workflow included.
func FromAny() Source { return Source{team.AnyOne} }

// FromInput is what the workflow is told.
func FromInput() Source { return Source{team.Input} }

// RouterBuilder says who hears whom. Faults are told by New. It is for one goroutine.
type RouterBuilder struct {
	agents []Agent
	routes []*routeSpec
}

// routeSpec is a route as the language has it.
type routeSpec struct {
	From      Source        `key:"from"`
	To        string        `key:"to"`
	BatchSize int           `key:"batch_size"`
	TTL       time.Duration `key:"ttl"`
}

// NewRouter is a router without routes.
func NewRouter() *RouterBuilder { return &RouterBuilder{} }

// AddAgent adds agents, where there is no graph that has them.
func (r *RouterBuilder) AddAgent(agents ...Agent) *RouterBuilder {
	r.agents = append(r.agents, agents...)
	return r
}

// RouteOption is an option of a route.
type RouteOption func(route *routeSpec)

// BatchSize is how many messages at least call the agent.
func BatchSize(n int) RouteOption { return func(route *routeSpec) { route.BatchSize = n } }

// TTL is how long a message waits to be heard.
func TTL(d time.Duration) RouteOption { return func(route *routeSpec) { route.TTL = d } }

// AddRoute lets an agent hear others.
func (r *RouterBuilder) AddRoute(from Source, to Agent, options ...RouteOption) *RouterBuilder {
	route := &routeSpec{From: from, To: to.Name}
	for _, o := range options {
		o(route)
	}
	r.routes = append(r.routes, route)
	return r
}

// withAgents gives the agents of a router, if there is one.
func (r *RouterBuilder) withAgents(add func([]Agent)) {
	if r != nil {
		add(r.agents)
	}
}

func (r *RouterBuilder) source() any { return append([]*routeSpec{}, r.routes...) }

// StopCondition ends a team. Several fields are alternatives; All holds when each of its parts has
// held.
type StopCondition struct {
	MaxMessages int           `key:"max_messages"`
	MaxTurns    int           `key:"max_turns"`
	Timeout     time.Duration `key:"timeout"`
	// Tokens bounds all tokens, InputTokens those that models are given, OutputTokens those that they
	// give.
	Tokens       int64   `key:"tokens"`
	InputTokens  int64   `key:"input_tokens"`
	OutputTokens int64   `key:"output_tokens"`
	USD          float64 `key:"usd"`
	// Text is a part of what is said, by one of From if it is not empty.
	Text string   `key:"text"`
	From []string `key:"from"`
	// Handoff is to whom, or AnyAgent.
	Handoff string `key:"handoff"`
	// Call is a tool that is called.
	Call string `key:"call"`
	// Expr is a CEL condition over result, what was said, state and named.
	Expr string `key:"expr"`
	// Answered are those of whom one has spoken.
	Answered []string        `key:"answered"`
	Any      []StopCondition `key:"any"`
	All      []StopCondition `key:"all"`
	// Pause has the limits pause the team, in place of ending it.
	Pause bool
}

func (s *StopCondition) source() any {
	out := pairsOf(s)
	if s.Pause {
		out = append(out, pair{"then", "pause"})
	}
	return out
}
