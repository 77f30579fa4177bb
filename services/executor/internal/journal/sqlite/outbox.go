package sqlite

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// dueOutbox is the head of a claim: due are $1 items, from each namespace in turn. In a namespace it
// follows the first items of runs in the order in which they are due. It takes each with the due items
// behind it in its run, and ends when it has enough.
func dueOutbox() string {
	return sqlstore.Tenants(`outbox`, ``) + `,
		due AS (SELECT id FROM (
			SELECT d.id, row_number() OVER (PARTITION BY d.namespace ORDER BY d.id) AS turn FROM ns CROSS JOIN outbox d WHERE d.id IN (
				SELECT x.id FROM outbox o CROSS JOIN outbox x WHERE o.namespace = ns.n AND o.next_at <= ` + now + ` AND x.run_id = o.run_id
					AND o.id = (SELECT f.id FROM outbox f WHERE f.run_id = o.run_id ORDER BY f.seq, f.ordinal LIMIT 1)
					AND NOT EXISTS (SELECT 1 FROM outbox p WHERE p.run_id = x.run_id AND (p.seq, p.ordinal) <= (x.seq, x.ordinal) AND p.next_at > ` + now + `)
				ORDER BY o.next_at, o.id, x.seq, x.ordinal LIMIT $1))
			ORDER BY turn, id LIMIT $1)`
}
