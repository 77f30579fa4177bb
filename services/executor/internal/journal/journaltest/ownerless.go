package journaltest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func ownerlessCases(t *testing.T, d Driver) {
	waiting := func(change ...func(*journal.Append)) []func(*journal.Append) {
		return append([]func(*journal.Append){inState(journal.StateWaiting), func(a *journal.Append) { a.Release = true }}, change...)
	}
	t.Run("Release/AndClaim", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		other := w.register("exec-b")
		at := dbkit.Now().Add(time.Hour)
		released := appendTo(id, 1, 1, waiting(func(a *journal.Append) { a.Jobs = []journal.Job{{Kind: journal.JobWake, At: at}} })...)
		res := w.commit(released)
		require.NoError(t, res[0].Err)
		require.True(t, w.get(id).Owner.IsZero())
		require.Equal(t, []string{"wake scheduled " + id}, w.jobs())
		reason(t, w.commit(appendTo(id, 2, 1))[0].Err, journal.ReasonNotOwner)
		require.Equal(t, res, w.commit(released), "sent again")
		require.Len(t, w.jobs(), 1)
		require.Empty(t, w.takeOver(other, journal.TakeOverOptions{Lease: dead}).Claimed, "a waiting run is in no scan")
		require.Equal(t, other, w.claim(other, id))
		require.Zero(t, w.get(id).Takeovers)
		w.me = w.register("exec-a")
		require.Equal(t, other, w.claim(w.me, id), "its owner lives")
		w.me = other
		require.NoError(t, w.commit(appendTo(id, 2, 1))[0].Err)
		reason(t, w.commit(appendTo(id, 1, 0, waiting()...))[0].Err, journal.ReasonSeqConflict)
		// Nothing follows a release, not even in the same commit.
		res = w.commit(appendTo(id, 3, 1, waiting()...), appendTo(id, 4, 1))
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, journal.ReasonNotOwner)
	})
	t.Run("Enqueue/ClaimsAnEvictedRun", func(t *testing.T) {
		w := open(t, d)
		other := w.register("exec-b")
		claim := func(o journal.Owner) func(*journal.EnqueueRequest) {
			return func(p *journal.EnqueueRequest) { p.Claimant = o }
		}
		ask := func(p journal.EnqueueRequest) journal.Enqueued {
			res, err := w.j.Enqueue(t.Context(), p)
			require.NoError(t, err)
			require.True(t, res.New)
			return res
		}
		for _, kind := range []journal.CommandKind{journal.CommandSignal, journal.CommandCancel} {
			id := w.started(1)
			res := ask(enqueue(id, journal.CommandMessage, "early", claim(other)))
			require.Equal(t, w.me, res.Owner, "it has an owner")
			require.False(t, res.Claimed)
			require.NoError(t, w.j.Mark(t.Context(), w.me, id, "cel at n1", ""))
			w.commit(appendTo(id, 1, 1, waiting(func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} })...))
			res = ask(enqueue(id, kind, "1", claim(other)))
			require.True(t, res.Claimed)
			require.Equal(t, other, res.Owner)
			require.Equal(t, other, w.get(id).Owner)
			require.Zero(t, w.get(id).Takeovers)
			require.Empty(t, w.get(id).Doing, "what its last owner did is not what this one does")
			require.Equal(t, w.unread(id), w.pending(other))
			loaded, err := w.j.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, w.unread(id), loaded.Command)
			res = ask(enqueue(id, journal.CommandMessage, "2", claim(other)))
			require.False(t, res.Claimed, "it was before")
			require.Equal(t, other, res.Owner)
			require.Empty(t, w.jobs())
			w.me, other = other, w.me
			require.NoError(t, w.commit(appendTo(id, 2, 1, func(a *journal.Append) { a.Applied = []int64{loaded.Command[0].ID} }))[0].Err)
			w.commit(appendTo(id, 3, 1, inState(journal.StateCompleted)))
		}
		gone := w.started(1)
		w.commit(appendTo(gone, 1, 1, waiting()...))
		res := ask(enqueue(gone, journal.CommandSignal, "s", claim(journal.Owner{ID: "exec-a", Incarnation: 1 << 40})))
		require.Zero(t, res.Owner, "it is registered no more")
		require.Equal(t, []string{"wake available " + gone}, w.jobs())
		pending := w.started(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		require.Zero(t, ask(enqueue(pending, journal.CommandSignal, "s", claim(other))).Owner, "it has not begun")
		require.Len(t, w.jobs(), 2)
	})
	t.Run("Append/ClaimsEvictedTargets", func(t *testing.T) {
		w := open(t, d)
		child, twin, parent, held := w.started(1), w.started(1), w.started(1), w.started(1)
		w.commit(appendTo(parent, 1, 1, waiting()...))
		w.commit(appendTo(held, 1, 1, waiting()...))
		other := w.register("exec-b")
		require.Equal(t, other, w.claim(other, held))
		claims := func(a *journal.Append) { a.Claims = true }
		res := w.commit(appendTo(child, 1, 1, inState(journal.StateCompleted), claims, commandTo(parent, journal.CommandChildEnded, child), commandTo(held, journal.CommandChildEnded, child),
			commandTo("run_none", journal.CommandChildEnded, child)))
		require.NoError(t, res[0].Err)
		require.Equal(t, []string{parent}, res[0].Claimed)
		require.Equal(t, w.me, w.get(parent).Owner)
		require.Equal(t, other, w.get(held).Owner)
		require.Empty(t, w.jobs())
		require.Equal(t, w.unread(parent), w.pending(w.me))
		res = w.commit(appendTo(twin, 1, 1, inState(journal.StateCompleted), claims, commandTo(parent, journal.CommandChildEnded, twin)))
		require.Empty(t, res[0].Claimed, "it was before")
		require.Len(t, w.pending(w.me), 2)
	})
	t.Run("Append/ClaimsWhatIsReleasedInTheSameCommit", func(t *testing.T) {
		w := open(t, d)
		id, by := w.started(1), w.started(1)
		res := w.commit(appendTo(id, 1, 1, waiting()...), appendTo(by, 1, 1, commandTo(id, journal.CommandSignal, "1"), func(a *journal.Append) { a.Claims = true }))
		require.NoError(t, res[0].Err)
		require.Equal(t, []string{id}, res[1].Claimed)
		require.Equal(t, w.me, w.get(id).Owner)
		require.Empty(t, w.jobs())
		require.NoError(t, w.commit(appendTo(id, 2, 1, func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} }))[0].Err)
	})
	t.Run("Release/ReclaimsTheRunForItsCommands", func(t *testing.T) {
		w := open(t, d)
		quiet, commanded := w.started(1), w.started(1)
		_, err := w.j.Enqueue(t.Context(), enqueue(commanded, journal.CommandSignal, "1"))
		require.NoError(t, err)
		release := func(id string) journal.Write {
			return appendTo(id, 1, 1, waiting(func(a *journal.Append) { a.Claims = true })...)
		}
		released := []journal.Write{release(quiet), release(commanded)}
		for _, claimed := range [][]string{{commanded}, nil} { // a commit without its answer is repeated
			res := w.commit(released...)
			require.NoError(t, res[0].Err)
			require.Empty(t, res[0].Claimed)
			require.NoError(t, res[1].Err)
			require.Equal(t, claimed, res[1].Claimed)
			require.True(t, w.get(quiet).Owner.IsZero())
			require.Equal(t, w.me, w.get(commanded).Owner)
		}
		require.Empty(t, w.jobs())
		require.Len(t, w.pending(w.me), 1)
	})
	t.Run("Release/WithoutEventsIsRepeatable", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		released := appendTo(id, 1, 0, waiting()...)
		require.NoError(t, w.commit(released)[0].Err)
		require.NoError(t, w.commit(released)[0].Err)
		require.True(t, w.get(id).Owner.IsZero())
	})
	t.Run("Claim/OnlyClaimableRuns", func(t *testing.T) {
		w := open(t, d)
		in := func(s journal.State) string {
			id := w.started(1)
			w.commit(appendTo(id, 1, 1, inState(s), func(a *journal.Append) { a.Release = true }))
			return id
		}
		for _, s := range []journal.State{journal.StateWaiting, journal.StatePaused} {
			require.Equal(t, w.me, w.claim(w.me, in(s)))
		}
		pending := start(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		first := w.commit(journal.Write{Start: pending})
		require.True(t, first[0].Created)
		require.Zero(t, w.get(pending.Run.ID).LastSeq)
		require.Equal(t, first, w.commit(journal.Write{Start: pending}), "sent again")
		reason(t, w.commit(appendTo(pending.Run.ID, 0, 1))[0].Err, journal.ReasonNotOwner)
		require.Equal(t, w.me, w.claim(w.me, pending.Run.ID))
		require.NoError(t, w.commit(appendTo(pending.Run.ID, 0, 1, inState(journal.StateRunning)))[0].Err)
		require.Len(t, w.events(pending.Run.ID), 1)
		for _, s := range []journal.State{journal.StateCompleted, journal.StateFailed, journal.StateCanceled} {
			id := w.started(1)
			w.commit(appendTo(id, 1, 1, inState(s)))
			require.Zero(t, w.claim(w.register("exec-b"), id), "it has ended")
		}
		sick := in(journal.StateQuarantined)
		require.Zero(t, w.claim(w.me, sick))
		_, err := w.j.Enqueue(t.Context(), enqueue(sick, journal.CommandSignal, "s"))
		require.NoError(t, err)
		require.Zero(t, w.claim(w.me, sick))
		_, err = w.j.Enqueue(t.Context(), enqueue(sick, journal.CommandResume, ""))
		require.NoError(t, err)
		require.Equal(t, w.me, w.claim(w.me, sick))
		again := w.register(w.me.ID)
		_, err = w.j.ClaimRun(t.Context(), w.me, ns, sick, journal.TakeOverPolicy{})
		reason(t, err, journal.ReasonFenced)
		w.takeOver(again, journal.TakeOverOptions{Lease: time.Hour})
		require.Zero(t, w.claim(again, sick), "its command brought its owner down again")
		_, err = w.j.ClaimRun(t.Context(), again, "other", sick, journal.TakeOverPolicy{})
		reason(t, err, journal.ReasonRunNotFound)
		_, err = w.j.ClaimRun(t.Context(), again, ns, "run_none", journal.TakeOverPolicy{})
		reason(t, err, journal.ReasonRunNotFound)
	})
	t.Run("Claim/CountsKilledOwners", func(t *testing.T) {
		w := open(t, d)
		id := w.started(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		for i := range 4 {
			require.Equal(t, w.me, w.claim(w.me, id))
			require.Equal(t, min(i, 2), w.get(id).Takeovers, "that it was being read once may be chance")
			w.me = w.register(w.me.ID)
			if i == 3 {
				require.Zero(t, w.claim(w.me, id), "for a take-over to quarantine")
			}
		}
		require.Len(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Quarantined, 1)
	})
	t.Run("Claim/HonorsTheTakeOverPolicy", func(t *testing.T) {
		w := open(t, d)
		id := w.started(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		last := w.me
		claim := func(p journal.TakeOverPolicy) int {
			last, w.me = w.me, w.register(w.me.ID)
			o, err := w.j.ClaimRun(t.Context(), w.me, ns, id, p)
			require.NoError(t, err)
			require.Contains(t, []journal.Owner{{}, w.me}, o)
			if o.IsZero() {
				require.Equal(t, last, w.get(id).Owner, "it is left to a take-over")
				return -1
			}
			return w.get(id).Takeovers
		}
		for n := range 5 { // nobody owns it at first
			require.Equal(t, n, claim(journal.TakeOverPolicy{MaxTakeovers: 6}))
		}
		outlived := journal.TakeOverPolicy{MaxTakeovers: 1, Outlived: func(o journal.Owner) bool { return o == last }}
		require.Equal(t, 4, claim(outlived), "the claimer's process was its owner before")
		require.Equal(t, 4, claim(outlived))
		require.Equal(t, 4, claim(journal.TakeOverPolicy{MaxTakeovers: 5}), "it was only read when its owner went down")
		require.Equal(t, -1, claim(journal.TakeOverPolicy{MaxTakeovers: 5, Outlived: func(journal.Owner) bool { return false }}))
		require.Len(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, TakeOverPolicy: journal.TakeOverPolicy{MaxTakeovers: 5}}).Quarantined, 1)
	})
	t.Run("Commands/EnqueuedForAnEvictedRunMakeOneJob", func(t *testing.T) {
		w := open(t, d)
		id, by := w.started(1), w.started(1)
		w.commit(appendTo(id, 1, 1, waiting()...))
		require.Empty(t, w.jobs())
		res, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandSignal, "1"))
		require.NoError(t, err)
		require.Zero(t, res.Owner)
		require.Equal(t, []string{"wake available " + id}, w.jobs())
		w.commit(appendTo(by, 1, 1, commandTo(id, journal.CommandSignal, "2")))
		require.Len(t, w.jobs(), 1, "it waits already")
		require.Len(t, w.unread(id), 2)
		require.Equal(t, w.me, w.claim(w.me, id))
		require.Len(t, w.pending(w.me), 2)
	})
	t.Run("Commands/UnreadAtTheReleaseMakeAJob", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		_, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandSignal, "1"))
		require.NoError(t, err)
		require.NoError(t, w.commit(appendTo(id, 1, 1, waiting()...))[0].Err)
		require.Equal(t, []string{"wake available " + id}, w.jobs())
	})
	t.Run("Commands/InTheCommitOfTheReleaseMakeAJob", func(t *testing.T) {
		w := open(t, d)
		id, by := w.started(1), w.started(1)
		w.commit(appendTo(id, 1, 1, waiting()...), appendTo(by, 1, 1, commandTo(id, journal.CommandSignal, "1")))
		require.Equal(t, []string{"wake available " + id}, w.jobs())
	})
	t.Run("Commands/RaceTheRelease", func(t *testing.T) {
		// Whatever comes first: either the owner finds the commands before it releases, or a job is there.
		w := open(t, d)
		other, by := w.another(), w.started(1)
		mine, sent := w.me, 1
		for round := range 25 {
			id := w.started(1)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := other.Enqueue(t.Context(), enqueue(id, journal.CommandSignal, "1")); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				res, err := w.j.Commit(t.Context(), mine, []journal.Write{appendTo(id, 1, 1, waiting()...)})
				if err != nil || res[0].Err != nil {
					t.Error(res, err)
				}
			})
			wg.Go(func() {
				res, err := w.j.Commit(t.Context(), mine, []journal.Write{appendTo(by, sent, 1, commandTo(id, journal.CommandChildEnded, "2"))})
				if err != nil || res[0].Err != nil {
					t.Error(res, err)
				}
			})
			wg.Wait()
			sent++
			require.Len(t, w.unread(id), 2, "round %d", round)
			require.Contains(t, w.jobs(), "wake available "+id, "round %d", round)
		}
	})
	t.Run("Sweep/FindsLostHints", func(t *testing.T) {
		w := open(t, d)
		late := w.started(1)
		w.commit(appendTo(late, 1, 1, waiting(func(a *journal.Append) { a.Status.WakeTime = dbkit.Now().Add(-time.Minute) })...))
		paused := w.started(1)
		w.commit(appendTo(paused, 1, 1, waiting(func(a *journal.Append) {
			a.Status.State, a.Status.WakeTime = journal.StatePaused, dbkit.Now().Add(-time.Minute)
		})...))
		w.commit(appendTo(w.started(1), 1, 1, waiting(func(a *journal.Append) { a.Status.State = journal.StatePaused })...))
		soon := w.started(1)
		w.commit(appendTo(soon, 1, 1, waiting(func(a *journal.Append) { a.Status.WakeTime = dbkit.Now().Add(time.Minute) })...))
		require.Empty(t, w.jobs())
		sweep := func() int {
			n, err := w.j.SweepOwnerless(t.Context(), 10*time.Second, 100)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 2, sweep())
		require.ElementsMatch(t, []string{"wake available " + late, "wake available " + paused}, w.jobs())
		require.Zero(t, sweep(), "it waits already")
		require.Equal(t, w.me, w.claim(w.me, late))
	})
	t.Run("Ready/WithoutALeader", func(t *testing.T) {
		w := open(t, d)
		due := func(in time.Duration) string {
			id := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateWaiting })
			require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{{Kind: journal.JobWake, RunID: id, At: dbkit.Now().Add(in),
				Args: fmt.Appendf(nil, `{"namespace": %q, "run_id": %q}`, ns, id)}}))
			return id
		}
		soon, later, sooner := due(time.Hour), due(3*time.Hour), due(time.Minute)
		ready := func(ahead time.Duration, limit int) int {
			n, err := w.j.ReadyJobs(t.Context(), ahead, limit)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, ready(time.Second, 10))
		require.Equal(t, 1, ready(2*time.Hour, 1), "the first one first")
		require.ElementsMatch(t, []string{"wake available " + sooner, "wake scheduled " + soon, "wake scheduled " + later}, w.jobs())
		require.Equal(t, 1, ready(2*time.Hour, 10))
		require.Zero(t, ready(2*time.Hour, 10), "they are ready already")
		require.ElementsMatch(t, []string{"wake available " + sooner, "wake available " + soon, "wake scheduled " + later}, w.jobs())
	})
	t.Run("Expedite/PausedRunsOfAReason", func(t *testing.T) {
		w := open(t, d)
		paused := func(reason string, state journal.State) string {
			id := w.started(1)
			w.commit(appendTo(id, 1, 1, waiting(func(a *journal.Append) {
				a.Status.State, a.Status.Reason, a.Status.WakeTime = state, reason, dbkit.Now().Add(time.Minute)
			})...))
			return id
		}
		one, two := paused("THIS", journal.StatePaused), paused("THIS", journal.StatePaused)
		paused("OTHER", journal.StatePaused)
		paused("THIS", journal.StateWaiting)
		expedite := func() int {
			n, err := w.j.ExpediteUnpriced(t.Context(), "THIS", 1)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, []int{1, 1, 0}, []int{expedite(), expedite(), expedite()})
		n, err := w.j.SweepOwnerless(t.Context(), 5*time.Second, 100)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.ElementsMatch(t, []string{"wake available " + one, "wake available " + two}, w.jobs())
	})
	t.Run("Stop/WaitingRunsGetJobs", func(t *testing.T) {
		w := open(t, d)
		waiting := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateWaiting })
		timer := w.started(1, func(s *journal.Start) { s.Run.State, s.Run.WakeTime = journal.StateWaiting, dbkit.Now().Add(time.Hour) })
		paused := w.started(1, func(s *journal.Start) { s.Run.State = journal.StatePaused })
		resting := w.started(1, func(s *journal.Start) { s.Run.State, s.Run.WakeTime = journal.StatePaused, dbkit.Now().Add(time.Hour) })
		commanded := w.started(1, func(s *journal.Start) { s.Run.State = journal.StatePaused })
		_, err := w.j.Enqueue(t.Context(), enqueue(commanded, journal.CommandResume, ""))
		require.NoError(t, err)
		require.NoError(t, w.j.Deregister(t.Context(), w.me))
		require.ElementsMatch(t, []string{"wake available " + waiting, "wake scheduled " + timer, "wake scheduled " + resting, "wake available " + commanded}, w.jobs())
		require.True(t, w.get(paused).Owner.IsZero())
	})
	t.Run("TakeOver/LeavesAMillionEvictedRunsAlone", func(t *testing.T) {
		w := open(t, d)
		for range 3 {
			w.commit(appendTo(w.started(1), 1, 1, waiting()...))
		}
		id := w.started(1)
		other := w.register("exec-b")
		res := w.takeOver(other, journal.TakeOverOptions{Lease: dead})
		require.Len(t, res.Claimed, 1)
		require.Equal(t, id, res.Claimed[0].RunID)
	})
	t.Run("Graph/ARunIsPinnedToAnother", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		repin := func(hash string) func(*journal.Append) {
			return func(a *journal.Append) { a.GraphHash, a.Graph = hash, []byte("body of "+hash) }
		}
		w.commit(appendTo(id, 1, 1, repin("h2")), appendTo(id, 2, 1, repin("h3")))
		r := w.get(id)
		require.Equal(t, "h3", r.GraphHash)
		require.EqualValues(t, 2, r.GraphRevision)
		l, err := w.j.Load(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "body of h3", string(l.Graph))
	})
	t.Run("Jobs/InsertedOnce", func(t *testing.T) {
		w := open(t, d)
		jobs := []journal.Job{{Kind: "sweep", Args: []byte(`{"run_id":"x"}`)}, {Kind: journal.JobStart, RunID: "r", Priority: 1}}
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, jobs))
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, jobs))
		require.Equal(t, []string{"sweep available x", "start available r"}, w.jobs())
	})
}
