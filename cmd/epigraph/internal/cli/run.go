package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// runCmd starts a run and watches it.
type runCmd struct {
	File     string            `arg:"" help:"A text with a plan, or a graph as JSON; - reads standard input." default:"-"`
	Actor    string            `help:"Actor of the problems that name none; default llm." placeholder:"NAME"`
	Actors   map[string]string `help:"Actor of single problems." name:"set-actor" placeholder:"ID=NAME"`
	Common   map[string]string `help:"Argument for every node of a compiled plan, as JSON or text." name:"with" placeholder:"NAME=VALUE"`
	Accept   []string          `help:"Offered repair to accept, for example REUSED_TOOL." name:"accept-repair" placeholder:"CODE"`
	Complete bool              `help:"The text of the plan is complete, because the model stopped by itself."`
	Restate  bool              `help:"Let the server's model restate a plan that is ambiguous or is not found."`
	Name     string            `help:"Name of the graph." placeholder:"NAME"`

	runStart
	OnConflict string `help:"What to do when an open run has the business key: ${enum}." enum:"fail,return,cancel" default:"fail"`
	StartAt    string `help:"When to start: a time, or how long from now (90m)." placeholder:"TIME"`
	Signal     string `help:"Signal the open run with the business key; start it first if there is none." placeholder:"NAME[=VALUE]"`
	Detach     bool   `help:"Start the run and do not watch it." short:"d"`
}

// Help says what the exit code means.
func (runCmd) Help() string {
	return `The exit code is 0 if the run completed, 1 if it failed, 3 if it was canceled, 4 if it is paused or waits only for paused runs below it, 5 if the text contains no plan, 6 if no server answers. Ctrl-C stops watching (130); the run continues. With --json every event is one line, and the last line is the run.

    epigraph run plan.txt --epic "Launch"
    epigraph run plan.txt --budget-usd 2.50 --budget-tokens 1000000
    epigraph run plan.txt --detach --webhook https://example.com/hook --webhook-on ended,paused
    printf 'A -> B, C' | epigraph run --actor template --with text='did {{ node }}'
    epigraph run plan.txt --set-actor REVIEW=template --request-id nightly-42`
}

// Run compiles, starts and watches.
func (c *runCmd) Run(e *env) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	text, err := e.readText(c.File)
	if err != nil {
		return err
	}
	if runnable(text) {
		return wrongKind(sourceName(c.File), text, "a plan or a graph")
	}
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	r, g, err := c.start(e, s, text, req)
	if err != nil {
		return err
	}
	return c.show(e, s, r, g, c.Detach)
}

// request is built from the flags alone, so that a wrong flag is reported before anything is read or asked.
func (c *runCmd) request() (*executorv1.StartRunRequest, error) {
	if c.Signal != "" && c.BusinessKey == "" {
		return nil, usage(errs.New(errs.InvalidArgument, "BUSINESS_KEY_MISSING", "--signal needs --business-key, by which the open run is found"))
	}
	req, err := c.runStart.request()
	if err != nil {
		return nil, err
	}
	req.ConflictPolicy = map[string]executorv1.ConflictPolicy{
		"fail":   executorv1.ConflictPolicy_CONFLICT_POLICY_FAIL,
		"return": executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING,
		"cancel": executorv1.ConflictPolicy_CONFLICT_POLICY_CANCEL_EXISTING,
	}[c.OnConflict]
	req.StartTime, err = later("--start-at", c.StartAt)
	return req, err
}

func (c *runCmd) start(e *env, s *services, text string, req *executorv1.StartRunRequest) (*executorv1.Run, *graphv1.Graph, error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	g, err := c.graph(ctx, e, s, text)
	if err != nil {
		return nil, nil, err
	}
	req.Graph = g
	c.warn(ctx, e, s, text, g, inputOf(req))
	if err := c.attach(e, req); err != nil {
		return nil, nil, err
	}
	undo, err := c.book(ctx, s, req, c.title(g.GetName()))
	if err != nil {
		return nil, nil, err
	}
	r, err := c.begin(ctx, s, req)
	if err != nil {
		undo(ctx, err)
		if raw, notGraph := findGraph(text); raw != nil && notGraph == nil {
			err = c.pointed(e, text, err)
		}
	}
	return r, g, err
}

