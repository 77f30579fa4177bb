package form

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

func (p *valueParser) unclosed(v *Value, name string) {
	v.Open = true
	v.End = p.pos
	p.fault(true, codeUnclosed, v.Off, name, "the "+name+" opened here is not closed", "write the closing bracket")
	p.pop()
}

func (p *valueParser) readFields(v *Value) *Value {
	p.depth++
	defer func() { p.depth-- }()
	needComma := false
	for {
		p.skip()
		if p.pos >= len(p.s) || p.budget <= 0 {
			p.t.CutOff = true
			p.unclosed(v, "{")
			return v
		}
		switch c := p.s[p.pos]; c {
		case '}':
			p.pos++
			v.End = p.pos
			p.pop()
			return v
		case ',', ';':
			p.pos++
			if !needComma {
				p.t.Quirks++
			}
			needComma = false
			continue
		case ']', ')':
			if p.closes(c) && !p.peekKey(p.pos+1) {
				p.unclosed(v, "{")
				return v
			}
			p.fault(true, codeUnbalanced, p.pos, string(c), "a closing bracket has no opening one", "check the brackets before this place")
			p.pos++
			continue
		case '{':
			if len(v.Fields) == 0 {
				if !p.t.AnyKeys {
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
			if last := &v.Fields[len(v.Fields)-1]; !needComma && last.Val.Kind == KindObject {
				// "key": {…}, {…}: a list without its opening bracket.
				p.fault(true, codeUnbalanced, last.Val.Off, last.Key, "the list of "+last.Key+" has no opening [", "write the [ before its first object")
				p.stack = append(p.stack, '[')
				last.Val = p.readItems(&Value{Kind: KindList, Off: last.Val.Off, Items: []*Value{last.Val}}, ']')
				needComma = true
				if p.fatal {
					return v
				}
				continue
			}
			p.fault(true, codeMalformed, p.pos, "{", "an object stands where a key is expected", "close the object before it")
			p.unclosed(v, "{")
			return v
		}
		f := Field{Off: p.pos}
		k := p.readKey()
		if k == nil || p.fatal {
			if !p.resync() {
				return v
			}
			continue
		}
		f.Key = k.Str
		a, b, joined := strings.Cut(k.Str, `" "`)
		if !joined {
			a, b, joined = strings.Cut(k.Str, `' '`)
		}
		if joined && k.Kind == KindString && IsName(a) {
			// "key" "value": what looks like one text with quotes in it has lost its colon.
			p.t.AnyKeys = true
			p.fault(true, codeMalformed, f.Off, a, "the colon after this key is missing", "write a colon")
			v.Fields = append(v.Fields, Field{a, f.Off, &Value{Kind: KindString, Str: b, Off: f.Off, End: k.End}})
			needComma = true
			continue
		}
		p.skip()
		if p.pos >= len(p.s) {
			p.t.CutOff = true
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
			p.t.Quirks++
		case k.Kind == KindString && IsName(strings.ReplaceAll(k.Str, " ", "_")) && p.startsValue():
			p.t.AnyKeys = true
			p.fault(true, codeMalformed, f.Off, f.Key, "the colon after this key is missing", "write a colon")
		default:
			if !p.resync() {
				return v
			}
			continue
		}
		if needComma {
			p.t.Quirks++
			p.fault(false, codeMalformed, f.Off, f.Key, "a comma is missing", "write a comma before this key")
		}
		if k.Kind == KindString {
			p.t.AnyKeys = true
		}
		p.skip()
		if p.pos < len(p.s) && (p.s[p.pos] == ',' || p.s[p.pos] == '}') {
			p.fault(true, codeMalformed, f.Off, f.Key, "a key has no value", "write its value")
			v.Fields = append(v.Fields, Field{f.Key, f.Off, &Value{Kind: KindNull, Off: p.pos, End: p.pos}})
			needComma = true
			continue
		}
		f.Val = p.readValue()
		if p.fatal {
			return v
		}
		if f.Val == nil {
			if p.t.CutOff {
				p.unclosed(v, "{")
				return v
			}
			if !p.resync() {
				return v
			}
			continue
		}
		v.Fields = append(v.Fields, f)
		needComma = true
	}
}

// openKey returns the length of a key without its closing quote, as in "key: [, or 0.
func openKey(s string, i int) int {
	j := i + 1
	for j < len(s) && j < i+40 && (IsWordByte(s[j]) || s[j] == ' ') {
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
	if !p.t.AnyKeys {
		p.fatal = true
		return false
	}
	start := p.pos
	p.fault(true, codeMalformed, start, Clip(p.s[start:min(len(p.s), start+40)]), "this is no key or value", "check quotes, commas and brackets here")
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

func (p *valueParser) readKey() *Value {
	c := p.s[p.pos]
	if c == '"' || c == '\'' || c == '`' {
		if n := openKey(p.s, p.pos); n > 0 {
			v := &Value{Kind: KindString, Str: p.s[p.pos+1 : p.pos+n], Off: p.pos, End: p.pos + n}
			p.fault(true, codeUnclosed, p.pos, v.Str, "a key has lost its closing quote", "write the closing quote")
			p.pos += n
			return v
		}
		return p.readString(c)
	}
	if strings.HasPrefix(p.s[p.pos:], "“") {
		return p.readSmart("“", "”")
	}
	if p.yaml {
		return p.readPlain()
	}
	j := p.pos
	for j < len(p.s) && j < p.pos+64 && (IsWordByte(p.s[j]) || p.s[j] == '-' || p.s[j] >= utf8.RuneSelf) {
		j++
	}
	if j == p.pos {
		return nil
	}
	v := &Value{Kind: KindBare, Str: p.s[p.pos:j], Off: p.pos, End: j}
	p.t.Quirks++
	p.pos = j
	if rest := strings.TrimLeft(p.s[j:min(len(p.s), j+8)], `"' `); j < len(p.s) && (p.s[j] == '"' || p.s[j] == '\'') && strings.HasPrefix(rest, ":") {
		p.fault(true, codeMalformed, v.Off, v.Str, "a key has lost its opening quote", "write the opening quote")
		v.Kind = KindString
		p.pos++
	}
	return v
}

func (p *valueParser) readItems(v *Value, closing byte) *Value {
	p.depth++
	defer func() { p.depth-- }()
	name := string(p.stack[len(p.stack)-1])
	commas := 0
	for {
		p.skip()
		if p.pos >= len(p.s) || p.budget <= 0 {
			p.t.CutOff = true
			p.unclosed(v, name)
			return v
		}
		switch c := p.s[p.pos]; c {
		case closing:
			p.pos++
			v.End = p.pos
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
			serious := false
			if p.closes(c) {
				serious = true
			}
			p.fault(serious, codeUnbalanced, p.pos, string(c), "a closing bracket has no opening one", "check the brackets before this place")
			p.pos++
			continue
		}
		start := p.pos
		// A keyword argument of a call.
		if v.Kind == KindCall && IsWordByte(p.s[p.pos]) {
			j := p.pos
			for j < len(p.s) && j < p.pos+64 && IsWordByte(p.s[j]) {
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
					p.t.AnyKeys = true
					v.Fields = append(v.Fields, Field{key, start, val})
				}
				continue
			}
		}
		item := p.readValue()
		if p.fatal {
			return v
		}
		if item == nil {
			if p.t.CutOff {
				p.unclosed(v, name)
				return v
			}
			if !p.resync() {
				return v
			}
			continue
		}
		p.skip()
		if v.Kind == KindList && closing == ')' && len(v.Items) == 0 && item.Kind == KindString && p.pos < len(p.s) && p.s[p.pos] == ':' {
			p.fault(true, codeUnbalanced, v.Off, "(", "a ( stands where a { should open an object", "write {")
			p.pos = item.Off
			p.stack[len(p.stack)-1] = '{'
			p.t.AnyKeys = true
			return p.readFields(&Value{Kind: KindObject, Off: v.Off})
		}
		if item.IsScalar() && p.pos < len(p.s) && p.s[p.pos] == ':' && (item.Kind == KindString) && closing == ']' {
			// A key inside a list: either the list's end or an object's start was forgotten.
			if (len(v.Items) == 0 && commas > 0 || len(v.Items) > 0 && v.Items[len(v.Items)-1].IsScalar()) && len(p.stack) >= 2 && p.stack[len(p.stack)-2] == '{' {
				p.pos = item.Off
				p.unclosed(v, name)
				return v
			}
			p.fault(true, codeUnbalanced, item.Off, "{", "a key stands in a list: the opening { is missing", "write the { before this key")
			p.pos = item.Off
			p.t.AnyKeys = true
			p.stack = append(p.stack, '{')
			item = p.readFields(&Value{Kind: KindObject, Off: start})
			if p.fatal {
				return v
			}
		}
		if a, b, ok := splitTexts(item); ok {
			p.fault(true, codeMalformed, b.Off, Clip(b.Str), "a comma is missing before this text", "write a comma")
			v.Items = append(v.Items, a, b)
			continue
		}
		v.Items = append(v.Items, item)
	}
}

// splitTexts splits "a" "b", which reads like one text with quotes in it, at its inner quotes.
func splitTexts(v *Value) (a, b *Value, ok bool) {
	if v.Kind != KindString || v.Out <= v.In {
		return nil, nil, false
	}
	for _, sep := range [...]string{`" "`, `' '`} {
		first, second, found := strings.Cut(v.Str, sep)
		if found && first != "" && second != "" && !strings.Contains(second, sep) && !strings.ContainsAny(first+second, sep[:1]) {
			at := v.Off + len(first) + 3
			return &Value{Kind: KindString, Str: first, Off: v.Off, End: v.Off + len(first) + 2}, &Value{Kind: KindString, Str: second, Off: at, End: v.End}, true
		}
	}
	return nil, nil, false
}
