package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/journaltest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

func driver() journaltest.Driver {
	return journaltest.Driver{
		SeesEnds: true,
		Fresh: func(t testing.TB) string {
			path := filepath.Join(t.TempDir(), "journal.db")
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Migrations().Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return path
		},
		Open: func(ctx context.Context, place string) (journal.Journal, error) {
			return sqlite.Open(ctx, place, sqlite.Options{TellThread: journaltest.TellThread})
		},
		JobQuery: `SELECT kind || ' ' || state || ' ' || coalesce(json_extract(args, '$.run_id'), '') FROM river_job WHERE state IN ('available', 'scheduled') ORDER BY id`,
		Query: func(t testing.TB, place, query string) (out []string) {
			db, err := dbkit.OpenSQLite(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			rows, err := db.Write.QueryContext(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			for rows.Next() {
				var s string
				if err := rows.Scan(&s); err != nil {
					t.Fatal(err)
				}
				out = append(out, s)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}
			return out
		},
		TakeJobs: func(t testing.TB, place, worker string) {
			db, err := dbkit.OpenSQLite(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Write.ExecContext(t.Context(), `UPDATE river_job SET state = 'running', attempt = 3, attempted_by = jsonb_array('executor/earlier', ?),
				attempted_at = datetime('now', 'subsec', '-1 minute') WHERE state = 'available'`, worker); err != nil {
				t.Fatal(err)
			}
		},
		AgeGraphs: func(t testing.TB, place string) {
			db, err := dbkit.OpenSQLite(t.Context(), place)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Write.ExecContext(t.Context(), `UPDATE graphs SET use_time = use_time - 7 * 86400 * 1000000`); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func TestMain(m *testing.M) {
	journaltest.Child(driver())
	testkit.Main(m)
}

func TestConformance(t *testing.T) { journaltest.Run(t, driver()) }

func BenchmarkCommit(b *testing.B) {
	journaltest.Bench(b, driver(), func(b *testing.B, place string) journaltest.Raw {
		db, err := dbkit.OpenSQLite(b.Context(), place)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		if _, err := db.Write.ExecContext(b.Context(), `CREATE TABLE raw (run_id TEXT NOT NULL, seq INTEGER NOT NULL, namespace TEXT NOT NULL, time INTEGER NOT NULL,
			kind INTEGER NOT NULL, node_id TEXT NOT NULL, visit INTEGER NOT NULL, data BLOB, PRIMARY KEY (run_id, seq)) STRICT, WITHOUT ROWID`); err != nil {
			b.Fatal(err)
		}
		st, err := db.Write.PrepareContext(b.Context(), `INSERT INTO raw VALUES (?, ?, ?, ?, ?, ?, ?, ?)`)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = st.Close() })
		return func(ctx context.Context, runID string, first int64, rows int, data []byte) error {
			ctx = context.WithoutCancel(ctx)
			tx, err := db.Write.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			in := tx.StmtContext(ctx, st)
			for i := range rows {
				if _, err := in.ExecContext(ctx, runID, first+int64(i), "acme", int64(1_700_000_000_000_000), 12, "node-7", 1, data); err != nil {
					return err
				}
			}
			return tx.Commit()
		}
	})
}

func BenchmarkCommands(b *testing.B) {
	journaltest.BenchCommands(b, driver(), func(b *testing.B, place, query string) {
		db, err := dbkit.OpenSQLite(b.Context(), place)
		if err != nil {
			b.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Write.ExecContext(b.Context(), query); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkThreads(b *testing.B) { journaltest.BenchThreads(b, driver()) }
