package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		l := run(t, s, actors{"gate": g, "unsafe": unsafeActor{g}})
		cancel := func(t *testing.T, id string) {
			posted, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Reason: "enough", Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandCancel, Body: []byte(`{"reason":"enough"}`), Time: dbkit.Now()}})
			l.ApplySoon(posted)
			require.NoError(t, err)
		}
		t.Run("Cancel/ReachesTheCall", func(t *testing.T) {
			id := l.start(t, chain(3, "gate"))
			g.next(t)
			cancel(t, id)
			row := l.wait(t, id, journal.StateCanceled)
			require.ErrorContains(t, <-g.causes, "canceled")
			require.Equal(t, "enough", row.CancelReason)
			evs := l.events(t, id)
			require.Equal(t, workgraph.RunEnded, evs[len(evs)-1].Durable.Kind)
		})
		t.Run("Cancel/IsIdempotent", func(t *testing.T) {
			id := l.start(t, chain(1, "gate"))
			g.next(t)
			cancel(t, id)
			cancel(t, id)
			before := l.wait(t, id, journal.StateCanceled)
			cancel(t, id)
			require.Equal(t, before.LastSeq, l.row(t, id).LastSeq)
		})
		t.Run("Cancel/AnUnsafeCallStaysUnclear", func(t *testing.T) {
			id := l.start(t, chain(1, "unsafe"))
			g.next(t)
			cancel(t, id)
			l.wait(t, id, journal.StateCanceled, journal.StatePaused)
			ends := attemptsOf(l.events(t, id))
			require.Len(t, ends, 1)
			require.Equal(t, workgraph.Unknown, ends[0].Error.Type)
		})
		t.Run("Cancel/FromAnotherReplica", func(t *testing.T) {
			id := l.start(t, chain(1, "gate"))
			g.next(t)
			other := s.open(t)
			_, err := other.Enqueue(t.Context(), journal.EnqueueRequest{Reason: "now", Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandCancel, Body: []byte(`{"reason":"now"}`), Time: dbkit.Now()}})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
		})
	})
}

