package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// DeleteRun implements journal.Deletion.
func (s *Store) DeleteRun(ctx context.Context, namespace, runID string, revision int64) (n int, err error) {
	err = pgx.BeginFunc(ctx, s.read, func(tx pgx.Tx) error {
		var state journal.State
		var now int64
		err := tx.QueryRow(ctx, `SELECT r.state, r.revision FROM runs r WHERE`+thisRun+` FOR UPDATE`, namespace, runID).Scan(&state, &now)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return journal.RunNotFound(runID)
		case err != nil:
			return err
		case !state.Ended():
			return journal.RunNotEnded(runID, state)
		case revision != 0 && revision != now:
			return journal.EtagMismatch(runID)
		}
		tag, err := tx.Exec(ctx, `WITH RECURSIVE below AS (
				SELECT r.run_id FROM runs r WHERE`+thisRun+`
				UNION ALL
				SELECT r.run_id FROM below b`+itsChildren+`)
			UPDATE runs SET namespace = $3, holds_key = false WHERE run_id = ANY (ARRAY (SELECT run_id FROM below)) AND namespace || '' = $1 AND state + 0 >= 6`,
			namespace, runID, journal.Deleted)
		n = int(tag.RowsAffected())
		return err
	})
	return n, away(err)
}

// PurgeRuns implements journal.Deletion.
func (s *Store) PurgeRuns(ctx context.Context, limit int) (more bool, err error) {
	err = pgx.BeginFunc(ctx, s.hot, func(tx pgx.Tx) error {
		more = false
		var id string
		err := tx.QueryRow(ctx, `SELECT run_id FROM runs r WHERE namespace = $1 AND state >= 6 AND (SELECT true FROM outbox o WHERE o.run_id = r.run_id LIMIT 1) IS NULL
			ORDER BY state, create_time, run_id LIMIT 1 FOR UPDATE SKIP LOCKED`, journal.Deleted).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		more = true
		left := int64(limit)
		for _, table := range journal.PurgeTables() {
			// A row's place says which it is within one table only, and events lie in several.
			where := `ctid = ANY (ARRAY(SELECT ctid FROM ` + table + ` WHERE run_id = $1 LIMIT $2))`
			if table == "events" {
				where = `run_id = $1 AND seq = ANY (ARRAY(SELECT seq FROM events WHERE run_id = $1 LIMIT $2))`
			}
			tag, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE `+where, id, left)
			if err != nil {
				return err
			}
			if left -= tag.RowsAffected(); left <= 0 {
				return nil
			}
		}
		_, err = tx.Exec(ctx, `DELETE FROM runs WHERE run_id = $1`, id)
		return err
	})
	return more, err
}
