package meaning

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// chartRow is a line of a chart: its columns, and the id in one of them.
type chartRow struct {
	line   int
	fields []form.Piece
	id     form.Piece
	title  form.Piece
	from   int // the first column of the bar and the one behind its last; -1 if there is none
	to     int
	// begins and ends are the time that the row states in words: "Week 2", "2 May – 9 May". timed is set if
	// it states one.
	begins, ends int
	timed        bool
	when         form.Piece
}

// time reads the time in the first field of a row. If the row has only one field, the time is cut off its
// beginning or end.
func (row *chartRow) time() {
	if len(row.fields) == 0 {
		return
	}
	f := row.fields[0]
	if word, rest, ok := strings.Cut(f.Text, " "); ok && len(row.fields) > 1 && lexicon.Is(lexicon.Units, word) {
		first, last, through := strings.Cut(strings.NewReplacer("–", "-", "—", "-").Replace(rest), "-")
		from, ok := lexicon.Digits(strings.TrimSpace(first))
		to, ok2 := lexicon.Digits(strings.TrimSpace(last))
		if ok && (!through || ok2) {
			row.begins, row.ends, row.timed, row.when = from, max(from, to)+1, true, f
		}
		return
	}
	if len(row.fields) > 1 {
		return
	}
	if head, rest, ok := strings.Cut(f.Text, ": "); ok {
		if from, to, ok := form.PlannedDays(head); ok {
			row.begins, row.ends, row.timed, row.when = from, to, true, form.Piece{Text: head, Off: f.Off}
			row.fields = []form.Piece{{Text: rest, Off: f.Off + len(head) + 2}}
			return
		}
	}
	if strings.ContainsAny(f.Text[:1], "-*+#>0123456789") {
		return
	}
	for at := strings.IndexAny(f.Text, " :"); at > 0; {
		if from, to, ok := form.PlannedDays(strings.TrimLeft(f.Text[at:], " :")); ok {
			when := strings.TrimLeft(f.Text[at:], " :")
			row.begins, row.ends, row.timed = from, to, true
			row.fields = []form.Piece{{Text: strings.TrimRight(f.Text[:at], " :,"), Off: f.Off}}
			row.when = form.Piece{Text: strings.Trim(when, "()[]"), Off: f.Off + len(f.Text) - len(when)}
			return
		}
		k := strings.IndexAny(f.Text[at+1:], " :")
		if k < 0 {
			return
		}
		at += 1 + k
	}
}

// barSigns are the characters of bars.
const barSigns = "█▓▒░▉▊▋▌▍▎▏■□▬▭▰▱#=*xX◼◻●○━──-_.·:~<>|"

// readChart reads charts made of lines: a time or a bar, an id, a title, and perhaps needs.
func readChart(src *form.Source) []*Reading {
	var out []*Reading
	for i := range src.Lines {
		if t := src.Lines[i].Text; strings.HasPrefix(t, "|") && strings.HasSuffix(t, "|") || strings.ContainsRune(t, '\t') {
			return nil // a table belongs to other readers
		}
	}
	for i := 0; i < len(src.Lines); {
		rows, next := chartRows(src, i)
		if len(rows) >= 3 {
			if r := chartReading(src, rows); r != nil {
				out = append(out, r)
			}
		}
		i = max(next, i+1)
	}
	return out
}

// maxChartRow bounds a row of a chart in bytes.
const maxChartRow = 400

// chartRows returns the rows from line i on, and the line behind them.
func chartRows(src *form.Source, i int) (rows []chartRow, next int) {
	for ; i < len(src.Lines); i++ {
		l := &src.Lines[i]
		if l.Text == "" && len(rows) > 0 && i+1 < len(src.Lines) && len(src.Lines[i+1].Text) <= maxChartRow && len(chartFields(&src.Lines[i+1])) > 1 && !src.Lines[i+1].Fence {
			continue
		}
		if l.Text == "" || l.Fence || len(l.Text) > maxChartRow || l.InCode && !codeLang(l.Lang) {
			return rows, i + 1
		}
		row := chartRow{line: i, fields: chartFields(l), from: -1, to: -1}
		row.time()
		if len(row.fields) < 2 && !row.timed {
			if len(rows) > 0 {
				return rows, i
			}
			continue
		}
		for _, f := range row.fields {
			if isBar(f.Text) {
				from, to := barSpan(f.Text)
				at := form.Columns(src.Text[l.Start:f.Off])
				if row.from < 0 {
					row.from = at + from
				}
				row.to = at + to
			}
		}
		rows = append(rows, row)
	}
	return rows, i
}

