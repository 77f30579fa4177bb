package floor_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// sizes are rows per commit: one is the bare commit.
var sizes = []int{1, 100, 1000}

var payload = bytes.Repeat([]byte("x"), 256)

func BenchmarkPostgres(b *testing.B) {
	ctx := b.Context()
	conn, err := pgx.Connect(ctx, pgtest.New(b))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close(context.WithoutCancel(ctx))) })
	_, err = conn.Exec(ctx, `CREATE TABLE event (run text, seq bigint, kind int, node text, payload bytea, PRIMARY KEY (run, seq))`)
	require.NoError(b, err)

	for _, n := range sizes {
		b.Run(fmt.Sprintf("Commit/rows=%d", n), func(b *testing.B) {
			run := b.Name() + fmt.Sprint(b.N)
			seq := int64(0)
			for b.Loop() {
				runs, seqs, payloads := make([]string, n), make([]int64, n), make([][]byte, n)
				for i := range n {
					seq++
					runs[i], seqs[i], payloads[i] = run, seq, payload
				}
				_, err := conn.Exec(ctx, `INSERT INTO event SELECT r, s, 1, 'node', p FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS t (r, s, p)`, runs, seqs, payloads)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkSQLite(b *testing.B) {
	ctx := b.Context()
	db, err := dbkit.OpenSQLite(ctx, filepath.Join(b.TempDir(), "floor.db"))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	_, err = db.Write.ExecContext(ctx, `CREATE TABLE event (run TEXT, seq INTEGER, kind INTEGER, node TEXT, payload BLOB, PRIMARY KEY (run, seq)) WITHOUT ROWID`)
	require.NoError(b, err)

	for _, n := range sizes {
		// One statement carries at most this many rows, because of the limit on variables.
		rows := min(n, 100)
		stmt, err := db.Write.PrepareContext(ctx, `INSERT INTO event VALUES (?, ?, 1, 'node', ?)`+strings.Repeat(`, (?, ?, 1, 'node', ?)`, rows-1))
		require.NoError(b, err)
		b.Run(fmt.Sprintf("Commit/rows=%d", n), func(b *testing.B) {
			run := b.Name() + fmt.Sprint(b.N)
			seq := 0
			args := make([]any, 0, 3*rows)
			for b.Loop() {
				require.NoError(b, db.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
					insert := tx.StmtContext(ctx, stmt)
					for range n / rows {
						args = args[:0]
						for range rows {
							seq++
							args = append(args, run, seq, payload)
						}
						if _, err := insert.ExecContext(ctx, args...); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
		require.NoError(b, stmt.Close())
	}
}
