package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

type workflowsForecastCmd struct {
	Ref  string `arg:"" optional:"" help:"The workflow: NAME, NAME@VERSION or NAME@ALIAS."`
	File string `help:"A definition or a graph in place of a workflow of the catalog; - is standard input." placeholder:"FILE"`
	Key  string `help:"Where an alias stands for several versions, equal keys choose the same one." placeholder:"KEY"`
}

// Help says what a forecast is made of.
func (workflowsForecastCmd) Help() string {
	return `It is made of the newest runs of the version that have ended or, if there are none, of its graph and of booked calls of its models. P50 is what half of them did not exceed, P90 what nine of ten did not. What is not known is shown as "unknown", and notes tell why. With --file it is made of a text that is not in the catalog, before anything is kept or started; "epigraph plan forecast" does so with a plan.

    epigraph workflows forecast digest
    epigraph workflows forecast --file digest.yaml
    epigraph workflows forecast digest@3 --json`
}

// Run shows the forecast.
func (c *workflowsForecastCmd) Run(e *env) error {
	if (c.Ref == "") == (c.File == "") {
		return usage(errs.New(errs.InvalidArgument, "ARGUMENTS_INVALID", "give either a workflow of the catalog or --file"))
	}
	req := &registryv1.ForecastWorkflowRequest{Ref: c.Ref, Key: c.Key}
	if c.File != "" {
		text, err := e.readText(c.File)
		if err != nil {
			return err
		}
		if req.Source, req.Form = text, registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION; workflow.IsGraph([]byte(text)) {
			req.Form = registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH
		} else if _, err := e.compiled(&workflowFile{name: sourceName(c.File), text: text}); err != nil {
			return err // its faults are shown with their places
		}
	}
	return e.with(func(ctx context.Context, s *services) error {
		f, err := s.workflows.ForecastWorkflow(ctx, req)
		if err != nil {
			return err
		}
		return e.print(f, func() string { return forecastText(e, f) })
	})
}

type planForecastCmd struct {
	File            string `arg:"" help:"The text with the plan; - reads standard input." default:"-"`
	Model           string `help:"Model of the problems that name none." placeholder:"NAME"`
	MaxOutputTokens int64  `help:"Limit of each answer, in tokens." placeholder:"N"`
}

// Help says what it is made of.
func (planForecastCmd) Help() string {
	return `The plan is compiled into the graph that would run, and forecast from that: what the answers of its model calls come to at their limits. Without a model and a limit that is not known. Nothing is kept or started.

    epigraph plan forecast answer.txt --model gpt-4o-mini --max-output-tokens 500`
}

// Run compiles the plan and shows the forecast of its graph.
func (c *planForecastCmd) Run(e *env) error {
	text, err := e.readText(c.File)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		req := &plannerv1.CompilePlanRequest{Plan: &plannerv1.CompilePlanRequest_Text{Text: text}, Named: map[string]*graphv1.Payload{}}
		if c.Model != "" {
			name, err := json.Marshal(c.Model)
			if err != nil {
				return err
			}
			req.Named["model"] = &graphv1.Payload{Json: name}
		}
		if c.MaxOutputTokens > 0 {
			req.Named["max_output_tokens"] = &graphv1.Payload{Json: fmt.Append(nil, c.MaxOutputTokens)}
		}
		plan, err := s.planner.CompilePlan(ctx, req)
		if err != nil {
			return err
		}
		var graph strings.Builder
		if err := printJSON(&graph, plan.GetGraph()); err != nil {
			return err
		}
		f, err := s.workflows.ForecastWorkflow(ctx, &registryv1.ForecastWorkflowRequest{Source: graph.String(), Form: registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH})
		if err != nil {
			return err
		}
		return e.print(f, func() string { return forecastText(e, f) })
	})
}

