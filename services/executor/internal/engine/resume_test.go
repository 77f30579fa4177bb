package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// unclear is an UNSAFE actor whose first call for each visit has an unknown outcome.
type unclear struct {
	mu   sync.Mutex
	keys map[string][]string // effect keys by run
}

func (*unclear) Info() workgraph.ActorInfo { return workgraph.ActorInfo{Effect: workgraph.Unsafe} }

func (u *unclear) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.keys == nil {
		u.keys = map[string][]string{}
	}
	key := c.EffectKey()
	again := slices.Contains(u.keys[c.RunID], key)
	u.keys[c.RunID] = append(u.keys[c.RunID], key)
	if !again {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Unknown, "LOST", "no answer")
	}
	return text("sent at last"), nil
}

func (u *unclear) calls(id string) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.keys[id])
}

// loop repeats a node for a number of rounds, and pauses after limit visits.
func loop(rounds, limit string) *workgraph.Graph {
	n := workgraph.Node{ID: "a", Actor: "ok"}
	_ = json.Unmarshal([]byte(limit), &n.MaxVisits)
	return &workgraph.Graph{Nodes: []workgraph.Node{n, {ID: "b", Actor: "ok"}}, Edges: []workgraph.Edge{
		{From: "a", To: "a", Kind: workgraph.BackEdge, When: "visit < " + rounds}, {From: "a", To: "b", When: "visit >= " + rounds}}}
}

func kinds(evs []feed.Event, k workgraph.EventKind) []*record.Durable {
	var out []*record.Durable
	for _, ev := range evs {
		if ev.Durable.Kind == k {
			out = append(out, ev.Durable)
		}
	}
	return out
}

// story shows events, one a line.
func story(evs []feed.Event) string {
	var b strings.Builder
	for i := range evs {
		fmt.Fprintf(&b, "%d %s %+v\n", evs[i].Durable.Seq, evs[i].Durable.Kind, *evs[i].Durable)
	}
	return b.String()
}

