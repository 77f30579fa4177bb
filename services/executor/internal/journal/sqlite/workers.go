package sqlite

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// pollWorkers is how often another process's workers are looked for.
const pollWorkers = 500 * time.Millisecond

// workersWoken is the name of waiters for workers among those that wait for something; no executor is called
// so.
const workersWoken = "\x00workers"

// SyncWorkers implements journal.Workers.
func (s *Store) SyncWorkers(ctx context.Context, self journal.Owner, w journal.WorkerSync) error {
	err := s.Store.SyncWorkers(ctx, self, w)
	if err == nil && w.Wakes() {
		s.wake(workersWoken)
	}
	return err
}

// WorkerWakes implements journal.Workers. Workers of this process come at once, those of another on the same
// file by polling.
func (s *Store) WorkerWakes(ctx context.Context) (<-chan struct{}, error) {
	return s.wakesOf(ctx, workersWoken, pollWorkers, func() bool {
		var n int
		err := s.db.Read.QueryRowContext(ctx, `SELECT count(*) FROM executors`).Scan(&n)
		return err != nil || n > 1
	}), nil
}