// title is that of a task that is made for the run.
func (c *runCmd) title(graph string) string {
	if c.Name != "" || c.File == "-" {
		return graph
	}
	base := filepath.Base(c.File)
	return strings.ToValidUTF8(strings.TrimSuffix(base, filepath.Ext(base)), "\ufffd")
}

// begin starts the run, with a signal if there is one.
func (c *runCmd) begin(ctx context.Context, s *services, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
	if c.Signal == "" {
		return s.executor.StartRun(ctx, req)
	}
	name, text, carries := strings.Cut(c.Signal, "=")
	signal := &executorv1.SignalWithStartRequest{Start: req, Name: name}
	if carries {
		var err error
		if signal.Payload, err = given(&text); err != nil {
			return nil, err
		}
	}
	return s.executor.SignalWithStart(ctx, signal)
}

// graph reads a graph as it is, or has a plan compiled.
func (c *runCmd) graph(ctx context.Context, e *env, s *services, text string) (*graphv1.Graph, error) {
	raw, err := findGraph(text)
	if err != nil {
		return nil, c.pointed(e, text, err)
	}
	if raw != nil {
		if c.Actor != "" || len(c.Actors) > 0 || len(c.Common) > 0 || len(c.Accept) > 0 {
			return nil, usage(errs.New(errs.InvalidArgument, "FLAG_FOR_PLANS", "--actor, --set-actor, --with and --accept-repair are for plans; a graph says itself what its nodes call").
				Hint("change the graph, or give the run an input with --arg and --input"))
		}
		g, err := graphpb.Read(raw)
		if err != nil {
			return nil, c.pointed(e, text, c.withOthers(ctx, s, text, g, err))
		}
		if c.Name != "" {
			g.Name = c.Name
		}
		return g, nil
	}
	req := &plannerv1.CompilePlanRequest{
		Plan: &plannerv1.CompilePlanRequest_Text{Text: text}, DefaultActor: c.Actor, Actors: c.Actors, Named: payloads(c.Common),
		Name: c.Name, AcceptRepairs: c.Accept, Complete: c.Complete,
	}
	if c.Restate {
		req.Restate = plannerv1.RestatePolicy_RESTATE_POLICY_WHEN_UNSURE
	}
	r, err := s.planner.CompilePlan(ctx, req)
	if err != nil {
		return nil, c.refused(e, text, err)
	}
	if !e.json {
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, r.GetPlan().GetDiagnostics()))
		e.restated(r.GetPlan())
	}
	return r.GetGraph(), nil
}

// withOthers adds the server's faults of the rest of a graph to the faults for which the graph cannot be
// read.
func (c *runCmd) withOthers(ctx context.Context, s *services, text string, rest *graphv1.Graph, err error) error {
	x, ok := errors.AsType[*errs.Error](err)
	if !ok || rest == nil {
		return err
	}
	req, _ := c.request() // that it is right has been seen
	r, asked := s.executor.ValidateGraph(ctx, &executorv1.ValidateGraphRequest{Graph: rest, Input: inputOf(req)})
	if asked != nil {
		return err // a fault of the text is reported without a server
	}
	all := *x
	seen := map[int]bool{}
	for _, v := range x.Violations {
		seen[locate(text, v.Field).offset] = true
	}
	for _, v := range graphpb.Violations(r.GetFaults()) {
		if !seen[locate(text, v.Field).offset] {
			// the reader names nodes by their number, the server by their id
			all.Violations = append(all.Violations, v)
		}
	}
	return &all
}

// warn shows warnings about a graph that can run. The start itself reports faults, and a server that does not
// answer.
func (c *runCmd) warn(ctx context.Context, e *env, s *services, text string, g *graphv1.Graph, in *executorv1.RunInput) {
	if e.json {
		return
	}
	r, err := s.executor.ValidateGraph(ctx, &executorv1.ValidateGraphRequest{Graph: g, Input: in})
	if err != nil || len(r.GetFaults()) > 0 {
		return
	}
	raw, _ := findGraph(text)
	list := placed(text, graphpb.Violations(r.GetWarnings()))
	for _, d := range list {
		d.Severity = planv1.Severity_SEVERITY_WARNING
		if raw == nil { // a plan: the graph that it was compiled to has no place in it
			d.Line, d.Column, d.Element = 0, 0, ""
		}
	}
	fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, list))
}

