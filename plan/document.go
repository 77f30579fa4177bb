package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"

	"sort"
	"strings"
	"unicode/utf8"
)

// document is the text being read, with everything that several dialects need computed once.
type document struct {
	// text has the same length and line ends as the caller's text; thoughts of the model are blanked out.
	text   string
	limits Limits
	lines  []line
	starts []int // byte offset of each line
	runes  []int // number of runes before every runeStride-th byte

	trees     []*form.Tree
	treesDone bool
	cut       bool // the limit on bytes cut the text
	thinkOpen bool // a thought was never closed
	repairs   []Repair

	// outer and back are set for a text that was taken out of another one: back has, for each byte, its place
	// in outer.
	outer *document
	back  []int32
}

// line is one line without its line end.
type line struct {
	off    int
	text   string // without surrounding white space
	indent int    // bytes of leading white space, tabs count as 4
	fence  bool   // the line opens or closes a code fence
	inCode bool   // between two fences
	lang   string // language of the fence it opens or stands in
}

func newDocument(text string, limits Limits) *document {
	d := &document{limits: limits}
	if len(text) > limits.MaxBytes {
		end := limits.MaxBytes
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text, d.cut = text[:end], true
	}
	if strings.IndexByte(text, '\r') >= 0 && strings.IndexByte(text, '\n') < 0 {
		text = strings.ReplaceAll(text, "\r", "\n")
	}
	d.text = d.maskThoughts(validText(text))
	d.splitLines()
	return d
}

// validText returns the text with a space in place of each byte that is no part of a character, so that
// all readers may trust that a character has the length of its encoding, and places stay what they are.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	b := []byte(text)
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			b[i] = ' '
		}
		i += n
	}
	return string(b)
}

func (d *document) splitLines() {
	n := strings.Count(d.text, "\n") + 1
	d.lines = make([]line, 0, n)
	d.starts = make([]int, 0, n)
	inCode, lang := false, ""
	for off := 0; ; {
		end := strings.IndexByte(d.text[off:], '\n')
		raw := d.text[off:]
		if end >= 0 {
			raw = d.text[off : off+end]
		}
		l := line{off: off, inCode: inCode, lang: lang}
		i := 0
		for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t') {
			l.indent++
			if raw[i] == '\t' {
				l.indent += 3
			}
			i++
		}
		l.off += i
		trimmed := strings.TrimLeft(raw[i:], "\u3000\u00a0\ufeff\u200b")
		l.off += len(raw) - i - len(trimmed)
		l.text = strings.TrimRight(trimmed, " \t\r\u3000\u00a0\u200b")
		if strings.HasPrefix(l.text, "```") || strings.HasPrefix(l.text, "~~~") {
			l.fence = true
			if inCode {
				inCode, lang = false, ""
			} else {
				inCode, lang = true, strings.ToLower(strings.TrimSpace(strings.Trim(l.text, "`~")))
			}
			l.lang = lang
		}
		d.lines = append(d.lines, l)
		d.starts = append(d.starts, off)
		if end < 0 {
			return
		}
		off += end + 1
	}
}

// lineAt returns the number of the line, from 0, that holds the byte at off.
func (d *document) lineAt(off int) int {
	return sort.SearchInts(d.starts, max(0, min(off, len(d.text)))+1) - 1
}

// place turns a byte offset into a line and a column that counts runes, both 1-based, of the caller's text.
func (d *document) place(off int) (int, int) {
	off = max(0, min(off, len(d.text)))
	if d.outer != nil {
		return d.outer.place(int(d.back[off]))
	}
	i := d.lineAt(off)
	start := d.starts[i]
	if off-start <= runeStride {
		return i + 1, utf8.RuneCountInString(d.text[start:off]) + 1
	}
	return i + 1, d.runesBefore(off) - d.runesBefore(start) + 1
}

// runeStride is the distance of the places up to which runes are counted once, so that long lines cost no
// more than short ones.
const runeStride = 256

func (d *document) runesBefore(off int) int {
	if d.runes == nil {
		d.runes = make([]int, 0, len(d.text)/runeStride+1)
		n := 0
		for at := 0; at <= len(d.text); at += runeStride {
			d.runes = append(d.runes, n)
			n += runeStarts(d.text[at:min(at+runeStride, len(d.text))])
		}
	}
	k := off / runeStride
	return d.runes[k] + runeStarts(d.text[k*runeStride:off])
}

