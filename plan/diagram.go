package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readDiagram reads a Mermaid flowchart or a graph in the DOT language: nodes with labels, edges, groups.
func readDiagram(d *document) *reading {
	for i, l := range d.lines {
		if l.text == "" || l.fence {
			continue
		}
		head, dot := diagramHead(l.text)
		if head == 0 {
			continue
		}
		end := i + 1
		for end < len(d.lines) && d.lines[end].inCode == l.inCode && !d.lines[end].fence {
			end++
		}
		from := l.off + head
		to := len(d.text)
		if end < len(d.lines) {
			to = d.starts[end]
		}
		g := &diagram{d: d, r: &reading{edgesStated: true, start: l.off, end: from}, dot: dot, labels: map[string]string{}, index: map[string]bool{}}
		if dot {
			g.readDOT(from, to)
		} else {
			g.readMermaid(i, end, head)
		}
		if len(g.r.graph.Problems) == 0 || len(g.r.graph.Edges) == 0 {
			return nil
		}
		for k := range g.r.graph.Problems {
			p := &g.r.graph.Problems[k]
			if p.Request = g.labels[p.ID]; p.Request == "" {
				p.Request = p.ID
			}
		}
		return g.r
	}
	return nil
}

// diagramHead returns the length of "graph TD", "flowchart LR" or "digraph name {" at the start of s, 0 if there is none.
func diagramHead(s string) (n int, dot bool) {
	for _, h := range [...]string{"flowchart", "graph"} {
		if rest, ok := strings.CutPrefix(s, h); ok {
			t := strings.TrimLeft(rest, " ")
			for _, dir := range [...]string{"TD", "TB", "LR", "RL", "BT"} {
				if after, ok := strings.CutPrefix(t, dir); ok && len(t) < len(rest) && (after == "" || after[0] == ';' || after[0] == ' ') {
					return len(s) - len(strings.TrimLeft(after, "; ")), false
				}
			}
			if t == ";" || t == "" && h == "flowchart" {
				return len(s), false
			}
		}
	}
	rest := strings.TrimPrefix(s, "strict ")
	if after, ok := strings.CutPrefix(rest, "digraph"); ok && (after == "" || after[0] == ' ' || after[0] == '{') {
		if i := strings.IndexByte(after, '{'); i >= 0 && i < 80 {
			return len(s) - len(after) + i + 1, true
		}
		if len(after) < 80 {
			return len(s), true
		}
	}
	return 0, false
}

type diagram struct {
	d      *document
	r      *reading
	dot    bool
	labels map[string]string
	index  map[string]bool
}

func (g *diagram) node(id, label string, off int) {
	if id == "" {
		return
	}
	if !g.index[id] {
		g.index[id] = true
		g.r.graph.Problems = append(g.r.graph.Problems, g.d.problem(id, "", off))
	}
	if label != "" && g.labels[id] == "" {
		g.labels[id] = label
	}
}

func (g *diagram) edges(from, to []string, off int) {
	if len(from)*len(to) > maxProduct {
		g.r.diag(g.d, Error, LimitReached, off, "", "the groups of this edge stand for too many edges", "split it")
		return
	}
	for _, a := range from {
		for _, b := range to {
			g.r.edge(g.d, a, b, Stated, off)
		}
	}
}

// mermaidDirectives start lines that state neither nodes nor edges.
var mermaidDirectives = [...]string{"subgraph", "end", "style ", "classDef ", "class ", "click ", "linkStyle ", "direction ", "%%", "accTitle", "accDescr", "title"}

func (g *diagram) readMermaid(first, end, head int) {
	for i := first; i < end; i++ {
		l := g.d.lines[i]
		text, off := l.text, l.off
		if i == first {
			text, off = text[head:], off+head
		}
		if text == "" {
			continue
		}
		if i > first && !l.inCode && !mermaidLine(text) {
			break
		}
		g.r.end = l.off + len(l.text)
		skip := false
		for _, w := range mermaidDirectives {
			skip = skip || strings.HasPrefix(text, w) && (w != "end" || len(strings.TrimRight(text, "; ")) == 3)
		}
		if skip {
			continue
		}
		g.mermaidStatements(text, off)
	}
}

