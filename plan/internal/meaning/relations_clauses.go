package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// lead returns the reference at the beginning of a sentence outside of the steps as the subject of a later
// phrase: "3 can only start, when 2 is done".
func (t *relationReader) lead(from, at int) []int {
	for from < at && t.light(from) {
		from++
	}
	a := &t.atoms[from]
	if t.self >= 0 || len(t.subject) > 0 || from == at || a.class != group || a.used || !t.resolved(a) || t.isUnit(from+1) || a.spelled && !a.sure {
		return nil
	}
	a.used = true
	return a.items
}

// subjectBehind reports whether a group is the subject of the pending needs: only a few words separate it
// from the comma before it.
func (t *relationReader) subjectBehind(from, i int) bool {
	if a := &t.atoms[i]; len(t.pending) == 0 || !t.resolved(a) || t.isUnit(i+1) || a.spelled && !a.sure {
		return false
	}
	for k := i - 1; k >= max(from, i-maxVerbs+1); k-- {
		switch c := t.atoms[k].class; {
		case c == comma:
			return true
		case c != word && c != phrase && c != closing:
			return false
		}
	}
	return i-from < maxVerbs-1 && from > 0
}

// thereafter reads "after that" in a sentence outside of the steps as a need for the subjects of the sentence
// before.
func (t *relationReader) thereafter(from, to int) {
	if t.self >= 0 || len(t.prior) == 0 {
		return
	}
	then, at := -1, -1
	for i := from; i < min(to, from+reach); i++ {
		switch a := &t.atoms[i]; {
		case a.class == phrase && a.is(lexicon.Then):
			then = i
		case a.class == group && at >= 0:
			return
		case a.class == group:
			at = i
		}
	}
	if then < 0 || at < 0 || t.atoms[at].used || !t.resolved(&t.atoms[at]) {
		return
	}
	t.atoms[at].used = true
	t.state(Relation{Kind: Needs, Items: t.prior, Off: t.atoms[then].off, End: t.atoms[then].end}, t.atoms[at].items)
}

// take adds the references of the group at atom i to a relation. amounts allows numbers that may be amounts.
func (t *relationReader) take(rel *Relation, i int, amounts bool) {
	a := &t.atoms[i]
	if a.class != group || a.used || !amounts && !a.sure && t.isAmount(i+1) {
		return
	}
	if !a.sure && !a.positional && len(a.items) == 0 && !t.plausible(a) || t.n.made && a.bare && (!a.ordinal || len(a.items) == 0) {
		return
	}
	a.used = true
	if a.vague {
		t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[a.off:a.end], Why: "taken for the steps right before", Off: a.off})
	}
	rel.positional = rel.positional || a.positional
	rel.own = rel.own || !a.positional && (!a.spelled || a.sure)
	rel.Items = append(rel.Items, a.items...)
	rel.Unknown = append(rel.Unknown, a.unknown...)
	rel.Off, rel.End = min(rel.Off, a.off), max(rel.End, a.end)
}

// maxBeyond bounds how far a number in words may exceed the last step and still name a missing step.
const maxBeyond = 3

// plausible reports whether a bare number that no item has may be an id.
func (t *relationReader) plausible(a *atom) bool {
	if a.spelled && a.value > t.n.highest+maxBeyond {
		return false // for example "before ten"
	}
	return t.n.numbers && a.value > 0 && a.value <= 2*t.n.highest+99
}

// isAmount reports whether atom i turns a number before it into an amount.
func (t *relationReader) isAmount(i int) bool {
	return i < len(t.atoms) && t.atoms[i].isAmount(t.text)
}

// isUnit reports whether atom i is a unit.
func (t *relationReader) isUnit(i int) bool {
	return i < len(t.atoms) && t.atoms[i].isUnit()
}

