package epics

import (
	"cmp"
	"context"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonForeign is the reason with which an epic of another user, or a task of one, is refused.
const ReasonForeign = "EPIC_OF_ANOTHER_USER"

// Owners finds epics and tasks, for CheckEpic and CheckTask. It is safe for concurrent use.
type Owners interface {
	Epic(ctx context.Context, namespace, id string) (Epic, error)
	Task(ctx context.Context, namespace, id string) (Task, error)
}

var _ Owners = Registry(nil)

// closedTo reports whether the epic is not for runs of a user. A run that works on a task of an epic has the
// user of the epic, and with it the memory of that user. A run without a user belongs to an application that
// serves all users, and an epic without a user is for all.
func closedTo(e *Epic, user string) bool { return user != "" && e.User != "" && e.User != user }

// CheckEpic refuses an epic that is not for runs of a user.
func CheckEpic(ctx context.Context, r Owners, namespace, user, id string) error {
	if user == "" {
		return nil
	}
	e, err := r.Epic(ctx, namespace, id)
	if err != nil {
		return err
	}
	return refused(&e, user)
}

func refused(e *Epic, user string) error {
	if !closedTo(e, user) {
		return nil
	}
	return errs.New(errs.NotFound, ReasonForeign, "epic %s is not one of the user of this run", e.ID).
		Hint("epic_search finds the epics of the user, and epic_create makes one")
}

// CheckTask refuses a task whose epic is not for runs of a user.
func CheckTask(ctx context.Context, r Owners, namespace, user, id string) error {
	if user == "" {
		return nil
	}
	t, err := r.Task(ctx, namespace, id)
	if err != nil {
		return err
	}
	return CheckEpic(ctx, r, namespace, user, t.EpicID)
}

// ReasonPays is the reason with which a run is refused that wants an epic of others to pay for it.
const ReasonPays = "EPIC_DOES_NOT_PAY"

// paysFor reports whether calls of a run may be booked on the epic: one that this run or another one of its
// tree has made, or a run of which this one is a retry or a fork, or one of its user. Without this an
// application could spend the budget of any epic.
func paysFor(ctx context.Context, e *Epic, call *workgraph.Call) bool {
	return e.User != "" && e.User == call.UserID || e.Root != "" && e.Root == cmp.Or(access.MakerOf(ctx).Root, call.RootRunID)
}

// Payer is p if the calls of the run may be booked on its epic; else nil, which leaves the payer as it is. A
// run with a task keeps to its task, whatever it changes.
func Payer(ctx context.Context, r Owners, call *workgraph.Call, p workgraph.Payer) (*workgraph.Payer, error) {
	if p.EpicID == "" || call.TaskID != "" {
		return nil, nil
	}
	e, err := r.Epic(ctx, actor.NamespaceOf(ctx), p.EpicID)
	if errs.Is(err, errs.NotFound) {
		return nil, nil
	}
	if err != nil || !paysFor(ctx, &e, call) || ended(e.Status) {
		return nil, err
	}
	return &p, nil
}

// checkPays refuses a run that would do a task itself whose epic does not pay for it.
func checkPays(ctx context.Context, r Owners, call *workgraph.Call, task string) error {
	if call.TaskID != "" {
		return nil
	}
	t, err := r.Task(ctx, actor.NamespaceOf(ctx), task)
	if err != nil {
		return err
	}
	e, err := r.Epic(ctx, actor.NamespaceOf(ctx), t.EpicID)
	if err != nil || paysFor(ctx, &e, call) {
		return err
	}
	return errs.New(errs.FailedPrecondition, ReasonPays, "epic %s was made by others and is not one of the user of this run, so it does not pay for this run", e.ID).
		Hint("spawn_and_await has another run work on the task, and epic_create makes an epic of this run")
}

// open leaves out tasks of epics that are not for runs of a user. Each epic is asked for once.
func open(ctx context.Context, r Owners, namespace, user string, tasks []Task) ([]Task, error) {
	if user == "" {
		return tasks, nil
	}
	closed := map[string]bool{}
	out := make([]Task, 0, len(tasks))
	for i := range tasks {
		id := tasks[i].EpicID
		if _, known := closed[id]; !known {
			e, err := r.Epic(ctx, namespace, id)
			if err != nil && !errs.Is(err, errs.NotFound) {
				return nil, err
			}
			closed[id] = err != nil || closedTo(&e, user) // an epic that is gone takes its tasks along
		}
		if !closed[id] {
			out = append(out, tasks[i])
		}
	}
	return out, nil
}
