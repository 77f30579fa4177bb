package sqlstore

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

const (
	// AddedUsage is the end of an insert of what the threads of a namespace take more. Each shard of a
	// namespace has a row, so that commits of several executors do not wait for each other; the usage is
	// the sum.
	AddedUsage = ` ON CONFLICT (namespace, shard) DO UPDATE SET threads = thread_usage.threads + excluded.threads, bytes = thread_usage.bytes + excluded.bytes`
	// SumOfUsage are the two columns of the usage of rows u.
	SumOfUsage = `CAST(coalesce(sum(u.threads), 0) AS bigint), CAST(coalesce(sum(u.bytes), 0) AS bigint)`
	// ownShard is that of all but commits.
	ownShard = 0
)

// UsageRow is what the batch of a run adds to the usage of its namespace.
type UsageRow struct {
	Batch *journal.RunBatch
	Shard int32
}

// UsageColumns are those of a UsageRow. The first one is no column of the table.
func UsageColumns() Columns[UsageRow] {
	return Columns[UsageRow]{
		Col("by_run", "text", func(u UsageRow) string { return u.Batch.RunID }),
		Col("namespace", "text", func(u UsageRow) string { return u.Batch.Namespace }),
		Col("shard", "int", func(u UsageRow) int32 { return u.Shard }),
		Col("threads", "bigint", func(u UsageRow) int64 { return u.Batch.ThreadUsage.Threads }),
		Col("bytes", "bigint", func(u UsageRow) int64 { return u.Batch.ThreadUsage.Bytes }),
	}
}

// ThreadUsage implements thread.Store.
func (s *Store) ThreadUsage(ctx context.Context, namespace string) (thread.Usage, error) {
	return threadUsage(ctx, s.db.Read, namespace)
}

func threadUsage(ctx context.Context, q dbkit.Querier, namespace string) (u thread.Usage, err error) {
	err = dbkit.FirstRow(q.Query(ctx, `SELECT `+SumOfUsage+` FROM thread_usage u WHERE u.namespace = $1`, namespace)).Scan(&u.Threads, &u.Bytes)
	return u, err
}

// use adds to the usage of a namespace, within its room. The row is locked first: two that come at once
// do not both find room for one.
func (s *Store) use(ctx context.Context, tx dbkit.Querier, namespace string, more thread.Usage, room thread.Room) error {
	if _, err := tx.Exec(ctx, `INSERT INTO thread_usage (namespace, shard, threads, bytes) VALUES ($1, $2, $3, $4)`+AddedUsage,
		namespace, ownShard, more.Threads, more.Bytes); err != nil {
		return err
	}
	used, err := threadUsage(ctx, tx, namespace)
	if err != nil {
		return err
	}
	return room.Check(used.Plus(thread.Usage{Threads: -more.Threads, Bytes: -more.Bytes}), more)
}
