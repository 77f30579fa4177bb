package executor_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// asks is an actor that waits as the node says.
func asks(w workgraph.Wait) workgraph.Actor {
	return workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		w := w
		if w.Interrupt != nil {
			q := *w.Interrupt
			q.ID = "int_" + c.RunID + c.Node
			w.Interrupt = &q
		}
		return workgraph.Outcome{Wait: &w}, nil
	})
}

// calls counts the calls of each node.
type calls struct {
	mu    sync.Mutex
	count map[string]int
	fail  map[string]bool
}

func (c *calls) actor(effect workgraph.Effect) workgraph.Actor {
	return declared{effect, workgraph.ActorFunc(func(_ context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count == nil {
			c.count = map[string]int{}
		}
		c.count[call.Node]++
		if c.fail[call.Node] {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "REFUSED", "no")
		}
		out, err := json.Marshal(call.Node)
		if v := call.Named["text"]; v != nil {
			out = v
		}
		return workgraph.Outcome{Values: []json.RawMessage{out}}, err
	})}
}

func (c *calls) of(node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[node]
}

func (c *calls) mend(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fail, node)
}

// declared is an actor with an effect.
type declared struct {
	effect workgraph.Effect
	workgraph.Actor
}

func (d declared) Info() workgraph.ActorInfo { return workgraph.ActorInfo{Effect: d.effect} }

func onBoth(t *testing.T, f func(*testing.T, func(*executor.Config))) {
	t.Run("SQLite", func(t *testing.T) { f(t, func(*executor.Config) {}) })
	t.Run("Postgres", func(t *testing.T) {
		url := pgtest.New(t)
		f(t, func(c *executor.Config) { c.Store, c.PostgresURL = "postgres", conf.NewSecret(url) })
	})
}

// steering is a server whose actors wait for what steers a run, and calls counts the calls of the others.
type steering struct {
	*fixture
	calls *calls
}

