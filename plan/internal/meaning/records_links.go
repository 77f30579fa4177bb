package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// stages links jobs by their stages, if a list next to the jobs states the order of the stages.
func (a *analysis) stages() {
	root := a.s.owner
	if root == nil && a.s.shape == "" {
		root = a.s.tree.Root
	}
	if root == nil || !a.c.looksAt(len(root.Fields)) {
		return
	}
	for i := range root.Fields {
		f := &root.Fields[i]
		if f.Val.Kind != form.KindList || len(f.Val.Items) < 2 {
			continue
		}
		for _, col := range a.g.cols {
			if len(col.name) > 2 && len(col.cells)*2 >= len(a.g.recs) && strings.HasPrefix(squash(f.Key), squash(col.name)) && a.staged(f.Val, col) {
				return
			}
		}
	}
}

// staged links the records by the stages in a column, in the order of a list. It returns false if a value of
// the column is not in the list.
func (a *analysis) staged(order *form.Value, col *column) bool {
	at := map[string]int{}
	for i, x := range order.Items {
		at[x.Text()] = i
	}
	in := make([][]int, len(order.Items))
	for _, x := range col.cells {
		k, ok := at[x.val.Text()]
		if !ok {
			return false
		}
		in[k] = append(in[k], x.rec)
	}
	var before []int
	for _, jobs := range in {
		for _, j := range jobs {
			if a.has[j] || len(before)*len(jobs) > 10_000 {
				continue
			}
			for _, b := range before {
				a.link(a.n.ids[b], a.n.ids[j], Stated, a.g.recs[j].off)
				a.hits++
				a.stated = true
			}
		}
		if len(jobs) > 0 {
			before = jobs
		}
	}
	return true
}

// edges adds the links in separate lists and maps whose ends are these records.
func (a *analysis) edges() {
	before := len(a.r.Links)
	lists := a.c.pairs
	if !a.c.looksAt(len(lists)) {
		if lists = a.c.pairsIn[a.s.tree]; !a.c.looksAt(len(lists)) {
			lists = nil
		}
	}
	for _, p := range lists {
		if p.used && a.s.tree != p.tree || a.holds(p) {
			continue
		}
		if a.c.tries -= 1 + len(p.list); a.c.tries < 0 {
			break
		}
		if len(p.columns) > 0 {
			a.takeTable(p)
		} else {
			a.takePairs(p)
		}
	}
	a.linkMaps()
	a.sentences()
	a.drawn = len(a.r.Links) > before
}

// holds reports whether a list of links is the list of the records or overlaps it.
func (a *analysis) holds(p *pairs) bool {
	if p.set == a.s {
		return true
	}
	return p.val != nil && a.s.val != nil && p.val.Off < a.s.val.End && a.s.val.Off < p.val.End
}

// linkMaps adds the links in maps next to the records: {"connections": {"a": {"main": [[{"node": "b"}]]}}}
// and {"edges": {"a": ["b"]}}.
func (a *analysis) linkMaps() {
	if a.s.owner == nil || !a.c.looksAt(len(a.s.owner.Fields)) {
		return
	}
	for i := range a.s.owner.Fields {
		f := &a.s.owner.Fields[i]
		if !isMap(f.Val) || len(f.Val.Fields) == 0 || f.Val == a.s.val {
			continue
		}
		var links []drawnLink
		known := 0
		for k := range f.Val.Fields {
			x := &f.Val.Fields[k]
			key, ok := a.n.find(x.Key)
			if !ok {
				if known*4 < k*3 {
					break
				}
				continue
			}
			known++
			var walk func(v *form.Value, depth int)
			walk = func(v *form.Value, depth int) {
				if v == nil || depth > 8 {
					return
				}
				if v.IsScalar() && v.Kind != form.KindNumber {
					if at, ok := a.n.find(v.Text()); ok && v.Text() != "" && at != key {
						links = append(links, drawnLink{from: key, to: at, off: v.Off})
					}
				}
				for _, y := range v.Items {
					walk(y, depth+1)
				}
				for j := range v.Fields {
					if !otherRole(v.Fields[j].Key) {
						walk(v.Fields[j].Val, depth+1)
					}
				}
			}
			walk(x.Val, 0)
		}
		if known*4 < len(f.Val.Fields)*3 || len(links) == 0 {
			continue
		}
		way := 0
		switch {
		case isNeedsName(f.Key):
			way = -1
		case isNext(f.Key) || isArcs(f.Key):
			way = 1
		}
		a.draw(links, way, f.Key)
	}
}

// linkLists returns the fields of an object that are lists of links or needs by their names.
func (c *collector) linkLists(owner *form.Value) []*form.Field {
	out, ok := c.listed[owner]
	if ok {
		return out
	}
	for i := range owner.Fields {
		if f := &owner.Fields[i]; f.Val != nil && f.Val.Kind == form.KindList && (isArcs(f.Key) || isNeedsName(f.Key)) {
			out = append(out, f)
		}
	}
	c.listed[owner] = out
	return out
}

