package meaning

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// matrix reads a table with the same steps as rows and columns and a mark where one needs the other. It
// returns nil for other tables.
func matrix(src *form.Source, t *form.Tree) *Reading {
	rows := t.Root.Items
	n := len(rows)
	if t.Headless || n < 3 || n > 200 || len(rows[0].Fields) < 3 {
		return nil
	}
	ids := make([]string, n)
	for i, row := range rows {
		ids[i] = row.Fields[0].Val.Text()
		if label := leadingLabel(ids[i]); label != "" {
			ids[i] = label
		}
		if ids[i] == "" {
			return nil
		}
	}
	names := newNames(ids)
	heads := rows[0].Fields[1:]
	column := make([]int, len(heads))
	known := 0
	for k := range heads {
		i, ok := names.exact[heads[k].Key]
		if !ok {
			i, ok = names.exact[leadingLabel(heads[k].Key)]
		}
		if column[k] = i; !ok {
			column[k] = -1
		}
		known += b2i(ok)
	}
	if known < n-1 || known < len(heads)-1 {
		return nil
	}
	r := &Reading{Form: "table", Stated: true, Open: true, Start: t.Root.Off, End: t.Root.End, Weight: 88, Evidence: []string{"a matrix of steps"}}
	below, above := 0, 0
	for i, row := range rows {
		r.Items = append(r.Items, Item{ID: ids[i], Shown: true, Title: row.Fields[0].Val.Text(), Parent: -1, Off: row.Off, End: row.End})
		for k := 1; k < len(row.Fields) && k <= len(column); k++ {
			j, cell := column[k-1], row.Fields[k].Val
			if j < 0 || j == i || emptyMark(cell.Str) {
				continue
			}
			if len(cell.Str) > 12 {
				return nil
			}
			below += b2i(j < i)
			above += b2i(j > i)
			r.Links = append(r.Links, Link{From: ids[j], To: ids[i], Source: Stated, Off: cell.Off})
		}
	}
	if below+above == 0 {
		return nil
	}
	switch {
	case below == 0:
		turn(r)
	case above > 0:
		for _, l := range r.Links[:min(len(r.Links), maxUnsureLinks)] {
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: l.From + " -> " + l.To, Off: l.Off, Message: "nothing says whether rows need columns or columns need rows; " + l.From + " was taken to come before " + l.To, Hint: "say that rows need columns"})
		}
		r.moreUnsure(len(r.Links))
	}
	return r
}

// emptyMark reports whether a cell of a matrix means that there is no link.
func emptyMark(s string) bool {
	switch s {
	case "·", "0", "\\":
		return true
	case "x", "X", "×", "✗", "*", "•": // isNone takes some of them for "none"
		return false
	}
	return isNone(s)
}
