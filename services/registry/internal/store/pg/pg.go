// Package pg keeps the registry's data in PostgreSQL, in the schema "registry". It owns its tables, their
// migrations and the SQL; it must not know any rule above the store's contract.
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

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

const (
	// Schema is the one that all tables are in.
	Schema = "registry"

	lockTimeout = "55P03"
)

//go:embed migrations/*.sql
var files embed.FS

// Store is a pool of connections to one database. It is safe for concurrent use.
type Store struct {
	pool *pgxpool.Pool
	// turns are those of all connections: reads and changes have the same.
	turns      *dbkit.Turns
	migrations *dbkit.Migrations
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Tx    = tx{}
)

// Open connects to a server. The schema may be old or missing until Migrate.
func Open(ctx context.Context, url string, o dbkit.PostgresOptions) (*Store, error) {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	pool, err := dbkit.OpenPostgres(ctx, url, Schema, o)
	if err != nil {
		return nil, err
	}
	m, err := dbkit.PostgresMigrations(pool, Schema, sub)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Store{pool: pool, turns: dbkit.NewTurns(int(pool.Config().MaxConns)), migrations: m}, nil
}

// Migrate migrates the schema and returns how many migrations it applied.
func (s *Store) Migrate(ctx context.Context) (int, error) { return s.migrations.Up(ctx) }

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error { return s.migrations.Check(ctx) }

// Close implements store.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, namespace string, fn func(context.Context, store.Tx) error) error {
	return passing(s.turns.Do(ctx, namespace, func(ctx context.Context) error {
		return dbkit.PostgresTx(ctx, s.pool, func(ctx context.Context, t pgx.Tx) error { return fn(ctx, tx{t}) })
	}))
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, namespace string, fn func(context.Context, store.Reader) error) error {
	return passing(s.turns.Read(ctx, namespace, func(ctx context.Context) error {
		return dbkit.PostgresTxOptions(ctx, s.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly},
			func(ctx context.Context, t pgx.Tx) error { return fn(ctx, tx{t}) })
	}))
}

// passing distinguishes transient faults and overload of the server from faults of ours.
func passing(err error) error {
	if dbkit.ConnectionLost(err) {
		return errs.DatabaseUnreachable("registry").With(err)
	}
	if p, ok := errors.AsType[*pgconn.PgError](err); ok && p.Code == lockTimeout {
		return errs.New(errs.Unavailable, "DATABASE_BUSY", "others are changing the same, try again").With(err)
	}
	return err
}

// Sweep implements store.Store.
func (s *Store) Sweep(ctx context.Context, requestsBefore time.Time) (claims, requests int64, err error) {
	// A claim that is being confirmed is locked by its row; after the wait the state is looked at again.
	tag, err := s.pool.Exec(ctx, `UPDATE claims SET state = $1 WHERE state = $2 AND lease_until < clock_timestamp()`, epic.Lost, epic.Claimed)
	if err != nil {
		return 0, 0, err
	}
	claims = tag.RowsAffected()
	tag, err = s.pool.Exec(ctx, `DELETE FROM requests WHERE time < $1`, requestsBefore)
	if err != nil {
		return claims, 0, err
	}
	return claims, tag.RowsAffected(), nil
}

// tx is one transaction.
type tx struct{ pgx.Tx }

// Clock implements store.Tx.
func (t tx) Clock(ctx context.Context) (now time.Time, err error) {
	// Not now(), which stands still at the start of the transaction while we wait for locks.
	err = t.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now)
	return dbkit.Micros(now), err
}

// Remember implements store.Tx.
func (t tx) Remember(ctx context.Context, r store.Request) (earlier store.Request, seen bool, err error) {
	tag, err := t.Exec(ctx, `INSERT INTO requests (namespace, method, request_id, body_hash, resource, time)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		r.Namespace, r.Method, r.ID, r.BodyHash[:], r.Resource, r.Time)
	if err != nil || tag.RowsAffected() == 1 {
		return store.Request{}, false, err
	}
	earlier = store.Request{Namespace: r.Namespace, Method: r.Method, ID: r.ID}
	var hash []byte
	err = t.QueryRow(ctx, `SELECT body_hash, resource, time FROM requests WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		r.Namespace, r.Method, r.ID).Scan(&hash, &earlier.Resource, &earlier.Time)
	copy(earlier.BodyHash[:], hash)
	earlier.Time = earlier.Time.UTC()
	return earlier, err == nil, err
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, t tx, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) ([]T, error) {
	rows, err := t.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	out, err := pgx.CollectRows(rows, scan)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return out, nil
}

// collectPage reads the rows of a page.
func collectPage[T page.Row](ctx context.Context, t tx, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) ([]T, error) {
	rows, err := t.Query(ctx, sql, args...)
	return dbkit.CollectPagePostgres(ctx, rows, err, scan)
}

// one reads a single row, or returns missing.
func one[T any](ctx context.Context, t tx, missing error, scan func(pgx.CollectableRow) (T, error), sql string, args ...any) (T, error) {
	var zero T
	rows, err := t.Query(ctx, sql, args...)
	if err != nil {
		return zero, err
	}
	v, err := pgx.CollectExactlyOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		return zero, missing
	}
	return v, err
}

// change runs a statement that must meet exactly one row.
func (t tx) change(ctx context.Context, missed error, sql string, args ...any) error {
	tag, err := t.Exec(ctx, sql, args...)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return missed
	}
	return nil
}

// list keeps an empty list from becoming NULL.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// trim is the inverse of list.
func trim[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func labels(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

func null(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func bigints[T ~int16](s []T) []int16 {
	out := make([]int16, len(s))
	for i, v := range s {
		out[i] = int16(v)
	}
	return out
}
