package plan

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// programLine is one numbered line of a program: "2. name = CALL(args) : text" or "2. call(args)".
type programLine struct {
	id       string
	variable string
	callee   string
	args     string // between the brackets
	argsOff  int
	rest     string // after the closing bracket
	off      int
	whole    string // without the number
	unclosed bool
	lostOpen bool
}

// programLines returns the lines of d. The lines of a call that spans several are joined.
func programLines(d *document) []line {
	out := make([]line, 0, len(d.lines))
	budget := 20_000 // lines that may be inspected for the ends of calls
	for i := 0; i < len(d.lines); i++ {
		l := d.lines[i]
		if l.text == "" || l.fence {
			continue
		}
		if j := callGoesOn(d, i, &budget); j > i {
			end := d.lines[j].off + len(d.lines[j].text)
			l.text = d.text[l.off:end]
			i = j
		}
		out = append(out, l)
	}
	return out
}

// maxCallLines bounds the number of lines that a call may span.
const maxCallLines = 60

// callGoesOn returns the line on which the call that starts on line i is closed. It returns i if the call is
// closed there, or never.
func callGoesOn(d *document, i int, budget *int) int {
	text := d.lines[i].text
	open := strings.IndexByte(text, '(')
	if open <= 0 || !form.IsWordByte(text[open-1]) && text[open-1] != ' ' || strings.IndexByte("([{,\"'", text[len(text)-1]) < 0 && strings.Count(text, "(") <= strings.Count(text, ")") {
		return i
	}
	if _, closed := callEnd(text[open+1:]); closed {
		return i
	}
	from := d.lines[i].off
	for j := i + 1; j < len(d.lines) && j < i+maxCallLines && *budget > 0; j++ {
		*budget--
		l := d.lines[j]
		if l.text == "" || l.fence {
			return i
		}
		if _, _, ok := cutNumber(l.text); ok && l.indent <= d.lines[i].indent || hasFold(l.text, "thought") {
			return i
		}
		if l.text[0] != ')' && strings.IndexByte(l.text, ')') < 0 {
			continue
		}
		if _, closed := callEnd(d.text[from+open+1 : l.off+len(l.text)]); closed {
			return j
		}
	}
	return i
}

// cutProgramNumber splits the number of a line, and the decoration around it, from the call. rest is a suffix
// of s.
func cutProgramNumber(s string) (num, rest string, ok bool) {
	num, rest, ok = cutNumber(strings.TrimLeft(s, "*-` _"))
	return num, strings.TrimLeft(rest, "*` _"), ok
}

// readProgramLine reads one line. ok is false if the line is no call. With assign the call must have a
// variable before it.
func readProgramLine(l line, assign bool) (programLine, bool) {
	p := programLine{off: l.off}
	num, rest, ok := cutProgramNumber(l.text)
	if !ok && assign {
		rest = strings.TrimLeft(l.text, "` ")
	} else if !ok || rest == l.text {
		return p, false
	}
	p.id, p.whole = num, rest
	base := l.off + len(l.text) - len(rest)
	s := rest
	i := 0
	word := func() string {
		start := i
		for i < len(s) && (form.IsWordByte(s[i]) || s[i] == '.' && i > start) {
			i++
		}
		return s[start:i]
	}
	space := func() {
		for i < len(s) && s[i] == ' ' {
			i++
		}
	}
	first := word()
	if first == "" || '0' <= first[0] && first[0] <= '9' {
		return p, false
	}
	space()
	if assign {
		if i >= len(s) || s[i] != '=' || i+1 < len(s) && s[i+1] == '=' {
			return p, false
		}
		p.variable = first
		i++
		space()
		if strings.HasPrefix(s[i:], "await ") {
			i += len("await ")
			space()
		}
		first = word()
		space()
	}
	p.callee = first
	if !assign && i > 0 && s[i-1] == ' ' && !(i+1 < len(s) && s[i] == '(' && (strings.IndexByte("\"'$", s[i+1]) >= 0 || strings.HasPrefix(s[i:], "()"))) {
		return p, false // "1. Foo (bar)" is prose
	}
	if !assign && i == len(s) && isJoin(first) {
		p.argsOff = base + i
		return p, true
	}
	if i >= len(s) || s[i] != '(' {
		if !assign {
			return p, false
		}
		// A value that is no call: the text up to the colon is its argument.
		p.args, p.argsOff = s[i-len(first):], base+i-len(first)
		if k := strings.Index(p.args, " : "); k >= 0 {
			p.args, p.rest = p.args[:k], p.args[k:]
		}
		p.lostOpen = true
		return p, true
	}
	i++
	p.argsOff = base + i
	end, closed := callEnd(s[i:])
	p.args = s[i : i+end]
	if closed {
		p.rest = s[i+end+1:]
	} else {
		p.unclosed = true
		p.rest = s[i+end:]
	}
	return p, true
}

