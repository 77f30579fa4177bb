package pg

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

var _ journal.Inspector = (*Store)(nil)

const (
	// sampled is the head of queries that look at runs one by one. Without a size it is every run.
	sampled = `WITH look AS ((SELECT run_id FROM runs ORDER BY run_id DESC LIMIT $2) UNION (SELECT run_id FROM runs WHERE run_id >= $3 ORDER BY run_id LIMIT $2)) `
	// lookedAt are the runs of the sample.
	lookedAt = `look CROSS JOIN LATERAL (SELECT * FROM runs WHERE runs.run_id = look.run_id OFFSET 0) r`
	// tenants skips from one namespace to the next, however many runs each has.
	tenants = `WITH RECURSIVE ns (n) AS ((SELECT min(namespace) FROM runs) UNION ALL
		SELECT (SELECT min(r.namespace) FROM runs r WHERE r.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL) `
	registered = ` EXISTS (SELECT FROM executors e WHERE e.id = r.owner_id AND e.incarnation = r.owner_incarnation) `
)

// suspicions are queries whose rows are one line of text each. $1 bounds the rows; those that begin with
// sampled also have $2 and $3.
func suspicions() map[journal.Suspicion]string {
	return map[journal.Suspicion]string{
		journal.SuspectGap: sampled + `SELECT r.run_id || format(': %s events from %s to %s, the row says %s', e.n, coalesce(e.lo, 0), coalesce(e.hi, 0), r.last_seq)
			FROM ` + lookedAt + ` CROSS JOIN LATERAL (SELECT count(*) AS n, min(seq) AS lo, max(seq) AS hi FROM events WHERE run_id = r.run_id) e
			WHERE e.n > 0 AND (e.lo <> 1 OR e.hi <> e.n) OR r.last_seq > coalesce(e.hi, 0) OR e.n = 0 AND r.state NOT IN (1, 8) LIMIT $1`,
		journal.SuspectEnd: sampled + `SELECT r.run_id || format(': state %s with %s ends in its journal', r.state, e.n)
			FROM ` + lookedAt + ` CROSS JOIN LATERAL (SELECT count(*) AS n FROM events WHERE run_id = r.run_id AND kind = 17) e
			WHERE e.n > 1 OR (r.state >= 6) <> (e.n = 1) LIMIT $1`,
		journal.SuspectGraph: sampled + `SELECT r.run_id || ': no graph ' || r.graph_hash FROM ` + lookedAt + `
			WHERE (SELECT true FROM graphs g WHERE g.namespace = r.namespace AND g.hash = r.graph_hash) IS NULL LIMIT $1`,
		journal.SuspectDetails: sampled + `SELECT r.run_id || ': no details' FROM ` + lookedAt + `
			WHERE (SELECT true FROM run_details d WHERE d.run_id = r.run_id) IS NULL LIMIT $1`,
		journal.SuspectSnapshot: sampled + `SELECT r.run_id || format(': snapshot at %s', s.seq) FROM ` + lookedAt + ` CROSS JOIN LATERAL (SELECT seq FROM snapshots WHERE run_id = r.run_id OFFSET 0) s
			WHERE s.seq > (SELECT coalesce(max(seq), 0) FROM events WHERE run_id = r.run_id) LIMIT $1`,
		journal.SuspectChild: sampled + `SELECT r.run_id || ': child of ' || r.parent_run_id FROM ` + lookedAt + `
			WHERE r.state < 6 AND r.parent_run_id <> '' AND NOT EXISTS (SELECT FROM runs p WHERE p.run_id = r.parent_run_id AND p.namespace || '' = r.namespace
				AND (p.state < 6 OR p.end_time > now() - interval '1 minute')) LIMIT $1`,
		journal.SuspectKey:         `SELECT run_id || ': holds ' || business_key FROM runs WHERE holds_key AND state >= 6 LIMIT $1`,
		journal.SuspectInterrupt:   `SELECT i.id || ': of run ' || i.run_id FROM interrupts i WHERE i.state = 1 AND (SELECT r.state < 6 FROM runs r WHERE r.run_id = i.run_id) IS NOT TRUE LIMIT $1`,
		journal.SuspectCommandLost: `SELECT m.run_id || ': ' || m.kind FROM commands m WHERE (SELECT r.state < 6 FROM runs r WHERE r.run_id = m.run_id) IS NOT TRUE ORDER BY m.id LIMIT $1`,
		journal.SuspectCommandOld: `SELECT m.run_id || format(': %s of %s, %s old', m.kind, to_char(m.time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), date_trunc('second', now() - m.time))
			FROM commands m CROSS JOIN LATERAL (SELECT state FROM runs WHERE runs.run_id = m.run_id OFFSET 0) r WHERE m.time < now() - interval '1 minute' AND r.state < 6 AND (r.state <> 5 OR m.kind IN ('RESUME', 'CANCEL')) ORDER BY m.id LIMIT $1`,
		journal.SuspectOverdue: `SELECT run_id || ': due since ' || to_char(wake_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') FROM runs
			WHERE state IN (1, 3, 4) AND owner_id = '' AND wake_time < now() - interval '1 minute' ORDER BY wake_time LIMIT $1`,
		journal.SuspectOwner: `SELECT r.run_id || ': owned by ' || r.owner_id || ' ' || r.owner_incarnation FROM runs r
			WHERE r.state < 6 AND r.owner_id <> '' AND NOT` + registered + `LIMIT $1`,
		journal.SuspectReleased: `SELECT run_id || ': running, without an owner' FROM runs WHERE state = 2 AND owner_id = '' ORDER BY run_id LIMIT $1`,
		journal.SuspectPending: tenants + `SELECT x.run_id || ': since ' || to_char(x.create_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') FROM ns CROSS JOIN LATERAL
			(SELECT r.run_id, r.create_time FROM runs r WHERE r.namespace = ns.n AND r.state = 1 AND r.owner_id = '' AND r.wake_time IS NULL
				AND r.create_time < now() - interval '10 minutes' ORDER BY r.priority, r.create_time, r.run_id LIMIT $1) x LIMIT $1`,
		journal.SuspectQuarantined: tenants + `SELECT x.run_id || ': ' || x.state_reason FROM ns CROSS JOIN LATERAL
			(SELECT r.run_id, r.state_reason FROM runs r WHERE r.namespace = ns.n AND r.state = 5 ORDER BY r.create_time DESC, r.run_id DESC LIMIT $1) x LIMIT $1`,
		journal.SuspectReconcile: tenants + `SELECT x.run_id || ': ' || x.state_reason FROM ns CROSS JOIN LATERAL
			(SELECT r.run_id, r.state_reason FROM runs r WHERE r.namespace = ns.n AND r.state = 4 AND r.state_reason = 'NEEDS_RECONCILIATION'
				ORDER BY r.create_time DESC, r.run_id DESC LIMIT $1) x LIMIT $1`,
		journal.SuspectOutbox: `SELECT run_id || format(': %s, %s tries, %s', kind, attempts, last_error) FROM
			(SELECT * FROM outbox ORDER BY id LIMIT 1000) o WHERE attempts >= 5 ORDER BY id LIMIT $1`,
		journal.SuspectJob: `(SELECT 'job ' || id || format(': %s, given up after %s tries, %s', kind, attempt, args) FROM river_job WHERE state = 'discarded'
				-- One that waits again beside an equal one goes this way, too.
				AND NOT metadata ? 'unique_key_conflict' LIMIT $1)
			UNION ALL (SELECT 'job ' || id || format(': %s, under way since %s, %s', kind, attempted_at, args) FROM river_job
			WHERE state = 'running' AND attempted_at < now() - interval '1 hour' LIMIT $1) LIMIT $1`,
		journal.SuspectLimit: `SELECT h.owner_id || format(': %s of %s in %s', h.held, h.name, h.namespace) FROM limit_holdings h WHERE h.held > 0
			AND NOT EXISTS (SELECT FROM executors e WHERE e.id = h.owner_id AND e.incarnation = h.owner_incarnation) LIMIT $1`,
		journal.SuspectRequest: `SELECT request_id || ': of ' || create_time FROM request_ids WHERE create_time < now() - interval '96 hours' ORDER BY create_time LIMIT $1`,
		journal.SuspectSchedule: `SELECT id || ' in ' || namespace || ': due since ' || to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') FROM schedules
			WHERE due < now() - interval '1 minute' ORDER BY due LIMIT $1`,
		journal.SuspectSetting: `SELECT name || ' is ' || setting FROM pg_settings WHERE setting = 'off' AND name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum') LIMIT $1`,
	}
}

