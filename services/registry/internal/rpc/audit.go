package rpc

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/page"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/internal/auditing"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// AuditServer serves epigraph.registry.v1.AuditService. It is safe for concurrent use.
type AuditServer struct {
	registryv1.UnimplementedAuditServiceServer
	book *auditing.Book
}

var _ registryv1.AuditServiceServer = (*AuditServer)(nil)

// NewAudit returns a server of a log.
func NewAudit(b *auditing.Book) *AuditServer { return &AuditServer{book: b} }

// ListAudit implements registryv1.AuditServiceServer.
func (s *AuditServer) ListAudit(ctx context.Context, req *registryv1.ListAuditRequest) (*registryv1.ListAuditResponse, error) {
	p, err := paged(ctx, "ListAudit", req)
	if err != nil {
		return nil, err
	}
	q := store.AuditQuery{Namespace: grpckit.Namespace(ctx), Principal: req.GetPrincipal(), Method: req.GetMethod(), Resource: req.GetResource(), After: p.After, Limit: p.Limit + 1}
	if q.From, err = instant("start_time", req.GetStartTime()); err != nil {
		return nil, err
	}
	if q.Until, err = instant("end_time", req.GetEndTime()); err != nil {
		return nil, err
	}
	rows, err := s.book.List(ctx, q)
	if err != nil {
		return nil, err
	}
	rows, next := page.Cut(p, rows, func(e audit.Entry) page.Cursor { return page.Cursor{CreateTime: e.Time, ID: e.ID} })
	return &registryv1.ListAuditResponse{Entries: each(rows, auditTo), NextPageToken: next}, nil
}

// RecordAudit implements registryv1.AuditServiceServer.
func (s *AuditServer) RecordAudit(ctx context.Context, req *registryv1.RecordAuditRequest) (*registryv1.RecordAuditResponse, error) {
	entries := make([]audit.Entry, len(req.GetEntries()))
	for i, m := range req.GetEntries() {
		at, err := instant("time", m.GetTime())
		if err != nil {
			return nil, err
		}
		entries[i] = audit.Entry{
			ID: m.GetId(), Time: at, Principal: m.GetPrincipal(), Method: m.GetMethod(), Resource: m.GetResource(), RunID: m.GetRunId(), RequestID: m.GetRequestId(),
			Code: m.GetCode(), Reason: m.GetReason(), Remote: m.GetRemote(), UserAgent: m.GetUserAgent(), LeftOut: m.GetLeftOut(),
		}
	}
	return &registryv1.RecordAuditResponse{}, s.book.Write(ctx, grpckit.Namespace(ctx), entries)
}

func auditTo(e audit.Entry) *registryv1.AuditEntry {
	return &registryv1.AuditEntry{
		Id: e.ID, Time: stamp(e.Time), Principal: e.Principal, Method: e.Method, Resource: e.Resource, RunId: e.RunID, RequestId: e.RequestID,
		Code: e.Code, Reason: e.Reason, Remote: e.Remote, UserAgent: e.UserAgent, LeftOut: e.LeftOut,
	}
}
