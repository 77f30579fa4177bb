package agent_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestKept(t *testing.T) {
	t.Parallel()
	const rest = `"user_input": "hello", "reasoner": "r", "actions": {"x": {"actor": "tool"}}`
	// world is a run of the user ann in the chat desk.
	world := func(t *testing.T, script ...string) (*env, *reasoner) {
		r := &reasoner{script: script}
		e := newEnv(t, workgraph.Actors{"r": r, "tool": says(`1`)})
		e.start = &workgraph.Start{RootRunID: "run", UserID: "ann", ChatID: "desk", GraphName: "help"}
		named, err := agent.Config{"keeper": {Definition: `{"reasoner": "r", "thread": {"lifetime": "CONVERSATION"}, "actions": {"x": {"actor": "tool"}}}`}}.Specs(nil)
		require.NoError(t, err)
		e.all["agent/keeper"] = described{t, named[0].Actor, workgraph.ActorInfo{Effect: workgraph.Idempotent}, e}
		return e, r
	}
	named := func(g *workgraph.Graph) {
		n := &g.Nodes[0]
		n.Actor = "agent/keeper"
		maps.DeleteFunc(n.Named, func(k string, _ json.RawMessage) bool { return !slices.Contains([]string{"user_input", "thread"}, k) })
	}
	type kept struct {
		key      string
		lifetime workgraph.ThreadLifetime
	}
	for name, c := range map[string]struct {
		args   string
		change func(*workgraph.Start)
		named  bool
		want   kept
	}{
		"Default":          {want: kept{"", workgraph.ThreadEphemeral}},
		"Run":              {args: `"thread": {"lifetime": "RUN"}`, want: kept{"", workgraph.ThreadOfRun}},
		"Key":              {args: `"thread": {"key": "k"}`, want: kept{"k", workgraph.ThreadConversation}},
		"Derived":          {args: `"thread": {"lifetime": "CONVERSATION"}`, want: kept{"ann:desk:help", workgraph.ThreadConversation}},
		"DerivedByName":    {named: true, want: kept{"ann:desk:agent/keeper", workgraph.ThreadConversation}},
		"OverDefinition":   {args: `"thread": {"lifetime": "EPHEMERAL"}`, named: true, want: kept{"", workgraph.ThreadEphemeral}},
		"WithoutAChat":     {named: true, change: func(s *workgraph.Start) { s.ChatID = "" }, want: kept{"ann:agent/keeper", workgraph.ThreadConversation}},
		"WithoutAUser":     {named: true, change: func(s *workgraph.Start) { s.UserID = "" }, want: kept{"", workgraph.ThreadConversation}},
		"BelowTheRoot":     {named: true, change: func(s *workgraph.Start) { s.RootRunID = "above" }, want: kept{"", workgraph.ThreadEphemeral}},
		"BelowTheRoot/Key": {args: `"thread": {"key": "k"}`, change: func(s *workgraph.Start) { s.RootRunID = "above" }, want: kept{"k", workgraph.ThreadConversation}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := world(t, over)
			if c.change != nil {
				c.change(e.start)
			}
			change := func(*workgraph.Graph) {}
			if c.named {
				change = named
			}
			args := rest
			if c.args != "" {
				args += ", " + c.args
			}
			done(t, e.run(t, `{`+args+`}`, change), `"done"`)
			row := e.threads.rows[e.threads.root(t)]
			require.Equal(t, c.want, kept{row.Key, row.Lifetime})
		})
	}
	t.Run("Conversation/IsFoundAgain", func(t *testing.T) {
		t.Parallel()
		e, r := world(t, over, over, over)
		done(t, e.run(t, `{`+rest+`}`, named), `"done"`)
		done(t, e.run(t, `{"user_input": "again"}`, named), `"done"`)
		require.Len(t, e.threads.rows, 1)
		require.Contains(t, r.prompt(t, 2), "User: hello\nAgent: done\nUser: again")
		e.start.UserID = "bob"
		done(t, e.run(t, `{"user_input": "mine"}`, named), `"done"`)
		require.NotContains(t, r.prompt(t, 3), "hello", "another user has another conversation")
	})
	t.Run("ThreadID/GoesBeforeTheDefinition", func(t *testing.T) {
		t.Parallel()
		e, _ := world(t, over)
		old := ids.New(thread.IDPrefix)
		e.threads.put(t, thread.Thread{ID: old})
		e.input.Named = map[string]json.RawMessage{"thread_id": json.RawMessage(`"` + old + `"`)}
		done(t, e.run(t, `{`+rest+`}`, named), `"done"`)
		require.Len(t, e.threads.rows, 1)
	})
	for name, c := range map[string]struct{ args, want string }{
		"Lifetime":   {`"thread": {"lifetime": "FOREVER"}`, `thread.lifetime: there is no "FOREVER"`},
		"KeyOfARun":  {`"thread": {"lifetime": "RUN", "key": "k"}`, "only a conversation has a key"},
		"Unknown":    {`"thread": {"id": "k"}`, "additional properties 'id' not allowed"},
		"WithAnID":   {`"thread": {"key": "k"}, "thread_id": "thr_1"`, "thread and thread_id are both given"},
		"Definition": {`"thread": 7`, "got number, want object"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			e, r := world(t, over)
			res, err := e.try(t, `{`+rest+`, `+c.args+`}`)
			if err == nil {
				require.Equal(t, workgraph.StatusFailed, res.Status)
				err = res.Error
			}
			require.ErrorContains(t, err, c.want)
			require.Empty(t, r.asked)
		})
	}
}

