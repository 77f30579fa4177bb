package form

import (
	"strings"
	"unicode/utf8"
)

// The signs that are arrows by themselves, by the direction in which they point: forward, back and down.
const (
	arrowsOn   = "→≺⟶➔⇒➜➡➝⟹➞➙↦⟼⇾➤⭢⮕➠➢➣►▶▸⇨↣⇢⟿⇝↪"
	arrowsBack = "←⟵⇐⇦⇠⟸◄◀⬅⭠↤⇽"
	arrowsDown = "↓⬇⇓⇩▼▽🡇⭣"
)

// BareArrow replaces a > between two ids that was recognized as an arrow.
const BareArrow = '\x1a'

// ArrowAt reads the arrow at s[i] and returns its length, 0 if there is none. left is set for arrows that
// point back.
func ArrowAt(s string, i int) (n int, left bool) {
	switch c := s[i]; {
	case c == '-' || c == '=' || c == '~' || c == '.' && strings.HasPrefix(s[i:], "..>"):
		j := i
		for j < len(s) && j < i+400 && (s[j] == c || c == '-' && (s[j] == '.' || s[j] == ' ' && strings.HasPrefix(s[j:], " -")) && j+1 < len(s)) {
			j++
		}
		k := j
		for k < len(s) && s[k] == '>' && k-j < 3 {
			k++
		}
		if k == j {
			if r, n := utf8.DecodeRuneInString(s[j:]); r != utf8.RuneError && strings.ContainsRune("►▶→", r) {
				return j + n - i, false
			}
			return 0, false
		}
		return k - i, false
	case c == '|' && strings.HasPrefix(s[i:], "|>"):
		return 2, false
	case c == BareArrow:
		return 1, false
	case c == '<':
		j := i + 1
		for j < len(s) && (s[j] == '-' || s[j] == '=' && j > i+1) {
			j++
		}
		if j == i+1 || j < len(s) && s[j] == '>' {
			return 0, false
		}
		return j - i, true
	case c >= 0x80:
		return signAt(s, i)
	}
	return 0, false
}

// signAt reads an arrow that begins with a sign outside of ASCII.
func signAt(s string, i int) (n int, left bool) {
	c, n := utf8.DecodeRuneInString(s[i:])
	if strings.ContainsRune(arrowsOn, c) || strings.ContainsRune(arrowsBack, c) {
		if strings.HasPrefix(s[i+n:], "\ufe0f") {
			n += 3
		}
		return n, strings.ContainsRune(arrowsBack, c)
	}
	if strings.ContainsRune("—–─―━═╌┄", c) {
		j := i
		for j < len(s) && strings.HasPrefix(s[j:], string(c)) {
			j += n
		}
		if j < len(s) && s[j] == '>' {
			return j + 1 - i, false
		}
		if r, k := utf8.DecodeRuneInString(s[j:]); strings.ContainsRune(arrowsOn, r) && k > 1 {
			return j + k - i, false
		}
	}
	return 0, false
}

// ContainsArrow reports whether s contains an arrow.
func ContainsArrow(s string) bool {
	for i := 0; i < len(s); {
		if n, _ := ArrowAt(s, i); n > 0 {
			return true
		}
		i += sameRun(s, i)
	}
	return false
}

// sameRun returns the number of equal bytes in a row at s[i]. Callers skip them at once, so a long line is
// not scanned again for each of them.
func sameRun(s string, i int) int {
	j := i + 1
	for j < len(s) && s[j] == s[i] && s[i] < 0x80 {
		j++
	}
	return j - i
}

// Piece is a part of a line with its place.
type Piece struct {
	Text string
	Off  int
}

func piece(s string, from, to, off int) Piece {
	for from < to && (s[from] == ' ' || s[from] == '\t') {
		from++
	}
	for to > from && (s[to-1] == ' ' || s[to-1] == '\t') {
		to--
	}
	return Piece{s[from:to], off + from}
}

// splitAt splits s at its separators outside quotes and brackets. sep returns the length of the separator at
// a place, or 0.
func splitAt(s string, off int, sep func(i int) int) (parts []Piece) {
	start, depth := 0, 0
	for i := 0; i < len(s); {
		c := s[i]
		if (c == '"' || c == '`') && OpensQuote(s[start:i]) {
			if n := QuotedLength(s[i:]); n > 0 {
				i += n
				continue
			}
		}
		switch {
		case Closer(c) != 0:
			if depth < 60 && strings.IndexByte(s[i:], Closer(c)) >= 0 {
				depth++
			}
		case c == ']' || c == '}' || c == ')':
			depth = max(0, depth-1)
		}
		n := 0
		if depth == 0 {
			n = sep(i)
		}
		if n > 0 {
			parts = append(parts, piece(s, start, i, off))
			i += n
			start = i
		} else if i++; c == '-' || c == '=' || c == '~' {
			i += sameRun(s, i-1) - 1
		}
	}
	return append(parts, piece(s, start, len(s), off))
}

