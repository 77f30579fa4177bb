package form

import "strings"

// mermaidAt reads the Mermaid flowchart or state diagram that begins on line i.
func mermaidAt(src *Source, i int) *Diagram {
	l := &src.Lines[i]
	head, state := mermaidHead(l.Text)
	if head == 0 {
		return nil
	}
	g := newDiagram(src, "mermaid", i)
	m := &mermaid{Diagram: g, state: state, depth: min(src.MaxDepth, maxGroups)}
	end := src.blockEnd(i)
	g.Closed = src.closedFence(end)
	for k := i; k < end; k++ {
		text, off := src.Lines[k].Text, src.Lines[k].Off
		if k == i {
			text, off = text[head:], off+head
		} else if !l.InCode && !mermaidLine(text, state) {
			if text == "" && k+1 < end && mermaidLine(src.Lines[k+1].Text, state) && src.Lines[k+1].Indent > 0 {
				continue
			}
			break
		}
		g.Last, g.End = k, src.Lines[k].End
		for k+1 < end && openLabel(text) && src.Lines[k+1].End-off < 600 {
			k++
			text = src.Text[off:src.Lines[k].End]
			g.Last, g.End = k, src.Lines[k].End
		}
		m.line(text, off)
	}
	if !g.Closed && len(g.Nodes) > 0 && l.InCode && end == len(src.Lines) {
		last := g.Nodes[len(g.Nodes)-1].ID
		g.fault(true, "TRUNCATED", g.End, last, "the code fence is not closed: what came after "+last+" may be lost", "ask for the rest of the diagram")
	}
	if len(m.open) > 0 {
		g.fault(false, "UNBALANCED", g.End, m.open[len(m.open)-1], "the subgraph "+m.open[len(m.open)-1]+" has no end", "write end")
	}
	return g
}

// mermaid is the state of the reader of a flowchart. open holds the subgraphs that have not ended.
type mermaid struct {
	*Diagram
	state bool
	open  []string
	note  bool
	// depth bounds the number of open subgraphs. deeper counts the open subgraphs beyond it, which are
	// skipped.
	depth, deeper int
}

// maxGroups bounds the nesting of subgraphs, because a node belongs to all subgraphs around it.
const maxGroups = 50

// mermaidHead returns the length of "graph TD", "flowchart LR" or "stateDiagram-v2" at the start of s, 0 if
// there is no head.
func mermaidHead(s string) (n int, state bool) {
	for _, h := range [...]string{"flowchart-elk", "flowchart", "graph"} {
		t, ok := cutWord(s, h)
		if !ok {
			continue
		}
		for _, dir := range [...]string{"TD", "TB", "LR", "RL", "BT"} {
			if after, ok := cutWord(t, dir); ok {
				return len(s) - len(strings.TrimLeft(after, "; ")), false
			}
		}
		if t == ";" || t == "" && h != "graph" {
			return len(s), false
		}
	}
	if t, ok := cutWord(s, "stateDiagram-v2"); ok && t == "" {
		return len(s), true
	}
	if t, ok := cutWord(s, "stateDiagram"); ok && t == "" {
		return len(s), true
	}
	return 0, false
}

// mermaidDirectives are the first words of lines that state neither nodes nor links.
var mermaidDirectives = [...]string{"style", "classDef", "class", "click", "linkStyle", "direction", "accTitle", "accDescr", "title", "hide", "scale", "note"}

func mermaidDirective(s string) bool {
	if strings.HasPrefix(s, "%%") {
		return true
	}
	for _, w := range mermaidDirectives {
		if rest, ok := cutWord(s, w); ok && rest != "" && strings.HasPrefix(s, w) && !strings.ContainsAny(rest[:1], "-=[({.:&;~") {
			return true
		}
	}
	return false
}

