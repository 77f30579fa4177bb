package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// KeptOutcome implements journal.OutcomeCache.
func (s *Store) KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error) {
	var end int64
	err = s.db.Read.QueryRowContext(ctx, `SELECT outcome, expire_time FROM kept_outcomes WHERE namespace = ? AND key = ? AND expire_time > ?`, namespace, key, micros(now)).Scan(&outcome, &end)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, time.Time{}, nil
	}
	return outcome, dbkit.FromUnixMicros(end), err
}

// KeepOutcome implements journal.OutcomeCache.
func (s *Store) KeepOutcome(ctx context.Context, namespace string, key, outcome []byte, until time.Time) error {
	return s.update(ctx, func(ctx context.Context, t txn) error {
		_, err := t.exec(ctx, `INSERT INTO kept_outcomes (namespace, key, outcome, expire_time) VALUES (?, ?, ?, ?)
			ON CONFLICT (namespace, key) DO UPDATE SET outcome = excluded.outcome, expire_time = excluded.expire_time`, namespace, key, outcome, micros(until))
		return err
	})
}

// SweepOutcomes implements journal.OutcomeCache.
func (s *Store) SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error) {
	var n int64
	err := s.update(ctx, func(ctx context.Context, t txn) error {
		expired, err := t.exec(ctx, `DELETE FROM kept_outcomes WHERE expire_time <= ?`, micros(now))
		if err != nil {
			return fmt.Errorf("remove expired outcomes: %w", err)
		}
		tooMany, err := t.exec(ctx, `DELETE FROM kept_outcomes WHERE (namespace, key) IN (SELECT namespace, key FROM (
			SELECT namespace, key, row_number() OVER (PARTITION BY namespace ORDER BY expire_time DESC, key) AS place FROM kept_outcomes) WHERE place > ?)`, most)
		if err != nil {
			return fmt.Errorf("remove outcomes beyond the limit: %w", err)
		}
		n = expired + tooMany
		return nil
	})
	return int(n), err
}