// SplitArrows splits a line at its arrows. back reports for each arrow whether it points back. Quoted parts
// and parts in brackets are not split.
func SplitArrows(s string, off int) (parts []Piece, back []bool) {
	parts = splitAt(s, off, func(i int) int {
		n, left := ArrowAt(s, i)
		if n > 0 {
			back = append(back, left)
		}
		return n
	})
	return parts, back
}

// OpensQuote reports whether a quote behind before starts an id: before is empty or ends with a separator.
func OpensQuote(before string) bool {
	t := strings.TrimRight(before, " \t")
	return t == "" || strings.IndexByte(",;[({&>", t[len(t)-1]) >= 0
}

// Enclosed reports whether a text begins with a bracket and ends with a matching one.
func Enclosed(s string) bool {
	n := len(s)
	return n > 1 && Closer(s[0]) != 0 && Closer(s[0]) == s[n-1]
}

// Closer returns the bracket that closes c, or 0.
func Closer(c byte) byte {
	switch c {
	case '(':
		return ')'
	case '[':
		return ']'
	case '{':
		return '}'
	}
	return 0
}

// SplitGroup splits "A, B & C" at its commas and plus signs. Words such as "and" are left to the caller.
// Brackets around the whole group are dropped.
func SplitGroup(p Piece) []Piece {
	s := p.Text
	if n := len(s); n > 2 && Enclosed(s) && strings.ContainsAny(s, ",|&+∥‖、，;；،") && !strings.ContainsAny(s[1:n-1], "()[]{}") {
		return SplitGroup(piece(s, 1, n-1, p.Off))
	}
	return splitAt(s, p.Off, func(i int) int {
		rest := s[i:]
		switch rest[0] {
		case ',', ';':
			return 1
		case '&', '+', '|', '/':
			if strings.HasPrefix(rest, "||") {
				return 2
			}
			return b2i(i > 0 && s[i-1] == ' ' && len(rest) > 1 && rest[1] == ' ')
		}
		for _, sign := range [...]string{"∥", "‖", "，", "、", "；", "،"} {
			if strings.HasPrefix(rest, sign) {
				return len(sign)
			}
		}
		return 0
	})
}

// Bare removes quotes, emphasis and one pair of brackets around an id.
func Bare(p Piece) Piece {
	for range 4 {
		s := p.Text
		n := len(s)
		switch {
		case n > 4 && (strings.HasPrefix(s, "**") && strings.HasSuffix(s, "**") || strings.HasPrefix(s, "__") && strings.HasSuffix(s, "__")),
			n > 4 && strings.HasPrefix(s, "[[") && strings.HasSuffix(s, "]]"), n > 4 && strings.HasPrefix(s, "((") && strings.HasSuffix(s, "))"):
			p = piece(s, 2, n-2, p.Off)
		case n > 2 && strings.IndexByte("\"'`*", s[0]) >= 0 && s[n-1] == s[0] && strings.IndexByte(s[1:n-1], s[0]) < 0,
			n > 2 && Enclosed(s) && strings.IndexByte(s[1:n-1], s[n-1]) < 0:
			p = piece(s, 1, n-1, p.Off)
		default:
			return p
		}
	}
	return p
}

// CutComment drops " # …", " // …" and " %% …" from the end of a line.
func CutComment(s string) string {
	for _, mark := range [...]string{" # ", " // ", " %% ", "  #"} {
		if i := strings.Index(s, mark); i > 0 && strings.Count(s[:i], `"`)%2 == 0 {
			return strings.TrimRight(s[:i], " \t")
		}
	}
	return s
}