// chartFields splits a line at two spaces, bars and rows of dots, and around drawn bars.
func chartFields(l *form.Line) (out []form.Piece) {
	s := l.Text
	start := 0
	cut := func(i, next int) {
		t := strings.TrimSpace(s[start:i])
		if t != "" {
			out = append(out, form.Piece{Text: t, Off: l.Off + start + strings.Index(s[start:i], t)})
		}
		start = next
	}
	for i := 0; i < len(s); i++ {
		if closing := strings.IndexByte("[|", s[i]); closing >= 0 { // a bar in brackets
			if k := strings.IndexByte(s[i+1:], "]|"[closing]); k > 0 && isBar(s[i+1:i+1+k]) {
				cut(i, i+1)
				cut(i+1+k, i+k+2)
				i += k + 1
				continue
			}
		}
		if n := drawnLength(s[i:]); n > 0 && (i == 0 || s[i-1] == ' ') { // a bar between single spaces
			cut(i, i)
			cut(i+n, i+n)
			i += n - 1
			continue
		}
		if s[i] == '\t' || s[i] == '|' || strings.HasPrefix(s[i:], "  ") || strings.HasPrefix(s[i:], ".....") {
			j := i + 1
			for j < len(s) && (s[j] == ' ' || s[j] == '\t' || s[j] == '.' && s[i] != '|') {
				j++
			}
			cut(i, j)
			i = j - 1
		}
	}
	cut(len(s), len(s))
	return out
}

// drawnLength returns the length of a drawn bar of at least two blocks that a text begins with, followed by a
// space, or 0.
func drawnLength(s string) int {
	rest := strings.TrimLeft(s, "█▓▒░▉■▬▰▱□")
	if n := len(s) - len(rest); n > len("█") && strings.HasPrefix(rest, " ") && strings.ContainsAny(s[:n], "█▓▉■▬▰") {
		return n
	}
	return 0
}

// isBar reports whether a text is drawn: at least two bar characters and nothing else.
func isBar(s string) bool {
	n := 0
	for _, r := range s {
		if r == ' ' {
			continue
		}
		if !strings.ContainsRune(barSigns, r) {
			return false
		}
		n++
	}
	return n > 1 && strings.ContainsAny(s, "█▓▒░▉■▬▰#=*xX◼●━─-")
}

// barSpan returns the first column of the bar in a drawn field and the column behind it. from is -1 if there
// is no bar.
func barSpan(s string) (from, to int) {
	from = -1
	col := 0
	for _, r := range s {
		if strings.ContainsRune("█▓▒▉▊▋▌■▬▰#=*xX◼●━", r) || r == '-' && !strings.ContainsAny(s, "█▓■▬▰#=*xX◼●━") {
			if from < 0 {
				from = col
			}
			to = col + 1
		}
		col++
	}
	return from, to
}

// chartMarks returns the possible id in each field of a row: a mark in brackets, a field of one word, or the
// short code that a field begins with. It is empty for fields without one.
func chartMarks(row *chartRow) (out []form.Piece) {
	for _, f := range row.fields {
		t := f.Text
		p := form.Piece{}
		if t[0] == '[' || t[0] == '(' {
			if k := strings.IndexAny(t, "])"); k > 1 && k < 24 {
				p = form.Piece{Text: t[1:k], Off: f.Off + 1}
			}
		} else if w, _, ok := strings.Cut(t, " "); !ok || isCode(w) {
			p = form.Piece{Text: strings.TrimRight(w, ":.)"), Off: f.Off}
		}
		if !isMark(p.Text) {
			p.Text = ""
		}
		out = append(out, p)
	}
	return out
}

// isMark reports whether a word may be an id: it consists of letters, digits and the signs of ids, and is no
// time.
func isMark(s string) bool {
	if s == "" || utf8.RuneCountInString(s) > 24 || strings.ContainsAny(s, ":/–~→ ,;") || isBar(s) || strings.ContainsRune(s, '+') {
		return false
	}
	for _, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("_-.#", r) {
			return false
		}
	}
	return true
}

