package form

import "strings"

// d2Attrs are the keys of D2 that set attributes rather than name nodes.
var d2Attrs = map[string]bool{
	"direction": true, "shape": true, "style": true, "label": true, "near": true, "width": true, "height": true, "icon": true, "tooltip": true, "link": true,
	"vars": true, "classes": true, "class": true, "constraint": true, "top": true, "left": true, "grid-rows": true, "grid-columns": true, "grid-gap": true,
	"source-arrowhead": true, "target-arrowhead": true, "layers": true, "scenarios": true, "steps": true,
}

// d2 reads a drawing in the language D2.
type d2 struct {
	*Diagram
	s      string
	i, max int
	// marks counts constructs that only D2 has, and edges the links. bad is set at text that is not D2.
	marks, edges int
	bad          bool
}

// d2At reads the D2 drawing that begins on line i: a code block in this language, or a block or text that
// consists of D2 statements only.
func d2At(src *Source, i int) *Diagram {
	l := &src.Lines[i]
	named := l.InCode && l.Lang == "d2"
	for k := i - 1; k >= 0 && !src.Lines[k].Fence && src.Lines[k].Text != ""; k-- {
		if named || i-k > maxD2Comments || !isD2Comment(src.Lines[k].Text) {
			return nil // not the first line
		}
	}
	if !named && (l.InCode && l.Lang != "" && l.Lang != "text" && l.Lang != "yaml" || !d2Start(src, i)) {
		return nil
	}
	end := src.blockEnd(i)
	to := len(src.Text)
	if end < len(src.Lines) {
		to = src.Lines[end].Start
	}
	g := newDiagram(src, "d2", i)
	d := &d2{Diagram: g, s: src.Text[:to], i: l.Off, max: src.MaxDepth}
	d.block(nil, 0, false)
	if d.edges == 0 || !named && (d.bad || d.marks == 0) {
		return nil
	}
	if d.bad {
		g.fault(false, "SKIPPED_TEXT", d.i, g.Nodes[len(g.Nodes)-1].ID, "the rest is not valid D2", "")
	}
	g.End, g.Last, g.Closed = d.i, max(src.LineAt(max(d.i-1, 0)), i), src.closedFence(end)
	return g
}

// maxD2Comments bounds the lines of comments above a drawing. maxD2Depth bounds the containers around a node.
const maxD2Comments, maxD2Depth = 20, 20

func isD2Comment(s string) bool { return strings.HasPrefix(s, "#") }

// d2Start reports whether a block that begins on line i may be D2: its first lines contain an arrow and a
// construct that only D2 has.
func d2Start(src *Source, i int) bool {
	arrow, mark := false, false
	for k := i; k < len(src.Lines) && k < i+60 && !src.Lines[k].Fence; k++ {
		s := src.Lines[k].Text
		if len(s) > 500 {
			return false
		}
		arrow = arrow || strings.Contains(s, "->")
		mark = mark || strings.HasPrefix(s, "direction:") || strings.Contains(s, "shape:") || strings.Contains(s, "style.") || strings.HasSuffix(s, "{") && strings.Contains(s, ":") && !strings.ContainsAny(s, "\"'(") && s[0] != '{'
	}
	return arrow && mark
}

// space skips white space, ends of statements and comments.
func (d *d2) space() {
	for d.i < len(d.s) {
		switch c := d.s[d.i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ';':
			d.i++
		case c == '#':
			if n := strings.IndexByte(d.s[d.i:], '\n'); n >= 0 {
				d.i += n
			} else {
				d.i = len(d.s)
			}
		default:
			return
		}
	}
}

// block reads statements up to a closing brace or the end. A block of attributes contains no nodes.
func (d *d2) block(in []string, depth int, attrs bool) {
	for !d.bad {
		d.space()
		if d.i >= len(d.s) {
			return
		}
		if d.s[d.i] == '}' {
			d.i++
			d.bad = d.bad || depth == 0
			return
		}
		if depth > d.max {
			d.i, d.bad = len(d.s), true
			return
		}
		d.statement(in, depth, attrs)
	}
}

