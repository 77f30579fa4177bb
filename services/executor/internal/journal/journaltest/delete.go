package journaltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func deleteCases(t *testing.T, d Driver) {
	over := func(s *journal.Start) { s.Run.State, s.Run.EndTime = journal.StateFailed, base }
	below := func(parent string) func(*journal.Start) {
		return func(s *journal.Start) { s.Run.ParentID = parent }
	}
	rows := func(w *world, id string) int {
		n := 0
		for _, table := range append(journal.PurgeTables(), journal.PurgeTable{Name: "runs"}) {
			n += len(d.Query(w.t, w.place, fmt.Sprintf("SELECT run_id FROM %s WHERE run_id = '%s'", table.Name, id)))
		}
		return n
	}
	purge := func(w *world, limit int) (calls int) {
		for more := true; more; calls++ {
			var err error
			more, err = w.j.PurgeRuns(w.t.Context(), limit)
			require.NoError(w.t, err)
			require.Less(w.t, calls, 1000)
		}
		return calls
	}
	t.Run("RunIsDeletedWithItsRows", func(t *testing.T) {
		w := open(t, d)
		kept := w.started(3)
		id := w.started(40, over, func(s *journal.Start) {
			s.Run.Labels, s.Snapshot, s.Outbox = map[string]string{"a": "b"}, []byte("x"), nil
		})
		n, err := w.j.DeleteRun(t.Context(), ns, id, 0, nil)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = w.j.Get(t.Context(), ns, id)
		reason(t, err, journal.ReasonRunNotFound)
		_, err = w.j.DeleteRun(t.Context(), ns, id, 0, nil)
		reason(t, err, journal.ReasonRunNotFound)
		list, err := w.j.List(t.Context(), ns, journal.Filter{Labels: map[string]string{"a": "b"}}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		// Ten rows at a time, so that what a crash leaves in between is gone on with.
		require.Greater(t, purge(w, 10), 3)
		require.Zero(t, rows(w, id))
		require.NotZero(t, rows(w, kept))
	})
	t.Run("OpenRunStays", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		_, err := w.j.DeleteRun(t.Context(), ns, id, 0, nil)
		reason(t, err, journal.ReasonRunNotEnded)
		_, err = w.j.DeleteRun(t.Context(), "other", id, 0, nil)
		reason(t, err, journal.ReasonRunNotFound)
		purge(w, 10)
		require.NotZero(t, rows(w, id))
	})
	t.Run("EndedDescendantsAreDeletedToo", func(t *testing.T) {
		w := open(t, d)
		top := w.started(1, over)
		child := w.started(1, over, below(top))
		grandchild := w.started(1, over, below(child))
		alive := w.started(1, below(top))
		n, err := w.j.DeleteRun(t.Context(), ns, top, 0, nil)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		purge(w, 1000)
		require.Zero(t, rows(w, grandchild))
		require.Equal(t, journal.StateRunning, w.get(alive).State)
	})
	t.Run("EtagMustFit", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1, over)
		_, err := w.j.DeleteRun(t.Context(), ns, id, w.get(id).Revision+1, nil)
		reason(t, err, journal.ReasonEtagMismatch)
		_, err = w.j.DeleteRun(t.Context(), ns, id, w.get(id).Revision, nil)
		require.NoError(t, err)
	})
	t.Run("ADeletionIsToldInItsTransaction", func(t *testing.T) {
		w := open(t, d)
		top := w.started(3, over, func(s *journal.Start) {
			s.Run.TaskID, s.Run.EpicID, s.Run.WorkflowVersion = "tk_1", "ep_1", "digest@3"
		})
		w.started(1, over, below(top))
		told := func(r *journal.Run, n int) ([]journal.Out, error) {
			return []journal.Out{{Kind: "deleted", Body: fmt.Appendf(nil, "%s/%d %s %s %s %d", r.ID, r.LastSeq, r.TaskID, r.EpicID, r.WorkflowVersion, n)}}, nil
		}
		_, err := w.j.DeleteRun(t.Context(), ns, top, w.get(top).Revision+1, told)
		reason(t, err, journal.ReasonEtagMismatch)
		_, err = w.j.DeleteRun(t.Context(), ns, top, 0, func(*journal.Run, int) ([]journal.Out, error) {
			return nil, errs.New(errs.Internal, errs.ReasonInternal, "cannot be encoded")
		})
		reason(t, err, errs.ReasonInternal)
		items, err := w.j.ClaimOutbox(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Empty(t, items, "what is refused is not told")
		last := w.get(top).LastSeq
		n, err := w.j.DeleteRun(t.Context(), ns, top, 0, told)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		items, err = w.j.ClaimOutbox(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.Equal(t, []any{ns, top, last + 1, "deleted", fmt.Sprintf("%s/%d tk_1 ep_1 digest@3 2", top, last)},
			[]any{items[0].Namespace, items[0].RunID, items[0].Seq, items[0].Kind, string(items[0].Body)})
		purge(w, 1000)
		require.NotZero(t, rows(w, top), "its deletion is not told yet")
	})
	t.Run("OutboxLeavesFirst", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1, over, func(s *journal.Start) { s.Outbox = []journal.Out{{Kind: "usage", Body: []byte("{}")}} })
		_, err := w.j.DeleteRun(t.Context(), ns, id, 0, nil)
		require.NoError(t, err)
		purge(w, 1000)
		require.NotZero(t, rows(w, id), "its costs are not booked yet")
		items, err := w.j.ClaimOutbox(t.Context(), 10, time.Minute)
		require.NoError(t, err)
		require.Len(t, items, 1)
		require.NoError(t, w.j.AckOutbox(t.Context(), []journal.OutboxAck{{ID: items[0].ID, CostNanoUSD: 3}}))
		purge(w, 1000)
		require.Zero(t, rows(w, id))
	})
}