func mermaidLine(s string) bool {
	for _, w := range mermaidDirectives {
		if strings.HasPrefix(s, w) {
			return true
		}
	}
	s = strings.TrimRight(s, "; ")
	return mayHoldArrow(s) || strings.Contains(s, "---") || strings.IndexAny(s, "[({") > 0 && strings.ContainsAny(s[len(s)-1:], "])}") || isSingleID(s)
}

// mermaidStatements reads "A[x] & B --> C -- why --> D; E".
func (g *diagram) mermaidStatements(s string, off int) {
	var before, now []string
	pending := false
	flush := func() {
		if pending && len(before) > 0 && len(now) > 0 {
			g.edges(before, now, off)
		}
		before, now, pending = now, nil, false
	}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '&':
			i++
		case c == ';':
			flush()
			before = nil
			i++
		case strings.IndexByte("-=.<~ox", c) >= 0 && mermaidLink(s[i:]) > 0:
			n := mermaidLink(s[i:])
			if s[i] == '<' || s[i] == 'x' || s[i] == 'o' {
				g.r.diag(g.d, Warning, Ambiguous, off, form.Clip(s), "this link has heads on both ends; it was taken to lead forward", "write A --> B")
			}
			flush()
			pending = true
			i += n
			if i < len(s) && s[i] == '|' {
				if end := strings.IndexByte(s[i+1:], '|'); end >= 0 {
					i += end + 2
				}
			}
		default:
			j := i
			for j < len(s) && (form.IsWordByte(s[j]) || s[j] >= 0x80 || s[j] == '.' || s[j] == '-' && mermaidLink(s[j:]) == 0) {
				j++
			}
			if j == i {
				g.r.diag(g.d, Error, Malformed, off, form.Clip(s), "this is no statement of a flowchart", "write A --> B")
				return
			}
			id, label := s[i:j], ""
			if j < len(s) && strings.IndexByte("[({>", s[j]) >= 0 {
				var ok bool
				if label, j, ok = mermaidLabel(s, j); !ok {
					g.r.diag(g.d, Error, Unclosed, off, id, "the label of "+id+" is not closed", "write its closing bracket")
				}
			}
			if k := strings.Index(s[j:], ":::"); k == 0 {
				for j += 3; j < len(s) && form.IsWordByte(s[j]); {
					j++
				}
			}
			g.node(id, label, off)
			now = append(now, id)
			i = j
		}
	}
	if pending && len(now) == 0 {
		g.r.diag(g.d, Error, EmptyID, off, form.Clip(s), "a link has nothing on one side", "name a node on both sides")
	}
	flush()
}

// mermaidLink returns the length of the link that s starts with: -->, ---, -.->, ==>, -- text -->, --x, <-->.
func mermaidLink(s string) int {
	i := 0
	if s[0] == '<' || s[0] == 'x' || s[0] == 'o' {
		i = 1
	}
	start := i
	for i < len(s) && strings.IndexByte("-=.~", s[i]) >= 0 {
		i++
	}
	n := i - start
	if n < 2 {
		return 0
	}
	if i < len(s) && s[i] == '>' {
		return i + 1
	}
	if start == 1 && s[0] != '<' {
		return 0
	}
	if i < len(s) && (s[i] == 'x' || s[i] == 'o') && (i+1 == len(s) || s[i+1] == ' ') {
		return i + 1
	}
	if n == 2 || s[start:i] == "-." {
		// -- text --> and -. text .->
		if end := strings.IndexByte(s[i:min(len(s), i+200)], '>'); end > 2 && strings.IndexByte("-=.", s[i+end-1]) >= 0 {
			return i + end + 1
		}
		return 0
	}
	return i
}

// mermaidLabel reads the label in brackets at s[i]; quoted labels may hold brackets.
func mermaidLabel(s string, i int) (label string, end int, ok bool) {
	j := i
	for j < len(s) && strings.IndexByte("[({>/\\", s[j]) >= 0 {
		j++
	}
	if j < len(s) && s[j] == '"' {
		if k := strings.IndexByte(s[j+1:], '"'); k >= 0 {
			label = s[j+1 : j+1+k]
			j += k + 2
		}
	}
	k := j
	for k < len(s) && strings.IndexByte("])}", s[k]) < 0 {
		k++
	}
	if label == "" {
		label = strings.Trim(s[j:k], `/\ `)
	}
	ok = k < len(s)
	for k < len(s) && strings.IndexByte("])}", s[k]) >= 0 {
		k++
	}
	return label, k, ok
}

