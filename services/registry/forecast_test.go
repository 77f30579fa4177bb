package registry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const boundedModel = "name: Bounded\nsteps:\n  - {id: say, type: agent, prompt: hello, model: {model_name: gpt-4o-mini, max_tokens: 500}}\n"

// TestForecasts forecasts texts, and epics whose tasks have workflows with and without a history.
func TestForecasts(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{}, nil)
			conn := dial("")
			s := sources{RegistryServiceClient: registryv1.NewRegistryServiceClient(conn), workflows: registryv1.NewWorkflowServiceClient(conn)}
			for slug, text := range map[string]string{"known": letterV1, "fresh": boundedModel} {
				_, err := s.workflows.CreateWorkflow(t.Context(), &registryv1.CreateWorkflowRequest{Slug: slug, Source: text})
				require.NoError(t, err)
			}
			var runs []*registryv1.RunChange
			for i := range int64(10) { // the p50 is the fifth, and the p90 the ninth
				runs = append(runs, &registryv1.RunChange{RunId: fmt.Sprint("run_", i), Seq: 2, Kind: registryv1.RunChangeKind_RUN_CHANGE_KIND_ENDED, Workflow: "known@1", Outcome: registryv1.WorkflowRunOutcome_WORKFLOW_RUN_OUTCOME_COMPLETED,
					Usage: &registryv1.WorkflowRunUsage{CostNanoUsd: 100 * (i + 1), Tokens: 10 * (i + 1)}, Duration: durationpb.New(time.Duration(i+1) * time.Second)})
			}
			_, err := s.RecordChanges(t.Context(), &registryv1.RecordChangesRequest{Runs: runs})
			require.NoError(t, err)
			t.Run("Text/FromItsGraphAlone", func(t *testing.T) { forecastTexts(t, s) })
			t.Run("Epic/AlongDependenciesAndTheLimit", func(t *testing.T) { forecastKnown(t, s) })
			t.Run("Epic/UnknownIsUnknown", func(t *testing.T) { forecastUnknown(t, s) })
			t.Run("Epic/OfManyTasks", func(t *testing.T) { forecastMany(t, s) })
			t.Run("Epic/CompilesABoundedText", func(t *testing.T) { forecastLarge(t, s) })
			t.Run("Epic/ThatIsNotThere", func(t *testing.T) {
				_, err := s.ForecastEpic(t.Context(), &registryv1.ForecastEpicRequest{EpicId: "ep_none"})
				requireError(t, err, errs.NotFound, "EPIC_NOT_FOUND")
			})
		})
	}
}

func forecastTexts(t *testing.T, s sources) {
	f, err := s.workflows.ForecastWorkflow(t.Context(), &registryv1.ForecastWorkflowRequest{Source: boundedModel})
	require.NoError(t, err)
	require.Equal(t, registryv1.ForecastBasis_FORECAST_BASIS_GRAPH, f.GetBasis())
	require.Empty(t, f.GetRef())
	require.NotNil(t, f.GetTokens().Answers, "%v", f)
	require.Positive(t, f.GetTokens().GetAnswers())
	require.Positive(t, f.GetCostNanoUsd().GetAnswers())
	require.Equal(t, f.GetCostNanoUsd().Answers, f.GetCostNanoUsd().P50, "no call of the model is known, so it is the limit")
	require.Nil(t, f.GetDurationMs().P50)
	require.Contains(t, f.GetNotes()[0], "no version of the catalog")
	f, err = s.workflows.ForecastWorkflow(t.Context(), &registryv1.ForecastWorkflowRequest{Form: registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH,
		Source: `{"nodes": [{"id": "a", "actor": "llm", "named": {"model": "gpt-4o-mini", "max_output_tokens": 100}}]}`})
	require.NoError(t, err)
	require.Equal(t, int64(100), f.GetTokens().GetAnswers())
	_, err = s.workflows.ForecastWorkflow(t.Context(), &registryv1.ForecastWorkflowRequest{Source: "name: x\nsteps: []\n"})
	requireError(t, err, errs.InvalidArgument, "WORKFLOW_INVALID")
	_, err = s.workflows.ForecastWorkflow(t.Context(), &registryv1.ForecastWorkflowRequest{Source: boundedModel, Ref: "known"})
	requireError(t, err, errs.InvalidArgument, "FIELD_NOT_USED")
	_, err = s.workflows.ForecastWorkflow(t.Context(), &registryv1.ForecastWorkflowRequest{})
	requireError(t, err, errs.InvalidArgument, "WORKFLOW_REF_INVALID")
	_, err = s.workflows.ForecastWorkflow(t.Context(), &registryv1.ForecastWorkflowRequest{Source: strings.Repeat("x", 2<<20)})
	require.Error(t, err, "a text is bounded")
}

// begun makes an epic, which s has tasks made for.
func (s *sources) begun(t *testing.T, e *registryv1.Epic) {
	t.Helper()
	e.Title = "goal"
	made, err := s.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: e})
	require.NoError(t, err)
	s.epic = made.GetId()
}

func (s *sources) forecast(t *testing.T, parallel int32) *registryv1.EpicForecast {
	t.Helper()
	f, err := s.ForecastEpic(t.Context(), &registryv1.ForecastEpicRequest{EpicId: s.epic, Parallel: parallel})
	require.NoError(t, err)
	return f
}

