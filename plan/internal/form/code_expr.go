package form

import (
	"strings"
	"unicode/utf8"
)

// expr reads operands with operators between them.
func (p *codeParser) expr() *Expr { return p.exprUntil(false) }

func (p *codeParser) exprUntil(inArgs bool) *Expr {
	p.depthGuard()
	first := p.operand()
	if first == nil {
		return &Expr{Off: p.i, End: p.i}
	}
	if p.depth > p.max {
		return first
	}
	e := &Expr{Kind: Ops, Off: first.Off, Args: []ArgExpr{{Val: first}}}
	for {
		op, n := p.operator(inArgs)
		if n == 0 {
			break
		}
		p.i += n
		next := p.function(op == "=>")
		if next == nil {
			next = p.operand()
		}
		if next == nil {
			if op == "=>" || op == "," {
				break
			}
			e.Open = true
			break
		}
		e.Ops = append(e.Ops, op)
		e.Args = append(e.Args, ArgExpr{Val: next})
	}
	e.End = p.i
	if len(e.Args) == 1 && len(e.Ops) == 0 {
		return first
	}
	return e
}

func (p *codeParser) depthGuard() {
	if p.depth > p.max {
		p.line()
	}
}

// operators are ordered by length, longest first. Outside brackets a comma joins operands as well.
var operators = [...]string{">>>", "===", "!==", "**", "??", "&&", "||", ">>", "<<", "==", "!=", "<=", ">=", "=>", "->", "|>", "|", "&", "+", "-", "*", "/", "%", "<", ">", "?", "^", "~"}

// wordOps are operators written as words.
var wordOps = [...]string{"and", "or", "in", "is", "not", "if", "else", "for", "as", "of", "instanceof"}

// operator returns the operator at this place. It may be at the start of the next line.
func (p *codeParser) operator(inArgs bool) (string, int) {
	p.blank()
	rest := p.s[p.i:]
	skip := 0
	if p.depth == 0 && strings.HasPrefix(rest, "\n") {
		next := strings.TrimLeft(rest[:min(len(rest), 200)], " \t\r\n")
		if !strings.HasPrefix(next, ">>") && !strings.HasPrefix(next, "<<") && !strings.HasPrefix(next, "| ") && !strings.HasPrefix(next, "|> ") && !strings.HasPrefix(next, "&& ") {
			return "", 0
		}
		skip = min(len(rest), 200) - len(next)
		rest = rest[skip:]
	}
	if rest == "" || rest[0] == '\n' {
		return "", 0
	}
	if rest[0] == ',' && !inArgs && p.depth == 0 {
		return ",", skip + 1
	}
	if rest[0] == '-' && strings.HasPrefix(rest, "-- ") || strings.HasPrefix(rest, "<- ") || strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*") {
		return "", 0
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			if len(op) == 1 && len(rest) > 1 && rest[1] == '=' && strings.IndexByte("+-*|&", op[0]) >= 0 {
				return "", 0 // x += 1
			}
			return op, skip + len(op)
		}
	}
	if n := nameEnd(rest[:min(len(rest), 12)], ""); n > 0 {
		for _, w := range wordOps {
			if rest[:n] == w {
				return w, skip + n
			}
		}
	}
	return "", 0
}

// operand reads a name, a text, a number or an expression in brackets, and the calls and members behind it.
func (p *codeParser) operand() *Expr {
	p.blank()
	await := false
	for p.i < len(p.s) {
		rest := p.s[p.i:]
		n := nameEnd(rest[:min(len(rest), 12)], "")
		switch w := rest[:n]; {
		case (w == "await" || w == "new" || w == "not" || w == "async" || w == "try" || w == "go" || w == "yield" || w == "spawn") && n < len(rest) && (rest[n] == ' ') && !strings.HasPrefix(rest[n:], " {"):
			await = await || w == "await"
			p.i += n
		case n == 0 && (rest[0] == '!' || rest[0] == '*' || rest[0] == '-' || rest[0] == '+' || rest[0] == '&' || strings.HasPrefix(rest, "...")):
			p.i += map[bool]int{true: 3, false: 1}[strings.HasPrefix(rest, "...")]
			if rest[0] == '.' && (p.i >= len(p.s) || p.s[p.i] == '\n') {
				return &Expr{Off: p.i - 3, End: p.i}
			}
		default:
			e := p.primary()
			if e == nil {
				return nil
			}
			e = p.suffixes(e)
			e.Await = await
			return e
		}
		p.blank()
	}
	return nil
}

// function reads an anonymous function: "func(a int) error {", "function () {", "async () => {". Behind an
// arrow it reads only the body. It returns nil if there is no function.
func (p *codeParser) function(arrow bool) *Expr {
	p.blank()
	rest := p.s[p.i:min(len(p.s), p.i+200)]
	n := 0
	if !arrow {
		w := nameEnd(rest, "")
		if word := rest[:w]; word != "func" && word != "function" && word != "fn" {
			return nil
		}
		t := strings.TrimLeft(rest[w:], " *")
		t = t[nameEnd(t, ""):]
		if !strings.HasPrefix(t, "(") {
			return nil
		}
		n = strings.IndexByte(rest, '{')
		if line := strings.IndexByte(rest, '\n'); n < 0 || line >= 0 && line < n {
			return nil
		}
	}
	if n >= len(rest) || rest[n] != '{' || p.depth > p.max || p.functions > 40 {
		return nil
	}
	e := &Expr{Kind: Func, Off: p.i}
	p.i += n + 1
	e.Stmts = p.body()
	e.End = p.i
	return e
}

