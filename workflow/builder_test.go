package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A graph with a loop and conditions, and a router, as one would draw them.
func ExampleNew() {
	agent1 := workflow.Agent{Name: "agent1", Instructions: "You find files.", Tools: []workflow.Tool{{Actor: "mcp/files/search"}}}
	agent2 := workflow.Agent{Name: "agent2", Instructions: "You check what was found."}
	agent3 := workflow.Agent{Name: "agent3", Instructions: "You answer."}
	agent4 := workflow.Agent{Name: "agent4", Instructions: "You keep the minutes."}
	graph := workflow.NewGraph().
		AddAgent(agent1, agent2, agent3, agent4).
		AddLoop(agent1, agent2, workflow.Any(workflow.Says("AGAIN"), workflow.Expr("result.calls.size() == 0"))).
		AddTransition(agent2, agent3, workflow.Any(workflow.Says("FOUND"), workflow.All(workflow.Says("GIVE UP"), workflow.Not(workflow.Says("AGAIN"))))).
		AddTransition(agent3, agent4)
	router := workflow.NewRouter().
		AddRoute(workflow.From(agent1), agent2).
		AddRoute(workflow.From(agent1, agent2), agent3, workflow.BatchSize(10), workflow.TTL(time.Hour)).
		AddRoute(workflow.FromAny(), agent4)
	d, _, faults := workflow.New(&workflow.Spec{Name: "Files", Graph: graph, Router: router, Stop: workflow.StopCondition{Timeout: time.Hour}})
	fmt.Println(d.Name, len(faults))
	for _, w := range workflow.Warnings(d) {
		fmt.Println(w.Code, w.Message)
	}
	// Output:
	// Files 0
	// NO_EFFECT "agent3" is called by the graph, not by the number of its messages
}

// Steps in Go, and the text that they make.
func ExampleNew_steps() {
	_, text, faults := workflow.New(&workflow.Spec{
		Name:   "Letters",
		Inputs: map[string]any{"names": map[string]any{"type": "array"}},
		Steps: workflow.Steps{
			{ID: "letters", Do: workflow.MapStep{Over: "inputs.names", As: "name", Body: workflow.Steps{
				{ID: "letter", Do: workflow.AgentStep{Prompt: "Write to {{ name }}"}, Retry: 2},
			}}},
			{Do: workflow.WaitStep{Delay: time.Minute}},
		},
		Outputs: map[string]any{"letters": "{{ letters }}"},
	})
	fmt.Print(string(text), len(faults))
	// Output:
	// name: Letters
	// inputs:
	//   names: {type: array}
	// steps:
	//   - id: letters
	//     type: map
	//     over: inputs.names
	//     as: name
	//     body:
	//       - {id: letter, type: agent, prompt: 'Write to {{ name }}', retry: 2}
	//   - {type: wait, delay: 1m}
	// outputs: {letters: '{{ letters }}'}
	// 0
}

// Faults name the step, the agent or the transition.
func ExampleNew_faults() {
	writer := workflow.Agent{Name: "writer", Instructions: "Write.", Tools: []workflow.Tool{{Name: "done", Set: map[string]any{"said": true}}}}
	critic := workflow.Agent{Name: "critic", Instructions: "Say what can be better."}
	_, _, faults := workflow.New(&workflow.Spec{Name: "Letters", Steps: workflow.Steps{
		{ID: "text", Do: workflow.TeamStep{Task: "A letter", Graph: workflow.NewGraph().AddAgent(writer).AddTransition(writer, critic)}},
		{ID: "all", Do: workflow.LoopStep{Over: "text.lines", Body: workflow.Steps{{ID: "said", Do: workflow.TransformStep{Template: "{{ texts }}"}}}}},
	}})
	for _, f := range faults {
		fmt.Println(f.Path, f.Code)
	}
	// Output:
	// steps[text].graph.transitions[writer -> critic] UNKNOWN_AGENT
	// steps[text].graph.transitions[writer -> critic] UNKNOWN_AGENT
	// steps[all].over UNKNOWN_FIELD
	// steps[all].body[said].template UNKNOWN_STEP
	// agents.writer UNKNOWN_STATE
}

