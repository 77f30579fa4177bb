package rpc

import (
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
)

// Epics makes and changes the epics and tasks of the registry for actors. It is safe for concurrent use.
type Epics struct {
	client registryv1.RegistryServiceClient
}

var _ epics.Registry = Epics{}

// NewEpics returns the epics and tasks that client keeps.
func NewEpics(client registryv1.RegistryServiceClient) Epics { return Epics{client} }

// asked makes one request with a time of its own.
func asked[T any](ctx context.Context, namespace string, ask func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeoutCause(grpckit.WithNamespace(ctx, namespace), catalogTime, errs.New(errs.Unavailable, reasonCatalogAway, "the registry does not answer"))
	defer stop()
	out, err := ask(ctx)
	if err != nil {
		return out, unanswered(ctx, err)
	}
	return out, nil
}

// createdByRun is the label of a task or an epic that names the run which made it. What becomes of it comes
// of that run, too, also when an epic that runs by itself has started another run for it.
const createdByRun = "created_by_run"

// CreateEpic implements epics.Registry. The registry hears who the maker is with the call.
func (r Epics) CreateEpic(ctx context.Context, namespace string, e epics.Epic, request string) (epics.Epic, error) {
	epic := epicTo(&e)
	if run := access.RunOf(ctx); run != "" {
		epic.Labels = map[string]string{createdByRun: run}
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: epic, RequestId: request})
	})
	return epicFrom(got), err
}

// Epic implements epics.Registry.
func (r Epics) Epic(ctx context.Context, namespace, id string) (epics.Epic, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: id})
	})
	return epicFrom(got), err
}

// ChangeEpic implements epics.Registry.
func (r Epics) ChangeEpic(ctx context.Context, namespace string, e epics.Epic, fields []string, request string) (epics.Epic, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.UpdateEpic(ctx, &registryv1.UpdateEpicRequest{Epic: epicTo(&e), UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}, RequestId: request})
	})
	return epicFrom(got), err
}

// MoveEpic implements epics.Registry.
func (r Epics) MoveEpic(ctx context.Context, namespace string, e epics.Epic, request string) (epics.Epic, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: e.ID, State: numberOf[registryv1.EpicState](epics.States(), e.Status), ResultSummary: e.Result, RequestId: request})
	})
	return epicFrom(got), err
}

// maxSearchPages is how many pages are read for one search: a page without a query may have few epics, though
// there are more.
const maxSearchPages = 5

// SearchEpics implements epics.Registry.
func (r Epics) SearchEpics(ctx context.Context, namespace string, s epics.Search) ([]epics.Epic, error) {
	var states []registryv1.EpicState
	if s.Status != "" {
		states = append(states, numberOf[registryv1.EpicState](epics.States(), s.Status))
	}
	return asked(ctx, namespace, func(ctx context.Context) (out []epics.Epic, err error) {
		req := &registryv1.SearchEpicsRequest{Query: s.Text, PageSize: int32(s.Limit), States: states, Tags: s.Tags, OpenToUserId: s.User}
		for range maxSearchPages {
			found, err := r.client.SearchEpics(ctx, req)
			if err != nil {
				return nil, err
			}
			for _, m := range found.GetMatches() {
				e := epicFrom(m.GetEpic())
				e.Workflows, e.SuccessRate = m.GetWorkflowSlugs(), m.SuccessRate
				out = append(out, e)
			}
			if req.PageToken = found.GetNextPageToken(); req.PageToken == "" || len(out) >= s.Limit {
				break
			}
		}
		return out[:min(len(out), s.Limit)], nil
	})
}

// CreateTask implements epics.Registry.
func (r Epics) CreateTask(ctx context.Context, namespace string, t epics.Task, request string) (epics.Task, error) {
	task := taskTo(&t)
	if run := access.RunOf(ctx); run != "" {
		task.Labels = map[string]string{createdByRun: run}
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: task, RequestId: request})
	})
	return taskFrom(got), err
}

// Task implements epics.Registry.
func (r Epics) Task(ctx context.Context, namespace, id string) (epics.Task, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: id})
	})
	return taskFrom(got), err
}

// ListTasks implements epics.Registry.
func (r Epics) ListTasks(ctx context.Context, namespace string, f epics.Filter) ([]epics.Task, string, error) {
	var states []registryv1.TaskState
	if f.Status != "" {
		states = append(states, numberOf[registryv1.TaskState](epics.TaskStates(), f.Status))
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.ListTasksResponse, error) {
		return r.client.ListTasks(ctx, &registryv1.ListTasksRequest{EpicId: f.EpicID, States: states, Tags: f.Tags, PageSize: int32(f.Limit), PageToken: f.Page})
	})
	out := make([]epics.Task, len(got.GetTasks()))
	for i, t := range got.GetTasks() {
		out[i] = taskFrom(t)
	}
	return out, got.GetNextPageToken(), err
}

