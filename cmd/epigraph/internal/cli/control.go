package cli

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// stands is the line about the state of a run.
func stands(r *executorv1.Run) string {
	return fmt.Sprintf("%s is %s\n", r.GetId(), view.Word(r.GetState().String(), "RUN_STATE_"))
}

// unapplied reports whether a command is recorded that the executor that owns the run has not applied yet.
func unapplied(r *executorv1.Run, command string) bool {
	return slices.Contains(r.GetPendingCommands(), command)
}

// recorded says of a command that it is not applied yet.
func recorded(r *executorv1.Run, command string) string {
	return fmt.Sprintf("%s recorded; the executor that owns %s has not applied it yet, so it is %s still\n", command, r.GetId(), view.Word(r.GetState().String(), "RUN_STATE_"))
}

// help prints what may be typed next; not to programs.
func (e *env) help(format string, args ...any) {
	if !e.json {
		e.note("help: "+format, args...)
	}
}

// given is a value of the command line that cannot be taken back; nil for none.
func given(text *string) (*graphv1.Payload, error) {
	if text == nil {
		return nil, nil
	}
	return finalValue(*text)
}

// confirm asks whether to go on. Somebody who cannot be asked must have said so with --yes.
func (e *env) confirm(yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if err := e.askable(question); err != nil {
		return false, err
	}
	fmt.Fprint(e.io.Err, e.io.errStyle().Fit(question+" [y/N]")+" ")
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(e.io.In).ReadString('\n') // an end without an answer is a no
		said <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-said:
		return line == "y" || line == "yes", nil
	case <-e.ctx.Done():
		return false, e.ctx.Err()
	}
}

// askable refuses a question where nobody can be asked.
func (e *env) askable(question string) error {
	if e.io.Typed && !e.json {
		return nil
	}
	return errs.New(errs.FailedPrecondition, "CONFIRMATION_NEEDED", "%s", question).Hint("say so with --yes, since nobody can be asked here")
}

type runsPauseCmd struct {
	ID     string `arg:"" help:"The run."`
	Reason string `help:"Reason, for the history." short:"r"`
}

// Help says what goes on.
func (runsPauseCmd) Help() string {
	return `No new attempt starts. Calls in flight continue, and their results are kept. "epigraph runs resume" resumes the run.

    epigraph runs pause run_01… --reason 'the model is being changed'`
}

// Run pauses.
func (c *runsPauseCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: c.ID, Reason: c.Reason})
		if err != nil {
			return err
		}
		if err := e.print(r, func() string {
			if unapplied(r, "PAUSE") {
				return recorded(r, "pause")
			}
			if r.GetState() != executorv1.RunState_RUN_STATE_PAUSED && !over(r) {
				return fmt.Sprintf("%s will pause; it is %s still\n", r.GetId(), view.Word(r.GetState().String(), "RUN_STATE_"))
			}
			return stands(r)
		}); err != nil {
			return err
		}
		if !over(r) {
			e.help("`epigraph runs resume %s` continues it", r.GetId())
		}
		return nil
	})
}

type runsStopCmd struct {
	ID     string `arg:"" help:"The run."`
	Reason string `help:"Reason, for the history." short:"r"`
}

// Help says what a stop leaves.
func (runsStopCmd) Help() string {
	return `The loops of the run, and of the runs below it, end after the round under way. An agent ends with the results of its last actions. Nothing is broken off and nothing is lost; "epigraph runs cancel" ends a run at once, without a result. A paused run goes on to its end, unless it needs a budget or the outcome of a call first.

    epigraph runs stop run_01… --reason 'good enough'`
}

// Run stops.
func (c *runsStopCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.StopRun(ctx, &executorv1.StopRunRequest{RunId: c.ID, Reason: c.Reason})
		if err != nil {
			return err
		}
		if err := e.print(r, func() string {
			switch {
			case unapplied(r, "STOP"):
				return recorded(r, "stop")
			case over(r):
				return stands(r)
			}
			return fmt.Sprintf("%s ends after the round under way; it is %s still\n", r.GetId(), view.Word(r.GetState().String(), "RUN_STATE_"))
		}); err != nil {
			return err
		}
		if standsStill(r) {
			e.help("it comes to its end when it is resumed: %s", advice(r))
		}
		return nil
	})
}

