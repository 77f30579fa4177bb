package rpc

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
)

var _ catalog.Catalog = (*Catalog)(nil)

// CreateWorkflow implements catalog.Catalog.
func (c *Catalog) CreateWorkflow(ctx context.Context, namespace string, d catalog.Draft) (catalog.Created, error) {
	ctx, stop := context.WithTimeoutCause(grpckit.WithNamespace(ctx, namespace), catalogTime, errs.New(errs.Unavailable, reasonCatalogAway, "the registry does not answer"))
	defer stop()
	var w *registryv1.Workflow
	var err error
	if d.Fork {
		w, err = c.client.ForkWorkflow(ctx, &registryv1.ForkWorkflowRequest{Source: d.Text, Slug: d.Slug, RequestId: d.RequestID})
	} else {
		w, err = c.client.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: d.Text, Slug: d.Slug, RequestId: d.RequestID})
	}
	if err != nil {
		return catalog.Created{}, unanswered(ctx, err)
	}
	// A repeated request may find more versions. What it made was the first one.
	return catalog.Created{ID: w.GetId(), Slug: w.GetSlug(), Name: w.GetName(), Version: 1, Nodes: w.GetSize().GetNodes(), Edges: w.GetSize().GetEdges()}, nil
}

// DiscoverWorkflows implements catalog.Catalog.
func (c *Catalog) DiscoverWorkflows(ctx context.Context, namespace string, q catalog.Query) ([]catalog.Match, int64, error) {
	ctx, stop := context.WithTimeoutCause(grpckit.WithNamespace(ctx, namespace), catalogTime, errs.New(errs.Unavailable, reasonCatalogAway, "the registry does not answer"))
	defer stop()
	r, err := c.client.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{RequirementsJson: q.Requirements, Query: q.Text, Limit: int32(q.Limit), Exclude: q.Exclude})
	if err != nil {
		return nil, 0, unanswered(ctx, err)
	}
	out := make([]catalog.Match, len(r.GetMatches()))
	for i, m := range r.GetMatches() {
		out[i] = catalog.Match{
			ID: m.GetWorkflowId(), Slug: m.GetSlug(), Version: m.GetVersion(), Name: m.GetName(), Description: m.GetDescription(), Tags: m.GetTags(), Score: m.GetMatchScore(),
			Recommendation: m.GetRecommendation(), Has: m.GetHas(), Missing: m.GetMissing(), Extra: m.GetExtra(), HasOf: capabilities(m.GetHasCapabilities()),
			MissingOf: capabilities(m.GetMissingCapabilities()), ExtraOf: capabilities(m.GetExtraCapabilities()), SuccessRate: m.GetSuccessRate(),
			Executions: m.GetExecutionCount(), NanoUSD: m.GetNanoUsd(), Relevance: m.GetRelevance(),
		}
	}
	return out, r.GetTotalSearched(), nil
}

// unanswered is the error of a call whose own time is over as one of a registry that is away.
func unanswered(ctx context.Context, err error) error {
	if away := context.Cause(ctx); errs.Is(away, errs.Unavailable) {
		return away
	}
	return err
}

// capabilities are the lists as JSON.
func capabilities(c *registryv1.WorkflowCapabilities) json.RawMessage {
	raw, err := json.Marshal(map[string][]string{
		"triggers": orNone(c.GetTriggers()), "node_types": orNone(c.GetNodeTypes()), "tools": orNone(c.GetTools()), "model_names": orNone(c.GetModelNames()),
	})
	if err != nil {
		return json.RawMessage("{}") // lists of texts always marshal
	}
	return raw
}

func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
