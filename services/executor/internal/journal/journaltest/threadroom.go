package journaltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

func threadRoomCases(t *testing.T, d Driver) {
	usage := func(w *world, namespace string) thread.Usage {
		w.t.Helper()
		u, err := w.j.ThreadUsage(w.t.Context(), namespace)
		require.NoError(w.t, err)
		return u
	}
	within := func(r thread.Room) func(*journal.Append) { return func(a *journal.Append) { a.Room = r } }
	makes := func(run string) func(*journal.Append) {
		return addTo(run, workgraph.ThreadAppend{Thread: ids.New(thread.IDPrefix), Create: &workgraph.ThreadCreate{}})
	}
	turn := func(id string) thread.Turn {
		return thread.Turn{Namespace: ns, Thread: id, RunID: ids.New("run"), Message: []byte(`"hi"`), CreateTime: dbkit.Now()}
	}
	t.Run("Usage/CountsWhatIsThere", func(t *testing.T) {
		w := open(t, d)
		require.Zero(t, usage(w, ns))
		th := w.thread(func(c *thread.Create) { c.Agent = "agent/x" })
		fork := w.thread(func(c *thread.Create) { c.ParentID = th.ID })
		require.Equal(t, thread.Usage{Threads: 2}, usage(w, ns))
		run := w.started(1)
		says := appendTo(run, 1, 1, says(run, th.ID, 0, `"a"`, `"bc"`), makes(run))
		require.NoError(t, w.commit(says)[0].Err)
		require.NoError(t, w.commit(says)[0].Err, "what is written already counts once")
		items := int64(3 + 4 + 2*thread.Overhead)
		require.Equal(t, thread.Usage{Threads: 3, Bytes: items}, usage(w, ns))
		second := w.another()
		them, err := second.Register(t.Context(), "exec-b", "")
		require.NoError(t, err)
		other := start(1)
		res, err := second.Commit(t.Context(), them, []journal.Write{{Start: other}})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
		res, err = second.Commit(t.Context(), them, []journal.Write{appendTo(other.Run.ID, 1, 1, makes(other.Run.ID))})
		require.NoError(t, err)
		require.NoError(t, res[0].Err)
		_, err = w.j.QueueTurn(t.Context(), turn(th.ID), thread.Request{}, thread.Bounds{Queued: 5})
		require.NoError(t, err)
		require.Equal(t, thread.Usage{Threads: 4, Bytes: items + 4 + thread.Overhead}, usage(w, ns))
		require.Zero(t, usage(w, "other"))
		for _, id := range []string{th.ID, fork.ID} {
			require.NoError(t, w.j.DeleteThread(t.Context(), ns, id))
		}
		require.EqualValues(t, 4, usage(w, ns).Threads, "until it is removed")
		for more := true; more; {
			more, err = w.j.PurgeThreads(t.Context(), 1)
			require.NoError(t, err)
		}
		require.Equal(t, thread.Usage{Threads: 2}, usage(w, ns))
	})
	t.Run("Threads/AreRefusedWithOneTooMany", func(t *testing.T) {
		w := open(t, d)
		room := thread.Room{Threads: 2}
		first, second := w.started(1), w.started(1)
		res := w.commit(appendTo(first, 1, 1, within(room), makes(first)), appendTo(second, 1, 1, within(room), makes(second), makes(second)))
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, thread.ReasonTooMany)
		create := func(namespace string) error {
			_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.Room, c.Namespace = room, namespace }))
			return err
		}
		require.NoError(t, create(ns))
		reason(t, create(ns), thread.ReasonTooMany)
		require.NoError(t, create("other"))
		reason(t, w.commit(appendTo(second, 1, 1, within(room), makes(second)))[0].Err, thread.ReasonTooMany)
		require.EqualValues(t, 2, usage(w, ns).Threads)
		res = w.commit(journal.Write{Start: start(1, func(s *journal.Start) {
			s.Room = room
			s.Threads = []thread.Append{{Thread: "thr_new", Create: &workgraph.ThreadCreate{}, Time: base}}
		})})
		reason(t, res[0].Err, thread.ReasonTooMany)
	})
	t.Run("Bytes/AreRefusedBeyondTheRoom", func(t *testing.T) {
		w := open(t, d)
		room := thread.Room{Bytes: 2*thread.Overhead + 6}
		th, run := w.thread(func(c *thread.Create) { c.Agent = "agent/x" }), w.started(1)
		require.NoError(t, w.commit(appendTo(run, 1, 1, within(room), says(run, th.ID, 0, `"a"`)))[0].Err)
		reason(t, w.commit(appendTo(run, 2, 1, within(room), says(run, th.ID, 1, `"bc"`)))[0].Err, thread.ReasonTooLarge)
		require.Equal(t, []string{`1 "a"`}, w.items(th.ID))
		_, err := w.j.QueueTurn(t.Context(), turn(th.ID), thread.Request{}, thread.Bounds{Queued: 5, Room: room})
		reason(t, err, thread.ReasonTooLarge)
		require.NoError(t, w.commit(appendTo(run, 2, 1, within(room), says(run, th.ID, 1, `"b"`)))[0].Err)
		require.EqualValues(t, room.Bytes, usage(w, ns).Bytes)
		require.NoError(t, w.commit(appendTo(run, 3, 1, within(room), makes(run)))[0].Err, "a thread has no bytes of its own")
	})
	t.Run("Refused/AnswersARepetition", func(t *testing.T) {
		w := open(t, d)
		q, no := thread.Request{Method: "M", ID: "r", BodyHash: "h"}, thread.AgentUnknown("agent/x", nil)
		made := w.thread(func(c *thread.Create) { c.Request, c.Agent = q, "agent/x" })
		again := w.thread(func(c *thread.Create) { c.Request, c.Refused = q, no })
		require.Equal(t, made.ID, again.ID)
		_, err := w.j.CreateThread(t.Context(), newThread(func(c *thread.Create) { c.Refused = no }))
		reason(t, err, thread.ReasonAgentUnknown)
		q.Method = "T"
		first, err := w.j.QueueTurn(t.Context(), turn(made.ID), q, thread.Bounds{Queued: 5})
		require.NoError(t, err)
		same, err := w.j.QueueTurn(t.Context(), turn(made.ID), q, thread.Bounds{Queued: 5, Refused: no})
		require.NoError(t, err)
		require.Equal(t, first, same)
		_, err = w.j.QueueTurn(t.Context(), turn(made.ID), thread.Request{}, thread.Bounds{Queued: 5, Refused: no})
		reason(t, err, thread.ReasonAgentUnknown)
	})
}
