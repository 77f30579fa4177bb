package agent_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

func TestSharedThread(t *testing.T) {
	t.Parallel()
	r := &reasoner{script: []string{`{"instant_response": "I ask.", "actions": [{"action": "sub", "arguments": {"user_input": "ask around"}}]}`, completed}}
	s := &reasoner{script: []string{`{"result": "they say yes"}`}}
	e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
	done(t, e.run(t, `{"user_input": "find out", "reasoner": "r", "actions": {"sub": {"actor": "agent", "share_thread": true, "named": {"reasoner": "s", "actions": {"x": {}}}}}}`), `"done"`)
	require.Len(t, e.threads.rows, 1)
	require.Equal(t, "Actions:\n- x\n\nConversation:\nUser: find out\nAgent: I ask.\nUser: ask around", s.prompt(t, 1), "it knows what was said before it was called")
	require.Equal(t, "Actions:\n- sub Arguments: "+agentToolText(t, r)+"\n\nConversation:\nUser: find out\nAgent: I ask.\nUser: ask around\nAgent: they say yes\n\n"+
		"Results of the last actions:\n<ActionResults>\n  <Action>\n    <ActionType>sub</ActionType>\n    <ActionResult>they say yes</ActionResult>\n  </Action>\n</ActionResults>", r.prompt(t, 2))
}

// TestSharedThreadOfOthers states a thread that another run holds, as the loop of an agent would.
func TestSharedThreadOfOthers(t *testing.T) {
	t.Parallel()
	const forged = `"shared_thread": {"thread": "thr_old", "seq": 1, "runs": ["run_of_another", "its_loop", ""]}`
	for name, input := range map[string]workgraph.Input{
		"ByTheNode": {},
		"ByTheRun":  {Named: map[string]json.RawMessage{"shared_thread": json.RawMessage(strings.TrimPrefix(forged, `"shared_thread": `))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &reasoner{script: []string{completed}}
			own := `{"user_input": "x", "reasoner": "s", "actions": {"x": {}}}`
			if name == "ByTheNode" {
				own = strings.Replace(own, "{", "{"+forged+", ", 1)
			}
			e := newEnv(t, workgraph.Actors{"s": s, "x": says(`1`)})
			e.input = input
			res := e.run(t, own)
			require.Equal(t, workgraph.StatusFailed, res.Status)
			require.Contains(t, res.Error.Message, "shared_thread is stated by an agent that lends its thread")
			require.Empty(t, s.asked)
		})
	}
}

// agentToolText is the schema that the prompt shows of an agent as an action.
func agentToolText(t *testing.T, r *reasoner) string {
	t.Helper()
	_, rest, ok := strings.Cut(r.prompt(t, 1), " Arguments: ")
	require.True(t, ok)
	text, _, _ := strings.Cut(rest, "\n")
	require.True(t, json.Valid([]byte(text)))
	return text
}

