package dbkit

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PostgresPool is a Pool of connections to PostgreSQL. fault translates its errors; nil leaves them as they
// are.
func PostgresPool(pool *pgxpool.Pool, fault func(error) error) Pool {
	if fault == nil {
		fault = func(err error) error { return err }
	}
	return postgresPool{postgresQuerier{pool, fault}, pool}
}

type postgresQuerier struct {
	q interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}
	fault func(error) error
}

type postgresPool struct {
	postgresQuerier
	pool *pgxpool.Pool
}

// Query implements Querier.
func (p postgresQuerier) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := p.q.Query(ctx, query, postgresArgs(args)...)
	if err != nil {
		return nil, p.fault(err)
	}
	return postgresRows{rows, p.fault}, nil
}

// Exec implements Querier.
func (p postgresQuerier) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := p.q.Exec(ctx, query, postgresArgs(args)...)
	if err != nil {
		return 0, p.fault(err)
	}
	return tag.RowsAffected(), nil
}

// Batch implements Querier.
func (p postgresQuerier) Batch(ctx context.Context, stmts ...Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	var b pgx.Batch
	p.queue(&b, stmts)
	return p.sent(p.q.SendBatch(ctx, &b))
}

func (p postgresQuerier) sent(results pgx.BatchResults) error {
	if err := results.Close(); err != nil {
		return p.fault(err)
	}
	return nil
}

func (p postgresQuerier) queue(b *pgx.Batch, stmts []Stmt) {
	for _, s := range stmts {
		q := b.Queue(s.Query, postgresArgs(s.Args)...)
		switch {
		case s.Rows != nil:
			q.Query(func(rows pgx.Rows) error { return s.Rows(postgresRows{rows, p.fault}) })
		case s.Done != nil:
			q.Exec(func(tag pgconn.CommandTag) error { return s.Done(tag.RowsAffected()) })
		}
	}
}

// Update implements Pool.
func (p postgresPool) Update(ctx context.Context, fn func(context.Context, Querier) error) error {
	return p.tx(ctx, pgx.TxOptions{}, fn)
}

// Read implements Pool.
func (p postgresPool) Read(ctx context.Context, fn func(context.Context, Querier) error) error {
	return p.tx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}, fn)
}

func (p postgresPool) tx(ctx context.Context, o pgx.TxOptions, fn func(context.Context, Querier) error) error {
	err := PostgresTxOptions(ctx, p.pool, o, func(ctx context.Context, tx pgx.Tx) error {
		return fn(ctx, postgresQuerier{tx, func(err error) error { return err }})
	})
	if err != nil {
		return p.fault(err)
	}
	return nil
}

// Exchange implements Pool.
func (p postgresPool) Exchange(ctx context.Context, begin func() ([]Stmt, func() ([]Stmt, error))) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return p.fault(fmt.Errorf("acquire connection: %w", err))
	}
	// A connection that is left inside a transaction is closed by the pool, which rolls back.
	defer conn.Release()
	first, decide := begin()
	var b pgx.Batch
	b.Queue("BEGIN")
	p.queue(&b, first)
	var then []Stmt
	if err = conn.SendBatch(ctx, &b).Close(); err == nil {
		if then, err = decide(); err == nil {
			b = pgx.Batch{}
			p.queue(&b, then)
			b.Queue("COMMIT")
			err = conn.SendBatch(ctx, &b).Close()
		}
	}
	if err == nil {
		return nil
	}
	if conn.Conn().PgConn().TxStatus() != 'I' && ctx.Err() == nil {
		_, _ = conn.Exec(ctx, "ROLLBACK") // if this fails the pool closes the connection
	}
	return p.fault(err)
}

// View implements Pool.
func (p postgresPool) View(ctx context.Context, stmts ...Stmt) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return p.fault(fmt.Errorf("acquire connection: %w", err))
	}
	// A connection that is left inside a transaction is closed by the pool, which rolls back.
	defer conn.Release()
	var b pgx.Batch
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	p.queue(&b, stmts)
	b.Queue("COMMIT")
	return p.sent(conn.SendBatch(ctx, &b))
}

type postgresRows struct {
	pgx.Rows
	fault func(error) error
}

// Err implements Rows.
func (r postgresRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return r.fault(err)
	}
	return nil
}

// Close implements Rows.
func (r postgresRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// postgresArgs converts arguments to the types of pgx. It changes the list in place.
func postgresArgs(args []any) []any {
	for i, a := range args {
		switch a := a.(type) {
		case time.Time:
			if a.IsZero() {
				args[i] = nil
			} else {
				args[i] = Micros(a)
			}
		case Exact:
			args[i] = Micros(time.Time(a))
		case time.Duration:
			args[i] = a.Truncate(time.Microsecond)
		case []string:
			if a == nil {
				args[i] = []string{} // nil would be null
			}
		}
	}
	return args
}
