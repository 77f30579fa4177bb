package form

import "strings"

// yamlFlow reads a flow value of YAML, [a, b] or {a: b}, that begins at off and ends at or before end. In
// plain texts colons and brackets of other kinds are letters: python:3.12, $(params.repo). It fails on what
// is not well formed, which is left to the reader of damaged JSON.
func yamlFlow(s string, off, end, maxDepth int) (*Value, int, bool) {
	p := &flowParser{s: s[:end], pos: off, max: maxDepth}
	v := p.value(0)
	return v, p.pos, v != nil && !v.IsScalar()
}

type flowParser struct {
	s   string
	pos int
	max int
}

// skip passes white space and comments.
func (p *flowParser) skip() {
	for p.pos < len(p.s) {
		switch c := p.s[p.pos]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			p.pos++
		case c == '#' && strings.IndexByte(" \t\n", p.s[p.pos-1]) >= 0:
			for p.pos < len(p.s) && p.s[p.pos] != '\n' {
				p.pos++
			}
		default:
			return
		}
	}
}

// value reads one value; nil means that it is not well formed.
func (p *flowParser) value(depth int) *Value {
	p.skip()
	if p.pos >= len(p.s) || depth > p.max {
		return nil
	}
	switch p.s[p.pos] {
	case '[':
		return p.items(depth)
	case '{':
		return p.fields(depth)
	}
	return p.scalar()
}

func (p *flowParser) items(depth int) *Value {
	v := &Value{Kind: KindList, Off: p.pos}
	p.pos++
	for {
		if p.closes(v, ']') {
			return v
		}
		x := p.value(depth + 1)
		if x == nil || x.Text() == "" && x.IsScalar() && x.Kind != KindString && x.Kind != KindNull {
			return nil
		}
		p.skip()
		if p.pos < len(p.s) && p.s[p.pos] == ':' && x.IsScalar() {
			// [a: b] is a list of a map of one field.
			p.pos++
			val := p.value(depth + 1)
			if val == nil {
				return nil
			}
			x = &Value{Kind: KindObject, Off: x.Off, End: p.pos, Fields: []Field{{Key: x.Str, Off: x.Off, Val: val}}}
			p.skip()
		}
		v.Items = append(v.Items, x)
		if !p.more(']') {
			return nil
		}
	}
}

func (p *flowParser) fields(depth int) *Value {
	v := &Value{Kind: KindObject, Off: p.pos}
	p.pos++
	for {
		if p.closes(v, '}') {
			return v
		}
		if p.pos >= len(p.s) || strings.IndexByte("[{", p.s[p.pos]) >= 0 {
			return nil
		}
		key := p.scalar()
		if key == nil || key.Text() == "" {
			return nil
		}
		p.skip()
		f := Field{Key: key.Str, Off: key.Off, Val: &Value{Kind: KindNull, Off: p.pos, End: p.pos}}
		if p.pos < len(p.s) && p.s[p.pos] == ':' {
			p.pos++
			p.skip()
			if p.pos < len(p.s) && strings.IndexByte(",}", p.s[p.pos]) < 0 {
				if f.Val = p.value(depth + 1); f.Val == nil {
					return nil
				}
			}
		}
		v.Fields = append(v.Fields, f)
		if !p.more('}') {
			return nil
		}
	}
}

// closes passes the closing bracket of a value where it stands next, and ends the value there.
func (p *flowParser) closes(v *Value, closing byte) bool {
	p.skip()
	if p.pos >= len(p.s) || p.s[p.pos] != closing {
		return false
	}
	p.pos++
	v.End = p.pos
	return true
}

// more passes the comma behind a part, or reports that the closing bracket stands there.
func (p *flowParser) more(closing byte) bool {
	p.skip()
	if p.pos >= len(p.s) {
		return false
	}
	if p.s[p.pos] == ',' {
		p.pos++
		return true
	}
	return p.s[p.pos] == closing
}

func (p *flowParser) scalar() *Value {
	start := p.pos
	if q := p.s[p.pos]; q == '"' || q == '\'' {
		return p.quoted(q)
	}
	for p.pos < len(p.s) {
		c := p.s[p.pos]
		if strings.IndexByte(",[]{}\"\n", c) >= 0 || c == '#' && p.pos > start && p.s[p.pos-1] == ' ' {
			break
		}
		if c == ':' && (p.pos+1 == len(p.s) || strings.IndexByte(" \t\n,[]{}", p.s[p.pos+1]) >= 0) {
			break
		}
		p.pos++
	}
	text := strings.TrimSpace(p.s[start:p.pos])
	if text == "" || p.pos < len(p.s) && strings.IndexByte("[{\"", p.s[p.pos]) >= 0 {
		return nil
	}
	return typed(&Value{Kind: KindString, Str: text, Off: start, End: start + len(text)})
}

func (p *flowParser) quoted(q byte) *Value {
	start := p.pos
	escaped := false
	for p.pos++; p.pos < len(p.s); p.pos++ {
		switch c := p.s[p.pos]; {
		case c == '\\' && q == '"':
			escaped = true
			p.pos++
		case c == q && q == '\'' && p.pos+1 < len(p.s) && p.s[p.pos+1] == q:
			p.pos++
		case c == q:
			text := p.s[start+1 : p.pos]
			if q == '\'' {
				text = strings.ReplaceAll(text, "''", "'")
			}
			v := &Value{Kind: KindString, Str: Unescape(text, escaped), Off: start, In: int32(start + 1), Out: int32(p.pos)}
			p.pos++
			v.End = p.pos
			return v
		}
	}
	return nil
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