// mermaidLine reports whether a line outside a fence still belongs to a flowchart.
func mermaidLine(s string, state bool) bool {
	if s == "" {
		return false
	}
	if _, ok := cutWord(s, "subgraph"); ok || mermaidDirective(s) || strings.TrimRight(s, "; ") == "end" || s == "}" {
		return true
	}
	s = strings.TrimRight(s, "; ")
	n := mermaidName(s, 0)
	if n == 0 {
		return false
	}
	rest := strings.TrimLeft(s[n:], " ")
	if rest == "" || strings.IndexByte("[({>", s[n-1]) >= 0 {
		return true
	}
	if _, ok := cutWord(s, "state"); ok && state {
		return true
	}
	return mermaidLink(rest) > 0 || strings.IndexByte("[({>&", rest[0]) >= 0 && strings.IndexByte("])}", s[len(s)-1]) >= 0 ||
		rest[0] == '&' || strings.HasPrefix(rest, ":::") || strings.HasPrefix(rest, "@{") || strings.IndexByte("[({", rest[0]) >= 0 && ContainsArrow(rest) || state && rest[0] == ':'
}

// openLabel reports whether a quoted label of s continues on the next line.
func openLabel(s string) bool {
	i := strings.LastIndexAny(s, "[({|")
	return i >= 0 && i+1 < len(s) && s[i+1] == '"' && strings.IndexByte(s[i+2:], '"') < 0
}

// line reads one line of a flowchart or state diagram.
func (m *mermaid) line(text string, off int) {
	if m.note {
		_, ended := cutWord(text, "end note")
		m.note = !ended
		return
	}
	if rest, ok := cutWord(text, "note"); ok && m.state {
		m.note = !strings.Contains(rest, ":")
		return
	}
	if i := strings.Index(text, " %%"); i >= 0 {
		text = text[:i]
	}
	if text == "" || mermaidDirective(text) || text == "--" {
		return
	}
	if rest, ok := cutWord(text, "subgraph"); ok {
		m.openGroup(rest, off)
		return
	}
	if t := strings.TrimRight(text, "; "); t == "end" && !m.state || t == "}" {
		if m.deeper > 0 {
			m.deeper--
			return
		}
		m.open = m.open[:max(0, len(m.open)-1)]
		return
	}
	if m.state && m.stateLine(text, off) {
		return
	}
	m.statements(text, off)
}

func (m *mermaid) openGroup(head string, off int) {
	id := strings.TrimSpace(head)
	if i := strings.IndexAny(id, "[("); i > 0 {
		id = strings.TrimSpace(id[:i])
	}
	id = label(id)
	if len(m.open) >= m.depth {
		m.full(off, id, "subgraphs are nested too deeply", "nest them less")
		m.deeper++
		return
	}
	if m.groups[id] == nil {
		m.groups[id] = []string{}
	}
	m.open = append(m.open, id)
}

// stateLine reads the statements that only state diagrams have: "state "x" as s", "s : label", forks and
// joins.
func (m *mermaid) stateLine(text string, off int) bool {
	if rest, ok := cutWord(text, "state"); ok {
		name, kind, _ := strings.Cut(rest, "<<")
		name = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(name), "{"))
		title := ""
		if strings.HasPrefix(name, `"`) {
			if n := QuotedLength(name); n > 0 {
				title = name[1 : n-1]
				name, _ = cutWord(strings.TrimSpace(name[n:]), "as")
			}
		}
		if strings.HasSuffix(strings.TrimSpace(text), "{") {
			m.openGroup(name, off)
			return true
		}
		m.add(name, title, off)
		if k, ok := m.index[name]; ok && kind != "" {
			m.Nodes[k].Pseudo = true
		}
		return true
	}
	if id, title, ok := strings.Cut(text, ":"); ok && !ContainsArrow(id) && !strings.HasPrefix(title, "::") {
		m.add(strings.TrimSpace(id), strings.TrimSpace(title), off)
		return true
	}
	return false
}

