package accounting

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/words"
)

// work is one task and its epic in one transaction that has the epic's lock.
type work struct {
	tx   store.Tx
	now  time.Time
	epic epic.Epic
	task epic.Task
	// before is the task as it was read; empty until it is inserted.
	before epic.Task
	// over is the revision of the task that was read; 0 until it is inserted.
	over int64
	// epicOver is the revision of the epic that was read.
	epicOver int64
	// recounted says that the dependencies of the epic are not as many as were read.
	recounted bool
}

// open locks the epic of a task and reads both.
func open(ctx context.Context, tx store.Tx, namespace, taskID string, now time.Time) (*work, error) {
	found, err := tx.TaskTotals(ctx, namespace, []string{taskID})
	if err != nil {
		return nil, err
	}
	of, ok := found[taskID]
	if !ok {
		return nil, store.TaskNotFound(taskID)
	}
	e, err := tx.LockEpic(ctx, namespace, of.EpicID)
	if errs.Is(err, errs.NotFound) {
		return nil, store.TaskNotFound(taskID)
	}
	if err != nil {
		return nil, err
	}
	// Only values read under the lock are stable; the epic of a task never changes.
	t, err := tx.Task(ctx, namespace, taskID)
	if err != nil {
		return nil, err
	}
	return &work{tx: tx, now: now, epic: e, epicOver: e.Revision, task: t, before: t, over: t.Revision}, nil
}

// save writes the task, keeps the counters of its epic, and decides what becomes of the tasks that wait for
// it.
func (w *work) save(ctx context.Context, was epic.TaskState) error {
	w.task.Touch(w.now, request.Caller(ctx))
	if err := w.tx.PutTask(ctx, w.task, w.over); err != nil {
		return err
	}
	w.over = w.task.Revision
	if err := w.words(ctx); err != nil {
		return err
	}
	w.before = w.task
	if was == w.task.State && !w.recounted {
		return nil
	}
	w.epic.Count(was, w.task.State)
	if was != w.task.State && w.task.State.Dead() {
		if err := end(ctx, w.tx, &w.epic, []string{w.task.ID}, w.now); err != nil {
			return err
		}
	}
	if was != w.task.State && w.task.State == epic.TaskCompleted {
		if err := w.unblock(ctx); err != nil {
			return err
		}
	}
	if was == epic.TaskPending && w.task.State != was && w.epic.Parallel > 0 {
		if err := w.tx.ForgetStarts(ctx, w.epic.Namespace, w.epic.ID, w.task.ID); err != nil {
			return err
		}
	}
	return w.saveEpic(ctx)
}

// saveEpic writes the epic, and goes on with its tasks if it runs by itself.
func (w *work) saveEpic(ctx context.Context) error {
	before := w.epic.State
	if err := advance(ctx, w.tx, &w.epic, w.now); err != nil {
		return err
	}
	w.epic.UpdateTime = w.now
	if err := w.tx.PutEpic(ctx, w.epic, w.epicOver); err != nil {
		return err
	}
	w.epicOver = w.epic.Revision
	return keepProcedure(ctx, w.tx, before, &w.epic, w.now)
}

// holder returns the claim that keeps others from the task, or nil. It marks a claim whose lease is over as
// lost.
func (w *work) holder(ctx context.Context) (*epic.Claim, error) {
	c, err := w.tx.ActiveClaim(ctx, w.task.Namespace, w.task.ID)
	if err != nil || c == nil {
		return nil, err
	}
	clock, err := w.tx.Clock(ctx)
	if err != nil || c.Holds(clock) {
		return c, err
	}
	return nil, w.claim(ctx, *c, epic.Lost)
}

func (w *work) claim(ctx context.Context, c epic.Claim, to epic.ClaimState) error {
	c.State = to
	return w.tx.PutClaim(ctx, c)
}

// CreateTask adds a task to an epic that has not ended; the first one makes the epic active.
func (b *Accounts) CreateTask(ctx context.Context, namespace string, o Once, in epic.Task) (out epic.Task, err error) {
	now := dbkit.Now()
	in.Notes = signed(ctx, in.Notes)
	in, err = epic.NewTask(namespace, in, now)
	if err != nil {
		return epic.Task{}, err
	}
	in.Principal = request.Caller(ctx)
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := o.Earlier(ctx, tx, namespace, "CreateTask", in.ID, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = explained(ctx, tx, namespace, earlier)
			return err
		}
		e, err := tx.LockEpic(ctx, namespace, in.EpicID)
		if err != nil {
			return err
		}
		if e.State.Ended() {
			return epic.NotActive(e)
		}
		if err := room(int(e.TotalTasks), b.bounds.Tasks, ReasonTooManyTasks, "an epic", "tasks"); err != nil {
			return err
		}
		w := &work{tx: tx, now: now, epic: e, epicOver: e.Revision, task: in}
		if err := w.count(len(in.DependsOn), b.bounds.Dependencies); err != nil {
			return err
		}
		states, err := w.block(ctx)
		if err != nil {
			return err
		}
		if err := epic.CheckDependencies(e.ID, in.DependsOn, states); err != nil {
			return err
		}
		if err := w.task.Decide(e.DependencyPolicy, states, now); err != nil {
			return err
		}
		if err := tx.InsertTask(ctx, w.task); err != nil {
			return err
		}
		if err := w.words(ctx); err != nil {
			return err
		}
		w.epic.Count(0, w.task.State)
		if w.epic.State == epic.Planning {
			if err := w.epic.Move(epic.Active, now); err != nil {
				return err
			}
			w.epic.Touch(now, request.Caller(ctx))
		}
		if err := explain(ctx, tx, &w.task); err != nil {
			return err
		}
		out = w.task
		return w.saveEpic(ctx)
	})
	return out, err
}

