package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/plan/corpus/mend"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The models of the two agents.
const (
	plannerModel = "planner"
	solverModel  = "solver"
)

// server is an executor on a database of its own, and the models that its agents ask.
type server struct {
	client executorv1.ExecutorServiceClient
	stops  []func()

	mu  sync.Mutex
	now *script
}

// open starts an executor on a new SQLite file.
func open(ctx context.Context, file string) (s *server, err error) {
	s = &server{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	fake := fakellm.New(fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		s.mu.Lock()
		now := s.now
		s.mu.Unlock()
		return fakellm.Reply{Text: now.answer(r.Model, r.Messages[len(r.Messages)-1].Content)}, true
	}})
	url, err := fake.Listen("127.0.0.1:0")
	if err != nil {
		return s, err
	}
	s.stops = append(s.stops, func() { _ = fake.Close() })
	cfg := executor.DefaultConfig()
	cfg.SQLitePath, cfg.ID = file, "plans"
	cfg.Models.Change("default", func(p *llm.Profile) { p.BaseURL, p.Model = url, "fake-1" })
	exec, err := executor.Open(ctx, cfg, executor.Deps{})
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = exec.Run(ctx)
	}()
	s.stops = append(s.stops, func() {
		cancel()
		<-done
		_ = exec.Close()
	})
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	srv := grpc.NewServer()
	exec.Register(srv)
	go func() { _ = srv.Serve(lis) }()
	s.stops = append(s.stops, srv.Stop)
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return s, err
	}
	s.stops = append(s.stops, func() { _ = conn.Close() })
	s.client = executorv1.NewExecutorServiceClient(conn)
	for exec.Ready(ctx) != nil {
		if !sleep.For(ctx, 10*time.Millisecond) {
			return s, ctx.Err()
		}
	}
	return s, nil
}

func (s *server) close() {
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
}

// planning is an agent that plans. solvers are what may do the problems: an agent for each, or a model alone.
const planning = `{"dispatch": "plan", "reasoner_args": {"model": "` + plannerModel + `"}, "max_rounds": 40, "max_no_progress": 0}`

func solvers() map[string]string {
	return map[string]string{
		"agent": `{"actor": "agent", "reasoner_args": {"model": "` + solverModel + `"}, "actions": {"none": {"actor": "cel", "named": {"expr": "0"}}}}`,
		"llm":   `{"actor": "llm", "model": "` + solverModel + `"}`,
	}
}

// carryOut has an agent carry out a plan, and looks what became of it.
func (s *server) carryOut(ctx context.Context, r record, solver string) (*outcome, error) {
	now := &script{record: r, solver: solver}
	s.mu.Lock()
	s.now = now
	s.mu.Unlock()
	var named map[string]json.RawMessage
	if err := json.Unmarshal([]byte(planning), &named); err != nil {
		return nil, err
	}
	task, err := json.Marshal("Plan: " + strings.ToValidUTF8(r.Task[:min(len(r.Task), 10_000)], ""))
	if err != nil {
		return nil, err
	}
	named["user_input"], named["solver"] = task, json.RawMessage(solvers()[solver])
	n := &graphv1.Node{Id: "agent", Actor: "agent", Named: map[string]*graphv1.Payload{}}
	for k, v := range named {
		n.Named[k] = &graphv1.Payload{Json: v}
	}
	run, err := s.client.StartRun(ctx, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{n}}})
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(5 * time.Minute); run.GetEndTime() == nil; {
		if time.Now().After(end) || !sleep.For(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("%s does not end: it is %s %s", run.GetId(), run.GetState(), run.GetStateReason())
		}
		if run, err = s.client.GetRun(ctx, &executorv1.GetRunRequest{RunId: run.GetId()}); err != nil {
			return nil, err
		}
	}
	o := now.outcome(ctx)
	if got := string(run.GetResult().GetJson()); run.GetState() != executorv1.RunState_RUN_STATE_COMPLETED || got != `"`+answered+`"` {
		o.wrong("the run is %s with the result %s: %s", run.GetState(), got, run.GetError().GetMessage())
	}
	return o, nil
}

// answered is the planner's last word.
const answered = "All is done."

// script is what the models say about one plan.
type script struct {
	record
	solver string

	mu sync.Mutex
	// text is the planner's last plan.
	text   string
	rounds int
	told   []string
	// early counts problems that were done before the planner was told that its plan had no faults.
	early int
	// solved are the calls of the solver, by what it answered.
	solved map[string]solved
	// back are the results that the planner was told, in order, and last is the prompt that told them.
	back []string
	last string
}

// solved is a call of the solver: the results that it was told, by the ids of their problems.
type solved struct{ attachments map[string]string }

