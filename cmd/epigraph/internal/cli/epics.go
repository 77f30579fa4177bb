package cli

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func sortedList(words []string) string {
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// spent is money with the number of calls without a price.
func spent(nano, unpriced int64) string {
	if unpriced > 0 {
		return fmt.Sprintf("%s + %d unpriced", view.Money(nano), unpriced)
	}
	return view.Money(nano)
}

type epicsLsCmd struct {
	page
	State  []string          `help:"Epics in any of these states." placeholder:"STATE"`
	Tags   []string          `help:"Epics with any of these tags." name:"tag" placeholder:"TAG"`
	Query  string            `help:"Text in title or description." short:"q"`
	Labels map[string]string `help:"Epics with all of these labels." name:"label" placeholder:"NAME=VALUE"`
}

// Run lists.
func (c *epicsLsCmd) Run(e *env) error {
	states, err := enums[registryv1.EpicState]("--state", "EPIC_STATE_", registryv1.EpicState_value, c.State)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		req := &registryv1.ListEpicsRequest{PageSize: c.Limit, PageToken: c.Token, States: states, Tags: c.Tags, Query: c.Query, Labels: c.Labels}
		r, err := s.registry.ListEpics(ctx, req)
		// The search for one page is bounded: a page without an epic need not be the last.
		for err == nil && len(r.GetEpics()) == 0 && r.GetNextPageToken() != "" {
			req.PageToken = r.GetNextPageToken()
			r, err = s.registry.ListEpics(ctx, req)
		}
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetEpics()) == 0 {
				return "no epics\n"
			}
			var rows [][]string
			for _, x := range r.GetEpics() {
				rows = append(rows, []string{
					x.GetId(), view.Word(x.GetState().String(), "EPIC_STATE_"), view.OneLine(x.GetTitle(), 40),
					fmt.Sprintf("%d/%d", x.GetCompletedTasks(), x.GetTotalTasks()), view.Count(x.GetSpentTokens()), spent(x.GetSpentNanoUsd(), x.GetUnpricedCalls()),
					view.When(x.GetCreateTime()), strings.Join(x.GetTags(), ","),
				})
			}
			return view.Table(e.io.style(), []string{"EPIC", "STATE", "TITLE", "TASKS", "TOKENS", "COST", "CREATED", "TAGS"}, rows)
		})
	})
}

type epicsGetCmd struct {
	ID string `arg:"" help:"The epic."`
}

// Run shows an epic and its tasks.
func (c *epicsGetCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		x, err := s.registry.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: c.ID})
		if err != nil {
			return err
		}
		if e.json {
			return printJSON(e.io.Out, x)
		}
		t, err := s.registry.ListTasks(ctx, &registryv1.ListTasksRequest{EpicId: c.ID, PageSize: 200})
		if err != nil {
			return err
		}
		line, _, err := progress(ctx, s, x)
		if err != nil {
			return err
		}
		if line = "progress: " + line + "\n"; x.GetTotalTasks() == 0 {
			line = ""
		}
		err = e.say(epicText(e, x) + line + "\n" + taskTable(e, t.GetTasks()))
		if t.GetNextPageToken() != "" {
			e.note("there are more tasks: `epigraph tasks ls --epic %s`", c.ID)
		}
		return err
	})
}