// runeStarts counts the bytes of s that begin a rune.
func runeStarts(s string) int {
	n := 0
	for i := range len(s) {
		if utf8.RuneStart(s[i]) {
			n++
		}
	}
	return n
}

func hasFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// indexFold finds an ASCII needle whatever its case.
func indexFold(s, needle string) int {
	for i := 0; i+len(needle) <= len(s); i++ {
		if (s[i]|0x20) == (needle[0]|0x20) && strings.EqualFold(s[i:i+len(needle)], needle) {
			return i
		}
	}
	return -1
}

// reading is what one dialect made of a document.
type reading struct {
	// weight is how sure a reading in the general way is.
	weight int
	// unnamed is set when the text shows no ids, and the problems are named by their places.
	unnamed bool
	graph   Graph
	diags   []Diagnostic
	repairs []Repair
	// start and end delimit the text that the plan was read from.
	start, end int
	// around are the lines between them, from 0, that are part of no problem.
	around map[int]bool
	// openEnded is set when the dialect has no mark for the end of a plan and the plan runs to the end of the
	// text.
	openEnded bool
	// again is where another plan of the same dialect begins, if the dialect can tell; 0 if not.
	again int
	// last names what stands at the end of an open-ended plan, if that is not its last problem.
	last string
	// edgesStated is set when the text states its edges, even if there are none.
	edgesStated bool
	// strict is set when keys that no other way of writing has tell the dialect.
	strict bool
	// says is what the text says of edges besides their ends; told are the places of values that are part of
	// problems and stand elsewhere.
	says []edgeText
	told []int
	// limited is set when it was said that a line stands for too many edges.
	limited bool
	// noPlan is set when the text is of this dialect and says that there is no plan.
	noPlan *NoPlan
}

func (d *document) problem(id, request string, off int) Problem {
	p := Problem{ID: id, Request: request}
	p.Line, p.Column = d.place(off)
	return p
}

// full reports whether there are more edges than a plan may have: further ones would not be kept, and finish
// says so.
func (r *reading) full(d *document) bool { return len(r.graph.Edges) > d.limits.MaxEdges }

// edge adds an edge, unless the reading is full.
func (r *reading) edge(d *document, from, to string, source EdgeSource, off int) {
	if r.full(d) {
		return
	}
	e := Edge{From: from, To: to, Source: source}
	e.Line, e.Column = d.place(off)
	r.graph.Edges = append(r.graph.Edges, e)
}

// maxReadDiagnostics bounds what one reading says about its text; faults of the graph come on top.
const maxReadDiagnostics = 5000

func (r *reading) diag(d *document, s Severity, c Code, off int, element, message, hint string) {
	if len(r.diags) == maxReadDiagnostics {
		s, c, element, message, hint = Error, LimitReached, "diagnostics", "there are too many faults; the rest is not listed", "correct the first ones"
	} else if len(r.diags) > maxReadDiagnostics {
		return
	}
	x := Diagnostic{Code: c, Severity: s, Element: element, Message: message, Hint: hint}
	x.Line, x.Column = d.place(off)
	r.diags = append(r.diags, x)
}

func (r *reading) repair(d *document, c Code, off int, message string) {
	x := Repair{Code: c, Message: message, Applied: true}
	x.Line, x.Column = d.place(off)
	r.repairs = append(r.repairs, x)
}

// chain adds an edge between each two neighbors among the leaves of the graph.
func (r *reading) chain(d *document, source EdgeSource) {
	parent := make(map[string]bool)
	for _, p := range r.graph.Problems {
		if p.ParentID != "" {
			parent[p.ParentID] = true
		}
	}
	prev := -1
	for i, p := range r.graph.Problems {
		if parent[p.ID] {
			continue
		}
		if prev >= 0 && r.graph.Problems[prev].ID != p.ID {
			r.graph.Edges = append(r.graph.Edges, Edge{From: r.graph.Problems[prev].ID, To: p.ID, Source: source, Line: p.Line, Column: p.Column})
		}
		prev = i
	}
}

// findTrees returns every bracketed value in the text, in order.
func (d *document) findTrees() []*form.Tree {
	if !d.treesDone {
		d.treesDone = true
		d.trees = form.Bracketed(d.text, d.limits.MaxDepth)
	}
	return d.trees
}
