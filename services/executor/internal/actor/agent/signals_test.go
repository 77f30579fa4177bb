package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// router is an agent that may route a task elsewhere.
	router = `"user_input": "find", "form": "tools", "reasoner": "r", "actions": {"search": {"actor": "tool"}, "bad": {"actor": "fail", "named": {"reason": "NO", "message": "full"}}},
		"signals": {"task_agent": {"description": "Takes tasks of many steps.", "reply": "Routing task to plan-execute workflow: {task}",
			"schema": {"type": "object", "required": ["task"], "properties": {"task": {"type": "string"}, "context": {"type": "string"}}, "additionalProperties": false}},
			"escalate": {}}`
	route    = `{"id": "s1", "name": "task_agent", "arguments": {"task": "onboard Acme"}}`
	routed   = `{"name": "task_agent", "arguments": {"task": "onboard Acme"}}`
	look     = `{"id": "c1", "name": "search", "arguments": {"q": 1}}`
	finished = `{"role": "assistant", "content": "done"}`
)

// calling is a message with tool calls, and a text if it is not empty.
func calling(text string, of ...string) string {
	return fmt.Sprintf(`{"role": "assistant", "content": %q, "tool_calls": [%s]}`, text, strings.Join(of, ", "))
}

// answers are what the calls of the first message in the thread were told, by id. Failures begin with a !.
func (e *env) answers(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, it := range e.threads.items[e.threads.root(t)] {
		var m llm.Message
		require.NoError(t, json.Unmarshal(it.Body, &m))
		if m.Role == llm.ToolRole {
			if out[m.ToolCallID] = m.Content; m.IsError {
				out[m.ToolCallID] = "!" + m.Content
			}
		}
	}
	return out
}

