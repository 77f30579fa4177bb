package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workflow/team"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the step `team`: agents that speak in turn. A workflow with `graph` or `router` in
// place of `steps` is one such step.

// teamID is the id of the step that a workflow with a graph or a router is.
const teamID = "team"

// teamActor lets a team speak.
const teamActor = "team"

// teamBody is a team.
type teamBody struct {
	// t is what the text says of it. The members are those of the definition.
	t team.Team
	// places are where parts of the team stand, by the names that package team gives them.
	places    map[string]*value
	mentioned []string
	// hands, anyHandoff and otherwise are about handoffs.
	hands       []handoff
	anyHandoff  bool
	otherwise   string
	otherwiseAt *value
	chooser     Model
	named       []*value // the agents of a step
	task        *value
	thread      *value
	// whole says that the team is the workflow.
	whole bool
}

func readTeam(t *teller, o *object) body {
	b := &teamBody{named: o.texts("agents")}
	b.read(t, o)
	if b.task == nil {
		o.missing("task", "what the team is told, such as \"{{ inputs.task }}\"")
	}
	return b
}

// read reads what a step and a workflow say of a team alike.
func (b *teamBody) read(t *teller, o *object) {
	b.put("", o.v)
	graph, router := o.value("graph"), o.value("router")
	if graph == nil && router == nil {
		o.missing("graph", "say who speaks after whom, or by `router` who hears whom")
	}
	if stop := o.value("stop"); stop != nil {
		b.put("stop", stop)
		b.t.Stop = t.readStop(stop)
	}
	if graph != nil {
		b.readGraph(t, graph)
	}
	if router != nil {
		b.readRouter(t, router)
	}
	b.t.MaxTurns = o.whole("max_turns", 1, 1<<30, 0)
	b.task, b.thread = o.value("task"), o.value("thread_id")
}

// team reads a workflow that is a team. Nil if it is none.
func (t *teller) team(o *object) *Step {
	if o.v.get("graph") == nil && o.v.get("router") == nil {
		for _, key := range []string{"stop", "max_turns", "task", "thread_id"} {
			if v := o.value(key); v != nil {
				t.at(v, "FIELD_NOT_USED", "it is for a workflow with `graph` or `router`, or for a step of the type `team`", "`%s` says nothing about steps", key)
			}
		}
		return nil
	}
	if steps := o.value("steps"); steps != nil {
		t.at(steps, "SEVERAL_FORMS", "put the graph into a step of the type `team`", "a workflow has `steps`, or `graph` and `router`, not both")
	}
	b := &teamBody{whole: true}
	lost := t.lost()
	b.read(t, o)
	s := &Step{ID: teamID, Type: "team", at: o.v, body: b}
	if t.lost() > lost {
		s.unknown()
	}
	return s
}

// whole reports whether the step is the workflow, so that it does not stand in the text.
func (s *Step) whole() bool {
	b, ok := s.body.(*teamBody)
	return ok && b.whole
}

// member is what an agent of a team says besides.
type member struct {
	kind team.Kind
	// actor is called in place of an agent of the definition, with its arguments.
	actor string
	with  map[string]json.RawMessage
	// workflow is run: one of the server by name, or one that is defined here.
	workflow string
	inner    *Definition
	tells    bool
	// hears are those whose messages it hears, nil for all.
	hears []team.Hearing
	// cache is how long the results of a workflow are kept for equal tasks, nil for never.
	cache *caching
	// task is an expression that gives what it is told, and sets are keys of the state that its answer
	// sets.
	task string
	sets map[string]json.RawMessage
}

