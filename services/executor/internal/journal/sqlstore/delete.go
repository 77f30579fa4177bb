package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// DeleteRun implements journal.Deletion.
func (s *Store) DeleteRun(ctx context.Context, namespace, runID string, revision int64) (n int, err error) {
	err = s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		var state journal.State
		var now int64
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT r.state, r.revision FROM runs r WHERE`+ThisRun+s.d.Locked(), namespace, runID)).Scan(&state, &now)
		switch {
		case none(err):
			return journal.RunNotFound(runID)
		case err != nil:
			return err
		case !state.Ended():
			return journal.RunNotEnded(runID, state)
		case revision != 0 && revision != now:
			return journal.EtagMismatch(runID)
		}
		gone, err := tx.Exec(ctx, `WITH RECURSIVE `+s.below(`SELECT r.run_id FROM runs r WHERE`+ThisRun, `run_id`)+`
			UPDATE runs SET namespace = $3, holds_key = false
			WHERE `+s.d.InSelect(`run_id`, `SELECT run_id FROM below`)+` AND namespace || '' = $1 AND state + 0 >= 6`, namespace, runID, journal.Deleted)
		n = int(gone)
		return err
	})
	return n, err
}

// PurgeRuns implements journal.Deletion.
func (s *Store) PurgeRuns(ctx context.Context, limit int) (more bool, err error) {
	err = s.db.Engine.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		more = false
		var id string
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT r.run_id FROM runs r WHERE r.namespace = $1 AND r.state >= 6
			AND (SELECT o.id FROM outbox o WHERE o.run_id = r.run_id LIMIT 1) IS NULL
			ORDER BY r.state, r.create_time, r.run_id LIMIT 1`+s.d.LockedFree(), journal.Deleted)).Scan(&id)
		if none(err) {
			return nil
		} else if err != nil {
			return err
		}
		more = true
		left := int64(limit)
		for _, t := range journal.PurgeTables() {
			gone, err := tx.Exec(ctx, `DELETE FROM `+t.Name+` WHERE run_id = $1
				AND `+s.d.InSelect(t.Key, `SELECT `+t.Key+` FROM `+t.Name+` WHERE run_id = $1 LIMIT $2`), id, left)
			if err != nil {
				return err
			}
			if left -= gone; left <= 0 {
				return nil
			}
		}
		_, err = tx.Exec(ctx, `DELETE FROM runs WHERE run_id = $1`, id)
		return err
	})
	return more, err
}
