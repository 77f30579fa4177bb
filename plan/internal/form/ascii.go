package form

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// The directions in which lines may leave a cell.
const (
	up = 1 << iota
	down
	left
	right
	upLeft
	upRight
	downLeft
	downRight
)

// maxRows and maxCols bound a drawing. maxSteps bounds the total number of steps along its lines.
const (
	maxRows  = 600
	maxCols  = 600
	maxSteps = 4_000_000
)

// opens holds the directions in which the line continues at a sign. Arrow heads are not among the signs.
var opens = func() map[rune]int {
	m := map[rune]int{'\\': upLeft | downRight | up | down | left | right, '/': upRight | downLeft | up | down | left | right}
	for signs, dirs := range map[string]int{
		"-─━═=~╌┄┈–—_": left | right, "|│┃║¦╎┆┊:": up | down | left | right, "+┼╋╬┿╂*": up | down | left | right,
		"┌╔╭┏╒╓": right | down, "┐╗╮┓╕╖": left | down, "└╚╰┗╘╙": right | up, "┘╝╯┛╛╜": left | up,
		"├╠┣╞╟┝┠": up | down | right, "┤╣┫╡╢┥┨": up | down | left, "┬╦┳╤╥┯┰": left | right | down, "┴╩┻╧╨┷┸": left | right | up,
	} {
		for _, r := range signs {
			m[r] = dirs
		}
	}
	return m
}()

// arrowHeads holds the direction in which the head of an arrow points.
var arrowHeads = func() map[rune]int {
	m := map[rune]int{}
	for signs, dir := range map[string]int{">→►▶▸➤➔➜⇒⟶➡": right, "<←◄◀◂⇐⬅": left, "↓▼▽⬇⇓⇩▾": down, "↑▲△⬆⇑▴^": up} {
		for _, r := range signs {
			m[r] = dir
		}
	}
	return m
}()

// moves are the steps in each direction, with the opposite direction.
var moves = [...]struct{ dir, back, dr, dc int }{
	{up, down, -1, 0}, {down, up, 1, 0}, {left, right, 0, -1}, {right, left, 0, 1},
	{upLeft, downRight, -1, -1}, {upRight, downLeft, -1, 1}, {downLeft, upRight, 1, -1}, {downRight, upLeft, 1, 1},
}

// artNode is a node of a drawing: a box, a text in brackets or a bare text.
type artNode struct {
	r1, c1, r2, c2 int
	text           string
	off            int
	bare           bool
}

// art is a drawing as a grid of signs. owner is 0 for free cells, 1 + the index of the node that a cell
// belongs to, or -1 for notes.
type art struct {
	grid  [][]rune
	offs  [][]int
	owner [][]int
	nodes []artNode
	steps int
	// seen marks the cells visited by the current search: index 0 without a head on the way, 1 with one.
	seen [][2][]int
	gen  int
}

// Drawings returns the drawings of boxes, words and lines in a text.
func Drawings(src *Source) (out []*Diagram) {
	for i := 0; i < len(src.Lines); {
		end, drawn := artEnd(src, i)
		if drawn {
			if g := readArt(src, i, end); g != nil {
				out = append(out, g)
			}
		}
		i = end
		if src.Ended() || len(out) > 32 {
			return out
		}
	}
	return out
}

// pureLine reports whether a line holds only signs of lines, and at least one that does not occur in rules.
func pureLine(s string) bool {
	special := false
	for _, r := range s {
		switch {
		case r == ' ' || r == '\t' || r == '\ufe0f':
		case r == 'v' || r == 'V':
			special = true
		case arrowHeads[r] != 0:
			special = true
		case opens[r] != 0 && r != '*' && r != ':' && r != '_':
			special = special || !strings.ContainsRune("-=~–—─━═", r)
		default:
			return false
		}
	}
	return special
}

