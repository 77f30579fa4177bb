package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// runCmd starts a run and watches it.
type runCmd struct {
	File   string            `arg:"" help:"A text with a plan, or a graph as JSON; - reads standard input." default:"-"`
	Actor  string            `help:"Actor of every problem that has none of its own; llm when not given." placeholder:"NAME"`
	Actors map[string]string `help:"Actor of single problems." name:"set-actor" placeholder:"ID=NAME"`
	Common map[string]string `help:"Argument for every node of a compiled plan, as JSON or text." name:"with" placeholder:"NAME=VALUE"`
	Accept []string          `help:"Repairs on offer to accept, for example REUSED_TOOL." name:"accept-repair" placeholder:"CODE"`
	Name   string            `help:"Name of the graph."`

	Args        []string          `help:"Positional input, as JSON or text." name:"arg" placeholder:"VALUE" sep:"none"`
	Named       map[string]string `help:"Named input, as JSON or text." name:"input" placeholder:"NAME=VALUE"`
	Context     string            `help:"Facts for conditions, as JSON." placeholder:"JSON"`
	Attachments []string          `help:"Document for the run, read as text." name:"attach" placeholder:"FILE" type:"existingfile"`

	Task        string            `help:"Task that the run works on." placeholder:"ID"`
	Epic        string            `help:"Epic in which a task is made for the run: an id, or the title of a new epic." placeholder:"ID|TITLE" xor:"task"`
	User        string            `help:"User for whom it runs." placeholder:"ID"`
	Chat        string            `help:"Conversation from which it is started." placeholder:"ID"`
	Thread      string            `help:"Thread on which its agents work." placeholder:"ID"`
	Labels      map[string]string `help:"Fact to filter by." name:"label" placeholder:"NAME=VALUE"`
	Metadata    map[string]string `help:"Fact for your own use." name:"metadata" placeholder:"NAME=VALUE"`
	BusinessKey string            `help:"At most one open run has this key." placeholder:"KEY"`
	OnConflict  string            `help:"What to do when an open run has the business key: ${enum}." enum:"fail,return,cancel" default:"fail"`
	RequestID   string            `help:"Makes the command repeatable: the same id starts one run." placeholder:"ID"`
	Detach      bool              `help:"Start the run and do not watch it." short:"d"`
}

// Help says what the exit code means.
func (runCmd) Help() string {
	return `The exit code is 0 when the run completed, 1 when it failed, 3 when it was cancelled, 4 when it is paused, 5 when the text holds no plan. Ctrl-C stops watching; the run goes on.`
}

// Run compiles, starts and watches.
func (c *runCmd) Run(e *env) error {
	text, err := e.read(c.File)
	if err != nil {
		return err
	}
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	r, g, err := c.start(e, s, text)
	if err != nil {
		if errs.ReasonOf(err) == "NO_PLAN" {
			e.fail(err)
			return exit(exitNoPlan)
		}
		return err
	}
	if c.Detach {
		return e.print(r, func() string { return r.GetId() + "\n" })
	}
	if !e.json {
		fmt.Fprintf(e.io.Out, "%s  %s  %d nodes\n", e.io.style().Bold(r.GetId()), view.OneLine(r.GetGraphName(), 60), len(g.GetNodes()))
	}
	return e.watch(s, r.GetId(), g, 0, false)
}