func epicText(e *env, x *registryv1.Epic) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", e.io.style().Bold(x.GetId()), e.io.style().State(view.Word(x.GetState().String(), "EPIC_STATE_")), view.OneLine(x.GetTitle(), 0))
	if x.GetDescription() != "" {
		b.WriteString(indent(x.GetDescription()) + "\n")
	}
	fmt.Fprintf(&b, "tasks: %d of %d completed, %d failed\n", x.GetCompletedTasks(), x.GetTotalTasks(), x.GetFailedTasks())
	fmt.Fprintf(&b, "spent: %s tokens, %s", view.Count(x.GetSpentTokens()), spent(x.GetSpentNanoUsd(), x.GetUnpricedCalls()))
	if x.BudgetTokens != nil {
		fmt.Fprintf(&b, " (budget %s tokens)", view.Count(x.GetBudgetTokens()))
	}
	if x.BudgetNanoUsd != nil {
		fmt.Fprintf(&b, " (budget %s)", view.Money(x.GetBudgetNanoUsd()))
	}
	b.WriteString("\n")
	if n := x.GetAgentOverheadTokens(); n > 0 {
		fmt.Fprintf(&b, "of that agents' own reasoning: %s tokens, %s\n", view.Count(n), view.Money(x.GetAgentOverheadNanoUsd()))
	}
	b.WriteString(runsItself(x))
	if x.GetPrincipal() != "" {
		fmt.Fprintf(&b, "principal: %s\n", view.OneLine(x.GetPrincipal(), 120))
	}
	if x.GetResultSummary() != "" {
		b.WriteString("result:\n" + indent(x.GetResultSummary()) + "\n")
	}
	return b.String()
}

func taskTable(e *env, tasks []*registryv1.Task) string {
	if len(tasks) == 0 {
		return "no tasks\n"
	}
	var rows [][]string
	for _, x := range tasks {
		rows = append(rows, []string{
			x.GetId(), view.Word(x.GetState().String(), "TASK_STATE_"), view.OneLine(x.GetTitle(), 40), view.Count(x.GetActualTokens()),
			spent(x.GetActualNanoUsd(), x.GetUnpricedCalls()), x.GetRunId(), strings.Join(x.GetDependsOn(), ","), taskReason(x),
		})
	}
	return view.Table(e.io.style(), []string{"TASK", "STATE", "TITLE", "TOKENS", "COST", "RUN", "DEPENDS ON", "WHY"}, rows)
}

// taskReason is why a task failed, or what it waits for or was ended by, on a part of a line.
func taskReason(x *registryv1.Task) string {
	switch {
	case x.GetErrorMessage() != "":
		text := failureCode.ReplaceAllString(strings.TrimPrefix(x.GetErrorMessage(), notStarted), "")
		return view.OneLine(view.Dollars(inCommands(text)), 80)
	case len(x.GetBlockedBy()) > 0:
		return some(x.GetBlockedBy(), 2) + " failed or was canceled"
	}
	return ""
}

// notStarted is how the error of a task without a run begins.
const notStarted = "not started: "

// failureCode is the reason before the message of an error, which programs read.
var failureCode = regexp.MustCompile(`^[A-Z][A-Z_]+: `)

// epicFields are what can be said of an epic on the command line.
type epicFields struct {
	Description  *string           `help:"The goal, and the criteria of success."`
	Tags         []string          `help:"Tags to filter by." name:"tag" placeholder:"TAG"`
	Priority     *string           `help:"critical, high, medium or low." placeholder:"WORD"`
	BudgetTokens *int64            `help:"Budget in tokens, after which no more runs start; 0 starts none." placeholder:"N"`
	BudgetUSD    *float64          `help:"Budget in dollars, after which no more runs start; 0 starts none." name:"budget-usd" placeholder:"X"`
	Labels       map[string]string `help:"Labels to filter by." name:"label" placeholder:"NAME=VALUE"`
	User         *string           `help:"The user who has the goal." placeholder:"ID"`
	Policy       *string           `help:"What becomes of a task when one that it depends on has failed or was canceled: block, skip or fail." name:"dependency-policy" placeholder:"WORD"`
}

// policy is what a flag says of dependencies.
func policy(word string) (registryv1.DependencyPolicy, error) {
	p, err := enums[registryv1.DependencyPolicy]("--dependency-policy", "DEPENDENCY_POLICY_", registryv1.DependencyPolicy_value, []string{word})
	if err != nil {
		return 0, err
	}
	return p[0], nil
}

