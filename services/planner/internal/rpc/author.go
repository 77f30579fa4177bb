package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/planpb"
	"github.com/epigraph-run/epigraph/plan/compile"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/author"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Compute waits for a turn of computing, for authors.
func (s *Server) Compute(ctx context.Context, textBytes, elements int) (leave func(), err error) {
	return s.enter(ctx, textBytes/bytesPerCost+elements)
}

// UseAuthor sets what writes plans. It must be called before requests are served.
func (s *Server) UseAuthor(a *author.Author) { s.author = a }

// CreatePlan has a model write a plan.
func (s *Server) CreatePlan(ctx context.Context, req *plannerv1.CreatePlanRequest) (*plannerv1.CreatePlanResponse, error) {
	order, err := s.orderOf(ctx, req)
	if err != nil {
		return nil, err
	}
	order.Check = s.startable
	made, report, err := s.author.Create(ctx, order)
	traced(ctx, report)
	if err != nil {
		return nil, err
	}
	return created(made, report)
}

// orderOf reads a request, within the turns of its namespace.
func (s *Server) orderOf(ctx context.Context, req *plannerv1.CreatePlanRequest) (author.Order, error) {
	leave, err := s.enter(ctx, proto.Size(req)/bytesPerCost)
	if err != nil {
		return author.Order{}, err
	}
	defer leave()
	tools, err := toolsOf(req.GetTools())
	if err != nil {
		return author.Order{}, err
	}
	named, err := namedOf(req.GetNamed())
	if err != nil {
		return author.Order{}, err
	}
	return author.Order{
		Namespace: grpckit.Namespace(ctx), Profile: req.GetProfile(), Goal: req.GetGoal(), Context: req.GetContext(), Tools: tools,
		Compile: compile.Options{Name: req.GetName(), DefaultActor: req.GetDefaultActor(), Named: named}, Limits: limitsOf(req.GetLimits()),
	}, nil
}

// created is the answer about a plan.
func created(made author.Made, report author.Report) (*plannerv1.CreatePlanResponse, error) {
	var err error
	out := &plannerv1.CreatePlanResponse{Text: made.Text, Authoring: authoring(report)}
	if len(report.Rounds) > 0 && report.End != author.Busy {
		out.Plan = planpb.Response(made.Read)
	}
	if made.Graph == nil {
		return out, nil
	}
	if out.Graph, err = graphpb.ToProto(made.Graph); err != nil {
		return nil, fmt.Errorf("encode graph: %w", err)
	}
	if out.GraphHash, err = made.Graph.Hash(); err != nil {
		return nil, fmt.Errorf("hash graph: %w", err)
	}
	return out, nil
}

// namedOf are the named arguments of a request.
func namedOf(in map[string]*graphv1.Payload) (map[string]json.RawMessage, error) {
	named, err := graphpb.RawMap("named", in)
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		return nil, graphpb.FaultError(faults)
	}
	return named, err
}

// RevisePlan has a model write anew what is left of a run.
func (s *Server) RevisePlan(ctx context.Context, req *plannerv1.RevisePlanRequest) (*plannerv1.RevisePlanResponse, error) {
	r, err := s.remainder(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.amendable(ctx, req.GetRunId()); err != nil {
		return nil, err
	}
	made, report, err := s.author.Revise(ctx, r)
	traced(ctx, report)
	if err != nil {
		return nil, err
	}
	out := &plannerv1.RevisePlanResponse{Text: made.Text, Authoring: authoring(report)}
	if len(report.Rounds) > 0 && report.End != author.Busy {
		out.Plan = planpb.Response(made.Read)
	}
	if made.Patch == nil {
		return out, nil
	}
	patch, err := patchTo(made.Patch)
	if err != nil {
		return nil, err
	}
	out.Amendment = &executorv1.AmendRunRequest{RunId: req.GetRunId(), ExpectedRevision: req.GetExpectedRevision(), Patch: patch}
	if out.Graph, err = graphpb.ToProto(made.Graph); err != nil {
		return nil, fmt.Errorf("encode graph: %w", err)
	}
	return out, nil
}

// remainder reads a request, within the turns of its namespace.
func (s *Server) remainder(ctx context.Context, req *plannerv1.RevisePlanRequest) (author.Remainder, error) {
	leave, err := s.enter(ctx, proto.Size(req)/bytesPerCost+len(req.GetGraph().GetNodes())+len(req.GetGraph().GetEdges()))
	if err != nil {
		return author.Remainder{}, err
	}
	defer leave()
	tools, err := toolsOf(req.GetTools())
	if err != nil {
		return author.Remainder{}, err
	}
	named, err := namedOf(req.GetNamed())
	if err != nil {
		return author.Remainder{}, err
	}
	g, err := graphpb.FromProto(req.GetGraph())
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		return author.Remainder{}, graphpb.FaultError(faults)
	}
	if err != nil {
		return author.Remainder{}, err
	}
	out := author.Remainder{
		Order: author.Order{
			Namespace: grpckit.Namespace(ctx), Profile: req.GetProfile(), Goal: req.GetGoal(), Context: req.GetContext(), Tools: tools,
			Compile: compile.Options{DefaultActor: req.GetDefaultActor(), Named: named}, Limits: limitsOf(req.GetLimits()),
		},
		Graph: g,
	}
	for _, v := range req.GetVisits() {
		p := author.Past{Node: v.GetNodeId(), State: strings.TrimPrefix(v.GetState().String(), "VISIT_STATE_")}
		p.Open = v.GetState() == executorv1.VisitState_VISIT_STATE_HELD && v.GetAttempts() == 0
		for _, value := range v.GetValues() {
			p.Values = append(p.Values, value.GetJson())
		}
		if v.GetError() != nil {
			p.Failed = v.GetError().GetReason() + ": " + v.GetError().GetMessage()
		}
		out.Past = append(out.Past, p)
	}
	return out, nil
}

