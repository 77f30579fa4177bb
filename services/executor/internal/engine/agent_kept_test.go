package engine_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestAgentThreadsAreKept runs agents on threads of each lifetime.
func TestAgentThreadsAreKept(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		keeper, err := agent.Config{"keeper": {Definition: `{"reasoner": "reasoner", "thread": {"lifetime": "CONVERSATION"}, "actions": {"work": {}}}`}}.Specs(nil)
		require.NoError(t, err)
		r := &reasoner{}
		own := agents(t, s, actors{"reasoner": r, "work": &recorder{}, "ok": &recorder{}})
		own[keeper[0].Name] = pureActor{keeper[0].Actor}
		l := run(t, s, own, func(_ *engine.Config, d *engine.Deps) { d.Claims = books{} })
		l.jobs(t)
		of := func(user string) func(*command.StartRequest) {
			return func(req *command.StartRequest) { req.UserID, req.ChatID = user, "desk" }
		}
		named := &workgraph.Graph{Name: "help", Nodes: []workgraph.Node{{ID: "a", Actor: "agent/keeper", Named: map[string]json.RawMessage{"user_input": json.RawMessage(`"hello"`)}}}}
		// sweep is that of maintenance in two hours.
		sweep := func() {
			_, _, err := l.j.SweepThreads(t.Context(), dbkit.Now().Add(time.Hour), "", 1000)
			require.NoError(t, err)
		}
		there := func(id string) bool {
			_, err := l.j.Thread(t.Context(), ns, id)
			return err == nil
		}
		// made is the thread of the loop of an agent's run.
		made := func(run string) thread.Thread {
			all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 1000)
			require.NoError(t, err)
			loop := l.child(t, run).ID
			for _, th := range all {
				if th.Holder == loop || len(th.Below) > 0 && th.Below[0] == loop {
					return th
				}
			}
			t.Fatalf("run %s has no thread", run)
			return thread.Thread{}
		}
		ephemeral := agentOf(t, `{"goal": "x", "reasoner": "reasoner", "actions": {"work": {}}}`)

		t.Run("Conversation/OfTheUserTheChatAndTheAgent", func(t *testing.T) {
			r.script = []string{`{"result": "hi", "instant_learnings": [{"id": "drink", "content": "likes tea"}]}`}
			first := l.start(t, named, of("ann"))
			l.wait(t, first, journal.StateCompleted)
			th := made(first)
			require.Equal(t, "ann:desk:agent/keeper", th.Key)
			second := l.start(t, named, of("ann"))
			l.wait(t, second, journal.StateCompleted)
			require.Contains(t, r.told[1], `User: hello\nAgent: hi`)
			other := l.start(t, named, of("bob"))
			l.wait(t, other, journal.StateCompleted)
			require.Equal(t, "bob:desk:agent/keeper", made(other).Key)
			sweep()
			require.True(t, there(th.ID))
			var told []string
			for _, one := range l.learned(t) {
				told = append(told, strings.Join([]string{one.Agent, one.User, one.Name, one.Content}, " "))
			}
			slices.Sort(told)
			require.Equal(t, []string{"agent/keeper ann drink likes tea", "agent/keeper bob drink likes tea"}, slices.Compact(told), "the outbox has them for the memory")
		})
		t.Run("Run/EndsWithIt", func(t *testing.T) {
			r.script = []string{`{"result": "hi"}`}
			id := l.start(t, agentOf(t, `{"goal": "x", "reasoner": "reasoner", "actions": {"work": {}}, "thread": {"lifetime": "RUN"}}`))
			l.wait(t, id, journal.StateCompleted)
			th := made(id)
			_, _, err := l.j.SweepThreads(t.Context(), dbkit.Now().Add(-time.Hour), "", 1000)
			require.NoError(t, err)
			require.False(t, there(th.ID))
		})
		t.Run("Ephemeral/WaitsForAnAnswer", func(t *testing.T) {
			r.script = []string{`{"task_status": "Pending", "instant_response": "Which one?"}`, `{"result": "that"}`}
			id := l.start(t, ephemeral)
			var open []journal.Interrupt
			testkit.Eventually(t, func() bool {
				var err error
				open, err = l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id}, page.Cursor{}, 10)
				require.NoError(t, err)
				return len(open) == 1
			})
			th := made(id)
			sweep()
			require.True(t, there(th.ID), "somebody waits for it")
			_, err := l.Answer(t.Context(), command.AnswerRequest{Namespace: ns, InterruptID: open[0].ID, Answer: json.RawMessage(`"the first"`)})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCompleted)
			sweep()
			require.False(t, there(th.ID))
		})
		t.Run("Ephemeral/IsKeptForARetry", func(t *testing.T) {
			r.script = []string{`["work"]`, `{"result": "that"}`}
			r.fails = func(round int) error {
				if round == 2 {
					return workgraph.Errorf(workgraph.Permanent, "BROKEN", "no model")
				}
				return nil
			}
			id := l.start(t, ephemeral)
			l.wait(t, id, journal.StateFailed)
			r.fails = nil
			th := made(id)
			sweep()
			require.True(t, there(th.ID))
			again, err := l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: l.child(t, id).ID})
			require.NoError(t, err)
			require.JSONEq(t, `"that"`, string(l.wait(t, again, journal.StateCompleted).Result))
		})
		t.Run("Start/FindsOrMakesTheThread", func(t *testing.T) {
			r.script = []string{`{"result": "hi"}`}
			on := func(c workgraph.ThreadCreate) func(*command.StartRequest) {
				return func(req *command.StartRequest) { req.NewThread = &c }
			}
			key := workgraph.ThreadCreate{Key: "k", Agent: "agent/keeper", Title: "Desk"}
			first := l.start(t, ephemeral, on(key))
			row := l.wait(t, first, journal.StateCompleted)
			th, err := l.j.ThreadByKey(t.Context(), ns, "k")
			require.NoError(t, err)
			require.Equal(t, []string{th.ID, "agent/keeper", "Desk", first}, []string{row.ThreadID, th.Agent, th.Title, th.Holder})
			second := l.start(t, ephemeral, on(key))
			require.Equal(t, th.ID, l.wait(t, second, journal.StateCompleted).ThreadID)
			require.Contains(t, r.told[1], `User: x\nAgent: hi\nUser: x`)
			third := l.wait(t, l.start(t, ephemeral, on(workgraph.ThreadCreate{Lifetime: workgraph.ThreadOfRun}), func(req *command.StartRequest) { req.StartTime = time.Now().Add(time.Hour) }), journal.StatePending)
			sweep()
			require.True(t, there(third.ThreadID), "the run is open")
		})
		t.Run("Start/TwoAtOnceMakeOne", func(t *testing.T) {
			r.script = []string{`{"result": "hi"}`}
			const n = 4
			answers := make(chan error, n)
			for range n {
				go func() {
					_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "ok"}}},
						NewThread: &workgraph.ThreadCreate{Key: "once"}})
					answers <- err
				}()
			}
			var all error
			for range n {
				all = errors.Join(all, <-answers)
			}
			require.NoError(t, all)
			found, err := l.j.ListThreads(t.Context(), ns, thread.Filter{KeyPrefix: "once"}, page.Cursor{}, 10)
			require.NoError(t, err)
			require.Len(t, found, 1)
		})
	})
}
