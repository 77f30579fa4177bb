package plan

import (
	"strings"
)

// readYAML reads a plan written as YAML in one of the shapes that plans in JSON have.
func readYAML(d *document) *reading {
	var found *reading
	plans := 0
	for i := 0; i < len(d.lines); {
		l := d.lines[i]
		if l.text == "" || l.fence || !yamlStart(d, i) {
			i++
			continue
		}
		p := &yamlParser{d: d, t: &tree{yaml: true}, i: i, budget: 100_000}
		v := p.block(l.indent, 0)
		if v != nil && !v.isScalar() {
			v.off = l.off
			v.end = len(d.text)
			if p.i < len(d.lines) {
				v.end = d.lines[p.i].off
			}
			p.t.root = v
			for _, shape := range [...]shapeReader{toolGraph, stepRelations, commandTasks, nestedCalls, taskList, stepTools, taskNames} {
				r := matchTree(d, p.t, shape)
				if r == nil || r.noPlan != nil {
					continue
				}
				r.start = l.off
				// Nothing in YAML marks the end of a document but a fence.
				r.openEnded = p.i >= len(d.lines)
				if plans++; found == nil {
					found = r
				} else if plans < 8 {
					found = pick(d, found, r)
				}
				break
			}
		}
		i = max(p.i, i+1)
	}
	return found
}

// yamlStart reports whether a block may start at line i: "key:" or "- key: value".
func yamlStart(d *document, i int) bool {
	t := d.lines[i].text
	if rest, ok := strings.CutPrefix(t, "- "); ok {
		_, _, ok = yamlKey(strings.TrimSpace(rest))
		return ok
	}
	key, rest, ok := yamlKey(t)
	return ok && isName(strings.ReplaceAll(key, " ", "_")) && (rest == "" || len(key) < 40)
}

// yamlKey splits "key: value" at its colon.
func yamlKey(t string) (key, rest string, ok bool) {
	if t == "" {
		return "", "", false
	}
	if q := t[0]; q == '"' || q == '\'' {
		end := strings.IndexByte(t[1:], q)
		if end < 0 || end+2 >= len(t) || t[end+2] != ':' {
			return "", "", false
		}
		return t[1 : end+1], strings.TrimSpace(t[end+3:]), true
	}
	if strings.IndexByte("[{&*!|>%@`", t[0]) >= 0 {
		return "", "", false
	}
	for i := 0; i < len(t) && i < 80; i++ {
		if t[i] == ':' && (i+1 == len(t) || t[i+1] == ' ' || t[i+1] == '\t') {
			return strings.TrimSpace(t[:i]), strings.TrimSpace(t[i+1:]), i > 0
		}
	}
	return "", "", false
}

// yamlParser reads the part of YAML that plans are written in: maps, lists, scalars, block scalars, flow values.
type yamlParser struct {
	d      *document
	t      *tree
	i      int
	budget int
}

func (p *yamlParser) fault(sev Severity, code Code, off int, el, msg string) {
	if len(p.t.faults) < 1000 {
		p.t.faults = append(p.t.faults, fault{sev, code, off, el, msg, "check the indentation"})
	}
}

// next moves to the next line with content and reports whether it is in the same fence.
func (p *yamlParser) next() (line, bool) {
	for p.i < len(p.d.lines) {
		l := p.d.lines[p.i]
		if l.fence {
			return line{}, false
		}
		if l.text == "" || strings.HasPrefix(l.text, "#") {
			p.i++
			continue
		}
		return l, true
	}
	return line{}, false
}

// block reads the map or list whose lines are indented by indent.
func (p *yamlParser) block(indent, depth int) *value {
	l, ok := p.next()
	if !ok || depth > p.d.limits.MaxDepth || depth > 200 {
		return nil
	}
	if l.text == "-" || strings.HasPrefix(l.text, "- ") {
		v := &value{kind: kindList, off: l.off}
		for {
			l, ok := p.next()
			if !ok || l.indent != indent || l.text != "-" && !strings.HasPrefix(l.text, "- ") {
				if ok && l.indent > indent {
					p.fault(Error, Malformed, l.off, clip(l.text), "this line is indented differently from the list around it")
					p.i++
					continue
				}
				break
			}
			if p.budget--; p.budget < 0 {
				break
			}
			rest := strings.TrimLeft(l.text[1:], " ")
			inner := indent + len(l.text) - len(rest)
			off := l.off + len(l.text) - len(rest)
			switch {
			case rest == "":
				p.i++
				if n, ok := p.next(); ok && n.indent > indent {
					if x := p.block(n.indent, depth+1); x != nil {
						v.items = append(v.items, x)
					}
				}
			default:
				if key, after, isKey := yamlKey(rest); isKey {
					x := &value{kind: kindObject, off: off}
					p.i++
					p.entry(x, key, after, off, inner, depth+1)
					if n, ok := p.next(); ok && n.indent > indent && n.indent != inner && !strings.HasPrefix(n.text, "- ") {
						inner = n.indent // indented by tabs, or by more than the dash
					}
					p.fields(x, inner, depth+1)
					v.items = append(v.items, x)
				} else {
					p.i++
					v.items = append(v.items, p.scalar(rest, off, indent))
				}
			}
		}
		v.end = p.end()
		return v
	}
	if _, _, isKey := yamlKey(l.text); !isKey {
		return nil
	}
	v := &value{kind: kindObject, off: l.off}
	p.fields(v, indent, depth)
	v.end = p.end()
	return v
}

