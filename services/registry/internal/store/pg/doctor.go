package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

var _ store.Inspector = (*Store)(nil)

// suspicions are queries whose results are one line of text each. $1 bounds the results, $2 the rows
// examined.
func suspicions() map[store.Suspicion]string {
	return map[store.Suspicion]string{
		store.SuspectTaskTotals: `SELECT id || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
			SELECT x.*, (SELECT coalesce(sum(e.input_tokens + e.output_tokens), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.task_id = x.id) AS tokens_due,
				(SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.task_id = x.id) AS usd_due,
				(SELECT count(*) FROM usage_entries e WHERE e.namespace = x.namespace AND e.task_id = x.id) AS calls_due
			FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT $2) x) y
			WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls + tool_calls <> calls_due LIMIT $1`,
		store.SuspectEpicTotals: `SELECT id || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
			SELECT x.*, (SELECT coalesce(sum(e.input_tokens + e.output_tokens), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.epic_id = x.id) AS tokens_due,
				(SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.epic_id = x.id) AS usd_due,
				(SELECT count(*) FROM usage_entries e WHERE e.namespace = x.namespace AND e.epic_id = x.id) AS calls_due
			FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT $2) x) y
			WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls + tool_calls <> calls_due LIMIT $1`,
		store.SuspectNamespaceTotals: `SELECT namespace || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
			SELECT x.*, (SELECT coalesce(sum(e.input_tokens + e.output_tokens), 0) FROM usage_entries e WHERE e.namespace = x.namespace) AS tokens_due,
				(SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_entries e WHERE e.namespace = x.namespace) AS usd_due,
				(SELECT count(*) FROM usage_entries e WHERE e.namespace = x.namespace) AS calls_due
			FROM (SELECT * FROM namespace_totals ORDER BY namespace LIMIT $2) x) y
			WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls + tool_calls <> calls_due LIMIT $1`,
		store.SuspectTaskCounts: `SELECT id || ': counts ' || total_tasks || ' tasks, ' || completed_tasks || ' completed and ' || failed_tasks || ' failed of ' || n || ', ' || c || ' and ' || f FROM (
			SELECT x.*, (SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id) AS n,
				(SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id AND t.state = 4) AS c,
				(SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id AND t.state = 5) AS f
			FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT $2) x) y
			WHERE total_tasks <> n OR completed_tasks <> c OR failed_tasks <> f LIMIT $1`,
		store.SuspectClaim:        `SELECT task_id || ': claimed for ' || run_id FROM claims WHERE state = 1 AND lease_until < now() - interval '10 minutes' AND ($2::int IS NULL OR $2 > 0) ORDER BY lease_until LIMIT $1`,
		store.SuspectCancellation: `SELECT task_id || ': ended, and run ' || run_id || ' is not canceled' FROM cancellations WHERE create_time < now() - interval '20 minutes' AND ($2::int IS NULL OR $2 > 0) ORDER BY create_time LIMIT $1`,
		store.SuspectRunning: `SELECT t.id || ': running, claimed by nobody, last by ' || t.run_id FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT $2) t
			WHERE t.state = 3 AND t.run_id <> '' AND t.update_time < now() - interval '10 minutes'
				AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.namespace = t.namespace AND c.task_id = t.id AND c.state IN (1, 2)) LIMIT $1`,
	}
}

// Suspects implements store.Inspector.
func (s *Store) Suspects(ctx context.Context, what store.Suspicion, sample, limit int) (found []string, err error) {
	q, ok := suspicions()[what]
	if !ok || what == store.SuspectNamespaceTotals && sample > 0 {
		return nil, nil
	}
	var size *int
	if sample > 0 {
		size = &sample
	}
	err = dbkit.PostgresTxOptions(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		if at, ok := ctx.Deadline(); ok {
			if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1::bigint::text, true)`, max(time.Until(at).Milliseconds(), 1)); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, q, limit, size)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return found, err
}

// Now implements store.Inspector.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now, err
}
