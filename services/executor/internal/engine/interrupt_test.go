package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// commits is a journal that records which events of which nodes each write had. If told to, it is cut off at
// the next load of a run.
type commits struct {
	line
	mu      sync.Mutex
	writes  [][]journal.Event
	cutSoon atomic.Bool
}

func (c *commits) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	c.mu.Lock()
	for i := range ws {
		if ws[i].Append != nil {
			c.writes = append(c.writes, slices.Clone(ws[i].Append.Events))
		}
	}
	c.mu.Unlock()
	return c.line.Commit(ctx, o, ws)
}

func (c *commits) Load(ctx context.Context, id string) (journal.Loaded, error) {
	if c.cutSoon.Load() {
		c.cut.Store(true)
		return journal.Loaded{}, errCut
	}
	return c.line.Load(ctx, id)
}

// with are the writes that had an event of the kind.
func (c *commits) with(kind int32) (out [][]journal.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writes {
		if slices.ContainsFunc(w, func(e journal.Event) bool { return e.Kind == kind }) {
			out = append(out, w)
		}
	}
	return out
}

const (
	kindEnded  = 12
	kindCancel = 16
)

// TestInterrupt interrupts the evaluation after a call, while ended calls of the run wait for the run's lock.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(workgraph.Actor) workgraph.Actor{
		"Unsafe": func(a workgraph.Actor) workgraph.Actor { return unsafeActor{a} },
		"Safe":   func(a workgraph.Actor) workgraph.Actor { return a },
	} {
		// evaluating is a run with an evaluation in progress, and a call of each kind in flight beside it.
		type calls struct{ first, safe, unsafe *gate }
		evaluating := func(t *testing.T, s store) (l *live, j *commits, id string, c calls, next *recorder) {
			t.Helper()
			j, next = &commits{}, &recorder{}
			c = calls{newGate(), newGate(), newGate()}
			l = run(t, s, actors{"first": first(c.first), "next": next, "safe": c.safe, "unsafe": unsafeActor{c.unsafe}}, named("a"), func(_ *engine.Config, d *engine.Deps) {
				j.line.Journal, d.Journal = d.Journal, j
			})
			l.jobs(t)
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "first"}, {ID: "s", Actor: "safe"}, {ID: "u", Actor: "unsafe"}}}
			spread(g, "a")
			id = l.start(t, g)
			for _, g := range []*gate{c.first, c.safe, c.unsafe} {
				g.next(t)
			}
			close(c.first.open)
			testkit.Eventually(t, func() bool { return l.Evaluating(id) })
			return l, j, id, c, next
		}
		cancel := func(t *testing.T, l *live, id string) {
			t.Helper()
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
			require.NoError(t, err)
		}
		t.Run(name+"/KeepsWhatCallsHaveBroughtOnce", func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, s store) {
				l, j, id, c, next := evaluating(t, s)
				close(c.safe.open)
				close(c.unsafe.open)
				testkit.Eventually(t, func() bool { return c.safe.ended.Load()+c.unsafe.ended.Load() == 2 })
				cancel(t, l, id)
				l.wait(t, id, journal.StateCanceled)
				// The executor is dead to all others from here on.
				j.cut.Store(true)
				again := newGate()
				l = run(t, s, actors{"first": first(again), "next": next, "safe": again, "unsafe": unsafeActor{again}}, named("b"))
				evs := l.events(t, id)
				for _, node := range []string{"a", "s", "u"} {
					ends := 0
					for _, e := range evs {
						if e.Durable.Kind == workgraph.AttemptEnded && e.Durable.Node == node {
							ends++
							require.NotNil(t, e.Durable.Outcome, "%s: %v", node, e.Durable.Error)
							require.Equal(t, `"opened"`, string(e.Durable.Outcome.Values[0]))
						}
					}
					require.Equal(t, 1, ends, "the outcome of %s is there once", node)
					before, _ := endedBefore(evs, node, workgraph.CancelRequested)
					require.False(t, before, "what follows %s was decided before the cancel", node)
				}
				require.Empty(t, again.called, "no call is made again")
				require.Empty(t, next.calls, "nothing was decided")
				if name == "Unsafe" {
					together := j.with(kindCancel)
					require.Len(t, together, 1)
					require.True(t, slices.ContainsFunc(together[0], func(e journal.Event) bool { return e.Kind == kindEnded && e.NodeID == "a" }),
						"who sees the cancel sees the outcome")
				}
			})
		})
		t.Run(name+"/CallsInFlightGoOn", func(t *testing.T) {
			t.Parallel()
			l, _, id, c, _ := evaluating(t, sqliteStore(t))
			cancel(t, l, id)
			// A cancel ends both calls. What they return then is their outcome, unlike after the loss of
			// their executor.
			l.wait(t, id, journal.StateCanceled, journal.StatePaused)
			for _, g := range []*gate{c.safe, c.unsafe} {
				require.EqualError(t, <-g.causes, "the attempt was canceled")
				require.Empty(t, g.called)
			}
		})
		t.Run(name+"/CrashBeforeItIsReadAgain", func(t *testing.T) {
			t.Parallel()
			s := sqliteStore(t)
			l, j, id, c, _ := evaluating(t, s)
			close(c.safe.open)
			close(c.unsafe.open)
			testkit.Eventually(t, func() bool { return c.safe.ended.Load()+c.unsafe.ended.Load() == 2 })
			j.cutSoon.Store(true)
			cancel(t, l, id)
			testkit.Eventually(t, j.cut.Load)
			again := &recorder{}
			l = run(t, s, actors{"first": first(again), "next": again, "safe": again, "unsafe": unsafeActor{again}}, named("b"), func(c *engine.Config, _ *engine.Deps) {
				c.Lease = shortLease
			})
			l.jobs(t)
			l.wait(t, id, journal.StateCanceled, journal.StatePaused)
			require.Zero(t, again.of("u"), "nobody knows what became of it, so it is not made again")
			if name == "Unsafe" {
				require.Zero(t, again.of("a"))
			}
		})
	}
}

