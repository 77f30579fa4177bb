package executor_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// door is an actor that blocks until somebody opens it.
type door struct {
	mu   sync.Mutex
	open chan struct{}
}

func newDoor() *door { return &door{open: make(chan struct{})} }

// pass admits everybody who waits, and blocks the next ones.
func (d *door) pass() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.open)
	d.open = make(chan struct{})
}

func (d *door) actor() workgraph.Actor {
	return workgraph.ActorFunc(func(ctx context.Context, _ *workgraph.Call) (workgraph.Outcome, error) {
		d.mu.Lock()
		open := d.open
		d.mu.Unlock()
		select {
		case <-open:
			return workgraph.Outcome{}, nil
		case <-ctx.Done():
			return workgraph.Outcome{}, ctx.Err()
		}
	})
}

// neverCron is the line of a schedule that starts by hand only.
const neverCron = "0 0 1 1 *"

// scheduling is a server with schedules. The actor does ends at once, the other actors wait at their doors.
type scheduling struct {
	*fixture
	schedules executorv1.ScheduleServiceClient
	doors     map[string]*door
}

// onSchedules runs a test on each database, with a server of its own.
func onSchedules(t *testing.T, test func(t *testing.T, f scheduling)) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		doors := map[string]*door{}
		actors := workgraph.Actors{"does": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { return workgraph.Outcome{}, nil })}
		for _, name := range []string{"skip", "one", "all", "other", "allow", "late"} {
			doors[name] = newDoor()
			actors[name] = doors[name].actor()
		}
		f := serve(t, actors, store)
		test(t, scheduling{f, executorv1.NewScheduleServiceClient(f.conn), doors})
	})
}

func startOf(actor string) *executorv1.StartRunRequest {
	return &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "n", Actor: actor}), Labels: map[string]string{"by": "clock"}}
}

func (f scheduling) create(t *testing.T, s *executorv1.Schedule) *executorv1.Schedule {
	t.Helper()
	out, err := f.schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: s})
	require.NoError(t, err)
	return out
}

func (f scheduling) get(t *testing.T, id string) *executorv1.Schedule {
	t.Helper()
	out, err := f.schedules.GetSchedule(t.Context(), &executorv1.GetScheduleRequest{ScheduleId: id})
	require.NoError(t, err)
	return out
}

func (f scheduling) trigger(t *testing.T, id string) *executorv1.ScheduleStart {
	t.Helper()
	out, err := f.schedules.TriggerSchedule(t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: id})
	require.NoError(t, err)
	return out.GetStart()
}

func (f scheduling) state(t *testing.T, id string) executorv1.RunState {
	t.Helper()
	r, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: id})
	require.NoError(t, err)
	return r.GetState()
}

func (f scheduling) ended(t *testing.T, id string) {
	t.Helper()
	testkit.Eventually(t, func() bool { return f.state(t, id) >= executorv1.RunState_RUN_STATE_COMPLETED })
}

// finish lets a run through its door, where it may yet have to arrive.
func (f scheduling) finish(t *testing.T, name, id string) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		f.doors[name].pass()
		return f.state(t, id) >= executorv1.RunState_RUN_STATE_COMPLETED
	})
}

func resultsOf(s *executorv1.Schedule) (out []string) {
	for _, r := range s.GetRecent() {
		out = append(out, r.GetResult())
	}
	return out
}

func TestSchedulesClockStartsEachTimeOnce(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		s := f.create(t, &executorv1.Schedule{Id: "tick", Cron: "@every 1s", Start: startOf("does"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW})
		require.Len(t, s.GetNextTimes(), 5)
		testkit.Eventually(t, func() bool { return len(f.get(t, "tick").GetRecent()) >= 4 })
		_, err := f.schedules.PauseSchedule(t.Context(), &executorv1.PauseScheduleRequest{ScheduleId: "tick", Note: "enough"})
		require.NoError(t, err)
		testkit.Eventually(t, func() bool {
			s = f.get(t, "tick")
			return !slices.Contains(resultsOf(s), "QUEUED") // a start under way
		})
		require.True(t, s.GetPaused())
		require.Equal(t, "enough", s.GetNote())
		require.Empty(t, s.GetNextTimes())
		seen := map[int64]bool{}
		for _, r := range s.GetRecent() {
			require.Equal(t, "STARTED", r.GetResult(), r)
			t.Logf("late by %s", r.GetActualTime().AsTime().Sub(r.GetScheduleTime().AsTime()))
			require.False(t, seen[r.GetScheduleTime().GetSeconds()])
			seen[r.GetScheduleTime().GetSeconds()] = true
			run, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: r.GetRunId()})
			require.NoError(t, err)
			require.Equal(t, "tick", run.GetScheduleId())
			require.Equal(t, map[string]string{"by": "clock"}, run.GetLabels())
		}
		_, err = f.schedules.DeleteSchedule(t.Context(), &executorv1.DeleteScheduleRequest{ScheduleId: "tick"})
		require.NoError(t, err)
	})
}

