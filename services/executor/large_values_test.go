package executor_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// large is a value of 3 KB, which the journal keeps compressed.
var large = `"` + strings.Repeat("three kilobytes ", 192) + `"`

// largeWorld calls every RPC on runs whose arguments, graph and results are large.
type largeWorld struct {
	t *testing.T
	*replica
	c       executorv1.ExecutorServiceClient
	catalog *fakeCatalog
}

func (w *largeWorld) with(t *testing.T) *largeWorld { return &largeWorld{t, w.replica, w.c, w.catalog} }

// say is a node whose result is large.
func say(id string) *graphv1.Node {
	return &graphv1.Node{Id: id, Actor: "template", Named: map[string]*graphv1.Payload{"text": value(large)}}
}

func actorNode(id, actor, named string) *graphv1.Node {
	n := &graphv1.Node{Id: id, Actor: actor, Named: map[string]*graphv1.Payload{}}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(named), &fields); err != nil {
		panic(err)
	}
	for k, v := range fields {
		n.Named[k] = &graphv1.Payload{Json: v}
	}
	return n
}

// request is a start of the nodes in a chain, after one whose result is large.
func (w *largeWorld) request(ns ...*graphv1.Node) *executorv1.StartRunRequest {
	return &executorv1.StartRunRequest{Graph: nodes(append([]*graphv1.Node{say("first")}, ns...)...), Args: []*graphv1.Payload{value(large)},
		Named: map[string]*graphv1.Payload{"big": value(large)}, Context: value(`{"big":` + large + `}`),
		Attachments: []*executorv1.Attachment{{Id: "doc", MediaType: "text/plain", Content: value(large)}}}
}

func (w *largeWorld) start(ns ...*graphv1.Node) string {
	w.t.Helper()
	r, err := w.c.StartRun(w.t.Context(), w.request(ns...))
	require.NoError(w.t, err)
	w.whole(r)
	return r.GetId()
}

// whole checks that a run shows what it was started with.
func (w *largeWorld) whole(r *executorv1.Run) {
	w.t.Helper()
	require.Len(w.t, r.GetArgs(), 1)
	require.JSONEq(w.t, large, string(r.GetArgs()[0].GetJson()))
	require.JSONEq(w.t, large, string(r.GetNamed()["big"].GetJson()))
	require.JSONEq(w.t, `{"big":`+large+`}`, string(r.GetContext().GetJson()))
	require.JSONEq(w.t, large, string(r.GetAttachments()[0].GetContent().GetJson()))
}

// is waits until a run is in a state, and returns it whole.
func (w *largeWorld) is(id string, want executorv1.RunState) *executorv1.Run {
	w.t.Helper()
	r := run{w.t, w.c, &executorv1.Run{Id: id}}.is(want)
	w.whole(r)
	return r
}

// waits starts a run and waits until its node waits.
func (w *largeWorld) waits(ns ...*graphv1.Node) (string, *executorv1.Visit) {
	w.t.Helper()
	id := w.start(ns...)
	var v *executorv1.Visit
	testkit.Eventually(w.t, func() bool {
		list, err := w.c.ListVisits(w.t.Context(), &executorv1.ListVisitsRequest{RunId: id, NodeId: ns[0].GetId()})
		require.NoError(w.t, err)
		if len(list.GetVisits()) == 0 {
			return false
		}
		v = list.GetVisits()[0]
		return v.GetState() == executorv1.VisitState_VISIT_STATE_WAITING
	})
	return id, v
}

const (
	human  = `{"prompt": "Which?"}`
	signal = `{"name": "go"}`
)

func asksNode() *graphv1.Node  { return actorNode("ask", "human", human) }
func hearsNode() *graphv1.Node { return actorNode("hear", "signal", signal) }
func failsNode() *graphv1.Node { return actorNode("bad", "fail", `{"message": "no"}`) }