func forecastKnown(t *testing.T, s sources) {
	budget := int64(1500)
	s.begun(t, &registryv1.Epic{WorkflowSlug: "known", BudgetNanoUsd: &budget})
	first := s.made(t, &registryv1.Task{WorkflowSlug: "known@1"})
	for range 2 {
		s.made(t, &registryv1.Task{DependsOn: []string{first.GetId()}})
	}
	done := s.made(t, &registryv1.Task{})
	_, err := s.TransitionTask(t.Context(), &registryv1.TransitionTaskRequest{TaskId: done.GetId(), State: registryv1.TaskState_TASK_STATE_CANCELED})
	require.NoError(t, err)
	for parallel, want := range map[int32][2]int64{1: {15_000, 27_000}, 0: {10_000, 18_000}} {
		f := s.forecast(t, parallel)
		require.Equal(t, int32(3), f.GetTasks(), "what has ended is not in it")
		require.Equal(t, []int64{1500, 2700, 150, 270}, []int64{f.GetCostNanoUsd().GetP50(), f.GetCostNanoUsd().GetP90(), f.GetTokens().GetP50(), f.GetTokens().GetP90()})
		require.Equal(t, want, [2]int64{f.GetDurationMs().GetP50(), f.GetDurationMs().GetP90()})
		require.Equal(t, []int64{10_000, 18_000}, []int64{f.GetCriticalPathMs().GetP50(), f.GetCriticalPathMs().GetP90()})
		require.Equal(t, budget, f.GetCostNanoUsd().GetBudgetLeft())
		require.Contains(t, strings.Join(f.GetNotes(), " "), "The budget of money may stop it")
		require.Equal(t, "known@1", f.GetTaskForecasts()[1].GetWorkflow())
	}
	require.Equal(t, int32(4), s.forecast(t, 0).GetParallel())
}

func forecastUnknown(t *testing.T, s sources) {
	s.begun(t, &registryv1.Epic{})
	for _, c := range []struct {
		task *registryv1.Task
		says string
	}{
		{&registryv1.Task{WorkflowSlug: "known"}, ""},
		{&registryv1.Task{WorkflowSlug: "fresh"}, "no run of its workflow has ended yet"},
		{&registryv1.Task{WorkflowSlug: "gone"}, "gone"},
		{&registryv1.Task{Definition: ownDefinition}, "no run of its workflow has ended yet"},
		{&registryv1.Task{}, "it names neither a workflow nor requirements"},
	} {
		made := s.made(t, c.task)
		f := s.forecast(t, 0)
		told := f.GetTaskForecasts()[len(f.GetTaskForecasts())-1]
		require.Equal(t, made.GetId(), told.GetTaskId())
		if c.says == "" {
			require.Empty(t, told.GetUnknown())
			require.NotNil(t, f.GetCostNanoUsd().P50)
			continue
		}
		require.Contains(t, told.GetUnknown(), c.says)
		require.Nil(t, told.GetCostNanoUsd().P50)
		require.Nil(t, f.GetCostNanoUsd().P50)
		require.Nil(t, f.GetDurationMs().P90)
		require.Equal(t, int64(500), f.GetCostNanoUsd().GetKnownP50())
	}
	require.Equal(t, int32(4), s.forecast(t, 0).GetCostNanoUsd().GetUnknownTasks())
}

// forecastLarge has more definitions than are compiled for one epic.
func forecastLarge(t *testing.T, s sources) {
	s.begun(t, &registryv1.Epic{})
	const size, tasks = 60 << 10, 20
	for i := range tasks {
		s.made(t, &registryv1.Task{Definition: fmt.Sprintf("# %0*d\n%s", size, i, ownDefinition)})
	}
	left := 0
	for _, task := range s.forecast(t, 0).GetTaskForecasts() {
		if strings.Contains(task.GetUnknown(), "bytes of definitions") {
			left++
		}
	}
	require.Equal(t, tasks-(1<<20)/(size+len(ownDefinition)+3), left)
}

// forecastMany reads more tasks than one page holds, with more workflows than are looked at.
func forecastMany(t *testing.T, s sources) {
	var tasks []string
	for i := range 450 {
		tasks = append(tasks, fmt.Sprintf(`{"id": %d, "title": "t", "workflow_slug": "known"}`, i))
	}
	for i := range 150 {
		tasks = append(tasks, fmt.Sprintf(`{"id": "x%d", "title": "t", "workflow_slug": "none-%d"}`, i, i))
	}
	r, err := s.ImportEpic(t.Context(), &registryv1.ImportEpicRequest{Document: `{"title": "many", "tasks": [` + strings.Join(tasks, ",") + `]}`})
	require.NoError(t, err)
	s.epic = r.GetId()
	f := s.forecast(t, 10)
	require.Equal(t, int32(600), f.GetTasks())
	require.Equal(t, int32(150), f.GetCostNanoUsd().GetUnknownTasks())
	require.Equal(t, int64(450*500), f.GetCostNanoUsd().GetKnownP50())
	require.Equal(t, int64(45*5000), f.GetDurationMs().GetKnownP50())
	left := 0
	for _, task := range f.GetTaskForecasts() {
		if strings.Contains(task.GetUnknown(), "more than 100 different workflows") {
			left++
		}
	}
	require.Equal(t, 51, left)
}
