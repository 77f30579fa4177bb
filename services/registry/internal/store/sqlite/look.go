package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// listing is a list of one table by create_time and id.
type listing[T page.Row] struct {
	// table has what rows are looked at for, whole is what the columns are read from.
	table, whole, columns string
	scan                  func(scanner) (T, error)
	// newest says that the list begins with the newest.
	newest    bool
	namespace string
	// scope is what the index of the order serves, fits what has to be looked at row by row.
	scope, fits where
	after       page.Cursor
	// limit and look are how many rows are wanted, and looked at.
	limit, look int
}

func (l listing[T]) order() (order, cmp string) {
	if l.newest {
		return "create_time DESC, id DESC", "<"
	}
	return "create_time, id", ">"
}

// rows reads a page of the list.
func (l listing[T]) rows(ctx context.Context, t tx) (found store.Found[T], err error) {
	order, cmp := l.order()
	if len(l.fits.parts) == 0 {
		w := l.scope
		w.after(cmp, l.after)
		found.Rows, err = collectPage(ctx, t, l.scan, `SELECT `+l.columns+` FROM `+l.whole+w.end(order, l.limit), w.args...)
		return found, err
	}
	ids, stopped, err := store.Look(ctx, l.after, l.limit, l.look, func(ctx context.Context, s store.LookStep, see func(page.Cursor, bool) bool) error {
		w := where{parts: slices.Clone(l.scope.parts), args: slices.Concat(l.fits.args, l.scope.args)}
		w.after(cmp, s.After)
		return t.look(ctx, see, `SELECT create_time, id, `+strings.Join(l.fits.parts, " AND ")+` FROM `+l.table+w.end(order, s.Rows), w.args...)
	})
	found.Stopped = stopped
	if err != nil || len(ids) == 0 {
		return found, err
	}
	set, err := text(ids)
	if err != nil {
		return found, err
	}
	// The index of the order would lead over all rows in between.
	order = "+" + strings.ReplaceAll(order, ", ", ", +")
	found.Rows, err = collectPage(ctx, t, l.scan, `SELECT `+l.columns+` FROM `+l.whole+`
		WHERE namespace = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY `+order, l.namespace, set)
	return found, err
}

func (t tx) look(ctx context.Context, see func(at page.Cursor, fits bool) (more bool), query string, args ...any) error {
	rows, err := t.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more && rows.Next(); {
		var at page.Cursor
		var micros int64
		var fits bool
		if err := rows.Scan(&micros, &at.ID, &fits); err != nil {
			return err
		}
		at.CreateTime = dbkit.FromUnixMicros(micros)
		more = see(at, fits)
	}
	return rows.Err()
}
