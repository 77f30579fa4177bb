package journaltest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// dead is a lease that every other executor has outlived.
const dead = -time.Hour

func fenceCases(t *testing.T, d Driver) {
	t.Run("NewIncarnationFencesTheOld", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		old := w.me
		w.me = w.register(old.ID)
		require.Greater(t, w.me.Incarnation, old.Incarnation)
		_, err := w.j.Commit(t.Context(), old, []journal.Write{appendTo(id, 1, 1), {Start: start(1)}})
		require.True(t, journal.IsFenced(err), "got %v", err)
		require.True(t, journal.IsFenced(w.j.Heartbeat(t.Context(), old)))
		require.True(t, journal.IsFenced(w.j.Release(t.Context(), old, nil)))
		_, err = w.j.TakeOver(t.Context(), old, journal.TakeOverOptions{Limit: 1})
		require.True(t, journal.IsFenced(err))
		require.NoError(t, w.j.Deregister(t.Context(), old))
		require.NoError(t, w.j.Heartbeat(t.Context(), w.me))
		require.Len(t, w.events(id), 1)
		// Not yet claimed, so not ours either.
		reason(t, w.commit(appendTo(id, 1, 1))[0].Err, journal.ReasonNotOwner)
	})
	t.Run("TokenKey/TheFirstStays", func(t *testing.T) {
		w := open(t, d)
		kept := make([][]byte, 8)
		var wg sync.WaitGroup
		for i := range kept {
			wg.Go(func() {
				var err error
				if kept[i], err = w.j.TokenKey(t.Context(), []byte{byte(i), 7}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, byte(7), kept[0][1])
		for _, k := range kept {
			require.Equal(t, kept[0], k)
		}
	})
	t.Run("ZombieLosesAfterTakeOver", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		zombie := w.me
		w.me = w.register("exec-b")
		res := w.takeOver(w.me, journal.TakeOverOptions{Lease: dead})
		require.Len(t, res.Claimed, 1)
		require.Equal(t, journal.RunRef{Namespace: ns, RunID: id, State: journal.StateRunning, LastSeq: 1, Takeovers: 1, From: zombie}, res.Claimed[0])
		_, err := w.j.Commit(t.Context(), zombie, []journal.Write{appendTo(id, 1, 1)})
		require.True(t, journal.IsFenced(err), "got %v", err)
		require.NoError(t, w.commit(appendTo(id, 1, 1))[0].Err)
		require.Equal(t, w.me, w.get(id).Owner)
		// The same name starts again: a higher incarnation than any before.
		again := w.register(zombie.ID)
		require.Greater(t, again.Incarnation, w.me.Incarnation)
	})
	t.Run("LiveExecutorsAreLeftAlone", func(t *testing.T) {
		w := open(t, d)
		w.started(1)
		b := w.register("exec-b")
		res := w.takeOver(b, journal.TakeOverOptions{Lease: time.Hour})
		require.Empty(t, res.Claimed)
		require.NoError(t, w.j.Heartbeat(t.Context(), w.me))
		es, err := w.j.Executors(t.Context())
		require.NoError(t, err)
		require.Len(t, es, 2)
		require.Equal(t, w.me, es[0].Owner)
		require.Equal(t, "addr-of-exec-a", es[0].Addr)
		require.Less(t, es[0].SinceHeartbeat, time.Hour)
	})
	t.Run("CommitsRaceTakeOvers", func(t *testing.T) {
		// Whatever the interleaving: what a zombie was told is committed stays, and the journal that
		// the new owner goes on with has no gap and no second history.
		w := open(t, d)
		id := w.started(1)
		last := 1
		for round := range 6 {
			j, old := w.j, w.me
			next := w.register(fmt.Sprint("exec-", round))
			var wg sync.WaitGroup
			acked := make(chan int, 1)
			firstAck := make(chan struct{})
			wg.Go(func() {
				n := last
				for {
					res, err := j.Commit(t.Context(), old, []journal.Write{appendTo(id, n, 1, func(a *journal.Append) { a.Progress = true })})
					if err != nil || res[0].Err != nil {
						break
					}
					if n++; n == last+1 {
						close(firstAck)
					}
				}
				acked <- n
			})
			<-firstAck
			testkit.Eventually(t, func() bool {
				res := w.takeOver(next, journal.TakeOverOptions{Lease: dead})
				return len(res.Claimed) == 1
			})
			l, err := w.j.Load(t.Context(), id)
			require.NoError(t, err)
			wg.Wait()
			require.EqualValues(t, l.Run.LastSeq, <-acked)
			w.me, last = next, int(l.Run.LastSeq)
			require.NoError(t, w.commit(appendTo(id, last, 1, func(a *journal.Append) { a.Progress = true }))[0].Err)
			last++
			require.Len(t, w.events(id), last)
		}
	})
}

func takeOverCases(t *testing.T, d Driver) {
	t.Run("EachRunGoesToOneExecutor", func(t *testing.T) {
		w := open(t, d)
		var batch []journal.Write
		for range 60 {
			batch = append(batch, journal.Write{Start: start(1)})
		}
		w.commit(batch...)
		require.NoError(t, w.j.Deregister(t.Context(), w.me))
		var mu sync.Mutex
		claims := map[string]int{}
		var wg sync.WaitGroup
		var takers []journal.Owner
		for i := range 4 {
			takers = append(takers, w.register(fmt.Sprint("taker-", i)))
		}
		for _, me := range takers {
			j := w.another()
			wg.Go(func() {
				for range 40 {
					res, err := j.TakeOver(t.Context(), me, journal.TakeOverOptions{Lease: time.Hour, Limit: 3})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, c := range res.Claimed {
						claims[c.RunID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, claims, 60)
		for id, n := range claims {
			require.Equal(t, 1, n, id)
		}
	})
	t.Run("LimitAndOrder", func(t *testing.T) {
		w := open(t, d)
		a, b, c := w.started(1), w.started(1), w.started(1)
		w.me = w.register(w.me.ID)
		res := w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Limit: 2})
		require.True(t, res.More)
		require.Equal(t, []string{a, b}, []string{res.Claimed[0].RunID, res.Claimed[1].RunID})
		res = w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Limit: 2})
		require.False(t, res.More)
		require.Equal(t, c, res.Claimed[0].RunID)
		require.Empty(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Claimed)
	})
	t.Run("ExceptNamespacesWithoutRoom", func(t *testing.T) {
		w := open(t, d)
		of := func(ns string) func(*journal.Start) { return func(s *journal.Start) { s.Run.Namespace = ns } }
		for range 3 {
			w.started(1, of("full"))
		}
		other := w.started(1, of("other"))
		w.me = w.register(w.me.ID)
		res := w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Limit: 2, Except: []string{"full", "unknown"}})
		require.Len(t, res.Claimed, 1)
		require.Equal(t, other, res.Claimed[0].RunID)
		require.False(t, res.More)
		require.Len(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Claimed, 3)
		w.me = w.register(w.me.ID)
		require.Empty(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Except: []string{"full", "other"}, TakeOverPolicy: journal.TakeOverPolicy{MaxTakeovers: 2}}).Claimed, "suspects neither")
	})
	t.Run("OnlyRunsThatCanGoOn", func(t *testing.T) {
		w := open(t, d)
		states := map[string]journal.State{}
		for _, s := range []journal.State{
			journal.StatePending, journal.StateRunning, journal.StateWaiting, journal.StatePaused, journal.StateQuarantined,
			journal.StateCompleted, journal.StateFailed, journal.StateCanceled,
		} {
			states[w.started(1, func(st *journal.Start) { st.Run.State = s })] = s
		}
		b := w.register("exec-b")
		res := w.takeOver(b, journal.TakeOverOptions{Lease: dead})
		got := map[journal.State]int{}
		for _, c := range res.Claimed {
			require.Equal(t, states[c.RunID], c.State)
			got[c.State] = c.Takeovers
		}
		require.Equal(t, map[journal.State]int{journal.StateRunning: 1, journal.StateWaiting: 1}, got)
		for id, s := range states {
			if s == journal.StatePaused || s == journal.StateQuarantined {
				require.True(t, w.get(id).Owner.IsZero(), "it is released")
				require.Empty(t, w.jobs())
			}
		}
	})
	t.Run("EndIsSeenOnlyOfExecutorsThatAreGone", func(t *testing.T) {
		w := open(t, d)
		other, err := d.Open(t.Context(), w.place)
		require.NoError(t, err)
		them, err := other.Register(t.Context(), "exec-b", "")
		require.NoError(t, err)
		res, err := other.Commit(t.Context(), them, []journal.Write{{Start: start(1)}})
		require.NoError(t, err)
		id := res[0].RunID
		mine := w.started(1)
		require.Empty(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Claimed, "it lives")
		require.NoError(t, other.Heartbeat(t.Context(), them))
		require.NoError(t, other.Close())
		claimed := w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Claimed
		if !d.SeesEnds {
			require.Empty(t, claimed, "its lease lasts")
			return
		}
		require.Len(t, claimed, 1)
		require.Equal(t, id, claimed[0].RunID)
		require.Equal(t, w.me, w.get(mine).Owner)
		require.NoError(t, w.j.Heartbeat(t.Context(), w.me))
	})
	t.Run("ReleasedRunsAreFree", func(t *testing.T) {
		w := open(t, d)
		a, b := w.started(1), w.started(1)
		ended := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateCompleted })
		other := w.register("exec-b")
		require.NoError(t, w.j.Release(t.Context(), w.me, []string{a}))
		reason(t, w.commit(appendTo(a, 1, 1))[0].Err, journal.ReasonNotOwner)
		require.NoError(t, w.commit(appendTo(b, 1, 1))[0].Err)
		res := w.takeOver(other, journal.TakeOverOptions{Lease: time.Hour})
		require.Len(t, res.Claimed, 1)
		require.Zero(t, res.Claimed[0].Takeovers)
		require.True(t, res.Claimed[0].From.IsZero())
		require.NoError(t, w.j.Deregister(t.Context(), w.me))
		res = w.takeOver(other, journal.TakeOverOptions{Lease: time.Hour})
		require.Len(t, res.Claimed, 1)
		require.Equal(t, b, res.Claimed[0].RunID)
		require.Equal(t, w.me, w.get(ended).Owner, "an ended run keeps its last owner")
	})
	t.Run("JobsOfDeadExecutorsComeAgain", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{{Kind: journal.JobWake, RunID: id}, {Kind: journal.JobWebhook, RunID: id}}))
		asks := journal.JobWorkerPrefix + "exec-b/1"
		rescued := func(after time.Duration) int {
			n, err := w.j.RescueJobs(t.Context(), asks, after, 10)
			require.NoError(t, err)
			return n
		}
		const worker = journal.JobWorkerPrefix + "exec-a/1"
		require.NoError(t, w.j.WorkJobsAs(t.Context(), w.me, worker))
		w.d.TakeJobs(t, w.place, worker)
		require.Zero(t, rescued(time.Second), "who works them lives")
		require.Empty(t, w.jobs())
		// Whoever is not heard of is dead, though its lease lasts; but nobody takes itself for dead.
		asks = worker
		require.Zero(t, rescued(0))
		asks = journal.JobWorkerPrefix + "exec-b/1"
		testkit.Eventually(t, func() bool { return rescued(time.Millisecond) == 2 })
		w.d.TakeJobs(t, w.place, worker)
		// Its next life under the same name is another one.
		w.me = w.register(w.me.ID)
		require.NoError(t, w.j.WorkJobsAs(t.Context(), w.me, journal.JobWorkerPrefix+"exec-a/2"))
		require.Zero(t, rescued(time.Hour), "it may be about to be registered")
		// One that is equal waits already.
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{{Kind: journal.JobWake, RunID: id}}))
		require.Equal(t, 2, rescued(time.Second))
		require.ElementsMatch(t, []string{"wake available " + id, "wake available " + id, "webhook available " + id}, w.jobs())
		require.Zero(t, rescued(time.Second))
		// Jobs of workers with names of another form are left alone.
		w.d.TakeJobs(t, w.place, "pages")
		require.Zero(t, rescued(time.Second))
	})
	t.Run("QuarantineAfterThreeKilledOwners", func(t *testing.T) {
		w := open(t, d)
		about := func(s *journal.Start) {
			s.Run.Metadata, s.Run.TaskID, s.Run.EpicID = []byte("about it"), "tk_1", "ep_1"
		}
		bad, good, waits := w.started(1, about), w.started(1), w.started(1, func(s *journal.Start) { s.Run.State = journal.StateWaiting })
		opts := journal.TakeOverOptions{Lease: time.Hour, QuarantineEvent: func(r journal.RunRef) journal.Event {
			return journal.Event{Kind: 14, Time: base, Data: fmt.Append(nil, r.Takeovers)}
		}, QuarantineJobs: func(r journal.RunRef) []journal.Job {
			return []journal.Job{{Kind: journal.JobWebhook, Args: fmt.Appendf(nil, `{"run_id": "%s/%d"}`, r.RunID, r.LastSeq)}}
		}, QuarantineOutbox: func(r journal.RunRef, run *journal.Run) []journal.Out {
			return []journal.Out{{Kind: "paused", Body: fmt.Appendf(nil, "%s/%d <%s> %s of %s in %s", r.RunID, r.LastSeq, run.ParentID, run.Metadata, run.TaskID, run.EpicID)}}
		}}
		// all takes over until nothing is left.
		all := func() (claimed []string, quarantined []journal.RunRef) {
			for {
				res := w.takeOver(w.me, opts)
				suspects := 0
				for _, f := range res.Claimed {
					claimed = append(claimed, f.RunID)
					if f.Doing != "" {
						suspects++
						require.Equal(t, journal.DoingReading, w.get(f.RunID).Doing)
						require.NoError(t, w.j.Mark(t.Context(), w.me, f.RunID, "", journal.DoingReading))
					}
				}
				require.LessOrEqual(t, suspects, 1, "suspects come one at a time")
				quarantined = append(quarantined, res.Quarantined...)
				if !res.More {
					return claimed, quarantined
				}
			}
		}
		for i := 1; i <= 3; i++ {
			w.me = w.register(w.me.ID)
			claimed, quarantined := all()
			if i < 3 {
				require.ElementsMatch(t, []string{bad, good, waits}, claimed)
				require.Empty(t, quarantined)
				last := int(w.get(good).LastSeq)
				require.NoError(t, w.commit(appendTo(good, last, 1, func(a *journal.Append) { a.Progress = true }))[0].Err)
				require.Zero(t, w.get(good).Takeovers)
				require.Equal(t, i, w.get(waits).Takeovers)
			}
			if i == 2 {
				require.NoError(t, w.j.Mark(t.Context(), w.me, bad, "cel at n1", ""))
				require.Equal(t, "cel at n1", w.get(bad).Doing)
				require.Equal(t, journal.ReasonNotOwner, errs.ReasonOf(w.j.Mark(t.Context(), journal.Owner{ID: w.me.ID, Incarnation: 1 << 40}, bad, "", "")))
			}
			if i < 3 {
				continue
			}
			require.ElementsMatch(t, []string{good, waits}, claimed)
			require.Len(t, quarantined, 1)
			require.Equal(t, bad, quarantined[0].RunID)
			require.Equal(t, 3, quarantined[0].Takeovers)
			require.Equal(t, "cel at n1", quarantined[0].DiedDoing)
		}
		r := w.get(bad)
		require.Equal(t, journal.StateQuarantined, r.State)
		require.Equal(t, journal.ReasonQuarantined, r.Reason)
		require.Equal(t, "cel at n1", r.DiedDoing, "it is kept for whoever asks why")
		require.Empty(t, r.Doing)
		require.True(t, r.Owner.IsZero())
		require.EqualValues(t, 2, r.LastSeq)
		es := w.events(bad)
		require.Equal(t, journal.Event{RunID: bad, Seq: 2, Kind: 14, Time: base, Data: []byte("3")}, es[1])
		require.ElementsMatch(t, []string{"webhook available " + bad + "/2"}, w.jobs())
		told, err := w.j.ClaimOutbox(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, told, 1)
		require.Equal(t, []any{"paused", int64(2), bad + "/2 <> about it of tk_1 in ep_1"}, []any{told[0].Kind, told[0].Seq, string(told[0].Body)})
		for range 10 {
			w.me = w.register(w.me.ID)
			claimed, quarantined := all()
			require.ElementsMatch(t, []string{good, waits}, claimed, "a quarantined run is left alone")
			require.Empty(t, quarantined, "one that was never at work is never quarantined")
			require.Equal(t, 2, w.get(waits).Takeovers)
		}
	})
	t.Run("Quarantine/CrashDuringLoadCountsTheSecondTime", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		opts := journal.TakeOverOptions{Lease: time.Hour, TakeOverPolicy: journal.TakeOverPolicy{MaxTakeovers: 2}}
		next := func() journal.TakeOverResult {
			w.me = w.register(w.me.ID)
			return w.takeOver(w.me, opts)
		}
		first := next()
		require.Len(t, first.Claimed, 1)
		require.Equal(t, id, first.Claimed[0].RunID)
		again := next()
		require.Equal(t, id, again.Claimed[0].RunID, "that which was at work comes first")
		require.Len(t, again.Claimed, 1)
		require.Empty(t, again.Quarantined, "that may have been chance")
		require.NoError(t, w.j.Mark(t.Context(), w.me, id, "", journal.DoingReading))
		require.Empty(t, w.get(id).DiedDoing, "it was read without harm")
		one := next().Claimed[0].RunID
		require.Contains(t, []string{id, other}, one)
		require.Equal(t, one, next().Claimed[0].RunID)
		res := next()
		require.Len(t, res.Quarantined, 1)
		require.Equal(t, one, res.Quarantined[0].RunID)
		require.Equal(t, journal.DoingReading, w.get(one).DiedDoing)
	})
}
