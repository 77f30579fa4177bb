package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

type runsReviseCmd struct {
	ID   string `arg:"" help:"The run."`
	Goal string `arg:"" help:"What the run is to achieve."`
	authorFlags
	DryRun    bool   `help:"Show the difference only; change nothing."`
	Yes       bool   `help:"Do not ask." short:"y"`
	By        string `help:"Name of the person who changes it, for the history." placeholder:"NAME"`
	RequestID string `help:"Make the change repeatable: the same id changes once." placeholder:"ID"`
}

// Help says what stays.
func (runsReviseCmd) Help() string {
	return `A model of the server is shown the results so far and the tasks that have not begun, and writes anew what is left. Visits that have begun stay as they are. The difference is shown first, as by ` + "`epigraph runs amend`" + `. Pause the run before, so that nothing begins in the meantime: a change for an older graph is refused.

    epigraph runs pause run_01…
    epigraph runs revise run_01… "Fly to Oslo" --about "There is a strike: take the train."
    epigraph runs resume run_01…`
}

// Run asks the model, shows and amends.
func (c *runsReviseCmd) Run(e *env) error {
	if !c.DryRun && !c.Yes {
		if err := e.askable("change the run?"); err != nil { // before a model is paid
			return err
		}
	}
	limits, err := c.limits()
	if err != nil {
		return err
	}
	about, err := c.about(e)
	if err != nil {
		return err
	}
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := c.asking(e)
	defer cancel()
	tools, err := c.authorFlags.tools(ctx, e, s)
	if err != nil {
		return err
	}
	req := &plannerv1.RevisePlanRequest{
		Goal: c.Goal, Context: about, Tools: tools, Profile: c.Profile, DefaultActor: c.Actor, Named: payloads(c.Common), Limits: limits,
	}
	if err := c.describe(ctx, s, req); err != nil {
		return err
	}
	r, err := s.planner.RevisePlan(ctx, req)
	if err != nil {
		return err
	}
	if !e.json {
		e.authored(r.GetAuthoring())
	}
	change := r.GetAmendment()
	switch {
	case change == nil && e.json:
		if err := printJSON(e.io.Out, r); err != nil {
			return err
		}
		return exit(exitFailed)
	case change == nil:
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), "the answer", r.GetText(), r.GetPlan().GetDiagnostics()))
		return exit(exitFailed)
	}
	change.DryRun, change.By, change.RequestId = true, c.By, c.RequestID
	diff, err := s.executor.AmendRun(ctx, change)
	if err != nil {
		return err
	}
	return e.amend(s, change, diff, c.DryRun, c.Yes, false)
}

// describe reads how far the run has come: its graph, and the last visit of each node.
func (c *runsReviseCmd) describe(ctx context.Context, s *services, req *plannerv1.RevisePlanRequest) error {
	run, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: c.ID})
	if err != nil {
		return err
	}
	g, err := s.executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: c.ID})
	if err != nil {
		return err
	}
	req.RunId, req.ExpectedRevision, req.Graph = c.ID, run.GetGraphRevision(), g.GetGraph()
	last := map[string]int{}
	for token := ""; ; {
		page, err := s.executor.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: c.ID, PageSize: visitsPage, PageToken: token})
		if err != nil {
			return err
		}
		for _, v := range page.GetVisits() {
			short := &executorv1.Visit{NodeId: v.GetNodeId(), State: v.GetState(), Attempts: v.GetAttempts(), Error: v.GetError()}
			for _, value := range v.GetValues() {
				short.Values = append(short.Values, clipped(value))
			}
			if at, ok := last[v.GetNodeId()]; ok {
				req.Visits[at] = short
				continue
			}
			last[v.GetNodeId()] = len(req.Visits)
			req.Visits = append(req.Visits, short)
		}
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

const (
	// visitsPage is how many visits are read at once, and maxShown how much of a value the model is shown at
	// most, in bytes.
	visitsPage = 200
	maxShown   = 8 << 10
)

// clipped is a value, or the start of a large one as a text.
func clipped(p *graphv1.Payload) *graphv1.Payload {
	if len(p.GetJson()) <= maxShown {
		return p
	}
	text, err := json.Marshal(errs.Clip(string(p.GetJson()), maxShown))
	if err != nil {
		return &graphv1.Payload{} // a text always marshals
	}
	return &graphv1.Payload{Json: text}
}
