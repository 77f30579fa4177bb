package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// epicPoll is how often a watched epic is looked at.
const epicPoll = time.Second

type epicsRunCmd struct {
	ID        string `arg:"" help:"The epic."`
	Parallel  int32  `help:"Maximum number of tasks at work at once, 64 at most; 4 at first, then as it was." short:"p" placeholder:"N"`
	Workflow  string `help:"Workflow of tasks that name neither one nor requirements." placeholder:"NAME"`
	Watch     bool   `help:"Show the progress until the epic ends or is paused." short:"w" xor:"how"`
	Forecast  bool   `help:"Show what the open tasks may cost and how long they may take; start nothing." xor:"how"`
	Etag      string `help:"Run it only if it still has this etag."`
	RequestID string `help:"Make the command repeatable under this id." placeholder:"ID"`
}

// Help says what starts, and what stops it.
func (epicsRunCmd) Help() string {
	return `The epic runs by itself from now on: tasks that wait for nothing are started, each with its workflow, and those that wait for them follow. A task without a workflow is started with the best match of its requirements. A failed task is tried again as often as its max_retries says. The epic ends with its last task, and is paused when its budget is spent; raising the budget continues it. Another call changes the limit. With --watch the exit codes are those of "epigraph run".

With --forecast nothing is started: it adds up the forecasts of the workflows of all open tasks, along their dependencies and the limit.

    epigraph epics run ep_01… --parallel 8 --forecast
    epigraph epics run ep_01… --parallel 8 --watch`
}

// Run has the epic run by itself.
func (c *epicsRunCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		if c.Forecast {
			f, err := s.registry.ForecastEpic(ctx, &registryv1.ForecastEpicRequest{EpicId: c.ID, Parallel: c.Parallel, WorkflowSlug: c.Workflow})
			if err != nil {
				return err
			}
			return e.print(f, func() string { return epicForecastText(e, f) })
		}
		x, err := s.registry.RunEpic(ctx, &registryv1.RunEpicRequest{EpicId: c.ID, Parallel: c.Parallel, WorkflowSlug: c.Workflow, Etag: c.Etag, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		last := ""
		for c.Watch && !epicRests(x) {
			line, stuck, err := progress(ctx, s, x)
			if err != nil {
				return err
			}
			if stuck {
				e.note("%s", line)
				e.help("`epigraph tasks ls %s --state failed` shows what failed, `epigraph tasks transition TASK pending` tries it again", x.GetId())
				break
			}
			if line != last {
				e.note("%s", line)
				last = line
			}
			if !sleep.For(ctx, epicPoll) {
				return ctx.Err()
			}
			if x, err = s.registry.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: c.ID}); err != nil {
				return err
			}
		}
		if err := e.print(x, func() string { return epicText(e, x) }); err != nil {
			return err
		}
		switch {
		case x.GetPauseReason() == namespaceCap:
			e.help("`epigraph budgets set --hard-usd X`, or --hard-tokens N, raises the cap of the namespace and continues it")
		case x.GetPauseReason() != "":
			e.help("`epigraph epics update %s %s` raises the budget and continues it", x.GetId(), shortBudget(x))
		case !c.Watch:
			e.help("`epigraph epics show %s` tells how far it is, `epigraph epics pause %[1]s` pauses it", x.GetId())
		}
		if !c.Watch {
			return nil
		}
		return epicExit(x)
	})
}

// epicExit is the exit code of a watch for the state that an epic has come to.
func epicExit(x *registryv1.Epic) error {
	switch x.GetState() {
	case registryv1.EpicState_EPIC_STATE_COMPLETED:
		return nil
	case registryv1.EpicState_EPIC_STATE_CANCELED:
		return exit(exitCanceled)
	case registryv1.EpicState_EPIC_STATE_PAUSED:
		return exit(exitPaused)
	}
	return exit(exitFailed) // it is stuck, too, if it is active
}

// shortBudget are the flags of the caps of an epic that its budget came to: those that are spent, else all.
func shortBudget(x *registryv1.Epic) string {
	var spent, all []string
	flag := func(name string, limit *int64, used int64) {
		if limit == nil {
			return
		}
		if all = append(all, name); used >= *limit {
			spent = append(spent, name)
		}
	}
	flag("--budget-usd X", x.BudgetNanoUsd, x.GetSpentNanoUsd())
	flag("--budget-tokens N", x.BudgetTokens, x.GetSpentTokens())
	if len(spent) == 0 {
		spent = all
	}
	return strings.Join(spent, " ")
}