type runsSignalCmd struct {
	ID        string  `arg:"" help:"The run."`
	Name      string  `arg:"" help:"The signal's name."`
	Payload   *string `arg:"" optional:"" help:"Payload, as JSON or text."`
	RequestID string  `help:"Make the command repeatable: the same id signals once." placeholder:"ID"`
}

// Help says who takes it.
func (runsSignalCmd) Help() string {
	return `The signal ends the first wait for its name, now or later. Signals of one name are consumed in order.

    epigraph runs signal run_01… approved '{"by": "ada"}'`
}

// Run signals.
func (c *runsSignalCmd) Run(e *env) error {
	payload, err := given(c.Payload)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: c.ID, Name: c.Name, Payload: payload, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "signaled; " + stands(r) })
	})
}

type runsSendCmd struct {
	ID        string `arg:"" help:"The run."`
	Message   string `arg:"" help:"The message, as JSON or text."`
	From      string `help:"Name of the sender, which inboxes filter by; the name of a node needs --token." required:"" placeholder:"NAME"`
	Node      string `help:"The node whose inbox gets it; default every inbox that accepts the sender." placeholder:"ID"`
	Token     string `help:"Token of the attempt that sends it." placeholder:"TOKEN"`
	RequestID string `help:"Make the command repeatable: the same id sends once." placeholder:"ID"`
}

// Help gives an example.
func (runsSendCmd) Help() string {
	return `Examples:

    epigraph runs send run_01… '{"text": "hello"}' --from user`
}

// Run sends.
func (c *runsSendCmd) Run(e *env) error {
	message, err := finalValue(c.Message)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.SendMessage(ctx, &executorv1.SendMessageRequest{
			RunId: c.ID, From: c.From, NodeId: c.Node, Message: message, RequestId: c.RequestID, AttemptToken: c.Token})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "sent; " + stands(r) })
	})
}

type runsRetryCmd struct {
	ID          string `arg:"" help:"The run that has ended."`
	AllowUnsafe bool   `help:"Repeat UNSAFE attempts that were performed."`
	WithoutTask bool   `help:"Work on no task, so that the cost is booked on the namespace only. Needed if the task of the old run cannot be claimed."`
	RequestID   string `help:"Make the command repeatable: the same id starts one run." placeholder:"ID"`
	detached
}

// Help says what runs again.
func (runsRetryCmd) Help() string {
	return `Starts a new run that reuses completed visits, which cost nothing. Failed visits and their successors run again.

    epigraph runs retry run_01…
    epigraph runs retry run_01… --request-id nightly-42-again
    epigraph runs watch $(epigraph runs retry -d run_01…)`
}

// Run retries.
func (c *runsRetryCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.RetryRun(ctx, &executorv1.RetryRunRequest{RunId: c.ID, AllowUnsafe: c.AllowUnsafe, WithoutTask: c.WithoutTask, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		return e.forked(r, c.detached)
	})
}

// detached is what the commands take that start a run from another one.
type detached struct {
	Detach bool `help:"Print only the id of the new run, as \"epigraph run -d\" does." short:"d"`
}

// forked reports a fork.
func (e *env) forked(r *executorv1.Run, d detached) error {
	if d.Detach {
		return e.print(r, func() string { return r.GetId() + "\n" })
	}
	if err := e.print(r, func() string {
		return fmt.Sprintf("%s goes on from %s; it is %s\n", r.GetId(), r.GetForkedFromRunId(), view.Word(r.GetState().String(), "RUN_STATE_"))
	}); err != nil {
		return err
	}
	e.help("`epigraph runs watch %s` shows it", r.GetId())
	return nil
}

