package journaltest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func threadCases(t *testing.T, d Driver) {
	t.Run("Rows", func(t *testing.T) { threadRowCases(t, d) })
	t.Run("Append", func(t *testing.T) { threadAppendCases(t, d) })
	t.Run("Forks", func(t *testing.T) { threadForkCases(t, d) })
	t.Run("Hold", func(t *testing.T) { threadHoldCases(t, d) })
	t.Run("Parts", func(t *testing.T) { threadPartCases(t, d) })
	t.Run("Values", func(t *testing.T) { threadValueCases(t, d) })
	t.Run("Said", func(t *testing.T) { saidCases(t, d) })
	t.Run("Sweep", func(t *testing.T) { threadSweepCases(t, d) })
	t.Run("Room", func(t *testing.T) { threadRoomCases(t, d) })
	t.Run("Turns", func(t *testing.T) { turnCases(t, d) })
}

// thread makes a thread.
func (w *world) thread(change ...func(*thread.Create)) thread.Thread {
	w.t.Helper()
	th, err := w.j.CreateThread(w.t.Context(), newThread(change...))
	require.NoError(w.t, err)
	return th
}

func newThread(change ...func(*thread.Create)) thread.Create {
	c := thread.Create{Thread: thread.Thread{ID: ids.New(thread.IDPrefix), Namespace: ns, Lifetime: workgraph.ThreadConversation, CreateTime: dbkit.Now()}}
	for _, f := range change {
		f(&c)
	}
	return c
}

// items are the texts of a thread, across its forks, oldest first, read back by lineage.
func (w *world) items(id string) (out []string) {
	w.t.Helper()
	segments, err := w.j.Lineage(w.t.Context(), ns, id)
	require.NoError(w.t, err)
	for _, g := range segments {
		its, err := w.j.SegmentItems(w.t.Context(), ns, g, thread.Selection{Limit: 1000, Body: true})
		require.NoError(w.t, err)
		for _, it := range its {
			out = append([]string{fmt.Sprintf("%d %s", it.Seq, it.Body)}, out...)
		}
	}
	return out
}

// says adds messages to a thread after a sequence.
func says(runID, id string, after int64, texts ...string) func(*journal.Append) {
	return addTo(runID, workgraph.ThreadAppend{Thread: id, After: after, Items: messages(texts...)})
}

func messages(texts ...string) (out []workgraph.ThreadItem) {
	for _, s := range texts {
		out = append(out, workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: []byte(s)})
	}
	return out
}

func addTo(runID string, as ...workgraph.ThreadAppend) func(*journal.Append) {
	return func(a *journal.Append) { a.Threads = append(a.Threads, thread.Appends(as, runID, "n", 1, base)...) }
}

