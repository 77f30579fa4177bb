package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// uncovered reports what the text states and the graph does not show, and whether the last problem is cut
// off.
func (d *document) uncovered(name string, r *reading, g Graph, o options) {
	n := len(g.Problems)
	if n == 0 || name == "prose" {
		return
	}
	items := make([]meaning.Covered, n)
	at := make(map[string]int, n)
	for i, p := range g.Problems {
		items[i] = meaning.Covered{ID: p.ID, Title: p.Request, Off: d.offset(p.Line, p.Column), Parent: -1}
		if k, ok := at[p.ParentID]; ok && p.ParentID != "" {
			items[i].Parent, items[k].Group = k, true
		}
		at[p.ID] = i
	}
	links := make([]meaning.Link, len(g.Edges))
	for i, e := range g.Edges {
		links[i] = meaning.Link{From: e.From, To: e.To}
	}
	src := form.NewSource(d.text)
	src.Ended = o.ended
	lines := name == "outline" || name == "table"
	said := map[[2]int]bool{}
	for _, x := range r.diags {
		said[[2]int{x.Line, x.Column}] = said[[2]int{x.Line, x.Column}] || x.Code == Ambiguous
	}
	for _, x := range meaning.Uncovered(src, items, links, r.start, r.end, !lines) {
		if line, column := d.place(x.Off); said[[2]int{line, column}] {
			continue
		}
		r.diag(d, Warning, Code(x.Code), x.Off, x.Element, x.Message, x.Hint)
	}
	if name == "outline" {
		r.checkNumbers(g)
		if !o.complete {
			d.cutOff(r, items)
		}
	}
}

// cutOff reports that the rest of a list may be lost, if the list ends within an item.
func (d *document) cutOff(r *reading, items []meaning.Covered) {
	last := items[len(items)-1]
	k := d.lineAt(last.Off)
	for _, l := range d.lines[k+1:] {
		if l.text != "" {
			return
		}
	}
	var other []string
	for _, it := range items[:len(items)-1] {
		other = append(other, d.lines[d.lineAt(it.Off)].text)
	}
	if why := meaning.CutOff(strings.TrimSpace(d.lines[k].text), other); why != "" {
		r.diag(d, Error, Truncated, last.Off, last.ID, last.ID+" seems to be cut off: "+why, "ask for the rest of the plan")
	}
}