func TestSchedulesOverlapSkip(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "skip", Cron: neverCron, Start: startOf("skip")})
		first := f.trigger(t, "skip")
		require.Equal(t, "STARTED", first.GetResult())
		require.Equal(t, "SKIPPED_OVERLAP", f.trigger(t, "skip").GetResult())
		require.EqualValues(t, 1, f.get(t, "skip").GetSkipped())
		f.finish(t, "skip", first.GetRunId())
		require.Equal(t, "STARTED", f.trigger(t, "skip").GetResult())
	})
}

func TestSchedulesOverlapQueueOne(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "one", Cron: neverCron, Start: startOf("one"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_QUEUE_ONE})
		first := f.trigger(t, "one")
		require.Equal(t, []string{"STARTED", "QUEUED", "SKIPPED_OVERLAP"}, []string{first.GetResult(), f.trigger(t, "one").GetResult(), f.trigger(t, "one").GetResult()})
		f.finish(t, "one", first.GetRunId())
		done := time.Now()
		testkit.Eventually(t, func() bool { return resultsOf(f.get(t, "one"))[1] == "STARTED" })
		t.Logf("the next one was there %s after the end of the first", time.Since(done))
	})
}

func TestSchedulesOverlapQueueAll(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "all", Cron: neverCron, Start: startOf("all"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_QUEUE_ALL})
		for i := range 4 {
			require.Equal(t, []string{"STARTED", "QUEUED", "QUEUED", "QUEUED"}[i], f.trigger(t, "all").GetResult())
		}
		for i := range 4 {
			testkit.Eventually(t, func() bool { return resultsOf(f.get(t, "all"))[3-i] == "STARTED" })
			f.finish(t, "all", f.get(t, "all").GetRecent()[3-i].GetRunId())
		}
	})
}

func TestSchedulesOverlapCancelOther(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "other", Cron: neverCron, Start: startOf("other"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_CANCEL_OTHER})
		first := f.trigger(t, "other")
		require.Equal(t, "STARTED", first.GetResult())
		f.trigger(t, "other")
		f.ended(t, first.GetRunId())
		require.Equal(t, executorv1.RunState_RUN_STATE_CANCELED, f.state(t, first.GetRunId()))
		testkit.Eventually(t, func() bool { return f.get(t, "other").GetRecent()[0].GetResult() == "STARTED" })
	})
}

func TestSchedulesOverlapAllow(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "allow", Cron: neverCron, Start: startOf("allow"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW})
		a, b := f.trigger(t, "allow"), f.trigger(t, "allow")
		require.Equal(t, []string{"STARTED", "STARTED"}, []string{a.GetResult(), b.GetResult()})
		require.NotEqual(t, a.GetRunId(), b.GetRunId())
		f.finish(t, "allow", a.GetRunId())
		f.finish(t, "allow", b.GetRunId())
	})
}

func TestSchedulesTriggerRequestIDStartsOnce(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "once", Cron: neverCron, Start: startOf("does"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW})
		f.create(t, &executorv1.Schedule{Id: "twice", Cron: neverCron, Start: startOf("does")})
		var runs []string
		for range 2 {
			out, err := f.schedules.TriggerSchedule(t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: "once", RequestId: "r1"})
			require.NoError(t, err)
			require.Equal(t, "STARTED", out.GetStart().GetResult())
			runs = append(runs, out.GetStart().GetRunId())
		}
		require.Equal(t, runs[0], runs[1])
		_, err := f.schedules.TriggerSchedule(t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: "twice", RequestId: "r1"})
		require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(grpckit.FromStatus(err)))
		list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ScheduleId: "once"})
		require.NoError(t, err)
		require.Len(t, list.GetRuns(), 1)
	})
}

