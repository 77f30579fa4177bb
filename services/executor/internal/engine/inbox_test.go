package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestInbox checks that messages outlive executors. The meaning of inboxes is tested in package workgraph.
func TestInbox(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		a := actors{"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}), "gate": g,
			"reads": outcome(func(c *workgraph.Call) workgraph.Outcome {
				return workgraph.Outcome{Values: []json.RawMessage{c.Named["messages"]}}
			})}
		box := func(id, actor string, in workgraph.Inbox) workgraph.Node {
			return workgraph.Node{ID: id, Actor: actor, Effect: workgraph.Pure, On: &workgraph.Trigger{Inbox: &in}}
		}
		short := func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond }
		l := run(t, s, a, short)
		l.jobs(t)
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "w", Actor: "signal"},
			box("b", "reads", workgraph.Inbox{From: []string{"user"}, BatchSize: 2}),
			box("c", "gate", workgraph.Inbox{From: []string{"boss"}}),
			box("old", "reads", workgraph.Inbox{From: []string{"late"}, BatchSize: 9, TTL: workgraph.Duration(time.Millisecond)})}})
		say := func(l *live, from, message string) {
			l.commands(t, id, journal.CommandMessage, record.Payload{From: from, Payload: json.RawMessage(message)})
		}
		visits := func(l *live, node string) (values []string) {
			list, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Node: node})
			require.NoError(t, err)
			for _, v := range list {
				if v.Status == workgraph.VisitCompleted {
					values = append(values, string(v.Values[0]))
				}
			}
			return values
		}

		l.evicted(t, id, journal.StateWaiting)
		say(l, "user", `"one"`)
		say(l, "late", `"expires"`)
		testkit.Eventually(t, func() bool {
			n, err := l.j.UnappliedCommands(t.Context(), ns, id, 10)
			return err == nil && len(n) == 0
		})
		l.evicted(t, id, journal.StateWaiting)
		require.Empty(t, visits(l, "b"), "a batch is not full")
		l.stop()

		next := run(t, s, a, short, named("next"))
		next.jobs(t)
		say(next, "user", `{"n":2}`)
		testkit.Eventually(t, func() bool { return len(visits(next, "b")) == 1 })
		require.JSONEq(t, `[{"from":"user","body":"one"},{"from":"user","body":{"n":2}}]`, visits(next, "b")[0], "what came before the end of the first executor is there")

		// The executor stops during a call that a message started. The message is neither lost nor delivered
		// twice.
		say(next, "boss", `"work"`)
		g.next(t)
		next.stop()
		last := run(t, s, a, short, named("last"))
		last.jobs(t)
		require.Len(t, g.next(t).Messages, 1)
		close(g.open)
		say(last, "user", `"three"`)
		say(last, "boss", `"more"`)
		testkit.Eventually(t, func() bool { return len(visits(last, "c")) == 2 })
		require.Len(t, visits(last, "b"), 1)

		// When nothing else can move, an incomplete batch wakes the node. After that the run ends.
		last.commands(t, id, journal.CommandSignal, record.Payload{Name: "go"})
		last.wait(t, id, journal.StateCompleted)
		require.JSONEq(t, `[{"from":"user","body":"three"}]`, visits(last, "b")[1])
		require.Empty(t, visits(last, "old"), "what has expired wakes nobody")
	})
}

// TestInbox_Sender enqueues a signal while its sender's name is free, and has it applied when a node has that
// name.
func TestInbox_Sender(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		l := run(t, s, actors{"asks": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"pay?"`), Approve: json.RawMessage(`7`)}}),
			"pays": outcome(func(*workgraph.Call) workgraph.Outcome { return workgraph.Outcome{} })})
		l.jobs(t)
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "ask", Actor: "asks"},
			{ID: "pay", Actor: "pays", Effect: workgraph.Pure, On: &workgraph.Trigger{Inbox: &workgraph.Inbox{From: []string{"ask"}}}}},
			Edges: []workgraph.Edge{{From: "ask", To: "pay"}}})
		l.wait(t, id, journal.StateWaiting)
		l.commands(t, id, journal.CommandMessage, record.Payload{From: "ask", Payload: json.RawMessage("7000")})
		testkit.Eventually(t, func() bool {
			n, err := l.j.UnappliedCommands(t.Context(), ns, id, 10)
			return err == nil && len(n) == 0
		})
		list, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Node: "pay"})
		require.NoError(t, err)
		require.Empty(t, list)
	})
}