// TestTooLargeKeepsCallsInFlight makes a decision too large to be written while an UNSAFE call is in flight.
func TestTooLargeKeepsCallsInFlight(t *testing.T) {
	t.Parallel()
	g := newGate()
	l := run(t, sqliteStore(t), actors{"unsafe": unsafeActor{g}, "big": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{quoted(900)}}, nil
	})}, func(c *engine.Config, _ *engine.Deps) { c.MaxPayload, c.MaxGraphBytes = 1000, 5000 })
	l.jobs(t)
	id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "u", Actor: "unsafe"},
		{ID: "m", Actor: "big", Map: &workgraph.Map{Over: "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"}, OnError: workgraph.OnError{Action: workgraph.Continue}}}})
	g.next(t)
	testkit.Eventually(t, func() bool { return l.row(t, id).Nodes.Failed == 1 })
	close(g.open)
	row := l.wait(t, id, journal.StateCompleted, journal.StatePaused)
	require.JSONEq(t, `{"u":"opened"}`, string(row.Outputs))
}

// TestAmendmentThatCannotBeWritten amends a run whose position would become too large to be written. The
// amendment is refused with a reason.
func TestAmendmentThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	g := newGate()
	l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "gate": g, "big": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{quoted(900)}}, nil
	})}, func(c *engine.Config, _ *engine.Deps) { c.MaxPayload, c.MaxGraphBytes = 1000, 5000 })
	graph := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "u", Actor: "gate"}}}
	for i := range 6 {
		graph.Nodes = append(graph.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "big", Map: &workgraph.Map{Over: "[1,2,3,4,5,6,7,8,9,10,11,12]"}})
	}
	id := l.start(t, graph)
	g.next(t)
	testkit.Eventually(t, func() bool { return l.row(t, id).Nodes.Completed == 6 })
	_, err := l.Amend(t.Context(), command.AmendRequest{Namespace: ns, RunID: id, By: "ada", Request: journal.Request{ID: "one"},
		Patch: workgraph.Patch{PutNodes: []workgraph.Node{{ID: "more", Actor: "ok"}}, AddEdges: []workgraph.Edge{{From: "u", To: "more"}}}})
	require.Equal(t, command.ReasonAmendRefused, errs.ReasonOf(err), "%v", err)
	require.Contains(t, errs.From(err).Message, "too large")
	x, err := l.Explain(t.Context(), ns, id)
	require.NoError(t, err)
	require.Contains(t, holdupKinds(x), query.BlockerAmendRefused)
	close(g.open)
	testkit.Eventually(t, func() bool { return g.ended.Load() == 1 })
	require.Empty(t, g.called, "the call under way was kept")
}

// spread leads from a node of the graph to many others, each on an expensive condition. Together they take
// some seconds.
func spread(g *workgraph.Graph, from string) {
	for i := range 12 {
		id := fmt.Sprintf("%s%d", from, i)
		g.Nodes = append(g.Nodes, workgraph.Node{ID: id, Actor: "next"})
		g.Edges = append(g.Edges, workgraph.Edge{From: from, To: id, When: strings.Replace(dear, "400", fmt.Sprint(400-i), 1)})
	}
}

// endedBefore reports whether the run's journal has the end of a call of the node, and whether it precedes
// every event of the kind.
func endedBefore(evs []feed.Event, node string, kind workgraph.EventKind) (before, ended bool) {
	is := func(k workgraph.EventKind, node string) int {
		return slices.IndexFunc(evs, func(e feed.Event) bool { return e.Durable.Kind == k && (node == "" || e.Durable.Node == node) })
	}
	end, other := is(workgraph.AttemptEnded, node), is(kind, "")
	return end >= 0 && (other < 0 || end < other), end >= 0
}
