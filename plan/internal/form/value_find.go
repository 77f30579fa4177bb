package form

// valueParser reads JSON as models write it: with Python literals, comments, and missing or surplus commas
// and brackets.
type valueParser struct {
	s       string
	pos     int
	depth   int
	max     int
	t       *Tree
	stack   []byte  // open brackets, '(' for calls and tuples
	noClose *[3]int // per quote: offset behind which there is no plausible closing quote, 0 = unknown
	budget  int     // number of nodes that may still be created
	fatal   bool    // no value: give up this candidate
	yaml    bool    // unquoted texts follow the rules of YAML
}

const maxValueNodes = 400_000

// Bracketed returns every bracketed value in the text, in order. Its time is linear: reading continues behind
// the last value.
func Bracketed(s string, maxDepth int) []*Tree {
	var trees []*Tree
	budget := maxValueNodes
	var noClose [3]int
	for i := 0; i < len(s) && budget > 0; {
		c := s[i]
		start := false
		switch c {
		case '{', '[':
			start = true
		case '"', '\'':
			// A key that lacks the bracket before it.
			start = AtLineStart(s, i) && keyAt(s, i)
		default:
			if 'A' <= c && c <= 'Z' && (i == 0 || !IsWordByte(s[i-1])) {
				if n := callAt(s, i); n > 0 {
					start = true
				} else {
					for i < len(s) && IsWordByte(s[i]) {
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
		p := &valueParser{s: s, pos: i, max: maxDepth, t: &Tree{}, budget: budget, noClose: &noClose}
		p.readTop(c == '"' || c == '\'')
		budget = p.budget
		if p.fatal || p.t.Root == nil {
			if p.pos > i {
				i = p.pos
			} else {
				i++
			}
			continue
		}
		trees = append(trees, p.t)
		if p.pos <= i {
			p.pos = i + 1
		}
		i = p.pos
	}
	if budget <= 0 && len(trees) > 0 {
		t := trees[len(trees)-1]
		t.Faults = append(t.Faults, Fault{true, codeLimitReached, t.Root.Off, "", "the text holds too many values; the rest was not read", "split the plan"})
	}
	return trees
}

// AtLineStart reports whether there is only space before i on its line.
func AtLineStart(s string, i int) bool {
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

// keyAt reports whether there is a short quoted key with a colon at i.
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

// callAt returns the length of Name( if a call with a keyword argument or a list begins at i.
func callAt(s string, i int) int {
	j := i
	for j < len(s) && j < i+64 && IsWordByte(s[j]) {
		j++
	}
	if j >= len(s) || s[j] != '(' || keywordAt(s, j+1) == 0 {
		return 0
	}
	return j - i + 1
}

// IsWordByte reports whether c is an ASCII letter, a digit or an underscore.
func IsWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (p *valueParser) fault(serious bool, code string, off int, element, message, hint string) {
	if len(p.t.Faults) < 1000 {
		p.t.Faults = append(p.t.Faults, Fault{serious, code, off, element, message, hint})
	}
}

// readTop reads a value, and the values of the same kind that follow it without a bracket around them.
func (p *valueParser) readTop(bareKey bool) {
	first := p.readFirst(bareKey)
	if p.fatal || first == nil {
		p.fatal = true
		return
	}
	p.t.Root = first
	if first.Kind != KindObject && first.Kind != KindList {
		return
	}
	if seq := p.readMore(first); seq != nil {
		seq.End = p.pos
		p.t.Root, p.t.Sequence = seq, true
	}
}

// readFirst reads the first value. bareKey says that it is an object without its opening bracket.
func (p *valueParser) readFirst(bareKey bool) *Value {
	if !bareKey {
		return p.readValue()
	}
	p.fault(true, codeUnbalanced, p.pos, "{", "the text starts with a key: the opening { is missing", "write the { before the first key")
	p.stack = append(p.stack, '{')
	return p.readFields(&Value{Kind: KindObject, Off: p.pos})
}

// readMore reads the values behind first. It returns them with first as a list, or nil if there are none.
func (p *valueParser) readMore(first *Value) (seq *Value) {
	for !p.t.CutOff {
		save := p.pos
		sep := p.separator()
		if sep.closers > 0 {
			p.fault(false, codeUnbalanced, save, "", "a closing bracket has no opening one", "check the brackets before this place")
		}
		key := p.pos < len(p.s) && (p.s[p.pos] == '"' || p.s[p.pos] == '\'') && keyAt(p.s, p.pos)
		switch {
		case p.pos < len(p.s) && p.s[p.pos] == '{' && (sep.comma || sep.newline) && first.Kind == KindObject:
			if seq == nil {
				seq = &Value{Kind: KindList, Off: first.Off, Items: []*Value{first}}
				if sep.comma {
					p.fault(false, codeUnbalanced, first.Off, "[", "objects follow each other without the opening [", "write the [ before the first object")
				}
			}
			next := p.readValue()
			if next == nil || p.fatal {
				p.fatal = false
				return seq
			}
			seq.Items = append(seq.Items, next)
		case key && seq != nil && sep.comma:
			p.fault(true, codeUnbalanced, p.pos, "{", "a key stands between objects: the opening { is missing", "write the { before this key")
			p.stack = append(p.stack[:0], '{')
			seq.Items = append(seq.Items, p.readFields(&Value{Kind: KindObject, Off: p.pos}))
			if p.fatal {
				p.fatal = false
				return seq
			}
		case key && seq == nil && (sep.comma || sep.closers > 0) && first.Kind == KindObject:
			// A key follows the end of the object: a bracket closed it too early.
			p.fault(true, codeUnbalanced, p.pos, "{", "a key follows after the object was closed", "check the brackets before this place")
			p.stack = append(p.stack[:0], '{')
			p.readFields(first)
		default:
			if key && (sep.comma || p.pos == save) && first.Kind == KindList {
				p.fault(true, codeUnbalanced, p.pos, "", "a key follows after the list was closed", "check the brackets before this place")
			}
			if sep.closers == 0 {
				p.pos = save
			}
			return seq
		}
	}
	return seq
}

// separator describes the text between two values: at most one comma, line ends, and surplus closing
// brackets.
type separator struct {
	comma, newline bool
	closers        int
}

// separator skips the text between two values.
func (p *valueParser) separator() (sep separator) {
	for ; p.pos < len(p.s); p.pos++ {
		switch c := p.s[p.pos]; {
		case c == ' ' || c == '\t' || c == '\r':
		case c == '\n':
			sep.newline = true
		case (c == ',' || c == ';') && !sep.comma:
			sep.comma = true
		case c == '}' || c == ']':
			sep.closers++
		default:
			return sep
		}
	}
	return sep
}

// ValueAt reads the value that begins at off. It returns the value, nil if there is none, and the offset
// behind it. known says that data is expected there, even if the text does not look like it.
func ValueAt(s string, off, maxDepth int, known bool) (*Tree, int) {
	p := newValueParser(s, off, maxDepth)
	p.t.AnyKeys = known
	return p.one()
}

// Lone reads the value with which a text begins, of at most so many values. It returns the value, with a nil
// root if there is none, and the offset behind it.
func Lone(s string, maxDepth, values int) (*Tree, int) {
	p := newValueParser(s, 0, maxDepth)
	p.budget = values
	return p.one()
}

// newValueParser returns a parser of the one value at off.
func newValueParser(s string, off, maxDepth int) *valueParser {
	return &valueParser{s: s, pos: off, max: maxDepth, t: &Tree{AnyKeys: true}, budget: 10_000, noClose: new([3]int)}
}

// one reads the value. It returns the value and the offset behind it.
func (p *valueParser) one() (*Tree, int) {
	p.t.Root = p.readValue()
	if p.fatal {
		p.t.Root = nil
	}
	return p.t, p.pos
}