func TestSchedulesBackfillEachTimeAtMostOnce(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "fill", Cron: "0 3 * * *", TimeZone: "Europe/Berlin", Start: startOf("does")})
		span := func(from, to int, o executorv1.OverlapPolicy) *executorv1.BackfillScheduleRequest {
			return &executorv1.BackfillScheduleRequest{ScheduleId: "fill", Overlap: o,
				BeginTime: timestamppb.New(time.Date(2026, 1, from, 0, 0, 0, 0, time.UTC)), EndTime: timestamppb.New(time.Date(2026, 1, to, 0, 0, 0, 0, time.UTC))}
		}
		first, err := f.schedules.BackfillSchedule(t.Context(), span(1, 11, 0))
		require.NoError(t, err)
		require.Len(t, first.GetStarts(), 10)
		runs := map[string]bool{}
		for i, st := range first.GetStarts() {
			require.Equal(t, "STARTED", st.GetResult(), st)
			require.Equal(t, time.Date(2026, 1, i+1, 2, 0, 0, 0, time.UTC), st.GetScheduleTime().AsTime())
			runs[st.GetRunId()] = true
		}
		require.Len(t, runs, 10)
		second, err := f.schedules.BackfillSchedule(t.Context(), span(6, 14, executorv1.OverlapPolicy_OVERLAP_POLICY_QUEUE_ALL))
		require.NoError(t, err)
		require.Len(t, second.GetStarts(), 8)
		for i, st := range second.GetStarts() {
			require.Equal(t, i < 5, runs[st.GetRunId()], "%d: %v", i, st)
		}
		testkit.Eventually(t, func() bool {
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ScheduleId: "fill"})
			require.NoError(t, err)
			return len(list.GetRuns()) == 13
		})
		for name, req := range map[string]*executorv1.BackfillScheduleRequest{
			"Backwards": span(5, 4, 0),
			"Future":    {ScheduleId: "fill", BeginTime: timestamppb.Now(), EndTime: timestamppb.New(time.Now().Add(time.Hour))},
		} {
			_, err := f.schedules.BackfillSchedule(t.Context(), req)
			require.Equal(t, "BACKFILL_SPAN_INVALID", errs.ReasonOf(grpckit.FromStatus(err)), name)
		}
	})
}

func TestSchedulesPauseCatchesUpWithinTheWindow(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "pause", Cron: "@every 1s", Paused: true, Start: startOf("does"), Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW})
		begin := time.Now()
		testkit.Eventually(t, func() bool { return time.Since(begin) > 2500*time.Millisecond })
		require.Empty(t, f.get(t, "pause").GetRecent())
		s, err := f.schedules.ResumeSchedule(t.Context(), &executorv1.ResumeScheduleRequest{ScheduleId: "pause", Note: "on"})
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(s.GetRecent()), 2)
		_, err = f.schedules.DeleteSchedule(t.Context(), &executorv1.DeleteScheduleRequest{ScheduleId: "pause", Etag: s.GetEtag()})
		require.NoError(t, err)
	})
}

func TestSchedulesStartFailsForGood(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		req := startOf("late")
		req.BusinessKey = "key"
		f.create(t, &executorv1.Schedule{Id: "key", Cron: neverCron, Start: req, Overlap: executorv1.OverlapPolicy_OVERLAP_POLICY_ALLOW})
		require.Equal(t, "STARTED", f.trigger(t, "key").GetResult())
		st := f.trigger(t, "key")
		require.Equal(t, "FAILED", st.GetResult())
		require.Contains(t, st.GetMessage(), "BUSINESS_KEY_IN_USE")
		f.doors["late"].pass()
	})
}

func TestSchedulesEtagGuardsChanges(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		s := f.create(t, &executorv1.Schedule{Id: "res", Cron: "@daily", Start: startOf("does"), Jitter: durationpb.New(time.Minute)})
		_, err := f.schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: s})
		require.Equal(t, "SCHEDULE_ALREADY_EXISTS", errs.ReasonOf(grpckit.FromStatus(err)))
		s.Cron, s.TimeZone = "0 5 * * *", "Asia/Tokyo"
		next, err := f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: s, UpdateMask: everything})
		require.NoError(t, err)
		require.Equal(t, 20, next.GetNextTimes()[0].AsTime().Hour())
		require.NotEqual(t, s.GetEtag(), next.GetEtag())
		_, err = f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: s, UpdateMask: everything})
		require.Equal(t, "ETAG_MISMATCH", errs.ReasonOf(grpckit.FromStatus(err)))
		_, err = f.schedules.DeleteSchedule(t.Context(), &executorv1.DeleteScheduleRequest{ScheduleId: "res", Etag: s.GetEtag()})
		require.Equal(t, "ETAG_MISMATCH", errs.ReasonOf(grpckit.FromStatus(err)))
		require.Equal(t, "res", f.get(t, "res").GetId())
	})
}