// js is JSON whose keys keep their order.
func js(s string) json.RawMessage { return json.RawMessage(s) }

// patterns are the shipped workflows, as one writes them in Go.
func patterns() map[string]*workflow.Spec {
	agent := func(name, description, instructions string) workflow.Agent {
		return workflow.Agent{Name: name, Description: description, Instructions: instructions}
	}
	task := js(`{"task": {"type": "string"}}`)
	researcher, drafter, editor := agent("researcher", "", "Collect the facts that the answer needs, as a list."), agent("writer", "", "Write a short answer from the facts."), agent("editor", "", "Make the answer plain and give it back. Say nothing else.")
	poet, critic := agent("poet", "", "Write the poem. Improve it by what the critic says."), agent("critic", "", "Say what can be better. Answer with APPROVE alone if nothing can.")
	triage := agent("triage", "Finds out what it is about.", "Hand over to whoever can help.")
	refunds, repairs := agent("refunds", "Pays money back.", "Pay the money back. Say DONE when it is done."), agent("repairs", "Has things repaired.", "Arrange the repair. Say DONE when it is done.")
	asking, repairing := agent("triage", "Finds out what it is about.", "Ask what you must know, and hand over to whoever can help."), agent("repairs", "Has things repaired.", "Arrange the repair with the customer. Say DONE when it is done.")
	customer := workflow.Agent{Name: "customer", Human: &workflow.Question{AnswerWithin: 24 * time.Hour, Default: "I do not know."}}
	enough := 8.0
	return map[string]*workflow.Spec{
		"sequential":  {Name: "Sequential", Graph: workflow.NewGraph().AddAgent(researcher, drafter, editor).AddTransition(researcher, drafter).AddTransition(drafter, editor)},
		"round_robin": {Name: "Round robin", Graph: workflow.NewGraph().AddAgent(poet, critic).Start(poet).AddTransition(poet, critic).AddTransition(critic, poet), Stop: workflow.StopCondition{Text: "APPROVE", From: []string{"critic"}, MaxMessages: 20}},
		"selector": {
			Name: "Selector",
			Graph: workflow.NewGraph().
				AddAgent(agent("planner", "Breaks the task down.", "Break the task down, and say who does what."), agent("guide", "Knows places.", "Say what there is to see."), agent("accountant", "Knows prices.", "Say what it costs. End with DONE if the plan is complete.")).
				Choose(workflow.Choice{Prompt: "{roles}\n\nRead the conversation, and choose who of {participants} speaks next. The planner speaks first. Answer with the name alone.\n\n{history}\n"}),
			Stop: workflow.StopCondition{Text: "DONE", From: []string{"accountant"}, MaxMessages: 15},
		},
		"swarm":   {Name: "Swarm", Graph: workflow.NewGraph().AddAgent(triage, refunds, repairs).AddHandoff(triage, refunds, repairs).AddHandoff(refunds, triage).AddHandoff(repairs, triage), Stop: workflow.StopCondition{Text: "DONE", MaxTurns: 10}},
		"handoff": {Name: "Handoff", Graph: workflow.NewGraph().AddAgent(asking, repairing, customer).AddHandoff(asking, repairing).AddHandoff(repairing, asking).Otherwise(customer), Stop: workflow.StopCondition{Text: "DONE", From: []string{"repairs"}, MaxMessages: 30}},
		"map_reduce": {
			Name: "Map and reduce", Inputs: task,
			Agents: []workflow.Agent{agent("worker", "", "Do the part that you are given. Be short."), agent("reducer", "", "Make one answer of the results of the parts.")},
			Steps: workflow.Steps{
				{ID: "split", Do: workflow.ExtractorStep{Prompt: "Split this task into parts that do not depend on each other: {{ inputs.task }}", Schema: js(`{"type": "object", "required": ["parts"], "properties": {"parts": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20}}}`)}},
				{ID: "results", Do: workflow.MapStep{Over: "split.parts", As: "part", Body: workflow.Steps{{ID: "did", Do: workflow.AgentStep{Agent: "worker", Prompt: "The task: {{ inputs.task }}\nYour part: {{ part }}"}}}}},
				{ID: "answer", Do: workflow.AgentStep{Agent: "reducer", Prompt: "The task: {{ inputs.task }}\nThe parts: {{ split.parts }}\nTheir results: {{ results }}"}},
			},
		},
		"best_of_n": {
			Name: "Best of n", Inputs: task, Agents: []workflow.Agent{agent("writer", "", "Write what you are asked for. Be short.")},
			Steps: workflow.Steps{
				{ID: "text", Do: workflow.BestOfStep{N: 3, Judge: &workflow.Judge{Prompt: "Which text does best what was asked for? {{ inputs.task }}"}, Body: workflow.Steps{
					{ID: "draft", Do: workflow.AgentStep{Agent: "writer", Prompt: "{{ inputs.task }}. This is attempt {{ item }}: be original."}},
				}}},
				{ID: "title", Do: workflow.BestOfStep{N: 6, MaxParallel: 2, Score: "{{ rated.points }}", Enough: &enough, Body: workflow.Steps{
					{ID: "idea", Do: workflow.AgentStep{Agent: "writer", Prompt: "Title {{ item }} for this text: {{ text.best }}"}},
					{ID: "rated", Do: workflow.ExtractorStep{Prompt: "Rate this title from 0 to 10: {{ idea }}", Schema: js(`{"points": {"type": "number"}}`)}},
					{ID: "kept", Do: workflow.TransformStep{Template: "{{ idea }}"}},
				}}},
			},
			Outputs: js(`{"title": "{{ title.best }}", "text": "{{ text.best }}", "why": "{{ text.reason }}", "points": "{{ title.scores }}"}`),
		},
		"orchestrator": orchestrator(),
	}
}

