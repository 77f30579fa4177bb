package sqlite_test

import (
	"context"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlite"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/storetest"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func TestMain(m *testing.M) {
	// Each check of the random case is some thirty transactions; the command line may ask for more.
	if err := flag.Set("rapid.checks", "40"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

func open(t testing.TB) store.Store {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "registry.db"), dbkit.SQLiteOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Migrate(t.Context())
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

//nolint:paralleltest // it measures what the process allocates
func TestMemory(t *testing.T) { storetest.RunMemory(t, open) }

// A file of an earlier release has the bodies of tasks in their rows, and counts no dependencies.
func TestMigrationPartsBodiesFromTasks(t *testing.T) {
	t.Parallel()
	ctx, path := t.Context(), filepath.Join(t.TempDir(), "registry.db")
	earlier := storetest.Migrations(t, 7)
	db, err := dbkit.OpenSQLite(ctx, path)
	require.NoError(t, err)
	m, err := dbkit.SQLiteMigrations(db, earlier)
	require.NoError(t, err)
	_, err = m.Up(ctx)
	require.NoError(t, err)
	for _, q := range []string{
		`INSERT INTO epics VALUES ('n', 'ep_1', 't', 'd', 's', '[]', 2, 3, NULL, NULL, 1, 2, 3, 4, 5, 6, 7, 2, 1, 0, 'r', 'w', 'u', 'c', '{}', 1, 2, NULL, 4, 'me')`,
		`INSERT INTO tasks VALUES ('n', 'tk_1', 'ep_1', 't', '', '[]', 4, 3, '[]', NULL, '', 1, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, '', '', '[]', '', '{}', 1, 1, NULL, NULL, 1, '')`,
		`INSERT INTO tasks VALUES ('n', 'tk_2', 'ep_1', 't', 'description', '["x"]', 1, 3, '["tk_1"]', CAST('{"n":1}' AS BLOB), 'w', 1, 'run', 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2,
			'summary', 'error', '[{"Text":"note"}]', 'c', '{"k":"v"}', 1, 2, 3, 4, 5, 'me')`,
		`INSERT INTO dependencies VALUES ('n', 'tk_1', 'tk_2')`,
		`INSERT INTO claims VALUES ('n', 'tk_2', 'run', 2, 9, 'db')`,
	} {
		_, err := db.Write.ExecContext(ctx, q)
		require.NoError(t, err, q)
	}
	require.NoError(t, db.Close())

	s, err := sqlite.Open(ctx, path, dbkit.SQLiteOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Migrate(ctx)
	require.NoError(t, err)
	at := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	require.NoError(t, s.Update(ctx, "n", func(ctx context.Context, tx store.Tx) error {
		v, err := tx.Task(ctx, "n", "tk_2")
		require.NoError(t, err)
		require.Equal(t, epic.Task{
			Namespace: "n", ID: "tk_2", EpicID: "ep_1", Title: "t", Description: "description", Tags: []string{"x"}, State: epic.TaskPending,
			Priority: epic.Medium, DependsOn: []string{"tk_1"}, Requirements: []byte(`{"n":1}`), WorkflowSlug: "w", Source: epic.Inline, RunID: "run",
			EstimatedTokens: 1, Actual: usage.Totals{Tokens: 2, NanoUSD: 3, UnpricedCalls: 4, OverheadTokens: 5, OverheadNanoUSD: 6, ModelCalls: 7, ToolCalls: 8},
			Duration: 9 * time.Microsecond, RetryCount: 1, MaxRetries: 2, ResultSummary: "summary", ErrorMessage: "error", Notes: []epic.Note{{Text: "note"}},
			CreatedByNode: "c", Labels: map[string]string{"k": "v"}, CreateTime: at(1), UpdateTime: at(2), StartTime: at(3), EndTime: at(4), Revision: 5, Principal: "me",
		}, v)
		e, err := tx.Epic(ctx, "n", "ep_1")
		require.NoError(t, err)
		require.EqualValues(t, 1, e.Dependencies)
		c, err := tx.ActiveClaim(ctx, "n", "tk_2")
		require.NoError(t, err)
		require.Equal(t, "run", c.RunID, "what refers to a task stays")
		return nil
	}))
}

func BenchmarkRecordUsage(b *testing.B) { storetest.Bench(b, open) }

func BenchmarkLeaseCancellations(b *testing.B) { storetest.BenchLease(b, open) }

func BenchmarkCompleteTask(b *testing.B) { storetest.BenchComplete(b, open) }

func BenchmarkChangeDependencies(b *testing.B) { storetest.BenchDepend(b, open) }

func BenchmarkRecordUsageWithManyPrices(b *testing.B) { storetest.BenchPrices(b, open) }
