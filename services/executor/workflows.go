package executor

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/internal/errs"
	catalogactor "github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
	"github.com/epigraph-run/epigraph/services/executor/internal/workflowdir"
	"github.com/epigraph-run/epigraph/workgraph"
)

// workflows is where the graphs of workflow versions come from.
type workflows struct {
	// find, if not nil, is asked in place of the others.
	find    func(ctx context.Context, namespace, ref string) (*workgraph.Graph, error)
	dir     *workflowdir.Dir
	catalog *rpc.Catalog
}

func openWorkflows(folder string, d Deps) (w workflows, err error) {
	if d.Catalog != nil {
		w.catalog = rpc.NewCatalog(d.Catalog)
	}
	if w.find = d.Workflows; w.find != nil || folder == "" {
		return w, nil
	}
	if w.dir, err = workflowdir.Open(folder); err != nil {
		return workflows{}, fmt.Errorf("executor: %w", err)
	}
	return w, nil
}

// Workflow implements engine.Workflows. The folder goes before the catalog, so that what it has is found
// without a registry.
func (w workflows) Workflow(ctx context.Context, namespace, ref, key string) (string, *workgraph.Graph, error) {
	if w.find != nil {
		g, err := w.find(ctx, namespace, ref)
		return ref, g, err
	}
	if w.dir == nil {
		return w.catalog.Version(ctx, namespace, ref, key)
	}
	g, missing := w.dir.Workflow(ctx, namespace, ref)
	if w.catalog == nil || !errs.Is(missing, errs.NotFound) {
		return ref, g, missing
	}
	version, g, err := w.catalog.Version(ctx, namespace, ref, key)
	if errs.Is(err, errs.NotFound) || errs.Is(err, errs.InvalidArgument) {
		err = missing // it tells what there is
	}
	return version, g, err
}

// orNil is nil without workflows, which the engine distinguishes.
func (w workflows) orNil() engine.Workflows {
	if w.find == nil && w.dir == nil && w.catalog == nil {
		return nil
	}
	return w
}

// library is the catalog for actors, nil without one.
func (w workflows) library() catalogactor.Catalog {
	if w.catalog == nil {
		return nil
	}
	return w.catalog
}

// Close lets go of the folder.
func (w workflows) Close() error {
	if w.dir == nil {
		return nil
	}
	return w.dir.Close()
}