func TestRestart(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		t.Run("Stopped/FinishesElsewhereWithoutRepetition", func(t *testing.T) {
			rec, g := &recorder{}, newGate()
			first := run(t, s, actors{"ok": rec, "gate": g})
			graph := &workgraph.Graph{
				Nodes: []workgraph.Node{{ID: "a", Actor: "ok"}, {ID: "b", Actor: "gate"}, {ID: "c", Actor: "ok"}},
				Edges: []workgraph.Edge{{From: "a", To: "b"}, {From: "b", To: "c"}}}
			id := first.start(t, graph)
			g.next(t)
			first.stop()
			require.ErrorContains(t, <-g.causes, "stopping")
			rec2, g2 := &recorder{}, newGate()
			close(g2.open)
			second := run(t, s, actors{"ok": rec2, "gate": g2})
			row := second.wait(t, id, journal.StateCompleted)
			require.Zero(t, rec2.of("a"), "a finished visit ran again")
			require.Equal(t, 1, rec2.of("c"))
			require.Len(t, attemptsOf(second.events(t, id)), 3)
			require.Zero(t, row.Takeovers)
		})
		t.Run("Drain/LetsCallsEnd", func(t *testing.T) {
			g := newGate()
			first := run(t, s, actors{"gate": g}, func(c *engine.Config, _ *engine.Deps) { c.Drain = 60 * time.Second })
			id := first.start(t, chain(1, "gate"))
			g.next(t)
			go func() { close(g.open) }()
			first.stop()
			require.Equal(t, int64(1), g.ended.Load())
			second := run(t, s, actors{"gate": newGate()})
			second.wait(t, id, journal.StateCompleted)
		})
		t.Run("Unsafe/UnknownEndPausesTheRun", func(t *testing.T) {
			g := newGate()
			first := run(t, s, actors{"unsafe": unsafeActor{g}})
			id := first.start(t, chain(2, "unsafe"))
			g.next(t)
			first.stop()
			g2 := newGate()
			second := run(t, s, actors{"unsafe": unsafeActor{g2}})
			row := second.wait(t, id, journal.StatePaused)
			require.Equal(t, workgraph.ReasonReconciliation, row.Reason)
			require.Empty(t, g2.called, "an unsafe call was repeated blindly")
			visits, _, err := second.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			require.Equal(t, workgraph.VisitReconciliation, visits[0].Status)
		})
		t.Run("Fenced/GoesOnUnderANewIncarnation", func(t *testing.T) {
			g := newGate()
			l := run(t, s, actors{"gate": g})
			before := l.Owner()
			id := l.start(t, chain(1, "gate"))
			g.next(t)
			_, err := l.j.Register(t.Context(), "exec", "") // another executor takes the id
			require.NoError(t, err)
			testkit.Eventually(t, func() bool { return l.Owner().Incarnation > before.Incarnation+1 })
			g.next(t) // started again
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
			l.events(t, id)
		})
	})
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		// Each executor dies while it calls the same node, as if the run had killed it.
		g := newGate()
		var wire *line
		next := func(id string) *live {
			wire = &line{}
			mine := wire
			return run(t, s, actors{"gate": g}, named(id), func(c *engine.Config, d *engine.Deps) {
				c.MaxTakeovers, c.Lease = 2, shortLease
				mine.Journal, d.Journal = d.Journal, mine
			})
		}
		l := next("a")
		id := l.start(t, chain(1, "gate"))
		g.next(t)
		wire.cut.Store(true)
		l = next("b")
		g.next(t) // started again
		require.Equal(t, "b", l.row(t, id).Owner.ID)
		require.Equal(t, 1, l.row(t, id).Takeovers)
		wire.cut.Store(true)
		l = next("c")
		testkit.Eventually(t, func() bool { return l.row(t, id).State == journal.StateQuarantined })
		row := l.row(t, id)
		require.Equal(t, journal.ReasonQuarantined, row.Reason)
		evs := l.events(t, id)
		require.Equal(t, workgraph.RunPaused, evs[len(evs)-1].Durable.Kind)
		t.Run("Explain/SaysWhatWasUnderWay", func(t *testing.T) {
			x, err := l.Explain(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, query.BlockerQuarantined, x.Blockers[0].Kind)
			require.Regexp(t, `^the run is quarantined, because its executors went down each time; the last one while it was at work with: gate at n0; under way: \w+ called gate, attempt \d+$`, x.Blockers[0].Message)
		})
		t.Run("Cancel/StillWorks", func(t *testing.T) {
			posted, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Reason: "now", Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandCancel, Body: []byte(`{"reason":"now"}`), Time: dbkit.Now()}})
			l.ApplySoon(posted)
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
			l.events(t, id)
		})
	})
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	var alive atomic.Int64
	deaf := make(chan struct{})
	t.Cleanup(func() { close(deaf) })
	l := run(t, sqliteStore(t), actors{
		"hangs": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			<-ctx.Done()
			return workgraph.Outcome{}, ctx.Err()
		}),
		"deaf": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			<-deaf
			return workgraph.Outcome{}, nil
		}),
		"leaves": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			<-ctx.Done()
			return workgraph.Outcome{}, &workgraph.Error{Type: workgraph.Unknown}
		}),
		"beats": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			for range 10 {
				select {
				case <-ctx.Done():
					return workgraph.Outcome{}, ctx.Err()
				case <-time.After(10 * time.Millisecond):
					c.Heartbeat()
					alive.Add(1)
				}
			}
			return text("alive"), nil
		}),
	}, func(c *engine.Config, _ *engine.Deps) { c.Grace = 500 * time.Millisecond })
	one := func(actor string, change func(*workgraph.Node)) *workgraph.Graph {
		g := chain(1, actor)
		g.Nodes[0].Retry.MaxAttempts = 1
		change(&g.Nodes[0])
		return g
	}
	t.Run("Timeout/EndsTheCall", func(t *testing.T) {
		row := l.wait(t, l.start(t, one("hangs", func(n *workgraph.Node) { n.Timeout = workgraph.Duration(20 * time.Millisecond) })), journal.StateFailed)
		require.Contains(t, string(row.Error), workgraph.ReasonTimeout)
	})
	t.Run("Timeout/IsTheReasonWhenTheActorGivesNone", func(t *testing.T) {
		row := l.wait(t, l.start(t, one("leaves", func(n *workgraph.Node) { n.Timeout = workgraph.Duration(20 * time.Millisecond) })), journal.StateFailed)
		require.Contains(t, string(row.Error), `"reason":"TIMEOUT"`)
		require.Contains(t, string(row.Error), "no end within 20ms")
	})
	t.Run("Timeout/AbandonsAnActorThatIgnoresItsContext", func(t *testing.T) {
		row := l.wait(t, l.start(t, one("deaf", func(n *workgraph.Node) { n.Timeout = workgraph.Duration(20 * time.Millisecond) })), journal.StateFailed)
		require.Contains(t, string(row.Error), engine.ReasonUnresponsive)
	})
	t.Run("IdleTimeout/EndsASilentCall", func(t *testing.T) {
		row := l.wait(t, l.start(t, one("hangs", func(n *workgraph.Node) { n.IdleTimeout = workgraph.Duration(20 * time.Millisecond) })), journal.StateFailed)
		require.Contains(t, string(row.Error), workgraph.ReasonIdleTimeout)
	})
	t.Run("IdleTimeout/HeartbeatsPutItOff", func(t *testing.T) {
		l.wait(t, l.start(t, one("beats", func(n *workgraph.Node) { n.IdleTimeout = workgraph.Duration(5 * time.Second) })), journal.StateCompleted)
		require.Equal(t, int64(10), alive.Load())
	})
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	t.Run("Key/CallsNeverOverlap", func(t *testing.T) {
		t.Parallel()
		var now, most, calls atomic.Int64
		l := run(t, sqliteStore(t), actors{"once": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			calls.Add(1)
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			time.Sleep(time.Millisecond) //nolint:forbidigo // the overlap that must not happen needs some time
			return text("x"), nil
		})})
		g := &workgraph.Graph{}
		for i := range 10 {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "once", ConcurrencyKey: "'shared'"})
		}
		a, b := l.start(t, g), l.start(t, g)
		l.wait(t, a, journal.StateCompleted)
		l.wait(t, b, journal.StateCompleted)
		require.Equal(t, int64(1), most.Load())
		require.Equal(t, int64(20), calls.Load())
	})
	t.Run("Parallel/IsBoundedAndFair", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l := run(t, sqliteStore(t), actors{"gate": g}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 2 })
		wide := &workgraph.Graph{}
		for i := range 50 {
			wide.Nodes = append(wide.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "gate"})
		}
		big := l.start(t, wide)
		g.next(t)
		g.next(t)
		small := l.start(t, chain(1, "gate"))
		require.Empty(t, g.called)
		// One call at a time ends, so that only the queue decides which call gets its place.
		turn := 0
		for begun := false; !begun; turn++ {
			// more than one, since the small run may be queued late
			require.Less(t, turn, 25, "the small run waits for the big one")
			g.open <- struct{}{}
			begun = g.next(t).RunID == small
		}
		close(g.open)
		l.wait(t, small, journal.StateCompleted)
		l.wait(t, big, journal.StateCompleted)
	})
}

