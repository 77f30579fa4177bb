package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

const (
	selectClaim = `SELECT namespace, task_id, run_id, database_id, state, lease_until FROM claims WHERE namespace = $1 AND task_id = $2`
)

func scanClaim(row dbkit.Scanner) (*epic.Claim, error) {
	var c epic.Claim
	err := row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Database, &c.State, dbkit.At(&c.LeaseUntil))
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
	_, err := t.Exec(ctx, `INSERT INTO claims (namespace, task_id, run_id, state, lease_until, database_id) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (namespace, task_id, run_id) DO UPDATE SET state = excluded.state, lease_until = excluded.lease_until`,
		c.Namespace, c.TaskID, c.RunID, c.State, c.LeaseUntil, c.Database)
	return err
}

// ReleaseClaims implements store.Tx.
func (t tx) ReleaseClaims(ctx context.Context, namespace, epicID string) error {
	_, err := t.Exec(ctx, `UPDATE claims SET state = $3 WHERE namespace = $1 AND state IN (1, 2) AND task_id IN
		(SELECT id FROM tasks WHERE namespace = $1 AND epic_id = $2)`, namespace, epicID, epic.Released)
	return err
}
