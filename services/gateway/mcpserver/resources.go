package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/delegation"
	"github.com/epigraph-run/epigraph/internal/delegation/delegationpb"
	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	epicsURI, workflowsURI = "epigraph://epics/", "epigraph://workflows/"
	// maxNewest is how many of the newest of each kind are listed.
	maxNewest = 20
	jsonType  = "application/json"
)

func (s *Server) addRunTemplate(to *mcp.Server) {
	to.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: runs + "{run_id}", Name: "run", Title: "A run", MIMEType: jsonType,
		Description: "How a run stands: its state, result, error, costs and open questions.",
	}, resource(runs, s.readRun))
}

func (s *Server) addResources() {
	s.addRunTemplate(s.server)
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: epicsURI + "{epic_id}", Name: "epic", Title: "An epic", MIMEType: jsonType,
		Description: "How far an epic is: its counters, what it cost, and its tasks.",
	}, resource(epicsURI, s.epicWithTasks))
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: workflowsURI + "{slug}", Name: "workflow", Title: "A workflow", MIMEType: jsonType,
		Description: "A workflow of the catalog: what it does, its versions, and the definition of the newest one.",
	}, resource(workflowsURI, s.readWorkflow))
}

// resource reads what stands behind the beginning of a URI.
func resource(prefix string, read func(context.Context, string) (map[string]any, error)) mcp.ResourceHandler {
	return func(ctx context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		name, ok := strings.CutPrefix(r.Params.URI, prefix)
		if !ok || name == "" || len(name) > 100 {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		}
		out, err := read(ctx, name)
		if err != nil {
			return nil, protocolError(r.Params.URI, err)
		}
		raw, err := json.Marshal(out)
		if err != nil {
			return nil, protocolError(r.Params.URI, err)
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: r.Params.URI, MIMEType: jsonType, Text: string(raw)}}}, nil
	}
}

// protocolError is an error of a resource, which has no answer to tell it in.
func protocolError(uri string, err error) error {
	e := errs.From(err)
	switch e.Kind {
	case errs.NotFound:
		return mcp.ResourceNotFoundError(uri)
	case errs.Internal:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	}
	text := e.Message
	if hint := e.HintText(); hint != "" {
		text += "; " + inTools(hint)
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("%s (%s)", errs.Clip(text, 2<<10), e.Reason)}
}

func (s *Server) readRun(ctx context.Context, id string) (map[string]any, error) {
	r, err := asked(ctx, s, s.Executor.GetRun, &executorv1.GetRunRequest{RunId: id})
	if err != nil {
		return nil, err
	}
	return (&call{Server: s}).standing(ctx, r, 0)
}

func (s *Server) readWorkflow(ctx context.Context, slug string) (map[string]any, error) {
	w, err := asked(ctx, s, s.Workflows.GetWorkflow, &registryv1.GetWorkflowRequest{Workflow: slug})
	if err != nil {
		return nil, err
	}
	v, err := asked(ctx, s, s.Workflows.GetWorkflowVersion, &registryv1.GetWorkflowVersionRequest{Workflow: slug, Version: w.GetLatestVersion()})
	if err != nil {
		return nil, err
	}
	out := map[string]any{
		"slug": w.GetSlug(), "name": errs.Clip(w.GetName(), maxTold), "description": errs.Clip(w.GetDescription(), 4<<10), "tags": delegation.OrNone(w.GetTags()), "latest_version": w.GetLatestVersion(),
		"state": strings.ToLower(strings.TrimPrefix(w.GetState().String(), "WORKFLOW_STATE_")), "exposed": w.GetExposed(),
	}
	if w.GetExposed() != "" {
		out["tool"] = s.toolName(w.GetSlug())
	}
	if len(v.GetSource()) <= maxAnswer/2 {
		out["definition"] = v.GetSource()
	} else {
		out["note"] = fmt.Sprintf("The definition has %d bytes: GET /v1/workflows/%s/versions/%d has it.", len(v.GetSource()), slug, v.GetVersion())
	}
	return out, nil
}

// newest are the newest runs, epics and workflows. What cannot be listed is left out.
func (s *Server) newest(ctx context.Context) (out []*mcp.Resource) {
	add := func(uri, name, description string) {
		out = append(out, &mcp.Resource{URI: uri, Name: errs.Clip(name, maxTold), Description: errs.Clip(description, maxTold), MIMEType: jsonType})
	}
	r, err := asked(ctx, s, s.Executor.ListRuns, &executorv1.ListRunsRequest{PageSize: maxNewest})
	for _, run := range r.GetRuns() {
		add(runs+run.GetId(), run.GetId(), strings.TrimSpace("A run of "+run.GetGraphName())+": "+stateWord(run.GetState()))
	}
	e, failed := asked(ctx, s, s.Registry.ListEpics, &registryv1.ListEpicsRequest{PageSize: maxNewest})
	for _, epic := range e.GetEpics() {
		add(epicsURI+epic.GetId(), epic.GetTitle(), "An epic: "+delegationpb.WordOf(delegation.EpicStates(), epic.GetState()))
	}
	w, gone := asked(ctx, s, s.Workflows.ListWorkflows, &registryv1.ListWorkflowsRequest{PageSize: maxNewest})
	for _, one := range w.GetWorkflows() {
		add(workflowsURI+one.GetSlug(), one.GetSlug(), one.GetName())
	}
	for _, err := range []error{err, failed, gone} {
		if err != nil {
			s.Log.DebugContext(ctx, "resources could not be listed", "err", err)
		}
	}
	return out
}
