package rpc

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/fieldmask"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
)

// shownTimes is how many of the next times a schedule shows.
const shownTimes = 5

// Scheduled starts the runs of schedules at a server of runs.
type Scheduled struct{ *Server }

var _ schedule.Runs = Scheduled{}

// Start implements schedule.Runs.
func (s Scheduled) Start(ctx context.Context, x schedule.Schedule, st schedule.Start) (string, error) {
	ctx = grpckit.WithNamespace(ctx, x.Namespace)
	var req executorv1.StartRunRequest
	if err := proto.Unmarshal(x.Start, &req); err != nil {
		return "", errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "what is to be started cannot be read").With(err)
	}
	version, err := s.named(ctx, &req, x.ID)
	if err != nil {
		return "", err
	}
	leave, err := s.enterStart(ctx, &req, &req)
	if err != nil {
		return "", err
	}
	defer leave()
	start, err := s.startRequest(ctx, &req)
	if err != nil {
		return "", err
	}
	start.ID, start.ScheduleID, start.Principal, start.Lineage.Workflow = st.RunID, x.ID, st.Principal, version
	// This is the same for every try, so a changed schedule does not matter.
	start.Request = journal.Request{Method: "Schedule", ID: x.UID + "/" + strconv.FormatInt(st.Turn, 10), BodyHash: x.UID}
	id, _, err := s.engine.Start(ctx, start)
	if errs.ReasonOf(err) == journal.ReasonRunExists {
		// An earlier try whose fate is known by now.
		there, xerr := s.Exists(ctx, x.Namespace, st.RunID)
		if there || xerr != nil {
			return st.RunID, xerr
		}
		return "", errs.New(errs.Unavailable, errs.ReasonNotReady, "an earlier try came to nothing").With(err)
	}
	return id, graphFaults(err)
}

// Cancel implements schedule.Runs.
func (s Scheduled) Cancel(ctx context.Context, namespace, runID, reason string) error {
	_, err := s.engine.Cancel(ctx, command.CancelRequest{Namespace: namespace, RunID: runID, Reason: reason})
	if r := errs.ReasonOf(err); r == journal.ReasonRunNotFound || r == journal.ReasonRunEnded {
		return nil
	}
	return err
}

// Exists implements schedule.Runs.
func (s Scheduled) Exists(ctx context.Context, namespace, runID string) (bool, error) {
	_, err := s.reader.Head(ctx, namespace, runID)
	if errs.ReasonOf(err) == journal.ReasonRunNotFound {
		return false, nil
	}
	return err == nil, err
}

// check says what starting req would be refused for.
func (s Scheduled) check(ctx context.Context, req *executorv1.StartRunRequest) error {
	if req.GetWorkflow() != "" {
		req = proto.CloneOf(req) // what is kept names the workflow, which is looked up at each start
	}
	if _, err := s.named(ctx, req, ""); err != nil {
		return err
	}
	leave, err := s.enterStart(ctx, req, req)
	if err != nil {
		return err
	}
	defer leave()
	start, err := s.startRequest(ctx, req)
	if err != nil {
		return err
	}
	return graphFaults(s.engine.CheckStart(ctx, start))
}

// ScheduleServer answers epigraph.executor.v1.ScheduleService.
type ScheduleServer struct {
	executorv1.UnimplementedScheduleServiceServer
	controller *schedule.Controller
	runs       Scheduled
}

// NewScheduleServer returns a server of the schedules of a controller.
func NewScheduleServer(controller *schedule.Controller, runs Scheduled) *ScheduleServer {
	return &ScheduleServer{controller: controller, runs: runs}
}

func scheduleKey(ctx context.Context, id string) schedule.Key {
	return schedule.Key{Namespace: grpckit.Namespace(ctx), ID: id}
}

