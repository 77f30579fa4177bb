// Package sqlite keeps the registry's data in one SQLite file. It owns its tables, their migrations and the
// SQL; it must not know any rule above the store's contract.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

//go:embed migrations/*.sql
var files embed.FS

// Store is one file with one writer. It is safe for concurrent use.
type Store struct {
	db *dbkit.SQLite
	// reads are the turns of readers, writes those of the one writer.
	reads, writes *dbkit.Turns
	migrations    *dbkit.Migrations
}

var (
	_ store.Store = (*Store)(nil)
	_ store.Tx    = tx{}
)

// Open opens or creates the file at path. The schema may be old or missing until Migrate.
func Open(ctx context.Context, path string, o dbkit.SQLiteOptions) (*Store, error) {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, err
	}
	db, err := dbkit.OpenSQLite(ctx, path, o)
	if err != nil {
		return nil, err
	}
	m, err := dbkit.SQLiteMigrations(db, sub)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Store{db: db, reads: dbkit.NewTurns(db.Read.Stats().MaxOpenConnections), writes: dbkit.NewTurns(1), migrations: m}, nil
}

// Migrate migrates the schema and returns how many migrations it applied.
func (s *Store) Migrate(ctx context.Context) (int, error) { return s.migrations.Up(ctx) }

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error { return s.migrations.Check(ctx) }

// Close implements store.Store.
func (s *Store) Close() error { return s.db.Close() }

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, namespace string, fn func(context.Context, store.Tx) error) error {
	return s.writes.Do(ctx, namespace, func(ctx context.Context) error {
		return s.db.Update(ctx, func(ctx context.Context, t *sql.Tx) error { return fn(ctx, tx{t}) })
	})
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, namespace string, fn func(context.Context, store.Reader) error) error {
	return s.reads.Read(ctx, namespace, func(ctx context.Context) error {
		return s.db.View(ctx, func(ctx context.Context, t *sql.Tx) error { return fn(ctx, tx{t}) })
	})
}

// Sweep implements store.Store.
func (s *Store) Sweep(ctx context.Context, requestsBefore time.Time) (claims, requests int64, err error) {
	err = s.db.Update(ctx, func(ctx context.Context, t *sql.Tx) error {
		now, err := tx{t}.Clock(ctx)
		if err != nil {
			return err
		}
		res, err := t.ExecContext(ctx, `UPDATE claims SET state = ? WHERE state = ? AND lease_until < ?`,
			epic.Lost, epic.Claimed, now.UnixMicro())
		if err != nil {
			return err
		}
		if claims, err = res.RowsAffected(); err != nil {
			return err
		}
		res, err = t.ExecContext(ctx, `DELETE FROM requests WHERE time < ?`, requestsBefore.UnixMicro())
		if err != nil {
			return err
		}
		requests, err = res.RowsAffected()
		return err
	})
	return claims, requests, err
}

// tx is one transaction; there is never more than one that writes, so locking is nothing to do.
type tx struct{ *sql.Tx }

// Clock implements store.Tx. The clock has milliseconds.
func (t tx) Clock(ctx context.Context) (time.Time, error) {
	var ms int64
	err := t.QueryRowContext(ctx, `SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)`).Scan(&ms)
	return time.UnixMilli(ms).UTC(), err
}