// TestTime runs on fake time: hours pass in milliseconds.
func TestTime(t *testing.T) {
	t.Run("Backoff/WaitsAndTriesAgain", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var tries atomic.Int64
			l := run(t, sqliteStore(t), actors{"flaky": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				if tries.Add(1) < 3 {
					return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "BUSY", "later")
				}
				return text("at last"), nil
			})}, func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = time.Hour })
			g := chain(1, "flaky")
			g.Nodes[0].Retry = workgraph.Retry{MaxAttempts: 5, InitialBackoff: workgraph.Duration(10 * time.Second), Jitter: -1}
			begin := time.Now()
			row := waitBubble(t, l, l.start(t, g), journal.StateCompleted)
			require.GreaterOrEqual(t, row.EndTime.Sub(begin), 30*time.Second)
			require.Less(t, row.EndTime.Sub(begin), 32*time.Second)
			l.stop()
		})
	})
	t.Run("Sleep/LeavesMemoryAndComesBack", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rec := &recorder{}
			a := actors{"ok": rec, "sleep": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				o := text("slept")
				o.Wait = &workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(time.Minute)}}
				return o, nil
			})}
			s := sqliteStore(t)
			slow := func(c *engine.Config, _ *engine.Deps) { c.ScanInterval, c.Lease = 10*time.Second, 80*time.Second }
			l := run(t, s, a, slow)
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "s", Actor: "sleep"}, {ID: "b", Actor: "ok"}}, Edges: []workgraph.Edge{{From: "s", To: "b"}}}
			begin := time.Now()
			id := l.start(t, g)
			row := waitBubble(t, l, id, journal.StateWaiting)
			require.Equal(t, time.Minute, row.WakeTime.Sub(begin).Round(time.Minute))
			time.Sleep(50 * time.Second) //nolint:forbidigo // fake time
			l.stop()
			l = run(t, s, a, slow)
			l.jobs(t)
			row = waitBubble(t, l, id, journal.StateCompleted)
			require.Equal(t, time.Minute, row.EndTime.Sub(begin).Round(time.Minute))
			require.Equal(t, 1, rec.of("b"))
			l.stop()
		})
	})
}