// TestNewPatterns has the graph of each shipped pattern that is written in Go be that of its text.
func TestNewPatterns(t *testing.T) {
	t.Parallel()
	for name, spec := range patterns() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile("../examples/workflow/" + name + ".yaml")
			require.NoError(t, err)
			d, _, faults := workflow.New(spec)
			require.Empty(t, faults)
			require.Equal(t, graphOf(t, string(src)), indented(t, d))
		})
	}
}

// everyMember has what members, graphs and triggers can say beyond the patterns.
const everyMember = `name: Members
version: "2"
model: {profile: small, temperature: 0.5, max_tokens: 100}
inputs: {task: {type: string}}
triggers: [chat, {type: cron, cron: "0 8 * * 1", inputs: {task: "{{ event.time }}"}}]
state: {n: {type: integer, reducer: add}}
budget: {usd: 0.5}
agents:
  a: {instructions: x, thread: one, on_error: tell, max_rounds: 3, tools: [http, {name: over, description: Ends it., handoff: user, reply: Bye}, {name: ask_h, description: Asks., ask: [h]}]}
  b: {instructions: y, model: large, capabilities: [sums], hears: [{from: a, last: 2}, {from: input, first: 1}]}
  c: {actor: my/actor, with: {k: 1}, task: "'do ' + result.text", set: {n: 1}}
  d: {human: true, choices: ["yes", "no"], answer_within: 1h, default: "no"}
  e: {workflow: pay@1, cache: {ttl: 1h, scope: user}}
  f: {workflow: {name: Inner, agents: {g: {instructions: z, hears: []}}, graph: [g]}}
  h: {instructions: w}
graph:
  start: a
  transitions:
    - {from: a, to: b, when: {all: ["state.n > 1", {not: {text: no}}]}}
    - {from: a, to: c, when: else}
    - {from: b, to: d, group: one}
    - {from: c, to: d, group: two, join: any}
    - {from: d, to: previous, when: {any: [{text: again}, {handoff: any}]}}
    - {from: d, to: e, when: else}
    - {from: e, to: f}
  loops: [{between: [f], while: {text: more}}]
router: [{from: any, to: f, ttl: 1h}, {from: [a, input], to: b}, {from: any, to: c}, {from: any, to: d}, {from: any, to: e}, {from: any, to: a}, {from: any, to: h}]
stop: {any: [{max_messages: 5, then: pause}, {all: [{text: x, from: a}, {call: pay}]}, {handoff: user}, {expr: named.turns > 3}, {answered: f}, {timeout: 1h}, {tokens: 9, input_tokens: 8, output_tokens: 7, usd: 1.5}]}
max_turns: 50
task: "{{ inputs.task }}!"
`

