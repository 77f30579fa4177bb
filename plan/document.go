package plan

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// document is the text being read, together with everything that several dialects need and that is computed
// once.
type document struct {
	// text has the length and the line ends of the caller's text. Thoughts of the model are blanked out.
	text   string
	limits Limits
	lines  []line
	starts []int // byte offset of each line
	runes  []int // number of runes before every runeStride-th byte

	trees     []*form.Tree
	treesDone bool
	cut       bool // the text was cut at the limit on bytes
	thinkOpen bool // a thought was not closed
	repairs   []Repair

	// outer and back are set for a text that was extracted from another one. back holds, for each byte, its
	// place in outer.
	outer *document
	back  []int32
}

// line is one line without its line end.
type line struct {
	off    int
	text   string // without surrounding white space
	indent int    // bytes of leading white space, a tab counts as 4
	fence  bool   // the line opens or closes a code fence
	inCode bool   // between two fences
	lang   string // language of the fence that it opens or is inside of
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

// validText replaces each byte that is not part of a character by a space. Readers may then rely on the
// encoded length of a character, and places do not change.
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

// lineAt returns the 0-based number of the line that holds the byte at off.
func (d *document) lineAt(off int) int {
	return sort.SearchInts(d.starts, max(0, min(off, len(d.text)))+1) - 1
}

// place converts a byte offset to a line and a column of the caller's text. Both are 1-based; columns count
// runes.
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

// runeStride is the distance between the places up to which runes are counted in advance. It keeps a place in
// a long line as cheap as one in a short line.
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

// indexFold finds an ASCII needle regardless of case.
func indexFold(s, needle string) int {
	for i := 0; i+len(needle) <= len(s); i++ {
		if (s[i]|0x20) == (needle[0]|0x20) && strings.EqualFold(s[i:i+len(needle)], needle) {
			return i
		}
	}
	return -1
}

// reading is the result of one dialect for a document.
type reading struct {
	// weight is the confidence of the general reader in this reading.
	weight int
	// unnamed is set if the text shows no ids; the problems are then named by their places.
	unnamed bool
	graph   Graph
	diags   []Diagnostic
	repairs []Repair
	// start and end delimit the text that the plan was read from.
	start, end int
	// around holds the 0-based lines between start and end that are part of no problem.
	around map[int]bool
	// openEnded is set if the dialect has no end mark and the plan runs to the end of the text.
	openEnded bool
	// again is where another plan of the same dialect begins, if the dialect can find it, else 0.
	again int
	// last names what stands at the end of an open-ended plan, if that is not its last problem.
	last string
	// edgesStated is set if the text states its edges, even if there are none.
	edgesStated bool
	// strict is set if keys that only this dialect uses identify the dialect.
	strict bool
	// edgeTexts is what the text says of edges besides their ends. owned holds the places of values that
	// belong to problems but stand elsewhere.
	edgeTexts []edgeText
	owned     []int
	// limited is set once a diagnostic has reported that a line stands for too many edges.
	limited bool
	// noPlan is set if the text is of this dialect and says that there is no plan.
	noPlan *NoPlan
}

func (d *document) problem(id, request string, off int) Problem {
	p := Problem{ID: id, Request: request}
	p.Line, p.Column = d.place(off)
	return p
}

// full reports whether there are more edges than a plan may have. Further edges are dropped, and finish
// reports that.
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

// maxReadDiagnostics bounds the diagnostics of one reading about its text. Faults of the graph are counted
// separately.
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

// chain adds an edge between consecutive leaves of the graph.
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
