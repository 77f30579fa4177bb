package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Tenants is a CTE ns (n) of the namespaces of a table. It skips from one to the next by an index, however
// many rows each has. The condition begins with AND, if it is not empty, and is about rows t.
func Tenants(table, cond string) string {
	return fmt.Sprintf(`WITH RECURSIVE ns (n) AS (SELECT min(t.namespace) FROM %[1]s t WHERE true%[2]s UNION ALL
		SELECT (SELECT min(t.namespace) FROM %[1]s t WHERE t.namespace > ns.n%[2]s) FROM ns WHERE ns.n IS NOT NULL)`, table, cond)
}

// ClaimOutbox implements journal.Outbox. Claims take turns: two at once could each see the head of a run as
// free and give its items out in the wrong order. An item is hidden by moving its time, so a claim that is
// never acknowledged comes back by itself.
func (s *Store) ClaimOutbox(ctx context.Context, limit int, ttl time.Duration) (items []journal.OutboxItem, err error) {
	now := s.d.Now()
	// This look locks nothing, and mostly there is nothing.
	var due bool
	if err := dbkit.FirstRow(s.db.Engine.Query(ctx, Tenants(`outbox`, ``)+` SELECT EXISTS (SELECT 1 FROM ns
		WHERE (SELECT o.id FROM outbox o WHERE o.namespace = ns.n AND o.next_at <= `+now+` LIMIT 1) IS NOT NULL)`)).Scan(&due); err != nil || !due {
		return nil, err
	}
	err = s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		items = nil
		if s.db.TryLock != "" {
			var mine bool
			if err := dbkit.FirstRow(tx.Query(ctx, s.db.TryLock, "epigraph/outbox")).Scan(&mine); err != nil || !mine {
				return err
			}
		}
		rows, err := tx.Query(ctx, s.db.DueOutbox+` UPDATE outbox SET next_at = `+now+` + `+s.d.Span(`$2`)+`, attempts = attempts + 1
			WHERE `+s.d.InSelect(`id`, `SELECT id FROM due`)+`
			RETURNING id, namespace, run_id, seq, ordinal, kind, body, attempts, last_error`, limit, ttl)
		items, err = dbkit.Collect(rows, err, func(rows dbkit.Rows) (i journal.OutboxItem, err error) {
			err = rows.Scan(&i.ID, &i.Namespace, &i.RunID, &i.Seq, &i.Ordinal, &i.Kind, &i.Body, &i.Attempts, &i.LastError)
			return i, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim outbox: %w", err)
	}
	slices.SortFunc(items, func(a, b journal.OutboxItem) int { return cmp.Compare(a.ID, b.ID) })
	return items, nil
}

// cost is what an item adds to its run.
type cost struct {
	runID, namespace     string
	nanoUSD, unpriced    int64
	calls, input, output int64
}

// AckOutbox implements journal.Outbox. What is deleted decides what is added, so a second ack adds nothing.
// Items are locked in the order of their ids and costs in that of their runs, so that acks do not wait for
// each other in a circle.
func (s *Store) AckOutbox(ctx context.Context, acks []journal.OutboxAck) error {
	byID := make(map[int64]journal.OutboxAck, len(acks))
	ids := make([]int64, len(acks))
	priced := false
	for i, a := range acks {
		byID[a.ID], ids[i] = a, a.ID
		priced = priced || a.CostNanoUSD != 0 || a.UnpricedCalls != 0 || a.Calls != 0
	}
	gone := `DELETE FROM outbox WHERE ` + s.d.InSelect(`id`, `SELECT id FROM outbox WHERE `+s.d.In(`id`, `$1`)+` ORDER BY id`+s.d.Locked())
	if !priced {
		// Most acks have no costs, and are one statement without a transaction around it.
		if err := s.write(ctx, gone, ids); err != nil {
			return fmt.Errorf("acknowledge outbox: %w", err)
		}
		return nil
	}
	err := s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		rows, err := tx.Query(ctx, gone+` RETURNING id, run_id, namespace`, ids)
		costs, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (c cost, err error) {
			var id int64
			err = rows.Scan(&id, &c.runID, &c.namespace)
			a := byID[id]
			c.nanoUSD, c.unpriced, c.calls, c.input, c.output = a.CostNanoUSD, a.UnpricedCalls, a.Calls, a.InputTokens, a.OutputTokens
			return c, err
		})
		costs = slices.DeleteFunc(costs, func(c cost) bool { return c.nanoUSD == 0 && c.unpriced == 0 && c.calls == 0 })
		if err != nil || len(costs) == 0 {
			return err
		}
		return s.addCosts(ctx, tx, costs)
	})
	if err != nil {
		return fmt.Errorf("acknowledge outbox: %w", err)
	}
	return nil
}