// patchTo is the wire form of a patch.
func patchTo(p *workgraph.Patch) (*executorv1.GraphPatch, error) {
	adds, err := graphpb.ToProto(&workgraph.Graph{Nodes: p.PutNodes, Edges: p.AddEdges})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	removes, err := graphpb.ToProto(&workgraph.Graph{Edges: p.RemoveEdges})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return &executorv1.GraphPatch{RemoveNodes: p.RemoveNodes, RemoveEdges: removes.GetEdges(), PutNodes: adds.GetNodes(), AddEdges: adds.GetEdges()}, nil
}

func traced(ctx context.Context, r author.Report) {
	trace.SpanFromContext(ctx).SetAttributes(attribute.Int("epigraph.plan.author_rounds", len(r.Rounds)), attribute.String("epigraph.plan.author_end", string(r.End)))
}

func toolsOf(in []*plannerv1.PlanTool) ([]author.Tool, error) {
	out := make([]author.Tool, len(in))
	for i, t := range in {
		field := fmt.Sprintf("tools[%d].schema", i)
		schema, err := graphpb.Raw(field, t.GetSchema())
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "TOOLS_INVALID", "the tools cannot be used").
				Violate(field, graphpb.CodePayload, "the value is not one JSON text in UTF-8")
		}
		out[i] = author.Tool{Name: t.GetName(), Description: t.GetDescription(), Schema: schema}
	}
	return out, nil
}

func limitsOf(l *plannerv1.AuthorLimits) author.Limits {
	out := author.Limits{Rounds: int(l.GetMaxRounds()), MaxTokens: l.GetMaxTokens(), Timeout: l.GetTimeout().AsDuration()}
	if l != nil {
		out.MaxCost = l.MaxCostNanoUsd
	}
	return out
}

var ends = map[author.End]plannerv1.AuthorEnd{
	author.Complete: plannerv1.AuthorEnd_AUTHOR_END_COMPLETE, author.Rounds: plannerv1.AuthorEnd_AUTHOR_END_ROUNDS,
	author.Tokens: plannerv1.AuthorEnd_AUTHOR_END_TOKENS, author.Cost: plannerv1.AuthorEnd_AUTHOR_END_COST,
	author.Time: plannerv1.AuthorEnd_AUTHOR_END_TIME, author.NoProgress: plannerv1.AuthorEnd_AUTHOR_END_NO_PROGRESS,
	author.Declined: plannerv1.AuthorEnd_AUTHOR_END_DECLINED, author.ModelFailed: plannerv1.AuthorEnd_AUTHOR_END_MODEL_FAILED,
	author.Busy: plannerv1.AuthorEnd_AUTHOR_END_BUSY,
}

func authoring(r author.Report) *plannerv1.Authoring {
	out := &plannerv1.Authoring{End: ends[r.End], Message: r.Message, UsageId: r.UsageID}
	var cost int64
	known := len(r.Rounds)+len(r.Failed) > 0
	count := func(u llm.Usage, c *int64) {
		out.InputTokens += u.Input
		out.OutputTokens += u.Output
		if c == nil {
			known = false
		} else {
			cost += *c
		}
	}
	for i := range r.Rounds {
		x := &r.Rounds[i]
		out.Rounds = append(out.Rounds, roundOf(x))
		count(x.Usage, x.Cost)
	}
	for i := range r.Failed {
		count(r.Failed[i].Usage, r.Failed[i].Cost)
	}
	if known {
		out.CostNanoUsd = &cost
	}
	return out
}

func roundOf(x *author.Round) *plannerv1.AuthorRound {
	return &plannerv1.AuthorRound{
		Told: x.Told, Text: x.Text, Diagnostics: planpb.Diagnostics(x.Findings), Profile: x.Profile, Provider: x.Provider, Model: x.Model,
		InputTokens: x.Usage.Input, CachedInputTokens: x.Usage.CachedInput, OutputTokens: x.Usage.Output, ReasoningTokens: x.Usage.Reasoning,
		CostNanoUsd: x.Cost, Duration: durationpb.New(x.Duration),
	}
}