// epicRests reports whether an epic goes on no more by itself.
func epicRests(x *registryv1.Epic) bool {
	s := x.GetState()
	return s != registryv1.EpicState_EPIC_STATE_ACTIVE && s != registryv1.EpicState_EPIC_STATE_PLANNING
}

// progress counts the tasks of an epic by what they do. stuck says that it goes on only if somebody mends a
// task that has failed.
func progress(ctx context.Context, s *services, x *registryv1.Epic) (line string, stuck bool, err error) {
	counts := map[registryv1.TaskState]int{}
	req := &registryv1.ListTasksRequest{EpicId: x.GetId(), PageSize: maxPage, States: []registryv1.TaskState{
		registryv1.TaskState_TASK_STATE_PENDING, registryv1.TaskState_TASK_STATE_BLOCKED, registryv1.TaskState_TASK_STATE_RUNNING}}
	for {
		r, err := s.registry.ListTasks(ctx, req)
		if err != nil {
			return "", false, err
		}
		for _, t := range r.GetTasks() {
			counts[t.GetState()]++
		}
		if req.PageToken = r.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	stuck = x.GetFailedTasks() > 0 && counts[registryv1.TaskState_TASK_STATE_RUNNING]+counts[registryv1.TaskState_TASK_STATE_PENDING] == 0
	return fmt.Sprintf("%d of %d done, %d running, %d ready, %d blocked, %d failed; spent %s tokens, %s", x.GetCompletedTasks(), x.GetTotalTasks(),
		counts[registryv1.TaskState_TASK_STATE_RUNNING], counts[registryv1.TaskState_TASK_STATE_PENDING], counts[registryv1.TaskState_TASK_STATE_BLOCKED],
		x.GetFailedTasks(), ofBudget(view.Count(x.GetSpentTokens()), x.BudgetTokens, view.Count), ofBudget(spent(x.GetSpentNanoUsd(), x.GetUnpricedCalls()), x.BudgetNanoUsd, view.Money)), stuck, nil
}

// ofBudget adds a cap to what was spent, if there is one.
func ofBudget(spent string, budget *int64, text func(int64) string) string {
	if budget == nil {
		return spent
	}
	return spent + " of " + text(*budget)
}

type epicsPauseCmd struct {
	ID   string `arg:"" help:"The epic."`
	Etag string `help:"Pause it only if it still has this etag."`
}

// Help says what goes on.
func (epicsPauseCmd) Help() string {
	return `No task of the epic starts any more, and the runs that work on its tasks are paused within seconds: calls in flight continue and their results are kept. "epigraph epics resume" resumes those runs. A run that somebody has paused alone stays paused.`
}

// Run pauses.
func (c *epicsPauseCmd) Run(e *env) error {
	return moveEpic(e, c.ID, c.Etag, registryv1.EpicState_EPIC_STATE_PAUSED, "resume", "continues it and the runs that were paused with it")
}

type epicsResumeCmd struct {
	ID   string `arg:"" help:"The epic."`
	Etag string `help:"Resume it only if it still has this etag."`
}

// Help says which runs go on.
func (epicsResumeCmd) Help() string {
	return `The tasks of the epic can be started again, and the runs that were paused with it are resumed within seconds. A run that somebody has paused alone stays paused. An epic that has spent its budget needs more first: "epigraph epics update ID --budget-usd X", or --budget-tokens N, resumes it at once.`
}

// Run resumes.
func (c *epicsResumeCmd) Run(e *env) error {
	return moveEpic(e, c.ID, c.Etag, registryv1.EpicState_EPIC_STATE_ACTIVE, "pause", "pauses it and its runs")
}

func moveEpic(e *env, id, etag string, to registryv1.EpicState, next, does string) error {
	return e.with(func(ctx context.Context, s *services) error {
		x, err := s.registry.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: id, State: to, Etag: etag})
		if err != nil {
			return err
		}
		if err := e.print(x, func() string { return epicText(e, x) }); err != nil {
			return err
		}
		e.help("`epigraph epics %s %s` %s", next, id, does)
		return nil
	})
}

// taskWork is what a task says of the workflow that works on it.
type taskWork struct {
	Workflow     *string `help:"Workflow that works on it when its epic runs by itself, as NAME or NAME@VERSION." placeholder:"NAME"`
	Definition   *string `help:"File with a workflow of its own, which is not kept in the catalog: a definition, a graph as JSON, or a fork with based_on and patches. Empty takes it away." placeholder:"FILE"`
	Requirements *string `help:"What a workflow must offer to work on it, as a JSON object." placeholder:"JSON"`
	Input        *string `help:"Inputs of its workflow, as a JSON object." placeholder:"JSON"`
	MaxRetries   *int32  `help:"How often it may be tried again; -1 means never, default 2." placeholder:"N"`
}

