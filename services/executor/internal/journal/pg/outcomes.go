package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// KeptOutcome implements journal.OutcomeCache.
func (s *Store) KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error) {
	err = s.read.QueryRow(ctx, `SELECT outcome, expire_time FROM kept_outcomes WHERE namespace = $1 AND key = $2 AND expire_time > $3`, namespace, key, dbkit.Micros(now)).Scan(&outcome, &until)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, time.Time{}, nil
	}
	return outcome, until.UTC(), away(err)
}

// KeepOutcome implements journal.OutcomeCache.
func (s *Store) KeepOutcome(ctx context.Context, namespace string, key, outcome []byte, until time.Time) error {
	_, err := s.hot.Exec(ctx, `INSERT INTO kept_outcomes (namespace, key, outcome, expire_time) VALUES ($1, $2, $3, $4)
		ON CONFLICT (namespace, key) DO UPDATE SET outcome = excluded.outcome, expire_time = excluded.expire_time`, namespace, key, outcome, dbkit.Micros(until))
	return away(err)
}

// SweepOutcomes implements journal.OutcomeCache.
func (s *Store) SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error) {
	expired, err := s.read.Exec(ctx, `DELETE FROM kept_outcomes WHERE expire_time <= $1`, dbkit.Micros(now))
	if err != nil {
		return 0, fmt.Errorf("remove expired outcomes: %w", away(err))
	}
	tooMany, err := s.read.Exec(ctx, `DELETE FROM kept_outcomes k USING (
			SELECT namespace, key, row_number() OVER (PARTITION BY namespace ORDER BY expire_time DESC, key) AS place FROM kept_outcomes
		) o WHERE o.place > $1 AND k.namespace = o.namespace AND k.key = o.key`, most)
	if err != nil {
		return int(expired.RowsAffected()), fmt.Errorf("remove outcomes beyond the limit: %w", away(err))
	}
	return int(expired.RowsAffected() + tooMany.RowsAffected()), nil
}
