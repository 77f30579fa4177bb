package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

const (
	// maintenanceLock lets one executor at a time change the partitions.
	maintenanceLock = `SELECT pg_advisory_xact_lock(hashtextextended('epigraph/` + Schema + `/partitions', 0))`
	// partLockWait bounds how long commits wait behind a change of the partitions that does not get its
	// locks.
	partLockWait = `SET LOCAL lock_timeout = '2s'`
)

// eventPart is a partition of the events.
type eventPart struct {
	name, bound string
	// end is where it ends; zero for the last one.
	end time.Time
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func eventParts(ctx context.Context, q querier) (parts []eventPart, err error) {
	rows, err := q.Query(ctx, `SELECT c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass('events') AND c.relpartbound IS NOT NULL ORDER BY c.oid`)
	return collect(rows, err, func(row pgx.CollectableRow) (p eventPart, err error) {
		err = row.Scan(&p.name, &p.bound)
		p.end, _ = upper(p.bound)
		return p, err
	})
}

// maintain runs fn in a transaction that is alone in changing partitions.
func (s *Store) maintain(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.read, func(tx pgx.Tx) error {
		for _, q := range []string{maintenanceLock, partLockWait} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		return fn(tx)
	})
}

// Extend implements journal.Retention.
func (s *Store) Extend(ctx context.Context, width, ahead time.Duration) (p journal.Parts, err error) {
	look := func(q querier) (now time.Time, err error) {
		parts, err := eventParts(ctx, q)
		if err != nil {
			return now, err
		}
		p = journal.Parts{Count: len(parts)}
		for _, part := range parts {
			if part.end.After(p.End) {
				p.End = part.end
			}
		}
		if err := q.QueryRow(ctx, `SELECT now(), (SELECT count(*) FROM (SELECT FROM events_default LIMIT 1000) x)`).Scan(&now, &p.Stray); err != nil {
			return now, err
		}
		return now.UTC(), nil
	}
	now, err := look(s.read)
	if err != nil || !p.End.Before(now.Add(ahead)) {
		return p, sqlstore.Away(err)
	}
	err = s.maintain(ctx, func(tx pgx.Tx) error {
		if now, err = look(tx); err != nil {
			return err
		}
		for p.End.Before(now.Add(ahead)) {
			from := p.End
			to := from.Add(width).Truncate(time.Millisecond)
			name := "events_to_" + to.Format("20060102150405")
			var lo, hi string
			if err := tx.QueryRow(ctx, `SELECT run_id_at($1), run_id_at($2)`, from, to).Scan(&lo, &hi); err != nil {
				return err
			}
			// Rows that came too early for their partition move into it. Nothing may be added to them
			// meanwhile.
			for _, q := range []string{
				`CREATE TABLE ` + name + ` (LIKE events INCLUDING ALL)`,
				`LOCK TABLE events_default IN SHARE ROW EXCLUSIVE MODE`,
				`WITH d AS (DELETE FROM events_default WHERE run_id >= '` + lo + `' AND run_id < '` + hi + `' RETURNING *) INSERT INTO ` + name + ` SELECT * FROM d`,
				`ALTER TABLE events ATTACH PARTITION ` + name + ` FOR VALUES FROM ('` + lo + `') TO ('` + hi + `')`,
			} {
				if _, err := tx.Exec(ctx, q); err != nil {
					return fmt.Errorf("make partition %s: %w", name, err)
				}
			}
			p.End = to
		}
		_, err := look(tx)
		return err
	})
	return p, err
}

// Shrink implements journal.Retention. Partitions that end before a time become one, which holds the rows
// that are left in them.
func (s *Store) Shrink(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	// Rows of deleted runs are dropped. The other rows are found by their runs, of which few are that old.
	const left = ` e JOIN runs r ON r.run_id = e.run_id WHERE r.run_id < $1 AND r.namespace <> '` + journal.Deleted + `'`
	err = s.maintain(ctx, func(tx pgx.Tx) error {
		parts, err := eventParts(ctx, tx)
		if err != nil {
			return err
		}
		var old []eventPart
		var end time.Time
		for _, p := range parts {
			if !p.end.IsZero() && !p.end.After(before) {
				old = append(old, p)
				if p.end.After(end) {
					end = p.end
				}
			}
		}
		// A single one is what an earlier call made. Its rows go one by one.
		if len(old) < 2 {
			return nil
		}
		var hi string
		if err := tx.QueryRow(ctx, `SELECT run_id_at($1)`, end).Scan(&hi); err != nil {
			return err
		}
		for _, q := range []string{`SET LOCAL enable_hashjoin = off`, `SET LOCAL enable_mergejoin = off`} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		for _, p := range old {
			var n int
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM `+p.name+left+` LIMIT $2) x`, hi, limit+1).Scan(&n); err != nil {
				return err
			}
			if limit -= n; limit < 0 {
				return nil // too much of it is still wanted
			}
		}
		name := "events_old_" + end.Format("20060102150405")
		for _, p := range old {
			if p.name == name {
				return nil
			}
		}
		// Commits to these runs wait from here on; there are few rows to move. A partition can be detached
		// only under this lock.
		if _, err := tx.Exec(ctx, `LOCK TABLE events IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `CREATE TABLE `+name+` (LIKE events INCLUDING ALL)`); err != nil {
			return err
		}
		for _, p := range old {
			_, err := tx.Exec(ctx, `INSERT INTO `+name+` SELECT e.* FROM `+p.name+left, hi)
			if err == nil {
				_, err = tx.Exec(ctx, `ALTER TABLE events DETACH PARTITION `+p.name)
			}
			if err == nil {
				_, err = tx.Exec(ctx, `DROP TABLE `+p.name)
			}
			if err != nil {
				return fmt.Errorf("drop partition %s: %w", p.name, err)
			}
		}
		_, err = tx.Exec(ctx, `ALTER TABLE events ATTACH PARTITION `+name+` FOR VALUES FROM (MINVALUE) TO ('`+hi+`')`)
		return err
	})
	return false, err
}