// pointed shows the places at which a graph is at fault in its text, and leaves the rest of the error to be
// shown as usual.
func (c *runCmd) pointed(e *env, text string, err error) error {
	if e.json {
		return err
	}
	if m, ok := errors.AsType[*misread](err); ok {
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, []*planv1.Diagnostic{m.at}))
		return exit(exitFailed)
	}
	x, ok := errors.AsType[*errs.Error](err)
	if !ok || x.Reason != graphpb.ReasonGraphInvalid || len(x.Violations) == 0 {
		return err
	}
	fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, placed(text, x.Violations)))
	short := errs.New(x.Kind, x.Reason, "the graph has %s", view.Plural(len(x.Violations), "fault"))
	return short
}

// refused shows what the planner refused with carets under the places, and leaves the rest of the error to be
// shown as usual.
func (c *runCmd) refused(e *env, text string, err error) error {
	x, ok := errors.AsType[*errs.Error](err)
	if !ok || x.Reason != "PLAN_INVALID" || e.json {
		return err
	}
	var ds []*planv1.Diagnostic
	for _, v := range x.Violations {
		d := &planv1.Diagnostic{Code: v.Reason, Severity: planv1.Severity_SEVERITY_ERROR, Message: v.Message}
		if _, err := fmt.Sscanf(v.Field, "%d:%d", &d.Line, &d.Column); err != nil {
			d.Message = v.Field + ": " + v.Message
		}
		ds = append(ds, d)
	}
	fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), sourceName(c.File), text, ds))
	short := *x
	short.Violations = nil
	return &short
}

func suffixed(id, suffix string) string {
	if id == "" {
		return ""
	}
	return id + suffix
}

func payloads(m map[string]string) map[string]*graphv1.Payload {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]*graphv1.Payload, len(m))
	for k, v := range m {
		out[k] = &graphv1.Payload{Json: value(v)}
	}
	return out
}

// summary is what a run came to.
func summary(e *env, r *executorv1.Run) string {
	s := e.io.style()
	var b strings.Builder
	state := view.Word(r.GetState().String(), "RUN_STATE_")
	took := ""
	if r.GetEndTime() != nil && r.GetStartTime() != nil {
		took = " in " + view.Took(r.GetEndTime().AsTime().Sub(r.GetStartTime().AsTime()))
	}
	reason := ""
	if r.GetStateReason() != "" {
		reason = " (" + view.OneLine(r.GetStateReason(), 0) + ")"
	}
	b.WriteString(s.Fit(fmt.Sprintf("%s %s%s%s", r.GetId(), s.State(state), took, reason)) + "\n")
	if x := r.GetError(); x != nil {
		where := ""
		if x.GetNodeId() != "" {
			where = " at " + view.OneLine(x.GetNodeId(), 60)
		}
		b.WriteString(s.Said("error"+where+": "+view.OneLine(x.GetReason(), 0)+":", x.GetMessage(), "  ") + "\n")
	}
	if p := r.GetResult(); len(p.GetJson()) > 0 && string(p.GetJson()) != "null" {
		title := "result:\n"
		if r.GetState() != executorv1.RunState_RUN_STATE_COMPLETED {
			title = "result so far:\n"
		}
		text := indent(pretty(p.GetJson()))
		if p.GetJson()[0] == '"' { // JSON is not broken, since it may be copied
			text = s.Fit(text)
		}
		b.WriteString(title + text + "\n")
		if id := cmp.Or(conversation(p.GetJson()), r.GetThreadId()); id != "" {
			b.WriteString("conversation: epigraph threads show " + view.OneLine(id, 60) + "\n")
		}
	}
	for _, line := range used(r) {
		b.WriteString(s.Fit(line) + "\n")
	}
	return b.String()
}

