package journaltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// family is an import of a whole, a part of it and a part of that, each with so many items.
func family(items int, change ...func(*thread.Import)) thread.Import {
	m := thread.Import{Namespace: ns}
	above := ""
	for _, key := range []string{"k", "", ""} {
		a := thread.Append{Thread: ids.New(thread.IDPrefix), Create: &workgraph.ThreadCreate{Key: key, Agent: "agent/x", Title: "t", PartOf: above}, Time: base}
		for i := range items {
			body := fmt.Sprintf(`{"n": %d}`, i)
			a.Items = append(a.Items, thread.Item{Seq: int64(i) + 1, Kind: workgraph.ThreadMessage, Time: base, Brief: []byte(`{}`), Body: []byte(body), Weight: int64(len(body)) + 2 + thread.Overhead})
		}
		above = a.Thread
		m.Threads = append(m.Threads, a)
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

func threadValueCases(t *testing.T, d Driver) {
	t.Run("Import/MakesAFamily", func(t *testing.T) {
		w := open(t, d)
		m := family(2)
		made, err := w.j.ImportThreads(t.Context(), m)
		require.NoError(t, err)
		require.Equal(t, m.Threads[0].Thread, made.ID)
		require.EqualValues(t, 2, made.Last)
		require.Equal(t, "k", made.Key)
		got, err := w.j.Family(t.Context(), ns, made.ID, 10)
		require.NoError(t, err)
		require.Len(t, got, 3)
		require.Equal(t, made, got[0].Thread, "the whole comes first")
		for i := range m.Threads {
			require.Equal(t, []string{`1 {"n": 0}`, `2 {"n": 1}`}, w.items(m.Threads[i].Thread))
		}
		used, err := w.j.ThreadUsage(t.Context(), ns)
		require.NoError(t, err)
		require.Equal(t, m.Usage(), used)
	})
	t.Run("Import/OfManyItemsIsWhole", func(t *testing.T) {
		w := open(t, d)
		m := family(700)
		_, err := w.j.ImportThreads(t.Context(), m)
		require.NoError(t, err)
		require.Len(t, w.items(m.Threads[2].Thread), 700)
	})
	t.Run("Import/AgainIsTheSame", func(t *testing.T) {
		w := open(t, d)
		once := func(hash string) func(*thread.Import) {
			return func(m *thread.Import) { m.Request = thread.Request{Method: "M", ID: "r", BodyHash: hash} }
		}
		first, err := w.j.ImportThreads(t.Context(), family(1, once("h")))
		require.NoError(t, err)
		again, err := w.j.ImportThreads(t.Context(), family(1, once("h"), func(m *thread.Import) { m.Refused = thread.AgentUnknown("agent/x", nil) }))
		require.NoError(t, err)
		require.Equal(t, first, again)
		_, err = w.j.ImportThreads(t.Context(), family(1, once("other")))
		reason(t, err, journal.ReasonRequestIDReused)
	})
	t.Run("Import/ThatBreaksOffLeavesNothing", func(t *testing.T) {
		w := open(t, d)
		broken := family(1, func(m *thread.Import) {
			m.Request = thread.Request{Method: "M", ID: "r", BodyHash: "h"}
			last := &m.Threads[2]
			last.Items = append(last.Items, last.Items[0]) // a sequence that is there: the last insert fails
		})
		_, err := w.j.ImportThreads(t.Context(), broken)
		require.Error(t, err)
		list, err := w.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		used, err := w.j.ThreadUsage(t.Context(), ns)
		require.NoError(t, err)
		require.Zero(t, used)
		_, err = w.j.ImportThreads(t.Context(), family(1, func(m *thread.Import) { m.Request = broken.Request }))
		require.NoError(t, err, "the request was not remembered")
	})
	t.Run("Import/WithinTheRoom", func(t *testing.T) {
		w := open(t, d)
		for want, room := range map[string]thread.Room{thread.ReasonTooMany: {Threads: 2}, thread.ReasonTooLarge: {Bytes: 100}} {
			_, err := w.j.ImportThreads(t.Context(), family(1, func(m *thread.Import) { m.Room = room }))
			reason(t, err, want)
		}
		_, err := w.j.ImportThreads(t.Context(), family(1, func(m *thread.Import) { m.Room = thread.Room{Threads: 3} }))
		require.NoError(t, err)
	})
	t.Run("Import/OfATakenKeyIsRefused", func(t *testing.T) {
		w := open(t, d)
		_, err := w.j.ImportThreads(t.Context(), family(1))
		require.NoError(t, err)
		_, err = w.j.ImportThreads(t.Context(), family(1))
		reason(t, err, thread.ReasonExists)
	})
	t.Run("Import/WithTheRunIsWrittenOnce", func(t *testing.T) {
		w := open(t, d)
		m := family(3)
		s := start(1, func(s *journal.Start) { s.Threads = m.Threads })
		for range 2 { // the second one is a try whose answer was lost
			require.NoError(t, w.commit(journal.Write{Start: s})[0].Err)
		}
		got, err := w.j.Family(t.Context(), ns, m.Threads[0].Thread, 10)
		require.NoError(t, err)
		require.Len(t, got, 3)
		for i := range got {
			require.Equal(t, s.Run.ID, got[i].By, "the run holds them")
			require.EqualValues(t, 3, got[i].Last)
		}
	})
	t.Run("Import/WithAStartThatIsAnsweredMakesNothing", func(t *testing.T) {
		for name, change := range map[string]func(*journal.Start){
			"Request":     func(s *journal.Start) { s.Request = journal.Request{Method: "M", ID: "r", BodyHash: "h"} },
			"BusinessKey": func(s *journal.Start) { s.Run.BusinessKey, s.Conflict = "order", journal.ConflictReturnExisting },
		} {
			for _, together := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/Together=%v", name, together), func(t *testing.T) {
					w := open(t, d)
					first := family(2)
					of := func(n int, m thread.Import) journal.Write {
						return journal.Write{Start: start(n, change, func(s *journal.Start) { s.Threads, s.Room = m.Threads, thread.Room{Threads: 3} })}
					}
					a, b := of(1, first), of(2, family(2))
					var res []journal.Result
					if together {
						res = w.commit(a, b)
					} else {
						res = append(w.commit(a), w.commit(b)...)
					}
					require.NoError(t, res[0].Err)
					require.NoError(t, res[1].Err, "neither its key nor its room counts")
					require.Equal(t, a.Start.Run.ID, res[1].RunID)
					require.False(t, res[1].Created)
					list, err := w.j.ListThreads(t.Context(), ns, thread.Filter{}, page.Cursor{}, 10)
					require.NoError(t, err)
					require.Len(t, list, 3)
					used, err := w.j.ThreadUsage(t.Context(), ns)
					require.NoError(t, err)
					require.Equal(t, first.Usage(), used)
				})
			}
		}
	})
	t.Run("Family/IsBounded", func(t *testing.T) {
		w := open(t, d)
		m := family(1)
		_, err := w.j.ImportThreads(t.Context(), m)
		require.NoError(t, err)
		got, err := w.j.Family(t.Context(), ns, m.Threads[0].Thread, 2)
		require.NoError(t, err)
		require.Len(t, got, 2)
	})
	t.Run("Family/OfAnotherNamespaceIsNotThere", func(t *testing.T) {
		w := open(t, d)
		m := family(1)
		_, err := w.j.ImportThreads(t.Context(), m)
		require.NoError(t, err)
		_, err = w.j.Family(t.Context(), "other", m.Threads[0].Thread, 10)
		reason(t, err, thread.ReasonNotFound)
	})
	t.Run("Family/ThatIsACircleEnds", func(t *testing.T) {
		w := open(t, d)
		m := family(1)
		m.Threads[0].Create.PartOf = m.Threads[2].Thread
		_, err := w.j.ImportThreads(t.Context(), m)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		got, err := w.j.Family(ctx, ns, m.Threads[0].Thread, 10)
		require.NoError(t, err)
		require.Len(t, got, 3)
	})
}
