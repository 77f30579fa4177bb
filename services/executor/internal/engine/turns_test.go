package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// dear is a condition that takes most of what one may cost.
const dear = `lists.range(400).all(i, lists.range(250).all(j, i + j >= 0))`

// TestTurns holds that expressions are evaluated in turns of their namespace, whatever leads to them.
func TestTurns(t *testing.T) {
	t.Parallel()
	const cond = `lists.range(100).all(i, i >= 0)`
	// then is a node of the actor, and one that follows on a condition.
	then := func(actor string) *workgraph.Graph {
		g := chain(2, "ok")
		g.Nodes[0].Actor, g.Edges[0].When = actor, cond
		return g
	}
	begins := chain(1, "ok")
	begins.Nodes[0].When = cond
	t.Run("Namespace/HoldsUpOnlyItself", func(t *testing.T) {
		t.Parallel()
		gated := newGate()
		l := run(t, sqliteStore(t), actors{
			"ok": &recorder{}, "gated": gated,
			"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"ask":    waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"Go?"`)}}),
			"sleep":  waits(workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(time.Millisecond)}}),
		}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 128 })
		l.jobs(t)
		const each = 30
		ids := map[string][]string{}
		for _, actor := range []string{"gated", "signal", "ask"} {
			for range each {
				ids[actor] = append(ids[actor], l.start(t, then(actor)))
			}
		}
		for range each {
			gated.next(t)
		}
		for _, actor := range []string{"signal", "ask"} {
			for _, id := range ids[actor] {
				l.wait(t, id, journal.StateWaiting)
			}
		}
		var held []func()
		for range engine.ComputingLimit() {
			leave, err := l.Turns().Enter(t.Context(), ns)
			require.NoError(t, err)
			held = append(held, leave)
		}
		close(gated.open)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, g := range []*workgraph.Graph{begins, then("sleep")} {
			for range each {
				wg.Go(func() {
					id, _, err := l.Start(context.WithoutCancel(t.Context()), engine.StartRequest{Namespace: ns, Graph: g})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					ids["started"] = append(ids["started"], id)
				})
			}
		}
		for i := range each {
			_, err := l.Signal(t.Context(), engine.SignalRequest{Namespace: ns, RunID: ids["signal"][i], Signal: engine.Signal{Name: "go"}})
			require.NoError(t, err)
			open, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: ids["ask"][i]}, page.Cursor{}, 1)
			require.NoError(t, err)
			require.Len(t, open, 1)
			l.mail(t, ids["ask"][i], journal.MailAnswer, engine.Letter{InterruptID: open[0].ID, Payload: json.RawMessage(`"yes"`)})
		}
		testkit.Eventually(t, func() bool { return gated.ended.Load() == each }, 60*time.Second, time.Millisecond)
		// Another namespace has all of it done meanwhile.
		other := func(r *engine.StartRequest) { r.Namespace = "other" }
		for range 3 {
			for _, g := range []*workgraph.Graph{begins, then("ok"), then("sleep")} {
				id := l.start(t, g, other)
				testkit.Eventually(t, func() bool {
					row, err := l.j.Get(t.Context(), "other", id)
					require.NoError(t, err)
					return row.State == journal.StateCompleted
				}, time.Minute, time.Millisecond)
			}
		}
		for _, list := range ids {
			for _, id := range list {
				require.False(t, l.row(t, id).State.Ended(), "nothing of the first goes on without a turn")
			}
		}
		for _, leave := range held {
			leave()
		}
		wg.Wait()
		for _, list := range ids {
			for _, id := range list {
				l.wait(t, id, journal.StateCompleted)
			}
		}
		require.Zero(t, l.LateTurns(), "every path waits for its turn before it locks its run")
		testkit.Eventually(t, func() bool { return l.Turns().Keys() == 0 }, time.Minute, time.Millisecond)
	})
	// spread leads from a node to many others, each on a dear condition.
	spread := func(first string) *workgraph.Graph {
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: first}}}
		for i := range 12 {
			id := fmt.Sprintf("b%d", i)
			g.Nodes = append(g.Nodes, workgraph.Node{ID: id, Actor: "next"})
			g.Edges = append(g.Edges, workgraph.Edge{From: "a", To: id, When: strings.Replace(dear, "400", fmt.Sprint(400-i), 1)})
		}
		return g
	}
	for name, end := range map[string]func(t *testing.T, l *live, id string){
		"Cancel": func(t *testing.T, l *live, id string) {
			t.Helper()
			_, err := l.Cancel(t.Context(), engine.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
		},
		"Shutdown": func(t *testing.T, l *live, id string) {
			t.Helper()
			l.stop()
			row := l.row(t, id)
			require.False(t, row.State.Ended())
			require.True(t, row.Owner.IsZero(), "it was given back")
		},
	} {
		t.Run(name+"/InterruptsAnEvaluation", func(t *testing.T) {
			t.Parallel()
			next := &recorder{}
			l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "next": next}, func(c *engine.Config, _ *engine.Deps) { c.Drain = time.Millisecond })
			l.jobs(t)
			id := l.start(t, spread("ok"))
			testkit.Eventually(t, func() bool { return l.Evaluating(id) }, time.Minute, time.Microsecond)
			end(t, l, id)
			require.Empty(t, next.calls, "nothing was decided")
		})
	}
	t.Run("Deadline/InterruptsAnEvaluation", func(t *testing.T) {
		t.Parallel()
		gated, next := newGate(), &recorder{}
		l := run(t, sqliteStore(t), actors{"gated": gated, "next": next})
		l.jobs(t)
		deadline := time.Now().Add(2 * time.Second)
		id := l.start(t, spread("gated"), func(r *engine.StartRequest) { r.Deadline = deadline })
		gated.next(t)
		// The turn comes just before the deadline, so that this passes amidst the evaluation.
		var held []func()
		for range engine.ComputingLimit() {
			leave, err := l.Turns().Enter(t.Context(), ns)
			require.NoError(t, err)
			held = append(held, leave)
		}
		close(gated.open)
		testkit.Eventually(t, func() bool { return time.Until(deadline) < 200*time.Millisecond }, time.Minute, time.Millisecond)
		for _, leave := range held {
			leave()
		}
		row := l.wait(t, id, journal.StateCanceled, journal.StateFailed)
		require.Equal(t, workgraph.ReasonDeadline, row.Reason)
		require.Empty(t, next.calls)
	})
}
