// Package sqlstore holds the SQL of the registry, which PostgreSQL and SQLite share except for the fragments
// of dbkit.Dialect. The drivers hold the connections, the migrations and the lease of orders. It must
// not know any rule above the store's contract.
package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// Database describes the database to the store.
type Database struct {
	Pool    dbkit.Pool
	Dialect dbkit.Dialect
	// Reads are the turns of readers, Writes those of writers. They may be the same.
	Reads, Writes *dbkit.Turns
	Migrations    *dbkit.Migrations
	// Timeout ends the statements of a transaction after a number of milliseconds, $1. Empty means that the
	// end of the context does.
	Timeout string
	// Announce, if set, tells other processes soon that the feed of a namespace has new events.
	Announce func(namespace string)
}

// Store is the shared part of a store.Store. It is safe for concurrent use.
type Store struct {
	db    Database
	d     dbkit.Dialect
	feeds *followers
}

var (
	_ store.Tx        = tx{}
	_ store.Inspector = (*Store)(nil)
)

// New returns the shared part of the registry in a database, which stays the caller's.
func New(db Database) *Store { return &Store{db: db, d: db.Dialect, feeds: newFollowers()} }

// Migrate migrates the schema and returns how many migrations it applied.
func (s *Store) Migrate(ctx context.Context) (int, error) { return s.db.Migrations.Up(ctx) }

// Version returns the schema version of the database (0 before the first migration) and the version that this
// binary needs.
func (s *Store) Version(ctx context.Context) (have, want int64, err error) {
	return s.db.Migrations.Version(ctx)
}

// Ready implements store.Store.
func (s *Store) Ready(ctx context.Context) error { return s.db.Migrations.Check(ctx) }

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, namespace string, fn func(context.Context, store.Tx) error) error {
	return s.db.Writes.Do(ctx, namespace, func(ctx context.Context) error {
		told := false
		err := s.db.Pool.Update(ctx, func(ctx context.Context, q dbkit.Querier) error {
			t := tx{q, s.d, newChanges()}
			err := fn(ctx, t)
			if err == nil {
				told, err = t.tell(ctx, namespace)
			}
			return err
		})
		if err == nil && told {
			s.feeds.wake(namespace)
			if s.db.Announce != nil {
				s.db.Announce(namespace)
			}
		}
		return err
	})
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, namespace string, fn func(context.Context, store.Reader) error) error {
	return s.db.Reads.Read(ctx, namespace, func(ctx context.Context) error {
		return s.db.Pool.Read(ctx, func(ctx context.Context, q dbkit.Querier) error { return fn(ctx, tx{q, s.d, nil}) })
	})
}

// Sweep implements store.Store.
func (s *Store) Sweep(ctx context.Context, requestsBefore time.Time) (claims, requests int64, err error) {
	// A claim that is being confirmed is locked by its row; after the wait the state is looked at again.
	claims, err = s.db.Pool.Exec(ctx, `UPDATE claims SET state = $1 WHERE state = $2 AND lease_until < `+s.d.Now(), epic.Lost, epic.Claimed)
	if err != nil {
		return 0, 0, err
	}
	requests, err = s.db.Pool.Exec(ctx, `DELETE FROM requests WHERE time < $1`, requestsBefore)
	return claims, requests, err
}

// AcknowledgeOrders implements store.Store.
func (s *Store) AcknowledgeOrders(ctx context.Context, done []epic.Order) error {
	stmts := make([]dbkit.Stmt, len(done))
	for i, c := range done {
		stmts[i] = dbkit.Stmt{Query: forgetOrder + ` AND id = $4`, Args: []any{c.Namespace, c.RunID, c.TaskID, c.ID}}
	}
	return s.db.Pool.Batch(ctx, stmts...)
}

// SeedPrices implements store.Store.
func (s *Store) SeedPrices(ctx context.Context, prices []usage.Price) error {
	stmts := make([]dbkit.Stmt, len(prices))
	for i, p := range prices {
		stmts[i] = dbkit.Stmt{Query: insertPrice + ` ON CONFLICT DO NOTHING`, Args: priceArgs(p)}
	}
	return s.db.Pool.Batch(ctx, stmts...)
}

// tx is one transaction.
type tx struct {
	dbkit.Querier
	d dbkit.Dialect
	// changes are nil in a transaction that only reads.
	changes *changes
}

// Clock implements store.Tx. It stands still during a statement only: a transaction may wait for locks.
func (t tx) Clock(ctx context.Context) (now time.Time, err error) {
	err = t.row(ctx, `SELECT `+t.d.Now()).Scan(dbkit.At(&now))
	return dbkit.Micros(now), err
}

