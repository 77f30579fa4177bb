package epigraph

import (
	"context"
	"iter"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// CreateWorkflow keeps a definition, in YAML or JSON, as a new workflow of the catalog. The reason of a
// faulty one is WORKFLOW_INVALID, and each of its faults is a violation.
func (c *Client) CreateWorkflow(ctx context.Context, source string) (*registryv1.Workflow, error) {
	return c.Workflows.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: source})
}

// CreateWorkflowVersion adds a version to a workflow, which is named by slug or id. The same text is the same
// version, which may be an older one.
func (c *Client) CreateWorkflowVersion(ctx context.Context, workflow, source string) (*registryv1.WorkflowVersion, error) {
	return c.Workflows.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: workflow, Source: source})
}

// Workflow reads a workflow by slug or id, with its history.
func (c *Client) Workflow(ctx context.Context, workflow string) (*registryv1.Workflow, error) {
	return c.Workflows.GetWorkflow(ctx, &registryv1.GetWorkflowRequest{Workflow: workflow})
}

// ListWorkflows returns the workflows that match the filter, newest first; nil matches all of the
// namespace. An error is the last pair.
func (c *Client) ListWorkflows(ctx context.Context, filter *registryv1.ListWorkflowsRequest) iter.Seq2[*registryv1.Workflow, error] {
	return all(func(token string) ([]*registryv1.Workflow, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := c.Workflows.ListWorkflows(ctx, req)
		return m.GetWorkflows(), m.GetNextPageToken(), err
	})
}

// SetWorkflowAlias lets an alias stand for one version of a workflow.
func (c *Client) SetWorkflowAlias(ctx context.Context, workflow, alias string, version int64) (*registryv1.Workflow, error) {
	return c.Workflows.SetWorkflowAlias(ctx, &registryv1.SetWorkflowAliasRequest{
		Workflow: workflow, Alias: alias, Versions: []*registryv1.WorkflowWeight{{Version: version}},
	})
}

// DiscoverWorkflows finds workflows that meet the requirements, the best first. The query is words of names,
// descriptions and tags: with requirements they decide between equal scores, and without any they are what
// is looked for. Nil requires nothing, and an empty query looks for no words.
func (c *Client) DiscoverWorkflows(ctx context.Context, query string, r *registryv1.WorkflowRequirements, limit int) ([]*registryv1.WorkflowMatch, error) {
	m, err := c.Workflows.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{Query: query, Requirements: r, Limit: int32(limit)})
	return m.GetMatches(), err
}

// ForecastWorkflow tells what a run of NAME, NAME@VERSION or NAME@ALIAS may cost and how long it may
// take. What is not known is absent, and the notes say why.
func (c *Client) ForecastWorkflow(ctx context.Context, ref string) (*registryv1.WorkflowForecast, error) {
	return c.Workflows.ForecastWorkflow(ctx, &registryv1.ForecastWorkflowRequest{Ref: ref})
}

// RunWorkflow starts a run of a workflow of the catalog: NAME, NAME@VERSION or NAME@ALIAS.
func (c *Client) RunWorkflow(ctx context.Context, ref string, opts ...StartOption) (*Run, error) {
	req, err := startRequest(nil, opts)
	if err != nil {
		return nil, err
	}
	req.Workflow = ref
	m, err := c.Executor.StartRun(ctx, req)
	if err != nil {
		return nil, err
	}
	return c.Run(m.GetId()), nil
}
