package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func enqueue(id string, kind journal.CommandKind, key string, change ...func(*journal.EnqueueRequest)) journal.EnqueueRequest {
	p := journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: kind, Key: key, Body: []byte("body of " + key), Time: base}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func commandTo(id string, kind journal.CommandKind, key string) func(*journal.Append) {
	return func(a *journal.Append) {
		a.Command = append(a.Command, journal.Command{RunID: id, Kind: kind, Key: key, Body: []byte("from " + a.RunID), Time: base})
	}
}

func commandCases(t *testing.T, d Driver) {
	t.Run("Enqueue/ACancelThatMustBeWrittenUsesUpNoRequest", func(t *testing.T) {
		w := open(t, d)
		ended := w.started(1, func(s *journal.Start) { s.Run.State, s.Run.EndTime = journal.StateCompleted, base })
		canceled := w.started(1)
		_, err := w.j.Enqueue(t.Context(), enqueue(canceled, journal.CommandCancel, ""))
		require.NoError(t, err)
		for _, id := range []string{ended, canceled} {
			once := func(p *journal.EnqueueRequest) {
				p.Request = journal.Request{Method: "CancelRun", ID: "once", BodyHash: "h"}
			}
			_, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandCancel, "", once, func(p *journal.EnqueueRequest) { p.Must = true }))
			reason(t, err, journal.ReasonRunEnded)
			known, _, err := w.j.Requested(t.Context(), ns, "CancelRun", "once")
			require.NoError(t, err)
			require.Empty(t, known)
		}
	})
	t.Run("Enqueue/UnreadSignalsAndMessagesAreBounded", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		large := func(p *journal.EnqueueRequest) { p.Command.Body = bytes.Repeat([]byte("x"), 3<<20) }
		for i, kind := range []journal.CommandKind{journal.CommandSignal, journal.CommandMessage} {
			_, err := w.j.Enqueue(t.Context(), enqueue(id, kind, fmt.Sprint(i), large))
			require.NoError(t, err)
		}
		again := func(kind journal.CommandKind, key string) error {
			_, err := w.j.Enqueue(t.Context(), enqueue(id, kind, key, large, func(p *journal.EnqueueRequest) {
				p.Request = journal.Request{Method: "SignalRun", ID: key, BodyHash: "h"}
			}))
			return err
		}
		err := again(journal.CommandSignal, "more")
		reason(t, err, journal.ReasonInboxFull)
		require.True(t, errs.Is(err, errs.ResourceExhausted))
		require.NotEmpty(t, errs.From(err).HintText())
		reason(t, again(journal.CommandMessage, "more"), journal.ReasonInboxFull)
		reason(t, again(journal.CommandLeave, "more"), journal.ReasonInboxFull)
		// Nothing else is held up, here or elsewhere.
		for _, kind := range []journal.CommandKind{journal.CommandResume, journal.CommandChildEnded, journal.CommandCancel} {
			_, err := w.j.Enqueue(t.Context(), enqueue(id, kind, string(kind)))
			require.NoError(t, err, kind)
		}
		_, err = w.j.Enqueue(t.Context(), enqueue(other, journal.CommandSignal, "s", large))
		require.NoError(t, err)
		// With room again the same request is taken.
		ms := w.unread(id)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{ms[0].ID} }))[0].Err)
		require.NoError(t, again(journal.CommandSignal, "more"))
		require.NoError(t, again(journal.CommandSignal, "more"), "it is repeated, so there need be no room")
	})
	t.Run("Enqueue/WaitingSignalsAreBounded", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		send := func(key string) error {
			_, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandSignal, key))
			return err
		}
		for i := range journal.MaxWaiting {
			require.NoError(t, send(fmt.Sprint(i)))
		}
		reason(t, send("one more"), journal.ReasonInboxFull)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} }))[0].Err)
		require.NoError(t, send("one more"))
		reason(t, send("and another"), journal.ReasonInboxFull)
	})
	t.Run("Outstanding/UnreadKindsOnceOldestFirst", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		kinds := func(namespace, id string) []journal.CommandKind {
			out, err := w.j.Outstanding(t.Context(), namespace, id)
			require.NoError(t, err)
			return out.Unread
		}
		for _, p := range []journal.EnqueueRequest{enqueue(id, journal.CommandSignal, "1"), enqueue(id, journal.CommandResume, "r"), enqueue(id, journal.CommandSignal, "2"), enqueue(other, journal.CommandPause, "p")} {
			_, err := w.j.Enqueue(t.Context(), p)
			require.NoError(t, err)
		}
		require.Equal(t, []journal.CommandKind{journal.CommandSignal, journal.CommandResume}, kinds(ns, id))
		require.Empty(t, kinds("elsewhere", id), "a namespace sees its own runs only")
		first := w.unread(id)[0].ID
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{first} }))[0].Err)
		require.Equal(t, []journal.CommandKind{journal.CommandResume, journal.CommandSignal}, kinds(ns, id))
	})
	t.Run("FindCommand/ByKey", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		for _, p := range []journal.EnqueueRequest{enqueue(id, journal.CommandSignal, "1"), enqueue(id, journal.CommandSignal, "2"), enqueue(id, journal.CommandPause, "1"), enqueue(other, journal.CommandResume, "1")} {
			_, err := w.j.Enqueue(t.Context(), p)
			require.NoError(t, err)
		}
		find := func(namespace string, kind journal.CommandKind, key string, whole bool) (journal.Command, bool) {
			m, ok, err := w.j.FindCommand(t.Context(), namespace, id, kind, key, whole)
			require.NoError(t, err)
			return m, ok
		}
		all := w.unread(id)
		got, _ := find(ns, journal.CommandSignal, "2", true)
		require.Equal(t, all[1], got)
		got, _ = find(ns, journal.CommandPause, "1", false)
		want := all[2]
		want.Body, want.Left = nil, true
		require.Equal(t, want, got)
		for _, absent := range [][3]string{{ns, string(journal.CommandSignal), "3"}, {ns, string(journal.CommandResume), "1"}, {"elsewhere", string(journal.CommandSignal), "1"}} {
			_, ok := find(absent[0], journal.CommandKind(absent[1]), absent[2], true)
			require.False(t, ok, "%v", absent)
		}
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{all[1].ID} }))[0].Err)
		_, ok := find(ns, journal.CommandSignal, "2", false)
		require.False(t, ok, "it was applied")
	})
	t.Run("Enqueue/ReachesTheOwner", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		ctx, stop := context.WithCancel(t.Context())
		wakes, err := w.j.CommandWakes(ctx, w.me)
		require.NoError(t, err)
		res, err := w.another().Enqueue(t.Context(), enqueue(id, journal.CommandSignal, "s1"))
		require.NoError(t, err)
		require.True(t, res.New)
		require.Equal(t, w.me, res.Owner)
		require.Equal(t, id, res.Run.ID)
		select {
		case <-wakes:
		case <-time.After(20 * time.Second):
			t.Fatal("no wake")
		}
		ms := w.pending(w.me)
		require.Len(t, ms, 1)
		require.Equal(t, journal.Command{ID: ms[0].ID, Namespace: ns, RunID: id, Kind: journal.CommandSignal, Key: "s1", Body: []byte("body of s1"), Time: base}, ms[0])
		require.Equal(t, ms, w.unread(id))
		require.Empty(t, w.jobs(), "its owner lives")
		require.Empty(t, w.pending(journal.Owner{ID: "other", Incarnation: 1}))
		// Unread, it is there once.
		res, err = w.j.Enqueue(t.Context(), enqueue(id, journal.CommandSignal, "s1"))
		require.NoError(t, err)
		require.False(t, res.New)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{ms[0].ID} }))[0].Err)
		require.Empty(t, w.pending(w.me))
		stop()
		testkit.Eventually(t, func() bool {
			select {
			case _, open := <-wakes:
				return !open
			default:
				return false
			}
		})
	})
	t.Run("Enqueue/IdleRecordsOnlyTheRequest", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		idle := func(hash string) journal.EnqueueRequest {
			return enqueue(id, journal.CommandPause, "", func(p *journal.EnqueueRequest) {
				p.Idle, p.Request = true, journal.Request{Method: "PauseRun", ID: "q", BodyHash: hash}
			})
		}
		for range 2 {
			res, err := w.j.Enqueue(t.Context(), idle("h"))
			require.NoError(t, err)
			require.False(t, res.New)
			require.Equal(t, id, res.Run.ID)
		}
		require.Empty(t, w.unread(id))
		_, err := w.j.Enqueue(t.Context(), idle("other"))
		reason(t, err, journal.ReasonRequestIDReused)
		run, hash, err := w.j.Requested(t.Context(), ns, "PauseRun", "q")
		require.NoError(t, err)
		require.Equal(t, []string{id, "h"}, []string{run, hash})
	})
	t.Run("Enqueue/Refusals", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		ask := func(p journal.EnqueueRequest) (journal.Enqueued, error) { return w.j.Enqueue(t.Context(), p) }
		_, err := ask(enqueue(id, journal.CommandPause, "", func(p *journal.EnqueueRequest) { p.Revision = 9 }))
		reason(t, err, journal.ReasonEtagMismatch)
		once := func(hash string) func(*journal.EnqueueRequest) {
			return func(p *journal.EnqueueRequest) {
				p.Request = journal.Request{Method: "PauseRun", ID: "q", BodyHash: hash}
			}
		}
		_, err = ask(enqueue("run_none", journal.CommandPause, "", once("h")))
		reason(t, err, journal.ReasonRunNotFound)
		_, err = ask(enqueue(id, journal.CommandPause, "", func(p *journal.EnqueueRequest) { p.Command.Namespace = "other" }))
		reason(t, err, journal.ReasonRunNotFound)
		_, err = ask(enqueue(id, journal.CommandResume, "", func(p *journal.EnqueueRequest) { p.Open = []journal.State{journal.StatePaused} }))
		reason(t, err, journal.ReasonStateRefuses)
		_, err = ask(enqueue(id, "", ""))
		reason(t, err, journal.ReasonWriteInvalid)
		require.Empty(t, w.unread(id))
		res, err := ask(enqueue(id, journal.CommandPause, "", once("h")))
		require.NoError(t, err)
		require.True(t, res.New)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} }))[0].Err)
		res, err = ask(enqueue(id, journal.CommandPause, "", once("h")))
		require.NoError(t, err, "the same request again")
		require.False(t, res.New)
		require.Empty(t, w.unread(id), "applied, and not written again")
		_, err = ask(enqueue(id, journal.CommandPause, "", once("other")))
		reason(t, err, journal.ReasonRequestIDReused)
		res, err = ask(enqueue(id, journal.CommandPause, "", once("other"), func(p *journal.EnqueueRequest) { p.Request.Method = "ResumeRun" }))
		require.NoError(t, err, "another call has its own ids")
		require.True(t, res.New)
		ended := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateCompleted })
		_, err = ask(enqueue(ended, journal.CommandSignal, ""))
		reason(t, err, journal.ReasonRunEnded)
	})
	t.Run("Cancel/FirstStays", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		cancel := func(why string) journal.Enqueued {
			res, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandCancel, "", func(p *journal.EnqueueRequest) { p.Reason = why }))
			require.NoError(t, err)
			return res
		}
		res := cancel("enough")
		require.True(t, res.New)
		require.Equal(t, "enough", res.Run.CancelReason)
		require.Equal(t, base, res.Run.CancelTime)
		require.EqualValues(t, 2, res.Run.Revision)
		require.False(t, cancel("again").New)
		require.Equal(t, "enough", w.get(id).CancelReason)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} }))[0].Err)
		require.False(t, cancel("once more").New)
		require.Empty(t, w.unread(id))
		require.Equal(t, base, w.get(id).CancelTime)
		id = w.started(1, func(s *journal.Start) { s.Run.State = journal.StateCompleted })
		res = cancel("too late")
		require.False(t, res.New)
		require.True(t, res.Run.CancelTime.IsZero())
	})
	t.Run("Append/ToOtherRuns", func(t *testing.T) {
		w := open(t, d)
		parent, child, ended := w.started(1), w.started(1), w.started(1, func(s *journal.Start) { s.Run.State = journal.StateFailed })
		other := w.started(1, func(s *journal.Start) { s.Run.Namespace = "other" })
		batch := []journal.Write{
			appendTo(child, 1, 1, inState(journal.StateCompleted), commandTo(parent, journal.CommandChildEnded, child), commandTo(ended, journal.CommandSignal, "x"),
				commandTo(other, journal.CommandSignal, "x"), commandTo("run_none", journal.CommandSignal, "x")),
			appendTo(parent, 5, 1, commandTo(child, journal.CommandSignal, "lost with its write")),
		}
		res := w.commit(batch...)
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, journal.ReasonSeqConflict)
		ms := w.pending(w.me)
		require.Len(t, ms, 1)
		require.Equal(t, journal.Command{ID: ms[0].ID, Namespace: ns, RunID: parent, Kind: journal.CommandChildEnded, Key: child, Body: []byte("from " + child), Time: base}, ms[0])
		require.Equal(t, res[0], w.commit(batch[0])[0], "sent again")
		require.NoError(t, w.commit(appendTo(parent, 1, 1, func(a *journal.Append) { a.Applied = []int64{ms[0].ID} }))[0].Err)
		w.commit(batch[0])
		require.Empty(t, w.pending(w.me), "not even when it was applied meanwhile")
		// Nobody's commands are taken by somebody else's write.
		w.commit(appendTo(parent, 2, 1, commandTo(w.started(1), journal.CommandSignal, "kept")))
		kept := w.pending(w.me)
		require.Len(t, kept, 1)
		w.commit(appendTo(parent, 3, 1, func(a *journal.Append) { a.Applied = []int64{kept[0].ID} }))
		require.NotEmpty(t, w.pending(w.me))
	})
	t.Run("Start/SendsAndGetsCommands", func(t *testing.T) {
		w := open(t, d)
		parent := w.started(1)
		child := start(1, func(s *journal.Start) {
			s.Run.State = journal.StateCompleted
			s.Command = []journal.Command{{RunID: parent, Kind: journal.CommandChildEnded, Key: s.Run.ID, Time: base}}
		})
		twin := start(1)
		w.commit(journal.Write{Start: child}, journal.Write{Start: twin}, appendTo(parent, 1, 1, commandTo(twin.Run.ID, journal.CommandSignal, "hello")))
		require.Len(t, w.unread(parent), 1)
		require.Len(t, w.unread(twin.Run.ID), 1, "it is there in the same commit")
	})
	t.Run("End/LeavesNoCommands", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		_, err := w.j.Enqueue(t.Context(), enqueue(id, journal.CommandSignal, "s"))
		require.NoError(t, err)
		require.NoError(t, w.commit(appendTo(id, 1, 1, inState(journal.StateCompleted)))[0].Err)
		require.Empty(t, w.unread(id))
	})
	t.Run("Append/SendsCommandsAcrossExecutorsInACircle", func(t *testing.T) {
		// Each executor ends its runs and sends commands to the other's in the same commits. No order of
		// locks may make them wait for each other.
		w := open(t, d)
		const n = 12
		var mine [2][]string
		owners := []journal.Owner{w.me, w.register("exec-b")}
		for e, o := range owners {
			w.me = o
			for range n {
				mine[e] = append(mine[e], w.started(1))
			}
		}
		var wg sync.WaitGroup
		for e, o := range owners {
			j := w.another()
			wg.Go(func() {
				for round := range 10 {
					var batch []journal.Write
					for i, id := range mine[e] {
						batch = append(batch, appendTo(id, round+1, 1, inState(journal.StateRunning), commandTo(mine[1-e][n-1-i], journal.CommandMessage, fmt.Sprint(round))))
					}
					res, err := j.Commit(t.Context(), o, batch)
					if err != nil {
						t.Error(err)
						return
					}
					for _, r := range res {
						if r.Err != nil {
							t.Error(r.Err)
						}
					}
				}
			})
		}
		wg.Wait()
		require.Len(t, w.pending(owners[0]), n*10)
		require.Len(t, w.pending(owners[1]), n*10)
	})
}