// member reads what an agent says of itself for teams.
func (t *teller) member(o *object, a *AgentDefinition) {
	m := &member{kind: team.Agent, task: o.text("task"), sets: o.named("set")}
	if set := o.v.get("set"); set != nil {
		t.unfilled(set)
	}
	forms := 0
	if v := o.value("actor"); v != nil && t.is(v, text) {
		forms++
		m.actor, m.kind = strings.TrimSpace(v.text), team.Actor
		if strings.HasPrefix(m.actor, "agent/") {
			m.kind = team.Agent
		}
		if name, is := strings.CutPrefix(m.actor, workflowPrefix); is {
			m.kind, m.actor, m.workflow = team.Workflow, "", name
			t.versioned(v, name)
			if with := o.value("with"); with != nil {
				t.at(with, "FIELD_NOT_USED", "leave it out", "a workflow that is a member hears what is said, as `inputs.task`")
			}
		}
		m.with = o.named("with")
		if with := o.v.get("with"); with != nil {
			t.unfilled(with)
		}
	}
	if v := o.value("workflow"); v != nil {
		forms++
		m.kind = team.Workflow
		switch v.kind {
		case text:
			m.workflow = strings.TrimPrefix(strings.TrimSpace(v.text), "workflow/")
			if m.workflow != "self" && !versioned.MatchString(m.workflow) {
				t.at(v, "BAD_NAME", "write NAME@VERSION, such as send-mail@1, or a workflow as keys and values", "%q names no version of a workflow", clip(v.text))
			}
		default:
			m.inner = t.definition(v)
		}
	}
	if v := o.value("human"); v != nil && t.is(v, boolean) && v.text == "true" {
		forms++
		m.kind, m.actor, m.with = team.Human, "human", map[string]json.RawMessage{}
	}
	for _, key := range []string{"schema", "choices", "multiple", "answer_within", "default"} {
		given := o.value(key)
		switch {
		case given == nil:
		case m.kind != team.Human:
			t.at(given, "FIELD_NOT_USED", "write `human: true`, too", "`%s` is for somebody who is asked", key)
		default:
			t.unfilled(given)
			if key == "answer_within" {
				key = "timeout"
			}
			m.with[key] = given.json()
		}
	}
	if m.cache = t.cache(o, false); m.cache != nil && m.kind != team.Workflow {
		t.at(m.cache.at, "FIELD_NOT_USED", "leave it out, or make a workflow of what is to be kept", "only an agent that is a workflow has a cache: others go on with what was said")
	}
	if a.Thread != "" && m.kind != team.Agent {
		t.at(o.v.get("thread"), "FIELD_NOT_USED", "leave it out", "only an agent works on a thread")
	}
	m.hears = t.hears(o)
	m.tells = o.word("on_error", "fail", "fail", "tell") == "tell"
	if forms > 1 {
		t.at(o.v, "SEVERAL_FORMS", "make several agents of it", "an agent is one of `actor`, `workflow` and `human`, not several")
	}
	if forms > 0 {
		for _, key := range []string{"instructions", "model", "tools", "mcp_servers", "max_rounds"} {
			if v := o.v.get(key); v != nil {
				t.at(v, "FIELD_NOT_USED", "leave it out", "`%s` is for an agent that is defined here", key)
			}
		}
	}
	a.member = m
}

// hears reads whose messages a member hears: names, or {from, first, last}.
func (t *teller) hears(o *object) []team.Hearing {
	v := o.value("hears")
	if v == nil || !t.is(v, list) {
		return nil
	}
	out := []team.Hearing{}
	for _, item := range o.few("hears", v.items) {
		if item.kind == text {
			out = append(out, team.Hearing{From: strings.TrimSpace(item.text)})
			continue
		}
		in := t.object(item, "what is heard of somebody")
		from := in.texts("from")
		h := team.Hearing{First: in.whole("first", 1, 1<<30, 0), Last: in.whole("last", 1, 1<<30, 0)}
		if in.done(); len(from) == 0 {
			in.missing("from", "name agents, or `input`")
		}
		for _, name := range from {
			h.From = strings.TrimSpace(name.text)
			out = append(out, h)
		}
	}
	return out
}

