package sqlstore

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	selectCommands = `SELECT m.id, m.namespace, m.run_id, m.kind, m.key, m.body, m.time, false`
	// oldestCommand orders the commands of one run. By the id as it is, PostgreSQL may look through the
	// commands of all runs.
	oldestCommand = ` ORDER BY m.id + 0`
	findCommand   = `SELECT m.id, m.namespace, m.run_id, m.kind, m.key, CASE WHEN CAST($5 AS boolean) THEN m.body END, m.time, NOT CAST($5 AS boolean)
		FROM commands m WHERE m.run_id = $2 AND m.kind = $3 AND m.key = $4 AND m.namespace = $1`
)

// readCommand reads a command, with Left as its last column.
func readCommand(row dbkit.Scanner) (m journal.Command, err error) {
	err = row.Scan(&m.ID, &m.Namespace, &m.RunID, &m.Kind, &m.Key, &m.Body, dbkit.At(&m.Time), &m.Left)
	if len(m.Body) == 0 {
		m.Body = nil
	}
	return m, err
}

func scanCommand(rows dbkit.Rows) (journal.Command, error) { return readCommand(rows) }

// PendingCommands implements journal.Commands.
func (s *Store) PendingCommands(ctx context.Context, owner journal.Owner, look journal.CommandQuery) ([]journal.Command, error) {
	rows, err := s.db.Engine.Query(ctx, s.pendingCommands, owner.ID, owner.Incarnation, look.Limit, look.Reads(), look.Busy, look.Ending, look.Small)
	return dbkit.Collect(rows, err, scanCommand)
}

// pendingCommands lists the unapplied commands of an owner's runs. mine has two halves, of which one gives no
// rows. While there are few commands in all (look is shorter than $4), the first half looks up the run of
// each. Otherwise the second half reads the commands of each of the owner's runs. In the first half, by the
// state as it is, PostgreSQL could look through all open runs.
func pendingCommands(d dbkit.Dialect) string {
	asked := ` AND (m.kind = 'CANCEL' OR m.run_id NOT IN (` + d.Values(`$5`) + `)) AND m.run_id NOT IN (` + d.Values(`$6`) + `)`
	const owned = `r.owner_id = $1 AND r.owner_incarnation = $2 AND r.owner_id <> '' AND r.state`
	const small = `($7 = 0 OR m.kind = 'CANCEL' OR coalesce(length(m.body), 0) <= $7)`
	return `WITH look AS MATERIALIZED (SELECT id, run_id, kind FROM commands ORDER BY id LIMIT $4),
		mine AS (
			SELECT m.id FROM look m WHERE (SELECT count(*) FROM look) < $4` + asked + ` AND ` + d.Holds(`runs`, `r`, `r.run_id = m.run_id AND `+owned+` + 0 < 6`) + `
			UNION ALL
			SELECT m.id FROM runs r` + d.LookUp(`commands`, `m`, `m.run_id = r.run_id`) + `
			WHERE (SELECT count(*) FROM look) >= $4 AND ` + owned + ` < 6` + asked + `
			ORDER BY id LIMIT $3)
		SELECT m.id, m.namespace, m.run_id, m.kind, m.key, CASE WHEN ` + small + ` THEN m.body END, m.time, NOT ` + small + `
			FROM mine` + d.LookUp(`commands`, `m`, `m.id = mine.id`) + ` ORDER BY m.id`
}

// UnappliedCommands implements journal.Commands.
func (s *Store) UnappliedCommands(ctx context.Context, namespace, runID string, limit int) ([]journal.Command, error) {
	rows, err := s.db.Engine.Query(ctx, selectCommands+` FROM commands m WHERE m.run_id = $2 AND m.namespace = $1`+oldestCommand+` LIMIT $3`, namespace, runID, limit)
	return dbkit.Collect(rows, err, scanCommand)
}

// FindCommand implements journal.Commands.
func (s *Store) FindCommand(ctx context.Context, namespace, runID string, kind journal.CommandKind, key string, whole bool) (journal.Command, bool, error) {
	m, err := readCommand(dbkit.FirstRow(s.db.Engine.Query(ctx, findCommand, namespace, runID, string(kind), key, whole)))
	if none(err) {
		return journal.Command{}, false, nil
	}
	return m, err == nil, err
}

// Outstanding implements journal.Commands.
func (s *Store) Outstanding(ctx context.Context, namespace, runID string) (out journal.Outstanding, err error) {
	var kinds string
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT (SELECT count(*) FROM interrupts i WHERE i.namespace || '' = $1 AND i.state + 0 = 1 AND`+s.ofRoot+`),
		coalesce((SELECT string_agg(k.kind, ' ' ORDER BY k.first) FROM
			(SELECT m.kind, min(m.id) AS first FROM commands m WHERE m.run_id = $2 AND m.namespace = $1 GROUP BY m.kind) k), '')`,
		namespace, runID)).Scan(&out.Interrupts, &kinds)
	for _, k := range strings.Fields(kinds) {
		out.Unread = append(out.Unread, journal.CommandKind(k))
	}
	return out, err
}
