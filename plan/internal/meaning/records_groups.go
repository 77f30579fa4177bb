package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// groups adds the records of the same kind that are inside of the set's records: the branches of a state, the
// children of a task.
func (a *analysis) groups() {
	kids := map[*form.Value][]record{}
	mine := make(map[*form.Value]bool, len(a.g.recs))
	for _, r := range a.g.recs {
		mine[r.val] = true
	}
	near := a.c.setsIn[a.s.tree]
	if !a.c.looksAt(len(near)) {
		return
	}
	for _, t := range near {
		if t == a.s || t.plain || t.keyed != a.s.keyed || len(t.recs) == 0 || t.recs[0].group == nil || len(t.shape) <= len(a.s.shape) || !strings.HasPrefix(t.shape, a.s.shape) || !a.sameKind(t) {
			continue
		}
		for _, r := range t.recs {
			mine[r.val] = true
			for g, n := r.group, 0; g != nil && n < 4; g, n = g.up, n+1 {
				if mine[g.val] {
					kids[g.val] = append(kids[g.val], r)
					break
				}
			}
		}
	}
	if len(kids) == 0 {
		return
	}
	var all []record
	a.inner = map[*form.Value]bool{}
	var add func(r record, parent, depth int)
	add = func(r record, parent, depth int) {
		if depth > a.c.src.MaxDepth || len(all) > 4*a.c.src.MaxItems {
			return
		}
		at := len(all)
		all = append(all, r)
		a.parent = append(a.parent, parent)
		a.inner[r.val] = parent >= 0
		for _, k := range kids[r.val] {
			add(k, at, depth+1)
		}
	}
	for _, r := range a.g.recs {
		add(r, -1, 0)
	}
	if len(all) == len(a.g.recs) {
		a.parent = nil
		return
	}
	a.g = newGrid(a.s, all)
	a.has = make([]bool, len(all))
}

// sameKind reports whether the records of t share most of their fields with those of the set.
func (a *analysis) sameKind(t *set) bool {
	mine, common := map[string]bool{}, map[string]bool{}
	for _, col := range a.g.cols {
		mine[strings.ToLower(col.name)] = true
		if len(col.cells)*5 >= len(a.g.recs)*4 {
			common[strings.ToLower(col.name)] = true
		}
	}
	same, all, shared := 0, 0, map[string]bool{}
	for _, r := range t.recs[:min(len(t.recs), 10)] {
		for i := range r.fields {
			all++
			if k := strings.ToLower(r.fields[i].Key); mine[k] {
				same++
				shared[k] = common[k]
			}
		}
	}
	n := 0
	for _, ok := range shared {
		n += b2i(ok)
	}
	if strings.Count(t.shape[len(a.s.shape):], "/") > 1 && n*3 < len(common)*2 {
		return false // arguments deep inside a record
	}
	return same*3 >= all*2 && same > 0 && n*2 >= len(common)
}

// holdsParts reports whether a field holds records that groups added.
func (a *analysis) holdsParts(col *column) bool {
	return slices.ContainsFunc(col.cells, func(x cell) bool { return a.arePart(x.val) })
}

// arePart reports whether a value is or holds a record that groups added.
func (a *analysis) arePart(v *form.Value) bool {
	if a.parent == nil {
		return false
	}
	return a.inner[v] ||
		slices.ContainsFunc(v.Items, func(x *form.Value) bool { return a.inner[x] }) ||
		slices.ContainsFunc(v.Fields, func(f form.Field) bool { return a.inner[f.Val] })
}

// ungroup sets the parents of items. It removes groups that only pass the flow on to their parts, gateways,
// and notes in drawings.
func (a *analysis) ungroup() {
	drop := make([]bool, len(a.r.Items))
	some := false
	if a.parent == nil {
		a.outlined()
		for _, p := range a.parent {
			if p >= 0 {
				drop[p], some = true, true
			}
		}
	} else {
		for i, p := range a.parent {
			a.r.Items[i].Parent = p
			if p >= 0 && a.forward {
				drop[p], some = true, true
			}
		}
	}
	for i := range a.r.Items {
		if isGateway(a.g.recs[i].key) && a.xml() && !drop[i] {
			drop[i], some = true, true
		}
	}
	if a.drawn {
		some = a.dropNotes(drop) || some
	}
	if some {
		a.contract(drop)
	}
}

// noteKinds are the last words of the kinds of nodes that are notes in a drawing.
var noteKinds = wordSet("note, notes, comment, annotation, memo")

// dropNotes marks the nodes of a drawing that are notes: their kind says so, and no link reaches them.
func (a *analysis) dropNotes(drop []bool) (some bool) {
	linked := make(map[string]bool, len(a.r.Links))
	for _, l := range a.r.Links {
		linked[l.From], linked[l.To] = true, true
	}
	for _, col := range a.g.cols {
		for _, x := range col.cells {
			words := strings.Fields(splitName(x.val.Text()))
			if otherRole(col.name) && len(words) > 0 && noteKinds[words[len(words)-1]] && !linked[a.r.Items[x.rec].ID] {
				drop[x.rec], some = true, true
			}
		}
	}
	return some
}

