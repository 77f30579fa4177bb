package pg

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	insertCommand = `INSERT INTO commands (run_id, namespace, kind, key, body, time) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	// hasCommands holds for a run that has commands. It looks at one of them, however many there are.
	hasCommands = ` (SELECT true FROM commands m WHERE m.run_id = r.run_id LIMIT 1)`
	// claimOwnerless gives an owner those of the runs that wait or are paused without an owner and have
	// commands. The caller has locked the rows. By the state as it is, PostgreSQL could look through all
	// runs in these states, if it believes that they are few.
	claimOwnerless = `UPDATE runs r SET owner_id = $2, owner_incarnation = $3, doing = '' WHERE r.run_id = ANY ($1) AND r.owner_id = '' AND r.state + 0 IN (3, 4)
		AND` + hasCommands + ` RETURNING r.run_id`
)

// queueOwnerNotices wakes the owners of runs that got commands, except the owner that knows of them
// already. PostgreSQL lets one transaction with a NOTIFY commit at a time, so needless ones are avoided.
func queueOwnerNotices(b *pgx.Batch, runIDs []string, knows journal.Owner) {
	// OFFSET 0 keeps each a look-up by key.
	b.Queue(`SELECT pg_notify('`+commandChannel+`', owner_id) FROM (SELECT DISTINCT r.owner_id FROM unnest($1::text[]) AS t (id)
		CROSS JOIN LATERAL (SELECT r.owner_id, r.owner_incarnation, r.state FROM runs r WHERE r.run_id = t.id OFFSET 0) r
		WHERE r.owner_id <> '' AND r.state < 6 AND (r.owner_id <> $2 OR r.owner_incarnation <> $3)) o`, runIDs, knows.ID, knows.Incarnation)
}

// CommandWakes implements journal.Commands.
func (s *Store) CommandWakes(ctx context.Context, owner journal.Owner) (<-chan struct{}, error) {
	return dbkit.Listen(ctx, s.hot, commandChannel, 1, struct{}{}, func(payload string) (struct{}, bool) { return struct{}{}, payload == owner.ID })
}
