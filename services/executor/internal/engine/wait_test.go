package engine_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/workgraph"
)

// outcome is an actor that returns what it is made with.
func outcome(o func(c *workgraph.Call) workgraph.Outcome) workgraph.Actor {
	return workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) { return o(c), nil })
}

func waits(w workgraph.Wait) workgraph.Actor {
	return outcome(func(*workgraph.Call) workgraph.Outcome {
		c := w
		return workgraph.Outcome{Wait: &c}
	})
}

func spawns(runs ...workgraph.Child) workgraph.Actor {
	return waits(workgraph.Wait{Children: &workgraph.Children{Runs: runs}})
}

// jobs works the journal's jobs for an engine, as its service does.
func (l *live) jobs(t testing.TB) {
	t.Helper()
	work := func(ctx context.Context, j dispatch.Job) error {
		if err := l.Work(ctx, j.Args); err != nil {
			return dispatch.Later(20 * time.Millisecond)
		}
		return nil
	}
	o := dispatch.Options{Kinds: []dispatch.Kind{{Name: journal.JobWake, Handle: work}, {Name: journal.JobStart, Handle: work}}}
	var d *dispatch.Dispatcher
	var err error
	switch j := l.j.(type) {
	case *pg.Store:
		o.Schema = pg.Schema
		d, err = dispatch.New(j.JobDriver(), o)
	case *sqlite.Store:
		d, err = dispatch.New(j.JobDriver(), o)
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.Run(ctx)
	}()
	stop := l.stop
	l.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		stop()
	})
	t.Cleanup(l.stop)
}

// evicted waits until a run has no owner.
func (l *live) evicted(t testing.TB, id string, want journal.State) journal.Run {
	t.Helper()
	var row journal.Run
	testkit.Eventually(t, func() bool {
		row = l.row(t, id)
		return row.State == want && row.Owner.IsZero()
	}, "run %s", id)
	return row
}

func (l *live) commands(t testing.TB, id string, kind journal.CommandKind, payload record.Payload) {
	t.Helper()
	body, err := payload.Encode()
	require.NoError(t, err)
	p, err := l.j.Enqueue(t.Context(), journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: kind, Key: ids.New("req"), Body: body, Time: dbkit.Now()}})
	if errs.ReasonOf(err) == journal.ReasonRunEnded {
		return // an earlier message was quicker
	}
	require.NoError(t, err)
	l.ApplySoon(p)
}

func named(id string) option {
	return func(c *engine.Config, _ *engine.Deps) { c.ID = id }
}

