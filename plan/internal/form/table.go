package form

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table builds a list of rows, each an object of the column's head and the cell.
type table struct {
	list  *Value
	heads []string
}

func newTable(off int) *table { return &table{list: &Value{Kind: KindList, Off: off}} }

// row adds a row; the first one holds the heads.
func (t *table) row(cells []*Value, off, end int) {
	if t.heads == nil {
		seen := map[string]int{}
		t.heads = make([]string, len(cells))
		for i, c := range cells {
			h := c.Str
			if seen[h]++; seen[h] > 1 || h == "" {
				h += marks(seen[h] - 1)
			}
			t.heads[i] = h
		}
		t.list.End = end
		return
	}
	r := &Value{Kind: KindObject, Off: off, End: end}
	for i, c := range cells {
		var head string
		if i < len(t.heads) {
			head = t.heads[i]
		} else if c.Str == "" {
			continue
		} else {
			head = "+" + marks(i-len(t.heads))
		}
		r.Fields = append(r.Fields, Field{Key: head, Off: c.Off, Val: c})
	}
	t.list.Items = append(t.list.Items, r)
	t.list.End = end
}

// marks tells the n-th column of one name from the others.
func marks(n int) string {
	if n > 8 {
		return "'" + strconv.Itoa(n)
	}
	return strings.Repeat("'", n)
}

// Tables returns the tables of Markdown and org-mode, those of aligned columns, and what is written as CSV, with ; or tabs
// too: lists of rows, each an object of heads and cells. A table that ends in an incomplete row is CutOff.
func Tables(src *Source) []*Tree {
	var trees []*Tree
	for i := 0; i < len(src.Lines); {
		t, next := pipeTable(src, i)
		if t == nil {
			t, next = separated(src, i)
		}
		if t == nil {
			t, next = aligned(src, i)
		}
		if t != nil && len(t.Root.Items) > 0 {
			trees = append(trees, t)
		}
		i = max(next, i+1)
	}
	return trees
}

// pipeTable reads a table with | between its cells that begins at line i.
func pipeTable(src *Source, i int) (*Tree, int) {
	head := &src.Lines[i]
	if !strings.Contains(head.Text, "|") || isTableRule(head.Text) {
		return nil, i
	}
	if i+1 >= len(src.Lines) {
		return nil, i
	}
	ruled := isTableRule(src.Lines[i+1].Text)
	if !ruled && head.Text[0] != '|' {
		return nil, i
	}
	t := newTable(head.Off)
	t.row(pipeCells(src, head), head.Off, head.End)
	if len(t.heads) < 2 {
		return nil, i
	}
	j := i + 1
	var last *Line
	for ; j < len(src.Lines); j++ {
		l := &src.Lines[j]
		if isTableRule(l.Text) {
			continue
		}
		if !strings.Contains(l.Text, "|") || l.Fence || head.Text[0] == '|' && l.Text[0] != '|' {
			break
		}
		t.row(pipeCells(src, l), l.Off, l.End)
		last = l
	}
	if last == nil || !ruled && len(t.list.Items) < 2 {
		return nil, j
	}
	tree := &Tree{Root: t.list, AnyKeys: true}
	n := len(t.list.Items)
	if row := t.list.Items[n-1]; head.Text[len(head.Text)-1] == '|' && last.Text[len(last.Text)-1] != '|' || n > 1 && len(row.Fields) < len(t.list.Items[n-2].Fields) {
		tree.CutOff = strings.TrimSpace(src.Text[last.End:]) == "" || n > 1
	}
	return tree, j
}

// isTableRule reports whether a line is the rule between the head and the rows of a table.
func isTableRule(s string) bool {
	return len(s) > 2 && strings.Contains(s, "-") && strings.Trim(s, "|-:+= \t") == "" && strings.ContainsAny(s, "|+")
}

func pipeCells(src *Source, l *Line) []*Value {
	start, end := l.Off, l.End
	if src.Text[start] == '|' {
		start++
	}
	if end > start && src.Text[end-1] == '|' && (end < 2 || src.Text[end-2] != '\\') {
		end--
	}
	var out []*Value
	from := start
	code := false
	for k := start; k <= end; k++ {
		if k < end {
			switch src.Text[k] {
			case '`':
				code = !code && strings.IndexByte(src.Text[k+1:end], '`') >= 0
				continue
			case '\\':
				k++
				continue
			case '|':
				if code {
					continue
				}
			default:
				continue
			}
		}
		k = min(k, end)
		out = append(out, cellOf(src.Text, from, k))
		from = k + 1
	}
	return out
}

