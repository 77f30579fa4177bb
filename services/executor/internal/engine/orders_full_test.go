package engine_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

const mebibyte = 1 << 20

// growing are actors of a run that grows beyond the memory of its namespace and stays there until g
// opens.
func growing(g *gate) actors {
	return actors{"gate": g,
		"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
		"big": outcome(func(*workgraph.Call) workgraph.Outcome {
			return workgraph.Outcome{Values: []json.RawMessage{big(3 * mebibyte)}}
		}),
	}
}

// grow starts such a run and waits until it holds 9 MiB.
func (l *live) grow(t *testing.T, namespace string, g *gate) string {
	t.Helper()
	grows := chain(4, "big")
	grows.Nodes[3].Actor = "gate"
	id, _, err := l.Start(t.Context(), command.StartRequest{Namespace: namespace, Graph: grows})
	require.NoError(t, err)
	g.next(t)
	return id
}

// refuses waits until no run of the namespace finds room.
func (l *live) refuses(t *testing.T, namespace string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: namespace, Graph: chain(1, "signal")})
		return errs.ReasonOf(err) == memory.ReasonMemoryFull
	})
}

// TestCancellationsWhileAllMemoryIsFull cancels runs that are not in memory. The live runs of other
// namespaces hold all memory, and no job is worked.
func TestCancellationsWhileAllMemoryIsFull(t *testing.T) {
	t.Parallel()
	t.Run("EvictedRunsEnd", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			u, g := &unwanted{done: make(chan []engine.Order, 10)}, newGate()
			l := run(t, s, growing(g), func(c *engine.Config, d *engine.Deps) { c.MaxLiveBytes, d.Orders = 8*mebibyte, u })
			var runs []string
			for range 3 {
				runs = append(runs, l.start(t, chain(1, "signal"), func(r *command.StartRequest) { r.Input.Args = []json.RawMessage{big(mebibyte / 4)} }))
			}
			for _, id := range runs {
				l.wait(t, id, journal.StateWaiting)
			}
			testkit.Eventually(t, func() bool { return l.Live() == 0 })
			l.grow(t, "b", g)
			l.grow(t, "c", g)
			l.refuses(t, "d")
			u.wants(t, runs...)
			l.canceled(t, runs...)
			// A run leaves memory a moment after its end is written.
			testkit.Eventually(t, func() bool { return l.Live() <= 2 })
			require.Equal(t, 2, l.Live(), "the others have kept their room")
		})
	})
	t.Run("RunsReleasedByAnotherExecutorEndWithoutACall", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			u, g, held := &unwanted{done: make(chan []engine.Order, 10)}, newGate(), newGate()
			acts := growing(g)
			acts["held"] = held
			l := run(t, s, acts, named("b"), func(c *engine.Config, d *engine.Deps) { c.MaxLiveBytes, d.Orders = 8*mebibyte, u })
			l.grow(t, "b", g)
			l.grow(t, "c", g)
			l.refuses(t, "d")
			other := run(t, s, acts, named("a"))
			var runs []string
			for range 3 {
				runs = append(runs, other.start(t, chain(2, "held")))
				held.next(t)
			}
			other.stop()
			for _, id := range runs {
				row := l.row(t, id)
				require.Equal(t, journal.StateRunning, row.State)
				require.True(t, row.Owner.IsZero(), "there is no room for it")
			}
			u.wants(t, runs...)
			l.canceled(t, runs...)
			require.Empty(t, held.called)
		})
	})
}

// TestCancellationsOfManyRunsWithoutRoom cancels more runs than memory has room for, while another run
// of their namespace holds it. They end a few at a time, and another namespace starts runs meanwhile.
func TestCancellationsOfManyRunsWithoutRoom(t *testing.T) {
	t.Parallel()
	const n = 100
	g := newGate()
	acts := growing(g)
	acts["ok"] = &recorder{}
	l := run(t, sqliteStore(t), acts, func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes = 8 * mebibyte })
	var runs []string
	for range n {
		runs = append(runs, l.start(t, chain(1, "signal"), func(r *command.StartRequest) { r.Input.Args = []json.RawMessage{big(mebibyte / 4)} }))
		l.wait(t, runs[len(runs)-1], journal.StateWaiting)
	}
	testkit.Eventually(t, func() bool { return l.Live() == 0 })
	holder := l.grow(t, ns, g)
	before, most := l.LiveBytes(), int64(0)
	for _, id := range runs {
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
		require.NoError(t, err)
		most = max(most, l.LiveBytes())
	}
	id, _, err := l.Start(t.Context(), command.StartRequest{Namespace: "b", Graph: chain(1, "ok")})
	require.NoError(t, err)
	testkit.Eventually(t, func() bool {
		most = max(most, l.LiveBytes())
		row, err := l.j.Get(t.Context(), "b", id)
		require.NoError(t, err)
		return row.State == journal.StateCompleted
	})
	for _, id := range runs {
		testkit.Eventually(t, func() bool {
			most = max(most, l.LiveBytes())
			return l.row(t, id).State == journal.StateCanceled
		})
	}
	require.Less(t, most, before+4*mebibyte, "of the 25 MiB and more of all of them")
	require.Equal(t, journal.StateRunning, l.row(t, holder).State)
	testkit.Eventually(t, func() bool { return l.LiveBytes() <= before }, "all is given back")
}
