package pg

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// rescueJobs lets go of the unique key: an equal job may wait already, and one too many is no harm.
const rescueJobs = `WITH dead AS (SELECT j.id FROM river_job j WHERE j.state = 'running' AND j.attempted_at < now() - $1::interval
			AND starts_with(j.attempted_by[array_upper(j.attempted_by, 1)], $3)
			AND j.attempted_by[array_upper(j.attempted_by, 1)] <> $4
			AND NOT EXISTS (SELECT FROM executors e WHERE e.worker = j.attempted_by[array_upper(j.attempted_by, 1)] AND e.heartbeat >= clock_timestamp() - $1::interval)
			ORDER BY j.id LIMIT $2 FOR UPDATE SKIP LOCKED),
		ready AS (UPDATE river_job j SET state = 'available', scheduled_at = now(), attempt = greatest(j.attempt - 1, 0), unique_key = NULL, unique_states = NULL
			FROM dead WHERE j.id = dead.id RETURNING j.queue AS q)
	SELECT count(*), (SELECT count(*) FROM (SELECT ` + notifyQueue + ` FROM (SELECT DISTINCT q FROM ready) d) n) FROM ready`

// RescueJobs implements journal.Members.
func (s *Store) RescueJobs(ctx context.Context, worker string, after time.Duration, limit int) (n int, err error) {
	var notified int
	err = s.hot.QueryRow(ctx, rescueJobs, interval(after), limit, journal.JobWorkerPrefix, worker).Scan(&n, &notified)
	return n, err
}
