package sqlstore

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	selectClaim = `SELECT namespace, task_id, run_id, database_id, state, lease_until, estimated_tokens, tokens_before FROM claims WHERE namespace = $1 AND task_id = $2`
)

func scanClaim(row dbkit.Scanner) (*epic.Claim, error) {
	var c epic.Claim
	err := row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Database, &c.State, dbkit.At(&c.LeaseUntil), &c.EstimatedTokens, &c.TokensBefore)
	return &c, err
}

// Claim implements store.Tx.
func (t tx) Claim(ctx context.Context, namespace, taskID, runID string) (*epic.Claim, error) {
	return one(ctx, t, nil, scanClaim, selectClaim+` AND run_id = $3`+t.d.Locked(), namespace, taskID, runID)
}

// ActiveClaim implements store.Tx.
func (t tx) ActiveClaim(ctx context.Context, namespace, taskID string) (*epic.Claim, error) {
	return one(ctx, t, nil, scanClaim, selectClaim+` AND state IN (1, 2)`+t.d.Locked(), namespace, taskID)
}

// PutClaim implements store.Tx.
func (t tx) PutClaim(ctx context.Context, c epic.Claim) error {
	_, err := t.Exec(ctx, `INSERT INTO claims (namespace, task_id, run_id, state, lease_until, database_id, estimated_tokens, tokens_before)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (namespace, task_id, run_id) DO UPDATE SET state = excluded.state, lease_until = excluded.lease_until`,
		c.Namespace, c.TaskID, c.RunID, c.State, c.LeaseUntil, c.Database, c.EstimatedTokens, c.TokensBefore)
	return err
}

// ReleaseClaims implements store.Tx.
func (t tx) ReleaseClaims(ctx context.Context, namespace, epicID string) error {
	_, err := t.Exec(ctx, `UPDATE claims SET state = $3 WHERE namespace = $1 AND state IN (1, 2) AND task_id IN
		(SELECT id FROM tasks WHERE namespace = $1 AND epic_id = $2)`, namespace, epicID, epic.Released)
	return err
}

// Estimated implements store.Tx. Claims with an estimate have an index of their own, so that others are
// not read.
func (t tx) Estimated(ctx context.Context, namespace, epicID, exceptTask string, quiet time.Time) (int64, error) {
	return one(ctx, t, nil, func(row dbkit.Scanner) (n int64, err error) {
		err = row.Scan(&n)
		return n, err
	}, `SELECT CAST(COALESCE(SUM(CASE WHEN rest > 0 THEN rest ELSE 0 END), 0) AS bigint) FROM (
		SELECT c.estimated_tokens - (t.tokens - c.tokens_before) - COALESCE((SELECT SUM(r.tokens) FROM reservations r
			WHERE r.namespace = $1 AND r.task_id <> '' AND r.task_id = c.task_id AND NOT r.estimated), 0) AS rest
		FROM claims c JOIN tasks t ON t.namespace = c.namespace AND t.id = c.task_id
		WHERE c.namespace = $1 AND c.state IN (1, 2) AND c.estimated_tokens > 0 AND (c.state = 2 OR c.lease_until > `+t.d.Now()+`)
			AND NOT (`+quietClaim("$4")+`) AND ($2 = '' OR t.epic_id = $2) AND c.task_id <> $3) x`, namespace, epicID, exceptTask, quiet)
}

// quietClaim holds for a confirmed claim c whose task t stands as it was before a time, and for which nothing
// is reserved: its run waits for something.
func quietClaim(before string) string {
	return `c.state = 2 AND t.update_time < ` + before + ` AND NOT EXISTS (SELECT 1 FROM reservations r
		WHERE r.namespace = c.namespace AND r.task_id <> '' AND r.task_id = c.task_id AND NOT r.estimated)`
}

// QuietEpics implements store.Store.
func (s *Store) QuietEpics(ctx context.Context, quiet time.Time, after store.EpicKey, limit int) (found []store.EpicKey, err error) {
	err = s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) error {
		found, err = collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (k store.EpicKey, err error) {
			err = row.Scan(&k.Namespace, &k.ID)
			return k, err
		}, `SELECT DISTINCT e.namespace, e.id FROM claims c JOIN tasks t ON t.namespace = c.namespace AND t.id = c.task_id
				JOIN epics e ON e.namespace = t.namespace AND e.id = t.epic_id
			WHERE c.state IN (1, 2) AND c.estimated_tokens > 0 AND `+quietClaim("$1")+` AND e.parallel > 0 AND e.state = 2
				AND EXISTS (SELECT 1 FROM tasks o WHERE o.namespace = e.namespace AND o.epic_id = e.id AND o.state = 1 AND o.state IN (1, 2, 3))
				AND (e.namespace, e.id) > ($2, $3) ORDER BY e.namespace, e.id LIMIT $4`, quiet, after.Namespace, after.ID, limit)
		return err
	})
	return found, err
}