// onSteer runs a test on each database, with a server of its own.
func onSteer(t *testing.T, test func(t *testing.T, f steering)) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		c := &calls{fail: map[string]bool{}}
		f := serve(t, workgraph.Actors{
			"does": c.actor(workgraph.Idempotent), "fires": c.actor(workgraph.Unsafe),
			"asks": asks(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"which color?"`),
				Schema: json.RawMessage(`{"type": "object", "required": ["color"], "properties": {"color": {"type": "string"}}}`)}}),
			"approves": asks(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"may I?"`), Approve: json.RawMessage(`{"pay": 7}`)}}),
			"hurries":  asks(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"now?"`), Timeout: workgraph.Duration(50 * time.Millisecond), Default: json.RawMessage(`"late"`)}}),
			"listens":  asks(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}), "delegates": asks(workgraph.Wait{Completion: &workgraph.CompletionWait{}}),
		}, store)
		test(t, steering{f, c})
	})
}

func (f steering) begin(t *testing.T, g *graphv1.Graph) string {
	t.Helper()
	r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g})
	require.NoError(t, err)
	return r.GetId()
}

func (f steering) visit(t *testing.T, id, node string, want executorv1.VisitState) *executorv1.Visit {
	t.Helper()
	var out *executorv1.Visit
	testkit.Eventually(t, func() bool {
		r, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: id, NodeId: node})
		require.NoError(t, err)
		if len(r.GetVisits()) == 0 {
			return false
		}
		out = r.GetVisits()[0]
		return out.GetState() == want
	})
	return out
}

func TestSteerAnswerInterruptExactlyOnceAndOnlyAsAsked(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		id := f.begin(t, nodes(&graphv1.Node{Id: "q", Actor: "asks"}, &graphv1.Node{Id: "b", Actor: "does"}))
		v := f.visit(t, id, "q", waiting)
		require.Equal(t, executorv1.WaitKind_WAIT_KIND_INTERRUPT, v.GetWait().GetKind())
		list, err := f.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: id})
		require.NoError(t, err)
		require.Len(t, list.GetInterrupts(), 1)
		q := list.GetInterrupts()[0]
		require.Equal(t, v.GetWait().GetInterruptId(), q.GetId())
		require.JSONEq(t, `"which color?"`, string(q.GetPrompt().GetJson()))
		x, err := f.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: id})
		require.NoError(t, err)
		require.Equal(t, executorv1.BlockerKind_BLOCKER_KIND_INTERRUPT, x.GetBlockers()[0].GetKind())
		require.Equal(t, []string{q.GetId()}, x.GetBlockers()[0].GetInterruptIds())
		require.Contains(t, x.GetBlockers()[0].GetHint(), "epigraph interrupts answer "+q.GetId())

		_, err = f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), Answer: value(`{"color": 7}`)})
		require.Equal(t, "ANSWER_INVALID", errs.ReasonOf(err))
		require.Equal(t, "answer/color", errs.From(err).Violations[0].Field)
		_, err = f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), Decision: executorv1.Decision_DECISION_APPROVED})
		require.Equal(t, "ANSWER_INVALID", errs.ReasonOf(err))
		right := &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), Answer: value(`{"color": "red"}`), By: "ada"}
		for range 2 {
			a, err := f.AnswerInterrupt(t.Context(), right)
			require.NoError(t, err)
			require.Equal(t, executorv1.InterruptState_INTERRUPT_STATE_ANSWERED, a.GetState())
		}
		right.Answer = value(`{"color": "blue"}`)
		_, err = f.AnswerInterrupt(t.Context(), right)
		require.Equal(t, "INTERRUPT_CLOSED", errs.ReasonOf(err))
		f.wait(t, id, completed)
		require.JSONEq(t, `{"color":"red"}`, string(f.visit(t, id, "q", executorv1.VisitState_VISIT_STATE_COMPLETED).GetValues()[0].GetJson()))
	})
}

func TestSteerAnswerInterruptRejectionFailsTheVisit(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, failed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_FAILED
		c := f.calls
		id := f.begin(t, nodes(&graphv1.Node{Id: "q", Actor: "approves"}, &graphv1.Node{Id: "pays", Actor: "fires"}))
		q := f.visit(t, id, "q", waiting).GetWait().GetInterruptId()
		_, err := f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q, Decision: executorv1.Decision_DECISION_REJECTED, By: "ada"})
		require.NoError(t, err)
		r := f.wait(t, id, failed)
		require.Equal(t, "APPROVAL_REJECTED", r.GetError().GetReason())
		require.Zero(t, c.of("pays"))
	})
}

func TestSteerAmendRunOfWhatWasApprovedAsksAgain(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const completed = executorv1.RunState_RUN_STATE_COMPLETED
		c := f.calls
		pays := func(id, amount string) *graphv1.Node {
			return &graphv1.Node{Id: id, Actor: "fires", Named: map[string]*graphv1.Payload{"text": value(amount)}}
		}
		g := func(pay string) *graphv1.Graph {
			ask, hear := actorNode("ask", "human", `{"approve": {"pay": 7}}`), actorNode(pay+"-wait", "listens", `{}`)
			out := nodes(ask, pays(pay, "7"))
			out.Nodes = append(out.Nodes, hear)
			out.Edges = append(out.Edges, &graphv1.Edge{From: pay + "-wait", To: pay})
			return out
		}
		id := f.begin(t, g("pay"))
		question := func() *executorv1.Interrupt {
			t.Helper()
			var q *executorv1.Interrupt
			testkit.Eventually(t, func() bool {
				list, err := f.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: id})
				require.NoError(t, err)
				if len(list.GetInterrupts()) == 1 {
					q = list.GetInterrupts()[0]
				}
				return q != nil
			})
			return q
		}
		yes := func(q *executorv1.Interrupt, hash string) error {
			_, err := f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), Decision: executorv1.Decision_DECISION_APPROVED, By: "ada", ApproveHash: hash})
			return err
		}
		amend := func(revision int64, amount string) {
			t.Helper()
			_, err := f.AmendRun(t.Context(), &executorv1.AmendRunRequest{RunId: id, ExpectedRevision: revision, Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{pays("pay", amount)}}})
			require.NoError(t, err)
		}
		first := question()
		amend(0, "70")
		second := question()
		require.NotEqual(t, first.GetId(), second.GetId())
		require.Error(t, yes(first, ""))
		require.Equal(t, "APPROVE_HASH_MISMATCH", errs.ReasonOf(yes(second, first.GetApproveHash())), "what was seen is not what is to be done any more")
		require.NoError(t, yes(second, second.GetApproveHash()))
		f.visit(t, id, "ask", executorv1.VisitState_VISIT_STATE_COMPLETED)
		amend(1, "7000")
		third := question()
		require.NotEqual(t, second.GetApproveHash(), third.GetApproveHash())
		_, err := f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go"})
		require.NoError(t, err)
		f.visit(t, id, "pay-wait", executorv1.VisitState_VISIT_STATE_COMPLETED)
		require.Zero(t, c.of("pay"))
		require.NoError(t, yes(third, third.GetApproveHash()))
		f.wait(t, id, completed)
		require.Equal(t, 1, c.of("pay"))

		fork, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "pay"}, AllowUnsafe: true,
			Named: map[string]*graphv1.Payload{"text": value("9000")}})
		require.NoError(t, err)
		id = fork.GetId()
		require.NotEqual(t, third.GetApproveHash(), question().GetApproveHash(), "a fork asks again")
		require.Equal(t, 1, c.of("pay"))
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: id})
		require.NoError(t, err)
		f.wait(t, id, executorv1.RunState_RUN_STATE_CANCELED)
	})
}

func TestSteerAnswerInterruptApprovalIsOfExactlyThat(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		id := f.begin(t, nodes(&graphv1.Node{Id: "q", Actor: "approves"}))
		q := f.visit(t, id, "q", waiting).GetWait().GetInterruptId()
		req := &executorv1.AnswerInterruptRequest{InterruptId: q, Decision: executorv1.Decision_DECISION_APPROVED, By: "ada", ApproveHash: "00"}
		_, err := f.AnswerInterrupt(t.Context(), req)
		require.Equal(t, "APPROVE_HASH_MISMATCH", errs.ReasonOf(err))
		shown, err := f.GetInterrupt(t.Context(), &executorv1.GetInterruptRequest{InterruptId: q})
		require.NoError(t, err)
		req.ApproveHash = shown.GetApproveHash()
		_, err = f.AnswerInterrupt(t.Context(), req)
		require.NoError(t, err)
		r := f.wait(t, id, completed)
		require.Contains(t, string(r.GetResult().GetJson()), `"APPROVED"`)
		require.Contains(t, string(r.GetResult().GetJson()), shown.GetApproveHash())
	})
}

func TestSteerAnswerInterruptWithoutAHash(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		// approve_hash is optional: a decision without it applies to the interrupt that is open when it
		// arrives. A caller that has not read the interrupt, such as a button in a chat, has nothing to
		// compare.
		for name, c := range map[string]struct {
			decision executorv1.Decision
			end      executorv1.RunState
			gives    string
		}{
			"Approves": {executorv1.Decision_DECISION_APPROVED, completed, `"APPROVED"`},
			"Rejects":  {executorv1.Decision_DECISION_REJECTED, executorv1.RunState_RUN_STATE_FAILED, ""},
		} {
			t.Run("AnswerInterrupt/WithoutAHash"+name+"WhatIsAskedThen", func(t *testing.T) {
				id := f.begin(t, nodes(&graphv1.Node{Id: "q", Actor: "approves"}))
				q := f.visit(t, id, "q", waiting).GetWait().GetInterruptId()
				shown, err := f.GetInterrupt(t.Context(), &executorv1.GetInterruptRequest{InterruptId: q})
				require.NoError(t, err)
				require.NotEmpty(t, shown.GetApproveHash(), "there was something to compare")
				_, err = f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q, Decision: c.decision, By: "ada"})
				require.NoError(t, err)
				r := f.wait(t, id, c.end)
				require.Contains(t, string(r.GetResult().GetJson()), c.gives)
				if c.decision == executorv1.Decision_DECISION_APPROVED {
					require.Contains(t, string(r.GetResult().GetJson()), shown.GetApproveHash(), "the answer names what was asked")
				}
			})
		}
	})
}

func TestSteerSignalRunWakesTheWaitOnce(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		id := f.begin(t, nodes(&graphv1.Node{Id: "s", Actor: "listens"}))
		f.visit(t, id, "s", waiting)
		for range 2 {
			_, err := f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go", Payload: value(`7`), RequestId: "once"})
			require.NoError(t, err)
		}
		r := f.wait(t, id, completed)
		require.Equal(t, "7", string(r.GetResult().GetJson()))
		_, err := f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go"})
		require.Equal(t, "RUN_ENDED", errs.ReasonOf(err))
	})
}

func TestSteerSignalWithStartStartsOnceAndSignals(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		req := &executorv1.SignalWithStartRequest{Name: "go", Payload: value(`1`), Start: &executorv1.StartRunRequest{BusinessKey: "sws", RequestId: "sws",
			Graph: nodes(&graphv1.Node{Id: "s", Actor: "listens"}, &graphv1.Node{Id: "s2", Actor: "listens"})}}
		first, err := f.SignalWithStart(t.Context(), req)
		require.NoError(t, err)
		again, err := f.SignalWithStart(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, first.GetId(), again.GetId())
		f.visit(t, first.GetId(), "s2", waiting)
		req.Start.RequestId, req.Payload = "sws2", value(`2`)
		_, err = f.SignalWithStart(t.Context(), req)
		require.NoError(t, err)
		f.wait(t, first.GetId(), completed)
	})
}

func TestSteerCompleteAttemptByTokenOnce(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		id := f.begin(t, nodes(&graphv1.Node{Id: "w", Actor: "delegates"}))
		token := f.visit(t, id, "w", waiting).GetWait().GetAttemptToken()
		_, err := f.CompleteAttempt(t.Context(), &executorv1.CompleteAttemptRequest{AttemptToken: "nonsense", Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{}}})
		require.Equal(t, "ATTEMPT_TOKEN_INVALID", errs.ReasonOf(err))
		done := &executorv1.CompleteAttemptRequest{AttemptToken: token, By: "ada",
			Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(`{"score": 7}`)}}}}
		for range 2 {
			r, err := f.CompleteAttempt(t.Context(), done)
			require.NoError(t, err)
			require.Equal(t, id, r.GetRunId())
		}
		f.wait(t, id, completed)
		done.GetCompleted().Values[0] = value(`8`)
		_, err = f.CompleteAttempt(t.Context(), done)
		require.Equal(t, "ATTEMPT_NOT_WAITING", errs.ReasonOf(err))
	})
}

func TestSteerPauseRunHoldsNewStarts(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		id := f.begin(t, nodes(&graphv1.Node{Id: "s", Actor: "listens"}, &graphv1.Node{Id: "b", Actor: "does"}))
		f.visit(t, id, "s", waiting)
		r, err := f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: id, Reason: "lunch"})
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_PAUSED, r.GetState())
		_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go"})
		require.NoError(t, err)
		x, err := f.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: id})
		require.NoError(t, err)
		require.Equal(t, executorv1.BlockerKind_BLOCKER_KIND_PAUSED, x.GetBlockers()[0].GetKind(), "%v", x)
		held := f.visit(t, id, "b", executorv1.VisitState_VISIT_STATE_HELD)
		require.Zero(t, held.GetAttempts())
		_, err = f.ResumeRun(t.Context(), &executorv1.ResumeRunRequest{RunId: id})
		require.NoError(t, err)
		f.wait(t, id, completed)
	})
}

func TestSteerPendingKeepsSignalsAndEndsWhenCanceled(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const completed = executorv1.RunState_RUN_STATE_COMPLETED
		c := f.calls
		later := func(in time.Duration) string {
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "p1", Actor: "listens"}, &graphv1.Node{Id: "p2", Actor: "does"}),
				StartTime: timestamppb.New(time.Now().Add(in))})
			require.NoError(t, err)
			require.Equal(t, executorv1.RunState_RUN_STATE_PENDING, r.GetState())
			_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: r.GetId(), Name: "go", Payload: value(`"early"`)})
			require.NoError(t, err)
			return r.GetId()
		}
		never := later(time.Hour)
		_, err := f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: never})
		require.Equal(t, "RUN_NOT_STARTED", errs.ReasonOf(err))
		waits, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: never})
		require.NoError(t, err)
		require.Equal(t, []string{"SIGNAL"}, waits.GetPendingCommands())
		_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: never})
		require.NoError(t, err)
		f.wait(t, never, executorv1.RunState_RUN_STATE_CANCELED)
		over, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: never})
		require.NoError(t, err)
		require.Nil(t, over.GetStartTime(), "it was never begun")
		require.Zero(t, c.of("p2"))
		id := later(time.Second)
		f.wait(t, id, completed)
		require.JSONEq(t, `"early"`, string(f.visit(t, id, "p1", executorv1.VisitState_VISIT_STATE_COMPLETED).GetValues()[0].GetJson()))
		require.Equal(t, 1, c.of("p2"))
		for _, ev := range f.watch(t, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true}) {
			if s := ev.GetSignalReceived(); s != nil {
				require.Equal(t, "go", s.GetName())
			}
		}
	})
}

func TestSteerRetryRunRunsOnlyWhatFailed(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const completed, failed = executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED
		c := f.calls
		c.mu.Lock()
		c.fail["r2"] = true
		c.mu.Unlock()
		mine := map[string]string{"drill": "retry"}
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Labels: mine,
			Graph: nodes(&graphv1.Node{Id: "r1", Actor: "fires"}, &graphv1.Node{Id: "r2", Actor: "does"}, &graphv1.Node{Id: "r3", Actor: "does"})})
		require.NoError(t, err)
		id := run.GetId()
		f.wait(t, id, failed)
		c.mend("r2")
		var ids []string
		for range 2 {
			r, err := f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: id, RequestId: "again"})
			require.NoError(t, err)
			require.Equal(t, id, r.GetForkedFromRunId())
			ids = append(ids, r.GetId())
		}
		require.Equal(t, ids[0], ids[1])
		f.wait(t, ids[0], completed)
		require.Equal(t, 1, c.of("r1"), "what completed was taken over")
		require.True(t, f.visit(t, ids[0], "r1", executorv1.VisitState_VISIT_STATE_COMPLETED).GetReused())
		require.Equal(t, 1, c.of("r3"))
		_, err = f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: ids[0]})
		require.Equal(t, "NOTHING_TO_RETRY", errs.ReasonOf(err))
	})
}

func TestSteerBulkRetryRunsGoesOnWithThoseThatItHasNotRetried(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const completed, failed = executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED
		c := f.calls
		mine := map[string]string{"drill": "bulk"}
		runs := map[string]int{}
		for _, n := range []string{"b1", "b2", "b3"} {
			c.mu.Lock()
			c.fail[n] = true
			c.mu.Unlock()
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Labels: mine, Graph: nodes(&graphv1.Node{Id: n, Actor: "does"})})
			require.NoError(t, err)
			f.wait(t, r.GetId(), failed)
			c.mend(n)
			runs[r.GetId()] = 0
		}
		bulk := func(limit int32, dry bool) *executorv1.BulkRetryRunsResponse {
			b, err := f.BulkRetryRuns(t.Context(), &executorv1.BulkRetryRunsRequest{Filter: &executorv1.RunFilter{Labels: mine}, Limit: limit, DryRun: dry})
			require.NoError(t, err)
			require.Empty(t, b.GetFailures())
			return b
		}
		for left := range 3 {
			b := bulk(1, false)
			require.Len(t, b.GetRunIds(), 1)
			require.Equal(t, left < 2, b.GetMore())
			require.EqualValues(t, 2-left, bulk(0, true).GetMatched(), "those that are left")
			runs[f.wait(t, b.GetRunIds()[0], completed).GetForkedFromRunId()]++
		}
		for id, n := range runs {
			require.Equal(t, 1, n, id)
		}
		again := bulk(0, false)
		require.Zero(t, again.GetMatched())
		require.Empty(t, again.GetRunIds())
	})
}

func TestSteerForkRunOtherArgumentsOtherGraphAndUnsafe(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const completed = executorv1.RunState_RUN_STATE_COMPLETED
		c := f.calls
		g := nodes(&graphv1.Node{Id: "f1", Actor: "does"}, &graphv1.Node{Id: "f2", Actor: "fires"}, &graphv1.Node{Id: "f3", Actor: "does"})
		id := f.begin(t, g)
		f.wait(t, id, completed)
		_, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "f2"}})
		require.Equal(t, "FORK_REPEATS_UNSAFE", errs.ReasonOf(err))
		require.Contains(t, errs.From(err).Meta["visits"], "f2")
		_, err = f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "f33"}})
		require.Equal(t, "VISIT_NOT_FOUND", errs.ReasonOf(err))
		require.Contains(t, err.Error(), `the graph of the run has no node "f33"`)
		require.Contains(t, errs.From(err).HintText(), "did you mean f3")
		r, err := f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "f3"},
			Named: map[string]*graphv1.Payload{"text": value(`"other"`)}, Labels: map[string]string{"a": "b"}})
		require.NoError(t, err)
		done := f.wait(t, r.GetId(), completed)
		require.Equal(t, `"other"`, string(done.GetResult().GetJson()))
		require.Equal(t, "b", done.GetLabels()["a"])
		require.Equal(t, []int{1, 1, 2}, []int{c.of("f1"), c.of("f2"), c.of("f3")})
		changed := nodes(&graphv1.Node{Id: "f1", Actor: "does"}, &graphv1.Node{Id: "f2", Actor: "fires"}, &graphv1.Node{Id: "f4", Actor: "does"})
		r, err = f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "f3"}, Graph: changed})
		require.NoError(t, err)
		require.Equal(t, `"f4"`, string(f.wait(t, r.GetId(), completed).GetResult().GetJson()))
		require.Equal(t, 1, c.of("f2"))
		changed.Nodes[0].Named = map[string]*graphv1.Payload{"text": value(`"x"`)}
		_, err = f.ForkRun(t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "f3"}, Graph: changed})
		require.Equal(t, "FORK_CHANGES_REUSED", errs.ReasonOf(err))
		require.Equal(t, "graph.nodes[f1]", errs.From(err).Violations[0].Field)
	})
}

func TestSteerAmendRunChangesWhatHasNotRun(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting, completed = executorv1.VisitState_VISIT_STATE_WAITING, executorv1.RunState_RUN_STATE_COMPLETED
		c := f.calls
		id := f.begin(t, nodes(&graphv1.Node{Id: "a1", Actor: "does"}, &graphv1.Node{Id: "a2", Actor: "listens"}, &graphv1.Node{Id: "a3", Actor: "does"}))
		f.visit(t, id, "a2", waiting)
		req := &executorv1.AmendRunRequest{RunId: id, DryRun: true, By: "ada", Patch: &executorv1.GraphPatch{
			RemoveNodes: []string{"a3"}, PutNodes: []*graphv1.Node{{Id: "a4", Actor: "does"}}, AddEdges: []*graphv1.Edge{{From: "a2", To: "a4"}}}}
		d, err := f.AmendRun(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, []string{"a4"}, d.GetDiff().GetAddedNodes())
		require.Equal(t, []string{"a3"}, d.GetDiff().GetRemovedNodes())
		require.Zero(t, d.GetRun().GetGraphRevision())
		req.DryRun = false
		d, err = f.AmendRun(t.Context(), req)
		require.NoError(t, err)
		require.EqualValues(t, 1, d.GetRun().GetGraphRevision())
		_, err = f.AmendRun(t.Context(), req)
		require.Equal(t, "GRAPH_REVISION_MISMATCH", errs.ReasonOf(err))
		_, err = f.AmendRun(t.Context(), &executorv1.AmendRunRequest{RunId: id, ExpectedRevision: 1, Patch: &executorv1.GraphPatch{RemoveNodes: []string{"a1"}}})
		require.Equal(t, "AMEND_REFUSED", errs.ReasonOf(err))
		require.NotEmpty(t, errs.From(err).Violations)
		_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go"})
		require.NoError(t, err)
		require.Equal(t, `"a4"`, string(f.wait(t, id, completed).GetResult().GetJson()))
		require.Zero(t, c.of("a3"))
	})
}

func TestSteerAmendRunToAWholeGraph(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	ended := func(t *testing.T, id string) (run *executorv1.Run) {
		t.Helper()
		testkit.Eventually(t, func() bool {
			var err error
			run, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
			return err == nil && run.GetEndTime() != nil
		})
		return run
	}
	cel := func(id string) *graphv1.Node {
		return &graphv1.Node{Id: id, Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"'` + id + `'"`)}}
	}
	req := &executorv1.StartRunRequest{RequestId: "once", Graph: &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "open", Actor: "completion"}}}}
	run, err := f.StartRun(t.Context(), req)
	require.NoError(t, err)
	amend := func(revision int64, change func(*executorv1.AmendRunRequest)) error {
		r := &executorv1.AmendRunRequest{RunId: run.GetId(), ExpectedRevision: revision}
		change(r)
		_, err := f.AmendRun(t.Context(), r)
		return err
	}
	require.NoError(t, amend(0, func(r *executorv1.AmendRunRequest) {
		r.Patch = &executorv1.GraphPatch{PutNodes: []*graphv1.Node{cel("b")}}
	}))
	testkit.Eventually(t, func() bool {
		v, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: run.GetId()})
		return err == nil && slices.ContainsFunc(v.GetVisits(), func(v *executorv1.Visit) bool {
			return v.GetNodeId() == "b" && v.GetState() == executorv1.VisitState_VISIT_STATE_COMPLETED
		})
	})
	whole := &graphv1.Graph{Name: "whole", Nodes: []*graphv1.Node{cel("a"), cel("b"), cel("c")}, Edges: []*graphv1.Edge{{From: "a", To: "c"}, {From: "b", To: "c"}}}
	require.Equal(t, "CHANGE_MISSING", errs.ReasonOf(amend(1, func(*executorv1.AmendRunRequest) {})))
	require.Equal(t, "CHANGE_MISSING", errs.ReasonOf(amend(1, func(r *executorv1.AmendRunRequest) { r.Patch, r.Graph = &executorv1.GraphPatch{}, whole })))
	require.Equal(t, "GRAPH_INVALID", errs.ReasonOf(amend(1, func(r *executorv1.AmendRunRequest) {
		r.Graph = &graphv1.Graph{Nodes: []*graphv1.Node{cel("b"), cel("b#1/x")}}
	})), "only an expansion makes such an id")
	require.Equal(t, "AMEND_REFUSED", errs.ReasonOf(amend(1, func(r *executorv1.AmendRunRequest) { r.Graph = &graphv1.Graph{Nodes: []*graphv1.Node{cel("a")}} })))
	require.NoError(t, amend(1, func(r *executorv1.AmendRunRequest) { r.Graph = whole }))
	last := ended(t, run.GetId())
	require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, last.GetState())
	plain, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: whole})
	require.NoError(t, err)
	require.Equal(t, plain.GetGraphHash(), last.GetGraphHash(), "the order of nodes holds as well")
	require.Equal(t, string(ended(t, plain.GetId()).GetResult().GetJson()), string(last.GetResult().GetJson()))
	g, err := f.GetRunGraph(t.Context(), &executorv1.GetRunGraphRequest{RunId: run.GetId()})
	require.NoError(t, err)
	require.EqualValues(t, 2, g.GetGraphRevision())
	require.Equal(t, "whole", g.GetGraph().GetName())

	var header metadata.MD
	again, err := f.StartRun(t.Context(), req, grpc.Header(&header))
	require.NoError(t, err)
	require.Equal(t, run.GetId(), again.GetId())
	require.True(t, grpckit.Repeated(header))
	_, err = f.StartRun(t.Context(), &executorv1.StartRunRequest{RequestId: "another", Graph: whole}, grpc.Header(&header))
	require.NoError(t, err)
	require.False(t, grpckit.Repeated(header))
}

