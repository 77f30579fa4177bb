package form

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table builds a list of rows. Each row is an object with the heads of the columns as keys.
type table struct {
	list  *Value
	heads []string
	// first is the first row, until it is known whether it holds heads. headless is set if it does not.
	first    []*Value
	firstEnd int
	headless bool
}

func newTable(off int) *table { return &table{list: &Value{Kind: KindList, Off: off}} }

// row adds a row. The first row holds the heads, unless it begins with a label of the same kind as the
// others.
func (t *table) row(cells []*Value, off, end int) {
	if t.first == nil {
		t.first, t.firstEnd, t.list.End = cells, end, end
		return
	}
	if t.heads == nil {
		t.headless = sameLabel(t.first[0].Str, cells[0].Str)
		seen := map[string]int{}
		t.heads = make([]string, len(t.first))
		for i, c := range t.first {
			h := c.Str
			if t.headless {
				h = ""
			}
			if seen[h]++; seen[h] > 1 || h == "" {
				h += marks(seen[h] - 1)
			}
			t.heads[i] = h
		}
		if t.headless {
			t.add(t.first, t.list.Off, t.firstEnd)
		}
	}
	t.add(cells, off, end)
}

func (t *table) add(cells []*Value, off, end int) {
	r := &Value{Kind: KindObject, Off: off, End: end}
	for i, c := range cells {
		f := Field{Off: c.Off, Val: c}
		if i < len(t.heads) {
			f.Key = t.heads[i]
		} else if c.Str == "" {
			continue
		} else {
			f.Key = "+" + marks(i-len(t.heads))
		}
		if key, rest, ok := yamlKey(c.Str); t.headless && ok && i > 0 && len(key) < 40 {
			f.Key = key
			f.Val = &Value{Kind: KindString, Str: rest, Off: c.End - len(rest), End: c.End}
		}
		r.Fields = append(r.Fields, f)
	}
	t.list.Items = append(t.list.Items, r)
	t.list.End = end
}

// goOn appends the cells of a line to the cells of the row above, which continue on this line.
func (t *table) goOn(cells []*Value) {
	fields := t.list.Items[len(t.list.Items)-1].Fields
	for i, c := range cells[:min(len(cells), len(fields))] {
		if v := fields[i].Val; c.Str != "" {
			v.Str, v.End = strings.TrimSpace(v.Str+" "+c.Str), c.End
		}
	}
}

// marks returns the suffix that distinguishes the n-th column of the same name.
func marks(n int) string {
	if n > 8 {
		return "'" + strconv.Itoa(n)
	}
	return strings.Repeat("'", n)
}

// tree returns the table as a tree.
func (t *table) tree(cut bool) *Tree {
	return &Tree{Root: t.list, AnyKeys: true, Texts: true, CutOff: cut, Headless: t.headless}
}

// sameLabel reports whether two cells are different labels of one kind: T1 and T2, A and B.
func sameLabel(a, b string) bool {
	kind, whole := labelKind(a)
	other, whole2 := labelKind(b)
	return kind != "" && kind == other && whole && whole2 && a != b
}

// labelKind returns the label at the start of a text, with 0 for each number in it, and whether it is the
// whole text.
func labelKind(s string) (kind string, whole bool) {
	s = strings.TrimLeft(s, "([*# ")
	var sb strings.Builder
	end, letters, number := len(s), 0, false
	for i, r := range s {
		switch {
		case r >= '0' && r <= '9':
			if !strings.HasSuffix(sb.String(), "0") {
				sb.WriteByte('0')
			}
			number = true
			continue
		case unicode.IsLetter(r):
			if letters++; number {
				r = 'a'
			}
		case r != '-' && r != '_' && r != '.':
			end = i
		}
		if end == i || sb.Len() > 12 {
			end = i
			break
		}
		sb.WriteRune(r)
	}
	kind = strings.TrimRight(sb.String(), ".-")
	if !number {
		if letters != 1 || kind == "" || !unicode.IsUpper([]rune(kind)[0]) {
			return "", false
		}
		kind = "A"
	}
	return kind, strings.Trim(s[end:], ").:] *") == ""
}

// Tables returns the tables of Markdown and org-mode, of aligned columns, and of CSV, also with ; or tabs. A
// table is a list of rows, each an object of heads and cells. CutOff is set if the last row is incomplete.
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

// bars are the signs between the cells of a table. All but the first are those of tables drawn as boxes.
var bars = [...]string{"|", "│", "┃", "║"}

