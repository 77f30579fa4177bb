package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"

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
		p := &yamlParser{d: d, t: &form.Tree{YAML: true}, i: i, budget: 100_000}
		v := p.block(l.indent, 0)
		if v != nil && !v.IsScalar() {
			v.Off = l.off
			v.End = len(d.text)
			if p.i < len(d.lines) {
				v.End = d.lines[p.i].off
			}
			p.t.Root = v
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
	return ok && form.IsName(strings.ReplaceAll(key, " ", "_")) && (rest == "" || len(key) < 40)
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
	t      *form.Tree
	i      int
	budget int
}

func (p *yamlParser) fault(sev Severity, code Code, off int, el, msg string) {
	if len(p.t.Faults) < 1000 {
		p.t.Faults = append(p.t.Faults, form.Fault{Serious: sev == Error, Code: string(code), Off: off, Element: el, Message: msg, Hint: "check the indentation"})
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
func (p *yamlParser) block(indent, depth int) *form.Value {
	l, ok := p.next()
	if !ok || depth > p.d.limits.MaxDepth || depth > 200 {
		return nil
	}
	if l.text == "-" || strings.HasPrefix(l.text, "- ") {
		v := &form.Value{Kind: form.KindList, Off: l.off}
		for {
			l, ok := p.next()
			if !ok || l.indent != indent || l.text != "-" && !strings.HasPrefix(l.text, "- ") {
				if ok && l.indent > indent {
					p.fault(Error, Malformed, l.off, form.Clip(l.text), "this line is indented differently from the list around it")
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
						v.Items = append(v.Items, x)
					}
				}
			default:
				if key, after, isKey := yamlKey(rest); isKey {
					x := &form.Value{Kind: form.KindObject, Off: off}
					p.i++
					p.entry(x, key, after, off, inner, depth+1)
					if n, ok := p.next(); ok && n.indent > indent && n.indent != inner && !strings.HasPrefix(n.text, "- ") {
						inner = n.indent // indented by tabs, or by more than the dash
					}
					p.fields(x, inner, depth+1)
					v.Items = append(v.Items, x)
				} else {
					p.i++
					v.Items = append(v.Items, p.scalar(rest, off, indent))
				}
			}
		}
		v.End = p.end()
		return v
	}
	if _, _, isKey := yamlKey(l.text); !isKey {
		return nil
	}
	v := &form.Value{Kind: form.KindObject, Off: l.off}
	p.fields(v, indent, depth)
	v.End = p.end()
	return v
}

func (p *yamlParser) end() int {
	if p.i < len(p.d.lines) {
		return p.d.lines[p.i].off
	}
	return len(p.d.text)
}

// fields reads the lines of a map.
func (p *yamlParser) fields(v *form.Value, indent, depth int) {
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
			p.fault(Error, Malformed, l.off, form.Clip(l.text), "this line is no key of the map around it")
			p.i++
			continue
		}
		p.i++
		p.entry(v, key, rest, l.off, indent, depth)
	}
}

// entry reads the value of key: the rest of its line, or the lines below it.
func (p *yamlParser) entry(v *form.Value, key, rest string, off, indent, depth int) {
	f := form.Field{Key: key, Off: off}
	rest = stripComment(rest)
	valOff := off + len(key) + 1
	switch {
	case rest == "":
		n, ok := p.next()
		isItem := ok && (n.text == "-" || strings.HasPrefix(n.text, "- "))
		switch {
		case ok && (n.indent > indent || isItem && n.indent == indent):
			f.Val = p.block(n.indent, depth+1)
			if f.Val == nil {
				f.Val = p.scalar("", n.off, indent)
			}
		default:
			f.Val = &form.Value{Kind: form.KindNull, Off: valOff, End: valOff}
			if !ok && p.i >= len(p.d.lines) && depth == 0 {
				p.t.CutOff = true
			}
		}
	case rest[0] == '|' || rest[0] == '>':
		f.Val = p.blockScalar(rest[0], indent, valOff)
	default:
		f.Val = p.scalar(rest, valOff, indent)
	}
	if f.Val == nil {
		f.Val = &form.Value{Kind: form.KindNull, Off: valOff}
	}
	v.Fields = append(v.Fields, f)
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
func (p *yamlParser) scalar(s string, off, indent int) *form.Value {
	if s != "" && strings.IndexByte("[{\"'", s[0]) >= 0 {
		at := strings.Index(p.d.text[min(off, len(p.d.text)):], s[:1])
		if at >= 0 {
			text := p.d.text
			// A flow value ends with its line, unless its brackets say otherwise.
			lineEnd := off + at + len(s)
			if s[0] == '"' || s[0] == '\'' {
				text = p.d.text[:min(lineEnd, len(p.d.text))]
			} else if unpaired(unquoted(s)) == 0 || !p.flowGoesOn() {
				text = p.d.text[:min(lineEnd, len(p.d.text))]
			}
			if q, end := form.ValueAt(text, off+at, p.d.limits.MaxDepth, true); q.Root != nil {
				v := q.Root
				p.t.Faults = append(p.t.Faults, q.Faults...)
				p.t.CutOff = p.t.CutOff || q.CutOff && end >= len(p.d.text)
				for p.i < len(p.d.lines) && p.d.lines[p.i].off < end {
					p.i++
				}
				return v
			}
			p.fault(Error, Malformed, off, form.Clip(s), "this value cannot be read")
		}
	}
	v := &form.Value{Kind: form.KindString, Str: s, Off: off}
	for {
		l, ok := p.next()
		if !ok || l.indent <= indent || strings.HasPrefix(l.text, "- ") {
			break
		}
		if _, _, isKey := yamlKey(l.text); isKey {
			break
		}
		if v.Str != "" {
			v.Str += " "
		}
		v.Str += l.text
		p.i++
	}
	switch v.Str {
	case "null", "~":
		v.Kind, v.Str = form.KindNull, ""
	case "true", "false":
		v.Kind = form.KindBool
	default:
		if n, rest, ok := cutNumber(v.Str); ok && n == v.Str && rest == "" {
			v.Kind = form.KindNumber
		}
		if v.Str == "-1" {
			v.Kind = form.KindNumber
		}
	}
	v.End = off + len(v.Str)
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

func (p *yamlParser) blockScalar(style byte, indent, off int) *form.Value {
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
	return &form.Value{Kind: form.KindString, Str: strings.TrimSpace(strings.Join(parts, sep)), Off: off, End: p.end()}
}