// Remember implements store.Tx.
func (t tx) Remember(ctx context.Context, r store.Request) (earlier store.Request, seen bool, err error) {
	res, err := t.ExecContext(ctx, `INSERT INTO requests (namespace, method, request_id, body_hash, resource, time)
		VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		r.Namespace, r.Method, r.ID, r.BodyHash[:], r.Resource, r.Time.UnixMicro())
	if err != nil {
		return store.Request{}, false, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return store.Request{}, false, err
	}
	earlier = store.Request{Namespace: r.Namespace, Method: r.Method, ID: r.ID}
	var hash []byte
	var at int64
	err = t.QueryRowContext(ctx, `SELECT body_hash, resource, time FROM requests WHERE namespace = ? AND method = ? AND request_id = ?`,
		r.Namespace, r.Method, r.ID).Scan(&hash, &earlier.Resource, &at)
	copy(earlier.BodyHash[:], hash)
	earlier.Time = dbkit.FromUnixMicros(at)
	return earlier, err == nil, err
}

// scanner is a row of either kind of query.
type scanner interface{ Scan(into ...any) error }

// collect reads all rows of a query.
func collect[T any](ctx context.Context, t tx, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.QueryContext(ctx, query, args...)
	return dbkit.Collect(rows, err, func(rows *sql.Rows) (T, error) { return scan(rows) })
}

// collectPage reads the rows of a page.
func collectPage[T page.Row](ctx context.Context, t tx, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.QueryContext(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows *sql.Rows) (T, error) { return scan(rows) })
}

// one reads a single row, or returns missing.
func one[T any](ctx context.Context, t tx, missing error, scan func(scanner) (T, error), query string, args ...any) (T, error) {
	v, err := scan(t.QueryRowContext(ctx, query, args...))
	if err != nil {
		var zero T
		if errors.Is(err, sql.ErrNoRows) {
			err = missing
		}
		return zero, err
	}
	return v, nil
}

// change runs a statement that must meet exactly one row.
func (t tx) change(ctx context.Context, missed error, query string, args ...any) error {
	res, err := t.ExecContext(ctx, query, args...)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		return missed
	}
	return err
}

func (t tx) exec(ctx context.Context, query string, args ...any) error {
	_, err := t.ExecContext(ctx, query, args...)
	return err
}

// text is a list or map as JSON.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode column: %w", err)
	}
	if string(b) == "null" {
		return "", errors.New("encode column: nil list or map")
	}
	return string(b), nil
}

// texts encodes several columns; nil lists and maps must have been replaced by empty ones.
func texts(vs ...any) ([]string, error) {
	out := make([]string, len(vs))
	for i, v := range vs {
		s, err := text(v)
		if err != nil {
			return nil, err
		}
		out[i] = s
	}
	return out, nil
}

// decode reads columns that text wrote.
func decode(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := json.Unmarshal([]byte(*pairs[i].(*string)), pairs[i+1]); err != nil {
			return fmt.Errorf("decode column: %w", err)
		}
	}
	return nil
}

func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

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

func null(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

func utc(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return time.UnixMicro(*us).UTC()
}

func totalsInto(t *usage.Totals) []any {
	return []any{&t.Tokens, &t.NanoUSD, &t.UnpricedCalls, &t.OverheadTokens, &t.OverheadNanoUSD, &t.ModelCalls, &t.ToolCalls}
}

// where gathers conditions and their arguments.
type where struct {
	parts []string
	args  []any
}

func (w *where) add(cond string, args ...any) {
	w.parts = append(w.parts, cond)
	w.args = append(w.args, args...)
}

// in adds the condition that a column has one of these values.
func (w *where) in(column string, values []any) {
	if len(values) > 0 {
		w.add(column+" IN ("+marks(len(values))+")", values...)
	}
}

// tagged adds the condition that the JSON list in column tags has one of these.
func (w *where) tagged(tags []string) {
	if len(tags) > 0 {
		w.add("EXISTS (SELECT 1 FROM json_each(tags) WHERE value IN ("+marks(len(tags))+"))", anys(tags)...)
	}
}

// labeled adds the condition that the JSON map in column labels has all of these.
func (w *where) labeled(labels map[string]string) {
	for k, v := range labels {
		w.add("EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ? AND value = ?)", k, v)
	}
}

// after adds the condition that a row of a list comes behind the cursor; cmp is "<" or ">".
func (w *where) after(cmp string, c page.Cursor) {
	if !c.IsZero() {
		w.add("(create_time, id) "+cmp+" (?, ?)", c.CreateTime.UnixMicro(), c.ID)
	}
}

func (w *where) end(order string, limit int) string {
	w.args = append(w.args, limit)
	return " WHERE " + strings.Join(w.parts, " AND ") + " ORDER BY " + order + " LIMIT ?"
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

func anys[T any](s []T) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}
