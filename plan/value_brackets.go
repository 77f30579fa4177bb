package plan

import (
	"strings"
	"unicode/utf8"
)

// pop closes the innermost bracket.
func (p *valueParser) pop() { p.stack = p.stack[:len(p.stack)-1] }

// closes decides what a closing bracket that does not fit the innermost open one does: it reports true when an outer
// bracket is meant, so that the inner one was forgotten.
func (p *valueParser) closes(c byte) bool {
	open := map[byte]byte{'}': '{', ']': '[', ')': '('}[c]
	for i := len(p.stack) - 2; i >= 0; i-- {
		if p.stack[i] == open {
			return true
		}
	}
	return false
}

// peekKey reports whether after an optional comma at i a key with its colon follows.
func (p *valueParser) peekKey(i int) bool {
	for i < len(p.s) && strings.IndexByte(" \t\r\n,", p.s[i]) >= 0 {
		i++
	}
	return i < len(p.s) && (p.s[i] == '"' || p.s[i] == '\'') && keyAt(p.s, i)
}

// peekObject reports whether after a comma at i an object follows.
func (p *valueParser) peekObject(i int) bool {
	comma := false
	for i < len(p.s) && strings.IndexByte(" \t\r\n,", p.s[i]) >= 0 {
		comma = comma || p.s[i] == ','
		i++
	}
	return comma && i < len(p.s) && p.s[i] == '{'
}

func (p *valueParser) unclosed(v *value, name string) {
	v.open = true
	v.end = p.pos
	p.fault(Error, Unclosed, v.off, name, "the "+name+" opened here is not closed", "write the closing bracket")
	p.pop()
}

func (p *valueParser) readFields(v *value) *value {
	p.depth++
	defer func() { p.depth-- }()
	needComma := false
	for {
		p.skip()
		if p.pos >= len(p.s) || p.budget <= 0 {
			p.t.cutOff = true
			p.unclosed(v, "{")
			return v
		}
		switch c := p.s[p.pos]; c {
		case '}':
			p.pos++
			v.end = p.pos
			p.pop()
			return v
		case ',', ';':
			p.pos++
			if !needComma {
				p.t.quirks++
			}
			needComma = false
			continue
		case ']', ')':
			if p.closes(c) && !p.peekKey(p.pos+1) {
				p.unclosed(v, "{")
				return v
			}
			p.fault(Error, Unbalanced, p.pos, string(c), "a closing bracket has no opening one", "check the brackets before this place")
			p.pos++
			continue
		case '{':
			if len(v.fields) == 0 {
				if !p.t.anyKeys {
					p.fatal = true
					return v
				}
				p.unclosed(v, "{")
				return v
			}
			if len(p.stack) >= 2 && p.stack[len(p.stack)-2] == '[' {
				p.unclosed(v, "{")
				return v
			}
			if last := &v.fields[len(v.fields)-1]; !needComma && last.val.kind == kindObject {
				// "key": {…}, {…}: a list without its opening bracket.
				p.fault(Error, Unbalanced, last.val.off, last.key, "the list of "+last.key+" has no opening [", "write the [ before its first object")
				p.stack = append(p.stack, '[')
				last.val = p.readItems(&value{kind: kindList, off: last.val.off, items: []*value{last.val}}, ']')
				needComma = true
				if p.fatal {
					return v
				}
				continue
			}
			p.fault(Error, Malformed, p.pos, "{", "an object stands where a key is expected", "close the object before it")
			p.unclosed(v, "{")
			return v
		}
		f := field{off: p.pos}
		k := p.readKey()
		if k == nil || p.fatal {
			if !p.resync() {
				return v
			}
			continue
		}
		f.key = k.str
		a, b, joined := strings.Cut(k.str, `" "`)
		if !joined {
			a, b, joined = strings.Cut(k.str, `' '`)
		}
		if joined && k.kind == kindString && isName(a) {
			// "key" "value": what looks like one text with quotes in it has lost its colon.
			p.t.anyKeys = true
			p.fault(Error, Malformed, f.off, a, "the colon after this key is missing", "write a colon")
			v.fields = append(v.fields, field{a, f.off, &value{kind: kindString, str: b, off: f.off, end: k.end}})
			needComma = true
			continue
		}
		p.skip()
		if p.pos >= len(p.s) {
			p.t.cutOff = true
			p.unclosed(v, "{")
			return v
		}
		switch {
		case p.s[p.pos] == ':' || p.s[p.pos] == '=':
			p.pos++
			if p.pos < len(p.s) && p.s[p.pos] == '>' {
				p.pos++
			}
		case strings.HasPrefix(p.s[p.pos:], "："):
			p.pos += len("：")
			p.t.quirks++
		case k.kind == kindString && isName(strings.ReplaceAll(k.str, " ", "_")) && p.startsValue():
			p.t.anyKeys = true
			p.fault(Error, Malformed, f.off, f.key, "the colon after this key is missing", "write a colon")
		default:
			if !p.resync() {
				return v
			}
			continue
		}
		if needComma {
			p.t.quirks++
			p.fault(Warning, Malformed, f.off, f.key, "a comma is missing", "write a comma before this key")
		}
		if k.kind == kindString {
			p.t.anyKeys = true
		}
		p.skip()
		if p.pos < len(p.s) && (p.s[p.pos] == ',' || p.s[p.pos] == '}') {
			p.fault(Error, Malformed, f.off, f.key, "a key has no value", "write its value")
			v.fields = append(v.fields, field{f.key, f.off, &value{kind: kindNull, off: p.pos, end: p.pos}})
			needComma = true
			continue
		}
		f.val = p.readValue()
		if p.fatal {
			return v
		}
		if f.val == nil {
			if p.t.cutOff {
				p.unclosed(v, "{")
				return v
			}
			if !p.resync() {
				return v
			}
			continue
		}
		v.fields = append(v.fields, f)
		needComma = true
	}
}

