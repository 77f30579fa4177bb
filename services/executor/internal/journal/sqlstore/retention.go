package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Expired implements journal.Retention. It goes from namespace to namespace, each of which has its ended runs
// in order.
func (s *Store) Expired(ctx context.Context, before func(namespace string) time.Time, after journal.Ended, limit int) (ends []journal.Ended, err error) {
	for next := `>=`; len(ends) < limit; next = `>` {
		var namespace sql.NullString
		if err := dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT min(namespace) FROM runs WHERE namespace `+next+` $1`, after.Namespace)).Scan(&namespace); err != nil {
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
		more, err := s.expired(ctx, end, after, limit-len(ends))
		if err != nil {
			return nil, err
		}
		ends = append(ends, more...)
	}
	return ends, nil
}

// expired lists the expired runs of one namespace.
func (s *Store) expired(ctx context.Context, end time.Time, after journal.Ended, limit int) ([]journal.Ended, error) {
	ended := func(r string) string { return s.d.Set(r+`.end_time`) + ` AND ` + r + `.end_time < $2` }
	root := ` AND r.create_time < $2 AND ` + ended(`r`) + ` AND (r.parent_run_id = ''
		OR (SELECT p.state FROM runs p WHERE p.run_id = r.parent_run_id AND p.namespace || '' = r.namespace) IS NULL)`
	args := []any{after.Namespace, end, limit}
	if !after.CreateTime.IsZero() {
		root += ` AND (r.create_time, r.run_id) > ($4, $5)`
		args = append(args, after.CreateTime, after.RunID)
	}
	rows, err := s.db.Read.Query(ctx, `SELECT r.run_id, r.create_time, EXISTS (
			WITH RECURSIVE `+s.below(`SELECT c.run_id, c.state, c.end_time FROM runs c
				WHERE c.namespace = $1 AND c.parent_run_id = r.run_id AND c.parent_run_id <> ''`, `run_id`, `state`, `end_time`)+`
			SELECT 1 FROM below d WHERE d.state < 6 OR NOT (`+ended(`d`)+`))
		FROM (`+dbkit.Merged(journal.EndedStates(), func(state string) string {
		return `SELECT r.run_id AS run_id, r.create_time AS create_time FROM runs r WHERE r.namespace = $1 AND ` + state + root
	}, "r", "create_time, run_id", "$3")+`) r ORDER BY r.create_time, r.run_id`, args...)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (journal.Ended, error) {
		e := journal.Ended{Namespace: after.Namespace}
		err := rows.Scan(&e.RunID, dbkit.At(&e.CreateTime), &e.Skipped)
		return e, err
	})
}

// NoteArchive implements journal.Retention.
func (s *Store) NoteArchive(ctx context.Context, namespace, runID, place string) error {
	return s.write(ctx, `INSERT INTO archives (namespace, run_id, place, archive_time) VALUES ($1, $2, $3, `+s.d.Now()+`)
		ON CONFLICT (namespace, run_id) DO UPDATE SET place = excluded.place, archive_time = excluded.archive_time`, namespace, runID, place)
}

// ArchiveOf implements journal.Retention.
func (s *Store) ArchiveOf(ctx context.Context, namespace, runID string) (place string, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT place FROM archives WHERE namespace = $1 AND run_id = $2`, namespace, runID)).Scan(&place)
	if none(err) {
		return "", nil
	}
	return place, err
}

// SweepGraphs implements journal.Retention.
func (s *Store) SweepGraphs(ctx context.Context, before time.Time, after journal.Key, limit int) (removed int, next journal.Key, err error) {
	rows, err := s.db.Read.Query(ctx, `SELECT namespace, hash, use_time FROM graphs WHERE (namespace, hash) > ($1, $2) ORDER BY namespace, hash LIMIT $3`,
		after.Namespace, after.Name, limit)
	page, err := dbkit.Collect(rows, err, func(rows dbkit.Rows) (g journal.UsedGraph, err error) {
		err = rows.Scan(&g.Namespace, &g.Name, dbkit.At(&g.Used))
		return g, err
	})
	if err != nil {
		return 0, next, err
	}
	if len(page) == limit {
		next = page[len(page)-1].Key
	}
	groups, begun := journal.OldGraphs(page, before)
	for i, group := range groups {
		found, few, err := s.graphUsers(ctx, group[0].Namespace, begun[i])
		if err != nil {
			return removed, next, err
		}
		if !few {
			continue
		}
		hashes := journal.UnusedGraphs(group, found)
		if len(hashes) == 0 {
			continue
		}
		// An executor that takes one meanwhile says so in the row, and the row is looked at again.
		n, err := s.db.Read.Exec(ctx, `DELETE FROM graphs WHERE namespace = $1 AND `+s.d.In(`hash`, `$2`)+` AND use_time < $3`, group[0].Namespace, hashes, before)
		if err != nil {
			return removed, next, err
		}
		removed += int(n)
	}
	return removed, next, nil
}

// graphUsers counts the runs of a namespace that were created before a time by the graphs that they have and
// had. few is false if there are too many runs to look at.
func (s *Store) graphUsers(ctx context.Context, namespace string, begun time.Time) (users []journal.GraphUser, few bool, err error) {
	runs := func(columns string) string {
		return `(` + dbkit.Merged(journal.AllStates(), func(state string) string {
			return `SELECT ` + columns + `r.create_time AS create_time, r.run_id AS run_id FROM runs r WHERE r.namespace = $1 AND ` + state + ` AND r.create_time < $2`
		}, "r", "create_time, run_id", "$3") + `) r`
	}
	// The index alone tells how many there are.
	var n int
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT count(*) FROM `+runs(``), namespace, begun, journal.MaxGraphUsers+1)).Scan(&n)
	if err != nil || n > journal.MaxGraphUsers {
		return nil, false, err
	}
	rows, err := s.db.Read.Query(ctx, `SELECT count(*), graph_hash, first_graph FROM `+runs(`r.graph_hash AS graph_hash, r.first_graph AS first_graph, `)+`
		GROUP BY graph_hash, first_graph`, namespace, begun, journal.MaxGraphUsers+1)
	users, err = dbkit.Collect(rows, err, func(rows dbkit.Rows) (u journal.GraphUser, err error) {
		err = rows.Scan(&u.Runs, &u.Hash, &u.First)
		return u, err
	})
	return users, true, err
}