// epicForecastText shows what is left to do of an epic, in sum and by task.
func epicForecastText(e *env, f *registryv1.EpicForecast) string {
	var rows [][]string
	for _, a := range []struct {
		name   string
		amount *registryv1.EpicForecastAmount
		text   func(int64) string
	}{
		{"cost", f.GetCostNanoUsd(), view.Money}, {"tokens", f.GetTokens(), whole}, {"time", f.GetDurationMs(), milliseconds}, {"critical path", f.GetCriticalPathMs(), milliseconds},
	} {
		left := ""
		if a.amount.BudgetLeft != nil {
			left = a.text(a.amount.GetBudgetLeft())
		}
		rows = append(rows, []string{a.name, known(a.amount.P50, a.text), known(a.amount.P90, a.text), a.text(a.amount.GetKnownP50()), a.text(a.amount.GetKnownP90()),
			whole(int64(a.amount.GetUnknownTasks())), left})
	}
	out := fmt.Sprintf("%s to do, %d at once\n%s", view.Plural(int(f.GetTasks()), "task"), f.GetParallel(),
		view.Table(e.io.style(), []string{"", "P50", "P90", "KNOWN P50", "KNOWN P90", "UNKNOWN TASKS", "BUDGET LEFT"}, rows))
	var tasks [][]string
	for _, t := range f.GetTaskForecasts() {
		tasks = append(tasks, []string{t.GetTaskId(), view.OneLine(t.GetTitle(), 40), t.GetWorkflow(), known(t.GetCostNanoUsd().P50, view.Money), known(t.GetDurationMs().P50, milliseconds), t.GetUnknown()})
	}
	if len(tasks) > 0 {
		out += "\n" + view.Table(e.io.style(), []string{"TASK", "TITLE", "WORKFLOW", "COST P50", "TIME P50", "WHY UNKNOWN"}, tasks)
		if n := int(f.GetTasks()) - len(tasks); n > 0 {
			out += fmt.Sprintf("and %s\n", view.Plural(n, "more task"))
		}
	}
	return out + "\n" + strings.Join(f.GetNotes(), "\n") + "\n"
}

// milliseconds is a time in a table.
func milliseconds(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }

func forecastText(e *env, f *registryv1.WorkflowForecast) string {
	history := f.GetBasis() == registryv1.ForecastBasis_FORECAST_BASIS_HISTORY
	from := "its graph"
	if history {
		from = fmt.Sprintf("%s (%d failed)", view.Plural(int(f.GetRuns()), "run"), f.GetFailedRuns())
	}
	var rows [][]string
	for _, a := range []struct {
		name   string
		amount *registryv1.ForecastAmount
		text   func(int64) string
	}{
		{"cost", f.GetCostNanoUsd(), view.Money},
		{"tokens", f.GetTokens(), whole},
		{"time", f.GetDurationMs(), milliseconds},
	} {
		p50, p90, answers, budget := known(a.amount.P50, a.text), known(a.amount.P90, a.text), known(a.amount.Answers, a.text), "none"
		if a.amount.Budget != nil {
			budget = a.text(a.amount.GetBudget())
		}
		if a.name == "time" {
			budget = ""
		}
		if history {
			rows = append(rows, []string{a.name, p50, p90, budget, whole(int64(a.amount.GetRuns()))})
		} else {
			rows = append(rows, []string{a.name, p50, p90, budget, answers})
		}
	}
	last := "ANSWERS AT THEIR LIMITS"
	if history {
		last = "RUNS"
	}
	out := fmt.Sprintf("%s, from %s\n%s", cmp.Or(f.GetRef(), "the text"), from, view.Table(e.io.style(), []string{"", "P50", "P90", "BUDGET", last}, rows))
	if len(f.GetNodes()) > 0 {
		var nodes [][]string
		for _, n := range f.GetNodes() {
			nodes = append(nodes, []string{n.GetNodeId(), n.GetActor(), cmp.Or(n.GetModel(), "unknown"), known(n.Calls, whole), known(n.AnswerTokens, whole),
				known(n.AnswerNanoUsd, view.Money), n.GetUnknown()})
		}
		out += "\n" + view.Table(e.io.style(), []string{"NODE", "ACTOR", "MODEL", "CALLS", "TOKENS", "COST", "WHY UNKNOWN"}, nodes)
		if n := f.GetNodesLeftOut(); n > 0 {
			out += fmt.Sprintf("and %s\n", view.Plural(int(n), "more node"))
		}
	}
	return out + "\n" + strings.Join(f.GetNotes(), "\n") + "\n"
}

// known is an amount in a table.
func known(n *int64, text func(int64) string) string {
	if n == nil {
		return "unknown"
	}
	return text(*n)
}

// whole writes 0, too, which other tables leave out.
func whole(n int64) string { return fmt.Sprint(n) }
