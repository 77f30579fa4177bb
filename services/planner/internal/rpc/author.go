package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/planpb"
	"github.com/epigraph-run/epigraph/plan/compile"
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
	tools, err := toolsOf(req.GetTools())
	if err != nil {
		return nil, err
	}
	named, err := namedOf(req.GetNamed())
	if err != nil {
		return nil, err
	}
	made, report, err := s.author.Create(ctx, author.Order{
		Namespace: grpckit.Namespace(ctx), Profile: req.GetProfile(), Goal: req.GetGoal(), Context: req.GetContext(), Tools: tools,
		Compile: compile.Options{Name: req.GetName(), DefaultActor: req.GetDefaultActor(), Named: named}, Limits: limitsOf(req.GetLimits()),
	})
	traced(ctx, report)
	if err != nil {
		return nil, err
	}
	out := &plannerv1.CreatePlanResponse{Text: made.Text, Authoring: authoring(report)}
	if len(report.Rounds) > 0 {
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
}

func authoring(r author.Report) *plannerv1.Authoring {
	out := &plannerv1.Authoring{End: ends[r.End], Message: r.Message, UsageId: r.UsageID}
	var cost int64
	known := len(r.Rounds) > 0
	for i := range r.Rounds {
		x := &r.Rounds[i]
		out.Rounds = append(out.Rounds, &plannerv1.AuthorRound{
			Told: x.Told, Text: x.Text, Diagnostics: planpb.Diagnostics(x.Findings), Profile: x.Profile, Provider: x.Provider, Model: x.Model,
			InputTokens: x.Usage.Input, CachedInputTokens: x.Usage.CachedInput, OutputTokens: x.Usage.Output, ReasoningTokens: x.Usage.Reasoning,
			CostNanoUsd: x.Cost, Duration: durationpb.New(x.Duration),
		})
		out.InputTokens += x.Usage.Input
		out.OutputTokens += x.Usage.Output
		if x.Cost == nil {
			known = false
		} else {
			cost += *x.Cost
		}
	}
	if known {
		out.CostNanoUsd = &cost
	}
	return out
}
