package dbkit

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/page"
)

// Collect reads and closes the rows of a query whose error, if it failed, comes with them. It returns nil if there are none, and all or nothing:
// no rows with an error.
func Collect[T any](rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) (out []T, rerr error) {
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := errors.Join(rows.Err(), rows.Close()); rerr == nil && err != nil {
			out, rerr = nil, err
		}
	}()
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// CollectPage is Collect for rows of a page: it stops behind the first row that the page has no room for, and what it reads counts for the answer of ctx.
func CollectPage[T page.Row](ctx context.Context, rows *sql.Rows, err error, scan func(*sql.Rows) (T, error)) (out []T, rerr error) {
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := errors.Join(rows.Err(), rows.Close()); rerr == nil && err != nil {
			out, rerr = nil, err
		}
	}()
	var f filling
	for !f.full && rows.Next() {
		v, err := scan(rows)
		if err == nil {
			err = f.add(ctx, v)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// CollectPagePostgres is CollectPage for rows of PostgreSQL.
func CollectPagePostgres[T page.Row](ctx context.Context, rows pgx.Rows, err error, scan pgx.RowToFunc[T]) (out []T, rerr error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var f filling
	for !f.full && rows.Next() {
		v, err := scan(rows)
		if err == nil {
			err = f.add(ctx, v)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// rowMemory is how often what a row holds is there at once: as it was read, and as the message that it becomes.
const rowMemory = 2

// filling is a page that is being read.
type filling struct {
	gauge page.Gauge
	full  bool
}

func (f *filling) add(ctx context.Context, r page.Row) error {
	f.full = f.gauge.Add(r)
	return inflight.Read(ctx, rowMemory*int64(r.Size()))
}
