package meaning

import (
	"slices"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// inOrder reads a sentence that names all steps in order, or two steps with a word of order: "2 first and 1
// after it". It returns false for other sentences.
func (a *amender) inOrder(text string, all []mention, s form.Sentence) bool {
	var kinds lexicon.Kinds
	for _, t := range lexicon.ScanIn(lexicon.Lang(a.lang), text) {
		kinds |= t.Kinds
	}
	if kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.Until)) != 0 {
		return false
	}
	var items []int
	for _, m := range all {
		places := a.itemsOf(m.ids)
		if len(places) != len(m.ids) || slices.ContainsFunc(places, func(i int) bool { return slices.Contains(items, i) }) {
			return false
		}
		items = append(items, places...)
	}
	amounts := slices.ContainsFunc(all, func(m mention) bool { return m.amount })
	if len(items) == 2 && !amounts && kinds&lexicon.KindsOf(lexicon.First, lexicon.Then) != 0 {
		a.apply(Relation{Kind: Before, Subjects: items[:1], Items: items[1:], Off: s.Off}, false)
		return true
	}
	if a.order == nil || len(items) < 3 || len(items) != len(slices.Concat(a.order...)) {
		return false
	}
	a.order, a.moved, a.listed = nil, true, true
	for _, i := range items {
		a.order = append(a.order, []int{i})
	}
	return true
}

// orders reads a sentence that states only the order of steps: "2 and 3 can happen in parallel", "first 2,
// then 1". It returns false for other sentences.
func (a *amender) orders(all []mention, s form.Sentence) bool {
	rels := a.names.orderOf(s.Text, s.Off)
	if len(rels) == 0 || !a.covers(rels, all) {
		return false
	}
	if a.correcting && len(rels) > 1 && a.whole(rels) {
		a.r.Links, a.order = nil, nil
	}
	for _, r := range rels {
		a.apply(r, true)
		a.subject = r.Subjects
	}
	return true
}

// whole reports whether the relations name all steps.
func (a *amender) whole(rels []Relation) bool {
	named := map[int]bool{}
	for _, r := range rels {
		for _, i := range slices.Concat(r.Subjects, r.Items) {
			named[i] = true
		}
	}
	return len(named) == len(a.steps())
}

// covers reports whether the relations use all ids that a sentence mentions.
func (a *amender) covers(rels []Relation, all []mention) bool {
	read := map[string]bool{}
	for _, r := range rels {
		for _, id := range slices.Concat(r.Unknown, a.idsOf(r.Items), a.idsOf(r.Subjects)) {
			read[id] = true
		}
	}
	for _, m := range all {
		if slices.ContainsFunc(m.ids, func(id string) bool { return !read[id] }) {
			return false
		}
	}
	return true
}
