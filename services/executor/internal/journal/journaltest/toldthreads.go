package journaltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TellThread makes outbox items that the suite reads. Stores under test are opened with it.
func TellThread(t thread.Told) journal.Out {
	text := t.RunID
	if t.Made != nil {
		text += fmt.Sprintf(" made %s after %s %d of %s", t.Made.Title, t.Made.ParentID, t.Made.ParentSeq, t.Made.PartOf)
	}
	for _, m := range t.Said {
		text += fmt.Sprintf(" %d %s", m.Seq, m.Role)
	}
	if t.Gone != nil {
		text += " gone " + t.Gone.Title
	}
	return journal.Out{Kind: "THREAD", Body: []byte(text)}
}

func toldThreadCases(t *testing.T, d Driver) {
	// told are the items of threads, each with the thread, in the order of delivery. They are acknowledged.
	told := func(w *world) (out []string) {
		items, err := w.j.ClaimOutbox(w.t.Context(), 1000, time.Minute)
		require.NoError(w.t, err)
		var acks []journal.OutboxAck
		for _, it := range items {
			require.Equal(w.t, ns, it.Namespace)
			out = append(out, it.RunID+":"+string(it.Body))
			acks = append(acks, journal.OutboxAck{ID: it.ID})
		}
		require.NoError(w.t, w.j.AckOutbox(w.t.Context(), acks))
		return out
	}
	role := func(who string) workgraph.ThreadItem {
		return workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: []byte(`{"content":"x","role":"` + who + `"}`)}
	}
	t.Run("Calls/MakeForkAndDelete", func(t *testing.T) {
		w := open(t, d)
		made := w.thread(func(c *thread.Create) { c.Title = "talk" })
		require.Equal(t, []string{made.ID + ": made talk after  0 of "}, told(w))
		part := w.thread(func(c *thread.Create) { c.PartOf = made.ID })
		require.Equal(t, []string{part.ID + ": made  after  0 of " + made.ID}, told(w))
		fork := w.thread(func(c *thread.Create) { c.ParentID = made.ID })
		require.Equal(t, []string{fork.ID + ": made  after " + made.ID + " 0 of "}, told(w))
		_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.ParentID = "thr_none" }))
		reason(t, err, thread.ReasonNotFound)
		require.Empty(t, told(w), "nothing was made")
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, made.ID))
		require.ElementsMatch(t, []string{made.ID + ": gone talk", part.ID + ": gone "}, told(w))
		reason(t, w.j.DeleteThread(t.Context(), ns, made.ID), thread.ReasonNotFound)
		require.Empty(t, told(w))
	})
	t.Run("Commits/TellOfMessagesOnce", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		add := addTo(run, workgraph.ThreadAppend{Thread: "thr_1", Create: &workgraph.ThreadCreate{Title: "new"}, Items: []workgraph.ThreadItem{
			role("user"), {Kind: workgraph.ThreadState, Body: []byte(`{"role":"none"}`)}, role("assistant")}})
		out := func(a *journal.Append) {
			a.Outbox = append(a.Outbox, journal.Out{Kind: "a", Body: []byte("of the run")})
		}
		first := appendTo(run, 1, 1, add, out)
		require.NoError(t, w.commit(first)[0].Err)
		require.Equal(t, []string{run + ":of the run", "thr_1:" + run + " made new after  0 of  1 user 3 assistant"}, told(w))
		require.NoError(t, w.commit(first)[0].Err, "a commit may come twice")
		require.Empty(t, told(w))
		require.NoError(t, w.commit(appendTo(run, 2, 1, says(run, "thr_1", 3, `{"role":"user"}`, `"no role"`)))[0].Err)
		require.Equal(t, []string{"thr_1: 4 user 5 "}, told(w))
		reason(t, w.commit(appendTo(run, 3, 1, says(run, "thr_1", 4, `"taken"`)))[0].Err, thread.ReasonConflict)
		require.Empty(t, told(w), "what is refused is not told")
	})
	t.Run("Commits/OfManyMessagesAreCutInOrder", func(t *testing.T) {
		w := open(t, d)
		run := w.started(1)
		texts := make([]string, 900)
		for i := range texts {
			texts[i] = `{"role":"user"}`
		}
		require.NoError(t, w.commit(appendTo(run, 1, 1, addTo(run, workgraph.ThreadAppend{Thread: "thr_1", Create: &workgraph.ThreadCreate{}, Items: messages(texts...)})))[0].Err)
		list := told(w)
		require.Len(t, list, 3)
		require.Contains(t, list[0], " 400 user")
		require.Contains(t, list[1], "thr_1: 401 user")
		require.Contains(t, list[2], " 900 user")
	})
	t.Run("Import/TellsOfTheFamily", func(t *testing.T) {
		w := open(t, d)
		m := family(2)
		_, err := w.j.ImportThreads(t.Context(), m)
		require.NoError(t, err)
		list := told(w)
		require.Len(t, list, len(m.Threads))
		require.Contains(t, list[0], m.Threads[0].Thread+": made")
		_, err = w.j.ImportThreads(t.Context(), m)
		require.Error(t, err)
		require.Empty(t, told(w))
	})
	t.Run("Sweep/TellsWhatItHides", func(t *testing.T) {
		w := open(t, d)
		stays := w.thread()
		gone := w.thread(func(c *thread.Create) { c.Lifetime = workgraph.ThreadEphemeral })
		part := w.thread(func(c *thread.Create) { c.PartOf = gone.ID })
		require.Len(t, told(w), 3)
		n, _, err := w.j.SweepThreads(t.Context(), time.Now().Add(time.Hour), "", 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{gone.ID + ": gone "}, told(w))
		_, err = w.j.HideParts(t.Context(), "", 10)
		require.NoError(t, err)
		require.Equal(t, []string{part.ID + ": gone "}, told(w))
		_, err = w.j.Thread(t.Context(), ns, stays.ID)
		require.NoError(t, err)
	})
}
