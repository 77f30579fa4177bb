package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/http"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestToolsForm(t *testing.T) {
	t.Parallel()
	calls := func(of ...string) string {
		return `{"role": "assistant", "content": "on it", "opaque": {"p": {"sig": "x"}}, "tool_calls": [` + strings.Join(of, ", ") + `]}`
	}
	t.Run("Calls/AreEachAnswered", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{
			calls(`{"id": "c1", "name": "a", "arguments": {"x": 1}}`, `{"id": "c2", "name": "bad", "arguments": {}}`, `{"id": "c3", "name": "a", "arguments": {"x": 2}}`),
			calls(`{"id": "c4", "name": "a", "arguments": {"x": 3}}`), calls(`{"id": "c5", "name": "nobody", "arguments": {}}`), `{"role": "assistant", "content": "It is sunny."}`}}
		a := &tool{upon: func(named map[string]json.RawMessage) (workgraph.Outcome, error) {
			return workgraph.Outcome{Values: []json.RawMessage{named["x"]}}, nil
		}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a})
		done(t, e.run(t, `{"user_input": "weather?", "context": "ctx", "reasoner": "r", "form": "tools", "task_tools": [], "actions": {
			"a": {"actor": "tool", "description": "Tells.", "schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}, "bad": {"actor": "fail", "named": {"reason": "NO"}}}}`), `"It is sunny."`)
		require.JSONEq(t, `[{"name": "a", "description": "Tells.", "schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}, {"name": "bad", "description": "Fails on purpose, for drills: with any kind of error, a panic, or by hanging.", "schema": `+string(visibleOfFail(t, r))+`}]`, string(r.asked[0]["tools"]))
		require.JSONEq(t, `[{"role": "user", "content": "Context:\nctx"}, {"role": "user", "content": "weather?"}]`, string(r.asked[0]["messages"]))
		require.JSONEq(t, `[{"role": "user", "content": "Context:\nctx"}, {"role": "user", "content": "weather?"},
			`+calls(`{"id": "c1", "name": "a", "arguments": {"x": 1}}`, `{"id": "c2", "name": "bad", "arguments": {}}`, `{"id": "c3", "name": "a", "arguments": {"x": 2}}`)+`,
			{"role": "tool", "tool_call_id": "c1", "content": "1"}, {"role": "tool", "tool_call_id": "c2", "content": "NO: failed on purpose", "is_error": true}, {"role": "tool", "tool_call_id": "c3", "content": "2"}]`,
			string(r.asked[1]["messages"]))
		require.Contains(t, string(r.asked[2]["messages"]), `"tool_call_id":"c4"`)
		require.Contains(t, string(r.asked[3]["messages"]), `there is no action`)
		require.Len(t, e.threads.rows, 1, "calls of one message do not branch")
	})
	t.Run("Calls/ThatNoServerTakesBackAreKeptInWords", func(t *testing.T) {
		t.Parallel()
		many := make([]string, 101)
		for i := range many {
			many[i] = fmt.Sprintf(`{"id": "c%d", "name": "a", "arguments": {}}`, i)
		}
		for name, of := range map[string][]string{
			"NoID":     {`{"id": "", "name": "a", "arguments": {"x": 1}}`},
			"EqualIDs": {`{"id": "c", "name": "a", "arguments": {"x": 1}}`, `{"id": "c", "name": "a", "arguments": {"x": 2}}`},
			"NoName":   {`{"id": "c", "name": "", "arguments": {}}`},
			"TooMany":  many,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := &reasoner{script: []string{calls(of...), `{"role": "assistant", "content": "done"}`}}
				e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
				done(t, e.run(t, `{"user_input": "go", "reasoner": "r", "form": "tools", "actions": {"a": {"actor": "tool"}}}`), `"done"`)
				for _, asked := range r.asked {
					var req llm.Request
					require.NoError(t, json.Unmarshal(asked["messages"], &req.Messages))
					require.NoError(t, req.Check(), "%s", asked["messages"])
				}
				require.Contains(t, string(r.asked[1]["messages"]), fmt.Sprintf(`on it\n\n(%d tool calls)`, len(of)))
			})
		}
	})
	t.Run("Fork/BetweenCallsAndTheirAnswers", func(t *testing.T) {
		t.Parallel()
		two := calls(`{"id": "c1", "name": "a", "arguments": {"x": 1}}`, `{"id": "c2", "name": "a", "arguments": {"x": 2}}`)
		e := newEnv(t, workgraph.Actors{"r": &reasoner{script: []string{two, `{"role": "assistant", "content": "first"}`}}, "tool": says(`"found"`)})
		const named = `"reasoner": "r", "form": "tools", "actions": {"a": {"actor": "tool"}}`
		done(t, e.run(t, `{"user_input": "go", `+named+`}`), `"first"`)
		from := e.threads.root(t)
		const missing = "its result is not known here: the conversation was forked before it came"
		for at, want := range map[int64][]string{2: {missing, missing}, 3: {"found", missing}, 4: {"found", "found"}} {
			r := &reasoner{script: []string{two, `{"role": "assistant", "content": "second"}`}}
			e.all["r"] = r
			id := fmt.Sprint("thr_fork", at)
			e.threads.put(t, thread.Thread{ID: id, ParentID: from, ParentSeq: at, Depth: 1})
			done(t, e.run(t, `{"user_input": "and now?", "thread_id": "`+id+`", `+named+`}`), `"second"`)
			for _, asked := range r.asked {
				var req llm.Request
				require.NoError(t, json.Unmarshal(asked["messages"], &req.Messages))
				require.NoError(t, req.Check(), "forked at %d: %s", at, asked["messages"])
				require.Equal(t, want, []string{req.Messages[2].Content, req.Messages[3].Content})
				require.Equal(t, []bool{want[0] == missing, want[1] == missing}, []bool{req.Messages[2].IsError, req.Messages[3].IsError})
				require.Equal(t, "and now?", req.Messages[4].Content)
			}
			require.Len(t, r.asked, 2)
		}
	})
	t.Run("Messages/AreBoundedAndBeginWithTheUser", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for i := range 20 {
			r.script = append(r.script, calls(fmt.Sprintf(`{"id": "c%d", "name": "a", "arguments": {"x": %d}}`, i, i)))
		}
		r.script = append(r.script, `"done"`)
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, `{"user_input": "go", "reasoner": "r", "form": "tools", "max_rounds": 100, "history": {"messages": 10}, "actions": {"a": {"actor": "tool"}}}`), `"done"`)
		var last []map[string]any
		require.NoError(t, json.Unmarshal(r.asked[20]["messages"], &last))
		require.LessOrEqual(t, len(last), 11)
		require.Equal(t, "go", last[0]["content"], "the task is always told")
		require.Equal(t, "assistant", last[1]["role"], "no answer without its call")
	})
}

