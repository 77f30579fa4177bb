package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// rowNouns and columnNouns are stems of the words for rows and columns, in many languages.
var (
	rowNouns    = [...]string{"row", "zeile", "ligne", "fila", "riga", "righe", "linha", "rij", "wiersz", "строк", "рядк", "рядок", "rad ", "rader", "raden", "satır", "行", "행", "पंक्ति", "الصف", "صف", "hàng", "baris"}
	columnNouns = [...]string{"column", "spalte", "colonne", "columna", "colonna", "coluna", "kolom", "kolumn", "столб", "колонк", "стовп", "sütun", "列", "열", "स्तंभ", "कॉलम", "العمود", "عمود", "cột"}
)

// matrix reads a table that has the same steps as rows and as columns, and marks where one needs the other.
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
	says, rowFirst := matrixSense(src, t)
	switch {
	case says && rowFirst, !says && below == 0:
		turn(r)
	case !says && above > 0:
		for _, l := range r.Links[:min(len(r.Links), maxUnsureLinks)] {
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: l.From + " -> " + l.To, Off: l.Off, Message: "nothing says whether rows need columns or columns rows; " + l.From + " was taken to come before " + l.To, Hint: "say that rows need columns"})
		}
		r.moreUnsure(len(r.Links))
	}
	return r
}

// emptyMark reports whether a cell of a matrix says that there is no link.
func emptyMark(s string) bool {
	switch s {
	case "·", "0", "\\":
		return true
	case "x", "X", "×", "✗", "*", "•": // elsewhere some of them say that there is nothing
		return false
	}
	return isNone(s)
}

// matrixSense returns whether a line around a matrix, or its corner, says which end is needed, and whether it
// is the one of the columns that needs that of the rows.
func matrixSense(src *form.Source, t *form.Tree) (says, rowFirst bool) {
	first, last := src.LineAt(t.Root.Off), src.LineAt(t.Root.End)
	for i := max(0, first-senseLines); i < min(len(src.Lines), last+senseLines); i++ {
		text := src.Lines[i].Text
		if i > first && i < last || len(text) > 400 {
			continue
		}
		lower := strings.ToLower(text)
		row, column := firstOf(lower, rowNouns[:]), firstOf(lower, columnNouns[:])
		if row < 0 || column < 0 {
			continue
		}
		for _, w := range lexicon.ScanIn(lexicon.Lang(languageOf(src)), text) {
			if w.Is(lexicon.Needs) || w.Is(lexicon.Uses) || w.Is(lexicon.Before) {
				return true, (column < row) != w.Is(lexicon.Before)
			}
		}
	}
	return false, false
}

// firstOf returns the first place at which one of some words stands, or -1.
func firstOf(s string, words []string) int {
	at := -1
	for _, w := range words {
		if i := strings.Index(s, w); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	return at
}
