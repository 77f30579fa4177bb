package plan

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readAssignments reads programs such as "1. x = FIND(CTX, "y") : text" and "2. ans = CONCAT(x, z)". The id
// of a problem is its number, or its variable where lines have no numbers. Edges come from the use of
// variables.
func readAssignments(d *document) *reading {
	prog, strange, unread, ok := assignmentLines(d)
	if !ok {
		return nil
	}
	r := &reading{edgesStated: true, start: prog[0].off, openEnded: true}
	for _, l := range unread {
		r.diag(d, Error, Malformed, l.off, form.Clip(firstLine(l.text)), "this line looks like a step but cannot be read", "write 1. name = CALL(arguments)")
	}
	// A numbered line before the program whose number the program uses again is not part of it; it may list
	// the actions that the program may call. Any other numbered line without an assignment is a step.
	for len(strange) > 0 && strange[0].off < prog[0].off && slices.ContainsFunc(prog, func(p programLine) bool { return p.id == strange[0].id }) {
		r.diag(d, Warning, SkippedText, strange[0].off, strange[0].id, "this line is no assignment and has the number of one; it was left out", "write only the program")
		strange = strange[1:]
	}
	if prog[0].id != "" {
		prog = append(prog, strange...)
		slices.SortStableFunc(prog, func(a, b programLine) int { return a.off - b.off })
	}
	r.linkAssignments(d, prog)
	return r
}

// assignmentLines returns the assignments of calls (only the numbered ones, if there are any), the other
// numbered lines, and the lines that look like assignments but cannot be read. ok reports whether they make
// up a program.
func assignmentLines(d *document) (prog, strange []programLine, unread []line, ok bool) {
	numbered, plain, other, good := 0, 0, 0, 0
	var holders []string
	for _, l := range programLines(d) {
		p, ok := readProgramLine(l, true)
		switch {
		case ok && strings.HasPrefix(p.rest, "("):
			// This calls the result of a call. Such text is code, and the reader of statements reads it.
			return nil, nil, nil, false
		case !ok:
			if !isCommentLine(l.text) {
				other++
			}
			if num, rest, isNum := cutNumber(l.text); isNum && len(rest) < len(l.text)-len(num) {
				strange = append(strange, unassignedStep(l, num, rest))
			} else if i := strings.Index(l.text, " = "); i > 0 && i < 80 && strings.Contains(l.text[i:], "(") && form.IsName(l.text[strings.LastIndexByte(l.text[:i], ' ')+1:i]) {
				unread = append(unread, l)
			}
			continue
		case holdsSteps(p):
			holders = append(holders, p.variable+".")
			continue
		case p.id == "" && slices.ContainsFunc(holders, func(h string) bool { return strings.HasPrefix(p.callee, h) }):
			continue // crew.kickoff()
		case p.id != "":
			numbered++
		case p.lostOpen:
			other++
			continue
		default:
			plain++
		}
		good += b2i(!p.lostOpen)
		prog = append(prog, p)
	}
	if numbered == 0 {
		// A call whose result is assigned to nothing is a step as well.
		return prog, nil, nil, plain >= 2 && plain > other*2 && !looksLikeCode(d) && !callsMore(d, holders)
	}
	prog = slices.DeleteFunc(prog, func(p programLine) bool { return p.id == "" })
	return prog, strange, unread, len(strange) < numbered && good > 0
}

// linkAssignments adds the problems of a program, and an edge for each use of a variable.
func (r *reading) linkAssignments(d *document, prog []programLine) {
	defs := map[string]string{} // variable -> id of the problem that set it last
	later := map[string]string{}
	for i := len(prog) - 1; i >= 0; i-- {
		if prog[i].variable != "" {
			later[prog[i].variable] = prog[i].id
		}
	}
	for i := range prog {
		p := &prog[i]
		id := p.id
		if id == "" {
			id = p.variable
		}
		r.end = p.argsOff + len(p.args)
		x := d.problem(id, p.whole, p.off)
		x.Tool = p.callee
		if p.id == "" {
			x.Request = p.callee + "(" + p.args + ")"
		}
		switch {
		case p.variable == "":
			r.diag(d, Error, Malformed, p.off, id, "step "+id+" is no assignment of a call", "write name = CALL(arguments)")
		case p.unclosed:
			r.diag(d, Error, Unclosed, p.argsOff, id, "the call in step "+id+" is not closed", "write the closing )")
		case p.lostOpen:
			r.diag(d, Error, Malformed, p.argsOff, id, "step "+id+" does not call anything", "write name = CALL(arguments)")
		}
		seen := map[string]bool{}
		for _, u := range identifiers(p.args) {
			from, ok := defs[u.name]
			if !ok {
				if from, ok = later[u.name]; !ok || from == id && p.variable == u.name {
					continue
				}
				r.diag(d, Error, UndefinedVariable, p.argsOff+u.off, u.name, "step "+id+" uses "+u.name+" before step "+from+" sets it", "set it first")
			}
			ref := Reference{Text: u.name, To: from}
			ref.Line, ref.Column = d.place(p.argsOff + u.off)
			if x.Refs = append(x.Refs, ref); !seen[from] {
				seen[from] = true
				r.edge(d, from, id, Variable, p.argsOff+u.off)
			}
		}
		for _, a := range splitArgs(p.args) {
			arg, value := callArg(a)
			for _, u := range identifiers(value) {
				if _, ok := defs[u.name]; ok {
					arg.Kind = Referring
				}
			}
			x.Args = append(x.Args, arg)
		}
		if old, ok := defs[p.variable]; ok && old != id {
			r.diag(d, Warning, Redefined, p.off, p.variable, "step "+id+" sets "+p.variable+" again; later uses mean this step, not step "+old, "use another name")
		}
		if p.variable != "" {
			defs[p.variable] = id
		}
		r.graph.Problems = append(r.graph.Problems, x)
	}
}