// node makes the node of a team.
func (b *teamBody) node(c *compiler, s *Step, n *workgraph.Node) {
	if n.Actor = teamActor; c.d.unread.agents {
		n.Named = map[string]json.RawMessage{}
		b.tell(c, s, n)
		return
	}
	own := *b // a definition may be compiled again
	own.t.Transitions, own.t.Members = slices.Clone(b.t.Transitions), nil
	own.hands, own.mentioned = slices.Clone(b.hands), slices.Clone(b.mentioned)
	own.places = map[string]*value{}
	for k, v := range b.places {
		own.places[k] = v
	}
	own.handOver(c)
	own.asks(c)
	own.members(c)
	own.t.State = c.stateKeys()
	if ch := own.t.Choose; ch != nil {
		chosen := *ch
		chosen.Named = c.model(b.chooser).arguments()
		own.t.Choose = &chosen
	}
	if c.full() {
		return
	}
	_, faults := team.Compile(context.Background(), &own.t)
	for _, f := range faults {
		v := own.placeOf(f.Where)
		if f.Warning {
			c.warnings = append(c.warnings, Fault{Code: f.Code, Place: v.at, Path: v.path(), Message: f.Message, Hint: f.Hint})
			continue
		}
		c.at(v, f.Code, f.Hint, "%s", f.Message)
	}
	raw, err := json.Marshal(&own.t)
	if err != nil {
		c.at(s.at, "BAD_TEAM", "", "the team cannot be written: %v", err)
		return
	}
	n.Named = map[string]json.RawMessage{"team": raw}
	c.stepsAre[s.ID] = typing.Record(map[string]typing.Type{"text": typing.Of(typing.String), "from": {}, "data": {}, "stop": typing.Of(typing.Object | typing.Null),
		"turns": typing.Of(typing.Integer), "messages": typing.Of(typing.Integer), "state": {}, "thread_id": typing.Of(typing.String), "threads": {}})
	b.tell(c, s, n)
}

// tell binds what the team is told.
func (b *teamBody) tell(c *compiler, s *Step, n *workgraph.Node) {
	if b.task != nil {
		c.argument(s, n, "task", b.task)
	}
	if b.thread != nil {
		c.oneThread(b.thread, c.argumentFits(s, n, "thread_id", b.thread, want{typing.String, "a text", "`thread_id`"}))
	}
	if !b.whole {
		if b.thread == nil { // two teams of a run must not speak in one conversation
			n.Named["own_thread"] = json.RawMessage("true")
		}
		return
	}
	if c.inputs != nil && b.task == nil {
		if _, ok := c.inputs["task"]; !ok {
			c.at(s.at, "MISSING_KEY", "write `task: \"… {{ inputs.NAME }} …\"`, or name an input `task`", "the workflow does not say what its agents are told")
		}
	}
	argument(n, "input", nil, []ref{{step: inputsID}})
}

// placeOf is where the part of the team stands that a fault is about: the longest name that begins it.
func (b *teamBody) placeOf(where string) *value {
	for where != "" {
		if v := b.places[where]; v != nil {
			return v
		}
		at := strings.LastIndexAny(where, ".[")
		if at < 0 {
			break
		}
		where = where[:at]
	}
	return b.places[""]
}

// members are those that the text mentions, in the order of `agents`. Where it mentions nobody, all
// are.
func (b *teamBody) members(c *compiler) {
	for _, name := range b.named {
		b.mention(name.text)
	}
	all := len(b.mentioned) == 0 || b.t.Choose != nil && len(b.named) == 0
	for _, name := range b.mentioned {
		if c.agent(name) == nil {
			c.at(b.nameAt(name), "UNKNOWN_AGENT", c.didYouMean(name, agentNames(c.d)), "there is no agent %q", clip(name))
		}
	}
	if len(c.d.Agents) == 0 {
		c.at(b.places[""], "MISSING_KEY", "define agents by name", "a team needs `agents`")
	}
	for i := range c.d.Agents {
		a := &c.d.Agents[i]
		if !all && !slices.Contains(b.mentioned, a.Name) {
			continue
		}
		c.teamed[a.Name] = true
		b.put("members."+a.Name, a.at)
		b.t.Members = append(b.t.Members, b.memberOf(c, a))
	}
}

