package executor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// TestAnswersAtOnce starts runs and waits for them in the same request.
func TestAnswersAtOnce(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	long := durationpb.New(time.Hour)
	node := func(id, actor, named string) *graphv1.Graph { return nodes(actorNode(id, actor, named)) }
	waits := func() *graphv1.Graph { return node("wait", "signal", `{"name": "go"}`) }
	ask := actorNode("ask", "human", `{"prompt": "Go on?"}`)

	t.Run("TheEndedRun", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: node("nap", "sleep", `{"duration": "50ms"}`), Wait: long})
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, run.GetState())
		require.NotNil(t, run.GetResult())
	})
	t.Run("AFailedRunIsNoError", func(t *testing.T) {
		run, err := f.RunAndWait(t.Context(), &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: node("f", "fail", `{"reason": "NO"}`)}})
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_FAILED, run.GetState())
	})
	t.Run("AQuestion", func(t *testing.T) {
		run, err := f.RunAndWait(t.Context(), &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: nodes(ask), Wait: long}})
		require.NoError(t, err)
		require.EqualValues(t, 1, run.GetOpenInterrupts())
	})
	t.Run("AQuestionOfAChild", func(t *testing.T) {
		child := `{"runs": [{"graph": {"nodes": [{"id": "ask", "actor": "human", "named": {"prompt": "Go on?"}}]}}]}`
		run, err := f.RunAndWait(t.Context(), &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: node("below", "spawn", child), Wait: long}})
		require.NoError(t, err)
		require.EqualValues(t, 1, run.GetOpenInterrupts())
	})
	t.Run("TheTimeIsOver", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits(), Wait: durationpb.New(50 * time.Millisecond)})
		require.NoError(t, err)
		require.Nil(t, run.GetEndTime())
	})
	t.Run("TheCallersTimeIsShorter", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		run, err := f.RunAndWait(ctx, &executorv1.RunAndWaitRequest{Start: &executorv1.StartRunRequest{Graph: waits(), Wait: long}})
		require.NoError(t, err)
		require.NotEmpty(t, run.GetId())
	})
	t.Run("GetRunWaitsOn", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits()})
		require.NoError(t, err)
		ended := make(chan *executorv1.Run, 1)
		go func() {
			defer close(ended)
			if r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId(), Wait: long}); err == nil {
				ended <- r
			}
		}()
		_, err = f.SignalRun(t.Context(), &executorv1.SignalRunRequest{RunId: run.GetId(), Name: "go"})
		require.NoError(t, err)
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, (<-ended).GetState())
	})
	t.Run("ARepetitionMayWaitLonger", func(t *testing.T) {
		req := &executorv1.StartRunRequest{Graph: node("nap", "sleep", `{"duration": "50ms"}`), RequestId: "again"}
		run, err := f.StartRun(t.Context(), req)
		require.NoError(t, err)
		req.Wait = long
		again, err := f.StartRun(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, run.GetId(), again.GetId())
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, again.GetState())
	})
	t.Run("NoWaitAtSignalWithStart", func(t *testing.T) {
		_, err := f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "go", Start: &executorv1.StartRunRequest{Graph: waits(), BusinessKey: "k", Wait: long}})
		require.Equal(t, "WAIT_INVALID", errs.ReasonOf(err))
	})
	t.Run("NoWaitOfASchedule", func(t *testing.T) {
		_, err := executorv1.NewScheduleServiceClient(f.conn).CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{
			Schedule: &executorv1.Schedule{Id: "daily", Cron: "0 9 * * *", Start: &executorv1.StartRunRequest{Graph: waits(), Wait: long}}})
		require.ErrorContains(t, err, "schedule.start.wait")
	})
	t.Run("AReplicaThatStopsAnswersAsItStands", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: waits()})
		require.NoError(t, err)
		f.server.Drain()
		got, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId(), Wait: long})
		require.NoError(t, err)
		require.Nil(t, got.GetEndTime())
	})
}
