package pg_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

// BenchmarkStatusCoalescer is the write of one event and a status, of 64 runs of 10 nodes at a time: with the
// status in every write, and with those coalesced that say only how many nodes have ended.
func BenchmarkStatusCoalescer(b *testing.B) {
	const runs, nodes = 64, 10
	data := bytes.Repeat([]byte("d"), 80)
	for _, c := range []struct {
		name  string
		every time.Duration
	}{{"Without", -1}, {"With", 0}} {
		b.Run(c.name, func(b *testing.B) {
			ctx := b.Context()
			url := template.New(b)
			j, err := pg.Open(ctx, url, pg.Options{})
			require.NoError(b, err)
			defer func() { require.NoError(b, j.Close()) }()
			conn, err := pgx.Connect(ctx, url)
			require.NoError(b, err)
			defer func() { require.NoError(b, conn.Close(ctx)) }()
			me, err := j.Register(ctx, "bench", "")
			require.NoError(b, err)
			w := journal.NewWriter(j, me, journal.WriterOptions{RowEvery: c.every})
			go func() { _ = w.Run(ctx) }()
			written := func() (n int64) {
				require.NoError(b, conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&n))
				return n
			}
			run := func() {
				now := time.Now()
				event := journal.Event{Kind: 12, NodeID: "node-7", Visit: 1, Time: now, Data: data}
				status := journal.Status{State: journal.StateRunning, StartTime: now, UpdateTime: now}
				id := ids.New("run")
				_, err := w.Do(ctx, journal.Write{Start: &journal.Start{Append: journal.Append{Events: []journal.Event{event}},
					Run: journal.Run{ID: id, Namespace: "n", GraphHash: "h", CreateTime: now, Status: status}}})
				for k := range nodes {
					if err != nil {
						break
					}
					s := status
					if s.Nodes.Completed = int32(k + 1); k == nodes-1 {
						s.State, s.EndTime = journal.StateCompleted, now
					}
					_, err = w.Do(ctx, journal.Write{Append: &journal.Append{Namespace: "n", RunID: id, ExpectedLastSeq: int64(k + 1), Progress: true,
						Events: []journal.Event{event}, Status: &s}})
				}
				if err != nil {
					b.Error(err)
				}
			}
			before := written()
			for b.Loop() {
				var wg sync.WaitGroup
				for range runs {
					wg.Go(run)
				}
				wg.Wait()
			}
			b.ReportMetric(float64(written()-before)/float64(b.N*runs*nodes), "wal-B/node")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*runs*nodes), "µs/node")
		})
	}
}
