package form

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Nest is a call with the calls in its arguments: serve(bake(dough)) or (serve (bake "dough")).
type Nest struct {
	Name     string
	Off, End int
	Kids     []*Nest
	// Open is set if the text ends before the closing bracket.
	Open bool
}

// Count returns the number of calls: c and all calls inside it.
func (c *Nest) Count() int {
	n := 1
	for _, k := range c.Kids {
		n += k.Count()
	}
	return n
}

// Nests returns the calls that begin a line, with the calls in their arguments. An assignment may precede a
// call.
func Nests(src *Source) []*Nest {
	var out []*Nest
	end := 0
	for i := range src.Lines {
		l := &src.Lines[i]
		if l.Off < end || l.Fence || l.Text == "" {
			continue
		}
		p := &callParser{s: src.Text, max: src.MaxDepth}
		at := l.Off + b2i(l.Text[0] == '`')
		if c := p.lisp(at, 0); c != nil {
			end = p.pos
			out = append(out, c)
			continue
		}
		if eq := strings.Index(l.Text, "="); eq > 0 && at == l.Off && eq < 40 && callName(l.Text[:eq]) == strings.TrimSpace(l.Text[:eq]) {
			at += eq + 1
			for at < l.End && src.Text[at] == ' ' {
				at++
			}
		}
		if strings.HasPrefix(src.Text[at:l.End], "return ") {
			at += len("return ")
		}
		if c := p.call(at, 0); c != nil {
			end = p.pos
			out = append(out, c)
		} else if c := p.applied(at, l.End); c != nil {
			end = p.pos
			out = append(out, c)
		}
	}
	return out
}

// applied reads a line that applies functions without commas: publish (review (draft "peat")).
func (p *callParser) applied(i, end int) *Nest {
	name := callName(p.s[i:min(end, i+120)])
	c := &Nest{Name: name, Off: i, End: end}
	p.pos = i + len(name)
	for name != "" && p.pos < end {
		switch ch := p.s[p.pos]; ch {
		case ' ':
			p.pos++
		case '"', '\'':
			p.quoted(ch)
		default:
			k := p.lisp(p.pos, 1)
			if k == nil || k.Open || k.End > end {
				return nil
			}
			c.Kids = append(c.Kids, k)
		}
	}
	if c.Count() < 3 {
		return nil
	}
	return c
}

type callParser struct {
	s   string
	pos int
	max int
}

// callName returns the name at the start of s: letters of any script, digits, _ and, between them, dots and
// dashes.
func callName(s string) string {
	end := 0
	for i, r := range s {
		switch {
		case unicode.IsLetter(r), unicode.IsMark(r), r == '_', i > 0 && unicode.IsDigit(r):
			end = i + utf8.RuneLen(r)
			continue
		case i > 0 && (r == '.' || r == '-' || r == ':' || r == '!' || r == '?'):
			continue
		}
		break
	}
	return s[:end]
}

// call reads name(…) at i, or returns nil.
func (p *callParser) call(i, depth int) *Nest {
	name := callName(p.s[i:min(len(p.s), i+120)])
	if name == "" || i+len(name) >= len(p.s) || p.s[i+len(name)] != '(' || depth > p.max {
		return nil
	}
	c := &Nest{Name: name, Off: i}
	p.pos = i + len(name) + 1
	p.inside(c, depth, func(at int) *Nest {
		if at > 0 && (IsWordByte(p.s[at-1]) || p.s[at-1] == '.' || p.s[at-1] >= utf8.RuneSelf) {
			return nil
		}
		return p.call(at, depth+1)
	})
	return c
}

// lisp reads (name …) at i, or returns nil.
func (p *callParser) lisp(i, depth int) *Nest {
	if i >= len(p.s) || p.s[i] != '(' || depth > p.max {
		return nil
	}
	name := callName(p.s[i+1 : min(len(p.s), i+120)])
	end := i + 1 + len(name)
	if name == "" || end >= len(p.s) || strings.IndexByte(" \n\t)", p.s[end]) < 0 {
		return nil
	}
	c := &Nest{Name: name, Off: i}
	p.pos = end
	p.inside(c, depth, func(at int) *Nest { return p.lisp(at, depth+1) })
	return c
}

// inside reads up to the bracket that closes c.
func (p *callParser) inside(c *Nest, depth int, kid func(at int) *Nest) {
	brackets := 0
	start := p.pos
	for p.pos < len(p.s) {
		switch ch := p.s[p.pos]; {
		case ch == '"' || ch == '\'':
			p.quoted(ch)
			continue
		case ch == '\n' && strings.HasPrefix(p.s[p.pos:], "\n\n") && depth == 0 && p.pos == start,
			strings.HasPrefix(p.s[p.pos:], "\n```"):
			c.Open, c.End = true, p.pos
			return
		case ch == ')' && brackets == 0:
			p.pos++
			c.End = p.pos
			return
		case ch == '#' && p.pos > 0 && p.s[p.pos-1] == ' ', ch == ';' && p.pos > 0 && (p.s[p.pos-1] == ' ' || p.s[p.pos-1] == '\n'):
			for p.pos < len(p.s) && p.s[p.pos] != '\n' {
				p.pos++
			}
			continue
		}
		if k := kid(p.pos); k != nil {
			c.Kids = append(c.Kids, k)
			if k.Open {
				c.Open, c.End = true, k.End
				return
			}
			continue
		}
		switch p.s[p.pos] {
		case '(':
			brackets++
		case ')':
			brackets--
		}
		if name := callName(p.s[p.pos:min(len(p.s), p.pos+120)]); name != "" {
			p.pos += len(name)
		} else {
			p.pos++
		}
	}
	c.Open, c.End = true, len(p.s)
}

// quoted skips a quoted text. An apostrophe within a word is no quote.
func (p *callParser) quoted(q byte) {
	i := p.pos + 1
	for i < len(p.s) && p.s[i] != q && p.s[i] != '\n' {
		if p.s[i] == '\\' {
			i++
		}
		i++
	}
	if i < len(p.s) && p.s[i] == q {
		p.pos = i + 1
		return
	}
	p.pos++
}
