package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func big(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }

// TestMemoryCountsWhatComes sends live runs what they keep. It counts while they keep it, and is refused when
// there is no room.
func TestMemoryCountsWhatComes(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	t.Run("Signals", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l := run(t, sqliteStore(t), actors{"gate": g}, func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes = 8 * mib })
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "gate"}}})
		g.next(t)
		before := l.LiveBytes()
		signal := func(name string, n int) error {
			_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: name, Payload: big(n)}})
			return err
		}
		require.NoError(t, signal("go", mib))
		testkit.Eventually(t, func() bool { return l.LiveBytes() >= before+mib })
		err := signal("go", 5*mib/2) // large ones have three quarters of the namespace's half
		require.Equal(t, memory.ReasonMemoryFull, errs.ReasonOf(err), "got %v", err)
		require.True(t, errs.Is(err, errs.ResourceExhausted))
		require.NoError(t, signal("go", 1000), "what is small passes")
		_, err = l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
		testkit.Eventually(t, func() bool { return l.LiveBytes() == 0 }, "all is given back")
	})
	t.Run("AttemptsInLine", func(t *testing.T) {
		t.Parallel()
		const n = 500
		g := newGate()
		l := run(t, sqliteStore(t), actors{"gate": g}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 2 })
		graph := &workgraph.Graph{}
		for i := range n {
			graph.Nodes = append(graph.Nodes, workgraph.Node{ID: fmt.Sprint("n", i), Actor: "gate"})
		}
		id := l.start(t, graph)
		g.next(t)
		testkit.Eventually(t, func() bool { return l.LiveBytes() >= int64(n)*(2<<10+600) })
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
		testkit.Eventually(t, func() bool { return l.LiveBytes() == 0 }, "all is given back")
	})
}

// TestMemoryNeighbor lets the runs of one namespace grow beyond all memory of live runs, while others of it
// wait for room. Runs of another namespace start, wake and are taken over all the same.
func TestMemoryNeighbor(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	g := newGate()
	acts := actors{"gate": g, "ok": &recorder{},
		"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
		"big": outcome(func(*workgraph.Call) workgraph.Outcome {
			return workgraph.Outcome{Values: []json.RawMessage{big(3 * mib)}}
		}),
	}
	small := func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes = 8 * mib }
	l := run(t, sqliteStore(t), acts, small)
	start := func(ns string, g *workgraph.Graph, in ...json.RawMessage) string {
		t.Helper()
		id, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: g, Input: workgraph.Input{Args: in}})
		require.NoError(t, err)
		return id
	}
	signal := func(ns, id string) {
		t.Helper()
		_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
		require.NoError(t, err)
	}
	state := func(ns, id string) journal.State {
		row, err := l.j.Get(t.Context(), ns, id)
		require.NoError(t, err)
		return row.State
	}
	ended := func(ns, id string) {
		t.Helper()
		testkit.Eventually(t, func() bool { return state(ns, id) == journal.StateCompleted })
	}
	var evicted []string
	for range 5 {
		evicted = append(evicted, start("a", chain(1, "signal"), big(mib/4)))
	}
	sleeper := start("b", chain(1, "signal"), big(mib/4))
	for ns, ids := range map[string][]string{"a": evicted, "b": {sleeper}} {
		for _, id := range ids {
			testkit.Eventually(t, func() bool { return state(ns, id) == journal.StateWaiting })
		}
	}
	grows := chain(4, "big")
	grows.Nodes[3].Actor = "gate"
	start("a", grows)
	g.next(t)
	require.Greater(t, l.LiveBytes(), int64(8*mib), "what a live run is given counts, and is not refused")
	for _, id := range evicted {
		signal("a", id)
	}
	_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: "a", Graph: chain(1, "ok")})
	require.Equal(t, memory.ReasonMemoryFull, errs.ReasonOf(err), "got %v", err)
	ended("b", start("b", chain(1, "ok")))
	ended("b", start("b", chain(2, "ok"), big(mib/2)))
	signal("b", sleeper)
	ended("b", sleeper)
	for _, id := range evicted {
		require.Equal(t, journal.StateWaiting, state("a", id), "it waits for room")
	}
	close(g.open)
	for _, id := range evicted {
		ended("a", id)
	}
}

