package form

import (
	"strings"
	"unicode/utf8"
)

// pop closes the innermost bracket.
func (p *valueParser) pop() { p.stack = p.stack[:len(p.stack)-1] }

// closes reports whether a closing bracket that does not match the innermost open one matches an outer one.
// The inner closing bracket is then missing.
func (p *valueParser) closes(c byte) bool {
	open := map[byte]byte{'}': '{', ']': '[', ')': '('}[c]
	for i := len(p.stack) - 2; i >= 0; i-- {
		if p.stack[i] == open {
			return true
		}
	}
	return false
}

// peekKey reports whether a key with its colon follows at i, after an optional comma.
func (p *valueParser) peekKey(i int) bool {
	for i < len(p.s) && strings.IndexByte(" \t\r\n,", p.s[i]) >= 0 {
		i++
	}
	return i < len(p.s) && (p.s[i] == '"' || p.s[i] == '\'') && keyAt(p.s, i)
}

// peekObject reports whether a comma and an object follow at i.
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
	p.fault(true, CodeUnclosed, v.Off, name, "the "+name+" opened here is not closed", "write the closing bracket")
	p.pop()
}

// cut ends a value at the end of the text.
func (p *valueParser) cut(v *Value, name string) {
	p.t.CutOff = true
	p.unclosed(v, name)
}

// stray handles a closing bracket that does not match v. It returns true if v ends here, because the bracket
// closes an outer value. Otherwise it skips the bracket. goesOn reports whether the text behind the bracket
// still belongs to v.
func (p *valueParser) stray(v *Value, name string, goesOn func(i int) bool) bool {
	c := p.s[p.pos]
	outer := p.closes(c)
	if outer && !goesOn(p.pos+1) {
		p.unclosed(v, name)
		return true
	}
	p.fault(outer || name == "{", codeUnbalanced, p.pos, string(c), "a closing bracket has no opening one", "check the brackets before this place")
	p.pos++
	return false
}

func (p *valueParser) readFields(v *Value) *Value {
	p.depth++
	defer func() { p.depth-- }()
	needComma := false
	for {
		p.skip()
		if p.pos >= len(p.s) || p.budget <= 0 {
			p.cut(v, "{")
			return v
		}
		switch p.s[p.pos] {
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
			if p.stray(v, "{", p.peekKey) {
				return v
			}
			continue
		case '{':
			if !p.listWithoutBracket(v, needComma) {
				return v
			}
			needComma = true
			continue
		}
		n := len(v.Fields)
		if !p.readField(v, needComma) {
			return v
		}
		needComma = needComma || len(v.Fields) > n
	}
}

// listWithoutBracket continues at an object in the place of a key. "key": {…}, {…} is a list without its
// opening bracket. In all other cases the object around it was not closed.
func (p *valueParser) listWithoutBracket(v *Value, needComma bool) bool {
	if len(v.Fields) == 0 && !p.t.AnyKeys {
		p.fatal = true
		return false
	}
	if last := len(v.Fields) - 1; last >= 0 && !needComma && v.Fields[last].Val.Kind == KindObject && (len(p.stack) < 2 || p.stack[len(p.stack)-2] != '[') {
		f := &v.Fields[last]
		p.fault(true, codeUnbalanced, f.Val.Off, f.Key, "the list of "+f.Key+" has no opening [", "write the [ before its first object")
		p.stack = append(p.stack, '[')
		f.Val = p.readItems(&Value{Kind: KindList, Off: f.Val.Off, Items: []*Value{f.Val}}, ']')
		return !p.fatal
	}
	p.unclosed(v, "{")
	return false
}

// readField reads a key and its value into v. It reports whether more may follow.
func (p *valueParser) readField(v *Value, needComma bool) bool {
	f := Field{Off: p.pos}
	k := p.readKey()
	if k == nil || p.fatal {
		return p.resync()
	}
	f.Key = k.Str
	if a, b, joined := splitTexts(k); joined && IsName(a.Str) {
		// "key" "value": a text that seems to contain quotes lacks its colon.
		p.t.AnyKeys = true
		p.fault(true, codeMalformed, f.Off, a.Str, "the colon after this key is missing", "write a colon")
		v.Fields = append(v.Fields, Field{a.Str, f.Off, b})
		return true
	}
	p.skip()
	if p.pos >= len(p.s) {
		p.cut(v, "{")
		return false
	}
	if !p.colon(k) {
		return p.resync()
	}
	if needComma {
		p.t.Quirks++
		p.fault(false, codeMalformed, f.Off, f.Key, "a comma is missing", "write a comma before this key")
	}
	p.t.AnyKeys = p.t.AnyKeys || k.Kind == KindString
	p.skip()
	if p.pos < len(p.s) && (p.s[p.pos] == ',' || p.s[p.pos] == '}') {
		p.fault(true, codeMalformed, f.Off, f.Key, "a key has no value", "write its value")
		f.Val = &Value{Kind: KindNull, Off: p.pos, End: p.pos}
	} else if f.Val = p.readValue(); p.fatal {
		return false
	}
	if f.Val == nil {
		if p.t.CutOff {
			p.unclosed(v, "{")
			return false
		}
		return p.resync()
	}
	v.Fields = append(v.Fields, f)
	return true
}

// colon skips the colon behind a key, or a substitute for it.
func (p *valueParser) colon(k *Value) bool {
	switch rest := p.s[p.pos:]; {
	case rest[0] == ':' || rest[0] == '=':
		p.pos++
		if p.pos < len(p.s) && p.s[p.pos] == '>' {
			p.pos++
		}
	case strings.HasPrefix(rest, "："):
		p.pos += len("：")
		p.t.Quirks++
	case k.Kind == KindString && IsName(strings.ReplaceAll(k.Str, " ", "_")) && strings.IndexByte("\"'[{-0123456789", rest[0]) >= 0:
		p.t.AnyKeys = true
		p.fault(true, codeMalformed, k.Off, k.Str, "the colon after this key is missing", "write a colon")
	default:
		return false
	}
	return true
}

// openKey returns the length of a key that lacks its closing quote, as in "key: [. It returns 0 if there is
// none.
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

// resync skips to a place at which reading can continue after invalid text. It gives the candidate up if
// nothing in it has looked like data so far.
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
			p.fault(true, CodeUnclosed, p.pos, v.Str, "a key has lost its closing quote", "write the closing quote")
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
			p.cut(v, name)
			return v
		}
		switch p.s[p.pos] {
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
			if p.stray(v, name, p.peekObject) {
				return v
			}
			continue
		}
		start := p.pos
		if n := keywordAt(p.s, start); v.Kind == KindCall && n > 0 {
			p.pos += n + 1
			val := p.readValue()
			if p.fatal {
				return v
			}
			if val != nil {
				p.t.AnyKeys = true
				v.Fields = append(v.Fields, Field{p.s[start : start+n], start, val})
			}
			continue
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
			// A key in a list: the closing ] of the list is missing, or the opening { of an object.
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

// keywordAt returns the length of the name of a keyword argument at i, or 0.
func keywordAt(s string, i int) int {
	j := i
	for j < len(s) && j < i+64 && IsWordByte(s[j]) {
		j++
	}
	if j > i && j+1 < len(s) && s[j] == '=' && s[j+1] != '=' {
		return j - i
	}
	return 0
}

// splitTexts splits "a" "b", which was read as one text with quotes in it, at the inner quotes.
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
