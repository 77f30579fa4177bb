package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

var _ journal.Inspector = (*Store)(nil)

const (
	// sampled is the head of queries that look at runs one by one. Without a size it is every run.
	sampled = `WITH look AS (SELECT * FROM (SELECT run_id FROM runs ORDER BY run_id DESC LIMIT ?2) UNION SELECT * FROM (SELECT run_id FROM runs WHERE run_id >= ?3 ORDER BY run_id LIMIT ?2)) `
	// tenants skips from one namespace to the next, however many runs each has.
	tenants = `WITH RECURSIVE ns (n) AS (SELECT min(namespace) FROM runs UNION ALL
		SELECT (SELECT min(r.namespace) FROM runs r WHERE r.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL) `
	minute = `60000000`
)

func stamp(column string) string {
	return `strftime('%Y-%m-%dT%H:%M:%SZ', ` + column + ` / 1000000, 'unixepoch')`
}

// suspicions are queries whose rows are one line of text each. ?1 bounds the rows; those that begin with
// sampled also have ?2 and ?3.
func suspicions() map[journal.Suspicion]string {
	return map[journal.Suspicion]string{
		journal.SuspectGap: sampled + `SELECT run_id || ': ' || n || ' events from ' || coalesce(lo, 0) || ' to ' || coalesce(hi, 0) || ', the row says ' || last_seq FROM (
			SELECT r.run_id, r.last_seq, r.state, (SELECT count(*) FROM events e WHERE e.run_id = r.run_id) AS n,
				(SELECT min(seq) FROM events e WHERE e.run_id = r.run_id) AS lo, (SELECT max(seq) FROM events e WHERE e.run_id = r.run_id) AS hi
			FROM look JOIN runs r USING (run_id))
			WHERE n > 0 AND (lo <> 1 OR hi <> n) OR last_seq > coalesce(hi, 0) OR n = 0 AND state NOT IN (1, 8) LIMIT ?1`,
		journal.SuspectEnd: sampled + `SELECT run_id || ': state ' || state || ' with ' || n || ' ends in its journal' FROM (
			SELECT r.run_id, r.state, (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = 17) AS n FROM look JOIN runs r USING (run_id))
			WHERE n > 1 OR (state >= 6) <> (n = 1) LIMIT ?1`,
		journal.SuspectGraph: sampled + `SELECT r.run_id || ': no graph ' || r.graph_hash FROM look JOIN runs r USING (run_id)
			WHERE NOT EXISTS (SELECT 1 FROM graphs g WHERE g.namespace = r.namespace AND g.hash = r.graph_hash) LIMIT ?1`,
		journal.SuspectDetails: sampled + `SELECT r.run_id || ': no details' FROM look JOIN runs r USING (run_id)
			WHERE NOT EXISTS (SELECT 1 FROM run_details d WHERE d.run_id = r.run_id) LIMIT ?1`,
		journal.SuspectSnapshot: sampled + `SELECT r.run_id || ': snapshot at ' || s.seq FROM look JOIN runs r USING (run_id) JOIN snapshots s USING (run_id)
			WHERE s.seq > (SELECT coalesce(max(seq), 0) FROM events e WHERE e.run_id = r.run_id) LIMIT ?1`,
		journal.SuspectChild: sampled + `SELECT r.run_id || ': child of ' || r.parent_run_id FROM look JOIN runs r USING (run_id)
			WHERE r.state < 6 AND r.parent_run_id <> '' AND NOT EXISTS (SELECT 1 FROM runs p WHERE p.run_id = r.parent_run_id AND p.namespace = r.namespace
				AND (p.state < 6 OR p.end_time > ` + now + ` - ` + minute + `)) LIMIT ?1`,
		journal.SuspectKey:         `SELECT run_id || ': holds ' || business_key FROM runs WHERE holds_key = 1 AND state >= 6 LIMIT ?1`,
		journal.SuspectInterrupt:   `SELECT i.id || ': of run ' || i.run_id FROM interrupts i WHERE i.state = 1 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = i.run_id AND r.state < 6) LIMIT ?1`,
		journal.SuspectCommandLost: `SELECT m.run_id || ': ' || m.kind FROM commands m WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = m.run_id AND r.state < 6) ORDER BY m.id LIMIT ?1`,
		journal.SuspectCommandOld: `SELECT m.run_id || ': ' || m.kind || ' of ' || ` + stamp("m.time") + ` FROM commands m JOIN runs r USING (run_id)
			WHERE m.time < ` + now + ` - ` + minute + ` AND r.state < 6 AND (r.state <> 5 OR m.kind IN ('RESUME', 'CANCEL')) ORDER BY m.id LIMIT ?1`,
		journal.SuspectOverdue: `SELECT run_id || ': due since ' || ` + stamp("wake_time") + ` FROM runs
			WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time > 0 AND wake_time < ` + now + ` - ` + minute + ` ORDER BY wake_time LIMIT ?1`,
		journal.SuspectOwner: `SELECT r.run_id || ': owned by ' || r.owner_id || ' ' || r.owner_incarnation FROM runs r
			WHERE r.state < 6 AND r.owner_id <> '' AND NOT` + live + ` LIMIT ?1`,
		journal.SuspectReleased: `SELECT run_id || ': running, without an owner' FROM runs WHERE state = 2 AND owner_id = '' ORDER BY run_id LIMIT ?1`,
		journal.SuspectPending: tenants + `SELECT r.run_id || ': since ' || ` + stamp("r.create_time") + ` FROM ns JOIN runs r ON r.namespace = ns.n
			WHERE r.state = 1 AND r.owner_id = '' AND r.wake_time = 0 AND r.create_time < ` + now + ` - 10 * ` + minute + ` LIMIT ?1`,
		journal.SuspectQuarantined: tenants + `SELECT r.run_id || ': ' || r.state_reason FROM ns JOIN runs r ON r.namespace = ns.n WHERE r.state = 5 LIMIT ?1`,
		journal.SuspectReconcile: tenants + `SELECT r.run_id || ': ' || r.state_reason FROM ns JOIN runs r ON r.namespace = ns.n
			WHERE r.state = 4 AND r.state_reason = 'NEEDS_RECONCILIATION' LIMIT ?1`,
		journal.SuspectOutbox: `SELECT run_id || ': ' || kind || ', ' || attempts || ' tries, ' || last_error FROM
			(SELECT * FROM outbox ORDER BY id LIMIT 1000) WHERE attempts >= 5 ORDER BY id LIMIT ?1`,
		journal.SuspectJob: `SELECT 'job ' || id || ': ' || kind || ', ' || state || ', ' || json(args) FROM river_job
			WHERE state = 'discarded' AND json(metadata) NOT LIKE '%unique_key_conflict%' OR state = 'running' AND attempted_at < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 hour') LIMIT ?1`,
		journal.SuspectLimit: `SELECT h.owner_id || ': ' || h.held || ' of ' || h.name || ' in ' || h.namespace FROM limit_holdings h WHERE h.held > 0
			AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.id = h.owner_id AND e.incarnation = h.owner_incarnation) LIMIT ?1`,
		journal.SuspectRequest: `SELECT request_id || ': of ' || ` + stamp("create_time") + ` FROM request_ids WHERE create_time < ` + now + ` - 96 * 60 * ` + minute + ` ORDER BY create_time LIMIT ?1`,
		journal.SuspectSchedule: `SELECT id || ' in ' || namespace || ': due since ' || ` + stamp("due") + ` FROM schedules
			WHERE due > 0 AND due < ` + now + ` - ` + minute + ` ORDER BY due LIMIT ?1`,
		// Only a whole examination reads every page of the file.
		journal.SuspectSetting: `SELECT * FROM (SELECT 'file: ' || quick_check AS line FROM pragma_quick_check WHERE ?2 < 0 AND quick_check <> 'ok'
			UNION ALL SELECT 'synchronous is ' || synchronous FROM pragma_synchronous WHERE synchronous < 2) LIMIT ?1`,
	}
}