// ServedTask answers a request that made or changed a task before, so that its work is not done again.
func (b *Accounts) ServedTask(ctx context.Context, namespace, method string, o Once) (out epic.Task, served bool, err error) {
	if o.ID == "" {
		return out, false, nil
	}
	err = b.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		earlier, err := o.Before(ctx, r, namespace, method)
		if err != nil || earlier == "" {
			return err
		}
		served = true
		out, err = explained(ctx, r, namespace, earlier)
		return err
	})
	return out, served, err
}

// Task reads one.
func (b *Accounts) Task(ctx context.Context, namespace, id string) (epic.Task, error) {
	return view(ctx, b, namespace, func(ctx context.Context, r store.Reader) (epic.Task, error) { return explained(ctx, r, namespace, id) })
}

// explained reads a task with what keeps it waiting.
func explained(ctx context.Context, r store.Reader, namespace, id string) (epic.Task, error) {
	t, err := r.Task(ctx, namespace, id)
	if err != nil {
		return t, err
	}
	return t, explain(ctx, r, &t)
}

// Tasks lists.
func (b *Accounts) Tasks(ctx context.Context, q store.TaskQuery) (store.Found[epic.Task], error) {
	return view(ctx, b, q.Namespace, func(ctx context.Context, r store.Reader) (store.Found[epic.Task], error) {
		return r.Tasks(ctx, q)
	})
}

// changeTask runs one change of a task, with request id and etag.
func (b *Accounts) changeTask(ctx context.Context, namespace, method, id string, c Change, fn func(context.Context, *work) error) (out epic.Task, err error) {
	now := dbkit.Now()
	err = b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := c.Earlier(ctx, tx, namespace, method, id, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = explained(ctx, tx, namespace, earlier)
			return err
		}
		w, err := open(ctx, tx, namespace, id, now)
		if err != nil {
			return err
		}
		if err := w.task.CheckEtag(c.Etag); err != nil {
			return err
		}
		was := w.task.State
		if err := fn(ctx, w); err != nil {
			return err
		}
		if err := w.save(ctx, was); err != nil {
			return err
		}
		if err := explain(ctx, tx, &w.task); err != nil {
			return err
		}
		out = w.task
		return nil
	})
	return out, err
}

// UpdateTask takes these fields from in. Other dependencies block or unblock the task.
func (b *Accounts) UpdateTask(ctx context.Context, namespace, id string, c Change, in epic.Task, fields []string) (epic.Task, error) {
	in.Notes = signed(ctx, in.Notes)
	return b.changeTask(ctx, namespace, "UpdateTask", id, c, func(ctx context.Context, w *work) error {
		before, policy := w.task.DependsOn, w.task.DependencyPolicy
		for _, f := range fields {
			if _, err := w.task.Take(f, in, w.now); err != nil {
				return err
			}
		}
		if err := w.task.SettleSource(fields); err != nil {
			return err
		}
		switch {
		case !slices.Equal(before, w.task.DependsOn):
			return w.depend(ctx, before, b.bounds.Dependencies)
		case policy != w.task.DependencyPolicy:
			return w.decide(ctx)
		}
		return nil
	})
}

// signed are remarks with the principal of the API key in use.
func signed(ctx context.Context, notes []epic.Note) []epic.Note {
	notes = slices.Clone(notes)
	for i := range notes {
		notes[i].Principal = request.Caller(ctx)
	}
	return notes
}

// unclaimed refuses while a run has claimed the task.
func (w *work) unclaimed(ctx context.Context) error {
	c, err := w.holder(ctx)
	if err != nil || c == nil {
		return err
	}
	return errs.New(errs.FailedPrecondition, epic.ReasonTaskClaimed, "run %s works on task %s", c.RunID, w.task.ID).
		Set("run_id", c.RunID).Hint("wait until the run has ended, or move the task to CANCELED, which cancels the run")
}

// Outcome is the optional report with a move of a task; empty parts change nothing.
type Outcome struct{ Summary, Error, Note string }

