package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// outboxTenants skips from one namespace to the next, however many items each has.
	outboxTenants = `WITH RECURSIVE ns (n) AS ((SELECT min(namespace) FROM outbox) UNION ALL
		SELECT (SELECT min(o.namespace) FROM outbox o WHERE o.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL)`
	// claimDue is the head of the claim: due are $1 items, from each namespace in turn. Of a namespace it
	// walks along the first items of runs, in the order in which they are due, takes each with what is due
	// behind it in its run, and ends when it has enough.
	claimDue = outboxTenants + `,
		due AS (
			SELECT d.id FROM ns CROSS JOIN LATERAL (
				SELECT c.id, row_number() OVER (ORDER BY c.id) AS turn FROM (
					SELECT x.id FROM outbox o CROSS JOIN LATERAL (
						SELECT p.id, p.place FROM (
							SELECT q.id, row_number() OVER w AS place, max(q.next_at) OVER w AS latest
							FROM (SELECT id, seq, ordinal, next_at FROM outbox WHERE run_id = o.run_id ORDER BY seq, ordinal LIMIT $1) q
							WINDOW w AS (ORDER BY q.seq, q.ordinal)) p
						WHERE p.latest <= now()) x
					WHERE o.namespace = ns.n AND o.next_at <= now()
						AND o.id = (SELECT f.id FROM outbox f WHERE f.run_id = o.run_id ORDER BY f.seq, f.ordinal LIMIT 1)
					ORDER BY o.next_at, o.id, x.place LIMIT $1) c) d
			ORDER BY d.turn, d.id LIMIT $1)`
)

// ClaimOutbox implements journal.Outbox. Claims take turns by an advisory lock: two at once could
// each see the head of a run as free and give its items out in the wrong order. An item is hidden by
// moving its time, so a claim that is never acknowledged comes back by itself.
func (s *Store) ClaimOutbox(ctx context.Context, limit int, ttl time.Duration) (items []journal.OutboxItem, err error) {
	// Looking first is one message, and mostly there is nothing.
	var due bool
	if err := s.hot.QueryRow(ctx, outboxTenants+`
		SELECT EXISTS (SELECT FROM ns WHERE EXISTS (SELECT FROM outbox o WHERE o.namespace = ns.n AND o.next_at <= now() OFFSET 0))`).Scan(&due); err != nil || !due {
		return nil, err
	}
	err = dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		items = nil
		var mine bool
		if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock(hashtextextended('epigraph/outbox', 0))`).Scan(&mine); err != nil || !mine {
			return err
		}
		rows, err := tx.Query(ctx, claimDue+`,
			got AS (UPDATE outbox o SET next_at = now() + $2::interval, attempts = o.attempts + 1 FROM due WHERE o.id = due.id
				RETURNING o.id, o.namespace, o.run_id, o.seq, o.ordinal, o.kind, o.body, o.attempts, o.last_error)
			SELECT * FROM got ORDER BY id`, limit, interval(ttl))
		items, err = collect(rows, err, func(row pgx.CollectableRow) (i journal.OutboxItem, err error) {
			err = row.Scan(&i.ID, &i.Namespace, &i.RunID, &i.Seq, &i.Ordinal, &i.Kind, &i.Body, &i.Attempts, &i.LastError)
			return i, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim outbox: %w", err)
	}
	return items, nil
}

// AckOutbox implements journal.Outbox. What is deleted decides what is added, so a second ack adds
// nothing; costs are added in the order of run ids, so that acks do not wait for each other in a circle.
func (s *Store) AckOutbox(ctx context.Context, acks []journal.OutboxAck) error {
	ids, costs, unpriced := make([]int64, len(acks)), make([]int64, len(acks)), make([]int64, len(acks))
	for i, a := range acks {
		ids[i], costs[i], unpriced[i] = a.ID, a.CostNanoUSD, a.UnpricedCalls
	}
	err := dbkit.PostgresTx(ctx, s.hot, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `WITH RECURSIVE a AS (SELECT DISTINCT ON (id) * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS t (id, cost, unpriced)),
			locked AS MATERIALIZED (SELECT id FROM outbox WHERE id = ANY ($1) ORDER BY id FOR UPDATE),
			deleted AS (DELETE FROM outbox WHERE id = ANY (ARRAY (SELECT id FROM locked)) RETURNING id, run_id, namespace),
			gone AS (SELECT d.run_id, d.namespace, a.cost, a.unpriced FROM deleted d JOIN a ON a.id = d.id WHERE a.cost <> 0 OR a.unpriced <> 0),
			up AS (SELECT * FROM gone
				UNION ALL SELECT r.parent_run_id, up.namespace, up.cost, up.unpriced FROM up JOIN runs r ON r.run_id = up.run_id WHERE r.parent_run_id <> '')
			INSERT INTO run_costs AS k (run_id, namespace, cost_nano_usd, unpriced_calls)
			SELECT run_id, min(namespace), sum(cost), sum(unpriced) FROM up GROUP BY run_id ORDER BY run_id
			ON CONFLICT (run_id) DO UPDATE SET cost_nano_usd = k.cost_nano_usd + excluded.cost_nano_usd,
				unpriced_calls = k.unpriced_calls + excluded.unpriced_calls`, ids, costs, unpriced)
		return err
	})
	if err != nil {
		return fmt.Errorf("acknowledge outbox: %w", err)
	}
	return nil
}

// RetryOutbox implements journal.Outbox.
func (s *Store) RetryOutbox(ctx context.Context, retries []journal.OutboxRetry) error {
	ids, after, texts := make([]int64, len(retries)), make([]time.Duration, len(retries)), make([]string, len(retries))
	for i, r := range retries {
		ids[i], after[i], texts[i] = r.ID, interval(r.After), r.Err
	}
	if _, err := s.hot.Exec(ctx, `UPDATE outbox o SET next_at = now() + r.after, last_error = r.err
		FROM unnest($1::bigint[], $2::interval[], $3::text[]) AS r (id, after, err) WHERE o.id = r.id AND o.id = ANY ($1)`, ids, after, texts); err != nil {
		return fmt.Errorf("put back outbox: %w", err)
	}
	return nil
}

// Accounting implements journal.Outbox.
func (s *Store) Accounting(ctx context.Context, namespace, runID, kind string) (b journal.Accounting, err error) {
	err = s.read.QueryRow(ctx, `WITH RECURSIVE below AS (SELECT $2::text COLLATE "C" AS run_id UNION ALL SELECT r.run_id FROM below b`+itsChildren+`)
		SELECT (SELECT count(*) FROM below b JOIN outbox o ON o.run_id = b.run_id AND o.namespace = $1 AND o.kind = $3),
			coalesce(sum(k.cost_nano_usd), 0)::bigint, coalesce(sum(k.unpriced_calls), 0)::bigint FROM run_costs k WHERE k.run_id = $2 AND k.namespace = $1`,
		namespace, runID, kind).Scan(&b.Waiting, &b.CostNanoUSD, &b.UnpricedCalls)
	return b, away(err)
}

// OutboxBacklog implements journal.Outbox.
func (s *Store) OutboxBacklog(ctx context.Context) (n int64, err error) {
	err = s.read.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&n)
	return n, err
}