func TestResume(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		rec := &recorder{}
		a := actors{"ok": rec, "gate": newGate()}
		l := run(t, s, a)
		resume := func(t *testing.T, l *live, req command.ResumeRequest) {
			req.Namespace = ns
			require.NoError(t, l.Resume(t.Context(), req))
			require.NotEqual(t, journal.StatePaused, l.row(t, req.RunID).State, "the answer comes after the commit")
		}
		t.Run("MaxVisits/GoesOnToTheNextLimitAndToTheEnd", func(t *testing.T) {
			id := l.start(t, loop("5", "3"))
			row := l.wait(t, id, journal.StatePaused)
			require.Equal(t, workgraph.ReasonMaxVisits, row.Reason)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Reason: "worth it", Revision: row.Revision}))
			row = l.wait(t, id, journal.StateCompleted)
			evs := l.events(t, id)
			require.Len(t, attemptsOf(evs), 6)
			resumed := kinds(evs, workgraph.RunResumed)
			require.Len(t, resumed, 1)
			require.Equal(t, "worth it", resumed[0].Reason)
			require.Empty(t, row.Reason)
		})
		t.Run("MaxVisits/PausesAgain", func(t *testing.T) {
			id := l.start(t, loop("9", "3"))
			for i := range 2 {
				l.wait(t, id, journal.StatePaused)
				before := l.row(t, id).LastSeq
				require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
				require.Greater(t, l.row(t, id).LastSeq, before)
				testkit.Eventually(t, func() bool { return len(attemptsOf(l.events(t, id))) >= 6+3*i })
			}
			l.wait(t, id, journal.StateCompleted)
			require.Len(t, attemptsOf(l.events(t, id)), 10)
		})
		t.Run("RequestID/SecondTimeDoesNothing", func(t *testing.T) {
			id := l.start(t, loop("9", "3"))
			l.wait(t, id, journal.StatePaused)
			req := command.ResumeRequest{Namespace: ns, RunID: id, Request: journal.Request{ID: "once", BodyHash: "a"}}
			require.NoError(t, l.Resume(t.Context(), req))
			testkit.Eventually(t, func() bool { return len(attemptsOf(l.events(t, id))) == 6 && l.row(t, id).State == journal.StatePaused })
			before := l.row(t, id).LastSeq
			require.NoError(t, l.Resume(t.Context(), req))
			require.Equal(t, before, l.row(t, id).LastSeq)
		})
		t.Run("Refused/EtagStateAndName", func(t *testing.T) {
			id := l.start(t, loop("5", "3"))
			row := l.wait(t, id, journal.StatePaused)
			err := l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Revision: row.Revision + 1})
			require.Equal(t, journal.ReasonEtagMismatch, errs.ReasonOf(err))
			err = l.Resume(t.Context(), command.ResumeRequest{Namespace: "other", RunID: id})
			require.Equal(t, journal.ReasonRunNotFound, errs.ReasonOf(err))
			err = l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: workgraph.Ref{Node: "a", Visit: 1}, Outcome: &workgraph.Outcome{}})
			require.Equal(t, command.ReasonNotInReconciliation, errs.ReasonOf(err))
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
			err = l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id})
			require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.FailedPrecondition))
			require.Equal(t, "COMPLETED", errs.From(err).Meta["state"])
			err = l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: workgraph.Ref{Node: "a", Visit: 1}, Outcome: &workgraph.Outcome{}})
			require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(err))
		})
		t.Run("Running/IsRefusedAndLeftAlone", func(t *testing.T) {
			id := l.start(t, chain(1, "gate"))
			before := l.row(t, id).LastSeq
			err := l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Revision: 99})
			require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(err))
			require.Contains(t, errs.From(err).HintText(), "it goes on: `epigraph runs explain "+id+"`")
			require.Equal(t, before, l.row(t, id).LastSeq)
		})
		t.Run("OtherReplica/ResumesItToo", func(t *testing.T) {
			id := l.start(t, loop("5", "3"))
			l.wait(t, id, journal.StatePaused)
			other := run(t, s, a, func(c *engine.Config, _ *engine.Deps) { c.ID = "other" })
			require.NoError(t, other.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			l.wait(t, id, journal.StateCompleted)
			other.stop()
		})
		t.Run("OwnerIsSlow/ResumeIsReportedAsUnapplied", func(t *testing.T) {
			t.Parallel()
			slow := &heldCommands{read: make(chan struct{}), goOn: make(chan struct{}), held: make(chan struct{})}
			close(slow.goOn)
			l := run(t, s, a, func(c *engine.Config, d *engine.Deps) { c.ID, slow.Journal, d.Journal = "slow", d.Journal, slow })
			goOn := sync.OnceFunc(func() { close(slow.held) })
			defer goOn()
			id := l.start(t, loop("5", "3"))
			l.wait(t, id, journal.StatePaused)
			unapplied := func() []string {
				before, err := l.j.Outstanding(t.Context(), ns, id)
				require.NoError(t, err)
				return command.Unapplied(before.Unread)
			}
			require.Empty(t, unapplied())
			slow.holds.Store(true)
			require.NoError(t, l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}))
			require.Equal(t, journal.StatePaused, l.row(t, id).State)
			require.Equal(t, []string{"RESUME"}, unapplied())
			goOn()
			l.wait(t, id, journal.StateCompleted)
			require.Empty(t, unapplied())
		})
		t.Run("Concurrent/ResumesOnce", func(t *testing.T) {
			id := l.start(t, loop("7", "3"))
			l.wait(t, id, journal.StatePaused)
			rev := l.row(t, id).Revision
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() { _ = l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id, Revision: rev}) })
			}
			wg.Wait()
			testkit.Eventually(t, func() bool { return len(attemptsOf(l.events(t, id))) == 6 && l.row(t, id).State == journal.StatePaused })
			require.Len(t, kinds(l.events(t, id), workgraph.RunResumed), 1)
		})
		t.Run("Restart/PausedRunIsClaimed", func(t *testing.T) {
			id := l.start(t, loop("5", "3"))
			l.wait(t, id, journal.StatePaused)
			l.stop()
			l2 := run(t, s, a, func(c *engine.Config, _ *engine.Deps) { c.ID = "next" })
			resume(t, l2, command.ResumeRequest{RunID: id})
			row := l2.wait(t, id, journal.StateCompleted)
			require.Zero(t, row.Takeovers)
			require.Len(t, attemptsOf(l2.events(t, id)), 6)
		})
	})
}