func isJoin(callee string) bool {
	return strings.EqualFold(callee, "join") || strings.EqualFold(callee, "finish")
}

// callEnd returns the end of the arguments at the start of s, and whether a bracket closes them. An
// apostrophe inside a word is no quote.
func callEnd(s string) (int, bool) {
	depth := 0
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		c := s[i]
		if quote != 0 {
			switch {
			case c == '\\':
				i++
			case c == quote && (quote == '"' || i+1 >= len(s) || strings.IndexByte(",)] :", s[i+1]) >= 0):
				quote = 0
			}
			continue
		}
		switch c {
		case '"':
			quote = c
		case '\'':
			if i == 0 || strings.IndexByte("(,[ =", s[i-1]) >= 0 {
				quote = c
			}
		case '(', '[', '{':
			depth++
		case ']', '}':
			if depth > 0 {
				depth--
			}
		case ')':
			if depth == 0 {
				return i, true
			}
			depth--
		}
	}
	// Not closed. The arguments end at the description, or else with the line. Search again and ignore
	// quotes.
	if i := strings.Index(s, " : "); i >= 0 {
		if j := strings.LastIndexByte(s[:i], ')'); j >= 0 && strings.TrimSpace(s[j+1:i]) == "" {
			return j, false
		}
		return i, false
	}
	if j := strings.LastIndexByte(s, ')'); j >= 0 {
		return j, false
	}
	return len(s), false
}

// readNumberedCalls reads "1. search("a")", "2. math("$1 * 2")", "3. join()". Edges come from $1, and join
// waits for all earlier calls.
func readNumberedCalls(d *document) *reading {
	r := &reading{edgesStated: true, start: -1}
	prog, thought := r.numberedLines(d)
	if prog == nil {
		return nil
	}
	joined, ended := false, false
	for i := range prog {
		p := &prog[i]
		if len(r.graph.Problems) > d.limits.MaxProblems {
			break
		}
		if r.start < 0 {
			r.start = p.off
		}
		r.end = p.argsOff + len(p.args)
		r.checkCall(d, p)
		r.addNumberedCall(d, p)
		joined = joined || isJoin(p.callee)
		ended = ended || strings.Contains(p.rest, "<END")
	}
	r.end = max(r.end, thought)
	r.openEnded = !joined && !ended
	return r
}

// numberedLines returns the numbered calls, nil if they do not make up a program, and the end of a thought
// behind them.
func (r *reading) numberedLines(d *document) (prog []programLine, thought int) {
	bad, trailing := 0, 0
	for _, l := range programLines(d) {
		p, ok := readProgramLine(l, false)
		if !ok {
			if num, rest, isNum := cutNumber(l.text); isNum && rest != l.text[len(num):] {
				bad++
				if bad <= 20 {
					r.diag(d, Error, Malformed, l.off, num, "this line is no call", "write tool(arguments)")
				}
			}
			if len(prog) > 0 && hasFold(l.text, "thought:") {
				thought = l.off + len(l.text)
			}
			continue
		}
		if rest := strings.Trim(p.rest, " `*;"); !p.unclosed && rest != "" && !strings.HasPrefix(rest, "<") && !strings.HasPrefix(rest, "#") && !strings.HasPrefix(rest, "//") {
			trailing++
			r.diag(d, Warning, SkippedText, p.argsOff+len(p.args)+1, p.id, "text after the call in step "+p.id+" was left out: "+form.Clip(rest), "end the line after the call")
		}
		prog = append(prog, p)
	}
	if len(prog) == 0 || len(prog) == 1 && isJoin(prog[0].callee) || bad >= len(prog) && bad > 1 || trailing > 1 && trailing*2 > len(prog) || trailing == len(prog) {
		return nil, 0
	}
	return prog, thought
}

