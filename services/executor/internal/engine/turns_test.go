package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// dear is a condition that costs nearly as much as one may.
const dear = `lists.range(400).all(i, lists.range(250).all(j, i + j >= 0))`

// allTurns takes all turns of the namespace to compute, and returns a function that gives them back.
func (l *live) allTurns(t *testing.T) (free func()) {
	t.Helper()
	var held []func()
	for range engine.ComputingLimit() {
		leave, err := l.Turns().Enter(t.Context(), ns)
		require.NoError(t, err)
		held = append(held, leave)
	}
	return func() {
		for _, leave := range held {
			leave()
		}
	}
}

// TestTurns checks that expressions are evaluated in turns of their namespace, whatever causes it.
func TestTurns(t *testing.T) {
	t.Parallel()
	const cond = `lists.range(100).all(i, i >= 0)`
	// then is a node of the actor, and one after it on a condition.
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
		free := l.allTurns(t)
		close(gated.open)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, g := range []*workgraph.Graph{begins, then("sleep")} {
			for range each {
				wg.Go(func() {
					id, _, err := l.Start(context.WithoutCancel(t.Context()), command.StartRequest{Namespace: ns, Graph: g})
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
			_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: ids["signal"][i], Signal: command.Signal{Name: "go"}})
			require.NoError(t, err)
			open, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: ids["ask"][i]}, page.Cursor{}, 1)
			require.NoError(t, err)
			require.Len(t, open, 1)
			l.commands(t, ids["ask"][i], journal.CommandAnswer, record.Payload{InterruptID: open[0].ID, Payload: json.RawMessage(`"yes"`)})
		}
		testkit.Eventually(t, func() bool { return gated.ended.Load() == each })
		// Another namespace can do all of it meanwhile.
		other := func(r *command.StartRequest) { r.Namespace = "other" }
		for range 3 {
			for _, g := range []*workgraph.Graph{begins, then("ok"), then("sleep")} {
				id := l.start(t, g, other)
				testkit.Eventually(t, func() bool {
					row, err := l.j.Get(t.Context(), "other", id)
					require.NoError(t, err)
					return row.State == journal.StateCompleted
				})
			}
		}
		for _, list := range ids {
			for _, id := range list {
				require.False(t, l.row(t, id).State.Ended(), "nothing of the first goes on without a turn")
			}
		}
		free()
		wg.Wait()
		for _, list := range ids {
			for _, id := range list {
				l.wait(t, id, journal.StateCompleted)
			}
		}
		require.Zero(t, l.LateTurns(), "every path waits for its turn before it locks its run")
		testkit.Eventually(t, func() bool { return l.Turns().Keys() == 0 })
	})
	t.Run("Read/ReusesTheTurnInHand", func(t *testing.T) {
		t.Parallel()
		l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})})
		id := l.start(t, then("signal"))
		l.evicted(t, id, journal.StateWaiting)
		for range engine.ComputingLimit() - 1 {
			leave, err := l.Turns().Enter(t.Context(), ns)
			require.NoError(t, err)
			defer leave()
		}
		last, err := l.Turns().Enter(t.Context(), ns)
		require.NoError(t, err)
		end := l.LoadBeside(ns, id)
		_, err = l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
		require.NoError(t, err)
		last()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		last, err = l.Turns().Enter(ctx, ns) // a goroutine took it meanwhile, and gave it back
		require.NoError(t, err)
		end()
		last()
		l.wait(t, id, journal.StateCompleted)
	})
	t.Run("WithoutExpressions/SchemasAndExpansionsTakeTurns", func(t *testing.T) {
		t.Parallel()
		gated := newGate()
		l := run(t, sqliteStore(t), actors{
			"ok": &recorder{}, "gated": gated,
			"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"grows": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				if _, err := gated.Call(ctx, c); err != nil {
					return workgraph.Outcome{}, err
				}
				return workgraph.Outcome{Expand: chain(2, "ok")}, nil
			}),
		})
		l.jobs(t)
		checked := func(actor string) *workgraph.Graph {
			g := chain(2, "ok")
			g.Nodes[0].Actor, g.Nodes[0].Check = actor, &workgraph.Check{Schema: json.RawMessage(`{"enum": ["opened", "yes", "done n0"]}`)}
			return g
		}
		asked := l.start(t, checked("signal"))
		l.wait(t, asked, journal.StateWaiting)
		ids := []string{asked, l.start(t, checked("gated")), l.start(t, steps("grows", "ok"))}
		gated.next(t)
		gated.next(t)
		free := l.allTurns(t)
		close(gated.open)
		_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: asked, Signal: command.Signal{Name: "go", Payload: json.RawMessage(`"yes"`)}})
		require.NoError(t, err)
		testkit.Eventually(t, func() bool { return gated.ended.Load() == 2 })
		id := l.start(t, checked("ok"), func(r *command.StartRequest) { r.Namespace = "other" })
		testkit.Eventually(t, func() bool {
			row, err := l.j.Get(t.Context(), "other", id)
			require.NoError(t, err)
			return row.State == journal.StateCompleted
		})
		l.wait(t, l.start(t, chain(3, "ok")), journal.StateCompleted) // runs that do not compute continue
		for _, id := range ids {
			require.False(t, l.row(t, id).State.Ended())
		}
		free()
		for _, id := range ids {
			l.wait(t, id, journal.StateCompleted)
		}
		require.Zero(t, l.LateTurns())
	})
	t.Run("DryRun/TakesATurnAndEndsWithItsCaller", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l := run(t, sqliteStore(t), actors{"gate": g, "ok": &recorder{}})
		id := l.start(t, steps("gate", "ok"))
		g.next(t)
		req := command.AmendRequest{Namespace: ns, RunID: id, DryRun: true, Patch: workgraph.Patch{
			PutNodes: []workgraph.Node{{ID: "more", Actor: "ok"}}, AddEdges: []workgraph.Edge{{From: "n1", To: "more"}}}}
		free := l.allTurns(t)
		gone := errors.New("the caller has gone")
		ctx, leave := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := l.Amend(ctx, req)
			done <- err
		}()
		// That does not delay the run.
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: l.start(t, chain(1, "gate"))})
		require.NoError(t, err)
		leave(gone)
		if err := <-done; !errors.Is(err, context.Canceled) { // it may still be reading the run
			require.ErrorIs(t, err, gone)
		}
		free()
		a, err := l.Amend(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, []string{"more"}, a.Diff.AddedNodes)
		require.Zero(t, l.LateTurns())
	})
	// fan is a node of the actor that leads to many others, each on an expensive condition.
	fan := func(actor string) *workgraph.Graph {
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: actor}}}
		spread(g, "a")
		return g
	}
	for name, end := range map[string]func(t *testing.T, l *live, id string){
		"Cancel": func(t *testing.T, l *live, id string) {
			t.Helper()
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
			before, ended := endedBefore(l.events(t, id), "a", workgraph.CancelRequested)
			require.True(t, ended, "the outcome of the call is kept")
			require.False(t, before, "the evaluation had ended when the run was canceled")
		},
		"Shutdown": func(t *testing.T, l *live, id string) {
			t.Helper()
			l.stop()
			_, ended := endedBefore(l.events(t, id), "a", workgraph.CancelRequested)
			require.False(t, ended, "the evaluation had ended when the executor stopped")
			row := l.row(t, id)
			require.False(t, row.State.Ended())
			require.True(t, row.Owner.IsZero(), "it was given back")
		},
	} {
		t.Run(name+"/InterruptsAnEvaluation", func(t *testing.T) {
			t.Parallel()
			next := &recorder{}
			l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "next": next}, func(c *engine.Config, _ *engine.Deps) {
				c.Drain, c.Grace = time.Millisecond, time.Minute // more than an evaluation takes
			})
			l.jobs(t)
			id := l.start(t, fan("ok"))
			testkit.Eventually(t, func() bool { return l.Evaluating(id) })
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
		id := l.start(t, fan("gated"), func(r *command.StartRequest) { r.Deadline = deadline })
		gated.next(t)
		// The turn comes just before the deadline, so that the deadline passes during the evaluation.
		free := l.allTurns(t)
		close(gated.open)
		testkit.Eventually(t, func() bool { return time.Until(deadline) < 200*time.Millisecond })
		free()
		row := l.wait(t, id, journal.StateCanceled, journal.StateFailed)
		require.Equal(t, workgraph.ReasonDeadline, row.Reason)
		require.Empty(t, next.calls)
		before, ended := endedBefore(l.events(t, id), "a", workgraph.DeadlineReached)
		require.True(t, ended, "the outcome of the call is kept")
		require.False(t, before, "the evaluation had ended at the deadline")
	})
}