// ahead reads the references behind a phrase.
func (t *relationReader) ahead(rel *Relation, at, to int) {
	a := &t.atoms[at]
	words, pause := 0, false
	for i := at + 1; i < to; i++ {
		b := &t.atoms[i]
		switch {
		case b.is(lexicon.None) && b.class == phrase && words == 0 && !rel.full():
			return // for example "unblocks: nothing, it is the last one"
		case b.class == group:
			if pause && (rel.Kind == Before || rel.Kind == Beside || rel.Kind == Apart) || t.isSubject(i, to) {
				return
			}
			if !b.sure && words > 0 && len(b.items) == 0 && !b.positional {
				return // for example "when the sugar reaches 23"
			}
			if b.sure || words == 0 || t.sourced(i) || a.tok.Opens && words < 9 && !pause {
				t.take(rel, i, a.tok.Opens)
			}
			if rel.full() {
				words++
			}
		case b.class == phrase && b.kinds&lexicon.Relations != 0:
			return // in "after using 2" and "→ uses #2" the second phrase counts
		case b.class == phrase && (b.is(lexicon.Not) || b.is(lexicon.Except)) && rel.full():
			for k := i + 1; k < min(to, i+2+2*b2i(b.is(lexicon.Not))) && rel.Kind <= Uses; k++ {
				t.take(&Relation{}, k, false) // for example "depends on 1, not on 2"
			}
			return
		case b.class == comma:
			pause = words > 0
		case b.class == word && !b.common, b.class == quantity:
			words++
		}
	}
}

// sourced reports whether a preposition precedes the group at atom i.
func (t *relationReader) sourced(i int) bool {
	for n := 0; n < reach && i > 0 && t.atoms[i-1].class == word && t.atoms[i-1].common; n++ {
		i--
	}
	return i > 0 && t.atoms[i-1].class == phrase && t.atoms[i-1].is(lexicon.Sources)
}

// sums reports whether the group at atom i are all steps above, from which a step makes something: "a summary
// of all of the above".
func (t *relationReader) sums(from, i, to int) bool {
	a := &t.atoms[i]
	phrase := t.text[a.off:a.end]
	several := strings.Contains(phrase, " ") || phrase[0] >= utf8.RuneSelf
	return a.positional && several && a.kinds&lexicon.KindsOf(lexicon.All, lexicon.Every) != 0 && t.sourced(i) && !t.isAmount(i+1) && !t.denies(from, i, to)
}

// isSubject reports whether the group at atom i is the subject of the next phrase: "…, both need 1".
func (t *relationReader) isSubject(i, to int) bool {
	k := i - 1
	for t.self < 0 && k > 0 && k > i-3 && t.atoms[k].class == word {
		k-- // for example "…, whereas 5 waits for 4"
	}
	if k >= 0 && t.atoms[k].class != comma && !t.atoms[k].is(lexicon.And) {
		return false
	}
	for j := i + 1; j < to; j++ {
		switch a := &t.atoms[j]; {
		case a.class == phrase && a.kinds&lexicon.Relations != 0:
			return a.tok.Side == lexicon.Ahead && j+1 < to
		case a.class == word && a.common, a.is(lexicon.Not):
		default:
			return false
		}
	}
	return false
}

// subjectOf returns the group directly before a phrase as its subject: "Step 4 waits for 2". It returns nil
// if there is none, or if there is other content.
func (t *relationReader) subjectOf(from, at int) []int {
	i := at - 1
	for i >= from && t.light(i) {
		i--
	}
	for i > from && t.self < 0 && (t.light(i) || t.atoms[i].class == word) && at-i < maxVerbs {
		i-- // for example "3 can only begin once 2 is done"
	}
	if chained := &t.atoms[max(0, at-1)]; t.self < 0 && at > from && chained.class == group && chained.used && t.atoms[at].is(lexicon.Before) {
		return chained.items // for example "1 before 3 before 2"
	}
	if i < from || t.atoms[i].class != group || t.atoms[i].used {
		return nil
	}
	for j := i - 1; j >= from && t.atoms[j].class != comma; j-- {
		if !t.light(j) && (t.self >= 0 || t.atoms[j].class != word) {
			return nil
		}
	}
	a := &t.atoms[i]
	if a.spelled && !a.sure {
		return nil
	}
	a.used = true
	if a.positional && t.self >= 0 {
		return []int{t.self}
	}
	return a.items
}

