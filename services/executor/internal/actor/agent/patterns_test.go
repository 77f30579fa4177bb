package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

// The six ways in which memory reaches a prompt, each by the exact prompt that the reasoner got.

const completed = `<StructuredResponse><TaskStatus>Completed</TaskStatus><InstantResponse>done</InstantResponse></StructuredResponse>`

// acts is a response with actions: a group each, the members of a group separated by +.
func acts(description string, groups ...string) string {
	var b strings.Builder
	b.WriteString("<StructuredResponse><TaskStatus>Ongoing</TaskStatus><TaskStatusDescription>" + description + "</TaskStatusDescription><ImmediateNextActions>")
	for _, g := range groups {
		b.WriteString("<AlternativeActions>")
		for _, a := range strings.Split(g, "+") {
			b.WriteString("<Action><Type>" + a + "</Type></Action>")
		}
		b.WriteString("</AlternativeActions>")
	}
	b.WriteString("</ImmediateNextActions></StructuredResponse>")
	return b.String()
}

func TestFeedbackLoop(t *testing.T) {
	t.Parallel()
	r := &reasoner{script: []string{acts("looking", "look"), acts("searching", "search"), completed}}
	e := newEnv(t, workgraph.Actors{"r": r, "look": says(`{"body_html": "<p>", "source": "https://x"}`), "search": says(`{"search_results": [1, 2]}`)})
	done(t, e.run(t, `{"user_input": "find it", "reasoner": "r", "actions": {"look": {"description": "Looks."}, "search": {}}}`), `"done"`)
	const head = "Actions:\n- look: Looks.\n- search\n\n"
	require.Equal(t, head+"Conversation:\nUser: find it", r.prompt(t, 1))
	require.Equal(t, head+"Current state of the task:\nlooking\n\nConversation:\nUser: find it\n\nResults of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>look</ActionType>\n"+
		"    <ActionResult>{\"body_html\":\"&lt;p&gt;\",\"source\":\"https://x\"}</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 2))
	require.Equal(t, head+"Earlier states of the task, the newest first:\nlooking\n\nCurrent state of the task:\nsearching\n\nConversation:\nUser: find it\n\n"+
		"Results of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>search</ActionType>\n    <ActionResult>{\"search_results\":[1,2]}</ActionResult>\n  </Action>\n</ActionResults>",
		r.prompt(t, 3), "the results of the round before only")
	states := e.threads.states(t, e.threads.root(t))
	require.Len(t, states, 3)
	require.Equal(t, "find it", states[0].UserInput)
	require.Equal(t, r.prompt(t, 2), states[1].ReasonerInput, "the state has the whole prompt")
	require.Contains(t, string(states[1].RawResponse), "searching")
	require.JSONEq(t, `[{"action": "look", "ok": {"body_html": "<p>", "source": "https://x"}}]`, encoded(t, states[0].ActionResults))
	require.JSONEq(t, `{"next_actions": [[{"action": "search"}]]}`, encoded(t, states[1].Response))
	require.EqualValues(t, "Completed", states[2].Status)
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

func TestSequentialAccumulation(t *testing.T) {
	t.Parallel()
	t.Run("TheSeedsExample/Exactly", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("all", "A1", "B1+B2", "C1")},
			when: []reply{{"B1_data", `<TaskStatus>Completed</TaskStatus>`}, {"B2_data", `<TaskStatus>Completed</TaskStatus>`}, {"C1_data", completed}}}
		a1, b1, b2, c1 := says(`"A1_data"`), says(`"B1_data"`), says(`"B2_data"`), says(`"C1_data"`)
		e := newEnv(t, workgraph.Actors{"r": r, "A1": a1, "B1": b1, "B2": b2, "C1": c1})
		done(t, e.run(t, `{"action_results": "initial_value", "user_input": "go", "reasoner": "r", "actions": {"A1": {}, "B1": {}, "B2": {}, "C1": {}}}`), `"done"`)
		require.Equal(t, []string{`{"previous_action_results":["initial_value"]}`}, a1.calls)
		require.Equal(t, []string{`{"previous_action_results":["initial_value","A1_data"]}`}, b1.calls)
		require.Equal(t, []string{`{"previous_action_results":["initial_value","A1_data"]}`}, b2.calls)
		require.Equal(t, []string{`{"previous_action_results":["initial_value","A1_data",["B1_data","B2_data"]]}`}, c1.calls)
		require.Contains(t, r.prompt(t, 4), "Results of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>A1</ActionType>\n    <ActionResult>A1_data</ActionResult>\n  </Action>\n"+
			"  <ActionGroup>\n    <Action>\n      <ActionType>B1</ActionType>\n      <ActionResult>B1_data</ActionResult>\n    </Action>\n    <Action>\n      <ActionType>B2</ActionType>\n      <ActionResult>B2_data</ActionResult>\n    </Action>\n"+
			"  </ActionGroup>\n  <Action>\n    <ActionType>C1</ActionType>\n    <ActionResult>C1_data</ActionResult>\n  </Action>\n</ActionResults>")
	})
	t.Run("NothingGiven/IsEmpty", func(t *testing.T) {
		t.Parallel()
		r, a, b := &reasoner{script: []string{acts("", "a", "b"), acts("", "a"), completed}}, says(`[1, 2]`), says(`"b"`)
		done(t, work(t, workgraph.Actors{"r": r, "a": a, "b": b}, `{"user_input": "go", "reasoner": "r", "actions": {"a": {}, "b": {}}}`), `"done"`)
		require.Equal(t, []string{`{"previous_action_results":[]}`, `{"previous_action_results":[[[1,2],"b"]]}`}, compact(a.calls), "a list is one element")
		require.Equal(t, []string{`{"previous_action_results":[[1,2]]}`}, compact(b.calls))
	})
}