func (f epicFields) apply(x *registryv1.Epic) (mask []string, err error) {
	set := func(name string) { mask = append(mask, name) }
	if f.Description != nil {
		x.Description = *f.Description
		set("description")
	}
	if f.Tags != nil {
		x.Tags = f.Tags
		set("tags")
	}
	if f.Priority != nil {
		p, err := enums[registryv1.Priority]("--priority", "PRIORITY_", registryv1.Priority_value, []string{*f.Priority})
		if err != nil {
			return nil, err
		}
		x.Priority = p[0]
		set("priority")
	}
	if f.BudgetTokens != nil {
		x.BudgetTokens = f.BudgetTokens
		set("budget_tokens")
	}
	if f.BudgetUSD != nil {
		nano, err := nanoUSD("--budget-usd", *f.BudgetUSD)
		if err != nil {
			return nil, err
		}
		x.BudgetNanoUsd = &nano
		set("budget_nano_usd")
	}
	if f.Labels != nil {
		x.Labels = f.Labels
		set("labels")
	}
	if f.User != nil {
		x.UserId = *f.User
		set("user_id")
	}
	if f.Policy != nil {
		if x.DependencyPolicy, err = policy(*f.Policy); err != nil {
			return nil, err
		}
		set("dependency_policy")
	}
	return mask, nil
}

// nanoUSD is what a flag says in dollars.
func nanoUSD(flag string, usd float64) (int64, error) {
	if !(usd >= 0 && usd <= 9e9) { // not even a number is neither
		return 0, usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "%s must be between 0 and 9,000,000,000 dollars", flag))
	}
	nano := int64(math.Round(usd * 1e9))
	if nano == 0 && usd > 0 {
		return 0, usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "%s must be 0 or at least a billionth of a dollar", flag))
	}
	return nano, nil
}

type epicsCreateCmd struct {
	Title string `arg:"" help:"Short name of the epic."`
	epicFields
	RequestID string `help:"Make the command repeatable under this id." placeholder:"ID"`
}

// Run creates.
func (c *epicsCreateCmd) Run(e *env) error {
	x := &registryv1.Epic{Title: c.Title}
	if _, err := c.apply(x); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: x, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return r.GetId() + "\n" })
	})
}

type epicsUpdateCmd struct {
	ID    string  `arg:"" help:"The epic."`
	Title *string `help:"Short name of the epic."`
	epicFields
	NoBudget bool   `help:"Remove both budgets, except one that is given."`
	Etag     string `help:"Change it only if it still has this etag."`
}

// Run changes the given fields.
func (c *epicsUpdateCmd) Run(e *env) error {
	x := &registryv1.Epic{Id: c.ID, Etag: c.Etag}
	mask, err := c.apply(x)
	if err != nil {
		return err
	}
	if c.Title != nil {
		x.Title = *c.Title
		mask = append(mask, "title")
	}
	if c.NoBudget { // a field that the mask names and the epic does not have is cleared
		for _, f := range []string{"budget_tokens", "budget_nano_usd"} {
			if !slices.Contains(mask, f) {
				mask = append(mask, f)
			}
		}
	}
	if len(mask) == 0 {
		return usage(errs.New(errs.InvalidArgument, "NOTHING_TO_CHANGE", "say what is to change").Hint("see `epigraph epics update --help`"))
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.UpdateEpic(ctx, &registryv1.UpdateEpicRequest{Epic: x, UpdateMask: &fieldmaskpb.FieldMask{Paths: mask}})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return epicText(e, r) })
	})
}

type epicsTransitionCmd struct {
	ID     string `arg:"" help:"The epic."`
	State  string `arg:"" help:"New state: active, paused, completed, failed or canceled."`
	Result string `help:"Outcome of the epic."`
	Etag   string `help:"Move it only if it still has this etag."`
}

// Run moves.
func (c *epicsTransitionCmd) Run(e *env) error {
	state, err := enums[registryv1.EpicState]("<state>", "EPIC_STATE_", registryv1.EpicState_value, []string{c.State})
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.TransitionEpic(ctx, &registryv1.TransitionEpicRequest{EpicId: c.ID, State: state[0], ResultSummary: c.Result, Etag: c.Etag})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return epicText(e, r) })
	})
}

