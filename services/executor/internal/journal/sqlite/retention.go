package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// vacuumPages is how many free pages are given back in one go.
const vacuumPages = 2000

// Expired implements journal.Retention. It goes from namespace to namespace, each of which has its ended runs in order.
func (s *Store) Expired(ctx context.Context, before func(namespace string) time.Time, after journal.Ended, limit int) (ends []journal.Ended, err error) {
	root := ` AND r.create_time < ?2 AND r.end_time > 0 AND r.end_time < ?2 AND (r.create_time, r.run_id) > (?3, ?4)
		AND (r.parent_run_id = '' OR NOT EXISTS (SELECT 1 FROM runs p WHERE p.run_id = r.parent_run_id AND p.namespace = r.namespace))`
	query := `SELECT r.run_id, r.create_time, EXISTS (
			WITH RECURSIVE below (run_id, state, end_time) AS (
				SELECT c.run_id, c.state, c.end_time FROM runs c WHERE c.namespace = ?1 AND c.parent_run_id = r.run_id AND c.parent_run_id <> ''
				UNION ALL
				SELECT c.run_id, c.state, c.end_time FROM below b JOIN runs c ON c.namespace = ?1 AND c.parent_run_id = b.run_id AND c.parent_run_id <> '')
			SELECT 1 FROM below WHERE state < 6 OR end_time = 0 OR end_time >= ?2)
		FROM (` + dbkit.Merged(journal.EndedStates(), func(state string) string {
		return `SELECT r.run_id AS run_id, r.create_time AS create_time FROM runs r WHERE r.namespace = ?1 AND ` + state + root
	}, "r", "create_time, run_id", "?5") + `) r ORDER BY r.create_time, r.run_id`
	for next := `>=`; len(ends) < limit; next = `>` {
		var namespace sql.NullString
		if err := s.db.Read.QueryRowContext(ctx, `SELECT min(namespace) FROM runs WHERE namespace `+next+` ?`, after.Namespace).Scan(&namespace); err != nil {
			return nil, err
		}
		if !namespace.Valid {
			break
		}
		if namespace.String != after.Namespace {
			after = journal.Ended{Namespace: namespace.String}
		}
		end := before(namespace.String)
		if namespace.String == journal.Deleted || end.IsZero() {
			continue
		}
		rows, err := s.db.Read.QueryContext(ctx, query, namespace.String, micros(end), micros(after.CreateTime), after.RunID, limit-len(ends))
		more, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (journal.Ended, error) {
			e := journal.Ended{Namespace: namespace.String}
			var created int64
			err := rows.Scan(&e.RunID, &created, &e.Skipped)
			e.CreateTime = dbkit.FromUnixMicros(created)
			return e, err
		})
		if err != nil {
			return nil, err
		}
		ends = append(ends, more...)
	}
	return ends, nil
}

// NoteArchive implements journal.Retention.
func (s *Store) NoteArchive(ctx context.Context, namespace, runID, place string) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		_, err := t.exec(ctx, `INSERT INTO archives (namespace, run_id, place, archive_time) VALUES (?, ?, ?, `+now+`)
			ON CONFLICT (namespace, run_id) DO UPDATE SET place = excluded.place, archive_time = excluded.archive_time`, namespace, runID, place)
		return err
	})
}