type runsForkCmd struct {
	ID          string            `arg:"" help:"The run."`
	From        string            `help:"The node to run again, with its successors; without it, every completed visit is reused." placeholder:"NODE"`
	Visit       int32             `help:"Visit of the node." default:"1" placeholder:"N"`
	Named       map[string]string `help:"Named argument of that node in the new run, as JSON or text." name:"with" placeholder:"NAME=VALUE"`
	Args        []string          `help:"Positional arguments of that node in the new run, in place of its own." name:"arg" placeholder:"VALUE" sep:"none"`
	NoArgs      bool              `help:"Remove the node's own positional arguments in the new run."`
	Graph       string            `help:"The graph of the new run, as JSON; nodes of reused visits must be unchanged." placeholder:"FILE"`
	AllowUnsafe bool              `help:"Repeat UNSAFE attempts that were performed."`
	WithoutTask bool              `help:"Work on no task, so that the cost is booked on the namespace only. Needed if the task of the old run cannot be claimed."`
	BusinessKey string            `help:"Business key of the new run." placeholder:"KEY"`
	Labels      map[string]string `help:"Label to filter by." name:"label" placeholder:"NAME=VALUE"`
	runBudget
	RequestID string `help:"Make the command repeatable: the same id starts one run." placeholder:"ID"`
	detached
}

// Help gives examples.
func (runsForkCmd) Help() string {
	return `The new run shares the history of the old one up to a visit. That visit and its successors run again. Visits that do not depend on it are reused and cost nothing.

    epigraph runs fork run_01… --from WRITE --with 'style=shorter'
    epigraph runs graph run_01… --json > g.json   # change nodes after WRITE
    epigraph runs fork run_01… --from WRITE --graph g.json`
}

// Run forks.
func (c *runsForkCmd) Run(e *env) error {
	req := &executorv1.ForkRunRequest{
		RunId: c.ID, Named: payloads(c.Named), ReplaceArgs: len(c.Args) > 0 || c.NoArgs, AllowUnsafe: c.AllowUnsafe, WithoutTask: c.WithoutTask, BusinessKey: c.BusinessKey,
		Labels: c.Labels, RequestId: c.RequestID,
	}
	var err error
	if req.Budget, err = c.runBudget.message(); err != nil {
		return err
	}
	if c.From != "" {
		req.Visit = &executorv1.VisitRef{NodeId: c.From, Visit: c.Visit}
	} else if len(c.Named) > 0 || req.ReplaceArgs {
		return usage(errs.New(errs.InvalidArgument, "FLAG_NEEDS_FROM", "--with, --arg and --no-args change the arguments of the node that --from names").
			Hint("say with --from which node is to run anew"))
	}
	for _, a := range c.Args {
		req.Args = append(req.Args, &graphv1.Payload{Json: value(a)})
	}
	if c.Graph == "" {
		return e.with(func(ctx context.Context, s *services) error { return c.fork(ctx, e, s, req) })
	}
	text, err := e.readText(c.Graph)
	if err != nil {
		return err
	}
	source := &runCmd{File: c.Graph}
	if req.Graph, err = graphOf(c.Graph, text); err != nil {
		return source.pointed(e, text, err)
	}
	return e.with(func(ctx context.Context, s *services) error {
		if old, err := s.executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: c.ID}); err == nil {
			source.warn(ctx, e, s, text, req.GetGraph(), &executorv1.RunInput{Args: old.GetArgs(), Named: old.GetNamed()})
		}
		return source.pointed(e, text, c.fork(ctx, e, s, req))
	})
}

func (c *runsForkCmd) fork(ctx context.Context, e *env, s *services, req *executorv1.ForkRunRequest) error {
	r, err := s.executor.ForkRun(ctx, req)
	if err != nil {
		return err
	}
	return e.forked(r, c.detached)
}

// graphOf reads the text of a file that must hold a graph.
func graphOf(name, text string) (*graphv1.Graph, error) {
	raw, err := findGraph(text)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, errs.New(errs.InvalidArgument, "GRAPH_INVALID", "%s holds no graph", name).Hint("`epigraph runs graph RUN --json` prints one")
	}
	return graphpb.Read(raw)
}