// barOf returns the sign between the cells of a line, or "". outer is set if the line begins with it.
func barOf(s string) (bar string, outer bool) {
	for _, b := range bars {
		if strings.HasPrefix(s, b) {
			return b, true
		}
	}
	if strings.Contains(s, "|") {
		return "|", false
	}
	return "", false
}

// pipeTable reads a table with | between its cells that begins at line i.
func pipeTable(src *Source, i int) (*Tree, int) {
	head := &src.Lines[i]
	bar, outer := barOf(head.Text)
	if bar == "" || isTableRule(head.Text) || i+1 >= len(src.Lines) {
		return nil, i
	}
	ruled := isTableRule(src.Lines[i+1].Text)
	if !ruled && !outer || bar != "|" && ContainsArrow(head.Text) {
		return nil, i
	}
	t := newTable(head.Off)
	sep := bar
	if strings.HasPrefix(head.Text, "||") { // a head row of Jira
		sep = "||"
	}
	t.row(pipeCells(src, head, sep), head.Off, head.End)
	if len(t.first) < 2 {
		return nil, i
	}
	j, ruledRows := i+1, 0 // rows below a rule
	for ; j < len(src.Lines); j++ {
		l := &src.Lines[j]
		if !isTableRule(l.Text) && (!strings.Contains(l.Text, bar) || l.Fence || outer && !strings.HasPrefix(l.Text, bar)) {
			break
		}
		ruledRows += b2i(isTableRule(src.Lines[j-1].Text) && !isTableRule(l.Text))
	}
	var last *Line
	for k := i + 1; k < j; k++ {
		l := &src.Lines[k]
		if isTableRule(l.Text) {
			continue
		}
		cells := pipeCells(src, l, bar)
		if ruledRows > 1 && last == &src.Lines[k-1] && cells[0].Str == "" {
			t.goOn(cells)
		} else {
			t.row(cells, l.Off, l.End)
		}
		last = l
	}
	if last == nil || len(t.list.Items) == 0 || !ruled && len(t.list.Items) < 2 {
		return nil, j
	}
	tree := t.tree(false)
	n := len(t.list.Items)
	if row := t.list.Items[n-1]; strings.HasSuffix(head.Text, bar) && !strings.HasSuffix(last.Text, bar) || n > 1 && len(row.Fields) < len(t.list.Items[n-2].Fields) {
		tree.CutOff = strings.TrimSpace(src.Text[last.End:]) == "" || n > 1
		if n > 1 && tree.CutOff && len(row.Fields) == 1 {
			t.list.Items = t.list.Items[:n-1] // the text ends in the first cell of this row
		}
	}
	return tree, j
}

// isTableRule reports whether a line is a rule between the rows of a table.
func isTableRule(s string) bool {
	if len(s) < 3 || strings.IndexByte("|-:+=", s[0]) < 0 && s[0] < utf8.RuneSelf {
		return false
	}
	dashes, bars := false, false
	for _, r := range s {
		switch {
		case r == '-' || r == '=' || r == '─' || r == '━' || r == '═':
			dashes = true
		case r == '|' || r == '+' || strings.ContainsRune("│┃║┌┬┐├┼┤└┴┘┏┳┓┣╋┫┗┻┛╔╦╗╠╬╣╚╩╝╒╤╕╞╪╡╘╧╛╓╥╖╟╫╢╙╨╜┠┨┯┷┿╂", r):
			bars = true
		case r != ':' && r != ' ' && r != '\t':
			return false
		}
	}
	return dashes && bars
}

// isPipeRule reports whether a line is the rule below the head of a table with | between its cells.
func isPipeRule(head, s string) bool {
	return (strings.Contains(s, "--") || strings.HasPrefix(s, "|-|-")) && strings.Contains(s, "|") && isTableRule(s) && (s[0] == '|' || strings.IndexByte(s, '+') < 0 && strings.Count(head, "|") == strings.Count(s, "|"))
}

func pipeCells(src *Source, l *Line, bar string) []*Value {
	start, end := l.Off, l.End
	if strings.HasPrefix(l.Text, bar) {
		start += len(bar)
	}
	if end > start && strings.HasSuffix(src.Text[start:end], bar) && (end < 2 || src.Text[end-2] != '\\') {
		end -= len(bar)
	}
	var out []*Value
	from := start
	code := false
	for k := start; k < end; k++ {
		switch {
		case src.Text[k] == '`':
			code = !code && strings.IndexByte(src.Text[k+1:end], '`') >= 0
		case src.Text[k] == '\\':
			k++
		case !code && strings.HasPrefix(src.Text[k:end], bar):
			out = append(out, cellOf(src.Text, from, k))
			from = k + len(bar)
			k = from - 1
		}
	}
	return append(out, cellOf(src.Text, from, end))
}

