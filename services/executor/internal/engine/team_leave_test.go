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
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// stuck is a member whose first calls end only when they are canceled. Later ones say what they heard.
type stuck struct {
	mu    sync.Mutex
	first int
	// heard has what each call was told.
	heard []string
}

func (m *stuck) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	m.mu.Lock()
	m.heard = append(m.heard, strings.TrimPrefix(c.Node, "speak.")+": "+string(c.Named["text"])+string(c.Named["request"]))
	stays := len(m.heard) <= m.first
	m.mu.Unlock()
	if stays {
		<-ctx.Done()
		return workgraph.Outcome{}, ctx.Err()
	}
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"done"`)}}, nil
}

func (m *stuck) calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.heard)
}

// beside are a team of two who speak at once, of this kind each, and then nobody.
func beside(member string) string {
	return fmt.Sprintf(`"team": {"members": [{"name": "a", %[1]s}, {"name": "b", %[1]s}], "start": ["a", "b"], "stop": {"max_turns": 2}}`, member)
}

const instead = "What is open?"

// TestLeave is about members of a team that are left, since the user wants something else.
func TestLeave(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, s store, own actors, named string) (l *live, id string) {
		t.Helper()
		l = run(t, s, teams(t, s, own))
		l.jobs(t)
		return l, l.start(t, teamOf(t, named))
	}
	leave := func(t *testing.T, l *live, id, request string) error {
		t.Helper()
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Instead: instead, Request: journal.Request{ID: request, BodyHash: "h"}})
		return err
	}
	busy := func(t *testing.T, l *live, m *stuck, n int) {
		t.Helper()
		defer func() {
			if t.Failed() {
				l.describe(t)
			}
		}()
		testkit.Eventually(t, func() bool { return m.calls() == n }, "the members do not speak")
	}
	eachStore(t, func(t *testing.T, s store) {
		m := &stuck{first: 2}
		l, id := begin(t, s, actors{"works": m}, `{"task": "hello", `+beside(`"actor": "works"`)+`}`)
		busy(t, l, m, 2)
		require.NoError(t, leave(t, l, id, "once"))
		over := l.over(t, id)
		const gone = "The user asked for something else."
		require.Equal(t, []string{"user: hello", "a: " + gone, "b: " + gone, "user: " + instead, "a: done", "b: done"}, l.said(t, over.ThreadID), "all are left, and the text is said once")
		require.NoError(t, leave(t, l, id, "once"), "a repetition is answered alike")
		l.sound(t, l.child(t, id).ID)
	})
	t.Run("TheModelThatChooses", func(t *testing.T) {
		t.Parallel()
		m, says := &stuck{first: 1}, &member{}
		l, id := begin(t, sqliteStore(t), actors{"works": m, "says": says}, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "says"}, {"name": "done", "actor": "says"}], "choose": {"actor": "works"}, "stop": {"max_turns": 2}}}`)
		busy(t, l, m, 1)
		require.NoError(t, leave(t, l, id, ""))
		over := l.over(t, id)
		require.Equal(t, []string{"user: hello", "user: " + instead, "done: from done"}, l.said(t, over.ThreadID))
	})
	t.Run("ARepetitionLeavesNobodyWhoSpeaksLater", func(t *testing.T) {
		t.Parallel()
		m := &stuck{first: 4}
		l, id := begin(t, sqliteStore(t), actors{"works": m}, `{"task": "hello", `+beside(`"actor": "works"`)+`}`)
		busy(t, l, m, 2)
		require.NoError(t, leave(t, l, id, "once"))
		busy(t, l, m, 4)
		require.NoError(t, leave(t, l, id, "once"))
		require.Equal(t, journal.StateRunning, l.row(t, l.child(t, id).ID).State, "those of the next turn go on")
		require.NoError(t, leave(t, l, id, "twice"))
		l.over(t, id)
	})
	t.Run("WorkflowsAndActorsTogether", func(t *testing.T) {
		t.Parallel()
		m := &stuck{first: 2}
		part := `"kind": "WORKFLOW", "actor": "spawn", "named": {"graph": {"nodes": [{"id": "only", "actor": "works"}]}}`
		l, id := begin(t, sqliteStore(t), actors{"works": m, "spawn": spawner{}}, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "works"}, {"name": "b", `+part+`}], "start": ["a", "b"], "stop": {"max_turns": 2}}}`)
		busy(t, l, m, 2)
		require.NoError(t, leave(t, l, id, "once"))
		over := l.over(t, id)
		require.Equal(t, 1, strings.Count(strings.Join(l.said(t, over.ThreadID), "\n"), instead))
	})
	t.Run("ACallThatStaysIsGivenUp", func(t *testing.T) {
		t.Parallel()
		stays, begun := make(chan struct{}), make(chan struct{}, 1)
		t.Cleanup(func() { close(stays) })
		works := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			if string(c.Named["text"]) == `"hello"` {
				begun <- struct{}{}
				<-stays
			}
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"done"`)}}, nil
		})
		l, id := begin(t, sqliteStore(t), actors{"works": works}, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "works"}], "start": ["a"], "stop": {"max_turns": 2}}}`)
		<-begun
		require.NoError(t, leave(t, l, id, "once"))
		require.Equal(t, "done", l.over(t, id).Text)
	})
	t.Run("AnUnsafeCallAloneIsRefused", func(t *testing.T) {
		t.Parallel()
		g := newGate()
		l, id := begin(t, sqliteStore(t), actors{"works": unsafeActor{g}}, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "works"}], "start": ["a"], "stop": {"max_turns": 1}}}`)
		g.next(t)
		require.Equal(t, command.ReasonNobodySpeaks, errs.ReasonOf(leave(t, l, id, "once")))
		close(g.open)
		over := l.over(t, id)
		require.NotContains(t, l.said(t, over.ThreadID), "user: "+instead)
	})
	t.Run("APersonAnswers", func(t *testing.T) {
		t.Parallel()
		looks := &belowLooks{}
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"ask": asks}), func(_ *engine.Config, d *engine.Deps) {
			looks.Journal = d.Journal
			d.Journal = looks
		})
		l.jobs(t)
		id := l.start(t, teamOf(t, `{"task": "hello", "team": {"members": [{"name": "a", "kind": "HUMAN", "actor": "ask"}], "start": ["a"]}}`))
		testkit.Eventually(t, func() bool {
			below, err := l.j.Descendants(t.Context(), ns, id)
			return err == nil && len(below) == 1 && below[0].State == journal.StateWaiting
		}, "nobody is asked")
		looks.n.Store(0)
		err := leave(t, l, id, "once")
		require.Equal(t, command.ReasonNobodySpeaks, errs.ReasonOf(err))
		require.NotEmpty(t, errs.From(err).HintText())
		require.EqualValues(t, 1, looks.n.Load(), "the team is looked for once")
	})
	t.Run("WhoIsToldSoWasHeard", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
			m := &stuck{first: 1}
			l, id := begin(t, s, actors{"works": m, "ask": asks}, `{"task": "hello", "team": {"members": [{"name": "a", "actor": "works"}, {"name": "b", "kind": "HUMAN", "actor": "ask"}],
				"start": ["a"], "transitions": [{"from": "a", "to": "b"}]}}`)
			busy(t, l, m, 1)
			const callers = 8
			var all sync.WaitGroup
			answers := make([]error, callers)
			for i := range callers {
				all.Go(func() {
					_, answers[i] = l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Instead: fmt.Sprintf("Wish %d", i), Request: journal.Request{ID: fmt.Sprint("wish", i), BodyHash: "h"}})
				})
			}
			all.Wait()
			threads, err := l.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
			require.NoError(t, err)
			require.Len(t, threads, 1, "that of the team")
			said := l.said(t, threads[0].ID)
			heard := 0
			for i, err := range answers {
				if err != nil {
					require.Equal(t, command.ReasonNobodySpeaks, errs.ReasonOf(err), "%d: %v", i, err)
					require.NotContains(t, said, fmt.Sprintf("user: Wish %d", i), "it was refused")
					continue
				}
				heard++
				require.Contains(t, said, fmt.Sprintf("user: Wish %d", i), "it was not refused")
			}
			require.Positive(t, heard)
		})
	})
	t.Run("ARunThatEndedDoesNotUseUpTheRequest", func(t *testing.T) {
		t.Parallel()
		m := &stuck{first: 1}
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "over", Actor: "spawn", Named: map[string]json.RawMessage{"graph": json.RawMessage(`{"nodes": [{"id": "only", "actor": "works"}]}`), "input": json.RawMessage(`{}`)}}}}
		s := sqliteStore(t)
		l := run(t, s, teams(t, s, actors{"works": m, "spawn": spawner{}}))
		l.jobs(t)
		id := l.start(t, g)
		busy(t, l, m, 1)
		child := l.child(t, id).ID
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: child, Reason: "it is enough"})
		require.NoError(t, err)
		require.Equal(t, journal.ReasonRunEnded, errs.ReasonOf(leave(t, l, child, "once")))
		ran, _, err := l.j.Requested(t.Context(), ns, "CancelRun/instead", "once")
		require.NoError(t, err)
		require.Empty(t, ran, "it may be sent again")
	})
}