// Suspects implements journal.Inspector.
func (s *Store) Suspects(ctx context.Context, what journal.Suspicion, in journal.Sample, limit int) (found []string, err error) {
	err = s.look(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if what == journal.SuspectPartition {
			found, err = partitions(ctx, tx, time.Now(), limit)
			return err
		}
		q, ok := suspicions()[what]
		if !ok {
			return nil
		}
		args := []any{limit}
		if strings.HasPrefix(q, sampled) {
			args = append(args, sizeOf(in), in.From)
		}
		rows, err := tx.Query(ctx, q, args...)
		found, err = collect(rows, err, pgx.RowTo[string])
		return err
	})
	return found, err
}

// sizeOf is half a sample; null is no bound.
func sizeOf(in journal.Sample) *int {
	if in.Size <= 0 {
		return nil
	}
	half := max(in.Size/2, 1)
	return &half
}

// look reads only, and is stopped by the server, too, when its time is over.
func (s *Store) look(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	return dbkit.PostgresTxOptions(ctx, s.read, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		limit := "0"
		if at, ok := ctx.Deadline(); ok {
			limit = fmt.Sprint(max(time.Until(at).Milliseconds(), 1))
		}
		if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, limit); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// Runs implements journal.Inspector.
func (s *Store) Runs(ctx context.Context, in journal.Sample) (refs []journal.RunRef, err error) {
	err = s.look(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, strings.NewReplacer("$2", "$1", "$3", "$2").Replace(sampled)+`SELECT r.namespace, r.run_id, r.state FROM `+lookedAt, sizeOf(in), in.From)
		refs, err = collect(rows, err, func(row pgx.CollectableRow) (r journal.RunRef, err error) {
			err = row.Scan(&r.Namespace, &r.RunID, &r.State)
			return r, err
		})
		return err
	})
	return refs, err
}