func waitBubble(t *testing.T, l *live, id string, want journal.State) journal.Run {
	for range 10_000 {
		if row := l.row(t, id); row.State == want {
			return row
		}
		time.Sleep(time.Second) //nolint:forbidigo // fake time
	}
	t.Fatalf("run %s is %v", id, l.row(t, id).State)
	return journal.Run{}
}

// notebook is an engine.Watcher that records events.
type notebook struct {
	mu    sync.Mutex
	seqs  []int64
	eph   []feed.Ephemeral
	alive int
	stop  int64 // refuses events after this sequence
}

var errEnough = errors.New("enough")

func (n *notebook) Event(ev feed.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ev.Ephemeral != nil {
		n.eph = append(n.eph, *ev.Ephemeral)
		return nil
	}
	if n.stop > 0 && ev.Durable.Seq > n.stop {
		return errEnough
	}
	n.seqs = append(n.seqs, ev.Durable.Seq)
	return nil
}

func (n *notebook) KeepAlive(int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.alive++
	return nil
}

func TestWatch(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g := newGate()
		l := run(t, s, actors{"ok": &recorder{}, "gate": g, "talks": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
			actor.ReporterOf(ctx).Text("hel")
			actor.ReporterOf(ctx).Progress(json.RawMessage(`0.5`))
			return text("hello"), nil
		})}, func(c *engine.Config, _ *engine.Deps) { c.KeepAlive = 30 * time.Millisecond })
		dense := func(t *testing.T, n *notebook, last int64) {
			t.Helper()
			for i, seq := range n.seqs {
				require.Equal(t, n.seqs[0]+int64(i), seq)
			}
			require.Equal(t, last, n.seqs[len(n.seqs)-1])
		}
		t.Run("Live/NoGapNoRepeat", func(t *testing.T) {
			graph := chain(50, "ok")
			graph.Nodes[0].Actor, graph.Nodes[1].Actor = "gate", "talks"
			id := l.start(t, graph)
			g.next(t)
			books := make([]*notebook, 8)
			var wg sync.WaitGroup
			for i := range books {
				books[i] = &notebook{}
				wg.Go(func() {
					require.NoError(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id, Descendants: i%2 == 0, DurableOnly: i == 7}, books[i]))
				})
			}
			testkit.Eventually(t, func() bool {
				books[0].mu.Lock()
				defer books[0].mu.Unlock()
				return books[0].alive > 0
			})
			close(g.open)
			wg.Wait()
			for _, b := range books {
				require.Equal(t, int64(1), b.seqs[0])
				dense(t, b, l.row(t, id).LastSeq)
			}
			require.NotEmpty(t, books[0].eph)
			require.Empty(t, books[7].eph)
			said := ""
			for _, e := range books[0].eph {
				said += e.Text
			}
			require.Equal(t, "hel", said)
		})
		t.Run("Broken/ResumesByTheCursor", func(t *testing.T) {
			id := l.start(t, chain(30, "ok"))
			part := &notebook{stop: 7}
			require.ErrorIs(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id}, part), errEnough)
			rest := &notebook{}
			require.NoError(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id, After: 7}, rest))
			require.Equal(t, int64(8), rest.seqs[0])
			dense(t, rest, l.row(t, id).LastSeq)
			none := &notebook{}
			require.NoError(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id, After: l.row(t, id).LastSeq}, none))
			require.Empty(t, none.seqs)
		})
		t.Run("OtherReplica/SeesTheRunToo", func(t *testing.T) {
			other := run(t, s, actors{"ok": &recorder{}}, func(c *engine.Config, _ *engine.Deps) { c.ID = "other" })
			id := l.start(t, chain(10, "ok"))
			n := &notebook{}
			require.NoError(t, other.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id}, n))
			dense(t, n, l.row(t, id).LastSeq)
			other.stop()
		})
		t.Run("Namespace/IsAWall", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"))
			require.Error(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: "other", RunID: id}, &notebook{}))
		})
	})
}

