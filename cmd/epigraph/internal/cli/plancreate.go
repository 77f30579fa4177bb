package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// authorFlags say what a model is told, and how far it may go.
type authorFlags struct {
	About     string            `help:"What the model should know besides." placeholder:"TEXT"`
	AboutFile string            `help:"File with what the model should know besides." placeholder:"FILE" type:"existingfile"`
	Tools     []string          `help:"Actor that problems may use, with the description and schema that the server has; repeatable." name:"tool" placeholder:"NAME"`
	ToolsFile string            `help:"File with more tools: a JSON list of {name, description, schema}." placeholder:"FILE" type:"existingfile"`
	Profile   string            `help:"Model profile that is asked." placeholder:"NAME"`
	Actor     string            `help:"Actor of problems without a tool; default llm." placeholder:"NAME"`
	Common    map[string]string `help:"Argument for every node, as JSON or text." name:"with" placeholder:"NAME=VALUE"`
	MaxRounds int32             `help:"Answers of the model at most; 0 means as the server says." placeholder:"N"`
	MaxTokens int64             `help:"Tokens of all answers at most; 0 means as the server says." placeholder:"N"`
	MaxUSD    *float64          `help:"Money for all answers at most, in dollars." name:"max-usd" placeholder:"X"`
	MaxTime   time.Duration     `help:"Time for all answers at most; 0 means as the server says." placeholder:"DURATION"`
}

// limits are the limits in the flags.
func (f *authorFlags) limits() (*plannerv1.AuthorLimits, error) {
	l := &plannerv1.AuthorLimits{MaxRounds: f.MaxRounds, MaxTokens: f.MaxTokens}
	if f.MaxTime > 0 {
		l.Timeout = durationpb.New(f.MaxTime)
	}
	if f.MaxUSD != nil {
		nano, err := nanoUSD("--max-usd", *f.MaxUSD)
		if err != nil {
			return nil, err
		}
		l.MaxCostNanoUsd = &nano
	}
	return l, nil
}

// about is what the model should know besides.
func (f *authorFlags) about(e *env) (string, error) {
	if f.AboutFile == "" {
		return f.About, nil
	}
	text, err := e.readText(f.AboutFile)
	return strings.TrimSpace(f.About + "\n\n" + text), err
}

// tools are the named actors as the server describes them, and those of the file.
func (f *authorFlags) tools(ctx context.Context, e *env, s *services) ([]*plannerv1.PlanTool, error) {
	var out []*plannerv1.PlanTool
	if len(f.Tools) > 0 {
		r, err := s.executor.ListActors(ctx, &executorv1.ListActorsRequest{})
		if err != nil {
			return nil, err
		}
		for _, name := range f.Tools {
			a, err := actorNamed(r.GetActors(), "--tool", name)
			if err != nil {
				return nil, err
			}
			out = append(out, &plannerv1.PlanTool{Name: a.GetName(), Description: a.GetDescription(), Schema: a.GetArgsSchema()})
		}
	}
	if f.ToolsFile == "" {
		return out, nil
	}
	text, err := e.readText(f.ToolsFile)
	if err != nil {
		return nil, err
	}
	var list []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, usage(errs.New(errs.InvalidArgument, "TOOLS_INVALID", "%s is no list of tools: %v", f.ToolsFile, err).
			Hint(`write [{"name": "search", "description": "searches the web", "schema": {"type": "object"}}]`))
	}
	for _, t := range list {
		out = append(out, &plannerv1.PlanTool{Name: t.Name, Description: t.Description, Schema: &graphv1.Payload{Json: t.Schema}})
	}
	return out, nil
}

// asking is the context of a request that a model answers: the limit of a request counts for each of its
// rounds at least, and the server has limits of its own.
func (f *authorFlags) asking(e *env) (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, max(e.client.Timeout, f.MaxTime, 2*time.Minute))
}

type planCreateCmd struct {
	Goal string `arg:"" help:"What is to be achieved."`
	authorFlags
	Name  string `help:"Name of the graph." placeholder:"NAME"`
	Start bool   `help:"Run the plan while it is written, and watch it. The flags of the run are those of epigraph run." name:"run"`
	runStart
	Detach bool `help:"With --run: do not watch the run once the plan is complete." short:"d"`
}

// Help says what the exit code means.
func (planCreateCmd) Help() string {
	return `Has a model of the server write a plan. The faults of an answer go back to the model until the plan can run, until a limit is reached, or until the plan gets no better. The plan is printed as the model wrote it, so that it can be kept in a file; remarks go to stderr. With --json the whole record is printed. The exit code is 0 when the plan can run, 1 when it cannot; with --run it is that of ` + "`epigraph run`" + `.

With --run the tasks of the plan begin as soon as their part is certain, while the model still writes. A task whose call may be UNSAFE waits for the whole plan. The run is canceled if no plan comes, or if this command ends before. With --json the events of the plan are printed, and then those of the run.

    epigraph plan create "Plan a weekend in Oslo" > plan.json
    epigraph plan create "Compare these offers" --about-file offers.txt --tool http --max-usd 0.10 --run`
}

// Run asks, shows and starts.
func (c *planCreateCmd) Run(e *env) error {
	limits, err := c.limits()
	if err != nil {
		return err
	}
	start, err := c.request()
	if err != nil {
		return err
	}
	if !c.Start && (c.Detach || c.stated(start)) {
		return usage(errs.New(errs.InvalidArgument, "FLAG_FOR_RUNS", "flags of a run have no effect without --run").Hint("add --run, or leave them out"))
	}
	about, err := c.about(e)
	if err != nil {
		return err
	}
	if err := c.attach(e, start); err != nil {
		return err
	}
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := c.asking(e)
	defer cancel()
	tools, err := c.authorFlags.tools(ctx, e, s)
	if err != nil {
		return err
	}
	req := &plannerv1.CreatePlanRequest{
		Goal: c.Goal, Context: about, Tools: tools, Profile: c.Profile, DefaultActor: c.Actor, Named: payloads(c.Common), Name: c.Name, Limits: limits,
	}
	if c.Start {
		return c.run(ctx, e, s, req, start)
	}
	r, err := c.create(ctx, e, s, req)
	if err != nil {
		return err
	}
	return e.print(r, func() string { return r.GetText() + "\n" })
}

