package engine

import (
	"cmp"
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/workgraph"
)

// refSelf names the graph of the run itself.
const refSelf = "self"

// workflow finds the version that a name stands for in a run, and its graph. A run and all below it get the
// same version of an alias, so that a repeated call spawns what the first one would have, and an approval
// covers what is spawned after it. A user gets the same one in all runs.
func (r *run) workflow(ctx context.Context, ref string) (version string, g *workgraph.Graph, fault *workgraph.Error) {
	return r.t.e.workflow(ctx, r.namespace, ref, cmp.Or(r.lineage.User, r.root))
}

func (e *Engine) workflow(ctx context.Context, namespace, ref, key string) (string, *workgraph.Graph, *workgraph.Error) {
	slug, at, ok := strings.Cut(strings.TrimPrefix(ref, "workflow/"), "@")
	if !strings.HasPrefix(ref, "workflow/") || !ok || slug == "" || at == "" {
		return "", nil, workgraph.Errorf(workgraph.Permanent, ReasonWorkflowNotFound, "%q names no workflow: write \"self\", \"workflow/SLUG@version\" or \"workflow/SLUG@alias\"", ref)
	}
	if e.workflows == nil {
		return "", nil, workgraph.Errorf(workgraph.Permanent, ReasonWorkflowNotFound,
			"this executor knows no workflows, so %q cannot be found: give the child's graph itself, or let the executor reach a registry", ref)
	}
	version, g, err := e.workflows.Workflow(ctx, namespace, ref, key)
	switch {
	case err == nil:
		return version, g, nil
	case !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.InvalidArgument) && !errs.Is(err, errs.FailedPrecondition) && !errs.Is(err, errs.PermissionDenied):
		return "", nil, workgraph.Errorf(workgraph.Retryable, errs.ReasonOf(err), "workflow %q cannot be read just now: %v", ref, errs.From(err).Message)
	case errs.Is(err, errs.InvalidArgument):
		return "", nil, workgraph.Errorf(workgraph.Permanent, ReasonWorkflowInvalid, "%v", errs.From(err).Message)
	}
	return "", nil, workgraph.Errorf(workgraph.Permanent, ReasonWorkflowNotFound, "%q: %v", ref, errs.From(err).Message)
}

// versionOf is the version of the catalog that a child's graph was taken from, as SLUG@VERSION, or empty.
func versionOf(c *workgraph.Child) string {
	version, _ := strings.CutPrefix(cmp.Or(c.WorkflowVersion, c.Workflow), "workflow/")
	if version == refSelf {
		return ""
	}
	return version
}

// ownGraph is the graph of the run for children with refSelf: without inserted expansions.
func (r *run) ownGraph() *workgraph.Graph {
	r.lock()
	p := r.State.Program()
	r.mu.Unlock()
	return command.Unexpanded(p.Graph())
}

// Reasons of outcomes that are refused for good.
const (
	// ReasonDepthExceeded is the reason when a run would stand too deep below its root.
	ReasonDepthExceeded = "RUN_DEPTH_EXCEEDED"
	// ReasonFanOutExceeded is the reason when one visit asks for too many children.
	ReasonFanOutExceeded = "FAN_OUT_EXCEEDED"
	// ReasonWorkflowNotFound is the reason when a child names a workflow that cannot be found.
	ReasonWorkflowNotFound = "WORKFLOW_NOT_FOUND"
	// ReasonWorkflowInvalid is the reason when the file of a workflow is no graph.
	ReasonWorkflowInvalid = "WORKFLOW_INVALID"
	// ReasonChildInvalid is the reason when graphs or inputs of children have faults. The message lists all
	// of them.
	ReasonChildInvalid = "CHILD_INVALID"
	// ReasonInterruptInvalid is the reason when an interrupt cannot be opened, for example because its schema
	// is invalid.
	ReasonInterruptInvalid = "INTERRUPT_INVALID"
)
