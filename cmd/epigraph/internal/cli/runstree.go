package cli

import (
	"context"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

type runsTreeCmd struct {
	ID    string `arg:"" help:"The run."`
	Limit int    `help:"Show this many runs." default:"100" short:"l"`
}

// Help says what the amounts include.
func (runsTreeCmd) Help() string {
	return `A visit is shown with what it cost itself, and a run with the sum (Σ) of its visits and of the runs below
it. Of each run up to 1,000 visits are shown. With --json it prints each run and then its visits, one per line.

    epigraph runs tree run_01…`
}

// maxTreeVisits is how many visits of one run a tree shows.
const maxTreeVisits = 1000

// Run shows a run and all that is below it.
func (c *runsTreeCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, _, err := e.settled(s, c.ID)
		if err != nil {
			return err
		}
		left := max(c.Limit, 1) - 1
		t, err := c.tree(ctx, s, r, &left)
		if err != nil {
			return err
		}
		if e.json {
			return printTree(e, t)
		}
		if err := e.say(t.Text(e.io.style())); err != nil {
			return err
		}
		e.noteUnbooked(r)
		return nil
	})
}

// tree reads what is below a run. left is how many more runs may be read.
func (c *runsTreeCmd) tree(ctx context.Context, s *services, r *executorv1.Run, left *int) (*view.RunTree, error) {
	t := &view.RunTree{Run: r}
	visits, err := s.executor.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: r.GetId(), PageSize: maxTreeVisits})
	if err != nil {
		return nil, err
	}
	t.Visits, t.More = visits.GetVisits(), visits.GetNextPageToken() != ""
	if r.GetUsage().GetCalls() > 0 {
		t.Booked, _ = usageOf(ctx, s, r.GetId()) // the sums of the runs stand without them
	}
	for token := ""; ; {
		page, err := s.executor.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: r.GetId(), PageSize: 1000, PageToken: token})
		if err != nil {
			return nil, err
		}
		for _, child := range page.GetRuns() {
			if *left <= 0 {
				t.More = true
				break
			}
			*left--
			// Lists do not have all that is booked.
			child, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: child.GetId()})
			if err != nil {
				return nil, err
			}
			below, err := c.tree(ctx, s, child, left)
			if err != nil {
				return nil, err
			}
			t.Below = append(t.Below, below)
		}
		if token = page.GetNextPageToken(); token == "" || *left <= 0 {
			t.More = t.More || token != ""
			break
		}
	}
	t.SortBelow()
	return t, nil
}

// printTree prints runs and visits as JSON, one per line.
func printTree(e *env, t *view.RunTree) error {
	if err := printJSON(e.io.Out, t.Run); err != nil {
		return err
	}
	for _, v := range t.Visits {
		if err := printJSON(e.io.Out, v); err != nil {
			return err
		}
	}
	for _, b := range t.Below {
		if err := printTree(e, b); err != nil {
			return err
		}
	}
	return nil
}
