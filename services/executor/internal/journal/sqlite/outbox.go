package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// outboxTenants skips from one namespace to the next, however many items each has.
	outboxTenants = `WITH RECURSIVE ns (n) AS (SELECT min(namespace) FROM outbox UNION ALL
		SELECT (SELECT min(o.namespace) FROM outbox o WHERE o.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)`
	// claimDue is the head of the claim: due are ?2 items, from each namespace in turn. Of a namespace it
	// walks along the first items of runs, in the order in which they are due, takes each with what is due
	// behind it in its run, and ends when it has enough.
	claimDue = outboxTenants + `,
		due AS (SELECT id FROM (
			SELECT d.id, row_number() OVER (PARTITION BY d.namespace ORDER BY d.id) AS turn FROM ns CROSS JOIN outbox d WHERE d.id IN (
				SELECT x.id FROM outbox o CROSS JOIN outbox x WHERE o.namespace = ns.n AND o.next_at <= ` + now + ` AND x.run_id = o.run_id
					AND o.id = (SELECT f.id FROM outbox f WHERE f.run_id = o.run_id ORDER BY f.seq, f.ordinal LIMIT 1)
					AND NOT EXISTS (SELECT 1 FROM outbox p WHERE p.run_id = x.run_id AND (p.seq, p.ordinal) <= (x.seq, x.ordinal) AND p.next_at > ` + now + `)
				ORDER BY o.next_at, o.id, x.seq, x.ordinal LIMIT ?2))
			ORDER BY turn, id LIMIT ?2) `
)

// ClaimOutbox implements journal.Outbox. An item is hidden by moving its time, so a claim that is
// never acknowledged comes back by itself.
func (s *Store) ClaimOutbox(ctx context.Context, limit int, ttl time.Duration) (items []journal.OutboxItem, err error) {
	// Looking first costs no write lock, and mostly there is nothing.
	var due int
	if err := s.db.Read.QueryRowContext(ctx, outboxTenants+`
		SELECT EXISTS (SELECT 1 FROM ns WHERE EXISTS (SELECT 1 FROM outbox o WHERE o.namespace = ns.n AND o.next_at <= `+now+`))`).Scan(&due); err != nil || due == 0 {
		return nil, err
	}
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		rows, err := t.tx.QueryContext(ctx, claimDue+`UPDATE outbox SET next_at = `+now+` + ?1, attempts = attempts + 1 WHERE id IN (SELECT id FROM due)
			RETURNING id, namespace, run_id, seq, ordinal, kind, body, attempts, last_error`, ttl.Microseconds(), limit)
		items, err = dbkit.Collect(rows, err, func(rows *sql.Rows) (i journal.OutboxItem, err error) {
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

// AckOutbox implements journal.Outbox. What is deleted decides what is added, so a second ack adds nothing.
func (s *Store) AckOutbox(ctx context.Context, acks []journal.OutboxAck) error {
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		for _, a := range acks {
			var runID, namespace string
			err := t.row(ctx, `DELETE FROM outbox WHERE id = ? RETURNING run_id, namespace`, a.ID).Scan(&runID, &namespace)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			} else if err != nil {
				return err
			}
			if a.CostNanoUSD == 0 && a.UnpricedCalls == 0 {
				continue
			}
			if _, err := t.exec(ctx, `WITH RECURSIVE up (run_id) AS (
					SELECT ?1 UNION SELECT r.parent_run_id FROM up JOIN runs r ON r.run_id = up.run_id WHERE r.parent_run_id <> '')
				INSERT INTO run_costs (run_id, namespace, cost_nano_usd, unpriced_calls) SELECT run_id, ?2, ?3, ?4 FROM up WHERE true
				ON CONFLICT (run_id) DO UPDATE SET cost_nano_usd = cost_nano_usd + excluded.cost_nano_usd,
					unpriced_calls = unpriced_calls + excluded.unpriced_calls`, runID, namespace, a.CostNanoUSD, a.UnpricedCalls); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("acknowledge outbox: %w", err)
	}
	return nil
}

// RetryOutbox implements journal.Outbox.
func (s *Store) RetryOutbox(ctx context.Context, retries []journal.OutboxRetry) error {
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		for _, r := range retries {
			if _, err := t.exec(ctx, `UPDATE outbox SET next_at = `+now+` + ?, last_error = ? WHERE id = ?`, r.After.Microseconds(), r.Err, r.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("put back outbox: %w", err)
	}
	return nil
}

// Accounting implements journal.Outbox.
func (s *Store) Accounting(ctx context.Context, namespace, runID, kind string) (b journal.Accounting, err error) {
	err = s.db.Read.QueryRowContext(ctx, `WITH RECURSIVE below (run_id) AS (SELECT ?2 UNION ALL
			SELECT r.run_id FROM below b JOIN runs r ON r.namespace = ?1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
		SELECT (SELECT count(*) FROM below b JOIN outbox o ON o.run_id = b.run_id AND o.namespace = ?1 AND o.kind = ?3),
			coalesce(sum(k.cost_nano_usd), 0), coalesce(sum(k.unpriced_calls), 0) FROM run_costs k WHERE k.run_id = ?2 AND k.namespace = ?1`,
		namespace, runID, kind).Scan(&b.Waiting, &b.CostNanoUSD, &b.UnpricedCalls)
	return b, err
}

// OutboxBacklog implements journal.Outbox.
func (s *Store) OutboxBacklog(ctx context.Context) (n int64, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT count(*) FROM outbox`).Scan(&n)
	return n, err
}
