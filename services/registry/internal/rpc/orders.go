package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

// RunEpic implements registryv1.RegistryServiceServer.
func (s *Server) RunEpic(ctx context.Context, req *registryv1.RunEpicRequest) (*registryv1.Epic, error) {
	parallel, o, err := prepared(req, req.GetRequestId(), func() (int32, error) { return req.GetParallel(), nil })
	if err != nil {
		return nil, err
	}
	c := accounting.Change{Once: o, Etag: req.GetEtag()}
	return epicReply(s.accounts.RunEpic(ctx, grpckit.Namespace(ctx), req.GetEpicId(), c, parallel, req.GetWorkflowSlug()))
}

// LeaseOrders implements registryv1.RegistryServiceServer.
func (s *Server) LeaseOrders(ctx context.Context, req *registryv1.LeaseOrdersRequest) (*registryv1.LeaseOrdersResponse, error) {
	lease, err := duration("lease", req.GetLease())
	if err != nil {
		return nil, err
	}
	out, err := s.accounts.LeaseOrders(ctx, req.GetDatabase(), int(req.GetMaxCount()), lease)
	if err != nil {
		return nil, err
	}
	return &registryv1.LeaseOrdersResponse{Orders: each(out, orderTo)}, nil
}

// AcknowledgeOrders implements registryv1.RegistryServiceServer. A refusal that cannot be recorded
// keeps no other from it.
func (s *Server) AcknowledgeOrders(ctx context.Context, req *registryv1.AcknowledgeOrdersRequest) (*registryv1.AcknowledgeOrdersResponse, error) {
	err := s.accounts.AcknowledgeOrders(ctx, each(req.GetOrders(), orderFrom))
	for _, r := range req.GetRefused() {
		if e := s.accounts.RefuseStart(ctx, epic.RefusedStart{Order: orderFrom(r.GetOrder()), Cause: r.GetReason(), Message: r.GetMessage()}); e != nil && err == nil {
			err = e
		}
	}
	return &registryv1.AcknowledgeOrdersResponse{}, err
}

func orderFrom(o *registryv1.Order) epic.Order {
	return epic.Order{Namespace: o.GetNamespace(), TaskID: o.GetTaskId(), RunID: o.GetRunId(), ID: o.GetId()}
}