func TestTaskTools(t *testing.T) {
	t.Parallel()
	message := func(of ...string) string {
		return `{"role": "assistant", "tool_calls": [` + strings.Join(of, ", ") + `]}`
	}
	const tools = `"form": "tools", ` + search
	// told are the messages of the n-th call, from 1.
	told := func(t *testing.T, r *reasoner, n int) (out []map[string]any) {
		t.Helper()
		require.GreaterOrEqual(t, len(r.asked), n)
		require.NoError(t, json.Unmarshal(r.asked[n-1]["messages"], &out))
		return out
	}
	t.Run("AskUser/IsAnsweredByAPerson", func(t *testing.T) {
		t.Parallel()
		ask := message(`{"id": "c1", "name": "ask_user", "arguments": {"question": "Which size?"}}`, `{"id": "c2", "name": "search", "arguments": {}}`)
		r, a := &reasoner{script: []string{ask, `{"role": "assistant", "content": "A large one."}`}}, &tool{}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a})
		var asked string
		e.options = append(e.options, workgraph.WithInterrupts(func(_ context.Context, q workgraph.OpenedInterrupt) (workgraph.Answer, error) {
			asked = string(q.Interrupt.Prompt)
			return workgraph.Answer{Value: json.RawMessage(`"large"`)}, nil
		}))
		done(t, e.run(t, `{`+tools+`}`), `"A large one."`)
		require.Equal(t, `"Which size?"`, asked)
		require.Empty(t, a.calls, "the question comes first")
		require.Equal(t, []map[string]any{{"role": "user", "content": "find"}, told(t, r, 2)[1],
			{"role": "tool", "tool_call_id": "c1", "content": "large"}, {"role": "tool", "tool_call_id": "c2", "content": "it was not done", "is_error": true}}, told(t, r, 2),
			"the answer is the answer of the call, and no message besides")
		states := e.threads.states(t, e.threads.root(t))
		require.EqualValues(t, "Pending", states[0].Status)
		require.JSONEq(t, `"large"`, string(states[0].Answer))
	})
	t.Run("Remarks/AreKept", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{
			message(`{"id": "1", "name": "new_task", "arguments": {}}`, `{"id": "2", "name": "learn", "arguments": {"id": "l1", "content": "likes tea"}}`,
				`{"id": "3", "name": "task_status", "arguments": {"description": "half", "details": "half of it"}}`, `{"id": "4", "name": "search", "arguments": {"q": 1}}`),
			message(`{"id": "5", "name": "task_status", "arguments": {"description": "done"}}`), `"over"`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`"found"`)})
		done(t, e.run(t, `{`+tools+`}`), `"over"`)
		var answers []any
		for _, m := range told(t, r, 3) {
			if m["role"] == "tool" {
				answers = append(answers, m["content"])
			}
		}
		require.Equal(t, []any{"noted", "kept", "noted", "found", "noted"}, answers)
		states := e.threads.states(t, e.threads.root(t))
		require.True(t, states[0].NewTask)
		require.Equal(t, []string{"half", "half of it", "done"}, []string{states[0].Description, states[0].DescriptionExtended, states[1].Description})
		require.JSONEq(t, `{"next_actions": [[{"action": "search", "arguments": {"q": 1}, "call": "4"}]], "instant_learnings": [{"id": "l1", "content": "likes tea"}]}`, encoded(t, states[0].Response))
		require.True(t, slices.ContainsFunc(e.threads.items[e.threads.root(t)], func(it thread.Item) bool { return it.Kind == workgraph.ThreadLearning }))
	})
	t.Run("Faults/AreToldToTheCall", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{message(`{"id": "1", "name": "learn", "arguments": {"id": "x"}}`, `{"id": "2", "name": "ask_user", "arguments": {"question": "?", "urgent": true}}`,
			`{"id": "3", "name": "new_task", "arguments": {"x": 1}}`), `"over"`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
		done(t, e.run(t, `{`+tools+`}`), `"over"`)
		all := told(t, r, 2)
		require.Equal(t, []any{"content is missing: call learn with it", `"urgent" is no argument of ask_user`, `"x" is no argument of new_task`}, []any{all[2]["content"], all[3]["content"], all[4]["content"]})
		require.Equal(t, []any{true, true, true}, []any{all[2]["is_error"], all[3]["is_error"], all[4]["is_error"]})
	})
	t.Run("Shown/AsTheDefinitionSays", func(t *testing.T) {
		t.Parallel()
		names := func(more string) (out []string, system string) {
			r := &reasoner{script: []string{`"over"`}}
			done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+tools+more+`}`), `"over"`)
			var shown []struct{ Name string }
			require.NoError(t, json.Unmarshal(r.asked[0]["tools"], &shown))
			for _, one := range shown {
				out = append(out, one.Name)
			}
			return out, string(r.asked[0]["system"])
		}
		all, system := names("")
		require.Equal(t, []string{"search", "ask_user", "learn", "new_task", "task_status"}, all)
		require.Contains(t, system, "Call ask_user when")
		some, system := names(`, "task_tools": ["learn"]`)
		require.Equal(t, []string{"search", "learn"}, some)
		require.NotContains(t, system, "ask_user")
		none, _ := names(`, "task_tools": []`)
		require.Equal(t, []string{"search"}, none)
	})
	t.Run("SwitchedOff/IsAnUnknownAction", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{message(`{"id": "1", "name": "ask_user", "arguments": {"question": "?"}}`), `"over"`}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+tools+`, "task_tools": ["learn"]}`), `"over"`)
		require.Contains(t, told(t, r, 2)[2]["content"], `there is no action "ask_user"`)
	})
	t.Run("Names/AreNotThoseOfActions", func(t *testing.T) {
		t.Parallel()
		const named = `{"user_input": "x", "form": "tools", "reasoner": "r", "actions": {"learn": {"actor": "tool"}}`
		_, err := newEnv(t, workgraph.Actors{"r": &reasoner{}, "tool": &tool{}}).try(t, named+`}`)
		require.ErrorContains(t, err, "actions.learn: a tool of the agent's own has this name")
		r := &reasoner{script: []string{message(`{"id": "1", "name": "learn", "arguments": {"n": 1}}`), `"over"`}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, named+`, "task_tools": ["ask_user"]}`), `"over"`)
	})
}

