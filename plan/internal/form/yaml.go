package form

import (
	"strings"
)

// YAML returns the YAML blocks of the text, in fences or between prose: maps, lists, scalars, block scalars
// and flow values. It does not interpret the lines, so some prose with colons is among the blocks.
func YAML(src *Source) []*Tree {
	var trees []*Tree
	budget := maxValueNodes
	for i := 0; i < len(src.Lines) && budget > 0; {
		if !yamlStarts(src, i) {
			i++
			continue
		}
		p := &yamlParser{src: src, t: &Tree{YAML: true, AnyKeys: true}, i: i, budget: budget}
		if v := p.block(src.Lines[i].Indent, 0); v != nil && !v.IsScalar() {
			v.Off, v.End = src.Lines[i].Off, p.last
			p.t.Root = v
			trees = append(trees, p.t)
		}
		budget = p.budget
		i = max(p.i, i+1)
	}
	return trees
}

// yamlStarts reports whether a block may start at line i: "key:" or "- key: value", but not a sentence that
// ends with a colon.
func yamlStarts(src *Source, i int) bool {
	l := &src.Lines[i]
	if l.Text == "" || l.Fence || l.Text[0] == '#' {
		return false
	}
	if i > 0 && l.Indent > 0 {
		// Lines indented below a line without a key belong to that line.
		if up := &src.Lines[i-1]; up.Text != "" && !up.Fence && up.Indent < l.Indent {
			if _, rest, ok := yamlKey(strings.TrimLeft(up.Text, "- ")); !ok || rest != "" && up.Text[0] != '-' {
				return false
			}
		}
	}
	rest, isItem := cutItem(l.Text)
	for isItem {
		l = &Line{Text: rest}
		rest, isItem = cutItem(rest)
	}
	key, val, ok := yamlKey(l.Text)
	if !ok {
		return false
	}
	if strings.ContainsAny(key, ".,;(`!?…，、（*|=") && (val == "" || !src.Lines[i].InCode) && strings.Count(key, " ") > 0 {
		return false
	}
	return strings.Count(key, " ") < 5
}

func cutItem(t string) (string, bool) {
	if t == "-" {
		return "", true
	}
	if rest, ok := strings.CutPrefix(t, "- "); ok {
		return strings.TrimLeft(rest, " "), true
	}
	return t, false
}

// yamlKey splits "key: value" at its colon.
func yamlKey(t string) (key, rest string, ok bool) {
	if t == "" {
		return "", "", false
	}
	t = strings.TrimPrefix(t, "? ")
	if q := t[0]; q == '"' || q == '\'' {
		end := strings.IndexByte(t[1:], q)
		if end < 0 || end+2 >= len(t) || t[end+2] != ':' {
			return "", "", false
		}
		return t[1 : end+1], strings.TrimSpace(t[end+3:]), true
	}
	if strings.IndexByte("[{&!|>%@`", t[0]) >= 0 {
		return "", "", false
	}
	for i := 0; i < len(t) && i < 120; i++ {
		if t[i] == ':' && (i+1 == len(t) || t[i+1] == ' ' || t[i+1] == '\t') {
			return strings.TrimSpace(t[:i]), strings.TrimSpace(t[i+1:]), i > 0
		}
	}
	return "", "", false
}

type yamlParser struct {
	src     *Source
	t       *Tree
	i, last int
	budget  int
}

func (p *yamlParser) fault(l *Line, message string) {
	if len(p.t.Faults) < 1000 {
		p.t.Faults = append(p.t.Faults, Fault{true, codeMalformed, l.Off, Clip(l.Text), message, "check the indentation"})
	}
}

// next returns the next line with content, or nil at the end of the fence or the text.
func (p *yamlParser) next() *Line {
	for p.i < len(p.src.Lines) {
		l := &p.src.Lines[p.i]
		if l.Fence || l.Text == "---" || l.Text == "..." {
			return nil
		}
		if l.Text != "" && l.Text[0] != '#' {
			return l
		}
		p.i++
	}
	return nil
}

// take consumes the line l.
func (p *yamlParser) take(l *Line) {
	p.i++
	p.budget--
	p.last = l.End
}

// block reads the map or list whose lines have the indentation indent.
func (p *yamlParser) block(indent, depth int) *Value {
	l := p.next()
	if l == nil || depth > p.src.MaxDepth {
		return nil
	}
	if _, isItem := cutItem(l.Text); isItem {
		return p.list(indent, depth)
	}
	if _, _, isKey := yamlKey(l.Text); !isKey {
		return nil
	}
	v := &Value{Kind: KindObject, Off: l.Off}
	p.fields(v, indent, depth)
	v.End = p.last
	return v
}

