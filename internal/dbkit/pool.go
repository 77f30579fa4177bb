package dbkit

import (
	"context"
	"database/sql"
)

// Rows are the rows of a query, on either database. They must be closed.
type Rows interface {
	Next() bool
	Scan(dst ...any) error
	Err() error
	Close() error
}

// Scanner is a row that can be read: Rows and Row are.
type Scanner interface {
	Scan(dst ...any) error
}

// Querier runs statements that PostgreSQL and SQLite share. Their parameters are $1, $2 and so on, and no
// other dollar signs stand in them. Besides what database/sql takes, an argument may be
//   - a time.Time, cut to microseconds, of which the zero value means unset: see Dialect.Unset;
//   - an Exact time, which is always set;
//   - a time.Duration: see Dialect.Span;
//   - a list of texts, or of numbers: see Dialect.In.
//
// A time is scanned by At or into an *Exact. A list of texts is scanned into a *[]string.
type Querier interface {
	Query(ctx context.Context, query string, args ...any) (Rows, error)
	// Exec returns how many rows the statement wrote.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// Batch runs the statements in order and as one transaction. On PostgreSQL that is one round trip.
	Batch(ctx context.Context, stmts ...Stmt) error
}

// Pool is a Querier outside of a transaction. Its Query only reads. It is safe for concurrent use.
type Pool interface {
	Querier
	// Update runs fn in one transaction: it commits if fn returns nil, and rolls back otherwise. fn may run
	// more than once and must have no other effect.
	Update(ctx context.Context, fn func(context.Context, Querier) error) error
	// Exchange runs statements, and then those that are decided from what they found, in one transaction. It
	// rolls back if the decision is an error. On PostgreSQL each half is one round trip. begin may be called
	// more than once and must have no other effect.
	Exchange(ctx context.Context, begin func() (first []Stmt, decide func() ([]Stmt, error))) error
	// Read runs fn in one transaction that only reads. fn may run more than once and must have no other
	// effect. On SQLite all its statements see the same snapshot, on PostgreSQL each sees what is committed
	// by then.
	Read(ctx context.Context, fn func(context.Context, Querier) error) error
	// View runs statements that read, all on the same snapshot. On PostgreSQL that is one round trip.
	View(ctx context.Context, stmts ...Stmt) error
}

// Stmt is a statement of a batch.
type Stmt struct {
	Query string
	Args  []any
	// Rows, if set, reads the rows of the result.
	Rows func(Rows) error
	// Done, if set, receives the number of rows that the statement wrote. Without Rows only.
	Done func(n int64) error
}

// Row is the first row of a query.
type Row struct {
	rows Rows
	err  error
}

// FirstRow is the first row of a query whose error, if it failed, comes with the rows.
func FirstRow(rows Rows, err error) Row { return Row{rows, err} }

// Scan reads the row and closes the query. It returns sql.ErrNoRows if there is no row.
func (r Row) Scan(dst ...any) error {
	if r.err != nil {
		return r.err
	}
	defer func() { _ = r.rows.Close() }() // also when a scan panics
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := r.rows.Scan(dst...); err != nil {
		return err
	}
	return r.rows.Close()
}
