package plan

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// evidenceReader reads the lines of a plan with evidence.
type evidenceReader struct {
	d *document
	r *reading
	// request is the text that the next evidence serves, and requestOff its place. pending is the place of a
	// plan line that has no evidence yet, or -1.
	request             []string // lines
	requestOff, pending int
	uses                []evidenceUse
}

// evidenceUse is a use of evidence by the problem with the id to, which is at index at of the list.
type evidenceUse struct {
	ref Reference
	to  string
	at  int
	off int
}

// readEvidence reads "Plan: … #E1 = Tool[input]". Each evidence is a problem. Edges come from the use of
// evidence.
func readEvidence(d *document) *reading {
	if !strings.Contains(d.text, "#E") && !strings.Contains(d.text, "#e") {
		return nil
	}
	e := &evidenceReader{d: d, r: &reading{edgesStated: true, start: -1, openEnded: true}, pending: -1}
	for i := 0; i < len(d.lines); i++ {
		if l := d.lines[i]; l.text != "" && !l.fence {
			i = e.line(i)
		}
	}
	problems := e.r.graph.Problems
	if len(problems) == 0 {
		return nil
	}
	if e.pending > e.r.end {
		last := problems[len(problems)-1].ID
		e.r.diag(d, Error, Truncated, e.pending, last, "a plan line after "+last+" has no evidence: the text may end too early", "ask for the rest of the plan")
	}
	e.edges()
	return e.r
}

// line reads one line and returns the last one that belongs to it.
func (e *evidenceReader) line(i int) int {
	l := e.d.lines[i]
	text, off := l.text, l.off
	if rest, ok := planPrefix(text); ok {
		if len(e.request) > 0 && e.requestOff >= 0 && len(e.r.graph.Problems) > 0 {
			e.r.diag(e.d, Warning, SkippedText, e.requestOff, form.Clip(strings.Join(e.request, " ")), "a plan line has no evidence", "write #E after it")
		}
		e.request, e.requestOff, e.pending = lineOf(rest), off, off
		off += len(text) - len(rest)
		text = rest
		if e.r.start < 0 {
			e.r.start = l.off
		}
	}
	at := evidenceDef(text)
	if at >= 0 && len(e.request) == 0 && i > 0 {
		e.request = lineOf(titleAbove(e.d.lines[i-1]))
	}
	if at < 0 {
		if n := len(e.request); n > 0 && e.requestOff > 0 && i > 0 && e.d.lines[i-1].text != "" && !strings.HasPrefix(text, "#") && (n > 1 || text != e.request[0]) {
			e.request = append(e.request, text)
		}
		return i
	}
	if at > 0 {
		e.request = lineOf(strings.TrimSpace(text[:at]))
	}
	last := e.define(i, text[at:], off+at)
	e.r.end = l.off + len(l.text)
	if e.r.start < 0 {
		e.r.start = l.off
	}
	e.request, e.requestOff, e.pending = nil, -1, -1
	return last
}

// define reads "#E1 = Tool[input]", which begins in line i at offset off of the text. It returns the last
// line of the definition.
func (e *evidenceReader) define(i int, text string, off int) (last int) {
	d, r := e.d, e.r
	n := evidenceRef(text)
	id, last := text[:n], i
	body := strings.TrimSpace(strings.TrimLeft(text[n:], " =:＝"))
	bodyOff := off + strings.Index(text, body)
	// The input may span several lines, up to its closing bracket.
	open := strings.IndexByte(body, '[')
	if paren := strings.IndexByte(body, '('); paren > 0 && form.IsName(strings.TrimSpace(body[:paren])) && (open < 0 || paren < open) {
		open = paren
	}
	if j := inputEnd(d, i, bodyOff+max(open, 0)); open >= 0 && j > i {
		body, last = d.text[bodyOff:d.lines[j].off+len(d.lines[j].text)], j
	}
	tool, input := body, ""
	switch {
	case open < 0:
		r.diag(d, Error, Malformed, bodyOff, id, id+" is not given by Tool[input]", "write Tool[input]")
	case closedBracket(body[open:]):
		tool, input = strings.TrimSpace(body[:open]), body[open+1:]
		input = input[:max(0, strings.LastIndexByte(input, form.Closer(body[open])))]
	default:
		tool, input = strings.TrimSpace(body[:open]), body[open+1:]
		r.diag(d, Error, Unclosed, bodyOff, id, "the input of "+id+" is not closed", "write the closing ]")
	}
	request := tool
	if len(e.request) > 0 {
		request = strings.Join(e.request, " ")
	}
	p := d.problem(id, request, off)
	p.Tool = tool
	p.Args = []Arg{{Name: "tool", Kind: Literal, Value: form.Quote(tool)}}
	arg := Arg{Name: "input", Kind: Literal, Value: form.Quote(input)}
	if n := strings.Count(body, "#E"); n > countEvidence(body) {
		r.diag(d, Error, Malformed, bodyOff, id, "a use of evidence in "+id+" has no number", "write #E1")
	}
	for _, ref := range scanRefs(body) {
		if !hasFold(ref.Text, "#E") {
			continue
		}
		ref.Arg, ref.Line, ref.Column = "input", p.Line, p.Column
		arg.Kind = Referring
		p.Refs = append(p.Refs, ref)
		e.uses = append(e.uses, evidenceUse{ref, id, len(r.graph.Problems), bodyOff})
	}
	p.Args = append(p.Args, arg)
	r.graph.Problems = append(r.graph.Problems, p)
	return last
}

