// Package pg keeps the registry's data in PostgreSQL, in the schema "registry". It owns the connections, the
// migrations and the lease of orders; the other SQL is that of package sqlstore.
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
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/store/sqlstore"
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
	*sqlstore.Store
	pool *pgxpool.Pool
	news *news
}

var _ store.Store = (*Store)(nil)

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
	// Reads and changes have the same turns, those of all connections.
	turns := dbkit.NewTurns(int(pool.Config().MaxConns))
	news := newNews()
	return &Store{pool: pool, news: news, Store: sqlstore.New(sqlstore.Database{
		Pool: dbkit.PostgresPool(pool, passing), Dialect: dbkit.DialectPostgres, Reads: turns, Writes: turns, Migrations: m,
		Announce: news.add,
		Timeout:  `SELECT set_config('statement_timeout', $1, true)`,
	})}, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
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

// leaseDue skips from one namespace of a database to the next, however many orders each has. $1 of
// those that are due it takes from each in turn: of a namespace it reads the $1 oldest at most. The rows are
// locked only once they are chosen, and checked again: another lease may have chosen the same ones. The
// planner takes an array for short, and so never reads the whole table to find the rows of keys.
const leaseDue = `WITH RECURSIVE dbs (d) AS (SELECT ''::text COLLATE "C" UNION SELECT $3::text COLLATE "C"),
	ns (d, n) AS (
		SELECT dbs.d, (SELECT min(c.namespace) FROM orders c WHERE c.database_id = dbs.d) FROM dbs UNION ALL
		SELECT ns.d, (SELECT min(c.namespace) FROM orders c WHERE c.database_id = ns.d AND c.namespace > ns.n) FROM ns WHERE ns.n IS NOT NULL),
	turns AS (
		SELECT o.*, row_number() OVER (PARTITION BY o.namespace ORDER BY o.lease_until) AS turn FROM ns CROSS JOIN LATERAL (
			SELECT namespace, run_id, task_id, lease_until FROM orders
			WHERE database_id = ns.d AND namespace = ns.n AND lease_until <= now() ORDER BY lease_until LIMIT $1) o),
	chosen AS (SELECT namespace, run_id, task_id FROM turns ORDER BY turn, lease_until LIMIT $1),
	due AS (
		SELECT l.* FROM chosen CROSS JOIN LATERAL (SELECT namespace, run_id, task_id FROM orders c
			WHERE c.namespace = chosen.namespace AND c.run_id = chosen.run_id AND c.task_id = chosen.task_id AND c.lease_until <= now()
			FOR UPDATE SKIP LOCKED) l),
	keys AS (SELECT array_agg(namespace) AS namespaces, array_agg(run_id) AS runs, array_agg(task_id) AS tasks FROM due) `

// LeaseOrders implements store.Store.
func (s *Store) LeaseOrders(ctx context.Context, database string, limit int, hold time.Duration) ([]epic.Order, error) {
	rows, err := s.pool.Query(ctx, leaseDue+`UPDATE orders c SET tries = c.tries + 1,
			lease_until = clock_timestamp() + $2::bigint * CASE c.kind WHEN 4 THEN least(c.tries + 1, 12) ELSE 1 END * interval '1 microsecond'
		FROM keys CROSS JOIN unnest(keys.namespaces, keys.runs, keys.tasks) AS d (namespace, run_id, task_id)
		WHERE c.namespace = d.namespace AND c.run_id = d.run_id AND c.task_id = d.task_id
		RETURNING c.namespace, c.task_id, c.run_id, c.reason, c.create_time, c.confirmed, c.kind, c.id`, limit, hold.Microseconds(), database)
	if err != nil {
		return nil, passing(err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c epic.Order, err error) {
		err = row.Scan(&c.Namespace, &c.TaskID, &c.RunID, &c.Reason, dbkit.At(&c.Time), &c.Confirmed, &c.Kind, &c.ID)
		return c, err
	})
	return out, passing(err)
}