// Whatever actor an action has, its description and its schema are shown to the model, without what the model
// cannot give.
func TestSchemasShown(t *testing.T) {
	t.Parallel()
	web, err := http.Spec(http.DefaultConfig(), nil, nil)
	require.NoError(t, err)
	r := &reasoner{script: []string{`"over"`}}
	e := newEnv(t, workgraph.Actors{"r": r})
	for _, s := range []actor.Spec{web} {
		reg, err := actor.NewRegistry(s)
		require.NoError(t, err)
		info, _ := reg.ActorInfo(s.Name)
		e.all[s.Name] = described{t, s.Actor, info, e}
	}
	// Those of workers and MCP servers come by the same directory.
	e.all["shop/find"] = described{t, says(`1`), workgraph.ActorInfo{Effect: workgraph.Pure, Description: "Finds\ngoods.", Schema: json.RawMessage(`{"type": "object", "required": ["what", "key"], "properties": {"what": {"type": "string"}, "key": {"type": "string"}}}`)}, e}
	done(t, e.run(t, `{"user_input": "x", "form": "tools", "task_tools": [], "reasoner": "r", "actions": {
		"fetch": {"actor": "http", "named": {"method": "GET"}}, "run": {"actor": "spawn", "named": {"ref": "self"}}, "find": {"actor": "shop/find", "named": {"key": "k"}}}}`), `"over"`)
	var shown []struct {
		Name        string
		Description string
		Schema      struct {
			Required   []string
			Properties map[string]json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(r.asked[0]["tools"], &shown))
	require.Len(t, shown, 3)
	require.Equal(t, []string{web.Description, "Finds\ngoods."}, []string{shown[0].Description, shown[1].Description})
	require.NotEmpty(t, shown[2].Description)
	r.script = []string{over}
	done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "actions": {"find": {"actor": "shop/find"}, "seek": {"actor": "shop/find", "description": "Seeks."}}}`), `"done"`)
	require.Contains(t, r.prompt(t, 2), "- find: Finds goods. Arguments: ")
	require.Contains(t, r.prompt(t, 2), "- seek: Seeks. Arguments: ")
	fetch, find, run := shown[0].Schema, shown[1].Schema, shown[2].Schema
	require.Contains(t, fetch.Properties, "url")
	require.NotContains(t, fetch.Properties, "method", "what is fixed")
	require.NotContains(t, find.Properties, "key")
	require.Equal(t, []string{"what"}, find.Required)
	for _, never := range []string{"graph", "ref", "runs", "task_id", "budget", "labels"} {
		require.NotContains(t, run.Properties, never)
	}
	require.NotEmpty(t, run.Properties)
}

func TestSummarizers(t *testing.T) {
	t.Parallel()
	branches := []string{acts("", "search+search", "search"), `{"result": "b"}`, `{"result": "b"}`, over}
	t.Run("Failure/IsToldWithTheResults", func(t *testing.T) {
		t.Parallel()
		a := says(`1`)
		e := newEnv(t, workgraph.Actors{"r": &reasoner{script: branches}, "tool": a})
		done(t, e.run(t, `{`+search+`, "summarizer": {"actor": "fail", "named": {"reason": "NO_SUM", "message": "cannot count"}}}`), `"done"`)
		require.JSONEq(t, `[{"group": [{"action": "search", "ok": "b"}, {"action": "search", "ok": "b"}, {"action": "summarizer", "error": {"type": "PERMANENT", "reason": "NO_SUM", "message": "cannot count"}}]},
			{"action": "search", "skipped": "an action before it did not succeed"}]`, e.told(t, 1))
		require.Len(t, a.calls, 2, "what follows is skipped")
	})
	t.Run("Prompt/TakesArguments", func(t *testing.T) {
		t.Parallel()
		llm := says(`"both"`)
		e := newEnv(t, workgraph.Actors{"r": &reasoner{script: branches}, "tool": says(`1`), "llm": llm})
		done(t, e.run(t, `{`+search+`, "summarizer": {"prompt": "Join: {action_result}", "named": {"model": "small", "system": "Be brief."}}}`), `"done"`)
		require.Len(t, llm.calls, 1)
		var asked map[string]any
		require.NoError(t, json.Unmarshal([]byte(llm.calls[0]), &asked))
		require.Equal(t, []any{"small", "Be brief.", false}, []any{asked["model"], asked["system"], asked["upstream"]})
		require.Contains(t, asked["request"], "Join: <ActionResults>")
		require.JSONEq(t, `[{"value": "both"}, {"action": "search", "ok": 1}]`, e.told(t, 1))
	})
}

// visibleOfFail is the schema that the model is shown of the second tool.
func visibleOfFail(t *testing.T, r *reasoner) json.RawMessage {
	t.Helper()
	var all []struct {
		Schema json.RawMessage `json:"schema"`
	}
	require.NoError(t, json.Unmarshal(r.asked[0]["tools"], &all))
	require.NotContains(t, string(all[1].Schema), `"reason":`, "what is fixed is not shown")
	require.Contains(t, string(all[1].Schema), `"message":`, "the schema of the actor is shown")
	return all[1].Schema
}
