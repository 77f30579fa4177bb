package dbkit_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

// What both databases understand means the same on both.
func TestPool(t *testing.T) {
	t.Parallel()
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		pool, err := dbkit.OpenPostgres(t.Context(), pgtest.New(t), "public", dbkit.PostgresOptions{})
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		_, err = pool.Exec(t.Context(), `CREATE TABLE things (id text COLLATE "C" PRIMARY KEY, parent text COLLATE "C" NOT NULL, at timestamptz, n bigint NOT NULL, tags text[] NOT NULL)`)
		require.NoError(t, err)
		poolCases(t, dbkit.PostgresPool(pool, nil), dbkit.DialectPostgres)
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		db, err := dbkit.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "pool.db"))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = db.Write.ExecContext(t.Context(), `CREATE TABLE things (id TEXT PRIMARY KEY, parent TEXT NOT NULL, at INTEGER NOT NULL, n INTEGER NOT NULL, tags TEXT NOT NULL) STRICT`)
		require.NoError(t, err)
		poolCases(t, dbkit.SQLitePool(db, db.Update), dbkit.DialectSQLite)
	})
}

const insertThing = `INSERT INTO things (id, parent, at, n, tags) VALUES ($1, $2, $3, $4, $5)`

func poolCases(t *testing.T, p dbkit.Pool, d dbkit.Dialect) {
	ctx := t.Context()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	insert := func(id, parent string, at time.Time, n int) dbkit.Stmt {
		return dbkit.Stmt{Query: insertThing, Args: []any{id, parent, at, n, []string{"x " + id, `"`}}}
	}
	ids := func(query string, args ...any) (out []string) {
		rows, err := p.Query(ctx, query, args...)
		out, err = dbkit.Collect(rows, err, func(rows dbkit.Rows) (id string, err error) { return id, rows.Scan(&id) })
		require.NoError(t, err)
		return out
	}
	var written int64
	last := insert("c", "b", at.Add(time.Hour), 3)
	last.Done = func(n int64) error { written += n; return nil }
	require.NoError(t, p.Batch(ctx, insert("a", "", time.Time{}, 1), insert("b", "a", at, 2), last))
	require.EqualValues(t, 1, written)

	t.Run("ValuesComeBack", func(t *testing.T) {
		var got time.Time
		var tags []string
		var n int
		require.NoError(t, dbkit.FirstRow(p.Query(ctx, `SELECT at, n, tags FROM things WHERE id = $1`, "b")).Scan(dbkit.At(&got), &n, &tags))
		require.Equal(t, at.Truncate(time.Microsecond), got)
		require.Equal(t, []string{"x b", `"`}, tags)
		require.NoError(t, dbkit.FirstRow(p.Query(ctx, `SELECT at FROM things WHERE id = $1`, "a")).Scan(dbkit.At(&got)))
		require.True(t, got.IsZero())
		require.ErrorIs(t, dbkit.FirstRow(p.Query(ctx, `SELECT at FROM things WHERE id = $1`, "z")).Scan(dbkit.At(&got)), sql.ErrNoRows)
	})
	t.Run("FragmentsMeanTheSame", func(t *testing.T) {
		require.Equal(t, []string{"a"}, ids(`SELECT id FROM things WHERE `+d.Unset(`at`)))
		require.Equal(t, []string{"b", "c"}, ids(`SELECT id FROM things WHERE `+d.Set(`at`)+` ORDER BY id`))
		require.Equal(t, []string{"a", "c"}, ids(`SELECT id FROM things WHERE `+d.In(`id`, `$1`)+` ORDER BY id`, []string{"c", "a", "q"}))
		require.Empty(t, ids(`SELECT id FROM things WHERE `+d.In(`id`, `$1`), []string(nil)))
		require.Len(t, ids(`SELECT id FROM things WHERE NOT `+d.In(`id`, `$1`), []string(nil)), 3)
		require.Equal(t, []string{"a", "b"}, ids(`SELECT id FROM things WHERE `+d.In(`n`, `$1`)+` ORDER BY id`, []int64{1, 2}))
		require.Equal(t, []string{"b"}, ids(`SELECT id FROM things WHERE id NOT IN (`+d.Values(`$1`)+`) AND id IN (`+d.Values(`$2`)+`) ORDER BY id`,
			[]string{"c", "a"}, []string{"b", "c", "q"}))
		require.Len(t, ids(`SELECT id FROM things WHERE id NOT IN (`+d.Values(`$1`)+`)`, []string(nil)), 3)
		require.Equal(t, []string{"c"}, ids(`SELECT id FROM things WHERE `+d.InSelect(`id`, `SELECT id FROM things ORDER BY n DESC LIMIT 1`)))
		require.Equal(t, []string{"b", "c"}, ids(`SELECT id FROM things WHERE at <= `+d.Now()+` + `+d.Span(`$1`)+` AND `+d.Set(`at`)+` ORDER BY id`, 1_000_000*time.Hour))
		require.Equal(t, []string{"b", "c"}, ids(`SELECT c.id FROM things b`+d.LookUp(`things`, `c`, `c.parent = b.id`)+` ORDER BY c.id`))
		require.Equal(t, []string{"b", "c"}, ids(`WITH RECURSIVE below (id) AS (SELECT `+d.Text(`$1`)+` UNION ALL SELECT c.id FROM below b`+
			d.LookUp(`things`, `c`, `c.parent = b.id`)+`) SELECT id FROM below WHERE id <> $1 ORDER BY id`, "a"))
		require.Equal(t, []string{"b"}, ids(`SELECT t.id FROM `+d.Lists(`l`, [2]string{"id", "text"})+` JOIN things t ON t.id = l.id`, []string{"z", "b"}))
		require.Equal(t, []string{"b"}, ids(`SELECT t.id FROM `+d.Lists(`l`, [2]string{"n", "bigint"})+` JOIN things t ON t.n = l.n`, []int64{7, 2}))
		var null *int64
		require.Equal(t, []string{"b"}, ids(`SELECT t.id FROM `+d.Rows(`r`, 2, [2]string{"id", "text"}, [2]string{"n", "bigint"}, [2]string{"at", "timestamptz"},
			[2]string{"tried", "boolean"})+` JOIN things t ON t.id = r.id AND t.n = r.n AND t.at = r.at WHERE r.tried AND t.id <> $1`,
			append([]any{"c"}, d.RowArgs(4, [][]any{{"a", 7, at, true}, {"b", int16(2), at, true}, {"c", null, at, false}})...)...))
		require.Empty(t, ids(`SELECT id FROM `+d.Rows(`r`, 1, [2]string{"id", "text"})+` WHERE true`, d.RowArgs(1, nil)...))
		require.Equal(t, []string{"b", "c"}, ids(`SELECT id FROM things WHERE `+d.Set(`at`)+` AND at <= `+d.Ago(-1_000_000*time.Hour)+` ORDER BY id`))
		require.Equal(t, []string{at.UTC().Format("2006-01-02T15:04:05Z")}, ids(`SELECT `+d.Stamp(`at`)+` FROM things WHERE id = 'b'`))
		require.Equal(t, []string{"b"}, ids(`SELECT id FROM things WHERE `+d.Overlap(`tags`, `$1`), []string{"q", "x b"}))
		require.Empty(t, ids(`SELECT id FROM things WHERE `+d.Overlap(`tags`, `$1`), []string(nil)))
		var left []string
		require.NoError(t, dbkit.FirstRow(p.Query(ctx, `SELECT `+d.Without(`tags`, `$1`)+` FROM things WHERE id = 'b'`, "x b")).Scan(&left))
		require.Equal(t, []string{`"`}, left)
		bytes := func(text string) string {
			return `CAST('` + text + `' AS ` + map[dbkit.Dialect]string{dbkit.DialectSQLite: "blob", dbkit.DialectPostgres: "bytea"}[d] + `)`
		}
		var greatest, least, place int
		require.NoError(t, dbkit.FirstRow(p.Query(ctx, `SELECT `+d.Greatest(`n`, `2`)+`, `+d.Least(`n`, `2`)+` FROM things WHERE id = 'c'`)).Scan(&greatest, &least))
		require.NoError(t, dbkit.FirstRow(p.Query(ctx, `SELECT `+d.Position(bytes(`b`), bytes(`ab`)))).Scan(&place))
		require.Equal(t, []int{3, 2, 2}, []int{greatest, least, place})
	})
	refused := errors.New("refused")
	t.Run("UpdateRollsBack", func(t *testing.T) {
		err := p.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
			if _, err := tx.Exec(ctx, `DELETE FROM things`); err != nil {
				return err
			}
			return refused
		})
		require.ErrorIs(t, err, refused)
		require.Len(t, ids(`SELECT id FROM things`), 3)
	})
	t.Run("BatchIsOneTransaction", func(t *testing.T) {
		require.Error(t, p.Batch(ctx, insert("d", "", at, 4), insert("a", "", at, 1)))
		require.Len(t, ids(`SELECT id FROM things`), 3)
	})
	t.Run("ExchangeDecidesFromWhatItRead", func(t *testing.T) {
		exchange := func(decide func(n int) ([]dbkit.Stmt, error)) error {
			return p.Exchange(ctx, func() ([]dbkit.Stmt, func() ([]dbkit.Stmt, error)) {
				var n int
				return []dbkit.Stmt{
					{Query: `UPDATE things SET n = n + 1 WHERE id = $1`, Args: []any{"a"}},
					{Query: `SELECT n FROM things WHERE id = $1` + d.Locked(), Args: []any{"a"}, Rows: func(rows dbkit.Rows) error { return dbkit.FirstRow(rows, nil).Scan(&n) }},
				}, func() ([]dbkit.Stmt, error) { return decide(n) }
			})
		}
		require.ErrorIs(t, exchange(func(int) ([]dbkit.Stmt, error) { return nil, refused }), refused)
		require.NoError(t, exchange(func(n int) ([]dbkit.Stmt, error) {
			return []dbkit.Stmt{{Query: `UPDATE things SET n = $2 WHERE id = $1`, Args: []any{"a", 10 * n}}}, nil
		}))
		var n int
		require.NoError(t, p.View(ctx, dbkit.Stmt{Query: `SELECT n FROM things WHERE id = $1`, Args: []any{"a"}, Rows: func(rows dbkit.Rows) error {
			return dbkit.FirstRow(rows, nil).Scan(&n)
		}}))
		require.Equal(t, 20, n)
	})
}
