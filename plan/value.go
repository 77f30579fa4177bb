package plan

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// valueKind is the kind of a node in a value tree.
type valueKind uint8

const (
	kindNull valueKind = iota
	kindBool
	kindNumber
	kindString
	kindBare // a word without quotes
	kindList
	kindObject
	kindCall // Name(key=value, …), as Python prints objects
)

// value is a node of the tree that JSON, Python literals and YAML share.
type value struct {
	kind     valueKind
	str      string // text of scalars, name of calls
	items    []*value
	fields   []field // of objects and calls; positional arguments of calls are items
	off, end int
	open     bool // its closing bracket was never found
}

type field struct {
	key string
	off int
	val *value
}

// fault is something wrong at a place of a value tree. It becomes a diagnostic if the plan is read from around it.
type fault struct {
	sev     Severity
	code    Code
	off     int
	element string
	message string
	hint    string
}

// tree is one value found in the text.
type tree struct {
	root    *value
	faults  []fault
	quirks  int // how often syntax beyond JSON was tolerated
	python  bool
	yaml    bool
	cutOff  bool // the text ended inside
	anyKeys bool
}

// lastKey returns the key at which the text of t ends.
func (t *tree) lastKey() string {
	key := ""
	for v := t.root; v != nil; {
		switch {
		case len(v.fields) > 0:
			key = v.fields[len(v.fields)-1].key
			v = v.fields[len(v.fields)-1].val
		case len(v.items) > 0:
			v = v.items[len(v.items)-1]
		default:
			return key
		}
	}
	return key
}

func (v *value) isScalar() bool { return v != nil && v.kind <= kindBare }

// get returns the value of the first of the keys that is there; keys compare without case, spaces, dashes and underscores.
func (v *value) get(keys ...string) *value {
	if f := v.field(keys...); f != nil {
		return f.val
	}
	return nil
}

func (v *value) field(keys ...string) *field {
	if v == nil || len(v.fields) == 0 {
		return nil
	}
	for _, k := range keys {
		for i := range v.fields {
			if sameKey(v.fields[i].key, k) {
				return &v.fields[i]
			}
		}
	}
	return nil
}

// sameKey reports whether key is want, a key in lower case without separators, as "dependson" for "Depends-On".
func sameKey(key, want string) bool {
	j := 0
	for i := 0; i < len(key); i++ {
		c := key[i]
		switch {
		case c == '_' || c == '-' || c == ' ' || c == '.':
			continue
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		}
		if j >= len(want) || want[j] != c {
			return false
		}
		j++
	}
	return j == len(want)
}

// text returns the text of a scalar, or "" for anything else.
func (v *value) text() string {
	if !v.isScalar() || v.kind == kindNull {
		return ""
	}
	return v.str
}

// valueParser reads JSON as models write it: with Python's literals, comments, missing or surplus commas and brackets.
type valueParser struct {
	s       string
	pos     int
	depth   int
	max     int
	t       *tree
	stack   []byte  // open brackets, '(' for calls and tuples
	noClose *[3]int // per quote: offset after which no well-placed closing quote stands, 0 = unknown
	budget  int     // nodes that may still be made
	fatal   bool    // not a value: give up on this candidate
}

const maxValueNodes = 400_000

// findTrees returns every bracketed value in the text, in order. Its time is linear: reading goes on where a value ended.
func (d *document) findTrees() []*tree {
	if d.treesDone {
		return d.trees
	}
	d.treesDone = true
	s := d.text
	budget := maxValueNodes
	var noClose [3]int
	for i := 0; i < len(s) && budget > 0; {
		c := s[i]
		start := false
		switch c {
		case '{', '[':
			start = true
		case '"', '\'':
			// A key without the bracket that should stand before it.
			start = atLineStart(s, i) && keyAt(s, i)
		default:
			if 'A' <= c && c <= 'Z' && (i == 0 || !isWordByte(s[i-1])) {
				if n := callAt(s, i); n > 0 {
					start = true
				} else {
					for i < len(s) && isWordByte(s[i]) {
						i++
					}
					continue
				}
			}
		}
		if !start {
			i++
			continue
		}
		p := &valueParser{s: s, pos: i, max: d.limits.MaxDepth, t: &tree{}, budget: budget, noClose: &noClose}
		p.readTop(c == '"' || c == '\'')
		budget = p.budget
		if p.fatal || p.t.root == nil {
			if p.pos > i {
				i = p.pos
			} else {
				i++
			}
			continue
		}
		d.trees = append(d.trees, p.t)
		if p.pos <= i {
			p.pos = i + 1
		}
		i = p.pos
	}
	if budget <= 0 && len(d.trees) > 0 {
		t := d.trees[len(d.trees)-1]
		t.faults = append(t.faults, fault{Error, LimitReached, t.root.off, "", "the text holds too many values; the rest was not read", "split the plan"})
	}
	return d.trees
}

