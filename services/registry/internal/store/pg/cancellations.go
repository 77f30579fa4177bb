package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
)

// One that is there already keeps its time and reason.
const insertCancellation = `INSERT INTO cancellations (namespace, run_id, task_id, reason, create_time, lease_until, confirmed, database_id) `

// CancelRuns implements store.Tx.
func (t tx) CancelRuns(ctx context.Context, namespace, epicID, taskID, reason string) error {
	_, err := t.Exec(ctx, insertCancellation+`SELECT c.namespace, c.run_id, c.task_id, $4, clock_timestamp(), clock_timestamp(), c.state = $6, c.database_id
		FROM claims c JOIN tasks t ON t.namespace = c.namespace AND t.id = c.task_id
		WHERE t.namespace = $1 AND t.epic_id = $2 AND ($3 = '' OR t.id = $3) AND c.state <> $5 ON CONFLICT DO NOTHING`,
		namespace, epicID, taskID, reason, epic.Settled, epic.Confirmed)
	return err
}

// CancelRun implements store.Tx.
func (t tx) CancelRun(ctx context.Context, namespace, taskID, runID, database, reason string) error {
	_, err := t.Exec(ctx, insertCancellation+`VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp(), true, $5)
		ON CONFLICT (namespace, run_id, task_id) DO UPDATE SET confirmed = true`,
		namespace, runID, taskID, reason, database)
	return err
}

// ForgetCancellation implements store.Tx.
func (t tx) ForgetCancellation(ctx context.Context, namespace, taskID, runID string) error {
	_, err := t.Exec(ctx, `DELETE FROM cancellations WHERE namespace = $1 AND run_id = $2 AND task_id = $3`, namespace, runID, taskID)
	return err
}

// LeaseCancellations implements store.Store.
func (s *Store) LeaseCancellations(ctx context.Context, database string, limit int, hold time.Duration) ([]epic.Cancellation, error) {
	rows, err := s.pool.Query(ctx, `UPDATE cancellations c SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
		FROM (SELECT namespace, run_id, task_id FROM cancellations WHERE database_id IN ('', $3) AND lease_until <= clock_timestamp()
			ORDER BY lease_until LIMIT $1 FOR UPDATE SKIP LOCKED) due
		WHERE c.namespace = due.namespace AND c.run_id = due.run_id AND c.task_id = due.task_id
		RETURNING c.namespace, c.task_id, c.run_id, c.reason, c.create_time, c.confirmed`, limit, hold.Microseconds(), database)
	if err != nil {
		return nil, passing(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c epic.Cancellation, err error) {
		err = row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Reason, &c.Time, &c.Confirmed)
		c.Time = c.Time.UTC()
		return c, err
	})
	return out, passing(err)
}

// AcknowledgeCancellations implements store.Store.
func (s *Store) AcknowledgeCancellations(ctx context.Context, done []epic.Cancellation) error {
	namespaces, runs, tasks := make([]string, len(done)), make([]string, len(done)), make([]string, len(done))
	for i, c := range done {
		namespaces[i], runs[i], tasks[i] = c.Namespace, c.RunID, c.TaskID
	}
	_, err := s.pool.Exec(ctx, `DELETE FROM cancellations c USING unnest($1::text[], $2::text[], $3::text[]) AS d (namespace, run_id, task_id)
		WHERE c.namespace = d.namespace AND c.run_id = d.run_id AND c.task_id = d.task_id`, namespaces, runs, tasks)
	return passing(err)
}
