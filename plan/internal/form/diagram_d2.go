package form

import "strings"

// d2Attrs are the keys of D2 that say how something looks, not what there is.
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
	// marks counts what only D2 writes, edges the links; bad is set at what D2 does not write.
	marks, edges int
	bad          bool
	entered      map[string]bool // nodes whose containers know them
}

// d2At reads the drawing in D2 that begins on line i: a block of code in this language, or a block or a text
// of nothing but its statements.
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
	g := newDiagram("d2", i, l.Off)
	d := &d2{Diagram: g, s: src.Text[:to], i: l.Off, max: src.MaxDepth, entered: map[string]bool{}}
	d.block(nil, 0, false)
	if d.edges == 0 || !named && (d.bad || d.marks == 0) {
		return nil
	}
	if d.bad {
		g.fault(false, "SKIPPED_TEXT", d.i, g.Nodes[len(g.Nodes)-1].ID, "what follows is not understood as D2", "")
	}
	g.End, g.Last, g.Closed = d.i, max(src.LineAt(max(d.i-1, 0)), i), src.closedFence(end)
	d.shorten()
	return g
}

// maxD2Comments bounds the lines of comments above a drawing, and maxD2Parts the parts of a name with dots.
const maxD2Comments, maxD2Parts = 20, 20

func isD2Comment(s string) bool { return strings.HasPrefix(s, "#") }

// d2Start reports whether a block that begins on line i may be D2: one of its first lines has an arrow, and
// one has what only D2 writes.
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

// space passes white space, ends of statements and comments.
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

// block reads statements up to a closing brace or the end. In a block of attributes there are no nodes.
func (d *d2) block(path []string, depth int, attrs bool) {
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
		d.statement(path, depth, attrs)
	}
}

// until returns the text up to one of some signs outside quotes, or the end of the line.
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
func (d *d2) statement(path []string, depth int, attrs bool) {
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
			d.block(path, depth+1, true)
		}
	case len(back) > 0:
		d.link(path, parts, back, value)
		if open {
			d.marks++
			d.block(path, depth+1, true)
		}
	default:
		d.define(path, key, value, open, depth)
	}
}

// names splits a key at its dots. Attr is the first part that is an attribute, and what follows it is left
// out.
func (d *d2) names(path []string, key Piece) (full []string, attr string) {
	full = path[:len(path):len(path)]
	if s := label(key.Text); s != key.Text && strings.IndexByte("\"'", key.Text[0]) >= 0 {
		return append(full, s), ""
	}
	for _, part := range strings.Split(key.Text, ".") {
		part = label(part)
		switch {
		case d2Attrs[part]:
			return full, part
		case part == "" || len(part) > 120 || len(full) >= maxD2Parts || strings.ContainsAny(part, "{}[]|=<>`"):
			d.bad = true
			return full, ""
		default:
			full = append(full, part)
		}
	}
	return full, ""
}

// enter adds a node and the containers that it stands in.
func (d *d2) enter(full []string, label string, off int) string {
	id := strings.Join(full, ".")
	d.node(id, label, off)
	if d.entered[id] {
		return id
	}
	d.entered[id] = true
	for n := len(full) - 1; n > 0; n-- {
		in := strings.Join(full[:n], ".")
		d.node(in, "", off)
		if len(d.groups[in]) < 1000 {
			d.groups[in] = append(d.groups[in], id)
		}
	}
	return id
}

func (d *d2) define(path []string, key Piece, value string, open bool, depth int) {
	full, attr := d.names(path, key)
	if attr != "" {
		d.marks += b2i(attr == "shape" || attr == "style" || attr == "direction")
		if len(full) > 0 && attr == "label" {
			d.enter(full, value, key.Off)
		}
		if open {
			d.block(full, depth+1, true)
		}
		return
	}
	if len(full) == len(path) || d.bad {
		d.bad = true
		return
	}
	d.enter(full, value, key.Off)
	if open {
		d.marks++
		d.block(full, depth+1, false)
	}
}

func (d *d2) link(path []string, parts []Piece, back []bool, label string) {
	var ids []string
	for _, p := range parts {
		if p.Text == "" {
			d.bad = true
			return
		}
		full, attr := d.names(path, p)
		if d.bad || attr != "" || len(full) == 0 {
			d.bad = true
			return
		}
		ids = append(ids, d.enter(full, "", p.Off))
	}
	for k, left := range back {
		n := len(d.Links)
		if left {
			d.Diagram.link(ids[k+1:k+2], ids[k:k+1], parts[k].Off, "")
		} else {
			d.Diagram.link(ids[k:k+1], ids[k+1:k+2], parts[k].Off, "")
		}
		d.labelFrom(n, label)
		d.edges++
	}
}

// shorten names the nodes of containers by their last names, where these are the only ones.
func (d *d2) shorten() {
	last := func(id string) string { return id[strings.LastIndexByte(id, '.')+1:] }
	count := map[string]int{}
	for _, n := range d.Nodes {
		count[last(n.ID)]++
	}
	short := func(id string) string {
		if s := last(id); count[s] == 1 {
			return s
		}
		return id
	}
	groups := make(map[string][]string, len(d.groups))
	for id, ids := range d.groups {
		for _, x := range ids {
			groups[short(id)] = append(groups[short(id)], short(x))
		}
	}
	d.groups = groups
	for k := range d.Nodes {
		d.Nodes[k].ID = short(d.Nodes[k].ID)
	}
	for k := range d.Links {
		d.Links[k].From, d.Links[k].To = short(d.Links[k].From), short(d.Links[k].To)
	}
}
