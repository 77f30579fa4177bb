package sqlite_test

import (
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlite"
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

// TestFlat counts pages of the file. A store that was just opened has none in its cache.
//
//nolint:paralleltest // it counts what the process reads
func TestFlat(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux counts what a process reads")
	}
	filler, path := scaleFiller()
	storetest.RunFlat(t, filler, storetest.Meter{
		Again: func(t testing.TB) store.Store {
			s, err := sqlite.Open(t.Context(), *path, dbkit.SQLiteOptions{})
			require.NoError(t, err)
			return s
		},
		Read: func(t testing.TB) (n int64) {
			text, err := os.ReadFile("/proc/self/io")
			require.NoError(t, err)
			_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
			require.NoError(t, err)
			return n / 4096
		},
		Slack: 40, // a booking goes down a dozen trees, each of which may be one or two levels higher
	})
}

func scaleFiller() (f storetest.Filler, path *string) {
	var db *sql.DB
	path = new(string)
	return storetest.Filler{
		Open: func(t testing.TB) store.Store {
			*path = filepath.Join(t.TempDir(), "registry.db")
			s, err := sqlite.Open(t.Context(), *path, dbkit.SQLiteOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			_, err = s.Migrate(t.Context())
			require.NoError(t, err)
			db, err = sql.Open("sqlite", *path+"?_pragma=synchronous(OFF)&_pragma=cache_size(-400000)&_pragma=busy_timeout(5000)")
			require.NoError(t, err)
			opened := db
			t.Cleanup(func() { require.NoError(t, opened.Close()) })
			return s
		},
		Exec: func(t testing.TB, stmt string) {
			t.Helper()
			_, err := db.ExecContext(t.Context(), stmt)
			require.NoError(t, err)
		},
		Indexes: func(t testing.TB) (create []string) {
			t.Helper()
			rows, err := db.QueryContext(t.Context(), `SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql LIKE 'CREATE INDEX%'`)
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			var drop []string
			for rows.Next() {
				var name, stmt string
				require.NoError(t, rows.Scan(&name, &stmt))
				drop, create = append(drop, `DROP INDEX `+name), append(create, stmt)
			}
			require.NoError(t, rows.Err())
			for _, stmt := range drop {
				_, err := db.ExecContext(t.Context(), stmt)
				require.NoError(t, err)
			}
			return create
		},
		Series: func(n int) string {
			return fmt.Sprintf(`(WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) s`, n-1)
		},
		Time: func(micros string) string { return `1767225600000000 + ` + micros }, Never: `0`, Tags: `'["tag"]'`,
		After: []string{`PRAGMA wal_checkpoint(TRUNCATE)`},
	}, path
}