// cellOf makes a value of a cell, without the emphasis around it.
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

// separated reads the CSV that begins at line i: with commas, semicolons or tabs, and quotes.
func separated(src *Source, i int) (*Tree, int) {
	head := &src.Lines[i]
	if head.Text == "" || head.Fence || i+1 >= len(src.Lines) {
		return nil, i
	}
	for _, sep := range [...]byte{'\t', ';', '|', ','} {
		if strings.IndexByte(head.Text, sep) < 0 || sep == '|' && head.Text[0] == sep {
			continue
		}
		heads, firstEnd, _ := csvCells(src.Text, head.Off, sep)
		label, whole := "", false
		if len(heads) > 1 {
			label, whole = labelKind(heads[0].Str)
		}
		if len(heads) < 2 || sep != '\t' && !plainHeads(heads) && !whole {
			continue
		}
		t := newTable(head.Off)
		t.row(heads, head.Off, firstEnd)
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
			free := t.headless || len(cells) > 0 && sameLabel(heads[0].Str, cells[0].Str)
			if len(cells) < 2 || len(cells) > len(heads)+1 && sep != ',' && !free {
				break
			}
			if kind, _ := labelKind(cells[0].Str); label != "" && kind == label && !whole {
				break // lines that begin with labels, not rows
			}
			if len(cells) > len(heads) && !allEmpty(cells[len(heads):]) && len(t.list.Items) == 0 && !free {
				break
			}
			last := src.LineAt(max(start, end-1))
			cut = (open || len(cells) < len(heads)) && strings.TrimLeft(src.Text[end:], " \t\r\n") == "" && sep != '\t'
			if len(cells) < len(heads)-1 && !cut && sep != '\t' && !t.headless {
				break
			}
			cells = overflown(cells, len(heads))
			t.row(cells, l.Off, end)
			j = last + 1
		}
		if n := len(t.list.Items); n >= 2 || n == 1 && len(heads) >= 3 {
			return t.tree(cut && !t.headless), j
		}
	}
	return nil, i
}

// overflown appends cells beyond the heads to the last column if they are labels like that of the row. The
// list of labels was then written without quotes.
func overflown(cells []*Value, heads int) []*Value {
	kind, whole := labelKind(cells[0].Str)
	if len(cells) <= heads || heads < 2 || !whole {
		return cells
	}
	last := cells[heads-1]
	var text strings.Builder
	text.WriteString(last.Str)
	list := &Value{Kind: KindString, Off: last.Off, End: cells[len(cells)-1].End}
	for i, c := range cells[heads-1:] {
		if k, ok := labelKind(c.Str); c.Str != "" && (!ok || k != kind) {
			return cells
		} else if i > 0 && c.Str != "" {
			text.WriteString(", " + c.Str)
		}
	}
	list.Str = text.String()
	return append(cells[:heads-1:heads-1], list)
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
		if c.Str == "" && i < len(cells)-1 || len(c.Str) > 60 || strings.Count(c.Str, " ") > 4 || strings.ContainsAny(c.Str, "{}[]<>!?=|█。，;\"") || strings.HasSuffix(c.Str, ".") && strings.Contains(c.Str, " ") || strings.HasSuffix(c.Str, ":") {
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

// csvCells reads the cells of the record that begins at off, and returns its end. open is set if a quote is
// not closed.
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

// aligned reads the table of aligned columns, at least two spaces apart, whose heads are line i.
func aligned(src *Source, i int) (*Tree, int) {
	head := &src.Lines[i]
	if i+2 >= len(src.Lines) || !strings.Contains(head.Text, "  ") || head.Fence {
		return nil, i
	}
	cols := gaps(head.Text)
	if label, _ := labelKind(head.Text); label != "" && len(head.Text) > 2 && strings.IndexByte(".):", head.Text[1]) >= 0 {
		return nil, i // an entry of a list
	}
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
	if len(t.list.Items) < 2 || t.headless {
		return nil, i
	}
	return t.tree(false), j
}

// gaps returns the columns, in runes, of the words with two spaces before them.
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
		n += width(r)
	}
	return cols
}

// alignedCells cuts a line at the columns. It returns nil if a word crosses one of them.
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
		n += width(r)
		k += size
	}
	cells = append(cells, cellOf(src.Text, from, l.End))
	for len(cells) < len(cols) {
		cells = append(cells, &Value{Kind: KindString, Off: l.End, End: l.End})
	}
	return cells
}