type epicsRmCmd struct {
	ID   string `arg:"" help:"The epic."`
	Etag string `help:"Delete it only if it still has this etag."`
}

// Run deletes.
func (c *epicsRmCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.DeleteEpic(ctx, &registryv1.DeleteEpicRequest{EpicId: c.ID, Etag: c.Etag})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted " + c.ID + "\n" })
	})
}

type tasksLsCmd struct {
	page
	Of    string   `arg:"" optional:"" name:"epic" help:"List the tasks of this epic; default all."`
	Epic  string   `help:"List the tasks of this epic, as the argument does." placeholder:"ID"`
	State []string `help:"Tasks in any of these states." placeholder:"STATE"`
	Tags  []string `help:"Tasks with any of these tags." name:"tag" placeholder:"TAG"`
}

// Run lists.
func (c *tasksLsCmd) Run(e *env) error {
	if c.Of != "" && c.Epic != "" && c.Of != c.Epic {
		return usage(errs.New(errs.InvalidArgument, "VALUE_INVALID", "two epics are given: %s and, by --epic, %s", c.Of, c.Epic).Hint("name one"))
	}
	states, err := enums[registryv1.TaskState]("--state", "TASK_STATE_", registryv1.TaskState_value, c.State)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		req := &registryv1.ListTasksRequest{PageSize: c.Limit, PageToken: c.Token, EpicId: cmp.Or(c.Of, c.Epic), States: states, Tags: c.Tags}
		r, err := s.registry.ListTasks(ctx, req)
		for err == nil && len(r.GetTasks()) == 0 && r.GetNextPageToken() != "" {
			req.PageToken = r.GetNextPageToken()
			r, err = s.registry.ListTasks(ctx, req)
		}
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string { return taskTable(e, r.GetTasks()) })
	})
}

type tasksGetCmd struct {
	ID string `arg:"" help:"The task."`
}

// Run shows.
func (c *tasksGetCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		x, err := s.registry.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: c.ID})
		if err != nil {
			return err
		}
		return e.print(x, func() string { return taskText(e, x) })
	})
}

func taskText(e *env, x *registryv1.Task) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", e.io.style().Bold(x.GetId()), e.io.style().State(view.Word(x.GetState().String(), "TASK_STATE_")), view.OneLine(x.GetTitle(), 0))
	if x.GetDescription() != "" {
		b.WriteString(indent(x.GetDescription()) + "\n")
	}
	fmt.Fprintf(&b, "epic %s", x.GetEpicId())
	if x.GetRunId() != "" {
		fmt.Fprintf(&b, "  run %s", x.GetRunId())
	}
	if x.GetRunWorkflow() != "" {
		fmt.Fprintf(&b, " of %s", x.GetRunWorkflow())
	}
	if len(x.GetDependsOn()) > 0 {
		fmt.Fprintf(&b, "  depends on %s", strings.Join(x.GetDependsOn(), ", "))
	}
	if len(x.GetBlockedBy()) > 0 {
		how := "ended"
		if x.GetState() == registryv1.TaskState_TASK_STATE_BLOCKED {
			how = "blocked"
		}
		fmt.Fprintf(&b, "\n%s by the end of %s", how, strings.Join(x.GetBlockedBy(), ", "))
	}
	switch source := view.Word(x.GetWorkflowSource().String(), "WORKFLOW_SOURCE_"); {
	case x.GetDefinition() != "" && x.GetWorkflowSlug() != "":
		fmt.Fprintf(&b, "\nworkflow: %s with changes of its own (%s)", view.OneLine(x.GetWorkflowSlug(), 120), source)
	case x.GetDefinition() != "":
		fmt.Fprintf(&b, "\nworkflow: a definition of its own, %s (%s)", view.Plural(strings.Count(strings.TrimSpace(x.GetDefinition()), "\n")+1, "line"), source)
	case x.GetWorkflowSlug() != "":
		fmt.Fprintf(&b, "\nworkflow: %s (%s)", view.OneLine(x.GetWorkflowSlug(), 120), source)
	}
	fmt.Fprintf(&b, "\nspent: %s tokens, %s, %s\n", view.Count(x.GetActualTokens()), spent(x.GetActualNanoUsd(), x.GetUnpricedCalls()), view.Plural(int(x.GetLlmCalls()), "model call"))
	if x.GetPrincipal() != "" {
		fmt.Fprintf(&b, "principal: %s\n", view.OneLine(x.GetPrincipal(), 120))
	}
	for _, f := range [][2]string{{"result", x.GetResultSummary()}, {"error", inCommands(x.GetErrorMessage())}} {
		if f[1] != "" {
			b.WriteString(f[0] + ":\n" + indent(f[1]) + "\n")
		}
	}
	for _, n := range x.GetNotes() {
		fmt.Fprintf(&b, "note %s: %s\n", view.When(n.GetTime()), view.OneLine(n.GetText(), 0))
	}
	return b.String()
}