func (p *yamlParser) list(indent, depth int) *Value {
	v := &Value{Kind: KindList, Off: p.next().Off}
	for p.budget > 0 {
		l := p.next()
		if l == nil {
			break
		}
		rest, isItem := cutItem(l.Text)
		if l.Indent > indent && depth > 0 {
			p.fault(l, "this line is indented differently from the list around it")
			p.take(l)
			continue
		}
		if l.Indent != indent || !isItem {
			break
		}
		p.take(l)
		if x := p.item(l, rest, indent+len(l.Text)-len(rest), depth+1); x != nil {
			v.Items = append(v.Items, x)
		}
	}
	v.End = p.last
	return v
}

// item reads the text behind the dash of line l, and the lines that belong to it. inner is the column of
// rest.
func (p *yamlParser) item(l *Line, rest string, inner, depth int) *Value {
	off := l.End - len(rest)
	if rest == "" {
		if n := p.next(); n != nil && n.Indent > l.Indent {
			return p.block(n.Indent, depth)
		}
		return nil
	}
	if depth > p.src.MaxDepth {
		return nil
	}
	if sub, isItem := cutItem(rest); isItem {
		// "- - name: x": a list in a list.
		list := &Value{Kind: KindList, Off: off}
		if x := p.item(l, sub, inner+len(rest)-len(sub), depth+1); x != nil {
			list.Items = append(list.Items, x)
		}
		for n := p.next(); n != nil && n.Indent == inner; n = p.next() {
			more, ok := cutItem(n.Text)
			if !ok {
				break
			}
			p.take(n)
			if x := p.item(n, more, inner+len(n.Text)-len(more), depth+1); x != nil {
				list.Items = append(list.Items, x)
			}
		}
		list.End = p.last
		return list
	}
	key, after, isKey := yamlKey(rest)
	if !isKey {
		return p.scalar(rest, off, l.Indent)
	}
	x := &Value{Kind: KindObject, Off: off}
	p.entry(x, key, after, off, inner, depth)
	if n := p.next(); n != nil && n.Indent > l.Indent && n.Indent != inner {
		if _, isItem := cutItem(n.Text); !isItem {
			inner = n.Indent // indented by tabs, or by more than the width of the dash
		}
	}
	p.fields(x, inner, depth)
	x.End = p.last
	return x
}

// fields reads the lines of a map.
func (p *yamlParser) fields(v *Value, indent, depth int) {
	for p.budget > 0 {
		l := p.next()
		if l == nil || l.Indent < indent {
			return
		}
		key, rest, isKey := yamlKey(l.Text)
		_, isItem := cutItem(l.Text)
		if l.Indent > indent || !isKey || isItem {
			if l.Indent <= indent && (depth == 0 || isItem) {
				return
			}
			if depth == 0 && !isKey {
				return
			}
			p.fault(l, "this line is no key of the map around it")
			p.take(l)
			continue
		}
		if depth == 0 && len(v.Fields) > 0 && p.i > 0 && p.src.Lines[p.i-1].Text == "" && !yamlStarts(p.src, p.i) {
			return
		}
		p.take(l)
		p.entry(v, key, rest, l.Off, indent, depth)
	}
}

// entry reads the value of key: the rest of its line, or the lines below it.
func (p *yamlParser) entry(v *Value, key, rest string, off, indent, depth int) {
	f := Field{Key: key, Off: off}
	rest = yamlPlain(rest)
	at := p.last - len(rest)
	if rest != "" {
		at = off + max(0, strings.Index(p.src.Text[off:p.last], rest))
	}
	switch {
	case rest == "":
		n := p.next()
		isItem := false
		if n != nil {
			_, isItem = cutItem(n.Text)
		}
		if n != nil && (n.Indent > indent || isItem && n.Indent == indent) {
			if f.Val = p.block(n.Indent, depth+1); f.Val == nil {
				f.Val = p.scalar("", n.Off, indent)
			}
		}
		if n == nil && p.i >= len(p.src.Lines) && len(v.Fields) > 0 {
			p.t.CutOff = true
		}
	case rest[0] == '|' || rest[0] == '>':
		f.Val = p.blockScalar(rest[0], indent, at)
	default:
		f.Val = p.scalar(rest, at, indent)
	}
	if f.Val == nil {
		f.Val = &Value{Kind: KindNull, Off: p.last, End: p.last}
	}
	v.Fields = append(v.Fields, f)
}

// yamlPlain removes a comment, an anchor and a tag from a value.
func yamlPlain(s string) string {
	for s != "" && (s[0] == '&' || s[0] == '!') {
		_, s, _ = strings.Cut(s, " ")
		s = strings.TrimLeft(s, " ")
	}
	if s == "" || s[0] == '"' || s[0] == '\'' {
		return s
	}
	if s[0] == '#' && !strings.HasPrefix(s, "#E") {
		return ""
	}
	if i := strings.Index(s, " #"); i >= 0 && !strings.HasPrefix(s[i+1:], "#E") {
		return strings.TrimSpace(s[:i])
	}
	return s
}

