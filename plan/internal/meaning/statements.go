package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// statements finds the items that say of steps what they wait for, and are none themselves: "- T3 requires T1" below a
// list of T1 to T9, "1 can start right away; 2 comes after 1." Their labels are those of steps before them.
func (o *outline) statements() {
	at := map[string]int{}
	var named []Named
	var again []*form.Item
	for _, it := range o.all {
		if it.Mark.Style == form.NoMark || it.Mark.Style == form.Spelled {
			continue
		}
		key := it.Mark.Noun + " " + it.Mark.Label
		if _, ok := at[key]; !ok {
			at[key] = len(named)
			named = append(named, Named{ID: it.Mark.Label, Noun: it.Mark.Noun, Titles: []string{squeeze(it.Text)}, Parent: -1})
		} else {
			again = append(again, it)
		}
	}
	if len(again) == 0 || len(named) < 2 {
		return
	}
	n := NewNames(named)
	n.In(lexicon.Lang(language(o.src.Text)))
	for _, it := range again {
		if n.states(at[it.Mark.Noun+" "+it.Mark.Label], it.Text) {
			o.said[it] = true
		}
	}
}

// maxTitled bounds the words of a statement that are part of no relation.
const maxTitled = 2

// states reports whether a text says of a step what it waits for, and nothing else.
func (n *Names) states(self int, text string) bool {
	if i := strings.IndexAny(text, ".;；。"); i > 0 {
		text = text[:i]
	}
	related, words := false, 0
	for _, a := range n.groups(self, text, n.atoms(text)) {
		switch {
		case a.class == phrase && a.kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.None)) != 0:
			related = true
		case a.class == word && !a.common:
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
