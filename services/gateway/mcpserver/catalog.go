package mcpserver

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

// maxText bounds a definition in bytes. People may keep longer ones.
const maxText = 256 << 10

func catalogTools() []*tool {
	return []*tool{
		{name: "workflow_create", repeats: true, description: "Makes a workflow of a definition, or of a fork with patches, and answers its reference, by which it can be run. Faults of the text are told with line and column, so that it can be written again.",
			schema: delegation.Object(`"dsl"`, `"dsl": {"description": "The definition of the workflow, YAML as a text or JSON: name, description, tags, triggers, inputs, steps. Or a fork of another one: based_on, name, patches."},
    "slug": {"type": "string", "maxLength": 100, "description": "What it is called by; made of its name when absent."}, `+requestProperty), does: createWorkflow},
		{name: "workflow_discover", reads: true, description: "Finds workflows that can do something, best first, with what each has, what it misses, and whether to reuse it (reuse), to change it (fork_and_patch) or to make a new one (create_new).",
			schema: delegation.Object(``, `"query": {"type": "string", "description": "Words to look for in names, descriptions and tags."},
    "requirements": {"description": "What the workflow must have, as an object or its JSON as a text: triggers, node_types, tools, tags (each a list), description, model_capability."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many are told; 5 when absent."},
    "exclude": {"type": "array", "items": {"type": "string", "maxLength": 100}, "maxItems": 99, "description": "Slugs of workflows to leave out."}`), does: discoverWorkflows},
	}
}

func createWorkflow(ctx context.Context, c *call) (any, error) {
	var a struct {
		DSL     json.RawMessage `json:"dsl"`
		Slug    string          `json:"slug"`
		Request string          `json:"request_id"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	source := delegation.Text(a.DSL)
	switch {
	case strings.TrimSpace(source) == "":
		return nil, badArguments("dsl is empty: give the definition of a workflow, with name and steps")
	case len(source) > maxText:
		return nil, badArguments("the definition has %d bytes, the limit is %d", len(source), maxText)
	}
	if at, shares := workflow.Shares([]byte(source)); shares { // a model would widen what it may write
		return nil, badArguments("line %d: memory_share, or memory_write with the scope workflow or namespace, writes for others than the user, and a workflow made by this tool may not: use memory_write without scope or with scope epic", at.Line)
	}
	mode := "created"
	var w *registryv1.Workflow
	var err error
	if workflow.IsFork([]byte(source)) {
		mode = "forked"
		w, err = asked(ctx, c.Server, c.Workflows.ForkWorkflow, &registryv1.ForkWorkflowRequest{Source: source, Slug: a.Slug, RequestId: a.Request})
	} else {
		w, err = asked(ctx, c.Server, c.Workflows.CreateWorkflow, &registryv1.CreateWorkflowRequest{Source: source, Slug: a.Slug, RequestId: a.Request})
	}
	if err != nil {
		return nil, err
	}
	at := w.GetSlug() + "@1" // a repeated call may find more versions; what it made was the first one
	return map[string]any{
		"success": true, "workflow_id": w.GetId(), "slug": w.GetSlug(), "version": 1, "workflow": at, "ref": "workflow/" + at, "name": w.GetName(),
		"node_count": w.GetSize().GetNodes(), "edge_count": w.GetSize().GetEdges(), "mode": mode,
	}, nil
}

func capabilities(c *registryv1.WorkflowCapabilities) map[string][]string {
	return map[string][]string{"triggers": delegation.OrNone(c.GetTriggers()), "node_types": delegation.OrNone(c.GetNodeTypes()), "tools": delegation.OrNone(c.GetTools()), "model_names": delegation.OrNone(c.GetModelNames())}
}

func discoverWorkflows(ctx context.Context, c *call) (any, error) {
	var a struct {
		Query        string          `json:"query"`
		Requirements json.RawMessage `json:"requirements"`
		Limit        int             `json:"limit"`
		Exclude      []string        `json:"exclude"`
	}
	if err := c.read(&a); err != nil {
		return nil, err
	}
	if a.Limit < 0 || a.Limit > 20 {
		return nil, badArguments("limit must be from 1 to 20")
	}
	r, err := asked(ctx, c.Server, c.Workflows.DiscoverWorkflows, &registryv1.DiscoverWorkflowsRequest{
		RequirementsJson: strings.TrimSpace(delegation.Text(a.Requirements)), Query: a.Query, Limit: int32(a.Limit), Exclude: a.Exclude,
	})
	if err != nil {
		return nil, err
	}
	matches := []map[string]any{}
	for _, m := range r.GetMatches() {
		at := m.GetSlug() + "@" + strconv.FormatInt(m.GetVersion(), 10)
		matches = append(matches, map[string]any{
			"workflow_id": m.GetWorkflowId(), "slug": m.GetSlug(), "version": m.GetVersion(), "workflow": at, "ref": "workflow/" + at, "name": m.GetName(),
			"description": errs.Clip(m.GetDescription(), 400), "tags": delegation.OrNone(m.GetTags()), "match_score": m.GetMatchScore(), "recommendation": m.GetRecommendation(),
			"has": delegation.OrNone(m.GetHas()), "missing": delegation.OrNone(m.GetMissing()), "extra": delegation.OrNone(m.GetExtra()), "has_capabilities": capabilities(m.GetHasCapabilities()),
			"missing_capabilities": capabilities(m.GetMissingCapabilities()), "extra_capabilities": capabilities(m.GetExtraCapabilities()), "success_rate": m.GetSuccessRate(),
			"execution_count": m.GetExecutionCount(), "nano_usd": m.GetNanoUsd(), "relevance": m.GetRelevance(),
		})
	}
	return map[string]any{"success": true, "matches": matches, "total_searched": r.GetTotalSearched()}, nil
}