// headingRows returns the rows of a table that are headings of the rows below them. Most rows of the table
// have more than two filled cells. A heading has a single one, which is bold or in a column of ids.
func headingRows(src *form.Source, table *form.Value) map[*form.Value]bool {
	full := 0
	ids := map[string]int{} // number of ids in each column
	alone := map[*form.Value]*form.Field{}
	for _, row := range table.Items {
		n := 0
		for i := range row.Fields {
			f := &row.Fields[i]
			if isNone(f.Val.Str) {
				continue
			}
			n++
			ids[f.Key] += b2i(isID(f.Val.Str))
			alone[row] = f
		}
		if n != 1 {
			delete(alone, row)
		}
		full += b2i(n > 2)
	}
	if full*2 <= len(table.Items) {
		return nil
	}
	heads := map[*form.Value]bool{}
	for row, f := range alone {
		bold := f.Val.Off > 0 && strings.IndexByte("*_", src.Text[f.Val.Off-1]) >= 0
		heads[row] = !isID(f.Val.Str) && (bold || ids[f.Key]*2 > len(table.Items))
	}
	return heads
}

// outlined makes records such as 1.1 and 1.2 of a table parts of the record 1, which only groups them.
func (a *analysis) outlined() {
	if a.s.form != "table" || a.id == nil {
		return
	}
	parent := make([]int, len(a.n.ids))
	some := false
	for i, id := range a.n.ids {
		parent[i] = -1
		for k := strings.LastIndexByte(id, '.'); k > 0 && parent[i] < 0; k = strings.LastIndexByte(id[:k], '.') {
			if p, ok := a.n.exact[id[:k]]; ok && p != i {
				parent[i], some = p, true
			}
		}
	}
	if some {
		a.parent = parent
	}
}

// isGateway reports whether a tag is an event or a gateway of a process, which are no steps.
func isGateway(tag string) bool {
	tag = strings.ToLower(tag)
	return strings.HasSuffix(tag, "event") || strings.HasSuffix(tag, "gateway")
}

// contract removes the items in drop, and links the predecessors of each to its successors.
func (a *analysis) contract(drop []bool) {
	w := a.wiring()
	if a.parent != nil {
		w.enterGroups(a.parent, drop)
	}
	a.r.Links = w.loose
	a.relink(w, drop)
	kept := a.r.Items[:0]
	for i, it := range a.r.Items {
		if !drop[i] {
			it.Parent = -1
			kept = append(kept, it)
		}
	}
	a.r.Items = kept
}

// wiring holds the links of a reading by the indexes of their items.
type wiring struct {
	next  [][]int
	links map[[2]int]Link
	loose []Link // links with an end that is no item
}

// wiring returns the links of the reading by index.
func (a *analysis) wiring() *wiring {
	at := make(map[string]int, len(a.r.Items))
	for i := range a.r.Items {
		at[a.r.Items[i].ID] = i
	}
	w := &wiring{next: make([][]int, len(a.r.Items)), links: map[[2]int]Link{}}
	for _, l := range a.r.Links {
		i, ok := at[l.From]
		j, ok2 := at[l.To]
		if !ok || !ok2 {
			w.loose = append(w.loose, l)
			continue
		}
		w.next[i] = append(w.next[i], j)
		w.links[[2]int{i, j}] = l
	}
	return w
}

// enterGroups makes links to a group lead to its first parts, and links from a dropped group lead from its
// last parts.
func (w *wiring) enterGroups(parent []int, drop []bool) {
	n := len(w.next)
	inside := make([]bool, n) // has a link from a part of the same group
	onward := make([]bool, n) // has a link to a part of the same group
	for i := range w.next {
		for _, j := range w.next[i] {
			if parent[i] == parent[j] {
				inside[j], onward[i] = true, true
			}
		}
	}
	for i, p := range parent {
		if p >= 0 && !inside[i] {
			w.next[p] = append(w.next[p], i)
		}
	}
	after := make([][]int, n)
	for p := range w.next {
		if !drop[p] {
			continue
		}
		kept := w.next[p][:0]
		for _, j := range w.next[p] {
			if parent[j] == p {
				kept = append(kept, j)
			} else {
				after[p] = append(after[p], j)
			}
		}
		w.next[p] = kept
	}
	for i, p := range parent {
		if p >= 0 && !onward[i] {
			w.next[i] = append(w.next[i], after[p]...)
		}
	}
}

// maxContracted bounds the links that are followed while items are removed.
const maxContracted = 200_000

// relink links each item that stays to the next ones that stay, through those in drop.
func (a *analysis) relink(w *wiring, drop []bool) {
	seen := map[[2]int]bool{}
	work := 0
	for i := range w.next {
		if drop[i] {
			continue
		}
		visited := map[int]bool{}
		var run func(j int)
		run = func(j int) {
			if work++; work > maxContracted {
				return
			}
			switch edge := [2]int{i, j}; {
			case drop[j] && !visited[j]:
				visited[j] = true
				for _, k := range w.next[j] {
					run(k)
				}
			case !drop[j] && !seen[edge]:
				seen[edge] = true
				l, ok := w.links[edge]
				if !ok {
					l = Link{Source: Stated, Off: a.r.Items[j].Off}
				}
				l.From, l.To = a.r.Items[i].ID, a.r.Items[j].ID
				a.r.Links = append(a.r.Links, l)
			}
		}
		for _, j := range w.next[i] {
			run(j)
		}
	}
}
