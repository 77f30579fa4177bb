package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// pair is a link that is written as a value; each end may be several steps.
type pair struct {
	from, to []string
	off      int
	says     string // its other fields, as JSON
}

// pairs is a list of links. If the names of the ends do not tell the direction, the links are read once the
// steps are known. Until then columns holds the values of each name and list is empty.
type pairs struct {
	tree    *form.Tree
	owner   *form.Value
	form    string
	labels  []string
	val     *form.Value // the list
	set     *set        // the set of the same values, read as records
	list    []pair
	columns []linkColumn
	used    bool
}

// linkColumn is a field of all items of a list, if each item may be a link.
type linkColumn struct {
	key  string
	ends [][]string
	offs []int
}

// sources and targets are names for the ends of links, in addition to the names in the lexicon of fields.
var sources, targets = wordsOf("ends of links, the earlier"), wordsOf("ends of links, the later")

// openEnds are names for either end of a link. The name of the other end decides.
var openEnds = wordsOf("open ends")

// endOf returns -1 if a name means the end where a link begins, 1 if it means the end where the link ends,
// and 0 otherwise.
func endOf(name string) int {
	k := strings.ToLower(strings.Trim(name, " :*"))
	switch {
	case sources[k]:
		return -1
	case targets[k]:
		return 1
	}
	switch roles := rolesOf(name); {
	case len(roles) == 0:
	case roles[0] == lexicon.Requires:
		return -1
	case roles[0] == lexicon.Next:
		return 1
	}
	return 0
}

// direction returns 1 if a link runs from the end named a to the end named b, -1 if it runs back, and 0 if
// the names do not tell.
func direction(a, b string) int {
	x, y := endOf(a), endOf(b)
	if x == y || openEnds[strings.ToLower(a)] && y != 0 {
		x = 0
	}
	if y != 0 && x == 0 && endOf(a) == y && !openEnds[strings.ToLower(a)] {
		if !openEnds[strings.ToLower(b)] {
			return 0 // both names mean the same end
		}
		return -endOf(a)
	}
	if x != 0 {
		return -x
	}
	return y
}

// readPairs returns the links in a list of links: [a, b], {"from": a, "to": b}, "a -> b". It returns nil for
// other lists.
func readPairs(v *form.Value) *pairs {
	if len(v.Items) == 0 {
		return nil
	}
	p := &pairs{val: v}
	for _, x := range v.Items {
		list, ok := pairOf(x)
		if !ok {
			return nil
		}
		p.list = append(p.list, list...)
	}
	return p
}

// linkHeads are the headings of other columns in a table of links.
var linkHeads = wordsOf("heads of links")

// pairsAlone reads a plan that is only a table or a named list of links. Its steps are the ends of the links.
// Links that do not meet, or that have other content, are no plan.
func (c *collector) pairsAlone(p *pairs) *Reading {
	called := len(p.labels) > 0 && (isArcs(p.labels[len(p.labels)-1]) || planish(p.labels[len(p.labels)-1]))
	if p.used || p.form != "table" && !called || len(p.list) < 2 || p.tree.Headless {
		return nil
	}
	if p.form == "table" {
		for _, f := range p.tree.Root.Items[0].Fields {
			if endOf(f.Key) == 0 && !linkHeads[strings.ToLower(f.Key)] {
				return nil
			}
		}
	}
	r := &Reading{Form: p.form, root: p.tree.Root, Stated: true, Open: true, Start: p.tree.Root.Off, End: p.tree.Root.End, Weight: 86, Evidence: []string{"a list of links"}}
	from, to := map[string]bool{}, map[string]bool{}
	meets := 0
	note := func(ids []string, off int) {
		for _, id := range ids {
			if !from[id] && !to[id] {
				r.Items = append(r.Items, Item{ID: id, Shown: true, Title: id, Parent: -1, Off: off, End: off})
			}
		}
	}
	for _, e := range p.list {
		note(e.from, e.off)
		for _, id := range e.from {
			from[id] = true
		}
		note(e.to, e.off)
		for _, id := range e.to {
			to[id] = true
			if len(r.Links) > c.src.MaxLinks {
				break
			}
			for _, x := range e.from {
				r.Links = append(r.Links, Link{From: x, To: id, Source: Stated, Off: e.off, Says: e.says})
			}
		}
	}
	for id := range from {
		meets += b2i(to[id])
	}
	if meets == 0 || len(r.Items) > len(r.Links)+meets {
		return nil
	}
	return r
}

// linkTable returns the fields of a list of small maps that may be links between steps of another list, or
// nil.
func linkTable(v *form.Value) *pairs {
	if len(v.Items) == 0 || !isMap(v.Items[0]) || len(v.Items[0].Fields) > maxLinkFields {
		return nil
	}
	p := &pairs{val: v}
	at := map[string]int{}
	for i, x := range v.Items {
		if !isMap(x) || len(x.Fields) < 2 || len(x.Fields) > maxLinkFields {
			return nil
		}
		for k := range x.Fields {
			f := &x.Fields[k]
			list := textsOf(f.Val)
			if len(list) == 0 {
				continue
			}
			c, ok := at[f.Key]
			if !ok {
				if i > 0 {
					continue
				}
				c = len(p.columns)
				at[f.Key] = c
				p.columns = append(p.columns, linkColumn{key: f.Key})
			}
			if col := &p.columns[c]; len(col.ends) == i {
				col.ends, col.offs = append(col.ends, list), append(col.offs, f.Off)
			}
		}
	}
	kept := p.columns[:0]
	for _, col := range p.columns {
		if len(col.ends) == len(v.Items) {
			kept = append(kept, col)
		}
	}
	if p.columns = kept; len(kept) < 2 {
		return nil
	}
	return p
}

