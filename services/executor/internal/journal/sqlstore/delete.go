package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// DeleteRun implements journal.Deletion.
func (s *Store) DeleteRun(ctx context.Context, namespace, runID string, revision int64, tell journal.TellDeleted) (n int, err error) {
	err = s.db.Read.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		r := journal.Run{ID: runID, Namespace: namespace}
		err := dbkit.FirstRow(tx.Query(ctx, `SELECT r.state, r.revision, r.parent_run_id, r.task_id, r.epic_id, r.workflow_version, `+LastSeq(s.d)+` FROM runs r
			WHERE`+ThisRun+s.d.Locked(), namespace, runID)).Scan(&r.State, &r.Revision, &r.ParentID, &r.TaskID, &r.EpicID, &r.WorkflowVersion, &r.LastSeq)
		switch {
		case none(err):
			return journal.RunNotFound(runID)
		case err != nil:
			return err
		case !r.State.Ended():
			return journal.RunNotEnded(runID, r.State)
		case revision != 0 && revision != r.Revision:
			return journal.EtagMismatch(runID)
		}
		gone, err := tx.Exec(ctx, `WITH RECURSIVE `+s.below(`SELECT r.run_id FROM runs r WHERE`+ThisRun, `run_id`)+`
			UPDATE runs SET namespace = $3, holds_key = false
			WHERE `+s.d.InSelect(`run_id`, `SELECT run_id FROM below`)+` AND namespace || '' = $1 AND state + 0 >= 6`, namespace, runID, journal.Deleted)
		if n = int(gone); err != nil || tell == nil {
			return err
		}
		items, err := tell(&r, n)
		if err != nil {
			return err
		}
		rows := make([]OutRow, len(items))
		for i, o := range items {
			rows[i] = OutRow{Namespace: namespace, RunID: runID, OutRow: &journal.OutRow{Seq: r.LastSeq + 1, Ordinal: i, Kind: o.Kind, Body: o.Body}}
		}
		return s.putOutbox(ctx, tx, rows)
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
