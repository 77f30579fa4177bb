// Package pg keeps triggers in the schema of the journal in a PostgreSQL database, for any number of
// executors. It owns the connections; the SQL is that of package sqlstore.
package pg

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger"
	"github.com/epigraph-run/epigraph/services/executor/internal/trigger/sqlstore"
)

// Conns are how many connections the pool has: for deliveries and for the API.
const Conns = 4

var _ trigger.Store = (*Store)(nil)

// Store is a trigger.Store with a small pool of its own: a delivery must wait neither for readers nor for
// commits.
type Store struct {
	*sqlstore.Store
	pool *pgxpool.Pool
}

// Open connects. The journal's migrations make the tables.
func Open(ctx context.Context, url string, tracer trace.TracerProvider) (*Store, error) {
	pool, err := dbkit.OpenPostgres(ctx, url, journalpg.Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-triggers", TracerProvider: tracer, MaxConns: Conns, ByIndex: true,
	})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, Store: sqlstore.New(sqlstore.Database{
		Pool: dbkit.PostgresPool(pool, nil), Dialect: dbkit.DialectPostgres, Jobs: journalpg.InsertJobs,
		Lock: `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`,
	})}, nil
}

// Close implements trigger.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}