func TestSignals(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, script ...string) (*env, *reasoner, *tool) {
		r, a := &reasoner{script: script}, says(`"found"`)
		return newEnv(t, workgraph.Actors{"r": r, "tool": a}), r, a
	}
	t.Run("Alone/EndsTheTurnAtOnce", func(t *testing.T) {
		t.Parallel()
		e, r, a := begin(t, calling("", route))
		res := e.run(t, `{`+router+`}`)
		done(t, res, `{"text": "", "signals": [`+routed+`]}`)
		require.Empty(t, a.calls)
		require.Len(t, r.asked, 1, "the model is not asked again")
		require.Equal(t, map[string]string{"s1": "Routing task to plan-execute workflow: onboard Acme"}, e.answers(t))
		require.Contains(t, string(r.asked[0]["tools"]), `{"name":"task_agent","description":"Takes tasks of many steps.","schema":{"type":"object","required":["task"]`)
		require.Contains(t, string(r.asked[0]["tools"]), `{"name":"escalate","schema":{"type":"object"}}`)
		require.Contains(t, string(r.asked[0]["system"]), "Your turn ends with a call of escalate or task_agent")
		states := e.threads.states(t, e.threads.root(t))
		require.Equal(t, []string{"task_agent"}, states[0].Response.Signals)
		require.EqualValues(t, "Ongoing", states[0].Status, "the task is not completed")
	})
	t.Run("Besides/ActionsAreDoneAndAnswered", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			calls []string
			want  map[string]string
		}{
			"One": {[]string{look, route}, map[string]string{"c1": "found"}},
			"OneThatFails": {[]string{route, `{"id": "c2", "name": "bad", "arguments": {}}`},
				map[string]string{"c2": "!NO: full"}},
			"Several": {[]string{look, route, `{"id": "c2", "name": "bad", "arguments": {}}`, `{"id": "t1", "name": "task_status", "arguments": {"description": "half"}}`},
				map[string]string{"c1": "found", "c2": "!NO: full", "t1": "noted"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e, r, _ := begin(t, calling("On it.", c.calls...))
				done(t, e.run(t, `{`+router+`}`), `{"text": "On it.", "signals": [`+routed+`]}`)
				c.want["s1"] = "Routing task to plan-execute workflow: onboard Acme"
				require.Equal(t, c.want, e.answers(t))
				require.Len(t, r.asked, 1)
			})
		}
	})
	t.Run("Besides/AnActionWithoutAResult", func(t *testing.T) {
		t.Parallel()
		e, _, _ := begin(t, calling("", `{"id": "c1", "name": "shy", "arguments": {}}`, `{"id": "c2", "name": "shy", "arguments": {}}`, route))
		e.all["shy"] = &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			return workgraph.Outcome{Stop: workgraph.AbstainResult}, nil
		}}
		done(t, e.run(t, strings.Replace(`{`+router+`}`, `"search": {"actor": "tool"}`, `"shy": {}`, 1)), `{"text": "", "signals": [`+routed+`]}`)
		require.Equal(t, "Routing task to plan-execute workflow: onboard Acme", e.answers(t)["s1"])
	})
	t.Run("Several/InOrderAndTheirNumbersKeepTheirDigits", func(t *testing.T) {
		t.Parallel()
		e, _, _ := begin(t, calling("", `{"id": "1", "name": "escalate", "arguments": {"n": 123456789012345678901234567890}}`, route, `{"id": "3", "name": "escalate"}`))
		res := e.run(t, `{`+router+`}`)
		require.Equal(t, `{"text":"","signals":[{"name":"escalate","arguments":{"n":123456789012345678901234567890}},{"name":"task_agent","arguments":{"task":"onboard Acme"}},{"name":"escalate","arguments":{}}]}`, string(res.Result))
		require.Equal(t, map[string]string{"1": "noted", "3": "noted", "s1": "Routing task to plan-execute workflow: onboard Acme"}, e.answers(t))
	})
	t.Run("Bad/IsToldAndEndsNothing", func(t *testing.T) {
		t.Parallel()
		wrong := `{"id": "s1", "name": "task_agent", "arguments": {"tsk": "x"}}`
		e, r, a := begin(t, calling("", wrong, look), calling("", wrong), calling("", wrong, `{"id": "s2", "name": "task_agent", "arguments": {"task": "onboard Acme"}}`))
		done(t, e.run(t, `{`+router+`}`), `{"text": "", "signals": [`+routed+`]}`)
		require.Len(t, r.asked, 3)
		require.Len(t, a.calls, 1, "the others of its message are done")
		require.Contains(t, e.answers(t)["s1"], "!the arguments of task_agent are not what its schema asks for: ")
		require.Equal(t, "found", e.answers(t)["c1"])
		require.Equal(t, "Routing task to plan-execute workflow: onboard Acme", e.answers(t)["s2"])
	})
	t.Run("Refused/AsAWhole", func(t *testing.T) {
		t.Parallel()
		e, r, a := begin(t, calling("", `{"id": "c1", "name": "serch", "arguments": {}}`, route), finished)
		done(t, e.run(t, `{`+router+`}`), `"done"`)
		require.Empty(t, a.calls)
		require.Contains(t, e.answers(t)["c1"], `there is no action "serch", did you mean "search"?`)
		require.Equal(t, e.answers(t)["c1"], e.answers(t)["s1"], "nothing of a refused response counts")
		require.Len(t, r.asked, 2)
	})
	t.Run("Refused/BesideAHandOver", func(t *testing.T) {
		t.Parallel()
		e, _, _ := begin(t, calling("", `{"id": "c1", "name": "other", "arguments": {}}`, route), finished)
		s := &reasoner{}
		e.all["s"] = s
		done(t, e.run(t, strings.Replace(`{`+router+`}`, `"search": {"actor": "tool"}`, `"other": {"actor": "agent", "hand_over": true, "named": {"form": "tools", "reasoner": "s", "actions": {}}}`, 1)), `"done"`)
		require.Contains(t, e.answers(t)["s1"], "make it the only action")
		require.Empty(t, s.asked)
	})
	t.Run("Refused/AsADecisionInJSON", func(t *testing.T) {
		t.Parallel()
		e, _, _ := begin(t, `{"actions": [{"action": "task_agent", "arguments": {"task": "x"}}]}`, finished)
		done(t, e.run(t, `{`+router+`}`), `"done"`)
		require.Contains(t, e.threads.states(t, e.threads.root(t))[0].Refused, "task_agent is no action but a signal: call it as a tool")
	})
	t.Run("AskUser/ComesFirst", func(t *testing.T) {
		t.Parallel()
		e, r, a := begin(t, calling("", route, look, `{"id": "q1", "name": "ask_user", "arguments": {"question": "Which Acme?"}}`), calling("", `{"id": "s2", "name": "task_agent", "arguments": {"task": "onboard Acme"}}`))
		e.options = append(e.options, workgraph.WithInterrupts(func(context.Context, workgraph.OpenedInterrupt) (workgraph.Answer, error) {
			return workgraph.Answer{Value: json.RawMessage(`"the big one"`)}, nil
		}))
		done(t, e.run(t, `{`+router+`}`), `{"text": "", "signals": [`+routed+`]}`)
		require.Empty(t, a.calls)
		require.Equal(t, map[string]string{"q1": "the big one", "s1": "!it was not done", "c1": "!it was not done", "s2": "Routing task to plan-execute workflow: onboard Acme"}, e.answers(t))
		require.Len(t, r.asked, 2)
	})
	t.Run("Thread/GoesOnInALaterTurn", func(t *testing.T) {
		t.Parallel()
		e, r, _ := begin(t, calling("On it.", look, route), finished)
		done(t, e.run(t, `{`+router+`}`), `{"text": "On it.", "signals": [`+routed+`]}`)
		done(t, e.run(t, `{`+strings.Replace(router, `"find"`, `"and now?"`, 1)+`, "thread_id": "`+e.threads.root(t)+`"}`), `"done"`)
		require.JSONEq(t, `[{"role": "user", "content": "find"}, `+calling("On it.", look, route)+`, {"role": "tool", "tool_call_id": "c1", "content": "found"},
			{"role": "tool", "tool_call_id": "s1", "content": "Routing task to plan-execute workflow: onboard Acme"}, {"role": "user", "content": "and now?"}]`, string(r.asked[1]["messages"]))
		var req llm.Request
		require.NoError(t, json.Unmarshal(r.asked[1]["messages"], &req.Messages))
		require.NoError(t, req.Check())
	})
	t.Run("ResultSchema/IsOfOtherEnds", func(t *testing.T) {
		t.Parallel()
		e, _, _ := begin(t, calling("", route))
		done(t, e.run(t, `{`+router+`, "result_schema": {"type": "integer"}}`), `{"text": "", "signals": [`+routed+`]}`)
		e, r, _ := begin(t, `"words"`, `"7"`)
		done(t, e.run(t, `{`+router+`, "result_schema": {"type": "integer"}}`), `7`)
		require.Len(t, r.asked, 2)
	})
	t.Run("Limits/DoNotHoldTheEnd", func(t *testing.T) {
		t.Parallel()
		e, _, _ := begin(t, calling("", route))
		done(t, e.run(t, `{`+router+`, "max_rounds": 1, "max_actions": 1, "step_by_step": true}`), `{"text": "", "signals": [`+routed+`]}`)
	})
	t.Run("TooMany/TheFirstOnesCount", func(t *testing.T) {
		t.Parallel()
		var many []string
		for i := range 101 {
			many = append(many, fmt.Sprintf(`{"id": "s%d", "name": "escalate", "arguments": {"i": %d}}`, i, i))
		}
		e, _, _ := begin(t, calling("", many...))
		var res struct{ Signals []json.RawMessage }
		require.NoError(t, json.Unmarshal(e.run(t, `{`+router+`}`).Result, &res))
		require.Len(t, res.Signals, 100)
	})
	t.Run("Reply", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("ä", 100)
		for name, c := range map[string]struct{ reply, arguments, want string }{
			"Default":         {``, `{}`, `noted`},
			"Empty":           {`{task}`, `{}`, `noted`},
			"OneHundred":      {`To do: {task}`, `{"task": "` + long + `"}`, `To do: ` + long},
			"OneHundredOne":   {`To do: {task}`, `{"task": "` + long + `b"}`, `To do: ` + long + `…`},
			"OtherTypes":      {`{n}, {o} and {none}.`, `{"n": 1.50, "o": {"a": [1]}}`, `1.50, {"a":[1]} and .`},
			"NoPlaceholder":   {`{ task }, {"a": 1}`, `{"task": "x"}`, `{ task }, {"a": 1}`},
			"ArgumentsAreNot": {`{task}`, `{"task": "{other}", "other": "y"}`, `{other}`},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e, _, _ := begin(t, calling("", `{"id": "1", "name": "go", "arguments": `+c.arguments+`}`))
				reply, err := json.Marshal(c.reply)
				require.NoError(t, err)
				require.Equal(t, workgraph.StatusCompleted, e.run(t, `{"user_input": "x", "form": "tools", "reasoner": "r", "actions": {}, "signals": {"go": {"reply": `+string(reply)+`}}}`).Status)
				require.Equal(t, c.want, e.answers(t)["1"])
			})
		}
	})
	for name, c := range map[string]struct{ more, want string }{
		"TheNameOfAnAction":    {`"signals": {"search": {}}`, `signals.search: an action has this name`},
		"TheNameOfATaskTool":   {`"signals": {"learn": {}}`, `signals.learn: a tool of the agent's own has this name`},
		"NoName":               {`"signals": {"a b": {}}`, `BAD_ARGUMENT`},
		"SchemaThatIsNone":     {`"signals": {"go": {"schema": {"type": "nothing"}}}`, `signals.go: schema: `},
		"ReplyWithAnUnknown":   {`"signals": {"go": {"reply": "{tsk}", "schema": {"properties": {"task": {}}}}}`, `signals.go: reply: {tsk} is none of the properties of the schema: use task`},
		"ReplyThatIsTooLong":   {`"signals": {"go": {"reply": "` + strings.Repeat("x", 2049) + `"}}`, `BAD_ARGUMENT`},
		"UnknownField":         {`"signals": {"go": {"actor": "tool"}}`, `BAD_ARGUMENT`},
		"MoreThanActionsAllow": {`"signals": {` + manySignals(64) + `}`, `signals: with the actions there are 65, the limit is 64`},
		"ThePromptForm":        {`"signals": {"go": {}}, "form": "prompt"`, `signals has no effect: only the tools form calls tools: write "form": "tools" too`},
	} {
		t.Run("Unusable/"+name, func(t *testing.T) {
			t.Parallel()
			named := map[string]json.RawMessage{}
			require.NoError(t, json.Unmarshal([]byte(`{"form": "tools", `+search+`}`), &named))
			require.NoError(t, json.Unmarshal([]byte(`{`+c.more+`}`), &named))
			_, err := newEnv(t, workgraph.Actors{"r": &reasoner{}, "tool": &tool{}}).try(t, encoded(t, named))
			require.ErrorContains(t, err, c.want)
		})
	}
}

