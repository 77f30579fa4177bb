package plan

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// readNodeEdge reads "Node:" with lines "1: text" and "Edge:" with pairs "(START,1) (1,2) (2,END)".
func readNodeEdge(d *document) *reading {
	head := d.find(0, isNodeHead)
	edgeAt := d.find(max(head, 0), func(s string) bool { _, ok := edgeMarker(s); return ok })
	if head < 0 && edgeAt < 0 || d.inYAML(head) || d.inYAML(edgeAt) {
		return nil
	}
	r := &reading{edgesStated: true, start: d.lines[max(head, 0)].off}
	end := len(d.lines)
	if edgeAt >= 0 {
		end = edgeAt
	}
	last := r.readNodes(d, head, end)
	ids := make(map[string]bool, len(r.graph.Problems))
	for _, p := range r.graph.Problems {
		ids[p.ID] = true
	}
	if n := len(r.graph.Problems); n == 0 || n > 3 && len(ids)*2 < n {
		return nil // YAML repeats the fields of nodes with each node
	}
	lastID := r.graph.Problems[len(r.graph.Problems)-1].ID
	if head < 0 {
		r.diag(d, Warning, MissingField, r.start, "Node", `there is no line "Node:"`, `write "Node:" before the nodes`)
	}
	stop := len(d.lines)
	if again := d.find(max(edgeAt, last)+1, isNodeHead); again >= 0 {
		stop, r.again = again, d.starts[again]
	}
	pairs := readPairs(d, max(last+1, 0), edgeAt, stop)
	switch {
	case edgeAt >= 0:
	case len(pairs) > 0:
		r.diag(d, Warning, MissingField, pairs[0].off, pairs[0].from, `there is no line "Edge:" before the pairs`, `write "Edge:"`)
	case head < 0:
		return nil
	default:
		r.diag(d, Error, Truncated, len(d.text), lastID, "there are nodes and no edges: the text may end too early after node "+lastID, `write "Edge:" with the pairs`)
		r.edgesStated = false
		return r
	}
	r.addPairs(d, pairs, ids, lastID)
	return r
}

// find returns the first line at or after from for which is returns true, or -1.
func (d *document) find(from int, is func(string) bool) int {
	for i := from; i < len(d.lines); i++ {
		if is(d.lines[i].text) {
			return i
		}
	}
	return -1
}

// readNodes reads the nodes below the head, which is -1 if there is none. It returns the line of the last
// node.
func (r *reading) readNodes(d *document, head, end int) (last int) {
	last = -1
	for i := head + 1; i < end; i++ {
		l := d.lines[i]
		if l.text == "" || l.fence {
			continue
		}
		n := len(r.graph.Problems)
		id, text, ok := nodeLine(l.text)
		switch {
		case ok && (n == 0 || isNumber(id) == isNumber(r.graph.Problems[0].ID)): // otherwise it is a legend
			r.graph.Problems = append(r.graph.Problems, d.problem(id, text, l.off))
			last, r.end = i, l.off+len(l.text)
		case n == 0:
		case last == i-1 && !strings.Contains(l.text, ":") && l.text[0] >= 'a' && l.text[0] <= 'z' && !isSectionWord(l.text, "graph"):
			r.graph.Problems[n-1].Request += " " + l.text // the text continues on the next line
			last = i
		default:
			return last
		}
	}
	return last
}

// addPairs adds the edges of pairs, and warns if START or END are missing.
func (r *reading) addPairs(d *document, pairs []pair, ids map[string]bool, lastID string) {
	starts, ends := map[string]bool{}, map[string]bool{}
	succ, pred := map[string]bool{}, map[string]bool{}
	for _, p := range pairs {
		r.end = max(r.end, p.off)
		if p.bad != "" {
			r.diag(d, Error, Malformed, p.off, p.bad, "this edge is not of the form (from,to)", "write (1,2)")
			if p.from == "" || p.to == "" {
				continue
			}
		}
		fs, te := isTerminal(p.from, "start"), isTerminal(p.to, "end")
		switch {
		case fs && te:
		case fs:
			starts[p.to] = true
			if !ids[p.to] {
				r.diag(d, Error, UnknownReference, p.off, p.to, "START leads to "+p.to+", which is no node", "name a node")
			}
		case te:
			ends[p.from] = true
			if !ids[p.from] {
				r.diag(d, Error, UnknownReference, p.off, p.from, p.from+" leads to END and is no node", "name a node")
			}
		default:
			succ[p.from], pred[p.to] = true, true
			r.edge(d, p.from, p.to, Stated, p.off)
		}
	}
	for _, p := range r.graph.Problems {
		x := Diagnostic{Code: Contradiction, Severity: Warning, Line: p.Line, Column: p.Column, Element: p.ID, Hint: "write its edges"}
		if len(ends) > 0 && !succ[p.ID] && !ends[p.ID] {
			x.Message = "nothing follows this node and it does not lead to END: an edge may be missing"
			r.diags = append(r.diags, x)
		}
		if len(starts) > 0 && !pred[p.ID] && !starts[p.ID] {
			x.Message = "nothing leads to this node, not even START: an edge may be missing"
			r.diags = append(r.diags, x)
		}
	}
	if len(ends) == 0 && len(starts) > 0 || len(pairs) == 0 {
		r.diag(d, Error, Truncated, r.end, lastID, "no edge leads to END: the edges may end too early", "ask for the rest of the edges")
	}
}

