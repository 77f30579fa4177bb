package journaltest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/fact"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// learns adds a message and facts to a thread after a sequence.
func learns(runID, id string, after int64, at time.Time, facts ...workgraph.Fact) func(*journal.Append) {
	return func(a *journal.Append) {
		as := thread.Appends([]workgraph.ThreadAppend{{Thread: id, After: after, Items: messages(`1`), Facts: facts}}, runID, "n", 1, at)
		a.Threads = append(a.Threads, as...)
	}
}

// kept are the facts that a filter finds, as "NAME CONTENT", read in small pages.
func (w *world) kept(namespace string, f fact.Filter) (out []string) {
	w.t.Helper()
	for after := (page.Cursor{}); ; {
		found, err := w.j.ListFacts(w.t.Context(), namespace, f, after, 300)
		require.NoError(w.t, err)
		for _, one := range found {
			out = append(out, one.Name+" "+one.Content)
			after = page.Cursor{CreateTime: one.Time, ID: one.ID}
		}
		if len(found) < 300 {
			return out
		}
	}
}

func factCases(t *testing.T, d Driver) {
	t.Run("Fact/IsWrittenOnceWithTheItems", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		write := appendTo(run, 1, 1, learns(run, th.ID, 0, base, workgraph.Fact{Agent: "agent/x", User: "ann", Name: "drink", Content: "likes tea"}))
		for range 2 {
			require.NoError(t, w.commit(write)[0].Err)
		}
		found, err := w.j.ListFacts(t.Context(), ns, fact.Filter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		want := fact.New(ns, fact.Owner{Agent: "agent/x", User: "ann"}, "drink", "likes tea")
		want.Thread, want.Run, want.Time = th.ID, run, base
		require.Equal(t, []fact.Fact{want}, found)
		require.Empty(t, w.kept("other", fact.Filter{}))
		reason(t, w.j.DeleteFact(t.Context(), "other", want.ID), fact.ReasonNotFound)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, th.ID))
		w.purgeThreads()
		require.Len(t, w.kept(ns, fact.Filter{}), 1, "it outlives its thread")
		require.NoError(t, w.j.DeleteFact(t.Context(), ns, want.ID))
		reason(t, w.j.DeleteFact(t.Context(), ns, want.ID), fact.ReasonNotFound)
	})
	t.Run("Fact/StaysDeletedWhenTheCommitComesAgain", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		write := appendTo(run, 1, 1, learns(run, th.ID, 0, base, workgraph.Fact{Agent: "a", Content: "x"}))
		require.NoError(t, w.commit(write)[0].Err)
		found, err := w.j.ListFacts(t.Context(), ns, fact.Filter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.NoError(t, w.j.DeleteFact(t.Context(), ns, found[0].ID))
		require.NoError(t, w.commit(write)[0].Err)
		require.Empty(t, w.kept(ns, fact.Filter{}))
	})
	t.Run("Refused/WritesNone", func(t *testing.T) {
		w := open(t, d)
		th, run, lost := w.thread(), w.started(1), w.started(1)
		res := w.commit(appendTo(run, 1, 1, learns(run, th.ID, 7, base, workgraph.Fact{Agent: "a", Content: "x"})),
			appendTo(lost, 9, 1, learns(lost, th.ID, 0, base, workgraph.Fact{Agent: "a", Content: "y"})))
		reason(t, res[0].Err, thread.ReasonConflict)
		reason(t, res[1].Err, journal.ReasonSeqConflict)
		require.Empty(t, w.kept(ns, fact.Filter{}))
	})
	t.Run("Name/TheLastOneStands", func(t *testing.T) {
		w := open(t, d)
		a, b, one, two := w.thread(), w.thread(), w.started(1), w.started(1)
		of := func(content string) workgraph.Fact { return workgraph.Fact{Agent: "a", Name: "n", Content: content} }
		for _, r := range w.commit(appendTo(one, 1, 1, learns(one, a.ID, 0, base, of("1"), of("2"))), appendTo(two, 1, 1, learns(two, b.ID, 0, base, of("3")))) {
			require.NoError(t, r.Err)
		}
		require.Equal(t, []string{"n 3"}, w.kept(ns, fact.Filter{}))
		require.NoError(t, w.commit(appendTo(one, 2, 1, learns(one, a.ID, 1, base, of("4"))))[0].Err)
		require.Equal(t, []string{"n 4"}, w.kept(ns, fact.Filter{}))
	})
	t.Run("List/FiltersAndPages", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		for i := range 6 {
			f := workgraph.Fact{Agent: fmt.Sprint("a", i%2), User: []string{"", "ann", "bob"}[i%3], Name: fmt.Sprint("n", i), Content: "x"}
			require.NoError(t, w.commit(appendTo(run, i+1, 1, learns(run, th.ID, int64(i), base.Add(time.Duration(i/2)*time.Second), f)))[0].Err)
		}
		user := func(s string) *string { return &s }
		for want, f := range map[string]fact.Filter{
			"n0 n1 n2 n3 n4 n5": {}, "n0 n2 n4": {Agent: "a0"}, "n1 n4": {User: user("ann")}, "n0 n3": {User: user("")}, "n5": {Agent: "a1", User: user("bob")},
		} {
			var names []string
			var before time.Time
			for after := (page.Cursor{}); ; {
				found, err := w.j.ListFacts(t.Context(), ns, f, after, 1)
				require.NoError(t, err)
				if len(found) == 0 {
					break
				}
				require.False(t, !before.IsZero() && found[0].Time.After(before), "newest first")
				before, after = found[0].Time, page.Cursor{CreateTime: found[0].Time, ID: found[0].ID}
				names = append(names, found[0].Name)
			}
			slices.Sort(names)
			require.Equal(t, want, strings.Join(names, " "))
		}
	})
	t.Run("Bounds/TheOldestGiveWay", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		at := func(i int) time.Time { return base.Add(time.Duration(i) * time.Second) }
		add := func(i int, facts ...workgraph.Fact) {
			require.NoError(t, w.commit(appendTo(run, i, 1, learns(run, th.ID, int64(i-1), at(i), facts...)))[0].Err)
		}
		of := func(user, name string, size int) workgraph.Fact {
			return workgraph.Fact{Agent: "a", User: user, Name: name, Content: strings.Repeat("x", size)}
		}
		var many []workgraph.Fact
		for i := range fact.MaxFacts {
			many = append(many, of("ann", fmt.Sprint(i), 1))
		}
		add(1, of("ann", "first", 1), of("bob", "first", 1))
		add(2, many[1:]...)
		require.Len(t, w.kept(ns, fact.Filter{}), fact.MaxFacts+1)
		add(3, many[0])
		kept := w.kept(ns, fact.Filter{})
		require.Len(t, kept, fact.MaxFacts+1)
		require.Equal(t, "first x", kept[len(kept)-1], "that of the other user")
		require.Equal(t, "0 x", kept[0])

		var large []workgraph.Fact
		for i := range fact.MaxBytes / fact.MaxContent {
			large = append(large, of("carl", fmt.Sprint(i), fact.MaxContent))
		}
		add(4, large...)
		add(5, of("carl", "one more", 1))
		carl := "carl"
		kept = w.kept(ns, fact.Filter{User: &carl})
		require.Len(t, kept, len(large))
		require.Equal(t, "one more x", kept[0])
	})
}