// edges adds an edge for each evidence that a problem uses.
func (e *evidenceReader) edges() {
	type key struct {
		from string
		at   int
	}
	seen := map[key]bool{}
	for _, u := range e.uses {
		if k := (key{u.ref.To, u.at}); !seen[k] {
			seen[k] = true
			e.r.edge(e.d, u.ref.To, u.to, Variable, u.off)
		}
	}
}

// lineOf returns s as the only line, or no lines if s is empty.
func lineOf(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// titleAbove returns the purpose that a line above evidence states: "Step 2: sum it up", "計画: 足す".
func titleAbove(l line) string {
	if l.fence || evidenceDef(l.text) >= 0 {
		return ""
	}
	if i := strings.IndexAny(l.text, ":："); i > 0 && utf8.RuneCountInString(l.text[:i]) <= 20 {
		_, n := utf8.DecodeRuneInString(l.text[i:])
		return strings.TrimSpace(l.text[i+n:])
	}
	return ""
}

func planPrefix(s string) (string, bool) {
	t := strings.TrimLeft(s, "*#- ")
	if !hasFold(t, "plan") {
		return "", false
	}
	t = strings.TrimLeft(t[4:], "* 0123456789")
	if !strings.HasPrefix(t, ":") {
		return "", false
	}
	return strings.TrimLeft(t[1:], "* "), true
}

// evidenceDef returns the index in s at which a definition "#E1 =" starts, or -1.
func evidenceDef(s string) int {
	for i := range len(s) {
		if s[i] != '#' {
			continue
		}
		n := evidenceRef(s[i:])
		if n == 0 {
			continue
		}
		j := i + n
		for j < len(s) && s[j] == ' ' {
			j++
		}
		if j < len(s) && (s[j] == '=' || strings.HasPrefix(s[j:], "＝")) {
			return i
		}
	}
	return -1
}

func countEvidence(s string) int {
	n := 0
	for _, r := range scanRefs(s) {
		if strings.HasPrefix(r.Text, "#E") {
			n++
		}
	}
	return n
}

// inputEnd returns the line on which the bracket at offset open, on line i, is closed, or i.
func inputEnd(d *document, i, open int) int {
	if open >= len(d.text) || form.Closer(d.text[open]) == 0 || closedBracket(d.text[open:d.lines[i].off+len(d.lines[i].text)]) {
		return i
	}
	depth := 0
	for j := i; j < len(d.lines) && j < i+100; j++ {
		l := d.lines[j]
		from := l.off
		if j == i {
			from = open
		} else {
			if l.fence || evidenceDef(l.text) >= 0 {
				return i
			}
			if _, ok := planPrefix(l.text); ok {
				return i
			}
		}
		for k := from; k < l.off+len(l.text); k++ {
			switch d.text[k] {
			case d.text[open]:
				depth++
			case form.Closer(d.text[open]):
				if depth--; depth == 0 {
					return j
				}
			}
		}
	}
	return i
}

// closedBracket reports whether the bracket at the start of s is closed in s.
func closedBracket(s string) bool {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case s[0]:
			depth++
		case form.Closer(s[0]):
			depth--
			if depth == 0 {
				return true
			}
		}
	}
	return false
}
