package workflow_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/team"
)

// TestThreadsRefused tells of threads that cannot be shared, or mean nothing.
func TestThreadsRefused(t *testing.T) {
	t.Parallel()
	const pair = "agents: {a: {instructions: x, thread: notes}, b: {instructions: x, thread: notes}, c: {instructions: x, memory: true}}\n"
	step := func(id, agent string) string { return "{id: " + id + ", type: agent, agent: " + agent + ", prompt: p}" }
	for name, c := range map[string]struct{ src, code, says string }{
		"Unknown":               {"threads: [notez]\n" + pair + "steps: [" + step("x", "a") + "]", "UNKNOWN_THREAD", "did you mean `notez`?"},
		"Unused":                {"threads: [notes, other]\n" + pair + "steps: [" + step("x", "a") + "]", "UNUSED_THREAD", `"other"`},
		"Twice":                 {"threads: [notes, notes]\n" + pair + "steps: [" + step("x", "a") + "]", "DUPLICATE_ID", `"notes"`},
		"BadName":               {"threads: [\"a b\"]\n" + pair + "steps: [" + step("x", "a") + "]", "BAD_ID", `"a b"`},
		"BadNameOfAnAgent":      {"agents: {a: {instructions: x, thread: a b}}\nsteps: [" + step("x", "a") + "]", "BAD_ID", `"a b"`},
		"UnknownKey":            {"threads: {notes: {kept: true}}\n" + pair + "steps: [" + step("x", "a") + "]", "UNKNOWN_KEY", "a thread has no key `kept`"},
		"MemoryOfAShared":       {"agents: {a: {instructions: x, thread: notes, memory: true}}\nsteps: [" + step("x", "a") + "]", "FIELD_NOT_USED", "threads: {notes: {memory: true}}"},
		"SideBySide":            {pair + "steps: [{parallel: [" + step("x", "a") + ", " + step("y", "b") + "]}]", "SHARED_SIDE_BY_SIDE", `"x" and "y"`},
		"TheSameAgentTwice":     {pair + "steps: [{parallel: [" + step("x", "c") + ", " + step("y", "c") + "]}]", "SHARED_SIDE_BY_SIDE", `"x" and "y"`},
		"InAMap":                {pair + "steps: [{id: m, type: map, over: [1], body: [" + step("x", "a") + "]}]", "SHARED_BY_FAN_OUT", "leave `thread` out"},
		"MemoryInAMap":          {pair + "steps: [{id: m, type: map, over: [1], body: [" + step("x", "c") + "]}]", "SHARED_BY_FAN_OUT", "leave `memory` out"},
		"MemoryInAnAttempt":     {pair + "steps: [{id: m, type: best_of, n: 2, judge: which, body: " + step("x", "c") + "}]", "SHARED_BY_FAN_OUT", `"m"`},
		"OneIdInAMap":           {pair + "steps: [{id: m, type: map, over: [1], body: [{id: x, type: agent, prompt: p, thread_id: thr_1}]}]", "SHARED_BY_FAN_OUT", "take it from the item"},
		"TheSameReferenceInMap": {"inputs: {t: {type: string}}\nsteps: [{id: m, type: map, over: [1], body: [{id: x, type: agent, prompt: p, thread_id: \"{{ inputs.t }}\"}]}]", "SHARED_BY_FAN_OUT", "take it from the item"},
		"MemberInAMap": {"agents: {a: {instructions: x, memory: true}, b: {instructions: y}}\nsteps: [{id: m, type: map, over: [1], body: [{id: x, type: team, task: t, graph: {transitions: [\"a -> b\"]}}]}]",
			"SHARED_BY_FAN_OUT", "leave `memory` out"},
		"MemberThatIsNoAgent": {"agents: {a: {instructions: x}, b: {human: true, memory: true}}\ngraph: {transitions: [\"a -> b\"]}", "FIELD_NOT_USED", "leave `memory` out"},
		"FanOutToOneThread":   {pair + "graph: {transitions: [{from: c, to: [a, b]}]}", "SHARED_BY_FAN_OUT", `"a" and "b"`},
		"StartOnOneThread":    {pair + "graph: {start: [a, b], transitions: [\"a -> c\", \"b -> c\"]}", "SHARED_BY_FAN_OUT", `"a" and "b"`},
		"OfASubagent":         {pair + "steps: [{id: x, type: deep_agent, prompt: p, subagents: [a]}]", "FIELD_NOT_USED", "an agent below another one does not work on the thread \"notes\""},
		"OfAnInnerSubagent":   {"steps: [{id: x, type: deep_agent, prompt: p, subagents: [{name: s, instructions: i, thread: notes}]}]", "UNKNOWN_KEY", "has no key `thread`"},
		"MemoryBelowInAMap":   {pair + "steps: [{id: m, type: map, over: [1], body: [{id: x, type: deep_agent, prompt: p, subagents: [c]}]}]", "SHARED_BY_FAN_OUT", "leave `memory` out"},
		"InnerMemoryInAMap":   {"steps: [{id: m, type: map, over: [1], body: [{id: x, type: deep_agent, prompt: p, subagents: [{name: s, instructions: i, memory: true}]}]}]", "SHARED_BY_FAN_OUT", "leave `memory` out"},
		"ShareOfNoAgent":      {"steps: [{id: x, type: agent, prompt: p, tools: [{actor: http, share_thread: true}]}]", "FIELD_NOT_USED", "only an agent works on a thread"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := c.src
			if strings.Contains(src, "graph: {transitions") && !strings.Contains(src, "steps:") || strings.Contains(src, "graph: {start") {
				src += "\ninputs: {task: {type: string}}"
			}
			faults := faultsOf("name: T\n" + src + "\n")
			at := slices.IndexFunc(faults, func(f workflow.Fault) bool { return f.Code == c.code })
			require.GreaterOrEqual(t, at, 0, "%s", faults)
			require.Contains(t, faults[at].String(), c.says)
		})
	}
}