// create has the plan written as a whole.
func (c *planCreateCmd) create(ctx context.Context, e *env, s *services, req *plannerv1.CreatePlanRequest) (*plannerv1.CreatePlanResponse, error) {
	r, err := s.planner.CreatePlan(ctx, req)
	if err != nil {
		return nil, err
	}
	if !e.json {
		e.authored(r.GetAuthoring())
	}
	if r.GetGraph() == nil {
		return nil, e.unwritten(r)
	}
	return r, nil
}

// run runs the plan while it is written, or behind that where the planner cannot.
func (c *planCreateCmd) run(ctx context.Context, e *env, s *services, req *plannerv1.CreatePlanRequest, start *executorv1.StartRunRequest) error {
	undo, err := c.book(ctx, s, start, cmp.Or(c.Name, view.OneLine(c.Goal, 100)))
	if err != nil {
		return err
	}
	id, r, err := c.stream(ctx, e, s, &plannerv1.StreamPlanRequest{Plan: req, Run: planRun(start)})
	if errs.ReasonOf(err) == "PLAN_RUN_NOT_CONFIGURED" {
		var run *executorv1.Run
		if r, err = c.create(ctx, e, s, req); err == nil {
			start.Graph = r.GetGraph()
			run, err = s.executor.StartRun(ctx, start)
		}
		id = run.GetId()
	}
	if err != nil {
		if id == "" {
			undo(ctx, err)
		}
		return err
	}
	return c.watch(e, s, id, r)
}

// unwritten shows the faults of a plan that cannot run.
func (e *env) unwritten(r *plannerv1.CreatePlanResponse) error {
	if !e.json {
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), "the answer", r.GetText(), r.GetPlan().GetDiagnostics()))
	} else if err := printJSON(e.io.Out, r); err != nil {
		return err
	}
	return exit(exitFailed)
}

// watch shows the run of a plan.
func (c *planCreateCmd) watch(e *env, s *services, runID string, r *plannerv1.CreatePlanResponse) error {
	run, err := s.executor.GetRun(e.ctx, &executorv1.GetRunRequest{RunId: runID})
	if err != nil {
		return err
	}
	if run.GetTaskId() != "" && !e.json {
		e.note("%s", c.paysFrom(run))
	}
	if c.Detach {
		return e.print(run, func() string { return runID + "\n" })
	}
	if !e.json {
		_ = e.say(fmt.Sprintf("%s  %s  %s\n", e.io.style().Bold(runID), view.OneLine(r.GetGraph().GetName(), 60), view.Plural(len(r.GetGraph().GetNodes()), "node")))
	}
	return e.watch(s, runID, r.GetGraph(), 0, false)
}

// stream has the plan written and run at the same time, and shows what begins.
func (c *planCreateCmd) stream(ctx context.Context, e *env, s *services, req *plannerv1.StreamPlanRequest) (runID string, r *plannerv1.CreatePlanResponse, err error) {
	events, err := s.planner.StreamPlan(ctx, req)
	for err == nil {
		var m *plannerv1.StreamPlanResponse
		if m, err = events.Recv(); err != nil {
			break
		}
		if e.json && (m.GetResult() == nil || m.GetResult().GetGraph() != nil) {
			if err := printJSON(e.io.Out, m); err != nil {
				return runID, nil, err
			}
		}
		switch {
		case m.GetRun() != nil:
			runID = m.GetRun().GetRunId()
		case m.GetPart() != nil:
			c.begun(e, m.GetPart())
		case m.GetResult() != nil:
			r = m.GetResult()
			if !e.json {
				e.authored(r.GetAuthoring())
			}
			if r.GetGraph() == nil {
				return runID, nil, e.unwritten(r)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return runID, r, err
}

// begun shows the tasks of a part.
func (*planCreateCmd) begun(e *env, p *plannerv1.PlanPart) {
	if e.json {
		return
	}
	for _, n := range p.GetNodes() {
		if p.GetStarted() {
			e.note("begun: %s", view.OneLine(n.GetId(), 60))
		} else if p.GetWaits() != "" {
			e.note("waits for the whole plan: %s, %s", view.OneLine(n.GetId(), 60), view.OneLine(p.GetWaits(), 0))
		}
	}
}

// authored shows the rounds of an authoring, and how it ended.
func (e *env) authored(a *plannerv1.Authoring) {
	for i, r := range a.GetRounds() {
		n := 0
		for _, d := range r.GetDiagnostics() {
			if d.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
				n++
			}
		}
		found := "no faults"
		if n > 0 {
			found = view.Plural(n, "fault")
		}
		price := ""
		if r.CostNanoUsd != nil {
			price = ", " + view.Money(r.GetCostNanoUsd())
		}
		e.note("round %d: %s, %s, tokens %d→%d%s", i+1, view.OneLine(r.GetModel(), 60), found, r.GetInputTokens(), r.GetOutputTokens(), price)
	}
	if a.GetEnd() != plannerv1.AuthorEnd_AUTHOR_END_COMPLETE {
		e.note("no plan (%s): %s", strings.ReplaceAll(view.Word(a.GetEnd().String(), "AUTHOR_END_"), "_", " "), view.OneLine(a.GetMessage(), 0))
	}
}
