package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	search  = `"user_input": "find", "reasoner": "r", "actions": {"search": {"actor": "tool"}}`
	oneCall = `{"actions": [[{"action": "search", "arguments": {"q": 1}}]]}`
	over    = `{"result": "done"}`
)

// told is what became of the actions of a round, as it is kept in the state.
func (e *env) told(t *testing.T, round int) string {
	t.Helper()
	states := e.threads.states(t, e.threads.root(t))
	require.GreaterOrEqual(t, len(states), round)
	return encoded(t, states[round-1].ActionResults)
}

func TestLoop(t *testing.T) {
	t.Parallel()
	t.Run("Rounds/UntilTheResult", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{oneCall, oneCall, `{"result": {"n": 9007199254740993}}`}}, &tool{}
		res := work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`}`)
		done(t, res, `{"n": 9007199254740993}`)
		require.Contains(t, string(res.Result), "9007199254740993")
		require.Equal(t, []string{`{"previous_action_results":[],"q":1}`, `{"previous_action_results":[{"previous_action_results":[],"q":1}],"q":1}`}, a.calls,
			"what is told to the reasoner does not reach the actions")
		require.EqualValues(t, 30, res.Usage[0].InputTokens, "it rolls up")
		require.JSONEq(t, `{"search": {}}`, string(r.asked[2]["actions"]))
		require.JSONEq(t, `2`, string(r.asked[1]["round"]))
		require.JSONEq(t, `[{"action": "search", "ok": {"previous_action_results": [], "q": 1}}]`, string(r.asked[1]["action_results"]))
		require.Contains(t, string(r.asked[0]["system"]), "ImmediateNextActions")
		require.NotContains(t, r.asked[1], "q", "the arguments of actions do not reach the reasoner")
	})
	t.Run("Numbers/KeepAllTheirDigits", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`{"actions": [{"action": "search", "arguments": {"big": 123456789012345678901234567890, "small": 1.10}}]}`, `{"actions": [{"action": "search", "arguments": {"big": 9007199254740993, "half": 0.5}}]}`, over}}, says(`1.0`)
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`}`), `"done"`)
		require.Equal(t, []string{`{"big":123456789012345678901234567890,"previous_action_results":[],"small":1.10}`, `{"big":9007199254740993,"half":0.5,"previous_action_results":[1.0]}`}, a.calls)
	})
	t.Run("Groups/InOrderAndResultsToo", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"actions": [[{"action": "b", "arguments": {"n": 1}}], [{"action": "b", "arguments": {"n": 2}}, {"action": "a"}], [{"action": "b", "arguments": {"n": 3}}]]}`, over}}
		a, b := says(`"a"`), says(`"b"`)
		e := newEnv(t, workgraph.Actors{"r": r, "a": a, "b": b})
		done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "branch": false, "actions": {"a": {}, "b": {}}}`), `"done"`)
		require.Equal(t, []string{`{"n":1,"previous_action_results":[]}`, `{"n":2,"previous_action_results":["b"]}`, `{"n":3,"previous_action_results":["b",["b","a"]]}`}, b.calls)
		require.JSONEq(t, `[{"action":"b","ok":"b"},{"group":[{"action":"b","ok":"b"},{"action":"a","ok":"a"}]},{"action":"b","ok":"b"}]`, e.told(t, 1))
		require.Len(t, r.asked, 2, "no branches were asked for")
	})
	t.Run("Failure/IsToldAndStopsWhatFollows", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`{"actions": [["ok", "bad"], ["ok"], ["ok"]]}`, over}}, says(`1`)
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a})
		done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "branch": false, "actions": {"ok": {"actor": "tool"}, "bad": {"actor": "fail", "named": {"reason": "NO_DISK", "message": "full"}}}}`), `"done"`)
		require.Len(t, a.calls, 1)
		require.JSONEq(t, `[{"group": [{"action":"ok","ok":1},{"action":"bad","error":{"type":"PERMANENT","reason":"NO_DISK","message":"full"}}]},
			{"action":"ok","skipped":"an action before it did not succeed"},{"action":"ok","skipped":"an action before it did not succeed"}]`, e.told(t, 1))
		require.Contains(t, r.prompt(t, 2), "<ActionError>NO_DISK: full</ActionError>")
	})
	t.Run("Failure/OfABranchIsTold", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"actions": [["ok", "bad"], ["ok"]]}`, `{"result": "fine"}`, over}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "actions": {"ok": {"actor": "tool"}, "bad": {"actor": "fail", "named": {"reason": "NO"}}}}`), `"done"`)
		require.JSONEq(t, `[{"group": [{"action":"ok","ok":"fine"},{"action":"bad","error":{"type":"PERMANENT","reason":"NO","message":"failed on purpose"}}]},
			{"action":"ok","skipped":"an action before it did not succeed"}]`, e.told(t, 1))
	})
	t.Run("Failure/OfTheOnlyActionIsTold", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`["bad"]`, over}}
		e := newEnv(t, workgraph.Actors{"r": r})
		done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "actions": {"bad": {"actor": "fail", "named": {"reason": "NO"}}}}`), `"done"`)
		require.JSONEq(t, `[{"action":"bad","error":{"type":"PERMANENT","reason":"NO","message":"failed on purpose"}}]`, e.told(t, 1))
	})
	t.Run("Abstention/IsTold", func(t *testing.T) {
		t.Parallel()
		shy := &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			return workgraph.Outcome{Stop: workgraph.AbstainResult}, nil
		}}
		r := &reasoner{script: []string{`["shy"]`, `["shy", "shy"]`, over}}
		e := newEnv(t, workgraph.Actors{"r": r, "shy": shy})
		done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "actions": {"shy": {}}}`), `"done"`)
		require.JSONEq(t, `[{"action":"shy","abstained":true}]`, e.told(t, 1))
		require.Contains(t, e.told(t, 2), "no action gave a result")
	})
	t.Run("Growth/OfAnActionIsItsResult", func(t *testing.T) {
		t.Parallel()
		grows := &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			return workgraph.Outcome{Expand: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "x", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"6*7"`)}}}}}, nil
		}}
		r := &reasoner{script: []string{`["grows"]`, over}}
		e := newEnv(t, workgraph.Actors{"r": r, "grows": grows})
		done(t, e.run(t, `{"user_input": "x", "reasoner": "r", "actions": {"grows": {}}}`), `"done"`)
		require.JSONEq(t, `[{"action":"grows","ok":42}]`, e.told(t, 1))
	})
	t.Run("Reasoner/ItsFailureIsTheNodes", func(t *testing.T) {
		t.Parallel()
		res := work(t, workgraph.Actors{"r": &reasoner{}, "tool": &tool{}}, `{`+search+`}`)
		require.Equal(t, workgraph.ReasonChildFailed, res.Error.Reason)
		require.Contains(t, res.Error.Message, "SCRIPT_ENDED")
		res = work(t, workgraph.Actors{"r": &reasoner{}, "tool": &tool{}}, `{`+search+`}`, func(g *workgraph.Graph) {
			g.Nodes[0].OnError = workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage(`"sorry"`)}
		})
		done(t, res, `"sorry"`)
	})
	t.Run("Map/OneAgentPerItem", func(t *testing.T) {
		t.Parallel()
		res := work(t, workgraph.Actors{"tool": &tool{}}, `{"reasoner": "cel", "reasoner_args": {"expr": "{'result': named.user_input + '!'}"}, "actions": {"tool": {}}}`,
			func(g *workgraph.Graph) { g.Nodes[0].Map = &workgraph.Map{Over: "['a', 'b']", As: "goal"} })
		done(t, res, `[{"ok": "a!"}, {"ok": "b!"}]`)
	})
	t.Run("Agents/InAgents", func(t *testing.T) {
		t.Parallel()
		done(t, work(t, nil, `{"goal": "outer", "reasoner": "cel", "reasoner_args": {"expr":
			"named.round == 1 ? dyn({'actions': [{'action': 'ask', 'arguments': {'user_input': 'inner'}}]}) : dyn({'result': named.action_results[0].ok})"},
			"actions": {"ask": {"actor": "agent", "named": {"reasoner": "cel", "reasoner_args": {"expr": "{'result': named.user_input + ' result'}"}, "actions": {"x": {"actor": "cel"}}}}}}`),
			`"inner result"`)
	})
	t.Run("Dispatch/ByAnActor", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{"please look for 7", "stop"}}, says(`"found"`)
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a})
		done(t, e.run(t, `{`+search+`, "dispatch": "third"}`, func(*workgraph.Graph) {
			e.all["third"] = &tool{upon: func(named map[string]json.RawMessage) (workgraph.Outcome, error) {
				say := `{"result": "over"}`
				if strings.Contains(string(named["response"]), "look for") {
					say = oneCall
				}
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(say)}}, nil
			}}
		}), `"over"`)
		require.Equal(t, []string{`{"previous_action_results":[],"q":1}`}, a.calls)
		require.Equal(t, `"please look for 7"`, string(e.threads.states(t, e.threads.root(t))[0].RawResponse), "what the reasoner gave, not the dispatcher")
	})
	t.Run("Dispatch/ToAGraph", func(t *testing.T) {
		t.Parallel()
		const third = `{"user_input": "x", "dispatch": "cel", "dispatch_args": {"expr": "dyn(named.response == 'stop' ? dyn({'result': 'over'}) : dyn({'graph': {'nodes': [{'id': 'a', 'actor': 'one'}, {'id': 'b', 'actor': 'two'}], 'edges': [{'from': 'a', 'to': 'b', 'result_pass_down_mode': {'mode': 'KEY', 'key': 'from_a'}}]}}))"}, "reasoner": "r", "actions": {"one": {}, "two": {}}`
		r, one, two := &reasoner{script: []string{"a to b", "stop"}}, says(`1`), says(`2`)
		e := newEnv(t, workgraph.Actors{"r": r, "one": one, "two": two})
		done(t, e.run(t, third+`, "allow_graph": true}`), `"over"`)
		require.Equal(t, []string{`{"from_a":1,"previous_action_results":[]}`}, two.calls)
		require.JSONEq(t, `[{"action": "one", "ok": 1}, {"action": "two", "ok": 2}]`, e.told(t, 1))
		r.script = []string{"a to b", "stop"}
		e = newEnv(t, workgraph.Actors{"r": r, "one": one, "two": two})
		done(t, e.run(t, third+`}`), `"over"`)
		require.Contains(t, e.threads.states(t, e.threads.root(t))[0].Refused, "graphs are not allowed here")
		require.Len(t, one.calls, 1)
	})
	t.Run("Dispatch/ItsFailureIsTold", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{"one", "two"}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
		n := 0
		e.all["third"] = &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			if n++; n == 1 {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO_SENSE", "what is one?")
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(over)}}, nil
		}}
		done(t, e.run(t, `{`+search+`, "dispatch": "third"}`), `"done"`)
		require.Contains(t, r.prompt(t, 2), "the response could not be read: NO_SENSE: what is one?")
	})
}