func TestThreads(t *testing.T) {
	t.Parallel()
	named := func(t *testing.T, src, id string) string {
		t.Helper()
		for _, n := range compiled(t, src).Nodes {
			if n.ID == id {
				return string(n.Named["thread"])
			}
		}
		return ""
	}
	t.Run("OfARun", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"name": "notes"}`, named(t, "name: T\nsteps: [{id: x, type: agent, prompt: p, thread: notes}]\n", "x"))
	})
	t.Run("OfItsOwn", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, "name: T\nsteps: [{id: x, type: agent, prompt: p}, {id: y, type: agent, prompt: p, thread: notes}, {id: z, type: agent, prompt: p, memory: true}, {id: w, type: agent, prompt: p, thread_id: thr_1}]\n")
		own := map[string]string{}
		for _, n := range g.Nodes {
			if v := n.Named["own_thread"]; v != nil {
				own[n.ID] = string(v)
			}
		}
		require.Equal(t, map[string]string{"x": "true"}, own, "a step that names no thread does not work on that of the run")
	})
	t.Run("ASubagentRemembers", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, "name: T\nagents: {c: {instructions: x, memory: true}}\nsteps: [{id: x, type: deep_agent, prompt: p, subagents: [c]}]\n")
		require.Contains(t, string(g.Nodes[1].Named["actions"]), `"thread":{"lifetime":"CONVERSATION","name":"T/c"}`)
	})
	t.Run("WithAMemory", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"lifetime": "CONVERSATION", "name": "T/threads/notes"}`, named(t, "name: T\nthreads: {notes: {memory: true}}\nsteps: [{id: x, type: agent, prompt: p, thread: notes}]\n", "x"))
	})
	t.Run("ALongName", func(t *testing.T) {
		t.Parallel()
		var got struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(named(t, "name: "+strings.Repeat("x", 200)+"\nagents: {a: {instructions: i, memory: true}}\nsteps: [{id: x, type: agent, agent: a, prompt: p}]\n", "x")), &got))
		require.Len(t, got.Name, 64, "a digest stands for it")
	})
	t.Run("BehindRoutesOfASwitch", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"name": "notes"}`, named(t, `
name: T
inputs: {k: {type: string}}
agents: {a: {instructions: x, thread: notes}}
steps:
  - {id: s, type: switch, rules: [{field: inputs.k, value: y, route: x}], default: y}
  - {id: x, type: agent, agent: a, prompt: p}
  - {id: y, type: agent, agent: a, prompt: p}
`, "y"))
	})
	t.Run("ItsIdFromTheItem", func(t *testing.T) {
		t.Parallel()
		compiled(t, "name: T\ninputs: {l: {type: array}}\nsteps: [{id: m, type: map, over: inputs.l, as: one, body: [{id: x, type: agent, prompt: p, thread_id: \"{{ one.thread }}\"}]}]\n")
	})
	t.Run("MembersRemember", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, "name: T\ninputs: {task: {type: string}}\nagents: {a: {instructions: x, memory: true}, b: {instructions: y}}\ngraph: {transitions: [\"a -> b\"]}\n")
		var tm team.Team
		require.NoError(t, json.Unmarshal(g.Nodes[1].Named["team"], &tm))
		require.Equal(t, []string{"T/a", ""}, []string{tm.Members[0].Memory, tm.Members[1].Memory})
		require.NotContains(t, tm.Members[0].Named, "thread", "the team says which thread it is")
	})
	t.Run("ServersOfAnAgent", func(t *testing.T) {
		t.Parallel()
		g := compiled(t, "name: T\nsteps: [{id: x, type: agent, prompt: p, mcp_servers: [files, web]}]\n")
		require.JSONEq(t, `["files", "web"]`, string(g.Nodes[1].Named["mcp_servers"]))
		require.JSONEq(t, `"tools"`, string(g.Nodes[1].Named["form"]))
	})
}