// artEnd returns the line behind the lines that belong together from line i on, and whether they may form a
// drawing.
func artEnd(src *Source, i int) (end int, drawn bool) {
	if src.Lines[i].Text == "" || src.Lines[i].Fence || strings.HasPrefix(src.Lines[i].Text, "#") && !src.Lines[i].InCode {
		return i + 1, false
	}
	pure, branches := 0, 0
	end = i
	for k := i; k < len(src.Lines) && k < i+maxRows; k++ {
		l := &src.Lines[k]
		if k > 0 && isPipeRule(src.Lines[k-1].Text, l.Text) {
			return pipeRowsEnd(src, k), false
		}
		if l.Fence || l.InCode != src.Lines[i].InCode || l.Text == "" {
			break
		}
		branches += b2i(treeLine(l.Text))
		if pureLine(l.Text) {
			pure += 2
		} else if hasJunction(l.Text) {
			pure++
		}
		if len(l.Text) > 4*maxCols {
			return k + 1, false
		}
		end = k + 1
	}
	return end, pure >= 2 && branches < 2
}

// pipeRowsEnd returns the line behind the rows of the table whose rule is line k. The rows have as many cells
// as the rule.
func pipeRowsEnd(src *Source, k int) int {
	bars := strings.Count(src.Lines[k].Text, "|")
	for k++; k < len(src.Lines); k++ {
		if s := src.Lines[k].Text; s == "" || s[0] != '|' || s[len(s)-1] != '|' || strings.Count(s, "|") != bars {
			break
		}
	}
	return k
}

// treeLine reports whether a line belongs to a tree as listings of files show it: "├── name".
func treeLine(s string) bool {
	for _, branch := range [...]string{"├", "└", "|--", "`--", "+--", "\\--"} {
		i := strings.Index(s, branch)
		if i < 0 || strings.Trim(s[:i], "│| \t") != "" {
			continue
		}
		rest := strings.TrimLeft(s[i+len(branch):], "─-")
		if t := strings.TrimLeft(rest, " "); len(t) < len(rest) && t != "" && hasWord(t) && !ContainsArrow(t) {
			r, _ := utf8.DecodeRuneInString(t)
			return opens[r] == 0 && arrowHeads[r] == 0 || r == '_' || r == '.'
		}
	}
	return false
}

// hasJunction reports whether two lines meet in a line of text.
func hasJunction(s string) bool {
	for _, j := range [...]string{" -/", " -\\", "+--", "--+", "--|", "|--", "--\\", "--/", "\\--", "/--", "─┬", "─┴", "├─", "─┤", "└─", "─┘", "┌─", "─┐"} {
		if strings.Contains(s, j) {
			return true
		}
	}
	return false
}

// Columns returns the number of columns that a text takes in print.
func Columns(s string) (n int) {
	for _, r := range s {
		n += width(r)
	}
	return n
}

// width returns the number of columns that a rune takes.
func width(r rune) int {
	switch {
	case unicode.IsMark(r) || r == '\u200d' || r == '\ufe0f':
		return 0
	case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000):
		return 2
	}
	return 1
}

// filler fills the second column of a wide sign.
const filler = '\uffff'

func readArt(src *Source, first, end int) *Diagram {
	a := &art{}
	for k := first; k < end; k++ {
		var row []rune
		var offs []int
		at := src.Lines[k].Start
		for n, r := range src.Text[at:src.Lines[k].End] {
			w := width(r)
			if r == '\t' {
				r, w = ' ', 4-len(row)%4
			}
			for x := range w {
				if x > 0 && r != ' ' {
					r = filler
				}
				row, offs = append(row, r), append(offs, at+n)
			}
			if len(row) >= maxCols {
				break
			}
		}
		a.grid, a.offs = append(a.grid, row), append(a.offs, offs)
		a.owner = append(a.owner, make([]int, len(row)))
		a.seen = append(a.seen, [2][]int{make([]int, len(row)), make([]int, len(row))})
	}
	if !a.boxes() {
		return nil
	}
	a.brackets(len(a.nodes) >= 2)
	formal := len(a.nodes)
	a.words(formal >= 2)
	g := newDiagram(src, "art", first)
	g.Last, g.End, g.Flow = end-1, src.Lines[end-1].End, true
	g.Closed = src.closedFence(end)
	return a.diagram(g)
}

