package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// scheduleSpec is what creating and changing a schedule take.
type scheduleSpec struct {
	ID      string        `arg:"" help:"The schedule's id: lower case, digits, dots, dashes."`
	Cron    string        `help:"When to start: a cron line of five fields, or @daily and the like." placeholder:"EXPR"`
	Zone    string        `help:"Time zone of the expression, for example Europe/Berlin." placeholder:"ZONE"`
	Overlap string        `help:"What to do when a run of the schedule is still open: skip (the default), queue-one, queue-all, cancel-other or allow." enum:",skip,queue-one,queue-all,cancel-other,allow" default:"" placeholder:"POLICY"`
	Catchup time.Duration `help:"Catch up on starts missed by at most this long." placeholder:"DURATION"`
	Jitter  time.Duration `help:"Delay each start by a random time of at most this length." placeholder:"DURATION"`
	Begin   string        `help:"Start nothing before this time." placeholder:"TIME"`
	End     string        `help:"Start nothing after this time." placeholder:"TIME"`
	Note    string        `help:"A note for people." placeholder:"TEXT"`
	// Workflow takes the place of a file.
	Workflow string `help:"A workflow of the catalog to run, in place of a file: NAME, NAME@VERSION or NAME@ALIAS. It is looked up at each start." placeholder:"NAME"`

	Actor    string            `help:"Actor of the problems that name none." placeholder:"NAME"`
	Common   map[string]string `help:"Argument for every node of a compiled plan, as JSON or text." name:"with" placeholder:"NAME=VALUE"`
	Args     []string          `help:"Positional input, as JSON or text." name:"arg" placeholder:"VALUE" sep:"none"`
	Named    map[string]string `help:"Named input, as JSON or text." name:"input" placeholder:"NAME=VALUE"`
	Task     string            `help:"Task that the runs work on." placeholder:"ID"`
	User     string            `help:"User for whom they run." placeholder:"ID"`
	Labels   map[string]string `help:"Label to filter by." name:"label" placeholder:"NAME=VALUE"`
	Priority int32             `help:"Priority of the runs, from 1 (first) to 4." placeholder:"N"`
	runBudget
	runWebhooks
}

// apply sets the given fields of a schedule.
func (c *scheduleSpec) apply(m *executorv1.Schedule) error {
	m.Id = c.ID
	if c.Cron != "" {
		m.Cron = c.Cron
	}
	if c.Zone != "" {
		m.TimeZone = c.Zone
	}
	if c.Overlap != "" {
		m.Overlap = executorv1.OverlapPolicy(executorv1.OverlapPolicy_value["OVERLAP_POLICY_"+strings.ToUpper(strings.ReplaceAll(c.Overlap, "-", "_"))])
	}
	if c.Catchup > 0 {
		m.CatchupWindow = durationpb.New(c.Catchup)
	}
	if c.Jitter > 0 {
		m.Jitter = durationpb.New(c.Jitter)
	}
	if c.Note != "" {
		m.Note = c.Note
	}
	for _, x := range []struct {
		flag, text string
		to         **timestamppb.Timestamp
	}{{"--begin", c.Begin, &m.BeginTime}, {"--end", c.End, &m.EndTime}} {
		t, err := moment(x.flag, x.text)
		if err != nil {
			return err
		}
		if t != nil {
			*x.to = t
		}
	}
	r := m.GetStart()
	if r == nil {
		r = &executorv1.StartRunRequest{}
		m.Start = r
	}
	if len(c.Args) > 0 {
		r.Args = nil
		for _, a := range c.Args {
			r.Args = append(r.Args, &graphv1.Payload{Json: value(a)})
		}
	}
	if len(c.Named) > 0 {
		r.Named = payloads(c.Named)
	}
	if len(c.Labels) > 0 {
		r.Labels = c.Labels
	}
	for _, x := range []struct {
		text string
		to   *string
	}{{c.Task, &r.TaskId}, {c.User, &r.UserId}} {
		if x.text != "" {
			*x.to = x.text
		}
	}
	if c.Priority > 0 {
		r.Priority = c.Priority
	}
	budget, err := c.runBudget.message()
	if err != nil {
		return err
	}
	if budget != nil {
		r.Budget = budget
	}
	if hooks := c.runWebhooks.messages(); hooks != nil {
		r.Webhooks = hooks
	}
	return nil
}

// graph reads a graph, or has a plan compiled, and shows what may be wrong with it in runs with this input.
func (c *scheduleSpec) graph(ctx context.Context, e *env, s *services, file string, in *executorv1.RunInput) (*graphv1.Graph, error) {
	text, err := e.readText(file)
	if err != nil {
		return nil, err
	}
	run := &runCmd{File: file, Actor: c.Actor, Common: c.Common, runStart: runStart{Args: c.Args, Named: c.Named}}
	g, err := run.graph(ctx, e, s, text)
	if err == nil {
		run.warn(ctx, e, s, text, g, in)
	}
	return g, err
}

// inputOf is the input that a start gives its run.
func inputOf(r *executorv1.StartRunRequest) *executorv1.RunInput {
	return &executorv1.RunInput{Args: r.GetArgs(), Named: r.GetNamed()}
}