func TestVisits(t *testing.T) {
	t.Parallel()
	l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "gate": newGate()})
	t.Run("Pages/HaveAllOnceInOrder", func(t *testing.T) {
		id := l.start(t, chain(23, "ok"))
		l.wait(t, id, journal.StateCompleted)
		var got []string
		token := ""
		for {
			visits, next, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Size: 5, Token: token})
			require.NoError(t, err)
			for _, v := range visits {
				require.Equal(t, workgraph.VisitCompleted, v.Status)
				require.Equal(t, 1, v.Attempts)
				require.False(t, v.Start.IsZero())
				got = append(got, v.Node)
			}
			if next == "" {
				break
			}
			token = next
		}
		require.Len(t, got, 23)
		for i, n := range got {
			require.Equal(t, fmt.Sprintf("n%d", i), n)
		}
	})
	t.Run("Running/ComeLast", func(t *testing.T) {
		g := diamond("ok")
		g.Nodes[1].Actor = "gate"
		id := l.start(t, g)
		testkit.Eventually(t, func() bool {
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			return len(visits) == 3 && visits[2].Node == "b" && visits[2].Status == workgraph.VisitRunning && visits[2].Attempts == 1
		})
	})
	t.Run("States/Differ", func(t *testing.T) {
		a := actors{"ok": &recorder{}, "gate": newGate(), "fails": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "BUSY", "later")
		}), "abstains": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Stop: workgraph.AbstainResult}, nil
		}), "sleeps": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Wait: &workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(time.Hour)}}}, nil
		})}
		l := run(t, sqliteStore(t), a)
		once := workgraph.Retry{MaxAttempts: 1}
		slow := workgraph.Retry{MaxAttempts: 2, InitialBackoff: workgraph.Duration(time.Hour), MaxBackoff: workgraph.Duration(time.Hour)}
		g := &workgraph.Graph{
			Nodes: []workgraph.Node{{ID: "ok", Actor: "ok"}, {ID: "skipped", Actor: "ok", When: "false"},
				{ID: "failed", Actor: "fails", Retry: once, OnError: workgraph.OnError{Action: workgraph.Continue}},
				{ID: "fallback", Actor: "fails", Retry: once, OnError: workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage(`7`)}},
				{ID: "backoff", Actor: "fails", Retry: slow}, {ID: "abstained", Actor: "abstains"}, {ID: "running", Actor: "gate"}, {ID: "waiting", Actor: "sleeps"},
				{ID: "dead", Actor: "ok"}},
			Edges: []workgraph.Edge{{From: "failed", To: "dead"}},
		}
		id := l.start(t, g)
		states := func() map[string]workgraph.VisitStatus {
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			out := map[string]workgraph.VisitStatus{}
			for _, v := range visits {
				out[v.Node] = v.Status
			}
			return out
		}
		want := map[string]workgraph.VisitStatus{"ok": workgraph.VisitCompleted, "skipped": workgraph.VisitSkipped, "failed": workgraph.VisitFailed,
			"fallback": workgraph.VisitCompleted, "backoff": workgraph.VisitBackoff, "abstained": workgraph.VisitAbstained, "running": workgraph.VisitRunning,
			"waiting": workgraph.VisitWaiting, "dead": workgraph.VisitSkipped}
		testkit.Eventually(t, func() bool { return maps.Equal(want, states()) }, "got %v", states())
		// The row may be a little behind.
		testkit.Eventually(t, func() bool {
			return l.row(t, id).Nodes == journal.NodeCounts{Total: 9, Completed: 3, Failed: 1, Skipped: 2, Running: 3}
		})
		posted, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Reason: "now", Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandCancel, Body: []byte(`{"reason":"now"}`), Time: dbkit.Now()}})
		l.ApplySoon(posted)
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
		for _, n := range []string{"backoff", "running", "waiting"} {
			require.Equal(t, workgraph.VisitCanceled, states()[n], n)
		}
	})
	t.Run("Skipped/SaysWhy", func(t *testing.T) {
		g := &workgraph.Graph{
			Nodes: []workgraph.Node{{ID: "a", Actor: "ok"}, {ID: "false", Actor: "ok", When: "1 > 2"}, {ID: "misses", Actor: "ok", When: "size(input.named.rows) > 0"},
				{ID: "below", Actor: "ok"}, {ID: "edge", Actor: "ok"}},
			Edges: []workgraph.Edge{{From: "false", To: "below"}, {From: "a", To: "edge", When: "input.named.rows"}},
		}
		id := l.start(t, g)
		l.wait(t, id, journal.StateCompleted)
		visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		why := map[string]string{}
		for _, v := range visits {
			why[v.Node] = v.SkipReason + " " + v.SkipMessage
		}
		require.Equal(t, map[string]string{"a": " ", "false": "CONDITION_FALSE ", "misses": "KEY_MISSING no such key: rows", "below": "NO_LIVE_INPUT ",
			"edge": "NO_LIVE_INPUT the edge from a: no such key: rows"}, why)
	})
	t.Run("Map/CountsItems", func(t *testing.T) {
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "m", Actor: "ok", Map: &workgraph.Map{Over: "[1,2,3]"}}}}
		id := l.start(t, g)
		l.wait(t, id, journal.StateCompleted)
		visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Node: "m"})
		require.NoError(t, err)
		require.Equal(t, 3, visits[0].ItemsTotal)
		require.Equal(t, 3, visits[0].ItemsDone)
		require.Equal(t, 3, visits[0].Attempts)
	})
}

