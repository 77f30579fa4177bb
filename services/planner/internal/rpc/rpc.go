// Package rpc serves the planner's API: it translates requests for packages plan, compile and workgraph, and
// their findings back. It keeps nothing and decides nothing about plans.
package rpc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/planpb"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/author"
	"github.com/epigraph-run/epigraph/services/planner/internal/restate"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Server implements PlannerService. It is safe for concurrent use.
type Server struct {
	plannerv1.UnimplementedPlannerServiceServer
	limits    plan.Limits
	admission *admission.Control
	// computing are the turns in which namespaces read and compile, at any cost of a request: however many
	// small ones a namespace sends at once, it uses no more processors and no more readers' memory than these
	// turns.
	computing *turns.Turns
	model     *restate.Model
	author    *author.Author
	// executor runs plans while they are written; nil if there is none.
	executor executorv1.ExecutorServiceClient
}

// New returns a server that reads texts within limits, admits costly requests by c and runs all of them in
// turns by computing, and restates plans with model, unless that is nil.
func New(limits plan.Limits, c *admission.Control, computing *turns.Turns, model *restate.Model) *Server {
	return &Server{limits: limits, admission: c, computing: computing, model: model}
}

// bytesPerCost is how many bytes of a text cost as much as an element of a graph: a reader goes over each
// many times.
const bytesPerCost = 50

// enter waits until work of this cost may begin. leave may be called more than once.
func (s *Server) enter(ctx context.Context, cost int) (leave func(), err error) {
	namespace := grpckit.Namespace(ctx)
	out, err := s.admission.Enter(ctx, namespace, cost)
	if err != nil {
		return nil, err
	}
	rest, err := s.computing.Enter(ctx, namespace)
	if err != nil {
		out()
		return nil, admission.Busy(err)
	}
	return sync.OnceFunc(func() {
		rest()
		out()
	}), nil
}

// ParsePlan finds the plan in a text.
func (s *Server) ParsePlan(ctx context.Context, req *plannerv1.ParsePlanRequest) (*plannerv1.ParsePlanResponse, error) {
	leave, err := s.enter(ctx, len(req.GetText())/bytesPerCost)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.mayRestate(req.GetRestate()); err != nil {
		return nil, err
	}
	r, err := s.parse(ctx, req.GetText(), req.GetDialect(), req.GetComplete())
	if err != nil {
		return nil, err
	}
	var report *plannerv1.Restatement
	if wanted(req.GetRestate()) {
		leave() // nobody waits for a model
		if r, report, err = s.restate(ctx, req.GetRestate(), req.GetText(), r); err != nil {
			return nil, err
		}
	}
	out := planpb.Response(r)
	out.Restatement = report
	return out, nil
}

