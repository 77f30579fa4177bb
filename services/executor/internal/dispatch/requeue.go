package dispatch

import (
	"context"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// requeue is one of River's with another way to end the work on jobs.
type requeue[TTx any] struct {
	riverdriver.Driver[TTx]
}

// GetExecutor implements riverdriver.Driver.
func (d requeue[TTx]) GetExecutor() riverdriver.Executor { return executor{d.Driver.GetExecutor()} }

// executor lets a job come again only while no equal one waits. Jobs are unique while they wait and not while
// they are worked: one that is to come again may find that an equal one was inserted meanwhile. River's
// statement for a whole batch of jobs fails then, whenever it is repeated.
type executor struct {
	riverdriver.Executor
}

// JobSetStateIfRunningMany implements riverdriver.Executor. A failing batch is halved until the faulty jobs
// stand alone: one may have thousands, and jobs that were ended before ctx ends are not examined again one by
// one.
func (e executor) JobSetStateIfRunningMany(ctx context.Context, all *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	out, err := e.Executor.JobSetStateIfRunningMany(ctx, all)
	if _, equal := dbkit.UniqueViolation(err); !equal {
		return out, err
	}
	n := len(all.ID)
	if n <= 1 {
		// The equal job that waits does what this one was to do.
		now := time.Now()
		if all.Now != nil {
			now = *all.Now
		}
		one := part(all, 0, n)
		one.State, one.FinalizedAt, one.ScheduledAt = []rivertype.JobState{rivertype.JobStateCompleted}, []*time.Time{&now}, []*time.Time{nil}
		return e.Executor.JobSetStateIfRunningMany(ctx, one)
	}
	first, err := e.JobSetStateIfRunningMany(ctx, part(all, 0, n/2))
	if err != nil {
		return nil, err
	}
	second, err := e.JobSetStateIfRunningMany(ctx, part(all, n/2, n))
	if err != nil {
		return nil, err
	}
	return append(first, second...), nil
}

// part is the jobs of a batch from one index to before another.
func part(p *riverdriver.JobSetStateIfRunningManyParams, from, to int) *riverdriver.JobSetStateIfRunningManyParams {
	return &riverdriver.JobSetStateIfRunningManyParams{
		ID: p.ID[from:to:to], Attempt: p.Attempt[from:to:to], ErrData: p.ErrData[from:to:to], FinalizedAt: p.FinalizedAt[from:to:to],
		MetadataDoMerge: p.MetadataDoMerge[from:to:to], MetadataUpdates: p.MetadataUpdates[from:to:to],
		ScheduledAt: p.ScheduledAt[from:to:to], State: p.State[from:to:to], Now: p.Now, Schema: p.Schema,
	}
}