// SplitMark splits the text of a node into its id and its title: "T1: dig", "A (dig)", "1. dig", "[T1] dig",
// "2 dig". If there is no such mark, the id is the whole text and ok is false.
func SplitMark(p Piece) (id, title Piece, ok bool) {
	s := p.Text
	if s != "" && Closer(s[0]) != 0 {
		if k := strings.IndexByte(s, Closer(s[0])); k > 1 && k < 24 && k+1 < len(s) && strings.TrimSpace(s[1:k]) != "" {
			return piece(s, 1, k, p.Off), piece(s, k+1, len(s), p.Off), true
		}
	}
	n := nameEnd(s, "#-")
	for from := 0; n < len(s) && s[n] == '.' && nameEnd(s[n+1:], "") > 0 && strings.Trim(s[from:n], "0123456789") == ""; {
		from = n + 1
		n += 1 + nameEnd(s[n+1:], "")
	}
	n = len(strings.TrimRight(s[:n], "-"))
	if n == 0 || n == len(s) {
		return p, Piece{}, false
	}
	rest := strings.TrimLeft(s[n:], " ")
	digit := strings.ContainsAny(s[:n], "0123456789")
	short := utf8.RuneCountInString(s[:n]) <= 2
	mark := func(m string) bool { return strings.HasPrefix(rest, m) && len(rest) > len(m) }
	switch {
	case mark(": ") || mark(":") && !mark("::") || mark("：") || mark(" = ") || mark("= ") || mark("- ") || mark("– ") || mark("— "):
		rest = strings.TrimLeft(rest, ":：=-–— ")
	case mark(". ") || mark(") "):
		if !digit && !short {
			return p, Piece{}, false
		}
		rest = rest[2:]
	case Enclosed(rest):
		rest = rest[1 : len(rest)-1]
		return Piece{s[:n], p.Off}, Piece{strings.TrimSpace(rest), p.Off + strings.Index(s, rest)}, true
	case digit && len(rest) < len(s)-n && n <= 8:
	default:
		return p, Piece{}, false
	}
	if rest == "" {
		return p, Piece{}, false
	}
	return Piece{s[:n], p.Off}, piece(s, len(s)-len(rest), len(s), p.Off), true
}

// Chain is one statement of a line of arrows. Groups are the ids between arrows. Back reports for each arrow
// whether it points back.
type Chain struct {
	Groups [][]Piece
	Back   []bool
	// Doubt holds the ids that may belong to the previous statement as well as to this one.
	Doubt []Piece
}

// Chains splits a line of arrows into statements. A semicolon ends a statement. A comma separates the ids of
// a group in "A, B -> C", and statements in "1 -> 2, 1 -> 3". The line is read in the way in which no id
// follows itself. With apart, commas separate statements wherever both sides contain an arrow.
func Chains(s string, off int, apart bool) (out []Chain, unsure bool) {
	for _, st := range SplitSemicolons(s, off) {
		parts, back := SplitArrows(st.Text, st.Off)
		whole := Chain{Back: back}
		seen := map[string]int{}
		again, commas, open := false, 0, make([]bool, len(parts))
		for i, p := range parts {
			group := SplitGroup(p)
			whole.Groups = append(whole.Groups, group)
			for _, x := range group {
				id := Bare(x).Text
				if at, ok := seen[id]; ok && id != "" && at != i {
					again = true
				}
				seen[id] = i
			}
			if i > 0 && i < len(parts)-1 && len(group) > 1 && strings.IndexByte("([{", p.Text[0]) < 0 {
				commas, open[i] = commas+1, true
			}
		}
		if commas == 0 || commas < len(back)-1 && !again && !apart || !again && !apart && commas > 0 && len(back) < 2 {
			out = append(out, whole)
			continue
		}
		if !again && !apart {
			out, unsure = append(out, whole), true
			continue
		}
		out = append(out, apartChains(whole, open)...)
	}
	return out, unsure
}

// apartChains splits a chain at the groups in open, which contain a comma outside of brackets.
func apartChains(c Chain, open []bool) []Chain {
	var out []Chain
	cur := Chain{Groups: [][]Piece{c.Groups[0]}}
	for i := 1; i < len(c.Groups); i++ {
		g := c.Groups[i]
		cur.Back = append(cur.Back, c.Back[i-1])
		if !open[i] {
			cur.Groups = append(cur.Groups, g)
			continue
		}
		last := len(g) - 1
		cur.Groups = append(cur.Groups, g[:last])
		if last > 1 {
			cur.Doubt = append(cur.Doubt, g[1:last]...)
		}
		out = append(out, cur)
		cur = Chain{Groups: [][]Piece{g[last:]}}
	}
	return append(out, cur)
}

// SplitSemicolons splits s at the semicolons outside quotes.
func SplitSemicolons(s string, off int) []Piece {
	if !strings.ContainsAny(s, ";；") {
		return []Piece{piece(s, 0, len(s), off)}
	}
	var out []Piece
	start := 0
	for i := 0; i < len(s); i++ {
		if (s[i] == '"' || s[i] == '`') && OpensQuote(s[start:i]) {
			if n := QuotedLength(s[i:]); n > 0 {
				i += n - 1
			}
		} else if w := strings.HasPrefix(s[i:], "；"); s[i] == ';' || w {
			if p := piece(s, start, i, off); p.Text != "" {
				out = append(out, p)
			}
			start = i + 1
			if w {
				start = i + 3
			}
		}
	}
	if p := piece(s, start, len(s), off); p.Text != "" {
		out = append(out, p)
	}
	return out
}