// scalar reads a flow value, a quoted text, or a plain text that may continue on lines that are indented
// deeper.
func (p *yamlParser) scalar(s string, off, indent int) *Value {
	s = yamlPlain(s)
	if s != "" && strings.IndexByte("[{\"'", s[0]) >= 0 && !strings.HasPrefix(s, "{{") {
		if v := p.flow(s, off); v != nil {
			return v
		}
	}
	v := &Value{Kind: KindString, Str: s, Off: off}
	for l := p.next(); l != nil && l.Indent > indent; l = p.next() {
		if _, isItem := cutItem(l.Text); isItem {
			break
		}
		if _, _, isKey := yamlKey(l.Text); isKey {
			break
		}
		v.Str = strings.TrimLeft(v.Str+" "+l.Text, " ")
		p.take(l)
	}
	v.End = off + len(s)
	return typed(v)
}

func isNumber(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return digits != "" && len(digits) < 18 && strings.Trim(digits, "0123456789.") == "" && strings.Count(digits, ".") < 2 && digits[0] != '.'
}

// flow reads a flow value or a quoted text at off. It ends with its line, unless its brackets are still open.
func (p *yamlParser) flow(s string, off int) *Value {
	end := off + len(s)
	if s[0] == '[' || s[0] == '{' {
		for k, n := p.i, 0; n < 20 && k < len(p.src.Lines) && unclosed(p.src.Text[off:end]); k, n = k+1, n+1 {
			l := &p.src.Lines[k]
			if _, isItem := cutItem(l.Text); l.Fence || isItem {
				break
			}
			end = l.End
		}
		if unclosed(p.src.Text[off:end]) && end < len(strings.TrimRight(p.src.Text, " \n")) {
			end = off + len(s)
		}
	}
	t, at := flowAt(p.src.Text[:end], off, p.src.MaxDepth)
	if t.Root == nil || strings.TrimSpace(yamlPlain(strings.TrimSpace(p.src.Text[at:max(at, off+len(s))]))) != "" {
		return nil
	}
	p.t.Faults = append(p.t.Faults, t.Faults...)
	p.t.CutOff = p.t.CutOff || t.CutOff && strings.TrimSpace(p.src.Text[end:]) == ""
	for p.i < len(p.src.Lines) && p.src.Lines[p.i].Off < at {
		p.take(&p.src.Lines[p.i])
	}
	return t.Root
}

// unclosed reports whether s opens more brackets than it closes, ignoring quoted texts.
func unclosed(s string) bool {
	n := 0
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote && s[i-1] != '\\' {
				quote = 0
			}
		case c == '"':
			quote = c
		case c == '[' || c == '{':
			n++
		case c == ']' || c == '}':
			n--
		}
	}
	return n > 0
}

func (p *yamlParser) blockScalar(style byte, indent, off int) *Value {
	var parts []string
	for p.i < len(p.src.Lines) {
		l := &p.src.Lines[p.i]
		if l.Fence || l.Text != "" && l.Indent <= indent {
			break
		}
		parts = append(parts, l.Text)
		p.take(l)
	}
	sep := "\n"
	if style == '>' {
		sep = " "
	}
	return &Value{Kind: KindString, Str: strings.TrimSpace(strings.Join(parts, sep)), Off: off, End: p.last}
}

// flowAt reads the YAML flow value that begins at off.
func flowAt(s string, off, maxDepth int) (*Tree, int) {
	p := newValueParser(s, off, maxDepth)
	p.yaml = true
	return p.one()
}

// readPlain reads a plain text of YAML. Colons and brackets of other kinds may be part of it: python:3.12,
// $(params.repo).
func (p *valueParser) readPlain() *Value {
	start := p.pos
	for ; p.pos < len(p.s); p.pos++ {
		c := p.s[p.pos]
		if strings.IndexByte(",[]{}\"\n", c) >= 0 || c == '#' && p.s[p.pos-1] == ' ' || c == ':' && (p.pos+1 == len(p.s) || strings.IndexByte(" \t\n[{", p.s[p.pos+1]) >= 0) {
			break
		}
	}
	text := strings.TrimSpace(p.s[start:p.pos])
	if text == "" {
		return nil
	}
	return typed(&Value{Kind: KindString, Str: text, Off: start, End: start + len(text)})
}

// typed sets the kind of a plain text: null, a truth value, a number, or a text.
func typed(v *Value) *Value {
	switch v.Str {
	case "null", "~":
		v.Kind, v.Str = KindNull, ""
	case "true", "false":
		v.Kind = KindBool
	default:
		if isNumber(v.Str) {
			v.Kind = KindNumber
		}
	}
	return v
}