// members is that workflow in Go.
func members() *workflow.Spec {
	usd, warm := 0.5, 0.5
	a := workflow.Agent{Name: "a", Instructions: "x", Thread: "one", Tells: true, MaxRounds: 3,
		Tools: []workflow.Tool{{Actor: "http"}, {Name: "over", Description: "Ends it.", Handoff: "user", Reply: "Bye"}, {Name: "ask_h", Description: "Asks.", Ask: []string{"h"}}}}
	b := workflow.Agent{Name: "b", Instructions: "y", Model: workflow.Model{Profile: "large"}, Capabilities: []string{"sums"}, Hears: []workflow.Hearing{{From: "a", Last: 2}, {From: "input", First: 1}}}
	c := workflow.Agent{Name: "c", Actor: "my/actor", With: js(`{"k": 1}`), Task: "'do ' + result.text", Set: js(`{"n": 1}`)}
	d := workflow.Agent{Name: "d", Human: &workflow.Question{Choices: []string{"yes", "no"}, AnswerWithin: time.Hour, Default: "no"}}
	e := workflow.Agent{Name: "e", Workflow: "pay@1", Cache: workflow.Cache{TTL: time.Hour, Scope: "user"}}
	f := workflow.Agent{Name: "f", Inner: &workflow.Spec{Name: "Inner", Graph: workflow.NewGraph().AddAgent(workflow.Agent{Name: "g", Instructions: "z", Hears: []workflow.Hearing{}})}}
	h := workflow.Agent{Name: "h", Instructions: "w"}
	return &workflow.Spec{
		Name: "Members", Version: "2", Model: workflow.Model{Profile: "small", Temperature: &warm, MaxTokens: 100}, Inputs: js(`{"task": {"type": "string"}}`),
		Triggers: []workflow.Trigger{{Type: workflow.ChatTrigger}, {Type: workflow.CronTrigger, Cron: "0 8 * * 1", Inputs: js(`{"task": "{{ event.time }}"}`)}},
		State:    []workflow.StateKey{{Name: "n", Type: "integer", Reducer: workgraph.Add}}, Budget: workflow.Budget{USD: &usd},
		Graph: workflow.NewGraph().AddAgent(a, b, c, d, e, f, h).Start(a).
			AddTransition(a, b, workflow.Expr("state.n > 1"), workflow.Not(workflow.Says("no"))).
			AddTransition(a, c, workflow.Else()).
			AddTransition(b, d, workflow.JoinGroup("one")).
			AddTransition(c, d, workflow.JoinGroup("two"), workflow.JoinAny()).
			AddTransition(d, workflow.Previous(), workflow.Any(workflow.Says("again"), workflow.HandsOver(workflow.Agent{Name: workflow.AnyAgent}))).
			AddTransition(d, e, workflow.Else()).
			AddTransition(e, f).
			AddLoop(f, f, workflow.Says("more")),
		Router: workflow.NewRouter().AddRoute(workflow.FromAny(), f, workflow.TTL(time.Hour)).AddRoute(append(workflow.From(a), workflow.FromInput()...), b).
			AddRoute(workflow.FromAny(), c).AddRoute(workflow.FromAny(), d).AddRoute(workflow.FromAny(), e).AddRoute(workflow.FromAny(), a).AddRoute(workflow.FromAny(), h),
		Stop: workflow.StopCondition{Any: []workflow.StopCondition{
			{MaxMessages: 5, Pause: true}, {All: []workflow.StopCondition{{Text: "x", From: []string{"a"}}, {Call: "pay"}}}, {Handoff: "user"}, {Expr: "named.turns > 3"}, {Answered: []string{"f"}},
			{Timeout: time.Hour}, {Tokens: 9, InputTokens: 8, OutputTokens: 7, USD: 1.5},
		}},
		MaxTurns: 50, Task: "{{ inputs.task }}!",
	}
}

