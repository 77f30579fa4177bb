package engine_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestAgentsOnOneThread(t *testing.T) {
	t.Parallel()
	// sub is an agent whose reasoner is the helper; it works on the thread of its caller.
	const host = `{"goal": "find out", "reasoner": "reasoner", "branch": false, "actions": {
		"sub": {"actor": "agent", "share_thread": true, "named": {"reasoner": "helper", "actions": {"work": {}}}}, "work": {}}}`
	eachStore(t, func(t *testing.T, s store) {
		refused := make(chan string, 2)
		r, helper := &reasoner{}, &reasoner{script: []string{`{"result": "heard"}`}}
		l := run(t, s, agents(t, s, actors{"reasoner": r, "helper": helper, "work": &recorder{}, "ok": &recorder{}, "refused": outcome(func(c *workgraph.Call) workgraph.Outcome {
			for _, u := range c.Upstream {
				if u.Error != nil {
					refused <- u.Error.Message
				}
			}
			return text("noted")
		})}))
		l.jobs(t)
		script := func(script ...string) {
			r.script, r.asked, helper.asked = script, nil, nil
		}
		bodies := func(id string) (out []string) {
			items, err := thread.NewCache(l.j, 0).Items(t.Context(), ns, id, thread.Query{Kinds: []thread.Kind{workgraph.ThreadMessage}})
			require.NoError(t, err)
			for _, it := range items {
				var m struct{ Role, Content string }
				require.NoError(t, json.Unmarshal(it.Body, &m))
				out = append([]string{m.Content}, out...)
			}
			return out
		}
		// of finds the thread that a run made.
		of := func(run string) string {
			all, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 1000)
			require.NoError(t, err)
			for _, th := range all {
				if th.Holder == run {
					return th.ID
				}
			}
			t.Fatalf("run %s made no thread", run)
			return ""
		}

		t.Run("ASecondAgentIsRefusedBeforeItAsksAModel", func(t *testing.T) {
			script(`{"result": "mine"}`)
			held := make(chan struct{})
			r.before = func(int) { <-held }
			defer func() { r.before = nil }()
			id := l.thread(t)
			named := func(s string) (n map[string]json.RawMessage) {
				require.NoError(t, json.Unmarshal([]byte(s), &n))
				return n
			}
			agent := fmt.Sprintf(`{"goal": "x", "reasoner": "reasoner", "actions": {"work": {}}, "thread_id": %q}`, id)
			route := workgraph.OnError{Action: workgraph.Route}
			run := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{
				{ID: "a", Actor: "agent", Named: named(agent), OnError: route}, {ID: "b", Actor: "agent", Named: named(agent), OnError: route}, {ID: "refused", Actor: "refused", Join: workgraph.Join{Mode: workgraph.Any}},
			}, Edges: []workgraph.Edge{{From: "a", To: "refused", Kind: workgraph.ErrorEdge}, {From: "b", To: "refused", Kind: workgraph.ErrorEdge}}})
			require.Contains(t, <-refused, thread.ReasonBusy)
			close(held)
			l.wait(t, run, journal.StateCompleted)
			require.Equal(t, map[int]int{1: 1}, r.rounds())
			th, err := l.j.Thread(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, run, th.Holder)
		})
		t.Run("AgentsThatShareItWorkInTurn", func(t *testing.T) {
			script(`["sub", "sub"]`, `["sub"]`, `{"result": "done"}`)
			run := l.start(t, agentOf(t, host))
			l.wait(t, run, journal.StateCompleted)
			require.NotContains(t, r.told[2], thread.ReasonBusy)
			require.NotContains(t, r.told[3], thread.ReasonBusy)
			require.Equal(t, map[int]int{1: 3}, helper.rounds(), "two in the first round, and one in the second")
		})
		t.Run("AForkGoesOnOnAForkOfTheThread", func(t *testing.T) {
			script(`["sub"]`, `["sub"]`, `{"result": "first"}`)
			run := l.start(t, agentOf(t, host))
			l.wait(t, run, journal.StateCompleted)
			was := l.child(t, run)
			before := bodies(of(was.ID))
			script(`["sub"]`, `["sub"]`, `{"result": "second"}`)
			again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: was.ID, From: &workgraph.Ref{Node: "reason", Visit: 2}})
			require.NoError(t, err)
			require.JSONEq(t, `"second"`, string(l.wait(t, again, journal.StateCompleted).Result))
			require.Equal(t, before, bodies(of(was.ID)), "the thread of the first run is as it was")
			fork, err := l.j.Thread(t.Context(), ns, of(again))
			require.NoError(t, err)
			require.Equal(t, of(was.ID), fork.ParentID)
			require.Len(t, bodies(fork.ID), len(before), "the agent that shares the thread works on the fork")
			require.Equal(t, map[int]int{1: 1}, helper.rounds())
		})
		t.Run("AForkAtTheActionKeepsTheFirstThreadAsItWas", func(t *testing.T) {
			script(`["sub"]`, `{"result": "first"}`)
			run := l.start(t, agentOf(t, host))
			l.wait(t, run, journal.StateCompleted)
			was := l.child(t, run)
			before := bodies(of(was.ID))
			script(`["sub"]`, `{"result": "second"}`)
			again, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: was.ID, From: &workgraph.Ref{Node: "do.sub", Visit: 1}})
			require.NoError(t, err)
			require.JSONEq(t, `"second"`, string(l.wait(t, again, journal.StateCompleted).Result))
			require.Equal(t, before, bodies(of(was.ID)))
			require.Contains(t, r.told[2], "heard")
		})
	})
}