type tasksCreateCmd struct {
	Epic        string   `arg:"" help:"The epic that it belongs to."`
	Title       string   `arg:"" help:"Short name of the task."`
	Description string   `help:"The work to do."`
	DependsOn   []string `help:"Tasks of the same epic that it depends on." placeholder:"ID"`
	Tags        []string `help:"Tags to filter by." name:"tag" placeholder:"TAG"`
	Policy      *string  `help:"What becomes of it when one of those has failed or was canceled: block, skip or fail; default: as the epic says." name:"dependency-policy" placeholder:"WORD"`
	taskWork
	RequestID string `help:"Make the command repeatable under this id." placeholder:"ID"`
}

// Run creates.
func (c *tasksCreateCmd) Run(e *env) (err error) {
	var p registryv1.DependencyPolicy
	if c.Policy != nil {
		if p, err = policy(*c.Policy); err != nil {
			return err
		}
	}
	t := &registryv1.Task{EpicId: c.Epic, Title: c.Title, Description: c.Description, DependsOn: c.DependsOn, Tags: c.Tags, DependencyPolicy: p}
	if _, err := c.apply(e, t); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.CreateTask(ctx, &registryv1.CreateTaskRequest{RequestId: c.RequestID, Task: t})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return r.GetId() + "\n" })
	})
}

type tasksTransitionCmd struct {
	ID     string `arg:"" help:"The task."`
	State  string `arg:"" help:"New state: pending, blocked, running, completed, failed or canceled."`
	Result string `help:"Outcome of the task."`
	Note   string `help:"A note to add."`
	Etag   string `help:"Move it only if it still has this etag."`
}

// Run moves.
func (c *tasksTransitionCmd) Run(e *env) error {
	state, err := enums[registryv1.TaskState]("<state>", "TASK_STATE_", registryv1.TaskState_value, []string{c.State})
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.TransitionTask(ctx, &registryv1.TransitionTaskRequest{TaskId: c.ID, State: state[0], ResultSummary: c.Result, Note: c.Note, Etag: c.Etag})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return taskText(e, r) })
	})
}

type tasksRmCmd struct {
	ID   string `arg:"" help:"The task."`
	Etag string `help:"Delete it only if it still has this etag."`
}

// Run deletes.
func (c *tasksRmCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.DeleteTask(ctx, &registryv1.DeleteTaskRequest{TaskId: c.ID, Etag: c.Etag})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted " + c.ID + "\n" })
	})
}

type usageCmd struct {
	page
	Epic string `help:"Entries of this epic." placeholder:"ID"`
	Task string `help:"Entries of this task." placeholder:"ID"`
	RunX string `help:"Entries of this run." name:"run" placeholder:"ID"`
}

