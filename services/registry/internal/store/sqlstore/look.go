package sqlstore

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
	// table is what is listed, as t. rest joins what else the columns are read from.
	table, rest, columns string
	scan                 func(dbkit.Scanner) (T, error)
	// newest says that the list begins with the newest.
	newest    bool
	namespace string
	// where is what the index of the order serves, fits what has to be looked at row by row. The arguments of
	// both are those of where.
	where
	fits []string
	// byState says that an index has the rows of each state in the order of the list; states, if any, are
	// those that it is asked for.
	byState bool
	states  []int32
	after   page.Cursor
	// limit and look are how many rows are wanted, and looked at.
	limit, look int
}

// fit adds a condition that has to be looked at row by row.
func (l *listing[T]) fit(cond func(column, param string) string, column string, arg any) {
	l.fits = append(l.fits, cond(column, l.arg(arg)))
}

func (l *listing[T]) order() (order, cmp string) {
	if l.newest {
		return "t.create_time DESC, t.id DESC", "<"
	}
	return "t.create_time, t.id", ">"
}

// filter adds the conditions that lists of epics and of tasks have in common.
func filter[T page.Row, S ~int16](l *listing[T], d dbkit.Dialect, in []S, tags []string, labels map[string]string) error {
	switch {
	case len(in) > 0 && l.byState:
		l.states = states(in)
	case len(in) > 0:
		l.fit(d.In, "state", states(in))
	}
	if len(tags) > 0 {
		l.fit(d.Overlap, "tags", tags)
	}
	if len(labels) > 0 {
		want, err := labelText(labels)
		if err != nil {
			return err
		}
		l.fit(d.Contains, "labels", want)
	}
	return nil
}

// from is a select of columns of the first rows under the conditions of the index.
func (l *listing[T]) from(columns string, w *where, order string, limit int) string {
	// A union is ordered by the names of its columns.
	order = strings.ReplaceAll(order, "t.", "")
	conds, most := strings.Join(w.parts, " AND "), w.arg(limit)
	return dbkit.Merged(l.states, func(state string) string {
		return `SELECT ` + columns + ` FROM ` + l.table + ` t WHERE ` + conds + ` AND ` + state
	}, "t", order, most)
}

// rows reads a page of the list.
func (l *listing[T]) rows(ctx context.Context, t tx) (found store.Found[T], err error) {
	order, cmp := l.order()
	if len(l.fits) == 0 {
		w := l.where
		w.after("create_time", cmp, l.after)
		found.Rows, err = collectPage(ctx, t, l.scan, `SELECT `+l.columns+` FROM (`+l.from("*", &w, order, l.limit)+`) t`+l.rest+` ORDER BY `+order, w.args...)
		return found, err
	}
	ids, stopped, err := store.Look(ctx, l.after, l.limit, l.look, func(ctx context.Context, s store.LookStep, see func(page.Cursor, bool) bool) error {
		w := where{parts: slices.Clone(l.parts), args: slices.Clone(l.args)}
		w.after("create_time", cmp, s.After)
		// The conditions are outside of the limit: a database that sorts would evaluate them for every row
		// before the limit.
		return t.look(ctx, see, `SELECT create_time, id, `+strings.Join(l.fits, " AND ")+` FROM (
			`+l.from("*", &w, order, s.Rows)+`) AS t ORDER BY `+order, w.args...)
	})
	found.Stopped = stopped
	if err != nil || len(ids) == 0 {
		return found, err
	}
	// Rows are looked up by their ids: the index of the order would lead over all rows in between.
	found.Rows, err = collectPage(ctx, t, l.scan, `SELECT `+l.columns+` FROM `+t.d.Lists(`w`, [2]string{"want", "text"})+
		t.d.LookUp(l.table, `t`, `t.namespace = $2 AND t.id = w.want`)+l.rest+` ORDER BY `+order, ids, l.namespace)
	return found, err
}

func (t tx) look(ctx context.Context, see func(at page.Cursor, fits bool) (more bool), query string, args ...any) error {
	rows, err := t.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for more := true; more && rows.Next(); {
		var at page.Cursor
		var fits bool
		if err := rows.Scan(dbkit.At(&at.CreateTime), &at.ID, &fits); err != nil {
			return err
		}
		more = see(at, fits)
	}
	return rows.Close()
}
