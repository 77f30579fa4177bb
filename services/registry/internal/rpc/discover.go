package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

// DiscoverWorkflows implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) DiscoverWorkflows(ctx context.Context, req *registryv1.DiscoverWorkflowsRequest) (*registryv1.DiscoverWorkflowsResponse, error) {
	q := discover.Query{Text: req.GetQuery(), Limit: int(req.GetLimit()), Exclude: req.GetExclude()}
	var faults workflow.Faults
	switch r := req.GetRequirements(); {
	case r != nil && req.GetRequirementsJson() != "":
		return nil, invalid("requirements_json", "FIELD_NOT_USED", "takes the place of requirements: give one of them")
	case r != nil:
		q.Requirements = discover.Requirements{
			Triggers: r.GetTriggers(), NodeTypes: r.GetNodeTypes(), Tools: r.GetTools(), Tags: r.GetTags(),
			Description: r.GetDescription(), ModelCapability: r.GetModelCapability(),
		}
		faults = q.Check()
	case req.GetRequirementsJson() != "":
		q.Requirements, faults = discover.ReadRequirements([]byte(req.GetRequirementsJson()))
	}
	if len(faults) > 0 {
		return nil, requirementsRefused(faults)
	}
	found, total, err := s.catalog.Discover(ctx, grpckit.Namespace(ctx), q)
	if err != nil {
		return nil, err
	}
	return &registryv1.DiscoverWorkflowsResponse{Matches: each(found, matchTo), TotalSearched: int64(total)}, nil
}

func requirementsRefused(faults workflow.Faults) error {
	x := errs.New(errs.InvalidArgument, "REQUIREMENTS_INVALID", "the requirements cannot be read")
	for _, f := range faults {
		message := f.Message
		if f.Hint != "" {
			message += "; " + f.Hint
		}
		x = x.Violate(f.Path, f.Code, message)
	}
	return x
}

func matchTo(m cataloging.Match) *registryv1.WorkflowMatch {
	flat := m.Flat()
	return &registryv1.WorkflowMatch{
		WorkflowId: m.ID, Slug: m.Workflow.Slug, Name: m.Workflow.Name, Description: m.Workflow.Description, Tags: m.Workflow.Tags, MatchScore: m.Score,
		HasCapabilities: capabilitiesTo(m.Has), MissingCapabilities: capabilitiesTo(m.Missing), ExtraCapabilities: capabilitiesTo(m.Extra),
		Recommendation: string(m.Tier), SuccessRate: m.SuccessRate, ExecutionCount: m.Executions, Has: flat.Has, Missing: flat.Missing, Extra: flat.Extra,
		Version: m.Workflow.Latest, Relevance: m.Relevance, NanoUsd: m.NanoUSD,
	}
}

func capabilitiesTo(c discover.Capabilities) *registryv1.WorkflowCapabilities {
	return &registryv1.WorkflowCapabilities{Triggers: c.Triggers, NodeTypes: c.NodeTypes, Tools: c.Tools, ModelNames: c.Models}
}