type schedulesCreateCmd struct {
	scheduleSpec
	File string `arg:"" help:"A text with a plan, or a graph as JSON; - reads standard input." default:"-"`
}

// Help gives examples.
func (schedulesCreateCmd) Help() string {
	return `Examples:

    epigraph schedules create nightly plan.txt --cron '0 3 * * *' --zone Europe/Berlin
    epigraph schedules create hourly graph.json --cron @hourly --overlap skip --catchup 10m
    epigraph schedules create digest --workflow digest@prod --cron @daily --input topic=tea`
}

// what puts what is to be started into a schedule: a workflow by name, or the graph of a file.
func (c *scheduleSpec) what(ctx context.Context, e *env, s *services, file string, m *executorv1.Schedule) (err error) {
	if c.Workflow == "" {
		m.Start.Workflow = ""
		m.Start.Graph, err = c.graph(ctx, e, s, file, inputOf(m.GetStart()))
		return err
	}
	m.Start.Graph, m.Start.Workflow = nil, c.Workflow
	e.caution(ctx, s, c.Workflow)
	return nil
}

// oneSource refuses both a file and a workflow.
func (c *scheduleSpec) oneSource(file string) error {
	if c.Workflow != "" && file != "" && file != "-" {
		return usage(errs.New(errs.InvalidArgument, "FLAGS_CONTRADICT", "--workflow takes the place of the file %s", file))
	}
	return nil
}

// Run creates.
func (c *schedulesCreateCmd) Run(e *env) error {
	if c.Cron == "" {
		return usage(errs.New(errs.InvalidArgument, "CRON_MISSING", "a schedule needs --cron, which says when its runs start").Hint("write for example --cron @daily, --cron '0 3 * * *' or --cron '@every 15m'"))
	}
	m := &executorv1.Schedule{}
	if err := errors.Join(c.oneSource(c.File), c.apply(m)); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		if err := c.what(ctx, e, s, c.File, m); err != nil {
			return err
		}
		r, err := s.schedules.CreateSchedule(ctx, &executorv1.CreateScheduleRequest{Schedule: m})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return scheduleText(e, r) })
	})
}

type schedulesUpdateCmd struct {
	scheduleSpec
	File string `help:"Another plan or graph." placeholder:"FILE" type:"existingfile"`
}

// Help says what stays.
func (schedulesUpdateCmd) Help() string {
	return `Settings without a flag stay as they are.

    epigraph schedules update nightly --cron '0 4 * * *'`
}

// Run changes.
func (c *schedulesUpdateCmd) Run(e *env) error {
	// A wrong flag is reported before any call.
	if err := errors.Join(c.oneSource(c.File), c.apply(&executorv1.Schedule{})); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		old, err := s.schedules.GetSchedule(ctx, &executorv1.GetScheduleRequest{ScheduleId: c.ID})
		if err != nil {
			return err
		}
		m := proto.CloneOf(old)
		if err := c.apply(m); err != nil {
			return err
		}
		if c.File != "" || c.Workflow != "" {
			if err := c.what(ctx, e, s, c.File, m); err != nil {
				return err
			}
		}
		r, err := s.schedules.UpdateSchedule(ctx, &executorv1.UpdateScheduleRequest{Schedule: m, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return scheduleText(e, r) })
	})
}

func scheduleText(e *env, x *executorv1.Schedule) string {
	var b strings.Builder
	state := "active"
	if x.GetPaused() {
		state = "paused"
	}
	fmt.Fprintf(&b, "%s  %s  %s  %s\n", e.io.style().Bold(x.GetId()), e.io.style().State(state), view.OneLine(x.GetCron(), 60), view.OneLine(x.GetTimeZone(), 40))
	if x.GetNote() != "" {
		b.WriteString(indent(x.GetNote()) + "\n")
	}
	if w := x.GetStart().GetWorkflow(); w != "" {
		fmt.Fprintf(&b, "workflow: %s\n", view.OneLine(w, 120))
	}
	if x.GetPrincipal() != "" {
		fmt.Fprintf(&b, "principal: %s\n", view.OneLine(x.GetPrincipal(), 120))
	}
	for i, t := range x.GetNextTimes() {
		if i == 3 {
			break
		}
		fmt.Fprintf(&b, "next: %s%s\n", view.When(t), elsewhere(t.AsTime(), x.GetTimeZone()))
	}
	if len(x.GetRecent()) > 0 {
		b.WriteString(startTable(e, x.GetRecent()))
	}
	return b.String()
}

// elsewhere is a time by the clock of a zone, if that differs from the one here.
func elsewhere(t time.Time, zone string) string {
	z, err := time.LoadLocation(zone)
	if err != nil || t.In(z).Format(time.DateTime) == t.Local().Format(time.DateTime) {
		return ""
	}
	return fmt.Sprintf(" here, %s in %s", t.In(z).Format(time.DateTime), z)
}