// maxLinkFields bounds the fields of a link.
const maxLinkFields = 8

// textsOf returns the text of a scalar, or the texts of a list of scalars. It returns nil for other values.
func textsOf(v *form.Value) []string {
	if v.IsScalar() {
		if v.Text() == "" {
			return nil
		}
		return []string{v.Text()}
	}
	var out []string
	for _, x := range v.Items {
		if !x.IsScalar() || x.Text() == "" || len(out) == 100 {
			return nil
		}
		out = append(out, x.Text())
	}
	return out
}

func pairOf(x *form.Value) ([]pair, bool) {
	switch {
	case x.Kind == form.KindList && len(x.Items) == 2:
		from, to := textsOf(x.Items[0]), textsOf(x.Items[1])
		return []pair{{from: from, to: to, off: x.Off}}, len(from) > 0 && len(to) > 0
	case x.Kind == form.KindString || x.Kind == form.KindBare:
		return arrowChain(x.Str, x.Off)
	case isMap(x):
		e, ok := elementPair(x)
		return []pair{e}, ok
	}
	return nil, false
}

// arrowChain reads "a -> b -> c".
func arrowChain(s string, off int) (list []pair, ok bool) {
	if len(s) > 400 {
		return nil, false
	}
	for _, arrow := range [...]string{"-->", "->", "=>", "→", "⇒", "➔", "➜", " > "} {
		parts := strings.Split(s, arrow)
		if len(parts) < 2 || len(parts) > 50 {
			continue
		}
		for i := range parts {
			if parts[i] = strings.TrimSpace(parts[i]); parts[i] == "" || len(parts[i]) > 80 {
				return nil, false
			}
			if i > 0 {
				list = append(list, pair{from: parts[i-1 : i], to: parts[i : i+1], off: off})
			}
		}
		return list, true
	}
	return nil, false
}

// elementPair reads an object or element that is a link by the names of its ends.
func elementPair(x *form.Value) (pair, bool) {
	var ends []*form.Field
	for i := range x.Fields {
		if f := &x.Fields[i]; len(textsOf(f.Val)) > 0 && (endOf(f.Key) != 0 || openEnds[strings.ToLower(f.Key)]) {
			if role, ok := lexicon.Field(f.Key); ok && (role == lexicon.Requires || role == lexicon.Next) && !sources[strings.ToLower(f.Key)] && !targets[strings.ToLower(f.Key)] {
				continue // a need of a step
			}
			ends = append(ends, f)
		}
	}
	if len(ends) < 2 {
		return pair{}, false
	}
	from, to := ends[0], ends[1]
	switch direction(from.Key, to.Key) {
	case 0:
		return pair{}, false
	case -1:
		from, to = to, from
	}
	return pair{textsOf(from.Val), textsOf(to.Val), x.Off, otherFields(x, from.Key, to.Key)}, true
}

// otherFields returns the fields of a link besides its ends as JSON, or "".
func otherFields(x *form.Value, from, to string) string {
	rest := &form.Value{Kind: form.KindObject}
	for _, f := range x.Fields {
		if f.Key != from && f.Key != to && hasContent(f.Val) {
			rest.Fields = append(rest.Fields, f)
		}
	}
	if len(rest.Fields) == 0 {
		return ""
	}
	return form.JSON(rest)
}

// maxOuter bounds the ends of links that are tried for one set of records.
const maxOuter = 1000

// outer returns the ends of the lists of links, and the keys of the maps, that may refer to the records.
func (a *analysis) outer() (out []probe) {
	add := func(names ...string) {
		for _, s := range names[:min(len(names), maxOuter-len(out))] {
			out = append(out, probe{-1, s, true})
		}
	}
	near := a.c.pairsIn[a.s.tree]
	if !a.c.looksAt(len(near)) {
		near = nil
	}
	for _, p := range near {
		if len(out) == maxOuter {
			break
		}
		if a.holds(p) {
			continue
		}
		for _, e := range p.list {
			add(e.from...)
			add(e.to...)
		}
		for i := range p.columns {
			for _, e := range p.columns[i].ends {
				add(e...)
			}
		}
	}
	if a.s.owner == nil || !a.c.looksAt(len(a.s.owner.Fields)) {
		return out
	}
	for i := range a.s.owner.Fields {
		f := &a.s.owner.Fields[i]
		if isMap(f.Val) && f.Val != a.s.val {
			for k := range f.Val.Fields[:min(len(f.Val.Fields), maxOuter)] {
				add(f.Val.Fields[k].Key)
			}
		}
	}
	return out
}

// arcWords are the last words of names for lists of links.
var arcWords = wordsOf("links")

// isArcs reports whether a name is one for links that run forward.
func isArcs(name string) bool {
	words := strings.Fields(splitName(name))
	return len(words) > 0 && arcWords[words[len(words)-1]]
}

// noLinks reports whether the object around the records has an empty list of links.
func (a *analysis) noLinks() bool {
	if a.s.owner == nil {
		return false
	}
	for _, f := range a.c.linkLists(a.s.owner) {
		if len(f.Val.Items) == 0 && isArcs(f.Key) {
			return true
		}
	}
	return false
}
