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

// leaseDue skips from one namespace of a database to the next, however many cancellations each has. $1 of
// those that are due it takes from each in turn: of a namespace it reads the $1 oldest at most. The rows are
// locked only once they are chosen, and checked again: another lease may have chosen the same ones. The
// planner takes an array for short, and so never reads the whole table to find the rows of keys.
const leaseDue = `WITH RECURSIVE dbs (d) AS (SELECT ''::text COLLATE "C" UNION SELECT $3::text COLLATE "C"),
	ns (d, n) AS (
		SELECT dbs.d, (SELECT min(c.namespace) FROM cancellations c WHERE c.database_id = dbs.d) FROM dbs UNION ALL
		SELECT ns.d, (SELECT min(c.namespace) FROM cancellations c WHERE c.database_id = ns.d AND c.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL),
	turns AS (
		SELECT o.*, row_number() OVER (PARTITION BY o.namespace ORDER BY o.lease_until) AS turn FROM ns CROSS JOIN LATERAL (
			SELECT namespace, run_id, task_id, lease_until FROM cancellations
			WHERE database_id = ns.d AND namespace = ns.n AND lease_until <= now() ORDER BY lease_until LIMIT $1) o),
	chosen AS (SELECT namespace, run_id, task_id FROM turns ORDER BY turn, lease_until LIMIT $1),
	due AS (
		SELECT l.* FROM chosen CROSS JOIN LATERAL (SELECT namespace, run_id, task_id FROM cancellations c
			WHERE c.namespace = chosen.namespace AND c.run_id = chosen.run_id AND c.task_id = chosen.task_id AND c.lease_until <= now()
			FOR UPDATE SKIP LOCKED) l),
	keys AS (SELECT array_agg(namespace) AS namespaces, array_agg(run_id) AS runs, array_agg(task_id) AS tasks FROM due) `

// LeaseCancellations implements store.Store.
func (s *Store) LeaseCancellations(ctx context.Context, database string, limit int, hold time.Duration) ([]epic.Cancellation, error) {
	rows, err := s.pool.Query(ctx, leaseDue+`UPDATE cancellations c SET lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
		FROM keys CROSS JOIN unnest(keys.namespaces, keys.runs, keys.tasks) AS d (namespace, run_id, task_id)
		WHERE c.namespace = d.namespace AND c.run_id = d.run_id AND c.task_id = d.task_id
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
