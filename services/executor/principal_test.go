package executor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// TestPrincipal calls every writing method with a key, and reads the recorded principal.
func TestPrincipal(t *testing.T) {
	serverTLS, clientTLS := authority(t)
	for store, change := range map[string]func(*executor.Config){
		"SQLite":   nil,
		"Postgres": func(c *executor.Config) { c.Store, c.PostgresURL = "postgres", conf.NewSecret(pgtest.New(t)) },
	} {
		t.Run(store, func(t *testing.T) { principals(t, openWith(t, "p", serverTLS, clientTLS, change)) })
	}
}

func principals(t *testing.T, r *replica) {
	ctx, conn := t.Context(), r.dial(keyAcme)
	runs, schedules, limits := executorv1.NewExecutorServiceClient(conn), executorv1.NewScheduleServiceClient(conn), executorv1.NewLimitServiceClient(conn)
	const me = "key:acme"
	ask := &graphv1.Node{Id: "q", Actor: "human", Named: map[string]*graphv1.Payload{"prompt": value(`"May I?"`)}}
	asking := func(t *testing.T) *executorv1.Run {
		t.Helper()
		run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(ask)})
		require.NoError(t, err)
		return run
	}
	// event returns the principal of the first event that is meant.
	event := func(t *testing.T, runID string, meant func(*executorv1.RunEvent) bool) *executorv1.RunEvent {
		t.Helper()
		watch, err := runs.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: runID})
		require.NoError(t, err)
		for {
			ev, err := watch.Recv()
			require.NoError(t, err)
			if meant(ev) {
				return ev
			}
		}
	}
	canceled := func(ev *executorv1.RunEvent) bool { return ev.GetCancelRequested() != nil }
	question := func(t *testing.T, runID string) string {
		t.Helper()
		return event(t, runID, func(ev *executorv1.RunEvent) bool { return ev.GetInterruptOpened() != nil }).GetInterruptOpened().GetInterruptId()
	}
	failed := func(t *testing.T, labels map[string]string) string {
		t.Helper()
		run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "f", Actor: "fail"}), Labels: labels})
		require.NoError(t, err)
		event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetRunEnded() != nil })
		return run.GetId()
	}
	daily := func(t *testing.T, id string) *executorv1.Schedule {
		t.Helper()
		s, err := schedules.CreateSchedule(ctx, &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: id, Cron: "@hourly",
			Start: &executorv1.StartRunRequest{Graph: nodes(ask)}}})
		require.NoError(t, err)
		return s
	}
	readSchedule := func(t *testing.T, id string) string {
		t.Helper()
		s, err := schedules.GetSchedule(ctx, &executorv1.GetScheduleRequest{ScheduleId: id})
		require.NoError(t, err)
		return s.GetPrincipal()
	}
	readRun := func(t *testing.T, id string) string {
		t.Helper()
		run, err := runs.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
		require.NoError(t, err)
		return run.GetPrincipal()
	}
	// deleted returns the caller that removed a resource. Only the log, from level WARN on, has it.
	deleted := func(t *testing.T, kind, id string) string {
		t.Helper()
		var by []string
		for _, d := range r.log.Deletions(t, "deleted") {
			if d.Kind == kind && d.ID == id {
				require.Equal(t, "acme", d.Namespace)
				by = append(by, d.Principal)
			}
		}
		require.Len(t, by, 1)
		return by[0]
	}
	const executors, scheduling, limiting = "epigraph.executor.v1.ExecutorService/", "epigraph.executor.v1.ScheduleService/", "epigraph.executor.v1.LimitService/"
	// nil stands for reading methods.
	table := map[string]func(t *testing.T) string{
		executors + "ValidateGraph": nil, executors + "GetRun": nil, executors + "GetRunGraph": nil, executors + "ListRuns": nil, executors + "ListVisits": nil, executors + "GetVisit": nil,
		executors + "WatchRun": nil, executors + "ExplainRun": nil, executors + "CompareRuns": nil, executors + "ListInterrupts": nil, executors + "GetInterrupt": nil, executors + "ListActors": nil,
		scheduling + "GetSchedule": nil, scheduling + "ListSchedules": nil,
		limiting + "ListLimits": nil,

		executors + "DeleteRun": func(t *testing.T) string {
			id := failed(t, nil)
			_, err := runs.DeleteRun(ctx, &executorv1.DeleteRunRequest{RunId: id})
			require.NoError(t, err)
			return deleted(t, "run", id)
		},
		executors + "BulkDeleteRuns": func(t *testing.T) string {
			labels := map[string]string{"bulk": "delete"}
			one, other := failed(t, labels), failed(t, labels)
			_, err := runs.BulkDeleteRuns(ctx, &executorv1.BulkDeleteRunsRequest{Filter: &executorv1.RunFilter{Labels: labels}})
			require.NoError(t, err)
			require.Equal(t, me, deleted(t, "run", one))
			return deleted(t, "run", other)
		},
		scheduling + "DeleteSchedule": func(t *testing.T) string {
			daily(t, "removed")
			_, err := schedules.DeleteSchedule(ctx, &executorv1.DeleteScheduleRequest{ScheduleId: "removed"})
			require.NoError(t, err)
			return deleted(t, "schedule", "removed")
		},
		limiting + "DeleteLimit": func(t *testing.T) string {
			_, err := limits.UpdateLimit(ctx, &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: "actor/sleep", MaxRate: 100, RateInterval: durationpb.New(time.Second)}})
			require.NoError(t, err)
			_, err = limits.DeleteLimit(ctx, &executorv1.DeleteLimitRequest{Name: "actor/sleep"})
			require.NoError(t, err)
			return deleted(t, "limit", "actor/sleep")
		},

		executors + "StartRun": func(t *testing.T) string { return readRun(t, asking(t).GetId()) },
		executors + "RunAndWait": func(t *testing.T) string {
			run, err := runs.RunAndWait(ctx, &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: nodes(ask)}})
			require.NoError(t, err)
			return readRun(t, run.GetId())
		},
		executors + "SignalWithStart": func(t *testing.T) string {
			run, err := runs.SignalWithStart(ctx, &executorv1.SignalWithStartRequest{Name: "s", Start: &executorv1.StartRunRequest{Graph: nodes(ask), BusinessKey: "signaled"}})
			require.NoError(t, err)
			require.Equal(t, me, readRun(t, run.GetId()))
			_, err = runs.SignalWithStart(ctx, &executorv1.SignalWithStartRequest{Name: "again", Start: &executorv1.StartRunRequest{Graph: nodes(ask), BusinessKey: "signaled"}})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetSignalReceived().GetName() == "again" }).GetPrincipal()
		},
		executors + "ForkRun": func(t *testing.T) string {
			run, err := runs.ForkRun(ctx, &executorv1.ForkRunRequest{RunId: asking(t).GetId()})
			require.NoError(t, err)
			return readRun(t, run.GetId())
		},
		executors + "CancelRun": func(t *testing.T) string {
			run := asking(t)
			_, err := runs.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: run.GetId(), Reason: "key:other"})
			require.NoError(t, err)
			ev := event(t, run.GetId(), canceled)
			require.Equal(t, "key:other", ev.GetCancelRequested().GetReason())
			return ev.GetPrincipal()
		},
		executors + "BulkCancelRuns": func(t *testing.T) string {
			run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(ask), Labels: map[string]string{"bulk": "cancel"}})
			require.NoError(t, err)
			_, err = runs.BulkCancelRuns(ctx, &executorv1.BulkCancelRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "cancel"}}})
			require.NoError(t, err)
			return event(t, run.GetId(), canceled).GetPrincipal()
		},
		executors + "BulkPauseRuns": func(t *testing.T) string {
			run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(ask), Labels: map[string]string{"bulk": "pause"}})
			require.NoError(t, err)
			_, err = runs.BulkPauseRuns(ctx, &executorv1.BulkPauseRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "pause"}}})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetRunPaused() != nil }).GetPrincipal()
		},
		executors + "BulkResumeRuns": func(t *testing.T) string {
			run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(ask), Labels: map[string]string{"bulk": "resume"}})
			require.NoError(t, err)
			_, err = runs.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			_, err = runs.BulkResumeRuns(ctx, &executorv1.BulkResumeRunsRequest{Filter: &executorv1.RunFilter{Labels: map[string]string{"bulk": "resume"}}})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetRunResumed() != nil }).GetPrincipal()
		},
		executors + "PauseRun": func(t *testing.T) string {
			run := asking(t)
			_, err := runs.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetRunPaused() != nil }).GetPrincipal()
		},
		executors + "StopRun": func(t *testing.T) string {
			run := asking(t)
			_, err := runs.StopRun(ctx, &executorv1.StopRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetStopRequested() != nil }).GetPrincipal()
		},
		executors + "ResumeRun": func(t *testing.T) string {
			run := asking(t)
			_, err := runs.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			_, err = runs.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: run.GetId()})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetRunResumed() != nil }).GetPrincipal()
		},
		executors + "SignalRun": func(t *testing.T) string {
			run := asking(t)
			_, err := runs.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: run.GetId(), Name: "s"})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetSignalReceived() != nil }).GetPrincipal()
		},
		executors + "AmendRun": func(t *testing.T) string {
			run := asking(t)
			_, err := runs.AmendRun(ctx, &executorv1.AmendRunRequest{RunId: run.GetId(), Patch: &executorv1.GraphPatch{PutNodes: []*graphv1.Node{
				{Id: "more", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}}}}})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetGraphAmended() != nil }).GetPrincipal()
		},
		executors + "AnswerInterrupt": func(t *testing.T) string {
			run := asking(t)
			id := question(t, run.GetId())
			_, err := runs.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: id, Answer: value(`"yes"`), By: "key:other"})
			require.NoError(t, err)
			q, err := runs.GetInterrupt(ctx, &executorv1.GetInterruptRequest{InterruptId: id})
			require.NoError(t, err)
			require.Equal(t, "key:other", q.GetBy())
			require.Equal(t, me, event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetInterruptClosed() != nil }).GetPrincipal())
			return q.GetPrincipal()
		},
		executors + "SendMessage": func(t *testing.T) string {
			reads := &graphv1.Node{Id: "reads", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)},
				On: &graphv1.Activation{Inbox: &graphv1.Inbox{From: []string{"ada"}}}}
			run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{ask, reads}}})
			require.NoError(t, err)
			_, err = runs.SendMessage(ctx, &executorv1.SendMessageRequest{RunId: run.GetId(), From: "ada", Message: value(`1`)})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetMessageDelivered() != nil }).GetPrincipal()
		},
		executors + "ReconcileVisit": func(t *testing.T) string {
			w := r.worker(t, hello(1, unsafe("loses")))
			run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "lost", Actor: "loses"})})
			require.NoError(t, err)
			w.fail(w.visit().GetToken(), &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_UNKNOWN, Reason: "GONE"})
			event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetRunPaused() != nil })
			_, err = runs.ReconcileVisit(ctx, &executorv1.ReconcileVisitRequest{RunId: run.GetId(), Visit: &executorv1.VisitRef{NodeId: "lost"}, By: "key:other",
				Outcome: &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{value(`1`)}}}})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetReconciled() != nil }).GetPrincipal()
		},
		executors + "CompleteAttempt": func(t *testing.T) string {
			run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "work", Actor: "completion"})})
			require.NoError(t, err)
			token := event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetAttemptEnded() != nil }).GetAttemptEnded().GetWait().GetAttemptToken()
			_, err = runs.CompleteAttempt(ctx, &executorv1.CompleteAttemptRequest{AttemptToken: token, By: "key:other",
				Result: &executorv1.CompleteAttemptRequest_Completed{Completed: &executorv1.AttemptPerformed{}}})
			require.NoError(t, err)
			return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetCompletionReceived() != nil }).GetPrincipal()
		},
		executors + "RetryRun": func(t *testing.T) string {
			again, err := runs.RetryRun(ctx, &executorv1.RetryRunRequest{RunId: failed(t, nil)})
			require.NoError(t, err)
			return readRun(t, again.GetId())
		},
		executors + "BulkRetryRuns": func(t *testing.T) string {
			labels := map[string]string{"bulk": "retry"}
			failed(t, labels)
			again, err := runs.BulkRetryRuns(ctx, &executorv1.BulkRetryRunsRequest{Filter: &executorv1.RunFilter{Labels: labels}})
			require.NoError(t, err)
			require.Len(t, again.GetRunIds(), 1, again)
			return readRun(t, again.GetRunIds()[0])
		},

		scheduling + "CreateSchedule": func(t *testing.T) string { return daily(t, "made").GetPrincipal() },
		scheduling + "UpdateSchedule": func(t *testing.T) string {
			s := daily(t, "changed")
			s.Note, s.Principal = "other", "key:other"
			_, err := schedules.UpdateSchedule(ctx, &executorv1.UpdateScheduleRequest{Schedule: s, UpdateMask: everything})
			require.NoError(t, err)
			return readSchedule(t, "changed")
		},
		scheduling + "PauseSchedule": func(t *testing.T) string {
			daily(t, "paused")
			_, err := schedules.PauseSchedule(ctx, &executorv1.PauseScheduleRequest{ScheduleId: "paused"})
			require.NoError(t, err)
			return readSchedule(t, "paused")
		},
		scheduling + "ResumeSchedule": func(t *testing.T) string {
			daily(t, "resumed")
			_, err := schedules.ResumeSchedule(ctx, &executorv1.ResumeScheduleRequest{ScheduleId: "resumed"})
			require.NoError(t, err)
			return readSchedule(t, "resumed")
		},
		scheduling + "TriggerSchedule": func(t *testing.T) string {
			daily(t, "triggered")
			st, err := schedules.TriggerSchedule(ctx, &executorv1.TriggerScheduleRequest{ScheduleId: "triggered"})
			require.NoError(t, err)
			require.Equal(t, me, st.GetStart().GetPrincipal())
			return readRun(t, st.GetStart().GetRunId())
		},
		scheduling + "BackfillSchedule": func(t *testing.T) string {
			daily(t, "backfilled")
			now := time.Now()
			list, err := schedules.BackfillSchedule(ctx, &executorv1.BackfillScheduleRequest{ScheduleId: "backfilled",
				BeginTime: timestamppb.New(now.Add(-2 * time.Hour)), EndTime: timestamppb.New(now.Add(-time.Minute))})
			require.NoError(t, err)
			require.NotEmpty(t, list.GetStarts())
			s, err := schedules.GetSchedule(ctx, &executorv1.GetScheduleRequest{ScheduleId: "backfilled"})
			require.NoError(t, err)
			return s.GetRecent()[0].GetPrincipal()
		},
		limiting + "UpdateLimit": func(t *testing.T) string {
			_, err := limits.UpdateLimit(ctx, &executorv1.UpdateLimitRequest{AllowMissing: true, UpdateMask: everything, Limit: &executorv1.Limit{Name: "actor/human", MaxRate: 100, RateInterval: durationpb.New(time.Second), Principal: "key:other"}})
			require.NoError(t, err)
			list, err := limits.ListLimits(ctx, &executorv1.ListLimitsRequest{})
			require.NoError(t, err)
			return list.GetLimits()[0].GetPrincipal()
		},
	}
	// ended is the end of the only call of a run.
	ended := func(t *testing.T, actor string, answer func(w *raw, token string)) *executorv1.RunEvent {
		t.Helper()
		w := r.worker(t, hello(1, pure(actor)))
		run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "n", Actor: actor})})
		require.NoError(t, err)
		answer(w, w.visit().GetToken())
		return event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetAttemptEnded() != nil })
	}
	t.Run("Worker/Outcome", func(t *testing.T) {
		require.Equal(t, me, ended(t, "tells", func(w *raw, token string) { w.answer(token, `1`) }).GetPrincipal())
	})
	t.Run("Worker/Error", func(t *testing.T) {
		require.Equal(t, me, ended(t, "fails", func(w *raw, token string) {
			w.fail(token, &executorv1.AttemptError{Type: executorv1.ErrorType_ERROR_TYPE_PERMANENT, Reason: "NO"})
		}).GetPrincipal())
	})
	t.Run("Worker/LostSaysNothing", func(t *testing.T) {
		require.Empty(t, ended(t, "leaves", func(w *raw, _ string) { w.cancel() }).GetPrincipal())
	})
	t.Run("Executor/ReportsItself", func(t *testing.T) {
		run, err := runs.StartRun(ctx, &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "f", Actor: "fail"})})
		require.NoError(t, err)
		require.Empty(t, event(t, run.GetId(), func(ev *executorv1.RunEvent) bool { return ev.GetAttemptEnded() != nil }).GetPrincipal())
	})
	for _, method := range access.Methods() {
		if !strings.HasPrefix(method, executors) && !strings.HasPrefix(method, scheduling) && !strings.HasPrefix(method, limiting) {
			continue
		}
		t.Run(method[strings.LastIndexByte(method, '/')+1:], func(t *testing.T) {
			does, known := table[method]
			require.True(t, known, "say how it is told who called %s", method)
			if does != nil {
				require.Equal(t, me, does(t))
			}
		})
	}
}