var (
	toldFault  = regexp.MustCompile(`(?m)^\d+:\d+: \S+ ([A-Z_]+) ("(?:[^"\\]|\\.)*"): (.*)$`)
	attachment = regexp.MustCompile(`(?s)<Attachment id="([^"]*)" description="([^"]*)"[^>]*>\n(.*?)\n</Attachment>`)
	before     = regexp.MustCompile(`(?s)<result from=("(?:[^"\\]|\\.)*")>\n(.*?)\n</result>`)
	result     = regexp.MustCompile(`(?s)<ActionType>[^<]*</ActionType>\s*<ActionResult>(.*?)</ActionResult>`)
)

func (s *script) answer(model, prompt string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if model == solverModel {
		return s.solve(prompt)
	}
	s.rounds++
	switch {
	case s.text == "":
		s.text = s.Raw
	case strings.Contains(prompt, "<ActionError>REFUSED: "):
		s.early += len(s.solved)
		var faults []mend.Fault
		heard, _, _ := strings.Cut(html.UnescapeString(prompt), "\n\nThe plan was:\n")
		for _, m := range toldFault.FindAllStringSubmatch(heard, -1) {
			element, err := strconv.Unquote(m[2])
			if err != nil {
				continue // the fault names nothing
			}
			faults = append(faults, mend.Fault{Code: plan.Code(m[1]), Element: element, Message: m[3]})
			s.told = append(s.told, m[1])
		}
		s.text = mend.Plan(s.text, faults)
	default:
		s.last = html.UnescapeString(prompt)
		for _, m := range result.FindAllStringSubmatch(prompt, -1) {
			s.back = append(s.back, html.UnescapeString(m[1]))
		}
		return answered
	}
	return s.text
}

// solve answers differently each time, and keeps what the prompt told.
func (s *script) solve(prompt string) string {
	one := solved{attachments: map[string]string{}}
	for _, m := range attachment.FindAllStringSubmatch(prompt, -1) {
		if id := html.UnescapeString(m[1]); html.UnescapeString(m[2]) == "The result of the '"+id+"' agent" {
			one.attachments[id] = html.UnescapeString(m[3])
		}
	}
	for _, m := range before.FindAllStringSubmatch(prompt, -1) {
		if id, err := strconv.Unquote(m[1]); err == nil {
			one.attachments[id] = m[2]
		}
	}
	if s.solved == nil {
		s.solved = map[string]solved{}
	}
	said := fmt.Sprintf("result %d", len(s.solved)+1)
	s.solved[said] = one
	if s.solver == "llm" {
		return said
	}
	return "<StructuredResponse><TaskStatus>Completed</TaskStatus><InstantResponse>" + said + "</InstantResponse></StructuredResponse>"
}

// outcome is what became of a plan.
type outcome struct {
	id, kind             string
	problems             []problem
	edges, joins, rounds int
	told                 []string
	// arrived counts the results that arrived at the problems that depend on them, back those that the
	// planner was told.
	arrived, back int
	faults        []string
}

// problem is a problem with the problems whose results it was told, and what it gave.
type problem struct {
	id   string
	told []string
	gave string
}

func (o *outcome) wrong(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

// outcome compares what the models were told with the last plan.
func (s *script) outcome(ctx context.Context) *outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &outcome{id: s.ID, kind: s.kind(), rounds: s.rounds, told: s.told}
	if s.early > 0 {
		o.wrong("%d problems were done of a plan with faults", s.early)
	}
	g, err := compile.Graph(ctx, plan.Parse(s.text, plan.WithContext(ctx)).Graph, compile.Options{DefaultActor: s.solver})
	if err != nil {
		o.wrong("the last plan cannot run: %v", err)
		return o
	}
	if len(s.back) != len(g.Nodes) || len(s.solved) != len(g.Nodes) {
		o.wrong("%d problems, %d of them were done, %d results came back; the planner was told:\n%.1000s", len(g.Nodes), len(s.solved), len(s.back), s.last)
		return o
	}
	gave := map[string]string{}
	for i := range g.Nodes {
		gave[g.Nodes[i].ID] = s.back[i]
	}
	for i := range g.Nodes {
		id := g.Nodes[i].ID
		call, ok := s.solved[gave[id]]
		if !ok {
			o.wrong("the planner was told %q of %s, which nobody gave", gave[id], id)
			continue
		}
		o.back++
		o.problems = append(o.problems, problem{id, slices.Sorted(maps.Keys(call.attachments)), gave[id]})
		needed := needs(g, id)
		o.edges += len(needed)
		if len(needed) > 1 {
			o.joins++
		}
		for _, b := range needed {
			if call.attachments[b] != gave[b] {
				o.wrong("%s was told %q of %s, which gave %q", id, call.attachments[b], b, gave[b])
				continue
			}
			o.arrived++
		}
		if extra := len(call.attachments) - len(needed); extra > 0 {
			o.wrong("%s was told of %d problems that it does not depend on", id, extra)
		}
	}
	return o
}

// needs are the nodes before a node.
func needs(g *workgraph.Graph, id string) (out []string) {
	for _, e := range g.Edges {
		if e.To == id && !slices.Contains(out, e.From) {
			out = append(out, e.From)
		}
	}
	return out
}