// TestLargeValues calls every RPC of the executor with large arguments and results. An RPC without a case
// fails it.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	cases := largeCases()
	maps.Copy(cases, largeTriggerCases())
	t.Run("Cases/EveryRPCHasOne", func(t *testing.T) {
		var have []string
		protoregistry.GlobalFiles.RangeFilesByPackage("epigraph.executor.v1", func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				s := f.Services().Get(i)
				for j := range s.Methods().Len() {
					have = append(have, string(s.Name())+"/"+string(s.Methods().Get(j).Name()))
				}
			}
			return true
		})
		slices.Sort(have)
		require.Equal(t, have, slices.Sorted(maps.Keys(cases)), "each RPC has a case here")
	})
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		catalog := &fakeCatalog{}
		r := open(t, "large", store, func(d *executor.Deps) { d.Catalog = nearCatalog{fake: catalog} })
		w := &largeWorld{t, r, r.client(keyAcme), catalog}
		for _, name := range slices.Sorted(maps.Keys(cases)) {
			t.Run(name, func(t *testing.T) { cases[name](w.with(t)) })
		}
	})
}

func largeCases() map[string]func(*largeWorld) {
	const (
		completed = executorv1.RunState_RUN_STATE_COMPLETED
		failed    = executorv1.RunState_RUN_STATE_FAILED
		canceled  = executorv1.RunState_RUN_STATE_CANCELED
		paused    = executorv1.RunState_RUN_STATE_PAUSED
		waiting   = executorv1.RunState_RUN_STATE_WAITING
	)
	return map[string]func(*largeWorld){
		"ExecutorService/ValidateGraph": func(w *largeWorld) {
			req := w.request(say("last"))
			got, err := w.c.ValidateGraph(w.t.Context(), &executorv1.ValidateGraphRequest{Graph: req.GetGraph()})
			require.NoError(w.t, err)
			require.Empty(w.t, got.GetFaults())
			require.NotEmpty(w.t, got.GetGraphHash())
		},
		"ExecutorService/StartRun": func(w *largeWorld) {
			got := w.is(w.start(say("last")), completed)
			require.JSONEq(w.t, large, string(got.GetResult().GetJson()))
			req := w.request(say("last"))
			req.RequestId = "again"
			one, err := w.c.StartRun(w.t.Context(), req)
			require.NoError(w.t, err)
			w.is(one.GetId(), completed)
			two, err := w.c.StartRun(w.t.Context(), req)
			require.NoError(w.t, err)
			require.Equal(w.t, one.GetId(), two.GetId())
			w.whole(two)
		},
		"ExecutorService/RunAndWait": func(w *largeWorld) {
			got, err := w.c.RunAndWait(w.t.Context(), &executorv1.RunAndWaitRequest{Start: w.request(say("last"))})
			require.NoError(w.t, err)
			require.Equal(w.t, completed, got.GetState())
			w.whole(got)
		},
		"ExecutorService/GetRun": func(w *largeWorld) {
			id := w.start(say("last"))
			w.is(id, completed)
			got, err := w.c.GetRun(w.t.Context(), &executorv1.GetRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.whole(got)
			require.JSONEq(w.t, large, string(got.GetOutputs()["last"].GetJson()))
		},
		"ExecutorService/GetRunGraph": func(w *largeWorld) {
			got, err := w.c.GetRunGraph(w.t.Context(), &executorv1.GetRunGraphRequest{RunId: w.start()})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(got.GetGraph().GetNodes()[0].GetNamed()["text"].GetJson()))
		},
		"ExecutorService/ListRuns": func(w *largeWorld) {
			w.start()
			list, err := w.c.ListRuns(w.t.Context(), &executorv1.ListRunsRequest{PageSize: 5})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, list.GetRuns())
		},
		"ExecutorService/ListVisits": func(w *largeWorld) {
			id := w.start(say("last"))
			w.is(id, completed)
			list, err := w.c.ListVisits(w.t.Context(), &executorv1.ListVisitsRequest{RunId: id})
			require.NoError(w.t, err)
			require.Len(w.t, list.GetVisits(), 2)
			require.JSONEq(w.t, large, string(list.GetVisits()[0].GetValues()[0].GetJson()))
		},
		"ExecutorService/WatchRun": func(w *largeWorld) {
			id := w.start(say("last"))
			w.is(id, completed)
			stream, err := w.c.WatchRun(w.t.Context(), &executorv1.WatchRunRequest{RunId: id, DurableOnly: true})
			require.NoError(w.t, err)
			n, text := 0, 0
			for {
				ev, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(w.t, err)
				n++
				if strings.Contains(ev.String(), "three kilobytes three kilobytes") {
					text++
				}
			}
			require.NotZero(w.t, n)
			require.NotZero(w.t, text)
		},
		"ExecutorService/CancelRun": func(w *largeWorld) {
			id, _ := w.waits(asksNode())
			got, err := w.c.CancelRun(w.t.Context(), &executorv1.CancelRunRequest{RunId: id, Reason: "enough"})
			require.NoError(w.t, err)
			w.whole(got)
			w.is(id, canceled)
			done := w.start()
			w.is(done, completed)
			got, err = w.c.CancelRun(w.t.Context(), &executorv1.CancelRunRequest{RunId: done})
			require.NoError(w.t, err)
			w.whole(got)
			require.JSONEq(w.t, large, string(got.GetResult().GetJson()))
		},
		"ExecutorService/PauseRun": func(w *largeWorld) {
			id, _ := w.waits(asksNode(), say("last"))
			got, err := w.c.PauseRun(w.t.Context(), &executorv1.PauseRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.whole(got)
			w.is(id, paused)
		},
		"ExecutorService/StopRun": func(w *largeWorld) {
			id, _ := w.waits(asksNode(), say("last"))
			got, err := w.c.StopRun(w.t.Context(), &executorv1.StopRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.whole(got)
		},
		"ExecutorService/ResumeRun": func(w *largeWorld) {
			id, _ := w.waits(asksNode(), say("last"))
			_, err := w.c.PauseRun(w.t.Context(), &executorv1.PauseRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.is(id, paused)
			got, err := w.c.ResumeRun(w.t.Context(), &executorv1.ResumeRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.whole(got)
		},
		"ExecutorService/ReconcileVisit": func(w *largeWorld) {
			worker := w.worker(w.t, hello(1, unsafe("loses")))
			id := w.start(&graphv1.Node{Id: "lost", Actor: "loses"})
			worker.fail(worker.visit().GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_UNKNOWN, Reason: "GONE"})
			w.is(id, paused)
			got, err := w.c.ReconcileVisit(w.t.Context(), &executorv1.ReconcileVisitRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "lost"},
				Outcome: &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(large)}}}})
			require.NoError(w.t, err)
			w.whole(got)
			require.JSONEq(w.t, large, string(w.is(id, completed).GetResult().GetJson()))
		},
		"ExecutorService/SignalRun": func(w *largeWorld) {
			id, _ := w.waits(hearsNode())
			got, err := w.c.SignalRun(w.t.Context(), &executorv1.SignalRunRequest{RunId: id, Name: "go", Payload: value(large)})
			require.NoError(w.t, err)
			w.whole(got)
			require.JSONEq(w.t, large, string(w.is(id, completed).GetResult().GetJson()))
		},
		"ExecutorService/SignalWithStart": func(w *largeWorld) {
			req := w.request(hearsNode(), actorNode("more", "signal", `{"name": "more"}`))
			req.BusinessKey = "large"
			one, err := w.c.SignalWithStart(w.t.Context(), &executorv1.SignalWithStartRequest{Start: req, Name: "go", Payload: value(large)})
			require.NoError(w.t, err)
			w.whole(one)
			two, err := w.c.SignalWithStart(w.t.Context(), &executorv1.SignalWithStartRequest{Start: req, Name: "more", Payload: value(large)})
			require.NoError(w.t, err)
			w.whole(two)
			require.Equal(w.t, one.GetId(), two.GetId())
			require.JSONEq(w.t, large, string(w.is(one.GetId(), completed).GetResult().GetJson()))
		},
		"ExecutorService/SendMessage": func(w *largeWorld) {
			reads := say("reads")
			reads.On = &graphv1.Activation{Inbox: &graphv1.Inbox{From: []string{"ada"}}}
			req := &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{asksNode(), reads}}, Args: w.request().GetArgs(),
				Named: w.request().GetNamed(), Context: w.request().GetContext(), Attachments: w.request().GetAttachments()}
			r, err := w.c.StartRun(w.t.Context(), req)
			require.NoError(w.t, err)
			got, err := w.c.SendMessage(w.t.Context(), &executorv1.SendMessageRequest{RunId: r.GetId(), From: "ada", Message: value(large)})
			require.NoError(w.t, err)
			w.whole(got)
		},
		"ExecutorService/RetryRun": func(w *largeWorld) {
			id := w.start(failsNode())
			w.is(id, failed)
			got, err := w.c.RetryRun(w.t.Context(), &executorv1.RetryRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.whole(got)
			w.is(got.GetId(), failed)
		},
		"ExecutorService/ForkRun": func(w *largeWorld) {
			id := w.start(say("last"))
			w.is(id, completed)
			other := `"` + strings.Repeat("another value ", 220) + `"`
			got, err := w.c.ForkRun(w.t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "last"}, Named: map[string]*graphv1.Payload{"text": value(other)}})
			require.NoError(w.t, err)
			w.whole(got)
			require.JSONEq(w.t, other, string(w.is(got.GetId(), completed).GetResult().GetJson()))
		},
		"ExecutorService/AmendRun": func(w *largeWorld) {
			id, v := w.waits(asksNode(), say("last"))
			last := say("last")
			last.Named["text"] = value(`"` + strings.Repeat("another value ", 220) + `"`)
			got, err := w.c.AmendRun(w.t.Context(), &executorv1.AmendRunRequest{RunId: id, Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{last}}})
			require.NoError(w.t, err)
			w.whole(got.GetRun())
			_, err = w.c.AnswerInterrupt(w.t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: v.GetWait().GetInterruptId(), Answer: value(large)})
			require.NoError(w.t, err)
			w.is(id, completed)
			// Its history begins with the graph that it had before.
			list, err := w.c.ListVisits(w.t.Context(), &executorv1.ListVisitsRequest{RunId: id})
			require.NoError(w.t, err)
			require.Len(w.t, list.GetVisits(), 3)
			fork, err := w.c.ForkRun(w.t.Context(), &executorv1.ForkRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.is(fork.GetId(), completed)
		},
		"ExecutorService/ExplainRun": func(w *largeWorld) {
			id, _ := w.waits(asksNode())
			x, err := w.c.ExplainRun(w.t.Context(), &executorv1.ExplainRunRequest{RunId: id})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, x.GetBlockers())
			bad := w.start(failsNode())
			w.is(bad, failed)
			_, err = w.c.ExplainRun(w.t.Context(), &executorv1.ExplainRunRequest{RunId: bad})
			require.NoError(w.t, err)
		},
		"ExecutorService/GetVisit": func(w *largeWorld) {
			id := w.start(say("second"))
			w.is(id, completed)
			v, err := w.c.GetVisit(w.t.Context(), &executorv1.GetVisitRequest{RunId: id, NodeId: "second"})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(v.GetVisit().GetValues()[0].GetJson()))
			require.JSONEq(w.t, large, string(v.GetNamed()["text"].GetJson()))
		},
		"ExecutorService/CompareRuns": func(w *largeWorld) {
			id := w.start()
			w.is(id, completed)
			fork, err := w.c.ForkRun(w.t.Context(), &executorv1.ForkRunRequest{RunId: id, Visit: &executorv1.VisitRef{NodeId: "first"},
				Named: map[string]*graphv1.Payload{"text": value(`"short"`)}})
			require.NoError(w.t, err)
			w.is(fork.GetId(), completed)
			c, err := w.c.CompareRuns(w.t.Context(), &executorv1.CompareRunsRequest{RunId: fork.GetId()})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(c.GetBaseResult().GetJson()))
			require.JSONEq(w.t, large, string(c.GetVisits()[0].GetBase().GetValues()[0].GetJson()))
			require.Empty(w.t, c.GetInputFields())
		},
		"ExecutorService/DeleteRun": func(w *largeWorld) {
			id := w.start()
			w.is(id, completed)
			_, err := w.c.DeleteRun(w.t.Context(), &executorv1.DeleteRunRequest{RunId: id})
			require.NoError(w.t, err)
		},
		"ExecutorService/BulkCancelRuns": func(w *largeWorld) {
			id := w.labeled("cancel", asksNode())
			got, err := w.c.BulkCancelRuns(w.t.Context(), &executorv1.BulkCancelRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "cancel"}}})
			require.NoError(w.t, err)
			require.Empty(w.t, got.GetFailures())
			require.EqualValues(w.t, 1, got.GetDone())
			w.is(id, canceled)
		},
		"ExecutorService/BulkPauseRuns": func(w *largeWorld) {
			id := w.labeled("pause", asksNode())
			got, err := w.c.BulkPauseRuns(w.t.Context(), &executorv1.BulkPauseRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "pause"}}})
			require.NoError(w.t, err)
			require.Empty(w.t, got.GetFailures())
			w.is(id, paused)
		},
		"ExecutorService/BulkResumeRuns": func(w *largeWorld) {
			id := w.labeled("resume", asksNode())
			_, err := w.c.PauseRun(w.t.Context(), &executorv1.PauseRunRequest{RunId: id})
			require.NoError(w.t, err)
			w.is(id, paused)
			got, err := w.c.BulkResumeRuns(w.t.Context(), &executorv1.BulkResumeRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "resume"}}})
			require.NoError(w.t, err)
			require.Empty(w.t, got.GetFailures())
			w.is(id, waiting)
		},
		"ExecutorService/BulkRetryRuns": func(w *largeWorld) {
			w.is(w.labeled("retry", failsNode()), failed)
			got, err := w.c.BulkRetryRuns(w.t.Context(), &executorv1.BulkRetryRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "retry"}}})
			require.NoError(w.t, err)
			require.Empty(w.t, got.GetFailures())
			require.Len(w.t, got.GetRunIds(), 1)
			w.is(got.GetRunIds()[0], failed)
		},
		"ExecutorService/BulkDeleteRuns": func(w *largeWorld) {
			w.is(w.labeled("delete"), completed)
			got, err := w.c.BulkDeleteRuns(w.t.Context(), &executorv1.BulkDeleteRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "delete"}}})
			require.NoError(w.t, err)
			require.Empty(w.t, got.GetFailures())
			require.EqualValues(w.t, 1, got.GetDone())
		},
		"ExecutorService/ListInterrupts": func(w *largeWorld) {
			id, _ := w.waits(actorNode("ask", "human", `{"prompt": `+large+`}`))
			list, err := w.c.ListInterrupts(w.t.Context(), &executorv1.ListInterruptsRequest{RunId: id})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(list.GetInterrupts()[0].GetPrompt().GetJson()))
		},
		"ExecutorService/GetInterrupt": func(w *largeWorld) {
			_, v := w.waits(actorNode("ask", "human", `{"prompt": `+large+`}`))
			q, err := w.c.GetInterrupt(w.t.Context(), &executorv1.GetInterruptRequest{InterruptId: v.GetWait().GetInterruptId()})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(q.GetPrompt().GetJson()))
		},
		"ExecutorService/AnswerInterrupt": func(w *largeWorld) {
			id, v := w.waits(asksNode())
			for range 2 {
				q, err := w.c.AnswerInterrupt(w.t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: v.GetWait().GetInterruptId(), Answer: value(large)})
				require.NoError(w.t, err)
				require.JSONEq(w.t, large, string(q.GetAnswer().GetJson()))
			}
			require.JSONEq(w.t, large, string(w.is(id, completed).GetResult().GetJson()))
		},
		"ExecutorService/CompleteAttempt": func(w *largeWorld) {
			id, v := w.waits(actorNode("work", "completion", `{}`))
			for range 2 {
				_, err := w.c.CompleteAttempt(w.t.Context(), &executorv1.CompleteAttemptRequest{AttemptToken: v.GetWait().GetAttemptToken(),
					Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(large)}}}})
				require.NoError(w.t, err)
			}
			require.JSONEq(w.t, large, string(w.is(id, completed).GetResult().GetJson()))
		},
		"ExecutorService/ListActors": func(w *largeWorld) {
			list, err := w.c.ListActors(w.t.Context(), &executorv1.ListActorsRequest{})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, list.GetActors())
		},
		"LimitService/UpdateLimit": func(w *largeWorld) {
			_, err := w.limits().UpdateLimit(w.t.Context(), &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: "actor/template", MaxConcurrent: 50}})
			require.NoError(w.t, err)
		},
		"LimitService/ListLimits": func(w *largeWorld) {
			_, err := w.limits().ListLimits(w.t.Context(), &executorv1.ListLimitsRequest{})
			require.NoError(w.t, err)
		},
		"LimitService/DeleteLimit": func(w *largeWorld) {
			_, err := w.limits().UpdateLimit(w.t.Context(), &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: "actor/none", MaxConcurrent: 50}})
			require.NoError(w.t, err)
			_, err = w.limits().DeleteLimit(w.t.Context(), &executorv1.DeleteLimitRequest{Name: "actor/none"})
			require.NoError(w.t, err)
		},
		"PeerService/Invoke": func(w *largeWorld) {
			worker := w.worker(w.t, hello(1, pure("echoes")))
			stream, err := executorv1.NewPeerServiceClient(w.dial(serviceToken)).Invoke(w.t.Context())
			require.NoError(w.t, err)
			require.NoError(w.t, stream.Send(&executorv1.InvokeRequest{Namespace: "acme", Attempt: &executorv1.Attempt{Token: "t", RunId: "run_x", Actor: "echoes",
				Visit: &executorv1.VisitRef{NodeId: "n", Visit: 1}, Attempt: 1, Named: map[string]*graphv1.Payload{"big": value(large)}}}))
			v := worker.visit()
			worker.answer(v.GetToken(), string(v.GetNamed()["big"].GetJson()))
			for {
				m, err := stream.Recv()
				require.NoError(w.t, err)
				require.Nil(w.t, m.GetError(), "%v", m)
				if out := m.GetOutcome(); out != nil {
					require.JSONEq(w.t, large, string(out.GetValues()[0].GetJson()))
					return
				}
			}
		},
		"PeerService/ExplainLocal": func(w *largeWorld) {
			_, err := executorv1.NewPeerServiceClient(w.dial(serviceToken)).ExplainLocal(w.t.Context(), &executorv1.ExplainLocalRequest{Namespace: "acme", RunId: w.start(asksNode())})
			require.NoError(w.t, err)
		},
		"PeerService/Govern": func(w *largeWorld) { // a fault repeats no more than the beginning of a name
			stream, err := executorv1.NewPeerServiceClient(w.dial(serviceToken)).Govern(w.t.Context())
			require.NoError(w.t, err)
			name := strings.Repeat("a", 256)
			require.NoError(w.t, stream.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_Call{Call: &executorv1.ModelCall{Namespace: "acme", Account: name}}}))
			_, err = stream.Recv()
			require.ErrorContains(w.t, err, "the executor has no model account")
			require.NotContains(w.t, err.Error(), name)
		},
		"PeerService/Follow": func(w *largeWorld) {
			follow := func(namespace, run string) func() (*executorv1.FollowResponse, error) {
				stream, err := executorv1.NewPeerServiceClient(w.dial(serviceToken)).Follow(w.t.Context())
				require.NoError(w.t, err)
				require.NoError(w.t, stream.Send(&executorv1.FollowRequest{Begin: []*executorv1.Followed{{Namespace: namespace, RunId: run}}}))
				return stream.Recv
			}
			worker := w.worker(w.t, hello(1, pure("tells")))
			id := w.start(workNode("n", "tells"))
			v := worker.visit()
			recv := follow("acme", id)
			text := strings.Repeat(large, 10)
			worker.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Tokens{Tokens: &executorv1.AttemptTokens{Token: v.GetToken(), Text: text}}})
			for told := false; !told; {
				m, err := recv()
				require.NoError(w.t, err)
				require.Equal(w.t, "acme", m.GetNamespace())
				for _, ev := range m.GetEvents() {
					told = told || ev.GetRunId() == id && ev.GetTokenDelta().GetText() == text
				}
			}
			worker.answer(v.GetToken(), `1`)
			_, err := follow("no namespace", id)()
			require.ErrorContains(w.t, err, "a run is followed in a namespace")
		},
		"ScheduleService/CreateSchedule": func(w *largeWorld) { w.schedule("create") },
		"ScheduleService/GetSchedule": func(w *largeWorld) {
			w.schedule("get")
			s, err := w.schedules().GetSchedule(w.t.Context(), &executorv1.GetScheduleRequest{ScheduleId: "get"})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(s.GetStart().GetNamed()["big"].GetJson()))
		},
		"ScheduleService/ListSchedules": func(w *largeWorld) {
			w.schedule("list")
			list, err := w.schedules().ListSchedules(w.t.Context(), &executorv1.ListSchedulesRequest{})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, list.GetSchedules())
		},
		"ScheduleService/UpdateSchedule": func(w *largeWorld) {
			s := w.schedule("update")
			s.Cron = "0 5 * * *"
			_, err := w.schedules().UpdateSchedule(w.t.Context(), &executorv1.UpdateScheduleRequest{Schedule: s, UpdateMask: everything})
			require.NoError(w.t, err)
		},
		"ScheduleService/DeleteSchedule": func(w *largeWorld) {
			w.schedule("delete")
			_, err := w.schedules().DeleteSchedule(w.t.Context(), &executorv1.DeleteScheduleRequest{ScheduleId: "delete"})
			require.NoError(w.t, err)
		},
		"ScheduleService/PauseSchedule": func(w *largeWorld) {
			w.schedule("pause")
			_, err := w.schedules().PauseSchedule(w.t.Context(), &executorv1.PauseScheduleRequest{ScheduleId: "pause"})
			require.NoError(w.t, err)
		},
		"ScheduleService/ResumeSchedule": func(w *largeWorld) {
			w.schedule("resume")
			_, err := w.schedules().PauseSchedule(w.t.Context(), &executorv1.PauseScheduleRequest{ScheduleId: "resume"})
			require.NoError(w.t, err)
			_, err = w.schedules().ResumeSchedule(w.t.Context(), &executorv1.ResumeScheduleRequest{ScheduleId: "resume"})
			require.NoError(w.t, err)
		},
		"ScheduleService/BackfillSchedule": func(w *largeWorld) {
			w.schedule("backfill")
			now := time.Now()
			got, err := w.schedules().BackfillSchedule(w.t.Context(), &executorv1.BackfillScheduleRequest{ScheduleId: "backfill", BeginTime: timestamppb.New(now.Add(-25 * time.Hour)),
				EndTime: timestamppb.New(now), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, got.GetStarts())
			w.is(got.GetStarts()[0].GetRunId(), completed)
		},
		"ScheduleService/TriggerSchedule": func(w *largeWorld) {
			w.schedule("trigger")
			got, err := w.schedules().TriggerSchedule(w.t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: "trigger"})
			require.NoError(w.t, err)
			w.is(got.GetStart().GetRunId(), completed)
		},
		"ThreadService/CreateThread": func(w *largeWorld) { w.thread() },
		"ThreadService/GetThread": func(w *largeWorld) {
			_, err := w.threads().GetThread(w.t.Context(), &executorv1.GetThreadRequest{ThreadId: w.thread()})
			require.NoError(w.t, err)
		},
		"ThreadService/ListThreads": func(w *largeWorld) {
			w.thread()
			list, err := w.threads().ListThreads(w.t.Context(), &executorv1.ListThreadsRequest{})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, list.GetThreads())
		},
		"ThreadService/ForkThread": func(w *largeWorld) {
			_, err := w.threads().ForkThread(w.t.Context(), &executorv1.ForkThreadRequest{ThreadId: w.thread()})
			require.NoError(w.t, err)
		},
		"ThreadService/ExportThread": func(w *largeWorld) { w.imported() },
		"ThreadService/ImportThread": func(w *largeWorld) {
			id := w.imported()
			list, err := w.threads().ListMessages(w.t.Context(), &executorv1.ListMessagesRequest{ThreadId: id})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(list.GetMessages()[0].GetBody().GetJson()))
		},
		"ThreadService/DeleteThread": func(w *largeWorld) {
			_, err := w.threads().DeleteThread(w.t.Context(), &executorv1.DeleteThreadRequest{ThreadId: w.thread()})
			require.NoError(w.t, err)
		},
		"ThreadService/ListMessages": func(w *largeWorld) {
			_, err := w.threads().ListMessages(w.t.Context(), &executorv1.ListMessagesRequest{ThreadId: w.thread()})
			require.NoError(w.t, err)
		},
		"ThreadService/ListStates": func(w *largeWorld) {
			_, err := w.threads().ListStates(w.t.Context(), &executorv1.ListStatesRequest{ThreadId: w.thread(), Full: true})
			require.NoError(w.t, err)
		},
		"ThreadService/ListLearnings": func(w *largeWorld) {
			_, err := w.threads().ListLearnings(w.t.Context(), &executorv1.ListLearningsRequest{ThreadId: w.thread()})
			require.NoError(w.t, err)
		},
		"ThreadService/ListSummaries": func(w *largeWorld) {
			_, err := w.threads().ListSummaries(w.t.Context(), &executorv1.ListSummariesRequest{ThreadId: w.thread()})
			require.NoError(w.t, err)
		},
		"ThreadService/AppendMessage": func(w *largeWorld) { w.turn(w.thread()) },
		"ThreadService/GetTurn": func(w *largeWorld) {
			turn := w.turn(w.thread())
			got, err := w.threads().GetTurn(w.t.Context(), &executorv1.GetTurnRequest{ThreadId: turn.GetThreadId(), Number: turn.GetNumber()})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(got.GetContent().GetJson()))
		},
		"ThreadService/ListTurns": func(w *largeWorld) {
			turn := w.turn(w.thread())
			list, err := w.threads().ListTurns(w.t.Context(), &executorv1.ListTurnsRequest{ThreadId: turn.GetThreadId()})
			require.NoError(w.t, err)
			require.JSONEq(w.t, large, string(list.GetTurns()[0].GetContent().GetJson()))
		},
		"WorkerService/Work": func(w *largeWorld) {
			worker := w.worker(w.t, hello(1, pure("repeats")))
			id := w.start(&graphv1.Node{Id: "r", Actor: "repeats", Named: map[string]*graphv1.Payload{"mine": value(large)}})
			v := worker.visit()
			require.JSONEq(w.t, large, string(v.GetNamed()["mine"].GetJson()))
			require.JSONEq(w.t, large, string(v.GetNamed()["big"].GetJson()))
			worker.answer(v.GetToken(), large)
			require.JSONEq(w.t, large, string(w.is(id, completed).GetResult().GetJson()))
		},
		"WorkerService/ListWorkers": func(w *largeWorld) {
			w.worker(w.t, hello(1, pure("listed")))
			list, err := executorv1.NewWorkerServiceClient(w.dial(keyAcme)).ListWorkers(w.t.Context(), &executorv1.ListWorkersRequest{})
			require.NoError(w.t, err)
			require.NotEmpty(w.t, list.GetWorkers())
		},
	}
}

