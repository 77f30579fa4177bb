package pg_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/pg"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/storetest"
)

var (
	scaleTasks   = flag.Int("scale-tasks", 20_000, "tasks of BenchmarkScale")
	scaleEntries = flag.Int("scale-entries", 40_000, "usage entries of BenchmarkScale")
)

func BenchmarkScale(b *testing.B) {
	filler, _ := scaleFiller()
	storetest.BenchScale(b, filler, storetest.Scale{Tasks: *scaleTasks, Entries: *scaleEntries, Big: 10})
}

// TestFlat counts index entries, and rows that are read without an index.
//
//nolint:paralleltest // it counts what the whole database reads
func TestFlat(t *testing.T) {
	filler, db := scaleFiller()
	// Of little data PostgreSQL reads all, which would hide how much more it reads of much.
	filler.After = append(filler.After, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_seqscan = off', current_database()); END $$`,
		`SELECT pg_stat_force_next_flush()`) // what filling has read is counted by now
	storetest.RunFlat(t, filler, storetest.Meter{
		Again: func(t testing.TB) store.Store {
			s, err := pg.Open(t.Context(), db.url, dbkit.PostgresOptions{MaxConns: 2})
			require.NoError(t, err)
			return s
		},
		Read: func(t testing.TB) (n int64) {
			// A server process counts what it has read at its end at the latest.
			testkit.Eventually(t, func() bool {
				var open int
				require.NoError(t, db.conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&open))
				return open == 0
			})
			require.NoError(t, db.conn.QueryRow(t.Context(), `SELECT CAST((SELECT sum(seq_tup_read) FROM pg_stat_user_tables) +
				(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) AS bigint)`).Scan(&n))
			return n
		},
		Slack: 20,
	})
}

// filled is the database that was filled last.
type filled struct {
	url  string
	conn *pgx.Conn
}

func scaleFiller() (storetest.Filler, *filled) {
	db := &filled{}
	return storetest.Filler{
		Open: func(t testing.TB) store.Store {
			db.url = template.New(t)
			s, err := pg.Open(t.Context(), db.url, dbkit.PostgresOptions{MaxConns: 10})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			conn, err := pgx.Connect(t.Context(), db.url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(t.Context())) })
			for _, set := range []string{`SET search_path = registry`, `SET work_mem = '128MB'`, `SET synchronous_commit = off`} {
				_, err = conn.Exec(t.Context(), set)
				require.NoError(t, err)
			}
			db.conn = conn
			return s
		},
		Exec: func(t testing.TB, stmt string) {
			t.Helper()
			_, err := db.conn.Exec(t.Context(), stmt)
			require.NoError(t, err)
		},
		Indexes: func(t testing.TB) []string {
			t.Helper()
			rows, err := db.conn.Query(t.Context(), `SELECT 'DROP INDEX ' || x.indexrelid::regclass, pg_get_indexdef(x.indexrelid) FROM pg_index x
				JOIN pg_class c ON c.oid = x.indexrelid WHERE c.relnamespace = 'registry'::regnamespace AND NOT x.indisunique`)
			require.NoError(t, err)
			var drop, create []string
			var one, other string
			_, err = pgx.ForEachRow(rows, []any{&one, &other}, func() error {
				drop, create = append(drop, one), append(create, other)
				return nil
			})
			require.NoError(t, err)
			for _, stmt := range drop {
				_, err := db.conn.Exec(t.Context(), stmt)
				require.NoError(t, err)
			}
			return create
		},
		Series: func(n int) string { return fmt.Sprintf(`generate_series(0, %d) AS s (n)`, n-1) },
		Time: func(micros string) string {
			return `timestamptz '2026-01-01T00:00:00Z' + (` + micros + `) * interval '1 microsecond'`
		},
		Never: `NULL`, Tags: `'{tag}'`, After: []string{`VACUUM ANALYZE`},
	}, db
}
