package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

// One that is there already keeps its time and reason.
const insertCancellation = `INSERT INTO cancellations (namespace, run_id, task_id, reason, create_time, lease_until, confirmed, database_id) `

// CancelRuns implements store.Tx.
func (t tx) CancelRuns(ctx context.Context, namespace, epicID, taskID, reason string) error {
	now, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	return t.exec(ctx, insertCancellation+`SELECT c.namespace, c.run_id, c.task_id, ?4, ?5, ?5, c.state = ?7, c.database_id
		FROM claims c JOIN tasks t ON t.namespace = c.namespace AND t.id = c.task_id
		WHERE t.namespace = ?1 AND t.epic_id = ?2 AND (?3 = '' OR t.id = ?3) AND c.state <> ?6 ON CONFLICT DO NOTHING`,
		namespace, epicID, taskID, reason, now.UnixMicro(), epic.Settled, epic.Confirmed)
}

// CancelRun implements store.Tx.
func (t tx) CancelRun(ctx context.Context, namespace, taskID, runID, database, reason string) error {
	now, err := t.Clock(ctx)
	if err != nil {
		return err
	}
	return t.exec(ctx, insertCancellation+`VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1, ?6) ON CONFLICT (namespace, run_id, task_id) DO UPDATE SET confirmed = 1`,
		namespace, runID, taskID, reason, now.UnixMicro(), database)
}

// ForgetCancellation implements store.Tx.
func (t tx) ForgetCancellation(ctx context.Context, namespace, taskID, runID string) error {
	return t.exec(ctx, `DELETE FROM cancellations WHERE namespace = ? AND run_id = ? AND task_id = ?`, namespace, runID, taskID)
}

func scanCancellation(row scanner) (c epic.Cancellation, err error) {
	var created int64
	err = row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Reason, &created, &c.Confirmed)
	c.Time = dbkit.FromUnixMicros(created)
	return c, err
}

const (
	// tenants skips from one namespace of database ?1 to the next, however many cancellations each has.
	tenants = `WITH RECURSIVE ns (d, n) AS (
		SELECT dbs.d, (SELECT min(c.namespace) FROM cancellations c WHERE c.database_id = dbs.d) FROM (SELECT '' AS d UNION SELECT ?1) dbs UNION ALL
		SELECT ns.d, (SELECT min(c.namespace) FROM cancellations c WHERE c.database_id = ns.d AND c.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL) `
	// leaseDue takes ?3 of those that are due at ?2 from each namespace in turn: of a namespace it reads the
	// ?3 oldest at most.
	leaseDue = tenants + `, turns AS (
		SELECT c.rowid AS id, c.lease_until, row_number() OVER (PARTITION BY c.namespace ORDER BY c.lease_until, c.rowid) AS turn FROM ns CROSS JOIN cancellations c
		WHERE c.rowid IN (SELECT rowid FROM cancellations WHERE database_id = ns.d AND namespace = ns.n AND lease_until <= ?2 ORDER BY lease_until, rowid LIMIT ?3)) `
)

// LeaseCancellations implements store.Store.
func (s *Store) LeaseCancellations(ctx context.Context, database string, limit int, hold time.Duration) (out []epic.Cancellation, err error) {
	// Nearly always there is nothing, and then nobody who writes is kept waiting.
	due := false
	err = s.db.View(ctx, func(ctx context.Context, t *sql.Tx) error {
		now, err := tx{t}.Clock(ctx)
		if err != nil {
			return err
		}
		return t.QueryRowContext(ctx, tenants+`SELECT EXISTS (SELECT 1 FROM ns WHERE EXISTS (
			SELECT 1 FROM cancellations c WHERE c.database_id = ns.d AND c.namespace = ns.n AND c.lease_until <= ?2))`, database, now.UnixMicro()).Scan(&due)
	})
	if err != nil || !due {
		return nil, err
	}
	err = s.db.Update(ctx, func(ctx context.Context, t *sql.Tx) error {
		now, err := tx{t}.Clock(ctx)
		if err != nil {
			return err
		}
		out, err = collect(ctx, tx{t}, scanCancellation, leaseDue+`UPDATE cancellations SET lease_until = ?4
			WHERE rowid IN (SELECT id FROM turns ORDER BY turn, lease_until, id LIMIT ?3)
			RETURNING namespace, task_id, run_id, reason, create_time, confirmed`, database, now.UnixMicro(), limit, now.Add(hold).UnixMicro())
		return err
	})
	return out, err
}

// AcknowledgeCancellations implements store.Store.
func (s *Store) AcknowledgeCancellations(ctx context.Context, done []epic.Cancellation) error {
	return s.db.Update(ctx, func(ctx context.Context, t *sql.Tx) error {
		for _, c := range done {
			if err := (tx{t}).ForgetCancellation(ctx, c.Namespace, c.TaskID, c.RunID); err != nil {
				return err
			}
		}
		return nil
	})
}
