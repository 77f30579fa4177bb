package epics

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

func createTask(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	t, faults := a.NewTask()
	if len(faults) > 0 {
		return refuse(faults)
	}
	t.Node = errs.Clip(call.Node, delegation.MaxTitleTold)
	if err := CheckEpic(ctx, r, actor.NamespaceOf(ctx), call.UserID, t.EpicID); err != nil {
		return told(ctx, err)
	}
	t, err := r.CreateTask(ctx, actor.NamespaceOf(ctx), t, catalog.RequestID(call))
	if err != nil {
		return told(ctx, err)
	}
	return paidWith(ctx, r, call, workgraph.Payer{EpicID: t.EpicID}, delegation.TaskCreated(&t))
}

// pages reads tasks until there are enough, or no more.
func pages(ctx context.Context, r Registry, f Filter) (all []Task, next string, err error) {
	return delegation.Pages(ctx, f, func(ctx context.Context, f Filter) ([]Task, string, error) {
		return r.ListTasks(ctx, actor.NamespaceOf(ctx), f)
	})
}

func listTasks(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	q, faults := a.Filter()
	if len(faults) > 0 {
		return refuse(faults)
	}
	var of *Epic
	if q.EpicID != "" {
		e, err := r.Epic(ctx, actor.NamespaceOf(ctx), q.EpicID)
		if err == nil {
			err = refused(&e, call.UserID)
		}
		if err != nil {
			return told(ctx, err)
		}
		of = &e
	}
	tasks, next, err := pages(ctx, r, q)
	if err != nil {
		return told(ctx, err)
	}
	if of == nil {
		if tasks, err = open(ctx, r, actor.NamespaceOf(ctx), call.UserID, tasks); err != nil {
			return told(ctx, err)
		}
	}
	return actor.Value(delegation.TasksListed(tasks, next, &q, of))
}

func updateTask(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	t, change, faults := a.ChangedTask()
	if len(faults) > 0 {
		return refuse(faults)
	}
	namespace, request := actor.NamespaceOf(ctx), catalog.RequestID(call)
	if err := CheckTask(ctx, r, namespace, call.UserID, t.ID); err != nil {
		return told(ctx, err)
	}
	if t.Status == delegation.Running {
		if err := checkPays(ctx, r, call, t.ID); err != nil {
			return told(ctx, err)
		}
	}
	out, err := delegation.Apply(change, func() (Task, error) {
		return r.ChangeTask(ctx, namespace, t, change.Fields, request+fieldsRequest)
	}, func() (Task, error) { return r.MoveTask(ctx, namespace, t, request) })
	if err != nil {
		return told(ctx, err)
	}
	p := workgraph.Payer{EpicID: out.EpicID}
	if change.Moves { // a task that a run works on cannot be moved to running
		p.TaskID, p.Done = out.ID, t.Status != delegation.Running
	}
	return paidWith(ctx, r, call, p, delegation.TaskChanged(&out))
}

func cancelTask(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error) {
	t, faults := a.CanceledTask()
	if len(faults) > 0 {
		return refuse(faults)
	}
	namespace := actor.NamespaceOf(ctx)
	before, err := r.Task(ctx, namespace, t.ID)
	if err != nil {
		return told(ctx, err)
	}
	if err := CheckEpic(ctx, r, namespace, call.UserID, before.EpicID); err != nil {
		return told(ctx, err)
	}
	out, err := r.MoveTask(ctx, namespace, t, catalog.RequestID(call))
	if err != nil {
		return told(ctx, err)
	}
	answer := delegation.TaskCanceled(&before, &out)
	if before.Status == delegation.Canceled {
		return actor.Value(answer) // this call changes nothing
	}
	return paidWith(ctx, r, call, workgraph.Payer{EpicID: out.EpicID, TaskID: out.ID, Done: true}, answer)
}
