package journaltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func retentionCases(t *testing.T, d Driver) {
	ended := func(at time.Time, parent string) func(*journal.Start) {
		return func(s *journal.Start) {
			s.Run.State, s.Run.CreateTime, s.Run.EndTime, s.Run.ParentID = journal.StateCompleted, base, at, parent
		}
	}
	t.Run("Expired/OnlyEndedTreesThatAreOldEnough", func(t *testing.T) {
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

		forever := w.started(1, ended(base, ""), func(s *journal.Start) { s.Run.Namespace = "forever" })
		before := func(namespace string) time.Time {
			switch namespace {
			case "forever":
				return time.Time{}
			case "other":
				return base.Add(time.Second)
			}
			return base.Add(time.Minute)
		}
		w.started(1, ended(base.Add(2*time.Second), ""), func(s *journal.Start) { s.Run.Namespace = "other" })

		got := map[string]bool{}
		var after journal.Ended
		for {
			page, err := w.j.Expired(t.Context(), before, after, 2)
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
		require.NotContains(t, got, forever)
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
	over := func(s *journal.Start) { s.Run.State, s.Run.EndTime = journal.StateCompleted, base }
	// early is a run that began before the graphs were made old.
	early := func(s *journal.Start) { s.Run.CreateTime = dbkit.Now().Add(-10 * 24 * time.Hour) }
	graph := func(hash string) func(*journal.Start) {
		return func(s *journal.Start) { s.Run.GraphHash, s.Graph = hash, []byte("body of "+hash) }
	}
	// sweep looks at all graphs, page by page, and returns which are left.
	sweep := func(w *world, size int) (removed int, left []string) {
		w.t.Helper()
		var after journal.Key
		for {
			n, next, err := w.j.SweepGraphs(w.t.Context(), time.Now().Add(-journal.GraphRest), after, size)
			require.NoError(w.t, err)
			removed += n
			if after = next; next == (journal.Key{}) {
				return removed, w.d.Query(w.t, w.place, `SELECT namespace || '/' || hash FROM graphs ORDER BY 1`)
			}
		}
	}
	remove := func(w *world, id string) {
		w.t.Helper()
		_, err := w.j.DeleteRun(w.t.Context(), ns, id, 0, nil)
		require.NoError(w.t, err)
	}
	t.Run("Graphs/OnlyUnreferencedOnes", func(t *testing.T) {
		w := open(t, d)
		w.started(1, early, graph("live"))
		w.started(1, early, graph("kept"), over)
		gone := w.started(1, early, graph("gone"), over)
		shared := w.started(1, early, graph("shared"), over)
		w.started(1, early, graph("shared"), over)
		w.started(1, early, graph("gone"), func(s *journal.Start) { s.Run.Namespace = "other" })
		changed := w.started(1, early, graph("first"))
		for i, hash := range []string{"second", "third"} {
			w.commit(appendTo(changed, i+1, 1, func(a *journal.Append) { a.GraphHash, a.Graph = hash, []byte("body of "+hash) }))
		}
		remove(w, gone)
		remove(w, shared)
		removed, _ := sweep(w, 100)
		require.Zero(t, removed, "they were in use just now")
		d.AgeGraphs(t, w.place)
		removed, left := sweep(w, 2)
		require.Equal(t, []string{"acme/first", "acme/kept", "acme/live", "acme/shared", "acme/third", "other/gone"}, left)
		require.Equal(t, 2, removed)
		removed, _ = sweep(w, 100)
		require.Zero(t, removed)
	})
	t.Run("Graphs/ComeBackWithTheNextRun", func(t *testing.T) {
		w := open(t, d)
		remove(w, w.started(1, graph("g"), over))
		d.AgeGraphs(t, w.place)
		_, left := sweep(w, 100)
		require.Empty(t, left)
		w.j = w.another() // one that does not remember it
		body, err := w.j.GraphBody(t.Context(), ns, w.get(w.started(1, graph("g"))).GraphHash)
		require.NoError(t, err)
		require.Equal(t, "body of g", string(body))
	})
	t.Run("Graphs/TakenWhileTheyAreSwept", func(t *testing.T) {
		w := open(t, d)
		sweeper := w.another()
		kept := map[string]string{}
		for i := range 20 {
			hash := fmt.Sprintf("g%d", i)
			remove(w, w.started(1, early, graph(hash), over))
			d.AgeGraphs(t, w.place)
			w.j = w.another() // as another executor, which knows nothing of the graph
			swept := make(chan error, 1)
			go func() {
				_, _, err := sweeper.SweepGraphs(t.Context(), time.Now().Add(-journal.GraphRest), journal.Key{}, 100)
				swept <- err
			}()
			kept[w.started(1, early, graph(hash))] = hash
			require.NoError(t, <-swept)
		}
		for id, hash := range kept {
			l, err := w.j.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, "body of "+hash, string(l.Graph))
		}
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
		_, err = w.j.DeleteRun(t.Context(), ns, gone, 0, nil)
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