// spec decodes a message, with every fault of it, including those of the run to be started.
func (s *ScheduleServer) spec(ctx context.Context, m *executorv1.Schedule, fresh bool) (schedule.Spec, []byte, error) {
	out := schedule.Spec{
		Cron: m.GetCron(), Zone: m.GetTimeZone(), Overlap: schedule.Overlap(m.GetOverlap()), Catchup: m.GetCatchupWindow().AsDuration(), Jitter: m.GetJitter().AsDuration(),
		Begin: dbkit.Micros(instant(m.GetBeginTime())), End: dbkit.Micros(instant(m.GetEndTime())), Paused: m.GetPaused(), Note: m.GetNote(),
	}
	if m.GetCatchupWindow() != nil && out.Catchup == 0 {
		out.Catchup = time.Nanosecond // was said, and is too short
	}
	fault := out.Validate(errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "the schedule cannot be kept as it is"))
	if line, err := out.Timeline(""); err == nil && fresh && len(fault.Violations) == 0 && line.Next(dbkit.Now()).IsZero() {
		if out.End.IsZero() {
			fault = fault.Violate("schedule.begin_time", schedule.ReasonInvalid, "no time of the schedule comes between it and the year 9999")
		} else {
			fault = fault.Violate("schedule.end_time", schedule.ReasonInvalid, "no time of the schedule is left before it")
		}
	}
	req := m.GetStart()
	if req.GetRequestId() != "" {
		fault = fault.Violate("schedule.start.request_id", schedule.ReasonInvalid, "must be empty: a start is identified by the schedule and its time")
	}
	if req.GetWait() != nil {
		fault = fault.Violate("schedule.start.wait", schedule.ReasonInvalid, "must be empty: nobody waits for what a schedule starts")
	}
	if req.GetStartTime() != nil {
		fault = fault.Violate("schedule.start.start_time", schedule.ReasonInvalid, "must be empty: the schedule says when")
	}
	if req == nil {
		fault = fault.Violate("schedule.start", schedule.ReasonInvalid, "says what is started, and must be given")
	} else if err := s.runs.check(ctx, req); err != nil {
		if !errs.Is(err, errs.InvalidArgument) {
			return out, nil, err
		}
		e := errs.From(err)
		if e.HintText() != "" {
			fault = fault.Hint(e.HintText())
		}
		if len(e.Violations) == 0 {
			fault = fault.Violate("schedule.start", e.Reason, e.Message)
		}
		for _, v := range e.Violations {
			fault = fault.Violate("schedule.start."+v.Field, v.Reason, v.Message)
		}
	}
	if n := len(fault.Violations); n > 0 {
		first := fault.Violations[0]
		fault.Message = fmt.Sprintf("the schedule has a fault at %s: %s", first.Field, first.Message)
		if n > 1 {
			fault.Message = fmt.Sprintf("the schedule has %d faults, the first is at %s: %s", n, first.Field, first.Message)
		}
		return out, nil, fault
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return out, nil, fmt.Errorf("encode start: %w", err)
	}
	return out, body, nil
}

// free refuses to change the schedule of a trigger by itself. One that is not there is for others to tell.
func (s *ScheduleServer) free(ctx context.Context, id string) error {
	x, err := s.controller.Get(ctx, scheduleKey(ctx, id))
	switch {
	case errs.ReasonOf(err) == schedule.ReasonNotFound:
		return nil
	case err != nil:
		return away(err)
	}
	return ownedBy(&x)
}

func ownedBy(x *schedule.Schedule) error {
	if x.Trigger == "" {
		return nil
	}
	return errs.New(errs.FailedPrecondition, "SCHEDULE_OF_TRIGGER", "schedule %q is that of a trigger of a workflow, and changes with it", x.ID).
		Hint("change the workflow, or turn its triggers off: DeactivateTriggers")
}

// CreateSchedule implements the service.
func (s *ScheduleServer) CreateSchedule(ctx context.Context, req *executorv1.CreateScheduleRequest) (*executorv1.Schedule, error) {
	return s.create(ctx, req.GetSchedule())
}

func (s *ScheduleServer) create(ctx context.Context, m *executorv1.Schedule) (*executorv1.Schedule, error) {
	spec, body, err := s.spec(ctx, m, true)
	if err != nil {
		return nil, err
	}
	return s.answer(s.controller.Create(ctx, schedule.Schedule{Key: scheduleKey(ctx, m.GetId()), Spec: spec, Start: body}))
}

// GetSchedule implements the service.
func (s *ScheduleServer) GetSchedule(ctx context.Context, req *executorv1.GetScheduleRequest) (*executorv1.Schedule, error) {
	return s.answer(s.controller.Get(ctx, scheduleKey(ctx, req.GetScheduleId())))
}

