package journaltest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func startCases(t *testing.T, d Driver) {
	t.Run("EverythingReadsBack", func(t *testing.T) {
		w := open(t, d)
		want := fullRun()
		s := &journal.Start{Run: want, Append: journal.Append{Graph: []byte(`{"nodes":[]}`), Events: events(1, 3), Snapshot: []byte("snap"), Outbox: []journal.Out{{Kind: "k", Body: []byte("b")}}}}
		res := w.commit(journal.Write{Start: s})
		require.Equal(t, []journal.Result{{RunID: want.ID, Created: true, LastSeq: 3, Revision: 1}}, res)
		want.Owner, want.LastSeq, want.Revision, want.Context = w.me, 3, 1, nil // empty reads back as nil
		require.Equal(t, want, w.get(want.ID))
		l, err := w.j.Load(t.Context(), want.ID)
		require.NoError(t, err)
		require.Equal(t, want, l.Run)
		require.Equal(t, "snap", string(l.Snapshot))
		require.EqualValues(t, 3, l.SnapshotSeq)
		require.Empty(t, l.Events)
		require.Equal(t, s.Graph, l.Graph)
		hash, body, err := w.j.Graph(t.Context(), ns, want.ID)
		require.NoError(t, err)
		require.Equal(t, want.GraphHash, hash)
		require.Equal(t, s.Graph, body)
		es := w.events(want.ID)
		for i, e := range events(1, 3) {
			e.RunID, e.Seq = want.ID, int64(i+1)
			require.Equal(t, e, es[i])
		}
		list, err := w.j.List(t.Context(), ns, journal.Filter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		want.Args, want.Named, want.Context, want.Attachments, want.Result, want.Outputs = nil, nil, nil, nil, nil, nil
		require.Equal(t, []journal.Run{want}, list)
	})
	t.Run("TimesAreCutToMicroseconds", func(t *testing.T) {
		w := open(t, d)
		at := base.Add(789 * time.Nanosecond).In(time.FixedZone("x", 3600))
		id := w.started(1, func(s *journal.Start) { s.Run.CreateTime, s.Events[0].Time, s.Run.UpdateTime = at, at, at })
		require.Equal(t, base, w.get(id).CreateTime)
		require.Equal(t, base, w.get(id).UpdateTime)
		require.Equal(t, base, w.events(id)[0].Time)
	})
	t.Run("GraphIsKeptOncePerNamespace", func(t *testing.T) {
		w := open(t, d)
		a, b := start(1), start(1)
		b.Graph = []byte("never stored")
		c := start(1, func(s *journal.Start) { s.Run.Namespace, s.Graph = "other", []byte("theirs") })
		for _, r := range w.commit(journal.Write{Start: a}, journal.Write{Start: b}, journal.Write{Start: c}) {
			require.NoError(t, r.Err)
		}
		l, err := w.j.Load(t.Context(), c.Run.ID)
		require.NoError(t, err)
		require.Equal(t, "theirs", string(l.Graph))
		b = start(1)
		b.Graph = []byte("nor this")
		w.commit(journal.Write{Start: b})
		_, body, err := w.j.Graph(t.Context(), ns, b.Run.ID)
		require.NoError(t, err)
		require.NotEqual(t, "nor this", string(body))
	})
	t.Run("RequestIDReturnsTheFirstRun", func(t *testing.T) {
		w := open(t, d)
		req := func(hash string) func(*journal.Start) {
			return func(s *journal.Start) { s.Request = journal.Request{Method: "StartRun", ID: "r1", BodyHash: hash} }
		}
		a, b := start(1, req("x")), start(1, req("x"))
		// Both in one batch, and one in the next.
		res := w.commit(journal.Write{Start: a}, journal.Write{Start: b})
		require.True(t, res[0].Created)
		require.Equal(t, journal.Result{RunID: a.Run.ID, Repeated: true}, res[1])
		res = w.commit(journal.Write{Start: start(1, req("x"))}, journal.Write{Start: start(1, req("y"))})
		require.Equal(t, journal.Result{RunID: a.Run.ID, Repeated: true}, res[0])
		reason(t, res[1].Err, journal.ReasonRequestIDReused)
		require.True(t, errs.Is(res[1].Err, errs.InvalidArgument))
		res = w.commit(journal.Write{Start: start(1, req("y"), func(s *journal.Start) { s.Run.Namespace = "other" })})
		require.True(t, res[0].Created, "another namespace has its own ids")
		_, err := w.j.Get(t.Context(), ns, b.Run.ID)
		reason(t, err, journal.ReasonRunNotFound)
		n, err := w.j.SweepRequestIDs(t.Context(), dbkit.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = w.j.SweepRequestIDs(t.Context(), dbkit.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.True(t, w.commit(journal.Write{Start: start(1, req("y"))})[0].Created)
	})
	t.Run("RequestIDRace", func(t *testing.T) {
		w := open(t, d)
		created, answered := race(w, 6, 5, func(i int, s *journal.Start) {
			s.Request = journal.Request{Method: "StartRun", ID: fmt.Sprint("r", i), BodyHash: "x"}
		})
		for i := range 5 {
			require.Len(t, created[i], 1, "request %d", i)
			require.Equal(t, created[i], answered[i])
		}
	})
	t.Run("BusinessKeyPolicies", func(t *testing.T) {
		w := open(t, d)
		key := func(p journal.ConflictPolicy) func(*journal.Start) {
			return func(s *journal.Start) { s.Run.BusinessKey, s.Conflict = "order-1", p }
		}
		a := w.started(1, key(journal.ConflictFail))
		res := w.commit(journal.Write{Start: start(1, key(journal.ConflictFail))}, journal.Write{Start: start(1, key(journal.ConflictReturnExisting))})
		reason(t, res[0].Err, journal.ReasonBusinessKeyInUse)
		require.Equal(t, a, errs.From(res[0].Err).Meta["run_id"])
		require.Equal(t, journal.Result{RunID: a}, res[1])
		b := start(1, key(journal.ConflictCancelExisting), func(s *journal.Start) { s.Cancel = []byte(`{"reason":"taken"}`) })
		res = w.commit(journal.Write{Start: b})
		require.Equal(t, journal.Result{RunID: b.Run.ID, Created: true, CancelRequestedOf: a, LastSeq: 1, Revision: 1}, res[0])
		ms := w.pending(w.me)
		require.Len(t, ms, 1)
		require.Equal(t, a, ms[0].RunID)
		require.Equal(t, journal.CommandCancel, ms[0].Kind)
		require.JSONEq(t, `{"reason":"taken"}`, string(ms[0].Body))
		require.Equal(t, journal.ReasonBusinessKeyTaken, w.get(a).CancelReason)
		// The key is free when its holder ends.
		require.NoError(t, w.commit(appendTo(b.Run.ID, 1, 1, inState(journal.StateCompleted)))[0].Err)
		c := w.started(1, key(journal.ConflictFail))
		// Two more in one batch: the last one has it.
		x, y := start(1, key(journal.ConflictCancelExisting)), start(1, key(journal.ConflictCancelExisting))
		res = w.commit(journal.Write{Start: x}, journal.Write{Start: y})
		require.Equal(t, c, res[0].CancelRequestedOf)
		require.Equal(t, x.Run.ID, res[1].CancelRequestedOf)
		require.False(t, w.get(x.Run.ID).CancelTime.IsZero())
		require.True(t, w.get(y.Run.ID).CancelTime.IsZero())
		require.Len(t, w.pending(w.me), 3)
		require.Len(t, w.unread(x.Run.ID), 1, "also one that was started in the same commit")
	})
	t.Run("BusinessKeyOnlyExisting", func(t *testing.T) {
		w := open(t, d)
		only := func(s *journal.Start) {
			s.Run.BusinessKey, s.Conflict, s.Request = "order-2", journal.ConflictOnlyExisting, journal.Request{Method: "StartRun", ID: "once", BodyHash: "x"}
		}
		none := start(1, only)
		reason(t, w.commit(journal.Write{Start: none})[0].Err, journal.ReasonNoHolder)
		a := w.started(1, func(s *journal.Start) { s.Run.BusinessKey = "order-2" })
		require.Equal(t, journal.Result{RunID: a}, w.commit(journal.Write{Start: start(1, only)})[0])
		require.NoError(t, w.commit(appendTo(a, 1, 1, inState(journal.StateCompleted)))[0].Err)
		res := w.commit(journal.Write{Start: start(1, only)})[0]
		require.NoError(t, res.Err, "the request is remembered, not what was refused")
		require.Equal(t, a, res.RunID)
		require.False(t, res.Created)
	})
	t.Run("BusinessKeyRace", func(t *testing.T) {
		w := open(t, d)
		created, answered := race(w, 6, 5, func(i int, s *journal.Start) {
			s.Run.BusinessKey, s.Conflict = fmt.Sprint("k", i), journal.ConflictReturnExisting
		})
		for i := range 5 {
			require.Len(t, created[i], 1, "key %d", i)
			require.Equal(t, created[i], answered[i])
		}
	})
	t.Run("ResentStartIsTheSameRun", func(t *testing.T) {
		w := open(t, d)
		for _, s := range []*journal.Start{
			start(2), start(2, func(s *journal.Start) {
				s.Request, s.Run.BusinessKey = journal.Request{Method: "StartRun", ID: "r", BodyHash: "h"}, "k"
				s.Run.Labels, s.Outbox = map[string]string{"a": "b"}, []journal.Out{{Kind: "k"}}
			}),
		} {
			first := w.commit(journal.Write{Start: s})
			require.Equal(t, first, w.commit(journal.Write{Start: s}))
			require.Len(t, w.events(s.Run.ID), 2)
		}
		s := start(2)
		w.commit(journal.Write{Start: s})
		other := *s
		other.Events = events(5, 3)
		reason(t, w.commit(journal.Write{Start: &other})[0].Err, journal.ReasonRunExists)
		require.Len(t, w.events(s.Run.ID), 2)
		n, err := w.j.OutboxBacklog(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	})
}

// race starts n runs each from several executors on handles of their own and returns, per n, which
// runs were created and which were given as answers.
func race(w *world, executors, n int, change func(int, *journal.Start)) (created, answered [][]string) {
	w.t.Helper()
	created, answered = make([][]string, n), make([][]string, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	errors := make([]error, executors)
	for e := range executors {
		j := w.another()
		owner := w.register(fmt.Sprint("racer-", e))
		wg.Go(func() {
			writes := make([]journal.Write, n)
			for i := range writes {
				k := i
				if e%2 == 1 {
					k = n - 1 - i
				}
				writes[i].Start = start(1, func(s *journal.Start) { change(k, s) })
			}
			res, err := j.Commit(w.t.Context(), owner, writes)
			if err != nil {
				errors[e] = err
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, r := range res {
				k := i
				if e%2 == 1 {
					k = n - 1 - i
				}
				if r.Err != nil {
					errors[e] = r.Err
				}
				if r.Created {
					created[k] = append(created[k], r.RunID)
				}
				if len(answered[k]) == 0 || answered[k][0] != r.RunID {
					answered[k] = append(answered[k], r.RunID)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errors {
		require.NoError(w.t, err)
	}
	return created, answered
}

func fullRun() journal.Run {
	return journal.Run{
		ID: ids.New("run"), Namespace: ns, GraphName: "plan", GraphHash: "hash", TaskID: "tk_1", UserID: "u", ChatID: "c", ThreadID: "thr",
		BusinessKey: "bk", ParentID: "run_p", RootID: "run_root", MachineVersion: 7, TraceParent: "00-ab-cd-01", TraceState: "a=b", Sampled: true,
		CreateTime: base, Priority: 1, Deadline: base.Add(24 * time.Hour), ForkedFrom: "run_f", ScheduleID: "sch_1", EpicID: "ep_1", WorkflowVersion: "digest@3", Labels: map[string]string{"team": "blue", "größe": "ünï"}, Metadata: []byte(`{"m":1}`),
		Args: []byte(`[1]`), Named: []byte(`{"a":12345678901234567890}`), Context: []byte{}, Attachments: []byte{0, 1, 255},
		Status: journal.Status{
			State: journal.StateWaiting, Reason: "TIMER", StartTime: base.Add(time.Second), WakeTime: base.Add(time.Hour), UpdateTime: base.Add(time.Minute),
			Usage: journal.Usage{InputTokens: 1 << 40, CachedInputTokens: 2, OutputTokens: 3, ReasoningTokens: 4, Calls: 5},
			Nodes: journal.NodeCounts{Total: 9, Completed: 1, Failed: 2, Skipped: 3, Running: 3},
		},
		Outcome: journal.Outcome{Error: []byte(`{"e":1}`)},
	}
}

func appendCases(t *testing.T, d Driver) {
	t.Run("RowAndJournalGrow", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		st := journal.Status{
			State: journal.StateCompleted, Reason: "TERMINATED", StartTime: base, EndTime: base.Add(time.Second), UpdateTime: base.Add(time.Second),
			Usage: journal.Usage{Calls: 3}, Nodes: journal.NodeCounts{Total: 2, Completed: 2},
		}
		out := journal.Outcome{Result: []byte("r"), Outputs: []byte("o"), Error: []byte("e")}
		res := w.commit(
			appendTo(id, 1, 2, func(a *journal.Append) { a.Snapshot = []byte("at 3") }),
			appendTo(id, 3, 1, func(a *journal.Append) { a.Status, a.Outcome = &st, &out }),
		)
		require.Equal(t, []journal.Result{{RunID: id, LastSeq: 3, Revision: 2}, {RunID: id, LastSeq: 4, Revision: 2}}, res)
		r := w.get(id)
		require.Equal(t, st, r.Status)
		require.Equal(t, out, r.Outcome)
		require.EqualValues(t, 4, r.LastSeq)
		l, err := w.j.Load(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 3, l.SnapshotSeq)
		require.Len(t, l.Events, 1)
		require.Len(t, w.events(id), 4)
		// Nothing but events: the row's status stays, and so does its revision.
		require.Equal(t, []journal.Result{{RunID: id, LastSeq: 5}}, w.commit(appendTo(id, 4, 1)))
		require.EqualValues(t, 2, w.get(id).Revision)
		require.EqualValues(t, 5, w.get(id).LastSeq)
		require.Equal(t, st, w.get(id).Status)
		require.Equal(t, out, w.get(id).Outcome)
	})
	t.Run("MetadataIsReplaced", func(t *testing.T) {
		w := open(t, d)
		say := func(text string) func(*journal.Append) {
			return func(a *journal.Append) { a.Metadata = []byte(text) }
		}
		id := w.started(1)
		res := w.commit(appendTo(id, 1, 1, inState(journal.StatePaused), say("first")))
		require.EqualValues(t, 2, res[0].Revision)
		require.Equal(t, "first", string(w.get(id).Metadata))
		// With the end of the run in one commit, and with its beginning.
		w.commit(appendTo(id, 2, 1, say("second")), appendTo(id, 3, 1, func(a *journal.Append) {
			a.Status = &journal.Status{State: journal.StateCompleted, UpdateTime: base, EndTime: base}
			a.Outcome = &journal.Outcome{Result: []byte("r")}
		}))
		require.Equal(t, "second", string(w.get(id).Metadata))
		require.Equal(t, "r", string(w.get(id).Result))
		s := start(1)
		w.commit(journal.Write{Start: s}, appendTo(s.Run.ID, 1, 1, say("at once")))
		require.Equal(t, "at once", string(w.get(s.Run.ID).Metadata))
		// Nothing of a write that came too late.
		reason(t, w.commit(appendTo(id, 1, 1, say("late"), func(a *journal.Append) { a.Events[0].Data = []byte("other") }))[0].Err, journal.ReasonSeqConflict)
		require.Equal(t, "second", string(w.get(id).Metadata))
	})
	t.Run("ResultThatIsTheOnlyOutputIsRead", func(t *testing.T) {
		w := open(t, d)
		outs := []journal.Outcome{
			{Result: []byte(`{"a":1}`), Outputs: []byte(`{"n":{"a":1}}`)}, {Result: []byte(`[1,2]`), Outputs: []byte(`{"a":1,"b":2}`)},
			{Result: []byte(`1`)}, {Outputs: []byte(`{"n":1}`)}, {Error: []byte(`{}`)},
		}
		var ends []journal.Write
		var ids []string
		for i := range 40 { // as many as are written another way than a few
			id := w.started(1)
			ids = append(ids, id)
			ends = append(ends, appendTo(id, 1, 1, func(a *journal.Append) {
				a.Status, a.Outcome = &journal.Status{State: journal.StateCompleted, EndTime: base}, &outs[i%len(outs)]
			}))
		}
		w.commit(ends[:3]...)
		w.commit(ends[3:]...)
		for i, id := range ids {
			require.Equal(t, outs[i%len(outs)], w.get(id).Outcome, i)
		}
		atOnce := w.started(1, func(s *journal.Start) {
			s.Run.State, s.Run.EndTime, s.Run.Outcome = journal.StateCompleted, base, outs[0]
		})
		require.Equal(t, outs[0], w.get(atOnce).Outcome)
	})
	t.Run("SnapshotOnly", func(t *testing.T) {
		w := open(t, d)
		id := w.started(4)
		res := w.commit(appendTo(id, 4, 0, func(a *journal.Append) { a.Snapshot = []byte("s") }))
		require.NoError(t, res[0].Err)
		l, err := w.j.Load(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 4, l.SnapshotSeq)
		require.Empty(t, l.Events)
		reason(t, w.commit(appendTo(id, 3, 0, func(a *journal.Append) { a.Snapshot = []byte("old") }))[0].Err, journal.ReasonSeqConflict)
	})
	t.Run("ResentIsCommittedOnce", func(t *testing.T) {
		w := open(t, d)
		id, other := w.started(1), w.started(1)
		batch := []journal.Write{
			appendTo(id, 1, 2, inState(journal.StateRunning), func(a *journal.Append) { a.Outbox = []journal.Out{{Kind: "cost"}} }),
			appendTo(other, 1, 1), appendTo(id, 3, 1),
		}
		first := w.commit(batch...)
		require.Equal(t, first, w.commit(batch...))
		require.Len(t, w.events(id), 4)
		require.Len(t, w.events(other), 2)
		n, err := w.j.OutboxBacklog(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	})
	t.Run("AnotherHistoryLoses", func(t *testing.T) {
		w := open(t, d)
		id := w.started(3)
		for name, a := range map[string]journal.Write{
			"other content": appendTo(id, 1, 1, func(a *journal.Append) { a.Events[0].Data = []byte("other") }),
			"other time":    appendTo(id, 1, 1, func(a *journal.Append) { a.Events[0].Time = base }),
			"beyond end":    appendTo(id, 7, 1),
			"longer":        appendTo(id, 2, 2),
		} {
			res := w.commit(a)
			reason(t, res[0].Err, journal.ReasonSeqConflict)
			require.True(t, errs.Is(res[0].Err, errs.Conflict), name)
			require.Len(t, w.events(id), 3)
		}
		reason(t, w.commit(appendTo("run_none", 0, 1))[0].Err, journal.ReasonRunNotFound)
		reason(t, w.commit(appendTo(id, 3, 1, func(a *journal.Append) { a.Namespace = "other" }))[0].Err, journal.ReasonRunNotFound)
	})
	t.Run("WritesOfARunAreCoalesced", func(t *testing.T) {
		w := open(t, d)
		id, ok := w.started(1), w.started(1)
		res := w.commit(appendTo(id, 1, 1), appendTo(id, 5, 1), appendTo(id, 6, 1), appendTo(ok, 1, 1))
		require.NoError(t, res[0].Err)
		reason(t, res[1].Err, journal.ReasonSeqConflict)
		reason(t, res[2].Err, journal.ReasonSeqConflict)
		require.NoError(t, res[3].Err)
		require.Len(t, w.events(id), 2)
		s := start(1)
		res = w.commit(journal.Write{Start: s}, appendTo(s.Run.ID, 1, 2, inState(journal.StateWaiting)), journal.Write{Start: s})
		require.True(t, res[0].Created)
		require.EqualValues(t, 3, res[1].LastSeq)
		reason(t, res[2].Err, journal.ReasonRunExists)
		require.Equal(t, journal.StateWaiting, w.get(s.Run.ID).State)
	})
	t.Run("RefusedRowIsFoundAndOthersCommit", func(t *testing.T) {
		w := open(t, d)
		var batch []journal.Write
		var runs []string
		for i := range 40 {
			s := start(2)
			if i%13 == 7 {
				s.Events[1].Visit = -1 // refused by a constraint
			}
			runs = append(runs, s.Run.ID)
			batch = append(batch, journal.Write{Start: s})
		}
		for i, r := range w.commit(batch...) {
			_, err := w.j.Get(t.Context(), ns, runs[i])
			if i%13 == 7 {
				reason(t, r.Err, journal.ReasonRowRefused)
				reason(t, err, journal.ReasonRunNotFound)
				require.Empty(t, w.events(runs[i]))
				continue
			}
			require.NoError(t, r.Err)
			require.NoError(t, err)
			require.Len(t, w.events(runs[i]), 2)
		}
	})
	t.Run("ManyRowsInOneCommit", func(t *testing.T) {
		w := open(t, d)
		id := w.started(1)
		big := appendTo(id, 1, 700)
		big.Append.Events[350].Data = bytes.Repeat([]byte("x"), 1<<20)
		require.NoError(t, w.commit(big)[0].Err)
		require.Len(t, w.events(id), 701)
		l, err := w.j.Load(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, l.Events, 701)
		require.Len(t, l.Events[351].Data, 1<<20)
	})
	t.Run("EmptyCommit", func(t *testing.T) {
		w := open(t, d)
		require.Empty(t, w.commit())
		reason(t, w.commit(journal.Write{})[0].Err, journal.ReasonWriteInvalid)
	})
}