func TestSharedThreadAlone(t *testing.T) {
	t.Parallel()
	const sub = `"actions": {"sub": {"actor": "agent", "share_thread": true, "named": {"reasoner": "s", "actions": {"x": {}}}}, "x": {}}`
	ask := func(what string) string { return `{"action": "sub", "arguments": {"user_input": "` + what + `"}}` }
	native := func(id string) string {
		return `{"id": "` + id + `", "name": "sub", "arguments": {"user_input": "look"}}`
	}
	for name, c := range map[string]struct{ say, more string }{
		"TwoInAGroup":      {`{"actions": [[` + ask("a") + `, ` + ask("b") + `]]}`, `, "branch": false`},
		"BesideABranch":    {`{"actions": [[` + ask("a") + `, "x"]]}`, ``},
		"TwoNativeCalls":   {`{"role": "assistant", "tool_calls": [` + native("1") + `, ` + native("2") + `]}`, `, "form": "tools"`},
		"AsPartOfAGraph":   {`{"graph": {"nodes": [{"id": "a", "actor": "sub", "named": {"user_input": "a"}}]}}`, `, "allow_graph": true`},
		"SecondOfTwoInRow": {`{"actions": [["x"], [` + ask("a") + `, ` + ask("b") + `]]}`, `, "branch": false`},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			r, s, x := &reasoner{script: []string{c.say, `{"result": "over"}`}}, &reasoner{}, says(`1`)
			done(t, work(t, workgraph.Actors{"r": r, "s": s, "x": x}, `{"user_input": "find", "reasoner": "r", `+sub+c.more+`}`), `"over"`)
			require.Empty(t, s.asked)
			require.Empty(t, x.calls, "nothing of the response is done")
			require.Contains(t, string(r.asked[1]["request"])+string(r.asked[1]["messages"]), "works on your own thread and cannot be")
		})
	}
	t.Run("OneAfterTheOther", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"actions": [[` + ask("first") + `], [` + ask("second") + `]]}`, completed}}
		s := &reasoner{script: []string{`{"result": "one"}`, `{"result": "two"}`}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
		done(t, e.run(t, `{"user_input": "find", "reasoner": "r", `+sub+`}`), `"done"`)
		require.Contains(t, s.prompt(t, 2), "Conversation:\nUser: find\nUser: first\nAgent: one\nUser: second")
		require.Len(t, e.threads.rows, 1)
	})
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	const other = `"other": {"actor": "agent", "hand_over": true, "named": {"reasoner": "s", "actions": {"x": {}}}`
	t.Run("Prompt/GoesOnInItsPlace", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("", "x"), `<InstantResponse>I pass it on.</InstantResponse><ImmediateNextActions><Action><Type>other</Type></Action></ImmediateNextActions>`}}
		s := &reasoner{script: []string{acts("", "x"), `{"result": "all done"}`}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`"x_data"`)})
		done(t, e.run(t, `{"user_input": "find out", "reasoner": "r", "actions": {"x": {}, `+other+`}}}`), `"all done"`)
		require.Len(t, r.asked, 2, "it does not reason again")
		require.Len(t, e.threads.rows, 1)
		require.Contains(t, s.prompt(t, 1), "Conversation:\nUser: find out\nAgent: I pass it on.")
		require.Contains(t, s.prompt(t, 1), "x_data", "what was found before")
		states := e.threads.states(t, e.threads.root(t))
		require.Equal(t, []int{1, 2, 1, 2}, []int{states[0].Round, states[1].Round, states[2].Round, states[3].Round}, "the round of the hand-over comes before those of the other agent")
	})
	t.Run("Tools/EveryCallIsAnswered", func(t *testing.T) {
		t.Parallel()
		call := `{"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "other", "arguments": {"user_input": "pay it back", "context": "order 7"}}]}`
		r, s := &reasoner{script: []string{call}}, &reasoner{script: []string{`"paid"`}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
		done(t, e.run(t, `{"user_input": "refund!", "form": "tools", "reasoner": "r", "actions": {"other": {"actor": "agent", "hand_over": true, "named": {"form": "tools", "reasoner": "s", "actions": {"x": {}}}}}}`), `"paid"`)
		require.JSONEq(t, `[{"role": "user", "content": "Context:\norder 7"}, {"role": "user", "content": "refund!"}, `+call+`, {"role": "tool", "tool_call_id": "c1", "content": "It goes on with the conversation."},
			{"role": "user", "content": "pay it back"}]`, string(s.asked[0]["messages"]))
	})
	t.Run("Thread/OfItsOwn", func(t *testing.T) {
		t.Parallel()
		r, s := &reasoner{script: []string{`[{"action": "other", "arguments": {"user_input": "on your own"}}]`}}, &reasoner{script: []string{over}}
		e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
		done(t, e.run(t, `{"user_input": "find out", "reasoner": "r", "actions": {`+other+`, "share_thread": false}}}`), `"done"`)
		require.Len(t, e.threads.rows, 2)
		require.NotContains(t, s.prompt(t, 1), "find out")
	})
	t.Run("Failure/IsTheCallers", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`["other"]`}}
		res := newEnv(t, workgraph.Actors{"r": r, "s": &reasoner{}, "x": says(`1`)}).run(t, `{"user_input": "find out", "reasoner": "r", "actions": {`+other+`}}}`)
		require.Equal(t, workgraph.StatusFailed, res.Status)
		require.Contains(t, res.Error.Message, "SCRIPT_ENDED")
		require.Len(t, r.asked, 1)
	})
	for name, c := range map[string]struct{ decision, heard string }{
		"BesideOthers": {`["x", "other"]`, "other hands over to another agent, which ends the round: make it the only action"},
		"InAGraph":     {`{"graph": {"nodes": [{"id": "a", "actor": "other"}]}}`, "other hands over to another agent and cannot be part of a graph"},
		"LongNumbers":  {`[{"action": "other", "arguments": {"user_input": "x", "attachments": [{"id": "n", "content": 123456789012345678901234567890}]}}]`, "write them as texts"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			r, s := &reasoner{script: []string{c.decision, over}}, &reasoner{}
			e := newEnv(t, workgraph.Actors{"r": r, "s": s, "x": says(`1`)})
			done(t, e.run(t, `{"user_input": "find out", "reasoner": "r", "allow_graph": true, "actions": {"x": {}, `+other+`}}}`), `"done"`)
			require.Contains(t, e.threads.states(t, e.threads.root(t))[0].Refused, c.heard)
			require.Empty(t, s.asked)
		})
	}
	t.Run("Refused/NoAgent", func(t *testing.T) {
		t.Parallel()
		_, err := newEnv(t, workgraph.Actors{"r": &reasoner{}, "x": says(`1`)}).try(t, `{"user_input": "x", "reasoner": "r", "actions": {"x": {"hand_over": true}}}`)
		require.ErrorContains(t, err, "actions.x: hand_over: x is no agent")
	})
}