// costs is a member, and a model that chooses, whose first calls cost something and end after they are
// left. The first one of them answers nevertheless.
type costs struct{ stuck }

func (m *costs) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	out, err := m.stuck.Call(ctx, c)
	switch {
	case err == nil:
	case strings.Contains(c.Node, ".a"):
		out, err = text("too late"), nil
		out.Usage = oneTry()
	default:
		err = &workgraph.Error{Type: workgraph.Unknown, Reason: workgraph.ReasonCanceled, Message: "cut off", Usage: oneTry()}
	}
	return out, err
}

// TestLeaveCosts is about what calls cost that are left.
func TestLeaveCosts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		team string
		left int
	}{
		"Members":             {beside(`"actor": "works"`), 2},
		"TheModelThatChooses": {`"team": {"members": [{"name": "x", "actor": "says"}, {"name": "done", "actor": "says"}], "choose": {"actor": "works"}, "stop": {"max_turns": 2}}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, s store) {
				m := &costs{stuck{first: c.left}}
				own := teams(t, s, actors{"works": m, "says": &member{}})
				l := run(t, s, own, func(_ *engine.Config, d *engine.Deps) { d.Claims = noClaims{func() bool { return false }} })
				l.jobs(t)
				id := l.start(t, teamOf(t, `{"task": "hello", `+c.team+`}`))
				testkit.Eventually(t, func() bool { return m.calls() == c.left }, "they do not speak")
				_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Instead: instead})
				require.NoError(t, err)
				over := l.over(t, id)
				require.NotContains(t, strings.Join(l.said(t, over.ThreadID), "\n"), "too late")
				require.EqualValues(t, c.left, l.child(t, id).Usage.Calls, "the run of the team")
				require.EqualValues(t, c.left, l.row(t, id).Usage.Calls, "the run above it")
				items, err := l.j.ClaimOutbox(t.Context(), 100, time.Minute)
				require.NoError(t, err)
				booked := map[string]int64{}
				for _, it := range items {
					if it.Kind != outbox.KindUsage {
						require.Equal(t, outbox.KindRun, it.Kind)
						continue
					}
					var u outbox.Usage
					require.NoError(t, json.Unmarshal(it.Body, &u))
					for _, e := range u.Entries {
						booked[fmt.Sprint(e.Node, "@", e.Visit, "#", e.Attempt, "/", e.Call)] += e.InputTokens
					}
				}
				require.Len(t, booked, c.left, "%v", booked)
				for call, tokens := range booked {
					require.EqualValues(t, 10, tokens, call)
				}
				l.sound(t, l.child(t, id).ID)
			})
		})
	}
}

// belowLooks counts how often the runs below one are read.
type belowLooks struct {
	journal.Journal
	n atomic.Int64
}

func (k *belowLooks) Descendants(ctx context.Context, namespace, runID string) ([]journal.Descendant, error) {
	k.n.Add(1)
	return k.Journal.Descendants(ctx, namespace, runID)
}

func (k *belowLooks) OpenBelow(ctx context.Context, namespace, runID, graphName string, limit int) ([]string, error) {
	k.n.Add(1)
	return k.Journal.OpenBelow(ctx, namespace, runID, graphName, limit)
}

// leaveUntil asks for something else until that is heard, the run has ended or its executor is dead. It is
// always the same request. Who is left before the call begins makes none, so it waits until all that is to be
// left has begun.
func (l *live) leaveUntil(t *testing.T, id string, dead <-chan struct{}, begun func() bool) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		select {
		case <-dead:
			return true
		default:
			return begun()
		}
	}, "those who are to be left do not begin")
	heard := false
	testkit.Eventually(t, func() bool {
		select {
		case <-dead:
			return true
		default:
		}
		if row, err := l.j.Head(t.Context(), ns, id); err == nil && row.State.Ended() {
			require.Nil(t, dead, "it made fewer calls than the first time")
			return true
		}
		if !heard {
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Instead: instead, Request: journal.Request{ID: "once", BodyHash: "h"}})
			heard = err == nil
		}
		return heard && dead == nil
	}, "nobody hears the request")
}

// An executor dies after each call of a team that is left: also between the calls of two members who speak at
// once. The other one leaves those who still speak, and the text is heard once.
func TestLeaveKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	part := `"kind": "WORKFLOW", "actor": "spawn", "named": {"graph": {"nodes": [{"id": "only", "actor": "works"}]}}`
	for name, member := range map[string]string{"Actors": `"actor": "works"`, "Workflows": part} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun sync.Map // how many members have begun that are to be left, by test: *atomic.Int64
			mortal{
				open: sqliteStore,
				actors: func(t *testing.T, s store) actors {
					n := &atomic.Int64{}
					if _, again := begun.LoadOrStore(t, n); again {
						n.Store(2) // of the heir nobody waits: a member may have been left before the death
						begun.Store(t, n)
					}
					return teams(t, s, actors{"spawn": spawner{}, "works": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
						if input, _ := c.Var("input"); !strings.Contains(string(input)+string(c.Named["text"]), instead) {
							n.Add(1)
							<-ctx.Done()
							return workgraph.Outcome{}, ctx.Err()
						}
						return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"done"`)}}, nil
					})})
				},
				start: func(t *testing.T, l *live) string {
					return l.start(t, teamOf(t, `{"task": "hello", `+beside(member)+`}`))
				},
				meanwhile: func(t *testing.T, l *live, id string, dead <-chan struct{}) {
					l.leaveUntil(t, id, dead, func() bool {
						n, _ := begun.Load(t)
						return n.(*atomic.Int64).Load() >= 2
					})
				},
				ends: func(t *testing.T, l *live, id string) {
					over := l.over(t, id)
					require.Equal(t, "done", over.Text)
					require.Equal(t, 1, strings.Count(strings.Join(l.said(t, over.ThreadID), "\n"), instead))
				},
				// Two calls are under way at a time, and the four of those who are left need not have
				// begun the first time.
				atOnce: 8,
			}.test(t)
		})
	}
}