func TestSteerDeleteRunOnlyWhatHasEnded(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const waiting = executorv1.VisitState_VISIT_STATE_WAITING
		id := f.begin(t, nodes(&graphv1.Node{Id: "s", Actor: "listens"}))
		f.visit(t, id, "s", waiting)
		_, err := f.DeleteRun(t.Context(), &executorv1.DeleteRunRequest{RunId: id})
		require.Equal(t, "RUN_NOT_ENDED", errs.ReasonOf(err))
		_, err = f.BulkCancelRuns(t.Context(), &executorv1.BulkCancelRunsRequest{Filter: &executorv1.RunFilter{}})
		require.Equal(t, "FILTER_EMPTY", errs.ReasonOf(err))
		b, err := f.BulkCancelRuns(t.Context(), &executorv1.BulkCancelRunsRequest{DryRun: true, Filter: &executorv1.RunFilter{States: []executorv1.RunState{executorv1.RunState_RUN_STATE_WAITING}}})
		require.NoError(t, err)
		require.EqualValues(t, 1, b.GetMatched())
		require.Zero(t, b.GetDone())
		b, err = f.BulkCancelRuns(t.Context(), &executorv1.BulkCancelRunsRequest{Filter: &executorv1.RunFilter{States: []executorv1.RunState{executorv1.RunState_RUN_STATE_WAITING}}})
		require.NoError(t, err)
		require.EqualValues(t, 1, b.GetDone())
		f.wait(t, id, executorv1.RunState_RUN_STATE_CANCELED)
		_, err = f.DeleteRun(t.Context(), &executorv1.DeleteRunRequest{RunId: id})
		require.NoError(t, err)
		_, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
		require.Equal(t, "RUN_NOT_FOUND", errs.ReasonOf(err))
	})
}