func TestWaits(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		a := actors{
			"ok":     &recorder{},
			"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"ask":    waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"Go?"`)}}),
			"task":   waits(workgraph.Wait{Completion: &workgraph.CompletionWait{}}),
			"badask": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"x"`), Schema: json.RawMessage(`{"type": 7}`)}}),
			"expire": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"x"`), Timeout: workgraph.Duration(200 * time.Millisecond), Default: json.RawMessage(`"late"`)}}),
			"sleep":  waits(workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(400 * time.Millisecond)}}),
		}
		short := func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 50 * time.Millisecond }
		l := run(t, s, a, short)
		l.jobs(t)
		other := run(t, s, a, short, named("other"))
		then := func(actor string) *workgraph.Graph {
			g := chain(2, "ok")
			g.Nodes[0].Actor = actor
			g.Nodes[0].PassDown = workgraph.PassDown{Mode: workgraph.ResultAsFirstArg}
			return g
		}
		t.Run("Signal/WakesAnEvictedRunHereAndElsewhere", func(t *testing.T) {
			for _, from := range []*live{l, other} {
				id := l.start(t, then("signal"))
				l.evicted(t, id, journal.StateWaiting)
				from.commands(t, id, journal.CommandSignal, record.Payload{Name: "go", Payload: json.RawMessage(`7`)})
				row := l.wait(t, id, journal.StateCompleted)
				evs := l.events(t, id)
				require.Len(t, kinds(evs, workgraph.SignalReceived), 1, "%s", story(evs))
				require.Equal(t, int64(len(evs)), row.LastSeq)
				unread, err := l.j.UnappliedCommands(t.Context(), ns, id, 10)
				require.NoError(t, err)
				require.Empty(t, unread)
			}
		})
		t.Run("Interrupt/IsARowAndAnsweredOnce", func(t *testing.T) {
			id := l.start(t, then("ask"))
			l.evicted(t, id, journal.StateWaiting)
			open, err := l.j.Outstanding(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, 1, open.Interrupts)
			q := kinds(l.events(t, id), workgraph.AttemptEnded)[0].Outcome.Wait.Interrupt
			_, ok := ids.Time(engine.InterruptPrefix, q.ID)
			require.True(t, ok, q.ID)
			for range 2 {
				l.commands(t, id, journal.CommandAnswer, record.Payload{InterruptID: q.ID, Payload: json.RawMessage(`"yes"`), By: "ada"})
			}
			l.wait(t, id, journal.StateCompleted)
			closed := kinds(l.events(t, id), workgraph.InterruptClosed)
			require.Len(t, closed, 1)
			require.Equal(t, "ada", closed[0].By)
			open, err = l.j.Outstanding(t.Context(), ns, id)
			require.NoError(t, err)
			require.Zero(t, open.Interrupts)
		})
		t.Run("Interrupt/ExpiresWithoutAnOwner", func(t *testing.T) {
			id := l.start(t, chain(1, "expire"))
			require.JSONEq(t, `"late"`, string(l.wait(t, id, journal.StateCompleted).Result))
		})
		t.Run("Interrupt/ASchemaThatIsNone", func(t *testing.T) {
			id := l.start(t, chain(1, "badask"))
			require.Contains(t, string(l.wait(t, id, journal.StateFailed).Error), engine.ReasonInterruptInvalid)
		})
		t.Run("Task/IsCompletedByItsAttempt", func(t *testing.T) {
			id := l.start(t, then("task"))
			l.evicted(t, id, journal.StateWaiting)
			end := record.Payload{Ref: workgraph.Ref{Node: "n0", Visit: 1}, Attempt: 2, Outcome: &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}}}
			other.commands(t, id, journal.CommandCompletion, end) // of an attempt that does not exist
			end.Attempt = 1
			other.commands(t, id, journal.CommandCompletion, end)
			l.wait(t, id, journal.StateCompleted)
			require.Len(t, kinds(l.events(t, id), workgraph.CompletionReceived), 1)
		})
		t.Run("Timer/GoesOnAtItsInstant", func(t *testing.T) {
			id := l.start(t, then("sleep"))
			l.wait(t, id, journal.StateCompleted)
			evs := l.events(t, id)
			fired, began := kinds(evs, workgraph.TimerFired)[0].At, attemptsOf(evs)[0].At
			require.GreaterOrEqual(t, fired.Sub(began), 400*time.Millisecond)
		})
		t.Run("Pause/AndResume", func(t *testing.T) {
			id := l.start(t, then("signal"))
			l.evicted(t, id, journal.StateWaiting)
			other.commands(t, id, journal.CommandPause, record.Payload{Reason: "lunch"})
			require.Equal(t, "lunch", l.evicted(t, id, journal.StatePaused).Reason)
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "go"})
			require.NoError(t, other.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Cancel/EndsAnEvictedRun", func(t *testing.T) {
			id := l.start(t, then("ask"))
			l.evicted(t, id, journal.StateWaiting)
			_, err := other.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
			require.NoError(t, err)
			require.Equal(t, "enough", l.wait(t, id, journal.StateCanceled).CancelReason)
			open, err := l.j.Outstanding(t.Context(), ns, id)
			require.NoError(t, err)
			require.Zero(t, open.Interrupts)
		})
	})
}