// slowPauses is a journal in which the pause of a run takes its time. began is closed when the first one
// begins.
type slowPauses struct {
	journal.Journal
	began chan struct{}
	once  *sync.Once
}

func (j slowPauses) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for _, w := range ws {
		if w.Append != nil && w.Append.Status != nil && w.Append.Status.State == journal.StatePaused {
			j.once.Do(func() { close(j.began) })
			sleep.For(ctx, 100*time.Millisecond)
		}
	}
	return j.Journal.Commit(ctx, o, ws)
}

// TestResumeBeforeThePauseIsDurable resumes a run that the machine has paused, and whose row still says
// RUNNING: that is not a run which goes on.
func TestResumeBeforeThePauseIsDurable(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		began := make(chan struct{})
		l := run(t, s, actors{"unsafe": &unclear{}}, func(_ *engine.Config, d *engine.Deps) { d.Journal = slowPauses{d.Journal, began, &sync.Once{}} })
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n0", Actor: "unsafe"}}})
		<-began
		err := l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id})
		require.Equal(t, command.ReasonReconciliationNeeded, errs.ReasonOf(err))
	})
}

// TestReconcileBeforeThePauseIsDurable reconciles a visit as soon as the machine needs that.
func TestReconcileBeforeThePauseIsDurable(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		began := make(chan struct{})
		l := run(t, s, actors{"unsafe": &unclear{}}, func(_ *engine.Config, d *engine.Deps) { d.Journal = slowPauses{d.Journal, began, &sync.Once{}} })
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n0", Actor: "unsafe"}}})
		<-began
		require.NoError(t, l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: workgraph.Ref{Node: "n0", Visit: 1}, Outcome: &workgraph.Outcome{}}))
	})
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	performed := &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{"id": 7}`)}}
	failed := workgraph.Errorf(workgraph.Permanent, "REFUSED", "the bank says no")
	not := workgraph.Errorf(workgraph.NotPerformed, "RECONCILED", "")
	eachStore(t, func(t *testing.T, s store) {
		u, rec := &unclear{}, &recorder{}
		a := actors{"unsafe": u, "ok": rec}
		l := run(t, s, a)
		ref := workgraph.Ref{Node: "n0", Visit: 1}
		start := func(t *testing.T) string {
			g := chain(2, "ok")
			g.Nodes[0].Actor = "unsafe"
			id := l.start(t, g)
			require.Equal(t, workgraph.ReasonReconciliation, l.wait(t, id, journal.StatePaused).Reason)
			return id
		}
		say := func(l *live, id string, out *workgraph.Outcome, fail *workgraph.Error) error {
			return l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: ref, Outcome: out, Err: fail, By: "ada"})
		}
		resume := func(l *live, id string) error {
			return l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id})
		}
		// restart starts the executor again with the same id, as a pod does.
		restart := func() {
			l.stop()
			l = run(t, s, a)
		}
		for _, between := range []bool{false, true} {
			name := map[bool]string{true: "AfterRestart"}[between]
			pause := func(t *testing.T) {
				t.Helper()
				if between {
					restart()
				}
			}
			t.Run("Performed"+name+"/IsNotCalledAgain", func(t *testing.T) {
				id := start(t)
				pause(t)
				err := resume(l, id)
				require.Equal(t, command.ReasonReconciliationNeeded, errs.ReasonOf(err))
				require.Equal(t, "n0", errs.From(err).Meta["visits"])
				require.NoError(t, say(l, id, performed, nil))
				require.Equal(t, journal.StatePaused, l.row(t, id).State)
				last := l.row(t, id).LastSeq
				require.NoError(t, say(l, id, performed, nil), "the same again")
				require.Equal(t, last, l.row(t, id).LastSeq)
				require.Equal(t, command.ReasonNotInReconciliation, errs.ReasonOf(say(l, id, nil, failed)))
				pause(t)
				require.NoError(t, resume(l, id))
				l.wait(t, id, journal.StateCompleted)
				require.NoError(t, say(l, id, performed, nil), "the same when it is over")
				require.Len(t, u.calls(id), 1)
				evs := l.events(t, id)
				require.Equal(t, "ada", kinds(evs, workgraph.Reconciled)[0].By)
				visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Node: "n0"})
				require.NoError(t, err)
				require.Equal(t, workgraph.VisitCompleted, visits[0].Status)
				require.JSONEq(t, `{"id":7}`, string(visits[0].Values[0]))
			})
			t.Run("Failed"+name+"/FailsTheRun", func(t *testing.T) {
				id := start(t)
				pause(t)
				require.NoError(t, say(l, id, nil, failed))
				row := l.wait(t, id, journal.StateFailed)
				require.Contains(t, string(row.Error), "the bank says no")
				require.Len(t, u.calls(id), 1)
				require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(resume(l, id)))
				require.NoError(t, say(l, id, nil, failed), "the same again")
			})
			t.Run("NotPerformed"+name+"/IsCalledOnceMoreUnderTheSameKey", func(t *testing.T) {
				id := start(t)
				pause(t)
				require.NoError(t, say(l, id, nil, not))
				require.Len(t, u.calls(id), 1, "it waits for the resume")
				visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id, Node: "n0"})
				require.NoError(t, err)
				require.Equal(t, workgraph.VisitHeld, visits[0].Status)
				pause(t)
				require.NoError(t, resume(l, id))
				l.wait(t, id, journal.StateCompleted)
				calls := u.calls(id)
				require.Len(t, calls, 2)
				require.Equal(t, calls[0], calls[1])
			})
		}
		t.Run("Items/EachNeedsItsOwn", func(t *testing.T) {
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n0", Actor: "unsafe", Map: &workgraph.Map{Over: "[1,2]"}}}}
			id := l.start(t, g)
			testkit.Eventually(t, func() bool {
				if l.row(t, id).State != journal.StatePaused {
					return false
				}
				err := resume(l, id)
				return err != nil && errs.From(err).Meta["visits"] == "n0[1], n0[2]"
			})
			item := func(n int, out *workgraph.Outcome, fail *workgraph.Error) error {
				return l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: workgraph.Ref{Node: "n0", Visit: 1, Item: n}, Outcome: out, Err: fail})
			}
			testkit.Eventually(t, func() bool { // the journal may be a moment behind the run
				err := item(0, performed, nil)
				require.Equal(t, command.ReasonNotInReconciliation, errs.ReasonOf(err))
				return strings.Contains(errs.From(err).HintText(), "n0[1], n0[2]")
			})
			require.NoError(t, item(1, performed, nil))
			require.Equal(t, "n0[2]", errs.From(resume(l, id)).Meta["visits"])
			require.NoError(t, item(2, nil, not))
			require.NoError(t, resume(l, id))
			row := l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `[{"ok":{"id":7}},{"ok":"sent at last"}]`, string(row.Result))
			require.Len(t, u.calls(id), 3)
		})
		t.Run("Refused/WhatNoCallReturns", func(t *testing.T) {
			id := start(t)
			err := say(l, id, &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{`)}}, nil)
			require.Equal(t, command.ReasonOutcomeInvalid, errs.ReasonOf(err))
			err = say(l, id, &workgraph.Outcome{Values: []json.RawMessage{quoted(5 << 20)}}, nil)
			require.Equal(t, journal.ReasonPayloadTooLarge, errs.ReasonOf(err))
			require.NoError(t, say(l, id, performed, nil), "nothing came of them")
		})
		t.Run("RequestID/SecondTimeDoesNothing", func(t *testing.T) {
			id := start(t)
			req := command.ReconcileRequest{Namespace: ns, RunID: id, Ref: ref, Outcome: performed, Request: journal.Request{ID: "once", BodyHash: "a"}}
			require.NoError(t, l.Reconcile(t.Context(), req))
			last := l.row(t, id).LastSeq
			require.NoError(t, l.Reconcile(t.Context(), req))
			require.Equal(t, last, l.row(t, id).LastSeq)
		})
	})
}