// Run lists entries, newest first, under the namespace's total.
func (c *usageCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.ListUsage(ctx, &registryv1.ListUsageRequest{PageSize: c.Limit, PageToken: c.Token, EpicId: c.Epic, TaskId: c.Task, RunId: c.RunX})
		if err != nil {
			return err
		}
		total, err := s.registry.GetNamespaceUsage(ctx, &registryv1.GetNamespaceUsageRequest{})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			all := fmt.Sprintf("namespace %s in all: %s tokens, %s\n", view.OneLine(total.GetNamespace(), 0), view.Count(total.GetSpentTokens()), spent(total.GetSpentNanoUsd(), total.GetUnpricedCalls()))
			if len(r.GetEntries()) == 0 {
				return "nothing was booked\n" + all
			}
			var rows [][]string
			for _, u := range r.GetEntries() {
				cost := "unknown"
				if u.CostNanoUsd != nil {
					cost = view.Money(u.GetCostNanoUsd())
				}
				rows = append(rows, []string{
					view.When(u.GetTime()), u.GetRunId(), u.GetNodeId(), u.GetModel(), view.Count(u.GetInputTokens()), view.Count(u.GetOutputTokens()), cost, u.GetTaskId(),
				})
			}
			return view.Table(e.io.style(), []string{"TIME", "RUN", "NODE", "MODEL", "INPUT", "OUTPUT", "COST", "TASK"}, rows) + all
		})
	})
}

type pricesLsCmd struct {
	page
	Provider string `help:"Prices of this provider."`
	Model    string `help:"Prices of this model."`
}

// Run lists.
func (c *pricesLsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.ListPrices(ctx, &registryv1.ListPricesRequest{PageSize: c.Limit, PageToken: c.Token, Provider: c.Provider, Model: c.Model})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetPrices()) == 0 {
				return "no prices\n"
			}
			var rows [][]string
			for _, p := range r.GetPrices() {
				until := "now"
				if p.GetValidUntil() != nil {
					until = p.GetValidUntil().AsTime().Format(time.DateOnly)
				}
				rows = append(rows, []string{
					cmp.Or(p.GetProvider(), "any"), p.GetModel(), p.GetValidFrom().AsTime().Format(time.DateOnly), until, view.Money(p.GetInputPerMillion()),
					optional(p.CachedInputPerMillion), view.Money(p.GetOutputPerMillion()), optional(p.ReasoningPerMillion),
					view.OneLine(p.GetPrincipal(), 40),
				})
			}
			return view.Table(e.io.style(), []string{"PROVIDER", "MODEL", "FROM", "UNTIL", "INPUT/M", "CACHED/M", "OUTPUT/M", "REASONING/M", "PRINCIPAL"}, rows)
		})
	})
}

func optional(nano *int64) string {
	if nano == nil {
		return "same"
	}
	return view.Money(*nano)
}

type pricesSetCmd struct {
	Model    string    `arg:"" help:"The model; a name that ends in * covers every model with that prefix."`
	Input    float64   `help:"Dollars per million input tokens." required:"" placeholder:"X"`
	Output   float64   `help:"Dollars per million output tokens." required:"" placeholder:"X"`
	Cached   *float64  `help:"Dollars per million cached input tokens; default the price of input tokens." placeholder:"X"`
	Provider string    `help:"Provider of the model; default any."`
	From     time.Time `help:"Time from which it applies, for example 2026-01-31T00:00:00Z; default now." placeholder:"TIME"`
}

// Run adds a price.
func (c *pricesSetCmd) Run(e *env) error {
	if c.From.IsZero() {
		c.From = time.Now()
	}
	p := &registryv1.Price{Provider: c.Provider, Model: c.Model, ValidFrom: timestamppb.New(c.From)}
	var err error
	if p.InputPerMillion, err = nanoUSD("--input", c.Input); err != nil {
		return err
	}
	if p.OutputPerMillion, err = nanoUSD("--output", c.Output); err != nil {
		return err
	}
	if c.Cached != nil {
		cached, err := nanoUSD("--cached", *c.Cached)
		if err != nil {
			return err
		}
		p.CachedInputPerMillion = &cached
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.CreatePrice(ctx, &registryv1.CreatePriceRequest{Price: p})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return r.GetId() + "\n" })
	})
}