func (a *art) at(r, c int) rune {
	if r < 0 || r >= len(a.grid) || c < 0 || c >= len(a.grid[r]) {
		return ' '
	}
	return a.grid[r][c]
}

func (a *art) own(r, c int) int {
	if r < 0 || r >= len(a.grid) || c < 0 || c >= len(a.grid[r]) {
		return 0
	}
	return a.owner[r][c]
}

func isVertical(r rune) bool { return strings.ContainsRune("|│┃║├┤┣┫╠╣", r) }

// boxes finds frames around texts. It returns false for a table, whose frames are connected.
func (a *art) boxes() bool {
	for r := range a.grid {
		for c := 0; c < len(a.grid[r]); c++ {
			if !strings.ContainsRune("+┌╔╭┏.", a.grid[r][c]) || a.owner[r][c] != 0 {
				continue
			}
			for e := c + 1; e < len(a.grid[r]); e++ {
				x := a.grid[r][e]
				if opens[x]&(left|right) == 0 || x == '\\' || x == '/' || isVertical(x) {
					break
				}
				if !strings.ContainsRune("+┐╗╮┓.", x) || e < c+2 {
					continue
				}
				if ok, table := a.box(r, c, e); table {
					return false
				} else if ok {
					c = e
					break
				}
			}
		}
	}
	return true
}

// near returns the column, within two of c, of a vertical line in row r, or -1.
func (a *art) near(r, c int) int {
	for _, d := range [...]int{0, 1, -1, 2, -2} {
		if isVertical(a.at(r, c+d)) {
			return c + d
		}
	}
	return -1
}

// box reads the box whose upper edge runs from c to e in row r.
func (a *art) box(r, c, e int) (ok, table bool) {
	var lines []string
	off := -1
	bottom := r + 1
	for ; bottom < len(a.grid) && bottom < r+20; bottom++ {
		if isVertical(a.at(bottom, c)) {
			right := a.near(bottom, e)
			if right < c+1 {
				return false, false
			}
			text := strings.TrimSpace(a.text(bottom, c+1, right))
			if text != "" {
				if off < 0 {
					off = a.first(bottom, c+1)
				}
				lines = append(lines, text)
			}
			continue
		}
		break
	}
	if len(lines) == 0 || bottom >= len(a.grid) || !strings.ContainsRune("+└╚╰┗'`", a.at(bottom, c)) {
		return false, false
	}
	if bottom+1 < len(a.grid) && isVertical(a.at(bottom+1, c)) && isVertical(a.at(bottom+1, e)) && a.at(bottom, e) == '+' && strings.TrimSpace(a.text(bottom+1, c+1, e)) != "" {
		return false, true
	}
	text := strings.Join(lines, " ")
	if !hasWord(text) {
		return false, false
	}
	a.add(artNode{r, c, bottom, e, text, off, false})
	return true, false
}