func manySignals(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf(`"s%d": {}`, i))
	}
	return strings.Join(all, ", ")
}

// TestSignalsOfNamed adds signals to an agent of the configuration.
func TestSignalsOfNamed(t *testing.T) {
	t.Parallel()
	configured := func(t *testing.T, definition string, script ...string) (*env, func(*workgraph.Graph)) {
		specs, err := agent.Config{"desk": {Definition: definition}}.Specs(nil)
		require.NoError(t, err)
		r, err := actor.NewRegistry(specs...)
		require.NoError(t, err)
		e := newEnv(t, workgraph.Actors{"r": &reasoner{script: script}, "tool": says(`1`)})
		for _, s := range specs {
			info, _ := r.ActorInfo(s.Name)
			e.all[s.Name] = described{t, s.Actor, info, e}
		}
		return e, func(g *workgraph.Graph) { g.Nodes[0].Actor = "agent/desk" }
	}
	const desk = `{"form": "tools", "reasoner": "r", "actions": {"search": {"actor": "tool"}}, "signals": {"close": null}}`
	t.Run("Added", func(t *testing.T) {
		t.Parallel()
		e, as := configured(t, desk, calling("", `{"id": "1", "name": "to_billing"}`), calling("", `{"id": "2", "name": "close"}`), calling("", `{"id": "3", "name": "to_billing"}`), finished)
		done(t, e.run(t, `{"user_input": "x", "signals": {"to_billing": {}}}`, as), `{"text": "", "signals": [{"name": "to_billing", "arguments": {}}]}`)
		done(t, e.run(t, `{"user_input": "x", "signals": {"to_billing": {}}}`, as), `{"text": "", "signals": [{"name": "close", "arguments": {}}]}`)
		done(t, e.run(t, `{"user_input": "x"}`, as), `"done"`) // another call of the agent does not have it
	})
	for name, c := range map[string]struct{ definition, more, want string }{
		"ItsOwnSignal":  {desk, `"signals": {"close": {}}`, `signals.close: the agent has a signal of this name already`},
		"ItsAction":     {desk, `"signals": {"search": {}}`, `signals.search: an action has this name`},
		"ItsTaskTool":   {desk, `"signals": {"learn": {}}`, `signals.learn: a tool of the agent's own has this name`},
		"ABadSchema":    {desk, `"signals": {"go": {"schema": {"type": "nothing"}}}`, `signals.go: schema: `},
		"ItsPromptForm": {`{"reasoner": "r", "actions": {}}`, `"signals": {"go": {}}`, `signals has no effect`},
	} {
		t.Run("Unusable/"+name, func(t *testing.T) {
			t.Parallel()
			e, as := configured(t, c.definition)
			_, err := e.try(t, `{"user_input": "x", `+c.more+`}`, as)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("NotTheRunsInput", func(t *testing.T) {
		t.Parallel()
		e, as := configured(t, desk, calling("", `{"id": "1", "name": "evil"}`), finished)
		e.input = workgraph.Input{Named: map[string]json.RawMessage{"signals": json.RawMessage(`{"evil": {}}`), "as_message": json.RawMessage(`true`)}}
		done(t, e.run(t, `{"user_input": "x"}`, as), `"done"`)
	})
	t.Run("AsMessage/OfTheCallWins", func(t *testing.T) {
		t.Parallel()
		e, as := configured(t, strings.Replace(desk, `{"form"`, `{"as_message": true, "form"`, 1), finished, finished)
		done(t, e.run(t, `{"user_input": "x", "as_message": false}`, as), `"done"`)
		require.Contains(t, string(e.run(t, `{"user_input": "x"}`, as).Result), `{"text":"done","calls":[],"signals":[],"thread_id":"thr_`)
	})
}

func TestAsMessage(t *testing.T) {
	t.Parallel()
	message := func(t *testing.T, e *env, res workgraph.Result, want string) {
		t.Helper()
		done(t, res, strings.ReplaceAll(want, "THREAD", e.threads.root(t)))
	}
	t.Run("Words", func(t *testing.T) {
		t.Parallel()
		other := `{"id": "c2", "name": "bad", "arguments": {}}`
		r := &reasoner{script: []string{calling("", look), calling("", `{"id": "c3", "name": "nobody", "arguments": {}}`), calling("", other, strings.Replace(look, "c1", "c4", 1)), finished}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		res := e.run(t, `{`+router+`, "as_message": true}`)
		message(t, e, res, `{"text": "done", "calls": ["search", "bad"], "signals": [], "thread_id": "THREAD"}`)
		r.script = []string{finished}
		res = e.run(t, `{`+router+`, "as_message": true, "thread_id": "`+e.threads.root(t)+`"}`)
		message(t, e, res, `{"text": "done", "calls": [], "signals": [], "thread_id": "THREAD"}`)
	})
	t.Run("Signals", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, workgraph.Actors{"r": &reasoner{script: []string{calling("On it.", look, route)}}, "tool": says(`1`)})
		message(t, e, e.run(t, `{`+router+`, "as_message": true}`), `{"text": "On it.", "calls": ["search"], "signals": [`+routed+`], "thread_id": "THREAD"}`)
	})
	t.Run("ResultSchema/TheTextIsItsJSON", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, workgraph.Actors{"r": &reasoner{script: []string{`"{\"n\": 1.50}"`}}, "tool": says(`1`)})
		message(t, e, e.run(t, `{`+router+`, "as_message": true, "result_schema": {"type": "object"}}`), `{"text": "{\"n\":1.50}", "calls": [], "signals": [], "thread_id": "THREAD"}`)
	})
	t.Run("Prompt/GroupsAndBranches", func(t *testing.T) {
		t.Parallel()
		// The copies on the branches give their own results to the round, and no messages.
		r := &reasoner{when: []reply{{"Results of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>a</ActionType>\n    <ActionResult>A</ActionResult>\n  </Action>\n</ActionResults>", `{"result": "one"}`}},
			script: []string{`{"actions": [["a", "a"], ["bad"], ["c"]]}`, `{"result": "two"}`, `{"result": "over"}`}}
		e := newEnv(t, workgraph.Actors{"r": r, "a": says(`"A"`), "c": says(`"C"`)})
		res := e.run(t, `{"user_input": "x", "reasoner": "r", "as_message": true, "actions": {"a": {}, "bad": {"actor": "fail", "named": {"reason": "NO"}}, "c": {}}}`)
		message(t, e, res, `{"text": "over", "calls": ["a", "bad"], "signals": [], "thread_id": "THREAD"}`)
		require.Contains(t, e.told(t, 1), `"ok":"one"`)
	})
	t.Run("Prompt/GroupsWithASummarizer", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"actions": [["a", "b"]]}`, `{"result": "one"}`, `{"result": "two"}`, `{"result": "over"}`}}
		e := newEnv(t, workgraph.Actors{"r": r, "a": says(`"A"`), "b": says(`"B"`), "join": says(`"joined"`)})
		message(t, e, e.run(t, `{"user_input": "x", "reasoner": "r", "as_message": true, "summarizer": {"actor": "join"}, "actions": {"a": {}, "b": {}}}`),
			`{"text": "over", "calls": ["a", "b"], "signals": [], "thread_id": "THREAD"}`)
	})
	t.Run("Prompt/Graph", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"graph": {"nodes": [{"id": "x", "actor": "a"}, {"id": "y", "actor": "b"}], "edges": [{"from": "x", "to": "y"}]}}`, `{"result": "over"}`}}
		e := newEnv(t, workgraph.Actors{"r": r, "a": says(`"A"`), "b": says(`"B"`)})
		message(t, e, e.run(t, `{"user_input": "x", "reasoner": "r", "as_message": true, "allow_graph": true, "actions": {"a": {}, "b": {}}}`),
			`{"text": "over", "calls": ["a", "b"], "signals": [], "thread_id": "THREAD"}`)
	})
	t.Run("HandOver/TheOtherAgentsMessage", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{calling("", `{"id": "c1", "name": "other", "arguments": {}}`)}}
		s := &reasoner{script: []string{calling("", `{"id": "c2", "name": "x", "arguments": {}}`), finished}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
		message(t, e, e.run(t, `{"user_input": "x", "form": "tools", "reasoner": "r", "as_message": true, "actions": {"other": {"actor": "agent", "hand_over": true, "named": {"form": "tools", "reasoner": "s", "actions": {"x": {}}}}}}`),
			`{"text": "done", "calls": ["x"], "signals": [], "thread_id": "THREAD"}`)
	})
}