// isNodeHead reports whether a line is the head of the nodes.
func isNodeHead(s string) bool { return isSectionWord(s, "node") || isSectionWord(s, "nodes") }

func isNumber(id string) bool { return strings.Trim(id, "0123456789.") == "" }

// inYAML reports whether the lines under the head in line i are a YAML list of maps: the line below "- key:
// value" has a key without a dash.
func (d *document) inYAML(i int) bool {
	if i < 0 || i+2 >= len(d.lines) || !strings.HasPrefix(d.lines[i+1].text, "- ") {
		return false
	}
	key, _, ok := strings.Cut(d.lines[i+2].text, ":")
	return ok && key != "" && key[0] != '-' && strings.Contains(d.lines[i+1].text, ":") && !strings.Contains(key, " ")
}

// isSectionWord reports whether a line holds only the word and decoration, as in "**Node:**".
func isSectionWord(s, word string) bool {
	t := strings.Trim(s, " *#_:：`-")
	return len(t) == len(word) && strings.EqualFold(t, word)
}

// edgeMarker reports whether s starts with "Edge:", with any decoration, and returns the text behind it.
func edgeMarker(s string) (string, bool) {
	t := strings.TrimLeft(s, " *#_`->•")
	if !hasFold(t, "edge") {
		return "", false
	}
	t = t[4:]
	if hasFold(t, "s") {
		t = t[1:]
	}
	u := strings.TrimLeft(t, "* _`")
	if strings.HasPrefix(u, "(") && strings.IndexByte(u, ',') > 0 {
		return u, true // "Edge (1, 2)"
	}
	if u == "" || u[0] == ':' || strings.HasPrefix(u, "：") {
		return strings.TrimLeft(u, ":：* `"), true
	}
	return "", false
}

// nodeLine reads "1: text", also with decoration or with another mark after the id.
func nodeLine(s string) (id, text string, ok bool) {
	t := strings.TrimLeft(s, " *-•`")
	if hasFold(t, "node ") || hasFold(t, "node#") {
		if n := strings.TrimLeft(t[len("node"):], " #"); n != "" && '0' <= n[0] && n[0] <= '9' {
			t = n
		}
	}
	if num, rest, ok := cutNumber(t); ok && rest != "" && rest != t[len(num):] {
		return num, strings.TrimSpace(strings.Trim(rest, "*")), true
	}
	i := strings.IndexByte(t, ':')
	if i <= 0 || i > 32 || !form.IsName(t[:i]) || hasFold(t, "edge") || hasFold(t, "graph") || hasFold(t, "node:") || hasFold(t, "note:") {
		return "", "", false
	}
	return t[:i], strings.TrimSpace(t[i+1:]), true
}

func isTerminal(s, word string) bool { return strings.EqualFold(s, word) }

// pair is one "(from,to)". bad is its text if it is malformed.
type pair struct {
	from, to string
	off      int
	bad      string
}

// readPairs reads the pairs from the edge marker on, up to the prose that explains them.
func readPairs(d *document, from, edgeAt, stop int) []pair {
	var out []pair
	i := from
	if edgeAt >= 0 {
		i = edgeAt
	}
	for ; i < stop; i++ {
		l := d.lines[i]
		if l.text == "" || l.fence {
			continue
		}
		text, marker := edgeMarker(l.text)
		if !marker {
			text = strings.TrimLeft(l.text, " *-•`")
		}
		off := l.off + len(l.text) - len(text)
		if (marker || edgeAt >= 0) && isArrowPairs(text) {
			out = append(out, arrowPairs(text, off)...)
			continue
		}
		text = plainPairs(text)
		// The line starts with a pair, or with a pair that lost its opening bracket.
		if marker || strings.HasPrefix(text, "(") || edgeAt >= 0 && startsPair(text) {
			out = append(out, linePairs(text, off)...)
		}
	}
	return out
}

// plainPairs rewrites pairs with other brackets or separators as (a,b). The length in bytes stays the same.
func plainPairs(s string) string {
	if strings.IndexByte(s, '(') < 0 {
		s = strings.NewReplacer("（", "(  ", "）", ")  ", "，", ",  ", "；", ",  ", "[", "(", "]", ")", "<", "(", ">", ")").Replace(s)
	}
	return s
}