func TestSchedulesMaskChangesWhatItNames(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "res", Cron: "0 5 * * *", TimeZone: "Asia/Tokyo", Start: startOf("does"), Jitter: durationpb.New(time.Minute)})
		// Without an etag a mask changes what it names and nothing else.
		now := f.get(t, "res")
		masked, err := f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: &executorv1.Schedule{Id: "res", Note: "soon", TimeZone: "Mars/Olympus"},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"note", "jitter"}}})
		require.NoError(t, err)
		now.Note, now.Jitter, now.Etag, now.UpdateTime = "soon", nil, masked.GetEtag(), masked.GetUpdateTime()
		require.Empty(t, cmp.Diff(now, masked, protocmp.Transform()))
		// A mask that is absent names what is populated.
		masked, err = f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: &executorv1.Schedule{Id: "res", Paused: true}})
		require.NoError(t, err)
		require.Equal(t, []any{true, "soon", "0 5 * * *"}, []any{masked.GetPaused(), masked.GetNote(), masked.GetCron()})
		_, err = f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: &executorv1.Schedule{Id: "res"},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"nope", "skipped", "start.graph"}}})
		unknown := errs.From(grpckit.FromStatus(err))
		require.Equal(t, "UPDATE_MASK_INVALID", unknown.Reason)
		require.Len(t, unknown.Violations, 3)
		require.Equal(t, "nope: schedule has no such field", unknown.Violations[0].Message)
	})
}

func TestSchedulesUpdateCreatesWhereItMay(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		other := f.create(t, &executorv1.Schedule{Id: "other", Cron: "@daily", Start: startOf("does")})
		lone := &executorv1.UpdateScheduleRequest{Schedule: &executorv1.Schedule{Id: "lone", Cron: "@daily", Start: startOf("does")}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"cron"}}}
		_, err := f.schedules.UpdateSchedule(t.Context(), lone)
		require.Equal(t, "SCHEDULE_NOT_FOUND", errs.ReasonOf(grpckit.FromStatus(err)))
		lone.AllowMissing = true
		_, err = f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: &executorv1.Schedule{Id: "lone", Cron: "@daily", Start: startOf("does"), Etag: other.GetEtag()}, AllowMissing: true})
		require.Equal(t, "SCHEDULE_NOT_FOUND", errs.ReasonOf(grpckit.FromStatus(err)), "an etag is of a schedule that is there")
		made, err := f.schedules.UpdateSchedule(t.Context(), lone)
		require.NoError(t, err)
		require.NotNil(t, made.GetStart().GetGraph(), "a mask leaves nothing out of what is created")
		_, err = f.schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: &executorv1.Schedule{Id: "half", Cron: "@daily"}, AllowMissing: true})
		require.Equal(t, "schedule.start", errs.From(grpckit.FromStatus(err)).Violations[0].Field)
	})
}

func TestSchedulesInvalidOneIsRefusedWithAllFaults(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		bad := &executorv1.Schedule{Id: "bad", Cron: "61 * * * *", TimeZone: "Mars/Olympus", CatchupWindow: durationpb.New(0), Start: startOf("dose")}
		bad.Start.RequestId = "r"
		_, err := f.schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: bad})
		e := errs.From(grpckit.FromStatus(err))
		require.Equal(t, "SCHEDULE_INVALID", e.Reason)
		var fields []string
		for _, v := range e.Violations {
			fields = append(fields, v.Field)
		}
		require.Equal(t, []string{"schedule.catchup_window", "schedule.time_zone", "schedule.cron", "schedule.start.request_id", "schedule.start.graph.nodes[n].actor"}, fields)
		require.Contains(t, e.HintText(), "does")
		_, err = f.schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: "past", Cron: "@daily", Start: startOf("does"), EndTime: timestamppb.New(time.Unix(1, 0))}})
		require.Equal(t, "SCHEDULE_INVALID", errs.ReasonOf(grpckit.FromStatus(err)))
	})
}

func TestSchedulesListHasPages(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		f.create(t, &executorv1.Schedule{Id: "res", Cron: "@daily", Start: startOf("does")})
		for i := range 3 {
			f.create(t, &executorv1.Schedule{Id: fmt.Sprintf("zz-%d", i), Cron: "@daily", Start: startOf("does")})
		}
		var ids []string
		for token := ""; ; {
			page, err := f.schedules.ListSchedules(t.Context(), &executorv1.ListSchedulesRequest{PageSize: 2, PageToken: token})
			require.NoError(t, err)
			for _, s := range page.GetSchedules() {
				require.Nil(t, s.GetStart())
				ids = append(ids, s.GetId())
			}
			if token = page.GetNextPageToken(); token == "" {
				break
			}
		}
		require.IsIncreasing(t, ids)
		require.Subset(t, ids, []string{"res", "zz-0", "zz-1", "zz-2"})
	})
}

func TestSchedulesMissingOneIsNotFound(t *testing.T) {
	onSchedules(t, func(t *testing.T, f scheduling) {
		for _, err := range []error{
			func() error {
				_, err := f.schedules.DeleteSchedule(t.Context(), &executorv1.DeleteScheduleRequest{ScheduleId: "gone"})
				return err
			}(),
			func() error {
				_, err := f.schedules.TriggerSchedule(t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: "gone"})
				return err
			}(),
		} {
			require.Equal(t, "SCHEDULE_NOT_FOUND", errs.ReasonOf(grpckit.FromStatus(err)))
		}
	})
}