// body reads statements up to their closing brace, and skips the brace.
func (p *codeParser) body() []*Stmt {
	depth, indent, index := p.depth, p.indent, p.index
	p.depth, p.index = 0, false
	p.functions++
	var all []*Stmt
	level := 0
	for p.i < len(p.s) {
		if c := p.s[p.i]; c == '\n' || c == '\r' || c == ' ' || c == '\t' {
			p.i++
			continue
		}
		from := p.i
		st := p.statement(indent)
		if st != nil {
			if st.Word == "}" {
				level--
			}
			if level < 0 {
				break
			}
			all = append(all, st)
			level += b2i(st.opens == '{')
		}
		if p.i == from {
			p.i++
		}
	}
	p.functions--
	p.depth, p.indent, p.index = depth, indent, index
	at := 0
	return nest(all, &at, -1, true, 0)
}

// typedLiteral returns the type in front of a Go literal in braces: []Task{, map[string][]string{.
func typedLiteral(s string) string {
	n := 0
	for n < len(s) && (strings.HasPrefix(s[n:], "[]") || n == 0 && strings.HasPrefix(s, "map[")) {
		n += max(strings.IndexByte(s[n:min(len(s), n+60)], ']')+1, 1)
	}
	if n > 0 && s[n-1] == ']' {
		n += b2i(strings.HasPrefix(s[n:], "*"))
		if n += nameEnd(s[n:], "."); n < len(s) && s[n] == '{' {
			return s[:n]
		}
	}
	return ""
}

func (p *codeParser) primary() *Expr {
	off, rest := p.i, p.s[p.i:]
	if f := p.function(false); f != nil {
		return f
	}
	typed := typedLiteral(rest)
	p.i += len(typed)
	switch c := rest[len(typed)]; {
	case c == '"' || c == '\'' || c == '`':
		return p.text(0)
	case strings.HasPrefix(rest, "“"):
		if n := strings.Index(rest[:min(len(rest), 5000)], "”"); n > 0 {
			p.i += n + len("”")
			return &Expr{Kind: Text, Text: rest[len("“"):n], Off: off, End: p.i}
		}
		return nil
	case c == '(' || c == '[' || c == '{':
		p.i++
		if p.depth++; p.depth > p.max {
			p.line()
			p.depth--
			return &Expr{Off: off, End: p.i}
		}
		index := p.index
		p.index = false
		e := &Expr{Kind: List, Text: typed, Off: off, Args: p.args(Closer(c))}
		p.depth--
		p.index = index
		e.Open = p.s[p.i-1] != Closer(c)
		e.End = p.i
		return e
	case '0' <= c && c <= '9':
		n := nameEnd(rest, ".")
		p.i += n
		return &Expr{Kind: Digits, Text: rest[:n], Off: off, End: p.i}
	}
	if rest[0] == ':' && p.depth > 0 && !p.index { // a symbol
		if n := nameEnd(rest[1:], ""); n > 0 {
			p.i += n + 1
			return &Expr{Kind: Text, Text: rest[1 : n+1], Off: off, End: p.i}
		}
	}
	n := 0
	if rest[0] == '$' || rest[0] == '#' || rest[0] == '@' {
		n = 1
		if len(rest) > 1 && rest[1] == '{' {
			if k := strings.IndexByte(rest[:min(len(rest), 100)], '}'); k > 0 {
				p.i += k + 1
				return &Expr{Kind: Ident, Text: "$" + strings.TrimSpace(rest[2:k]), Off: off, End: p.i}
			}
		}
	}
	k := nameEnd(rest[n:], "")
	if k == 0 {
		return nil
	}
	n += k
	p.i += n
	if n <= 2 && p.i < len(p.s) && (p.s[p.i] == '"' || p.s[p.i] == '\'') && strings.Trim(strings.ToLower(rest[:n]), "rbfu") == "" {
		return p.text(n)
	}
	return &Expr{Kind: Ident, Text: rest[:n], Off: off, End: p.i}
}

// text reads a quoted text, also with triple quotes.
func (p *codeParser) text(prefix int) *Expr {
	off := p.i - prefix
	q := p.s[p.i]
	rest := p.s[p.i:]
	if len(rest) > 5 && rest[1] == q && rest[2] == q {
		n := strings.Index(rest[3:], rest[:3])
		e := &Expr{Kind: Text, Off: off}
		if n < 0 {
			e.Text, e.Open = rest[3:], true
			p.i = len(p.s)
		} else {
			e.Text = rest[3 : 3+n]
			p.i += n + 6
		}
		e.End = p.i
		return e
	}
	for j := 1; j < len(rest); j++ {
		switch c := rest[j]; {
		case c == '\\':
			j++
		case c == q:
			p.i += j + 1
			return &Expr{Kind: Text, Text: rest[1:j], Off: off, End: p.i}
		case c == '\n' && q != '`' || j > 4000:
			if p.depth > 0 && c == '\n' { // the end of enclosing brackets is not part of the text
				j = len(strings.TrimRight(rest[:j], " \t\r)]},;"))
			}
			p.i += j
			return &Expr{Kind: Text, Text: rest[1:j], Off: off, End: p.i, Open: true}
		}
	}
	p.i = len(p.s)
	return &Expr{Kind: Text, Text: rest[1:], Off: off, End: p.i, Open: true}
}

