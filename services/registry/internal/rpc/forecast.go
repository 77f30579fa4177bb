package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
)

// ForecastWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ForecastWorkflow(ctx context.Context, req *registryv1.ForecastWorkflowRequest) (*registryv1.WorkflowForecast, error) {
	f, at, err := s.forecast(ctx, req)
	if err != nil {
		return nil, err
	}
	return &registryv1.WorkflowForecast{
		Ref: at, Basis: registryv1.ForecastBasis(f.Basis), CostNanoUsd: amountTo(f.Cost), Tokens: amountTo(f.Tokens), DurationMs: amountTo(f.DurationMS),
		Runs: int32(f.Runs), FailedRuns: int32(f.Failed), UnpricedRuns: int32(f.Unpriced), NodesLeftOut: int32(f.NodesLeftOut), Notes: f.Notes,
		Nodes: each(f.Nodes, func(n catalog.NodeBound) *registryv1.ForecastNode {
			return &registryv1.ForecastNode{
				NodeId: n.NodeID, Actor: n.Actor, Model: n.Model, Calls: n.Calls, AnswerTokens: n.Tokens, AnswerNanoUsd: n.NanoUSD, Unknown: n.Unknown,
			}
		}),
	}, nil
}

func (s *WorkflowServer) forecast(ctx context.Context, req *registryv1.ForecastWorkflowRequest) (f catalog.Forecast, at string, err error) {
	switch {
	case req.GetRef() != "" && req.GetSource() != "":
		return f, "", invalid("source", "FIELD_NOT_USED", "takes the place of ref: give one of them")
	case req.GetSource() == "":
		ref, err := catalog.ParseRef(req.GetRef())
		if err != nil {
			return f, "", err
		}
		return s.catalog.Forecast(ctx, grpckit.Namespace(ctx), ref, req.GetKey())
	}
	form := catalog.Definition
	if req.GetForm() != registryv1.WorkflowForm_WORKFLOW_FORM_UNSPECIFIED {
		if form, err = enum("form", req.GetForm(), catalog.Graph); err != nil {
			return f, "", err
		}
	}
	f, err = s.catalog.ForecastText(ctx, grpckit.Namespace(ctx), cataloging.Draft{Form: form, Source: req.GetSource()})
	return f, "", err
}

// maxTaskForecasts is how many tasks of an epic are told one by one.
const maxTaskForecasts = 1000

// ForecastEpic implements registryv1.RegistryServiceServer.
func (s *Server) ForecastEpic(ctx context.Context, req *registryv1.ForecastEpicRequest) (*registryv1.EpicForecast, error) {
	f, err := s.catalog.ForecastEpic(ctx, grpckit.Namespace(ctx), req.GetEpicId(), int(req.GetParallel()), req.GetWorkflowSlug())
	if err != nil {
		return nil, err
	}
	return &registryv1.EpicForecast{
		EpicId: req.GetEpicId(), Tasks: int32(len(f.Pieces)), Parallel: int32(f.Parallel), CostNanoUsd: estimateTo(f.Cost), Tokens: estimateTo(f.Tokens), DurationMs: estimateTo(f.Duration),
		CriticalPathMs: estimateTo(f.CriticalPath), Notes: f.Notes,
		TaskForecasts: each(f.Pieces[:min(len(f.Pieces), maxTaskForecasts)], func(p catalog.Piece) *registryv1.TaskForecast {
			return &registryv1.TaskForecast{
				TaskId: p.TaskID, Title: p.Title, Workflow: p.Workflow, Basis: registryv1.ForecastBasis(p.Basis), CostNanoUsd: amountTo(p.Cost), Tokens: amountTo(p.Tokens),
				DurationMs: amountTo(p.DurationMS), Unknown: p.Unknown,
			}
		}),
	}, nil
}

func estimateTo(e catalog.Estimate) *registryv1.EpicForecastAmount {
	return &registryv1.EpicForecastAmount{P50: e.P50, P90: e.P90, KnownP50: e.Known50, KnownP90: e.Known90, UnknownTasks: int32(e.Unknown), BudgetLeft: e.BudgetLeft}
}

func amountTo(a catalog.Amount) *registryv1.ForecastAmount {
	return &registryv1.ForecastAmount{P50: a.P50, P90: a.P90, Budget: a.Budget, Runs: int32(a.Runs), Answers: a.Answers}
}
