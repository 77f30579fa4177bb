package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type workflowsForecastCmd struct {
	Ref string `arg:"" help:"The workflow: NAME, NAME@VERSION or NAME@ALIAS."`
	Key string `help:"Where an alias stands for several versions, equal keys choose the same one." placeholder:"KEY"`
}

// Help says what a forecast is made of.
func (workflowsForecastCmd) Help() string {
	return `It is made of the newest runs of the version that have ended or, if there are none, of its graph. P50 is what half of the runs did not exceed, P90 what nine of ten did not. What is not known is shown as "unknown".

    epigraph workflows forecast digest
    epigraph workflows forecast digest@3 --json`
}

// Run shows the forecast.
func (c *workflowsForecastCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		f, err := s.workflows.ForecastWorkflow(ctx, &registryv1.ForecastWorkflowRequest{Ref: c.Ref, Key: c.Key})
		if err != nil {
			return err
		}
		return e.print(f, func() string { return forecastText(e, f) })
	})
}

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
		{"time", f.GetDurationMs(), func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }},
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
	out := fmt.Sprintf("%s, from %s\n%s", f.GetRef(), from, view.Table(e.io.style(), []string{"", "P50", "P90", "BUDGET", last}, rows))
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