// apply sets what is given, and returns the fields.
func (w taskWork) apply(e *env, t *registryv1.Task) (mask []string, err error) {
	if w.Workflow != nil {
		t.WorkflowSlug = *w.Workflow
		mask = append(mask, "workflow_slug")
	}
	if w.Definition != nil {
		mask = append(mask, "definition")
		if *w.Definition != "" {
			if t.Definition, err = e.readText(*w.Definition); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range []struct {
		flag, field string
		given       *string
		into        **graphv1.Payload
	}{{"--requirements", "requirements", w.Requirements, &t.Requirements}, {"--input", "input", w.Input, &t.Input}} {
		if f.given == nil {
			continue
		}
		mask = append(mask, f.field)
		if *f.given == "" {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(*f.given), &object); err != nil {
			return nil, usage(errs.New(errs.InvalidArgument, "JSON_INVALID", "%s is not a JSON object: %v", f.flag, err))
		}
		*f.into = &graphv1.Payload{Json: []byte(*f.given)}
	}
	if w.MaxRetries != nil {
		t.MaxRetries = *w.MaxRetries
		mask = append(mask, "max_retries")
	}
	return mask, nil
}

type tasksUpdateCmd struct {
	ID          string   `arg:"" help:"The task."`
	Title       *string  `help:"Short name of the task."`
	Description *string  `help:"The work to do."`
	DependsOn   []string `help:"Tasks of the same epic that it depends on." placeholder:"ID"`
	taskWork
	Etag string `help:"Change it only if it still has this etag."`
}

// Run changes the given fields.
func (c *tasksUpdateCmd) Run(e *env) error {
	x := &registryv1.Task{Id: c.ID, Etag: c.Etag}
	mask, err := c.apply(e, x)
	if err != nil {
		return err
	}
	if c.Title != nil {
		x.Title = *c.Title
		mask = append(mask, "title")
	}
	if c.Description != nil {
		x.Description = *c.Description
		mask = append(mask, "description")
	}
	if c.DependsOn != nil {
		x.DependsOn = c.DependsOn
		mask = append(mask, "depends_on")
	}
	if len(mask) == 0 {
		return usage(errs.New(errs.InvalidArgument, "NOTHING_TO_CHANGE", "say what is to change").Hint("see `epigraph tasks update --help`"))
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.UpdateTask(ctx, &registryv1.UpdateTaskRequest{Task: x, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return taskText(e, r) })
	})
}

// runsItself says of an epic that it runs by itself, and why it does not go on.
func runsItself(x *registryv1.Epic) string {
	var b strings.Builder
	if x.GetParallel() > 0 {
		fmt.Fprintf(&b, "runs by itself, %d tasks at once\n", x.GetParallel())
	}
	if x.GetPauseReason() != "" {
		fmt.Fprintf(&b, "paused: %s%s\n", x.GetPauseReason(), roomLeft(x))
	}
	return b.String()
}

// roomLeft says of an epic whose budget is not spent, but too small for the next call, what is left of it.
func roomLeft(x *registryv1.Epic) string {
	if x.GetPauseReason() == namespaceCap {
		return ": the next call does not fit under the cap of the namespace, which `epigraph budgets show` tells"
	}
	if x.GetPauseReason() != budgetExhausted {
		return ""
	}
	var left []string
	if n := x.BudgetNanoUsd; n != nil {
		if x.GetSpentNanoUsd() >= *n {
			return ""
		}
		left = append(left, view.Money(*n-x.GetSpentNanoUsd()))
	}
	if n := x.BudgetTokens; n != nil {
		if x.GetSpentTokens() >= *n {
			return ""
		}
		left = append(left, view.Plural(int(*n-x.GetSpentTokens()), "token"))
	}
	if len(left) == 0 {
		return ""
	}
	return ": the next call may use more than what is left of the budget, " + strings.Join(left, " and ")
}

// namespaceCap is the reason of an epic that a cap of its namespace has paused.
const namespaceCap = "NAMESPACE_CAP_REACHED"

// budgetExhausted is the reason of an epic that its budget has paused.
const budgetExhausted = "BUDGET_EXHAUSTED"
