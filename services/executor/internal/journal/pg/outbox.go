package pg

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// dueOutbox is the head of a claim: due are $1 items, from each namespace in turn. In a namespace it
// follows the first items of runs in the order in which they are due. It takes each with the due items
// behind it in its run, and ends when it has enough.
func dueOutbox() string {
	return sqlstore.Tenants(`outbox`, ``) + `,
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
}
