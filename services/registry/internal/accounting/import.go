package accounting

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/tasktree"
)

// ReasonTreeInvalid refuses a document with faults; its violations are all of them.
const ReasonTreeInvalid = "TASK_TREE_INVALID"

// ImportEpic makes an epic and its tasks of a document, all of them or none. Without a request id the content
// of the document stands for one, so that it is not imported twice.
func (b *Accounts) ImportEpic(ctx context.Context, namespace string, o Once, document string) (out epic.Epic, tree tasktree.Tree, err error) {
	tree, faults := tasktree.Read([]byte(document))
	if len(faults) > 0 {
		bad := errs.New(errs.InvalidArgument, ReasonTreeInvalid, "the document has %d faults", len(faults))
		if len(faults) == 1 {
			bad.Message = "the document has a fault"
		}
		for _, f := range faults {
			bad = bad.Violate(f.Path, f.Code, f.String())
		}
		return out, tree, bad.Hint("nothing was imported; mend all of these and import it again")
	}
	byContent := o.ID == ""
	if byContent {
		o.BodyHash = sha256.Sum256([]byte(document))
		o.ID = "sha256:" + hex.EncodeToString(o.BodyHash[:])
	}
	now := dbkit.Now()
	e := epic.New(namespace, tree.Epic, now)
	e.Principal = request.Caller(ctx)
	tasks, err := planted(&e, tree, now)
	if err != nil {
		return out, tree, err
	}
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := o.Earlier(ctx, tx, namespace, "ImportEpic", e.ID, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.Epic(ctx, namespace, earlier)
			if !byContent || !errs.Is(err, errs.NotFound) {
				return err
			}
			// The epic was deleted since. Nobody repeats a request here: the document is to be imported anew.
			if err := tx.Forget(ctx, store.Request{Namespace: namespace, Method: "ImportEpic", ID: o.ID, Resource: earlier}); err != nil {
				return err
			}
			if earlier, err = o.Earlier(ctx, tx, namespace, "ImportEpic", e.ID, now); err != nil {
				return err
			}
			if earlier != "" { // somebody else was first
				out, err = tx.Epic(ctx, namespace, earlier)
				return err
			}
		}
		have, err := tx.CountEpics(ctx, namespace, b.bounds.Epics)
		if err != nil {
			return err
		}
		if err := room(have, b.bounds.Epics, ReasonTooManyEpics, "a namespace", "epics"); err != nil {
			return err
		}
		if len(tasks) > b.bounds.Tasks {
			return room(len(tasks), b.bounds.Tasks, ReasonTooManyTasks, "an epic", "tasks")
		}
		if int(e.Dependencies) > b.bounds.Dependencies {
			return room(int(e.Dependencies), b.bounds.Dependencies, ReasonTooManyDependencies, "an epic", "dependencies")
		}
		out = e
		return insertTree(ctx, tx, e, tasks)
	})
	return out, tree, err
}

// planted are the tasks of a tree in their first states, counted in the epic.
func planted(e *epic.Epic, tree tasktree.Tree, now time.Time) ([]epic.Task, error) {
	tasks := make([]epic.Task, len(tree.Tasks))
	states := make(map[string]epic.TaskState, len(tasks))
	for i, in := range tree.Tasks {
		in.EpicID = e.ID
		for _, at := range in.After {
			in.DependsOn = append(in.DependsOn, tasks[at].ID)
		}
		t, err := epic.NewTask(e.Namespace, in.Task, now)
		if err != nil {
			return nil, err
		}
		t.Principal, t.State = e.Principal, in.State
		if t.State.Ended() {
			t.EndTime = now
		}
		t.Reevaluate(states)
		if err := t.Decide(e.DependencyPolicy, states, now); err != nil {
			return nil, err
		}
		states[t.ID] = t.State
		e.Count(0, t.State)
		e.Dependencies += int32(len(t.DependsOn))
		tasks[i] = t
	}
	if len(tasks) == 0 {
		return nil, nil
	}
	return tasks, e.Move(epic.Active, now)
}

func insertTree(ctx context.Context, tx store.Tx, e epic.Epic, tasks []epic.Task) error {
	if err := tx.InsertEpic(ctx, e); err != nil {
		return err
	}
	words := e.Words()
	for i := range tasks {
		if err := tx.InsertTask(ctx, tasks[i]); err != nil {
			return err
		}
		for w, n := range tasks[i].Words() {
			words[w] += n
		}
	}
	if err := tx.AddWords(ctx, e.Namespace, e.ID, words); err != nil {
		return err
	}
	return capEpic(ctx, tx, e)
}
