package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	insertOrder = `INSERT INTO orders (namespace, run_id, task_id, id, kind, reason, create_time, lease_until, confirmed, database_id) `
	// replaceOrder leaves a cancel that is there already its time and reason. Nothing replaces a
	// cancel.
	replaceOrder = ` ON CONFLICT (namespace, run_id, task_id) DO UPDATE SET id = excluded.id, kind = excluded.kind, reason = excluded.reason,
		create_time = excluded.create_time, tries = 0`
	forgetOrder = `DELETE FROM orders WHERE namespace = $1 AND run_id = $2 AND task_id = $3`
)

// CancelRuns implements store.Tx.
func (t tx) CancelRuns(ctx context.Context, namespace, epicID, taskID, reason string) error {
	now := t.d.Now()
	_, err := t.Exec(ctx, insertOrder+`SELECT c.namespace, c.run_id, c.task_id, $7, 1, $4, `+now+`, `+now+`, c.state = $6, c.database_id
		FROM claims c JOIN tasks t ON t.namespace = c.namespace AND t.id = c.task_id
		WHERE t.namespace = $1 AND t.epic_id = $2 AND ($3 = '' OR t.id = $3) AND c.state <> $5`+
		replaceOrder+`, lease_until = excluded.lease_until WHERE orders.kind <> 1`,
		namespace, epicID, taskID, reason, epic.Settled, epic.Confirmed, ids.New(epic.OrderPrefix))
	return err
}

// CancelRun implements store.Tx.
func (t tx) CancelRun(ctx context.Context, namespace, taskID, runID, database, reason string) error {
	now := t.d.Now()
	_, err := t.Exec(ctx, insertOrder+`VALUES ($1, $2, $3, $6, 1, $4, `+now+`, `+now+`, true, $5)
		ON CONFLICT (namespace, run_id, task_id) DO UPDATE SET confirmed = true,
			id = CASE orders.kind WHEN 1 THEN orders.id ELSE excluded.id END, reason = CASE orders.kind WHEN 1 THEN orders.reason ELSE excluded.reason END, kind = 1`,
		namespace, runID, taskID, reason, database, ids.New(epic.OrderPrefix))
	return err
}

// OrderRuns implements store.Tx.
func (t tx) OrderRuns(ctx context.Context, namespace, epicID, taskID string, kind epic.OrderKind, reason string) error {
	now := t.d.Now()
	_, err := t.Exec(ctx, insertOrder+`SELECT c.namespace, c.run_id, c.task_id, $7, $5, $4, `+now+`, `+now+`, true, c.database_id
		FROM tasks t`+t.d.LookUp(`claims`, `c`, `c.namespace = t.namespace AND c.task_id = t.id`)+`
		WHERE t.namespace = $1 AND t.epic_id = $2 AND ($3 = '' OR t.id = $3) AND t.state = 3 AND t.state IN (1, 2, 3) AND c.state = $6`+
		replaceOrder+` WHERE orders.kind <> 1`,
		namespace, epicID, taskID, reason, int16(kind), epic.Confirmed, ids.New(epic.OrderPrefix))
	return err
}

// ForgetOrder implements store.Tx.
func (t tx) ForgetOrder(ctx context.Context, namespace, taskID, runID string) error {
	_, err := t.Exec(ctx, forgetOrder, namespace, runID, taskID)
	return err
}

// AnyOpen implements store.Tx.
func (t tx) AnyOpen(ctx context.Context, namespace, epicID string) (bool, error) {
	n, err := t.count(ctx, `SELECT 1 FROM tasks WHERE namespace = $1 AND epic_id = $2 AND state IN (1, 2, 3) LIMIT 1`, namespace, epicID)
	return n > 0, err
}

// AnyRetryable implements store.Tx.
func (t tx) AnyRetryable(ctx context.Context, namespace, epicID string) (bool, error) {
	n, err := t.count(ctx, `SELECT 1 FROM tasks WHERE namespace = $1 AND epic_id = $2 AND state = 5 AND ended_by = '' AND retry_count < max_retries LIMIT 1`,
		namespace, epicID)
	return n > 0, err
}

// Busy implements store.Tx.
func (t tx) Busy(ctx context.Context, namespace, epicID string, most int) (int, error) {
	running, err := t.count(ctx, `SELECT 1 FROM tasks t WHERE t.namespace = $1 AND t.epic_id = $2 AND t.state = 3 AND t.state IN (1, 2, 3)
		AND `+t.d.Holds(`claims`, `c`, `c.namespace = t.namespace AND c.task_id = t.id AND c.state IN (1, 2)`)+` LIMIT $3`, namespace, epicID, most)
	if err != nil {
		return 0, err
	}
	starting, err := t.count(ctx, `SELECT 1 FROM orders WHERE namespace = $1 AND epic_id = $2 AND kind = 4 LIMIT $3`, namespace, epicID, most)
	return min(running+starting, most), err
}

// Ready implements store.Tx.
func (t tx) Ready(ctx context.Context, namespace, epicID string, limit int) ([]epic.Ready, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (r epic.Ready, err error) {
		err = row.Scan(&r.TaskID, &r.RetryCount, &r.EstimatedTokens)
		return r, err
	}, `SELECT t.id, t.retry_count, t.estimated_tokens FROM tasks t WHERE t.namespace = $1 AND t.epic_id = $2 AND t.state = 1 AND t.state IN (1, 2, 3)
		AND NOT `+t.d.Holds(`orders`, `o`, `o.namespace = t.namespace AND o.run_id = '' AND o.task_id = t.id`)+`
		ORDER BY t.priority, t.id LIMIT $3`, namespace, epicID, limit)
}

