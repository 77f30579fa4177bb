package executor_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestSender is about messages in the name of a node: only the node's own calls send them.
func TestSender(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, workgraph.Actors{"waits": asks(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"delegates": asks(workgraph.Wait{Completion: &workgraph.CompletionWait{}}),
			"grows":     outcomes(workgraph.Outcome{Expand: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "x", Actor: "delegates", Effect: workgraph.Pure}}}})}, store)
		box := func(id string, from ...string) *graphv1.Node {
			n := actorNode(id, "cel", `{"expr": "named.messages.map(m, m.from)"}`)
			n.On = &graphv1.Activation{Inbox: &graphv1.Inbox{From: from}}
			return n
		}
		begin := func(t *testing.T, edges []*graphv1.Edge, list ...*graphv1.Node) string {
			t.Helper()
			r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: list, Edges: edges}})
			require.NoError(t, err)
			f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_WAITING)
			return r.GetId()
		}
		visits := func(t *testing.T, id, node string) []*executorv1.Visit {
			t.Helper()
			r, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: id, NodeId: node})
			require.NoError(t, err)
			return r.GetVisits()
		}
		token := func(t *testing.T, id, node string) string {
			t.Helper()
			var out string
			testkit.Eventually(t, func() bool {
				v := visits(t, id, node)
				out = ""
				if len(v) == 1 {
					out = v[0].GetWait().GetAttemptToken()
				}
				return out != ""
			})
			return out
		}
		send := func(t *testing.T, id, from, node, token string) error {
			t.Helper()
			_, err := f.SendMessage(t.Context(), &executorv1.SendMessageRequest{RunId: id, From: from, NodeId: node, Message: value(`1`), AttemptToken: token})
			return err
		}
		reserved := func(t *testing.T, err error) {
			t.Helper()
			require.Equal(t, "SENDER_RESERVED", errs.ReasonOf(err), "%v", err)
			require.Equal(t, codes.PermissionDenied, status.Code(err))
			require.NotEmpty(t, errs.From(err).Meta["hint"])
		}
		taken := func(t *testing.T, id, node, from string) {
			t.Helper()
			testkit.Eventually(t, func() bool {
				v := visits(t, id, node)
				return len(v) > 0 && len(v[0].GetValues()) > 0 && string(v[0].GetValues()[0].GetJson()) == `["`+from+`"]`
			})
		}

		t.Run("Approval/IsNotPassedByItsName", func(t *testing.T) {
			ask := actorNode("ask", "human", `{"prompt": "pay?", "approve": {"amount": 7}}`)
			id := begin(t, []*graphv1.Edge{{From: "ask", To: "pay"}}, ask, box("pay", "ask"))
			reserved(t, send(t, id, "ask", "pay", ""))
			reserved(t, send(t, id, "ask", "", ""))
			// The later calls do not find a visit of pay.
			_, err := f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "ask", Payload: value(`1`)})
			require.NoError(t, err)
			require.Empty(t, visits(t, id, "pay"))
			q, err := f.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: id})
			require.NoError(t, err)
			_, err = f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q.GetInterrupts()[0].GetId(), Decision: executorv1.Decision_DECISION_APPROVED})
			require.NoError(t, err)
			f.wait(t, id, executorv1.RunState_RUN_STATE_COMPLETED)
			require.Len(t, visits(t, id, "pay"), 1)
		})
		t.Run("Validate/WarnsOfAnInboxOpenToAnybody", func(t *testing.T) {
			ask := actorNode("ask", "human", `{"prompt": "pay?", "approve": {"amount": 7}}`)
			for _, from := range [][]string{nil, {"ask"}} {
				v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Input: &executorv1.RunInput{},
					Graph: &graphv1.Graph{Nodes: []*graphv1.Node{ask, box("pay", from...)}, Edges: []*graphv1.Edge{{From: "ask", To: "pay"}}}})
				require.NoError(t, err)
				require.Empty(t, v.GetFaults())
				if from != nil {
					require.Empty(t, v.GetWarnings())
					continue
				}
				require.Len(t, v.GetWarnings(), 1)
				require.Equal(t, "STARTS_BEFORE_ANSWER pay", v.GetWarnings()[0].GetCode()+" "+v.GetWarnings()[0].GetNodeId())
			}
		})
		t.Run("Input/IsRefused", func(t *testing.T) {
			id := begin(t, nil, &graphv1.Node{Id: "w", Actor: "waits"}, box("b", "ada", "input"))
			reserved(t, send(t, id, "input", "b", ""))
		})
		t.Run("Outside/SendsInAFreeName", func(t *testing.T) {
			id := begin(t, nil, &graphv1.Node{Id: "w", Actor: "waits"}, box("b", "ada"))
			require.NoError(t, send(t, id, "ada", "b", ""))
			taken(t, id, "b", "ada")
		})
		t.Run("Call/SendsInItsNodesName", func(t *testing.T) {
			id := begin(t, []*graphv1.Edge{{From: "w", To: "b"}}, &graphv1.Node{Id: "w", Actor: "delegates"}, box("b", "w"))
			require.NoError(t, send(t, id, "w", "b", token(t, id, "w")))
			taken(t, id, "b", "w")
		})
		t.Run("Call/SendsInNoOtherName", func(t *testing.T) {
			id := begin(t, []*graphv1.Edge{{From: "a", To: "b"}}, &graphv1.Node{Id: "a", Actor: "waits"}, &graphv1.Node{Id: "w", Actor: "delegates"}, box("b", "a", "ada"))
			own := token(t, id, "w")
			reserved(t, send(t, id, "a", "b", own))
			reserved(t, send(t, id, "ada", "b", own))
		})
		t.Run("Call/OfAnotherRunIsRefused", func(t *testing.T) {
			w := &graphv1.Node{Id: "w", Actor: "delegates"}
			one := begin(t, []*graphv1.Edge{{From: "w", To: "b"}}, w, box("b", "w"))
			two := begin(t, []*graphv1.Edge{{From: "w", To: "b"}}, w, box("b", "w"))
			reserved(t, send(t, two, "w", "b", token(t, one, "w")))
			require.Equal(t, "ATTEMPT_TOKEN_INVALID", errs.ReasonOf(send(t, two, "w", "b", "t2.e30.AAAA")))
		})
		t.Run("Call/ThatIsOverIsRefused", func(t *testing.T) {
			id := begin(t, []*graphv1.Edge{{From: "w", To: "b", When: "false"}}, &graphv1.Node{Id: "w", Actor: "delegates"}, &graphv1.Node{Id: "s", Actor: "waits"}, box("b", "w"))
			over := token(t, id, "w")
			_, err := f.CompleteAttempt(t.Context(), &executorv1.CompleteAttemptRequest{AttemptToken: over,
				Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{}}})
			require.NoError(t, err)
			reserved(t, send(t, id, "w", "b", over))
		})
		t.Run("Repeat/OfALaterAttemptIsTheSame", func(t *testing.T) {
			id := begin(t, []*graphv1.Edge{{From: "w", To: "b"}}, &graphv1.Node{Id: "w", Actor: "delegates"}, box("b", "w"))
			req := &executorv1.SendMessageRequest{RunId: id, From: "w", Message: value(`1`), AttemptToken: token(t, id, "w"), RequestId: "once"}
			_, err := f.SendMessage(t.Context(), req)
			require.NoError(t, err)
			taken(t, id, "b", "w")
			req.AttemptToken = ""
			_, err = f.SendMessage(t.Context(), req)
			require.NoError(t, err)
			req.RequestId = "twice"
			_, err = f.SendMessage(t.Context(), req)
			reserved(t, err)
		})
		t.Run("Expanded/IsANode", func(t *testing.T) {
			id := begin(t, nil, &graphv1.Node{Id: "g", Actor: "grows"}, box("b"))
			own := token(t, id, "g#1/x")
			reserved(t, send(t, id, "g#1/x", "b", ""))
			reserved(t, send(t, id, "g#2/x", "b", ""))
			require.NoError(t, send(t, id, "g#1/x", "b", own))
		})
		t.Run("Amended/WhatCameBeforeIsNotTheNodes", func(t *testing.T) {
			id := begin(t, nil, &graphv1.Node{Id: "w", Actor: "waits"}, box("pay", "ask"))
			ask := actorNode("ask", "human", `{"prompt": "pay?", "approve": {"amount": 7}}`)
			_, err := f.AmendRun(t.Context(), &executorv1.AmendRunRequest{RunId: id, Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{ask},
				AddEdges: []*graphv1.Edge{{From: "ask", To: "pay"}}}})
			require.NoError(t, err)
			reserved(t, send(t, id, "ask", "pay", ""))
			require.Empty(t, visits(t, id, "pay"))
		})
	})
}