func TestTask(t *testing.T) {
	t.Parallel()
	t.Run("Pending/AsksAndGoesOnWithTheAnswer", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("looked", "search"), `<TaskStatus>Pending</TaskStatus><TaskStatusDescription>waiting</TaskStatusDescription><InstantResponse>Which size?</InstantResponse>`, completed}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`"found"`)})
		var asked string
		e.options = append(e.options, workgraph.WithInterrupts(func(_ context.Context, q workgraph.OpenedInterrupt) (workgraph.Answer, error) {
			asked = string(q.Interrupt.Prompt)
			return workgraph.Answer{Value: json.RawMessage(`"large"`)}, nil
		}))
		done(t, e.run(t, `{`+search+`}`), `"done"`)
		require.Equal(t, `"Which size?"`, asked)
		require.Equal(t, "Actions:\n- search\n\nCurrent state of the task:\nlooked\n\nConversation:\nUser: find\nAgent: Which size?\nUser: large\n\n"+
			"Results of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>search</ActionType>\n    <ActionResult>found</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 3),
			"the results stay, and a Pending state is not shown")
		states := e.threads.states(t, e.threads.root(t))
		require.EqualValues(t, "Pending", states[1].Status)
		require.Equal(t, "large", states[2].UserInput)
	})
	t.Run("NewTask/LeavesTheStatesBehind", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("the first task", "search"), completed, `<NewTask>true</NewTask>` + acts("the second task", "search"), completed}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{`+search+`}`), `"done"`)
		done(t, e.run(t, `{"thread_id": "`+e.threads.root(t)+`", `+search+`}`), `"done"`)
		require.Contains(t, r.prompt(t, 3), "the first task")
		require.NotContains(t, r.prompt(t, 4), "the first task")
		require.Contains(t, r.prompt(t, 4), "Current state of the task:\nthe second task")
	})
	t.Run("Continue/WithoutUserInput", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{completed, completed}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{`+search+`}`), `"done"`)
		done(t, e.run(t, `{"thread_id": "`+e.threads.root(t)+`", "user_input": null, "reasoner": "r", "actions": {"search": {"actor": "tool"}}}`), `"done"`)
		require.Contains(t, r.prompt(t, 2), "Conversation:\nUser: find\nAgent: done")
	})
	t.Run("Learnings/AreKept", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`<TaskStatus>Completed</TaskStatus><InstantResponse>ok</InstantResponse><InstantLearnings><LearningID>l1</LearningID><LearningContent>likes tea</LearningContent></InstantLearnings>`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{`+search+`}`), `"ok"`)
		var kinds []workgraph.ThreadKind
		for _, it := range e.threads.items[e.threads.root(t)] {
			if kinds = append(kinds, it.Kind); it.Kind == workgraph.ThreadLearning {
				require.JSONEq(t, `{"id": "l1", "content": "likes tea"}`, string(it.Body))
			}
		}
		require.Equal(t, []workgraph.ThreadKind{workgraph.ThreadMessage, workgraph.ThreadMessage, workgraph.ThreadLearning, workgraph.ThreadState}, kinds)
	})
	t.Run("Ongoing/WithoutAnActionReasonsAgain", func(t *testing.T) {
		t.Parallel()
		const thinking = `<TaskStatus>Ongoing</TaskStatus><TaskStatusDescription>thinking</TaskStatusDescription>`
		r, a := &reasoner{script: []string{acts("looked", "search"), thinking, acts("again", "search"), thinking, `<TaskStatus>Completed</TaskStatus>`}}, says(`"found"`)
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`}`), `"found"`)
		require.Contains(t, r.prompt(t, 3), "Current state of the task:\nthinking")
		require.Contains(t, r.prompt(t, 3), "<ActionResult>found</ActionResult>", "the results stay")
		require.Equal(t, []string{`{"previous_action_results":[]}`, `{"previous_action_results":["found"]}`}, a.calls)
	})
	t.Run("Ongoing/WithEmptyGroupsReasonsAgain", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`<InstantResponse>Let me see.</InstantResponse><ImmediateNextActions><AlternativeActions></AlternativeActions></ImmediateNextActions>`, completed}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, `{`+search+`}`), `"done"`)
		require.Contains(t, r.prompt(t, 2), "Agent: Let me see.")
	})
	t.Run("Refused/IsNoResult", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`["no_op"]`, `["search"]`, `["default"]`, `["search"]`, `["nobody"]`, `<TaskStatus>Completed</TaskStatus>`}}, says(`"A_data"`)
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a})
		done(t, e.run(t, `{`+search+`}`), `"A_data"`)
		require.Equal(t, []string{`{"previous_action_results":[]}`, `{"previous_action_results":["A_data"]}`}, a.calls)
		require.Contains(t, r.prompt(t, 4), "<ActionResult>A_data</ActionResult>")
		require.Contains(t, r.prompt(t, 4), `there is no action "default"`)
		require.NotContains(t, r.prompt(t, 5), "there is no action", "it is told once")
	})
	t.Run("Refused/IsOngoing", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`<TaskStatus>Completed</TaskStatus><InstantResponse>seven</InstantResponse>`, `<InstantResponse>7</InstantResponse>`}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		done(t, e.run(t, `{`+search+`, "result_schema": {"type": "integer"}}`), `7`)
		states := e.threads.states(t, e.threads.root(t))
		require.EqualValues(t, "Ongoing", states[0].Status)
		require.EqualValues(t, "Completed", states[1].Status)
		require.NotContains(t, r.prompt(t, 2), "Agent: seven", "what is refused is not said")
	})
	t.Run("Failed/RunLeavesWhatWasSaid", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		require.Equal(t, workgraph.StatusFailed, e.run(t, `{`+search+`}`).Status, "the reasoner fails")
		again := func(said string) workgraph.Result {
			return e.run(t, `{"user_input": "`+said+`", "thread_id": "`+e.threads.root(t)+`", "reasoner": "r", "max_branches": 2, "actions": {"search": {"actor": "tool"}}}`)
		}
		r.script = []string{`<InstantResponse>I ask three.</InstantResponse>` + acts("", "search+search+search")}
		require.Equal(t, workgraph.StatusFailed, again("again").Status, "it pauses, and nothing resumes it")
		r.script = []string{completed}
		done(t, again("and now"), `"done"`)
		require.Contains(t, r.prompt(t, 3), "Conversation:\nUser: find\nUser: again\nAgent: I ask three.\nUser: and now")
	})
	t.Run("Response/IsThereBeforeItsActions", func(t *testing.T) {
		t.Parallel()
		var e *env
		var there []string
		a := &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			its, err := e.threads.Items(t.Context(), e.threads.namespace, e.threads.root(t), thread.Query{})
			for _, it := range its {
				there = append(there, string(it.Body))
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}}, err
		}}
		r := &reasoner{script: []string{`<InstantResponse>I look.</InstantResponse>` + acts("", "search"), completed}}
		e = newEnv(t, workgraph.Actors{"r": r, "tool": a})
		done(t, e.run(t, `{`+search+`}`), `"done"`)
		require.Equal(t, []string{`{"role":"assistant","content":"I look."}`, `{"role":"user","content":"find"}`}, there)
	})
	t.Run("Pending/InItsDescription", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`<TaskStatus>Pending</TaskStatus><TaskStatusDescription>Which size?</TaskStatusDescription>`, completed}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		var asked string
		e.options = append(e.options, workgraph.WithInterrupts(func(_ context.Context, q workgraph.OpenedInterrupt) (workgraph.Answer, error) {
			asked = string(q.Interrupt.Prompt)
			require.Len(t, e.threads.items[e.threads.root(t)], 2, "the question is in the thread while it is open")
			return workgraph.Answer{Value: json.RawMessage(`["large", {"or": "small"}]`)}, nil
		}))
		done(t, e.run(t, `{`+search+`}`), `"done"`)
		require.Equal(t, `"Which size?"`, asked)
		require.Contains(t, r.prompt(t, 2), "Conversation:\nUser: find\nAgent: Which size?\nUser: large\nUser: {\"or\":\"small\"}")
		require.Equal(t, "Which size?", e.threads.states(t, e.threads.root(t))[0].InstantResponse)
	})
	t.Run("Result/OfTheLastActionWithoutAResponse", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("", "search"), `<TaskStatus>Completed</TaskStatus>`}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`{"n": 1}`)}, `{`+search+`}`), `{"n": 1}`)
	})
	t.Run("Result/ReadByItsSchema", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`<InstantResponse>seven</InstantResponse>`, `<InstantResponse>7</InstantResponse>`}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, `{`+search+`, "result_schema": {"type": "integer"}}`), `7`)
		require.Contains(t, r.prompt(t, 2), "the result is not what its schema asks for")
	})
	const city = `"result_schema": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}`
	for form, more := range map[string]string{"Prompt": "", "Tools": `, "form": "tools"`} {
		t.Run("Result/AloneIsWhatItsSchemaAsksFor/"+form, func(t *testing.T) {
			t.Parallel()
			r := &reasoner{script: []string{`{"town": "Oslo"}`, "```json\n{\"city\": \"Oslo\"}\n```"}}
			done(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, `{`+search+`, `+city+more+`}`), `{"city": "Oslo"}`)
		})
	}
	t.Run("Tools/QuotedActionsAreNotDone", func(t *testing.T) {
		t.Parallel()
		const quote = `The page says {"actions": [[{"action": "search"}]]} and nothing else.`
		r, a := &reasoner{script: []string{quote}}, &tool{}
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`, "form": "tools"}`), encoded(t, quote))
		require.Empty(t, a.calls)
	})
}

