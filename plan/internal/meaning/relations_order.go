package meaning

import "github.com/epigraph-run/epigraph/plan/internal/lexicon"

// orderSigns are the kinds of phrases that a sentence about the order of steps does not have.
const orderSigns = lexicon.Relations | 1<<lexicon.Not | 1<<lexicon.Until | 1<<lexicon.Except | 1<<lexicon.None | 1<<lexicon.Choice

// besides are the kinds of phrases that say that the steps of a group run side by side.
const besides lexicon.Kinds = 1<<lexicon.Meanwhile | 1<<lexicon.Abreast

// maxOrderWords bounds the words that are no part of the order in a sentence that tells it by bare numbers.
const maxOrderWords = 3

// stage are steps of a sentence that tells the order: "first 1, then 2 and 3 in parallel".
type stage struct {
	group   *atom
	abreast bool
}

// order reads a clause outside of the steps that tells their order: "first 1, then 3, then 2", "run 1, 2 and 3 in
// parallel, then 4", "2 and 3 can run side by side", "4 comes last".
func (t *talk) order(from, to int) {
	if t.self >= 0 || to-from > reach {
		return
	}
	stages := []stage{{}}
	words, numbers, end := 0, false, -1
	for i := from; i < to; i++ {
		a, now := &t.atoms[i], &stages[len(stages)-1]
		switch {
		case a.class == group:
			if a.used || a.place || a.spelled && !a.sure || !t.known(a) || now.group != nil || t.isAmount(i+1) && !a.sure {
				return
			}
			now.group, numbers, end = a, numbers || !a.sure, i
		case a.class == word && !a.common, a.class == quantity:
			words++
		case a.class != phrase:
		case a.kinds&orderSigns != 0:
			return
		case a.kinds&besides != 0:
			now.abreast = true
		case a.kinds&lexicon.KindsOf(lexicon.Then, lexicon.Last) != 0 && now.group != nil && i+1 < to && !t.ends(i+1, to):
			stages = append(stages, stage{})
		}
	}
	last := &stages[len(stages)-1]
	if last.group == nil || numbers && words > maxOrderWords {
		return
	}
	if len(stages) == 1 {
		t.oneStage(last, end, to)
		return
	}
	for k := 1; k < len(stages); k++ {
		rel := Relation{Kind: Needs, Items: stages[k-1].group.items, Off: stages[k-1].group.off, End: stages[k].group.end}
		stages[k-1].group.used, stages[k].group.used = true, true
		t.state(rel, stages[k].group.items)
	}
}

// oneStage reads a clause that says something of one group of steps, which stands at a place.
func (t *talk) oneStage(s *stage, at, to int) {
	rel := Relation{Off: s.group.off, End: t.atoms[to-1].end}
	items := s.group.items
	switch {
	case len(items) > 1 && s.abreast:
		rel.Kind, rel.Subjects, rel.Items = Beside, items[1:], items[:1]
	case len(items) == 1 && at+1 < to && t.atoms[at+1].is(lexicon.Last) && t.ends(at+2, to):
		rel.Kind, rel.Subjects = Closing, items
	case len(items) == 1 && at+1 < to && t.atoms[at+1].is(lexicon.First) && t.ends(at+2, to):
		rel.Kind, rel.Subjects = Opening, items
	default:
		return
	}
	s.group.used = true
	t.rels = append(t.rels, rel)
}

// orders reports whether a text that goes on behind a number is a sentence about that step: "and 2 can run in
// parallel", "comes last".
func (n *Names) orders(text string) bool {
	in := n.groups(-1, text, n.atoms(text))
	if len(in) == 0 || in[0].class != phrase {
		return false
	}
	if in[0].kinds&lexicon.KindsOf(lexicon.Last, lexicon.First) != 0 {
		return len(in) == 1 || len(in) == 2 && in[1].class == stop
	}
	joined := in[0].kinds&lexicon.KindsOf(lexicon.And, lexicon.Or) != 0 && len(in) > 1 && in[1].class == group
	for i := range in {
		if joined && in[i].kinds&besides != 0 {
			return true
		}
	}
	return false
}
