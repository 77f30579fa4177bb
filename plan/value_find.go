package plan

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
		if p.pos < len(p.s) && (comma || p.pos == save) && (p.s[p.pos] == '"' || p.s[p.pos] == '\'') && keyAt(p.s, p.pos) && first.kind == kindList {
			p.fault(Error, Unbalanced, p.pos, "", "a key follows after the list was closed", "check the brackets before this place")
		}
		if closers == 0 {
			p.pos = save
		}
		break
	}
	if seq != nil {
		seq.end = p.pos
		p.t.root, p.t.sequence = seq, true
	}
}
