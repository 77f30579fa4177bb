package workflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/team"
)

// teamOf is the team of a workflow that is one.
func teamOf(t *testing.T, src string) *team.Team {
	t.Helper()
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.Actor == "team" {
			tm := &team.Team{}
			require.NoError(t, json.Unmarshal(n.Named["team"], tm))
			return tm
		}
	}
	require.Fail(t, "no node is a team")
	return nil
}

// arrows are the transitions of a team.
func arrows(tm *team.Team) (out []string) {
	for _, e := range tm.Transitions {
		s := e.From + " -> " + e.To
		if w := e.When; w != nil {
			raw, _ := json.Marshal(w) // it has a JSON form
			s += " " + string(raw)
		}
		if e.Any {
			s += " any"
		}
		out = append(out, s)
	}
	return out
}

const abc = "agents: {a: {instructions: x}, b: {instructions: x}, c: {instructions: x}}\n"

func TestTeams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"Chain":       {"graph: [a, b, c]", []string{"a -> b", "b -> c"}},
		"Arrows":      {`graph: {transitions: ["a -> b -> c"]}`, []string{"a -> b", "b -> c"}},
		"FanOut":      {"graph: {transitions: [{from: a, to: [b, c]}]}", []string{"a -> b", "a -> c"}},
		"Conditions":  {"graph: {transitions: [{from: a, to: b, when: {text: yes}}, {from: a, to: c, when: else}]}", nil},
		"Expressions": {"graph: {transitions: [{from: a, to: b, when: \"result.text == 'x'\"}, {from: a, to: c, when: {any: [{text: y}, {not: {text: z}}]}}]}", []string{`a -> b {"expr":"result.text == 'x'"}`, `a -> c {"any":[{"text":"y"},{"not":{"text":"z"}}]}`}},
		"Loops": {"graph: {start: a, loops: [{between: [a, b], while: {text: again}}], transitions: [{from: b, to: c, when: else}]}",
			[]string{`b -> c {"else":true}`, "a -> b", `b -> a {"text":"again"}`}},
		"Handoffs": {"graph: {handoffs: {a: [b], b: a}}\nstop: {max_turns: 3}",
			[]string{`a -> b {"handoff":"b"} any`, `b -> a {"handoff":"a"} any`, `a -> a {"else":true} any`, `b -> b {"else":true} any`}},
		"HandoffsToASilentEnd": {"graph: {handoffs: {a: [b]}, otherwise: end}", []string{`a -> b {"handoff":"b"} any`}},
		"HandoffsAndAPerson": {"graph: {handoffs: {a: b}, otherwise: c}\nstop: {max_turns: 3}",
			[]string{`a -> b {"handoff":"b"} any`, `a -> c {"else":true} any`, "b -> c any", "c -> previous"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "Conditions" {
				c.src, c.want = strings.Replace(c.src, "yes", `"yes"`, 1), []string{`a -> b {"text":"yes"}`, `a -> c {"else":true}`}
			}
			require.Equal(t, c.want, arrows(teamOf(t, "name: x\n"+abc+c.src)))
		})
	}
	t.Run("Members/AreThoseThatAreNamed", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, "name: x\nmodel: small\n"+abc+"graph: [c, a]")
		require.Len(t, tm.Members, 2)
		require.Equal(t, "a", tm.Members[0].Name)
		require.Equal(t, team.Agent, tm.Members[0].Kind)
		require.JSONEq(t, `{"system": "x", "actions": {}, "form": "tools", "reasoner_args": {"profile": "small"}}`, string(encode(t, tm.Members[0].Named)))
	})
	t.Run("Handoffs/AreSignals", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, "name: x\nagents: {a: {instructions: x}, b: {instructions: x, description: Pays.}}\ngraph: {handoffs: {a: b}, otherwise: end}")
		require.JSONEq(t, `{"transfer_to_b": {"description": "Hands the conversation over to b. Pays.", "reply": "Transferred to b.", "schema": {"type": "object", "additionalProperties": false, "properties": {}}}}`, string(tm.Members[0].Named["signals"]))
		require.Equal(t, map[string]team.Signal{"transfer_to_b": {Handoff: "b", Say: "Transferred to b."}}, tm.Members[0].Signals)
	})
	t.Run("Tools/MaySetTheState", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, `name: x
state: {needs: {type: boolean, initial: false}, task: {type: string}}
agents:
  a: {instructions: x, tools: [{name: task_agent, description: Plans., parameters: {task: {type: string}}, set: {needs: true, task: "{{ task }}"}, reply: "Routing {task}"}]}
  b: {instructions: y}
graph: {transitions: [{from: a, to: b, when: state.needs}]}`)
		require.JSONEq(t, `{"task_agent": {"description": "Plans.", "reply": "Routing {task}", "schema": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}}}`, string(tm.Members[0].Named["signals"]))
		require.Equal(t, "Routing {{ task }}", tm.Members[0].Signals["task_agent"].Say)
		require.JSONEq(t, `"{{ task }}"`, string(tm.Members[0].Signals["task_agent"].Set["task"]))
		require.JSONEq(t, `false`, string(tm.State["needs"].Initial))
	})
	t.Run("Kinds/ActorsPeopleAndWorkflows", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, `name: x
agents:
  a: {actor: my/actor, with: {n: 1}, on_error: tell}
  b: {human: true, choices: ["yes", "no"], answer_within: 1h}
  c: {workflow: pay@1}
  d: {workflow: {name: inner, agents: {e: {instructions: i}, f: {instructions: j}}, graph: [e, f]}}
  g: {workflow: {name: steps, inputs: {task: {type: string}}, steps: [{type: transform, template: "{{ inputs.task }}"}]}}
  h: {actor: agent/support, thread: shared}
graph: [a, b, c, d, g, h]`)
		kinds := []team.Kind{team.Actor, team.Human, team.Workflow, team.Workflow, team.Workflow, team.Agent}
		for i, m := range tm.Members {
			require.Equal(t, kinds[i], m.Kind, m.Name)
		}
		require.True(t, tm.Members[0].Tells)
		require.JSONEq(t, `{"choices": ["yes", "no"], "timeout": "1h"}`, string(encode(t, tm.Members[1].Named)))
		require.JSONEq(t, `{"as_result": true, "ref": "workflow/pay@1"}`, string(encode(t, tm.Members[2].Named)))
		require.True(t, tm.Members[3].Keeps, "a team goes on with its conversation")
		require.False(t, tm.Members[4].Keeps)
		require.Contains(t, string(tm.Members[3].Named["graph"]), `"actor":"team"`)
		require.Equal(t, "shared", tm.Members[5].Thread)
	})
	t.Run("Stop/AlternativesAndPauses", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, "name: x\n"+abc+"graph: [a, b, c]\nstop: {any: [{max_messages: 3, usd: 0.5, then: pause}, {all: [{text: x, from: a}, {call: pay}]}]}\nmax_turns: 7")
		raw, err := json.Marshal(tm.Stop)
		require.NoError(t, err)
		require.JSONEq(t, `{"any": [{"any": [{"max_messages": 3, "pause": true}, {"nano_usd": 500000000, "pause": true}]}, {"all": [{"text": "x", "of": ["a"]}, {"call": "pay"}]}]}`, string(raw))
		require.Equal(t, 7, tm.MaxTurns)
	})
	t.Run("Router/Routes", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, "name: x\n"+abc+"router: [{from: a, to: b}, {from: [a, b], to: c, batch_size: 10, ttl: 1h}]")
		raw, err := json.Marshal(tm.Routes)
		require.NoError(t, err)
		require.JSONEq(t, `[{"from": ["a"], "to": "b"}, {"from": ["a", "b"], "to": "c", "batch_size": 10, "ttl": "1h0m0s"}]`, string(raw))
	})
	t.Run("Told/AFaultIsAtTheInput", func(t *testing.T) {
		t.Parallel()
		for name, inputs := range map[string]string{
			"Short":  "inputs:\n        task: {type: string}\n        task_id: {type: integer}\n",
			"Schema": "inputs:\n        type: object\n        properties: {task: {type: string},\n          task_id: {type: integer}}\n",
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				src := "name: x\nagents:\n  a:\n    workflow:\n      name: y\n      " + inputs + "      steps: [{type: wait, delay: 1}]\ngraph: [a]"
				d, faults := workflow.Read([]byte(src))
				require.Empty(t, faults)
				_, faults = workflow.Compile(d)
				require.Len(t, faults, 1)
				line, _, _ := strings.Cut(src, "task_id")
				require.Equal(t, strings.Count(line, "\n")+1, faults[0].Place.Line)
				require.Equal(t, len(line)-strings.LastIndex(line, "\n")+len("task_id: "), faults[0].Place.Column)
				require.Contains(t, faults[0].Hint, "let `task_id` be of the type string")
			})
		}
	})
	t.Run("Told/InputsThatFitAreTold", func(t *testing.T) {
		t.Parallel()
		tm := teamOf(t, "name: x\n"+told(`messages: {type: array, items: {type: object, properties: {from: {type: string}, text: {type: string}}}}, user_id: {}, task_id: {type: [string, "null"]}`))
		require.Equal(t, []string{"messages", "user_id", "task_id"}, tm.Members[0].Told)
	})
	t.Run("Cascade/IsAWarning", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte("name: x\n" + abc + "router: [{from: [input, b], to: a}, {from: a, to: [b, c]}]"))
		require.Empty(t, faults)
		warnings := workflow.Warnings(d)
		require.Len(t, warnings, 2)
		require.Equal(t, "CASCADE", warnings[0].Code)
		require.Equal(t, 2, warnings[0].Place.Line)
	})
	t.Run("Step/IsToldATask", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte("name: x\n" + abc + `steps:
  - {id: topic, type: transform, template: tea}
  - {id: chat, type: team, agents: [a, b], graph: [a, b], task: "Talk about {{ topic }}"}
  - {id: end, type: transform, template: "{{ chat.text }}"}`))
		require.Empty(t, faults)
		g, faults := workflow.Compile(d)
		require.Empty(t, faults)
		require.Equal(t, "team", g.Nodes[2].Actor)
		require.Equal(t, "topic", g.Nodes[2].Bind["task"].Uses[0].Node)
		require.JSONEq(t, "true", string(g.Nodes[2].Named["own_thread"]), "the thread of the run is that of a workflow which is a team")
	})
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

func TestTeamsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, says string }{
		"UnknownAgent":        {"graph: [a, d]", `2:1: graph`},
		"UnknownAgentHint":    {"graph: [a, d]", `there is no agent "d"`},
		"Endless":             {"graph: {start: a, transitions: [\"a -> b -> a\"]}", "the cycle a -> b -> a has no end"},
		"Gap":                 {"router: [{from: input, to: a}, {from: c, to: b}, {from: b, to: c}]", `no route leads to "b"`},
		"GapOfAnAgent":        {"router: [{from: input, to: a}, {from: a, to: b}]", `nothing leads to the agent "c"`},
		"GapBesideTheInput":   {"router: [{from: input, to: a}, {from: a, to: b}, {from: c, to: b}]", `no route leads to "c"`},
		"Unreachable":         {"graph: {start: a, transitions: [{from: a, to: b}, {from: c, to: b}]}", `nothing leads to "c"`},
		"HearsAStranger":      {"agents: {a: {instructions: x, hears: [d]}, b: {instructions: y}}\ngraph: [a, b]", `there is no member "d"`},
		"HearsNoNames":        {"agents: {a: {instructions: x, hears: [{first: 1}]}, b: {instructions: y}}\ngraph: [a, b]", "needs `from`"},
		"HearsOutsideATeam":   {"agents: {a: {instructions: x, hears: []}}\nsteps: [{type: agent, agent: a, prompt: p}]", "is one of a team"},
		"NoInputTokens":       {"graph: [a, b]\nstop: {input_tokens: 0}", "`input_tokens` must be a whole number from 1"},
		"NoCondition":         {"graph: [a, b]\nstop: {}", "`stop` has no condition"},
		"UnknownCondition":    {"graph: [a, b]\nstop: {max_message: 3}", "did you mean `max_messages`?"},
		"PauseOfAText":        {"graph: [a, b]\nstop: {text: x, then: pause}", "only a limit can pause a team"},
		"StepsToo":            {"graph: [a, b]\nsteps: [{type: wait, delay: 1}]", "not both"},
		"StopOfSteps":         {"stop: {max_turns: 1}\nsteps: [{type: wait, delay: 1}]", "`stop` says nothing about steps"},
		"TwoWays":             {"graph: {transitions: [\"a -> b\"], choose: {}}", "both say who speaks next"},
		"NoTask":              {"inputs: {topic: {type: string}}\ngraph: [a, b]", "does not say what its agents are told"},
		"ArrowToNobody":       {"graph: {transitions: [a]}", `"a" leads nowhere`},
		"PromptWithoutNames":  {"graph: {choose: {prompt: \"who?\"}}", "the prompt has no {participants}"},
		"BadExpression":       {"graph: {transitions: [{from: a, to: b, when: 1 +}]}", "the expression cannot be used"},
		"EmptyGraph":          {"graph: {start: a}", "does not say who speaks after whom"},
		"UnknownState":        {"graph: [a, b]\nagents: {a: {instructions: x, tools: [{name: s, set: {k: 1}}]}, b: {instructions: y}}", `the state has no key "k"`},
		"SignalOutsideATeam":  {"agents: {a: {instructions: x, tools: [{name: s, set: {k: 1}}]}}\nsteps: [{type: agent, agent: a, prompt: p}]", "is one of a team"},
		"MemberOutsideATeam":  {"agents: {a: {human: true}}\nsteps: [{type: wait, delay: 1}]", "no team has it"},
		"TwoKinds":            {"agents: {a: {human: true, actor: x}}\ngraph: [a]", "not several"},
		"InnerWithoutTask":    {"agents: {a: {workflow: {name: y, inputs: {topic: {type: string}}, steps: [{type: wait, delay: 1}]}}}\ngraph: [a]", "does not take what it is told"},
		"ToldMessagesAsText":  {told("messages: {type: string}"), "the team gives the workflow of the agent \"a\" `messages`, a list of {from, text}, and the input is a text"},
		"ToldMessagesOfTexts": {told("messages: {type: array, items: {type: string}}"), "a list of {from, text}, and the input is a list of other items"},
		"ToldTaskAsNumber":    {told("task_id: {type: integer}"), "`task_id`, a text, and the input is a whole number"},
		"ToldUserAsList":      {told("user_id: {type: array}"), "`user_id`, a text, and the input is a list"},
		"ToldThreadAsObject":  {told("parent_thread_id: {type: object}"), "`parent_thread_id`, a text, and the input is keys and values"},
		"FaultInAnInnerOne":   {"agents: {a: {workflow: {name: y, steps: [{type: wai, delay: 1}]}}}\ngraph: [a]", "did you mean `wait`?"},
		"HandoffToNobody":     {"graph: {handoffs: {a: d}, otherwise: end}", `there is no agent "d"`},
		"OtherwiseAlone":      {"graph: {transitions: [\"a -> b\"], otherwise: end}", "nobody is handed over to"},
		"HumanKeysElsewhere":  {"agents: {a: {instructions: x, choices: [y]}}\ngraph: [a]", "is for somebody who is asked"},
		"NoMoney":             {"graph: [a, b]\nstop: {usd: 0}", "`usd` is from"},
		"EmptyStop":           {"graph: [a, b]\nstop: {text: \"\", any: []}", "says nothing"},
		"ThreadOfAPerson":     {"agents: {a: {human: true, thread: t}}\ngraph: [a]", "only an agent works on a thread"},
		"InstructionsOfActor": {"agents: {a: {actor: x, instructions: y}}\ngraph: [a]", "is for an agent that is defined here"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := "name: x\n" + abc + c.src
			if strings.Contains(c.src, "agents:") {
				src = "name: x\n" + c.src
			}
			d, faults := workflow.Read([]byte(src))
			if d != nil {
				_, faults = workflow.Compile(d)
			}
			require.NotEmpty(t, faults)
			var all strings.Builder
			for _, f := range faults {
				all.WriteString(f.String() + "; " + f.Hint + "\n")
				require.Positive(t, f.Place.Line, "%v", f)
			}
			if name == "UnknownAgent" {
				require.Equal(t, 3, faults[0].Place.Line)
				return
			}
			require.Contains(t, all.String(), c.says)
		})
	}
}