func (w *largeWorld) limits() executorv1.LimitServiceClient {
	return executorv1.NewLimitServiceClient(w.dial(keyAcme))
}

func (w *largeWorld) threads() executorv1.ThreadServiceClient {
	return executorv1.NewThreadServiceClient(w.dial(keyAcme))
}

// thread makes a thread whose agent fails.
func (w *largeWorld) thread() string {
	w.t.Helper()
	th, err := w.threads().CreateThread(w.t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: "fail"}})
	require.NoError(w.t, err)
	return th.GetId()
}

// imported makes a thread with a large message from a value, and gets the same value from it.
func (w *largeWorld) imported() string {
	w.t.Helper()
	text := `{"format": "epigraph.thread/1", "threads": [{"id": "w", "items": [{"kind": "message", "body": ` + large + `}]}]}`
	th, err := w.threads().ImportThread(w.t.Context(), &executorv1.ImportThreadRequest{Value: value(text)})
	require.NoError(w.t, err)
	got, err := w.threads().ExportThread(w.t.Context(), &executorv1.ExportThreadRequest{ThreadId: th.GetId()})
	require.NoError(w.t, err)
	var out struct {
		Threads []struct {
			Items []struct{ Body json.RawMessage }
		}
	}
	require.NoError(w.t, json.Unmarshal(got.GetValue().GetJson(), &out))
	require.JSONEq(w.t, large, string(out.Threads[0].Items[0].Body))
	return th.GetId()
}

