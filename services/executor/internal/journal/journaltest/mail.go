package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func post(id string, kind journal.MailKind, key string, change ...func(*journal.Post)) journal.Post {
	p := journal.Post{Mail: journal.Mail{Namespace: ns, RunID: id, Kind: kind, Key: key, Body: []byte("body of " + key), Time: base}}
	for _, c := range change {
		c(&p)
	}
	return p
}

func mailTo(id string, kind journal.MailKind, key string) func(*journal.Append) {
	return func(a *journal.Append) {
		a.Mail = append(a.Mail, journal.Mail{RunID: id, Kind: kind, Key: key, Body: []byte("from " + a.RunID), Time: base})
	}
}

func mailCases(t *testing.T, d Driver) {
	t.Run("Post/SignalsAndMessagesThatWaitAreBounded", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		large := func(p *journal.Post) { p.Mail.Body = bytes.Repeat([]byte("x"), 3<<20) }
		for i, kind := range []journal.MailKind{journal.MailSignal, journal.MailMessage} {
			_, err := w.j.Post(t.Context(), post(id, kind, fmt.Sprint(i), large))
			require.NoError(t, err)
		}
		again := func(kind journal.MailKind, key string) error {
			_, err := w.j.Post(t.Context(), post(id, kind, key, large, func(p *journal.Post) {
				p.Request = journal.Request{Method: "SignalRun", ID: key, BodyHash: "h"}
			}))
			return err
		}
		err := again(journal.MailSignal, "more")
		reason(t, err, journal.ReasonInboxFull)
		require.True(t, errs.Is(err, errs.ResourceExhausted))
		require.NotEmpty(t, errs.From(err).HintText())
		reason(t, again(journal.MailMessage, "more"), journal.ReasonInboxFull)
		// Nothing else is held up, here or elsewhere.
		for _, kind := range []journal.MailKind{journal.MailResume, journal.MailChildEnded, journal.MailCancel} {
			_, err := w.j.Post(t.Context(), post(id, kind, string(kind)))
			require.NoError(t, err, kind)
		}
		_, err = w.j.Post(t.Context(), post(other, journal.MailSignal, "s", large))
		require.NoError(t, err)
		// With room again the same request is taken.
		ms := w.unread(id)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{ms[0].ID} }))[0].Err)
		require.NoError(t, again(journal.MailSignal, "more"))
		require.NoError(t, again(journal.MailSignal, "more"), "it is repeated, so there need be no room")
	})
	t.Run("Post/SoManySignalsWaitAtMost", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		send := func(key string) error {
			_, err := w.j.Post(t.Context(), post(id, journal.MailSignal, key))
			return err
		}
		for i := range journal.MaxWaiting {
			require.NoError(t, send(fmt.Sprint(i)))
		}
		reason(t, send("one more"), journal.ReasonInboxFull)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{w.unread(id)[0].ID} }))[0].Err)
		require.NoError(t, send("one more"))
		reason(t, send("and another"), journal.ReasonInboxFull)
	})
	t.Run("Outstanding/UnreadKindsOnceOldestFirst", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		kinds := func(namespace, id string) []journal.MailKind {
			out, err := w.j.Outstanding(t.Context(), namespace, id)
			require.NoError(t, err)
			return out.Unread
		}
		for _, p := range []journal.Post{post(id, journal.MailSignal, "1"), post(id, journal.MailResume, "r"), post(id, journal.MailSignal, "2"), post(other, journal.MailPause, "p")} {
			_, err := w.j.Post(t.Context(), p)
			require.NoError(t, err)
		}
		require.Equal(t, []journal.MailKind{journal.MailSignal, journal.MailResume}, kinds(ns, id))
		require.Empty(t, kinds("elsewhere", id), "a namespace sees its own runs only")
		first := w.unread(id)[0].ID
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{first} }))[0].Err)
		require.Equal(t, []journal.MailKind{journal.MailResume, journal.MailSignal}, kinds(ns, id))
	})
	t.Run("FindMail/ByKey", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		for _, p := range []journal.Post{post(id, journal.MailSignal, "1"), post(id, journal.MailSignal, "2"), post(id, journal.MailPause, "1"), post(other, journal.MailResume, "1")} {
			_, err := w.j.Post(t.Context(), p)
			require.NoError(t, err)
		}
		find := func(namespace string, kind journal.MailKind, key string, whole bool) (journal.Mail, bool) {
			m, ok, err := w.j.FindMail(t.Context(), namespace, id, kind, key, whole)
			require.NoError(t, err)
			return m, ok
		}
		all := w.unread(id)
		got, _ := find(ns, journal.MailSignal, "2", true)
		require.Equal(t, all[1], got)
		got, _ = find(ns, journal.MailPause, "1", false)
		want := all[2]
		want.Body, want.Left = nil, true
		require.Equal(t, want, got)
		for _, absent := range [][3]string{{ns, string(journal.MailSignal), "3"}, {ns, string(journal.MailResume), "1"}, {"elsewhere", string(journal.MailSignal), "1"}} {
			_, ok := find(absent[0], journal.MailKind(absent[1]), absent[2], true)
			require.False(t, ok, "%v", absent)
		}
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{all[1].ID} }))[0].Err)
		_, ok := find(ns, journal.MailSignal, "2", false)
		require.False(t, ok, "it was taken up")
	})
	t.Run("Post/ReachesTheOwner", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		ctx, stop := context.WithCancel(t.Context())
		wakes, err := w.j.MailWakes(ctx, w.me)
		require.NoError(t, err)
		res, err := w.another().Post(t.Context(), post(id, journal.MailSignal, "s1"))
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
		require.Equal(t, journal.Mail{ID: ms[0].ID, Namespace: ns, RunID: id, Kind: journal.MailSignal, Key: "s1", Body: []byte("body of s1"), Time: base}, ms[0])
		require.Equal(t, ms, w.unread(id))
		require.Empty(t, w.jobs(), "its owner lives")
		require.Empty(t, w.pending(journal.Owner{ID: "other", Incarnation: 1}))
		// Unread, it is there once.
		res, err = w.j.Post(t.Context(), post(id, journal.MailSignal, "s1"))
		require.NoError(t, err)
		require.False(t, res.New)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{ms[0].ID} }))[0].Err)
		require.Empty(t, w.pending(w.me))
		stop()
		testkit.Eventually(t, func() bool {
			select {
			case _, open := <-wakes:
				return !open
			default:
				return false
			}
		}, 60*time.Second, time.Millisecond)
	})
	t.Run("Post/IdleIsRememberedAlone", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		idle := func(hash string) journal.Post {
			return post(id, journal.MailPause, "", func(p *journal.Post) {
				p.Idle, p.Request = true, journal.Request{Method: "PauseRun", ID: "q", BodyHash: hash}
			})
		}
		for range 2 {
			res, err := w.j.Post(t.Context(), idle("h"))
			require.NoError(t, err)
			require.False(t, res.New)
			require.Equal(t, id, res.Run.ID)
		}
		require.Empty(t, w.unread(id))
		_, err := w.j.Post(t.Context(), idle("other"))
		reason(t, err, journal.ReasonRequestIDReused)
		run, hash, err := w.j.Requested(t.Context(), ns, "PauseRun", "q")
		require.NoError(t, err)
		require.Equal(t, []string{id, "h"}, []string{run, hash})
	})
	t.Run("Post/Refusals", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		ask := func(p journal.Post) (journal.Posted, error) { return w.j.Post(t.Context(), p) }
		_, err := ask(post(id, journal.MailPause, "", func(p *journal.Post) { p.Revision = 9 }))
		reason(t, err, journal.ReasonEtagMismatch)
		once := func(hash string) func(*journal.Post) {
			return func(p *journal.Post) { p.Request = journal.Request{Method: "PauseRun", ID: "q", BodyHash: hash} }
		}
		_, err = ask(post("run_none", journal.MailPause, "", once("h")))
		reason(t, err, journal.ReasonRunNotFound)
		_, err = ask(post(id, journal.MailPause, "", func(p *journal.Post) { p.Mail.Namespace = "other" }))
		reason(t, err, journal.ReasonRunNotFound)
		_, err = ask(post(id, journal.MailResume, "", func(p *journal.Post) { p.Open = []journal.State{journal.StatePaused} }))
		reason(t, err, journal.ReasonStateRefuses)
		_, err = ask(post(id, "", ""))
		reason(t, err, journal.ReasonWriteInvalid)
		require.Empty(t, w.unread(id))
		res, err := ask(post(id, journal.MailPause, "", once("h")))
		require.NoError(t, err)
		require.True(t, res.New)
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{w.unread(id)[0].ID} }))[0].Err)
		res, err = ask(post(id, journal.MailPause, "", once("h")))
		require.NoError(t, err, "the same request again")
		require.False(t, res.New)
		require.Empty(t, w.unread(id), "taken up, and not written again")
		_, err = ask(post(id, journal.MailPause, "", once("other")))
		reason(t, err, journal.ReasonRequestIDReused)
		res, err = ask(post(id, journal.MailPause, "", once("other"), func(p *journal.Post) { p.Request.Method = "ResumeRun" }))
		require.NoError(t, err, "another call has its own ids")
		require.True(t, res.New)
		ended := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateCompleted })
		_, err = ask(post(ended, journal.MailSignal, ""))
		reason(t, err, journal.ReasonRunEnded)
	})
	t.Run("Cancel/FirstStays", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		cancel := func(why string) journal.Posted {
			res, err := w.j.Post(t.Context(), post(id, journal.MailCancel, "", func(p *journal.Post) { p.Reason = why }))
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
		require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{w.unread(id)[0].ID} }))[0].Err)
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
			appendTo(child, 1, 1, inState(journal.StateCompleted), mailTo(parent, journal.MailChildEnded, child), mailTo(ended, journal.MailSignal, "x"),
				mailTo(other, journal.MailSignal, "x"), mailTo("run_none", journal.MailSignal, "x")),
			appendTo(parent, 5, 1, mailTo(child, journal.MailSignal, "lost with its write")),
		}
		res := w.commit(batch...)
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, journal.ReasonSeqConflict)
		ms := w.pending(w.me)
		require.Len(t, ms, 1)
		require.Equal(t, journal.Mail{ID: ms[0].ID, Namespace: ns, RunID: parent, Kind: journal.MailChildEnded, Key: child, Body: []byte("from " + child), Time: base}, ms[0])
		require.Equal(t, res[0], w.commit(batch[0])[0], "sent again")
		require.NoError(t, w.commit(appendTo(parent, 1, 1, func(a *journal.Append) { a.TakenUp = []int64{ms[0].ID} }))[0].Err)
		w.commit(batch[0])
		require.Empty(t, w.pending(w.me), "not even when it was taken up meanwhile")
		// Nobody's mail is taken by somebody else's write.
		w.commit(appendTo(parent, 2, 1, mailTo(w.started(1), journal.MailSignal, "kept")))
		kept := w.pending(w.me)
		require.Len(t, kept, 1)
		w.commit(appendTo(parent, 3, 1, func(a *journal.Append) { a.TakenUp = []int64{kept[0].ID} }))
		require.NotEmpty(t, w.pending(w.me))
	})
	t.Run("Start/MailsAndIsMailed", func(t *testing.T) {
		w := open(t, d)
		parent := w.started(1)
		child := start(1, func(s *journal.Start) {
			s.Run.State = journal.StateCompleted
			s.Mail = []journal.Mail{{RunID: parent, Kind: journal.MailChildEnded, Key: s.Run.ID, Time: base}}
		})
		twin := start(1)
		w.commit(journal.Write{Start: child}, journal.Write{Start: twin}, appendTo(parent, 1, 1, mailTo(twin.Run.ID, journal.MailSignal, "hello")))
		require.Len(t, w.unread(parent), 1)
		require.Len(t, w.unread(twin.Run.ID), 1, "it is there in the same commit")
	})
	t.Run("End/LeavesNoMail", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		_, err := w.j.Post(t.Context(), post(id, journal.MailSignal, "s"))
		require.NoError(t, err)
		require.NoError(t, w.commit(appendTo(id, 1, 1, inState(journal.StateCompleted)))[0].Err)
		require.Empty(t, w.unread(id))
	})
	t.Run("Append/MailsAcrossExecutorsInACircle", func(t *testing.T) {
		// Each executor ends its runs and mails the other's in the same commits: no order of locks may make
		// them wait for each other.
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
						batch = append(batch, appendTo(id, round+1, 1, inState(journal.StateRunning), mailTo(mine[1-e][n-1-i], journal.MailMessage, fmt.Sprint(round))))
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

func parkCases(t *testing.T, d Driver) {
	parked := func(change ...func(*journal.Append)) []func(*journal.Append) {
		return append([]func(*journal.Append){inState(journal.StateWaiting), func(a *journal.Append) { a.Release = true }}, change...)
	}
	t.Run("Release/AndClaim", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		other := w.register("exec-b")
		at := dbkit.Now().Add(time.Hour)
		park := appendTo(id, 1, 1, parked(func(a *journal.Append) { a.Jobs = []journal.Job{{Kind: journal.JobWake, At: at}} })...)
		res := w.commit(park)
		require.NoError(t, res[0].Err)
		require.True(t, w.get(id).Owner.IsZero())
		require.Equal(t, []string{"wake scheduled " + id}, w.jobs())
		reason(t, w.commit(appendTo(id, 2, 1))[0].Err, journal.ReasonNotOwner)
		require.Equal(t, res, w.commit(park), "sent again")
		require.Len(t, w.jobs(), 1)
		require.Empty(t, w.takeOver(other, journal.TakeOverOptions{Lease: dead}).Claimed, "a parked run is in no scan")
		require.Equal(t, other, w.claim(other, id))
		require.Zero(t, w.get(id).Takeovers)
		w.me = w.register("exec-a")
		require.Equal(t, other, w.claim(w.me, id), "its owner lives")
		w.me = other
		require.NoError(t, w.commit(appendTo(id, 2, 1))[0].Err)
		reason(t, w.commit(appendTo(id, 1, 0, parked()...))[0].Err, journal.ReasonSeqConflict)
		// Nothing follows a release, not even in the same commit.
		res = w.commit(appendTo(id, 3, 1, parked()...), appendTo(id, 4, 1))
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, journal.ReasonNotOwner)
	})
	t.Run("Post/ClaimsAParkedRun", func(t *testing.T) {
		w := open(t, d)
		other := w.register("exec-b")
		claim := func(o journal.Owner) func(*journal.Post) { return func(p *journal.Post) { p.Claimant = o } }
		ask := func(p journal.Post) journal.Posted {
			res, err := w.j.Post(t.Context(), p)
			require.NoError(t, err)
			require.True(t, res.New)
			return res
		}
		for _, kind := range []journal.MailKind{journal.MailSignal, journal.MailCancel} {
			id := w.started(1)
			res := ask(post(id, journal.MailMessage, "early", claim(other)))
			require.Equal(t, w.me, res.Owner, "it has an owner")
			require.False(t, res.Claimed)
			require.NoError(t, w.j.Mark(t.Context(), w.me, id, "cel at n1", ""))
			w.commit(appendTo(id, 1, 1, parked(func(a *journal.Append) { a.TakenUp = []int64{w.unread(id)[0].ID} })...))
			res = ask(post(id, kind, "1", claim(other)))
			require.True(t, res.Claimed)
			require.Equal(t, other, res.Owner)
			require.Equal(t, other, w.get(id).Owner)
			require.Zero(t, w.get(id).Takeovers)
			require.Empty(t, w.get(id).Doing, "what its last owner did is not what this one does")
			require.Equal(t, w.unread(id), w.pending(other))
			loaded, err := w.j.Load(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, w.unread(id), loaded.Mail)
			res = ask(post(id, journal.MailMessage, "2", claim(other)))
			require.False(t, res.Claimed, "it was before")
			require.Equal(t, other, res.Owner)
			require.Empty(t, w.jobs())
			w.me, other = other, w.me
			require.NoError(t, w.commit(appendTo(id, 2, 1, func(a *journal.Append) { a.TakenUp = []int64{loaded.Mail[0].ID} }))[0].Err)
			w.commit(appendTo(id, 3, 1, inState(journal.StateCompleted)))
		}
		gone := w.started(1)
		w.commit(appendTo(gone, 1, 1, parked()...))
		res := ask(post(gone, journal.MailSignal, "s", claim(journal.Owner{ID: "exec-a", Incarnation: 1 << 40})))
		require.Zero(t, res.Owner, "it is registered no more")
		require.Equal(t, []string{"wake available " + gone}, w.jobs())
		pending := w.started(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		require.Zero(t, ask(post(pending, journal.MailSignal, "s", claim(other))).Owner, "it has not begun")
		require.Len(t, w.jobs(), 2)
	})
	t.Run("Append/ClaimsParkedTargets", func(t *testing.T) {
		w := open(t, d)
		child, twin, parent, held := w.started(1), w.started(1), w.started(1), w.started(1)
		w.commit(appendTo(parent, 1, 1, parked()...))
		w.commit(appendTo(held, 1, 1, parked()...))
		other := w.register("exec-b")
		require.Equal(t, other, w.claim(other, held))
		claims := func(a *journal.Append) { a.Claims = true }
		res := w.commit(appendTo(child, 1, 1, inState(journal.StateCompleted), claims, mailTo(parent, journal.MailChildEnded, child), mailTo(held, journal.MailChildEnded, child),
			mailTo("run_none", journal.MailChildEnded, child)))
		require.NoError(t, res[0].Err)
		require.Equal(t, []string{parent}, res[0].Claimed)
		require.Equal(t, w.me, w.get(parent).Owner)
		require.Equal(t, other, w.get(held).Owner)
		require.Empty(t, w.jobs())
		require.Equal(t, w.unread(parent), w.pending(w.me))
		res = w.commit(appendTo(twin, 1, 1, inState(journal.StateCompleted), claims, mailTo(parent, journal.MailChildEnded, twin)))
		require.Empty(t, res[0].Claimed, "it was before")
		require.Len(t, w.pending(w.me), 2)
	})
	t.Run("Append/ClaimsWhatIsReleasedInTheSameCommit", func(t *testing.T) {
		w := open(t, d)
		id, by := w.started(1), w.started(1)
		res := w.commit(appendTo(id, 1, 1, parked()...), appendTo(by, 1, 1, mailTo(id, journal.MailSignal, "1"), func(a *journal.Append) { a.Claims = true }))
		require.NoError(t, res[0].Err)
		require.Equal(t, []string{id}, res[1].Claimed)
		require.Equal(t, w.me, w.get(id).Owner)
		require.Empty(t, w.jobs())
		require.NoError(t, w.commit(appendTo(id, 2, 1, func(a *journal.Append) { a.TakenUp = []int64{w.unread(id)[0].ID} }))[0].Err)
	})
	t.Run("Release/ClaimsTheRunAgainForItsMail", func(t *testing.T) {
		w := open(t, d)
		quiet, mailed := w.started(1), w.started(1)
		_, err := w.j.Post(t.Context(), post(mailed, journal.MailSignal, "1"))
		require.NoError(t, err)
		release := func(id string) journal.Write {
			return appendTo(id, 1, 1, parked(func(a *journal.Append) { a.Claims = true })...)
		}
		park := []journal.Write{release(quiet), release(mailed)}
		for _, claimed := range [][]string{{mailed}, nil} { // a commit without its answer is repeated
			res := w.commit(park...)
			require.NoError(t, res[0].Err)
			require.Empty(t, res[0].Claimed)
			require.NoError(t, res[1].Err)
			require.Equal(t, claimed, res[1].Claimed)
			require.True(t, w.get(quiet).Owner.IsZero())
			require.Equal(t, w.me, w.get(mailed).Owner)
		}
		require.Empty(t, w.jobs())
		require.Len(t, w.pending(w.me), 1)
	})
	t.Run("Release/WithoutEventsIsRepeatable", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		park := appendTo(id, 1, 0, parked()...)
		require.NoError(t, w.commit(park)[0].Err)
		require.NoError(t, w.commit(park)[0].Err)
		require.True(t, w.get(id).Owner.IsZero())
	})
	t.Run("Claim/WhatMayBeClaimed", func(t *testing.T) {
		w := open(t, d)
		in := func(s journal.State) string {
			id := w.started(1)
			w.commit(appendTo(id, 1, 1, inState(s), func(a *journal.Append) { a.Release = true }))
			return id
		}
		for _, s := range []journal.State{journal.StateWaiting, journal.StatePaused} {
			require.Equal(t, w.me, w.claim(w.me, in(s)))
		}
		pending := start(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		first := w.commit(journal.Write{Start: pending})
		require.True(t, first[0].Created)
		require.Zero(t, w.get(pending.Run.ID).LastSeq)
		require.Equal(t, first, w.commit(journal.Write{Start: pending}), "sent again")
		reason(t, w.commit(appendTo(pending.Run.ID, 0, 1))[0].Err, journal.ReasonNotOwner)
		require.Equal(t, w.me, w.claim(w.me, pending.Run.ID))
		require.NoError(t, w.commit(appendTo(pending.Run.ID, 0, 1, inState(journal.StateRunning)))[0].Err)
		require.Len(t, w.events(pending.Run.ID), 1)
		for _, s := range []journal.State{journal.StateCompleted, journal.StateFailed, journal.StateCanceled} {
			id := w.started(1)
			w.commit(appendTo(id, 1, 1, inState(s)))
			require.Zero(t, w.claim(w.register("exec-b"), id), "it has ended")
		}
		sick := in(journal.StateQuarantined)
		require.Zero(t, w.claim(w.me, sick))
		_, err := w.j.Post(t.Context(), post(sick, journal.MailSignal, "s"))
		require.NoError(t, err)
		require.Zero(t, w.claim(w.me, sick))
		_, err = w.j.Post(t.Context(), post(sick, journal.MailResume, ""))
		require.NoError(t, err)
		require.Equal(t, w.me, w.claim(w.me, sick))
		again := w.register(w.me.ID)
		_, err = w.j.ClaimRun(t.Context(), w.me, ns, sick, journal.Patience{})
		reason(t, err, journal.ReasonFenced)
		w.takeOver(again, journal.TakeOverOptions{Lease: time.Hour})
		require.Zero(t, w.claim(again, sick), "what it was told brought its owner down again")
		_, err = w.j.ClaimRun(t.Context(), again, "other", sick, journal.Patience{})
		reason(t, err, journal.ReasonRunNotFound)
		_, err = w.j.ClaimRun(t.Context(), again, ns, "run_none", journal.Patience{})
		reason(t, err, journal.ReasonRunNotFound)
	})
	t.Run("Claim/CountsKilledOwners", func(t *testing.T) {
		w := open(t, d)
		id := w.started(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		for i := range 4 {
			require.Equal(t, w.me, w.claim(w.me, id))
			require.Equal(t, min(i, 2), w.get(id).Takeovers, "that it was being read once may be chance")
			w.me = w.register(w.me.ID)
			if i == 3 {
				require.Zero(t, w.claim(w.me, id), "for a take-over to quarantine")
			}
		}
		require.Len(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour}).Quarantined, 1)
	})
	t.Run("Claim/HasTheGivenPatience", func(t *testing.T) {
		w := open(t, d)
		id := w.started(0, func(s *journal.Start) { s.Run.State = journal.StatePending })
		last := w.me
		claim := func(p journal.Patience) int {
			last, w.me = w.me, w.register(w.me.ID)
			o, err := w.j.ClaimRun(t.Context(), w.me, ns, id, p)
			require.NoError(t, err)
			require.Contains(t, []journal.Owner{{}, w.me}, o)
			if o.IsZero() {
				require.Equal(t, last, w.get(id).Owner, "it is left to a take-over")
				return -1
			}
			return w.get(id).Takeovers
		}
		for n := range 5 { // nobody owns it at first
			require.Equal(t, n, claim(journal.Patience{MaxTakeovers: 6}))
		}
		outlived := journal.Patience{MaxTakeovers: 1, Outlived: func(o journal.Owner) bool { return o == last }}
		require.Equal(t, 4, claim(outlived), "the claimer's process was its owner before")
		require.Equal(t, 4, claim(outlived))
		require.Equal(t, 4, claim(journal.Patience{MaxTakeovers: 5}), "it was only read when its owner went down")
		require.Equal(t, -1, claim(journal.Patience{MaxTakeovers: 5, Outlived: func(journal.Owner) bool { return false }}))
		require.Len(t, w.takeOver(w.me, journal.TakeOverOptions{Lease: time.Hour, Patience: journal.Patience{MaxTakeovers: 5}}).Quarantined, 1)
	})
	t.Run("Mail/ToAParkedRunMakesOneJob", func(t *testing.T) {
		w := open(t, d)
		id, by := w.started(1), w.started(1)
		w.commit(appendTo(id, 1, 1, parked()...))
		require.Empty(t, w.jobs())
		res, err := w.j.Post(t.Context(), post(id, journal.MailSignal, "1"))
		require.NoError(t, err)
		require.Zero(t, res.Owner)
		require.Equal(t, []string{"wake available " + id}, w.jobs())
		w.commit(appendTo(by, 1, 1, mailTo(id, journal.MailSignal, "2")))
		require.Len(t, w.jobs(), 1, "it waits already")
		require.Len(t, w.unread(id), 2)
		require.Equal(t, w.me, w.claim(w.me, id))
		require.Len(t, w.pending(w.me), 2)
	})
	t.Run("Mail/UnreadAtTheReleaseMakesAJob", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		_, err := w.j.Post(t.Context(), post(id, journal.MailSignal, "1"))
		require.NoError(t, err)
		require.NoError(t, w.commit(appendTo(id, 1, 1, parked()...))[0].Err)
		require.Equal(t, []string{"wake available " + id}, w.jobs())
	})
	t.Run("Mail/InTheCommitOfTheReleaseMakesAJob", func(t *testing.T) {
		w := open(t, d)
		id, by := w.started(1), w.started(1)
		w.commit(appendTo(id, 1, 1, parked()...), appendTo(by, 1, 1, mailTo(id, journal.MailSignal, "1")))
		require.Equal(t, []string{"wake available " + id}, w.jobs())
	})
	t.Run("Mail/RacesTheRelease", func(t *testing.T) {
		// Whatever comes first: either the owner finds the mail before it releases, or a job is there.
		w := open(t, d)
		other, by := w.another(), w.started(1)
		mine, sent := w.me, 1
		for round := range 25 {
			id := w.started(1)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := other.Post(t.Context(), post(id, journal.MailSignal, "1")); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				res, err := w.j.Commit(t.Context(), mine, []journal.Write{appendTo(id, 1, 1, parked()...)})
				if err != nil || res[0].Err != nil {
					t.Error(res, err)
				}
			})
			wg.Go(func() {
				res, err := w.j.Commit(t.Context(), mine, []journal.Write{appendTo(by, sent, 1, mailTo(id, journal.MailChildEnded, "2"))})
				if err != nil || res[0].Err != nil {
					t.Error(res, err)
				}
			})
			wg.Wait()
			sent++
			require.Len(t, w.unread(id), 2, "round %d", round)
			require.Contains(t, w.jobs(), "wake available "+id, "round %d", round)
		}
	})
	t.Run("Sweep/FindsLostHints", func(t *testing.T) {
		w := open(t, d)
		late := w.started(1)
		w.commit(appendTo(late, 1, 1, parked(func(a *journal.Append) { a.Status.WakeTime = dbkit.Now().Add(-time.Minute) })...))
		paused := w.started(1)
		w.commit(appendTo(paused, 1, 1, parked(func(a *journal.Append) {
			a.Status.State, a.Status.WakeTime = journal.StatePaused, dbkit.Now().Add(-time.Minute)
		})...))
		w.commit(appendTo(w.started(1), 1, 1, parked(func(a *journal.Append) { a.Status.State = journal.StatePaused })...))
		soon := w.started(1)
		w.commit(appendTo(soon, 1, 1, parked(func(a *journal.Append) { a.Status.WakeTime = dbkit.Now().Add(time.Minute) })...))
		require.Empty(t, w.jobs())
		sweep := func() int {
			n, err := w.j.SweepParked(t.Context(), 10*time.Second, 100)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, 2, sweep())
		require.ElementsMatch(t, []string{"wake available " + late, "wake available " + paused}, w.jobs())
		require.Zero(t, sweep(), "it waits already")
		require.Equal(t, w.me, w.claim(w.me, late))
	})
	t.Run("Ready/WithoutALeader", func(t *testing.T) {
		w := open(t, d)
		due := func(in time.Duration) string {
			id := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateWaiting })
			require.NoError(t, w.j.InsertJobs(t.Context(), ns, []journal.Job{{Kind: journal.JobWake, RunID: id, At: dbkit.Now().Add(in),
				Args: fmt.Appendf(nil, `{"namespace": %q, "run_id": %q}`, ns, id)}}))
			return id
		}
		soon, later, sooner := due(time.Hour), due(3*time.Hour), due(time.Minute)
		ready := func(ahead time.Duration, limit int) int {
			n, err := w.j.ReadyJobs(t.Context(), ahead, limit)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, ready(time.Second, 10))
		require.Equal(t, 1, ready(2*time.Hour, 1), "the first one first")
		require.ElementsMatch(t, []string{"wake available " + sooner, "wake scheduled " + soon, "wake scheduled " + later}, w.jobs())
		require.Equal(t, 1, ready(2*time.Hour, 10))
		require.Zero(t, ready(2*time.Hour, 10), "they are ready already")
		require.ElementsMatch(t, []string{"wake available " + sooner, "wake available " + soon, "wake scheduled " + later}, w.jobs())
	})
	t.Run("Hasten/PausedRunsOfAReason", func(t *testing.T) {
		w := open(t, d)
		paused := func(reason string, state journal.State) string {
			id := w.started(1)
			w.commit(appendTo(id, 1, 1, parked(func(a *journal.Append) {
				a.Status.State, a.Status.Reason, a.Status.WakeTime = state, reason, dbkit.Now().Add(time.Minute)
			})...))
			return id
		}
		one, two := paused("THIS", journal.StatePaused), paused("THIS", journal.StatePaused)
		paused("OTHER", journal.StatePaused)
		paused("THIS", journal.StateWaiting)
		hasten := func() int {
			n, err := w.j.HastenPaused(t.Context(), "THIS", 1)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, []int{1, 1, 0}, []int{hasten(), hasten(), hasten()})
		n, err := w.j.SweepParked(t.Context(), 5*time.Second, 100)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.ElementsMatch(t, []string{"wake available " + one, "wake available " + two}, w.jobs())
	})
	t.Run("Stop/WaitingRunsGetJobs", func(t *testing.T) {
		w := open(t, d)
		waiting := w.started(1, func(s *journal.Start) { s.Run.State = journal.StateWaiting })
		timer := w.started(1, func(s *journal.Start) { s.Run.State, s.Run.WakeTime = journal.StateWaiting, dbkit.Now().Add(time.Hour) })
		paused := w.started(1, func(s *journal.Start) { s.Run.State = journal.StatePaused })
		resting := w.started(1, func(s *journal.Start) { s.Run.State, s.Run.WakeTime = journal.StatePaused, dbkit.Now().Add(time.Hour) })
		mailed := w.started(1, func(s *journal.Start) { s.Run.State = journal.StatePaused })
		_, err := w.j.Post(t.Context(), post(mailed, journal.MailResume, ""))
		require.NoError(t, err)
		require.NoError(t, w.j.Deregister(t.Context(), w.me))
		require.ElementsMatch(t, []string{"wake available " + waiting, "wake scheduled " + timer, "wake scheduled " + resting, "wake available " + mailed}, w.jobs())
		require.True(t, w.get(paused).Owner.IsZero())
	})
	t.Run("Take-over/LeavesAMillionParkedRunsAlone", func(t *testing.T) {
		w := open(t, d)
		for range 3 {
			w.commit(appendTo(w.started(1), 1, 1, parked()...))
		}
		id := w.started(1)
		other := w.register("exec-b")
		res := w.takeOver(other, journal.TakeOverOptions{Lease: dead})
		require.Len(t, res.Claimed, 1)
		require.Equal(t, id, res.Claimed[0].RunID)
	})
	t.Run("Graph/ARunIsPinnedToAnother", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		repin := func(hash string) func(*journal.Append) {
			return func(a *journal.Append) { a.GraphHash, a.Graph = hash, []byte("body of "+hash) }
		}
		w.commit(appendTo(id, 1, 1, repin("h2")), appendTo(id, 2, 1, repin("h3")))
		r := w.get(id)
		require.Equal(t, "h3", r.GraphHash)
		require.EqualValues(t, 2, r.GraphRevision)
		l, err := w.j.Load(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "body of h3", string(l.Graph))
	})
	t.Run("Jobs/InsertedAloneOnce", func(t *testing.T) {
		w := open(t, d)
		jobs := []journal.Job{{Kind: "sweep", Args: []byte(`{"run_id":"x"}`)}, {Kind: journal.JobStart, RunID: "r", Priority: 1}}
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, jobs))
		require.NoError(t, w.j.InsertJobs(t.Context(), ns, jobs))
		require.Equal(t, []string{"sweep available x", "start available r"}, w.jobs())
	})
}