func hasWord(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// text returns the text in row r from column c up to e.
func (a *art) text(r, c, e int) string {
	var b strings.Builder
	for x := c; x < e && x < len(a.grid[r]); x++ {
		if a.grid[r][x] != filler {
			b.WriteRune(a.grid[r][x])
		}
	}
	return b.String()
}

// first returns the offset of the first sign in row r at or after column c.
func (a *art) first(r, c int) int {
	for c < len(a.grid[r])-1 && a.grid[r][c] == ' ' {
		c++
	}
	return a.offs[r][min(c, len(a.offs[r])-1)]
}

func (a *art) add(n artNode) {
	a.nodes = append(a.nodes, n)
	for r := n.r1; r <= n.r2; r++ {
		for c := max(n.c1, 0); c <= n.c2 && c < len(a.owner[r]); c++ {
			a.owner[r][c] = len(a.nodes)
		}
	}
}

// brackets finds texts in brackets on one line. If the drawing has boxes, texts in round brackets are notes,
// except on a line that leads to the right.
func (a *art) brackets(boxes bool) {
	for r, row := range a.grid {
		for c := 0; c < len(row); c++ {
			if a.owner[r][c] != 0 || row[c] != '[' && row[c] != '(' && row[c] != '【' && row[c] != '（' {
				continue
			}
			depth, e := 0, c
			for ; e < len(row); e++ {
				if strings.ContainsRune("[(【（", row[e]) {
					depth++
				} else if strings.ContainsRune("])】）", row[e]) {
					if depth--; depth == 0 {
						break
					}
				}
			}
			if e == len(row) {
				break
			}
			inner := strings.Trim(a.text(r, c, e+1), "[]()【】（） ")
			if boxes && hasWord(inner) && (row[c] == '(' || row[c] == '（') && a.at(r, e+1) == ' ' {
				for x := c; x <= e; x++ {
					a.owner[r][x] = -1
				}
			} else if hasWord(inner) {
				off := a.offs[r][c] + strings.Index(a.text(r, c, e+1), inner)
				e += width(row[e]) - 1
				if end := a.titleEnd(r, e+1); end > e+1 && utf8.RuneCountInString(inner) < 6 { // [1] Dig
					inner += ". " + strings.TrimSpace(a.text(r, e+1, end+1))
					e = end
				}
				from := c
				if row[c] == '(' || row[c] == '（' { // A (dig)
					if from = a.markStart(r, c); from < c {
						inner, off = strings.TrimSpace(a.text(r, from, e+1)), a.offs[r][from]
					}
				}
				a.add(artNode{r, from, r, e, inner, off, false})
			}
			c = e
		}
	}
}

// markStart returns the column at which the words before the bracket at column c begin, or c.
func (a *art) markStart(r, c int) int {
	if c < 2 || a.at(r, c-1) != ' ' || !a.letter(r, c-2) || a.owner[r][c-2] != 0 {
		return c
	}
	from := c - 2
	for from > 0 && a.owner[r][from-1] == 0 && (a.letter(r, from-1) || a.at(r, from-1) == ' ' && from > 1 && a.letter(r, from-2)) {
		from--
	}
	return from
}

// titleEnd returns the last column of the words behind a mark that ends before column c, or c.
func (a *art) titleEnd(r, c int) int {
	row := a.grid[r]
	if c+1 >= len(row) || row[c] != ' ' || !a.letter(r, c+1) || strings.ContainsRune("[(【（", row[c+1]) {
		return c
	}
	e := c + 1
	for e+1 < len(row) && (a.letter(r, e+1) || row[e+1] == ' ' && e+2 < len(row) && a.letter(r, e+2)) {
		e++
	}
	return e
}

// words finds bare texts: words separated by single spaces. If the drawing has boxes, they are only notes.
func (a *art) words(notes bool) {
	for r, row := range a.grid {
		for c := 0; c < len(row); {
			if a.owner[r][c] != 0 || !a.letter(r, c) {
				c++
				continue
			}
			e := c
			for e < len(row) && a.owner[r][e] == 0 && (a.letter(r, e) || row[e] == ' ' && e+1 < len(row) && a.owner[r][e+1] == 0 && a.letter(r, e+1)) {
				e++
			}
			text := strings.TrimSpace(a.text(r, c, e))
			if hasWord(text) && !notes {
				a.add(artNode{r, c, r, e - 1, text, a.offs[r][c], true})
			} else {
				for x := c; x < e; x++ {
					a.owner[r][x] = -1
				}
			}
			c = e
		}
	}
}
