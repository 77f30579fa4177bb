package executor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// repeatable are the methods of the executor whose requests have a request id, or carry a start that has one.
func repeatable() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	has := func(m protoreflect.MessageDescriptor) bool { return m.Fields().ByName("request_id") != nil }
	protoregistry.GlobalFiles.RangeFilesByPackage("epigraph.executor.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				start := m.Input().Fields().ByName("start")
				if has(m.Input()) || start != nil && start.Message() != nil && has(start.Message()) {
					out[string(m.Name())] = m
				}
			}
		}
		return true
	})
	return out
}

// same is the part of an answer that a repetition returns again: the run, and the effect.
func same(t *testing.T, answer proto.Message) proto.Message {
	t.Helper()
	run := func(r *executorv1.Run) *executorv1.Run { return &executorv1.Run{Id: r.GetId()} }
	switch m := answer.(type) {
	case *executorv1.Run:
		return run(m)
	case *executorv1.AmendRunResponse:
		return &executorv1.AmendRunResponse{Run: run(m.GetRun()), Diff: m.GetDiff()}
	case *executorv1.Thread, *executorv1.Turn:
		return m
	case *executorv1.TriggerScheduleResponse:
		return m
	case *executorv1.TriggerDelivery:
		return &executorv1.TriggerDelivery{Id: m.GetId(), RepeatOf: m.GetRepeatOf()}
	}
	require.Fail(t, "say what of the answer is the same each time", "%T", answer)
	return nil
}