// used are the lines about what a run used: its own total, and what was booked in all where that is
// more, since it gave children up.
func used(r *executorv1.Run) (lines []string) {
	u := r.GetUsage()
	if u.GetCalls() == 0 && u.GetBookedCalls() == 0 {
		return nil
	}
	line := func(what string, input, output, calls int64) string {
		return fmt.Sprintf("%s: %s input and %s output tokens in %s", what, view.Count(input), view.Count(output), view.Plural(int(calls), "call"))
	}
	lines = []string{line("used", u.GetInputTokens(), u.GetOutputTokens(), u.GetCalls())}
	at := 0
	if u.GetBookedCalls() > u.GetCalls() {
		lines = append(lines, line("booked in all, with what was given up", u.GetBookedInputTokens(), u.GetBookedOutputTokens(), u.GetBookedCalls()))
		at = 1 // the cost is that of all calls
	}
	lines[at] += ", " + cost(u)
	lines[0] += of(r.GetBudget())
	return lines
}

// conversation is the thread that the result of an agent or a team names; empty if it names none.
func conversation(result json.RawMessage) string {
	var r struct {
		ThreadID string `json:"thread_id"`
	}
	if json.Unmarshal(result, &r) != nil {
		return ""
	}
	return r.ThreadID
}

// of is the budget behind the used amount.
func of(b *executorv1.RunBudget) string {
	if text := budgetText(b); text != "" {
		return "; its budget is " + text
	}
	return ""
}

// cost is the known cost of a run's calls, and what is missing in it; empty without calls.
func cost(u *executorv1.Usage) string {
	calls := max(u.GetCalls(), u.GetBookedCalls())
	if calls == 0 {
		return ""
	}
	return view.Cost(u.GetCostNanoUsd(), calls > u.GetUnpricedCalls(), u.GetUnpricedCalls(), u.GetUnbookedAttempts())
}

// capReached is the reason of a run for whose next call a cap above it leaves no room.
const capReached = "CAP_REACHED"

// raiseCap says how such a run goes on.
func raiseCap(runID string) string {
	return fmt.Sprintf("`epigraph budgets set …` raises the cap that leaves no room, and the run goes on by itself; `epigraph runs explain %s` has the whole command", runID)
}

// advice is what can be done about a run that did not complete, where that is not plain.
func advice(r *executorv1.Run) string {
	switch {
	case r.GetState() == executorv1.RunState_RUN_STATE_PAUSED:
		way := fmt.Sprintf("`epigraph runs resume %s` lets the run go on", r.GetId())
		if r.GetStateReason() == "BUDGET_EXHAUSTED" {
			way = fmt.Sprintf("`epigraph runs resume %s` with a higher --budget-usd or --budget-tokens lets the run go on", r.GetId())
		}
		if r.GetStateReason() == capReached {
			way = raiseCap(r.GetId())
		}
		if unsettled(r) {
			way = "the run goes on by itself when the registry answers with the prices of its calls"
		}
		if r.GetStateReason() == "NEEDS_RECONCILIATION" {
			way = fmt.Sprintf("`epigraph runs reconcile %s NODE` records the outcome of the call, then ", r.GetId()) + way
		}
		return fmt.Sprintf("its work is kept: `epigraph runs visits %s` shows it; %s, `epigraph runs cancel %s` ends it", r.GetId(), way, r.GetId())
	case standsStill(r):
		return fmt.Sprintf("its work is kept: `epigraph runs visits %s` shows it, `epigraph runs cancel %s` ends the run", r.GetId(), r.GetId())
	case strings.Contains(r.GetError().GetMessage(), "(NOT_RECORDED)"):
		// a cassette is played, and no model is asked
	case strings.Contains(r.GetError().GetReason()+": "+r.GetError().GetMessage(), "MODEL_CALL_FAILED: "):
		// the message of a child run has the reason
		return "the server asks the model at OPENAI_BASE_URL with OPENAI_API_KEY, as they were set when it started; `epigraph demo` and `--actor template` need no model"
	}
	return ""
}

// pretty returns a JSON string as plain text, and other JSON indented.
func pretty(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return text
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}

// indent is text from anywhere, fit to be printed below a heading.
func indent(text string) string {
	return "  " + strings.Join(view.Lines(text), "\n  ")
}

// pairs is a map as "k=v" in order, for tables.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}