func TestChildren(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		g, rec := newGate(), &recorder{}
		a := actors{"ok": rec, "gate": g, "bad": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO", "it does not work")
		})}
		a["two"] = spawns(workgraph.Child{Graph: chain(2, "ok")}, workgraph.Child{Graph: chain(1, "bad")})
		a["self"] = spawns(workgraph.Child{Ref: "self"})
		a["faulty"] = spawns(workgraph.Child{Graph: chain(1, "nobody")}, workgraph.Child{Graph: &workgraph.Graph{}})
		a["many"] = outcome(func(*workgraph.Call) workgraph.Outcome {
			return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: make([]workgraph.Child, 1001)}}}
		})
		a["flow"] = spawns(workgraph.Child{Ref: "workflow/triage@3"})
		a["hold"] = spawns(workgraph.Child{Graph: chain(1, "gate")})
		l := run(t, s, a)
		l.jobs(t)
		children := func(t *testing.T, id string) []journal.Descendant {
			t.Helper()
			below, err := l.j.Descendants(t.Context(), ns, id)
			require.NoError(t, err)
			return below
		}
		t.Run("Spawn/SlotsInTheOrderAsked", func(t *testing.T) {
			id := l.start(t, chain(1, "two"))
			row := l.wait(t, id, journal.StateCompleted)
			var slots []workgraph.ChildSlot
			require.NoError(t, json.Unmarshal(row.Result, &slots))
			require.Len(t, slots, 2)
			require.Equal(t, workgraph.StatusCompleted, slots[0].Status)
			require.JSONEq(t, `"done n1"`, string(slots[0].Result))
			require.Equal(t, workgraph.StatusFailed, slots[1].Status)
			require.Equal(t, "NO", slots[1].Error.Reason)
			child := l.row(t, slots[0].RunID)
			require.Equal(t, id, child.ParentID)
			require.Equal(t, id, child.RootID)
			require.Len(t, children(t, id), 2)
		})
		t.Run("Depth/IsBounded", func(t *testing.T) {
			id := l.start(t, chain(1, "self"))
			l.wait(t, id, journal.StateCompleted)
			below := children(t, id)
			require.Len(t, below, 3)
			require.Contains(t, string(l.row(t, below[2].RunID).Error), engine.ReasonDepthExceeded)
		})
		t.Run("Fault/NamesEverything", func(t *testing.T) {
			row := l.wait(t, l.start(t, chain(1, "faulty")), journal.StateFailed)
			require.Contains(t, string(row.Error), engine.ReasonChildInvalid)
			require.Contains(t, string(row.Error), "child 1")
			require.Contains(t, string(row.Error), "child 2")
		})
		t.Run("FanOut/IsBounded", func(t *testing.T) {
			require.Contains(t, string(l.wait(t, l.start(t, chain(1, "many")), journal.StateFailed).Error), engine.ReasonFanOutExceeded)
		})
		t.Run("Workflow/WithoutAResolver", func(t *testing.T) {
			require.Contains(t, string(l.wait(t, l.start(t, chain(1, "flow")), journal.StateFailed).Error), engine.ReasonWorkflowNotFound)
		})
		t.Run("Cancel/ReachesChildren", func(t *testing.T) {
			id := l.start(t, chain(1, "hold"))
			g.next(t)
			child := children(t, id)[0].RunID
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
			l.wait(t, child, journal.StateCanceled)
		})
		t.Run("Watch/ReportsLateChildren", func(t *testing.T) {
			id := l.start(t, chain(1, "two"))
			seen := map[string]bool{}
			w := watcherFunc(func(ev feed.Event) error {
				if ev.Durable != nil && ev.Durable.Kind == workgraph.RunEnded {
					seen[ev.RunID] = true
				}
				return nil
			})
			require.NoError(t, l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: id, Descendants: true}, w))
			require.Len(t, seen, 3)
		})
		t.Run("Crash/ChildrenAreThereOnce", func(t *testing.T) {
			id := l.start(t, chain(1, "hold"))
			g.next(t)
			l.stop()
			next := run(t, s, a, named("next"))
			next.jobs(t)
			g.next(t) // the child continues elsewhere
			close(g.open)
			next.wait(t, id, journal.StateCompleted)
			require.Len(t, kinds(next.events(t, id), workgraph.ChildClosed), 1)
		})
	})
}

type watcherFunc func(feed.Event) error

func (f watcherFunc) Event(ev feed.Event) error { return f(ev) }
func (f watcherFunc) KeepAlive(int64) error     { return nil }