// blockTakers are functions that take a block of statements without brackets.
var blockTakers = map[string]bool{"async": true, "launch": true, "coroutineScope": true, "supervisorScope": true, "runBlocking": true, "thread": true, "Task": true, "future": true}

// suffixes reads calls, members and indexes behind an operand.
func (p *codeParser) suffixes(e *Expr) *Expr {
	for range 10_000 {
		if p.depth > 0 {
			p.blank()
		}
		if p.i >= len(p.s) {
			return e
		}
		rest := p.s[p.i:]
		if p.depth == 0 && (rest[0] == '\n' || rest[0] == ' ' || rest[0] == '\r') {
			// A chain of calls continues on the next line.
			t := strings.TrimLeft(rest[:min(len(rest), 200)], " \t\r\n")
			if strings.HasPrefix(t, ".") && len(t) > 1 && nameEnd(t[1:], "") > 0 && strings.IndexByte(rest[:min(len(rest), 200)-len(t)], '\n') >= 0 {
				p.i += min(len(rest), 200) - len(t)
				rest = p.s[p.i:]
			}
		}
		if len(rest) > 1 && (rest[0] == '!' && rest[1] == '(' && e.Kind != Call || rest[0] == '?' && strings.IndexByte(";\n.)", rest[1]) >= 0 && e.Kind == Attr) {
			p.i++ // a macro, or the operator that passes an error on
			rest = rest[1:]
		}
		// async { f(x) }
		if e.Kind == Ident && blockTakers[e.Text] && strings.HasPrefix(rest, " {") && p.functions < 40 && p.depth <= p.max {
			p.i += 2
			f := &Expr{Kind: Func, Off: p.i - 1, Stmts: p.body()}
			f.End = p.i
			return &Expr{Kind: Call, Base: e, Args: []ArgExpr{{Val: f}}, Off: e.Off, End: p.i}
		}
		switch {
		case strings.HasPrefix(rest, "?."), strings.HasPrefix(rest, "::"), rest[0] == '.':
			n := 2
			if rest[0] == '.' {
				n = 1
			}
			k := nameEnd(rest[n:], "")
			if k == 0 {
				return e
			}
			e = &Expr{Kind: Attr, Base: e, Text: rest[n : n+k], Off: e.Off, End: p.i + n + k}
			p.i += n + k
		case (rest[0] == '(' || rest[0] == '[' || rest[0] == '{' && e.Kind == Ident && (p.depth > 0 || 'A' <= e.Text[0] && e.Text[0] <= 'Z')) && e.Kind != Digits && e.Kind != Text && p.depth <= p.max:
			p.i++
			p.depth++
			index := p.index
			p.index = rest[0] == '['
			args := p.args(Closer(rest[0]))
			p.depth--
			p.index = index
			kind := Call
			if rest[0] == '[' {
				kind = Index
			}
			e = &Expr{Kind: kind, Base: e, Args: args, Off: e.Off, End: p.i, Open: p.s[p.i-1] != Closer(rest[0])}
		default:
			return e
		}
	}
	return e
}

// args reads arguments up to the closing bracket, and skips the bracket. An argument may have a key: k=v, k:
// v, "k": v.
func (p *codeParser) args(end byte) (out []ArgExpr) {
	for {
		p.blank()
		if p.i >= len(p.s) {
			return out
		}
		c := p.s[p.i]
		if c == '\n' {
			return out
		}
		if c == end {
			p.i++
			return out
		}
		if c == ')' || c == ']' || c == '}' {
			p.i++ // a bracket of another kind
			return out
		}
		if c == ',' || c == ';' {
			p.i++
			continue
		}
		from := p.i
		a := ArgExpr{Val: p.exprUntil(true)}
		p.blank()
		if p.i < len(p.s) && (p.s[p.i] == '=' || p.s[p.i] == ':') && !strings.HasPrefix(p.s[p.i:], "==") {
			if k := a.Val.path(); k != "" || a.Val.Kind == Text || a.Val.Kind == Digits {
				a.Key = k
				if k == "" {
					a.Key = a.Val.Text
				}
				p.i++
				a.Val = p.exprUntil(true)
				if p.blank(); p.i < len(p.s) && p.s[p.i] == '=' { // name: type = default
					p.i++
					a.Val = p.exprUntil(true)
				}
			}
		}
		out = append(out, a)
		if p.i == from {
			_, n := utf8.DecodeRuneInString(p.s[p.i:])
			p.i += n
		}
	}
}