func TestSteerWatchRunTellsWhoseTimeWasUp(t *testing.T) {
	onSteer(t, func(t *testing.T, f steering) {
		const completed, failed = executorv1.RunState_RUN_STATE_COMPLETED, executorv1.RunState_RUN_STATE_FAILED
		id := f.begin(t, nodes(&graphv1.Node{Id: "h", Actor: "hurries"}))
		f.wait(t, id, completed)
		var closed *executorv1.InterruptClosed
		for _, ev := range f.watch(t, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true}) {
			require.Nil(t, ev.GetTimerFired())
			if x := ev.GetInterruptClosed(); x != nil {
				closed = x
			}
		}
		require.True(t, closed.GetExpired())
		require.Equal(t, "h", closed.GetVisit().GetNodeId())
		require.JSONEq(t, `"late"`, string(closed.GetAnswer().GetJson()))
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "s", Actor: "listens"}), Timeout: durationpb.New(200 * time.Millisecond)})
		require.NoError(t, err)
		f.wait(t, r.GetId(), failed)
		passed := 0
		for _, ev := range f.watch(t, &executorv1.WatchRunRequest{RunId: r.GetId(), DurableOnly: true}) {
			require.Nil(t, ev.GetCancelRequested())
			if ev.GetDeadlinePassed() != nil {
				passed++
			}
		}
		require.Equal(t, 1, passed)
	})
}