// turn sends a large message.
func (w *largeWorld) turn(id string) *executorv1.Turn {
	w.t.Helper()
	turn, err := w.threads().AppendMessage(w.t.Context(), &executorv1.AppendMessageRequest{ThreadId: id, Content: value(large)})
	require.NoError(w.t, err)
	require.JSONEq(w.t, large, string(turn.GetContent().GetJson()))
	return turn
}

func (w *largeWorld) schedules() executorv1.ScheduleServiceClient {
	return executorv1.NewScheduleServiceClient(w.dial(keyAcme))
}

func (w *largeWorld) schedule(id string) *executorv1.Schedule {
	w.t.Helper()
	s, err := w.schedules().CreateSchedule(w.t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: id, Cron: "0 3 * * *", Start: w.request(say("last"))}})
	require.NoError(w.t, err)
	require.JSONEq(w.t, large, string(s.GetStart().GetNamed()["big"].GetJson()))
	return s
}

// labeled starts a run that bulk calls find.
func (w *largeWorld) labeled(label string, ns ...*graphv1.Node) string {
	w.t.Helper()
	req := w.request(ns...)
	req.Labels = map[string]string{"bulk": label}
	r, err := w.c.StartRun(w.t.Context(), req)
	require.NoError(w.t, err)
	return r.GetId()
}
