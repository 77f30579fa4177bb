package journaltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func saidCases(t *testing.T, d Driver) {
	// said is the job of a message of a thread, which names itself as its run.
	said := func(id string, seq int, later time.Duration) journal.Job {
		args := fmt.Sprintf(`{"namespace": "%s", "run_id": "%s/%d", "event": "chat.said", "thread": "%s", "seq": %d}`, ns, id, seq, id, seq)
		j := journal.Job{Kind: journal.JobWebhook, Args: []byte(args)}
		if later > 0 {
			j.At = dbkit.Now().Add(later)
		}
		return j
	}
	last := func(w *world, namespace, id string, before int64) int64 {
		seq, err := w.j.LastUnsent(w.t.Context(), namespace, id, before)
		require.NoError(w.t, err)
		return seq
	}
	t.Run("Unsent/IsTheLastBefore", func(t *testing.T) {
		w := open(t, d)
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{said("thr_1", 3, 0), said("thr_1", 7, time.Hour), said("thr_2", 5, 0),
			{Kind: journal.JobWebhook, Args: []byte(`{"namespace": "acme", "event": "run.ended", "run_id": "x", "seq": 4}`)}, {Kind: journal.JobWake, RunID: "run_1"}}))
		for before, want := range map[int64]int64{3: 0, 4: 3, 7: 3, 8: 7, 100: 7} {
			require.Equal(t, want, last(w, ns, "thr_1", before), "before %d", before)
		}
		require.Zero(t, last(w, "other", "thr_1", 100))
		require.Zero(t, last(w, ns, "thr_3", 100))
	})
	t.Run("Unsent/ATryThatGoesOnCounts", func(t *testing.T) {
		w := open(t, d)
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{said("thr_1", 3, 0)}))
		d.TakeJobs(t, w.place, "executor/other")
		require.EqualValues(t, 3, last(w, ns, "thr_1", 4))
	})
	t.Run("Wake/MakesThoseBehindDue", func(t *testing.T) {
		w := open(t, d)
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{said("thr_1", 3, time.Hour), said("thr_1", 7, time.Hour), said("thr_2", 9, time.Hour)}))
		require.NoError(t, w.j.WakeUnsent(t.Context(), "other", "thr_1", 3))
		require.Equal(t, []string{"webhook scheduled thr_1/3", "webhook scheduled thr_1/7", "webhook scheduled thr_2/9"}, d.Query(t, w.place, d.JobQuery))
		require.NoError(t, w.j.WakeUnsent(t.Context(), ns, "thr_1", 3))
		require.Equal(t, []string{"webhook scheduled thr_1/3", "webhook available thr_1/7", "webhook scheduled thr_2/9"}, d.Query(t, w.place, d.JobQuery))
	})
}