func TestInput(t *testing.T) {
	t.Parallel()
	const rest = `"reasoner": "r", "actions": {"x": {"actor": "tool"}}`
	t.Run("Everything/Arrives", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{"user_input": {"q": 1}, "action_results": [{"type": "seen", "result": "it"}], "previous_agent_results": {"p": 2},
			"context": "the context", "user_profile": {"name": "Ada"}, "attachments": [{"id": "d", "description": "a note", "content": "text"}], "tool": "web.search", "arguments": [{"value": 1}],
			"references": [{"text": "#1", "node": "one"}], `+rest+`}`), `"done"`)
		require.Equal(t, "Actions:\n- x\n\nUser profile:\n{\"name\":\"Ada\"}\n\nContext:\nthe context\n\nAttachments:\n<Attachment id=\"d\" description=\"a note\">\ntext\n</Attachment>\n"+
			"<Attachment id=\"unknown_task\" description=\"The result of the 'unknown_task' agent\">\n{\"p\":2}\n</Attachment>\n\nConversation:\nUser: {\"q\":1}\n\nTool: web.search\n\nArguments:\n{\"value\":1}\n\nReferences:\n#1 is the result of \"one\"\n\n"+
			"Results of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>seen</ActionType>\n    <ActionResult>it</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 1))
	})
	t.Run("Upstream/IsAttached", func(t *testing.T) {
		t.Parallel()
		told := func(more string) string {
			r := &reasoner{script: []string{over}}
			done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{"user_input": "x", `+rest+more+`}`, func(g *workgraph.Graph) {
				g.Nodes = append(g.Nodes, workgraph.Node{ID: "before", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"1+1"`)}})
				g.Edges = []workgraph.Edge{{From: "before", To: "agent"}}
			}), `"done"`)
			return r.prompt(t, 1)
		}
		require.Contains(t, told(""), "<Attachment id=\"before\" description=\"The result of the 'before' agent\">\n2\n</Attachment>")
		require.Equal(t, "Actions:\n- x\n\nConversation:\nUser: x", told(`, "upstream": false`))
	})
	t.Run("UserInput/MembersOfAListAreALineEach", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
		done(t, e.run(t, `{"user_input": ["first", {"n": 1}, "last"], "tool": "web", "references": [{"text": "#E1", "node": "E1", "field": "items"}, {"odd": 1}], `+rest+`}`), `"done"`)
		require.Equal(t, "Actions:\n- x\n\nConversation:\nUser: first\nUser: {\"n\":1}\nUser: last\n\nTool: web\n\nReferences:\n#E1 is the result of \"E1\", field \"items\"\n{\"odd\": 1}", r.prompt(t, 1))
		require.Equal(t, "first\n{\"n\":1}\nlast\n\nTool: web\n\nReferences:\n#E1 is the result of \"E1\", field \"items\"\n{\"odd\": 1}", e.threads.states(t, e.threads.root(t))[0].UserInput)
	})
	t.Run("PositionalMapping/IsTakenAsItIs", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`{"user_input": null, "action_results": "B1_data"}`)}, `{`+rest+`}`, func(g *workgraph.Graph) {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: "before", Actor: "tool", PassDown: workgraph.FirstArg()})
			g.Edges = []workgraph.Edge{{From: "before", To: "agent"}}
		}), `"done"`)
		require.Equal(t, "Actions:\n- x\n\nResults of the last actions:\n<ActionResults>\n  <Action>\n    <ActionResult>B1_data</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 1))
	})
	t.Run("PositionalText/IsTheUserInput", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": &tool{}})
		e.input = workgraph.Input{Args: []json.RawMessage{json.RawMessage(`"hello"`)}}
		done(t, e.run(t, `{`+rest+`}`), `"done"`)
		require.Contains(t, r.prompt(t, 1), "User: hello")
	})
	t.Run("Traveling/ChangesNoDefinition", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`["evil"]`, over}}, &tool{}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a, "evil": a})
		e.input = workgraph.Input{Args: []json.RawMessage{json.RawMessage(`{"user_input": "hello"}`)}, Named: map[string]json.RawMessage{"actions": json.RawMessage(`{"evil": {}}`), "reasoner": json.RawMessage(`"evil"`)}}
		done(t, e.run(t, `{`+rest+`}`), `"done"`)
		require.Empty(t, a.calls)
	})
	t.Run("Texts/BecomeWhatTheSchemaAsks", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`<ImmediateNextActions><Action><Type>x</Type><Args><n>7</n><s>7</s><list>[1,2]</list><free>8</free></Args></Action></ImmediateNextActions>`, over}}, &tool{}
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{"user_input": "x", "reasoner": "r", "actions": {"x": {"actor": "tool", "schema": {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "list": {"type": "array"}}}}}}`), `"done"`)
		require.Equal(t, []string{`{"free":"8","list":[1,2],"n":7,"previous_action_results":[],"s":"7"}`}, a.calls)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	// stands is the reason for which the agent's run stands still.
	stands := func(t *testing.T, res workgraph.Result, reason string) {
		t.Helper()
		require.Equal(t, workgraph.StatusFailed, res.Status, "nothing resumes a run in memory")
		require.Contains(t, res.Error.Message, reason)
	}
	t.Run("Rounds/Pause", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{oneCall, oneCall, over}}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+search+`, "max_rounds": 2}`), workgraph.ReasonMaxVisits)
		require.Len(t, r.asked, 2)
	})
	t.Run("NoProgress/Pauses", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for range 10 {
			r.script = append(r.script, oneCall)
		}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": says(`"same"`)}, `{`+search+`, "max_rounds": 100, "max_no_progress": 3}`), agent.ReasonNoProgress)
		require.Len(t, r.asked, 3)
	})
	t.Run("NoProgress/OfRefusedResponses", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for range 10 {
			r.script = append(r.script, `["nobody"]`)
		}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, `{`+search+`, "max_rounds": 100}`), agent.ReasonNoProgress)
		require.Len(t, r.asked, 5)
	})
	t.Run("NoProgress/OfToolCallsWithNewIDs", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for i := range 10 {
			args := `{"q": 1, "deep": {"a": 1, "b": 2}}`
			if i%2 == 1 {
				args = `{"deep": {"b": 2, "a": 1}, "q": 1}`
			}
			r.script = append(r.script, fmt.Sprintf(`{"role": "assistant", "content": "try %d", "tool_calls": [{"id": "c%d", "name": "search", "arguments": %s}]}`, i, i, args))
		}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": says(`"same"`)}, `{`+search+`, "form": "tools", "max_rounds": 100, "max_no_progress": 3}`), agent.ReasonNoProgress)
		require.Len(t, r.asked, 3)
	})
	t.Run("NoProgress/ReasonedAnew", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for i := range 10 {
			r.script = append(r.script, fmt.Sprintf(`<InstantResponse>try %d</InstantResponse><ImmediateNextActions><Action><Type>search</Type><Reasoning>thought %d</Reasoning><MemoryTarget>m%d</MemoryTarget></Action></ImmediateNextActions>`, i, i, i))
		}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": says(`"same"`)}, `{`+search+`, "max_rounds": 100, "max_no_progress": 3}`), agent.ReasonNoProgress)
		require.Len(t, r.asked, 3)
	})
	t.Run("NoProgress/OtherArgumentsAreProgress", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for i := range 8 {
			r.script = append(r.script, fmt.Sprintf(`{"actions": [[{"action": "search", "arguments": {"q": %d}}]]}`, i))
		}
		r.script = append(r.script, over)
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"same"`)}, `{`+search+`, "max_rounds": 100, "max_no_progress": 3}`), `"done"`)
	})
	for name, kind := range map[string]struct{ named, round string }{
		"Graphs": {`{` + search + `, "allow_graph": true, "max_rounds": 100, "max_no_progress": 3}`, `{"graph": {"nodes": [{"id": "x", "actor": "search", "named": {"q": %d, "a": 1}}]}, "task_status_description": "try %d"}`},
		"Plans": {`{"user_input": "find", "reasoner": "r", "dispatch": "plan", "solver": {"actor": "tool", "q": 1}, "max_rounds": 100, "max_no_progress": 3}`,
			"<Problems><Problem><Request>look at shelf %d</Request><ProblemID>A</ProblemID></Problem></Problems><TaskStatusDescription>try %d</TaskStatusDescription>"},
	} {
		t.Run("NoProgress/OfEqual"+name, func(t *testing.T) {
			t.Parallel()
			r := &reasoner{}
			for i := range 10 {
				r.script = append(r.script, fmt.Sprintf(kind.round, 7, i))
			}
			stands(t, work(t, workgraph.Actors{"r": r, "tool": says(`"same"`)}, kind.named), agent.ReasonNoProgress)
			require.Len(t, r.asked, 3)
		})
		t.Run("NoProgress/Other"+name+"AreProgress", func(t *testing.T) {
			t.Parallel()
			r, a := &reasoner{}, says(`"same"`)
			for i := range 8 {
				r.script = append(r.script, fmt.Sprintf(kind.round, i, 0))
			}
			r.script = append(r.script, over)
			done(t, work(t, workgraph.Actors{"r": r, "tool": a}, kind.named), `"done"`)
			require.Len(t, a.calls, 8)
		})
	}
	t.Run("NoProgress/OfWordsAlone", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`<TaskStatus>Ongoing</TaskStatus><TaskStatusDescription>half</TaskStatusDescription>`}}
		for range 8 {
			r.script = append(r.script, `<TaskStatus>Ongoing</TaskStatus><TaskStatusDescription>nearly</TaskStatusDescription>`)
		}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": says(`1`)}, `{`+search+`, "max_rounds": 100, "max_no_progress": 3}`), agent.ReasonNoProgress)
		require.Len(t, r.asked, 4, "how far the task is was another one first")
	})
	t.Run("NoProgress/AnotherResultIsProgress", func(t *testing.T) {
		t.Parallel()
		n := 0
		a := &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			n++
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(fmt.Sprint(n / 2))}}, nil
		}}
		r := &reasoner{script: []string{oneCall, oneCall, oneCall, oneCall, oneCall, over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`, "max_no_progress": 3}`), `"done"`)
	})
	t.Run("Steps/PauseAfterEach", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{oneCall, over}}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+search+`, "step_by_step": true}`), agent.ReasonStep)
		require.Len(t, r.asked, 1)
	})
	t.Run("Branches/TooMany", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{acts("", "search+search+search")}}, &tool{}
		stands(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`, "max_branches": 2}`), agent.ReasonBranches)
		require.Empty(t, a.calls)
	})
	t.Run("Branches/TooDeep", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{}, says(`1`)
		for range 20 {
			r.script = append(r.script, acts("", "search+search"))
		}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": a})
		res := e.run(t, `{`+search+`, "max_branch_depth": 2}`)
		require.NotEqual(t, workgraph.StatusCompleted, res.Status)
		deepest := 0
		for _, row := range e.threads.rows {
			deepest = max(deepest, row.Depth)
		}
		require.Equal(t, 2, deepest, "branches of branches, and none in these")
	})
	t.Run("Result/IsCutWithAMarker", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{oneCall, over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"` + strings.Repeat("ä", 5000) + `"`)}, `{`+search+`, "max_result_bytes": 301}`), `"done"`)
		require.Contains(t, r.prompt(t, 2), `<ActionResult truncated="10000">`+strings.Repeat("ä", 150)+`…</ActionResult>`)
	})
	t.Run("History/HasABound", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for i := range 30 {
			r.script = append(r.script, acts(fmt.Sprint(i)+strings.Repeat("x", 1000), "search"))
		}
		r.script = append(r.script, completed)
		done(t, work(t, workgraph.Actors{"r": r, "tool": says(`"` + strings.Repeat("y", 9000) + `"`)}, `{`+search+`, "max_rounds": 100, "history": {"tokens": 2048}, "max_no_progress": 0}`), `"done"`)
		require.Less(t, len(r.prompt(t, 31)), 9000)
		require.Contains(t, r.prompt(t, 31), "\n29xxx")
	})
}

