package sqlstore

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/audit"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// InsertAudit implements store.Tx.
func (t tx) InsertAudit(ctx context.Context, namespace string, entries []audit.Entry) error {
	stmts := make([]dbkit.Stmt, len(entries))
	for i, e := range entries {
		stmts[i] = dbkit.Stmt{Query: `INSERT INTO audit (namespace, id, time, principal, method, resource, run_id, request_id, code, reason, remote, user_agent, left_out)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING`,
			Args: []any{namespace, e.ID, e.Time, e.Principal, e.Method, e.Resource, e.RunID, e.RequestID, e.Code, e.Reason, e.Remote, e.UserAgent, e.LeftOut}}
	}
	return t.Batch(ctx, stmts...)
}

// AuditEntries implements store.Reader.
func (t tx) AuditEntries(ctx context.Context, q store.AuditQuery) ([]audit.Entry, error) {
	w := where{parts: []string{"t.namespace = $1"}, args: []any{q.Namespace}}
	for column, value := range map[string]string{"principal": q.Principal, "method": q.Method, "resource": q.Resource} {
		if value != "" {
			w.add("t."+column+" = %s", value)
		}
	}
	if q.Resource != "" {
		w.add("t.resource <> ''") // the index has no others
	}
	if !q.From.IsZero() {
		w.add("t.time >= %s", q.From)
	}
	if !q.Until.IsZero() {
		w.add("t.time < %s", q.Until)
	}
	w.after("time", "<", q.After)
	return collectPage(ctx, t, func(row dbkit.Scanner) (e audit.Entry, err error) {
		err = row.Scan(&e.Namespace, &e.ID, dbkit.At(&e.Time), &e.Principal, &e.Method, &e.Resource, &e.RunID, &e.RequestID, &e.Code, &e.Reason, &e.Remote, &e.UserAgent, &e.LeftOut)
		return e, err
	}, `SELECT t.namespace, t.id, t.time, t.principal, t.method, t.resource, t.run_id, t.request_id, t.code, t.reason, t.remote, t.user_agent, t.left_out FROM audit t`+
		w.end("t.time DESC, t.id DESC", q.Limit), w.args...)
}

// SweepAudit implements store.Store.
func (s *Store) SweepAudit(ctx context.Context, before time.Time, limit int) (int64, error) {
	// A namespace is skipped to from the one before it, however many entries each has.
	return s.sweepInTurns(ctx, limit, `WITH RECURSIVE ns (n) AS (SELECT min(namespace) FROM audit WHERE namespace > $1 UNION ALL
			SELECT (SELECT min(a.namespace) FROM audit a WHERE a.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)
		SELECT n FROM ns WHERE n IS NOT NULL AND EXISTS (SELECT 1 FROM audit a WHERE a.namespace = ns.n AND a.time < $2) ORDER BY n LIMIT $3`, []any{before},
		func(ctx context.Context, t tx, namespace string) (int, error) {
			n, err := t.Exec(ctx, `DELETE FROM audit WHERE namespace = $1 AND `+t.d.InSelect(`id`, `SELECT a.id FROM audit a WHERE a.namespace = $1
				AND a.time < $2 ORDER BY a.time, a.id LIMIT $3`), namespace, before, limit)
			return int(n), err
		})
}
