package pg_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/pg"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/storetest"
)

var (
	scaleTasks   = flag.Int("scale-tasks", 20_000, "tasks of BenchmarkScale")
	scaleEntries = flag.Int("scale-entries", 40_000, "usage entries of BenchmarkScale")
)

func BenchmarkScale(b *testing.B) {
	var conn *pgx.Conn
	storetest.BenchScale(b, storetest.Filler{
		Open: func(t testing.TB) store.Store {
			url := template.New(t)
			s, err := pg.Open(t.Context(), url, dbkit.PostgresOptions{MaxConns: 10})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			conn, err = pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(t.Context())) })
			for _, set := range []string{`SET search_path = registry`, `SET work_mem = '128MB'`, `SET synchronous_commit = off`} {
				_, err = conn.Exec(t.Context(), set)
				require.NoError(t, err)
			}
			return s
		},
		Exec: func(b *testing.B, stmt string) {
			b.Helper()
			_, err := conn.Exec(b.Context(), stmt)
			require.NoError(b, err)
		},
		Series: func(n int) string { return fmt.Sprintf(`generate_series(0, %d) AS s (n)`, n-1) },
		Time: func(micros string) string {
			return `timestamptz '2026-01-01T00:00:00Z' + (` + micros + `) * interval '1 microsecond'`
		},
		Never: `NULL`, Tags: `'{tag}'`, After: []string{`VACUUM ANALYZE`},
	}, storetest.Scale{Tasks: *scaleTasks, Entries: *scaleEntries})
}