func threadRowCases(t *testing.T, d Driver) {
	t.Run("Create/ReadsBack", func(t *testing.T) {
		w := open(t, d)
		made := w.thread(func(c *thread.Create) {
			c.Key, c.Agent, c.Title, c.UserID, c.ChatID = "u:c:w", "agent/x", "Hello", "u", "c"
		})
		got, err := w.j.Thread(t.Context(), ns, made.ID)
		require.NoError(t, err)
		require.Equal(t, made, got)
		several, err := w.j.ThreadsByKeys(t.Context(), ns, []string{"u:c:w", "none", ""})
		require.NoError(t, err)
		require.Len(t, several, 1)
		require.Equal(t, got, several[0])
		several, err = w.j.ThreadsByKeys(t.Context(), "other", []string{"u:c:w"})
		require.NoError(t, err)
		require.Empty(t, several)
		got, err = w.j.ThreadByKey(t.Context(), ns, "u:c:w")
		require.NoError(t, err)
		require.Equal(t, made, got)
	})
	t.Run("Create/KeyIsTakenOnce", func(t *testing.T) {
		w := open(t, d)
		made := w.thread(func(c *thread.Create) { c.Key = "k" })
		_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.Key = "k" }))
		reason(t, err, thread.ReasonExists)
		require.Equal(t, made.ID, errs.From(err).Meta["thread_id"])
		w.thread(func(c *thread.Create) { c.Key, c.Namespace = "k", "other" })
		w.thread()
		w.thread() // no key is no key
	})
	t.Run("Create/RequestMakesOne", func(t *testing.T) {
		w := open(t, d)
		ask := func(hash string) (thread.Thread, error) {
			return w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.Request = thread.Request{Method: "M", ID: "r1", BodyHash: hash} }))
		}
		first, err := ask("h")
		require.NoError(t, err)
		again, err := ask("h")
		require.NoError(t, err)
		require.Equal(t, first.ID, again.ID)
		_, err = ask("other")
		reason(t, err, journal.ReasonRequestIDReused)
	})
	t.Run("Namespace/SeesItsOwnOnly", func(t *testing.T) {
		w := open(t, d)
		made := w.thread(func(c *thread.Create) { c.Key = "k" })
		_, err := w.j.Thread(t.Context(), "other", made.ID)
		reason(t, err, thread.ReasonNotFound)
		_, err = w.j.ThreadByKey(t.Context(), "other", "k")
		reason(t, err, thread.ReasonNotFound)
		_, err = w.j.Lineage(t.Context(), "other", made.ID)
		reason(t, err, thread.ReasonNotFound)
		reason(t, w.j.DeleteThread(t.Context(), "other", made.ID), thread.ReasonNotFound)
		reason(t, w.j.HoldThread(t.Context(), "other", made.ID, []string{"run_1"}), thread.ReasonNotFound)
		_, err = w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.Namespace, c.ParentID = "other", made.ID }))
		reason(t, err, thread.ReasonNotFound)
		list, err := w.j.ListThreads(t.Context(), "other", thread.Filter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		its, err := w.j.SegmentItems(t.Context(), "other", thread.Segment{Thread: made.ID, First: 1, Last: 9}, thread.Selection{Limit: 10})
		require.NoError(t, err)
		require.Empty(t, its)
	})
	t.Run("List/FiltersAndPages", func(t *testing.T) {
		w := open(t, d)
		var made []thread.Thread
		for i := range 6 {
			made = append(made, w.thread(func(c *thread.Create) {
				c.CreateTime, c.Agent, c.Key = base.Add(time.Duration(i/2)*time.Second), fmt.Sprint("agent/", i%2), fmt.Sprint("user%_", i%3, ":", i)
			}))
		}
		fork := w.thread(func(c *thread.Create) {
			c.ParentID, c.Lifetime, c.CreateTime = made[2].ID, workgraph.ThreadEphemeral, base.Add(time.Hour)
		})
		list := func(f thread.Filter) (out []string) {
			var after page.Cursor
			for {
				rows, err := w.j.ListThreads(t.Context(), ns, f, after, 2)
				require.NoError(t, err)
				for _, r := range rows {
					out = append(out, r.ID)
					after = page.Cursor{CreateTime: r.CreateTime, ID: r.ID}
				}
				if len(rows) < 2 {
					return out
				}
			}
		}
		newest := func(is ...int) (out []string) {
			for _, i := range is {
				out = append(out, made[i].ID)
			}
			return out
		}
		require.Equal(t, append([]string{fork.ID}, newest(5, 4, 3, 2, 1, 0)...), list(thread.Filter{}))
		require.Equal(t, newest(5, 3, 1), list(thread.Filter{Agent: "agent/1"}))
		require.Equal(t, newest(4, 1), list(thread.Filter{KeyPrefix: "user%_1:"}))
		require.Equal(t, []string{fork.ID}, list(thread.Filter{ParentID: made[2].ID}))
		require.Equal(t, []string{fork.ID}, list(thread.Filter{Lifetime: workgraph.ThreadEphemeral}))
	})
	t.Run("Delete/IsGoneAndFreesTheKey", func(t *testing.T) {
		w := open(t, d)
		made := w.thread(func(c *thread.Create) { c.Key = "k" })
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, made.ID))
		reason(t, w.j.DeleteThread(t.Context(), ns, made.ID), thread.ReasonNotFound)
		_, err := w.j.Thread(t.Context(), ns, made.ID)
		reason(t, err, thread.ReasonNotFound)
		w.thread(func(c *thread.Create) { c.Key = "k" })
	})
}

