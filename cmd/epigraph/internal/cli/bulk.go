package cli

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type runsBulkCancelCmd struct {
	runFilter
	Why string `help:"Reason, for the histories." short:"r"`
}

// Help gives examples.
func (runsBulkCancelCmd) Help() string {
	return `Shows the number of matching runs first and asks for confirmation.

    epigraph runs bulk-cancel --label release=1.4 --why 'wrong model'
    epigraph runs bulk-cancel --state waiting --before 72h --yes`
}

// Run cancels.
func (c *runsBulkCancelCmd) Run(e *env) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	return e.bulk(&c.runFilter, "cancel", func(ctx context.Context, s *services, dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error) {
		r, err := s.executor.BulkCancelRuns(ctx, &executorv1.BulkCancelRunsRequest{Filter: f, Reason: c.Why, Limit: c.Limit, DryRun: dry})
		return r.GetMatched(), r.GetFailures(), r.GetMore(), func() error {
			return e.print(r, func() string {
				return fmt.Sprintf("%s matched, %d asked to end\n", view.Plural(int(r.GetMatched()), "run"), r.GetDone())
			})
		}, err
	})
}

type runsBulkRetryCmd struct {
	runFilter
	AllowUnsafe bool `help:"Repeat UNSAFE attempts that were performed."`
	WithoutTask bool `help:"Work on no task, so that the cost is booked on the namespace only. Needed if the tasks of the old runs cannot be claimed."`
}

// Help gives examples.
func (runsBulkRetryCmd) Help() string {
	return `Retries failed runs (or the runs in --state). A run is retried once, also if the command is repeated. Shows the number of matching runs first and asks for confirmation.

    epigraph runs bulk-retry --after 2h --state-reason HTTP_STATUS
    epigraph runs bulk-retry --state failed,canceled --label batch=42 --yes`
}

// Run retries.
func (c *runsBulkRetryCmd) Run(e *env) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	return e.bulk(&c.runFilter, "retry", func(ctx context.Context, s *services, dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error) {
		r, err := s.executor.BulkRetryRuns(ctx, &executorv1.BulkRetryRunsRequest{Filter: f, Limit: c.Limit, DryRun: dry, AllowUnsafe: c.AllowUnsafe, WithoutTask: c.WithoutTask})
		return r.GetMatched(), r.GetFailures(), r.GetMore(), func() error {
			return e.print(r, func() string {
				out := fmt.Sprintf("%s matched, %d retried\n", view.Plural(int(r.GetMatched()), "run"), len(r.GetRunIds()))
				for _, id := range r.GetRunIds() {
					out += "  " + id + "\n"
				}
				return out
			})
		}, err
	})
}

type runsBulkDeleteCmd struct {
	runFilter
}

// Help gives examples.
func (runsBulkDeleteCmd) Help() string {
	return `Deletes ended runs only. Shows the number of matching runs first and asks for confirmation.

    epigraph runs bulk-delete --state completed --before 720h`
}

// Run deletes.
func (c *runsBulkDeleteCmd) Run(e *env) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	return e.bulk(&c.runFilter, "delete", func(ctx context.Context, s *services, dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error) {
		r, err := s.executor.BulkDeleteRuns(ctx, &executorv1.BulkDeleteRunsRequest{Filter: f, Limit: c.Limit, DryRun: dry})
		return r.GetMatched(), r.GetFailures(), r.GetMore(), func() error {
			return e.print(r, func() string {
				return fmt.Sprintf("%s matched, %d deleted\n", view.Plural(int(r.GetMatched()), "run"), r.GetDone())
			})
		}, err
	})
}

type runsBulkPauseCmd struct {
	runFilter
	Why string `help:"Reason, for the histories." short:"r"`
}

// Help gives an example.
func (runsBulkPauseCmd) Help() string {
	return `Shows the number of matching runs first and asks for confirmation.

    epigraph runs bulk-pause --workflow digest --why 'wrong model'`
}

// Run asks the runs to pause.
func (c *runsBulkPauseCmd) Run(e *env) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	return e.bulk(&c.runFilter, "pause", func(ctx context.Context, s *services, dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error) {
		r, err := s.executor.BulkPauseRuns(ctx, &executorv1.BulkPauseRunsRequest{Filter: f, Reason: c.Why, Limit: c.Limit, DryRun: dry})
		return r.GetMatched(), r.GetFailures(), r.GetMore(), func() error {
			return e.print(r, func() string {
				return fmt.Sprintf("%s matched, %d asked to pause\n", view.Plural(int(r.GetMatched()), "run"), r.GetDone())
			})
		}, err
	})
}

type runsBulkResumeCmd struct {
	runFilter
	Why string `help:"Reason, for the histories." short:"r"`
}

// Help gives an example.
func (runsBulkResumeCmd) Help() string {
	return `Shows the number of matching runs first and asks for confirmation.

    epigraph runs bulk-resume --state-reason CAP_REACHED --yes`
}

// Run asks the runs to resume.
func (c *runsBulkResumeCmd) Run(e *env) error {
	f, err := c.filter()
	if err != nil {
		return err
	}
	return e.bulk(&c.runFilter, "resume", func(ctx context.Context, s *services, dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error) {
		r, err := s.executor.BulkResumeRuns(ctx, &executorv1.BulkResumeRunsRequest{Filter: f, Reason: c.Why, Limit: c.Limit, DryRun: dry})
		return r.GetMatched(), r.GetFailures(), r.GetMore(), func() error {
			return e.print(r, func() string {
				return fmt.Sprintf("%s matched, %d asked to go on\n", view.Plural(int(r.GetMatched()), "run"), r.GetDone())
			})
		}, err
	})
}
