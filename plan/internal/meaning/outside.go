package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// Outside returns the parts of a value that belong to no item and no link, and so describe the plan as a
// whole. items and links are the offsets at which these begin; shown reports whether an item shows a text.
func Outside(v *form.Value, items, links []int, shown func(string) bool) (out []Span) {
	sort.Ints(items)
	sort.Ints(links)
	within := func(own []int, from, to int) bool {
		i := sort.SearchInts(own, from)
		return i < len(own) && own[i] < to
	}
	at := func(own []int, off int) bool { return within(own, off, off+1) }
	var visit func(v *form.Value, depth int)
	part := func(off int, v *form.Value, depth int) {
		end := max(lastEnd(v), off+1)
		switch begins := at(items, off) || at(items, v.Off); {
		case begins && !within(items, max(off, v.Off)+1, end), at(links, off) && v.IsScalar(), at(links, v.Off) && v.IsScalar():
		case begins || within(items, off, end) || within(links, off, end):
			visit(v, depth+1)
		case hasContent(v) && !shown(v.Text()):
			out = append(out, Span{off, end})
		}
	}
	visit = func(v *form.Value, depth int) {
		if depth > 200 || v.IsScalar() || linkLike(v) && !within(items, v.Off+1, lastEnd(v)) {
			return
		}
		for _, x := range v.Items {
			part(x.Off, x, depth)
		}
		for i := range v.Fields {
			f := &v.Fields[i]
			if part(f.Off, f.Val, depth); !hasContent(f.Val) && strings.Contains(f.Key, " ") {
				out = append(out, Span{f.Off, f.Off + 1}) // a sentence with a colon
			}
		}
	}
	if !at(items, v.Off) || within(items, v.Off+1, lastEnd(v)) {
		visit(v, 0)
	}
	return out
}

// Outside returns the parts of the read values that belong to none of the reading's items and links.
func (r *Reading) Outside() []Span {
	if r.root == nil && len(r.outer) == 0 || r.Form != "records" {
		return r.outside
	}
	var items, links []int
	texts := map[string]bool{}
	for i := range r.Items {
		it := &r.Items[i]
		items = append(items, it.Off)
		texts[it.ID], texts[it.Title] = true, true
	}
	for _, l := range r.Links {
		links = append(links, l.Off)
	}
	shown := func(s string) bool { return texts[s] }
	out := slices.Clone(r.outside)
	if r.root != nil {
		out = append(out, Outside(r.root, items, links, shown)...)
	}
	for _, v := range r.outer {
		out = append(out, Outside(v, items, links, shown)...)
	}
	return out
}

// lastEnd returns the end of a value, or of its last part if the value is not closed.
func lastEnd(v *form.Value) int {
	end := v.End
	for range 200 {
		switch {
		case len(v.Fields) > 0:
			v = v.Fields[len(v.Fields)-1].Val
		case len(v.Items) > 0:
			v = v.Items[len(v.Items)-1]
		default:
			return end
		}
		end = max(end, v.End, v.Off+1)
	}
	return end
}

// linkLike reports whether all parts of a value are scalars, as in a link or a list of names.
func linkLike(v *form.Value) bool {
	for _, x := range v.Items {
		if !x.IsScalar() {
			return false
		}
	}
	for i := range v.Fields {
		if !v.Fields[i].Val.IsScalar() {
			return false
		}
	}
	return true
}

// hasContent reports whether a value is not empty.
func hasContent(v *form.Value) bool {
	return v.IsScalar() && v.Text() != "" || len(v.Items)+len(v.Fields) > 0
}
