package dbkit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// How long one statement may take, and wait for a lock, where the options say nothing.
const (
	statementTimeout = 30 * time.Second
	lockTimeout      = 5 * time.Second
)

// PostgresOptions are the settings of one pool. Zero durations and counts mean the defaults named at
// each field; a negative duration turns that limit off.
type PostgresOptions struct {
	// ApplicationName shows in pg_stat_activity; default "epigraph".
	ApplicationName string
	// TracerProvider gets a span per query that runs below another span; nil means none.
	TracerProvider trace.TracerProvider
	// Answered is called after each statement that the server carried out; nil means nobody wants to know.
	Answered func()
	// MaxConns bounds the pool; 0 leaves it to the URL (pool_max_conns) or pgx's default.
	MaxConns int32
	// IdleInTransactionTimeout makes the server end a transaction that nobody drives; default 10s.
	IdleInTransactionTimeout time.Duration
	// LockTimeout bounds the wait for a lock; default 5s.
	LockTimeout time.Duration
	// StatementTimeout bounds one statement; default 30s.
	StatementTimeout time.Duration
	// ByIndex is for statements that find their rows by an index, whatever the size of the tables. It keeps
	// the planner from choosing a scan while a table is small or not analyzed, and then keeping that plan.
	ByIndex bool
	// Role, if set, is assumed on every connection, so that row-level security binds a pool that
	// logs in as the owner.
	Role string
}

// scans are the settings that let the planner read whole tables, and prepare for that.
var scans = [...]string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"}

var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// OpenPostgres opens a pool whose search path is exactly this schema, and pings the server. The
// schema need not exist yet: migrations create it. An unreachable server is Unavailable.
func OpenPostgres(ctx context.Context, url, schema string, opts PostgresOptions) (*pgxpool.Pool, error) {
	if !schemaName.MatchString(schema) {
		return nil, errs.New(errs.InvalidArgument, "SCHEMA_NAME_INVALID", "schema name %q is not valid", schema)
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// pgx redacts the password in its text, yet the URL stays private all the same.
		return nil, errs.New(errs.InvalidArgument, "DATABASE_URL_INVALID", "the PostgreSQL URL cannot be parsed").
			Hint("postgres://user:password@host:5432/database?sslmode=require").With(err)
	}
	cfg.AfterConnect = takeArrays
	params := cfg.ConnConfig.RuntimeParams
	params["search_path"] = schema
	params["timezone"] = "UTC"
	if opts.ApplicationName == "" {
		opts.ApplicationName = "epigraph"
	}
	params["application_name"] = opts.ApplicationName
	setTimeout(params, "idle_in_transaction_session_timeout", opts.IdleInTransactionTimeout, 10*time.Second)
	setTimeout(params, "lock_timeout", opts.LockTimeout, lockTimeout)
	setTimeout(params, "statement_timeout", opts.StatementTimeout, statementTimeout)
	if opts.ByIndex {
		for _, name := range scans {
			params[name] = "off"
		}
	}
	if opts.Role != "" {
		params["role"] = opts.Role
	}
	if opts.MaxConns > 0 {
		cfg.MaxConns = opts.MaxConns
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	var tracers []pgx.QueryTracer
	if opts.TracerProvider != nil {
		tracers = append(tracers, otelpgx.NewTracer(otelpgx.WithTracerProvider(opts.TracerProvider), otelpgx.WithDisableAcquireTracer()))
	}
	if opts.Answered != nil {
		tracers = append(tracers, answers(opts.Answered))
	}
	switch len(tracers) {
	case 0:
	case 1:
		cfg.ConnConfig.Tracer = tracers[0]
	default:
		cfg.ConnConfig.Tracer = multitracer.New(tracers...)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make pool: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, errs.New(errs.Unavailable, ReasonUnreachable, "cannot reach PostgreSQL at %s, database %q",
			net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port))), cfg.ConnConfig.Database).
			Hint("check the URL, the password and that the server is up").With(err)
	}
	return pool, nil
}

// answers is called after each statement and batch that the server carried out.
type answers func()

func (answers) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (f answers) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if d.Err == nil {
		f()
	}
}

func (answers) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (answers) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (f answers) TraceBatchEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchEndData) {
	if d.Err == nil {
		f()
	}
}

// PostgresTx runs fn in one READ COMMITTED transaction: commit if fn returns nil, else roll back. fn
// runs again after a deadlock or serialization failure, so it must have no effect besides the transaction.
func PostgresTx(ctx context.Context, pool *pgxpool.Pool, fn func(context.Context, pgx.Tx) error) error {
	return PostgresTxOptions(ctx, pool, pgx.TxOptions{}, fn)
}

// PostgresTxOptions is PostgresTx with a stated isolation level or access mode.
func PostgresTxOptions(ctx context.Context, pool *pgxpool.Pool, o pgx.TxOptions, fn func(context.Context, pgx.Tx) error) error {
	return retry(ctx, func() error {
		return pgx.BeginTxFunc(ctx, pool, o, func(tx pgx.Tx) error { return fn(ctx, tx) })
	})
}

func setTimeout(params map[string]string, name string, v, def time.Duration) {
	switch {
	case v == 0:
		v = def
	case v < 0:
		v = 0
	}
	params[name] = strconv.FormatInt(v.Milliseconds(), 10)
}

func isNetwork(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		// the error of a connection that an earlier statement found closed
		errors.Is(err, pgconn.ErrConnClosed)
}