// checkCall reports brackets, quotes and references of a call that are not closed.
func (r *reading) checkCall(d *document, p *programLine) {
	if p.unclosed {
		r.diag(d, Warning, Unclosed, p.argsOff, p.id, "the call in step "+p.id+" is not closed; its arguments were taken to end with the line", "write the closing )")
	} else if c := unpaired(unquoted(p.args)); c != 0 {
		r.diag(d, Warning, Unbalanced, p.argsOff, p.id, "the bracket "+string(c)+" in step "+p.id+" has no partner", "check the brackets")
	}
	if p.unclosed && unpairedQuote(p.args) {
		r.diag(d, Error, Truncated, p.argsOff, p.id, "a text in step "+p.id+" is not closed", "write the closing quote")
	}
	if i := strings.Index(p.args, "${"); i >= 0 && strings.Count(p.args, "${") > countRefs(p.args) {
		r.diag(d, Error, Malformed, p.argsOff+i, p.id, "a reference in step "+p.id+" is not of the form ${1}", "write ${1}")
	}
}

// addNumberedCall adds the problem of a call, and the edges to it.
func (r *reading) addNumberedCall(d *document, p *programLine) {
	x := d.problem(p.id, p.whole, p.off)
	x.Tool = p.callee
	seen := map[string]bool{}
	for _, ref := range scanRefs(p.args) {
		if !isStepRef(ref) {
			continue
		}
		if i := strings.IndexByte(ref.To, '_'); i > 0 {
			ref.To = ref.To[:i]
		}
		ref.Line, ref.Column = d.place(p.argsOff)
		x.Refs = append(x.Refs, ref)
		if !seen[ref.To] {
			seen[ref.To] = true
			r.edge(d, ref.To, p.id, Variable, p.argsOff)
		}
	}
	for _, a := range splitArgs(p.args) {
		arg, value := callArg(a)
		if slices.ContainsFunc(scanRefs(value), isStepRef) {
			arg.Kind = Referring
		}
		x.Args = append(x.Args, arg)
	}
	if isJoin(p.callee) && len(x.Refs) == 0 {
		for _, q := range r.graph.Problems {
			if r.full(d) {
				break
			}
			if !seen[q.ID] {
				seen[q.ID] = true
				r.edge(d, q.ID, p.id, Stated, p.off)
			}
		}
	}
	r.graph.Problems = append(r.graph.Problems, x)
}

// isStepRef reports whether a reference names a step by its number.
func isStepRef(ref Reference) bool { return '0' <= ref.To[0] && ref.To[0] <= '9' }

// countRefs counts the references of the form ${1} in s.
func countRefs(s string) int {
	n := 0
	for _, r := range scanRefs(s) {
		if strings.HasPrefix(r.Text, "${") {
			n++
		}
	}
	return n
}

// unpairedQuote reports whether s has a double quote without a partner.
func unpairedQuote(s string) bool { return strings.Count(s, `"`)%2 == 1 }

// unquoted returns s without the text in double quotes.
func unquoted(s string) string {
	if strings.IndexByte(s, '"') < 0 {
		return s
	}
	var b strings.Builder
	in := false
	for i := range len(s) {
		if s[i] == '"' {
			in = !in
			continue
		}
		if !in {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