// outcomes is an actor that always gives this.
func outcomes(o workgraph.Outcome) workgraph.Actor {
	return declared{workgraph.Pure, workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return o, nil })}
}

// A worker's key opens nothing of a run, so its calls send by their tokens alone.
func TestSender_Worker(t *testing.T) {
	t.Parallel()
	r := open(t, "one", nil)
	c := r.sdk()
	hands, err := epigraph.Dial(r.addr, epigraph.WithKey(keyHands), epigraph.WithTLS(r.tls))
	require.NoError(t, err)
	t.Cleanup(func() { _ = hands.Close() })
	box := actorNode("box", "cel", `{"expr": "named.messages[0].from"}`)
	box.On = &graphv1.Activation{Inbox: &graphv1.Inbox{From: []string{"tells"}}}
	begin := func(t *testing.T, actor string) *epigraph.Run {
		t.Helper()
		run, err := c.StartGraph(t.Context(), &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "tells", Actor: actor}, box},
			Edges: []*graphv1.Edge{{From: "tells", To: "box", When: "false"}}})
		require.NoError(t, err)
		return run
	}
	w := worker.New(hands, worker.Options{Logger: testkit.Logger(t)})
	worker.Register(w, "tells", func(ctx context.Context, _ any) (any, error) {
		v := worker.Call(ctx)
		run := hands.Run(v.RunID)
		if err := run.Send(ctx, "other", "box", 1); epigraph.ReasonOf(err) != "SCOPE_MISSING" {
			return nil, worker.Permanent("NOT_REFUSED", err)
		}
		if err := hands.Run(v.RunID+"x").Send(ctx, v.NodeID, "box", 1); epigraph.ReasonOf(err) != "SCOPE_MISSING" {
			return nil, worker.Permanent("NOT_REFUSED", err)
		}
		return nil, run.Send(ctx, v.NodeID, "box", 1)
	}, worker.Effect(worker.Pure))
	answers := make(chan *executorv1.Run, 1)
	worker.Register(w, "answers", func(ctx context.Context, _ any) (any, error) {
		v := worker.Call(ctx)
		m, err := hands.Executor.SendMessage(ctx, &executorv1.SendMessageRequest{RunId: v.RunID, From: v.NodeID, Message: value(`1`), AttemptToken: v.AttemptToken})
		if err == nil {
			answers <- m
		}
		return nil, err
	}, worker.Effect(worker.Pure))
	runs(t, w)
	t.Run("Context/BringsTheToken", func(t *testing.T) {
		got, err := epigraph.Result[string](t.Context(), begin(t, "tells"))
		require.NoError(t, err)
		require.Equal(t, "tells", got)
	})
	t.Run("Answer/TellsNothingOfTheRun", func(t *testing.T) {
		run := begin(t, "answers")
		_, err := epigraph.Result[string](t.Context(), run)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(&executorv1.Run{Id: run.ID}, <-answers, protocmp.Transform()))
	})
	t.Run("Outside/SendsByTheTokenItWasGiven", func(t *testing.T) {
		run := begin(t, "completion")
		var token string
		testkit.Eventually(t, func() bool {
			v, err := c.Executor.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: run.ID, NodeId: "tells"})
			require.NoError(t, err)
			if len(v.GetVisits()) == 1 {
				token = v.GetVisits()[0].GetWait().GetAttemptToken()
			}
			return token != ""
		})
		require.Equal(t, "SENDER_RESERVED", epigraph.ReasonOf(run.Send(t.Context(), "tells", "box", 1)))
		require.NoError(t, run.SendAs(t.Context(), token, "tells", "box", 1))
		require.NoError(t, c.CompleteAttempt(t.Context(), token, 1))
		got, err := epigraph.Result[string](t.Context(), run)
		require.NoError(t, err)
		require.Equal(t, "tells", got)
	})
}