// readDOT reads the statements between the braces of a digraph.
func (g *diagram) readDOT(from, to int) {
	s := g.d.text[:to]
	depth := 1
	var before, now []string
	pending := false
	statement := func() {
		if pending && len(before) > 0 && len(now) > 0 {
			g.edges(before, now, from)
		} else if pending {
			g.r.diag(g.d, Error, EmptyID, from, strings.Join(before, ", ")+" ->", "an edge has nothing on one side", "name a node on both sides")
		}
		before, now, pending = nil, nil, false
	}
	var sets [][]string
	i := from
	for i < len(s) && depth > 0 {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == ',':
			i++
		case c == '\n' || c == ';':
			if rest := strings.TrimLeft(s[i:], " \t\r\n"); !strings.HasPrefix(rest, "->") && !(pending && len(now) == 0) && len(sets) == 0 {
				statement()
			}
			i++
		case strings.HasPrefix(s[i:], "//") || c == '#':
			if n := strings.IndexByte(s[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(s)
			}
		case strings.HasPrefix(s[i:], "/*"):
			if n := strings.Index(s[i:], "*/"); n >= 0 {
				i += n + 2
			} else {
				i = len(s)
			}
		case strings.HasPrefix(s[i:], "->"):
			if pending && len(before) > 0 && len(now) > 0 {
				g.edges(before, now, i)
			}
			before, now, pending = now, nil, true
			i += 2
		case c == '{':
			depth++
			sets = append(sets, now)
			now = nil
			i++
		case c == '}':
			depth--
			if len(sets) > 0 {
				now = append(sets[len(sets)-1], now...)
				sets = sets[:len(sets)-1]
			}
			i++
		case c == '[':
			n, label := dotAttributes(s[i:])
			if len(now) > 0 && !pending && label != "" {
				g.labels[now[len(now)-1]] = label
			}
			i += n
		case c == '=':
			// name = value: an attribute of the graph.
			i++
			for i < len(s) && s[i] == ' ' {
				i++
			}
			_, n := dotID(s[i:])
			i += max(n, 1)
			now = nil
		default:
			id, n := dotID(s[i:])
			if n == 0 {
				g.r.diag(g.d, Error, Malformed, i, form.Clip(s[i:min(len(s), i+40)]), "this is no statement of a graph", "write A -> B;")
				i++
				continue
			}
			off := i
			i += n
			rest := strings.TrimLeft(s[i:], " \t")
			switch {
			case strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "=>"):
			case (id == "node" || id == "edge" || id == "graph") && strings.HasPrefix(rest, "["):
			case id == "subgraph":
				if _, k := dotID(rest); k > 0 {
					i += len(s[i:]) - len(rest) + k
				}
			default:
				if strings.HasPrefix(rest, ":") { // a port
					i += len(s[i:]) - len(rest) + 1
					_, k := dotID(s[i:])
					i += k
				}
				g.node(id, "", off)
				now = append(now, id)
			}
		}
	}
	statement()
	g.r.end = i
	if depth > 0 && len(g.r.graph.Problems) > 0 {
		last := g.r.graph.Problems[len(g.r.graph.Problems)-1].ID
		g.r.diag(g.d, Error, Truncated, i, last, "the graph is not closed: what came after "+last+" may be lost", "ask for the rest of the graph")
	}
}

// dotID reads a name, a number or a quoted text.
func dotID(s string) (string, int) {
	if s == "" {
		return "", 0
	}
	if s[0] == '"' {
		if n := quotedLength(s); n > 0 {
			return form.Unescape(s[1:n-1], true), n
		}
		return "", 0
	}
	j := 0
	for j < len(s) && (form.IsWordByte(s[j]) || s[j] == '.' || s[j] >= 0x80) {
		j++
	}
	return s[:j], j
}

// dotAttributes returns the length of "[…]" at the start of s and the label in it.
func dotAttributes(s string) (int, string) {
	label := ""
	for j := 1; j < len(s); j++ {
		switch {
		case s[j] == ']':
			return j + 1, label
		case s[j] == '"':
			n := quotedLength(s[j:])
			if n == 0 {
				return j + 1, label
			}
			if strings.HasSuffix(strings.TrimRight(s[:j], " "), "label=") || strings.HasSuffix(strings.TrimRight(s[:j], " "), "label =") {
				label = form.Unescape(s[j+1:j+n-1], true)
			}
			j += n - 1
		}
	}
	return len(s), label
}