// EstimatedStarts implements store.Tx.
func (t tx) EstimatedStarts(ctx context.Context, namespace, epicID string) (int64, error) {
	return one(ctx, t, nil, func(row dbkit.Scanner) (n int64, err error) {
		err = row.Scan(&n)
		return n, err
	}, `SELECT CAST(COALESCE(SUM(t.estimated_tokens), 0) AS bigint) FROM orders o JOIN tasks t ON t.namespace = o.namespace AND t.id = o.task_id
		WHERE o.namespace = $1 AND o.epic_id = $2 AND o.kind = 4 AND NOT EXISTS (SELECT 1 FROM claims c
			WHERE c.namespace = t.namespace AND c.task_id = t.id AND c.state IN (1, 2))`, namespace, epicID)
}

// OrderStarts implements store.Tx.
func (t tx) OrderStarts(ctx context.Context, namespace, epicID string, tasks []epic.Ready) error {
	now := t.d.Now()
	for _, r := range tasks {
		if _, err := t.Exec(ctx, `INSERT INTO orders (namespace, run_id, task_id, id, kind, reason, create_time, lease_until, epic_id)
			VALUES ($1, '', $2, $3, 4, $4, `+now+`, `+now+` + `+t.d.Span(`$5`)+`, $6) ON CONFLICT DO NOTHING`,
			namespace, r.TaskID, ids.New(epic.OrderPrefix), epic.ReasonTaskReady, r.Pause(), epicID); err != nil {
			return err
		}
	}
	return nil
}

// StartOrder implements store.Tx.
func (t tx) StartOrder(ctx context.Context, namespace, taskID string) (string, error) {
	return one(ctx, t, nil, func(row dbkit.Scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT id FROM orders WHERE namespace = $1 AND run_id = '' AND task_id = $2`, namespace, taskID)
}

// ForgetStarts implements store.Tx.
func (t tx) ForgetStarts(ctx context.Context, namespace, epicID, taskID string) error {
	if taskID != "" {
		return t.ForgetOrder(ctx, namespace, taskID, "")
	}
	_, err := t.Exec(ctx, `DELETE FROM orders WHERE namespace = $1 AND epic_id = $2 AND kind = 4`, namespace, epicID)
	return err
}

// Overspent implements store.Tx.
func (t tx) Overspent(ctx context.Context, namespace string, epics []string) ([]string, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT id FROM epics WHERE namespace = $1 AND `+t.d.In(`id`, `$2`)+` AND parallel > 0 AND state = 2
		AND (tokens >= budget_tokens OR nano_usd >= budget_nano_usd) ORDER BY id`, namespace, epics)
}

// SelfRunning implements store.Reader.
func (t tx) SelfRunning(ctx context.Context, namespace string, tasks, epics []string) ([]store.SelfRunning, error) {
	return collect(ctx, t, func(row dbkit.Scanner) (e store.SelfRunning, err error) {
		err = row.Scan(&e.TaskID, &e.EpicID, &e.State, &e.PauseReason)
		return e, err
	}, `SELECT t.id, e.id, e.state, e.pause_reason FROM tasks t JOIN epics e ON e.namespace = t.namespace AND e.id = t.epic_id
		WHERE t.namespace = $1 AND `+t.d.In(`t.id`, `$2`)+` AND e.parallel > 0
		UNION ALL SELECT '', e.id, e.state, e.pause_reason FROM epics e WHERE e.namespace = $1 AND `+t.d.In(`e.id`, `$3`)+` AND e.parallel > 0`,
		namespace, tasks, epics)
}

// capped holds for epics that a cap of their namespace has stopped. It is that of an index.
const capped = `e.pause_reason = 'NAMESPACE_CAP_REACHED'`

// CappedEpics implements store.Reader.
func (t tx) CappedEpics(ctx context.Context, namespace, after string, all bool, limit int) ([]string, error) {
	cond := ""
	if !all {
		cond = ` AND NOT EXISTS (SELECT 1 FROM tasks t JOIN claims c ON c.namespace = t.namespace AND c.task_id = t.id
			WHERE t.namespace = e.namespace AND t.epic_id = e.id AND t.state IN (1, 2, 3) AND c.state IN (1, 2))`
	}
	return collect(ctx, t, func(row dbkit.Scanner) (id string, err error) {
		err = row.Scan(&id)
		return id, err
	}, `SELECT e.id FROM epics e WHERE e.namespace = $1 AND `+capped+` AND e.id > $2`+cond+` ORDER BY e.id LIMIT $3`, namespace, after, limit)
}

// CappedNamespaces implements store.Store.
func (s *Store) CappedNamespaces(ctx context.Context, after string, limit int) (found []string, err error) {
	err = s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) error {
		// A namespace is skipped to from the one before it, however many such epics each has.
		found, err = collect(ctx, tx{q, s.d, nil}, func(row dbkit.Scanner) (n string, err error) {
			err = row.Scan(&n)
			return n, err
		}, `WITH RECURSIVE ns (n) AS (SELECT min(e.namespace) FROM epics e WHERE `+capped+` AND e.namespace > $1 UNION ALL
				SELECT (SELECT min(e.namespace) FROM epics e WHERE `+capped+` AND e.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)
			SELECT n FROM ns WHERE n IS NOT NULL LIMIT $2`, after, limit)
		return err
	})
	return found, err
}
