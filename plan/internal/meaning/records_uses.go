package meaning

import (
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// pointers are names of fields whose value names the step that a value comes from.
var pointers = wordSet("ref, from, step, node, source, fromstep, outputof, resultof, sourcestep, stepid, nodeid, fromtask, taskid, dependency")

// references finds uses of results in texts and in objects such as {"$ref": "x"}, and adds their links. Then
// it notes the uses of results that no record has.
func (a *analysis) references() {
	f := useFinder{a: a}
	for _, col := range a.g.cols {
		if col == a.idColumn() || a.deps[col] || col.is(lexicon.Owner) || col.is(lexicon.Duration) || col.is(lexicon.Output) || isOutput(col.name) {
			continue
		}
		f.column(col)
	}
	if a.used == 0 {
		return
	}
	a.stated = true
	for _, l := range f.lost {
		if strings.ContainsAny(l.name, ".[") && a.stepLike(l.name) && len(a.r.Notes) < 100 {
			id := a.n.ids[l.rec]
			a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: id, Off: l.off, Message: id + " uses " + l.name + ", which is no step"})
		}
	}
}

// useFinder finds the uses of results in one cell after another.
type useFinder struct {
	a     *analysis
	rec   int    // the record of the cell
	arg   string // the key of the argument
	title bool   // the cell is a title
	lost  []lostUse
}

// lostUse is the use of a result that no record has.
type lostUse struct {
	rec, off int
	name     string
}

func (f *useFinder) column(col *column) {
	f.title = col == f.a.title && !col.is(lexicon.Tool)
	for _, x := range col.cells {
		f.rec, f.arg = x.rec, col.name
		if !col.is(lexicon.Args) || !isMap(x.val) || x.val.Str != "" {
			f.value(f.a.embedded(x.val), col.name, 0)
			continue
		}
		for i := range x.val.Fields {
			f.arg = x.val.Fields[i].Key
			f.value(x.val.Fields[i].Val, f.arg, 1)
		}
	}
}

// value finds the uses in a value at a depth of its cell. key is the key of the value, or of the list around
// it.
func (f *useFinder) value(v *form.Value, key string, depth int) {
	if v == nil || depth > 60 {
		return
	}
	if v.IsScalar() {
		if v.Text() != "" {
			f.text(v, key, depth)
		}
		return
	}
	for _, y := range v.Items {
		f.value(y, key, depth+1)
	}
	for i := range v.Fields {
		f.value(v.Fields[i].Val, v.Fields[i].Key, depth+1)
	}
}

// text finds the uses in a scalar: the whole text as the value of a pointer, references inside of it, and the
// whole text as a path or as the name of an output.
func (f *useFinder) text(v *form.Value, key string, depth int) {
	s, n := v.Text(), f.a.n
	if depth > 0 && (strings.HasPrefix(key, "$") || pointers[squash(strings.TrimLeft(key, "$"))]) {
		if at, path, ok := n.path(strings.TrimLeft(s, "$#@")); ok {
			f.use(at, s, path, v.Off)
			return
		}
	}
	lost := func(name string) {
		if len(f.lost) < 200 {
			f.lost = append(f.lost, lostUse{f.rec, v.Off, name})
		}
	}
	for _, u := range n.uses(s, lost) {
		if !f.title || u.text[0] != '@' && u.text[0] != '%' && u.text[0] != '<' {
			f.use(u.at, u.text, u.path, v.Off+u.off)
		}
	}
	if f.title {
		return
	}
	if head, path, ok := strings.Cut(s, "."); ok && isID(s) && path != "" && !digits(head) {
		if at, ok := n.exact[head]; ok {
			f.use(at, s, path, v.Off)
			return
		}
	}
	if at, ok := n.other[s]; ok && at >= 0 && len(s) > 2 && f.a.isMade(at, s) {
		f.use(at, s, "", v.Off)
	}
}

// use adds the use of the result of the record at an index.
func (f *useFinder) use(at int, text, path string, off int) {
	a := f.a
	if at == f.rec {
		return
	}
	a.used++
	a.r.Items = grow(a.r.Items, len(a.g.recs))
	it := &a.r.Items[f.rec]
	if len(it.Refs) < 1000 {
		it.Refs = append(it.Refs, Ref{Text: text, To: a.n.ids[at], Path: path, Arg: f.arg, Off: off})
	}
	if !a.forward && !a.drawn {
		a.link(a.n.ids[at], a.n.ids[f.rec], Variable, off)
	}
}

// stepLike reports whether a lost reference begins like a reference to a step: steps.x.output.
func (a *analysis) stepLike(name string) bool {
	head, _, _ := strings.Cut(name, ".")
	return lexicon.Is(lexicon.Steps, head) || a.alike(head) && strings.ContainsAny(head, "0123456789")
}

// embedded returns the JSON value in a string, or v itself.
func (a *analysis) embedded(v *form.Value) *form.Value {
	if v.Kind != form.KindString {
		return v
	}
	s := strings.TrimSpace(v.Str)
	if len(s) < 4 || s[0] != '{' || s[1] == '{' {
		return v
	}
	t, _ := form.ValueAt(s, 0, a.c.src.MaxDepth, true)
	if t.Root == nil || len(t.Faults) > 0 {
		return v
	}
	shift(t.Root, v)
	return t.Root
}

// isMade reports whether the record at index at makes something named s.
func (a *analysis) isMade(at int, s string) bool {
	for _, col := range a.g.cols {
		if !col.is(lexicon.Output) && !isOutput(col.name) {
			continue
		}
		i := sort.Search(len(col.cells), func(i int) bool { return col.cells[i].rec >= at })
		if i == len(col.cells) || col.cells[i].rec != at {
			continue
		}
		v := col.cells[i].val
		if v.Text() == s {
			return true
		}
		for _, x := range v.Items {
			if x.Text() == s {
				return true
			}
		}
	}
	return false
}