func threadAppendCases(t *testing.T, d Driver) {
	t.Run("Items/AreWrittenWithTheRun", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`, `"b"`)))[0].Err)
		require.NoError(t, w.commit(appendTo(run, 2, 1, says(run, th.ID, 2, `"c"`)))[0].Err)
		require.Equal(t, []string{`1 "a"`, `2 "b"`, `3 "c"`}, w.items(th.ID))
		got, err := w.j.Thread(t.Context(), ns, th.ID)
		require.NoError(t, err)
		require.EqualValues(t, 3, got.Last)
		its, err := w.j.SegmentItems(t.Context(), ns, thread.Segment{Thread: th.ID, First: 1, Last: 3}, thread.Selection{Limit: 1, Body: true, Origin: true})
		require.NoError(t, err)
		require.Equal(t, []thread.Item{{Seq: 3, Kind: workgraph.ThreadMessage, Time: base, RunID: run, NodeID: "n", Visit: 1, Body: []byte(`"c"`)}}, its)
	})
	t.Run("Agent/ChangesWithTheItems", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(func(c *thread.Create) { c.Agent = "agent/a" }), w.started(1)
		other := w.thread(func(c *thread.Create) { c.Agent = "agent/a" })
		is := func(want string) {
			t.Helper()
			got, err := w.j.Thread(t.Context(), ns, th.ID)
			require.NoError(t, err)
			require.Equal(t, want, got.Agent)
		}
		hands := func(seq int, after int64, to string) journal.Write {
			return appendTo(run, seq, 1, addTo(run, workgraph.ThreadAppend{Thread: th.ID, After: after, Agent: to, Items: messages(`"x"`)}))
		}
		first := hands(1, 0, "agent/b")
		require.NoError(t, w.commit(first)[0].Err)
		is("agent/b")
		require.NoError(t, w.commit(appendTo(run, 2, 1, says(run, th.ID, 1, `"y"`)))[0].Err)
		is("agent/b")
		reason(t, w.commit(hands(3, 1, "agent/lost"))[0].Err, thread.ReasonConflict)
		is("agent/b")
		require.NoError(t, w.commit(hands(3, 2, "agent/a"))[0].Err)
		require.NoError(t, w.commit(first)[0].Err, "what is written already changes nothing")
		is("agent/a")
		got, err := w.j.Thread(t.Context(), ns, other.ID)
		require.NoError(t, err)
		require.Equal(t, "agent/a", got.Agent)
		listed, err := w.j.ListThreads(t.Context(), ns, thread.Filter{Agent: "agent/a"}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Len(t, listed, 2, "it is listed by the agent that it has")
	})
	t.Run("Items/OfAKind", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		items := []workgraph.ThreadItem{{Kind: workgraph.ThreadMessage, Body: []byte(`1`)}, {Kind: workgraph.ThreadState, Body: []byte(`2`), Brief: []byte(`{}`)}, {Kind: workgraph.ThreadLearning, Body: []byte(`3`)}}
		require.NoError(t, w.commit(appendTo(run, 1, 1, addTo(run, workgraph.ThreadAppend{Thread: th.ID, Items: items})))[0].Err)
		its, err := w.j.SegmentItems(t.Context(), ns, thread.Segment{Thread: th.ID, First: 1, Last: 2}, thread.Selection{Kinds: []thread.Kind{workgraph.ThreadState, workgraph.ThreadLearning}, Limit: 10})
		require.NoError(t, err)
		require.Equal(t, []thread.Item{{Seq: 2, Kind: workgraph.ThreadState, Brief: []byte(`{}`)}}, its, "without its body and origin")
		its, err = w.j.SegmentItems(t.Context(), ns, thread.Segment{Thread: th.ID, First: 1, Last: 3}, thread.Selection{Kinds: []thread.Kind{workgraph.ThreadState}, Limit: 10, Body: true})
		require.NoError(t, err)
		require.Equal(t, []thread.Item{{Seq: 2, Kind: workgraph.ThreadState, Brief: []byte(`{}`), Body: []byte(`2`)}}, its)
	})
	t.Run("Repeated/WritesNothingTwice", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		writes := []journal.Write{
			appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`), addTo(run, workgraph.ThreadAppend{Thread: "thr_new", Create: &workgraph.ThreadCreate{Key: "k"}, Items: messages(`"x"`)})),
			appendTo(run, 2, 1, says(run, th.ID, 1, `"b"`)),
		}
		for range 3 {
			for _, r := range w.commit(writes...) {
				require.NoError(t, r.Err)
			}
		}
		require.NoError(t, w.commit(appendTo(run, 3, 1, says(run, th.ID, 2, `"c"`)))[0].Err)
		for _, r := range w.commit(writes...) {
			require.NoError(t, r.Err, "after later items")
		}
		require.Equal(t, []string{`1 "a"`, `2 "b"`, `3 "c"`}, w.items(th.ID))
		require.Equal(t, []string{`1 "x"`}, w.items("thr_new"))
		require.Len(t, w.events(run), 4)
	})
	t.Run("Conflict/WritesNothingOfTheRun", func(t *testing.T) {
		w := open(t, d)
		th, foreign := w.thread(), w.thread(func(c *thread.Create) { c.Namespace = "other" })
		run, neighbor := w.started(1), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`)))[0].Err)
		w.thread(func(c *thread.Create) { c.Key = "taken" })
		for name, refused := range map[string][]func(*journal.Append){
			"Other":     {says(run, th.ID, 0, `"b"`)},
			"Gap":       {says(run, th.ID, 2, `"b"`)},
			"NotThere":  {says(run, "thr_none", 0, `"b"`)},
			"Namespace": {says(run, foreign.ID, 0, `"b"`)},
			"Key":       {addTo(run, workgraph.ThreadAppend{Thread: "thr_2", Create: &workgraph.ThreadCreate{Key: "taken"}})},
			"Exists":    {addTo(run, workgraph.ThreadAppend{Thread: th.ID, Create: &workgraph.ThreadCreate{Agent: "another"}})},
			"Parent":    {addTo(run, workgraph.ThreadAppend{Thread: "thr_2", After: 9, Create: &workgraph.ThreadCreate{Parent: th.ID, ParentSeq: 9}})},
			"Later":     {says(run, th.ID, 1, `"b"`), says(run, th.ID, 1, `"c"`)},
		} {
			res := w.commit(appendTo(run, 2, 1, refused...), appendTo(neighbor, len(w.events(neighbor)), 1))
			reason(t, res[0].Err, thread.ReasonConflict)
			require.NoError(t, res[1].Err, name)
			require.Len(t, w.events(run), 2, name)
		}
		require.Equal(t, []string{`1 "a"`}, w.items(th.ID))
		_, err := w.j.Thread(t.Context(), ns, "thr_2")
		reason(t, err, thread.ReasonNotFound)
		require.NoError(t, w.commit(appendTo(run, 2, 1, says(run, th.ID, 1, `"b"`)))[0].Err, "the run goes on")
	})
	t.Run("Conflict/TwoRunsAtOnce", func(t *testing.T) {
		w := open(t, d)
		th, a, b := w.thread(), w.started(1), w.started(1)
		res := w.commit(appendTo(a, 1, 1, says(a, th.ID, 0, `"a"`)), appendTo(b, 1, 1, says(b, th.ID, 1, `"b"`)))
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, thread.ReasonConflict)
		require.Equal(t, []string{`1 "a"`}, w.items(th.ID))
	})
	t.Run("Conflict/LeavesTheThreadToOthers", func(t *testing.T) {
		w := open(t, d)
		th, a, b := w.thread(), w.started(1), w.started(1)
		res := w.commit(appendTo(a, 1, 1, says(a, th.ID, 0, `"a"`), says(a, "thr_none", 0, `"a"`)), appendTo(b, 1, 1, says(b, th.ID, 0, `"b"`)))
		reason(t, res[0].Err, thread.ReasonConflict)
		require.NoError(t, res[1].Err)
		require.Equal(t, []string{`1 "b"`}, w.items(th.ID))
	})
	t.Run("Lost/AddsNothing", func(t *testing.T) {
		w := open(t, d)
		th, run, good := w.thread(), w.started(1), w.started(1)
		res := w.commit(appendTo(run, 7, 1, says(run, th.ID, 0, `"a"`)), appendTo(good, 1, 1))
		reason(t, res[0].Err, journal.ReasonSeqConflict)
		require.NoError(t, res[1].Err)
		require.Empty(t, w.items(th.ID))
	})
	t.Run("Hidden/TakesNothing", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, th.ID))
		reason(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`)))[0].Err, thread.ReasonConflict)
	})
	t.Run("Start/MayBegin", func(t *testing.T) {
		w := open(t, d)
		th := w.thread()
		run := w.started(1, func(s *journal.Start) { says(s.Run.ID, th.ID, 0, `"a"`)(&s.Append) })
		require.NotEmpty(t, run)
		require.Equal(t, []string{`1 "a"`}, w.items(th.ID))
	})
	t.Run("Blobs/BelongToTheThread", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		ref := journal.BlobRef{Hash: journal.BlobHash{7}, Size: 3, Thread: th.ID}
		_, err := w.j.NoteBlobs(t.Context(), ns, []journal.BlobRef{ref})
		require.NoError(t, err)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`), inState(journal.StateCompleted), func(a *journal.Append) { a.Blobs = []journal.BlobRef{ref} }))[0].Err)
		_, err = w.j.DeleteRun(t.Context(), ns, run, 0, nil)
		require.NoError(t, err)
		w.purge()
		require.Equal(t, []string{th.ID}, w.d.Query(t, w.place, `SELECT run_id FROM blob_refs`))
		require.Equal(t, []string{`1 "a"`}, w.items(th.ID), "the run's end and deletion leave the thread")
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, th.ID))
		w.purgeThreads()
		require.Empty(t, w.d.Query(t, w.place, `SELECT run_id FROM blob_refs`))
	})
}

func (w *world) purge() {
	w.t.Helper()
	for more := true; more; {
		var err error
		more, err = w.j.PurgeRuns(w.t.Context(), 100)
		require.NoError(w.t, err)
	}
}

// purgeThreads purges two rows at a time.
func (w *world) purgeThreads() {
	w.t.Helper()
	for more := true; more; {
		var err error
		more, err = w.j.PurgeThreads(w.t.Context(), 2)
		require.NoError(w.t, err)
	}
}

func threadForkCases(t *testing.T, d Driver) {
	fork := func(w *world, parent string, seq int64) thread.Thread {
		return w.thread(func(c *thread.Create) { c.ParentID, c.ParentSeq = parent, seq })
	}
	t.Run("Fork/HasTheItemsUpToIt", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`, `"b"`, `"c"`)))[0].Err)
		f := fork(w, th.ID, 2)
		require.EqualValues(t, 2, f.Last)
		require.NoError(t, w.commit(appendTo(run, 2, 1, says(run, f.ID, 2, `"x"`), says(run, th.ID, 3, `"d"`)))[0].Err)
		g := fork(w, f.ID, 0)
		early := fork(w, f.ID, 1)
		require.NoError(t, w.commit(appendTo(run, 3, 1, says(run, g.ID, 3, `"y"`), says(run, early.ID, 1, `"z"`)))[0].Err)
		require.Equal(t, []string{`1 "a"`, `2 "b"`, `3 "c"`, `4 "d"`}, w.items(th.ID))
		require.Equal(t, []string{`1 "a"`, `2 "b"`, `3 "x"`}, w.items(f.ID))
		require.Equal(t, []string{`1 "a"`, `2 "b"`, `3 "x"`, `4 "y"`}, w.items(g.ID))
		require.Equal(t, []string{`1 "a"`, `2 "z"`}, w.items(early.ID))
		_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.ParentID, c.ParentSeq = th.ID, 5 }))
		reason(t, err, thread.ReasonInvalid)
	})
	t.Run("Fork/InACommitWithItsParentsItems", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`), addTo(run,
			workgraph.ThreadAppend{Thread: "thr_f", After: 1, Create: &workgraph.ThreadCreate{Parent: th.ID, ParentSeq: 1}, Items: messages(`"f"`)},
			workgraph.ThreadAppend{Thread: "thr_g", After: 2, Create: &workgraph.ThreadCreate{Parent: "thr_f", ParentSeq: 2}})))[0].Err)
		require.Equal(t, []string{`1 "a"`, `2 "f"`}, w.items("thr_g"))
		got, err := w.j.Thread(t.Context(), ns, "thr_g")
		require.NoError(t, err)
		require.Equal(t, 2, got.Depth)
		require.Equal(t, run, got.Holder)
	})
	t.Run("Fork/WritesOneRowWhateverTheLength", func(t *testing.T) {
		w := open(t, d)
		run, commits := w.started(1), 1
		rows := func(table string) string {
			return w.d.Query(t, w.place, `SELECT CAST(count(*) AS text) FROM `+table)[0]
		}
		others := func() (n []string) {
			for _, table := range []string{"thread_items", "thread_turns", "blob_refs", "request_ids", "events", "commands"} {
				n = append(n, rows(table))
			}
			return n
		}
		for i, length := range []int{10, 100_000} {
			th := w.thread()
			for at := 0; at < length; at += 10_000 {
				require.NoError(t, w.commit(appendTo(run, commits, 1, says(run, th.ID, int64(at), slices.Repeat([]string{`1`}, min(length, 10_000))...)))[0].Err)
				commits++
			}
			_, err := w.j.ClaimOutbox(t.Context(), 1000, time.Minute)
			require.NoError(t, err)
			before := others()
			require.EqualValues(t, length, fork(w, th.ID, 0).Last)
			told, err := w.j.ClaimOutbox(t.Context(), 1000, time.Minute)
			require.NoError(t, err)
			require.Len(t, told, 1, "and one that tells of it")
			require.Equal(t, fmt.Sprint(2*i+2), rows("threads"))
			require.Equal(t, before, others())
		}
	})
	t.Run("Fork/DepthIsBounded", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`)))[0].Err)
		for range thread.MaxDepth {
			th = fork(w, th.ID, 1)
		}
		require.Equal(t, []string{`1 "a"`}, w.items(th.ID))
		_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.ParentID, c.ParentSeq = th.ID, 1 }))
		reason(t, err, thread.ReasonTooDeep)
		reason(t, w.commit(appendTo(run, 2, 1, addTo(run, workgraph.ThreadAppend{Thread: "thr_d", After: 1, Create: &workgraph.ThreadCreate{Parent: th.ID, ParentSeq: 1}})))[0].Err, thread.ReasonConflict)
	})
	t.Run("Fork/KeepsTheItemsOfADeletedParent", func(t *testing.T) {
		w := open(t, d)
		th, run := w.thread(), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`, `"b"`, `"c"`)))[0].Err)
		f := fork(w, th.ID, 2)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, th.ID))
		w.purgeThreads()
		require.Equal(t, []string{`1 "a"`, `2 "b"`}, w.items(f.ID))
		_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.ParentID = th.ID }))
		reason(t, err, thread.ReasonNotFound)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, f.ID))
		w.purgeThreads()
		require.Empty(t, w.d.Query(t, w.place, `SELECT thread_id FROM thread_items UNION SELECT thread_id FROM threads`))
	})
}

func threadHoldCases(t *testing.T, d Driver) {
	t.Run("Hold/ByOneOpenRun", func(t *testing.T) {
		w := open(t, d)
		th, a, b := w.thread(), w.started(1), w.started(1)
		hold := func(run string) error { return w.j.HoldThread(t.Context(), ns, th.ID, []string{run}) }
		require.NoError(t, hold(a))
		require.NoError(t, hold(a), "again")
		err := hold(b)
		reason(t, err, thread.ReasonBusy)
		require.Equal(t, a, errs.From(err).Meta["run_id"])
		reason(t, w.j.DeleteThread(t.Context(), ns, th.ID), thread.ReasonBusy)
		require.NoError(t, w.commit(appendTo(a, 1, 1, inState(journal.StateFailed)))[0].Err)
		require.NoError(t, hold(b), "the end of a run frees the thread")
		got, err := w.j.Thread(t.Context(), ns, th.ID)
		require.NoError(t, err)
		require.Equal(t, b, got.Holder)
		require.NoError(t, w.commit(appendTo(b, 1, 1, inState(journal.StateCompleted)))[0].Err)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, th.ID))
		reason(t, hold(a), thread.ReasonNotFound)
	})
	t.Run("Hold/ByARunOfAnotherNamespaceHoldsNothing", func(t *testing.T) {
		w := open(t, d)
		th, own := w.thread(), w.started(1)
		foreign := w.started(1, func(s *journal.Start) { s.Run.Namespace = "other" })
		require.NoError(t, w.j.HoldThread(t.Context(), ns, th.ID, []string{foreign}))
		require.NoError(t, w.j.HoldThread(t.Context(), ns, th.ID, []string{own}), "nobody learns whether the other run is open")
	})
	t.Run("Hold/ByOneAgentOfARun", func(t *testing.T) {
		w := open(t, d)
		th, root := w.thread(), w.started(1)
		first, second, guest := w.started(1), w.started(1), w.started(1)
		hold := func(runs ...string) error {
			return w.j.HoldThread(t.Context(), ns, th.ID, append([]string{root}, runs...))
		}
		require.NoError(t, hold(first))
		err := hold(second)
		reason(t, err, thread.ReasonBusy)
		require.Equal(t, first, errs.From(err).Meta["run_id"])
		require.NoError(t, hold(first, guest), "it lends the thread")
		reason(t, hold(first, second), thread.ReasonBusy)
		got, err := w.j.Thread(t.Context(), ns, th.ID)
		require.NoError(t, err)
		require.Equal(t, root, got.Holder)
		require.Equal(t, []string{first, guest}, got.Below)
		require.NoError(t, w.commit(appendTo(guest, 1, 1, inState(journal.StateCompleted)))[0].Err)
		reason(t, hold(second), thread.ReasonBusy)
		require.NoError(t, w.commit(appendTo(root, 1, 1, func(a *journal.Append) {
			a.Command = []journal.Command{{Namespace: ns, RunID: first, Kind: journal.CommandCancel, Key: "parent", Time: base}}
		}))[0].Err)
		require.NoError(t, hold(second), "the first was told to end")
		require.NoError(t, w.commit(appendTo(root, 2, 1, inState(journal.StateFailed)))[0].Err)
		require.NoError(t, w.j.DeleteThread(t.Context(), ns, th.ID), "the end of the root frees the thread")
	})
	t.Run("Hold/OneOfManyAtOnce", func(t *testing.T) {
		w := open(t, d)
		th := w.thread()
		const n = 6
		got := make(chan error, n)
		for range n {
			run := w.started(1)
			go func() { got <- w.j.HoldThread(context.WithoutCancel(t.Context()), ns, th.ID, []string{run}) }()
		}
		won := 0
		for range n {
			if err := <-got; err == nil {
				won++
			} else {
				reason(t, err, thread.ReasonBusy)
			}
		}
		require.Equal(t, 1, won)
	})
}

func threadSweepCases(t *testing.T, d Driver) {
	t.Run("Sweep/HidesWhatIsOver", func(t *testing.T) {
		w := open(t, d)
		old := func(l thread.Lifetime) func(*thread.Create) {
			return func(c *thread.Create) { c.Lifetime, c.CreateTime = l, dbkit.Now().Add(-2*time.Hour) }
		}
		kept, unused, used, held := w.thread(old(workgraph.ThreadConversation)), w.thread(old(workgraph.ThreadEphemeral)), w.thread(old(workgraph.ThreadEphemeral)), w.thread(old(workgraph.ThreadEphemeral))
		run, ended := w.started(1), w.started(1)
		require.NoError(t, w.j.HoldThread(t.Context(), ns, held.ID, []string{run}))
		recent := addTo(run, workgraph.ThreadAppend{Thread: used.ID, Items: messages(`"a"`)})
		require.NoError(t, w.commit(appendTo(run, 1, 1, recent, func(a *journal.Append) { a.Threads[0].Items[0].Time = dbkit.Now() }))[0].Err)
		failed := w.started(1)
		require.NoError(t, w.commit(appendTo(failed, 1, 1, addTo(failed, workgraph.ThreadAppend{Thread: "thr_failed", Create: &workgraph.ThreadCreate{Lifetime: workgraph.ThreadEphemeral}})))[0].Err)
		lent := w.thread(old(workgraph.ThreadEphemeral))
		require.NoError(t, w.j.HoldThread(t.Context(), ns, lent.ID, []string{ended, failed}))
		require.NoError(t, w.commit(appendTo(failed, 2, 1, inState(journal.StateFailed)))[0].Err)
		of := func(run, id string) {
			require.NoError(t, w.commit(appendTo(run, len(w.events(run)), 1, addTo(run, workgraph.ThreadAppend{Thread: id, Create: &workgraph.ThreadCreate{Lifetime: workgraph.ThreadOfRun}})))[0].Err)
		}
		of(run, "thr_open")
		of(ended, "thr_over")
		require.NoError(t, w.commit(appendTo(ended, 2, 1, inState(journal.StateCompleted)))[0].Err)
		sweep := func(since time.Time) (hidden int) {
			for next, more := "", true; more; more = next != "" {
				n, to, err := w.j.SweepThreads(t.Context(), since, next, 2)
				require.NoError(t, err)
				hidden, next = hidden+n, to
			}
			return hidden
		}
		there := func(want map[string]bool) {
			for id, is := range want {
				_, err := w.j.Thread(t.Context(), ns, id)
				require.Equal(t, is, err == nil, id)
			}
		}
		require.Equal(t, 2, sweep(dbkit.Now().Add(-time.Hour)))
		there(map[string]bool{kept.ID: true, unused.ID: false, used.ID: true, held.ID: true, "thr_open": true, "thr_over": false})
		require.Equal(t, 1, sweep(dbkit.Now().Add(time.Hour)))
		there(map[string]bool{kept.ID: true, used.ID: false, held.ID: true, "thr_open": true, "thr_failed": true, lent.ID: true})
		_, err := w.j.DeleteRun(t.Context(), ns, failed, 0, nil)
		require.NoError(t, err)
		require.Equal(t, 2, sweep(dbkit.Now().Add(time.Hour)), "nothing is left to be retried")
		there(map[string]bool{"thr_failed": false, lent.ID: false})
	})
}
