package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

var _ journal.Inspector = (*Store)(nil)

const (
	// sampled is the head of queries that look at runs one by one.
	sampled = `WITH look AS (SELECT * FROM (SELECT run_id FROM runs ORDER BY run_id DESC LIMIT $2) a
		UNION SELECT * FROM (SELECT run_id FROM runs WHERE run_id >= $3 ORDER BY run_id LIMIT $2) b) `
	// tenants skips from one namespace to the next, however many runs each has.
	tenants = `WITH RECURSIVE ns (n) AS (SELECT * FROM (SELECT min(namespace) FROM runs) a UNION ALL
		SELECT (SELECT min(r.namespace) FROM runs r WHERE r.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL) `
	// owned holds for a run r whose owner is registered.
	owned = ` EXISTS (SELECT 1 FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation) `
	// endEvent is the kind of the event that ends a run.
	endEvent = `17`
)

// Suspicions are queries whose rows are one line of text each. $1 bounds the rows. Where there are $2 and $3,
// they are half the size of a sample of runs and where its second half begins.
func (s *Store) Suspicions() map[journal.Suspicion]string {
	d := s.d
	runs := `look` + d.LookUp(`runs`, `r`, `r.run_id = look.run_id`)
	ofTenants := func(cond string) string { return `ns` + d.LookUp(`runs`, `r`, `r.namespace = ns.n AND `+cond) }
	// open is whether the run of a row is open, which is false for one that is not there.
	open := func(runID string) string {
		return `coalesce((SELECT r.state < 6 FROM runs r WHERE r.run_id = ` + runID + `), false)`
	}
	out := map[journal.Suspicion]string{
		journal.SuspectGap: sampled + `SELECT run_id || ': ' || n || ' events from ' || coalesce(lo, 0) || ' to ' || coalesce(hi, 0) || ', the row says ' || last_seq FROM (
			SELECT r.run_id, r.last_seq, r.state, (SELECT count(*) FROM events e WHERE e.run_id = r.run_id) AS n,
				(SELECT min(seq) FROM events e WHERE e.run_id = r.run_id) AS lo, (SELECT max(seq) FROM events e WHERE e.run_id = r.run_id) AS hi
			FROM ` + runs + `) x WHERE n > 0 AND (lo <> 1 OR hi <> n) OR last_seq > coalesce(hi, 0) OR n = 0 AND state NOT IN (1, 8) LIMIT $1`,
		journal.SuspectEnd: sampled + `SELECT run_id || ': state ' || state || ' with ' || n || ' ends in its journal' FROM (
			SELECT r.run_id, r.state, (SELECT count(*) FROM events e WHERE e.run_id = r.run_id AND e.kind = ` + endEvent + `) AS n FROM ` + runs + `) x
			WHERE n > 1 OR (state >= 6) <> (n = 1) LIMIT $1`,
		journal.SuspectGraph: sampled + `SELECT r.run_id || ': no graph ' || r.graph_hash FROM ` + runs + `
			WHERE NOT ` + d.Holds(`graphs`, `g`, `g.namespace = r.namespace AND g.hash = r.graph_hash`) + ` LIMIT $1`,
		journal.SuspectDetails: sampled + `SELECT r.run_id || ': no details' FROM ` + runs + `
			WHERE NOT ` + d.Holds(`run_details`, `d`, `d.run_id = r.run_id`) + ` LIMIT $1`,
		journal.SuspectSnapshot: sampled + `SELECT r.run_id || ': snapshot at ' || s.seq FROM ` + runs + d.LookUp(`snapshots`, `s`, `s.run_id = r.run_id`) + `
			WHERE s.seq > (SELECT coalesce(max(seq), 0) FROM events e WHERE e.run_id = r.run_id) LIMIT $1`,
		journal.SuspectChild: sampled + `SELECT r.run_id || ': child of ' || r.parent_run_id FROM ` + runs + `
			WHERE r.state < 6 AND r.parent_run_id <> '' AND NOT ` + d.Holds(`runs`, `p`, `p.run_id = r.parent_run_id AND p.namespace || '' = r.namespace
				AND (p.state < 6 OR p.end_time > `+d.Ago(time.Minute)+`)`) + ` LIMIT $1`,
		journal.SuspectInterrupt:   `SELECT i.id || ': of run ' || i.run_id FROM interrupts i WHERE i.state = 1 AND NOT ` + open(`i.run_id`) + ` LIMIT $1`,
		journal.SuspectCommandLost: `SELECT m.run_id || ': ' || m.kind FROM commands m WHERE NOT ` + open(`m.run_id`) + ` ORDER BY m.id LIMIT $1`,
		journal.SuspectCommandOld: `SELECT m.run_id || ': ' || m.kind || ' of ' || ` + d.Stamp(`m.time`) + ` FROM commands m` + d.LookUp(`runs`, `r`, `r.run_id = m.run_id`) + `
			WHERE m.time < ` + d.Ago(time.Minute) + ` AND r.state < 6 AND (r.state <> 5 OR m.kind IN ('RESUME', 'CANCEL')) ORDER BY m.id LIMIT $1`,
		journal.SuspectOverdue: `SELECT run_id || ': due since ' || ` + d.Stamp(`wake_time`) + ` FROM runs
			WHERE state IN (1, 3, 4) AND owner_id = '' AND ` + d.Set(`wake_time`) + ` AND wake_time < ` + d.Ago(time.Minute) + ` ORDER BY wake_time LIMIT $1`,
		journal.SuspectOwner: `SELECT r.run_id || ': owned by ' || r.owner_id || ' ' || r.owner_incarnation FROM runs r
			WHERE r.state < 6 AND r.owner_id <> '' AND NOT` + owned + `LIMIT $1`,
		journal.SuspectReleased: `SELECT run_id || ': running, without an owner' FROM runs WHERE state = 2 AND owner_id = '' ORDER BY run_id LIMIT $1`,
		journal.SuspectPending: tenants + `SELECT r.run_id || ': since ' || ` + d.Stamp(`r.create_time`) + ` FROM ` +
			ofTenants(`r.state = 1 AND r.owner_id = '' AND `+d.Unset(`r.wake_time`)+` AND r.create_time < `+d.Ago(10*time.Minute)) + ` LIMIT $1`,
		journal.SuspectQuarantined: tenants + `SELECT r.run_id || ': ' || r.state_reason FROM ` + ofTenants(`r.state = 5`) + ` LIMIT $1`,
		journal.SuspectReconcile: tenants + `SELECT r.run_id || ': ' || r.state_reason FROM ` +
			ofTenants(`r.state = 4 AND r.state_reason = 'NEEDS_RECONCILIATION'`) + ` LIMIT $1`,
		journal.SuspectOutbox: `SELECT run_id || ': ' || kind || ', ' || attempts || ' tries, ' || last_error FROM
			(SELECT * FROM outbox ORDER BY id LIMIT 1000) o WHERE attempts >= 5 ORDER BY id LIMIT $1`,
		journal.SuspectLimit: `SELECT r.owner_id || ': ' || r.held || ' of ' || r.name || ' in ' || r.namespace FROM limit_holdings r WHERE r.held > 0
			AND NOT` + owned + `LIMIT $1`,
		journal.SuspectRequest: `SELECT request_id || ': of ' || ` + d.Stamp(`create_time`) + ` FROM request_ids
			WHERE create_time < ` + d.Ago(96*time.Hour) + ` ORDER BY create_time LIMIT $1`,
		journal.SuspectSchedule: `SELECT id || ' in ' || namespace || ': due since ' || ` + d.Stamp(`due`) + ` FROM schedules
			WHERE ` + d.Set(`due`) + ` AND due < ` + d.Ago(time.Minute) + ` ORDER BY due LIMIT $1`,
	}
	out[journal.SuspectThread] = `SELECT thread_id || ': ' || n || ' items after ' || parent_seq || ', the last is ' || hi FROM (
		SELECT t.thread_id, t.parent_seq, (SELECT count(*) FROM thread_items i WHERE i.thread_id = t.thread_id) AS n,
			coalesce((SELECT max(i.seq) FROM thread_items i WHERE i.thread_id = t.thread_id), t.parent_seq) AS hi
		FROM (SELECT * FROM threads ORDER BY thread_id DESC LIMIT $2) t WHERE ` + d.Unset(`t.hide_time`) + `) x WHERE n <> hi - parent_seq LIMIT $1`
	out[journal.SuspectTurn] = `SELECT u.thread_id || ': turn ' || u.number || ' of ' || ` + d.Stamp(`u.create_time`) + ` FROM thread_turns u` +
		d.LookUp(`threads`, `t`, `t.thread_id = u.thread_id`) + ` WHERE u.state = 1 AND u.create_time < ` + d.Ago(time.Minute) + ` AND ` + d.Unset(`t.hide_time`) + `
			AND NOT ` + open(`t.holder`) + ` AND NOT EXISTS (SELECT 1 FROM thread_turns s JOIN runs r ON r.run_id = s.run_id WHERE s.thread_id = u.thread_id AND s.state = 2 AND r.state < 6)
		ORDER BY u.create_time LIMIT $1`
	maps.Copy(out, s.db.Suspicions)
	return out
}