// BlobsOf implements journal.Inspector.
func (s *Store) BlobsOf(ctx context.Context, in journal.Sample, limit int) (found []journal.BlobOfRun, err error) {
	err = s.look(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sampled+`SELECT b.namespace, b.hash, min(b.run_id) FROM look CROSS JOIN LATERAL (SELECT * FROM blob_refs WHERE blob_refs.run_id = look.run_id OFFSET 0) b GROUP BY b.namespace, b.hash ORDER BY 3 DESC LIMIT $1`,
			limit, sizeOf(in), in.From)
		found, err = collect(rows, err, func(row pgx.CollectableRow) (b journal.BlobOfRun, err error) {
			var hash []byte
			err = row.Scan(&b.Namespace, &hash, &b.RunID)
			copy(b.Hash[:], hash)
			return b, err
		})
		return err
	})
	return found, err
}

// Now implements journal.Inspector.
func (s *Store) Now(ctx context.Context) (now time.Time, err error) {
	err = s.read.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return now, err
}

// LastRunID implements journal.Inspector.
func (s *Store) LastRunID(ctx context.Context) (first, last string, err error) {
	err = s.read.QueryRow(ctx, `SELECT coalesce((SELECT run_id FROM runs ORDER BY run_id LIMIT 1), ''), coalesce((SELECT run_id FROM runs ORDER BY run_id DESC LIMIT 1), '')`).Scan(&first, &last)
	return first, last, err
}

// partitionReserve is how long before its end the last partition must have a successor.
const partitionReserve = 12 * time.Hour

// partitions looks whether new events have a partition, and that none lie in the one for what has no other. Tables that are not
// partitioned are fine.
func partitions(ctx context.Context, tx pgx.Tx, now time.Time, limit int) ([]string, error) {
	parts, err := eventParts(ctx, tx)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	var found []string
	var last time.Time
	for _, p := range parts {
		if p.bound == "DEFAULT" {
			var n int
			// The name comes from the catalog, which has quoted it.
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM `+p.name+` LIMIT 1000) x`).Scan(&n); err != nil {
				return nil, err
			}
			if n > 0 {
				found = append(found, fmt.Sprintf("%s: %d events or more have no partition of their own", p.name, n))
			}
			continue
		}
		if p.end.After(last) {
			last = p.end
		}
	}
	if left := last.Sub(now); !last.IsZero() && left < partitionReserve {
		found = append(found, fmt.Sprintf("events: the last partition ends at %s", last.UTC().Format(time.RFC3339)))
	}
	return found[:min(len(found), limit)], nil
}

// upper is the time of the upper bound of a partition by run id: FOR VALUES FROM ('run_01…') TO ('run_01…').
func upper(bound string) (time.Time, bool) {
	_, to, ok := strings.Cut(bound, ") TO ('")
	if !ok {
		return time.Time{}, false
	}
	id, _, _ := strings.Cut(to, "'")
	if _, id, ok = strings.Cut(id, "_"); !ok {
		return time.Time{}, false
	}
	// Bounds may be cut short after the time.
	u, err := ulid.ParseStrict(strings.ToUpper(id + strings.Repeat("0", max(0, ulid.EncodedSize-len(id)))))
	if err != nil {
		return time.Time{}, false
	}
	return ulid.Time(u.Time()), true
}
