package journaltest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

func turnCases(t *testing.T, d Driver) {
	withAgent := func(c *thread.Create) { c.Agent = "agent/x" }
	turn := func(id string) thread.Turn {
		return thread.Turn{Namespace: ns, Thread: id, RunID: ids.New("run"), Message: []byte(`"hi"`), Principal: "key:ci", CreateTime: dbkit.Now()}
	}
	queue := func(w *world, id string) thread.Turn {
		w.t.Helper()
		u, err := w.j.QueueTurn(w.t.Context(), turn(id), thread.Request{}, thread.Bounds{Queued: 5})
		require.NoError(w.t, err)
		return u
	}
	next := func(w *world, id string) thread.Line {
		w.t.Helper()
		line, err := w.j.NextTurn(w.t.Context(), ns, id)
		require.NoError(w.t, err)
		return line
	}
	t.Run("Queue/IsInOrderAndBounded", func(t *testing.T) {
		w := open(t, d)
		th := w.thread(withAgent)
		require.Nil(t, next(w, th.ID).Next)
		first := queue(w, th.ID)
		require.EqualValues(t, 1, first.Number)
		able := turn(th.ID)
		able.AnswersAny = true
		able, err := w.j.QueueTurn(t.Context(), able, thread.Request{}, thread.Bounds{Queued: 5})
		require.NoError(t, err)
		for range 3 {
			queue(w, th.ID)
		}
		_, err = w.j.QueueTurn(t.Context(), turn(th.ID), thread.Request{}, thread.Bounds{Queued: 5})
		reason(t, err, thread.ReasonQueueFull)
		require.Equal(t, first, *next(w, th.ID).Next)
		got, err := w.j.Turn(t.Context(), ns, th.ID, 1)
		require.NoError(t, err)
		require.Equal(t, first, got)
		list, err := w.j.ListTurns(t.Context(), ns, th.ID, 1, 2)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, able, list[0])
		_, err = w.j.Turn(t.Context(), ns, th.ID, 9)
		reason(t, err, thread.ReasonTurnNotFound)
	})
	t.Run("Queue/NeedsAThreadWithAnAgent", func(t *testing.T) {
		w := open(t, d)
		_, err := w.j.QueueTurn(t.Context(), turn(w.thread().ID), thread.Request{}, thread.Bounds{Queued: 5})
		reason(t, err, thread.ReasonNoAgent)
		_, err = w.j.QueueTurn(t.Context(), turn("thr_none"), thread.Request{}, thread.Bounds{Queued: 5})
		reason(t, err, thread.ReasonNotFound)
		foreign := turn(w.thread(withAgent).ID)
		foreign.Namespace = "other"
		_, err = w.j.QueueTurn(t.Context(), foreign, thread.Request{}, thread.Bounds{Queued: 5})
		reason(t, err, thread.ReasonNotFound)
	})
	t.Run("Queue/RequestMakesOne", func(t *testing.T) {
		w := open(t, d)
		th := w.thread(withAgent)
		ask := func(hash string) (thread.Turn, error) {
			return w.j.QueueTurn(t.Context(), turn(th.ID), thread.Request{Method: "M", ID: "r", BodyHash: hash}, thread.Bounds{Queued: 5})
		}
		first, err := ask("h")
		require.NoError(t, err)
		again, err := ask("h")
		require.NoError(t, err)
		require.Equal(t, first, again)
		_, err = ask("other")
		reason(t, err, journal.ReasonRequestIDReused)
	})
	t.Run("Next/KnowsTheRunsAtWork", func(t *testing.T) {
		w := open(t, d)
		th, holder := w.thread(withAgent), w.started(1)
		first := queue(w, th.ID)
		queue(w, th.ID)
		require.Empty(t, next(w, th.ID).Runs)
		first.State, first.StartTime = thread.TurnStarted, dbkit.Now()
		require.NoError(t, w.j.SettleTurn(t.Context(), first))
		require.Empty(t, next(w, th.ID).Runs, "a run that is not there is not at work")
		w.started(1, func(s *journal.Start) { s.Run.ID = first.RunID })
		require.Equal(t, []string{first.RunID}, next(w, th.ID).Runs)
		require.NoError(t, w.commit(appendTo(first.RunID, 1, 1, inState(journal.StateCompleted)))[0].Err)
		line := next(w, th.ID)
		require.Empty(t, line.Runs)
		require.EqualValues(t, 2, line.Next.Number)
		require.NoError(t, w.j.HoldThread(t.Context(), ns, th.ID, []string{holder}))
		require.Equal(t, []string{holder}, next(w, th.ID).Runs)
		require.False(t, next(w, th.ID).Began)
		w.started(1, func(s *journal.Start) { s.Run.ID = line.Next.RunID })
		require.True(t, next(w, th.ID).Began)
		require.ElementsMatch(t, []string{holder, line.Next.RunID}, next(w, th.ID).Runs)
		require.NoError(t, w.commit(appendTo(line.Next.RunID, 1, 1, inState(journal.StateCompleted)))[0].Err)
		require.True(t, next(w, th.ID).Began, "also when it has ended")
		require.Equal(t, []string{holder}, next(w, th.ID).Runs)
	})
	t.Run("Settle/OnlyAQueuedTurn", func(t *testing.T) {
		w := open(t, d)
		u := queue(w, w.thread(withAgent).ID)
		u.InterruptID, u.AskedBy = "int_1", "run_1"
		require.NoError(t, w.j.SettleTurn(t.Context(), u))
		require.Equal(t, "int_1", next(w, u.Thread).Next.InterruptID)
		u.State, u.Error, u.StartTime = thread.TurnFailed, "no", dbkit.Now()
		require.NoError(t, w.j.SettleTurn(t.Context(), u))
		late := u
		late.State = thread.TurnStarted
		require.NoError(t, w.j.SettleTurn(t.Context(), late))
		got, err := w.j.Turn(t.Context(), ns, u.Thread, u.Number)
		require.NoError(t, err)
		require.Equal(t, u, got)
	})
	t.Run("Held/AreListedOfARunAndThoseAboveIt", func(t *testing.T) {
		w := open(t, d)
		root := w.started(1)
		child := w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = root, root })
		below := w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = child, root })
		var want []string
		for _, holder := range []string{root, root, below, w.started(1)} {
			id := w.thread(withAgent).ID
			require.NoError(t, w.j.HoldThread(t.Context(), ns, id, []string{holder}))
			queue(w, id)
			want = append(want, id)
		}
		idle := w.thread(withAgent)
		require.NoError(t, w.j.HoldThread(t.Context(), ns, idle.ID, []string{root}))
		held := func(run string) (out []string) {
			for after := ""; ; {
				ids, err := w.j.HeldTurns(t.Context(), ns, run, after, 2)
				require.NoError(t, err)
				if out = append(out, ids...); len(ids) < 2 {
					return out
				}
				after = ids[1]
			}
		}
		require.Equal(t, want[:2], held(root))
		require.Equal(t, want[:2], held(child))
		require.Equal(t, want[:3], held(below))
		foreign, err := w.j.HeldTurns(t.Context(), "other", root, "", 9)
		require.NoError(t, err)
		require.Empty(t, foreign)
	})
	t.Run("Held/EndInsertsAJobIfATurnWaits", func(t *testing.T) {
		w := open(t, d)
		jobs := func(run string) (out []string) {
			for _, j := range w.jobs() {
				if strings.HasSuffix(j, run) && strings.HasPrefix(j, string(journal.JobThread)) {
					out = append(out, j)
				}
			}
			return out
		}
		holding := func() (run, id string) {
			run, id = w.started(1), w.thread(withAgent).ID
			require.NoError(t, w.j.HoldThread(t.Context(), ns, id, []string{run}))
			return run, id
		}
		holds := func(a *journal.Append) { a.Holds = true }
		for _, state := range []journal.State{journal.StateCompleted, journal.StateFailed, journal.StateCanceled} {
			run, id := holding()
			queue(w, id)
			require.NoError(t, w.commit(appendTo(run, 1, 1, holds))[0].Err)
			require.Empty(t, jobs(run), "it goes on")
			other, _ := holding()
			for _, r := range w.commit(appendTo(run, 2, 1, holds, inState(state)), appendTo(other, 1, 1, holds, inState(state))) {
				require.NoError(t, r.Err)
			}
			require.Len(t, jobs(run), 1)
			require.Empty(t, jobs(other), "no message waits")
		}
	})
	t.Run("Held/NoTurnIsMissed", func(t *testing.T) {
		w := open(t, d)
		for range 20 {
			run, id := w.started(1), w.thread(withAgent).ID
			require.NoError(t, w.j.HoldThread(t.Context(), ns, id, []string{run}))
			waits := make(chan bool, 1)
			go func() {
				u, err := w.j.QueueTurn(context.WithoutCancel(t.Context()), turn(id), thread.Request{}, thread.Bounds{Queued: 5})
				line, errNext := w.j.NextTurn(context.WithoutCancel(t.Context()), ns, id)
				waits <- err != nil || errNext != nil || u.Number != 1 || len(line.Runs) > 0
			}()
			require.NoError(t, w.commit(appendTo(run, 1, 1, inState(journal.StateCompleted), func(a *journal.Append) { a.Holds = true }))[0].Err)
			if <-waits {
				require.True(t, slices.ContainsFunc(w.jobs(), func(j string) bool { return strings.HasSuffix(j, run) }), "the turn waits for the end of a run that has ended")
			}
		}
	})
	t.Run("Overdue/ListsThreadsOnce", func(t *testing.T) {
		w := open(t, d)
		var want []thread.Name
		for range 3 {
			id := w.thread(withAgent).ID
			queue(w, id)
			queue(w, id)
			want = append(want, thread.Name{Namespace: ns, ID: id})
		}
		var got []thread.Name
		for after := ""; ; {
			page, err := w.j.OverdueTurns(t.Context(), dbkit.Now().Add(time.Minute), after, 2)
			require.NoError(t, err)
			if got = append(got, page...); len(page) < 2 {
				break
			}
			after = page[len(page)-1].ID
		}
		require.ElementsMatch(t, want, got)
		young, err := w.j.OverdueTurns(t.Context(), dbkit.Now().Add(-time.Minute), "", 10)
		require.NoError(t, err)
		require.Empty(t, young)
	})
}
