package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// KeptOutcome implements journal.OutcomeCache.
func (s *Store) KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT outcome, expire_time FROM kept_outcomes
		WHERE namespace = $1 AND key = $2 AND expire_time > $3`, namespace, key, now)).Scan(&outcome, dbkit.At(&until))
	if none(err) {
		return nil, time.Time{}, nil
	}
	return outcome, until, err
}

// KeepOutcomeWith keeps an outcome in the transaction that writes an event of a run. The parameters are the
// namespace, the key, the outcome, the end of its time, the run, and the sequence of the event. It keeps
// nothing if the event was not written.
const KeepOutcomeWith = `INSERT INTO kept_outcomes (namespace, key, outcome, expire_time) SELECT $1, $2, $3, $4
	WHERE EXISTS (SELECT 1 FROM events e WHERE e.run_id = $5 AND e.seq = $6)
	ON CONFLICT (namespace, key) DO UPDATE SET outcome = excluded.outcome, expire_time = excluded.expire_time`

// KeptTools implements journal.ToolLists.
func (s *Store) KeptTools(ctx context.Context, server string) (list []byte, err error) {
	err = dbkit.FirstRow(s.db.Read.Query(ctx, `SELECT tools FROM mcp_servers WHERE name = $1`, server)).Scan(&list)
	if none(err) {
		return nil, nil
	}
	return list, err
}

// KeepTools implements journal.ToolLists.
func (s *Store) KeepTools(ctx context.Context, server string, list []byte) error {
	return Away(s.write(ctx, `INSERT INTO mcp_servers (name, tools) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET tools = excluded.tools`, server, list))
}

// SweepOutcomes implements journal.OutcomeCache.
func (s *Store) SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error) {
	expired, err := s.db.Read.Exec(ctx, `DELETE FROM kept_outcomes WHERE expire_time <= $1`, now)
	if err != nil {
		return 0, fmt.Errorf("remove expired outcomes: %w", err)
	}
	tooMany, err := s.db.Read.Exec(ctx, `DELETE FROM kept_outcomes WHERE (namespace, key) IN (SELECT namespace, key FROM (
		SELECT namespace, key, row_number() OVER (PARTITION BY namespace ORDER BY expire_time DESC, key) AS place FROM kept_outcomes) o
		WHERE place > $1)`, most)
	if err != nil {
		return int(expired), fmt.Errorf("remove outcomes beyond the limit: %w", err)
	}
	return int(expired + tooMany), nil
}
