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

// suspicions are the queries of sqlstore.Store.Suspicions that only this database has.
func suspicions() map[journal.Suspicion]string {
	return map[journal.Suspicion]string{
		journal.SuspectKey: `SELECT run_id || ': holds ' || business_key FROM runs WHERE holds_key AND state >= 6 LIMIT $1`,
		journal.SuspectJob: `(SELECT 'job ' || id || format(': %s, given up after %s tries, %s', kind, attempt, args) FROM river_job WHERE state = 'discarded'
				-- One that waits again beside an equal one goes this way, too.
				AND NOT metadata ? 'unique_key_conflict' LIMIT $1)
			UNION ALL (SELECT 'job ' || id || format(': %s, under way since %s, %s', kind, attempted_at, args) FROM river_job
			WHERE state = 'running' AND attempted_at < now() - interval '1 hour' LIMIT $1) LIMIT $1`,
		journal.SuspectSetting: `SELECT name || ' is ' || setting FROM pg_settings
			WHERE setting = 'off' AND name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum') LIMIT $1`,
	}
}

// Suspects implements journal.Inspector.
func (s *Store) Suspects(ctx context.Context, what journal.Suspicion, in journal.Sample, limit int) (found []string, err error) {
	if what != journal.SuspectPartition {
		return s.Store.Suspects(ctx, what, in, limit)
	}
	err = dbkit.PostgresTxOptions(ctx, s.read, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		found, err = partitions(ctx, tx, time.Now(), limit)
		return err
	})
	return found, err
}

// partitionReserve is how long before its end the last partition must have a successor.
const partitionReserve = 12 * time.Hour

// partitions finds missing partitions for new events, and events in the partition for those that have no
// other.
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

// upper is the time of the upper bound of a partition by run id: FOR VALUES FROM ('run_01…') TO
// ('run_01…').
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
