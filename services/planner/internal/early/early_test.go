package early_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/planner/internal/early"
	"github.com/epigraph-run/epigraph/workgraph"
)

// memory is an executor that keeps graphs, and nothing runs.
type memory struct {
	mu       sync.Mutex
	graph    *workgraph.Graph
	revision int64
	// amended are the ids of changes that were made, and the time of each since the start.
	amended  []string
	at       []time.Duration
	began    time.Time
	canceled []string
	// took is how long an amendment takes, meet what happens in front of the n-th, from 1.
	took time.Duration
	sent int
	meet map[int]func(m *memory) error
}

func (m *memory) Start(_ context.Context, g *workgraph.Graph) (early.Run, error) {
	m.graph, m.began = g, time.Now()
	return early.Run{ID: "run_1"}, nil
}

func (*memory) Examine(_ context.Context, g *workgraph.Graph, _ bool) ([]early.Behavior, []workgraph.Fault, error) {
	var out []early.Behavior
	for _, n := range g.Nodes {
		switch n.Actor {
		case "nobody":
			return nil, []workgraph.Fault{{Code: workgraph.CodeUnknownActor, Node: n.ID}}, nil
		case "sign":
			out = append(out, early.Behavior{Effect: workgraph.Pure, Approves: true})
		case "pay":
			out = append(out, early.Behavior{Effect: workgraph.Unsafe})
		case "odd":
			out = append(out, early.Behavior{})
		default:
			out = append(out, early.Behavior{Effect: workgraph.Idempotent})
		}
	}
	return out, nil, nil
}

func (m *memory) Amend(ctx context.Context, _, id string, revision int64, patch *workgraph.Patch, whole *workgraph.Graph) error {
	m.mu.Lock()
	m.sent++
	meet := m.meet[m.sent]
	m.mu.Unlock()
	select {
	case <-time.After(m.took):
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if meet != nil {
		if err := meet(m); err != nil {
			return err
		}
	}
	for _, done := range m.amended {
		if done == id {
			return nil
		}
	}
	if revision != m.revision {
		return errs.New(errs.Conflict, "GRAPH_REVISION_MISMATCH", "it has %d", m.revision)
	}
	g := whole
	if g == nil {
		var faults workgraph.Faults
		if g, faults = workgraph.ApplyPatch(m.graph, *patch); len(faults) > 0 {
			return errs.New(errs.InvalidArgument, "GRAPH_INVALID", "%v", faults)
		}
	}
	m.graph, m.revision = g, m.revision+1
	m.amended, m.at = append(m.amended, id), append(m.at, time.Since(m.began))
	return nil
}

// times are when the amendments were made, after the start.
func (m *memory) times() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.at)
}

func (m *memory) Graph(context.Context, string) (*workgraph.Graph, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.graph.Clone(), m.revision, nil
}

func (m *memory) Cancel(ctx context.Context, _, reason string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.sent++
	if meet := m.meet[m.sent]; meet != nil {
		if err := meet(m); err != nil {
			return err
		}
	}
	m.canceled = append(m.canceled, reason)
	return nil
}

func (m *memory) nodes() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.graph.Nodes {
		out = append(out, n.ID)
	}
	return out
}

func away(*memory) error { return errs.New(errs.Unavailable, "SERVICE_UNAVAILABLE", "away") }

// expanded expands the node a to two nodes in a row.
func expanded(m *memory) error {
	m.graph.Nodes = append(m.graph.Nodes, workgraph.Node{ID: "a#1/x", Actor: "x"}, workgraph.Node{ID: "a#1/y", Actor: "x"})
	m.graph.Edges = append(m.graph.Edges, workgraph.Edge{From: "a", To: "a#1/x"}, workgraph.Edge{From: "a#1/x", To: "a#1/y"})
	m.revision++
	return nil
}

// into lists the nodes that lead to a node.
func (m *memory) into(id string) (out []string) {
	for _, e := range m.graph.Edges {
		if e.To == id {
			out = append(out, e.From)
		}
	}
	return out
}

