package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/dispatch"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/schedule"
	schedulepg "github.com/epigraph-run/epigraph/services/executor/internal/schedule/pg"
	schedulesqlite "github.com/epigraph-run/epigraph/services/executor/internal/schedule/sqlite"
)

// firingTimeout bounds the work of one job about a schedule: an interrupted backfill has many runs to start.
const firingTimeout = 2 * time.Minute

// openSchedules opens the schedules that are kept beside j. Where they share its connections they have its
// turns.
func openSchedules(ctx context.Context, cfg Config, j journal.Journal, turns *dbkit.Turns, tel *obs.Telemetry) (schedule.Store, error) {
	if s, ok := j.(*sqlite.Store); ok {
		return schedule.Fair(schedulesqlite.New(s), turns), nil
	}
	s, err := schedulepg.Open(ctx, cfg.PostgresURL.Reveal(), tel.TracerProvider)
	if err != nil {
		return nil, fmt.Errorf("open schedules of executor: %w", err)
	}
	return schedule.Fair(s, dbkit.NewTurns(schedulepg.Conns)), nil
}

// lookAfter works a job about a schedule.
func (s *Service) lookAfter(ctx context.Context, j dispatch.Job) error {
	var args journal.ScheduleArgs
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return dispatch.Never(fmt.Errorf("decode job: %w", err))
	}
	// The job comes early, the database's clock may be ahead of ours, and times are decided by ours.
	early := time.Until(args.Due)
	if early > 2*journal.ScheduleEarly {
		return dispatch.Later(early - journal.ScheduleEarly)
	}
	if early > 0 {
		if !sleep.For(ctx, early) {
			return dispatch.Later(0)
		}
	}
	err := s.schedules.Fire(ctx, schedule.Key{Namespace: args.Namespace, ID: args.ScheduleID})
	if errs.ReasonOf(err) == schedule.ReasonNotFound {
		return nil
	}
	return err
}