// add adds a node to the diagram and to the open groups.
func (m *mermaid) add(id, title string, off int) {
	if _, known := m.index[id]; !known {
		for _, x := range m.open {
			m.groups[x] = append(m.groups[x], id)
		}
	}
	m.node(id, title, off)
	if k, ok := m.index[id]; ok && strings.HasPrefix(id, "[*]") {
		m.Nodes[k].Pseudo = true
	}
}

// statements reads "A[x] & B --> C -- why --> D; E".
func (m *mermaid) statements(s string, off int) {
	var before, now []string
	pending := byte(0) // the kind of the link whose right side is missing
	text := ""         // the label of that link
	flush := func() {
		if len(before) > 0 && len(now) > 0 {
			n := len(m.Links)
			m.join(before, now, pending, off)
			m.labelFrom(n, text)
		} else if pending != 0 && len(now) == 0 {
			m.fault(true, "EMPTY_ID", off, strings.Join(before, ", "), "a link from "+strings.Join(before, ", ")+" has nothing on one side", "name a node on both sides")
		}
		before, now, pending = now, nil, 0
	}
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '&' || c == ',' || c == '\n':
			i++
		case c == ';':
			flush()
			before = nil
			i++
		case strings.IndexByte("-=.<~", c) >= 0 && mermaidLink(s[i:]) > 0:
			n := mermaidLink(s[i:])
			flush()
			pending, text = linkKind(s[i:i+n]), label(strings.Trim(s[i:i+n], "-=.<>xo~ "))
			if i += n; i < len(s) && s[i] == '|' {
				if end := strings.IndexByte(s[i+1:], '|'); end >= 0 {
					text = label(s[i+1 : i+1+end])
					i += end + 2
				}
			}
		case c == ':' && m.state:
			text, i = label(s[i+1:]), len(s)
		default:
			j := mermaidName(s, i)
			if j == i {
				m.fault(true, "MALFORMED", off+i, s[i:], "this is no statement of a flowchart", "write A --> B")
				flush()
				return
			}
			id := s[i:j]
			if id == "[*]" {
				id = "[*]" + map[bool]string{true: "end", false: "start"}[pending != 0]
			}
			title, k, ok := mermaidLabel(s, j)
			if !ok {
				m.fault(true, "UNCLOSED", off+i, id, "the label of "+id+" is not closed", "write its closing bracket")
			}
			if strings.HasPrefix(s[k:], ":::") {
				k += 3 + nameEnd(s[k+3:], "-")
			}
			m.add(id, title, off+i)
			now = append(now, id)
			i = k
		}
	}
	flush()
}

// join links two groups by a link of a kind: '>' forward, '<' back, '=' both ways, '-' without a head, '~'
// invisible.
func (m *mermaid) join(before, now []string, kind byte, off int) {
	names := strings.Join(before, ", ") + " and " + strings.Join(now, ", ")
	switch kind {
	case '~', 0:
	case '<':
		m.link(now, before, off, "")
	case '>':
		m.link(before, now, off, "")
	default:
		m.link(before, now, off, "")
		m.fault(false, "AMBIGUOUS", off, strings.Join(now, ", "), "the link between "+names+" does not say which comes first; it was taken to lead forward", "write A --> B")
	}
}

// mermaidName returns the end of the id that begins at s[i].
func mermaidName(s string, i int) int {
	if strings.HasPrefix(s[i:], "[*]") {
		return i + 3
	}
	j := i
	for j < len(s) {
		n := nameEnd(s[j:], "")
		if n == 0 {
			if c := s[j]; j > i && (c == '.' || c == '-' || c == '/' || c == '#') && mermaidLink(s[j:]) == 0 && nameEnd(s[j+1:], "") > 0 {
				j++
				continue
			}
			break
		}
		j += n
	}
	return j
}