// Three branches, one of which branches again, and an action after them.
func TestNestedBranches(t *testing.T) {
	t.Parallel()
	const fine = `<TaskStatus>Completed</TaskStatus>`
	r := &reasoner{script: []string{acts("three", "A+B+C", "D")}, when: []reply{
		{"X_data", fine}, {"Y_data", fine},
		{"D_data", `<TaskStatus>Completed</TaskStatus><InstantResponse>all seen</InstantResponse>`},
		{"<ActionGroup>", fine}, // the branch B hears of its own branches
		{"A_data", fine}, {"C_data", fine}, {"B_data", acts("deeper", "X+Y")},
	}}
	own := workgraph.Actors{"r": r}
	for _, name := range []string{"A", "B", "C", "X", "Y", "D"} {
		own[name] = says(`"` + name + `_data"`)
	}
	e := newEnv(t, own)
	res := e.run(t, `{"user_input": "see all", "reasoner": "r", "actions": {"A": {}, "B": {}, "C": {}, "X": {}, "Y": {}, "D": {}}}`)
	done(t, res, `"all seen"`)
	d, _ := own["D"].(*tool)
	require.Equal(t, []string{`{"previous_action_results":[["A_data",["X_data","Y_data"],"C_data"]]}`}, d.calls, "the action after the branches sees all of it")
	require.EqualValues(t, 80, res.Usage[0].InputTokens, "the costs of eight calls roll up")
	depths := map[int]int{}
	for _, row := range e.threads.rows {
		depths[row.Depth]++
	}
	require.Equal(t, map[int]int{0: 1, 1: 3, 2: 2}, depths, "a tree of threads: the agent, its branches, and theirs")
}

