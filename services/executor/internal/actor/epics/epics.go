// Package epics has the actors that make epics and tasks, change them and look for them. It owns whose epics
// a run may see and change, and who pays for it. What the actors take and tell is that of the package
// delegation. It must not know where epics are kept.
package epics

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Epic is an epic as an actor makes, changes and tells it.
type Epic = delegation.Epic

// Task is a task as an actor makes, changes and tells it.
type Task = delegation.Task

// Search says which epics are looked for.
type Search = delegation.Search

// Filter says which tasks are listed.
type Filter = delegation.Filter

// Registry keeps the epics and tasks of namespaces. It is safe for concurrent use. A request id makes a
// change once, however often it is asked for. Statuses are the words of the package delegation.
type Registry interface {
	CreateEpic(ctx context.Context, namespace string, e Epic, request string) (Epic, error)
	Epic(ctx context.Context, namespace, id string) (Epic, error)
	// ChangeEpic takes the named fields from e.
	ChangeEpic(ctx context.Context, namespace string, e Epic, fields []string, request string) (Epic, error)
	// MoveEpic takes the epic to the status of e; its result is kept if it is empty.
	MoveEpic(ctx context.Context, namespace string, e Epic, request string) (Epic, error)
	// SearchEpics finds epics, the best first, or without a text the newest first.
	SearchEpics(ctx context.Context, namespace string, s Search) ([]Epic, error)
	CreateTask(ctx context.Context, namespace string, t Task, request string) (Task, error)
	Task(ctx context.Context, namespace, id string) (Task, error)
	// ListTasks returns a page of tasks, oldest first, and the token of the next one.
	ListTasks(ctx context.Context, namespace string, f Filter) ([]Task, string, error)
	// ChangeTask takes the named fields from t; a note is added.
	ChangeTask(ctx context.Context, namespace string, t Task, fields []string, request string) (Task, error)
	// MoveTask takes the task to the status of t, with its result, error and note if there are such. From
	// pending to completed it passes through running, at once.
	MoveTask(ctx context.Context, namespace string, t Task, request string) (Task, error)
}

// ended reports whether nothing follows a status of an epic.
func ended(status string) bool {
	return status == delegation.Completed || status == delegation.Failed || status == delegation.Canceled
}

// reasonNone is the reason where no registry is configured.
const reasonNone = "NO_CATALOG"

// act is what an actor does.
type act func(ctx context.Context, r Registry, call *workgraph.Call, a *delegation.Arguments) (workgraph.Outcome, error)

// Specs describe the actors over a registry; nil stands for none, with which calls fail.
func Specs(r Registry) []actor.Spec {
	unavailable := ""
	if r == nil {
		unavailable = "no registry is configured: upstream.registry"
	}
	acts := map[string]act{
		delegation.EpicCreate: createEpic, delegation.EpicStatus: statusOfEpic, delegation.EpicUpdate: updateEpic, delegation.EpicSearch: searchEpics,
		delegation.TaskCreate: createTask, delegation.TaskList: listTasks, delegation.TaskUpdate: updateTask, delegation.TaskCancel: cancelTask,
	}
	var out []actor.Spec
	for _, t := range delegation.Tools() {
		effect, does := workgraph.Idempotent, acts[t.Name]
		if t.Reads {
			effect = workgraph.Pure
		}
		out = append(out, actor.Spec{
			Name: t.Name, Version: "1", Effect: effect, SeesPlace: true, Elsewhere: true, Schema: t.Schema(), Unavailable: unavailable, Description: t.Description,
			Uncached: func(*workgraph.Node) string { return "epics and tasks change between two calls" },
			Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
				if r == nil {
					return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, reasonNone, "this executor reaches no registry, so it has no epics and tasks")
				}
				var a delegation.Arguments
				if err := actor.Decode(call.Named, &a); err != nil {
					return workgraph.Outcome{}, err
				}
				return does(ctx, r, call, &a)
			}),
		})
	}
	return out
}

// refuse is the answer to a call whose arguments have faults.
func refuse(f delegation.Faults) (workgraph.Outcome, error) { return catalog.Refuse("%s", f) }

// told is what comes of an error: an answer that the caller can act on, or the end of the attempt.
func told(ctx context.Context, err error) (workgraph.Outcome, error) {
	return catalog.Answer(ctx, err, "")
}