// Remember implements store.Tx.
func (t tx) Remember(ctx context.Context, r store.Request) (earlier store.Request, seen bool, err error) {
	n, err := t.Exec(ctx, `INSERT INTO requests (namespace, method, request_id, body_hash, resource, time)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		r.Namespace, r.Method, r.ID, r.BodyHash[:], r.Resource, r.Time)
	if err != nil || n == 1 {
		return store.Request{}, false, err
	}
	return t.Request(ctx, r.Namespace, r.Method, r.ID)
}

// Forget implements store.Tx.
func (t tx) Forget(ctx context.Context, r store.Request) error {
	_, err := t.Exec(ctx, `DELETE FROM requests WHERE namespace = $1 AND method = $2 AND request_id = $3 AND resource = $4`,
		r.Namespace, r.Method, r.ID, r.Resource)
	return err
}

// Request implements store.Reader.
func (t tx) Request(ctx context.Context, namespace, method, id string) (earlier store.Request, seen bool, err error) {
	earlier = store.Request{Namespace: namespace, Method: method, ID: id}
	var hash []byte
	err = t.row(ctx, `SELECT body_hash, resource, time FROM requests WHERE namespace = $1 AND method = $2 AND request_id = $3`,
		namespace, method, id).Scan(&hash, &earlier.Resource, dbkit.At(&earlier.Time))
	if errors.Is(err, sql.ErrNoRows) {
		return store.Request{}, false, nil
	}
	copy(earlier.BodyHash[:], hash)
	return earlier, err == nil, err
}

// row is the first row of a query.
func (t tx) row(ctx context.Context, query string, args ...any) dbkit.Row {
	return dbkit.FirstRow(t.Query(ctx, query, args...))
}

// count counts the rows of a query.
func (t tx) count(ctx context.Context, query string, args ...any) (n int, err error) {
	err = t.row(ctx, `SELECT count(*) FROM (`+query+`) AS c`, args...).Scan(&n)
	return n, err
}

// change runs a statement that must meet exactly one row.
func (t tx) change(ctx context.Context, missed error, query string, args ...any) error {
	n, err := t.Exec(ctx, query, args...)
	if err == nil && n != 1 {
		return missed
	}
	return err
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, t tx, scan func(dbkit.Scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.Query(ctx, query, args...)
	return dbkit.Collect(rows, err, func(rows dbkit.Rows) (T, error) { return scan(rows) })
}

// into appends the rows of a statement of a batch.
func into[T any](all *[]T, scan func(dbkit.Scanner) (T, error)) func(dbkit.Rows) error {
	return func(rows dbkit.Rows) error {
		found, err := dbkit.Collect(rows, nil, func(rows dbkit.Rows) (T, error) { return scan(rows) })
		*all = append(*all, found...)
		return err
	}
}

// each reads all rows of a query for the effect of scan.
func (t tx) each(ctx context.Context, scan func(dbkit.Scanner) error, query string, args ...any) error {
	_, err := collect(ctx, t, func(row dbkit.Scanner) (struct{}, error) { return struct{}{}, scan(row) }, query, args...)
	return err
}

// collectPage reads the rows of a page.
func collectPage[T page.Row](ctx context.Context, t tx, scan func(dbkit.Scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := t.Query(ctx, query, args...)
	return dbkit.CollectPage(ctx, rows, err, func(rows dbkit.Rows) (T, error) { return scan(rows) })
}

// one reads a single row, or returns missing.
func one[T any](ctx context.Context, t tx, missing error, scan func(dbkit.Scanner) (T, error), query string, args ...any) (T, error) {
	v, err := scan(t.row(ctx, query, args...))
	if err != nil {
		var zero T
		if errors.Is(err, sql.ErrNoRows) {
			err = missing
		}
		return zero, err
	}
	return v, nil
}

// text is a value as JSON.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode column: %w", err)
	}
	return string(b), nil
}

// decode reads what text wrote.
func decode(column string, into any) error {
	if err := json.Unmarshal([]byte(column), into); err != nil {
		return fmt.Errorf("decode column: %w", err)
	}
	return nil
}

// labelText is a map as a JSON object, empty if there is none.
func labelText(labels map[string]string) (string, error) {
	if labels == nil {
		return "{}", nil
	}
	return text(labels)
}

// trim makes an empty list nil.
func trim[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

// states are states as the parameter of Dialect.In.
func states[T ~int16](s []T) []int32 {
	out := make([]int32, len(s))
	for i, v := range s {
		out[i] = int32(v)
	}
	return out
}

// where gathers conditions and their arguments.
type where struct {
	parts []string
	args  []any
}

// arg adds an argument and returns its parameter.
func (w *where) arg(v any) string {
	w.args = append(w.args, v)
	return fmt.Sprintf("$%d", len(w.args))
}

// add adds a condition. Each %s of it is the parameter of one argument.
func (w *where) add(cond string, args ...any) {
	params := make([]any, len(args))
	for i, a := range args {
		params[i] = w.arg(a)
	}
	w.parts = append(w.parts, fmt.Sprintf(cond, params...))
}

// after adds the condition that a row t of a list comes behind the cursor; cmp is "<" or ">".
func (w *where) after(column, cmp string, c page.Cursor) {
	if !c.IsZero() {
		w.add("(t."+column+", t.id) "+cmp+" (%s, %s)", dbkit.Exact(c.CreateTime), c.ID)
	}
}

// end renders the clause with an order and a limit.
func (w *where) end(order string, limit int) string {
	return " WHERE " + strings.Join(w.parts, " AND ") + " ORDER BY " + order + " LIMIT " + w.arg(limit)
}