func (c *runCmd) start(e *env, s *services, text string) (*executorv1.Run, *graphv1.Graph, error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	g, err := c.graph(ctx, e, s, text)
	if err != nil {
		return nil, nil, err
	}
	req := &executorv1.StartRunRequest{
		Graph: g, TaskId: c.Task, UserId: c.User, ChatId: c.Chat, ThreadId: c.Thread, Labels: c.Labels, Metadata: c.Metadata,
		BusinessKey: c.BusinessKey, RequestId: c.RequestID, Named: payloads(c.Named),
	}
	req.ConflictPolicy = map[string]executorv1.ConflictPolicy{
		"fail":   executorv1.ConflictPolicy_CONFLICT_POLICY_FAIL,
		"return": executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING,
		"cancel": executorv1.ConflictPolicy_CONFLICT_POLICY_CANCEL_EXISTING,
	}[c.OnConflict]
	for _, a := range c.Args {
		req.Args = append(req.Args, &graphv1.Payload{Json: value(a)})
	}
	if c.Context != "" {
		if !json.Valid([]byte(c.Context)) {
			return nil, nil, errs.New(errs.InvalidArgument, "CONTEXT_INVALID", "--context is not JSON")
		}
		req.Context = &graphv1.Payload{Json: []byte(c.Context)}
	}
	for _, name := range c.Attachments {
		body, err := e.read(name)
		if err != nil {
			return nil, nil, err
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		req.Attachments = append(req.Attachments, &executorv1.Attachment{Id: name, MediaType: "text/plain", Content: &graphv1.Payload{Json: raw}})
	}
	if c.Epic != "" {
		if req.TaskId, err = c.task(ctx, e, s, g.GetName()); err != nil {
			return nil, nil, err
		}
	}
	r, err := s.executor.StartRun(ctx, req)
	return r, g, err
}

// graph reads a graph as it is, or has a plan compiled.
func (c *runCmd) graph(ctx context.Context, e *env, s *services, text string) (*graphv1.Graph, error) {
	if isGraph(text) {
		g, err := workgraph.Decode([]byte(text))
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "GRAPH_INVALID", "%v", err)
		}
		if c.Name != "" {
			g.Name = c.Name
		}
		return graphpb.ToProto(g)
	}
	r, err := s.planner.CompilePlan(ctx, &plannerv1.CompilePlanRequest{
		Plan: &plannerv1.CompilePlanRequest_Text{Text: text}, DefaultActor: c.Actor, Actors: c.Actors, Named: payloads(c.Common),
		Name: c.Name, AcceptRepairs: c.Accept,
	})
	if err != nil {
		return nil, err
	}
	fmt.Fprint(e.io.Err, view.Diagnostics(e.io.style(), c.File, text, r.GetPlan().GetDiagnostics()))
	return r.GetGraph(), nil
}

// isGraph tells a WorkGraph from a plan: only its nodes name actors.
func isGraph(text string) bool {
	var g struct {
		Nodes []struct {
			Actor *string `json:"actor"`
		} `json:"nodes"`
	}
	if json.Unmarshal([]byte(text), &g) != nil || len(g.Nodes) == 0 {
		return false
	}
	for _, n := range g.Nodes {
		if n.Actor != nil {
			return true
		}
	}
	return false
}

// task makes a task for the run, in a new epic when a title was given.
func (c *runCmd) task(ctx context.Context, e *env, s *services, title string) (string, error) {
	epic := c.Epic
	if !strings.HasPrefix(epic, "ep_") {
		made, err := s.registry.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: epic}, RequestId: suffixed(c.RequestID, "-epic")})
		if err != nil {
			return "", err
		}
		epic = made.GetId()
	}
	made, err := s.registry.CreateTask(ctx, &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: epic, Title: title}, RequestId: suffixed(c.RequestID, "-task")})
	if err != nil {
		return "", err
	}
	if !e.json {
		fmt.Fprintf(e.io.Out, "task %s of epic %s\n", made.GetId(), epic)
	}
	return made.GetId(), nil
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
		reason = " (" + r.GetStateReason() + ")"
	}
	fmt.Fprintf(&b, "%s %s%s%s\n", r.GetId(), s.Bold(state), took, reason)
	if x := r.GetError(); x != nil {
		where := ""
		if x.GetNodeId() != "" {
			where = " at " + x.GetNodeId()
		}
		fmt.Fprintf(&b, "error%s: %s: %s\n", where, x.GetReason(), view.OneLine(x.GetMessage(), 0))
	}
	if p := r.GetResult(); len(p.GetJson()) > 0 && string(p.GetJson()) != "null" {
		b.WriteString("result:\n" + indent(pretty(p.GetJson())) + "\n")
	}
	if u := r.GetUsage(); u.GetCalls() > 0 {
		fmt.Fprintf(&b, "used: %s input and %s output tokens in %s calls", view.Count(u.GetInputTokens()), view.Count(u.GetOutputTokens()), view.Count(u.GetCalls()))
		switch {
		case u.GetUnpricedCalls() == 0:
			fmt.Fprintf(&b, ", %s", view.Money(u.GetCostNanoUsd()))
		case u.GetUnpricedCalls() < u.GetCalls():
			fmt.Fprintf(&b, ", %s and %s calls without a known price", view.Money(u.GetCostNanoUsd()), view.Count(u.GetUnpricedCalls()))
		default:
			b.WriteString(", price unknown")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// pretty is a JSON text as itself when it is a string, and indented otherwise.
func pretty(raw []byte) string {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return text
	}
	b, err := json.MarshalIndent(json.RawMessage(raw), "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(b)
}

func indent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = "  " + view.OneLine(l, 0)
		if lead := len(l) - len(strings.TrimLeft(l, " ")); lead > 0 {
			lines[i] = "  " + strings.Repeat(" ", lead) + view.OneLine(strings.TrimLeft(l, " "), 0)
		}
	}
	return strings.Join(lines, "\n")
}

// pairs is a map as "k=v" in order, for tables.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

// settle is how long a finished run's costs may take to reach the books before it is shown without them.
const settle = 5 * time.Second