func atLineStart(s string, i int) bool {
	for i--; i >= 0; i-- {
		switch s[i] {
		case ' ', '\t', '\r':
			continue
		case '\n':
			return true
		}
		return false
	}
	return true
}

// keyAt reports whether a short quoted key and a colon stand at i.
func keyAt(s string, i int) bool {
	q := s[i]
	for j := i + 1; j < len(s) && j < i+64; j++ {
		if s[j] == '\n' {
			return false
		}
		if s[j] == q {
			for j++; j < len(s) && (s[j] == ' ' || s[j] == '\t'); j++ {
			}
			return j < len(s) && s[j] == ':' && j > i+2
		}
	}
	return false
}

// callAt returns the length of Name( if a call with a keyword argument or a list stands at i.
func callAt(s string, i int) int {
	j := i
	for j < len(s) && j < i+64 && isWordByte(s[j]) {
		j++
	}
	if j >= len(s) || s[j] != '(' {
		return 0
	}
	k := j + 1
	for k < len(s) && k < j+64 && isWordByte(s[k]) {
		k++
	}
	if k > j+1 && k < len(s) && s[k] == '=' {
		return j - i + 1
	}
	return 0
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (p *valueParser) fault(sev Severity, code Code, off int, element, message, hint string) {
	if len(p.t.faults) < 1000 {
		p.t.faults = append(p.t.faults, fault{sev, code, off, element, message, hint})
	}
}

// readTop reads a value and, when values of the same kind follow it without a bracket around them, those too.
func (p *valueParser) readTop(bareKey bool) {
	start := p.pos
	var first *value
	if bareKey {
		p.fault(Error, Unbalanced, start, "{", "the text starts with a key: the opening { is missing", "write the { before the first key")
		p.stack = append(p.stack, '{')
		first = p.readFields(&value{kind: kindObject, off: start})
	} else {
		first = p.readValue()
	}
	if p.fatal || first == nil {
		p.fatal = true
		return
	}
	p.t.root = first
	if first.kind != kindObject && first.kind != kindList {
		return
	}
	var seq *value
	for !p.t.cutOff {
		save := p.pos
		comma, closers, newline := false, 0, false
	scan:
		for p.pos < len(p.s) {
			switch c := p.s[p.pos]; c {
			case ' ', '\t', '\r':
				p.pos++
			case '\n':
				newline = true
				p.pos++
			case ',', ';':
				if comma {
					break scan
				}
				comma = true
				p.pos++
			case '}', ']':
				closers++
				p.pos++
			default:
				break scan
			}
		}
		if closers > 0 {
			p.fault(Warning, Unbalanced, save, "", "a closing bracket has no opening one", "check the brackets before this place")
		}
		if p.pos < len(p.s) && (comma || newline) && first.kind == kindObject && p.s[p.pos] == '{' {
			if seq == nil {
				seq = &value{kind: kindList, off: first.off, items: []*value{first}}
				if comma {
					p.fault(Warning, Unbalanced, first.off, "[", "objects follow each other without the opening [", "write the [ before the first object")
				}
			}
			next := p.readValue()
			if next == nil || p.fatal {
				p.fatal = false
				break
			}
			seq.items = append(seq.items, next)
			continue
		}
		if p.pos < len(p.s) && seq != nil && comma && (p.s[p.pos] == '"' || p.s[p.pos] == '\'') && keyAt(p.s, p.pos) {
			p.fault(Error, Unbalanced, p.pos, "{", "a key stands between objects: the opening { is missing", "write the { before this key")
			p.stack = append(p.stack[:0], '{')
			seq.items = append(seq.items, p.readFields(&value{kind: kindObject, off: p.pos}))
			if p.fatal {
				p.fatal = false
				break
			}
			continue
		}
		// A key after the end of the object: a bracket closed it too early.
		if p.pos < len(p.s) && (comma || closers > 0) && (p.s[p.pos] == '"' || p.s[p.pos] == '\'') && keyAt(p.s, p.pos) && first.kind == kindObject && seq == nil {
			p.fault(Error, Unbalanced, p.pos, "{", "a key follows after the object was closed", "check the brackets before this place")
			p.stack = append(p.stack[:0], '{')
			p.readFields(first)
			continue
		}
		if p.pos < len(p.s) && comma && (p.s[p.pos] == '"' || p.s[p.pos] == '\'') && keyAt(p.s, p.pos) && first.kind == kindList {
			p.fault(Error, Unbalanced, p.pos, "", "a key follows after the list was closed", "check the brackets before this place")
		}
		if closers == 0 {
			p.pos = save
		}
		break
	}
	if seq != nil {
		seq.end = p.pos
		p.t.root = seq
	}
}

// skip passes white space and comments.
func (p *valueParser) skip() {
	for p.pos < len(p.s) {
		switch c := p.s[p.pos]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.pos++
		case c == '/' && p.pos+1 < len(p.s) && p.s[p.pos+1] == '/', c == '#' && len(p.stack) > 0:
			p.t.quirks++
			for p.pos < len(p.s) && p.s[p.pos] != '\n' {
				p.pos++
			}
		case c == '/' && p.pos+1 < len(p.s) && p.s[p.pos+1] == '*':
			p.t.quirks++
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

func (p *valueParser) readValue() *value {
	p.skip()
	p.budget--
	if p.pos >= len(p.s) || p.budget <= 0 {
		p.t.cutOff = true
		return nil
	}
	if p.depth >= p.max {
		p.fatal = true
		return nil
	}
	start := p.pos
	switch c := p.s[p.pos]; {
	case c == '{':
		p.pos++
		p.stack = append(p.stack, '{')
		return p.readFields(&value{kind: kindObject, off: start})
	case c == '[':
		p.pos++
		p.stack = append(p.stack, '[')
		return p.readItems(&value{kind: kindList, off: start}, ']')
	case c == '(':
		p.pos++
		p.t.quirks++
		p.t.python = true
		p.stack = append(p.stack, '(')
		return p.readItems(&value{kind: kindList, off: start}, ')')
	case c == '"' || c == '\'' || c == '`':
		return p.readString(c)
	case strings.HasPrefix(p.s[p.pos:], "“"):
		p.t.quirks++
		return p.readSmart("“", "”")
	case strings.HasPrefix(p.s[p.pos:], "‘"):
		p.t.quirks++
		return p.readSmart("‘", "’")
	default:
		return p.readBare()
	}
}

func (p *valueParser) readSmart(open, closing string) *value {
	start := p.pos
	p.pos += len(open)
	end := strings.Index(p.s[p.pos:min(len(p.s), p.pos+10_000)], closing)
	if end < 0 {
		p.fatal = true
		return nil
	}
	v := &value{kind: kindString, str: p.s[p.pos : p.pos+end], off: start}
	p.pos += end + len(closing)
	v.end = p.pos
	return v
}

// readBare reads a number, a constant, a call, or a word without quotes.
func (p *valueParser) readBare() *value {
	start := p.pos
	j := p.pos
	for j < len(p.s) && (isWordByte(p.s[j]) || p.s[j] == '.' || p.s[j] == '+' || p.s[j] == '-' || p.s[j] == '$') {
		j++
	}
	word := p.s[start:j]
	if j < len(p.s) && len(word) <= 2 && len(word) > 0 && (p.s[j] == '"' || p.s[j] == '\'') && strings.Trim(strings.ToLower(word), "rbfu") == "" {
		p.pos, p.t.python = j, true
		return p.readString(p.s[j])
	}
	if word != "" && j < len(p.s) && p.s[j] == '(' && !('0' <= word[0] && word[0] <= '9') {
		p.pos = j + 1
		p.t.quirks++
		p.t.python = true
		p.stack = append(p.stack, '(')
		return p.readItems(&value{kind: kindCall, str: word, off: start}, ')')
	}
	p.pos = j
	v := &value{kind: kindBare, str: word, off: start, end: j}
	switch word {
	case "null":
		v.kind = kindNull
	case "None":
		v.kind, p.t.python = kindNull, true
	case "true", "false":
		v.kind = kindBool
	case "True", "False":
		v.kind, v.str, p.t.python = kindBool, strings.ToLower(word), true
	default:
		if word != "" {
			if _, err := strconv.ParseFloat(word, 64); err == nil {
				v.kind = kindNumber
			}
		}
	}
	if v.kind != kindBare {
		if p.pos >= len(p.s) || strings.IndexByte(" \t\r\n,]})/#:", p.s[p.pos]) >= 0 {
			return v
		}
	}
	// Words up to the next separator.
	v.kind = kindBare
	limit := start + 400
	for p.pos < len(p.s) && p.pos < limit && strings.IndexByte(",]}[{\n:\"", p.s[p.pos]) < 0 {
		p.pos++
	}
	for p.pos < len(p.s) && !utf8.RuneStart(p.s[p.pos]) {
		p.pos++
	}
	v.str = strings.TrimSpace(p.s[start:p.pos])
	v.end = p.pos
	p.t.quirks++
	if v.str == "" {
		return nil
	}
	return v
}

// readString reads a quoted string. A quote ends it when what follows can follow a string; others are content, because
// models forget to escape them.
func (p *valueParser) readString(q byte) *value {
	start := p.pos
	if strings.HasPrefix(p.s[p.pos:], strings.Repeat(string(q), 3)) {
		p.t.python = true
		p.pos += 3
		end := strings.Index(p.s[p.pos:], strings.Repeat(string(q), 3))
		v := &value{kind: kindString, off: start}
		if end < 0 {
			v.str, p.pos, p.t.cutOff = p.s[p.pos:], len(p.s), true
		} else {
			v.str = p.s[p.pos : p.pos+end]
			p.pos += end + 3
		}
		v.end = p.pos
		return v
	}
	qi := strings.IndexByte("\"'`", q)
	if q != '"' {
		p.t.quirks++
	}
	firstQuote := -1
	j := p.pos + 1
	escaped := false
	inner := false
	for ; j < len(p.s); j++ {
		c := p.s[j]
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
	v := &value{kind: kindString, off: start}
	if j >= len(p.s) {
		p.pos = len(p.s)
		p.t.cutOff = true
		v.open = true
		v.str = unescape(p.s[start+1:], escaped)
		v.end = p.pos
		p.fault(Error, Unclosed, start, clip(v.str), "a string is not closed", "write the closing quote")
		return v
	}
	if inner {
		p.t.quirks++
		p.fault(Warning, Malformed, start, clip(p.s[start+1:j]), "a quote inside a string is not escaped", "write a backslash before it")
	}
	v.str = unescape(p.s[start+1:j], escaped)
	p.pos = j + 1
	v.end = p.pos
	return v
}

// mayEnd reports whether a string of quote q can end before position i.
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

func unescape(s string, escaped bool) string {
	if !escaped {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '\\' || i+1 >= len(s) {
			b.WriteByte(c)
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			if i+4 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+5], 16, 32); err == nil {
					r := rune(n)
					i += 4
					if 0xd800 <= r && r < 0xdc00 && i+6 < len(s) && s[i+1] == '\\' && s[i+2] == 'u' {
						if m, err := strconv.ParseUint(s[i+3:i+7], 16, 32); err == nil && 0xdc00 <= m && m < 0xe000 {
							r = (r-0xd800)<<10 + rune(m) - 0xdc00 + 0x10000
							i += 6
						}
					}
					b.WriteRune(r)
					continue
				}
			}
			b.WriteString("\\u")
		case '\n':
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

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
			if !p.recover() {
				return v
			}
			continue
		}
		f.key = k.str
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
		default:
			if !p.recover() {
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
			if !p.recover() {
				return v
			}
			continue
		}
		v.fields = append(v.fields, f)
		needComma = true
	}
}

// recover skips to where reading can go on after something that is no value. It gives the candidate up when nothing in
// it has looked like data yet.
func (p *valueParser) recover() bool {
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
			if !p.recover() {
				return v
			}
			continue
		}
		p.skip()
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
		v.items = append(v.items, item)
	}
}
