package meaning

import (
	"sort"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// Outside returns the parts of a value that hold nothing of what begins at the places in own, which are those
// of items and links: what a value says of a plan as a whole.
func Outside(v *form.Value, own []int) (out []Span) {
	sort.Ints(own)
	within := func(from, to int) bool {
		i := sort.SearchInts(own, from)
		return i < len(own) && own[i] < max(to, from+1)
	}
	at := func(off int) bool { return within(off, off+1) }
	var visit func(v *form.Value, depth int)
	part := func(off int, v *form.Value, depth int) {
		switch end := max(v.End, lastEnd(v)); {
		case at(off) || at(v.Off):
		case within(off, end):
			visit(v, depth+1)
		case says(v):
			out = append(out, Span{off, max(end, off+1)})
		}
	}
	visit = func(v *form.Value, depth int) {
		if depth > 200 || v.IsScalar() || linkLike(v) {
			return
		}
		for _, x := range v.Items {
			part(x.Off, x, depth)
		}
		for i := range v.Fields {
			part(v.Fields[i].Off, v.Fields[i].Val, depth)
		}
	}
	if !at(v.Off) {
		visit(v, 0)
	}
	return out
}

// lastEnd is where the last part of a value ends, if the value itself is not closed.
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

// linkLike reports whether a value holds nothing but texts, as a link or a list of names does.
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

// says reports whether there is anything in a value.
func says(v *form.Value) bool {
	return v.IsScalar() && v.Text() != "" || len(v.Items)+len(v.Fields) > 0
}