// isCode reports whether a word is a short mark such as T1, G10 or A.
func isCode(s string) bool {
	s = strings.TrimRight(s, ":.)")
	return utf8.RuneCountInString(s) == 1 && !unicode.IsDigit([]rune(s)[0]) || strings.ContainsAny(s, "0123456789") && utf8.RuneCountInString(s) <= 6 && isMark(s) && strings.Trim(s, "0123456789.-") != ""
}

// chartReading reads a chart whose rows all have an id in the same column, or all have a bar. It returns nil
// for other rows.
func chartReading(src *form.Source, rows []chartRow) *Reading {
	withTimes(rows)
	column, drawn := chartColumn(rows), 0
	for _, row := range rows {
		drawn += b2i(row.from >= 0)
	}
	if drawn > 1 && drawn == len(rows)-1 && rows[0].from < 0 {
		rows = rows[1:] // drop the heading of the columns
	}
	if column < 0 && drawn < len(rows) {
		return nil
	}
	kept := rows[:0]
	r := &Reading{Form: "table", Start: src.Lines[rows[0].line].Off, End: src.Lines[rows[len(rows)-1].line].End, Open: true, Evidence: []string{"chart"}}
	var named []Named
	var tails [][]form.Piece
	for _, row := range rows {
		if column < 0 {
			title := slices.IndexFunc(row.fields, func(f form.Piece) bool { return !isBar(f.Text) })
			if title < 0 {
				return nil
			}
			row.id, row.title = form.Piece{Text: strconv.Itoa(len(kept) + 1), Off: row.fields[0].Off}, row.fields[title]
			tails = append(tails, row.fields[title+1:])
		} else {
			marks := chartMarks(&row)
			if column >= len(marks) || marks[column].Text == "" {
				l := src.Lines[row.line]
				if row.from < 0 && len(kept) > 0 {
					r.Notes = append(r.Notes, Note{Code: "SKIPPED_TEXT", Element: form.Clip(l.Text), Message: "this row of the chart was left out: " + form.Clip(l.Text), Hint: "give it an id", Off: l.Off})
				}
				continue
			}
			row.id = marks[column]
			row.title, tails = chartTitle(&row, column, tails)
		}
		kept = append(kept, row)
		title := row.title.Text
		if title == "" {
			title = row.id.Text
		}
		item := Item{ID: row.id.Text, Shown: column >= 0, Title: title, Parent: -1, Off: row.id.Off, End: src.Lines[row.line].End}
		if row.timed && row.from == row.begins {
			item.Attrs = []Attr{{Key: "time", Role: Duration, Value: row.when.Text, Off: row.when.Off}}
		}
		r.Items = append(r.Items, item)
		named = append(named, Named{ID: row.id.Text, Titles: []string{title}, Parent: -1})
	}
	if len(kept) < 3 {
		return nil
	}
	chartRelations(r, NewNames(named), kept, tails)
	switch {
	case len(r.Links) > 0:
		r.Stated, r.Weight = true, 72
		if column > 0 || drawn*2 > len(kept) {
			r.Weight = 88
		}
	case drawn >= len(kept):
		r.Weight = 75
		chartBars(r, kept)
	}
	if len(r.Links) == 0 && !r.Stated {
		return nil
	}
	return r
}

// withTimes replaces the drawn bars by the stated times if all rows state one, as in "Week 2 ████ Draft".
func withTimes(rows []chartRow) {
	for _, row := range rows {
		if !row.timed || len(row.fields) > 1 && row.from < 0 {
			return
		}
	}
	for i := range rows {
		row := &rows[i]
		row.from, row.to = row.begins, row.ends
		if len(row.fields) > 1 {
			row.fields = row.fields[1:]
		}
	}
}

