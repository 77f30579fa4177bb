package form

import (
	"strings"
)

// ExprKind is the kind of an expression.
type ExprKind uint8

const (
	// Other is an unknown or empty expression.
	Other ExprKind = iota
	// Ident is a name, held by Text.
	Ident
	// Attr is a member of Base, named by Text.
	Attr
	// Call is a call of Base with Args.
	Call
	// Index is Base with Args in square brackets.
	Index
	// Text is a quoted text, without its quotes.
	Text
	// List is an expression in brackets: a list, a tuple, a set, an object.
	List
	// Ops are Args with operators between them.
	Ops
	// Digits is a number.
	Digits
	// Func is an anonymous function; Stmts are its body.
	Func
)

// Expr is an expression in some programming language.
type Expr struct {
	Kind     ExprKind
	Text     string
	Base     *Expr
	Args     []ArgExpr
	Ops      []string
	Stmts    []*Stmt
	Await    bool
	Open     bool // its closing bracket is missing
	Off, End int
}

// ArgExpr is one argument, or one operand.
type ArgExpr struct {
	Key string
	Val *Expr
}

// Stmt is one statement. Word is the keyword of its kind (import, def, class, with, for, if, return, @, …),
// or empty.
type Stmt struct {
	Word    string
	Label   Piece
	Targets []Piece
	// Name and Params belong to a definition.
	Name   Piece
	Params []string
	Expr   *Expr
	Body   []*Stmt
	Marks  []*Expr // decorators
	// Adds is set if the assignment adds to the value of the variable: x += f().
	Adds bool
	// Clean is set if the whole line was understood. Note is the comment behind the statement.
	Clean    bool
	Note     string
	Indent   int
	Off, End int
	opens    byte
}

// path returns the dotted name of an expression, or "" if it is no such name.
func (e *Expr) path() string {
	if e == nil {
		return ""
	}
	switch e.Kind {
	case Ident:
		return e.Text
	case Attr:
		if p := e.Base.path(); p != "" {
			return p + "." + e.Text
		}
	}
	return ""
}

// Path returns the dotted name of an expression, or "" if it is no such name.
func (e *Expr) Path() string { return e.path() }

// Statements reads the lines in [first, end) as statements of a program.
func Statements(src *Source, first, end int) []*Stmt {
	if first >= end {
		return nil
	}
	p := &codeParser{s: src.Text[:src.Lines[end-1].End], max: min(src.MaxDepth, 100)}
	var all []*Stmt
	for k := first; k < end; {
		l := &src.Lines[k]
		if l.Text == "" || l.Fence {
			k++
			continue
		}
		p.i = l.Off
		for indent := l.Indent; ; {
			st := p.statement(indent)
			if st != nil {
				all = append(all, st)
				indent += b2i(st.opens == ':') // the text behind the colon is the body
			}
			p.blank()
			if p.i >= len(p.s) || p.s[p.i] == '\n' {
				break
			}
		}
		k = max(k+1, src.LineAt(min(p.i, len(src.Text)))+b2i(p.i >= len(p.s)))
		if p.i < len(p.s) && p.s[p.i] == '\n' {
			k = src.LineAt(p.i) + 1
		}
	}
	at := 0
	return nest(all, &at, -1, false, 0)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nest moves statements into the blocks that contain them: up to the closing brace, or as long as they are
// indented deeper.
func nest(all []*Stmt, at *int, indent int, brace bool, depth int) (out []*Stmt) {
	var marks []*Expr
	for *at < len(all) {
		st := all[*at]
		if brace && st.Word == "}" {
			return out
		}
		if !brace && st.Indent <= indent && st.Word != "}" {
			return out
		}
		*at++
		if st.Word == "}" {
			continue
		}
		if st.Word == "@" {
			marks = append(marks, st.Expr)
			continue
		}
		st.Marks, marks = marks, nil
		if depth < 100 {
			switch st.opens {
			case '{':
				st.Body = nest(all, at, st.Indent, true, depth+1)
				if *at < len(all) && all[*at].Word == "}" {
					st.End = all[*at].End
					*at++
				}
			case ':':
				st.Body = nest(all, at, st.Indent, false, depth+1)
			}
		}
		if n := len(st.Body); n > 0 {
			st.End = max(st.End, st.Body[n-1].End)
		}
		out = append(out, st)
	}
	return out
}

type codeParser struct {
	s     string
	i     int
	depth int
	max   int
	// indent is the indentation of the current statement.
	indent int
	// index is set inside the brackets of an index: x[…].
	index bool
	// functions counts the functions whose bodies are open.
	functions int
}

// blank skips spaces. Inside brackets it skips line ends as well.
func (p *codeParser) blank() {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; {
		case c == ' ' || c == '\t' || c == '\r':
			p.i++
		case c == '\\' && p.i+1 < len(p.s) && (p.s[p.i+1] == '\n' || p.s[p.i+1] == '\r'):
			p.i += 2
		case c == '\n' && p.depth > 0:
			if p.startsAnew(p.s[p.i+1 : min(len(p.s), p.i+160)]) {
				return
			}
			p.i++
		case p.depth > 0 && p.comment() > 0:
			p.i += p.comment()
		default:
			return
		}
	}
}

