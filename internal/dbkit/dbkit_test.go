package dbkit_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var (
	v1 = fstest.MapFS{"0001_create_t.sql": {Data: []byte("-- +goose Up\nCREATE TABLE t (id bigint PRIMARY KEY, n bigint NOT NULL);\n")}}
	v2 = fstest.MapFS{
		"0001_create_t.sql": v1["0001_create_t.sql"],
		"0002_add_m.sql":    {Data: []byte("-- +goose Up\nALTER TABLE t ADD COLUMN m bigint;\n")},
	}
)

func openSQLite(t *testing.T, opts ...dbkit.SQLiteOptions) *dbkit.SQLite {
	t.Helper()
	s, err := dbkit.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "odd name?#%.db"), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func openPostgres(t *testing.T, url string, o dbkit.PostgresOptions) *pgxpool.Pool {
	t.Helper()
	p, err := dbkit.OpenPostgres(t.Context(), url, "shop", o)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	t.Run("Open/PragmasReadBack", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t)
		for db, queryOnly := range map[*sql.DB]string{s.Write: "0", s.Read: "1"} {
			for pragma, want := range map[string]string{
				"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "foreign_keys": "1", "query_only": queryOnly,
			} {
				var got string
				require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
				require.Equal(t, want, got, pragma)
			}
		}
		require.Equal(t, 1, s.Write.Stats().MaxOpenConnections)
	})
	t.Run("Open/EachConnectionOfTheWriterHasItsPragmas", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t, dbkit.SQLiteOptions{WriterCache: 4096, WriterNoSpill: true})
		for range 3 {
			conn, err := s.Write.Conn(t.Context())
			require.NoError(t, err)
			for pragma, want := range map[string]string{"cache_size": "-4096", "cache_spill": "0", "foreign_keys": "1"} {
				var got string
				require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got))
				require.Equal(t, want, got, pragma)
			}
			require.ErrorIs(t, conn.Raw(func(any) error { return driver.ErrBadConn }), driver.ErrBadConn, "the next one is another connection")
		}
		require.EqualValues(t, 0, s.Write.Stats().OpenConnections)
	})
	t.Run("Update/WaitsForTheWriterUntilItsContextEnds", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t)
		for name, update := range map[string]func(context.Context, func(context.Context, *sql.Tx) error) error{"part": s.Update, "whole": s.UpdateWhole} {
			require.NoError(t, s.Update(t.Context(), func(context.Context, *sql.Tx) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				require.ErrorIs(t, update(ctx, func(context.Context, *sql.Tx) error { return nil }), context.DeadlineExceeded, name)
				return nil
			}))
		}
	})
	t.Run("Update/EndsATransactionThatWritesTooLong", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t, dbkit.SQLiteOptions{MaxWrite: time.Millisecond})
		err := s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `CREATE TABLE n AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n`)
			return err
		})
		require.Equal(t, dbkit.ReasonWriteTooLong, errs.ReasonOf(err), "got %v", err)
		require.True(t, errs.Is(err, errs.Unavailable))
		require.NoError(t, s.UpdateWhole(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master`).Scan(new(int))
		}), "the writer is free again")
	})
	t.Run("UpdateWhole/OutlivesItsContext", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t)
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, s.UpdateWhole(ctx, func(ctx context.Context, tx *sql.Tx) error {
			cancel()
			_, err := tx.ExecContext(ctx, `CREATE TABLE t (id bigint)`)
			return err
		}))
	})
	t.Run("Open/FileHasTheGivenName", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "new", "a b?c=#d%20.db")
		s, err := dbkit.OpenSQLite(t.Context(), path)
		require.NoError(t, err)
		_, err = os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
	})
	t.Run("Open/RefusesMemoryAndBadPlaces", func(t *testing.T) {
		t.Parallel()
		_, err := dbkit.OpenSQLite(t.Context(), ":memory:")
		require.True(t, errs.Is(err, errs.InvalidArgument))
		_, err = dbkit.OpenSQLite(t.Context(), t.TempDir())
		require.True(t, errs.Is(err, errs.Unavailable), "got %v", err)
	})
	t.Run("Open/TellsADamagedFile", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "x.db")
		require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600))
		_, err := dbkit.OpenSQLite(t.Context(), path)
		require.Equal(t, dbkit.ReasonDamaged, errs.ReasonOf(err), "got %v", err)
	})
	t.Run("Collect/AllOrNothingAndTheRowsClosed", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t)
		number := func(rows *sql.Rows) (n int, err error) {
			err = rows.Scan(&n)
			return n, err
		}
		for _, c := range []struct {
			query, fault string
			want         []int
		}{
			{query: `VALUES (1), (2), (3)`, want: []int{1, 2, 3}},
			{query: `SELECT 1 WHERE 0`},
			{query: `VALUES (1), ('x')`, fault: "converting"},
			{query: `SELECT 1 UNION ALL SELECT abs(-9223372036854775807 - 1)`, fault: "integer overflow"},
			{query: `SELECT`, fault: "incomplete input"},
		} {
			rows, err := s.Write.QueryContext(t.Context(), c.query)
			got, err := dbkit.Collect(rows, err, number)
			require.Equal(t, c.want, got, c.query)
			if c.fault == "" {
				require.NoError(t, err, c.query)
			} else {
				require.ErrorContains(t, err, c.fault, c.query)
			}
			require.Zero(t, s.Write.Stats().InUse, "the only writer is free again")
		}
	})
	t.Run("Update/CommitsOrRollsBackAndFreesTheWriter", func(t *testing.T) {
		t.Parallel()
		s := openSQLite(t)
		ctx := t.Context()
		insert := func(n int, result error) error {
			return s.Update(ctx, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO t VALUES (?, 0)`, n); err != nil {
					return err
				}
				return result
			})
		}
		_, err := s.Write.ExecContext(ctx, `CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)`)
		require.NoError(t, err)
		require.NoError(t, insert(1, nil))
		boom := errors.New("boom")
		require.ErrorIs(t, insert(2, boom), boom)
		require.Panics(t, func() {
			_ = s.Update(ctx, func(context.Context, *sql.Tx) error { panic("in closure") })
		})
		err = insert(1, nil)
		_, dup := dbkit.UniqueViolation(err)
		require.True(t, dup, "got %v", err)
		var n int
		require.NoError(t, s.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT count(*) FROM t`).Scan(&n)
		}))
		require.Equal(t, 1, n)
		err = s.View(ctx, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `DELETE FROM t`)
			return err
		})
		require.Error(t, err, "views must not write")
	})
	t.Run("Update/TwoProcessesReadThenWriteWithoutBusy", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "x.db")
		a, err := dbkit.OpenSQLite(t.Context(), path)
		require.NoError(t, err)
		defer a.Close()
		b, err := dbkit.OpenSQLite(t.Context(), path)
		require.NoError(t, err)
		defer b.Close()
		_, err = a.Write.ExecContext(t.Context(), `CREATE TABLE c (n INTEGER); INSERT INTO c VALUES (0)`)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 40 {
			s := []*dbkit.SQLite{a, b}[i%2]
			wg.Go(func() {
				err := s.Update(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					var n int
					if err := tx.QueryRowContext(ctx, `SELECT n FROM c`).Scan(&n); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, `UPDATE c SET n = ?`, n+1)
					return err
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		var n int
		require.NoError(t, a.Read.QueryRowContext(t.Context(), `SELECT n FROM c`).Scan(&n))
		require.Equal(t, 40, n)
	})
	t.Run("Update/HasASpan", func(t *testing.T) {
		t.Parallel()
		rec := tracetest.NewSpanRecorder()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
		s := openSQLite(t, dbkit.SQLiteOptions{TracerProvider: tp})
		ctx, parent := tp.Tracer("test").Start(t.Context(), "parent")
		require.NoError(t, s.Update(ctx, func(context.Context, *sql.Tx) error { return nil }))
		require.NoError(t, s.Update(t.Context(), func(context.Context, *sql.Tx) error { return nil }), "no span without a parent")
		require.Len(t, rec.Ended(), 1)
		require.Equal(t, parent.SpanContext().SpanID(), rec.Ended()[0].Parent().SpanID())
		require.Equal(t, "sqlite.update", rec.Ended()[0].Name())
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	t.Run("Open/SettingsReadBack", func(t *testing.T) {
		t.Parallel()
		p := openPostgres(t, pgtest.New(t), dbkit.PostgresOptions{LockTimeout: 1500 * time.Millisecond, StatementTimeout: -1})
		for setting, want := range map[string]string{
			"search_path": "shop", "lock_timeout": "1500ms", "idle_in_transaction_session_timeout": "10s",
			"statement_timeout": "0", "TimeZone": "UTC", "application_name": "epigraph",
		} {
			var got string
			require.NoError(t, p.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got))
			require.Equal(t, want, got, setting)
		}
	})
	t.Run("Open/RoleIsAssumed", func(t *testing.T) {
		t.Parallel()
		url := pgtest.New(t)
		admin := openPostgres(t, url, dbkit.PostgresOptions{})
		_, err := admin.Exec(t.Context(), `CREATE ROLE epigraph_dbkit_api NOLOGIN`)
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = admin.Exec(context.Background(), `DROP ROLE epigraph_dbkit_api`) })
		p := openPostgres(t, url, dbkit.PostgresOptions{Role: "epigraph_dbkit_api"})
		var who string
		require.NoError(t, p.QueryRow(t.Context(), `SELECT current_user`).Scan(&who))
		require.Equal(t, "epigraph_dbkit_api", who)
	})
	t.Run("Open/FaultsAreTypedAndHideThePassword", func(t *testing.T) {
		t.Parallel()
		_, err := dbkit.OpenPostgres(t.Context(), "postgres://u:hunter2@127.0.0.1:1/x", "shop", dbkit.PostgresOptions{})
		require.True(t, errs.Is(err, errs.Unavailable))
		require.NotContains(t, errs.From(err).Message, "hunter2")
		require.True(t, dbkit.ConnectionLost(errs.From(err).Err))
		_, err = dbkit.OpenPostgres(t.Context(), "postgres://u:hunter2@:nan/x", "shop", dbkit.PostgresOptions{})
		require.True(t, errs.Is(err, errs.InvalidArgument))
		require.NotContains(t, errs.From(err).Message, "hunter2")
		_, err = dbkit.OpenPostgres(t.Context(), "", `x"; drop`, dbkit.PostgresOptions{})
		require.Equal(t, "SCHEMA_NAME_INVALID", errs.ReasonOf(err))
	})
	t.Run("Tx/SerializationFailuresAreRetried", func(t *testing.T) {
		t.Parallel()
		rec := tracetest.NewSpanRecorder()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(rec))
		p := openPostgres(t, pgtest.New(t), dbkit.PostgresOptions{TracerProvider: tp, MaxConns: 8})
		_, err := p.Exec(t.Context(), `CREATE SCHEMA shop; CREATE TABLE c (n int); INSERT INTO c VALUES (0)`)
		require.NoError(t, err)
		ctx, parent := tp.Tracer("test").Start(t.Context(), "parent")
		defer parent.End()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				err := dbkit.PostgresTxOptions(ctx, p, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(ctx context.Context, tx pgx.Tx) error {
					var n int
					if err := tx.QueryRow(ctx, `SELECT n FROM c`).Scan(&n); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, `UPDATE c SET n = $1`, n+1)
					return err
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		var n int
		require.NoError(t, p.QueryRow(t.Context(), `SELECT n FROM c`).Scan(&n))
		require.Equal(t, 4, n)
		require.NotEmpty(t, rec.Ended())
	})
	t.Run("Tx/OtherErrorsAreNot", func(t *testing.T) {
		t.Parallel()
		p := openPostgres(t, pgtest.New(t), dbkit.PostgresOptions{})
		calls := 0
		err := dbkit.PostgresTx(t.Context(), p, func(ctx context.Context, tx pgx.Tx) error {
			calls++
			_, err := tx.Exec(ctx, `SELECT 1/0`)
			return err
		})
		require.Error(t, err)
		require.Equal(t, 1, calls)
		require.False(t, dbkit.ConnectionLost(err))
	})
	t.Run("ConnectionLost/KilledSession", func(t *testing.T) {
		t.Parallel()
		p := openPostgres(t, pgtest.New(t), dbkit.PostgresOptions{})
		_, err := p.Exec(t.Context(), `SELECT pg_terminate_backend(pg_backend_pid())`)
		require.True(t, dbkit.ConnectionLost(err), "got %v", err)
	})
}

