package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/workflow"
)

// ForkWorkflow implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) ForkWorkflow(ctx context.Context, req *registryv1.ForkWorkflowRequest) (*registryv1.Workflow, error) {
	in, o, err := prepared(req, req.GetRequestId(), func() (string, error) { return req.GetSource(), nil })
	if err != nil {
		return nil, err
	}
	w, err := s.catalog.Fork(ctx, grpckit.Namespace(ctx), o, in, req.GetSlug())
	return s.workflowReply(ctx, w, err)
}

// DiffWorkflowVersions implements registryv1.WorkflowServiceServer.
func (s *WorkflowServer) DiffWorkflowVersions(ctx context.Context, req *registryv1.DiffWorkflowVersionsRequest) (*registryv1.DiffWorkflowVersionsResponse, error) {
	from, err := catalog.ParseRef(req.GetFrom())
	if err != nil {
		return nil, err
	}
	to, err := catalog.ParseRef(req.GetTo())
	if err != nil {
		return nil, err
	}
	changes, refs, err := s.catalog.Diff(ctx, grpckit.Namespace(ctx), from, to)
	if err != nil {
		return nil, err
	}
	return &registryv1.DiffWorkflowVersionsResponse{Changes: each(changes, changeTo), From: refs[0], To: refs[1], Text: changes.String()}, nil
}

func changeTo(c workflow.Change) *registryv1.WorkflowChange {
	return &registryv1.WorkflowChange{Path: c.Path, Kind: string(c.Kind), Before: c.Before, After: c.After}
}