// Suspects implements journal.Inspector.
func (s *Store) Suspects(ctx context.Context, what journal.Suspicion, in journal.Sample, limit int) ([]string, error) {
	query, ok := s.Suspicions()[what]
	if !ok {
		return nil, nil
	}
	args := []any{limit}
	if strings.Contains(query, "$2") {
		args = append(args, sizeOf(in))
	}
	if strings.Contains(query, "$3") {
		args = append(args, in.From)
	}
	return inspect(ctx, s, func(rows dbkit.Rows) (line string, err error) {
		err = rows.Scan(&line)
		return line, err
	}, query, args...)
}

// sizeOf is half a sample.
func sizeOf(in journal.Sample) int {
	if in.Size <= 0 {
		return math.MaxInt
	}
	return max(in.Size/2, 1)
}

// inspect reads all rows of a query, and has the server stop it, too, when its time is over.
func inspect[T any](ctx context.Context, s *Store, scan func(dbkit.Rows) (T, error), query string, args ...any) (out []T, err error) {
	err = s.db.Read.Read(ctx, func(ctx context.Context, q dbkit.Querier) error {
		if at, ok := ctx.Deadline(); ok && s.db.Timeout != "" {
			if _, err := q.Exec(ctx, s.db.Timeout, fmt.Sprint(max(time.Until(at).Milliseconds(), 1))); err != nil {
				return err
			}
		}
		rows, err := q.Query(ctx, query, args...)
		out, err = dbkit.Collect(rows, err, scan)
		return err
	})
	return out, err
}

