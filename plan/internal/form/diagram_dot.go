package form

import "strings"

// dotAt reads the DOT graph that begins on line i.
func dotAt(src *Source, i int) *Diagram {
	l := &src.Lines[i]
	head, directed := dotHead(src, i)
	if head == 0 {
		return nil
	}
	g := newDiagram(src, "dot", i)
	end := src.blockEnd(i)
	to := len(src.Text)
	if end < len(src.Lines) {
		to = src.Lines[end].Start
	}
	d := &dot{Diagram: g, s: src.Text[:to], i: l.Off + head, labels: map[string]string{}, max: src.MaxDepth, directed: directed}
	if open := strings.IndexByte(d.s[d.i:min(len(d.s), d.i+200)], '{'); open >= 0 {
		d.i += open + 1
	}
	d.statements(0, "")
	g.End, g.Last = d.i, max(src.LineAt(max(d.i-1, 0)), i)
	for k := range g.Nodes {
		if t := d.labels[g.Nodes[k].ID]; t != "" {
			g.Nodes[k].Label = label(t)
		}
	}
	g.Closed = d.closed
	if !d.closed && len(g.Nodes) > 0 {
		last := g.Nodes[len(g.Nodes)-1].ID
		g.fault(true, "TRUNCATED", d.i, last, "the graph is not closed: what came after "+last+" may be lost", "ask for the rest of the graph")
	}
	return g
}

// dotHead returns the length of "digraph name {" or "graph {" at the start of line i. The brace may be on the
// next line.
func dotHead(src *Source, i int) (n int, directed bool) {
	s := src.Lines[i].Text
	rest, _ := cutWord(s, "strict")
	t, ok := cutWord(rest, "digraph")
	if !ok {
		if t, ok = cutWord(rest, "graph"); !ok {
			return 0, false
		}
	} else {
		directed = true
	}
	if k := strings.IndexByte(t, '{'); k >= 0 && k < 80 {
		return len(s) - len(t) + k, directed
	}
	if len(t) < 80 && i+1 < len(src.Lines) && strings.HasPrefix(src.Lines[i+1].Text, "{") {
		return len(s), directed
	}
	return 0, false
}

type dot struct {
	*Diagram
	s        string
	i, max   int
	directed bool
	closed   bool
	labels   map[string]string
	open     []string
}

// space skips white space and comments. With lines it skips line ends as well.
func (d *dot) space(lines bool) {
	for d.i < len(d.s) {
		rest := d.s[d.i:]
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' && lines:
			d.i++
		case strings.HasPrefix(rest, "//") || c == '#':
			if n := strings.IndexByte(rest, '\n'); n >= 0 {
				d.i += n
			} else {
				d.i = len(d.s)
			}
		case strings.HasPrefix(rest, "/*"):
			n := strings.Index(rest, "*/")
			if n < 0 {
				n = len(rest) - 2
			}
			d.i += n + 2
		default:
			return
		}
	}
}

// statements reads up to the closing brace and returns the nodes that are named.
func (d *dot) statements(depth int, group string) (all []string) {
	if group != "" {
		d.open = append(d.open, group)
		defer func() { d.open = d.open[:len(d.open)-1] }()
	}
	for {
		d.space(true)
		if d.i >= len(d.s) {
			return all
		}
		switch c := d.s[d.i]; c {
		case '}':
			d.i++
			if depth == 0 {
				d.closed = true
			}
			return all
		case ';', ',':
			d.i++
		default:
			all = append(all, d.chain(depth)...)
			if depth > d.max {
				d.i = len(d.s)
			}
		}
	}
}

// chain reads "a -> {b c} -> d [attributes]" and returns the nodes that are named.
func (d *dot) chain(depth int) (all []string) {
	var before []string
	arrow, at := "", d.i
	for {
		now, plain := d.side(depth)
		all = append(all, now...)
		if arrow != "" {
			if len(now) == 0 || len(before) == 0 {
				d.fault(true, "EMPTY_ID", at, strings.Join(before, ", "), "an edge from "+strings.Join(before, ", ")+" has nothing on one side", "name a node on both sides")
			}
		}
		links := len(d.Links)
		if arrow != "" {
			d.link(before, now, at, "")
			if arrow == "--" {
				d.Undirected += len(d.Links) - links
				d.fault(false, "AMBIGUOUS", at, strings.Join(now, ", "), "the edge between "+strings.Join(before, ", ")+" and "+strings.Join(now, ", ")+" has no direction; it was taken to lead forward", "write a -> b")
			}
		}
		d.space(true)
		if rest := d.s[d.i:]; strings.HasPrefix(rest, "->") || strings.HasPrefix(rest, "--") {
			before, arrow, at = now, rest[:2], d.i
			d.i += 2
			if !plain && len(now) == 0 {
				return all
			}
			continue
		}
		if d.i < len(d.s) && d.s[d.i] == '[' {
			d.attributes(now, links, arrow != "")
		}
		return all
	}
}