// callsMore reports whether a line is a call whose result is assigned to nothing, or sets two variables. In
// such a text the assignments are not the whole program.
func callsMore(d *document, holders []string) bool {
	for _, l := range d.lines {
		i := strings.IndexByte(l.text, '(')
		if names, _, ok := strings.Cut(l.text, " = "); ok && i > len(names) {
			if a, b, two := strings.Cut(names, ", "); two && form.IsName(a) && form.IsName(b) {
				return true // a, b = f(x), g(x)
			}
		}
		if i <= 0 || !strings.HasSuffix(strings.TrimRight(l.text, "; "), ")") {
			continue
		}
		callee := strings.TrimPrefix(l.text[:i], "await ")
		silent := callee == "print" || stepHolders[callee] || slices.ContainsFunc(holders, func(h string) bool { return strings.HasPrefix(callee, h) })
		if !silent && form.IsName(strings.ReplaceAll(callee, ".", "_")) {
			return true
		}
	}
	return false
}

// stepHolders are callees that only collect steps made elsewhere.
var stepHolders = map[string]bool{"Plan": true, "Workflow": true, "Pipeline": true, "Crew": true, "Flow": true, "DAG": true, "TaskGraph": true}

// holdsSteps reports whether a line only collects the steps before it, as plan = Plan([a, b]) does.
func holdsSteps(p programLine) bool {
	return p.id == "" && stepHolders[p.callee] && (strings.HasPrefix(p.args, "[") || strings.Contains(p.args, "tasks=[") || strings.Contains(p.args, "steps=["))
}

// unassignedStep makes a step of a numbered line without an assignment.
func unassignedStep(l line, num, rest string) programLine {
	p := programLine{id: num, whole: rest, off: l.off, argsOff: l.off + len(l.text) - len(rest)}
	if i := strings.IndexByte(rest, '('); i >= 0 {
		end, _ := callEnd(rest[i+1:])
		p.args, p.argsOff = rest[i+1:i+1+end], p.argsOff+i+1
	}
	return p
}

// looksLikeCode reports whether the text is a source file rather than a plan written as assignments.
func looksLikeCode(d *document) bool {
	for _, l := range d.lines {
		for _, w := range []string{"def ", "class ", "import ", "from ", "return ", "if ", "for ", "while ", "print(", "func ", "package ", "const ", "#include", "with ", "async ", "export ", "@"} {
			if strings.HasPrefix(l.text, w) {
				return true
			}
		}
	}
	return false
}

// identifier is a name outside quotes.
type identifier struct {
	name string
	off  int
}

func identifiers(s string) []identifier {
	var out []identifier
	quote := byte(0)
	for i := 0; i < len(s); {
		c := s[i]
		if quote != 0 {
			if c == '\\' {
				i++
			} else if c == quote && (quote == '"' || i+1 >= len(s) || strings.IndexByte(",)] :", s[i+1]) >= 0) {
				quote = 0
			}
			i++
			continue
		}
		switch {
		case c == '"', c == '\'' && (i == 0 || strings.IndexByte("(,[ =f", s[i-1]) >= 0):
			quote = c
			if i > 0 && (s[i-1] == 'f' || s[i-1] == 'F') && (i == 1 || !form.IsWordByte(s[i-2])) {
				out = append(out[:max(0, len(out)-1)], embedded(s, i)...)
			}
			i++
		case form.IsWordByte(c):
			j := i
			for j < len(s) && form.IsWordByte(s[j]) {
				j++
			}
			// A name before "=" is the name of an argument.
			if t := strings.TrimLeft(s[j:], " "); !strings.HasPrefix(t, "=") || strings.HasPrefix(t, "==") {
				out = append(out, identifier{s[i:j], i})
			}
			i = j
		default:
			i++
		}
	}
	return out
}

// embedded returns the names in the braces of the f-string whose quote is at i.
func embedded(s string, i int) (out []identifier) {
	for j := i + 1; j < len(s) && s[j] != s[i]; j++ {
		if s[j-1] != '{' {
			continue
		}
		k := j
		for k < len(s) && form.IsWordByte(s[k]) {
			k++
		}
		if k > j && k < len(s) && strings.IndexByte("}.[:!", s[k]) >= 0 {
			out = append(out, identifier{s[j:k], j})
		}
	}
	return out
}

// splitArgs splits at the commas outside quotes and brackets.
func splitArgs(s string) []string {
	var out []string
	depth, start := 0, 0
	quote := byte(0)
	for i := range len(s) {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case c == ',' && depth <= 0:
			out = append(out, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	if last := strings.TrimSpace(s[start:]); last != "" || len(out) > 0 {
		out = append(out, last)
	}
	return out
}
