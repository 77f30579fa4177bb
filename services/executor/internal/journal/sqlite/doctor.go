package sqlite

import "github.com/epigraph-run/epigraph/services/executor/internal/journal"

// suspicions are the queries of sqlstore.Store.Suspicions that only this database has.
func suspicions() map[journal.Suspicion]string {
	return map[journal.Suspicion]string{
		journal.SuspectKey: `SELECT run_id || ': holds ' || business_key FROM runs WHERE holds_key = 1 AND state >= 6 LIMIT $1`,
		journal.SuspectJob: `SELECT 'job ' || id || ': ' || kind || ', ' || state || ', ' || json(args) FROM river_job
			WHERE state = 'discarded' AND json(metadata) NOT LIKE '%unique_key_conflict%'
				OR state = 'running' AND attempted_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 hour') LIMIT $1`,
		// Only a whole examination, which has no size, reads every page of the file.
		journal.SuspectSetting: `SELECT * FROM (SELECT 'file: ' || quick_check AS line FROM pragma_quick_check WHERE $2 = 9223372036854775807 AND quick_check <> 'ok'
			UNION ALL SELECT 'synchronous is ' || synchronous FROM pragma_synchronous WHERE synchronous < 2) LIMIT $1`,
	}
}
