package form

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Diagram is a drawing of nodes and links: Mermaid, DOT, PlantUML, D2, lines of arrows, boxes, a Makefile or
// a chart.
type Diagram struct {
	// Kind is "mermaid", "dot", "plantuml", "d2", "gantt", "arrows", "art" or "make".
	Kind   string
	Nodes  []Node
	Links  []Arc
	Faults []Fault
	// First and Last are the indexes of its first and last line in Source.Lines. Start and End delimit its
	// text.
	First, Last, Start, End int
	// Closed is set if the diagram has an end mark: a fence, a brace, @enduml.
	Closed bool
	// Flow is set if the nodes are to be listed in the order of the links, because their order in the text
	// means little.
	Flow bool
	// Undirected counts the links without a direction.
	Undirected int
	index      map[string]int
	groups     map[string][]string
	most       int  // bound on the number of links
	limited    bool // a fault has reported that a limit is reached
}

// Node is one node of a diagram. Pseudo is set for forks, joins, starts and ends, which only pass links on.
type Node struct {
	ID, Label string
	Hidden    bool
	Pseudo    bool
	Off, End  int
	Fields    []TextField
}

// TextField is a detail of a node or a link besides its label: an attribute, a length, a state.
type TextField struct{ Key, Text string }

// Arc is one link. Assumed is the reason why the link is only assumed, or empty. Label is the text at the
// link.
type Arc struct {
	From, To string
	Off      int
	Assumed  string
	Label    string
	Fields   []TextField
}

// maxTextFields bounds the fields of one node or link.
const maxTextFields = 50

// maxFaults bounds the faults of one diagram.
const maxFaults = 200

func newDiagram(src *Source, kind string, first int) *Diagram {
	start := src.Lines[first].Off
	return &Diagram{Kind: kind, First: first, Last: first, Start: start, End: start, most: src.MaxLinks, index: map[string]int{}, groups: map[string][]string{}}
}

func (g *Diagram) fault(bad bool, code string, off int, element, message, hint string) {
	if len(g.Faults) < maxFaults {
		g.Faults = append(g.Faults, Fault{bad, code, off, Clip(element), message, hint})
	}
}

// full reports, at its first call, that a limit is reached.
func (g *Diagram) full(off int, element, message, hint string) {
	if !g.limited {
		g.limited = true
		g.fault(true, codeLimitReached, off, element, message, hint)
	}
}

// node adds a node. If the node is known, it only sets the label.
func (g *Diagram) node(id, label string, off int) {
	if id == "" {
		return
	}
	k, ok := g.index[id]
	if !ok {
		k = len(g.Nodes)
		g.index[id] = k
		g.Nodes = append(g.Nodes, Node{ID: id, Off: off, End: off + len(id)})
	}
	if n := &g.Nodes[k]; label != "" && n.Label == "" {
		n.Label = label
	}
}

// addField adds a field to a node.
func (g *Diagram) addField(id, key, text string) {
	if k, ok := g.index[id]; ok && text != "" && len(g.Nodes[k].Fields) < maxTextFields {
		g.Nodes[k].Fields = append(g.Nodes[k].Fields, TextField{key, text})
	}
}

// link adds links from each node of one group to each node of another.
func (g *Diagram) link(from, to []string, off int, assumed string) {
	for _, a := range from {
		for _, b := range to {
			if len(g.Links) > g.most {
				g.full(off, strings.Join(from[:min(3, len(from))], ", "), "the groups of this link stand for too many links", "split it")
				return
			}
			g.Links = append(g.Links, Arc{From: a, To: b, Off: off, Assumed: assumed})
		}
	}
}

// labelFrom sets the label of the n-th link and all later ones.
func (g *Diagram) labelFrom(n int, text string) {
	for ; n < len(g.Links); n++ {
		g.Links[n].Label = text
	}
}

// resolveGroups replaces links of groups by links to their first and from their last nodes. It also replaces
// links through pseudo nodes by direct ones.
func (g *Diagram) resolveGroups() {
	if len(g.groups) > 0 {
		g.openGroups()
	}
	pseudo := map[string]bool{}
	for _, n := range g.Nodes {
		pseudo[n.ID] = n.Pseudo
	}
	in, out := map[string][]Arc{}, map[string][]Arc{}
	kept := g.Links[:0]
	for _, l := range g.Links {
		if pseudo[l.From] || pseudo[l.To] {
			out[l.From], in[l.To] = append(out[l.From], l), append(in[l.To], l)
			continue
		}
		kept = append(kept, l)
	}
	g.Links = kept
	if len(out) > 0 {
		for _, n := range g.Nodes {
			if n.Pseudo {
				continue
			}
			g.pass(n.ID, n.ID, "", out, pseudo, map[string]bool{})
		}
	}
	nodes := g.Nodes[:0]
	for _, n := range g.Nodes {
		if !n.Pseudo {
			nodes = append(nodes, n)
		}
	}
	g.Nodes = nodes
}