// side reads one side of an edge: a node, or a set of nodes.
func (d *dot) side(depth int) (ids []string, plain bool) {
	d.space(true)
	if d.i >= len(d.s) {
		return nil, true
	}
	group := ""
	if rest, ok := cutWord(d.s[d.i:min(len(d.s), d.i+300)], "subgraph"); ok {
		d.i = d.i + len(d.s[d.i:min(len(d.s), d.i+300)]) - len(rest)
		d.space(true)
		name, n := dotID(d.s[d.i:])
		group = name
		d.i += n
		d.space(true)
		if d.i >= len(d.s) || d.s[d.i] != '{' {
			return d.groups[group], false
		}
		if d.groups[group] == nil {
			d.groups[group] = []string{}
		}
	}
	if d.s[d.i] == '{' {
		d.i++
		if depth >= d.max {
			d.i = len(d.s)
			return nil, false
		}
		return unique(d.statements(depth+1, group)), false
	}
	off := d.i
	id, n := dotID(d.s[d.i:])
	if n == 0 {
		if d.s[d.i] == '[' || d.s[d.i] == '}' {
			return nil, true
		}
		d.fault(true, "MALFORMED", d.i, d.s[d.i:min(len(d.s), d.i+40)], "this is no statement of a graph", "write A -> B;")
		if k := strings.IndexAny(d.s[d.i:], "\n;}"); k > 0 {
			d.i += k
		} else {
			d.i++
		}
		return nil, true
	}
	d.i += n
	d.space(false)
	rest := d.s[d.i:]
	switch {
	case strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "=>"):
		d.i++
		d.space(false)
		_, n := dotID(d.s[d.i:])
		d.i += max(n, 1)
		return nil, true
	case (id == "node" || id == "edge" || id == "graph") && strings.HasPrefix(rest, "["):
		return nil, true
	case strings.HasPrefix(rest, ":") && !strings.HasPrefix(rest, "::"):
		for strings.HasPrefix(d.s[d.i:], ":") { // ports
			d.i++
			_, k := dotID(d.s[d.i:])
			d.i += k
		}
	}
	if _, known := d.index[id]; !known {
		for _, x := range d.open {
			d.groups[x] = append(d.groups[x], id)
		}
	}
	d.node(id, "", off)
	return []string{id}, true
}

// attributes reads "[label="…", dir=back]" behind nodes, or behind the links from index links on.
func (d *dot) attributes(now []string, links int, edge bool) {
	var fields []TextField
	defer func() {
		for k := links; k < len(d.Links) && len(fields) > 0; k++ {
			d.Links[k].Fields = fields
		}
	}()
	d.i++
	for d.i < len(d.s) {
		d.space(true)
		if d.i >= len(d.s) {
			return
		}
		if c := d.s[d.i]; c == ']' {
			d.i++
			return
		} else if c == ',' || c == ';' || c == '=' {
			d.i++
			continue
		}
		key, n := dotID(d.s[d.i:])
		d.i += max(n, 1)
		d.space(true)
		if d.i >= len(d.s) || d.s[d.i] != '=' {
			continue
		}
		d.i++
		d.space(true)
		value, n := dotID(d.s[d.i:])
		d.i += n
		switch {
		case edge && key == "dir" && value == "back":
			for k := links; k < len(d.Links); k++ {
				d.Links[k].From, d.Links[k].To = d.Links[k].To, d.Links[k].From
			}
		case edge && (key == "label" || key == "xlabel"):
			d.labelFrom(links, value)
		case !edge && key == "label" && len(now) > 0:
			d.labels[now[len(now)-1]] = value
		case edge && value != "":
			if len(fields) < maxTextFields {
				fields = append(fields, TextField{key, value})
			}
		case len(now) > 0:
			d.addField(now[len(now)-1], key, value)
		}
	}
}

// dotID reads a name, a number, a quoted text or a text in angle brackets.
func dotID(s string) (string, int) {
	if s == "" {
		return "", 0
	}
	s = s[:min(len(s), 20_000)]
	switch s[0] {
	case '"':
		for j := 1; j < len(s); j++ {
			if s[j] == '\\' {
				j++
			} else if s[j] == '"' {
				return strings.ReplaceAll(strings.ReplaceAll(s[1:j], `\"`, `"`), `\\`, `\`), j + 1
			}
		}
		return "", 0
	case '<':
		depth := 0
		for j := range len(s) {
			if s[j] == '<' {
				depth++
			} else if s[j] == '>' {
				if depth--; depth == 0 {
					return untag(s[1:j]), j + 1
				}
			}
		}
		return "", 0
	}
	j := nameEnd(s, ".'’!?&")
	for j < len(s) && s[j] == '-' && j > 0 && j+1 < len(s) && s[j+1] != '>' && s[j+1] != '-' && nameEnd(s[j+1:], "") > 0 {
		j += 1 + nameEnd(s[j+1:], ".")
	}
	return s[:j], j
}

func untag(s string) string {
	var b strings.Builder
	in := false
	for _, r := range s {
		switch {
		case r == '<':
			in = true
			b.WriteByte(' ')
		case r == '>' && in:
			in = false
		case !in:
			b.WriteRune(r)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func unique(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	out := ids[:0:0]
	for _, x := range ids {
		if !seen[x] {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}
