package pg

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
)

// workerChannel is told when workers come. The payload is empty, so that many notifications of one moment
// become one.
const workerChannel = "executor_workers"

// WorkerWakes implements journal.Workers.
func (s *Store) WorkerWakes(ctx context.Context) (<-chan struct{}, error) {
	return dbkit.Listen(ctx, s.hot, workerChannel, 1, struct{}{}, func(string) (struct{}, bool) { return struct{}{}, true })
}
