package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func TestForecastText(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	for name, c := range map[string]struct {
		forecast *registryv1.WorkflowForecast
		want     string
	}{
		"of runs": {&registryv1.WorkflowForecast{
			Ref: "digest@2", Basis: registryv1.ForecastBasis_FORECAST_BASIS_HISTORY, Runs: 3, FailedRuns: 1, Notes: []string{"Why."},
			CostNanoUsd: &registryv1.ForecastAmount{P50: n(0), P90: n(5e8), Budget: n(1e9), Runs: 2}, Tokens: &registryv1.ForecastAmount{P50: n(7), P90: n(9), Runs: 3},
			DurationMs: &registryv1.ForecastAmount{},
		}, `digest@2, from 3 runs (1 failed)
        P50      P90      BUDGET  RUNS
cost    $0.00    $0.50    $1.00   2
tokens  7        9        none    3
time    unknown  unknown          0

Why.
`},
		"of a graph": {&registryv1.WorkflowForecast{
			Ref: "digest@1", Basis: registryv1.ForecastBasis_FORECAST_BASIS_GRAPH, Notes: []string{"Why."}, CostNanoUsd: &registryv1.ForecastAmount{},
			Tokens: &registryv1.ForecastAmount{Answers: n(100)}, DurationMs: &registryv1.ForecastAmount{},
			Nodes: []*registryv1.ForecastNode{{NodeId: "a", Actor: "llm", Calls: n(1), AnswerTokens: n(100), Unknown: "it names no model"}},
		}, `digest@1, from its graph
        P50      P90      BUDGET  ANSWERS AT THEIR LIMITS
cost    unknown  unknown  none    unknown
tokens  unknown  unknown  none    100
time    unknown  unknown          unknown

NODE  ACTOR  MODEL    CALLS  TOKENS  COST     WHY UNKNOWN
a     llm    unknown  1      100     unknown  it names no model

Why.
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, forecastText(&env{}, c.forecast))
		})
	}
}

func TestEpicForecastText(t *testing.T) {
	t.Parallel()
	n := func(v int64) *int64 { return &v }
	got := epicForecastText(&env{}, &registryv1.EpicForecast{
		Tasks: 2, Parallel: 4, CostNanoUsd: &registryv1.EpicForecastAmount{KnownP50: 5e8, KnownP90: 1e9, UnknownTasks: 1, BudgetLeft: n(2e9)},
		Tokens: &registryv1.EpicForecastAmount{P50: n(7), P90: n(9), KnownP50: 7, KnownP90: 9}, DurationMs: &registryv1.EpicForecastAmount{P50: n(1500), P90: n(2500), KnownP50: 1500, KnownP90: 2500},
		CriticalPathMs: &registryv1.EpicForecastAmount{P50: n(1000), P90: n(2000), KnownP50: 1000, KnownP90: 2000}, Notes: []string{"Why."},
		TaskForecasts: []*registryv1.TaskForecast{{TaskId: "tk_1", Title: "Write", Workflow: "letter@2", CostNanoUsd: &registryv1.ForecastAmount{P50: n(5e8)}, DurationMs: &registryv1.ForecastAmount{P50: n(1000)}}},
	})
	require.Equal(t, `2 tasks to do, 4 at once
               P50      P90      KNOWN P50  KNOWN P90  UNKNOWN TASKS  BUDGET LEFT
cost           unknown  unknown  $0.50      $1.00      1              $2.00
tokens         7        9        7          9          0
time           1.5s     2.5s     1.5s       2.5s       0
critical path  1s       2s       1s         2s         0

TASK  TITLE  WORKFLOW  COST P50  TIME P50
tk_1  Write  letter@2  $0.50     1s
and 1 more task

Why.
`, got)
}