// until returns the text up to one of the signs outside quotes, or up to the end of the line.
func (d *d2) until(signs string) Piece {
	start := d.i
	for d.i < len(d.s) && d.s[d.i] != '\n' && strings.IndexByte(signs, d.s[d.i]) < 0 {
		if c := d.s[d.i]; (c == '"' || c == '\'') && strings.TrimSpace(d.s[start:d.i]) == "" {
			if n := QuotedLength(d.s[d.i:]); n > 0 {
				d.i += n
				continue
			}
		}
		d.i++
	}
	return piece(d.s, start, d.i, 0)
}

// statement reads one statement: a node, a container, an attribute, or a link.
func (d *d2) statement(in []string, depth int, attrs bool) {
	key := d.until(":{};")
	value, colon := "", d.i < len(d.s) && d.s[d.i] == ':'
	if colon {
		d.i++
		for d.i < len(d.s) && (d.s[d.i] == ' ' || d.s[d.i] == '\t') {
			d.i++
		}
		value = label(d.until("{};").Text)
	}
	open := d.i < len(d.s) && d.s[d.i] == '{'
	if key.Text == "" || strings.HasPrefix(key.Text, "- ") || colon && value == "" && !open {
		d.bad = true // "The plan:" is no statement
		return
	}
	if open {
		d.i++
	}
	parts, back := SplitArrows(key.Text, key.Off)
	switch {
	case attrs || key.Text[0] == '(':
		if open {
			d.block(in, depth+1, true)
		}
	case len(back) > 0:
		d.link(in, parts, back, value)
		if open {
			d.marks++
			d.block(in, depth+1, true)
		}
	default:
		d.define(in, key, value, open, depth)
	}
}

// name returns the last name of a dotted key, or the attribute in it.
func (d *d2) name(key Piece) (id, attr string) {
	if s := label(key.Text); s != key.Text && strings.IndexByte("\"'", key.Text[0]) >= 0 {
		return s, ""
	}
	for _, part := range strings.Split(key.Text, ".") {
		part = label(part)
		if d2Attrs[part] {
			return id, part
		}
		if d.bad = d.bad || part == "" || len(part) > 120 || strings.ContainsAny(part, "{}[]|=<>`"); d.bad {
			return "", ""
		}
		id = part
	}
	return id, ""
}

// enter adds a node to the drawing and to the containers around it.
func (d *d2) enter(in []string, id, label string, off int) {
	if _, known := d.index[id]; !known {
		for _, x := range in {
			d.groups[x] = append(d.groups[x], id)
		}
	}
	d.node(id, label, off)
}

func (d *d2) define(in []string, key Piece, value string, open bool, depth int) {
	id, attr := d.name(key)
	switch {
	case attr != "":
		d.marks += b2i(attr == "shape" || attr == "style" || attr == "direction")
		switch {
		case id != "" && attr == "label":
			d.enter(in, id, value, key.Off)
		case id != "":
			d.addField(id, attr, value)
		case len(in) > 0:
			d.addField(in[len(in)-1], attr, value)
		}
		if open {
			d.block(in, depth+1, true)
		}
	case id != "":
		d.enter(in, id, value, key.Off)
		if open {
			d.marks++
			d.block(append(in[:min(len(in), maxD2Depth):min(len(in), maxD2Depth)], id), depth+1, false)
		}
	}
}

func (d *d2) link(in []string, parts []Piece, back []bool, label string) {
	ids := make([]string, len(parts))
	for k, p := range parts {
		attr := ""
		if p.Text != "" {
			ids[k], attr = d.name(p)
		}
		if ids[k] == "" || attr != "" {
			d.bad = true
			return
		}
		d.enter(in, ids[k], "", p.Off)
	}
	for k, left := range back {
		n, from, to := len(d.Links), ids[k:k+1], ids[k+1:k+2]
		if left {
			from, to = to, from
		}
		d.Diagram.link(from, to, parts[k].Off, "")
		d.labelFrom(n, label)
		d.edges++
	}
}
