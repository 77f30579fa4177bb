package journaltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// canceledCases are those of TakeOverOptions.Canceled.
func canceledCases(t *testing.T, d Driver) {
	canceled := func(o journal.TakeOverOptions) journal.TakeOverOptions {
		o.Lease, o.Canceled = time.Hour, true
		return o
	}
	cancel := func(w *world, namespace, id string) {
		_, err := w.j.Enqueue(w.t.Context(), enqueue(id, journal.CommandCancel, "", func(p *journal.EnqueueRequest) { p.Command.Namespace = namespace }))
		require.NoError(w.t, err)
	}
	ids := func(refs []journal.RunRef) (out []string) {
		for _, f := range refs {
			out = append(out, f.RunID)
		}
		return out
	}
	in := func(s journal.State) func(*journal.Start) { return func(st *journal.Start) { st.Run.State = s } }
	of := func(namespace string) func(*journal.Start) {
		return func(st *journal.Start) { st.Run.Namespace = namespace }
	}
	t.Run("ClaimsUnownedRunsInAnyState", func(t *testing.T) {
		w := open(t, d)
		other := w.register("exec-b")
		var free, want []string
		for _, s := range []journal.State{journal.StatePending, journal.StateRunning, journal.StateWaiting, journal.StatePaused, journal.StateQuarantined} {
			id, goesOn := w.started(1, in(s)), w.started(1, in(s))
			free, want = append(free, id, goesOn), append(want, id)
		}
		owned, ended := w.started(1), w.started(1, in(journal.StateCompleted))
		require.NoError(t, w.j.Release(t.Context(), w.me, free))
		for _, id := range append([]string{owned, ended}, want...) {
			cancel(w, ns, id)
		}
		require.Empty(t, w.takeOver(other, canceled(journal.TakeOverOptions{Except: []string{ns}})).Claimed)
		res := w.takeOver(other, canceled(journal.TakeOverOptions{TakeOverPolicy: journal.TakeOverPolicy{MaxTakeovers: 5}}))
		require.Equal(t, want, ids(res.Claimed))
		for _, f := range res.Claimed {
			require.Zero(t, f.Takeovers, "it was given back")
			require.Equal(t, other, w.get(f.RunID).Owner)
		}
		require.Equal(t, w.me, w.get(owned).Owner)
		require.Empty(t, w.takeOver(other, canceled(journal.TakeOverOptions{})).Claimed)
		require.Len(t, w.takeOver(other, journal.TakeOverOptions{Lease: time.Hour}).Claimed, 1, "the running one that goes on is left to others")
	})
	t.Run("LeavesRunsWithoutWork", func(t *testing.T) {
		w := open(t, d)
		other := w.register("exec-b")
		id, quarantined := w.started(1, in(journal.StateWaiting)), w.started(1, in(journal.StateQuarantined))
		for _, id := range []string{id, quarantined} {
			cancel(w, ns, id)
			require.NoError(t, w.commit(appendTo(id, 1, 0, func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} }))[0].Err)
		}
		require.NoError(t, w.j.Release(t.Context(), w.me, []string{id, quarantined}))
		require.Empty(t, w.takeOver(other, canceled(journal.TakeOverOptions{})).Claimed)
		for _, id := range []string{id, quarantined} {
			_, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandChildEnded, "c"))
			require.NoError(t, err)
		}
		require.Equal(t, []string{id}, ids(w.takeOver(other, canceled(journal.TakeOverOptions{})).Claimed), "a quarantined one is called by a RESUME or CANCEL alone")
	})
	t.Run("FromEachNamespaceInTurn", func(t *testing.T) {
		w := open(t, d)
		var many []string
		for range 5 {
			many = append(many, w.started(1, of("a")))
		}
		b, c := w.started(1, of("b")), w.started(1, of("c"))
		for _, id := range many {
			cancel(w, "a", id)
		}
		cancel(w, "b", b)
		cancel(w, "c", c)
		other := w.register("exec-b")
		require.NoError(t, w.j.Release(t.Context(), w.me, nil))
		res := w.takeOver(other, canceled(journal.TakeOverOptions{Limit: 3}))
		require.Equal(t, []string{many[0], b, c}, ids(res.Claimed))
		require.True(t, res.More)
		require.Empty(t, w.takeOver(other, canceled(journal.TakeOverOptions{Limit: 3, Except: []string{"a"}})).Claimed)
		require.Equal(t, many[1:4], ids(w.takeOver(other, canceled(journal.TakeOverOptions{Limit: 3})).Claimed))
		res = w.takeOver(other, canceled(journal.TakeOverOptions{Limit: 3}))
		require.Equal(t, many[4:], ids(res.Claimed))
		require.False(t, res.More)
	})
	t.Run("OfExecutorsThatAreGone", func(t *testing.T) {
		w := open(t, d)
		running, waiting, paused, goesOn := w.started(1), w.started(1, in(journal.StateWaiting)), w.started(1, in(journal.StatePaused)), w.started(1)
		for _, id := range []string{running, waiting, paused} {
			cancel(w, ns, id)
		}
		w.me = w.register(w.me.ID)
		res := w.takeOver(w.me, canceled(journal.TakeOverOptions{}))
		require.Equal(t, []string{running, waiting}, ids(res.Claimed))
		require.Equal(t, 1, res.Claimed[0].Takeovers)
		require.True(t, w.get(paused).Owner.IsZero(), "it is released")
		res = w.takeOver(w.me, canceled(journal.TakeOverOptions{}))
		require.Equal(t, []string{paused}, ids(res.Claimed))
		require.Equal(t, []string{goesOn}, ids(w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Claimed))
	})
	t.Run("SuspectsOneAtATime", func(t *testing.T) {
		w := open(t, d)
		runs := []string{w.started(1), w.started(1)}
		for _, id := range runs {
			cancel(w, ns, id)
		}
		w.me = w.register(w.me.ID)
		few := journal.TakeOverOptions{TakeOverPolicy: journal.TakeOverPolicy{MaxTakeovers: 2}, NoSuspects: true}
		require.Empty(t, w.takeOver(w.me, canceled(few)).Claimed)
		few.NoSuspects = false
		for range runs {
			res := w.takeOver(w.me, canceled(few))
			require.Len(t, res.Claimed, 1)
			require.Equal(t, journal.DoingReading, res.Claimed[0].Doing)
		}
	})
	t.Run("FencedExecutorGetsAnError", func(t *testing.T) {
		w := open(t, d)
		old := w.me
		w.me = w.register(w.me.ID)
		_, err := w.j.TakeOver(t.Context(), old, canceled(journal.TakeOverOptions{Limit: 1}))
		reason(t, err, journal.ReasonFenced)
	})
}
