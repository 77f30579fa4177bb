package pg

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// listing is a list of one table by create_time and id.
type listing[T page.Row] struct {
	table, columns string
	scan           func(pgx.CollectableRow) (T, error)
	// newest says that the list begins with the newest.
	newest    bool
	namespace string
	// where is what the index of the order serves, fits what has to be looked at row by row. The arguments of
	// both are those of where.
	where
	fits  []string
	after page.Cursor
	// limit and look are how many rows are wanted, and looked at.
	limit, look int
}

// fit adds a condition that has to be looked at row by row.
func (l *listing[T]) fit(cond string, arg any) {
	l.add(cond, arg)
	last := len(l.parts) - 1
	l.fits, l.parts = append(l.fits, l.parts[last]), l.parts[:last]
}

func (l *listing[T]) order() (order, cmp string) {
	if l.newest {
		return "create_time DESC, id DESC", "<"
	}
	return "create_time, id", ">"
}

// rows reads a page of the list.
func (l *listing[T]) rows(ctx context.Context, t tx) (found store.Found[T], err error) {
	order, cmp := l.order()
	if len(l.fits) == 0 {
		w := l.where
		w.after("create_time", cmp, l.after)
		found.Rows, err = collectPage(ctx, t, l.scan, `SELECT `+l.columns+` FROM `+l.table+w.end(order, l.limit), w.args...)
		return found, err
	}
	ids, stopped, err := store.Look(ctx, l.after, l.limit, l.look, func(ctx context.Context, s store.LookStep, see func(page.Cursor, bool) bool) error {
		w := where{parts: slices.Clone(l.parts), args: slices.Clone(l.args)}
		w.after("create_time", cmp, s.After)
		// The condition is inside the limit: a database that sorts would evaluate it for every row before the
		// limit.
		return t.look(ctx, see, `SELECT create_time, id, `+strings.Join(l.fits, " AND ")+` FROM (
			SELECT * FROM `+l.table+w.end(order, s.Rows)+`) AS l ORDER BY `+order, w.args...)
	})
	found.Stopped = stopped
	if err != nil || len(ids) == 0 {
		return found, err
	}
	found.Rows, err = collectPage(ctx, t, l.scan, `SELECT `+l.columns+` FROM `+l.table+`
		WHERE namespace = $1 AND id = ANY($2) ORDER BY `+order, l.namespace, ids)
	return found, err
}

func (t tx) look(ctx context.Context, see func(at page.Cursor, fits bool) (more bool), query string, args ...any) error {
	rows, err := t.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more && rows.Next(); {
		var at page.Cursor
		var fits bool
		if err := rows.Scan(&at.CreateTime, &at.ID, &fits); err != nil {
			return err
		}
		at.CreateTime = at.CreateTime.UTC()
		more = see(at, fits)
	}
	rows.Close()
	return rows.Err()
}