func (p *yamlParser) end() int {
	if p.i < len(p.d.lines) {
		return p.d.lines[p.i].off
	}
	return len(p.d.text)
}

// fields reads the lines of a map.
func (p *yamlParser) fields(v *value, indent, depth int) {
	for {
		l, ok := p.next()
		if !ok || l.indent < indent {
			return
		}
		if p.budget--; p.budget < 0 {
			return
		}
		key, rest, isKey := yamlKey(l.text)
		if l.indent > indent || !isKey || strings.HasPrefix(l.text, "- ") {
			if l.indent < indent || l.indent == indent && depth == 0 || strings.HasPrefix(l.text, "- ") && l.indent <= indent {
				return
			}
			p.fault(Error, Malformed, l.off, clip(l.text), "this line is no key of the map around it")
			p.i++
			continue
		}
		p.i++
		p.entry(v, key, rest, l.off, indent, depth)
	}
}

// entry reads the value of key: the rest of its line, or the lines below it.
func (p *yamlParser) entry(v *value, key, rest string, off, indent, depth int) {
	f := field{key: key, off: off}
	rest = stripComment(rest)
	valOff := off + len(key) + 1
	switch {
	case rest == "":
		n, ok := p.next()
		isItem := ok && (n.text == "-" || strings.HasPrefix(n.text, "- "))
		switch {
		case ok && (n.indent > indent || isItem && n.indent == indent):
			f.val = p.block(n.indent, depth+1)
			if f.val == nil {
				f.val = p.scalar("", n.off, indent)
			}
		default:
			f.val = &value{kind: kindNull, off: valOff, end: valOff}
			if !ok && p.i >= len(p.d.lines) && depth == 0 {
				p.t.cutOff = true
			}
		}
	case rest[0] == '|' || rest[0] == '>':
		f.val = p.blockScalar(rest[0], indent, valOff)
	default:
		f.val = p.scalar(rest, valOff, indent)
	}
	if f.val == nil {
		f.val = &value{kind: kindNull, off: valOff}
	}
	v.fields = append(v.fields, f)
}

func stripComment(s string) string {
	if s == "" || s[0] == '"' || s[0] == '\'' {
		return s
	}
	if s[0] == '#' {
		return ""
	}
	if i := strings.Index(s, " #"); i >= 0 && !strings.HasPrefix(s[i+1:], "#E") {
		return strings.TrimSpace(s[:i])
	}
	return s
}

// scalar reads a flow value, a quoted text, or a plain one that may go on over deeper lines.
func (p *yamlParser) scalar(s string, off, indent int) *value {
	if s != "" && strings.IndexByte("[{\"'", s[0]) >= 0 {
		at := strings.Index(p.d.text[min(off, len(p.d.text)):], s[:1])
		if at >= 0 {
			q := &valueParser{s: p.d.text, pos: off + at, max: p.d.limits.MaxDepth, t: &tree{anyKeys: true}, budget: 10_000, noClose: new([3]int)}
			// A flow value ends with its line, unless its brackets say otherwise.
			lineEnd := off + at + len(s)
			if s[0] == '"' || s[0] == '\'' {
				q.s = p.d.text[:min(lineEnd, len(p.d.text))]
			} else if unpaired(unquoted(s)) == 0 || !p.flowGoesOn() {
				q.s = p.d.text[:min(lineEnd, len(p.d.text))]
			}
			v := q.readValue()
			if v != nil && !q.fatal {
				p.t.faults = append(p.t.faults, q.t.faults...)
				p.t.cutOff = p.t.cutOff || q.t.cutOff && q.pos >= len(p.d.text)
				for p.i < len(p.d.lines) && p.d.lines[p.i].off < q.pos {
					p.i++
				}
				return v
			}
			p.fault(Error, Malformed, off, clip(s), "this value cannot be read")
		}
	}
	v := &value{kind: kindString, str: s, off: off}
	for {
		l, ok := p.next()
		if !ok || l.indent <= indent || strings.HasPrefix(l.text, "- ") {
			break
		}
		if _, _, isKey := yamlKey(l.text); isKey {
			break
		}
		if v.str != "" {
			v.str += " "
		}
		v.str += l.text
		p.i++
	}
	switch v.str {
	case "null", "~":
		v.kind, v.str = kindNull, ""
	case "true", "false":
		v.kind = kindBool
	default:
		if n, rest, ok := cutNumber(v.str); ok && n == v.str && rest == "" {
			v.kind = kindNumber
		}
		if v.str == "-1" {
			v.kind = kindNumber
		}
	}
	v.end = off + len(v.str)
	return v
}

// flowGoesOn reports whether the next line is not a key or an item, so that an open bracket may close there.
func (p *yamlParser) flowGoesOn() bool {
	l, ok := p.next()
	if !ok || strings.HasPrefix(l.text, "- ") {
		return false
	}
	_, _, isKey := yamlKey(l.text)
	return !isKey
}

func (p *yamlParser) blockScalar(style byte, indent, off int) *value {
	var parts []string
	for p.i < len(p.d.lines) {
		l := p.d.lines[p.i]
		if l.fence || l.text != "" && l.indent <= indent {
			break
		}
		parts = append(parts, l.text)
		p.i++
	}
	sep := "\n"
	if style == '>' {
		sep = " "
	}
	return &value{kind: kindString, str: strings.TrimSpace(strings.Join(parts, sep)), off: off, end: p.end()}
}
