package rpc

import (
	"context"
	"slices"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

// attach compiles the definition that a task brings, and has the task say where it comes from. It returns the
// fields that change with it.
func (s *Server) attach(ctx context.Context, o accounting.Once, in *epic.Task, fields []string) ([]string, error) {
	if in.WorkflowSlug != "" {
		return nil, invalid("task.workflow_slug", epic.ReasonSourceMismatch, "names a workflow of the catalog beside a definition: give one of them, or a definition with based_on")
	}
	a, err := s.catalog.Attach(ctx, grpckit.Namespace(ctx), in.Definition, o.ID)
	if err != nil {
		return nil, err
	}
	source := epic.Inline
	if a.BasedOn != "" {
		source = epic.Template
	}
	if in.Source != 0 && in.Source != source {
		what := "of a definition of its own is inline"
		if source == epic.Template {
			what = "of a definition with based_on is template"
		}
		return nil, invalid("task.workflow_source", epic.ReasonSourceMismatch, what)
	}
	in.Definition, in.WorkflowSlug, in.Source = a.Definition, a.BasedOn, source
	for _, f := range []string{"workflow_slug", "workflow_source"} {
		if !slices.Contains(fields, f) {
			fields = append(fields, f)
		}
	}
	return fields, nil
}