// nameAt is where a name stands.
func (b *teamBody) nameAt(name string) *value {
	for i := range b.t.Transitions {
		if e := &b.t.Transitions[i]; e.From == name || e.To == name {
			return b.placeOf(fmt.Sprintf("transitions[%d]", i))
		}
	}
	for i := range b.t.Routes {
		if e := &b.t.Routes[i]; e.To == name || slices.Contains(e.From, name) {
			return b.placeOf(fmt.Sprintf("routes[%d]", i))
		}
	}
	for _, v := range b.named {
		if strings.TrimSpace(v.text) == name {
			return v
		}
	}
	return b.places[""]
}

// agent is one of the definition.
func (c *compiler) agent(name string) *AgentDefinition {
	for i := range c.d.Agents {
		if c.d.Agents[i].Name == name {
			return &c.d.Agents[i]
		}
	}
	return nil
}

// memberOf makes a member of an agent.
func (b *teamBody) memberOf(c *compiler, a *AgentDefinition) team.Member {
	said := a.member
	m := team.Member{Name: a.Name, Description: a.Description, Kind: said.kind, Actor: said.actor, Named: said.with, Tells: said.tells, Hears: said.hears, Task: said.task, Sets: said.sets}
	if m.Description == "" {
		m.Description = clip(a.Instructions)
	}
	signals := map[string]json.RawMessage{}
	for i := range a.signals {
		sig := &a.signals[i]
		if sig.asks != nil {
			sig = c.asking(a, sig)
		}
		signals[sig.Name] = sig.shown()
		b.means(&m, sig.Name, sig.signal)
	}
	for _, h := range b.hands {
		if h.from != a.Name {
			continue
		}
		for _, to := range h.to {
			name := "transfer_to_" + to
			about := "Hands the conversation over to " + to + "."
			if other := c.agent(to); other != nil && other.Description != "" {
				about += " " + other.Description
			}
			signals[name] = encode(map[string]json.RawMessage{"description": jsonText(about), "reply": jsonText("Transferred to " + to + "."),
				"schema": json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{}}`)})
			b.means(&m, name, team.Signal{Handoff: to, Say: "Transferred to " + to + "."})
		}
	}
	switch said.kind {
	case team.Workflow:
		b.workflow(c, a, &m)
	case team.Agent:
		if m.Actor == "" {
			m.Actor, m.Named = "agent", c.definition(a)
			m.Named["form"] = jsonText("tools")
		}
		if len(signals) > 0 {
			named := map[string]json.RawMessage{"signals": encode(signals)}
			for k, v := range m.Named {
				named[k] = v
			}
			m.Named = named
		}
	}
	c.remembers(a, &m)
	if len(signals) > 0 && said.kind != team.Agent {
		if len(a.signals) > 0 {
			c.at(a.signals[0].at, "FIELD_NOT_USED", "leave it out", "only an agent has tools")
		}
		m.Signals = nil // whoever hands over says so in its result
	}
	return m
}

// means notes what a signal of a member means.
func (b *teamBody) means(m *team.Member, name string, s team.Signal) {
	if m.Signals == nil {
		m.Signals = map[string]team.Signal{}
	}
	m.Signals[name] = s
}

// workflow makes the member that runs a workflow.
func (b *teamBody) workflow(c *compiler, a *AgentDefinition, m *team.Member) {
	m.Actor, m.Cache = "spawn", a.member.cache.node()
	m.Named = map[string]json.RawMessage{"as_result": json.RawMessage("true")}
	inner := a.member.inner
	if inner == nil {
		ref := a.member.workflow
		if ref != "self" {
			ref = "workflow/" + ref
		}
		m.Named["ref"] = jsonText(ref)
		return
	}
	g := c.nested(inner)
	if g == nil {
		return // its faults are told
	}
	if body, ok := inner.only(); ok && body.whole {
		if m.Keeps = body.thread == nil; m.Keeps && m.Cache != nil {
			c.at(a.member.cache.at, "FIELD_NOT_USED", "leave it out, or give the team a `thread_id`", "the team that the agent %q is goes on with its conversation", a.Name)
		}
	} else if known, ok := closed(inner.Inputs); ok {
		if _, ok := known["task"]; !ok {
			c.at(a.at, "MISSING_INPUT", "name an input `task`: it is what the agent hears", "the workflow of the agent %q does not take what it is told", a.Name)
		}
		for _, name := range team.Tellable() {
			if _, ok := known[name]; ok {
				m.Told = append(m.Told, name)
			}
		}
		b.toldFits(c, a, m.Told)
		if task := typing.OfSchema(inner.Inputs); task.Fields != nil && a.member.task == "" && !task.Fields.Of["task"].May(typing.String) {
			c.at(inner.inputs, "WRONG_TYPE", "let `task` be of the type string", "the agent %q hears a text, and the input `task` of its workflow is %s", a.Name, task.Fields.Of["task"])
		}
	}
	raw, err := json.Marshal(g)
	if err != nil {
		c.at(a.at, "BAD_TEAM", "", "the workflow cannot be written: %v", err)
		return
	}
	c.bytes += len(raw)
	m.Named["graph"] = raw
}

// toldFits tells of inputs of a member's workflow that cannot be what the team gives them.
func (b *teamBody) toldFits(c *compiler, a *AgentDefinition, names []string) {
	inner := a.member.inner
	inputs := typing.OfSchema(inner.Inputs)
	if inputs.Fields == nil {
		return
	}
	text := typing.Of(typing.String)
	for _, name := range names {
		is, given, what, want := inputs.Fields.Of[name], text, "a text", "string"
		if name == team.ToldMessages {
			given, what, want = typing.List(typing.Record(map[string]typing.Type{"from": text, "text": text})), "a list of {from, text}", "array"
		}
		if is.Fits(given) {
			continue
		}
		but := is.String()
		if given.Items != nil && is.May(typing.Array) {
			but, want = "a list of other items", "array, and its items objects of which `from` and `text` are of the type string"
		}
		at := inner.inputs
		for _, place := range []*value{inner.inputs.get(name), inner.inputs.get("properties").get(name)} {
			if place != nil {
				at = place
			}
		}
		c.at(at, "WRONG_TYPE", "let `"+name+"` be of the type "+want+", or give the input another name", "the team gives the workflow of the agent %q `%s`, %s, and the input is %s",
			a.Name, name, what, but)
	}
}

// only is the team that a workflow is.
func (d *Definition) only() (*teamBody, bool) {
	if len(d.Steps) != 1 {
		return nil, false
	}
	b, ok := d.Steps[0].body.(*teamBody)
	return b, ok
}

// nested compiles a workflow within another one. Nil if it has faults, which are told.
func (c *compiler) nested(d *Definition) *workgraph.Graph {
	if g, ok := c.inner[d]; ok {
		return g
	}
	before := len(c.faults)
	in := newCompiler(c.teller, d)
	in.inner, in.bytes, in.scope, in.fanned = c.inner, c.bytes, c.scope+"/"+d.Name, c.fanned
	in.compile()
	c.warnings = append(c.warnings, in.warnings...)
	c.bytes, c.tooLarge = in.bytes, c.tooLarge || in.tooLarge
	if c.inner[d] = in.g; len(c.faults) > before {
		c.inner[d] = nil
	}
	return c.inner[d]
}

// onlyInTeams reports whether the agent says something that means nothing in a step of its own.
func (a *AgentDefinition) onlyInTeams() bool {
	m := a.member
	return len(a.signals) > 0 || m != nil && (m.kind != team.Agent || m.actor != "" || m.tells || m.hears != nil || m.task != "" || m.sets != nil || m.cache != nil)
}

// unusedMembers tells of agents that are for teams, where no team has them.
func (c *compiler) unusedMembers() {
	if c.d.unread.any || c.above != nil {
		return
	}
	// Where routes alone say who speaks, all agents are meant to.
	routed := false
	if len(c.d.Steps) > 0 {
		b, team := c.d.Steps[0].body.(*teamBody)
		routed = team && b.whole && len(b.t.Routes) > 0 && len(b.t.Transitions) == 0 && b.t.Choose == nil
	}
	for i := range c.d.Agents {
		switch a := &c.d.Agents[i]; {
		case c.teamed[a.Name]:
		case a.onlyInTeams():
			c.at(a.at, "ONLY_IN_TEAMS", "name it in `graph` or `router`", "the agent %q is for a team, and no team has it", a.Name)
		case len(a.Capabilities) > 0:
			c.at(a.at.get("capabilities"), "ONLY_IN_TEAMS", "leave `capabilities` out, or name the agent in `graph` or `router`", "agents of a team ask by what others can do, and no team has the agent %q", a.Name)
		case routed:
			c.at(a.at, "GAP", "name it in `graph` or `router`, or remove it", "nothing leads to the agent %q: it would hear nothing and say nothing", a.Name)
		}
	}
}

// isSignal reports whether a tool is no action.
func isSignal(v *value) bool {
	return v.get("set") != nil || v.get("handoff") != nil || v.get("say") != nil || v.get("ask") != nil
}

var signalMark = regexp.MustCompile(`\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// signals are the tools of an agent that end its turn.
func (t *teller) signals(o *object) []signal {
	var out []signal
	for _, v := range o.few("tools", o.list("tools")) {
		if v.kind != mapping || !isSignal(v) {
			continue
		}
		in := t.object(v, "a tool that ends a turn")
		s := t.readSignal(in, v)
		in.done()
		if slices.ContainsFunc(out, func(x signal) bool { return x.Name == s.Name }) {
			t.at(v, "DUPLICATE_ID", "give one of them another `name`", "there is a tool %q already", clip(s.Name))
			continue
		}
		out = append(out, s)
	}
	return out
}

// stateKeys are the keys of the state as a team has them.
func (c *compiler) stateKeys() map[string]workgraph.StateKey {
	out := map[string]workgraph.StateKey{}
	for _, k := range c.d.State {
		out[k.Name] = workgraph.StateKey{Reducer: k.Reducer, Initial: k.Initial}
	}
	return out
}

// signal is a tool that is no action: it sets the state of a team, or says something, and ends the
// agent's turn.
type signal struct {
	Name, Description, Reply string
	// Parameters is the JSON Schema of what the model gives.
	Parameters json.RawMessage
	signal     team.Signal
	at         *value
	// asks are the agents whom it asks, by name or by what they can do; nil if it asks nobody.
	asks []*value
}

// shown is the signal as the actor agent takes it.
func (s *signal) shown() json.RawMessage {
	out := map[string]json.RawMessage{"description": jsonText(s.Description)}
	if s.Parameters != nil {
		out["schema"] = s.Parameters
	}
	if s.Reply != "" {
		out["reply"] = jsonText(s.Reply)
	}
	return encode(out)
}

// readSignal reads a tool with `set`: it updates the state with what the model gives, and ends the
// turn.
func (t *teller) readSignal(o *object, v *value) (s signal) {
	s = signal{Name: o.line("name", maxName), Description: o.text("description"), Reply: o.text("reply"), at: v}
	t.readAsk(o, &s)
	if s.Name == "" {
		o.missing("name", "")
	} else if !idPattern.MatchString(s.Name) {
		t.at(v.get("name"), "BAD_ID", idHint, "%q is no name of a tool", clip(s.Name))
	}
	if s.asks == nil {
		s.Parameters = o.schema("parameters")
	}
	s.signal.Handoff = o.line("handoff", maxName)
	s.signal.Say = o.text("say")
	if set := o.value("set"); set != nil && t.is(set, mapping) {
		s.signal.Set = map[string]json.RawMessage{}
		for i := range set.entries {
			s.signal.Set[set.entries[i].key] = set.entries[i].value.json()
		}
	}
	if s.signal.Say == "" {
		s.signal.Say = signalMark.ReplaceAllString(s.Reply, "{{ $1 }}")
	}
	return s
}