// TestNewMembers has members of every kind, joins, conditions, ends and triggers be those of the text.
func TestNewMembers(t *testing.T) {
	t.Parallel()
	src := strings.Replace(everyMember, "text: no}", `text: "no"}`, 1)
	want, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	d, _, faults := workflow.New(members())
	require.Empty(t, faults)
	require.Equal(t, indented(t, want), indented(t, d))
	require.Equal(t, want.Triggers(), d.Triggers())
	require.Equal(t, want.Budget, d.Budget)
}

// graphOf is the graph of a text, and indented that of a definition, to be compared.
func graphOf(t *testing.T, src string) string {
	t.Helper()
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	return indented(t, d)
}

func indented(t *testing.T, d *workflow.Definition) string {
	t.Helper()
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	hash, err := g.Hash()
	require.NoError(t, err)
	raw, err := json.MarshalIndent(g, "", " ")
	require.NoError(t, err)
	return hash + "\n" + string(raw)
}

// TestNewThreads has threads, memories and MCP servers be those of the text.
func TestNewThreads(t *testing.T) {
	t.Parallel()
	d, text, faults := workflow.New(&workflow.Spec{
		Name: "Desk", Threads: []workflow.Thread{{Name: "notes", Memory: true}, {Name: "talk"}},
		Agents: []workflow.Agent{{Name: "reader", Instructions: "x", Thread: "notes", Servers: []string{"files"}}, {Name: "friend", Instructions: "y", Memory: true}},
		Steps: workflow.Steps{
			{ID: "read", Do: workflow.AgentStep{Agent: "reader", Prompt: "Read."}},
			{ID: "own", Do: workflow.AgentStep{Prompt: "Go on.", Thread: "talk", Servers: []string{"web"}, Tools: []workflow.Tool{{Name: "help", Actor: "agent/help", ShareThread: true}}}},
			{ID: "deep", Do: workflow.DeepAgentStep{AgentStep: workflow.AgentStep{Prompt: "Plan.", Memory: true}, Subagents: []workflow.Helper{
				{Name: "friend"}, {Name: "aide", Instructions: "z", Servers: []string{"files"}, ShareThread: true},
			}}},
		},
	})
	require.Empty(t, faults, string(text))
	require.Equal(t, graphOf(t, `name: Desk
threads: {notes: {memory: true}, talk: }
agents: {reader: {instructions: x, thread: notes, mcp_servers: [files]}, friend: {instructions: y, memory: true}}
steps:
  - {id: read, type: agent, agent: reader, prompt: Read.}
  - {id: own, type: agent, prompt: Go on., thread: talk, mcp_servers: web, tools: [{name: help, actor: agent/help, share_thread: true}]}
  - {id: deep, type: deep_agent, prompt: Plan., memory: true, subagents: [friend, {name: aide, instructions: z, mcp_servers: [files], share_thread: true}]}
`), indented(t, d))
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	a, b := workflow.Agent{Name: "a", Instructions: "x"}, workflow.Agent{Name: "b", Instructions: "y"}
	self := &workflow.Spec{Name: "x", Graph: workflow.NewGraph().AddAgent(a)}
	self.Agents = []workflow.Agent{{Name: "me", Inner: self}}
	other := a
	other.Instructions = "z"
	for name, c := range map[string]struct {
		spec *workflow.Spec
		says string
	}{
		"AnAgentThatIsNotThere": {&workflow.Spec{Name: "x", Graph: workflow.NewGraph().AddAgent(a).AddTransition(a, b)}, `graph.transitions[a -> b]: error[UNKNOWN_AGENT]: there is no agent "b"`},
		"ALoopWithoutAnEnd":     {&workflow.Spec{Name: "x", Graph: workflow.NewGraph().AddAgent(a, b).AddLoop(a, b)}, "has no end"},
		"WhatIsNoJSON":          {&workflow.Spec{Name: "x", Inputs: func() {}}, "unsupported type"},
		"NoSpec":                {nil, "a workflow is keys and values"},
		"NoAction":              {&workflow.Spec{Name: "x", Steps: workflow.Steps{{ID: "a"}}}, "steps[a]: error[MISSING_KEY]: a step needs `type`"},
		"AnActionThatIsNil":     {&workflow.Spec{Name: "x", Steps: workflow.Steps{{ID: "a", Do: (*workflow.WaitStep)(nil)}}}, "steps[a]: error[MISSING_KEY]"},
		"WhatHoldsItself":       {self, "nested too deep"},
		"OneNameForTwoAgents":   {&workflow.Spec{Name: "x", Graph: workflow.NewGraph().AddAgent(a), Router: workflow.NewRouter().AddAgent(other)}, `the key "a" is there already`},
		"TwoStepsOfOneID": {&workflow.Spec{Name: "x", Steps: workflow.Steps{{ID: "a", Do: workflow.UserStep{}}, {ID: "a", Do: workflow.UserStep{}}}},
			`steps[a].id: error[DUPLICATE_ID]: there is a step "a" already; give one`},
		"WithinABody": {&workflow.Spec{Name: "x", Steps: workflow.Steps{{ID: "m", Do: workflow.MapStep{Over: []int{1}, Body: workflow.Steps{{ID: "in", Do: workflow.TransformStep{Template: "{{ nothing }}"}}}}}}},
			"steps[m].body[in].template: error[UNKNOWN_STEP]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, faults := workflow.New(c.spec)
			require.ErrorContains(t, faults, c.says)
			for _, f := range faults {
				require.Zero(t, f.Place, "there is no text whose lines could be meant")
			}
		})
	}
	t.Run("TheSameAgentTwice/IsOne", func(t *testing.T) {
		t.Parallel()
		d, _, faults := workflow.New(&workflow.Spec{Name: "x", Graph: workflow.NewGraph().AddAgent(a), Router: workflow.NewRouter().AddAgent(a).AddRoute(workflow.FromInput(), a)})
		require.Empty(t, faults)
		require.Len(t, d.Agents, 1)
	})
}

