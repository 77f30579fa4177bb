package executor

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/workflowdir"
	"github.com/epigraph-run/epigraph/workgraph"
)

// workflows is where the graphs of workflow versions come from.
type workflows struct {
	find func(ctx context.Context, namespace, ref string) (*workgraph.Graph, error) // nil when there are none
	dir  *workflowdir.Dir
}

func openWorkflows(folder string, find func(ctx context.Context, namespace, ref string) (*workgraph.Graph, error)) (workflows, error) {
	if find != nil || folder == "" {
		return workflows{find: find}, nil
	}
	dir, err := workflowdir.Open(folder)
	if err != nil {
		return workflows{}, fmt.Errorf("executor: %w", err)
	}
	return workflows{dir.Workflow, dir}, nil
}

// Workflow implements engine.Workflows.
func (w workflows) Workflow(ctx context.Context, namespace, ref string) (*workgraph.Graph, error) {
	return w.find(ctx, namespace, ref)
}

// orNil is nil without workflows, which the engine distinguishes.
func (w workflows) orNil() engine.Workflows {
	if w.find == nil {
		return nil
	}
	return w
}

// Close lets go of the folder.
func (w workflows) Close() error {
	if w.dir == nil {
		return nil
	}
	return w.dir.Close()
}
