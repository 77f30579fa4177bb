package sqlite_test

import (
	"database/sql"
	"flag"
	"fmt"
	"path/filepath"
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
	var db *sql.DB
	storetest.BenchScale(b, storetest.Filler{
		Open: func(t testing.TB) store.Store {
			path := filepath.Join(t.TempDir(), "registry.db")
			s, err := sqlite.Open(t.Context(), path, dbkit.SQLiteOptions{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			_, err = s.Migrate(t.Context())
			require.NoError(t, err)
			db, err = sql.Open("sqlite", path+"?_pragma=synchronous(OFF)&_pragma=cache_size(-400000)&_pragma=busy_timeout(5000)")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			return s
		},
		Exec: func(b *testing.B, stmt string) {
			b.Helper()
			_, err := db.ExecContext(b.Context(), stmt)
			require.NoError(b, err)
		},
		Series: func(n int) string {
			return fmt.Sprintf(`(WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < %d) SELECT n FROM s) s`, n-1)
		},
		Time: func(micros string) string { return `1767225600000000 + ` + micros }, Never: `0`, Tags: `'["tag"]'`,
	}, storetest.Scale{Tasks: *scaleTasks, Entries: *scaleEntries})
}
