package accounting

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// dependentsBatch is how many dependents are read and written at once. Of 1,000 dependencies each, they fill
// some megabytes.
const dependentsBatch = 100

// statesBatch is how many states one statement writes.
const statesBatch = 1000

// block reevaluates the task at hand without saving it.
func (w *work) block(ctx context.Context) (map[string]epic.TaskState, error) {
	states, err := w.tx.TaskStates(ctx, w.epic.Namespace, w.epic.ID, w.task.DependsOn)
	if err != nil {
		return nil, err
	}
	w.task.Reevaluate(states)
	return states, nil
}

// unblock lets the tasks go on that waited for nothing but the task at hand, which is completed or about to
// be deleted. It reads and writes no more of them than decides that: their bodies may be large, and other
// tenants wait for the end of the transaction.
func (w *work) unblock(ctx context.Context) error {
	states := map[string]epic.TaskState{}
	for after := ""; ; {
		batch, err := w.tx.Blocked(ctx, w.task.Namespace, w.task.ID, after, dependentsBatch)
		if err != nil {
			return err
		}
		for i := range batch {
			batch[i].DependsOn = without(batch[i].DependsOn, w.task.ID)
		}
		if err := w.look(ctx, batch, states); err != nil {
			return err
		}
		var free []epic.Dependent
		for _, d := range batch {
			if d.Reevaluate(states) {
				free = append(free, d)
			}
		}
		if len(free) > 0 {
			if err := w.tx.PutStates(ctx, w.task.Namespace, free, w.now); err != nil {
				return err
			}
		}
		if len(batch) < dependentsBatch {
			return nil
		}
		after = batch[len(batch)-1].ID
	}
}

// look adds the states of what these tasks depend on, unless they are known.
func (w *work) look(ctx context.Context, tasks []epic.Dependent, known map[string]epic.TaskState) error {
	var ids []string
	for _, d := range tasks {
		for _, id := range d.DependsOn {
			if _, ok := known[id]; !ok {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	states, err := w.tx.TaskStates(ctx, w.epic.Namespace, w.epic.ID, slices.Compact(ids))
	maps.Copy(known, states)
	return err
}

// end decides what becomes of the tasks that wait for tasks of the epic which have failed or were canceled,
// and of those that wait for them in turn. It counts them in the epic, which is not saved. Their bodies are
// not read.
func end(ctx context.Context, tx store.Tx, e *epic.Epic, tasks []string, now time.Time) error {
	doomed, err := tx.Doomed(ctx, e.Namespace, e.ID, e.DependencyPolicy, tasks)
	if err != nil {
		return err
	}
	gone := make(map[string]bool, len(tasks)+len(doomed))
	for _, id := range tasks {
		gone[id] = true
	}
	for _, d := range doomed {
		gone[d.ID] = true
	}
	for some := range slices.Chunk(doomed, statesBatch) {
		var ended []epic.Dependent
		for _, d := range some {
			if was := d.State; d.Decide(func(id string) bool { return gone[id] }) {
				e.Count(was, d.State)
				ended = append(ended, d)
			}
		}
		if len(ended) == 0 {
			continue
		}
		if err := tx.PutStates(ctx, e.Namespace, ended, now); err != nil {
			return err
		}
	}
	return nil
}

// explain names what keeps a task waiting for good.
func explain(ctx context.Context, r store.Reader, t *epic.Task) (err error) {
	if t.State == epic.TaskBlocked {
		t.BlockedBy, err = r.BlockedBy(ctx, t.Namespace, t.ID, epic.MaxBlockedBy)
	}
	return err
}

// depend checks what the task has come to depend on, and blocks or unblocks it.
func (w *work) depend(ctx context.Context, before []string, most int) error {
	switch w.task.State {
	case epic.TaskRunning, epic.TaskCompleted, epic.TaskCanceled:
		return errs.New(errs.FailedPrecondition, epic.ReasonDependenciesFixed, "task %s is %s; what it depends on cannot change any more",
			w.task.ID, w.task.State).Set("state", w.task.State.String())
	}
	if err := w.unclaimed(ctx); err != nil {
		return err
	}
	if err := w.count(len(w.task.DependsOn)-len(before), most); err != nil {
		return err
	}
	states, err := w.block(ctx)
	if err != nil {
		return err
	}
	if err := epic.CheckDependencies(w.epic.ID, w.task.DependsOn, states); err != nil {
		return err
	}
	// There was no cycle before, so a cycle must go through an added dependency.
	if err := epic.CheckCycle(w.task.ID, added(w.task.DependsOn, before), func(ids []string) (map[string][]string, error) {
		return w.tx.Edges(ctx, w.epic.Namespace, ids)
	}); err != nil {
		return err
	}
	return w.task.Decide(w.epic.DependencyPolicy, states, w.now)
}

// decide applies the policy of the task, which has changed, to what it depends on.
func (w *work) decide(ctx context.Context) error {
	if w.task.State != epic.TaskBlocked {
		return nil
	}
	states, err := w.tx.TaskStates(ctx, w.epic.Namespace, w.epic.ID, w.task.DependsOn)
	if err != nil {
		return err
	}
	return w.task.Decide(w.epic.DependencyPolicy, states, w.now)
}

// count counts dependencies that tasks of the epic get or, if there are fewer, lose. It refuses more than
// there may be.
func (w *work) count(more, most int) error {
	have := int(w.epic.Dependencies)
	if more > 0 && have+more > most {
		return errs.New(errs.ResourceExhausted, ReasonTooManyDependencies, "the tasks of an epic may have %d dependencies together; epic %s has %d, and %d are to be added",
			most, w.epic.ID, have, more).
			Hint("let tasks depend on those right before them only: what these wait for, they wait for too")
	}
	w.epic.Dependencies = max(0, w.epic.Dependencies+int32(more))
	w.recounted = more != 0
	return nil
}

// added lists the ids that were not there before.
func added(ids, before []string) []string {
	old := make(map[string]bool, len(before))
	for _, id := range before {
		old[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return old[id] })
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
}
