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

// executor lets a job come again only while no equal one waits. Jobs are unique while they wait and not while they are worked: one that
// is to come again may find that an equal one was inserted meanwhile. River's statement for a whole batch of jobs fails then, whenever it is repeated.
type executor struct {
	riverdriver.Executor
}

// JobSetStateIfRunningMany implements riverdriver.Executor.
func (e executor) JobSetStateIfRunningMany(ctx context.Context, all *riverdriver.JobSetStateIfRunningManyParams) ([]*rivertype.JobRow, error) {
	out, err := e.Executor.JobSetStateIfRunningMany(ctx, all)
	if _, equal := dbkit.UniqueViolation(err); !equal {
		return out, err
	}
	out = nil
	for i := range all.ID {
		one := single(all, i)
		rows, err := e.Executor.JobSetStateIfRunningMany(ctx, one)
		if _, equal := dbkit.UniqueViolation(err); equal {
			// The equal job that waits does what this one was to do.
			now := time.Now()
			if all.Now != nil {
				now = *all.Now
			}
			one.State[0], one.FinalizedAt[0], one.ScheduledAt[0] = rivertype.JobStateCompleted, &now, nil
			rows, err = e.Executor.JobSetStateIfRunningMany(ctx, one)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// single is one of the jobs of a batch.
func single(p *riverdriver.JobSetStateIfRunningManyParams, i int) *riverdriver.JobSetStateIfRunningManyParams {
	return &riverdriver.JobSetStateIfRunningManyParams{
		ID: p.ID[i : i+1 : i+1], Attempt: p.Attempt[i : i+1 : i+1], ErrData: p.ErrData[i : i+1 : i+1], FinalizedAt: []*time.Time{p.FinalizedAt[i]},
		MetadataDoMerge: p.MetadataDoMerge[i : i+1 : i+1], MetadataUpdates: p.MetadataUpdates[i : i+1 : i+1],
		ScheduledAt: []*time.Time{p.ScheduledAt[i]}, State: []rivertype.JobState{p.State[i]}, Now: p.Now, Schema: p.Schema,
	}
}