// slowCommits is a journal on a slow disk.
type slowCommits struct{ journal.Journal }

func (j slowCommits) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	sleep.For(ctx, 100*time.Millisecond)
	return j.Journal.Commit(ctx, o, ws)
}

// TestMemoryOfGrowingRuns starts more runs than memory has room for at their end. Each is small at its start.
// Runs that wait for their turn are evicted while others grow.
func TestMemoryOfGrowingRuns(t *testing.T) {
	t.Parallel()
	const mib, n, each = 1 << 20, 24, 6
	grows := func(t *testing.T, change func(*engine.Config, *engine.Deps), acts actors, g *workgraph.Graph) {
		var most atomic.Int64
		var l *live
		open := make(chan struct{})
		acts["big"] = outcome(func(*workgraph.Call) workgraph.Outcome {
			<-open
			for now, was := l.LiveBytes(), most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			return workgraph.Outcome{Values: []json.RawMessage{big(mib / 2)}}
		})
		l = run(t, sqliteStore(t), acts, func(c *engine.Config, d *engine.Deps) {
			c.MaxLiveBytes, c.Parallel = 16*mib, 2
			change(c, d)
		})
		var all []string
		for range n {
			id, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: g})
			require.NoError(t, err)
			all = append(all, id)
		}
		close(open)
		for _, id := range all {
			l.wait(t, id, journal.StateCompleted)
		}
		require.Less(t, most.Load(), int64(32*mib), "a namespace has 8 MiB; with what its calls under way bring and what is being written it has more for a moment, but never all of the 80 MiB and more")
		testkit.Eventually(t, func() bool { return l.LiveBytes() == 0 }, "all is given back")
	}
	t.Run("InLine", func(t *testing.T) {
		t.Parallel()
		grows(t, func(*engine.Config, *engine.Deps) {}, actors{}, chain(each, "big"))
	})
	t.Run("WhileCommitsTakeLong", func(t *testing.T) {
		t.Parallel()
		grows(t, func(_ *engine.Config, d *engine.Deps) { d.Journal = slowCommits{d.Journal} }, actors{}, chain(each, "big"))
	})
	t.Run("BetweenTries", func(t *testing.T) {
		t.Parallel()
		g := chain(2*each, "big")
		var tries sync.Map
		for i := 1; i < len(g.Nodes); i += 2 {
			g.Nodes[i].Actor = "twice"
			g.Nodes[i].Retry = workgraph.Retry{MaxAttempts: 2, InitialBackoff: workgraph.Duration(50 * time.Millisecond)}
		}
		twice := outcome(func(*workgraph.Call) workgraph.Outcome { return workgraph.Outcome{} })
		grows(t, func(*engine.Config, *engine.Deps) {}, actors{"twice": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			if _, tried := tries.LoadOrStore(c.RunID+c.Node, true); !tried {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "AGAIN", "once more")
			}
			return twice.Call(ctx, c)
		})}, g)
	})
}

// TestNoRoomGivesBack lets an executor claim a run for which only another executor has room.
func TestNoRoomGivesBack(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	g := newGate()
	all := actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}
	holds := func(n int) func(*command.StartRequest) {
		return func(r *command.StartRequest) { r.Context = quoted(n) }
	}
	a := run(t, s, all, named("a"), func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes = 16 << 20 })
	a.GiveBackAfter(time.Millisecond)
	large := a.start(t, chain(1, "signal"), holds(3<<20))
	testkit.Eventually(t, func() bool { return a.row(t, large).Owner.IsZero() && a.LiveBytes() == 0 })
	live := 0
	for {
		req := command.StartRequest{Namespace: ns, Graph: chain(1, "gate")}
		holds(400 << 10)(&req)
		if _, _, err := a.Start(t.Context(), req); errs.ReasonOf(err) == memory.ReasonMemoryFull {
			break
		} else if err != nil {
			require.NoError(t, err)
		}
		g.next(t)
		live++
	}
	b := run(t, s, all, named("b"))
	b.jobs(t)
	require.NotZero(t, live)
	_, err := a.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: large, Signal: command.Signal{Name: "go"}})
	require.NoError(t, err)
	require.Equal(t, "b", b.wait(t, large, journal.StateCompleted).Owner.ID)
	require.Equal(t, live, a.Live(), "the others have kept their room")
}