func TestPending(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		a := actors{"ok": &recorder{}, "gate": newGate(), "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}
		l := run(t, s, a)
		l.jobs(t)
		t.Run("StartTime/BeginsThen", func(t *testing.T) {
			at := time.Now().Add(300 * time.Millisecond)
			id := l.start(t, chain(1, "ok"), func(r *command.StartRequest) {
				r.StartTime, r.Input = at, workgraph.Input{Args: []json.RawMessage{json.RawMessage(`1`)}}
			})
			require.Equal(t, journal.StatePending, l.row(t, id).State)
			l.wait(t, id, journal.StateCompleted)
			first := l.events(t, id)[0].Durable
			require.False(t, first.At.Before(at.Truncate(time.Millisecond).Add(-2*time.Millisecond)), "%s before %s", first.At, at)
			require.Equal(t, `1`, string(first.Input.Args[0]))
		})
		t.Run("Cancel/NeverBegins", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"), func(r *command.StartRequest) { r.StartTime = time.Now().Add(time.Hour) })
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
			require.Empty(t, attemptsOf(l.events(t, id)))
		})
		t.Run("Backlog/BeginsWithoutATime", func(t *testing.T) {
			id := l.start(t, chain(2, "ok"), func(r *command.StartRequest) { r.Pending = true })
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Deadline/EndsARun", func(t *testing.T) {
			for _, actor := range []string{"signal", "gate"} {
				id := l.start(t, chain(1, actor), func(r *command.StartRequest) { r.Timeout = 300 * time.Millisecond })
				row := l.wait(t, id, journal.StateFailed)
				require.Equal(t, workgraph.ReasonDeadline, row.Reason)
			}
		})
		t.Run("SignalWithStart/EitherWay", func(t *testing.T) {
			req := command.StartRequest{Namespace: ns, Graph: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "signal"}, {ID: "b", Actor: "signal"}},
				Edges: []workgraph.Edge{{From: "a", To: "b"}}}, BusinessKey: "k"}
			first, created, err := l.SignalWithStart(t.Context(), req, command.Signal{Name: "go"})
			require.NoError(t, err)
			require.True(t, created)
			second, created, err := l.SignalWithStart(t.Context(), req, command.Signal{Name: "go"})
			require.NoError(t, err)
			require.False(t, created)
			require.Equal(t, first, second)
			l.wait(t, first, journal.StateCompleted)
			require.Len(t, kinds(l.events(t, first), workgraph.SignalReceived), 2)
		})
	})
}

func TestDetails(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		seen := make(chan string, 10)
		a := actors{"beats": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			seen <- string(c.Details)
			switch {
			case c.Attempt == 1 && c.Details == nil:
				c.Heartbeat(json.RawMessage(`{"at":5}`))
				<-ctx.Done() // until its executor stops
				return workgraph.Outcome{}, ctx.Err()
			case c.Attempt == 1:
				c.Heartbeat(json.RawMessage(`{"at":7}`))
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Retryable, "BUSY", "once more")
			}
			return text("done"), nil
		})}
		g := chain(1, "beats")
		g.Nodes[0].Effect = workgraph.Idempotent
		g.Nodes[0].Retry = workgraph.Retry{MaxAttempts: 3, InitialBackoff: workgraph.Duration(time.Millisecond)}
		l := run(t, s, a)
		id := l.start(t, g)
		require.Empty(t, <-seen)
		testkit.Eventually(t, func() bool {
			loaded, err := l.j.Load(t.Context(), id)
			return err == nil && len(loaded.Snapshot) > 0
		})
		l.stop()
		next := run(t, s, a, named("next"))
		require.JSONEq(t, `{"at":5}`, <-seen, "the next owner's attempt")
		require.JSONEq(t, `{"at":7}`, <-seen, "the next attempt of the same owner")
		next.wait(t, id, journal.StateCompleted)
	})
}

func TestEvictedRunsHoldNothing(t *testing.T) {
	l := run(t, sqliteStore(t), actors{"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})})
	g := chain(2, "signal")
	start := func(n int) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range n / 8 {
					l.start(t, g)
				}
			})
		}
		wg.Wait()
		testkit.Eventually(t, func() bool { return l.Live() == 0 })
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	start(400)
	before, routines := heap(), runtime.NumGoroutine()
	start(1000)
	after := heap()
	grown := max(int64(after)-int64(before), 0)
	t.Logf("1,000 evicted runs: %d bytes of heap, %d goroutines more", grown, runtime.NumGoroutine()-routines)
	require.Less(t, grown, int64(512<<10))
	testkit.Eventually(t, func() bool { return runtime.NumGoroutine() <= routines+4 }, "goroutines go soon after their last work")
}