func compact(calls []string) []string {
	out := make([]string, len(calls))
	for i, c := range calls {
		out[i] = strings.ReplaceAll(c, " ", "")
	}
	return out
}

func TestBranchIsolation(t *testing.T) {
	t.Parallel()
	branches := func(t *testing.T, more string) (*reasoner, *env) {
		t.Helper()
		r := &reasoner{script: []string{acts("asking both", "B1+B2")}, when: []reply{
			{"B1_data", `<TaskStatus>Completed</TaskStatus><InstantResponse>one is fine</InstantResponse>`},
			{"B2_data", `<TaskStatus>Completed</TaskStatus><InstantResponse>two is fine</InstantResponse>`},
			{"one is fine", completed}}}
		e := newEnv(t, workgraph.Actors{"r": r, "B1": says(`"B1_data"`), "B2": says(`"B2_data"`), "join": says(`"both"`)})
		done(t, e.run(t, `{"user_input": "compare", "context": "ctx", "reasoner": "r", "actions": {"B1": {}, "B2": {}}`+more+`}`), `"done"`)
		return r, e
	}
	// of is the prompt that holds a text.
	of := func(t *testing.T, r *reasoner, has string) string {
		t.Helper()
		for n := range r.asked {
			if p := r.prompt(t, n+1); strings.Contains(p, has) {
				return p
			}
		}
		t.Fatalf("no prompt with %q", has)
		return ""
	}
	t.Run("Branch/SeesNothingOfItsSibling", func(t *testing.T) {
		t.Parallel()
		r, e := branches(t, "")
		require.Equal(t, "Actions:\n- B1\n- B2\n\nContext:\nctx\n\nCurrent state of the task:\nasking both\n\nConversation:\nUser: compare\n\nResults of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>B1</ActionType>\n    <ActionResult>B1_data</ActionResult>\n  </Action>\n</ActionResults>",
			of(t, r, "<ActionResult>B1_data"))
		require.NotContains(t, of(t, r, "<ActionResult>B1_data"), "B2_data")
		require.NotContains(t, of(t, r, "<ActionResult>B2_data"), "B1_data")
		require.Len(t, e.threads.rows, 3, "each branch has a thread of its own")
		require.Contains(t, of(t, r, "<ActionResult>one is fine"), "<ActionGroup>\n    <Action>\n      <ActionType>B1</ActionType>\n      <ActionResult>one is fine</ActionResult>\n    </Action>\n    <Action>\n      <ActionType>B2</ActionType>\n      <ActionResult>two is fine</ActionResult>")
	})
	t.Run("States/AreInheritedOrNot", func(t *testing.T) {
		t.Parallel()
		run := func(more string) string {
			r := &reasoner{script: []string{acts("first round", "A"), acts("asking both", "B1+B2")}, when: []reply{
				{"B1_data", `<TaskStatus>Completed</TaskStatus><InstantResponse>one</InstantResponse>`}, {"B2_data", `<TaskStatus>Completed</TaskStatus><InstantResponse>two</InstantResponse>`}, {">one<", completed}}}
			done(t, work(t, workgraph.Actors{"r": r, "A": says(`"A_data"`), "B1": says(`"B1_data"`), "B2": says(`"B2_data"`)},
				`{"user_input": "compare", "reasoner": "r", "actions": {"A": {}, "B1": {}, "B2": {}}`+more+`}`), `"done"`)
			return of(t, r, "<ActionResult>B1_data")
		}
		inherited := run("")
		require.Contains(t, inherited, "Earlier states of the task, the newest first:\nfirst round\n\nCurrent state of the task:\nasking both\n\nConversation:\nUser: compare\n\n")
		fresh := run(`, "branching_agent_start_as_new": true`)
		require.Equal(t, "Actions:\n- A\n- B1\n- B2\n\nResults of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>B1</ActionType>\n    <ActionResult>B1_data</ActionResult>\n  </Action>\n</ActionResults>", fresh)
	})
	t.Run("Round/IsKnownToItsBranches", func(t *testing.T) {
		t.Parallel()
		const fine = `<TaskStatus>Completed</TaskStatus><InstantResponse>fine</InstantResponse>`
		r := &reasoner{script: []string{
			`<InstantResponse>I ask both.</InstantResponse><TaskStatusDescriptionExtended>asking at length</TaskStatusDescriptionExtended>` + acts("asking both", "B1+B2"),
			`<TaskStatus>Pending</TaskStatus><InstantResponse>Which size?</InstantResponse>`, `<InstantResponse>Again.</InstantResponse>` + acts("again", "B1+B2"), completed},
			when: []reply{{"<ActionResult>B1_data", fine}, {"<ActionResult>B2_data", fine}}}
		e := newEnv(t, workgraph.Actors{"r": r, "B1": says(`"B1_data"`), "B2": says(`"B2_data"`)})
		e.options = append(e.options, workgraph.WithInterrupts(func(context.Context, workgraph.OpenedInterrupt) (workgraph.Answer, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.when = []reply{{"<ActionResult>B1_data", `<TaskStatus>Ongoing</TaskStatus><TaskStatusDescription>thinking</TaskStatusDescription>`}, {"thinking", fine}, {"<ActionResult>B2_data", fine}}
			return workgraph.Answer{Value: json.RawMessage(`"large"`)}, nil
		}))
		done(t, e.run(t, `{"user_input": "compare", "reasoner": "r", "template": "{previous_states}\n|{current_state}\n{conversation}\n{action_result}", "actions": {"B1": {}, "B2": {}}}`), `"done"`)
		const results = "\n<ActionResults>\n  <Action>\n    <ActionType>B1</ActionType>\n    <ActionResult>B1_data</ActionResult>\n  </Action>\n</ActionResults>"
		require.Equal(t, "|asking at length\nUser: compare\nAgent: I ask both."+results, of(t, r, "<ActionResult>B1_data"))
		const later = "\nUser: compare\nAgent: I ask both.\nAgent: Which size?\nUser: large\nAgent: Again." + results
		require.Equal(t, "asking at length\n|again"+later, of(t, r, "|again"+later), "in a later round, the round that branches is the current state")
		require.Equal(t, "again\n\nasking at length\n|thinking"+later, of(t, r, "|thinking"), "and an earlier one in the branch's own second round")
	})
	t.Run("Summarizer/IsAnActor", func(t *testing.T) {
		t.Parallel()
		join := says(`"one is fine and more"`)
		r := &reasoner{script: []string{acts("", "B1+B2", "C")}, when: []reply{{"B1_data", `<TaskStatus>Completed</TaskStatus>`}, {"B2_data", `<TaskStatus>Completed</TaskStatus>`}, {"C_data", completed}}}
		c := says(`"C_data"`)
		done(t, work(t, workgraph.Actors{"r": r, "B1": says(`"B1_data"`), "B2": says(`"B2_data"`), "C": c, "join": join},
			`{"user_input": "compare", "reasoner": "r", "actions": {"B1": {}, "B2": {}, "C": {}}, "summarizer": {"actor": "join", "named": {"k": 1}}}`), `"done"`)
		require.Equal(t, []string{`{"k":1,"previous_action_results":[],"results":["B1_data","B2_data"]}`}, join.calls)
		require.Equal(t, []string{`{"previous_action_results":["one is fine and more"]}`}, c.calls)
	})
	t.Run("Summarizer/IsAPrompt", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("", "B1+B2")}, when: []reply{{"B1_data", `<TaskStatus>Completed</TaskStatus>`}, {"B2_data", `<TaskStatus>Completed</TaskStatus>`}, {"in short", completed}}}
		model := says(`"in short"`)
		done(t, work(t, workgraph.Actors{"r": r, "B1": says(`"B1_data"`), "B2": says(`"B2_data"`), "llm": model},
			`{"user_input": "compare", "reasoner": "r", "actions": {"B1": {}, "B2": {}}, "summarizer": {"prompt": "Join:\n{action_result}"}}`), `"done"`)
		require.Len(t, model.calls, 1)
		require.Contains(t, model.calls[0], `"request":"Join:\n\u003cActionResults\u003e\n  \u003cAction\u003e\n    \u003cActionType\u003eB1\u003c/ActionType\u003e`)
	})
}

