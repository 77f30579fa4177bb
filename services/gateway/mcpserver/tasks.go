package mcpserver

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func createTask(ctx context.Context, c *call, a *delegated) (any, error) {
	t, faults := a.NewTask()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	got, err := asked(ctx, c.Server, c.Registry.CreateTask, &registryv1.CreateTaskRequest{Task: delegationpb.TaskTo(&t), RequestId: a.Request})
	if err != nil {
		return nil, err
	}
	t = delegationpb.TaskFrom(got)
	return delegation.TaskCreated(&t), nil
}

// tasks reads tasks until there are enough, or no more.
func (s *Server) tasks(ctx context.Context, q delegation.Filter) ([]delegation.Task, string, error) {
	return delegation.Pages(ctx, q, func(ctx context.Context, q delegation.Filter) ([]delegation.Task, string, error) {
		r, err := asked(ctx, s, s.Registry.ListTasks, delegationpb.TaskList(&q))
		return delegationpb.TasksFrom(r.GetTasks()), r.GetNextPageToken(), err
	})
}

func listTasks(ctx context.Context, c *call, a *delegated) (any, error) {
	q, faults := a.Filter()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	tasks, next, err := c.tasks(ctx, q)
	if err != nil {
		return nil, err
	}
	var of *delegation.Epic
	if q.Counted() {
		if of, err = c.epic(ctx, q.EpicID); err != nil {
			return nil, err
		}
	}
	return delegation.TasksListed(tasks, next, &q, of), nil
}

func updateTask(ctx context.Context, c *call, a *delegated) (any, error) {
	t, change, faults := a.ChangedTask()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	got, err := delegation.Apply(change, func() (*registryv1.Task, error) {
		return asked(ctx, c.Server, c.Registry.UpdateTask, delegationpb.TaskChange(&t, change.Fields, a.Request))
	}, func() (*registryv1.Task, error) {
		return asked(ctx, c.Server, c.Registry.TransitionTask, delegationpb.TaskMove(&t, a.Request))
	})
	if err != nil {
		return nil, err
	}
	t = delegationpb.TaskFrom(got)
	return delegation.TaskChanged(&t), nil
}

func cancelTask(ctx context.Context, c *call, a *delegated) (any, error) {
	t, faults := a.CanceledTask()
	if err := refusal(faults); err != nil {
		return nil, err
	}
	got, err := asked(ctx, c.Server, c.Registry.GetTask, &registryv1.GetTaskRequest{TaskId: t.ID})
	if err != nil {
		return nil, err
	}
	before := delegationpb.TaskFrom(got)
	if got, err = asked(ctx, c.Server, c.Registry.TransitionTask, delegationpb.TaskMove(&t, a.Request)); err != nil {
		return nil, err
	}
	after := delegationpb.TaskFrom(got)
	return delegation.TaskCanceled(&before, &after), nil
}
