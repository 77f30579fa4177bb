package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// RescueJobs implements journal.Members.
func (s *Store) RescueJobs(ctx context.Context, worker string, after time.Duration, limit int) (n int, err error) {
	const dead = ` FROM river_job WHERE state = 'running' AND attempted_at < ?
		AND substr(json_extract(attempted_by, '$[#-1]'), 1, length(?)) = ?
		AND json_extract(attempted_by, '$[#-1]') <> ?
		AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.worker = json_extract(attempted_by, '$[#-1]') AND e.heartbeat >= ` + now + ` - ?) ORDER BY id LIMIT ?`
	args := []any{time.Now().Add(-after).UTC().Format(riverTime), journal.JobWorkerPrefix, journal.JobWorkerPrefix, worker, after.Microseconds(), limit}
	var some bool
	if err := s.db.Read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1`+dead+`)`, args...).Scan(&some); err != nil || !some {
		return 0, err
	}
	err = s.update(ctx, func(ctx context.Context, t txn) error {
		rows, err := t.tx.QueryContext(ctx, `SELECT queue`+dead, args...)
		queues, err := dbkit.Collect(rows, err, func(rows *sql.Rows) (q string, err error) { return q, rows.Scan(&q) })
		if err != nil {
			return err
		}
		for _, q := range queues {
			t.queued[q] = true
		}
		n = len(queues)
		// The unique key is let go of: an equal job may wait already, and one too many is no harm.
		_, err = t.exec(ctx, `UPDATE river_job SET state = 'available', scheduled_at = ?, attempt = max(attempt - 1, 0), unique_key = NULL, unique_states = NULL
			WHERE id IN (SELECT id`+dead+`)`, append([]any{time.Now().UTC().Format(riverTime)}, args...)...)
		return err
	})
	return n, err
}