// startsAnew reports whether a statement begins on a line although a bracket is still open. The closing
// bracket is then missing.
func (p *codeParser) startsAnew(next string) bool {
	t := strings.TrimLeft(next, " \t")
	indent := len(next) - len(t)
	if n := strings.IndexByte(t, '\n'); n >= 0 {
		t = t[:n]
	}
	k := 0
	for k < len(t) && '0' <= t[k] && t[k] <= '9' {
		k++
	}
	if k > 0 && k < 4 && (strings.HasPrefix(t[k:], ". ") || strings.HasPrefix(t[k:], ") ")) {
		return true
	}
	n := nameEnd(t, "")
	if n == 0 || indent > p.indent || !strings.HasPrefix(t[n:], " = ") {
		return false
	}
	v := strings.TrimPrefix(t[n+3:], "await ")
	k = nameEnd(v, ".")
	return k > 0 && strings.HasPrefix(v[k:], "(")
}

// comment returns the length of the comment at this place, up to the end of the line.
func (p *codeParser) comment() int {
	rest := p.s[p.i:]
	if strings.HasPrefix(rest, "/*") {
		if n := strings.Index(rest, "*/"); n >= 0 {
			return n + 2
		}
		return len(rest)
	}
	hash := rest[0] == '#' && (len(rest) < 2 || strings.IndexByte(" #!-=\n", rest[1]) >= 0 || rest[1] >= 'a' && rest[1] <= 'z' || rest[1] >= 0x80 || p.i > 0 && rest[1] != 'E')
	if !hash && !strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "-- ") {
		return 0
	}
	if n := strings.IndexByte(rest, '\n'); n >= 0 {
		return n
	}
	return len(rest)
}

// codeWords are the first words of statements that do no work by themselves, with the kind of the statement.
var codeWords = map[string]string{
	"import": "import", "from": "import", "using": "import", "package": "import", "require": "import", "use": "import", "#include": "import",
	"def": "def", "function": "def", "func": "def", "fn": "def", "fun": "def", "sub": "def", "class": "class", "interface": "class", "struct": "class", "enum": "class", "type": "class",
	"with": "with", "for": "for", "foreach": "for", "while": "for", "loop": "for", "if": "if", "elif": "if", "elsif": "if", "else": "else", "unless": "if", "switch": "if", "match": "if", "case": "if", "try": "try",
	"except": "else", "catch": "else", "finally": "with", "return": "return", "yield": "return", "pass": "pass", "break": "pass", "continue": "pass", "raise": "pass", "throw": "pass", "defer": "pass", "each": "for", "every": "for", "global": "pass", "nonlocal": "pass", "del": "pass", "assert": "pass",
}

// softWords stand before definitions and assignments and are ignored.
var softWords = map[string]bool{"const": true, "let": true, "var": true, "val": true, "final": true, "auto": true, "my": true, "export": true, "default": true, "public": true, "private": true, "protected": true, "static": true, "async": true, "pub": true, "local": true, "mut": true, "suspend": true, "override": true, "virtual": true, "internal": true, "sealed": true, "abstract": true, "then": true, "set": true, "LET": true, "SET": true}

