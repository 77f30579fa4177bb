// Package pg keeps accounts in the schema of the journal in a PostgreSQL database, for any number of
// executors. It owns the connections, the lock and the notifications; the other SQL is that of package
// sqlstore.
package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor"
	"github.com/epigraph-run/epigraph/services/executor/internal/governor/sqlstore"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
)

const (
	channel = "executor_account"
	// conns are those of exchanges, one for notifications, and one for sweeps.
	conns = governor.MaxExchanges + 2
)

var _ governor.Store = (*Store)(nil)

// Store is a governor.Store with a small pool of its own: an exchange must wait neither for readers nor for
// commits. It connects when it is first used.
type Store struct {
	*sqlstore.Store
	pool *pgxpool.Pool
}

// Open connects. The journal's migrations make the tables.
func Open(ctx context.Context, url string, tracer trace.TracerProvider) (*Store, error) {
	pool, err := dbkit.OpenPostgres(ctx, url, journalpg.Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-accounts", TracerProvider: tracer, MaxConns: conns, IdleInTransactionTimeout: 2 * time.Second, ByIndex: true,
	})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, Store: sqlstore.New(sqlstore.Database{
		Pool: dbkit.PostgresPool(pool, nil), Dialect: dbkit.DialectPostgres, ForUpdate: ` FOR UPDATE`, NotifyInTx: notify,
	})}, nil
}

// Close ends the connections.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

func notify(account string) dbkit.Stmt {
	return dbkit.Stmt{Query: `SELECT pg_notify('` + channel + `', $1)`, Args: []any{account}}
}

// Wakes implements governor.Store. After a lost connection it names all accounts once, by an empty name.
func (s *Store) Wakes(ctx context.Context) (<-chan string, error) {
	return dbkit.Listen(ctx, s.pool, channel, 256, "", func(account string) (string, bool) { return account, true })
}