// openKey returns the length of a key without its closing quote, as in "key: [, or 0.
func openKey(s string, i int) int {
	j := i + 1
	for j < len(s) && j < i+40 && (isWordByte(s[j]) || s[j] == ' ') {
		j++
	}
	if j == i+1 || j >= len(s) || s[j] != ':' {
		return 0
	}
	k := j + 1
	for k < len(s) && s[k] == ' ' {
		k++
	}
	if k >= len(s) || s[k] != '[' && s[k] != '{' && s[k] != s[i] {
		return 0
	}
	if s[k] == s[i] {
		// "note: " may be a text that ends here.
		for k++; k < len(s) && s[k] == ' '; {
			k++
		}
		if k >= len(s) || strings.IndexByte(":,]}\n\r", s[k]) >= 0 {
			return 0
		}
	}
	return j - i
}

// startsValue reports whether a value in quotes or brackets, or a number, stands here.
func (p *valueParser) startsValue() bool {
	c := p.s[p.pos]
	return c == '"' || c == '\'' || c == '[' || c == '{' || c == '-' || '0' <= c && c <= '9'
}

// resync skips to where reading can go on after something that is no value. It gives the candidate up when nothing in
// it has looked like data yet.
func (p *valueParser) resync() bool {
	if !p.t.anyKeys {
		p.fatal = true
		return false
	}
	start := p.pos
	p.fault(Error, Malformed, start, clip(p.s[start:min(len(p.s), start+40)]), "this is no key or value", "check quotes, commas and brackets here")
	if p.pos < len(p.s) && strings.IndexByte(",]}", p.s[p.pos]) < 0 {
		p.pos++
	}
	for p.pos < len(p.s) && strings.IndexByte(",]}\n\"", p.s[p.pos]) < 0 {
		p.pos++
	}
	if p.pos < len(p.s) && p.s[p.pos] == '"' && p.pos == start {
		p.pos++
	}
	return true
}

func (p *valueParser) readKey() *value {
	c := p.s[p.pos]
	if c == '"' || c == '\'' || c == '`' {
		if n := openKey(p.s, p.pos); n > 0 {
			v := &value{kind: kindString, str: p.s[p.pos+1 : p.pos+n], off: p.pos, end: p.pos + n}
			p.fault(Error, Unclosed, p.pos, v.str, "a key has lost its closing quote", "write the closing quote")
			p.pos += n
			return v
		}
		return p.readString(c)
	}
	if strings.HasPrefix(p.s[p.pos:], "“") {
		return p.readSmart("“", "”")
	}
	j := p.pos
	for j < len(p.s) && j < p.pos+64 && (isWordByte(p.s[j]) || p.s[j] == '-' || p.s[j] >= utf8.RuneSelf) {
		j++
	}
	if j == p.pos {
		return nil
	}
	v := &value{kind: kindBare, str: p.s[p.pos:j], off: p.pos, end: j}
	p.t.quirks++
	p.pos = j
	if rest := strings.TrimLeft(p.s[j:min(len(p.s), j+8)], `"' `); j < len(p.s) && (p.s[j] == '"' || p.s[j] == '\'') && strings.HasPrefix(rest, ":") {
		p.fault(Error, Malformed, v.off, v.str, "a key has lost its opening quote", "write the opening quote")
		v.kind = kindString
		p.pos++
	}
	return v
}

