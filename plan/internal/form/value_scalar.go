package form

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// skip skips white space and comments.
func (p *valueParser) skip() {
	for p.pos < len(p.s) {
		switch c := p.s[p.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.pos++
		case c == '/' && p.pos+1 < len(p.s) && p.s[p.pos+1] == '/', c == '#' && len(p.stack) > 0:
			p.t.Quirks++
			for p.pos < len(p.s) && p.s[p.pos] != '\n' {
				p.pos++
			}
		case c == '/' && p.pos+1 < len(p.s) && p.s[p.pos+1] == '*':
			p.t.Quirks++
			end := strings.Index(p.s[p.pos:], "*/")
			if end < 0 {
				p.pos = len(p.s)
			} else {
				p.pos += end + 2
			}
		case c == 0xc2 && strings.HasPrefix(p.s[p.pos:], "\u00a0"):
			p.pos += 2
		case c == 0xe3 && strings.HasPrefix(p.s[p.pos:], "\u3000"):
			p.pos += 3
		default:
			return
		}
	}
}

func (p *valueParser) readValue() *Value {
	p.skip()
	p.budget--
	if p.pos >= len(p.s) || p.budget <= 0 {
		p.t.CutOff = true
		return nil
	}
	if p.depth >= p.max {
		p.fatal = true
		return nil
	}
	start := p.pos
	for _, q := range [...][2]string{{"“", "”"}, {"„", "“"}, {"‘", "’"}} {
		if strings.HasPrefix(p.s[start:], q[0]) {
			p.t.Quirks++
			return p.readSmart(q[0], q[1])
		}
	}
	switch c := p.s[p.pos]; {
	case c == '{':
		p.pos++
		p.stack = append(p.stack, '{')
		return p.readFields(&Value{Kind: KindObject, Off: start})
	case c == '[':
		p.pos++
		p.stack = append(p.stack, '[')
		return p.readItems(&Value{Kind: KindList, Off: start}, ']')
	case c == '(' && !p.yaml:
		p.pos++
		p.t.Quirks++
		p.t.Python = true
		p.stack = append(p.stack, '(')
		return p.readItems(&Value{Kind: KindList, Off: start}, ')')
	case c == '"' || c == '\'' || c == '`':
		return p.readString(c)
	case p.yaml:
		return p.readPlain()
	default:
		return p.readBare()
	}
}

func (p *valueParser) readSmart(open, closing string) *Value {
	start := p.pos
	p.pos += len(open)
	end := strings.Index(p.s[p.pos:min(len(p.s), p.pos+10_000)], closing)
	if end < 0 {
		p.fatal = true
		return nil
	}
	v := &Value{Kind: KindString, Str: p.s[p.pos : p.pos+end], Off: start, In: int32(p.pos), Out: int32(p.pos + end)}
	p.pos += end + len(closing)
	v.End = p.pos
	return v
}

// readBare reads a number, a constant, a call, or an unquoted word.
func (p *valueParser) readBare() *Value {
	start := p.pos
	j := p.pos
	for j < len(p.s) && (IsWordByte(p.s[j]) || p.s[j] == '.' || p.s[j] == '+' || p.s[j] == '-' || p.s[j] == '$') {
		j++
	}
	word := p.s[start:j]
	if j < len(p.s) && len(word) <= 2 && len(word) > 0 && (p.s[j] == '"' || p.s[j] == '\'') && strings.Trim(strings.ToLower(word), "rbfu") == "" && (p.s[j] == '\'' || !endsValue(p.s, j+1)) {
		p.pos, p.t.Python = j, true
		return p.readString(p.s[j])
	}
	if word != "" && j < len(p.s) && p.s[j] == '(' && !('0' <= word[0] && word[0] <= '9') {
		p.pos = j + 1
		p.t.Quirks++
		p.t.Python = true
		p.stack = append(p.stack, '(')
		return p.readItems(&Value{Kind: KindCall, Str: word, Off: start}, ')')
	}
	p.pos = j
	v := &Value{Kind: KindBare, Str: word, Off: start, End: j}
	switch word {
	case "null":
		v.Kind = KindNull
	case "None":
		v.Kind, p.t.Python = KindNull, true
	case "true", "false":
		v.Kind = KindBool
	case "True", "False":
		v.Kind, v.Str, p.t.Python = KindBool, strings.ToLower(word), true
	default:
		if word != "" {
			if _, err := strconv.ParseFloat(word, 64); err == nil {
				v.Kind = KindNumber
			}
		}
	}
	if v.Kind != KindBare {
		if p.pos >= len(p.s) || strings.IndexByte(" \t\r\n,]})/#:", p.s[p.pos]) >= 0 {
			return v
		}
	}
	// Words up to the next separator.
	v.Kind = KindBare
	limit := start + 400
	for p.pos < len(p.s) && p.pos < limit && strings.IndexByte(",]}[{\n:\"", p.s[p.pos]) < 0 {
		p.pos++
	}
	for p.pos < len(p.s) && !utf8.RuneStart(p.s[p.pos]) {
		p.pos++
	}
	v.Str = strings.TrimSpace(p.s[start:p.pos])
	v.End = p.pos
	p.t.Quirks++
	if p.pos < len(p.s) && p.s[p.pos] == '"' && v.Str != "" && endsValue(p.s, p.pos+1) {
		p.fault(true, codeMalformed, start, Clip(v.Str), "a text has lost its opening quote", "write the opening quote")
		p.pos++
		return v
	}
	if v.Str == "" {
		return nil
	}
	return v
}

