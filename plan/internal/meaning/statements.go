package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// statements finds the items that only state the needs of steps: "- T3 requires T1" below a list of T1 to T9,
// "1 can start right away; 2 comes after 1." Their labels repeat those of earlier steps.
func (o *outline) statements() {
	seen := map[string]bool{}
	var named []Named
	var again []*form.Item
	var head *form.Item
	counted := map[*form.Item]bool{}     // items below which numbers start again
	below := map[*form.Item]*form.Item{} // the line that announces a revised plan
	for _, it := range o.all {
		if it.Mark.Style == form.NoMark && it.Kind != form.Entry {
			if head = nil; revises(o.src, it.Text) {
				head = it
			}
		}
		if it.Mark.Style == form.NoMark || it.Mark.Style == form.Spelled {
			continue
		}
		key := it.Mark.Noun + " " + it.Mark.Label
		p := o.parent[it]
		if _, ok := counted[p]; !ok {
			counted[p] = p.Kind == form.Entry && p.Mark.Style == form.Number && it.Indent > p.Indent && counts(p.Kids)
		}
		if (p.Mark.Noun != "" || counted[p]) && it.Mark.Style != form.Code {
			// Numbers start again below "Phase 2", and below "2.".
			key = p.Mark.Noun + " " + p.Mark.Label + key
		}
		if !seen[key] && !(it.Mark.Weak && ranges(it.Mark.Label, seen)) {
			seen[key] = true
			named = append(named, Named{ID: it.Mark.Label, Noun: it.Mark.Noun, Titles: []string{squeeze(it.Text)}, Parent: -1})
		} else {
			again = append(again, it)
			below[it] = head
		}
	}
	if len(again) == 0 || len(named) < 2 {
		return
	}
	n := NewNames(named)
	n.In(lexicon.Lang(language(o.src.Text)))
	// By parent: the number of items that state needs, minus those that do not.
	states, fresh := map[*form.Item]int{}, map[*form.Item]bool{}
	for _, it := range again {
		if n.states(it.Text) || it.Mark.Weak && n.orders(it.Text) || o.needed(it) && n.onlyIDs(-1, it.Text) != nil {
			states[o.parent[it]]++
		} else {
			states[o.parent[it]]--
			fresh[below[it]] = true
		}
	}
	for _, it := range again {
		o.said[it] = states[o.parent[it]] >= 0 && (below[it] == nil || !fresh[below[it]])
	}
}

// counts reports whether the items have numbers or letters that count from the first one.
func counts(items []*form.Item) bool {
	for i, it := range items {
		if m := it.Mark; m.Style != form.Number && m.Style != form.Letter || len(m.Path) != 1 || m.Path[0] != i+1 {
			return false
		}
	}
	return len(items) > 1
}

// ranges reports whether a label stands for several items: "1-3 can run in parallel".
func ranges(label string, seen map[string]bool) bool {
	from, to, ok := strings.Cut(label, "-")
	return ok && seen[" "+from] && seen[" "+to]
}

// revises reports whether a line announces a revised plan: "Revised plan:".
func revises(src *form.Source, s string) bool {
	return strings.HasSuffix(strings.TrimRight(s, " "), ":") && (corrects(s) || hasTone(languageOf(src), s, toneRevised))
}

// needed reports whether an item is below a heading for needs, such as "Dependencies".
func (o *outline) needed(it *form.Item) bool {
	p := o.parent[it]
	if p == nil || p.Kind != form.Heading || p.Level == 0 {
		return false
	}
	role, ok := lexicon.Field(strings.TrimRight(squeeze(p.Text), ":： "))
	return ok && role == lexicon.Requires
}

// maxTitled bounds the words of a statement that belong to no relation.
const maxTitled = 2

// states reports whether the first sentence of a text consists of a relation between steps. The relation need
// not be understood.
func (n *Names) states(text string) bool {
	if i := strings.IndexAny(text, ".;；。"); i > 0 {
		text = text[:i]
	}
	related, words := false, 0
	for _, a := range n.groups(-1, text, n.atoms(text)) {
		switch {
		case a.class == phrase && a.kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.None)) != 0:
			related = true
		case a.class == word && !a.common && a.end-a.off > 2:
			if words++; words > maxTitled || !related && words > 1 {
				return false
			}
		}
	}
	return related
}

// whole returns the text of an item with its mark.
func whole(src *form.Source, it *form.Item) text {
	return text{src.Text[it.Mark.Off:it.TextOff] + it.Text, it.Mark.Off}
}