// cellOf makes a value of a cell, without signs of emphasis around it.
func cellOf(s string, from, to int) *Value {
	raw := s[from:to]
	text := strings.TrimSpace(raw)
	off := from + strings.Index(raw, text)
	for _, q := range [...]string{"**", "__", "`", "*", "_", "~~"} {
		if len(text) > 2*len(q) && strings.HasPrefix(text, q) && strings.HasSuffix(text, q) && !strings.Contains(text[len(q):len(text)-len(q)], q) {
			text = strings.TrimSpace(text[len(q) : len(text)-len(q)])
			off += len(q)
		}
	}
	text = strings.ReplaceAll(text, `\|`, "|")
	if strings.Contains(text, "`") {
		text = strings.ReplaceAll(text, "`", "")
	}
	if strings.Contains(text, "<br") {
		text = strings.NewReplacer("<br>", "; ", "<br/>", "; ", "<br />", "; ").Replace(text)
	}
	return &Value{Kind: KindString, Str: text, Off: off, End: off + len(text)}
}

// separated reads CSV that begins at line i: with commas, semicolons or tabs, and quotes.
func separated(src *Source, i int) (*Tree, int) {
	head := &src.Lines[i]
	if head.Text == "" || head.Fence || i+1 >= len(src.Lines) {
		return nil, i
	}
	for _, sep := range [...]byte{'\t', ';', ','} {
		if strings.IndexByte(head.Text, sep) < 0 {
			continue
		}
		heads, _, _ := csvCells(src.Text, head.Off, sep)
		if len(heads) < 2 || sep != '\t' && !plainHeads(heads) {
			continue
		}
		t := newTable(head.Off)
		t.row(heads, head.Off, head.End)
		j, cut := i+1, false
		for j < len(src.Lines) {
			l := &src.Lines[j]
			if l.Text == "" || l.Fence {
				break
			}
			start := l.Start
			if sep != '\t' {
				start = l.Off
			}
			cells, end, open := csvCells(src.Text, start, sep)
			if len(cells) < 2 || len(cells) > len(heads)+1 && sep != ',' {
				break
			}
			if len(cells) > len(heads) && !allEmpty(cells[len(heads):]) && len(t.list.Items) == 0 {
				break
			}
			last := src.LineAt(max(start, end-1))
			cut = (open || len(cells) < len(heads)) && strings.TrimSpace(src.Text[end:]) == "" && sep != '\t'
			if len(cells) < len(heads) && !cut && sep != '\t' && len(cells) < len(heads)-1 {
				break
			}
			t.row(cells, l.Off, end)
			j = last + 1
		}
		if n := len(t.list.Items); n >= 2 || n == 1 && len(heads) >= 3 {
			return &Tree{Root: t.list, AnyKeys: true, CutOff: cut}, j
		}
	}
	return nil, i
}

func allEmpty(cells []*Value) bool {
	for _, c := range cells {
		if c.Str != "" {
			return false
		}
	}
	return true
}

// plainHeads reports whether cells can be the heads of columns: short, not all of digits, no sentence.
func plainHeads(cells []*Value) bool {
	for i, c := range cells {
		if c.Str == "" && i < len(cells)-1 || len(c.Str) > 60 || strings.Count(c.Str, " ") > 4 || strings.ContainsAny(c.Str, "{}[]<>!?=|█。，;\"") || strings.HasSuffix(c.Str, ".") && len(c.Str) > 5 || strings.HasSuffix(c.Str, ":") {
			return false
		}
		if digits := strings.TrimLeft(c.Str, "0123456789"); len(digits) < len(c.Str) && (digits == "" || strings.IndexByte(".)", digits[0]) >= 0) {
			return false
		}
		if strings.Count(c.Str, "(") != strings.Count(c.Str, ")") || strings.Contains(c.Str, "()") {
			return false
		}
	}
	return true
}

