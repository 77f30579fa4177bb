package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// maxEpicTasks is of how many tasks the runs of an epic are gathered: each task is a request.
	maxEpicTasks = 1000
	// tasksAtOnce is how many of these requests are under way at once.
	tasksAtOnce = 8
	// maxPage is how many runs one page may have, usualPage how many it has when nothing is said; both are
	// the server's.
	maxPage, usualPage = 1000, 50
)

// runsOfEpic is one page of the runs for the tasks of an epic, newest first. The executor knows the task of a
// run and not its epic, so that it is asked for each task. A page token is the time before which the next
// page begins.
func runsOfEpic(ctx context.Context, s *services, epic string, req *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error) {
	if req.GetPageSize() < 0 {
		return s.executor.ListRuns(ctx, req) // which refuses it
	}
	if token := req.GetPageToken(); token != "" {
		before, err := time.Parse(time.RFC3339Nano, token)
		if err != nil {
			return nil, usage(errs.New(errs.InvalidArgument, "PAGE_TOKEN_INVALID", "--page-token: %.80q is not from a list of an epic's runs", token).
				Hint("take the token that the page before printed, with the same --epic"))
		}
		req.PageToken = ""
		if req.GetCreatedBefore() == nil || before.Before(req.GetCreatedBefore().AsTime()) {
			req.CreatedBefore = timestamppb.New(before)
		}
	}
	tasks, err := tasksOfEpic(ctx, s, epic)
	if err != nil {
		return nil, err
	}
	size := usualPage
	if n := int(req.GetPageSize()); n > 0 {
		size = min(n, maxPage)
	}
	req.PageSize = int32(size)
	pages := make([]*executorv1.ListRunsResponse, len(tasks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(tasksAtOnce)
	for i, t := range tasks {
		g.Go(func() (err error) {
			of := proto.CloneOf(req)
			of.TaskId = t.GetId()
			pages[i], err = s.executor.ListRuns(ctx, of)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return newest(pages, size), nil
}

// tasksOfEpic are all tasks of an epic that is there.
func tasksOfEpic(ctx context.Context, s *services, epic string) ([]*registryv1.Task, error) {
	r, err := s.registry.ListTasks(ctx, &registryv1.ListTasksRequest{EpicId: epic, PageSize: maxEpicTasks})
	switch {
	case err != nil:
		return nil, err
	case r.GetNextPageToken() != "":
		return nil, errs.New(errs.FailedPrecondition, "EPIC_TOO_LARGE", "the epic has more than %s tasks, whose runs are not listed together", view.Count(maxEpicTasks)).
			Hint("name one of them: `epigraph runs ls --task ID`")
	case len(r.GetTasks()) == 0:
		_, err = s.registry.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: epic})
	}
	return r.GetTasks(), err
}

// newest merges the first pages of several lists, each newest first and at least as long as the page, into
// one page. Runs of one instant stay on one page, since the next one begins before it.
func newest(pages []*executorv1.ListRunsResponse, size int) *executorv1.ListRunsResponse {
	out := &executorv1.ListRunsResponse{}
	more := false
	for _, p := range pages {
		out.Runs = append(out.Runs, p.GetRuns()...)
		more = more || p.GetNextPageToken() != ""
	}
	created := func(i int) time.Time { return out.GetRuns()[i].GetCreateTime().AsTime() }
	slices.SortFunc(out.GetRuns(), func(a, b *executorv1.Run) int {
		return cmp.Or(b.GetCreateTime().AsTime().Compare(a.GetCreateTime().AsTime()), strings.Compare(b.GetId(), a.GetId()))
	})
	n := min(size, len(out.GetRuns()))
	for n > 0 && n < len(out.GetRuns()) && created(n).Equal(created(n-1)) {
		n++
	}
	if n > 0 && (more || n < len(out.GetRuns())) {
		out.NextPageToken = created(n - 1).Format(time.RFC3339Nano)
	}
	out.Runs = out.GetRuns()[:n]
	return out
}