// readString reads a quoted string. A quote ends it if the text behind it can follow a string. Other quotes
// are content, because models forget to escape them.
func (p *valueParser) readString(q byte) *Value {
	start := p.pos
	if strings.HasPrefix(p.s[p.pos:], strings.Repeat(string(q), 3)) {
		p.t.Python = true
		p.pos += 3
		end := strings.Index(p.s[p.pos:], strings.Repeat(string(q), 3))
		v := &Value{Kind: KindString, Off: start, In: int32(p.pos), Out: int32(len(p.s))}
		if end < 0 {
			v.Str, p.pos, p.t.CutOff, v.Open = p.s[p.pos:], len(p.s), true, true
		} else {
			v.Out = int32(p.pos + end)
			v.Str = p.s[p.pos : p.pos+end]
			p.pos += end + 3
		}
		v.End = p.pos
		return v
	}
	qi := strings.IndexByte("\"'`", q)
	if q != '"' {
		p.t.Quirks++
	}
	firstQuote := -1
	j := p.pos + 1
	escaped := false
	inner := false
	for ; j < len(p.s); j++ {
		c := p.s[j]
		if c == '\n' && firstQuote < 0 && len(p.stack) > 0 {
			if at, ok := lostQuote(p.s, start+1, j, q); ok {
				v := &Value{Kind: KindString, Str: Unescape(p.s[start+1:at], escaped), Off: start, End: at, In: int32(start + 1), Out: int32(at)}
				p.fault(true, CodeUnclosed, start, Clip(v.Str), "a string is not closed before the end of its line", "write the closing quote")
				p.pos = at
				return v
			}
		}
		if c == '\\' {
			escaped = true
			j++
			continue
		}
		if c != q {
			continue
		}
		if firstQuote < 0 {
			firstQuote = j
		}
		if p.noClose[qi] != 0 && j >= p.noClose[qi] || p.mayEnd(j+1, q) {
			break
		}
		inner = true
	}
	if j >= len(p.s) && firstQuote >= 0 {
		p.noClose[qi] = start
		j, inner = firstQuote, false
	}
	v := &Value{Kind: KindString, Off: start, In: int32(start + 1), Out: int32(min(j, len(p.s)))}
	if j >= len(p.s) {
		p.pos = len(p.s)
		p.t.CutOff = true
		v.Open = true
		v.Str = Unescape(p.s[start+1:], escaped)
		v.End = p.pos
		p.fault(true, CodeUnclosed, start, Clip(v.Str), "a string is not closed", "write the closing quote")
		return v
	}
	if inner {
		p.t.Quirks++
		p.fault(false, codeMalformed, start, Clip(p.s[start+1:j]), "a quote inside a string is not escaped", "write a backslash before it")
	}
	v.Str = Unescape(p.s[start+1:j], escaped)
	p.pos = j + 1
	v.End = p.pos
	return v
}

// endsValue reports whether the end of a value follows at i: a separator, a closing bracket, or the end of
// the line.
func endsValue(s string, i int) bool {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r') {
		i++
	}
	return i >= len(s) || strings.IndexByte(",]}\n", s[i]) >= 0
}

// lostQuote reports whether the string that starts at from lacks its closing quote on the line that ends at
// end. The line then ends with a comma, and the next line starts with a quote or a closing bracket.
func lostQuote(s string, from, end int, q byte) (int, bool) {
	t := strings.TrimRight(s[from:end], " \t\r")
	if !strings.HasSuffix(t, ",") || len(t) < 2 {
		return 0, false
	}
	i := end
	for i < len(s) && strings.IndexByte(" \t\r\n", s[i]) >= 0 {
		i++
	}
	if i >= len(s) || s[i] != q {
		return 0, false
	}
	return from + len(t) - 1, true
}

// mayEnd reports whether a string with the quote q can end before position i.
func (p *valueParser) mayEnd(i int, q byte) bool {
	newline := false
	for ; i < len(p.s); i++ {
		switch c := p.s[i]; c {
		case ' ', '\t', '\r':
			continue
		case '\n':
			newline = true
		case ',', ']', '}', ':', ')':
			return true
		case '#', '/':
			return newline || c == '#' || i+1 < len(p.s) && p.s[i+1] == '/'
		case q:
			return newline
		case '{', '[':
			return true
		default:
			return newline
		}
	}
	return true
}

// Unescape resolves the escapes of a JSON or Python string.
func Unescape(s string, escaped bool) string {
	if !escaped {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		n := EscapeAt(s, i, func(r rune) { b.WriteRune(r) })
		if n == 0 {
			b.WriteByte(s[i+1])
			n = 2
		}
		i += n
	}
	return b.String()
}

// EscapeAt decodes the escape at s[i]: it passes the runes to put and returns the length of the escape. It
// returns 0 if the escape stands for the byte behind the backslash.
func EscapeAt(s string, i int, put func(rune)) int {
	switch s[i+1] {
	case 'n':
		put('\n')
	case 't':
		put('\t')
	case 'r':
		put('\r')
	case 'b':
		put('\b')
	case 'f':
		put('\f')
	case '\n':
	case 'x':
		if r, ok := hexAt(s, i+2, 2); ok {
			put(r)
			return 4
		}
		return 0
	case 'u':
		r, ok := hexAt(s, i+2, 4)
		if !ok {
			put('\\')
			put('u')
			return 2
		}
		if 0xd800 <= r && r < 0xdc00 && strings.HasPrefix(s[i+6:], "\\u") {
			if low, ok := hexAt(s, i+8, 4); ok && 0xdc00 <= low && low < 0xe000 {
				put((r-0xd800)<<10 + low - 0xdc00 + 0x10000)
				return 12
			}
		}
		put(r)
		return 6
	default:
		return 0
	}
	return 2
}

func hexAt(s string, i, n int) (rune, bool) {
	if i+n > len(s) {
		return 0, false
	}
	x, err := strconv.ParseUint(s[i:i+n], 16, 32)
	return rune(x), err == nil
}