// TestVisitOfWaitingItems compares what a mapped visit shows with the state of its items.
func TestVisitOfWaitingItems(t *testing.T) {
	t.Parallel()
	l := run(t, sqliteStore(t), payments(&recorder{}))
	n := does("m", "asks")
	n.Map = &workgraph.Map{Over: "[1,2,3]", MaxParallel: 2}
	id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{n}})
	visit := func() query.Visit {
		visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		require.Len(t, visits, 1)
		return visits[0]
	}
	for done := range 3 {
		waiting := min(2, 3-done)
		testkit.Eventually(t, func() bool { return visit().ItemsWaiting == waiting && visit().ItemsDone == done })
		l.wait(t, id, journal.StateWaiting)
		require.Equal(t, workgraph.VisitWaiting, visit().Status)
		open, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id, States: []journal.InterruptState{journal.InterruptOpen}}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Len(t, open, waiting)
		l.approve(t, open[0])
	}
	l.wait(t, id, journal.StateCompleted)
	require.Zero(t, visit().ItemsWaiting)
}

// TestLarge covers what shows only with many visits.
func TestLarge(t *testing.T) {
	t.Parallel()
	t.Run("Snapshot/SpeedsUpARestartInTheMiddle", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		graph := chain(400, "ok")
		graph.Nodes[300].Actor = "gate"
		g, rec := newGate(), &recorder{}
		first := run(t, s, actors{"ok": rec, "gate": g}, func(c *engine.Config, _ *engine.Deps) { c.SnapshotEvery = 64 })
		id := first.start(t, graph)
		g.next(t)
		loaded, err := first.j.Load(t.Context(), id)
		require.NoError(t, err)
		require.NotEmpty(t, loaded.Snapshot)
		// Snapshots become rarer, but most of the journal is before the last one.
		require.Less(t, int64(len(loaded.Events)), loaded.Run.LastSeq/2)
		first.stop()
		g2, rec2 := newGate(), &recorder{}
		close(g2.open)
		second := run(t, s, actors{"ok": rec2, "gate": g2})
		row := second.wait(t, id, journal.StateCompleted)
		require.Equal(t, journal.NodeCounts{Total: 400, Completed: 400}, row.Nodes)
		require.Zero(t, rec2.of("n299"))
		require.Equal(t, 1, rec2.of("n301"))
		second.events(t, id)
	})
	t.Run("Map/UnwritableListFailsTheVisit", func(t *testing.T) {
		t.Parallel()
		l := run(t, sqliteStore(t), actors{"big": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Values: []json.RawMessage{quoted(900)}}, nil
		})}, func(c *engine.Config, _ *engine.Deps) { c.MaxPayload, c.MaxGraphBytes = 1000, 5000 })
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "m", Actor: "big", Map: &workgraph.Map{Over: "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"}}}}
		row := l.wait(t, l.start(t, g), journal.StateFailed, journal.StateCanceled)
		require.Equal(t, journal.StateFailed, row.State)
		require.Contains(t, string(row.Error), journal.ReasonPayloadTooLarge)
	})
	t.Run("Results/OfOneRunAreBoundedTogether", func(t *testing.T) {
		t.Parallel()
		s := sqliteStore(t)
		big := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Values: []json.RawMessage{quoted(1000)}}, nil
		})
		small := func(c *engine.Config, _ *engine.Deps) { c.MaxRunBytes = 10_000 }
		graph := chain(20, "big")
		graph.Nodes[7].Actor = "gate"
		g := newGate()
		first := run(t, s, actors{"big": big, "gate": g}, small)
		id := first.start(t, graph)
		g.next(t)
		first.stop() // the count survives a restart
		g2 := newGate()
		close(g2.open)
		second := run(t, s, actors{"big": big, "gate": g2}, small)
		row := second.wait(t, id, journal.StateFailed)
		var e record.RunError
		require.NoError(t, json.Unmarshal(row.Error, &e))
		require.Equal(t, engine.ReasonRunTooLarge, e.Reason)
		require.Equal(t, "n10", e.Node)
	})
	t.Run("Outputs/TooLargeTogetherStillEndTheRun", func(t *testing.T) {
		t.Parallel()
		big := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Values: []json.RawMessage{quoted(900)}, Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 7}}}, nil
		})
		for name, policy := range map[string]workgraph.ErrorAction{"fail": workgraph.Fail, "continue": workgraph.Continue} {
			l := run(t, sqliteStore(t), actors{"big": big}, func(c *engine.Config, _ *engine.Deps) { c.MaxPayload, c.MaxGraphBytes = 1000, 5000 })
			g := &workgraph.Graph{}
			for i := range 20 {
				g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: "big", OnError: workgraph.OnError{Action: policy}})
			}
			row := l.wait(t, l.start(t, g), journal.StateFailed, journal.StateCanceled)
			evs := l.events(t, row.ID)
			require.Equal(t, workgraph.RunEnded, evs[len(evs)-1].Durable.Kind, name)
			require.Contains(t, evs[len(evs)-1].Durable.End.Message, "left out", name)
			require.EqualValues(t, 20*7, row.Usage.InputTokens, "%s: what was used is counted once", name)
			var seen int
			for token := ""; ; {
				visits, next, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: row.Namespace, RunID: row.ID, Size: 7, Token: token})
				require.NoError(t, err)
				seen += len(visits)
				if token = next; token == "" {
					break
				}
			}
			require.Equal(t, 20, seen, name)
		}
	})
}
