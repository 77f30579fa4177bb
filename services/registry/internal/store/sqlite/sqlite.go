// Package sqlite keeps the registry's data in one SQLite file. It owns the file, the migrations and the lease
// of orders; the other SQL is that of package sqlstore.
package sqlite

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlstore"
)

//go:embed migrations/*.sql
var files embed.FS

// Store is one file with one writer. It is safe for concurrent use.
type Store struct {
	*sqlstore.Store
	db   *dbkit.SQLite
	pool dbkit.Pool
}

var _ store.Store = (*Store)(nil)

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
	pool := dbkit.SQLitePool(db, db.Update)
	return &Store{db: db, pool: pool, Store: sqlstore.New(sqlstore.Database{
		Pool: pool, Dialect: dbkit.DialectSQLite, Migrations: m,
		Reads: dbkit.NewTurns(db.Read.Stats().MaxOpenConnections), Writes: dbkit.NewTurns(1),
	})}, nil
}

// Follow implements store.Store. No other process writes to the file.
func (s *Store) Follow(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error { return s.db.Close() }

// tenants skips from one namespace of database $1 to the next, however many orders each has.
const tenants = `WITH RECURSIVE ns (d, n) AS (
	SELECT dbs.d, (SELECT min(c.namespace) FROM orders c WHERE c.database_id = dbs.d) FROM (SELECT '' AS d UNION SELECT $1) dbs UNION ALL
	SELECT ns.d, (SELECT min(c.namespace) FROM orders c WHERE c.database_id = ns.d AND c.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL) `

// LeaseOrders implements store.Store.
func (s *Store) LeaseOrders(ctx context.Context, database string, limit int, hold time.Duration) (out []epic.Order, err error) {
	now := dbkit.DialectSQLite.Now()
	// Nearly always there is nothing, and then no writer is kept waiting.
	due := false
	err = dbkit.FirstRow(s.pool.Query(ctx, tenants+`SELECT EXISTS (SELECT 1 FROM ns WHERE EXISTS (
		SELECT 1 FROM orders c WHERE c.database_id = ns.d AND c.namespace = ns.n AND c.lease_until <= `+now+`))`, database)).Scan(&due)
	if err != nil || !due {
		return nil, err
	}
	err = s.pool.Update(ctx, func(ctx context.Context, tx dbkit.Querier) error {
		// $2 of those that are due are taken from each namespace in turn: of a namespace the $2 oldest at
		// most are read.
		rows, err := tx.Query(ctx, tenants+`, turns AS (
				SELECT c.rowid AS id, c.lease_until, row_number() OVER (PARTITION BY c.namespace ORDER BY c.lease_until, c.rowid) AS turn FROM ns CROSS JOIN orders c
				WHERE c.rowid IN (SELECT rowid FROM orders WHERE database_id = ns.d AND namespace = ns.n AND lease_until <= `+now+` ORDER BY lease_until, rowid LIMIT $2))
			UPDATE orders SET tries = tries + 1, lease_until = `+now+` + $3 * CASE kind WHEN 4 THEN min(tries + 1, 12) ELSE 1 END
			WHERE rowid IN (SELECT id FROM turns ORDER BY turn, lease_until, id LIMIT $2)
			RETURNING namespace, task_id, run_id, reason, create_time, confirmed, kind, id`, database, limit, hold)
		out, err = dbkit.Collect(rows, err, func(rows dbkit.Rows) (c epic.Order, err error) {
			err = rows.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Reason, dbkit.At(&c.Time), &c.Confirmed, &c.Kind, &c.ID)
			return c, err
		})
		return err
	})
	return out, err
}
