package journaltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func growthCases(t *testing.T, d Driver) {
	ended := func(at time.Time, parent string) func(*journal.Start) {
		return func(s *journal.Start) {
			s.Run.State, s.Run.CreateTime, s.Run.EndTime, s.Run.ParentID = journal.StateCompleted, base, at, parent
		}
	}
	t.Run("Expired/OnlyTreesThatAreOverAndOldEnough", func(t *testing.T) {
		w := open(t, d)
		young := base.Add(time.Hour)
		w.started(1) // goes on
		w.started(1, ended(young, ""))
		second := w.started(1, ended(base.Add(time.Second), ""))
		first := w.started(2, ended(base, ""))
		w.started(1, ended(base, first))
		withOpen := w.started(1, ended(base, ""))
		child := w.started(1, ended(base, withOpen))
		w.started(1, func(s *journal.Start) { s.Run.ParentID = child })
		withYoung := w.started(1, ended(base, ""))
		w.started(1, ended(young, withYoung))
		orphan := w.started(1, ended(base, "run_gone"))
		live := w.started(1)
		w.started(1, ended(base, live))
		other := w.started(1, ended(base, ""), func(s *journal.Start) { s.Run.Namespace = "other" })

		got := map[string]bool{}
		var after journal.Ended
		for {
			page, err := w.j.Expired(t.Context(), base.Add(time.Minute), after, 2)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				require.False(t, e.Namespace == after.Namespace && e.CreateTime.Before(after.CreateTime))
				if after = e; !e.Skipped {
					got[e.RunID] = true
				}
			}
		}
		require.Equal(t, map[string]bool{first: true, second: true, orphan: true, other: true}, got)
	})
	t.Run("Archive/PlaceIsRemembered", func(t *testing.T) {
		w := open(t, d)
		place := func(namespace string) string {
			p, err := w.j.ArchiveOf(t.Context(), namespace, "run_1")
			require.NoError(t, err)
			return p
		}
		require.Empty(t, place(ns))
		require.NoError(t, w.j.NoteArchive(t.Context(), ns, "run_1", "a"))
		require.NoError(t, w.j.NoteArchive(t.Context(), ns, "run_1", "b"))
		require.Equal(t, "b", place(ns))
		require.Empty(t, place("other"))
	})
	t.Run("Parts/RunsKeepTheirEventsThroughout", func(t *testing.T) {
		w := open(t, d)
		live, gone := w.started(5), w.started(700, ended(base, ""))
		p, err := w.j.Extend(t.Context(), time.Hour, 30*24*time.Hour)
		require.NoError(t, err)
		again, err := w.j.Extend(t.Context(), time.Hour, 30*24*time.Hour)
		require.NoError(t, err)
		require.Equal(t, p, again, "nothing is made twice")
		if p.Count > 0 {
			require.Greater(t, p.End, time.Now().Add(30*24*time.Hour))
		}
		_, err = w.j.DeleteRun(t.Context(), ns, gone, 0)
		require.NoError(t, err)
		// As if a month had passed.
		for more := true; more; {
			more, err = w.j.Shrink(t.Context(), time.Now().Add(29*24*time.Hour), 100)
			require.NoError(t, err)
		}
		for more := true; more; {
			more, err = w.j.PurgeRuns(t.Context(), 300)
			require.NoError(t, err)
		}
		require.Len(t, w.events(live), 5)
		require.Empty(t, w.events(gone))
		w.commit(appendTo(live, 5, 1))
		require.Len(t, w.events(live), 6)
		require.Len(t, w.events(w.started(2)), 2)
	})
}