// mermaidLink returns the length of the link at the start of s: -->, ---, -.->, ==>, -- text -->, --x, <-->,
// ~~~.
func mermaidLink(s string) int {
	if s == "" {
		return 0
	}
	i := 0
	if s[0] == '<' || (s[0] == 'x' || s[0] == 'o') && len(s) > 2 && s[1] == '-' {
		i = 1
	}
	start := i
	for i < len(s) && strings.IndexByte("-=.~", s[i]) >= 0 {
		i++
	}
	n := i - start
	if n < 2 {
		if strings.HasPrefix(s[start:], "->") {
			return start + 2
		}
		return arrowSign(s)
	}
	if i < len(s) && s[i] == '>' {
		for i < len(s) && s[i] == '>' {
			i++
		}
		return i
	}
	if start == 1 && s[0] != '<' {
		return 0
	}
	if i < len(s) && (s[i] == 'x' || s[i] == 'o') && (i+1 == len(s) || s[i+1] == ' ' || s[i+1] == '|') {
		return i + 1
	}
	if n == 2 || s[start:i] == "-." {
		// -- text --> and -. text .->
		for k := i; k+2 < len(s) && k < i+200; k++ {
			if sign := s[k : k+2]; sign == "--" || sign == "==" || sign == ".-" || sign == "->" {
				for k < len(s) && strings.IndexByte("-=.", s[k]) >= 0 {
					k++
				}
				if k < len(s) && strings.IndexByte(">xo", s[k]) >= 0 {
					k++
				}
				return k
			}
		}
		if s[0] == '<' {
			return i
		}
		return 0
	}
	return i
}

// arrowSign returns the length of an arrow at the start of s that is a sign of its own, such as →.
func arrowSign(s string) int {
	if s[0] < 0x80 {
		return 0
	}
	n, _ := ArrowAt(s, 0)
	return n
}

func linkKind(s string) byte {
	right := strings.HasSuffix(s, ">") || strings.HasSuffix(s, "x") || strings.HasSuffix(s, "o")
	switch {
	case s[0] >= 0x80:
		if _, left := ArrowAt(s, 0); left {
			return '<'
		}
		return '>'
	case strings.HasPrefix(s, "~"):
		return '~'
	case s[0] == '<' && right:
		return '='
	case s[0] == '<':
		return '<'
	case right:
		return '>'
	}
	return '-'
}

// mermaidLabel reads the label in brackets at s[i], if there is one. Quoted labels may contain brackets.
func mermaidLabel(s string, i int) (title string, end int, ok bool) {
	if i >= len(s) {
		return "", i, true
	}
	if strings.HasPrefix(s[i:], "@{") {
		k := strings.IndexByte(s[i:], '}')
		if k < 0 {
			return "", len(s), false
		}
		if at := strings.Index(s[i:i+k], "label:"); at >= 0 {
			t := strings.TrimSpace(s[i+at+6 : i+k])
			if n := quotedOrComma(t); n > 0 {
				t = t[:n]
			}
			title = label(t)
		}
		return title, i + k + 1, true
	}
	if strings.IndexByte("[({>", s[i]) < 0 || s[i] == '>' && i+1 < len(s) && (s[i+1] == ' ' || s[i+1] == '>') {
		return "", i, true
	}
	j := i
	for j < len(s) && strings.IndexByte("[({>/\\", s[j]) >= 0 {
		j++
	}
	depth := j - i
	if j < len(s) && s[j] == '"' {
		if k := strings.IndexByte(s[j+1:], '"'); k >= 0 {
			title = s[j+1 : j+1+k]
			j += k + 2
		}
	}
	k := j
	for open := 0; k < len(s); k++ {
		if strings.IndexByte("[({", s[k]) >= 0 {
			open++
		} else if strings.IndexByte("])}", s[k]) >= 0 {
			if open == 0 {
				break
			}
			open--
		}
	}
	if title == "" {
		title = strings.Trim(s[j:k], `/\ `)
	}
	ok = k < len(s)
	for n := 0; k < len(s) && n < depth && strings.IndexByte("])}", s[k]) >= 0; n++ {
		k++
	}
	return label(title), k, ok
}

func quotedOrComma(s string) int {
	if s != "" && (s[0] == '"' || s[0] == '\'') {
		return QuotedLength(s)
	}
	return strings.IndexByte(s, ',')
}