// isArrowPairs reports whether a line writes its edges with arrows and without brackets.
func isArrowPairs(s string) bool {
	return strings.IndexByte(s, '(') < 0 && meaning.IsArrowLine(s)
}

// arrowPairs reads "START -> 1 -> 2, 2 -> 3". A comma ends an edge, unless one side of it has no arrow.
func arrowPairs(s string, off int) []pair {
	all := strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == ';' || c == '，' })
	if slices.ContainsFunc(all, func(part string) bool { return !form.ContainsArrow(part) }) {
		all = []string{s}
	}
	var out []pair
	for _, part := range all {
		chains, _ := form.Chains(part, off, false)
		for _, c := range chains {
			for i, back := range c.Back {
				for _, x := range c.Groups[i] {
					for _, y := range c.Groups[i+1] {
						p := pair{from: bareID(x.Text), to: bareID(y.Text), off: x.Off}
						if back {
							p.from, p.to = p.to, p.from
						}
						if !isPairEnd(p.from) || !isPairEnd(p.to) {
							p = pair{off: x.Off, bad: form.Clip(part)}
						}
						if out = append(out, p); len(out) > maxPairs {
							return out
						}
					}
				}
			}
		}
	}
	return out
}

// maxPairs bounds the number of edges that one chain of arrows stands for.
const maxPairs = 10_000

// startsPair reports whether s starts like "1,2)".
func startsPair(s string) bool {
	i := strings.IndexByte(s, ')')
	j := strings.IndexByte(s, ',')
	return i > 0 && i < 24 && j > 0 && j < i && form.IsName(strings.TrimSpace(s[:j])) && form.IsName(strings.TrimSpace(s[j+1:i]))
}

// linePairs reads the pairs of one line. Text between pairs is skipped unless it looks like part of a pair.
func linePairs(s string, off int) []pair {
	var out []pair
	for i := 0; i < len(s); {
		if s[i] != '(' {
			// A text such as "1,2)" is a pair without its opening bracket.
			j := i
			for j < len(s) && s[j] != '(' && s[j] != ')' {
				j++
			}
			seg := s[i:j]
			if j < len(s) && s[j] == ')' {
				if k := pairStart(seg); k >= 0 {
					a, b, ok := splitPair(seg[k:])
					if ok {
						out = append(out, pair{a, b, off + i + k, form.Clip(seg[k:] + ")")})
					}
				}
				j++
			}
			i = j
			continue
		}
		j := i + 1
		for j < len(s) && s[j] != ')' && s[j] != '(' && j-i < 120 {
			j++
		}
		inside := s[i+1 : j]
		a, b, ok := splitPair(inside)
		switch {
		case j < len(s) && s[j] == ')':
			if ok {
				out = append(out, pair{from: a, to: b, off: off + i})
			} else if strings.Contains(inside, ",") && len(inside) < 40 {
				out = append(out, pair{off: off + i, bad: "(" + inside + ")"}) // (1,2,3)
			} else if form.IsName(strings.TrimSpace(inside)) && len(inside) < 12 && len(out) > 0 {
				out = append(out, pair{off: off + i, bad: "(" + inside + ")"})
			}
			i = j + 1
		default:
			// The pair is not closed: the line ends, or the next pair starts.
			if ok {
				out = append(out, pair{a, b, off + i, form.Clip("(" + inside)})
			} else if len(inside) < 40 {
				out = append(out, pair{off: off + i, bad: form.Clip("(" + inside)})
			}
			i = j
		}
	}
	return out
}

// pairStart returns the index at which the pair begins in "…text 1,2", or -1.
func pairStart(seg string) int {
	j := strings.LastIndexByte(seg, ',')
	if j <= 0 {
		return -1
	}
	k := j
	for k > 0 && (form.IsWordByte(seg[k-1]) || seg[k-1] == ' ' && k == j) {
		k--
	}
	return k
}

func splitPair(s string) (a, b string, ok bool) {
	i := strings.IndexAny(s, ",，;；")
	if i < 0 {
		if parts, back := splitArrows(s); len(back) == 1 && !back[0] {
			return parts[0], parts[1], form.IsName(parts[0]) && form.IsName(parts[1])
		}
		return "", "", false
	}
	width := 1
	if s[i] >= 0x80 {
		width = len("，")
	}
	a, b = strings.Trim(s[:i], "\"'` \t"), strings.Trim(s[i+width:], "\"'` \t")
	return a, b, isPairEnd(a) && isPairEnd(b)
}

func isPairEnd(s string) bool {
	return form.IsName(s) && len(s) <= 32
}