// statement reads one statement. It stops at the end of the line, or behind a semicolon or a brace.
func (p *codeParser) statement(indent int) *Stmt {
	p.blank()
	p.indent = indent
	st := &Stmt{Indent: indent, Off: p.i, Clean: true}
	for p.i < len(p.s) && (p.s[p.i] == ';' || p.s[p.i] == ',' || p.s[p.i] == ')') {
		p.i++
		p.blank()
	}
	if p.i >= len(p.s) || p.s[p.i] == '\n' {
		return nil
	}
	if n := p.comment(); n > 0 {
		p.i += n
		return nil
	}
	switch p.s[p.i] {
	case '}':
		p.i++
		st.Word, st.End = "}", p.i
		return st
	case '@':
		p.i++
		st.Word, st.Expr = "@", p.expr()
		return p.finish(st)
	}
	p.label(st)
	p.word(st)
	if st.Word == "" && p.typedDefinition() {
		st.Word = "def"
	}
	p.setTo(st)
	if st.Word == "import" || st.Word == "pass" {
		p.line()
		return p.finish(st)
	}
	if st.Word == "def" || st.Word == "class" {
		p.definition(st)
		return p.finish(st)
	}
	if st.Word == "else" || st.Word == "try" {
		p.header(st)
		return p.finish(st)
	}
	e := p.expr()
	if p.assigns() {
		st.Targets = targets(e)
		for p.assigns() {
			st.Adds = strings.IndexByte("+-*|&.", p.s[p.i]) >= 0
			p.i += assignSign(p.s[p.i:])
			if st.Targets == nil {
				st.Clean = false
			}
			e = p.expr()
			if p.assigns() {
				st.Targets = append(st.Targets, targets(e)...)
			}
		}
	}
	if st.Expr = e; st.Label.Text != "" && e.Kind == Index {
		e.Kind = Call // Tool[input]
	}
	p.header(st)
	return p.finish(st)
}

// typedDefinition skips the type in front of a definition, as in "Task<int> LoadAsync(string id) {", and
// reports whether there is one.
func (p *codeParser) typedDefinition() bool {
	rest := p.s[p.i:min(len(p.s), p.i+300)]
	n := nameEnd(rest, ".")
	if n > 0 && n < len(rest) && rest[n] == '<' {
		e := strings.IndexByte(rest[n:], '>')
		for e > 0 && n+e+1 < len(rest) && rest[n+e+1] == '>' {
			e++
		}
		n += e + 1
	}
	if n == 0 || n >= len(rest) || rest[n] != ' ' {
		return false
	}
	t := rest[n+1:]
	k := nameEnd(t, "")
	if k == 0 || !strings.HasPrefix(t[k:], "(") || codeWords[rest[:n]] != "" || rest[:n] == "await" || rest[:n] == "new" || rest[:n] == "go" {
		return false
	}
	c := strings.IndexByte(t, ')')
	if c < 0 || strings.ContainsAny(t[k:c], "\"'{=") {
		return false
	}
	end := strings.TrimLeft(t[c+1:], " \r\n\t")
	if !strings.HasPrefix(end, "{") && !strings.HasPrefix(end, "throws ") {
		return false
	}
	p.i += n + 1
	return true
}

// setTo reads "raw TO " behind SET, and skips the type in "String raw = ".
func (p *codeParser) setTo(st *Stmt) {
	rest := p.s[p.i:min(len(p.s), p.i+200)]
	n := nameEnd(rest, ".")
	if n == 0 || n >= len(rest) || st.Word != "" {
		return
	}
	if t := rest[n:]; len(t) > 4 && strings.EqualFold(t[:4], " to ") && p.i >= 4 && strings.EqualFold(p.s[p.i-4:p.i], "set ") {
		st.Targets = []Piece{{rest[:n], p.i}}
		p.i += n + 4
		return
	}
	k := n
	if rest[k] == '<' {
		if e := strings.IndexByte(rest[k:], '>'); e > 0 {
			k += e + 1
		}
	}
	for k+1 < len(rest) && rest[k] == '[' && rest[k+1] == ']' {
		k += 2
	}
	t := strings.TrimLeft(rest[k:], " ")
	if m := nameEnd(t, ""); m > 0 && len(t) < len(rest)-k && strings.HasPrefix(t[m:], " = ") {
		p.i += len(rest) - len(t)
	}
}