// CompilePlan turns a plan into a graph.
func (s *Server) CompilePlan(ctx context.Context, req *plannerv1.CompilePlanRequest) (*plannerv1.CompilePlanResponse, error) {
	g := req.GetGraph()
	leave, err := s.enter(ctx, proto.Size(req)/bytesPerCost+len(g.GetProblems())+len(g.GetEdges()))
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.mayRestate(req.GetRestate()); err != nil {
		return nil, err
	}
	result := plan.Result{}
	var report *plannerv1.Restatement
	if g != nil {
		if wanted(req.GetRestate()) {
			return nil, errs.New(errs.InvalidArgument, "RESTATE_NEEDS_TEXT", "a problem graph cannot be restated").Hint("send the text of the plan")
		}
		read, err := planpb.FromGraph(g)
		if err != nil {
			return nil, err
		}
		result.Graph = read
		if result.Diagnostics, err = plan.Validate(ctx, read); err != nil {
			return nil, err
		}
	} else {
		read, err := s.parse(ctx, req.GetText(), "", req.GetComplete())
		if err != nil {
			return nil, err
		}
		if wanted(req.GetRestate()) && read.RestateNeeded() {
			leave() // nobody waits for a model
			if result, report, err = s.restate(ctx, req.GetRestate(), req.GetText(), read); err != nil {
				return nil, err
			}
			again, err := s.enter(ctx, proto.Size(req)/bytesPerCost)
			if err != nil {
				return nil, err
			}
			defer again()
		} else {
			result = read
		}
	}
	if result.NoPlan != nil {
		return nil, noPlan(result)
	}
	if err := accept(ctx, &result, req.GetAcceptRepairs()); err != nil {
		return nil, err
	}
	if result.HasErrors() {
		return nil, planError(result)
	}
	named, err := namedOf(req.GetNamed())
	if err != nil {
		return nil, err
	}
	how := compile.Options{Name: req.GetName(), DefaultActor: req.GetDefaultActor(), Actors: req.GetActors(), Named: named}
	result.Diagnostics = append(result.Diagnostics, compile.Tools(result.Graph, how)...)
	made, err := compile.Graph(ctx, result.Graph, how)
	if ce, ok := errors.AsType[*compile.Error](err); ok {
		result.Diagnostics = ce.Diagnostics
		return nil, planError(result)
	}
	if err != nil {
		return nil, fmt.Errorf("compile plan: %w", err)
	}
	faults, err := workgraph.Validate(ctx, made, nil)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, graphpb.FaultError(faults)
	}
	wire, err := graphpb.ToProto(made)
	if err != nil {
		return nil, fmt.Errorf("encode graph: %w", err)
	}
	hash, err := made.Hash()
	if err != nil {
		return nil, fmt.Errorf("hash graph: %w", err)
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.Int("epigraph.graph.nodes", len(made.Nodes)), attribute.String("epigraph.graph.hash", hash))
	out := &plannerv1.CompilePlanResponse{Graph: wire, GraphHash: hash, Plan: planpb.Response(result)}
	out.Plan.Restatement = report
	return out, nil
}

// noPlan refuses a text without a plan, and reports the restatement.
func noPlan(r plan.Result) error {
	out := errs.New(errs.InvalidArgument, "NO_PLAN", "the text holds no plan: %s", r.NoPlan.Message).
		Set("no_plan_reason", string(r.NoPlan.Reason)).
		Hint("ask the model for a plan: problems with ids, and lines like A -> B")
	for _, d := range r.Diagnostics {
		if d.Code == plan.RestatementRefused || d.Code == plan.RestatementFailed {
			out = out.Violate(lineColumn(d.Line, d.Column), string(d.Code), strconv.Quote(d.Element)+": "+d.Message)
		}
	}
	return out
}

func wanted(p plannerv1.RestatePolicy) bool {
	return p == plannerv1.RestatePolicy_RESTATE_POLICY_WHEN_UNSURE
}

// mayRestate refuses a request for a restatement where there is no model.
func (s *Server) mayRestate(p plannerv1.RestatePolicy) error {
	if s.model != nil || !wanted(p) {
		return nil
	}
	return errs.New(errs.FailedPrecondition, "RESTATE_NOT_CONFIGURED", "this planner has no model that restates plans").
		Hint("name one in planner.restate.model, or send the plan without restate")
}

// restate restates a plan if the caller asks for it and the reading leaves doubt. The returned report of the
// model is nil if no model was asked.
func (s *Server) restate(ctx context.Context, p plannerv1.RestatePolicy, text string, r plan.Result) (plan.Result, *plannerv1.Restatement, error) {
	if !wanted(p) || !r.RestateNeeded() {
		return r, nil, nil
	}
	r, report, err := s.model.Restate(ctx, grpckit.Namespace(ctx), text, r)
	trace.SpanFromContext(ctx).SetAttributes(attribute.Int("epigraph.plan.restate_calls", report.Calls), attribute.Bool("epigraph.plan.restated", report.Accepted))
	if err != nil {
		return plan.Result{}, nil, err
	}
	return r, &plannerv1.Restatement{
		Accepted: report.Accepted, Provider: report.Provider, Model: report.Model, Calls: int32(report.Calls), //nolint:gosec // at most three
		InputTokens: report.Usage.Input, CachedInputTokens: report.Usage.CachedInput, OutputTokens: report.Usage.Output, ReasoningTokens: report.Usage.Reasoning,
	}, nil
}