type runsDeleteCmd struct {
	ID string `arg:"" help:"The run that has ended."`
}

// Help says what goes with it.
func (runsDeleteCmd) Help() string {
	return `Deletes the run with its journal, values, interrupts and ended descendants. Its usage and costs stay recorded.`
}

// Run deletes.
func (c *runsDeleteCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.DeleteRun(ctx, &executorv1.DeleteRunRequest{RunId: c.ID})
		if errs.ReasonOf(err) == "RUN_NOT_ENDED" {
			return errs.From(err).Hint("end it first: epigraph runs cancel " + c.ID)
		}
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted " + view.OneLine(c.ID, 64) + "\n" })
	})
}

// runFilter is what the bulk commands select by.
type runFilter struct {
	State    []string          `help:"Runs in any of these states; open means every run that has not ended." placeholder:"STATE"`
	Reason   string            `help:"Runs whose state has this reason, for example MAX_VISITS." name:"state-reason" placeholder:"REASON"`
	Task     string            `help:"Runs for this task." placeholder:"ID"`
	Epic     string            `help:"Runs for the tasks of this epic, and those that it pays for." placeholder:"ID"`
	Workflow string            `help:"Runs of this workflow of the catalog, or of one version of it." placeholder:"NAME[@VERSION]"`
	User     string            `help:"Runs for this user." placeholder:"ID"`
	Schedule string            `help:"Runs that this schedule started." placeholder:"ID"`
	Labels   map[string]string `help:"Runs with all of these labels." name:"label" placeholder:"NAME=VALUE"`
	After    string            `help:"Runs created at or after this time, or this long ago (2h)." placeholder:"TIME"`
	Before   string            `help:"Runs created before this time, or this long ago (2h)." placeholder:"TIME"`
	Limit    int32             `help:"Maximum number of runs to process." default:"1000" short:"l"`
	DryRun   bool              `help:"Count only; change nothing."`
	Yes      bool              `help:"Do not ask." short:"y"`
}

func (f *runFilter) filter() (*executorv1.RunFilter, error) {
	states, err := runStates(f.State)
	if err != nil {
		return nil, err
	}
	out := &executorv1.RunFilter{States: states, StateReason: f.Reason, TaskId: f.Task, EpicId: f.Epic, Workflow: f.Workflow, UserId: f.User, ScheduleId: f.Schedule, Labels: f.Labels}
	if out.CreatedAfter, err = instant("--after", f.After); err != nil {
		return nil, err
	}
	out.CreatedBefore, err = instant("--before", f.Before)
	return out, err
}

// instant reads a time, or how long ago it was; nil for none.
func instant(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return timestamppb.New(time.Now().Add(-d)), nil
	}
	return moment(flag, text)
}

// later reads a time, or in how long it will be; nil for none.
func later(flag, text string) (*timestamppb.Timestamp, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return timestamppb.New(time.Now().Add(d)), nil
	}
	at, err := moment(flag, text)
	if err == nil && at != nil && len(text) <= len("15:04:05") && at.AsTime().Before(time.Now()) {
		// a time of day that is over today is tomorrow's
		at = timestamppb.New(at.AsTime().In(time.Local).AddDate(0, 0, 1))
	}
	return at, err
}

// moment reads a time; nil for none. A time of day is today's.
func moment(flag, text string) (*timestamppb.Timestamp, error) {
	if text == "" {
		return nil, nil
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			now := time.Now()
			return timestamppb.New(time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.Local)), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return timestamppb.New(t), nil
		}
	}
	return nil, usage(errs.New(errs.InvalidArgument, "TIME_INVALID", "%s: %q is no time", flag, text).Hint("write it as 2026-01-31T09:00:00Z, as 18:00, or as a length of time such as 2h"))
}

