package epigraph

import (
	"context"
	"iter"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Audit returns who changed what in the namespace, newest first, read page by page; nil matches all. An error
// is the last pair.
func (c *Client) Audit(ctx context.Context, filter *registryv1.ListAuditRequest) iter.Seq2[*registryv1.AuditEntry, error] {
	client := registryv1.NewAuditServiceClient(c.book)
	return all(func(token string) ([]*registryv1.AuditEntry, string, error) {
		req := copyOf(filter)
		req.PageToken = token
		m, err := client.ListAudit(ctx, req)
		return m.GetEntries(), m.GetNextPageToken(), err
	})
}