// pass adds links from a node to every node that it reaches through pseudo nodes only. A link has the labels
// of the whole way.
func (g *Diagram) pass(from, at, label string, out map[string][]Arc, pseudo, seen map[string]bool) {
	for _, l := range out[at] {
		if label != "" && len(label) < 400 {
			l.Label = strings.TrimSuffix(label+", "+l.Label, ", ")
		}
		if !pseudo[l.To] {
			if len(g.Links) <= g.most {
				g.Links = append(g.Links, Arc{From: from, To: l.To, Off: l.Off, Label: l.Label, Fields: l.Fields})
			}
		} else if !seen[l.To] && len(seen) < 200 {
			seen[l.To] = true
			g.pass(from, l.To, l.Label, out, pseudo, seen)
		}
	}
}

// openGroups replaces a link to a group by links to those of its nodes that have no predecessor in the group.
// Links from a group are replaced likewise by links from its nodes without a successor.
func (g *Diagram) openGroups() {
	owner := map[string][]string{}
	for id, ids := range g.groups {
		for _, x := range ids {
			owner[x] = append(owner[x], id)
		}
	}
	// Keys are a group and one of its nodes. first: the node has a predecessor in the group; last: a
	// successor.
	first, last := map[[2]string]bool{}, map[[2]string]bool{}
	for _, l := range g.Links {
		for _, x := range owner[l.From] {
			if slices.Contains(owner[l.To], x) {
				first[[2]string{x, l.To}], last[[2]string{x, l.From}] = true, true
			}
		}
	}
	open := func(id string, hidden map[[2]string]bool) []string {
		ids, ok := g.groups[id]
		if !ok || len(ids) == 0 {
			return []string{id}
		}
		var out []string
		for _, x := range ids {
			if !hidden[[2]string{id, x}] && (g.groups[x] == nil) {
				out = append(out, x)
			}
		}
		if out == nil {
			return ids
		}
		return out
	}
	links := g.Links
	g.Links = nil
	for _, l := range links {
		n := len(g.Links)
		g.link(open(l.From, last), open(l.To, first), l.Off, l.Assumed)
		for g.labelFrom(n, l.Label); n < len(g.Links); n++ {
			g.Links[n].Fields = l.Fields
		}
	}
	nodes := g.Nodes[:0]
	for _, n := range g.Nodes {
		if ids, ok := g.groups[n.ID]; !ok || len(ids) == 0 {
			nodes = append(nodes, n)
		}
	}
	g.Nodes = nodes
}

// Diagrams returns the diagrams of a text in order.
func Diagrams(src *Source) []*Diagram {
	var out []*Diagram
	var rules makeTries
	for i := 0; i < len(src.Lines); {
		if i&1023 == 0 && src.Ended() {
			return nil
		}
		g := diagramAt(src, i, &rules)
		if g == nil || len(g.Nodes) == 0 {
			i++
			continue
		}
		g.resolveGroups()
		out = append(out, g)
		i = max(g.Last, i) + 1
		if len(out) >= 64 || src.Ended() {
			return out
		}
	}
	return out
}

// diagramAt reads the diagram whose head is line i. It returns nil if there is none.
func diagramAt(src *Source, i int, rules *makeTries) *Diagram {
	l := &src.Lines[i]
	if l.Text == "" || l.Fence {
		return nil
	}
	for _, read := range [...]func(*Source, int) *Diagram{mermaidAt, ganttAt, dotAt, umlAt, d2At} {
		if g := read(src, i); g != nil {
			return g
		}
	}
	return makeAt(src, i, rules)
}

// blockEnd returns the index of the first line behind i that is outside of its code fence. Outside of fences
// it is the end of the text up to the next fence.
func (s *Source) blockEnd(i int) int { return s.ends[i] }

// closedFence reports whether line j is the fence that closes the block before it.
func (s *Source) closedFence(j int) bool { return j < len(s.Lines) && s.Lines[j].Fence }

// wordRune reports whether r may be part of an identifier.
func wordRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// nameEnd returns the length of the identifier at the start of s. extra lists further signs that it may
// contain.
func nameEnd(s, extra string) int {
	for i, r := range s {
		if !wordRune(r) && (extra == "" || !strings.ContainsRune(extra, r)) {
			return i
		}
	}
	return len(s)
}

// cutWord removes a word from the start of s, ignoring case. ok is false if s does not start with it.
func cutWord(s, word string) (string, bool) {
	if len(s) < len(word) || !strings.EqualFold(s[:len(word)], word) {
		return s, false
	}
	rest := s[len(word):]
	if r, _ := utf8.DecodeRuneInString(rest); rest != "" && wordRune(r) {
		return s, false
	}
	return strings.TrimLeft(rest, " \t"), true
}

// QuotedLength returns the length of the quoted text that s starts with, or 0 if it does not end on its line.
func QuotedLength(s string) int {
	for j := 1; j < len(s); j++ {
		switch s[j] {
		case '\\':
			j++
		case s[0]:
			return j + 1
		case '\n':
			return 0
		}
	}
	return 0
}

// label removes quotes, line breaks and tags from a label.
func label(s string) string {
	s = strings.TrimSpace(s)
	if n := len(s); n > 1 && (s[0] == '"' || s[0] == '\'' || s[0] == '`') && s[n-1] == s[0] {
		s = strings.TrimSpace(s[1 : n-1])
	}
	if strings.ContainsAny(s, "\\<*`") {
		for _, br := range [...]string{"<br/>", "<br />", "<br>", "\\n", "\\l", "\\r"} {
			s = strings.ReplaceAll(s, br, " ")
		}
		s = strings.Trim(s, "*`")
	}
	return strings.Join(strings.Fields(s), " ")
}
