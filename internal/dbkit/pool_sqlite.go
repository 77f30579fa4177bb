package dbkit

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// SQLitePool is a Pool of a file. update runs a closure in a write transaction, as SQLite.Update does.
func SQLitePool(db *SQLite, update func(context.Context, func(context.Context, *sql.Tx) error) error) Pool {
	return sqlitePool{sqliteQuerier{db.Read}, db, update}
}

// SQLiteTx is a Querier in a transaction that the caller has begun.
func SQLiteTx(tx *sql.Tx) Querier { return sqliteQuerier{tx} }

type sqliteQuerier struct {
	q interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}
}

type sqlitePool struct {
	sqliteQuerier
	db     *SQLite
	update func(context.Context, func(context.Context, *sql.Tx) error) error
}

// Query implements Querier.
func (s sqliteQuerier) Query(ctx context.Context, query string, args ...any) (Rows, error) {
	rows, err := s.q.QueryContext(ctx, sqliteText(query), sqliteArgs(args)...) //nolint:rowserrcheck // the caller checks it
	if err != nil {
		return nil, err
	}
	return sqliteRows{rows}, nil
}

// Exec implements Querier.
func (s sqliteQuerier) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := s.q.ExecContext(ctx, sqliteText(query), sqliteArgs(args)...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Batch implements Querier.
func (s sqliteQuerier) Batch(ctx context.Context, stmts ...Stmt) error {
	for _, st := range stmts {
		if st.Rows == nil {
			n, err := s.Exec(ctx, st.Query, st.Args...)
			if err == nil && st.Done != nil {
				err = st.Done(n)
			}
			if err != nil {
				return err
			}
			continue
		}
		rows, err := s.Query(ctx, st.Query, st.Args...)
		if err != nil {
			return err
		}
		if err := readAll(rows, st.Rows); err != nil {
			return err
		}
	}
	return nil
}

// readAll lets read have the rows and closes them.
func readAll(rows Rows, read func(Rows) error) error {
	defer func() { _ = rows.Close() }() // also when read panics
	if err := read(rows); err != nil {
		return err
	}
	return rows.Close()
}

// Exec implements Querier.
func (p sqlitePool) Exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = p.Update(ctx, func(ctx context.Context, q Querier) (err error) {
		n, err = q.Exec(ctx, query, args...)
		return err
	})
	return n, err
}

// Batch implements Querier.
func (p sqlitePool) Batch(ctx context.Context, stmts ...Stmt) error {
	return p.Update(ctx, func(ctx context.Context, q Querier) error { return q.Batch(ctx, stmts...) })
}

// Update implements Pool.
func (p sqlitePool) Update(ctx context.Context, fn func(context.Context, Querier) error) error {
	return p.update(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, SQLiteTx(tx)) })
}

// Exchange implements Pool.
func (p sqlitePool) Exchange(ctx context.Context, begin func() ([]Stmt, func() ([]Stmt, error))) error {
	return p.Update(ctx, func(ctx context.Context, q Querier) error {
		first, decide := begin()
		if err := q.Batch(ctx, first...); err != nil {
			return err
		}
		then, err := decide()
		if err != nil {
			return err
		}
		return q.Batch(ctx, then...)
	})
}

// Read implements Pool.
func (p sqlitePool) Read(ctx context.Context, fn func(context.Context, Querier) error) error {
	return p.db.View(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, SQLiteTx(tx)) })
}

// View implements Pool.
func (p sqlitePool) View(ctx context.Context, stmts ...Stmt) error {
	return p.Read(ctx, func(ctx context.Context, q Querier) error { return q.Batch(ctx, stmts...) })
}

// sqliteText names the parameters as SQLite does.
func sqliteText(query string) string { return strings.ReplaceAll(query, "$", "?") }

// sqliteArgs converts arguments to the types of SQLite. It changes the list in place.
func sqliteArgs(args []any) []any {
	for i, a := range args {
		switch a := a.(type) {
		case time.Time:
			args[i] = ToUnixMicros(Micros(a))
		case Exact:
			args[i] = Micros(time.Time(a)).UnixMicro()
		case time.Duration:
			args[i] = a.Microseconds()
		case []string:
			args[i] = jsonList(a)
		case []int32:
			args[i] = jsonList(a)
		case []int64:
			args[i] = jsonList(a)
		}
	}
	return args
}

func jsonList[T any](list []T) string {
	if len(list) == 0 {
		return "[]" // nil too, which json would make null
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic("sqlite: " + err.Error()) // texts and numbers always marshal
	}
	return string(b)
}

type sqliteRows struct{ *sql.Rows }

// Scan implements Rows.
func (r sqliteRows) Scan(dst ...any) error {
	for i, d := range dst {
		if list, ok := d.(*[]string); ok {
			dst[i] = (*jsonTexts)(list)
		}
	}
	return r.Rows.Scan(dst...)
}

// jsonTexts reads a JSON list of texts.
type jsonTexts []string

// Scan implements sql.Scanner.
func (l *jsonTexts) Scan(v any) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("%T is no list of texts", v)
	}
	return json.Unmarshal([]byte(text), (*[]string)(l))
}