func second(_ int, err error) error { return err }

func TestMigrations(t *testing.T) {
	t.Parallel()
	open := map[string]func(t *testing.T) func(fstest.MapFS) *dbkit.Migrations{
		"SQLite": func(t *testing.T) func(fstest.MapFS) *dbkit.Migrations {
			s := openSQLite(t)
			return func(fsys fstest.MapFS) *dbkit.Migrations {
				m, err := dbkit.SQLiteMigrations(s, fsys)
				require.NoError(t, err)
				return m
			}
		},
		"Postgres": func(t *testing.T) func(fstest.MapFS) *dbkit.Migrations {
			p := openPostgres(t, pgtest.New(t), dbkit.PostgresOptions{})
			return func(fsys fstest.MapFS) *dbkit.Migrations {
				m, err := dbkit.PostgresMigrations(p, "shop", fsys)
				require.NoError(t, err)
				return m
			}
		},
	}
	for driver, bind := range open {
		t.Run(driver+"/UpVersionAndCheck", func(t *testing.T) {
			t.Parallel()
			at := bind(t)
			ctx := t.Context()
			require.Equal(t, dbkit.ReasonSchemaOld, errs.ReasonOf(at(v1).Check(ctx)))
			n, err := at(v1).Up(ctx)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = at(v1).Up(ctx)
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, at(v1).Check(ctx))
			require.Equal(t, dbkit.ReasonSchemaOld, errs.ReasonOf(at(v2).Check(ctx)))
			_, err = at(v2).Up(ctx)
			require.NoError(t, err)
			have, want, err := at(v2).Version(ctx)
			require.NoError(t, err)
			require.EqualValues(t, 2, have)
			require.EqualValues(t, 2, want)
			err = at(v1).Check(ctx)
			require.Equal(t, dbkit.ReasonSchemaNew, errs.ReasonOf(err))
			require.True(t, errs.Is(err, errs.FailedPrecondition))
			n, err = at(v1).Up(ctx)
			require.Equal(t, dbkit.ReasonSchemaNew, errs.ReasonOf(err))
			require.ErrorContains(t, err, "is at version 2, this binary knows only 1")
			require.Zero(t, n)
		})
		t.Run(driver+"/FilesOfAnotherBuild", func(t *testing.T) {
			t.Parallel()
			at := bind(t)
			ctx := t.Context()
			_, err := at(v1).Up(ctx)
			require.NoError(t, err)
			with := func(more string) fstest.MapFS {
				changed := maps.Clone(v1)
				for name, f := range v1 {
					changed[name] = &fstest.MapFile{Data: append(bytes.Clone(f.Data), more...)}
				}
				return changed
			}
			require.NoError(t, at(with("\n-- why, in other words\n")).Check(ctx), "a comment changes nothing")
			other := with("\nCREATE TABLE forgotten (id text);\n")
			for name, err := range map[string]error{"Check": at(other).Check(ctx), "Up": second(at(other).Up(ctx))} {
				require.Equal(t, dbkit.ReasonSchemaOther, errs.ReasonOf(err), name)
				require.True(t, errs.Is(err, errs.FailedPrecondition), name)
			}
			require.NoError(t, at(v1).Check(ctx), "the binary that made the tables goes on")
		})
	}
	t.Run("Postgres/ConcurrentUpAppliesOnce", func(t *testing.T) {
		t.Parallel()
		at := open["Postgres"](t)
		ms := []*dbkit.Migrations{at(v2), at(v2), at(v2)}
		counts := make([]int, len(ms))
		var wg sync.WaitGroup
		for i, m := range ms {
			wg.Go(func() {
				n, err := m.Up(t.Context())
				require.NoError(t, err)
				counts[i] = n
			})
		}
		wg.Wait()
		require.Equal(t, 2, counts[0]+counts[1]+counts[2])
	})
}

func TestTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("x", 3600))
	got := dbkit.Micros(at)
	require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 678901000, time.UTC), got)
	require.Equal(t, got, dbkit.FromUnixMicros(dbkit.ToUnixMicros(got)))
	require.True(t, dbkit.FromUnixMicros(dbkit.ToUnixMicros(time.Time{})).IsZero())
}
