package pg_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

// BenchmarkWAL measures the log that one event costs in commits of 64 events of as many runs, beside multi-row inserts of the same events
// into a table without anything else.
func BenchmarkWAL(b *testing.B) {
	const runs = 64
	url := template.New(b)
	ctx := b.Context()
	s, err := pg.Open(ctx, url, pg.Options{})
	require.NoError(b, err)
	defer s.Close()
	me, err := s.Register(ctx, "a", "")
	require.NoError(b, err)
	pool, err := dbkit.OpenPostgres(ctx, url, pg.Schema, dbkit.PostgresOptions{StatementTimeout: -1})
	require.NoError(b, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, `CREATE TABLE raw (LIKE events INCLUDING ALL)`)
	require.NoError(b, err)
	at, data := time.Now(), bytes.Repeat([]byte("d"), 100)
	writes, names := make([]journal.Write, runs), make([]string, runs)
	for i := range writes {
		names[i] = ids.New("run")
		writes[i].Start = &journal.Start{
			Run:    journal.Run{ID: names[i], Namespace: "default", GraphHash: "h", CreateTime: at, Status: journal.Status{State: journal.StateRunning}},
			Events: []journal.Event{{Kind: 1, Time: at}},
		}
	}
	_, err = s.Commit(ctx, me, writes)
	require.NoError(b, err)
	next := map[string]int64{"journal": 1, "raw": 1}
	for name, f := range map[string]func(seq int64){
		"journal": func(seq int64) {
			for i := range writes {
				writes[i] = journal.Write{Append: &journal.Append{Namespace: "default", RunID: names[i], ExpectedLastSeq: seq, Progress: true,
					Events: []journal.Event{{Kind: 12, Time: at, NodeID: "node-7", Visit: 1, Data: data}}}}
			}
			res, err := s.Commit(ctx, me, writes)
			require.NoError(b, err)
			require.NoError(b, res[runs-1].Err)
		},
		"raw": func(seq int64) {
			_, err := pool.Exec(ctx, `INSERT INTO raw (run_id, seq, namespace, time, kind, node_id, visit, data)
				SELECT r, $2, 'default', now(), 12, 'node-7', 1, $3 FROM unnest($1::text[]) AS u (r)`, names, seq+1, data)
			require.NoError(b, err)
		},
	} {
		b.Run(name, func(b *testing.B) {
			seq := next[name]
			defer func() { next[name] = seq }()
			// Without page images: the first touch of each page after a checkpoint.
			f(seq)
			seq++
			wal := func(from string) (lsn string, n int64) {
				row := pool.QueryRow(ctx, `SELECT pg_current_wal_lsn()::text, coalesce(pg_current_wal_lsn() - nullif($1, '')::pg_lsn, 0)::bigint`, from)
				if err := row.Scan(&lsn, &n); err != nil && err != pgx.ErrNoRows {
					b.Fatal(err)
				}
				return lsn, n
			}
			from, _ := wal("")
			events := 0
			for b.Loop() {
				f(seq)
				seq++
				events += runs
			}
			_, n := wal(from)
			b.ReportMetric(float64(n)/float64(events), "WAL-B/event")
		})
	}
}