// ListSchedules implements the service.
func (s *ScheduleServer) ListSchedules(ctx context.Context, req *executorv1.ListSchedulesRequest) (*executorv1.ListSchedulesResponse, error) {
	ns := grpckit.Namespace(ctx)
	pg, err := page.Parse(req.GetPageSize(), req.GetPageToken(), page.Query{Method: "ListSchedules", Parent: ns, Order: "id"})
	if err != nil {
		return nil, err
	}
	rows, err := s.controller.List(ctx, ns, pg.After.ID, pg.Limit+1)
	if err != nil {
		return nil, away(err)
	}
	rows, next := page.Cut(pg, rows, func(x schedule.Schedule) page.Cursor { return page.Cursor{CreateTime: x.CreateTime, ID: x.ID} })
	out := &executorv1.ListSchedulesResponse{NextPageToken: next}
	for i := range rows {
		m, err := scheduleMessage(&rows[i])
		if err != nil {
			return nil, err
		}
		out.Schedules = append(out.Schedules, m)
	}
	return out, nil
}

// scheduleFields are the fields of a schedule that an update may change.
var scheduleFields = []string{"cron", "time_zone", "start", "overlap", "catchup_window", "jitter", "begin_time", "end_time", "paused", "note"}

// updateTries is how often an update without an etag is tried again after a change by somebody else.
const updateTries = 5

// UpdateSchedule implements the service.
func (s *ScheduleServer) UpdateSchedule(ctx context.Context, req *executorv1.UpdateScheduleRequest) (*executorv1.Schedule, error) {
	m := req.GetSchedule()
	fields, err := fieldmask.Fields("schedule", m, req.GetUpdateMask(), scheduleFields)
	if err != nil {
		return nil, err
	}
	revision, err := scheduleEtag(m.GetEtag())
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		old, err := s.controller.Get(ctx, scheduleKey(ctx, m.GetId()))
		if errs.ReasonOf(err) == schedule.ReasonNotFound && req.GetAllowMissing() && revision == 0 {
			out, err := s.create(ctx, m)
			if errs.ReasonOf(err) == schedule.ReasonExists && try < updateTries {
				continue
			}
			return out, err
		}
		if err != nil {
			return nil, away(err)
		}
		out, err := s.change(ctx, &old, m, fields, revision)
		if errs.ReasonOf(err) == journal.ReasonEtagMismatch && revision == 0 && try < updateTries {
			continue
		}
		return out, err
	}
}

// change writes the named fields of m onto old. A revision other than 0 must be the present one.
func (s *ScheduleServer) change(ctx context.Context, old *schedule.Schedule, m *executorv1.Schedule, fields []string, revision int64) (*executorv1.Schedule, error) {
	if err := ownedBy(old); err != nil {
		return nil, err
	}
	into, err := scheduleWhole(old)
	if err != nil {
		return nil, err
	}
	fieldmask.Apply(into, proto.CloneOf(m), fields)
	if slices.Contains(fields, "start") && bare(into.GetStart()) {
		// A schedule that was read comes back without what is secret: that stays as it is.
		if _, err := keepSecrets(into.GetStart(), old.Start); err != nil {
			return nil, err
		}
	}
	spec, body, err := s.spec(ctx, into, false)
	if err != nil {
		return nil, err
	}
	if revision == 0 {
		revision = old.Revision
	}
	return s.answer(s.controller.Update(ctx, old.Key, revision, spec, body))
}

// DeleteSchedule implements the service.
func (s *ScheduleServer) DeleteSchedule(ctx context.Context, req *executorv1.DeleteScheduleRequest) (*emptypb.Empty, error) {
	revision, err := scheduleEtag(req.GetEtag())
	if err != nil {
		return nil, err
	}
	if err := s.free(ctx, req.GetScheduleId()); err != nil {
		return nil, err
	}
	if err := s.controller.Delete(ctx, scheduleKey(ctx, req.GetScheduleId()), revision); err != nil {
		return nil, away(err)
	}
	return &emptypb.Empty{}, nil
}

// PauseSchedule implements the service.
func (s *ScheduleServer) PauseSchedule(ctx context.Context, req *executorv1.PauseScheduleRequest) (*executorv1.Schedule, error) {
	if err := s.free(ctx, req.GetScheduleId()); err != nil {
		return nil, err
	}
	return s.answer(s.controller.Pause(ctx, scheduleKey(ctx, req.GetScheduleId()), req.GetNote()))
}

// ResumeSchedule implements the service.
func (s *ScheduleServer) ResumeSchedule(ctx context.Context, req *executorv1.ResumeScheduleRequest) (*executorv1.Schedule, error) {
	if err := s.free(ctx, req.GetScheduleId()); err != nil {
		return nil, err
	}
	return s.answer(s.controller.Resume(ctx, scheduleKey(ctx, req.GetScheduleId()), req.GetNote()))
}