// ArchiveOf implements journal.Retention.
func (s *Store) ArchiveOf(ctx context.Context, namespace, runID string) (place string, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT place FROM archives WHERE namespace = ? AND run_id = ?`, namespace, runID).Scan(&place)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return place, err
}

// Extend implements journal.Retention. There are no parts in a file.
func (s *Store) Extend(context.Context, time.Duration, time.Duration) (journal.Parts, error) {
	return journal.Parts{}, nil
}

// Shrink implements journal.Retention: free pages go back to the file system, some at a time. In a file that another program has rewritten without
// auto_vacuum they are used again instead.
func (s *Store) Shrink(ctx context.Context, _ time.Time, _ int) (more bool, err error) {
	// The pragma does its work row by row, and no transaction may be open around it.
	rows, err := s.db.Write.QueryContext(ctx, `PRAGMA incremental_vacuum(`+strconv.Itoa(vacuumPages)+`)`)
	if _, err := dbkit.Collect(rows, err, func(*sql.Rows) (struct{}, error) { return struct{}{}, nil }); err != nil {
		return false, err
	}
	var free, mode int
	if err := s.db.Write.QueryRowContext(ctx, `PRAGMA auto_vacuum`).Scan(&mode); err != nil {
		return false, err
	}
	if err := s.db.Write.QueryRowContext(ctx, `PRAGMA freelist_count`).Scan(&free); err != nil {
		return false, err
	}
	return mode == 2 && free > vacuumPages, nil
}

// SweepGraphs implements journal.Retention.
func (s *Store) SweepGraphs(ctx context.Context, before time.Time, after journal.Key, limit int) (removed int, next journal.Key, err error) {
	rows, err := s.db.Read.QueryContext(ctx, `SELECT namespace, hash, use_time FROM graphs WHERE (namespace, hash) > (?, ?) ORDER BY namespace, hash LIMIT ?`,
		after.Namespace, after.Name, limit)
	page, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (g journal.UsedGraph, err error) {
		var used int64
		err = rows.Scan(&g.Namespace, &g.Name, &used)
		g.Used = dbkit.FromUnixMicros(used)
		return g, err
	})
	if err != nil {
		return 0, next, err
	}
	if len(page) == limit {
		next = page[len(page)-1].Key
	}
	// Where there are too many runs to look at the index alone tells so.
	many := `SELECT count(*) FROM (` + dbkit.Merged(journal.AllStates(), func(state string) string {
		return `SELECT r.create_time AS create_time, r.run_id AS run_id FROM runs r WHERE r.namespace = ?1 AND ` + state + ` AND r.create_time < ?2`
	}, "r", "create_time, run_id", "?3") + `) r`
	users := `SELECT count(*), graph_hash, first_graph FROM (` +
		dbkit.Merged(journal.AllStates(), func(state string) string {
			return `SELECT r.graph_hash AS graph_hash, r.first_graph AS first_graph, r.create_time AS create_time, r.run_id AS run_id
				FROM runs r WHERE r.namespace = ?1 AND ` + state + ` AND r.create_time < ?2`
		}, "r", "create_time, run_id", "?3") + `) r GROUP BY graph_hash, first_graph`
	groups, begun := journal.OldGraphs(page, before)
	for i, group := range groups {
		var n int
		if err := s.db.Read.QueryRowContext(ctx, many, group[0].Namespace, micros(begun[i]), journal.MaxGraphUsers+1).Scan(&n); err != nil {
			return removed, next, err
		}
		if n > journal.MaxGraphUsers {
			continue
		}
		rows, err := s.db.Read.QueryContext(ctx, users, group[0].Namespace, micros(begun[i]), journal.MaxGraphUsers+1)
		found, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (u journal.GraphUser, err error) {
			err = rows.Scan(&u.Runs, &u.Hash, &u.First)
			return u, err
		})
		if err != nil {
			return removed, next, err
		}
		hashes := journal.UnusedGraphs(group, found)
		if len(hashes) == 0 {
			continue
		}
		// An executor that took one meanwhile has said so in the row.
		err = s.update(ctx, func(ctx context.Context, t txn) error {
			n = 0
			for _, h := range hashes {
				gone, err := t.exec(ctx, `DELETE FROM graphs WHERE namespace = ? AND hash = ? AND use_time < ?`, group[0].Namespace, h, micros(before))
				if err != nil {
					return err
				}
				n += int(gone)
			}
			return nil
		})
		if err != nil {
			return removed, next, err
		}
		removed += n
	}
	return removed, next, nil
}