// pass lets time pass in the bubble.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	require.True(t, sleep.For(t.Context(), d))
	synctest.Wait()
}

func TestLaunch(t *testing.T) {
	t.Parallel()
	whole := &workgraph.Graph{Name: "whole", Nodes: []workgraph.Node{{ID: "a", Actor: "x"}, {ID: "p", Actor: "pay"}, {ID: "b", Actor: "x"}, {ID: "c", Actor: "x"}},
		Edges: []workgraph.Edge{{From: "a", To: "b"}, {From: "p", To: "c"}, {From: "b", To: "c"}}}
	// launch runs f in a bubble, with a launch at m. add hands nodes of the whole over.
	type world struct {
		*early.Launch
		m     *memory
		told  []early.Batch
		cause error
	}
	launch := func(name string, m *memory, f func(t *testing.T, ctx context.Context, w *world, add func(ids ...string))) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				w := &world{m: m}
				var err error
				w.Launch, err = early.Begin(ctx, m, "plan", "1a", 50*time.Second, func(b early.Batch) { w.told = append(w.told, b) }, func(err error) { w.cause = err })
				require.NoError(t, err)
				f(t, ctx, w, func(ids ...string) {
					for _, id := range ids {
						var nodes []workgraph.Node
						var edges []workgraph.Edge
						for _, n := range whole.Nodes {
							if n.ID == id {
								nodes = append(nodes, n)
							}
						}
						for _, e := range whole.Edges {
							if e.To == id {
								edges = append(edges, e)
							}
						}
						usable, err := w.Usable(ctx, nodes)
						require.NoError(t, err)
						require.Equal(t, []bool{true}, usable)
						w.Add(nodes, edges)
					}
				})
			})
		})
	}
	launch("PlaceholderOutlivesTheAuthoring", &memory{}, func(t *testing.T, ctx context.Context, w *world, _ func(...string)) {
		require.Equal(t, []string{early.Placeholder}, w.m.nodes())
		n := w.m.graph.Nodes[0]
		require.Equal(t, "completion", n.Actor)
		require.JSONEq(t, `"1m50s"`, string(n.Named["timeout"]))
		require.Equal(t, 1, n.Retry.MaxAttempts, "a run whose plan does not come is not tried again")
		w.Cancel(ctx, "")
	})
	launch("ThePlanReplacesThePlaceholder", &memory{}, func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
		add("a", "p", "b", "c")
		synctest.Wait()
		require.Equal(t, []string{early.Placeholder, "a", "b"}, w.m.nodes())
		var waits []string
		for _, b := range w.told {
			if !b.Started {
				waits = append(waits, b.Nodes[0].ID+": "+b.Waits)
			}
		}
		require.Equal(t, []string{"p: its call may be UNSAFE to repeat", `c: it needs "p", which waits`}, waits)
		require.NoError(t, w.Finish(ctx, whole))
		require.Equal(t, whole, w.m.graph, "with its order and its name")
		require.Empty(t, w.m.canceled)
	})
	launch("PartsThatComeMeanwhileJoin", &memory{took: time.Second}, func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
		add("a")
		pass(t, 500*time.Millisecond)
		add("b")
		pass(t, 4*time.Second)
		add("p", "c")
		require.Len(t, w.m.times(), 1)
		pass(t, 2*time.Second)
		require.Equal(t, []time.Duration{time.Second, 6 * time.Second}, w.m.times(), "an amendment takes a fifth of the time")
		require.NoError(t, w.Finish(ctx, whole))
		require.Equal(t, 7500*time.Millisecond, time.Since(w.m.began), "the last one does not wait")
	})
	launch("AnExpansionInBetween", &memory{meet: map[int]func(*memory) error{2: expanded}}, func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
		add("a")
		synctest.Wait()
		add("b")
		pass(t, time.Second)
		require.Equal(t, []string{early.Placeholder, "a", "a#1/x", "a#1/y", "b"}, w.m.nodes())
		require.Equal(t, []string{"a#1/y"}, w.m.into("b"), "it gets what the expansion comes to")
		require.NoError(t, w.Finish(ctx, whole))
		require.Equal(t, []string{"a", "a#1/x", "a#1/y", "b", "p", "c"}, w.m.nodes())
		require.Equal(t, []string{"p", "b"}, w.m.into("c"))
		require.Equal(t, []string{"a#1/y"}, w.m.into("b"))
	})
	launch("AnExpansionAtTheEnd", &memory{meet: map[int]func(*memory) error{2: expanded}}, func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
		add("a")
		synctest.Wait()
		require.NoError(t, w.Finish(ctx, whole))
		require.Equal(t, []string{"a", "a#1/x", "a#1/y", "p", "b", "c"}, w.m.nodes())
		require.Equal(t, []string{"a#1/y"}, w.m.into("b"))
	})
	launch("AnExecutorThatIsAwayIsAskedAgain", &memory{meet: map[int]func(*memory) error{1: away, 2: away}}, func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
		add("a")
		pass(t, time.Second)
		require.Len(t, w.m.times(), 1)
		require.Equal(t, 3, w.m.sent)
		require.NoError(t, w.Finish(ctx, whole))
	})
	launch("WhatIsRefusedWaits", &memory{meet: map[int]func(*memory) error{1: func(*memory) error { return errs.New(errs.FailedPrecondition, "AMEND_REFUSED", "no") }}},
		func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
			add("a")
			synctest.Wait()
			require.Equal(t, "the executor did not take it: no", w.told[0].Waits)
			add("b")
			pass(t, time.Second)
			require.Contains(t, w.told[1].Waits, `it needs "a"`)
			require.NoError(t, w.Finish(ctx, whole))
			require.Equal(t, whole, w.m.graph)
		})
	ended := func(*memory) error { return errs.New(errs.FailedPrecondition, "RUN_ENDED", "it has ended") }
	launch("ARunThatEndsEndsTheAuthoring", &memory{meet: map[int]func(*memory) error{1: ended, 2: ended}}, func(t *testing.T, ctx context.Context, w *world, add func(...string)) {
		add("a")
		synctest.Wait()
		require.Equal(t, early.ReasonRunEnded, errs.ReasonOf(w.cause))
		require.Equal(t, early.ReasonRunEnded, errs.ReasonOf(w.Finish(ctx, whole)))
		w.Cancel(ctx, "")
	})
	launch("ACancelOutlivesTheCaller", &memory{meet: map[int]func(*memory) error{1: away, 2: away}}, func(t *testing.T, ctx context.Context, w *world, _ func(...string)) {
		gone, leave := context.WithCancel(ctx)
		leave()
		w.Cancel(gone, "the caller went away")
		require.Equal(t, []string{"the caller went away"}, w.m.canceled)
	})
	all := map[int]func(*memory) error{}
	for n := range 100 {
		all[n] = away
	}
	launch("ACancelThatReachesNobodyIsGivenUp", &memory{meet: all}, func(t *testing.T, ctx context.Context, w *world, _ func(...string)) {
		w.Cancel(ctx, "")
		require.Equal(t, 10*time.Second, time.Since(w.m.began))
	})
	launch("BehaviorsThatWait", &memory{}, func(t *testing.T, ctx context.Context, w *world, _ func(...string)) {
		nodes := []workgraph.Node{{ID: "s", Actor: "sign"}, {ID: "o", Actor: "odd"}, {ID: early.Placeholder, Actor: "x"}, {ID: "n", Actor: "nobody"}}
		usable, err := w.Usable(ctx, nodes)
		require.NoError(t, err)
		require.Equal(t, []bool{true, true, true, false}, usable, "what cannot run is no part of the plan yet")
		w.Add(nodes[:3], nil)
		synctest.Wait()
		require.Equal(t, []string{early.Placeholder}, w.m.nodes())
		require.Equal(t, "[an approval is asked for the whole plan its call may be UNSAFE to repeat its id is taken until the plan is complete]",
			fmt.Sprint([]string{w.told[0].Waits, w.told[1].Waits, w.told[2].Waits}))
		w.Cancel(ctx, "")
	})
}