// chartColumn returns the column that holds a different id in each row and that other rows refer to most, or
// -1.
func chartColumn(rows []chartRow) int {
	best, bestScore := -1, 0
	for c := range 5 {
		ids := map[string]bool{}
		twice := 0
		for k := range rows {
			if marks := chartMarks(&rows[k]); c < len(marks) && marks[c].Text != "" {
				if ids[marks[c].Text] {
					twice++
				}
				ids[marks[c].Text] = true
			}
		}
		if len(ids) < 3 || len(ids)*4 < len(rows)*3 || twice > len(rows)/8 {
			continue
		}
		score := 1
		for k := range rows {
			for n, f := range rows[k].fields {
				if n == c {
					continue
				}
				for _, w := range strings.FieldsFunc(f.Text, func(r rune) bool {
					return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '_' && r != '-'
				}) {
					if ids[w] && strings.Trim(w, "0123456789") != "" {
						score += 2
					}
				}
			}
		}
		if score == 1 && len(ids) < len(rows) {
			continue // titles that happen to have one word
		}
		if score > bestScore {
			best, bestScore = c, score
		}
	}
	return best
}

// chartTitle returns the title of a row, and appends the fields behind its id to tails.
func chartTitle(row *chartRow, column int, tails [][]form.Piece) (form.Piece, [][]form.Piece) {
	title := form.Piece{}
	var rest []form.Piece
	for k, f := range row.fields {
		if k < column || isBar(f.Text) {
			continue
		}
		if k == column {
			at := row.id.Off - f.Off + len(row.id.Text)
			f = form.Piece{Text: strings.TrimLeft(f.Text[at:], " ])：:.–—-"), Off: f.Off + at}
			f.Off += len(row.fields[k].Text[at:]) - len(f.Text)
			if f.Text == "" {
				continue
			}
		}
		if title.Text == "" || utf8.RuneCountInString(f.Text) > utf8.RuneCountInString(title.Text) && strings.ContainsAny(title.Text, "0123456789") && !strings.ContainsAny(f.Text, "([") {
			title = f
		}
		rest = append(rest, f)
	}
	return title, append(tails, rest)
}

// chartRelations adds the relations that the text behind the ids states.
func chartRelations(r *Reading, names *Names, rows []chartRow, tails [][]form.Piece) {
	needs := make([]map[int]int, len(rows))
	var beside []Relation
	for k := range rows {
		needs[k] = map[int]int{}
	}
	for k := range rows {
		for _, f := range tails[k] {
			rels, doubts := names.Relations(k, f.Text, f.Off)
			for _, rel := range rels {
				if rel.Kind == Beside {
					beside = append(beside, rel)
					continue
				}
				for _, s := range rel.Subjects {
					switch rel.Kind {
					case Needs, Uses:
						for _, x := range rel.Items {
							needs[s][x] = rel.Off
						}
						for _, x := range rel.Unknown {
							r.Links = append(r.Links, Link{From: x, To: r.Items[s].ID, Source: Prose, Off: rel.Off})
						}
					case Before:
						for _, x := range rel.Items {
							needs[x][s] = rel.Off
						}
					case None, Apart:
						r.Stated = true
					}
				}
			}
			for _, d := range doubts {
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: r.Items[k].ID, Message: d.message(), Hint: "say after which step " + r.Items[k].ID + " comes", Off: d.Off})
			}
		}
	}
	for _, rel := range beside {
		for _, s := range rel.Subjects {
			if len(needs[s]) > 0 {
				continue
			}
			for _, x := range rel.Items {
				for y := range needs[x] {
					needs[s][y] = rel.Off
				}
			}
		}
	}
	for k := range rows {
		before := make([]int, 0, len(needs[k]))
		for x := range needs[k] {
			before = append(before, x)
		}
		sort.Ints(before)
		for _, x := range before {
			r.Links = append(r.Links, Link{From: r.Items[x].ID, To: r.Items[k].ID, Source: Prose, Off: needs[k][x]})
		}
	}
}

// chartBars links a task to those whose bars end before its own begins, unless another bar lies between.
func chartBars(r *Reading, rows []chartRow) {
	rows = rows[:min(len(rows), 300)]
	for b := range rows {
		latest := -1
		for a := range rows {
			if rows[a].to <= rows[b].from {
				latest = max(latest, rows[a].from)
			}
		}
		for a := range rows {
			if rows[a].to <= rows[b].from && rows[a].to > latest {
				from, to := r.Items[a].ID, r.Items[b].ID
				r.Links = append(r.Links, Link{From: from, To: to, Source: ListedOrder, Off: r.Items[b].Off})
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: to, Off: r.Items[b].Off, Message: from + " was taken to come before " + to + ": the chart only shows that its bar ends before the other begins", Hint: "state what " + to + " waits for"})
			}
		}
	}
}
