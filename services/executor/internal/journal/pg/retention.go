package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// maintenanceLock lets one executor at a time change the partitions.
	maintenanceLock = `SELECT pg_advisory_xact_lock(hashtextextended('epigraph/` + Schema + `/partitions', 0))`
	// partLockWait is the longest that commits may stand behind a change of the partitions that does not get its locks.
	partLockWait = `SET LOCAL lock_timeout = '2s'`
)

// Expired implements journal.Retention. It goes from namespace to namespace, each of which has its ended runs in order.
func (s *Store) Expired(ctx context.Context, before func(namespace string) time.Time, after journal.Ended, limit int) (ends []journal.Ended, err error) {
	root := ` AND r.create_time < $2 AND r.end_time < $2 AND (r.create_time, r.run_id) > ($3, $4)
		AND (r.parent_run_id = '' OR (SELECT true FROM runs p WHERE p.run_id = r.parent_run_id AND p.namespace || '' = r.namespace) IS NULL)`
	query := `SELECT r.run_id, r.create_time, EXISTS (
			WITH RECURSIVE below AS (
				SELECT c.run_id, c.state, c.end_time FROM runs c WHERE c.namespace = $1 AND c.parent_run_id = r.run_id AND c.parent_run_id <> ''
				UNION ALL
				SELECT r.run_id, r.state, r.end_time FROM below b` + itsChildren + `)
			SELECT FROM below WHERE state < 6 OR end_time IS NULL OR end_time >= $2)
		FROM (` + dbkit.Merged(journal.EndedStates(), func(state string) string {
		return `SELECT r.run_id, r.create_time FROM runs r WHERE r.namespace = $1 AND ` + state + root
	}, "r", "create_time, run_id", "$5") + `) r ORDER BY r.create_time, r.run_id`
	for next := `>=`; len(ends) < limit; next = `>` {
		var namespace *string
		if err := s.read.QueryRow(ctx, `SELECT min(namespace) FROM runs WHERE namespace `+next+` $1`, after.Namespace).Scan(&namespace); err != nil {
			return nil, away(err)
		}
		if namespace == nil {
			break
		}
		if *namespace != after.Namespace {
			after = journal.Ended{Namespace: *namespace}
		}
		end := before(*namespace)
		if *namespace == journal.Deleted || end.IsZero() {
			continue
		}
		rows, err := s.read.Query(ctx, query, *namespace, end, after.CreateTime, after.RunID, limit-len(ends))
		more, err := collect(rows, err, func(row pgx.CollectableRow) (journal.Ended, error) {
			e := journal.Ended{Namespace: *namespace}
			err := row.Scan(&e.RunID, &e.CreateTime, &e.Skipped)
			e.CreateTime = e.CreateTime.UTC()
			return e, err
		})
		if err != nil {
			return nil, away(err)
		}
		ends = append(ends, more...)
	}
	return ends, nil
}

// NoteArchive implements journal.Retention.
func (s *Store) NoteArchive(ctx context.Context, namespace, runID, place string) error {
	_, err := s.hot.Exec(ctx, `INSERT INTO archives (namespace, run_id, place) VALUES ($1, $2, $3)
		ON CONFLICT (namespace, run_id) DO UPDATE SET place = excluded.place, archive_time = now()`, namespace, runID, place)
	return err
}

// ArchiveOf implements journal.Retention.
func (s *Store) ArchiveOf(ctx context.Context, namespace, runID string) (place string, err error) {
	err = s.read.QueryRow(ctx, `SELECT place FROM archives WHERE namespace = $1 AND run_id = $2`, namespace, runID).Scan(&place)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return place, away(err)
}

// eventPart is a partition of the events.
type eventPart struct {
	name, bound string
	// end is where it ends; zero for the last one.
	end time.Time
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
		return p, away(err)
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
			// What came too early for its partition moves into it. Nobody may add to it on the way.
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

// Shrink implements journal.Retention: partitions that end before a time become one, which holds what is left in them.
func (s *Store) Shrink(ctx context.Context, before time.Time, limit int) (more bool, err error) {
	// Rows of deleted runs are nobody's any more. The others are found by their runs, of which few are that old.
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
		// The oldest alone is what an earlier call left; its rows go one by one.
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
		// From here on commits to these runs wait: there are few rows to move. Detaching wants the table itself.
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

// SweepGraphs implements journal.Retention.
func (s *Store) SweepGraphs(ctx context.Context, before time.Time, after journal.Key, limit int) (removed int, next journal.Key, err error) {
	rows, err := s.read.Query(ctx, `SELECT namespace, hash, use_time FROM graphs WHERE (namespace, hash) > ($1, $2) ORDER BY namespace, hash LIMIT $3`,
		after.Namespace, after.Name, limit)
	page, err := collect(rows, err, func(row pgx.CollectableRow) (g journal.UsedGraph, err error) {
		err = row.Scan(&g.Namespace, &g.Name, &g.Used)
		return g, err
	})
	if err != nil {
		return 0, next, away(err)
	}
	if len(page) == limit {
		next = page[len(page)-1].Key
	}
	// Where there are too many runs to look at the index alone tells so.
	many := `SELECT count(*) FROM (` + dbkit.Merged(journal.AllStates(), func(state string) string {
		return `SELECT r.create_time, r.run_id FROM runs r WHERE r.namespace = $1 AND ` + state + ` AND r.create_time < $2`
	}, "r", "create_time, run_id", "$3") + `) r`
	users := `SELECT count(*), graph_hash, first_graph FROM (` +
		dbkit.Merged(journal.AllStates(), func(state string) string {
			return `SELECT r.graph_hash, r.first_graph, r.create_time, r.run_id FROM runs r WHERE r.namespace = $1 AND ` + state + ` AND r.create_time < $2`
		}, "r", "create_time, run_id", "$3") + `) r GROUP BY graph_hash, first_graph`
	groups, begun := journal.OldGraphs(page, before)
	for i, group := range groups {
		var n int
		if err := s.read.QueryRow(ctx, many, group[0].Namespace, begun[i], journal.MaxGraphUsers+1).Scan(&n); err != nil {
			return removed, next, away(err)
		}
		if n > journal.MaxGraphUsers {
			continue
		}
		rows, err := s.read.Query(ctx, users, group[0].Namespace, begun[i], journal.MaxGraphUsers+1)
		found, err := collect(rows, err, func(row pgx.CollectableRow) (u journal.GraphUser, err error) {
			err = row.Scan(&u.Runs, &u.Hash, &u.First)
			return u, err
		})
		if err != nil {
			return removed, next, away(err)
		}
		hashes := journal.UnusedGraphs(group, found)
		if len(hashes) == 0 {
			continue
		}
		// An executor that takes one meanwhile says so in the row, and the row is looked at again.
		tag, err := s.read.Exec(ctx, `DELETE FROM graphs WHERE namespace = $1 AND hash = ANY ($2) AND use_time < $3`, group[0].Namespace, hashes, before)
		if err != nil {
			return removed, next, away(err)
		}
		removed += int(tag.RowsAffected())
	}
	return removed, next, nil
}