// The loop does not show to an agent or a model that it calls: they are told the results that every action
// gets.
func TestActionsThatAreTold(t *testing.T) {
	t.Parallel()
	const before = "Attachments:\n<Attachment id=\"previous_action_results\" description=\"The results of the actions before this one, in order\">\n"
	const asks = `"sub": {"actor": "agent", "named": {"reasoner": "s", "actions": {"x": {}}}}`
	ask := func(what string) string { return `{"action": "` + what + `", "arguments": {"user_input": "look"}}` }
	for name, c := range map[string]struct {
		script  []string
		actions string
		prompts []string
	}{
		"Alone/WithoutResults": {[]string{`[` + ask("sub") + `]`, completed}, asks, []string{"Actions:\n- x\n\nConversation:\nUser: look"}},
		"Alone/InALaterRound":  {[]string{`["A"]`, `[` + ask("sub") + `]`, completed}, asks, []string{"Actions:\n- x\n\n" + before + "[\"A_data\"]\n</Attachment>\n\nConversation:\nUser: look"}},
		"Group/AfterAnother":   {[]string{`["A", ` + ask("sub") + `]`, completed}, asks, []string{"Actions:\n- x\n\n" + before + "[\"A_data\"]\n</Attachment>\n\nConversation:\nUser: look"}},
		"Fixed/PreviousAgentResults": {[]string{`["A", ` + ask("sub") + `]`, completed},
			`"sub": {"actor": "agent", "named": {"reasoner": "s", "actions": {"x": {}}, "previous_agent_results": "kept"}}`,
			[]string{"Actions:\n- x\n\n" + before + "[\"A_data\"]\n</Attachment>\n<Attachment id=\"unknown_task\" description=\"The result of the 'unknown_task' agent\">\nkept\n</Attachment>\n\nConversation:\nUser: look"}},
	} {
		t.Run("Agent/"+name, func(t *testing.T) {
			t.Parallel()
			r, s := &reasoner{script: c.script}, &reasoner{script: []string{`{"result": "seen"}`}}
			done(t, work(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`), "A": says(`"A_data"`)}, `{"user_input": "find", "reasoner": "r", "actions": {"A": {}, `+c.actions+`}}`), `"done"`)
			require.Len(t, s.asked, len(c.prompts))
			for i, want := range c.prompts {
				require.Equal(t, want, s.prompt(t, i+1))
			}
		})
	}
	t.Run("Model/IsNotToldOfTheLoop", func(t *testing.T) {
		t.Parallel()
		m := says(`"said"`)
		r := &reasoner{script: []string{`[{"action": "llm", "arguments": {"request": "one"}}]`, `["A", {"action": "llm", "arguments": {"request": "two"}}]`, completed}}
		done(t, work(t, workgraph.Actors{"r": r, "llm": m, "A": says(`"A_data"`)}, `{"user_input": "find", "reasoner": "r", "actions": {"A": {}, "llm": {}}}`), `"done"`)
		require.Equal(t, []string{`{"previous_action_results":[],"request":"one","upstream":false}`, `{"previous_action_results":["said","A_data"],"request":"two","upstream":false}`}, m.calls)
	})
	t.Run("Upstream/IsNotTheReasonersToGive", func(t *testing.T) {
		t.Parallel()
		m := says(`"said"`)
		r := &reasoner{script: []string{`[{"action": "llm", "arguments": {"request": "one", "upstream": true}}]`, completed}}
		done(t, work(t, workgraph.Actors{"r": r, "llm": m}, `{"user_input": "find", "reasoner": "r", "actions": {"llm": {}}}`), `"done"`)
		require.Empty(t, m.calls)
		require.Contains(t, r.prompt(t, 2), `argument "upstream" of llm is not yours to give`)
	})
}

func TestCrossAgentAttachments(t *testing.T) {
	t.Parallel()
	r := &reasoner{script: []string{`<StructuredResponse><Problems>
		<Problem><Request>Fetch the urls</Request><ProblemID>FETCH_URLS</ProblemID></Problem>
		<Problem><Request>Fetch the prices</Request><ProblemID>FETCH_PRICES</ProblemID></Problem>
		<Problem><Request>Compare them</Request><ProblemID>COMPARE</ProblemID></Problem>
		</Problems><ProblemGraph>FETCH_URLS, FETCH_PRICES -> COMPARE</ProblemGraph></StructuredResponse>`, "All is compared."}}
	s := &reasoner{when: []reply{{"Compare", "compared"}, {"urls", "the urls"}, {"prices", "the prices"}}}
	e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
	done(t, e.run(t, `{"user_input": "shop", "reasoner": "r", "dispatch": "plan", "solver": {"actor": "agent", "reasoner": "s", "actions": {"x": {}}}}`), `"All is compared."`)
	require.Len(t, s.asked, 3)
	require.Equal(t, "Actions:\n- x\n\nAttachments:\n<Attachment id=\"FETCH_URLS\" description=\"The result of the 'FETCH_URLS' agent\">\nthe urls\n</Attachment>\n"+
		"<Attachment id=\"FETCH_PRICES\" description=\"The result of the 'FETCH_PRICES' agent\">\nthe prices\n</Attachment>\n\nConversation:\nUser: Compare them", s.prompt(t, 3), "none is lost at the join")
	require.Equal(t, "Conversation:\nUser: shop\n\nResults of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>FETCH_URLS</ActionType>\n    <ActionResult>the urls</ActionResult>\n  </Action>\n"+
		"  <Action>\n    <ActionType>FETCH_PRICES</ActionType>\n    <ActionResult>the prices</ActionResult>\n  </Action>\n  <Action>\n    <ActionType>COMPARE</ActionType>\n    <ActionResult>compared</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 2))
}

func TestConversation(t *testing.T) {
	t.Parallel()
	r := &reasoner{script: []string{"Quantum computing is a type of computation...", "Qubits are the fundamental units...", "By superposition."}}
	e := newEnv(t, workgraph.Actors{"r": r, "x": says(`1`)})
	const named = `"reasoner": "r", "template": "{conversation}", "actions": {"x": {}}`
	done(t, e.run(t, `{"user_input": "Tell me about quantum computing", `+named+`}`), `"Quantum computing is a type of computation..."`)
	id := e.threads.root(t)
	done(t, e.run(t, `{"user_input": "What are qubits?", "thread_id": "`+id+`", `+named+`}`), `"Qubits are the fundamental units..."`)
	done(t, e.run(t, `{"user_input": "How do they differ from classical bits?", "thread_id": "`+id+`", `+named+`}`), `"By superposition."`)
	require.Equal(t, "User: Tell me about quantum computing\nAgent: Quantum computing is a type of computation...\nUser: What are qubits?\n"+
		"Agent: Qubits are the fundamental units...\nUser: How do they differ from classical bits?", r.prompt(t, 3))
	require.Len(t, e.threads.rows, 1)
}

func TestActionMemory(t *testing.T) {
	t.Parallel()
	r := &reasoner{script: []string{acts("", "look"), completed}}
	done(t, work(t, workgraph.Actors{"r": r, "look": says(`{"action_memory": {"memory": "The price is 7."}, "body": "long"}`)},
		`{"user_input": "price", "reasoner": "r", "template": "Memory: {action_memory}\n{action_result}\n{user_input}", "actions": {"look": {}}}`), `"done"`)
	require.Equal(t, "price", r.prompt(t, 1))
	require.Equal(t, "Memory: The price is 7.\n<ActionResults>\n  <Action>\n    <ActionType>look</ActionType>\n    <ActionResult>{\"action_memory\":{\"memory\":\"The price is 7.\"},\"body\":\"long\"}</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 2))
}
