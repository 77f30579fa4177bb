package mcpserver

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

const (
	planProperty    = `"plan": {"type": "string", "minLength": 1, "description": "The plan, whole, as you wrote it: prose, fences and all."}`
	compileProperty = planProperty + `,
    "default_actor": {"type": "string", "maxLength": 256, "description": "The actor of every problem that names none; llm when absent."},
    "arguments": {"type": "object", "description": "Named arguments for every problem, such as {\"model\": \"gpt-4o-mini\"}."},
    "accept_repairs": {"type": "array", "maxItems": 100, "items": {"type": "string"}, "description": "Codes of repairs that were offered and are accepted."}`
)

func planTools() []*tool {
	return []*tool{
		{name: "parse_plan", reads: true, description: "Reads a plan out of a text that a model wrote: its problems, what each needs, what is wrong with it and where, and what could be mended.",
			schema: delegation.Object(`"plan"`, planProperty), does: parsePlan},
		{name: "compile_plan", reads: true, description: "Makes the graph of a plan, which a run executes. A plan with faults is refused with all of them.",
			schema: delegation.Object(`"plan"`, compileProperty), does: compilePlan},
		{name: "run_plan", destroys: true, description: "Starts a run of a plan and waits for it. The answer is the result, or how the run stands with its run_id when it asks something or the time is over.",
			schema: delegation.Object(`"plan"`, compileProperty+`,
    "inputs": {"type": "object", "description": "Inputs of the run by name."},
    `+forProperties+`, `+waitProperty+`, `+cancelProperty+`, `+requestProperty), does: runPlan},
	}
}

// compileArguments are those of a plan that is compiled.
type compileArguments struct {
	Plan      string                     `json:"plan"`
	Actor     string                     `json:"default_actor"`
	Arguments map[string]json.RawMessage `json:"arguments"`
	Accept    []string                   `json:"accept_repairs"`
}

func (a *compileArguments) request() (*plannerv1.CompilePlanRequest, error) {
	if strings.TrimSpace(a.Plan) == "" {
		return nil, badArguments("plan is empty: give the text of the plan")
	}
	return &plannerv1.CompilePlanRequest{
		Plan: &plannerv1.CompilePlanRequest_Text{Text: a.Plan}, DefaultActor: a.Actor, Named: payloads(a.Arguments), AcceptRepairs: a.Accept, Complete: true,
	}, nil
}

func payloads(in map[string]json.RawMessage) map[string]*graphv1.Payload {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]*graphv1.Payload, len(in))
	for name, raw := range in {
		out[name] = &graphv1.Payload{Json: raw}
	}
	return out
}

func parsePlan(ctx context.Context, c *call) (any, error) {
	var a struct {
		Plan string `json:"plan"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	r, err := asked(ctx, c.Server, c.Planner.ParsePlan, &plannerv1.ParsePlanRequest{Text: a.Plan, Complete: true, Restate: plannerv1.RestatePolicy_RESTATE_POLICY_NEVER})
	if err != nil {
		return nil, err
	}
	return shownPlan(r), nil
}

// problem is a problem of a plan as a model reads it.
type problem struct {
	ID      string   `json:"id"`
	Request string   `json:"request"`
	Needs   []string `json:"needs"`
	Line    int32    `json:"line,omitempty"`
}

// shownPlan is a plan as a model reads it.
func shownPlan(r *plannerv1.ParsePlanResponse) map[string]any {
	out := map[string]any{"success": !r.GetNoPlan()}
	if r.GetNoPlan() {
		out["reason"], out["error"] = r.GetNoPlanReason(), r.GetNoPlanMessage()
	} else {
		out["dialect"], out["hash"] = r.GetDialect(), r.GetHash()
	}
	g := r.GetGraph()
	needs := map[string][]string{}
	for _, e := range g.GetEdges() {
		if len(needs[e.GetTo()]) < maxList {
			needs[e.GetTo()] = append(needs[e.GetTo()], errs.Clip(e.GetFrom(), maxTold))
		}
	}
	problems, size := []problem{}, 0
	for _, p := range g.GetProblems() {
		one := problem{errs.Clip(p.GetId(), maxTold), errs.Clip(p.GetRequest(), 1<<10), needs[p.GetId()], p.GetLine()}
		if one.Needs == nil {
			one.Needs = []string{}
		}
		for _, need := range one.Needs {
			size += len(need)
		}
		if size += len(one.ID) + len(one.Request) + 64; size > maxPart {
			out["problems_left_out"] = len(g.GetProblems()) - len(problems)
			break
		}
		problems = append(problems, one)
	}
	out["problems"] = problems
	out["diagnostics"] = diagnostics(r.GetDiagnostics())
	repairs := []map[string]any{}
	for _, p := range r.GetRepairs()[:min(len(r.GetRepairs()), maxFaults)] {
		repairs = append(repairs, map[string]any{"code": p.GetCode(), "message": errs.Clip(p.GetMessage(), 600), "line": p.GetLine(), "applied": p.GetApplied()})
	}
	out["repairs"] = repairs
	if left := len(r.GetDiagnostics()) + len(r.GetRepairs()) - 2*maxFaults; left > 0 {
		out["note"] = "There is more to say of this plan: the first 20 diagnostics and repairs are told."
	}
	return out
}

func diagnostics(list []*planv1.Diagnostic) []map[string]any {
	out := []map[string]any{}
	for _, d := range list[:min(len(list), maxFaults)] {
		m := map[string]any{"code": d.GetCode(), "severity": strings.ToLower(strings.TrimPrefix(d.GetSeverity().String(), "SEVERITY_")), "message": errs.Clip(d.GetMessage(), 600)}
		if d.GetLine() > 0 {
			m["line"], m["column"] = d.GetLine(), d.GetColumn()
		}
		if d.GetElement() != "" {
			m["element"] = errs.Clip(d.GetElement(), maxTold)
		}
		if d.GetHint() != "" {
			m["hint"] = inTools(errs.Clip(d.GetHint(), 600))
		}
		out = append(out, m)
	}
	return out
}

func compilePlan(ctx context.Context, c *call) (any, error) {
	var a compileArguments
	if err := c.read(&a); err != nil {
		return nil, err
	}
	req, err := a.request()
	if err != nil {
		return nil, err
	}
	r, err := asked(ctx, c.Server, c.Planner.CompilePlan, req)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"success": true, "graph_hash": r.GetGraphHash(), "nodes": len(r.GetGraph().GetNodes()), "edges": len(r.GetGraph().GetEdges()), "plan": shownPlan(r.GetPlan())}
	raw, err := jsonview.Encode(r.GetGraph())
	if err != nil {
		return nil, err
	}
	if len(raw) <= maxPart {
		out["graph"] = json.RawMessage(raw)
	} else {
		out["note"] = "The graph is longer than one answer: POST /v1/plans:compile has it. run_plan needs the plan only."
	}
	return out, nil
}

func runPlan(ctx context.Context, c *call) (any, error) {
	var a struct {
		compileArguments
		start

		Inputs map[string]json.RawMessage `json:"inputs"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	req := &executorv1.StartRunRequest{Named: payloads(a.Inputs)}
	if err := a.into(req); err != nil {
		return nil, err
	}
	if c.req.Params.RequestState == "" { // else the run is there
		plan, err := a.request()
		if err != nil {
			return nil, err
		}
		compiled, err := asked(ctx, c.Server, c.Planner.CompilePlan, plan)
		if err != nil {
			return nil, err
		}
		req.Graph = compiled.GetGraph()
	}
	return c.begun(ctx, req, &a.start)
}
