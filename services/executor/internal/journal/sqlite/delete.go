package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// DeleteRun implements journal.Deletion.
func (s *Store) DeleteRun(ctx context.Context, namespace, runID string, revision int64) (n int, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		var state journal.State
		var now int64
		err := t.row(ctx, `SELECT state, revision FROM runs WHERE namespace = ? AND run_id = ?`, namespace, runID).Scan(&state, &now)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return journal.RunNotFound(runID)
		case err != nil:
			return err
		case !state.Ended():
			return journal.RunNotEnded(runID, state)
		case revision != 0 && revision != now:
			return journal.EtagMismatch(runID)
		}
		gone, err := t.exec(ctx, `WITH RECURSIVE below AS (
				SELECT run_id FROM runs WHERE namespace = ?1 AND run_id = ?2
				UNION ALL
				SELECT r.run_id FROM below b JOIN runs r ON r.namespace = ?1 AND r.parent_run_id = b.run_id AND r.parent_run_id <> '')
			UPDATE runs SET namespace = ?3, holds_key = 0 WHERE run_id IN (SELECT run_id FROM below) AND state >= 6`, namespace, runID, journal.Deleted)
		n = int(gone)
		return err
	})
	return n, err
}

// PurgeRuns implements journal.Deletion.
func (s *Store) PurgeRuns(ctx context.Context, limit int) (more bool, err error) {
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		more = false
		var id string
		err := t.row(ctx, `SELECT run_id FROM runs r WHERE namespace = ? AND state >= 6 AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.run_id = r.run_id)
			ORDER BY state, create_time, run_id LIMIT 1`, journal.Deleted).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		} else if err != nil {
			return err
		}
		more = true
		for _, table := range journal.PurgeTables() {
			// Only events are many. Not every table has row ids.
			if table == "events" {
				n, err := t.exec(ctx, `DELETE FROM events WHERE run_id = ?1 AND seq IN (SELECT seq FROM events WHERE run_id = ?1 LIMIT ?2)`, id, limit)
				if err != nil {
					return err
				}
				if n >= int64(limit) {
					return nil
				}
				continue
			}
			if _, err := t.exec(ctx, `DELETE FROM `+table+` WHERE run_id = ?`, id); err != nil {
				return err
			}
		}
		_, err = t.exec(ctx, `DELETE FROM runs WHERE run_id = ?`, id)
		return err
	})
	return more, err
}
