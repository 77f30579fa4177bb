package engine_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// wants requests the end of runs and waits until it is acknowledged.
func (u *unwanted) wants(t *testing.T, runs ...string) {
	t.Helper()
	var list []engine.Order
	for _, id := range runs {
		list = append(list, engine.Order{Namespace: ns, TaskID: "tk_1", RunID: id, Reason: "TASK_CANCELED", Confirmed: true})
	}
	u.runs.Store(&list)
	for told := 0; told < len(runs); {
		select {
		case done := <-u.done:
			told += len(done)
		case <-time.After(time.Minute):
			require.FailNow(t, "not all is acknowledged")
		}
	}
}

// canceled waits until runs have ended because their task was canceled.
func (l *live) canceled(t *testing.T, runs ...string) {
	t.Helper()
	for _, id := range runs {
		l.wait(t, id, journal.StateCanceled)
		l.sound(t, id)
		var why []string
		for _, ev := range l.events(t, id) {
			if ev.Durable.Kind == workgraph.CancelRequested {
				why = append(why, ev.Durable.Reason)
			}
		}
		require.Equal(t, []string{"TASK_CANCELED"}, why)
	}
}

// TestCancellationsOfSuspects cancels suspects, at work and before their turn, and a
// quarantined run.
func TestCancellationsOfSuspects(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		u, g := &unwanted{done: make(chan []engine.Order, 10)}, newGate()
		next := successors(t, s, actors{"here": g}, func(_ *engine.Config, d *engine.Deps) { d.Orders = u })
		l := next("a")
		guilty := l.start(t, chain(1, "here"))
		suspects := []string{l.start(t, chain(1, "here")), l.start(t, chain(1, "here")), l.start(t, chain(1, "here"))}
		for range 1 + len(suspects) {
			g.next(t)
		}
		next("b")
		for range 1 + len(suspects) {
			g.next(t)
		}
		// From their second take-over on, each has the turn for a while, so not all are at work at
		// first.
		l = next("c")
		g.next(t)
		u.wants(t, suspects...)
		l.canceled(t, suspects...)
		testkit.Eventually(t, func() bool { return l.row(t, guilty).Doing == "here at n0" })
		l = next("d")
		l.wait(t, guilty, journal.StateQuarantined)
		u.wants(t, guilty)
		l.canceled(t, guilty)
	})
}

// TestCancellationsOfRunsWithoutRoom cancels runs that wait in line for memory, and some that are not
// even in line, while other runs of their namespace hold it. They are read only to end.
func TestCancellationsOfRunsWithoutRoom(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, ends := range map[string]func(t *testing.T, l *live, u *unwanted, g *gate, holder string){
		"OthersEnd": func(t *testing.T, l *live, _ *unwanted, g *gate, holder string) {
			t.Helper()
			close(g.open)
			l.wait(t, holder, journal.StateCompleted)
		},
		"OthersAreCanceled": func(t *testing.T, l *live, u *unwanted, _ *gate, holder string) {
			t.Helper()
			u.wants(t, holder)
			l.canceled(t, holder)
		},
		"OthersKeepIt": func(t *testing.T, _ *live, _ *unwanted, _ *gate, _ string) { t.Helper() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, s store) {
				u, g := &unwanted{done: make(chan []engine.Order, 10)}, newGate()
				l := run(t, s, actors{"gate": g,
					"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
					"big": outcome(func(*workgraph.Call) workgraph.Outcome {
						return workgraph.Outcome{Values: []json.RawMessage{big(3 * mib)}}
					}),
				}, func(c *engine.Config, d *engine.Deps) { c.MaxLiveBytes, d.Orders = 8*mib, u })
				l.jobs(t)
				var evicted []string
				for range 5 {
					evicted = append(evicted, l.start(t, chain(1, "signal"), func(r *command.StartRequest) { r.Input.Args = []json.RawMessage{big(mib / 4)} }))
				}
				for _, id := range evicted {
					l.wait(t, id, journal.StateWaiting)
				}
				testkit.Eventually(t, func() bool { return l.Live() == 0 })
				grows := chain(4, "big")
				grows.Nodes[3].Actor = "gate"
				holder := l.start(t, grows)
				g.next(t)
				inLine := func(id string) bool {
					x := l.BlockersHere(ns, id)
					return len(x) == 1 && x[0].Kind == query.BlockerExecutorFull
				}
				// The run does not wait for these signals.
				for _, id := range evicted[:3] {
					_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "other"}})
					require.NoError(t, err)
				}
				testkit.Eventually(t, func() bool { return slices.ContainsFunc(evicted, inLine) })
				u.wants(t, evicted...)
				ends(t, l, u, g, holder)
				l.canceled(t, evicted...)
				if name == "OthersKeepIt" {
					require.Equal(t, journal.StateRunning, l.row(t, holder).State)
				}
			})
		})
	}
}