// TriggerSchedule implements the service.
func (s *ScheduleServer) TriggerSchedule(ctx context.Context, req *executorv1.TriggerScheduleRequest) (*executorv1.TriggerScheduleResponse, error) {
	st, err := s.controller.Trigger(ctx, scheduleKey(ctx, req.GetScheduleId()), req.GetRequestId())
	if err != nil {
		return nil, away(err)
	}
	return &executorv1.TriggerScheduleResponse{Start: startMessage(st)}, nil
}

// BackfillSchedule implements the service.
func (s *ScheduleServer) BackfillSchedule(ctx context.Context, req *executorv1.BackfillScheduleRequest) (*executorv1.BackfillScheduleResponse, error) {
	overlap := schedule.Overlap(req.GetOverlap())
	if overlap == 0 {
		overlap = schedule.Allow
	}
	if overlap < schedule.Skip || overlap > schedule.Allow {
		return nil, errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "overlap %d is no policy", overlap).Violate("overlap", schedule.ReasonInvalid, "not a policy")
	}
	list, err := s.controller.Backfill(ctx, scheduleKey(ctx, req.GetScheduleId()), dbkit.Micros(instant(req.GetBeginTime())), dbkit.Micros(instant(req.GetEndTime())), overlap)
	if err != nil {
		return nil, away(err)
	}
	out := &executorv1.BackfillScheduleResponse{}
	for _, st := range list {
		out.Starts = append(out.Starts, startMessage(st))
	}
	return out, nil
}

func (s *ScheduleServer) answer(x schedule.Schedule, err error) (*executorv1.Schedule, error) {
	if err != nil {
		return nil, away(err)
	}
	return scheduleMessage(&x)
}

// scheduleMessage is a schedule as callers see it, without what is secret.
func scheduleMessage(x *schedule.Schedule) (*executorv1.Schedule, error) {
	m, err := scheduleWhole(x)
	if err != nil {
		return nil, err
	}
	conceal(m.GetStart())
	next, err := x.Next(shownTimes)
	if err != nil {
		return nil, err
	}
	for _, t := range next {
		m.NextTimes = append(m.NextTimes, stamp(t))
	}
	for _, st := range x.Recent {
		m.Recent = append(m.Recent, startMessage(st))
	}
	return m, nil
}

// scheduleWhole is what a schedule says, secrets included.
func scheduleWhole(x *schedule.Schedule) (*executorv1.Schedule, error) {
	m := &executorv1.Schedule{
		Id: x.ID, Cron: x.Cron, TimeZone: x.Zone, Overlap: executorv1.OverlapPolicy(x.Overlap), CatchupWindow: durationpb.New(x.Catchup),
		BeginTime: stamp(x.Begin), EndTime: stamp(x.End), Paused: x.Paused, Note: x.Note, CreateTime: stamp(x.CreateTime), UpdateTime: stamp(x.UpdateTime),
		Etag: etag(x.Revision), Skipped: x.Skipped, Principal: x.Principal, TriggerId: x.Trigger,
	}
	if x.Jitter > 0 {
		m.Jitter = durationpb.New(x.Jitter)
	}
	if len(x.Start) > 0 {
		m.Start = &executorv1.StartRunRequest{}
		if err := proto.Unmarshal(x.Start, m.Start); err != nil {
			return nil, fmt.Errorf("decode start of schedule %s: %w", x.ID, err)
		}
	}
	return m, nil
}

func startMessage(st schedule.Start) *executorv1.ScheduleStart {
	m := &executorv1.ScheduleStart{ScheduleTime: stamp(st.Time), ActualTime: stamp(st.Actual), Result: string(st.Result), Message: st.Message, Principal: st.Principal}
	if st.Result == schedule.Started {
		m.RunId = st.RunID
	}
	return m
}

// scheduleEtag is the revision that an etag names, 0 for none.
func scheduleEtag(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	text, err := strconv.Unquote(s)
	if n, nerr := strconv.ParseInt(text, 10, 64); err == nil && nerr == nil && n > 0 && strings.HasPrefix(s, `"`) {
		return n, nil
	}
	return 0, errs.New(errs.Conflict, journal.ReasonEtagMismatch, "etag %s is not one that the schedule can have", s).
		Hint("read the schedule again and use its etag").Violate("etag", ReasonEtagInvalid, "not an etag of a schedule")
}
