package meaning

import (
	"slices"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// orderSigns are the kinds of phrases that a sentence about the order of steps must not contain.
const orderSigns = lexicon.Relations | 1<<lexicon.Not | 1<<lexicon.Until | 1<<lexicon.Except | 1<<lexicon.None | 1<<lexicon.Choice

// besides are the kinds of phrases for steps of a group that run in parallel.
const besides lexicon.Kinds = 1<<lexicon.Meanwhile | 1<<lexicon.Abreast | 1<<lexicon.Loose

// maxOrderWords bounds the other words in a sentence that states an order by bare numbers.
const maxOrderWords = 3

// stage is a group of steps in a sentence that states an order: "first 1, then 2 and 3 in parallel".
type stage struct {
	group   *atom
	at      int // its index
	abreast bool
}

// order reads a clause outside of the steps that states only an order: "first 1, then 3, then 2", "run 1, 2
// and 3 in parallel, then 4", "2 and 3 can run side by side", "4 comes last". It returns false for other
// clauses.
func (t *relationReader) order(from, to int) bool {
	if t.self >= 0 || to-from > reach {
		return false
	}
	stages := t.stages(from, to)
	switch {
	case len(stages) == 0:
		return false
	case len(stages) == 1:
		return t.oneStage(&stages[0], to)
	}
	for k := range stages {
		stages[k].group.used = true
	}
	for k := 1; k < len(stages); k++ {
		rel := Relation{Kind: Needs, Items: stages[k-1].group.items, Off: stages[k-1].group.off, End: stages[k].group.end}
		t.state(rel, stages[k].group.items)
	}
	return true
}

// stages returns the stages in a clause, or none if the clause states anything else.
func (t *relationReader) stages(from, to int) []stage {
	out := []stage{{}}
	words, numbers, then := 0, false, false
	for i := from; i < to; i++ {
		a, now := &t.atoms[i], &out[len(out)-1]
		switch {
		case a.class == group:
			if now.group != nil && i+1 < to && t.atoms[i+1].is(lexicon.Last) {
				out = append(out, stage{}) // for example "and 4 at the very end"
				now = &out[len(out)-1]
			}
			if a.used || a.positional || a.spelled && !a.sure || !t.resolved(a) || now.group != nil || t.isAmount(i+1) && !a.sure {
				return nil
			}
			now.group, now.at, numbers = a, i, numbers || !a.sure
		case a.class == word && !a.common, a.class == quantity:
			words++
		case a.class != phrase:
		// Italian "dopo" means "after", too.
		case a.kinds&lexicon.KindsOf(lexicon.Then, lexicon.Last) != 0 && a.kinds&orderSigns&^(1<<lexicon.Before) == 0:
			then = then || a.is(lexicon.Then)
			if now.group != nil && !t.ends(i+1, to) {
				out = append(out, stage{})
			}
		case a.kinds&orderSigns != 0:
			return nil
		case a.kinds&besides != 0:
			now.abreast = true
		}
	}
	if len(out) == 1 && then || out[len(out)-1].group == nil || numbers && words > maxOrderWords {
		return nil
	}
	return out
}

// orderOf returns the relations of the clauses in a text that state only an order.
func (n *Names) orderOf(text string, off int) []Relation {
	t := relationReader{n: n, self: -1, text: text, open: -1, last: -1, lost: -1}
	t.atoms = n.groups(-1, text, n.atoms(text))
	for from := 0; from < len(t.atoms); {
		to := from
		for to < len(t.atoms) && !t.parts(to) {
			to++
		}
		t.order(from, to)
		from = to + 1
	}
	for i := range t.rels {
		t.rels[i].Off += off
		t.rels[i].End += off
	}
	return t.rels
}

// oneStage reads a clause about one group of steps. It returns false if the clause states no order.
func (t *relationReader) oneStage(s *stage, to int) bool {
	rel := Relation{Off: s.group.off, End: t.atoms[to-1].end}
	items, next := s.group.items, s.at+1
	switch {
	case len(items) > 1 && s.abreast:
		rel.Kind, rel.Subjects, rel.Items = Beside, items[1:], items[:1]
	case len(items) == 1 && next < to && t.atoms[next].is(lexicon.Last) && t.ends(next+1, to):
		rel.Kind, rel.Subjects = Closing, items
	case len(items) == 1 && next < to && t.atoms[next].is(lexicon.First) && t.ends(next+1, to):
		rel.Kind, rel.Subjects = Opening, items
	default:
		return false
	}
	s.group.used, t.subject = true, items
	t.rels = append(t.rels, rel)
	return true
}

// orders reports whether the text behind a number continues a sentence about that step: "and 2 can run in
// parallel", "comes last".
func (n *Names) orders(text string) bool {
	in := n.groups(-1, text, n.atoms(text))
	if len(in) == 0 || in[0].class != phrase {
		return false
	}
	if in[0].kinds&lexicon.KindsOf(lexicon.Last, lexicon.First) != 0 {
		return len(in) == 1 || len(in) == 2 && in[1].class == stop
	}
	joined := in[0].kinds&besides != 0 || in[0].kinds&lexicon.KindsOf(lexicon.And, lexicon.Or) != 0 && len(in) > 1 && in[1].class == group
	return joined && slices.ContainsFunc(in, func(a atom) bool { return a.class == phrase && a.kinds&besides != 0 })
}
