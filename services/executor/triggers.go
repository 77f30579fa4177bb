package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	triggerpg "github.com/epigraph-run/epigraph/services/executor/internal/trigger/pg"
	triggersqlite "github.com/epigraph-run/epigraph/services/executor/internal/trigger/sqlite"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// followEvery is how often an executor looks whether activated workflows stand for another version, and
	// followTime bounds one look.
	followEvery, followTime = time.Minute, 20 * time.Second
)

// openTriggers opens the triggers that are kept beside j. Where they share its connections they have its
// turns.
func openTriggers(ctx context.Context, cfg Config, j journal.Journal, turns *dbkit.Turns, tel *obs.Telemetry) (trigger.Store, error) {
	if s, ok := j.(*sqlite.Store); ok {
		return trigger.Fair(triggersqlite.New(s), turns), nil
	}
	s, err := triggerpg.Open(ctx, cfg.PostgresURL.Reveal(), tel.TracerProvider)
	if err != nil {
		return nil, fmt.Errorf("open triggers of executor: %w", err)
	}
	return trigger.Fair(s, dbkit.NewTurns(triggerpg.Conns)), nil
}

// assembleStarters makes what starts runs by itself: schedules and triggers.
func (s *Service) assembleStarters(cfg Config, d Deps, st stores) (err error) {
	clock := &rpc.Clock{Scheduled: rpc.Scheduled{Server: s.server}}
	if s.schedules, err = schedule.New(st.schedules, clock, cfg.MaxSchedules, s.log, d.Telemetry.MeterProvider); err != nil {
		return fmt.Errorf("make controller of schedules: %w", err)
	}
	deps := trigger.Deps{Store: st.triggers, Runs: rpc.Triggered{Server: s.server}, Schedules: clockwork{s.schedules}, Computing: d.Computing, Logger: s.log, Meters: d.Telemetry.MeterProvider}
	if st.catalog != nil {
		deps.Catalog = rpc.TriggerCatalog{Catalog: st.catalog}
	}
	if d.Registry != nil {
		deps.Feed = rpc.NewFeed(d.Registry)
	}
	if s.triggers, err = trigger.New(cfg.Triggers, deps); err != nil {
		return fmt.Errorf("make controller of triggers: %w", err)
	}
	clock.Triggers = s.triggers
	s.listener = trigger.NewListener(s.triggers, func(ctx context.Context) (bool, error) { return s.first(ctx, cfg) })
	s.scheduleServer = rpc.NewScheduleServer(s.schedules, clock.Scheduled)
	s.triggerServer = rpc.NewTriggerServer(s.triggers)
	return nil
}

// workTrigger works a job about a delivery, or about the end of a run.
func (s *Service) workTrigger(ctx context.Context, j dispatch.Job) error {
	var args journal.TriggerArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return dispatch.Never(fmt.Errorf("decode job: %w", err))
	}
	pause, err := s.triggers.Work(ctx, args)
	if err == nil && pause > 0 {
		return dispatch.Later(pause)
	}
	return err
}

// followTriggers looks at what activated workflows stand for now.
func (s *Service) followTriggers(ctx context.Context, _ dispatch.Job) error {
	ctx, stop := context.WithTimeout(ctx, followTime)
	defer stop()
	if err := s.triggers.Follow(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// clockwork keeps the schedules of cron triggers.
type clockwork struct{ *schedule.Controller }

var _ trigger.Schedules = clockwork{}

func specOf(x *workflow.Trigger) schedule.Spec {
	overlaps := map[string]schedule.Overlap{
		"skip": schedule.Skip, "queue_one": schedule.QueueOne, "queue_all": schedule.QueueAll, "cancel_other": schedule.CancelOther, "allow": schedule.Allow,
	}
	return schedule.Spec{Cron: x.Cron, Zone: x.Timezone, Overlap: overlaps[x.Overlap]}
}

// Check implements trigger.Schedules.
func (clockwork) Check(x *workflow.Trigger) error {
	spec := specOf(x)
	if fault := spec.Validate(errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "the times cannot be used")); len(fault.Violations) > 0 {
		return fault
	}
	return nil
}

// Put implements trigger.Schedules. The schedule has the id of the trigger.
func (c clockwork) Put(ctx context.Context, t *trigger.Trigger) error {
	spec := specOf(&t.Spec)
	if fault := spec.Validate(errs.New(errs.InvalidArgument, schedule.ReasonInvalid, "the times cannot be used")); len(fault.Violations) > 0 {
		return fault
	}
	spec.Trigger = t.ID
	spec.Note = "trigger " + t.Spec.ID + " of workflow " + t.Workflow
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(&executorv1.StartRunRequest{Workflow: t.Ref()})
	if err != nil {
		return fmt.Errorf("encode start: %w", err)
	}
	k := schedule.Key{Namespace: t.Namespace, ID: t.ID}
	have, err := c.Get(ctx, k)
	switch {
	case errs.ReasonOf(err) == schedule.ReasonNotFound:
		if _, err = c.Create(ctx, schedule.Schedule{Key: k, Spec: spec, Start: body}); errs.ReasonOf(err) == schedule.ReasonExists {
			return nil // by another executor at the same time, of the same trigger
		}
		return err
	case err != nil:
		return err
	case have.Spec == spec && bytes.Equal(have.Start, body):
		return nil
	}
	_, err = c.Update(ctx, k, 0, spec, body)
	return err
}

// Remove implements trigger.Schedules.
func (c clockwork) Remove(ctx context.Context, k trigger.Key) error {
	err := c.Delete(ctx, schedule.Key(k), 0)
	if errs.ReasonOf(err) == schedule.ReasonNotFound {
		return nil
	}
	return err
}