// ChangeTask implements epics.Registry.
func (r Epics) ChangeTask(ctx context.Context, namespace string, t epics.Task, fields []string, request string) (epics.Task, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		in := taskTo(&t)
		if t.Note != "" {
			in.Notes = []*registryv1.Note{{Text: t.Note}}
		}
		return r.client.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: in, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}, RequestId: request})
	})
	return taskFrom(got), err
}

// MoveTask implements epics.Registry.
func (r Epics) MoveTask(ctx context.Context, namespace string, t epics.Task, request string) (epics.Task, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.TransitionTask(ctx, &registryv1.TransitionTaskRequest{
			TaskId: t.ID, State: numberOf[registryv1.TaskState](epics.TaskStates(), t.Status), ResultSummary: t.Result, ErrorMessage: t.Error, Note: t.Note, RequestId: request,
		})
	})
	return taskFrom(got), err
}

// numberOf is the number of a word in the API: the words are in the order of the numbers, from 1.
func numberOf[E ~int32](words []string, word string) E { return E(slices.Index(words, word) + 1) }

// wordOf is the word for a number of the API, or "".
func wordOf[E ~int32](words []string, n E) string {
	if n < 1 || int(n) > len(words) {
		return ""
	}
	return words[n-1]
}

func epicTo(e *epics.Epic) *registryv1.Epic {
	return &registryv1.Epic{
		Id: e.ID, Title: e.Title, Description: e.Description, Tags: e.Tags, Priority: registryv1.Priority(e.Priority), BudgetTokens: e.BudgetTokens, BudgetNanoUsd: e.BudgetNanoUSD,
		ResultSummary: e.Result, UserId: e.User, CreatedByNodeId: e.Node,
	}
}

func epicFrom(e *registryv1.Epic) epics.Epic {
	if e == nil {
		return epics.Epic{}
	}
	out := epics.Epic{
		ID: e.GetId(), Title: e.GetTitle(), Description: e.GetDescription(), Status: wordOf(epics.States(), e.GetState()), Result: e.GetResultSummary(), Workflow: e.GetWorkflowSlug(),
		User: e.GetUserId(), Tags: e.GetTags(), Priority: int(e.GetPriority()), BudgetTokens: e.BudgetTokens, BudgetNanoUSD: e.BudgetNanoUsd, SpentTokens: e.GetSpentTokens(),
		SpentNanoUSD: e.GetSpentNanoUsd(), OverheadTokens: e.GetAgentOverheadTokens(), OverheadNanoUSD: e.GetAgentOverheadNanoUsd(), UnpricedCalls: e.GetUnpricedCalls(),
		Total: e.GetTotalTasks(), Completed: e.GetCompletedTasks(), Failed: e.GetFailedTasks(), Root: e.GetMakerRootRunId(),
	}
	if out.Workflow != "" {
		out.Workflows = []string{out.Workflow}
	}
	return out
}

func taskTo(t *epics.Task) *registryv1.Task {
	out := &registryv1.Task{
		Id: t.ID, EpicId: t.EpicID, Title: t.Title, Description: t.Description, Tags: t.Tags, DependsOn: t.DependsOn, Priority: registryv1.Priority(t.Priority), WorkflowSlug: t.Workflow,
		WorkflowSource: numberOf[registryv1.WorkflowSource](epics.Sources(), t.Source), EstimatedTokens: t.EstimatedTokens, MaxRetries: t.MaxRetries, ResultSummary: t.Result,
		ErrorMessage: t.Error, CreatedByNodeId: t.Node, DependencyPolicy: numberOf[registryv1.DependencyPolicy](epics.Policies(), t.Policy),
	}
	if len(t.Input) > 0 {
		out.Input = &graphv1.Payload{Json: t.Input}
	}
	if len(t.Requirements) > 0 {
		out.Requirements = &graphv1.Payload{Json: t.Requirements}
	}
	return out
}

func taskFrom(t *registryv1.Task) epics.Task {
	if t == nil {
		return epics.Task{}
	}
	return epics.Task{
		ID: t.GetId(), EpicID: t.GetEpicId(), Title: t.GetTitle(), Description: t.GetDescription(), Status: wordOf(epics.TaskStates(), t.GetState()), Result: t.GetResultSummary(),
		Error: t.GetErrorMessage(), Workflow: t.GetWorkflowSlug(), Source: wordOf(epics.Sources(), t.GetWorkflowSource()), RunID: t.GetRunId(), RunWorkflow: t.GetRunWorkflow(), Tags: t.GetTags(),
		DependsOn: t.GetDependsOn(), BlockedBy: t.GetBlockedBy(), Priority: int(t.GetPriority()), EstimatedTokens: t.GetEstimatedTokens(), MaxRetries: t.GetMaxRetries(),
		RetryCount: t.GetRetryCount(), ActualTokens: t.GetActualTokens(), ActualNanoUSD: t.GetActualNanoUsd(),
	}
}
