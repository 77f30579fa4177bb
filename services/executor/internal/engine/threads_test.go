package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// appends is an actor whose outcome adds to threads what of says.
func appends(of func(c *workgraph.Call) []workgraph.ThreadAppend) workgraph.Actor {
	return workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		out := text("said")
		out.Threads = of(c)
		return out, nil
	})
}

// says adds one message after a sequence.
func says(id string, after int64, body string) workgraph.ThreadAppend {
	return workgraph.ThreadAppend{Thread: id, After: after, Items: []workgraph.ThreadItem{{Kind: workgraph.ThreadMessage, Body: json.RawMessage(body)}}}
}

func (l *live) thread(t testing.TB) string {
	t.Helper()
	th, err := l.j.CreateThread(t.Context(), thread.Create{Thread: thread.Thread{ID: ids.New(thread.IDPrefix), Namespace: ns, Lifetime: workgraph.ThreadConversation, CreateTime: dbkit.Now()}})
	require.NoError(t, err)
	return th.ID
}

// items are those of a thread, oldest first, as "sequence node body".
func (l *live) items(t testing.TB, id string) (out []string) {
	t.Helper()
	its, err := l.j.SegmentItems(t.Context(), ns, thread.Segment{Thread: id, First: 1, Last: 100}, thread.Selection{Limit: 100, Body: true, Origin: true})
	require.NoError(t, err)
	for _, it := range its {
		out = append([]string{fmt.Sprintf("%d %s %s", it.Seq, it.NodeID, it.Body)}, out...)
	}
	return out
}

func threadOf(c *workgraph.Call) string {
	var id string
	_ = json.Unmarshal(c.Named["thread"], &id)
	return id
}

func on(id string) func(*command.StartRequest) {
	return func(r *command.StartRequest) {
		r.Input.Named = map[string]json.RawMessage{"thread": json.RawMessage(fmt.Sprintf("%q", id))}
	}
}

func failure(t testing.TB, row journal.Run) record.RunError {
	t.Helper()
	var e record.RunError
	require.NoError(t, json.Unmarshal(row.Error, &e))
	return e
}

func TestThreads(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var tries atomic.Int64
		l := run(t, s, actors{
			"says": appends(func(c *workgraph.Call) []workgraph.ThreadAppend {
				var n int64
				_, _ = fmt.Sscanf(c.Node, "n%d", &n)
				return []workgraph.ThreadAppend{says(threadOf(c), n, `"hi"`)}
			}),
			"late": appends(func(c *workgraph.Call) []workgraph.ThreadAppend {
				return []workgraph.ThreadAppend{says(threadOf(c), 7, `"hi"`)}
			}),
			"retried": appends(func(c *workgraph.Call) []workgraph.ThreadAppend {
				return []workgraph.ThreadAppend{says(threadOf(c), 0, fmt.Sprintf(`"try %d"`, tries.Add(1)))}
			}),
			"huge": appends(func(c *workgraph.Call) []workgraph.ThreadAppend {
				return []workgraph.ThreadAppend{says(threadOf(c), 0, string(quoted(5<<20)))}
			}),
			"asks": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{Threads: []workgraph.ThreadAppend{says(threadOf(c), 0, `"why?"`)}, Wait: &workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}}, nil
			}),
			"mine": workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
				return text(actor.NamespaceOf(ctx)), nil
			}),
		})
		t.Run("Items/AreAppendedWithTheEndsOfAttempts", func(t *testing.T) {
			t.Parallel()
			id := l.thread(t)
			row := l.wait(t, l.start(t, chain(3, "says"), on(id)), journal.StateCompleted)
			require.Equal(t, []string{`1 n0 "hi"`, `2 n1 "hi"`, `3 n2 "hi"`}, l.items(t, id))
			l.sound(t, row.ID)
		})
		t.Run("Conflict/FailsTheAttempt", func(t *testing.T) {
			t.Parallel()
			id := l.thread(t)
			row := l.wait(t, l.start(t, chain(1, "late"), on(id)), journal.StateFailed)
			require.Equal(t, workgraph.ReasonThreadConflict, failure(t, row).Reason)
			require.Len(t, attemptsOf(l.events(t, row.ID)), 1, "it is permanent")
			row = l.wait(t, l.start(t, chain(1, "says"), on("thr_none")), journal.StateFailed)
			require.Equal(t, workgraph.ReasonThreadConflict, failure(t, row).Reason)
		})
		t.Run("Large/FailsTheAttempt", func(t *testing.T) {
			t.Parallel()
			row := l.wait(t, l.start(t, chain(1, "huge"), on(l.thread(t))), journal.StateFailed)
			require.Equal(t, thread.ReasonInvalid, failure(t, row).Reason)
		})
		t.Run("Check/OnlyTheOutcomeThatStandsCounts", func(t *testing.T) {
			t.Parallel()
			id := l.thread(t)
			g := chain(1, "retried")
			g.Nodes[0].Check = &workgraph.Check{CEL: "attempt > 1"}
			g.Nodes[0].Retry = workgraph.Retry{MaxAttempts: 3, InitialBackoff: workgraph.Duration(time.Millisecond)}
			l.wait(t, l.start(t, g, on(id)), journal.StateCompleted)
			require.Equal(t, []string{`1 n0 "try 2"`}, l.items(t, id))
		})
		t.Run("Wait/AppendsWhenItBeginsAndOnlyOnce", func(t *testing.T) {
			t.Parallel()
			id := l.thread(t)
			run := l.start(t, chain(1, "asks"), on(id))
			l.wait(t, run, journal.StateWaiting)
			require.Equal(t, []string{`1 n0 "why?"`}, l.items(t, id))
			_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: run, Signal: command.Signal{Name: "go", Payload: []byte(`1`)}})
			require.NoError(t, err)
			l.wait(t, run, journal.StateCompleted)
			require.Equal(t, []string{`1 n0 "why?"`}, l.items(t, id))
		})
		t.Run("Namespace/IsKnownToTheCall", func(t *testing.T) {
			t.Parallel()
			require.JSONEq(t, `"acme"`, string(l.wait(t, l.start(t, chain(1, "mine")), journal.StateCompleted).Result))
		})
	})
}

