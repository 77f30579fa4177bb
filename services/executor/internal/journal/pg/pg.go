// Package pg keeps the journal in one schema of a PostgreSQL database, for any number of executors.
// It owns the SQL and the locks of that driver; it must not know what events mean nor who calls it.
package pg

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlstore"
)

// Schema is the schema that the tables live in.
const Schema = "executor"

const (
	// fencedCode is the SQLSTATE that executor_fence raises.
	fencedCode = "EG001"
	// commitConns are one for each batch that a writer commits at once, and one for when it gives up on
	// one.
	commitConns = 3
	// hotConns are enough for heartbeat, take-over, loads and outbox.
	hotConns = 6
	// jobConns are one that listens and some that fetch and finish.
	jobConns = 4
	// commandChannel gets the owner's id as payload.
	commandChannel = "executor_commands"
)

//go:embed migrations/*.sql
var migrations embed.FS

var _ journal.Journal = (*Store)(nil)

// Options tune a Store; the zero value is usable.
type Options struct {
	// MaxReaders bounds the connections that answer the API; 0 leaves it to the URL or pgx.
	MaxReaders int32
	// TracerProvider gets a span per query; nil means none.
	TracerProvider trace.TracerProvider
	// Answered is called after each statement of the engine that the server carried out. It may be nil.
	Answered func()
	// TellThread makes the outbox items of changes of threads; nil makes none.
	TellThread journal.TellThread
}

// Store is a journal.Journal. Commits and the engine's other statements have small pools of their own,
// so that no crowd of readers can hold up a commit or a heartbeat.
type Store struct {
	*sqlstore.Store
	tell   journal.TellThread
	commit *pgxpool.Pool
	hot    *pgxpool.Pool
	read   *pgxpool.Pool
	// jobs is for the workers of the queue, whose statements are not ours.
	jobs *pgxpool.Pool
	m    *dbkit.Migrations
	sql  statements
	// known is kept by commits.
	known knownRows
}

// Open connects. It neither migrates nor checks the schema: see Migrations.
func Open(ctx context.Context, url string, o Options) (_ *Store, err error) {
	s := &Store{sql: newStatements(), tell: o.TellThread, known: knownRows{runs: map[string]knownRun{}, graphs: map[journal.Key]knownGraph{}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	// Without plain index scans there is one way left to join a batch with a table: to look up each of its
	// rows by key. Otherwise a plan that was made while the table was empty could be a scan of the batch
	// for each row of the table, and stay.
	if s.commit, err = openEngine(ctx, url, o, commitConns, "enable_indexscan", "enable_indexonlyscan"); err != nil {
		return nil, err
	}
	if s.hot, err = openEngine(ctx, url, o, hotConns); err != nil {
		return nil, err
	}
	if s.read, err = dbkit.OpenPostgres(ctx, url, Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-api", TracerProvider: o.TracerProvider, MaxConns: o.MaxReaders, ByIndex: true,
	}); err != nil {
		return nil, err
	}
	if s.jobs, err = dbkit.OpenPostgres(ctx, url, Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-jobs", TracerProvider: o.TracerProvider, MaxConns: jobConns,
	}); err != nil {
		return nil, err
	}
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	if s.m, err = dbkit.PostgresMigrations(s.read, Schema, files); err != nil {
		return nil, err
	}
	s.m.With(s.queueTables())
	s.Store = sqlstore.New(s.shared())
	return s, nil
}

// shared is what the SQL that both databases share runs on.
func (s *Store) shared() sqlstore.Database {
	return sqlstore.Database{
		Read: dbkit.PostgresPool(s.read, sqlstore.Away), Engine: dbkit.PostgresPool(s.hot, nil), Dialect: dbkit.DialectPostgres,
		DueOutbox:     dueOutbox(),
		Suspicions:    suspicions(),
		Timeout:       `SELECT set_config('statement_timeout', $1, true)`,
		TryLock:       `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`,
		WaitLock:      `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`,
		NotifyWorkers: `SELECT pg_notify('` + workerChannel + `', '')`,
		NotifyOwner:   `SELECT pg_notify('` + commandChannel + `', $1)`,
		InsertJobs:    s.sql.insertJobs,
		TellThread:    s.tell,
		ByValue:       []any{pgx.QueryExecModeCacheDescribe},
	}
}

// lastSeq is where the journal of r ends.
func lastSeq() string { return sqlstore.LastSeq(dbkit.DialectPostgres) }

// openEngine opens a pool whose statements are the same all the time, so that none is planned anew.
func openEngine(ctx context.Context, url string, o Options, conns int32, off ...string) (*pgxpool.Pool, error) {
	plain, err := dbkit.OpenPostgres(ctx, url, Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor", TracerProvider: o.TracerProvider, Answered: o.Answered, MaxConns: conns, IdleInTransactionTimeout: 5 * time.Second, ByIndex: true,
	})
	if err != nil {
		return nil, err
	}
	cfg := plain.Config()
	plain.Close()
	params := cfg.ConnConfig.RuntimeParams
	for _, name := range off {
		params[name] = "off"
	}
	params["plan_cache_mode"] = "force_generic_plan"
	return pgxpool.NewWithConfig(ctx, cfg)
}

// Readers implements journal.Reader.
func (s *Store) Readers() int { return int(s.read.Config().MaxConns) }

// Migrations brings the schema up or checks it.
func (s *Store) Migrations() *dbkit.Migrations { return s.m }

// Close implements journal.Journal.
func (s *Store) Close() error {
	for _, p := range []*pgxpool.Pool{s.commit, s.hot, s.read, s.jobs} {
		if p != nil {
			p.Close()
		}
	}
	return nil
}

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

func fenced(err error, o journal.Owner) error {
	if code(err) == fencedCode {
		return journal.Fenced(o)
	}
	return err
}

// inRow reports whether err lies in the values of a row and would come again.
func inRow(err error) bool {
	c := code(err)
	if len(c) != 5 {
		return false
	}
	// 22 data exception, 23 integrity, 54 program limit.
	return c[:2] == "22" || c[:2] == "23" || c[:2] == "54"
}

func null(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = dbkit.Micros(t)
	return &t
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// interval is a duration as the database understands it, cast with ::interval.
func interval(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

func collect[T any](rows pgx.Rows, err error, scan pgx.RowToFunc[T]) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}
