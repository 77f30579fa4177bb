package pg

import (
	"context"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// quiet reports whether a take-over would find nothing to do. It is one query that locks nothing: executors
// look twice a second, and mostly there is nothing. What changes after it is found by the next look.
func (s *Store) quiet(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (quiet bool, err error) {
	if o.Canceled {
		err = s.hot.QueryRow(ctx, `WITH f AS MATERIALIZED (SELECT executor_fence($1, $2))
			SELECT (SELECT count(*) FROM f) = 1 AND NOT EXISTS (SELECT FROM runs r WHERE r.state < 6 AND r.cancel_time IS NOT NULL AND NOT EXISTS (
				SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation
					AND (e.id = $1 OR e.heartbeat BETWEEN clock_timestamp() - $3::interval AND clock_timestamp() + $3::interval)))`,
			self.ID, self.Incarnation, interval(o.Lease)).Scan(&quiet)
		return quiet, err
	}
	const next = `SELECT r.owner_id, r.owner_incarnation FROM runs r WHERE r.state < 6 AND r.owner_id <> '' `
	err = s.hot.QueryRow(ctx, `WITH RECURSIVE f AS MATERIALIZED (SELECT executor_fence($1, $2)), o AS (
			(`+next+`ORDER BY r.owner_id, r.owner_incarnation LIMIT 1)
			UNION ALL
			SELECT n.owner_id, n.owner_incarnation FROM o CROSS JOIN LATERAL (`+next+`AND (r.owner_id, r.owner_incarnation) > (o.owner_id, o.owner_incarnation)
				ORDER BY r.owner_id, r.owner_incarnation LIMIT 1) n)
		SELECT (SELECT count(*) FROM f) = 1
			AND NOT EXISTS (SELECT FROM executors WHERE heartbeat > clock_timestamp() + $3::interval OR id <> $1 AND heartbeat < clock_timestamp() - $3::interval)
			AND NOT EXISTS (SELECT FROM runs WHERE state = 2 AND owner_id = '')
			AND NOT EXISTS (SELECT FROM o WHERE NOT EXISTS (SELECT FROM executors e WHERE e.id = o.owner_id AND e.incarnation = o.owner_incarnation))`,
		self.ID, self.Incarnation, interval(o.Lease)).Scan(&quiet)
	return quiet, err
}