// bulk counts first and asks, unless a flag says otherwise, then acts. Each call reports its matches and
// results.
func (e *env) bulk(f *runFilter, verb string, call func(ctx context.Context, s *services, dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error)) error {
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	once := func(dry bool) (int32, []*executorv1.BulkFailure, bool, func() error, error) {
		ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
		defer cancel()
		return call(ctx, s, dry)
	}
	if f.DryRun || !f.Yes {
		n, _, more, show, err := once(true)
		if err != nil {
			return e.unfiltered(err)
		}
		if f.DryRun {
			return show()
		}
		if n == 0 {
			return show()
		}
		what := view.Plural(int(n), "run")
		if more {
			what += " (and there are more)"
		}
		ok, err := e.confirm(false, verb+" "+what+"?")
		if err != nil || !ok {
			return err
		}
	}
	begun := time.Now()
	_, failures, more, show, err := once(false)
	if err != nil {
		return e.unfiltered(err)
	}
	if err := show(); err != nil {
		return err
	}
	if !e.json {
		for _, x := range failures {
			e.note("  %s: %s [%s]", x.GetRunId(), view.OneLine(x.GetMessage(), 200), view.OneLine(x.GetReason(), 60))
		}
	}
	if more {
		e.help("there may be more: repeat the command%s", f.later(verb, begun))
	}
	if len(failures) > 0 {
		return exit(exitFailed)
	}
	return nil
}

// later is what to add to a command that is repeated. The runs that a retry started match the same filter
// when they fail, so it is their time that leaves them out.
func (f *runFilter) later(verb string, begun time.Time) string {
	if verb != "retry" || f.Before != "" {
		return ""
	}
	return " with --before " + begun.UTC().Format("2006-01-02T15:04:05.000Z") + ", which leaves out the runs that it started"
}

// unfiltered names the flags that select the runs of a bulk command, if none was given.
func (e *env) unfiltered(err error) error {
	if errs.ReasonOf(err) != "FILTER_EMPTY" {
		return err
	}
	return errs.From(err).Hint("say which runs, for example with --label NAME=VALUE, --task ID, --before 72h or --state open")
}

type attemptsCompleteCmd struct {
	Token  string   `arg:"" help:"The attempt token; \"epigraph runs show\" lists it."`
	Values []string `help:"Result of the work, as JSON or text; repeat it for more values." name:"value" placeholder:"VALUE" sep:"none" xor:"outcome"`
	Failed *string  `help:"The work failed for good, with this reason." placeholder:"REASON" xor:"outcome"`
	Why    string   `help:"Message for people." name:"message" placeholder:"TEXT"`
	By     string   `help:"Name of the person who reports it, for the history." placeholder:"NAME"`
}

// Help shows how an attempt is completed.
func (attemptsCompleteCmd) Help() string {
	return `The work may be that of a program or of a person. "runs show" lists the tokens of waiting attempts.

    epigraph attempts complete TOKEN --value '{"score": 7}'
    epigraph attempts complete TOKEN --failed REJECTED --message 'the customer said no'`
}

// Run completes.
func (c *attemptsCompleteCmd) Run(e *env) error {
	req := &executorv1.CompleteAttemptRequest{AttemptToken: c.Token, By: c.By}
	if c.Failed != nil {
		req.Result = &executorv1.CompleteAttemptRequest_Failed{Failed: &executorv1.AttemptFailed{Reason: *c.Failed, Message: c.Why}}
	} else {
		done := &executorv1.AttemptPerformed{}
		for _, v := range c.Values {
			p, err := finalValue(v)
			if err != nil {
				return err
			}
			done.Values = append(done.Values, p)
		}
		req.Result = &executorv1.CompleteAttemptRequest_Completed{Completed: done}
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.executor.CompleteAttempt(ctx, req)
		if err != nil {
			return err
		}
		if err := e.print(r, func() string { return r.GetRunId() + " goes on\n" }); err != nil {
			return err
		}
		e.help("`epigraph runs watch %s` shows it", r.GetRunId())
		return nil
	})
}