func (s *Server) parse(ctx context.Context, text, dialect string, complete bool) (plan.Result, error) {
	opts := []plan.Option{plan.WithLimits(s.limits)}
	if dialect != "" {
		opts = append(opts, plan.WithDialect(dialect))
	}
	if complete {
		opts = append(opts, plan.WithComplete())
	}
	r := plan.Parse(text, append(opts, plan.WithContext(ctx))...)
	if ctx.Err() != nil {
		return plan.Result{}, context.Cause(ctx)
	}
	for _, d := range r.Diagnostics {
		if d.Code == plan.UnknownDialect {
			return plan.Result{}, errs.New(errs.InvalidArgument, string(d.Code), "%s: %q", d.Message, d.Element).Hint(d.Hint)
		}
	}
	trace.SpanFromContext(ctx).SetAttributes(
		attribute.String("epigraph.plan.dialect", r.Dialect), attribute.Int("epigraph.plan.problems", len(r.Graph.Problems)),
		attribute.Int("epigraph.plan.edges", len(r.Graph.Edges)), attribute.Int("epigraph.plan.diagnostics", len(r.Diagnostics)))
	return r, nil
}

// accept applies the offered repairs that the caller named, and refuses the name of a repair that is not on
// offer.
func accept(ctx context.Context, r *plan.Result, codes []string) error {
	for _, code := range codes {
		found := false
		for i := range r.Repairs {
			p := &r.Repairs[i]
			if string(p.Code) != code || p.Applied || len(p.Renames) == 0 {
				continue
			}
			found = true
			g, lost := compile.SplitReused(r.Graph, p.Renames)
			if len(lost) > 0 {
				bad := errs.New(errs.InvalidArgument, "REPAIR_REFUSED", "%s would lose %d edges that run against the listed order", code, len(lost))
				for _, e := range lost {
					bad = bad.Violate(lineColumn(e.Line, e.Column), "EDGE_LOST", e.From+" -> "+e.To)
				}
				return bad.Hint("give every use of a tool an id of its own")
			}
			p.Applied = true
			r.Graph = g
			anew, err := plan.Validate(ctx, g)
			if err != nil {
				return err
			}
			r.Diagnostics = append(notErrors(r.Diagnostics), anew...)
		}
		if !found {
			return errs.New(errs.InvalidArgument, "REPAIR_NOT_OFFERED", "the repair %q is not on offer for this plan", code).
				Hint("ParsePlan lists the repairs on offer: those with applied = false")
		}
	}
	return nil
}

// notErrors are the diagnostics that stay when a repair has made the errors void.
func notErrors(ds []plan.Diagnostic) []plan.Diagnostic {
	var out []plan.Diagnostic
	for _, d := range ds {
		if d.Severity != plan.Error {
			out = append(out, d)
		}
	}
	return out
}

// maxViolations is how many faults of a plan one error names.
const maxViolations = 100

// planError names the faults of a plan, so that a model can mend them all at once.
func planError(r plan.Result) error {
	out := errs.New(errs.InvalidArgument, "PLAN_INVALID", "the plan has faults")
	n := 0
	for _, d := range r.Diagnostics {
		if d.Severity != plan.Error {
			continue
		}
		if n++; n > maxViolations {
			continue
		}
		text := d.Message
		if d.Element != "" {
			text = strconv.Quote(d.Element) + ": " + text
		}
		if d.Hint != "" {
			text += "; " + d.Hint
		}
		out = out.Violate(lineColumn(d.Line, d.Column), string(d.Code), text)
	}
	out.Message = fmt.Sprintf("the plan has %d faults", n)
	if n == 1 {
		out.Message = "the plan has a fault"
	}
	for _, p := range r.Repairs {
		if !p.Applied {
			return out.Hint("the repair " + string(p.Code) + " is on offer: name it in accept_repairs")
		}
	}
	return out.Hint("mend every violation and send the plan again")
}

func lineColumn(line, column int) string {
	if line == 0 {
		return "plan"
	}
	return strconv.Itoa(line) + ":" + strconv.Itoa(column)
}
