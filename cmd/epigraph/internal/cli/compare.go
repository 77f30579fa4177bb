package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

type runsCompareCmd struct {
	A     string `arg:"" help:"The run; with two runs the earlier one."`
	B     string `arg:"" optional:"" help:"The run that A is compared with. Without it A is a fork, and is compared with the run of which it is one."`
	All   bool   `help:"List visits that do not differ, too."`
	Limit int32  `help:"Show this many visits." default:"50" short:"l"`
	Token string `help:"Token of the wanted page, as the page before printed it." name:"page-token" placeholder:"TOKEN"`
}

// Help gives examples.
func (runsCompareCmd) Help() string {
	return `Shows what makes B of A: graph, input, visits with their results and times, cost, and the first visit that differs. The exit code is 0 whether they differ or not.

    epigraph runs compare run_01…            # a fork or a retry with its origin
    epigraph runs compare run_01… run_02…
    epigraph runs compare run_01… run_02… --json`
}

// Run compares.
func (c *runsCompareCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		req := &executorv1.CompareRunsRequest{RunId: c.A, AllVisits: c.All, PageSize: c.Limit, PageToken: c.Token}
		if c.B != "" {
			req.RunId, req.BaseRunId = c.B, c.A
		}
		r, err := s.executor.CompareRuns(ctx, req)
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string { return comparison(e, r) })
	})
}

// comparison shows how two runs differ. A page after the first has only visits.
func comparison(e *env, r *executorv1.CompareRunsResponse) string {
	var b strings.Builder
	style := e.io.style()
	if r.GetRun() != nil {
		var rows [][]string
		for _, x := range []struct {
			side string
			run  *executorv1.Run
		}{{"A", r.GetBase()}, {"B", r.GetRun()}} {
			n, took := x.run.GetNodes(), ""
			if x.run.GetStartTime() != nil && x.run.GetEndTime() != nil {
				took = view.Took(x.run.GetEndTime().AsTime().Sub(x.run.GetStartTime().AsTime()))
			}
			rows = append(rows, []string{x.side, x.run.GetId(), view.Word(x.run.GetState().String(), "RUN_STATE_"), view.OneLine(x.run.GetGraphName(), 30),
				fmt.Sprintf("%d/%d", n.GetCompleted(), n.GetTotal()), took, cost(x.run.GetUsage())})
		}
		b.WriteString(view.Table(style, []string{"", "RUN", "STATE", "GRAPH", "NODES", "TOOK", "COST"}, rows))
		b.WriteString("\n" + graphComparison(e, r.GetGraph()))
		for _, f := range r.GetInputFields() {
			fmt.Fprintf(&b, "input: %s differs\n", view.OneLine(f, 80))
		}
		switch {
		case r.GetResultDiffers():
			fmt.Fprintf(&b, "result:\n  A %s\n  B %s\n", resultText(r.GetBaseResult()), resultText(r.GetRunResult()))
		default:
			b.WriteString("result: the same\n")
		}
		if f := r.GetFirstDifference(); f != nil {
			fmt.Fprintf(&b, "first difference: %s (%s)\n", visitName(f), strings.Join(f.GetDifferences(), ", "))
		}
		fmt.Fprintf(&b, "visits: %d differ, %d are the same\n", r.GetDifferentVisits(), r.GetSameVisits())
		if r.GetTruncated() {
			b.WriteString("one of the runs has more visits than are compared: the first ones are\n")
		}
	}
	if len(r.GetVisits()) == 0 {
		return b.String()
	}
	var rows [][]string
	for _, v := range r.GetVisits() {
		rows = append(rows, []string{visitName(v), visitSide(v.GetBase()), visitSide(v.GetRun()), strings.Join(v.GetDifferences(), ", ")})
	}
	b.WriteString("\n" + view.Table(style, []string{"VISIT", "A", "B", "DIFFERS"}, rows))
	return b.String()
}

func graphComparison(e *env, g *executorv1.GraphComparison) string {
	if g.GetSame() {
		return "graph: the same\n"
	}
	out := changeText(e, &executorv1.GraphDiff{AddedNodes: g.GetAddedNodes(), RemovedNodes: g.GetRemovedNodes(), ChangedNodes: g.GetChangedNodes(),
		AddedEdges: g.GetAddedEdges(), RemovedEdges: g.GetRemovedEdges()})
	for _, k := range g.GetChangedState() {
		out += "  ~ state " + view.OneLine(k, 60) + "\n"
	}
	return out
}

func visitName(v *executorv1.VisitComparison) string {
	return refText(&executorv1.VisitRef{NodeId: v.GetNodeId(), Visit: v.GetVisit()})
}

// visitSide is a visit of one of the two runs.
func visitSide(v *executorv1.Visit) string {
	if v == nil {
		return "-"
	}
	out := view.Word(v.GetState().String(), "VISIT_STATE_")
	if d := v.GetDuration().AsDuration(); d >= time.Microsecond {
		out += " " + view.Took(d)
	}
	switch {
	case v.GetError() != nil && v.GetState() == executorv1.VisitState_VISIT_STATE_FAILED:
		out += " " + view.OneLine(v.GetError().GetReason(), 40)
	case len(v.GetValues()) > 0:
		out += " " + resultText(v.GetValues()[0])
	}
	return out
}

func resultText(p *graphv1.Payload) string {
	if p == nil {
		return "-"
	}
	return view.OneLine(string(p.GetJson()), 48)
}
