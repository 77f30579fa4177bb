package dbkit

import (
	"cmp"
	"context"

	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/page"
)

// Collect reads and closes the rows of a query whose error, if it failed, comes with them. It returns nil if
// there are none, and all or nothing: no rows with an error.
func Collect[R Rows, T any](rows R, err error, scan func(R) (T, error)) ([]T, error) {
	return collect(rows, err, scan, func(T) (bool, error) { return false, nil })
}

// CollectPage is Collect for rows of a page: it stops behind the first row that the page has no room for, and
// what it reads counts for the answer of ctx.
func CollectPage[R Rows, T page.Row](ctx context.Context, rows R, err error, scan func(R) (T, error)) ([]T, error) {
	return collect(rows, err, scan, fillPage[T](ctx))
}

// CollectPart is Collect for rows of which there may be more than are wanted at once: it stops behind the
// first row that page.MaxBytes have no room for. What it reads does not count for the answer of the caller,
// who may read many parts for one answer.
func CollectPart[R Rows, T page.Row](rows R, err error, scan func(R) (T, error)) ([]T, error) {
	var g page.Gauge
	return collect(rows, err, scan, func(r T) (bool, error) { return g.Add(r), nil })
}

func collect[R Rows, T any](rows R, err error, scan func(R) (T, error), add func(T) (bool, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // also when a scan panics
	out, err := read(rows.Next, func() (T, error) { return scan(rows) }, add)
	closed := rows.Close()
	if ended := cmp.Or(rows.Err(), closed); err == nil {
		err = ended
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// read gathers rows until there are no more, or add says that it was the last one.
func read[T any](next func() bool, scan func() (T, error), add func(T) (last bool, err error)) (out []T, err error) {
	for last := false; !last && next(); {
		v, err := scan()
		if err == nil {
			last, err = add(v)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// rowMemory is how often what a row holds is there at once: as it was read, and as the message that it
// becomes.
const rowMemory = 2

// fillPage reports for each row whether the page has room for another one.
func fillPage[T page.Row](ctx context.Context) func(T) (full bool, err error) {
	var g page.Gauge
	return func(r T) (bool, error) {
		return g.Add(r), inflight.Read(ctx, rowMemory*int64(r.Size()))
	}
}
