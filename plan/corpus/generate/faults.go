package generate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// faults is the style of plans with a fault that the reader must report.
var faults = []style{{"faulty", 20, (*writer).faulty}}

func (t *writer) faulty() bool {
	t.draw(15)
	n := len(t.needs)
	if n < 4 {
		return false
	}
	t.manners()
	t.how = manner{many: t.how.many, free: t.how.free}
	show := t.vehicle()
	kind := t.IntN(5)
	extra := ""
	switch kind {
	case 0: // a step also needs a step that needs it
		last := n - 1
		if len(t.needs[last]) == 0 {
			return false
		}
		k := t.needs[last][t.IntN(len(t.needs[last]))]
		t.needs[k] = append(t.needs[k], last)
		t.out.Report, t.out.Note = []string{"CYCLE"}, "a cycle"
	case 1:
		k := 1 + t.IntN(n-1)
		t.needs[k] = nil
		if t.edgeless() {
			return false
		}
		t.needs[k] = []int{k}
		t.out.Report, t.out.Note = []string{"SELF_LOOP"}, "a self loop"
	case 2:
		k := 1 + t.IntN(n-1)
		t.needs[k] = append(slices.Clone(t.needs[k]), n)
		extra = t.unknown()
		t.ref = append(slices.Clone(t.ref), extra)
		t.out.Report, t.out.Note = []string{"UNKNOWN_REF"}, "a reference to "+extra
	case 3: // the last node has the id of another node; no node needs either of them
		k := t.IntN(n - 1)
		if len(t.after(k)) > 0 || len(t.needs[k])+len(t.needs[n-1]) > 0 && t.yes(1) {
			t.needs[k], t.needs[n-1] = nil, nil
		}
		if len(t.after(k)) > 0 || t.edgeless() {
			return false
		}
		t.id = slices.Clone(t.id)
		t.id[n-1] = t.id[k]
		t.ref = t.id
		t.out.Report, t.out.Note = []string{"DUPLICATE_ID"}, "an id twice"
	case 4:
		return t.truncated()
	}
	t.out.Body = show()
	t.truthOf(extra)
	return true
}

// truthOf writes the truth without self loops and without edges of the unknown reference.
func (t *writer) truthOf(extra string) {
	t.out.Nodes = slices.Clone(t.id)
	for i, x := range t.needs {
		for _, k := range x {
			if k != i && k < len(t.id) {
				t.out.Edges = append(t.out.Edges, Edge{t.id[k], t.id[i]})
			}
		}
	}
}

// unknown returns an id of the same kind that no step has.
func (t *writer) unknown() string {
	if t.number {
		return strconv.Itoa(len(t.id) + 4 + t.IntN(20))
	}
	if i := strings.IndexAny(t.id[0], "0123456789"); i >= 0 {
		return t.id[0][:i] + strconv.Itoa(900+t.IntN(90))
	}
	return "merge_leftovers"
}

// vehicle draws ids and the notation of the plan: a list, a table or JSON.
func (t *writer) vehicle() func() string {
	switch t.IntN(4) {
	case 0:
		t.numbers()
		form := t.one("%s. ", "%s) ")
		return func() string {
			return strings.TrimRight(t.lines(func(i int) string { return fmt.Sprintf(form, t.id[i]) }, plainly), "\n")
		}
	case 1:
		t.codes()
		form := t.one("- %s: ", "%s – ", "* %s: ")
		return func() string {
			return strings.TrimRight(t.lines(func(i int) string { return fmt.Sprintf(form, t.id[i]) }, plainly), "\n")
		}
	case 2:
		t.codes()
		return func() string {
			c := t.columns(func(nodes []int) string { return strings.Join(t.refs(nodes), ", ") })
			return strings.TrimRight(t.pipes(c), "\n")
		}
	}
	t.slugs("_")
	key := t.one("depends_on", "needs", "after", "requires")
	return func() string {
		var items []object
		for i := range t.needs {
			refs := []any{}
			for _, r := range t.refs(t.needs[i]) {
				refs = append(refs, r)
			}
			items = append(items, object{{"id", t.id[i]}, {"task", t.cap(t.title[i])}, {key, refs}})
		}
		return rows(object{{"tasks", items}})
	}
}

// truncated cuts the text off where the truth stays clear: in the row after the last complete one, or before
// the end of a JSON text. The edges of the last step are left open.
func (t *writer) truncated() bool {
	t.out.Report, t.out.EdgesOpen = []string{"TRUNCATED"}, true
	t.out.Note = "cut off"
	if t.yes(0.5) {
		t.slugs("_")
		var items []object
		for i := range t.needs {
			refs := []any{}
			for _, r := range t.refs(t.needs[i]) {
				refs = append(refs, r)
			}
			items = append(items, object{{"id", t.id[i]}, {"task", t.cap(t.title[i])}, {"depends_on", refs}})
		}
		s := rows(object{{"tasks", items}})
		t.out.Body = s[:strings.LastIndex(s, `"depends_on"`)+8]
		if t.yes(0.5) {
			t.out.Body = "```json\n" + t.out.Body
		}
	} else {
		t.codes()
		t.how.free = 0
		c := columns{rows: make([][]string, len(t.needs))}
		c.add(t.pick("label.id"), func(i int) string { return t.id[i] })
		c.add(t.pick("label.task"), func(i int) string { return t.cap(t.title[i]) })
		c.add(t.pick("label.needs"), func(i int) string { return strings.Join(t.refs(t.needs[i]), ", ") })
		s := "```\n" + strings.TrimRight(t.pipes(c), "\n")
		last := t.cap(t.title[len(t.title)-1])
		t.out.Body = s[:strings.LastIndex(s, last)+len(last)]
	}
	t.truthOf("")
	t.out.Edges = nil
	return true
}