// MoveTask takes a task to another state.
func (b *Accounts) MoveTask(ctx context.Context, namespace, id string, c Change, to epic.TaskState, o Outcome) (epic.Task, error) {
	return b.changeTask(ctx, namespace, "TransitionTask", id, c, func(ctx context.Context, w *work) error {
		was := w.task.State
		if err := w.task.Move(to, w.now); err != nil {
			return err
		}
		if err := w.allow(ctx, was, to); err != nil {
			return err
		}
		if to == epic.TaskPending || to == epic.TaskCompleted {
			w.task.ErrorMessage = "" // that of an earlier try, which is dealt with
		}
		if o.Summary != "" {
			w.task.ResultSummary = o.Summary
		}
		if o.Error != "" {
			w.task.ErrorMessage = o.Error
		}
		if o.Note == "" {
			return nil
		}
		return w.task.AddNote(epic.Note{Text: o.Note, Principal: request.Caller(ctx)}, w.now)
	})
}

// allow checks the conditions of a move beyond the table. A run's task is ended by that run, since another
// run could take it while this one goes on; by hand it can only be canceled, and its run with it.
func (w *work) allow(ctx context.Context, was, to epic.TaskState) error {
	if to == epic.TaskCanceled {
		return w.cancel(ctx)
	}
	if err := w.unclaimed(ctx); err != nil {
		return err
	}
	// Work begins, or a task comes back, only where work is going on.
	starts := was == epic.TaskPending && (to == epic.TaskRunning || to == epic.TaskCompleted)
	if starts && w.epic.State != epic.Active || to == epic.TaskPending && w.epic.State.Ended() {
		return epic.NotActive(w.epic)
	}
	switch to {
	case epic.TaskRunning:
		// Work that nobody's run does is let in as a run is.
		if err := w.epic.CheckBudget(); err != nil {
			return err
		}
		if err := w.estimateFits(ctx); err != nil {
			return err
		}
		w.warn()
		return nil
	case epic.TaskPending:
		return w.reopenTask(ctx, was)
	}
	return nil
}

// cancel asks for the end of the runs of a task that is canceled, and ends its claim.
func (w *work) cancel(ctx context.Context) error {
	if err := w.tx.CancelRuns(ctx, w.task.Namespace, w.epic.ID, w.task.ID, epic.ReasonTaskCanceled); err != nil {
		return err
	}
	c, err := w.tx.ActiveClaim(ctx, w.task.Namespace, w.task.ID)
	if err != nil || c == nil {
		return err
	}
	return w.claim(ctx, *c, epic.Released)
}

// reopenTask lets a task be worked on that was blocked or has failed.
func (w *work) reopenTask(ctx context.Context, was epic.TaskState) error {
	states, err := w.block(ctx)
	if err != nil {
		return err
	}
	if was == epic.TaskFailed {
		// A failed task that has come to depend on others is tried again when those are completed; but one
		// that its policy would end again at once is not.
		return w.alive(states)
	}
	if unmet := epic.Unmet(w.task.DependsOn, states); len(unmet) > 0 {
		list := strings.Join(unmet, ", ")
		return errs.New(errs.FailedPrecondition, epic.ReasonDependenciesUnmet, "task %s waits for %s", w.task.ID, list).
			Set("unmet", list).Hint("complete these tasks, or take them out of depends_on")
	}
	return nil
}

// alive refuses to try a task again that its policy would end at once.
func (w *work) alive(states map[string]epic.TaskState) error {
	dead := epic.Dead(w.task.DependsOn, states)
	if _, ends := w.task.DependencyPolicy.In(w.epic.DependencyPolicy).Ends(); !ends || len(dead) == 0 {
		return nil
	}
	list := strings.Join(dead, ", ")
	return errs.New(errs.FailedPrecondition, epic.ReasonDependenciesUnmet, "task %s depends on %s, which failed or was canceled", w.task.ID, list).
		Set("unmet", list).Hint("try these again first, or take them out of depends_on")
}

// DeleteTask removes a task, and its id from what others depend on. Runs that are still at work on it are
// canceled.
func (b *Accounts) DeleteTask(ctx context.Context, namespace, id, etag string) error {
	now := dbkit.Now()
	return b.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		w, err := open(ctx, tx, namespace, id, now)
		if err != nil {
			return err
		}
		if err := w.task.CheckEtag(etag); err != nil {
			return err
		}
		if w.task.State == epic.TaskRunning {
			return errs.New(errs.FailedPrecondition, "TASK_RUNNING", "task %s is running", id).
				Set("run_id", w.task.RunID).Hint("cancel it first")
		}
		if err := w.unblock(ctx); err != nil {
			return err
		}
		dependents, err := tx.ForgetDependency(ctx, namespace, id, now, request.Caller(ctx))
		if err != nil {
			return err
		}
		if err := tx.CancelRuns(ctx, namespace, w.epic.ID, id, epic.ReasonTaskDeleted); err != nil {
			return err
		}
		if err := tx.DeleteTask(ctx, namespace, id, w.over); err != nil {
			return err
		}
		if err := tx.ForgetStarts(ctx, namespace, w.epic.ID, id); err != nil {
			return err
		}
		if err := tx.AddWords(ctx, namespace, w.epic.ID, words.Weights{}.Since(w.task.Words())); err != nil {
			return err
		}
		w.epic.Dependencies = max(0, w.epic.Dependencies-int32(dependents+len(w.task.DependsOn)))
		w.epic.Count(w.task.State, 0)
		return w.saveEpic(ctx)
	})
}