// csvCells reads the cells of the record that begins at off, and returns where it ends. Open tells that a quote is not closed.
func csvCells(s string, off int, sep byte) (cells []*Value, end int, open bool) {
	i := off
	for {
		for i < len(s) && s[i] == ' ' {
			i++
		}
		if i < len(s) && s[i] == '"' {
			var sb strings.Builder
			start, j := i+1, i+1
			for j < len(s) && j < start+10_000 {
				if s[j] == '"' {
					if j+1 < len(s) && s[j+1] == '"' {
						sb.WriteByte('"')
						j += 2
						continue
					}
					break
				}
				sb.WriteByte(s[j])
				j++
			}
			open = j >= len(s) || s[j] != '"'
			cells = append(cells, &Value{Kind: KindString, Str: strings.TrimSpace(sb.String()), Off: start, End: j})
			i = min(j+1, len(s))
			for i < len(s) && s[i] != sep && s[i] != '\n' {
				if s[i] != ' ' && s[i] != '\r' {
					return nil, i, false
				}
				i++
			}
		} else {
			j := i
			for j < len(s) && s[j] != sep && s[j] != '\n' {
				j++
			}
			cells = append(cells, &Value{Kind: KindString, Str: strings.Trim(s[i:j], " \r\t\ufeff"), Off: i, End: j})
			i = j
		}
		if i >= len(s) || s[i] == '\n' {
			return cells, i, open
		}
		i++
	}
}

// aligned reads a table whose columns stand under each other, at least two spaces apart, that begins at line i with its
// heads.
func aligned(src *Source, i int) (*Tree, int) {
	head := &src.Lines[i]
	if i+2 >= len(src.Lines) || !strings.Contains(head.Text, "  ") || head.Fence {
		return nil, i
	}
	cols := gaps(head.Text)
	if first, _, _ := strings.Cut(head.Text, " "); len(first) < 8 && strings.ContainsAny(first, "0123456789") {
		return nil, i
	}
	if len(cols) < 3 || !plainHeads(alignedCells(src, head, cols)) {
		return nil, i
	}
	t := newTable(head.Off)
	t.row(alignedCells(src, head, cols), head.Off, head.End)
	j := i + 1
	for ; j < len(src.Lines); j++ {
		l := &src.Lines[j]
		if strings.Trim(l.Text, "-=+ ") == "" && l.Text != "" {
			continue
		}
		if l.Text == "" || l.Fence || l.Indent != head.Indent || !strings.Contains(l.Text, " ") {
			break
		}
		cells := alignedCells(src, l, cols)
		if cells == nil {
			break
		}
		t.row(cells, l.Off, l.End)
	}
	if len(t.list.Items) < 2 {
		return nil, i
	}
	return &Tree{Root: t.list, AnyKeys: true}, j
}

// gaps returns the columns, in runes, at which words begin that have two spaces before them.
func gaps(s string) []int {
	cols := []int{0}
	n, spaces := 0, 0
	for _, r := range s {
		if r == ' ' {
			spaces++
		} else {
			if spaces >= 2 {
				cols = append(cols, n)
			}
			spaces = 0
		}
		n += cellWidth(r)
	}
	return cols
}

// cellWidth is how many columns a character takes in print.
func cellWidth(r rune) int {
	if r >= 0x1100 && (unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r >= 0xFF00 && r < 0xFF60) {
		return 2
	}
	return 1
}

// alignedCells cuts a line at the columns; nil when a word stands across one of them.
func alignedCells(src *Source, l *Line, cols []int) []*Value {
	cells := make([]*Value, 0, len(cols))
	n, from, c := 0, l.Off, 1
	for k := l.Off; k < l.End && c < len(cols); {
		r, size := utf8.DecodeRuneInString(src.Text[k:])
		if n >= cols[c] {
			if k > l.Off && src.Text[k-1] != ' ' {
				return nil
			}
			cells = append(cells, cellOf(src.Text, from, k))
			from = k
			c++
		}
		n += cellWidth(r)
		k += size
	}
	cells = append(cells, cellOf(src.Text, from, l.End))
	for len(cells) < len(cols) {
		cells = append(cells, &Value{Kind: KindString, Off: l.End, End: l.End})
	}
	return cells
}
