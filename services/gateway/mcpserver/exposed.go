package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// workflowTool is how the names of tools begin that are workflows.
	workflowTool = "workflow_"
	// maxToolName bounds such a name. Makers of models allow 64 letters, digits, dashes and low
	// lines.
	maxToolName = 64
	// maxSchema bounds the schema of the inputs of a workflow, and maxSources what is read of
	// definitions for one list, in bytes.
	maxSchema, maxSources = 16 << 10, 4 << 20
	anyObject             = `{"type":"object"}`
)

// toolName is the name of the tool of a workflow. It is that of no other tool: a slug that does not
// fit as it is has its hash in it.
func (s *Server) toolName(slug string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, slug)
	name := workflowTool + plain
	if plain == slug && len(name) <= maxToolName && s.byName[name] == nil {
		return name
	}
	sum := sha256.Sum256([]byte(slug))
	tail := "_" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxToolName-len(tail))] + tail
}

// exposed are the workflows that the namespace exposes.
func (s *Server) exposed(ctx context.Context) ([]*registryv1.Workflow, error) {
	r, err := asked(ctx, s, s.Workflows.ListWorkflows, &registryv1.ListWorkflowsRequest{Exposed: true, PageSize: maxList})
	return r.GetWorkflows(), err
}

// workflowTools are the tools of exposed workflows. Where they cannot be listed there are none.
func (s *Server) workflowTools(ctx context.Context) (out []*mcp.Tool) {
	list, err := s.exposed(ctx)
	if err != nil {
		s.Log.DebugContext(ctx, "exposed workflows could not be listed", "err", err)
		return nil
	}
	room := int64(maxSources)
	for _, w := range list {
		text := w.GetDescription()
		if text == "" {
			text = w.GetName()
		}
		out = append(out, &mcp.Tool{
			Name: s.toolName(w.GetSlug()), Title: errs.Clip(w.GetName(), maxTold), InputSchema: json.RawMessage(s.inputs(ctx, w, &room)),
			Description: errs.Clip(text, 1<<10) + " (A workflow: the arguments are its inputs, and the answer its result, or how its run stands.)",
		})
	}
	return out
}

// version is the number of the version that clients run. Of several that an alias stands for it is
// the one with the greatest weight.
func version(w *registryv1.Workflow) int64 {
	if n, err := strconv.ParseInt(w.GetExposed(), 10, 64); err == nil {
		return n
	}
	for _, a := range w.GetAliases() {
		if a.GetName() != w.GetExposed() {
			continue
		}
		var most *registryv1.WorkflowWeight
		for _, v := range a.GetVersions() {
			if most == nil || v.GetWeight() > most.GetWeight() {
				most = v
			}
		}
		return most.GetVersion()
	}
	return w.GetLatestVersion()
}

// inputs is the JSON Schema of the inputs of a workflow. Versions do not change, so that it is
// kept. room is how many bytes of definitions may still be read.
func (s *Server) inputs(ctx context.Context, w *registryv1.Workflow, room *int64) []byte {
	key := fmt.Sprint(s.Namespace(ctx), "/", w.GetId(), "@", version(w))
	s.mu.Lock()
	kept, ok := s.schemas.Get(key)
	s.mu.Unlock()
	if ok {
		return kept
	}
	if *room <= 0 {
		return []byte(anyObject)
	}
	v, err := asked(ctx, s, s.Workflows.GetWorkflowVersion, &registryv1.GetWorkflowVersionRequest{Workflow: w.GetSlug(), Version: version(w)})
	if err != nil {
		return []byte(anyObject)
	}
	*room -= int64(len(v.GetSource()))
	schema := inputsOf(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schemas.Put(key, schema, int64(len(key)+len(schema)+128))
	return schema
}

func inputsOf(v *registryv1.WorkflowVersion) []byte {
	if v.GetForm() == registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH {
		return []byte(anyObject)
	}
	d, _ := workflow.Read([]byte(v.GetSource()))
	if d == nil || len(d.Inputs) == 0 || len(d.Inputs) > maxSchema {
		return []byte(anyObject)
	}
	var schema map[string]json.RawMessage
	if json.Unmarshal(d.Inputs, &schema) != nil || string(schema["type"]) != `"object"` {
		return []byte(anyObject)
	}
	return d.Inputs
}

// anyWorkflow is the tool of the library behind all tools of workflows. It is not listed.
const anyWorkflow = "workflow"

// workflowKey is the key of the workflow of a call.
type workflowKey struct{}

// named hands a call of the tool of a workflow to the tool behind all of them.
func (s *Server) named(ctx context.Context, r *mcp.CallToolRequest) (context.Context, *mcp.CallToolRequest, error) {
	if strings.HasPrefix(r.Params.Name, workflowTool) {
		list, err := s.exposed(ctx)
		if err != nil {
			return ctx, nil, err
		}
		for _, w := range list {
			if s.toolName(w.GetSlug()) == r.Params.Name {
				params, call := *r.Params, *r
				params.Name, call.Params = anyWorkflow, &params
				return context.WithValue(ctx, workflowKey{}, w), &call, nil
			}
		}
	}
	return ctx, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", errs.Clip(r.Params.Name, 200))}
}

func runExposed(ctx context.Context, c *call) (any, error) {
	w, ok := ctx.Value(workflowKey{}).(*registryv1.Workflow)
	if !ok {
		return nil, badArguments("this tool runs a workflow by its name")
	}
	return c.runWorkflow(ctx, w)
}

func (c *call) runWorkflow(ctx context.Context, w *registryv1.Workflow) (any, error) {
	var inputs map[string]json.RawMessage
	if err := c.read(&inputs); err != nil {
		return nil, err
	}
	a, err := fromMeta(c.req.Params.Meta)
	if err != nil {
		return nil, err
	}
	req := &executorv1.StartRunRequest{Workflow: w.GetSlug(), Named: payloads(inputs)}
	if w.GetExposed() != "latest" {
		req.Workflow += "@" + w.GetExposed()
	}
	if err := a.into(req); err != nil {
		return nil, err
	}
	return c.begun(ctx, req, &a)
}
