package journaltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func threadPartCases(t *testing.T, d Driver) {
	// of are a thread, a part of it, and a part of that.
	of := func(w *world, run string) (ids []string) {
		whole := w.thread().ID
		ids = append(ids, whole)
		for i, id := range []string{"thr_member", "thr_inner"} {
			create := &workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral, PartOf: ids[i]}
			require.NoError(w.t, w.commit(appendTo(run, len(w.events(run)), 1, addTo(run, workgraph.ThreadAppend{Thread: id, Create: create, Items: messages(`"x"`)})))[0].Err)
			ids = append(ids, id)
		}
		return ids
	}
	t.Run("DeletionTakesThem", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		ids := of(w, run)
		got, err := w.j.Thread(t.Context(), ns, ids[2])
		require.NoError(t, err)
		require.Equal(t, ids[1], got.PartOf)
		other := w.thread().ID
		reason(t, w.j.DeleteThread(t.Context(), ns, ids[0]), thread.ReasonBusy)
		for _, id := range ids {
			_, err := w.j.Thread(t.Context(), ns, id)
			require.NoError(t, err, "all or none")
		}
		require.NoError(t, w.commit(appendTo(run, len(w.events(run)), 1, inState(journal.StateCompleted)))[0].Err)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, ids[0]))
		for _, id := range ids {
			_, err := w.j.Thread(t.Context(), ns, id)
			reason(t, err, thread.ReasonNotFound)
		}
		_, err = w.j.Thread(t.Context(), ns, other)
		require.NoError(t, err)
	})
	// crowd imports a thread with so many parts, and says which they are.
	crowd := func(w *world, parts int) (whole string, all []string) {
		m := thread.Import{Namespace: ns}
		for range parts + 1 {
			m.Threads = append(m.Threads, thread.Append{Thread: ids.New(thread.IDPrefix), Create: &workgraph.ThreadCreate{PartOf: whole}, Time: base})
			whole = m.Threads[0].Thread
			all = append(all, m.Threads[len(m.Threads)-1].Thread)
		}
		_, err := w.j.ImportThreads(w.t.Context(), m)
		require.NoError(w.t, err)
		return whole, all[1:]
	}
	there := func(w *world) int {
		list, err := w.j.ListThreads(w.t.Context(), ns, thread.Filter{}, page.Cursor{}, 10_000)
		require.NoError(w.t, err)
		return len(list)
	}
	t.Run("DeletionTakesThousands", func(t *testing.T) {
		w := open(t, d)
		whole, _ := crowd(w, 1200)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, whole))
		require.Zero(t, there(w))
	})
	// hide does what the first transaction of a deletion does, after which the process dies.
	hide := func(w *world, id string) {
		require.Len(w.t, w.d.Query(w.t, w.place, `UPDATE threads SET hide_time = create_time, key = '' WHERE thread_id = '`+id+`' RETURNING thread_id`), 1)
	}
	hideParts := func(w *world) {
		for after, more := "", true; more; more = after != "" {
			next, err := w.j.HideParts(w.t.Context(), after, 2)
			require.NoError(w.t, err)
			require.True(w.t, next == "" || next > after)
			after = next
		}
	}
	t.Run("DeletionThatIsCutOffGoesOn", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		ids := of(w, run)
		require.NoError(t, w.commit(appendTo(run, len(w.events(run)), 1, inState(journal.StateCompleted)))[0].Err)
		whole, _ := crowd(w, 5)
		for _, id := range []string{ids[0], whole} {
			hide(w, id)
			_, err := w.j.Thread(t.Context(), ns, id)
			reason(t, err, thread.ReasonNotFound)
		}
		w.purgeThreads()
		require.Equal(t, 7, there(w), "the rows by which they are found stay")
		hideParts(w)
		require.Zero(t, there(w))
		w.purgeThreads()
		require.Equal(t, []string{"0"}, w.d.Query(t, w.place, `SELECT CAST(count(*) AS text) FROM threads`))
		used, err := w.j.ThreadUsage(t.Context(), ns)
		require.NoError(t, err)
		require.Zero(t, used)
	})
	t.Run("AnOpenRunKeepsItsPart", func(t *testing.T) {
		w := open(t, d)
		whole, parts := crowd(w, 3)
		run := w.started(1)
		require.NoError(t, w.j.HoldThread(t.Context(), ns, parts[0], []string{run}))
		reason(t, w.j.DeleteThread(t.Context(), ns, whole), thread.ReasonBusy)
		hide(w, whole) // it was held after the deletion had looked
		hideParts(w)
		w.purgeThreads()
		_, err := w.j.Thread(t.Context(), ns, parts[0])
		require.NoError(t, err)
		require.Equal(t, 1, there(w))
		require.NoError(t, w.commit(appendTo(run, 1, 1, inState(journal.StateCompleted)))[0].Err)
		hideParts(w)
		require.Zero(t, there(w))
	})
	t.Run("NeedTheWhole", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		gone := w.thread().ID
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, gone))
		for _, whole := range []string{"thr_none", gone} {
			reason(t, w.commit(appendTo(run, 1, 1, addTo(run, workgraph.ThreadAppend{Thread: "thr_member", Create: &workgraph.ThreadCreate{PartOf: whole}})))[0].Err, thread.ReasonConflict)
		}
	})
	t.Run("SweepKeepsThemWithTheWhole", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		ids := of(w, run)
		require.NoError(t, w.commit(appendTo(run, len(w.events(run)), 1, inState(journal.StateCompleted)))[0].Err)
		sweep := func() int {
			n, _, err := w.j.SweepThreads(t.Context(), dbkit.Now().Add(time.Hour), "", 100)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, sweep(), "the whole is a conversation")
		_, err := w.j.Thread(t.Context(), ns, ids[2])
		require.NoError(t, err)
	})
	t.Run("SweepTakesThemAfterTheWhole", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		whole := w.thread(func(c *thread.Create) { c.Lifetime = workgraph.ThreadEphemeral }).ID
		require.NoError(t, w.commit(appendTo(run, 1, 1, addTo(run, workgraph.ThreadAppend{Thread: "thr_member", Create: &workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral, PartOf: whole}})))[0].Err)
		require.NoError(t, w.commit(appendTo(run, 2, 1, inState(journal.StateCompleted)))[0].Err)
		for _, want := range []int{1, 1, 0} { // first the whole, then its part
			n, _, err := w.j.SweepThreads(t.Context(), dbkit.Now().Add(time.Hour), "", 100)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
	})
}