func (p *valueParser) readItems(v *value, closing byte) *value {
	p.depth++
	defer func() { p.depth-- }()
	name := string(p.stack[len(p.stack)-1])
	commas := 0
	for {
		p.skip()
		if p.pos >= len(p.s) || p.budget <= 0 {
			p.t.cutOff = true
			p.unclosed(v, name)
			return v
		}
		switch c := p.s[p.pos]; c {
		case closing:
			p.pos++
			v.end = p.pos
			p.pop()
			return v
		case ',', ';':
			commas++
			p.pos++
			continue
		case '}', ']', ')':
			if p.closes(c) && !p.peekObject(p.pos+1) {
				p.unclosed(v, name)
				return v
			}
			sev := Warning
			if p.closes(c) {
				sev = Error
			}
			p.fault(sev, Unbalanced, p.pos, string(c), "a closing bracket has no opening one", "check the brackets before this place")
			p.pos++
			continue
		}
		start := p.pos
		// A keyword argument of a call.
		if v.kind == kindCall && isWordByte(p.s[p.pos]) {
			j := p.pos
			for j < len(p.s) && j < p.pos+64 && isWordByte(p.s[j]) {
				j++
			}
			if j+1 < len(p.s) && p.s[j] == '=' && p.s[j+1] != '=' {
				key := p.s[p.pos:j]
				p.pos = j + 1
				val := p.readValue()
				if p.fatal {
					return v
				}
				if val != nil {
					p.t.anyKeys = true
					v.fields = append(v.fields, field{key, start, val})
				}
				continue
			}
		}
		item := p.readValue()
		if p.fatal {
			return v
		}
		if item == nil {
			if p.t.cutOff {
				p.unclosed(v, name)
				return v
			}
			if !p.resync() {
				return v
			}
			continue
		}
		p.skip()
		if v.kind == kindList && closing == ')' && len(v.items) == 0 && item.kind == kindString && p.pos < len(p.s) && p.s[p.pos] == ':' {
			p.fault(Error, Unbalanced, v.off, "(", "a ( stands where a { should open an object", "write {")
			p.pos = item.off
			p.stack[len(p.stack)-1] = '{'
			p.t.anyKeys = true
			return p.readFields(&value{kind: kindObject, off: v.off})
		}
		if item.isScalar() && p.pos < len(p.s) && p.s[p.pos] == ':' && (item.kind == kindString) && closing == ']' {
			// A key inside a list: either the list's end or an object's start was forgotten.
			if (len(v.items) == 0 && commas > 0 || len(v.items) > 0 && v.items[len(v.items)-1].isScalar()) && len(p.stack) >= 2 && p.stack[len(p.stack)-2] == '{' {
				p.pos = item.off
				p.unclosed(v, name)
				return v
			}
			p.fault(Error, Unbalanced, item.off, "{", "a key stands in a list: the opening { is missing", "write the { before this key")
			p.pos = item.off
			p.t.anyKeys = true
			p.stack = append(p.stack, '{')
			item = p.readFields(&value{kind: kindObject, off: start})
			if p.fatal {
				return v
			}
		}
		if a, b, ok := splitTexts(item); ok {
			p.fault(Error, Malformed, b.off, clip(b.str), "a comma is missing before this text", "write a comma")
			v.items = append(v.items, a, b)
			continue
		}
		v.items = append(v.items, item)
	}
}

// splitTexts splits "a" "b", which reads like one text with quotes in it, at its inner quotes.
func splitTexts(v *value) (a, b *value, ok bool) {
	if v.kind != kindString || v.out <= v.in {
		return nil, nil, false
	}
	for _, sep := range [...]string{`" "`, `' '`} {
		first, second, found := strings.Cut(v.str, sep)
		if found && first != "" && second != "" && !strings.Contains(second, sep) && !strings.ContainsAny(first+second, sep[:1]) {
			at := v.off + len(first) + 3
			return &value{kind: kindString, str: first, off: v.off, end: v.off + len(first) + 2}, &value{kind: kindString, str: second, off: at, end: v.end}, true
		}
	}
	return nil, nil, false
}