func startTable(e *env, list []*executorv1.ScheduleStart) string {
	var rows [][]string
	for _, r := range list {
		rows = append(rows, []string{view.When(r.GetScheduleTime()), view.When(r.GetActualTime()), r.GetRunId(), r.GetResult(), view.OneLine(r.GetPrincipal(), 40), view.OneLine(r.GetMessage(), 60)})
	}
	return view.Table(e.io.style(), []string{"FOR", "AT", "RUN", "RESULT", "PRINCIPAL", "WHY"}, rows)
}

type schedulesListCmd struct {
	page
}

// Run lists.
func (c *schedulesListCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.ListSchedules(ctx, &executorv1.ListSchedulesRequest{PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetSchedules()) == 0 {
				return "no schedules\n"
			}
			var rows [][]string
			for _, x := range r.GetSchedules() {
				next, state := "", "active"
				if len(x.GetNextTimes()) > 0 {
					next = view.When(x.GetNextTimes()[0])
				}
				if x.GetPaused() {
					state = "paused"
				}
				last := ""
				if n := len(x.GetRecent()); n > 0 {
					last = x.GetRecent()[0].GetRunId()
				}
				rows = append(rows, []string{x.GetId(), state, view.OneLine(x.GetCron(), 30), x.GetTimeZone(), next, last, view.OneLine(x.GetNote(), 40)})
			}
			return view.Table(e.io.style(), []string{"SCHEDULE", "STATE", "CRON", "ZONE", "NEXT (LOCAL)", "LAST RUN", "NOTE"}, rows)
		})
	})
}

type schedulesShowCmd struct {
	ID string `arg:"" help:"The schedule."`
}

// Run shows.
func (c *schedulesShowCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.GetSchedule(ctx, &executorv1.GetScheduleRequest{ScheduleId: c.ID})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return scheduleText(e, r) })
	})
}

type schedulesDeleteCmd struct {
	ID string `arg:"" help:"The schedule."`
}

// Help says what stays.
func (schedulesDeleteCmd) Help() string { return `Runs that it has started continue.` }

// Run deletes.
func (c *schedulesDeleteCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.DeleteSchedule(ctx, &executorv1.DeleteScheduleRequest{ScheduleId: c.ID})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted\n" })
	})
}

type schedulesPauseCmd struct {
	ID   string `arg:"" help:"The schedule."`
	Note string `help:"Reason, for people." placeholder:"TEXT"`
}

// Run pauses.
func (c *schedulesPauseCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.PauseSchedule(ctx, &executorv1.PauseScheduleRequest{ScheduleId: c.ID, Note: c.Note})
		if err != nil {
			return err
		}
		if err := e.print(r, func() string { return scheduleText(e, r) }); err != nil {
			return err
		}
		e.help("`epigraph schedules resume %s` continues it", c.ID)
		return nil
	})
}

type schedulesResumeCmd struct {
	ID   string `arg:"" help:"The schedule."`
	Note string `help:"Reason, for people." placeholder:"TEXT"`
}

// Run resumes.
func (c *schedulesResumeCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.ResumeSchedule(ctx, &executorv1.ResumeScheduleRequest{ScheduleId: c.ID, Note: c.Note})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return scheduleText(e, r) })
	})
}

type schedulesTriggerCmd struct {
	ID        string `arg:"" help:"The schedule."`
	RequestID string `help:"Make the command repeatable: the same id starts one run." placeholder:"ID"`
}

// Run starts a run now.
func (c *schedulesTriggerCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.TriggerSchedule(ctx, &executorv1.TriggerScheduleRequest{ScheduleId: c.ID, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return startTable(e, []*executorv1.ScheduleStart{r.GetStart()}) })
	})
}

type schedulesBackfillCmd struct {
	ID      string `arg:"" help:"The schedule."`
	From    string `help:"Start the runs due at or after this time." required:"" placeholder:"TIME"`
	To      string `help:"Start the runs due before this time." required:"" placeholder:"TIME"`
	Overlap string `help:"What to do when a run of the schedule is still open: skip, queue-one, queue-all, cancel-other or allow (the default)." enum:",skip,queue-one,queue-all,cancel-other,allow" default:"" placeholder:"POLICY"`
}

// Help gives an example.
func (schedulesBackfillCmd) Help() string {
	return `Examples:

    epigraph schedules backfill nightly --from 2026-01-01 --to 2026-01-31 --overlap queue-all`
}

// Run starts the runs of past times.
func (c *schedulesBackfillCmd) Run(e *env) error {
	req := &executorv1.BackfillScheduleRequest{ScheduleId: c.ID}
	var err error
	if req.BeginTime, err = moment("--from", c.From); err != nil {
		return err
	}
	if req.EndTime, err = moment("--to", c.To); err != nil {
		return err
	}
	req.Overlap = executorv1.OverlapPolicy(executorv1.OverlapPolicy_value["OVERLAP_POLICY_"+strings.ToUpper(strings.ReplaceAll(c.Overlap, "-", "_"))])
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.schedules.BackfillSchedule(ctx, req)
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			if len(r.GetStarts()) == 0 {
				return "nothing to start\n"
			}
			return startTable(e, r.GetStarts())
		})
	})
}
