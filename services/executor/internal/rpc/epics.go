package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
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
	epic := delegationpb.EpicTo(&e)
	if run := access.RunOf(ctx); run != "" {
		epic.Labels = map[string]string{createdByRun: run}
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: epic, RequestId: request})
	})
	return delegationpb.EpicFrom(got), err
}

// Epic implements epics.Registry.
func (r Epics) Epic(ctx context.Context, namespace, id string) (epics.Epic, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: id})
	})
	return delegationpb.EpicFrom(got), err
}

// ChangeEpic implements epics.Registry.
func (r Epics) ChangeEpic(ctx context.Context, namespace string, e epics.Epic, fields []string, request string) (epics.Epic, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.UpdateEpic(ctx, delegationpb.EpicChange(&e, fields, request))
	})
	return delegationpb.EpicFrom(got), err
}

// MoveEpic implements epics.Registry.
func (r Epics) MoveEpic(ctx context.Context, namespace string, e epics.Epic, request string) (epics.Epic, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Epic, error) {
		return r.client.TransitionEpic(ctx, delegationpb.EpicMove(&e, request))
	})
	return delegationpb.EpicFrom(got), err
}

// SearchEpics implements epics.Registry.
func (r Epics) SearchEpics(ctx context.Context, namespace string, s epics.Search) ([]epics.Epic, error) {
	found, err := asked(ctx, namespace, func(ctx context.Context) ([]*registryv1.EpicMatch, error) {
		return delegationpb.FoundEpics(ctx, s, func(ctx context.Context, req *registryv1.SearchEpicsRequest) (*registryv1.SearchEpicsResponse, error) {
			return r.client.SearchEpics(ctx, req)
		})
	})
	var out []epics.Epic
	for _, m := range found {
		out = append(out, delegationpb.MatchFrom(m))
	}
	return out, err
}

// CreateTask implements epics.Registry.
func (r Epics) CreateTask(ctx context.Context, namespace string, t epics.Task, request string) (epics.Task, error) {
	task := delegationpb.TaskTo(&t)
	if run := access.RunOf(ctx); run != "" {
		task.Labels = map[string]string{createdByRun: run}
	}
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: task, RequestId: request})
	})
	return delegationpb.TaskFrom(got), err
}

// Task implements epics.Registry.
func (r Epics) Task(ctx context.Context, namespace, id string) (epics.Task, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: id})
	})
	return delegationpb.TaskFrom(got), err
}

// ListTasks implements epics.Registry.
func (r Epics) ListTasks(ctx context.Context, namespace string, f epics.Filter) ([]epics.Task, string, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.ListTasksResponse, error) {
		return r.client.ListTasks(ctx, delegationpb.TaskList(&f))
	})
	return delegationpb.TasksFrom(got.GetTasks()), got.GetNextPageToken(), err
}

// ChangeTask implements epics.Registry.
func (r Epics) ChangeTask(ctx context.Context, namespace string, t epics.Task, fields []string, request string) (epics.Task, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.UpdateTask(ctx, delegationpb.TaskChange(&t, fields, request))
	})
	return delegationpb.TaskFrom(got), err
}

// MoveTask implements epics.Registry.
func (r Epics) MoveTask(ctx context.Context, namespace string, t epics.Task, request string) (epics.Task, error) {
	got, err := asked(ctx, namespace, func(ctx context.Context) (*registryv1.Task, error) {
		return r.client.TransitionTask(ctx, delegationpb.TaskMove(&t, request))
	})
	return delegationpb.TaskFrom(got), err
}
