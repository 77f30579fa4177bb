package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

var _ store.Inspector = (*Store)(nil)

// suspicions are queries whose results are one line of text each. ?1 bounds the results, ?2 the rows
// examined.
func suspicions() map[store.Suspicion]string {
	return map[store.Suspicion]string{
		store.SuspectTaskTotals: `SELECT id || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
			SELECT x.*, (SELECT coalesce(sum(e.input_tokens + e.output_tokens), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.task_id = x.id) AS tokens_due,
				(SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.task_id = x.id) AS usd_due,
				(SELECT count(*) FROM usage_entries e WHERE e.namespace = x.namespace AND e.task_id = x.id) AS calls_due
			FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT ?2) x) y
			WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls + tool_calls <> calls_due LIMIT ?1`,
		store.SuspectEpicTotals: `SELECT id || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
			SELECT x.*, (SELECT coalesce(sum(e.input_tokens + e.output_tokens), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.epic_id = x.id) AS tokens_due,
				(SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_entries e WHERE e.namespace = x.namespace AND e.epic_id = x.id) AS usd_due,
				(SELECT count(*) FROM usage_entries e WHERE e.namespace = x.namespace AND e.epic_id = x.id) AS calls_due
			FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT ?2) x) y
			WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls + tool_calls <> calls_due LIMIT ?1`,
		store.SuspectNamespaceTotals: `SELECT namespace || ': ' || nano_usd || ' nano-USD and ' || tokens || ' tokens booked, ' || usd_due || ' and ' || tokens_due || ' used' FROM (
			SELECT x.*, (SELECT coalesce(sum(e.input_tokens + e.output_tokens), 0) FROM usage_entries e WHERE e.namespace = x.namespace) AS tokens_due,
				(SELECT coalesce(sum(e.cost_nano_usd), 0) FROM usage_entries e WHERE e.namespace = x.namespace) AS usd_due,
				(SELECT count(*) FROM usage_entries e WHERE e.namespace = x.namespace) AS calls_due
			FROM (SELECT * FROM namespace_totals ORDER BY namespace LIMIT ?2) x) y
			WHERE tokens <> tokens_due OR nano_usd <> usd_due OR model_calls + tool_calls <> calls_due LIMIT ?1`,
		store.SuspectTaskCounts: `SELECT id || ': counts ' || total_tasks || ' tasks, ' || completed_tasks || ' completed and ' || failed_tasks || ' failed of ' || n || ', ' || c || ' and ' || f FROM (
			SELECT x.*, (SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id) AS n,
				(SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id AND t.state = 4) AS c,
				(SELECT count(*) FROM tasks t WHERE t.namespace = x.namespace AND t.epic_id = x.id AND t.state = 5) AS f
			FROM (SELECT * FROM epics ORDER BY namespace, id DESC LIMIT ?2) x) y
			WHERE total_tasks <> n OR completed_tasks <> c OR failed_tasks <> f LIMIT ?1`,
		store.SuspectClaim:        `SELECT task_id || ': claimed for ' || run_id FROM claims WHERE state = 1 AND lease_until < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 600000000 AND ?2 <> 0 ORDER BY lease_until LIMIT ?1`,
		store.SuspectCancellation: `SELECT task_id || ': ended, and run ' || run_id || ' is not canceled' FROM cancellations WHERE create_time < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 1200000000 AND ?2 <> 0 ORDER BY create_time LIMIT ?1`,
		store.SuspectRunning: `SELECT t.id || ': running, claimed by nobody, last by ' || t.run_id FROM (SELECT * FROM tasks ORDER BY namespace, id DESC LIMIT ?2) t
			WHERE t.state = 3 AND t.run_id <> '' AND t.update_time < CAST(unixepoch('subsec') * 1000000 AS INTEGER) - 600000000
				AND NOT EXISTS (SELECT 1 FROM claims c WHERE c.namespace = t.namespace AND c.task_id = t.id AND c.state IN (1, 2)) LIMIT ?1`,
	}
}

// Suspects implements store.Inspector.
func (s *Store) Suspects(ctx context.Context, what store.Suspicion, sample, limit int) (found []string, err error) {
	q, ok := suspicions()[what]
	if !ok || what == store.SuspectNamespaceTotals && sample > 0 {
		return nil, nil
	}
	if sample <= 0 {
		sample = -1
	}
	rows, err := s.db.Read.QueryContext(ctx, q, limit, sample)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (line string, err error) {
		err = rows.Scan(&line)
		return line, err
	})
}

// Now implements store.Inspector.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var us int64
	err := s.db.Read.QueryRowContext(ctx, `SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)`).Scan(&us)
	return dbkit.FromUnixMicros(us), err
}