// Suspects implements journal.Inspector.
func (s *Store) Suspects(ctx context.Context, what journal.Suspicion, in journal.Sample, limit int) ([]string, error) {
	q, ok := suspicions()[what]
	if !ok {
		return nil, nil
	}
	args := []any{limit}
	if strings.Contains(q, "?2") {
		args = append(args, sizeOf(in))
	}
	if strings.Contains(q, "?3") {
		args = append(args, in.From)
	}
	rows, err := s.db.Read.QueryContext(ctx, q, args...)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (line string, err error) {
		err = rows.Scan(&line)
		return line, err
	})
}

// sizeOf is half a sample; -1 is no bound.
func sizeOf(in journal.Sample) int {
	if in.Size <= 0 {
		return -1
	}
	return max(in.Size/2, 1)
}

// Runs implements journal.Inspector.
func (s *Store) Runs(ctx context.Context, in journal.Sample) ([]journal.RunRef, error) {
	rows, err := s.db.Read.QueryContext(ctx, sampled+`SELECT namespace, run_id, state FROM look JOIN runs USING (run_id) LIMIT ?1`, -1, sizeOf(in), in.From)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (r journal.RunRef, err error) {
		err = rows.Scan(&r.Namespace, &r.RunID, &r.State)
		return r, err
	})
}

// BlobsOf implements journal.Inspector.
func (s *Store) BlobsOf(ctx context.Context, in journal.Sample, limit int) ([]journal.BlobOfRun, error) {
	rows, err := s.db.Read.QueryContext(ctx, sampled+`SELECT b.namespace, b.hash, min(b.run_id) FROM look JOIN blob_refs b USING (run_id) GROUP BY b.namespace, b.hash ORDER BY 3 DESC LIMIT ?1`,
		limit, sizeOf(in), in.From)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (b journal.BlobOfRun, err error) {
		var hash []byte
		err = rows.Scan(&b.Namespace, &hash, &b.RunID)
		copy(b.Hash[:], hash)
		return b, err
	})
}

// Now implements journal.Inspector.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	var us int64
	err := s.db.Read.QueryRowContext(ctx, `SELECT `+now).Scan(&us)
	return dbkit.FromUnixMicros(us), err
}

// LastRunID implements journal.Inspector.
func (s *Store) LastRunID(ctx context.Context) (first, last string, err error) {
	err = s.db.Read.QueryRowContext(ctx, `SELECT coalesce((SELECT min(run_id) FROM runs), ''), coalesce((SELECT max(run_id) FROM runs), '')`).Scan(&first, &last)
	return first, last, err
}