// Runs implements journal.Inspector.
func (s *Store) Runs(ctx context.Context, in journal.Sample) ([]journal.RunRef, error) {
	return inspect(ctx, s, func(rows dbkit.Rows) (r journal.RunRef, err error) {
		err = rows.Scan(&r.Namespace, &r.RunID, &r.State)
		return r, err
	}, sampled+`SELECT r.namespace, r.run_id, r.state FROM look`+s.d.LookUp(`runs`, `r`, `r.run_id = look.run_id`)+` LIMIT $1`, math.MaxInt, sizeOf(in), in.From)
}

// BlobsOf implements journal.Inspector.
func (s *Store) BlobsOf(ctx context.Context, in journal.Sample, limit int) ([]journal.BlobOfRun, error) {
	return inspect(ctx, s, func(rows dbkit.Rows) (b journal.BlobOfRun, err error) {
		var hash []byte
		err = rows.Scan(&b.Namespace, &hash, &b.RunID)
		copy(b.Hash[:], hash)
		return b, err
	}, sampled+`SELECT b.namespace, b.hash, min(b.run_id) FROM look`+s.d.LookUp(`blob_refs`, `b`, `b.run_id = look.run_id`)+`
		GROUP BY b.namespace, b.hash ORDER BY 3 DESC LIMIT $1`, limit, sizeOf(in), in.From)
}

// Now implements journal.Inspector.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT `+s.d.Now())).Scan(dbkit.At(&now))
	return now, err
}

// LastRunID implements journal.Inspector.
func (s *Store) LastRunID(ctx context.Context) (first, last string, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT coalesce((SELECT run_id FROM runs ORDER BY run_id LIMIT 1), ''),
		coalesce((SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 1), '')`)).Scan(&first, &last)
	return first, last, err
}
