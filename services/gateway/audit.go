package gateway

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// WriteAudit returns an audit.Write to a registry. The call is the service's own, in the namespace of the
// entries, and so goes to the cell of that.
func WriteAudit(c registryv1.AuditServiceClient) audit.Write {
	return func(ctx context.Context, namespace string, entries []audit.Entry) error {
		req := &registryv1.RecordAuditRequest{}
		for _, e := range entries {
			req.Entries = append(req.Entries, &registryv1.AuditEntry{
				Id: e.ID, Time: timestamppb.New(e.Time), Principal: e.Principal, Method: e.Method, Resource: e.Resource, RunId: e.RunID,
				RequestId: e.RequestID, Code: e.Code, Reason: e.Reason, Remote: e.Remote, UserAgent: e.UserAgent, LeftOut: e.LeftOut,
			})
		}
		_, err := c.RecordAudit(grpckit.AsService(grpckit.WithNamespace(ctx, namespace)), req)
		return err
	}
}