// torn is a journal whose commits of items for threads go as commit says.
type torn struct {
	journal.Journal
	commit func(ctx context.Context, do func(context.Context) ([]journal.Result, error)) ([]journal.Result, error)
}

func (j torn) Commit(ctx context.Context, owner journal.Owner, writes []journal.Write) ([]journal.Result, error) {
	do := func(ctx context.Context) ([]journal.Result, error) { return j.Journal.Commit(ctx, owner, writes) }
	for _, w := range writes {
		if w.Append != nil && len(w.Append.Threads) > 0 {
			return j.commit(ctx, do)
		}
	}
	return do(ctx)
}

func tears(commit func(ctx context.Context, do func(context.Context) ([]journal.Result, error)) ([]journal.Result, error)) option {
	return func(_ *engine.Config, d *engine.Deps) { d.Journal = torn{d.Journal, commit} }
}

func TestThreadsOverCrashes(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var calls atomic.Int64
		a := actors{"says": appends(func(c *workgraph.Call) []workgraph.ThreadAppend {
			calls.Add(1)
			return []workgraph.ThreadAppend{says(threadOf(c), 0, `"hi"`)}
		}), "ok": &recorder{}}
		t.Run("Commit/WhoseAnswerIsLostIsRepeated", func(t *testing.T) {
			var lost atomic.Int64
			l := run(t, s, a, tears(func(ctx context.Context, do func(context.Context) ([]journal.Result, error)) ([]journal.Result, error) {
				res, err := do(ctx)
				if err == nil && lost.Add(1) <= 2 {
					return nil, errors.New("the connection broke")
				}
				return res, err
			}))
			id := l.thread(t)
			g := chain(2, "says")
			g.Nodes[1].Actor = "ok" // it is called once the answer has come
			l.wait(t, l.start(t, g, on(id)), journal.StateCompleted)
			require.EqualValues(t, 3, lost.Load())
			require.Equal(t, []string{`1 n0 "hi"`}, l.items(t, id))
			l.stop()
		})
		t.Run("Owner/ThatDiesBeforeTheCommit", func(t *testing.T) {
			calls.Store(0)
			tried := make(chan struct{}, 100)
			l := run(t, s, a, tears(func(context.Context, func(context.Context) ([]journal.Result, error)) ([]journal.Result, error) {
				select {
				case tried <- struct{}{}:
				default:
				}
				return nil, errors.New("the database is away")
			}), func(c *engine.Config, _ *engine.Deps) { c.Drain, c.Grace = 10*time.Millisecond, 10*time.Millisecond })
			id := l.thread(t)
			run1 := l.start(t, chain(1, "says"), on(id))
			<-tried
			l.stop()
			l = run(t, s, a)
			l.wait(t, run1, journal.StateCompleted)
			require.EqualValues(t, 2, calls.Load())
			require.Equal(t, []string{`1 n0 "hi"`}, l.items(t, id))
			l.stop()
		})
		t.Run("Conflict/ThatOnlyTheCommitSeesFailsTheAttempt", func(t *testing.T) {
			calls.Store(0)
			var id string
			var once atomic.Bool
			l := run(t, s, a, func(_ *engine.Config, d *engine.Deps) {
				rows := d.Journal
				d.Journal = torn{rows, func(ctx context.Context, do func(context.Context) ([]journal.Result, error)) ([]journal.Result, error) {
					if once.CompareAndSwap(false, true) {
						// Another owner appends in the last moment.
						other, err := rows.Register(ctx, "other", "")
						if err != nil {
							return nil, err
						}
						w := journal.Write{Start: &journal.Start{Run: journal.Run{ID: ids.New("run"), Namespace: ns, GraphHash: "h", CreateTime: dbkit.Now(),
							Status: journal.Status{State: journal.StateCompleted}}, Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 1, Time: dbkit.Now()}},
							Threads: thread.Appends([]workgraph.ThreadAppend{says(id, 0, `"first"`)}, "", "", 0, dbkit.Now())}}}
						if _, err := rows.Commit(ctx, other, []journal.Write{w}); err != nil {
							return nil, err
						}
					}
					return do(ctx)
				}}
			})
			id = l.thread(t)
			row := l.wait(t, l.start(t, chain(1, "says"), on(id)), journal.StateFailed)
			require.Equal(t, workgraph.ReasonThreadConflict, failure(t, row).Reason)
			require.EqualValues(t, 2, calls.Load(), "the run is read again, and the second call's conflict is seen before the commit")
			require.Equal(t, []string{`1  "first"`}, l.items(t, id))
		})
	})
}
