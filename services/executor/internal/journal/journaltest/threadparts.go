package journaltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
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
