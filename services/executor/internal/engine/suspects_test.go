package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/workgraph"
)

// elsewhere is an actor whose calls are made elsewhere.
type elsewhere struct{ workgraph.Actor }

func (elsewhere) Info() workgraph.ActorInfo {
	return workgraph.ActorInfo{Effect: workgraph.Pure, Elsewhere: true}
}

// successors returns a function that starts the next executor, after the one before was cut off from the
// database: that is all that others see of a death.
func successors(t *testing.T, s store, a actors, opts ...option) (next func(id string) *live) {
	var wire *line
	return func(id string) *live {
		if wire != nil {
			wire.cut.Store(true)
		}
		wire = &line{}
		mine := wire
		return run(t, s, a, append([]option{named(id), func(c *engine.Config, d *engine.Deps) {
			c.MaxTakeovers, c.Lease = 3, shortLease
			mine.Journal, d.Journal = d.Journal, mine
		}}, opts...)...)
	}
}

func TestSuspects(t *testing.T) {
	t.Parallel()
	const bystanders = 6
	t.Run("Quarantine/HitsTheRunThatWasExecuting", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			here, there := newGate(), newGate()
			next := successors(t, s, actors{"here": here, "there": elsewhere{there}})
			l := next("a")
			guilty := l.start(t, chain(1, "here"))
			var others []string
			for range bystanders {
				others = append(others, l.start(t, chain(1, "there")))
			}
			// called waits until every call is made again, and nothing else is at work.
			called := func() {
				t.Helper()
				here.next(t)
				for range others {
					there.next(t)
				}
				testkit.Eventually(t, func() bool {
					for _, id := range others {
						if l.row(t, id).Doing != "" {
							return false
						}
					}
					return true
				})
			}
			called()
			for i, id := range []string{"b", "c"} {
				l = next(id)
				called()
				require.Equal(t, i+1, l.row(t, guilty).Takeovers)
			}
			require.Equal(t, "here at n0", l.row(t, guilty).Doing)
			x, err := l.Explain(t.Context(), ns, guilty)
			require.NoError(t, err)
			require.Contains(t, holdupKinds(x), query.BlockerSuspect)
			for _, id := range []string{"d", "e", "f"} {
				l = next(id)
				for range others {
					there.next(t)
				}
			}
			require.Equal(t, journal.StateQuarantined, l.row(t, guilty).State)
			require.Equal(t, 3, l.row(t, guilty).Takeovers)
			x, err = l.Explain(t.Context(), ns, guilty)
			require.NoError(t, err)
			require.Contains(t, x.Summary, "at work with: here at n0")
			for _, id := range others {
				row := l.row(t, id)
				require.Equal(t, journal.StateRunning, row.State, "its calls are made elsewhere, however often its owners go down")
				require.Equal(t, 2, row.Takeovers)
			}
			close(there.open)
			for _, id := range others {
				l.wait(t, id, journal.StateCompleted)
			}
		})
	})
	t.Run("Work/OneAtATime", func(t *testing.T) {
		t.Parallel()
		var now, most atomic.Int32
		var calm atomic.Bool
		calls := make(chan struct{}, 100)
		busy := workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			if !calm.Load() {
				calls <- struct{}{}
				<-ctx.Done()
				return workgraph.Outcome{}, ctx.Err()
			}
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			hold := time.NewTimer(5 * time.Millisecond)
			<-hold.C
			return text("done"), nil
		})
		next := successors(t, sqliteStore(t), actors{"busy": busy})
		l := next("a")
		var ids []string
		for range bystanders {
			ids = append(ids, l.start(t, chain(1, "busy")))
		}
		for _, id := range []string{"", "b"} {
			if id != "" {
				next(id)
			}
			for range ids {
				<-calls
			}
		}
		calm.Store(true)
		l = next("c")
		for _, id := range ids {
			l.wait(t, id, journal.StateCompleted)
		}
		require.EqualValues(t, 1, most.Load())
	})
}

func holdupKinds(x *query.Explanation) (out []query.BlockerKind) {
	for _, h := range x.Blockers {
		out = append(out, h.Kind)
	}
	return out
}

// reads is a journal that counts the suspects that are read at the same time.
type reads struct {
	journal.Journal

	mu        sync.Mutex
	now, seen map[string]bool
	most      int
}

func (m *reads) Mark(ctx context.Context, owner journal.Owner, runID, doing, harmless string) error {
	err := m.Journal.Mark(ctx, owner, runID, doing, harmless)
	m.mu.Lock()
	if doing == journal.DoingReading {
		m.now[runID], m.seen[runID] = true, true
	} else {
		delete(m.now, runID)
	}
	m.most = max(m.most, len(m.now))
	m.mu.Unlock()
	if doing == journal.DoingReading {
		hold := time.NewTimer(5 * time.Millisecond)
		<-hold.C
	}
	return err
}

// TestSuspectsWokenByCommands wakes evicted suspects all at once. Each is read in its turn, and that is
// recorded.
func TestSuspectsWokenByCommands(t *testing.T) {
	t.Parallel()
	const n = 6
	s := sqliteStore(t)
	m := &reads{now: map[string]bool{}, seen: map[string]bool{}}
	l := run(t, s, actors{"ok": &recorder{}, "signal": outcome(func(*workgraph.Call) workgraph.Outcome {
		return workgraph.Outcome{Wait: &workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}}
	})}, func(c *engine.Config, d *engine.Deps) {
		c.MaxTakeovers, c.EvictAfter = 3, time.Millisecond
		m.Journal, d.Journal = d.Journal, m
	})
	l.KeepTurnsOfSuspects(time.Hour) // however slow the machine is
	l.jobs(t)
	var ids []string
	for range n {
		g := chain(2, "ok")
		g.Nodes[0].Actor = "signal"
		ids = append(ids, l.start(t, g))
	}
	testkit.Eventually(t, func() bool { return l.Live() == 0 })
	_, err := l.j.(*sqlite.Store).DB().Write.ExecContext(t.Context(), `UPDATE runs SET takeovers = 2`)
	require.NoError(t, err)
	for _, id := range ids {
		_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
		require.NoError(t, err)
	}
	for _, id := range ids {
		l.wait(t, id, journal.StateCompleted)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	require.Len(t, m.seen, n)
	require.Equal(t, 1, m.most)
}
