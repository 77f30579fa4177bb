package plan

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readEvidence reads "Plan: … #E1 = Tool[input]": each evidence is a problem, and edges come from the use of
// evidence.
func readEvidence(d *document) *reading {
	if !strings.Contains(d.text, "#E") && !strings.Contains(d.text, "#e") {
		return nil
	}
	r := &reading{edgesStated: true, start: -1, openEnded: true}
	request, requestOff, pending := "", 0, -1
	known := map[string]bool{}
	type use struct {
		ref Reference
		to  string
		at  int
		off int
	}
	var uses []use
	for i := 0; i < len(d.lines); i++ {
		l := d.lines[i]
		if l.text == "" || l.fence {
			continue
		}
		text, off := l.text, l.off
		if rest, ok := planPrefix(text); ok {
			if request != "" && requestOff >= 0 && len(r.graph.Problems) > 0 {
				r.diag(d, Warning, SkippedText, requestOff, form.Clip(request), "a plan line has no evidence", "write #E after it")
			}
			request, requestOff, pending = rest, off, off
			off += len(text) - len(rest)
			text = rest
			if r.start < 0 {
				r.start = l.off
			}
		}
		at := evidenceDef(text)
		if at >= 0 && request == "" && i > 0 {
			request = titleAbove(d.lines[i-1])
		}
		if at < 0 {
			if request != "" && requestOff > 0 && i > 0 && d.lines[i-1].text != "" && !strings.HasPrefix(text, "#") && text != request {
				request += " " + text
			}
			continue
		}
		if at > 0 {
			request = strings.TrimSpace(text[:at])
		}
		n := evidenceRef(text[at:])
		id := text[at : at+n]
		body := strings.TrimSpace(strings.TrimLeft(text[at+n:], " =:＝"))
		bodyOff := off + strings.Index(text[at:], body) + at
		// The input may go on over the next lines until its bracket closes.
		open := strings.IndexByte(body, '[')
		if paren := strings.IndexByte(body, '('); paren > 0 && form.IsName(strings.TrimSpace(body[:paren])) && (open < 0 || paren < open) {
			open = paren
		}
		if j := inputEnd(d, i, bodyOff+max(open, 0)); open >= 0 && j > i {
			body = d.text[bodyOff : d.lines[j].off+len(d.lines[j].text)]
			i = j
		}
		tool, input := body, ""
		if open >= 0 {
			tool = strings.TrimSpace(body[:open])
			input = body[open+1:]
			if closedBracket(body[open:]) {
				input = input[:max(0, strings.LastIndexByte(input, form.Closer(body[open])))]
			} else {
				r.diag(d, Error, Unclosed, bodyOff, id, "the input of "+id+" is not closed", "write the closing ]")
			}
		} else {
			r.diag(d, Error, Malformed, bodyOff, id, id+" is not given by Tool[input]", "write Tool[input]")
		}
		if request == "" {
			request = tool
		}
		p := d.problem(id, request, off+at)
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
			uses = append(uses, use{ref, id, len(r.graph.Problems), bodyOff})
		}
		p.Args = append(p.Args, arg)
		known[id] = true
		r.graph.Problems = append(r.graph.Problems, p)
		r.end = l.off + len(l.text)
		if r.start < 0 {
			r.start = l.off
		}
		request, requestOff, pending = "", -1, -1
	}
	if len(r.graph.Problems) == 0 {
		return nil
	}
	if pending > r.end {
		last := r.graph.Problems[len(r.graph.Problems)-1].ID
		r.diag(d, Error, Truncated, pending, last, "a plan line after "+last+" has no evidence: the text may end too early", "ask for the rest of the plan")
	}
	type key struct {
		from string
		at   int
	}
	seen := map[key]bool{}
	for _, u := range uses {
		key := key{u.ref.To, u.at}
		if seen[key] {
			continue
		}
		seen[key] = true
		r.edge(d, u.ref.To, u.to, Variable, u.off)
	}
	return r
}

// titleAbove returns what a line above evidence says that it is for: "Step 2: sum it up", "計画: 足す".
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

// evidenceDef returns where in s a definition "#E1 =" starts, or -1.
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

// inputEnd returns the line on which the bracket at open, on line i, is closed, or i.
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