// label reads "1. ", "2) ", "- ", "E1: ", "$1 = " and "#E1 = " in front of a statement.
func (p *codeParser) label(st *Stmt) {
	rest := p.s[p.i:min(len(p.s), p.i+80)]
	for _, b := range [...]string{"- ", "* ", "• ", ">>> ", "$ "} {
		if strings.HasPrefix(rest, b) {
			p.i += len(b)
			rest = rest[len(b):]
		}
	}
	n := 0
	for n < len(rest) && ('0' <= rest[n] && rest[n] <= '9') {
		n++
	}
	if n > 0 && n+1 < len(rest) && strings.IndexByte(".):", rest[n]) >= 0 && (rest[n+1] == ' ' || rest[n+1] == '\t') {
		st.Label = Piece{rest[:n], p.i}
		p.i += n + 1
		p.blank()
		return
	}
	if rest != "" && (rest[0] == '$' || rest[0] == '#') {
		k := 1 + nameEnd(rest[1:], "")
		t := strings.TrimLeft(rest[k:], " \t")
		if k > 1 && t != "" && (t[0] == '=' || t[0] == ':') {
			st.Label = Piece{rest[:k], p.i}
			p.i += len(rest) - len(t) + 1
			p.i += b2i(p.i < len(p.s) && p.s[p.i] == '=')
			p.blank()
		}
		return
	}
	k := nameEnd(rest, "-")
	if t := strings.TrimLeft(rest[k:], " "); k > 0 && strings.HasPrefix(t, ": ") || k > 0 && strings.HasPrefix(t, " : ") {
		if c := nameEnd(strings.TrimLeft(t[1:], " :"), "."); c > 0 && codeWords[rest[:k]] == "" && !softWords[rest[:k]] {
			u := strings.TrimLeft(t[1:], " :")
			if c < len(u) && (u[c] == '(' || u[c] == '[') {
				st.Label = Piece{rest[:k], p.i}
				p.i += len(rest) - len(u)
			}
		}
	}
}

// word reads the keywords in front of a statement.
func (p *codeParser) word(st *Stmt) {
	for range 6 {
		n := nameEnd(p.s[p.i:], "")
		w := p.s[p.i : p.i+n]
		next := byte(' ')
		if p.i+n < len(p.s) {
			next = p.s[p.i+n]
		}
		if n == 0 || next == '.' || next == '=' || next == ',' {
			return
		}
		kind, ok := codeWords[w]
		if !ok && !softWords[w] || (next == '(' && kind != "if" && kind != "for" && kind != "def") {
			return
		}
		if t := strings.TrimLeft(p.s[p.i+n:min(len(p.s), p.i+n+10)], " "); strings.HasPrefix(t, "= ") || strings.HasPrefix(t, "=\"") {
			return
		}
		p.i += n
		p.blank()
		if ok && st.Word == "for" && kind != "for" {
			p.i -= n // the value that a loop iterates over
			return
		}
		if ok {
			st.Word = kind
			if kind != "for" || w == "each" || w == "every" {
				return
			}
		} else if st.Word == "" && declares[w] && p.declaresOnly() {
			st.Word = "pass"
			return
		}
	}
}

// declares are keywords that may stand before a variable and its type.
var declares = map[string]bool{"var": true, "let": true, "val": true, "mut": true, "local": true}

// declaresOnly reports whether the rest of the line names a variable and its type, without a value.
func (p *codeParser) declaresOnly() bool {
	rest := p.s[p.i:min(len(p.s), p.i+200)]
	if n := strings.IndexByte(rest, '\n'); n >= 0 {
		rest = rest[:n]
	}
	n := nameEnd(rest, "")
	return n > 0 && strings.IndexByte(rest, '=') < 0 && strings.IndexByte(rest, '{') < 0 && strings.TrimSpace(rest[n:]) != ""
}

// definition reads "name(params)" up to the sign that opens the body.
func (p *codeParser) definition(st *Stmt) {
	p.blank()
	if p.i < len(p.s) && p.s[p.i] == '(' && st.Word == "def" { // a Go receiver
		p.expr()
	}
	n := nameEnd(p.s[p.i:], ".")
	st.Name = Piece{p.s[p.i : p.i+n], p.i}
	p.i += n
	if p.i < len(p.s) && p.s[p.i] == '(' {
		p.depth++
		p.i++
		for _, a := range p.args(')') {
			name := a.Key
			if name == "" && a.Val != nil {
				e := a.Val
				for e.Kind == Ops && len(e.Args) > 0 {
					e = e.Args[0].Val
				}
				name = e.path()
			}
			st.Params = append(st.Params, name)
		}
		p.depth--
	}
	p.header(st)
}