func TestLearnings(t *testing.T) {
	t.Parallel()
	const learns = `<TaskStatus>Completed</TaskStatus><InstantResponse>ok</InstantResponse><InstantLearnings><LearningID>drink</LearningID><LearningContent>likes tea</LearningContent></InstantLearnings>`
	for name, c := range map[string]struct {
		start *workgraph.Start
		want  [2]string // the agent, and the user
	}{
		"OfTheGraph":   {&workgraph.Start{RootRunID: "run", UserID: "ann", GraphName: "help"}, [2]string{"help", "ann"}},
		"WithoutAName": {&workgraph.Start{RootRunID: "run"}, [2]string{"agent"}},
		"BelowTheRoot": {&workgraph.Start{RootRunID: "above", UserID: "ann", GraphName: "round 1"}, [2]string{"agent", "ann"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, workgraph.Actors{"r": &reasoner{script: []string{learns}}, "tool": says(`1`)})
			e.start = c.start
			done(t, e.run(t, `{"user_input": "hello", "reasoner": "r", "actions": {"x": {"actor": "tool"}}}`), `"ok"`)
			require.Equal(t, []workgraph.Learning{{Agent: c.want[0], User: c.want[1], Name: "drink", Content: "likes tea"}}, e.threads.learnings)
		})
	}
}

func TestConversation(t *testing.T) {
	t.Parallel()
	const given = `{"user_input": "hello", "reasoner": "r", "actions": {}, "conversation": {"thread_id": "thr_01h455vb4pex5vsknk084sn02q", "lifetime": "CONVERSATION"}}`
	r := &reasoner{script: []string{completed, completed}}
	e := newEnv(t, workgraph.Actors{"r": r})
	done(t, e.run(t, given), `"done"`)
	require.Equal(t, workgraph.ThreadConversation, e.threads.rows["thr_01h455vb4pex5vsknk084sn02q"].Lifetime, "it is made, with this id")
	done(t, e.run(t, given), `"done"`)
	require.Len(t, e.threads.states(t, "thr_01h455vb4pex5vsknk084sn02q"), 2, "it is gone on with")
	require.Contains(t, r.prompt(t, 2), "User: hello\nAgent: done\nUser: hello")
	r.script = append(r.script, completed, completed, completed)
	last := e.threads.rows["thr_01h455vb4pex5vsknk084sn02q"].Last
	done(t, e.run(t, strings.Replace(given, `"lifetime"`, fmt.Sprintf(`"after": %d, "lifetime"`, last), 1)), `"done"`)
	require.Len(t, e.threads.states(t, "thr_01h455vb4pex5vsknk084sn02q"), 3, "nothing came after")
	done(t, e.run(t, strings.Replace(given, `"lifetime"`, fmt.Sprintf(`"after": %d, "lifetime"`, last/2), 1)), `"done"`)
	require.Len(t, e.threads.states(t, "thr_01h455vb4pex5vsknk084sn02q"), 3, "it goes on with a fork")
	require.Contains(t, r.prompt(t, 4), "User: hello\nAgent: done\nUser: hello")
	require.Equal(t, 2, strings.Count(r.prompt(t, 4), "User: hello"), "which ends where the caller says")
	done(t, e.run(t, strings.NewReplacer("02q", "02r", `"lifetime"`, `"part_of": "thr_01h455vb4pex5vsknk084sn02q", "lifetime"`).Replace(given)), `"done"`)
	require.Equal(t, "thr_01h455vb4pex5vsknk084sn02q", e.threads.rows["thr_01h455vb4pex5vsknk084sn02r"].PartOf, "it is a part of another one")
	for name, c := range map[string]struct{ conversation, says string }{
		"TwoThreads":      {`{"thread_id": "thr_01h455vb4pex5vsknk084sn02q"}, "thread_id": "thr_other"`, "in place of thread_id"},
		"UnknownLifetime": {`{"thread_id": "thr_01h455vb4pex5vsknk084sn02q", "lifetime": "LONG"}`, "conversation"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			res, err := newEnv(t, workgraph.Actors{"r": &reasoner{}}).try(t, `{"user_input": "hello", "reasoner": "r", "actions": {}, "conversation": `+c.conversation+`}`)
			if err == nil {
				require.Equal(t, workgraph.StatusFailed, res.Status)
				err = res.Error
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}
