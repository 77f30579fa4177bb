package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

// ImportEpic implements registryv1.RegistryServiceServer.
func (s *Server) ImportEpic(ctx context.Context, req *registryv1.ImportEpicRequest) (*registryv1.ImportEpicResponse, error) {
	document, o, err := prepared(req, req.GetRequestId(), func() (string, error) { return req.GetDocument(), nil })
	if err != nil {
		return nil, err
	}
	e, tree, err := s.accounts.ImportEpic(ctx, grpckit.Namespace(ctx), o, document)
	if err != nil {
		return nil, err
	}
	return &registryv1.ImportEpicResponse{Id: e.ID, Epic: epicTo(e), LeftOut: each(tree.LeftOut, importNoteTo)}, nil
}

func importNoteTo(f workflow.Fault) *registryv1.ImportNote {
	return &registryv1.ImportNote{Path: f.Path, Line: int32(f.Line), Message: f.Message}
}