// header looks for the sign that opens a body behind a statement.
func (p *codeParser) header(st *Stmt) {
	p.blank()
	end := strings.IndexByte(p.s[p.i:], '\n')
	if end < 0 {
		end = len(p.s) - p.i
	}
	line := p.s[p.i : p.i+end]
	if st.Word != "" {
		cut := strings.TrimRight(stripComment(line), " \t\r")
		if k := strings.IndexByte(cut, '{'); k >= 0 {
			st.opens = '{'
			p.i += k + 1
			return
		}
		if strings.HasSuffix(cut, ":") {
			st.opens = ':'
			p.i += end
			return
		}
		if cut == "" {
			if next := strings.TrimLeft(p.s[p.i:], " \t\r\n"); strings.HasPrefix(next, "{") {
				st.opens = '{'
				p.i = len(p.s) - len(next) + 1
			}
			return
		}
		if strings.HasPrefix(cut, ":") {
			p.i++
			st.opens = ':'
			return
		}
	}
	if strings.HasPrefix(line, "{") {
		st.opens = '{'
		p.i++
	} else if strings.HasPrefix(line, ":") && strings.TrimSpace(stripComment(line[1:])) == "" {
		st.opens = ':'
		p.i += end
	}
}

func stripComment(s string) string {
	for _, mark := range [...]string{"  #", " # ", "//"} {
		if i := strings.Index(s, mark); i >= 0 {
			s = s[:i]
		}
	}
	return s
}

// line skips the rest of the line.
func (p *codeParser) line() {
	if n := strings.IndexByte(p.s[p.i:], '\n'); n >= 0 {
		p.i += n
	} else {
		p.i = len(p.s)
	}
}

// finish reads the rest of the line.
func (p *codeParser) finish(st *Stmt) *Stmt {
	st.End = p.i
	p.blank()
	if p.i >= len(p.s) || p.s[p.i] == '\n' || st.opens != 0 {
		return st
	}
	if p.s[p.i] == ';' {
		p.i++
		return st
	}
	if p.s[p.i] == '}' {
		return st
	}
	if n := p.comment(); n > 0 {
		st.Note = strings.Trim(p.s[p.i:p.i+n], "#/*- ")
		p.i += n
		return st
	}
	from := p.i
	p.line()
	rest := strings.TrimSpace(p.s[from:p.i])
	if strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "<END") || strings.HasPrefix(rest, "`") {
		st.Note = strings.TrimLeft(rest, ": ")
	} else {
		st.Clean = false
	}
	st.End = p.i
	return st
}

// assigns reports whether an assignment sign follows, possibly behind a type.
func (p *codeParser) assigns() bool {
	p.blank()
	rest := p.s[p.i:min(len(p.s), p.i+120)]
	if n := strings.IndexByte(rest, '\n'); n >= 0 {
		rest = rest[:n]
	}
	if strings.HasPrefix(rest, "=") {
		return !strings.HasPrefix(rest, "==") && !strings.HasPrefix(rest, "=>")
	}
	if len(rest) > 1 && rest[1] == '=' && strings.IndexByte("+-*|&.", rest[0]) >= 0 {
		return true
	}
	if strings.HasPrefix(rest, ":=") || strings.HasPrefix(rest, "?=") || strings.HasPrefix(rest, "←") || strings.HasPrefix(rest, "<- ") {
		return true
	}
	if strings.HasPrefix(rest, ":") {
		k := strings.IndexByte(rest, '=')
		return k > 1 && strings.IndexByte(rest, '(') < 0 || k > 1 && k < strings.IndexByte(rest, '(')
	}
	return false
}

// assignSign returns the length of the text up to the end of the assignment sign.
func assignSign(s string) int {
	for _, sign := range [...]string{"←", "<-"} {
		if strings.HasPrefix(s, sign) {
			return len(sign)
		}
	}
	return strings.IndexByte(s, '=') + 1
}

// targets returns the names that an assignment sets.
func targets(e *Expr) []Piece {
	switch {
	case e == nil:
		return nil
	case e.Kind == Ident:
		return []Piece{{e.Text, e.Off}}
	case e.Kind == Attr:
		return []Piece{{e.Text, e.Off}}
	case e.Kind == List || e.Kind == Ops:
		var out []Piece
		for _, o := range e.Ops {
			if o != "," {
				return nil
			}
		}
		for _, a := range e.Args {
			out = append(out, targets(a.Val)...)
		}
		return out
	}
	return nil
}
