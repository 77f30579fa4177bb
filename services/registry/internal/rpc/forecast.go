package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
)

// ForecastWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ForecastWorkflow(ctx context.Context, req *registryv1.ForecastWorkflowRequest) (*registryv1.WorkflowForecast, error) {
	ref, err := catalog.ParseRef(req.GetRef())
	if err != nil {
		return nil, err
	}
	f, at, err := s.catalog.Forecast(ctx, grpckit.Namespace(ctx), ref, req.GetKey())
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

func amountTo(a catalog.Amount) *registryv1.ForecastAmount {
	return &registryv1.ForecastAmount{P50: a.P50, P90: a.P90, Budget: a.Budget, Runs: int32(a.Runs), Answers: a.Answers}
}