// freed returns the steps that need nothing according to a phrase. They begin the part of the clause.
func (t *relationReader) freed(from, at int) []int {
	i := at - 1
	for i >= from && t.light(i) {
		i--
	}
	if i < from || t.atoms[i].class != group || t.atoms[i].used || t.atoms[i].spelled && !t.atoms[i].sure {
		return nil
	}
	for j := i - 1; j >= from && t.atoms[j].class != comma; j-- {
		if !t.light(j) {
			return nil
		}
	}
	t.atoms[i].used = true
	return t.atoms[i].items
}

// maxVerbs bounds the words between a subject and its phrase in a sentence outside of the steps.
const maxVerbs = 6

// light reports whether an atom may stand between a subject and its phrase.
func (t *relationReader) light(i int) bool {
	a := &t.atoms[i]
	switch a.class {
	case word:
		return a.common
	case phrase:
		return a.kinds&lexicon.Relations == 0
	}
	return false
}

// near reports whether only light words separate an atom from the group before it.
func (t *relationReader) near(i, from int) bool {
	for i >= from && t.light(i) {
		i--
	}
	return i >= from && t.atoms[i].class == group && !t.atoms[i].used
}

// maxGap bounds the distance between a number and the phrase behind it: letters of a script without spaces,
// or light words.
const maxGap = 5

// behind reads the references before a phrase that follows its objects. It returns the subject before those.
func (t *relationReader) behind(rel *Relation, from, at int) (subject []int) {
	gap, pause := 0, false
	for i := at - 1; i >= from; i-- {
		a := &t.atoms[i]
		switch {
		case a.class == group:
			if rel.full() && t.self < 0 {
				if !a.used {
					a.used = true
					return a.items
				}
				return nil
			}
			if pause && !a.sure || a.used || gap > maxGap && !a.sure {
				return nil
			}
			t.take(rel, i, true)
			gap = 0
		case a.class == phrase && a.kinds&lexicon.Relations != 0 && a.tok.Side != lexicon.Ahead:
			return nil
		case a.class == comma:
			pause = true
			if rel.full() && t.self >= 0 {
				return nil
			}
		case a.class == word && isWordLetter(firstRune(t.text[a.off:])) && !a.common:
			gap += maxGap
		default:
			gap++
		}
	}
	return nil
}

// start returns the first of the words before a phrase that may name its object.
func (t *relationReader) start(from, at int) int {
	for i := at - 1; i >= from; i-- {
		if a := &t.atoms[i]; a.class == comma || a.class == colon || a.kinds&lexicon.Relations != 0 {
			return i + 1
		}
	}
	return from
}

// stretch returns the end of the words that may name the object of a phrase.
func (t *relationReader) stretch(from, to int) int {
	for i := t.behindColon(from, to); i < to; i++ {
		if a := &t.atoms[i]; a.class == comma || a.class == colon || a.kinds&lexicon.Relations != 0 {
			return i
		}
	}
	return to
}

func (t *relationReader) behindColon(from, to int) int {
	if from < to && t.atoms[from].class == colon {
		return from + 1
	}
	return from
}

// find returns the first atom at or behind an offset.
func (t *relationReader) find(from, to, off int) int {
	for i := from; i < to; i++ {
		if t.atoms[i].off >= off {
			return i
		}
	}
	return to
}

// ends reports whether the rest of the clause has no content.
func (t *relationReader) ends(i, to int) bool {
	for ; i < to && t.atoms[i].class != comma; i++ {
		if a := &t.atoms[i]; a.class == word && !a.common || a.class == group || a.class == quantity {
			return false
		}
	}
	return true
}
