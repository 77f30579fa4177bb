// Package pg keeps limits in the schema of the journal in a PostgreSQL database, for any number of executors.
// It owns the connections, the locks and the notifications of waiters; the other SQL is that of package
// sqlstore.
package pg

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	journalpg "github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit"
	"github.com/epigraph-run/epigraph/services/executor/internal/limit/sqlstore"
)

const (
	// channel gets the namespace and the name of a limit, or nothing after limits were changed.
	channel = "executor_limit"
	// between stands between the two.
	between = "\x1f"
	// Conns are how many connections the pool has: for exchanges and for the API.
	Conns = 4
)

var _ limit.Store = (*Store)(nil)

// Store is a limit.Store with a small pool of its own: an exchange must wait neither for readers nor for
// commits.
type Store struct {
	*sqlstore.Store
	pool *pgxpool.Pool
}

// Open connects. The journal's migrations make the tables.
func Open(ctx context.Context, url string, tracer trace.TracerProvider) (*Store, error) {
	pool, err := dbkit.OpenPostgres(ctx, url, journalpg.Schema, dbkit.PostgresOptions{
		ApplicationName: "epigraph-executor-limits", TracerProvider: tracer, MaxConns: Conns, IdleInTransactionTimeout: 2 * time.Second, ByIndex: true,
	})
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, Store: sqlstore.New(sqlstore.Database{
		Pool: dbkit.PostgresPool(pool, nil), Dialect: dbkit.DialectPostgres, Lock: lock, NotifyInTx: notify, JobDue: `scheduled_at <= now()`,
	})}, nil
}

// Close implements limit.Store.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// lock takes the advisory locks of limits, sorted so that no two exchanges wait for each other in a circle.
func lock(ks []limit.Key) []dbkit.Stmt {
	locks := make([]int64, len(ks))
	for i, k := range ks {
		h := fnv.New64a()
		for _, s := range []string{"epigraph/limit", k.Namespace, k.Name} {
			h.Write([]byte(s))
			h.Write([]byte{0})
		}
		locks[i] = int64(h.Sum64())
	}
	slices.Sort(locks)
	return []dbkit.Stmt{{Query: `SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS l (k)`, Args: []any{slices.Compact(locks)}}}
}

// notify sends the keys of limits at the commit.
func notify(ks []limit.Key) []dbkit.Stmt {
	if len(ks) == 0 {
		return nil
	}
	payloads := make([]string, len(ks))
	for i, k := range ks {
		if k != (limit.Key{}) {
			payloads[i] = k.Namespace + between + k.Name
		}
	}
	return []dbkit.Stmt{{Query: `SELECT pg_notify('` + channel + `', p) FROM unnest($1::text[]) AS n (p)`, Args: []any{payloads}}}
}

// Wakes implements limit.Store. After a lost connection it says once more that limits were changed.
func (s *Store) Wakes(ctx context.Context) (<-chan limit.Key, error) {
	return dbkit.Listen(ctx, s.pool, channel, 1024, limit.Key{}, func(payload string) (limit.Key, bool) {
		namespace, name, _ := strings.Cut(payload, between)
		return limit.Key{Namespace: namespace, Name: name}, true
	})
}