// orchestrator is the pattern of that name.
func orchestrator() *workflow.Spec {
	steps := func(id, do, needs string) string {
		return `{"type": "array", "maxItems": 20, "items": {"type": "object", "required": ["id", "do", "needs"], "properties": {"id": ` + id + `, "do": ` + do + `, "needs": ` + needs + `}}}`
	}
	some := `{"type": "string", "minLength": 1}`
	plan := js(`{"type": "object", "required": ["steps"], "properties": {"steps": {"type": "array", "minItems": 1,` + steps(some, some, `{"type": "array", "items": {"type": "string"}, "maxItems": 20}`)[len(`{"type": "array",`):] + `}}`)
	replan := js(`{"type": "object", "required": ["steps"], "properties": {"response": {"type": "string"}, "abandon": {"type": "boolean"}, "steps": ` + steps(some, some, `{"type": "array", "items": {"type": "string"}, "maxItems": 20}`) + `}}`)
	fault := func(twice, strange string) string {
		const bad = `'\n\nYour last plan cannot be used: `
		return "{{ " + twice + " }}.size() > 0 ? " + bad + "two steps have the id ' + {{ " + twice + " }}[0] + '.' : {{ " + strange + " }}.size() > 0 ? " + bad + "a step needs ' + {{ " + strange + " }}[0] + ', and no step has that id.' : ''"
	}
	sound := &workflow.LoopTest{Expr: "state.fault == ''"}
	inner := &workflow.Spec{
		Name: "Plan and execute", Inputs: js(`{"task": {"type": "string"}, "messages": {"type": "array"}, "parent_thread_id": {"type": "string"}, "user_id": {"type": "string"}, "task_id": {"type": "string"}}`),
		State: []workflow.StateKey{{Name: "plan", Type: "array", Initial: js(`[]`)}, {Name: "past", Type: "array", Initial: js(`[]`)}, {Name: "done", Type: "integer", Reducer: workgraph.Add, Initial: js("0")},
			{Name: "finished", Type: "array", Reducer: workgraph.Append, Initial: js(`[]`)}, {Name: "fault", Type: "string", Initial: js(`""`)}, {Name: "response", Type: "string", Initial: js(`""`)}},
		Agents: []workflow.Agent{{Name: "worker", Instructions: "Do the one step that you are given. Ask the user by `ask_user` for what you must know.",
			Tools: []workflow.Tool{{Name: "note", Actor: "cel", Description: "Notes something.", With: js(`{"expr": "'noted'"}`)}}}},
		Steps: workflow.Steps{
			{ID: "planning", Do: workflow.LoopStep{Until: sound, MaxIterations: 3, OnLimit: "fail", Body: workflow.Steps{
				{ID: "planner", Do: workflow.ExtractorStep{Schema: plan,
					Prompt: "Plan this task in few steps, each with an id, a short text `do`, and as `needs` the ids of the steps that must be done before it: {{ inputs.task }}\n\nWhat was said before: {{ inputs.messages }}{{ state.fault }}"}, Set: js(`{"plan": "{{ planner.steps }}"}`)},
				{ID: "twice", Do: workflow.TransformStep{Expr: "{{ planner.steps }}.map(s, s.id).filter(id, {{ planner.steps }}.filter(o, o.id == id).size() > 1)"}},
				{ID: "strange", Do: workflow.TransformStep{Expr: "{{ planner.steps }}.map(s, s.needs).flatten().filter(id, !{{ planner.steps }}.exists(o, o.id == id))"}},
				{ID: "checked", Do: workflow.TransformStep{Expr: fault("twice", "strange")}, Set: js(`{"fault": "{{ checked }}"}`)},
			}}},
			{ID: "work", Do: workflow.LoopStep{While: &workflow.LoopTest{Expr: "state.response == ''"}, MaxIterations: 25, Body: workflow.Steps{
				{ID: "able", Do: workflow.TransformStep{Expr: "{{ state.plan }}.filter(s, !s.needs.exists(n, {{ state.plan }}.exists(other, other.id == n)))"}},
				{ID: "wave", Do: workflow.TransformStep{Expr: "{{ able }}.size() > 0 || {{ state.plan }}.size() == 0 ? {{ able }} : [{{ state.plan }}[0]]"}},
				{ID: "did", Do: workflow.MapStep{Over: "wave", As: "part", Body: workflow.Steps{
					{ID: "step", Do: workflow.AgentStep{Agent: "worker", Prompt: "What was said before: {{ inputs.messages }}\nThe task: {{ inputs.task }}\nSteps done so far: {{ state.done }}. The last of them: {{ state.past }}\nYour step: {{ part.do }}"}},
					{ID: "both", Do: workflow.TransformStep{Template: js(`{"step": "{{ part.do }}", "result": "{{ step }}"}`)}},
				}}},
				{ID: "all", Do: workflow.TransformStep{Expr: "{{ state.past }} + {{ did }}"}},
				{ID: "told", Do: workflow.TransformStep{Expr: "{{ all }}.size() > 50 ? {{ all }}.slice({{ all }}.size() - 30, {{ all }}.size()) : {{ all }}"}, Set: js(`{"past": "{{ told }}"}`)},
				{ID: "count", Do: workflow.TransformStep{Expr: "{{ did }}.size()"}, Set: js(`{"done": "{{ count }}"}`)},
				{ID: "ended", Do: workflow.TransformStep{Expr: "{{ wave }}.map(w, w.id)"}, Set: js(`{"finished": "{{ ended }}"}`)},
				{ID: "left", Do: workflow.TransformStep{Expr: "{{ state.plan }}.filter(s, !{{ wave }}.exists(w, w.id == s.id))"}},
				{ID: "replanning", Do: workflow.LoopStep{Until: sound, MaxIterations: 3, OnLimit: "fail", Body: workflow.Steps{
					{ID: "replan", Do: workflow.ExtractorStep{Schema: replan,
						Prompt: "The task: {{ inputs.task }}\nThe plan: {{ state.plan }}\nSteps done: {{ state.done }}. The last of them: {{ state.past }}\nNot done: {{ left }}\nGive the steps that remain, in the form of the plan, or if none do, the response for the user. To give up the steps that are not done, set `abandon` and say why in the response.{{ state.fault }}"}},
					{ID: "same", Do: workflow.TransformStep{Expr: "{{ replan }}.steps.map(s, s.id).filter(id, {{ replan }}.steps.filter(o, o.id == id).size() > 1)"}},
					{ID: "lost", Do: workflow.TransformStep{Expr: "{{ replan }}.steps.map(s, s.needs).flatten().filter(id, !{{ replan }}.steps.exists(o, o.id == id) && !(id in {{ state.finished }}))"}},
					{ID: "sound", Do: workflow.TransformStep{Expr: fault("same", "lost")}, Set: js(`{"fault": "{{ sound }}"}`)},
					{ID: "again", Do: workflow.TransformStep{Template: js(`{"fault": "{{ sound }}", "plan": "{{ replan }}"}`)}},
				}}},
				{ID: "act", Do: workflow.TransformStep{Template: js(`"{{ replanning.last.plan }}"`)}},
				{ID: "over", Do: workflow.TransformStep{Expr: "('abandon' in {{ act }} && {{ act }}.abandon) || ({{ left }}.size() == 0 && {{ act }}.steps.size() == 0)"}},
				{ID: "next", Do: workflow.TransformStep{Expr: "{'steps': {{ act }}.steps.size() > 0 ? {{ act }}.steps : {{ left }}, 'response': !{{ over }} ? '' : 'response' in {{ act }} ? {{ act }}.response : 'Task completed.'}"},
					Set: js(`{"plan": "{{ next.steps }}", "response": "{{ next.response }}"}`)},
			}}},
		},
		Outputs: js(`{"text": "{{ state.response }}"}`),
	}
	accountant := workflow.Agent{Name: "accountant", Description: "Looks after money.", Capabilities: []string{"invoices", "refunds"}, Instructions: "You look after invoices and refunds. Do what you are asked, and say what you did."}
	courier := workflow.Agent{Name: "courier", Description: "Looks after parcels.", Capabilities: []string{"shipping"}, Instructions: "You look after parcels. Do what you are asked, and say what you did."}
	react := workflow.Agent{
		Name: "react_agent",
		Instructions: `You help with customers and their orders. Look single things up with your tools, and answer.
Call task_agent for what takes several steps: updates by name and not by id, onboarding, "do this and then that".
Never call it for a simple look-up or a single step.
Call ask_agent for a single step that one of the agents can do.
`,
		Tools: []workflow.Tool{
			{Name: "look_up", Actor: "cel", Description: "Looks up what is known of a customer: give the name as customer.", With: js(`{"expr": "named.customer + ': a customer since 2024, two open opportunities'"}`)},
			{Name: "task_agent", Description: "Plans a complex task and has it done.",
				Parameters: js(`{"type": "object", "required": ["task"], "properties": {"task": {"type": "string"}, "context": {"type": "string"}}}`),
				Set:        js(`{"needs_plan_execute": true, "plan_execute_task": "{{ task }}", "plan_execute_context": "{{ context }}"}`), Reply: "Routing task to plan-execute workflow: {task}"},
			{Ask: []string{"accountant", "courier"}},
		},
	}
	execute := workflow.Agent{
		Name: "plan_execute", Inner: inner, Set: js(`{"needs_plan_execute": false, "plan_execute_task": "", "plan_execute_context": ""}`),
		Task: `state.plan_execute_task + (type(state.plan_execute_context) == string && state.plan_execute_context != '' ? '\n\nContext: ' + state.plan_execute_context : '')`,
	}
	return &workflow.Spec{
		Name:  "Orchestrator",
		State: []workflow.StateKey{{Name: "needs_plan_execute", Type: "boolean", Initial: js("false")}, {Name: "plan_execute_task", Type: "string", Initial: js(`""`)}, {Name: "plan_execute_context", Type: "string", Initial: js(`""`)}},
		Graph: workflow.NewGraph().AddAgent(react, accountant, courier, execute).AddTransition(react, execute, workflow.Expr("state.needs_plan_execute")),
	}
}
