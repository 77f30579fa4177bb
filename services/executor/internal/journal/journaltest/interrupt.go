package journaltest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func interrupt(at int, change ...func(*journal.Interrupt)) journal.Interrupt {
	i := journal.Interrupt{
		ID: ids.New("int"), NodeID: "ask", Visit: 1, State: journal.InterruptOpen, Prompt: []byte(`"really?"`), Schema: []byte(`{}`), Approve: []byte(`{"h":1}`), Binds: "b",
		Default: []byte(`"no"`), CreateTime: base.Add(time.Duration(at) * time.Second), ExpireTime: base.Add(time.Hour),
	}
	for _, c := range change {
		c(&i)
	}
	return i
}

func interruptCases(t *testing.T, d Driver) {
	get := func(w *world, id string) journal.Interrupt {
		w.t.Helper()
		i, err := w.j.GetInterrupt(w.t.Context(), ns, id)
		require.NoError(w.t, err)
		return i
	}
	list := func(w *world, f journal.InterruptFilter) (out []string) {
		w.t.Helper()
		var after page.Cursor
		for {
			is, err := w.j.ListInterrupts(w.t.Context(), ns, f, after, 2)
			require.NoError(w.t, err)
			for _, i := range is {
				out = append(out, i.ID)
				after = page.Cursor{CreateTime: i.CreateTime, ID: i.ID}
			}
			if len(is) < 2 {
				return out
			}
		}
	}
	t.Run("OpenedClosedAndListed", func(t *testing.T) {
		w := open(t, d)
		q0 := interrupt(0)
		root := w.started(1, func(s *journal.Start) { s.Opened = []journal.Interrupt{q0} })
		child := w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = root, root })
		grandchild := w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = child, root })
		stranger := w.started(1)
		q1, q2, q3, q4 := interrupt(1), interrupt(2), interrupt(3), interrupt(4)
		opened := func(q journal.Interrupt) func(*journal.Append) {
			return func(a *journal.Append) { a.Opened = []journal.Interrupt{q} }
		}
		batch := []journal.Write{appendTo(child, 1, 1, opened(q1)), appendTo(grandchild, 1, 1, opened(q2)), appendTo(stranger, 1, 1, opened(q3)),
			appendTo(root, 1, 1, opened(q4)), appendTo(root, 2, 1, func(a *journal.Append) {
				a.Closed = []journal.Closing{{ID: q4.ID, State: journal.InterruptExpired, Answer: []byte(`"no"`), Time: base}, {ID: q3.ID, State: journal.InterruptExpired, Time: base}}
			})}
		w.commit(batch...)
		w.commit(batch...)
		want := q1
		want.Namespace, want.RunID, want.RootID = ns, child, root
		require.Equal(t, want, get(w, q1.ID))
		require.Equal(t, root, get(w, q0.ID).RootID)
		require.Equal(t, journal.InterruptExpired, get(w, q4.ID).State, "opened and closed in one commit")
		require.Equal(t, base, get(w, q4.ID).CloseTime)
		require.Equal(t, journal.InterruptOpen, get(w, q3.ID).State, "it is another run's")
		isOpen := []journal.InterruptState{journal.InterruptOpen}
		require.Equal(t, []string{q4.ID, q3.ID, q2.ID, q1.ID, q0.ID}, list(w, journal.InterruptFilter{}))
		require.Equal(t, []string{q3.ID, q2.ID, q1.ID, q0.ID}, list(w, journal.InterruptFilter{States: isOpen}))
		require.Equal(t, []string{q2.ID, q1.ID, q0.ID}, list(w, journal.InterruptFilter{RunID: root, States: isOpen}))
		require.Equal(t, []string{q4.ID, q2.ID, q1.ID, q0.ID}, list(w, journal.InterruptFilter{RunID: root, States: append(isOpen, journal.InterruptExpired)}))
		require.Equal(t, []string{q2.ID, q1.ID}, list(w, journal.InterruptFilter{RunID: child}))
		require.Equal(t, []string{q2.ID}, list(w, journal.InterruptFilter{RunID: grandchild}))
		require.Empty(t, list(w, journal.InterruptFilter{RunID: "run_none"}))
		for id, n := range map[string]int{root: 3, child: 2, grandchild: 1, stranger: 1} {
			got, err := w.j.Outstanding(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, n, got.Interrupts)
		}
		_, err := w.j.GetInterrupt(t.Context(), "other", q1.ID)
		reason(t, err, journal.ReasonInterruptNotFound)
		is, err := w.j.ListInterrupts(t.Context(), "other", journal.InterruptFilter{}, page.Cursor{}, 10)
		require.NoError(t, err)
		require.Empty(t, is)
		// The run ends: nobody is asked any more.
		w.commit(appendTo(grandchild, 2, 1, inState(journal.StateCanceled)))
		require.Equal(t, journal.InterruptCanceled, get(w, q2.ID).State)
		require.False(t, get(w, q2.ID).CloseTime.IsZero())
		require.Equal(t, journal.InterruptOpen, get(w, q1.ID).State)
		w.commit(appendTo(child, 2, 1, func(a *journal.Append) {
			a.Closed = []journal.Closing{{ID: q1.ID, State: journal.InterruptCanceled, By: "me", Time: base}}
		}))
		require.Equal(t, "me", get(w, q1.ID).By)
	})
	t.Run("OldestQuestionIsNoApproval", func(t *testing.T) {
		w := open(t, d)
		oldest := func(namespace, run string) string {
			id, err := w.j.OldestQuestion(t.Context(), namespace, run, false)
			require.NoError(t, err)
			return id
		}
		question := func(q *journal.Interrupt) { q.Approve, q.Binds = nil, "" }
		root := w.started(1, func(s *journal.Start) { s.Opened = []journal.Interrupt{interrupt(1), interrupt(2)} })
		child := w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = root, root })
		stranger := w.started(1, func(s *journal.Start) { s.Opened = []journal.Interrupt{interrupt(0, question)} })
		require.Empty(t, oldest(ns, root), "approvals alone")
		first, second, third := interrupt(3, question), interrupt(4, question), interrupt(5, question)
		w.commit(appendTo(child, 1, 1, func(a *journal.Append) { a.Opened = []journal.Interrupt{third, first} }),
			appendTo(root, 1, 1, func(a *journal.Append) { a.Opened = []journal.Interrupt{second} }))
		require.Equal(t, first.ID, oldest(ns, root))
		require.Equal(t, first.ID, oldest(ns, child))
		require.Empty(t, oldest("other", root))
		w.commit(appendTo(child, 2, 1, func(a *journal.Append) {
			a.Closed = []journal.Closing{{ID: first.ID, State: journal.InterruptExpired, Time: base}}
		}))
		require.Equal(t, second.ID, oldest(ns, root))
		require.Equal(t, third.ID, oldest(ns, child), "the root's own is not the child's")
		require.NotEmpty(t, oldest(ns, stranger))
		require.Empty(t, oldest(ns, "run_none"))
	})
	t.Run("OldestQuestionOfAnAgent", func(t *testing.T) {
		w := open(t, d)
		oldest := func(run string) string {
			id, err := w.j.OldestQuestion(t.Context(), ns, run, true)
			require.NoError(t, err)
			return id
		}
		question := func(q *journal.Interrupt) { q.Approve, q.Binds = nil, "" }
		ofAgent := func(q *journal.Interrupt) { q.OfAgent = true }
		others := []journal.Interrupt{interrupt(1, question), interrupt(2, ofAgent)}
		root := w.started(1, func(s *journal.Start) { s.Opened = others })
		require.Empty(t, oldest(root), "another actor's question, and an approval")
		child := w.started(1, func(s *journal.Start) { s.Run.ParentID, s.Run.RootID = root, root })
		own := interrupt(3, question, ofAgent)
		w.commit(appendTo(child, 1, 1, func(a *journal.Append) { a.Opened = []journal.Interrupt{own} }))
		require.Equal(t, own.ID, oldest(root))
		require.True(t, get(w, own.ID).OfAgent)
		require.False(t, get(w, others[0].ID).OfAgent)
		id, err := w.j.OldestQuestion(t.Context(), ns, root, false)
		require.NoError(t, err)
		require.Equal(t, others[0].ID, id)
	})
	t.Run("AnsweredOnceWithItsCommand", func(t *testing.T) {
		w := open(t, d)
		q := interrupt(1)
		id := w.started(1, func(s *journal.Start) { s.Opened = []journal.Interrupt{q} })
		answer := func(text string, change ...func(*journal.EnqueueRequest)) (journal.Enqueued, error) {
			p := enqueue(id, journal.CommandAnswer, q.ID, change...)
			p.Answer = &journal.Answer{InterruptID: q.ID, Answer: []byte(text), Decision: "APPROVE", By: "ann"}
			return w.j.Enqueue(t.Context(), p)
		}
		_, err := answer("x", func(p *journal.EnqueueRequest) { p.Command.RunID = w.started(1) })
		reason(t, err, journal.ReasonInterruptNotFound)
		var mu sync.Mutex
		var wg sync.WaitGroup
		isNew, refused := 0, 0
		for _, text := range []string{`"yes"`, `"no"`, `"yes"`, `"no"`} {
			wg.Go(func() {
				res, err := answer(text)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused++
					return
				}
				if res.New {
					isNew++
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, isNew)
		require.Equal(t, 2, refused)
		require.Len(t, w.unread(id), 1)
		got := get(w, q.ID)
		require.Equal(t, journal.InterruptAnswered, got.State)
		require.Equal(t, "ann", got.By)
		w.commit(appendTo(id, 1, 1, inState(journal.StateCompleted), func(a *journal.Append) { a.Applied = []int64{w.unread(id)[0].ID} }))
		res, err := answer(string(got.Answer))
		require.NoError(t, err, "the same answer again, even after the end")
		require.False(t, res.New)
		require.Empty(t, w.unread(id))
		_, err = answer(`"other"`)
		reason(t, err, journal.ReasonInterruptClosed)
	})
	t.Run("ExpiredTakesNoAnswer", func(t *testing.T) {
		w := open(t, d)
		q := interrupt(1)
		id := w.started(1, func(s *journal.Start) { s.Opened = []journal.Interrupt{q} })
		w.commit(appendTo(id, 1, 1, func(a *journal.Append) {
			a.Closed = []journal.Closing{{ID: q.ID, State: journal.InterruptExpired, Time: base}}
		}))
		p := enqueue(id, journal.CommandAnswer, q.ID)
		p.Answer = &journal.Answer{InterruptID: q.ID, Answer: []byte(`1`)}
		_, err := w.j.Enqueue(t.Context(), p)
		reason(t, err, journal.ReasonInterruptClosed)
		require.Empty(t, w.unread(id))
	})
}
