package agent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workgraph"
)

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