// A short text must not make a large team.
func TestTeamsBounded(t *testing.T) {
	t.Parallel()
	agents := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(fmt.Sprintf("a%d: {}, ", i))
		}
		return "name: x\nagents: {" + strings.TrimSuffix(b.String(), ", ") + "}\n"
	}
	for name, c := range map[string]struct{ src, says string }{
		"HandoffsOfMany":   {agents(500) + "graph: {handoffs: any}\nstop: {max_turns: 2}", "a team may have 64 members"},
		"TooManyAgents":    {agents(20_000) + "graph: {handoffs: any}", "a workflow may have 1000 agents"},
		"ManyTransitions":  {agents(64) + "graph: {transitions: [" + strings.TrimSuffix(strings.Repeat("{from: ["+names(64)+"], to: ["+names(64)+"]}, ", 50), ", ") + "]}", "more than 4096 transitions"},
		"SwarmsMayBeLarge": {agents(60) + "graph: {handoffs: any}\nstop: {max_turns: 2}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, faults := workflow.Read([]byte(c.src))
			if d != nil {
				_, faults = workflow.Compile(d)
			}
			if c.says == "" {
				require.Empty(t, faults)
				return
			}
			require.ErrorContains(t, faults, c.says)
		})
	}
}

func names(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("a%d", i)
	}
	return strings.Join(out, ", ")
}

// told is a team whose agent is a workflow with these inputs besides its task.
func told(inputs string) string {
	return "agents: {a: {workflow: {name: y, inputs: {task: {type: string}, " + inputs + "}, steps: [{type: wait, delay: 1}]}}}\ngraph: [a]"
}