// sentences adds the links that a list of sentences next to the records states: "dependencies": ["b depends
// on a"].
func (a *analysis) sentences() {
	if a.s.owner == nil || !a.c.looksAt(len(a.s.owner.Fields)) {
		return
	}
	for _, f := range a.c.linkLists(a.s.owner) {
		if f.Val == a.s.val {
			continue
		}
		for _, x := range f.Val.Items[:min(len(f.Val.Items), maxMentions)] {
			if x.Kind != form.KindString || !strings.Contains(x.Str, " ") && isASCII(x.Str) || len(x.Str) > maxSentence {
				break
			}
			if _, ok := arrowChain(x.Str, x.Off); ok {
				break
			}
			a.nameAll()
			rels, _ := a.names.Relations(-1, x.Str, x.Off)
			for _, r := range rels {
				if r.Kind > Before || len(r.Subjects)*len(r.Items) > 100 {
					continue
				}
				for _, y := range r.Subjects {
					for _, z := range r.Items {
						from, to := a.n.ids[z], a.n.ids[y]
						if r.Kind == Before {
							from, to = to, from
						}
						a.stated = true
						a.hits++
						a.link(from, to, Stated, x.Off)
					}
				}
			}
		}
	}
}

// drawnLink is a link between the records at two indexes, in the order of the text. Either record may be the
// earlier one.
type drawnLink struct {
	from, to, off int
	says          string
}

// draw adds links. way is 1 if they run as written, -1 if they run back, and 0 if no name tells. In the last
// case they run in the direction in which most follow the list of the records, and a note says so if not all
// do.
func (a *analysis) draw(links []drawnLink, way int, name string) {
	if way == 0 {
		ahead := 0
		for _, l := range links {
			ahead += b2i(l.to > l.from)
		}
		way = 1
		if ahead*2 < len(links) {
			way, ahead = -1, len(links)-ahead
		}
		if ahead < len(links) {
			for _, l := range links {
				from, to := l.from, l.to
				if way < 0 {
					from, to = to, from
				}
				a.doubt(name, from, to, l.off)
			}
		}
	}
	a.stated = true
	for _, l := range links {
		from, to := a.n.ids[l.from], a.n.ids[l.to]
		if way < 0 {
			from, to = to, from
		}
		a.hits++
		a.link(from, to, Stated, l.off)
		a.annotate(l.says)
	}
}

// annotate adds information to the last link.
func (a *analysis) annotate(says string) {
	if n := len(a.r.Links); n > 0 && says != "" {
		a.r.Links[n-1].Says = says
	}
}

// takeTable adds the links in a list of maps if exactly two fields hold steps.
func (a *analysis) takeTable(p *pairs) {
	var cols []*linkColumn
	for i := range p.columns {
		col, known, all := &p.columns[i], 0, 0
		for _, e := range col.ends {
			for _, s := range e {
				all++
				_, ok := a.n.byName(s)
				known += b2i(ok)
			}
		}
		if known*5 >= all*4 {
			cols = append(cols, col)
		}
	}
	if len(cols) != 2 {
		return
	}
	if a.s.plain && len(p.columns) > 2 && direction(cols[0].key, cols[1].key) == 0 {
		return // relations between texts have a reader of their own
	}
	var links []drawnLink
	for i := range cols[0].ends {
		says := otherFields(p.val.Items[i], cols[0].key, cols[1].key)
		for _, x := range cols[0].ends[i] {
			if len(links)+len(a.r.Notes) > a.c.src.MaxLinks {
				break
			}
			for _, y := range cols[1].ends[i] {
				from, ok := a.n.byName(x)
				to, ok2 := a.n.byName(y)
				if !ok || !ok2 {
					a.lost++
					a.r.Notes = append(a.r.Notes, Note{Code: "UNKNOWN_REFERENCE", Element: x + " -> " + y, Off: cols[0].offs[i], Message: "the link of " + x + " and " + y + " names a step that does not exist"})
					continue
				}
				links = append(links, drawnLink{from, to, cols[0].offs[i], says})
			}
		}
	}
	loops := 0
	for _, l := range links {
		loops += b2i(l.from == l.to)
	}
	if len(links) == 0 || loops*2 > len(links) {
		return
	}
	p.used = true
	way := direction(cols[0].key, cols[1].key)
	a.draw(links, way, cols[0].key+"” and “"+cols[1].key)
}

// takePairs adds the links of a list if at least two thirds of their ends are items.
func (a *analysis) takePairs(p *pairs) {
	hits, all, zero := 0, 0, false
	for _, e := range p.list {
		for _, list := range [...][]string{e.from, e.to} {
			for _, s := range list {
				all++
				_, ok := a.n.find(s)
				hits += b2i(ok)
				zero = zero || s == "0"
			}
		}
	}
	if zero && !a.n.numeric && p.tree == a.s.tree {
		a.n.zero = true
	} else if hits*3 < all*2 {
		return
	}
	p.used = true
	a.stated = true
	for _, e := range p.list {
		for _, x := range e.from {
			for _, y := range e.to {
				if a.full() {
					return
				}
				a.hits++
				a.link(a.end(x), a.end(y), Stated, e.off)
				a.annotate(e.says)
			}
		}
	}
	a.r.Start, a.r.End = min(a.r.Start, p.tree.Root.Off), max(a.r.End, p.tree.Root.End)
}

// end returns the id of the record that the end of a link names, or the name itself.
func (a *analysis) end(s string) string {
	if i, ok := a.n.find(s); ok {
		return a.n.ids[i]
	}
	a.lost++
	return s
}

func isNeedsName(name string) bool {
	role, _ := lexicon.Field(name)
	return role == lexicon.Requires
}
