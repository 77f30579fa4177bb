package epigraph

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Schedule is a schedule by its id, which starts runs by the clock. It holds no connection of its own.
type Schedule struct {
	// ID is the id that its maker chose.
	ID string
	c  *Client
}

// ScheduleOption says more about a schedule that is to be. Its errors are those of CreateSchedule.
type ScheduleOption func(*executorv1.Schedule) error

// TimeZone sets the zone that cron fields mean, such as "Europe/Berlin"; the default is UTC.
func TimeZone(name string) ScheduleOption {
	return func(s *executorv1.Schedule) error { s.TimeZone = name; return nil }
}

// Overlap decides about a time at which a run of the schedule is still open; by default the time is skipped.
func Overlap(policy executorv1.OverlapPolicy) ScheduleOption {
	return func(s *executorv1.Schedule) error { s.Overlap = policy; return nil }
}

// CatchUp is how late a start may be made up for; a minute without it.
func CatchUp(window time.Duration) ScheduleOption {
	return func(s *executorv1.Schedule) error { s.CatchupWindow = durationpb.New(window); return nil }
}

// Jitter puts starts off by a part of it, so that many schedules of one time do not start at once.
func Jitter(most time.Duration) ScheduleOption {
	return func(s *executorv1.Schedule) error { s.Jitter = durationpb.New(most); return nil }
}

// Between bounds the times of a schedule; a zero time does not.
func Between(begin, end time.Time) ScheduleOption {
	return func(s *executorv1.Schedule) error {
		if !begin.IsZero() {
			s.BeginTime = timestamppb.New(begin)
		}
		if !end.IsZero() {
			s.EndTime = timestamppb.New(end)
		}
		return nil
	}
}

// Paused makes a schedule that starts nothing until it is resumed.
func Paused(note string) ScheduleOption {
	return func(s *executorv1.Schedule) error { s.Paused, s.Note = true, note; return nil }
}

// Starting sets options of the runs, as for StartRun. RequestID is not allowed: a start is identified by the
// schedule and its time.
func Starting(opts ...StartOption) ScheduleOption {
	return func(s *executorv1.Schedule) error {
		for _, f := range opts {
			if err := f(s.GetStart()); err != nil {
				return err
			}
		}
		return nil
	}
}

// CreateSchedule creates a schedule that starts a graph at the times of a cron line, "@daily" and the like,
// or "@every 15m".
func (c *Client) CreateSchedule(ctx context.Context, id, cron string, g *workgraph.Graph, opts ...ScheduleOption) (*Schedule, error) {
	req, err := c.startRequest(g, nil)
	if err != nil {
		return nil, err
	}
	s := &executorv1.Schedule{Id: id, Cron: cron, Start: req}
	for _, f := range opts {
		if err := f(s); err != nil {
			return nil, err
		}
	}
	if _, err := c.schedules().CreateSchedule(ctx, &executorv1.CreateScheduleRequest{Schedule: s}); err != nil {
		return nil, err
	}
	return c.Schedule(id), nil
}

// Schedule is the schedule of that id; nothing is asked.
func (c *Client) Schedule(id string) *Schedule { return &Schedule{ID: id, c: c} }

func (c *Client) schedules() executorv1.ScheduleServiceClient {
	return executorv1.NewScheduleServiceClient(c.conn)
}

// Schedules are those of the namespace, by id, without what they start. An error is the last pair.
func (c *Client) Schedules(ctx context.Context) iter.Seq2[*executorv1.Schedule, error] {
	return all(func(token string) ([]*executorv1.Schedule, string, error) {
		m, err := c.schedules().ListSchedules(ctx, &executorv1.ListSchedulesRequest{PageSize: largePage, PageToken: token})
		return m.GetSchedules(), m.GetNextPageToken(), err
	})
}

// Get reads the schedule with its next times and its last starts.
func (s *Schedule) Get(ctx context.Context) (*executorv1.Schedule, error) {
	return s.c.schedules().GetSchedule(ctx, &executorv1.GetScheduleRequest{ScheduleId: s.ID})
}

// Update reads the schedule, lets change alter it, and writes it. If somebody changed it meanwhile the reason
// is ETAG_MISMATCH.
func (s *Schedule) Update(ctx context.Context, change func(*executorv1.Schedule)) (*executorv1.Schedule, error) {
	m, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	change(m)
	return s.c.schedules().UpdateSchedule(ctx, &executorv1.UpdateScheduleRequest{Schedule: m, UpdateMask: &fieldmaskpb.FieldMask{Paths: everything}})
}

// Pause lets the schedule start nothing; note says why.
func (s *Schedule) Pause(ctx context.Context, note string) error {
	_, err := s.c.schedules().PauseSchedule(ctx, &executorv1.PauseScheduleRequest{ScheduleId: s.ID, Note: note})
	return err
}

// Resume ends a pause. Times that passed meanwhile are made up for as far as the schedule says.
func (s *Schedule) Resume(ctx context.Context, note string) error {
	_, err := s.c.schedules().ResumeSchedule(ctx, &executorv1.ResumeScheduleRequest{ScheduleId: s.ID, Note: note})
	return err
}

// Trigger starts a run now. The start may wait for an open run: then it has no run yet.
func (s *Schedule) Trigger(ctx context.Context) (*executorv1.ScheduleStart, error) {
	m, err := s.c.schedules().TriggerSchedule(ctx, &executorv1.TriggerScheduleRequest{ScheduleId: s.ID})
	return m.GetStart(), err
}

// Backfill starts runs for the past times from begin on and before end, each at most once. More than 1,000
// times in one call are refused. Runs may overlap unless the policy says otherwise.
func (s *Schedule) Backfill(ctx context.Context, begin, end time.Time, policy executorv1.OverlapPolicy) ([]*executorv1.ScheduleStart, error) {
	m, err := s.c.schedules().BackfillSchedule(ctx, &executorv1.BackfillScheduleRequest{
		ScheduleId: s.ID, BeginTime: timestamppb.New(begin), EndTime: timestamppb.New(end), Overlap: policy})
	return m.GetStarts(), err
}

// Delete removes the schedule; its runs go on.
func (s *Schedule) Delete(ctx context.Context) error {
	_, err := s.c.schedules().DeleteSchedule(ctx, &executorv1.DeleteScheduleRequest{ScheduleId: s.ID})
	return err
}