// A result that is too large for a state is not handed on as if its beginning were the value.
func TestCutResult(t *testing.T) {
	t.Parallel()
	r := &reasoner{script: []string{`["large"]`, `<TaskStatus>Completed</TaskStatus>`, `["small"]`, `<TaskStatus>Completed</TaskStatus>`}}
	small := says(`"small"`)
	done(t, work(t, workgraph.Actors{"r": r, "large": says(`"` + strings.Repeat("x", 2_400_000) + `"`), "small": small}, `{"user_input": "x", "reasoner": "r", "actions": {"large": {}, "small": {}}}`), `"small"`)
	require.Contains(t, r.prompt(t, 3), "RESULT_TOO_LARGE: the results of the last actions are too large to stand for the result")
	require.Contains(t, r.prompt(t, 3), `<ActionResult truncated="24000`)
	require.JSONEq(t, `{"previous_action_results": [{"error": {"type": "PERMANENT", "reason": "RESULT_TOO_LARGE",
		"message": "the result has 2400002 bytes, too many for a state to keep: keep it elsewhere and give a reference"}}]}`, small.calls[0])
}

// A state that is too long is cut, its results last; the agent goes on.
func TestLongState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ result, least, cut int }{
		"ResultStays": {1_800_000, 1_800_002, 0},
		"ResultIsCut": {2_400_000, 1_700_000, 2_400_002},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			long := strings.Repeat("x", 900_000)
			r := &reasoner{script: []string{`{"actions": [[{"action": "search", "arguments": {"q": "` + long + `"}}]], "instant_response": "` + long[:100_000] + `"}`, over}}
			e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`"` + strings.Repeat("x", c.result) + `"`)})
			done(t, e.run(t, `{`+search+`}`), `"done"`)
			states := e.threads.states(t, e.threads.root(t))
			require.Len(t, states, 2)
			require.Equal(t, "search", states[0].Response.NextActions[0][0].Type)
			require.GreaterOrEqual(t, len(states[0].ActionResults[0].OK), c.least)
			require.Equal(t, c.cut, states[0].ActionResults[0].Cut)
		})
	}
}
