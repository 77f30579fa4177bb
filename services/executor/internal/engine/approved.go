package engine

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has the consequences of an approval beyond its own run: for the workflows that it covers, and for
// the children that depend on it.

// maxCovered is how many workflows one approval covers.
const maxCovered = 256

// coveredWorkflows returns the hashes of the workflows that an approval covers, by name. They are named by
// arguments of nodes after the visit, by inputs that are propagated to it, or by another covered workflow. A
// workflow that does not exist has an empty hash.
func (t *session) coveredWorkflows(ctx context.Context, a *attempt) (map[string]string, *workgraph.Error) {
	r := a.run
	r.lock()
	p := r.State.Program()
	r.mu.Unlock()
	leave, err := t.e.computing.Enter(ctx, r.namespace)
	if err != nil {
		return nil, notPerformed(err)
	}
	names, err := p.Workflows(ctx, a.start.Node)
	leave()
	if err != nil {
		return nil, notPerformed(err)
	}
	names = append(names, workgraph.WorkflowsAmong(workgraph.Input{Args: a.start.Args, Named: a.start.Named})...)
	var out map[string]string
	for ; len(names) > 0; names = names[1:] {
		name := names[0]
		if _, known := out[name]; known {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		if len(out) == maxCovered {
			return nil, workgraph.Errorf(workgraph.Permanent, ReasonInterruptInvalid, "the approval covers more than %d workflows", maxCovered)
		}
		var g *workgraph.Graph
		if name == refSelf {
			g = r.ownGraph()
		} else {
			var fault *workgraph.Error
			if _, g, fault = r.workflow(ctx, name); fault != nil {
				if fault.Type == workgraph.Retryable {
					return nil, fault
				}
				out[name] = ""
				continue
			}
			for _, more := range workgraph.WorkflowsIn(g) {
				if more != refSelf { // the workflow itself
					names = append(names, more)
				}
			}
		}
		if out[name], err = g.Hash(); err != nil {
			return nil, workgraph.Errorf(workgraph.Permanent, ReasonWorkflowInvalid, "%s: %v", name, err)
		}
	}
	return out, nil
}

// recordWorkflow records which graph a child is made of, and refuses a graph that differs from the approved
// one.
func (r *run) recordWorkflow(c *workgraph.Child, ref string, g *workgraph.Graph) *workgraph.Error {
	hash, err := g.Hash()
	if err != nil {
		return workgraph.Errorf(workgraph.Permanent, ReasonWorkflowInvalid, "%s: %v", ref, err)
	}
	c.Workflow, c.WorkflowHash = ref, hash
	by := r.lineage.Approved
	if by == nil || ref == refSelf { // "self" of a descendant was not part of the approval
		return nil
	}
	if was, ok := by.Workflows[ref]; ok && was != hash {
		return workgraph.Errorf(workgraph.Permanent, workgraph.ReasonApprovalVoid, "the graph of %s has changed since it was approved at %s of run %s: fork that run from %s to ask for approval again",
			ref, by.At, by.Run, by.At.Node)
	}
	return nil
}

// approvalFor returns the approval that a child of the visit depends on: that of the run itself if there is
// one, else one in the run. The caller holds r.mu.
func (r *run) approvalFor(ref workgraph.Ref) *record.Approval {
	at, workflows, ok := r.State.ApprovedAt(ref)
	by := r.lineage.Approved
	if !ok {
		return by
	}
	out := &record.Approval{Run: r.id, At: at, Workflows: workflows}
	delete(workflows, refSelf)
	if by != nil {
		out.Run, out.At = by.Run, by.At
		for k, v := range by.Workflows {
			if out.Workflows == nil {
				out.Workflows = map[string]string{}
			}
			out.Workflows[k] = v
		}
	}
	return out
}