// addCosts adds costs to their runs and to all runs above these.
func (s *Store) addCosts(ctx context.Context, tx dbkit.Querier, costs []cost) error {
	rows := make([][]any, len(costs))
	for i, c := range costs {
		rows[i] = []any{c.runID, c.namespace, c.nanoUSD, c.unpriced, c.calls, c.input, c.output}
	}
	columns := [][2]string{{"run_id", "text"}, {"namespace", "text"}, {"cost", "bigint"}, {"unpriced", "bigint"}, {"calls", "bigint"}, {"input", "bigint"}, {"output", "bigint"}}
	_, err := tx.Exec(ctx, `WITH RECURSIVE up (run_id, namespace, cost, unpriced, calls, input, output) AS (SELECT * FROM `+s.d.Rows(`c`, 1, columns...)+`
			UNION ALL SELECT r.parent_run_id, up.namespace, up.cost, up.unpriced, up.calls, up.input, up.output
			FROM up JOIN runs r ON r.run_id = up.run_id WHERE r.parent_run_id <> '')
		INSERT INTO run_costs AS k (run_id, namespace, cost_nano_usd, unpriced_calls, calls, input_tokens, output_tokens)
		SELECT run_id, min(namespace), sum(cost), sum(unpriced), sum(calls), sum(input), sum(output) FROM up WHERE true GROUP BY run_id ORDER BY run_id
		ON CONFLICT (run_id) DO UPDATE SET cost_nano_usd = k.cost_nano_usd + excluded.cost_nano_usd,
			unpriced_calls = k.unpriced_calls + excluded.unpriced_calls, calls = k.calls + excluded.calls,
			input_tokens = k.input_tokens + excluded.input_tokens, output_tokens = k.output_tokens + excluded.output_tokens`,
		s.d.RowArgs(len(columns), rows)...)
	return err
}

// RetryOutbox implements journal.Outbox.
func (s *Store) RetryOutbox(ctx context.Context, retries []journal.OutboxRetry) error {
	retries = slices.SortedFunc(slices.Values(retries), func(a, b journal.OutboxRetry) int { return cmp.Compare(a.ID, b.ID) })
	stmts := make([]dbkit.Stmt, len(retries))
	for i, r := range retries {
		stmts[i] = dbkit.Stmt{
			Query: `UPDATE outbox SET next_at = ` + s.d.Now() + ` + ` + s.d.Span(`$1`) + `, last_error = $2 WHERE id = $3`,
			Args:  []any{r.After, r.Err, r.ID},
		}
	}
	if err := s.db.Engine.Batch(ctx, stmts...); err != nil {
		return fmt.Errorf("put back outbox: %w", err)
	}
	return nil
}

// Accounting implements journal.Outbox.
func (s *Store) Accounting(ctx context.Context, namespace, runID, kind string) (b journal.Accounting, err error) {
	sum := func(column string) string { return `CAST(coalesce(sum(` + column + `), 0) AS bigint)` }
	costs := sum(`k.cost_nano_usd`) + `, ` + sum(`k.unpriced_calls`) + `, ` + sum(`k.calls`) + `, ` + sum(`k.input_tokens`) + `, ` + sum(`k.output_tokens`) +
		` FROM run_costs k WHERE k.run_id = $2 AND k.namespace = $1`
	query, args := `SELECT 0, `+costs, []any{namespace, runID}
	if kind != "" {
		query, args = `WITH RECURSIVE `+s.below(`SELECT `+s.d.Text(`$2`), `run_id`)+`
			SELECT (SELECT count(*) FROM below b JOIN outbox o ON o.run_id = b.run_id AND o.namespace = $1 AND o.kind = $3), `+costs, append(args, kind)
	}
	err = dbkit.FirstRow(s.db.Read.Query(ctx, query, args...)).Scan(&b.Waiting, &b.CostNanoUSD, &b.UnpricedCalls, &b.Calls, &b.InputTokens, &b.OutputTokens)
	return b, err
}

// OutboxBacklog implements journal.Outbox.
func (s *Store) OutboxBacklog(ctx context.Context) (n int64, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT count(*) FROM outbox`)).Scan(&n)
	return n, err
}

// QuarantinedSQL reads of a run what ScanQuarantined takes.
func QuarantinedSQL(param string) string {
	return `SELECT r.parent_run_id, r.task_id, r.epic_id, d.metadata FROM runs r LEFT JOIN run_details d ON d.run_id = r.run_id WHERE r.run_id = ` + param
}

// ScanQuarantined reads a row of QuarantinedSQL.
func ScanQuarantined(row dbkit.Scanner) (r journal.Run, err error) {
	err = row.Scan(&r.ParentID, &r.TaskID, &r.EpicID, &r.Metadata)
	return r, err
}
