package store

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/page"
)

// AuditQuery narrows a list of entries of the audit log. Empty fields narrow nothing.
type AuditQuery struct {
	Namespace, Principal, Method, Resource string
	// From and Until are the times at or after which, and before which, the calls began.
	From, Until time.Time
	After       page.Cursor
	Limit       int
}

// AuditReader reads the audit log.
type AuditReader interface {
	// AuditEntries lists the newest first.
	AuditEntries(ctx context.Context, q AuditQuery) ([]audit.Entry, error)
}

// AuditTx adds to the audit log. Nothing changes an entry.
type AuditTx interface {
	// InsertAudit adds entries of a namespace. One whose id is there stays as it is.
	InsertAudit(ctx context.Context, namespace string, entries []audit.Entry) error
}