func TestBudget(t *testing.T) {
	t.Parallel()
	g := newGate()
	l := run(t, sqliteStore(t), actors{"gate": g, "ok": &recorder{}}, func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes, c.MaxWatches = 12<<10, 1 })
	l.jobs(t)
	first := l.start(t, chain(1, "gate"))
	g.next(t)
	_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "ok")})
	full := errs.From(err)
	require.Equal(t, memory.ReasonMemoryFull, full.Reason, "who starts a run can ask again")
	require.True(t, errs.Is(err, errs.ResourceExhausted))
	require.NotEmpty(t, full.Meta[errs.MetaRetryAfter])
	_, _, err = l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "nobody")})
	require.Equal(t, memory.ReasonMemoryFull, errs.ReasonOf(err), "a graph for which there is no room is not even looked at")
	second, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "ok"), Pending: true})
	require.NoError(t, err)
	require.Equal(t, journal.StatePending, l.row(t, second).State, "there is no room for it")
	queued := make(chan feed.Queued, 1)
	watching := make(chan error, 1)
	go func() {
		watching <- l.Feed().Watch(context.Background(), feed.WatchRequest{Namespace: ns, RunID: second}, watcherFunc(func(ev feed.Event) error {
			if ev.Ephemeral != nil && ev.Ephemeral.Queued != nil {
				queued <- *ev.Ephemeral.Queued
			}
			return nil
		}))
	}()
	require.Equal(t, "BACKLOG", (<-queued).Reason)
	err = l.Feed().Watch(t.Context(), feed.WatchRequest{Namespace: ns, RunID: first}, watcherFunc(func(feed.Event) error { return nil }))
	require.Equal(t, feed.ReasonTooManyWatches, errs.ReasonOf(err))
	close(g.open)
	l.wait(t, first, journal.StateCompleted)
	l.wait(t, second, journal.StateCompleted)
	require.NoError(t, <-watching)
}

// TestTimersOutliveLeases loses the lease again and again while timers run, in memory and evicted. Each fires
// once, and no run is blamed for it.
func TestTimersOutliveLeases(t *testing.T) {
	t.Parallel()
	const losses = 2 * journal.DefaultMaxTakeovers
	eachStore(t, func(t *testing.T, s store) {
		for name, evictAfter := range map[string]time.Duration{"InMemory": time.Hour, "Parked": 10 * time.Millisecond} {
			t.Run(name, func(t *testing.T) {
				l := run(t, s, actors{"sleep": outcome(func(c *workgraph.Call) workgraph.Outcome {
					var ms int
					if err := json.Unmarshal(c.Args[0], &ms); err != nil {
						panic(err)
					}
					return workgraph.Outcome{Wait: &workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(time.Duration(ms) * time.Millisecond)}}}
				}), "ok": &recorder{}}, named(name), func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = evictAfter })
				l.jobs(t)
				var ids []string
				for ms := range 20 {
					g := chain(2, "ok")
					g.Nodes[0].Actor, g.Nodes[0].Args = "sleep", []json.RawMessage{json.RawMessage(strconv.Itoa((ms + 1) * 100))}
					ids = append(ids, l.start(t, g))
				}
				for range losses {
					before := l.Owner()
					_, err := l.j.Register(t.Context(), name, "") // another executor takes the id
					require.NoError(t, err)
					testkit.Eventually(t, func() bool { o := l.Owner(); return !o.IsZero() && o.Incarnation > before.Incarnation+1 })
				}
				for _, id := range ids {
					row := l.wait(t, id, journal.StateCompleted, journal.StateQuarantined, journal.StateFailed)
					require.Equal(t, journal.StateCompleted, row.State, "%s", story(l.events(t, id)))
					require.Len(t, kinds(l.events(t, id), workgraph.TimerFired), 1)
				}
			})
		}
	})
}

// TestMemoryWake wakes more runs at once than may be in memory. Those without room wait for it, and all
// complete.
func TestMemoryWake(t *testing.T) {
	t.Parallel()
	const n = 12
	g := newGate()
	l := run(t, sqliteStore(t), actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}, func(c *engine.Config, _ *engine.Deps) { c.MaxLiveBytes, c.EvictAfter = 512<<10, 10*time.Millisecond })
	l.jobs(t)
	var ids []string
	for range n {
		chain := chain(2, "gate")
		chain.Nodes[0].Actor = "signal"
		ids = append(ids, l.start(t, chain, func(r *command.StartRequest) {
			r.Input.Args = []json.RawMessage{json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)}
		}))
		testkit.Eventually(t, func() bool { return l.Live() == 0 })
	}
	for _, id := range ids {
		_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
		require.NoError(t, err)
	}
	g.next(t)
	close(g.open)
	for _, id := range ids {
		l.wait(t, id, journal.StateCompleted)
	}
}
