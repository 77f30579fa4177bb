package plan

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// maxSplits bounds the number of consecutive plans in one text that are recognized.
const maxSplits = 4

// readOnce reads d in dialect dl. A text may hold a plan twice, or a plan and its revision. readOnce returns
// the plan that counts, and reports the differences of the other one.
func readOnce(d *document, dl *dialect, depth int) *reading {
	r := dl.read(d)
	if r == nil || r.noPlan != nil || depth >= maxSplits || len(r.graph.Problems) > d.limits.MaxProblems {
		return r
	}
	at := r.again
	if at == 0 && restarts(dl.name) {
		at = r.restart(d)
	}
	if at == 0 {
		return r
	}
	a := readOnce(d.only(0, at), dl, maxSplits)
	b := readOnce(d.only(at, len(d.text)), dl, depth+1)
	if a == nil || b == nil || a.noPlan != nil || b.noPlan != nil || len(b.graph.Problems) == 0 || len(a.graph.Problems) == 0 {
		return r
	}
	if !sameGraph(a.graph, b.graph) && r.again == 0 && !d.proseBetween(a.graph, b.graph) {
		return r // ids that are used twice, not another plan
	}
	return pick(d, a, b)
}

// restarts reports whether a dialect numbers its problems in sequence, so that a second use of the first id
// begins another plan.
func restarts(dialect string) bool {
	switch dialect {
	case "evidence", "call_log", "numbered_calls", "assignments":
		return true
	}
	return false
}

// pick returns the reading that counts, of two readings of which a stands before b. It reports in it how the
// other one differs.
func pick(d *document, a, b *reading) *reading {
	chosen, other := a, b
	if d.revised(a.end, b.start) || meaning.Replaces(a.graph.outline(), b.graph.outline()) {
		chosen, other = b, a
	}
	if sameGraph(a.graph, b.graph) {
		if a.start < b.start {
			chosen.end, chosen.openEnded = b.end, b.openEnded
		}
		return chosen
	}
	chosen.severalPlans(d, other)
	if chosen == a {
		chosen.openEnded = false // another plan follows, not the rest of this one
	}
	return chosen
}

// restart returns the place at which the first id is used again after others, or 0.
func (r *reading) restart(d *document) int {
	ps := r.graph.Problems
	for i := 2; i < len(ps); i++ {
		if ps[i].ID != ps[0].ID {
			continue
		}
		last, first := d.lineAt(d.offset(ps[i-1].Line, ps[i-1].Column)), d.lineAt(d.offset(ps[i].Line, ps[i].Column))
		for k := first; k > last; k-- {
			if d.lines[k].text == "" {
				return d.starts[k]
			}
		}
		if last+1 < len(d.starts) {
			return d.starts[last+1]
		}
		return 0
	}
	return 0
}

// offset is the inverse of place.
func (d *document) offset(lineNo, col int) int {
	if d.outer != nil {
		at := d.outer.offset(lineNo, col)
		return sort.Search(len(d.back), func(i int) bool { return int(d.back[i]) >= at })
	}
	if lineNo < 1 || lineNo > len(d.starts) {
		return 0
	}
	off := d.starts[lineNo-1]
	if col > runeStride && off < len(d.text) {
		// Start at the last counted place at or before the column, and count the rest from there.
		want := d.runesBefore(off) + col - 1
		if k := sort.SearchInts(d.runes, want+1) - 1; k*runeStride > off {
			off, col = k*runeStride, want-d.runes[k]+1
			for off < len(d.text) && !utf8.RuneStart(d.text[off]) {
				off++
			}
		}
	}
	for ; col > 1 && off < len(d.text); col-- {
		_, n := utf8.DecodeRuneInString(d.text[off:])
		off += n
	}
	return off
}

// only returns d with all text outside of [from, to) blanked out. Places do not change.
func (d *document) only(from, to int) *document {
	out := []byte(d.text)
	for i := range out {
		if (i < from || i >= to) && out[i] != '\n' {
			out[i] = ' '
		}
	}
	part := &document{text: string(out), limits: d.limits, cut: d.cut, outer: d.outer, back: d.back}
	part.splitLines()
	return part
}

// proseBetween reports whether a line that belongs to neither plan stands between their problems.
func (d *document) proseBetween(a, b Graph) bool {
	last := a.Problems[len(a.Problems)-1]
	from, to := d.lineAt(d.offset(last.Line, last.Column)), d.lineAt(d.offset(b.Problems[0].Line, b.Problems[0].Column))
	for i := from + 1; i < to; i++ {
		l := d.lines[i]
		if l.fence {
			return true
		}
		if _, ok := planPrefix(l.text); ok || l.text == "" || l.indent > 0 || hasFold(l.text, "thought") || strings.Contains(l.text, "#E") || !strings.ContainsFunc(l.text, unicode.IsLetter) {
			continue
		}
		if key, rest, ok := strings.Cut(l.text, ": "); ok && strings.TrimSpace(rest) != "" && form.IsName(key) {
			continue
		}
		return true
	}
	return false
}

// revised reports whether the text between two plans says that the second one replaces the first.
func (d *document) revised(from, to int) bool {
	to = max(0, min(to, len(d.text)))
	return meaning.Revises(d.text[min(to, max(0, from, to-400)):to])
}

type pairKey struct{ from, to string }

func sameGraph(a, b Graph) bool {
	if len(a.Problems) != len(b.Problems) || len(a.Edges) != len(b.Edges) {
		return false
	}
	for i := range a.Problems {
		if a.Problems[i].ID != b.Problems[i].ID || a.Problems[i].ParentID != b.Problems[i].ParentID || squeeze(a.Problems[i].Request) != squeeze(b.Problems[i].Request) {
			return false
		}
	}
	for i := range a.Edges {
		if a.Edges[i].From != b.Edges[i].From || a.Edges[i].To != b.Edges[i].To {
			return false
		}
	}
	return true
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// severalPlans reports that the text holds another plan, and names every difference.
func (r *reading) severalPlans(d *document, other *reading) {
	for _, n := range meaning.OtherPlan(r.graph.outline(), other.graph.outline()) {
		r.diag(d, Warning, SeveralPlans, other.start, n.Element, n.Message, n.Hint)
	}
}

// outline converts a graph to a reading of package meaning.
func (g Graph) outline() *meaning.Reading {
	m := &meaning.Reading{Items: make([]meaning.Item, len(g.Problems)), Links: make([]meaning.Link, len(g.Edges))}
	for i, p := range g.Problems {
		m.Items[i] = meaning.Item{ID: p.ID, Title: p.Request, Parent: -1}
	}
	for i, e := range g.Edges {
		m.Links[i] = meaning.Link{From: e.From, To: e.To}
	}
	return m
}
