package agent

import (
	"encoding/json"
	"maps"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The nodes of the loop. Each allowed action has a node of its own besides, see doNode.
const (
	nodeBegin    = "begin"
	nodeReason   = "reason"
	nodeDispatch = "dispatch"
	nodeAct      = "act"
	nodeGroups   = "groups"
	nodeObserve  = "observe"
	nodeResults  = "results"
)

// doNode is the node of an action.
func doNode(name string) string { return "do." + name }

// Expressions of the loop. What is told to the reasoner is not propagated to the actions, which would take it
// for arguments, and the arguments of actions are not propagated to the reasoner.
const (
	passNothing   = "{'args': [], 'named': {}}"
	passResult    = "{'args': [], 'named': result}"
	passArguments = "{'args': [], 'named': result.arguments}"
	passRequest   = "{'args': [], 'named': {'request': result}}"
)

// stateAt is the key of the run's state that says where the agent stands.
const stateAt = "at"

// graph is the graph of the agent's run. A round is one visit of reason, act, the node of an action (or
// groups), and observe. It depends on the definition alone, so that all calls of one agent share a program.
func (d *definition) graph() (*workgraph.Graph, error) {
	own, err := actor.Encode(d)
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	named := func() map[string]json.RawMessage { return map[string]json.RawMessage{"definition": own} }
	nothing := workgraph.Merge(passNothing)
	route := workgraph.OnError{Action: workgraph.Route}
	reasoner, err := d.reasonerNode()
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	g := &workgraph.Graph{Name: "agent", State: map[string]workgraph.StateKey{stateAt: {}}}
	if d.Form == formTools {
		g.State[workgraph.StateToolCalls] = workgraph.StateKey{}
	}
	add := func(n workgraph.Node) {
		if n.MaxVisits == 0 {
			n.MaxVisits = workgraph.Unlimited
		}
		g.Nodes = append(g.Nodes, n)
	}
	back := func(from string) { // what comes before selects it
		g.Edges = append(g.Edges, workgraph.Edge{From: from, To: nodeReason, Kind: workgraph.BackEdge, When: "true", PassDown: workgraph.Merge(passResult)})
	}
	edge := func(from, to string, kind workgraph.EdgeKind, pass workgraph.PassDown) {
		g.Edges = append(g.Edges, workgraph.Edge{From: from, To: to, Kind: kind, PassDown: pass})
	}
	add(workgraph.Node{ID: nodeBegin, Actor: actorBegin, Named: named(), MaxVisits: 1})
	add(reasoner)
	edge(nodeBegin, nodeReason, "", workgraph.Merge(passResult))
	decider := nodeReason
	if d.Dispatch != dispatchGroups && d.Dispatch != dispatchPlan {
		add(workgraph.Node{ID: nodeDispatch, Actor: d.Dispatch, Named: d.DispatchArgs, OnError: route})
		edge(nodeReason, nodeDispatch, "", workgraph.Merge("{'args': [], 'named': {'response': result}}"))
		edge(nodeDispatch, nodeObserve, workgraph.ErrorEdge, nothing)
		decider = nodeDispatch
	}
	add(workgraph.Node{ID: nodeAct, Actor: actorAct, Named: named(), OnError: route})
	edge(decider, nodeAct, "", workgraph.PassDown{})
	for _, name := range sorted(d.Actions) {
		a := d.Actions[name]
		id := doNode(name)
		if a.HandOver {
			// What such an agent gives is the result of the run.
			add(workgraph.Node{ID: id, Name: name, Kind: workgraph.ToolKind, Actor: a.Actor, Named: d.answering(undisturbed(a.Actor, a.Named)), Timeout: a.Timeout, Retry: workgraph.Retry{MaxAttempts: a.MaxAttempts}})
			continue
		}
		add(workgraph.Node{ID: id, Name: name, Kind: workgraph.ToolKind, Actor: a.Actor, Named: undisturbed(a.Actor, a.Named), Timeout: a.Timeout, Effect: a.Effect,
			Retry: workgraph.Retry{MaxAttempts: a.MaxAttempts}, OnError: route})
		edge(nodeAct, id, "", workgraph.Merge(passArguments))
		edge(id, nodeObserve, "", nothing)
		edge(id, nodeObserve, workgraph.ErrorEdge, nothing)
	}
	add(workgraph.Node{ID: nodeGroups, Actor: actorGroups, Named: named(), OnError: route})
	edge(nodeAct, nodeGroups, "", nothing)
	edge(nodeGroups, nodeObserve, "", nothing)
	edge(nodeGroups, nodeObserve, workgraph.ErrorEdge, nothing)
	add(workgraph.Node{ID: nodeObserve, Kind: workgraph.SummarizerKind, Actor: actorObserve, Named: named()})
	edge(nodeAct, nodeObserve, "", nothing)
	edge(nodeAct, nodeObserve, workgraph.ErrorEdge, nothing)
	if decider == nodeDispatch {
		edge(nodeDispatch, nodeObserve, "", nothing)
	}
	add(workgraph.Node{ID: nodeLeave, Actor: actorLeave, MaxVisits: 1})
	edge(nodeObserve, nodeLeave, "", workgraph.Merge(passResult))
	edge(nodeReason, nodeObserve, "", workgraph.PassDown{Mode: workgraph.NoPassDown})
	for _, name := range sorted(d.Actions) {
		if d.Actions[name].HandOver {
			// The round is over before the other agent begins.
			edge(nodeObserve, doNode(name), "", workgraph.Merge(passArguments))
		}
	}
	back(nodeObserve)
	if d.History.Summarize != nil {
		if err := d.summaries(own, add, edge); err != nil {
			return nil, actor.BadArguments("%v", err)
		}
		back(nodeSummarized)
	}
	return g, nil
}

// answering are the arguments of an agent whose result is that of this one.
func (d *definition) answering(named map[string]json.RawMessage) map[string]json.RawMessage {
	if !d.AsMessage {
		return named
	}
	out := maps.Clone(named)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	out[argAsMessage] = json.RawMessage("true")
	return out
}

// reasonerNode is the node that reasons, with what it is told in every round.
func (d *definition) reasonerNode() (workgraph.Node, error) {
	n := workgraph.Node{ID: nodeReason, Kind: workgraph.AgentKind, Actor: d.Reasoner, MaxVisits: d.MaxRounds, Named: map[string]json.RawMessage{}}
	told := map[string]any{"system": d.instructions()}
	switch {
	case d.Form == formTools:
		told["tools"] = d.nativeTools()
	case d.Reasoner != actorLLM:
		told["actions"] = d.catalog()
	}
	if d.Reasoner == actorLLM {
		told["upstream"], told["stream"] = false, "watched"
		if d.Form != formTools {
			told["decision"] = true
		}
	}
	for k, v := range told {
		raw, err := actor.Encode(v)
		if err != nil {
			return n, err
		}
		n.Named[k] = raw
	}
	for k, v := range d.ReasonerArgs {
		n.Named[k] = v
	}
	return n, nil
}

// tool is an action as models know it.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

func (d *definition) nativeTools() []tool {
	out := []tool{}
	add := func(name, description string, schema json.RawMessage) {
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		out = append(out, tool{Name: name, Description: description, Schema: schema})
	}
	for _, name := range sorted(d.Actions) {
		add(name, d.Actions[name].Description, d.Actions[name].visible())
	}
	for _, name := range sorted(d.Signals) {
		add(name, d.Signals[name].Description, d.Signals[name].Schema)
	}
	for _, name := range d.TaskTools {
		description, schema := response.TaskTool(name)
		add(name, description, schema)
	}
	return out
}

// position is where an agent stands: its thread, its own last item in it, how many rounds it has behind it,
// and the state of the last one. It is a key of the run's state, so that a fork of the run stands where the
// run stood at that visit.
type position struct {
	standing.Place
	// Round is the round that is under way, or comes next.
	Round int `json:"round"`
	// State is the agent's own last state; 0 before the first one.
	State int64 `json:"state,omitempty"`
	// Input are the messages with the newest user input, if they are known.
	Input *state.Span `json:"input,omitempty"`
	// About is the state of the first round if it has what is told in every round; else 0.
	About int64 `json:"about,omitempty"`
	// Sent is what the reasoner is told of the thread in this round, and Asked what is summarized before it.
	Sent  *state.Sent `json:"sent,omitempty"`
	Asked *state.Span `json:"asked,omitempty"`
	// Again is the round from which a summary is asked for again after one that failed.
	Again int `json:"again,omitempty"`
	// Called are the actions that were called in this turn, each once.
	Called []string `json:"called,omitempty"`
}

func positionOf(c *workgraph.Call) (position, error) {
	raw, _ := c.Var("state")
	var s struct {
		At position `json:"at"`
	}
	if err := json.Unmarshal(raw, &s); err != nil || s.At.Thread == "" {
		return position{}, badLoop("the state of its run does not say where the agent stands")
	}
	return s.At, nil
}

// state is the update that sets the position.
func (p position) state() (map[string]json.RawMessage, error) {
	raw, err := actor.Encode(p)
	if err != nil {
		return nil, actor.BadArguments("%v", err)
	}
	return map[string]json.RawMessage{stateAt: raw}, nil
}

// instanceOf is the input of the loop.
func instanceOf(c *workgraph.Call) (*instance, error) {
	raw, ok := c.Var("input")
	var in struct {
		Named struct {
			Agent *instance `json:"agent"`
		} `json:"named"`
	}
	if !ok || json.Unmarshal(raw, &in) != nil || in.Named.Agent == nil || in.Named.Agent.Thread == "" {
		return nil, badLoop("it has no input")
	}
	return in.Named.Agent, nil
}

// badLoop is the error of an actor of the loop that is not in one that the agent actor made.
func badLoop(format string, args ...any) error {
	return actor.BadArguments("this actor is for the loop that the agent actor makes: "+format, args...)
}