// TestRepeats sends every request that has a request id again: at once, while a start would be refused, and
// after its run has ended. It is answered as it was the first time, and refused with another body.
func TestRepeats(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		t.Parallel()
		c := &calls{fail: map[string]bool{"fails": true}}
		f := serve(t, workgraph.Actors{"does": c.actor(workgraph.Idempotent), "pays": declared{workgraph.Unsafe, workgraph.ActorFunc(
			func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Unknown, "TIMEOUT", "no answer")
			})}, "hears": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Wait: &workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}}, nil
		})}, store)
		threads := executorv1.NewThreadServiceClient(f.conn)
		thread := func(t *testing.T) string {
			t.Helper()
			th, err := threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: "hears"}})
			require.NoError(t, err)
			return th.GetId()
		}
		schedules := executorv1.NewScheduleServiceClient(f.conn)
		ctx := t.Context()
		waits := actorNode("wait", "signal", `{"name": "go"}`)
		node := func(id string) *graphv1.Node { return &graphv1.Node{Id: id, Actor: "does"} }
		begin := func(t *testing.T, want executorv1.RunState, req *executorv1.StartRunRequest) string {
			t.Helper()
			run, err := f.StartRun(ctx, req)
			require.NoError(t, err)
			f.wait(t, run.GetId(), want)
			return run.GetId()
		}
		const waiting, paused = executorv1.RunState_RUN_STATE_WAITING, executorv1.RunState_RUN_STATE_PAUSED
		waiter := func(t *testing.T) string {
			return begin(t, waiting, &executorv1.StartRunRequest{Graph: nodes(node("a"), waits)})
		}
		labels := map[string]string{"other": "body"}

		// one makes a request, and says how its body becomes another.
		type one func(t *testing.T, id string) (req proto.Message, change func())
		table := map[string]map[string]one{
			"StartRun": {
				"Plain": func(_ *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.StartRunRequest{Graph: nodes(waits), RequestId: id}
					return req, func() { req.Labels = labels }
				},
				"OfATask": func(_ *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.StartRunRequest{Graph: nodes(waits), TaskId: "tk_" + id, RequestId: id}
					return req, func() { req.TaskId = "tk_other" }
				},
			},
			"RunAndWait": {"": func(_ *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: nodes(waits), RequestId: id, Wait: durationpb.New(time.Millisecond)}}
				return req, func() { req.Start.Labels = labels }
			}},
			"SignalWithStart": {
				"Starts": func(_ *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.SignalWithStartRequest{Name: "else", Start: &executorv1.StartRunRequest{Graph: nodes(waits), TaskId: "tk_" + id, BusinessKey: id, RequestId: id}}
					return req, func() { req.Payload = value(`1`) }
				},
				"Signals": func(t *testing.T, id string) (proto.Message, func()) {
					begin(t, waiting, &executorv1.StartRunRequest{Graph: nodes(waits), BusinessKey: id, RequestId: id})
					req := &executorv1.SignalWithStartRequest{Name: "else", Start: &executorv1.StartRunRequest{Graph: nodes(waits), BusinessKey: id, RequestId: id}}
					return req, func() { req.Name = "other" }
				},
			},
			"RetryRun": {"": func(t *testing.T, id string) (proto.Message, func()) {
				run := begin(t, executorv1.RunState_RUN_STATE_FAILED, &executorv1.StartRunRequest{Graph: nodes(node("fails"), waits), TaskId: "tk_" + id})
				testkit.Eventually(t, func() bool { return f.registry.settledRun(run) }, "its task is free")
				c.mend("fails")
				req := &executorv1.RetryRunRequest{RunId: run, RequestId: id}
				return req, func() { req.AllowUnsafe = true }
			}},
			"ForkRun": {"": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.ForkRunRequest{RunId: waiter(t), RequestId: id}
				return req, func() { req.Labels = labels }
			}},
			"CancelRun": {"": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.CancelRunRequest{RunId: waiter(t), Reason: "ENOUGH", RequestId: id}
				return req, func() { req.Reason = "OTHER" }
			}},
			"PauseRun": {
				"Runs": func(t *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.PauseRunRequest{RunId: waiter(t), Reason: "x", RequestId: id}
					return req, func() { req.Reason = "y" }
				},
				"IsPaused": func(t *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.PauseRunRequest{RunId: waiter(t), RequestId: id}
					_, err := f.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: req.GetRunId()})
					require.NoError(t, err)
					f.wait(t, req.GetRunId(), paused)
					return req, func() { req.Reason = "y" }
				},
			},
			"StopRun": {"Runs": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.StopRunRequest{RunId: waiter(t), Reason: "x", RequestId: id}
				return req, func() { req.Reason = "y" }
			}},
			"ResumeRun": {
				"IsPaused": func(t *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.ResumeRunRequest{RunId: waiter(t), RequestId: id}
					_, err := f.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: req.GetRunId()})
					require.NoError(t, err)
					f.wait(t, req.GetRunId(), paused)
					return req, func() { req.Reason = "y" }
				},
				"IsPausedBelow": func(t *testing.T, id string) (proto.Message, func()) {
					above := actorNode("d", "spawn", `{"runs": [{"graph": {"nodes": [{"id": "wait", "actor": "signal", "named": {"name": "go"}}]}}]}`)
					req := &executorv1.ResumeRunRequest{RunId: begin(t, waiting, &executorv1.StartRunRequest{Graph: nodes(above)}), RequestId: id}
					below := ""
					testkit.Eventually(t, func() bool {
						r, err := f.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: req.GetRunId(), States: []executorv1.RunState{waiting}})
						require.NoError(t, err)
						for _, c := range r.GetRuns() {
							below = c.GetId()
						}
						return below != ""
					})
					_, err := f.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: below})
					require.NoError(t, err)
					f.wait(t, below, paused)
					return req, func() { req.Reason = "y" }
				},
				"WithABudget": func(t *testing.T, id string) (proto.Message, func()) {
					req := &executorv1.ResumeRunRequest{RunId: waiter(t), RequestId: id, Budget: &executorv1.RunBudget{Tokens: proto.Int64(7)}}
					return req, func() { req.Budget.Tokens = proto.Int64(8) }
				},
			},
			"ReconcileVisit": {"": func(t *testing.T, id string) (proto.Message, func()) {
				run := begin(t, paused, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "pay", Actor: "pays"}, waits)})
				done := &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(`1`)}}
				req := &executorv1.ReconcileVisitRequest{RunId: run, Visit: &executorv1.VisitRef{NodeId: "pay"}, RequestId: id,
					Outcome: &executorv1.ReconcileVisitRequest_Performed{Performed: done}}
				return req, func() { done.Values = []*graphv1.Payload{value(`2`)} }
			}},
			"SignalRun": {"": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.SignalRunRequest{RunId: waiter(t), Name: "else", Payload: value(`1`), RequestId: id}
				return req, func() { req.Payload = value(`2`) }
			}},
			"SendMessage": {"": func(t *testing.T, id string) (proto.Message, func()) {
				reads := &graphv1.Node{Id: "reads", Actor: "does", On: &graphv1.Activation{Inbox: &graphv1.Inbox{From: []string{"ada"}}}}
				run := begin(t, waiting, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{waits, reads}}})
				req := &executorv1.SendMessageRequest{RunId: run, From: "ada", Message: value(`1`), RequestId: id}
				return req, func() { req.Message = value(`2`) }
			}},
			"AmendRun": {"": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.AmendRunRequest{RunId: waiter(t), RequestId: id, Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{node("more")},
					AddEdges: []*graphv1.Edge{{From: "wait", To: "more"}}}}
				return req, func() { req.Patch.AddEdges[0].From = "a" }
			}},
			"TriggerSchedule": {"": func(t *testing.T, id string) (proto.Message, func()) {
				for _, name := range []string{id, id + "-other"} {
					_, err := schedules.CreateSchedule(ctx, &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: name, Cron: "@yearly",
						Start: &executorv1.StartRunRequest{Graph: nodes(waits)}}})
					require.NoError(t, err)
				}
				req := &executorv1.TriggerScheduleRequest{ScheduleId: id, RequestId: id}
				return req, func() { req.ScheduleId += "-other" }
			}},
			"RepeatTriggerDelivery": {"": func(t *testing.T, id string) (proto.Message, func()) {
				f.catalog.stands("welcome", 2, `{"id": "hook", "type": "webhook", "signature": "token"}`)
				secret := f.activate(t, "welcome")["hook"].GetSecret()
				if secret == "" {
					x, err := f.triggers.RotateTriggerSecret(ctx, &executorv1.RotateTriggerSecretRequest{TriggerId: f.activate(t, "welcome")["hook"].GetId()})
					require.NoError(t, err)
					secret = x.GetSecret()
				}
				first, other := f.call(t, "welcome/hook", secret, id, `{"who": "ada"}`), f.call(t, "welcome/hook", secret, id+"-other", `{"who": "bob"}`)
				req := &executorv1.RepeatTriggerDeliveryRequest{DeliveryId: first.GetDeliveryId(), RequestId: id}
				return req, func() { req.DeliveryId = other.GetDeliveryId() }
			}},
			"CreateThread": {"": func(_ *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Key: id}, RequestId: id}
				return req, func() { req.Thread.Key += "-other" }
			}},
			"ForkThread": {"": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.ForkThreadRequest{ThreadId: thread(t), RequestId: id}
				return req, func() { req.Thread = &executorv1.Thread{Title: "other"} }
			}},
			"ImportThread": {"": func(_ *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.ImportThreadRequest{Value: value(`{"format": "epigraph.thread/1", "threads": [{"id": "w", "items": []}]}`), RequestId: id}
				return req, func() { req.Thread = &executorv1.Thread{Title: "other"} }
			}},
			"AppendMessage": {"": func(t *testing.T, id string) (proto.Message, func()) {
				req := &executorv1.AppendMessageRequest{ThreadId: thread(t), Content: value(`"hi"`), RequestId: id}
				return req, func() { req.Content = value(`"other"`) }
			}},
		}
		methods := repeatable()
		for name := range table {
			require.Contains(t, methods, name)
		}
		n := 0
		for name, method := range methods {
			cases, known := table[name]
			require.True(t, known, "%s has a request_id: say here how it is sent twice", name)
			for kind, does := range cases {
				n++
				id := fmt.Sprintf("req-%d", n)
				t.Run(strings.TrimSuffix(name+"/"+kind, "/"), func(t *testing.T) {
					send := func(req proto.Message) (proto.Message, error) {
						kind, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
						require.NoError(t, err)
						out := kind.New().Interface()
						err = f.conn.Invoke(ctx, fmt.Sprintf("/%s/%s", method.Parent().FullName(), name), req, out)
						return out, grpckit.FromStatus(err)
					}
					req, change := does(t, id)
					first, err := send(req)
					require.NoError(t, err)
					other := proto.Clone(req)
					change()
					req, other = other, req
					again := func(when string) {
						t.Helper()
						got, err := send(req)
						require.NoError(t, err, when)
						require.Empty(t, cmp.Diff(same(t, first), same(t, got), protocmp.Transform()), when)
						_, err = send(other)
						require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err), "%s: %v", when, err)
					}
					again("at once")
					f.registry.set(errs.New(errs.FailedPrecondition, "BUDGET_EXHAUSTED", "nothing is left"))
					again("when a start is refused")
					f.registry.set(nil)
					var run string
					switch m := first.(type) {
					case *executorv1.Run:
						run = m.GetId()
					case *executorv1.AmendRunResponse:
						run = m.GetRun().GetId()
					case *executorv1.TriggerScheduleResponse:
						run = m.GetStart().GetRunId()
					case *executorv1.Turn:
						run = m.GetRunId()
					case *executorv1.Thread, *executorv1.TriggerDelivery:
						return // no run belongs to it
					}
					_, err = f.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: run})
					require.NoError(t, err)
					f.wait(t, run, executorv1.RunState_RUN_STATE_CANCELED)
					again("when its run has ended")
				})
			}
		}
	})
}

// set lets every claim be refused from now on, or none.
func (b *fakeRegistry) set(refuse error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}
