package meaning

import (
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// Kind says how steps are related.
type Kind uint8

// The kinds of relations.
const (
	// Needs and Uses: the items come before the subjects.
	Needs Kind = iota
	Uses
	// Before: the subjects come before the items.
	Before
	// Beside: the subjects need what the items need.
	Beside
	// Apart: the subjects do not need the items.
	Apart
	// None: the subjects need nothing.
	None
	// Ditto: what is said of the items is said of the subjects.
	Ditto
)

// Relation is one thing that a text says about steps. Subjects and Items are places in the list of items; Unknown are ids
// that no item has. Guessed is set when the items were found by words of their titles.
type Relation struct {
	Kind            Kind
	Subjects, Items []int
	Unknown         []string
	Guessed         bool
	Off, End        int
	// titled is set when they were found by a whole title, place when by a word such as "both".
	titled, place bool
	// others is set when the items are all other steps, above when they are those before the subjects.
	others, above bool
	// own is set when a reference by label or number may be one of a step to itself.
	own bool
}

// Doubt is something in a text that names a step and was not understood. Item is the step, or -1.
type Doubt struct {
	Item      int
	Text, Why string
	Off       int
	// Stranger tells that the text may as well name what is no step: "after lunch".
	Stranger bool
}

// talk reads what one text says.
type talk struct {
	n     *Names
	self  int
	text  string
	atoms []atom
	// subject is what the sentence is about, when that is not self. open is the place of the relation that has no
	// item yet, or -1.
	subject []int
	open    int
	// prior is what the sentence before was about. Pending are needs whose subject comes behind them: "once 1 is done, 2 …".
	prior   []int
	pending []Relation
	// last is the phrase that was read last in the sentence, or -1: "needs 1; 2; 3".
	last int
	// lost is the first phrase of a remark that says what the step waits for, and names nothing that is
	// known, or -1.
	lost   int
	rels   []Relation
	doubts []Doubt
}

// Relations returns what a text says about the item self, or about others when self is -1. Off is added to all places.
func (n *Names) Relations(self int, text string, off int) (rels []Relation, doubts []Doubt) {
	t := talk{n: n, self: self, text: text, open: -1, last: -1, lost: -1, prior: n.prior}
	t.atoms = n.groups(self, text, n.atoms(text))
	if len(t.atoms) > 0 && t.atoms[0].class == group && len(t.atoms[0].items) == 1 && t.atoms[0].items[0] == self && (len(t.atoms) == 1 || t.atoms[1].class != phrase || t.atoms[1].kinds&lexicon.Relations == 0) {
		t.atoms[0].used = true // its own name: "e2e: browser tests"
	}
	for from := 0; from < len(t.atoms); {
		to := from
		for to < len(t.atoms) && !t.parts(to) {
			to++
		}
		t.clause(from, to)
		if to < len(t.atoms) && t.atoms[to].class == stop {
			if len(t.subject) > 0 {
				t.prior = t.subject
			}
			t.subject, t.open, t.pending = nil, -1, nil
			if t.text[t.atoms[to].off] != ';' {
				t.last = -1
			}
		}
		from = to + 1
	}
	if t.lost >= 0 && len(t.doubts) == 0 && (self >= 0 || len(t.rels) == 0) {
		at := t.atoms[t.lost].off
		end := t.atoms[min(t.stretch(t.lost+1, len(t.atoms)), len(t.atoms))-1].end
		t.doubts = append(t.doubts, Doubt{Item: self, Text: text[at:end], Why: "no step is known by these words", Off: at, Stranger: true})
	}
	for i := range t.rels {
		t.rels[i].Off += off
		t.rels[i].End += off
	}
	for i := range t.doubts {
		t.doubts[i].Off += off
	}
	return t.rels, t.doubts
}

// parts reports whether an atom stands between clauses.
func (t *talk) parts(i int) bool {
	switch a := &t.atoms[i]; a.class {
	case stop, opened, closed, point:
		return true
	case dash:
		return i == 0 || t.atoms[i-1].end < a.off
	case colon:
		return i > 0 && t.atoms[i-1].class != phrase
	}
	return false
}

// clause reads a part of a sentence without brackets.
func (t *talk) clause(from, to int) {
	none, said := false, len(t.rels)
	t.ditto(from, to)
	for i := from; i < to; i++ {
		if a := &t.atoms[i]; t.relates(from, i) {
			t.relation(from, i, to)
		} else if a.class == phrase && a.is(lexicon.None) && t.says(from, i, to) {
			none = true
		}
	}
	if len(t.rels) == said {
		t.demands(from, to)
		t.thereafter(from, to)
	}
	t.rest(from, to)
	if none {
		t.rels = append(t.rels, Relation{Kind: None, Subjects: t.about(nil), Off: t.atoms[from].off, End: t.atoms[to-1].end})
	}
}

// relates reports whether an atom states a relation: a phrase that does, or "until" behind a "not".
func (t *talk) relates(from, at int) bool {
	a := &t.atoms[at]
	if a.class != phrase {
		return false
	}
	if a.kinds&lexicon.Relations != 0 {
		return true
	}
	if a.is(lexicon.Until) && t.negated(from, at, 6) >= 0 {
		a.kinds |= lexicon.KindsOf(lexicon.Needs)
		a.tok.Opens = true
		return true
	}
	return false
}

// negated returns how many atoms stand between a place and the "not" before it, or -1.
func (t *talk) negated(from, at, within int) int {
	for i := at - 1; i >= max(from, at-within); i-- {
		a := &t.atoms[i]
		if a.class == comma || a.class == group || a.kinds&lexicon.Relations != 0 {
			break
		}
		if a.class == phrase && a.is(lexicon.Not) {
			return at - 1 - i
		}
	}
	return -1
}

// about returns the subjects of a relation.
func (t *talk) about(subject []int) []int {
	switch {
	case len(subject) > 0:
		return subject
	case len(t.subject) > 0:
		return t.subject
	case t.self >= 0:
		return []int{t.self}
	}
	return nil
}

// says reports whether a phrase of the kind None is all that a clause says, or says by itself what is not needed.
func (t *talk) says(from, at, to int) bool {
	from, to = max(from, at-reach), min(to, at+reach)
	for i := at - 1; i >= from; i-- {
		if t.atoms[i].class == comma {
			from = i + 1
		}
	}
	for i := to - 1; i > at; i-- {
		if t.atoms[i].class == comma {
			to = i
		}
	}
	if strings.ContainsAny(t.atoms[at].tok.Phrase, " ") || len(t.atoms[at].tok.Phrase) > 9 && t.atoms[at].tok.Phrase[0] > 0x80 {
		return true
	}
	for i := from; i < to; i++ {
		if a := &t.atoms[i]; a.class == group || a.class == word && !a.common {
			return false
		}
	}
	return true
}

// kindOf returns the kind of relation that a phrase stands for; negated when a "not" stands before it.
func (t *talk) kindOf(from, at, to int) Kind {
	a := &t.atoms[at]
	k := Needs
	switch {
	case a.is(lexicon.Apart):
		return Apart
	case a.is(lexicon.Needs):
	case a.is(lexicon.Uses):
		k = Uses
	case a.is(lexicon.Beside):
		k = Beside
	case a.is(lexicon.Before):
		k = Before
	}
	if k == Before && a.tok.Side == lexicon.Behind && at+1 < to && t.atoms[at+1].class == phrase && t.atoms[at+1].is(lexicon.Not) {
		return Needs // "3 से पहले नहीं"
	}
	switch words := t.negated(from, at, 5); {
	case words >= 0 && k == Before:
		return Needs
	case words >= 0 && words <= 1 && k <= Uses && !a.is(lexicon.Until):
		return Apart
	}
	return k
}

// reach bounds how many atoms before and behind a phrase are read for it, so that the time stays linear.
const reach = 120

// relation reads the references of one phrase of a relation.
func (t *talk) relation(from, at, to int) {
	end := to
	from, to = max(from, at-reach), min(to, at+reach)
	a := &t.atoms[at]
	k := t.kindOf(from, at, to)
	rel := Relation{Kind: k, Off: a.off, End: a.end}
	var subject []int
	switch a.tok.Side {
	case lexicon.Around:
		if supposes[a.tok.Phrase] && t.counts(at, t.find(at, to, a.tok.CloseOff)) {
			return
		}
		for i := at + 1; i < to && t.atoms[i].off < a.tok.CloseOff; i++ {
			t.take(&rel, i, true)
		}
		if i := t.find(at, to, a.tok.CloseOff) + 1; rel.full() && i+1 < to && t.atoms[i].is(lexicon.And) && t.atoms[i+1].class == group {
			t.take(&rel, i+1, true) // "sobald b fertig ist und d vorliegt"
		}
		rel.End = max(rel.End, a.tok.CloseEnd)
		if i := t.find(at, to, a.tok.CloseOff); !rel.full() && t.ends(at+1, i) {
			for i++; i < to && t.light(i); i++ {
			}
			if i < to {
				t.take(&rel, i, false) // "когда готовы 2 и 3"
			}
			if !rel.full() && i < to {
				t.named(&rel, i, t.stretch(i, to)) // "cuando estén listos los planos y la obra"
			}
		}
		if i := t.find(at, to, a.tok.CloseOff); !rel.full() {
			t.named(&rel, at+1, i)
			if i+1 < to && rel.full() && t.atoms[i+1].is(lexicon.And) {
				t.named(&rel, i+2, t.stretch(i+2, to)) // "after the sawing is done and the glue is dry"
			}
		}
		if rel.full() {
			subject = t.subjectOf(from, at)
		}
	case lexicon.Behind:
		subject = t.behind(&rel, from, at)
		if !rel.full() {
			t.named(&rel, t.start(from, at), at)
		}
	default:
		if supposes[a.tok.Phrase] && t.counts(at, t.stretch(at+1, to)) {
			return
		}
		if i := t.behindColon(at+1, to); i < to && k <= Before && t.hasTitles(&rel, i) {
			for ; i < to && t.atoms[i].off < rel.End; i++ {
				t.atoms[i].used = true
			}
			if t.self < 0 {
				subject = t.subjectOf(from, at)
			}
			break
		}
		t.ahead(&rel, at, to)
		if rel.full() {
			subject = t.subjectOf(from, at)
			break
		}
		if i := at - 1; !a.is(lexicon.Then) && t.ends(at+1, to) && i >= from && t.near(i, from) {
			// "2 and 3 have to be done before"
			switch {
			case rel.Kind == Before:
				rel.Kind = Needs
			case rel.Kind <= Uses && at+1 < to && (t.atoms[at+1].class == word || t.atoms[at+1].is(lexicon.Then)):
				rel.Kind = Before // "2 and 4 wait for this"
			}
			for ; i >= from && t.atoms[i].class != group; i-- {
			}
			if !t.atoms[i].used && !t.isUnit(i+1) {
				t.take(&rel, i, true)
			}
			break
		}
		if !t.bracketFollows(end) {
			t.named(&rel, t.behindColon(at+1, to), t.stretch(at+1, to))
		}
	}
	if rel.Guessed && supposes[a.tok.Phrase] && t.self >= 0 {
		rel.Items = slices.DeleteFunc(rel.Items, func(i int) bool { return i > t.self }) // "if we have a barrel": a later step has it, too
		if len(rel.Items) > 0 && len(t.doubts) == 0 {
			t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[rel.Off:rel.End], Why: "a case that may come or not was taken for a step to wait for", Off: rel.Off})
		}
	}
	if !rel.full() {
		if k == Apart && (t.self >= 0 && t.ends(at+1, to) || t.self < 0 && len(t.subject) > 0) {
			t.rels = append(t.rels, Relation{Kind: None, Subjects: t.about(nil), Off: rel.Off, End: rel.End})
		}
		if strings.ContainsFunc(a.tok.Phrase, unicode.IsLetter) {
			t.open = at
		}
		if t.lost < 0 && k == Needs && a.tok.Side != lexicon.Behind && at+1 < to && t.begins(a.off) {
			t.lost = at
		}
		return
	}
	if k != Apart && t.denied(at, to) {
		rel.Kind = Apart
	}
	if t.open, t.last = -1, at; subject == nil {
		subject = t.lead(from, at)
	}
	t.state(rel, subject)
}

// supposes are words of a case that may come or not: "if the value is above 50".
var supposes = wordsOf("supposing")

// counts reports whether a case speaks of an amount: "if it is 50 or less", not "if 2 is done".
func (t *talk) counts(at, to int) bool {
	some, words := false, 0
	for i := at + 1; i < to; i++ {
		switch a := &t.atoms[i]; {
		case a.class == group:
			if len(a.items) > 0 && (a.sure || words == 0) && !t.isAmount(i+1) {
				return false
			}
			some = true
		case a.class == word && !a.common:
			words++
		}
	}
	return some
}

// maxNested bounds how far up the groups of an item are looked for.
const maxNested = 20

// within reports whether an item stands in a group: what a step names of itself is no relation.
func (n *Names) within(item, group int) bool {
	for d := 0; item >= 0 && d < maxNested; d++ {
		if item = n.items[item].Parent; item == group {
			return true
		}
	}
	return false
}

func (r *Relation) full() bool { return len(r.Items)+len(r.Unknown) > 0 || r.others || r.above }

// state adds a relation.
func (t *talk) state(rel Relation, subject []int) {
	if len(subject) > 0 {
		t.subject = subject
	}
	rel.Subjects = t.about(subject)
	if len(rel.Subjects) == 0 && t.self < 0 && len(t.pending) < maxPending {
		t.pending = append(t.pending, rel)
		return
	}
	for _, i := range t.n.steps {
		if (rel.others || rel.above) && !slices.Contains(rel.Subjects, i) && (rel.others || i < slices.Min(rel.Subjects)) && len(rel.Subjects) <= maxPending {
			rel.Items = append(rel.Items, i)
		}
	}
	// A step that names itself by its label waits for itself; other ways of naming it, or what holds it,
	// are no relation, nor are the last digits of its number.
	itself := rel.Kind <= Uses && rel.own && len(rel.Subjects) == 1 && len(subject) == 0 && !strings.Contains(t.n.items[rel.Subjects[0]].ID, ".")
	rel.Items = slices.DeleteFunc(slices.Clone(rel.Items), func(i int) bool {
		return !itself && slices.Contains(rel.Subjects, i) || slices.ContainsFunc(rel.Subjects, func(s int) bool { return t.n.within(s, i) || t.n.within(i, s) })
	})
	if len(rel.Subjects) == 0 || !rel.full() {
		return
	}
	t.rels = append(t.rels, rel)
}

// maxPending bounds the needs of a sentence whose subject comes behind them, and the steps that need all others.
const maxPending = 20

// lead returns what a sentence outside of the steps begins with as the subject of a phrase further on: "3 can only
// start, when 2 is done".
func (t *talk) lead(from, at int) []int {
	start := from
	for from < at && t.light(from) {
		from++
	}
	a := &t.atoms[from]
	if t.self < 0 && len(t.subject) == 0 && from < at && a.class == word && at-start <= maxNamed {
		if i, ok, weak := t.byTitle(start, at); ok && !weak {
			return []int{i}
		}
		return nil
	}
	if t.self >= 0 || len(t.subject) > 0 || from == at || a.class != group || a.used || !t.known(a) || t.isUnit(from+1) || a.spelled && !a.sure {
		return nil
	}
	a.used = true
	return a.items
}

// subjectBehind reports whether a group is what needs without a subject are said of: nothing but some words stands between
// it and the comma before it.
func (t *talk) subjectBehind(from, i int) bool {
	if a := &t.atoms[i]; len(t.pending) == 0 || !t.known(a) || t.isUnit(i+1) || a.spelled && !a.sure {
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

// thereafter lets a sentence with "after that" need what the sentence before was about.
func (t *talk) thereafter(from, to int) {
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
	if then < 0 || at < 0 || t.atoms[at].used || !t.known(&t.atoms[at]) {
		return
	}
	t.atoms[at].used = true
	t.state(Relation{Kind: Needs, Items: t.prior, Off: t.atoms[then].off, End: t.atoms[then].end}, t.atoms[at].items)
}

// take adds the references of the group at a place to a relation.
func (t *talk) take(rel *Relation, i int, amounts bool) {
	a := &t.atoms[i]
	if a.class != group || a.used || !amounts && !a.sure && t.isAmount(i+1) {
		return
	}
	if !a.sure && !a.place && len(a.items) == 0 && !t.plausible(a) || t.n.made && a.bare && !a.ordinal {
		return
	}
	a.used = true
	rel.place = rel.place || a.place
	rel.own = rel.own || !a.place && (!a.spelled || a.sure)
	if len(a.items) == 0 && a.place {
		rel.others, rel.above = rel.others || a.is(lexicon.Others), rel.above || !a.is(lexicon.Others)
	}
	rel.Items = append(rel.Items, a.items...)
	rel.Unknown = append(rel.Unknown, a.unknown...)
	rel.Off, rel.End = min(rel.Off, a.off), max(rel.End, a.end)
}

// maxBeyond is how far behind the last step a number in words can stand that names a step that is missing.
const maxBeyond = 3

// plausible reports whether a bare number that no item has can be meant as the id of one.
func (t *talk) plausible(a *atom) bool {
	if a.spelled && a.value > t.n.highest+maxBeyond {
		return false // "before ten"
	}
	return t.n.numbers && a.value > 0 && a.value <= 2*t.n.highest+99
}

// isAmount reports whether the word at a place makes an amount of the number before it.
func (t *talk) isAmount(i int) bool {
	if i >= len(t.atoms) {
		return false
	}
	a := &t.atoms[i]
	return t.isUnit(i) || a.class == word && !a.common && isWordLetter(firstRune(t.text[a.off:]))
}

// isUnit reports whether a unit stands at a place.
func (t *talk) isUnit(i int) bool {
	return i < len(t.atoms) && t.atoms[i].class == phrase && t.atoms[i].is(lexicon.Units) && !t.atoms[i].is(lexicon.Done)
}

// ahead takes the references behind a phrase that stands ahead of them.
func (t *talk) ahead(rel *Relation, at, to int) {
	a := &t.atoms[at]
	words, pause := 0, false
	for i := at + 1; i < to; i++ {
		b := &t.atoms[i]
		switch {
		case b.is(lexicon.None) && b.class == phrase && words == 0 && !rel.full():
			return // "unblocks: nothing, it is the last one"
		case b.class == group:
			if pause && (rel.Kind == Before || rel.Kind == Beside || rel.Kind == Apart) || t.isSubject(i, to) {
				return
			}
			if !b.sure && words > 0 && len(b.items) == 0 && !b.place {
				return // "when the sugar reaches 23"
			}
			if b.sure || words == 0 || t.sourced(i) || a.tok.Opens && words < 9 && !pause {
				t.take(rel, i, a.tok.Opens)
			}
			if rel.full() {
				words++
			} else if b.place && b.is(lexicon.Both) && !b.used && words == 0 && rel.Kind <= Uses && i+1 < to && !t.isUnit(i+1) && t.unknownNoun(i+1) {
				t.take(rel, i, true)
				t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[b.off:t.atoms[i+1].end], Why: "taken for the two steps before", Off: b.off})
				return
			} else if b.bare && !b.spelled && !b.used && words == 0 && rel.Kind == Needs && t.known(b) && !t.isUnit(i+1) && !t.n.made {
				t.doubt(b) // "after 3 blinks"
			}
		case b.class == phrase && b.kinds&lexicon.Relations != 0:
			return // "after using 2", "→ uses #2": the second phrase says it
		case b.class == phrase && b.is(lexicon.Not) && rel.full() && rel.Kind <= Uses:
			for k := i + 1; k < min(to, i+4); k++ {
				if t.atoms[k].class == group {
					t.take(&Relation{Kind: Apart}, k, false) // "depends on 1, not on 2"
					break
				}
			}
			return
		case b.class == phrase && b.is(lexicon.Except) && rel.full():
			if i+1 < to && t.atoms[i+1].class == group && rel.Kind <= Uses {
				t.take(&Relation{Kind: Apart}, i+1, false) // "needs 1 but not 2"
			}
			return
		case b.class == comma:
			pause = words > 0
		case b.class == word && !b.common, b.class == quantity:
			words++
		}
	}
}

// unknownNoun reports whether the word at a place is one that no step has.
func (t *talk) unknownNoun(i int) bool {
	a := &t.atoms[i]
	stem := t.n.stem(t.text[a.off:a.end])
	return a.class == word && stem != "" && len(t.n.stems[stem]) == 0 && t.self >= 0
}

// sourced reports whether a preposition stands before the group at a place.
func (t *talk) sourced(i int) bool {
	for n := 0; n < reach && i > 0 && t.atoms[i-1].class == word && t.atoms[i-1].common; n++ {
		i--
	}
	return i > 0 && t.atoms[i-1].class == phrase && t.atoms[i-1].is(lexicon.Sources)
}

// isSubject reports whether the group at a place is what the next phrase is said of: "…, both need 1".
func (t *talk) isSubject(i, to int) bool {
	k := i - 1
	for t.self < 0 && k > 0 && k > i-3 && t.atoms[k].class == word {
		k-- // "…, whereas 5 waits for 4"
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

// subjectOf returns what stands before a phrase as its subject, when nothing else does: "Step 4 waits for 2".
func (t *talk) subjectOf(from, at int) []int {
	i := at - 1
	for i >= from && t.light(i) {
		i--
	}
	for i > from && t.self < 0 && (t.light(i) || t.atoms[i].class == word) && at-i < maxVerbs {
		i-- // "3 can only begin once 2 is done"
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
	if a.place && t.self >= 0 {
		items := []int{t.self}
		if n := len(t.rels); n > 0 && a.is(lexicon.Both) {
			items = append(items, t.rels[n-1].Items...)
		}
		return items
	}
	return a.items
}

// maxVerbs bounds the words between a subject and what is said of it in a sentence that is about several
// steps.
const maxVerbs = 6

// light reports whether an atom may stand between a subject and what is said of it.
func (t *talk) light(i int) bool {
	a := &t.atoms[i]
	switch a.class {
	case word:
		return a.common
	case phrase:
		return a.kinds&lexicon.Relations == 0
	}
	return false
}

// near reports whether a group stands right before a place, but for light words.
func (t *talk) near(i, from int) bool {
	for i >= from && t.light(i) {
		i--
	}
	return i >= from && t.atoms[i].class == group && !t.atoms[i].used
}

// maxGap is how many letters of a script without spaces, or light words, stand between a number and what is behind it.
const maxGap = 5

// behind takes the references before a phrase that stands behind them, and returns the subject that stands before those.
func (t *talk) behind(rel *Relation, from, at int) (subject []int) {
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
			if !rel.full() {
				return nil
			}
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

// start returns where the words begin that can name what stands before a phrase.
func (t *talk) start(from, at int) int {
	for i := at - 1; i >= from; i-- {
		if a := &t.atoms[i]; a.class == comma || a.class == colon || a.kinds&lexicon.Relations != 0 {
			return i + 1
		}
	}
	return from
}

// stretch returns where the words end that can name what a phrase is about.
func (t *talk) stretch(from, to int) int {
	for i := t.behindColon(from, to); i < to; i++ {
		if a := &t.atoms[i]; a.class == comma || a.class == colon || a.kinds&lexicon.Relations != 0 {
			return i
		}
	}
	return to
}

func (t *talk) behindColon(from, to int) int {
	if from < to && t.atoms[from].class == colon {
		return from + 1
	}
	return from
}

// find returns the atom at or behind an offset.
func (t *talk) find(from, to, off int) int {
	for i := from; i < to; i++ {
		if t.atoms[i].off >= off {
			return i
		}
	}
	return to
}

// ends reports whether nothing of weight comes in a clause any more.
func (t *talk) ends(i, to int) bool {
	for ; i < to && t.atoms[i].class != comma; i++ {
		if a := &t.atoms[i]; a.class == word && !a.common || a.class == group || a.class == quantity {
			return false
		}
	}
	return true
}

// bracketFollows reports whether a reference in brackets follows a clause: "after the freeze (1)".
func (t *talk) bracketFollows(to int) bool {
	return to+2 < len(t.atoms) && t.atoms[to].class == opened && t.atoms[to+1].class == group && t.atoms[to+2].class == closed
}

// denied reports whether a clause ends with a "not": "braucht 2 nicht".
func (t *talk) denied(at, to int) bool {
	last := &t.atoms[to-1]
	return to-1 > at && last.is(lexicon.Not) && last.class == phrase && t.atoms[to-2].class == group
}

// rest takes the references that no phrase explains.
func (t *talk) rest(from, to int) {
	alone, content := t.loneGroup(from, to)
	for i := from; i < to; i++ {
		a := &t.atoms[i]
		if a.class != group || a.used {
			continue
		}
		rel := Relation{Kind: Uses, Off: a.off, End: a.end}
		switch {
		case t.self < 0 && t.subjectBehind(from, i):
			a.used = true
			t.subject = a.items
			for _, rel := range t.pending {
				t.state(rel, nil)
			}
			t.pending = nil
			continue
		case t.self < 0:
			if len(t.subject) == 0 && (a.sure || !content) {
				t.subject = a.items
			} else if a.sure {
				t.doubt(a)
			}
			continue
		case alone == i && (t.bracketed(from, to) || t.open >= 0 || t.stated(from, to)):
			if t.open >= 0 {
				rel.Kind = t.kindOf(0, t.open, to)
				t.open = -1
			} else if t.denies(from, i, to) {
				rel.Kind = Apart // "(at once, without step 1)"
			}
		case alone == i && t.last >= 0 && t.last < from && !t.inside(from):
			rel.Kind = t.kindOf(0, t.last, to)
		case a.spelled && !a.sure:
			continue
		case a.sure && (a.part || t.denies(from, i, to)):
			if len(a.items) == 0 {
				continue
			}
			t.doubt(a)
			continue
		case a.sure && len(a.items) == 0 && t.hashed(a): // "fix issue #9"
			t.doubt(a)
			continue
		case a.sure:
		case i+1 < to && t.atoms[i+1].is(lexicon.First) && t.ends(i+1, to):
			rel.Kind = Needs
		case t.sourced(i) && !t.isAmount(i+1) && !a.place && a.count > 0 && t.known(a):
		case t.isObject(i):
			t.take(&rel, i, true)
			t.state(rel, nil)
			t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[a.off:a.end], Why: "taken for what the step works with", Off: a.off})
			continue
		case t.remarks(from, i, to):
			t.take(&rel, i, true)
			t.state(rel, nil)
			t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[a.off:a.end], Why: "taken for what the step waits for", Off: a.off})
			continue
		case t.tails(from, i, to) && t.known(a) && !t.n.made:
			t.doubt(a)
			continue
		default:
			continue
		}
		t.take(&rel, i, false)
		t.state(rel, nil)
	}
}

// isObject reports whether "both" at a place can only mean the two steps before: "Enter both into the form". Nothing else
// that comes in twos stands before it or behind it.
func (t *talk) isObject(at int) bool {
	a := &t.atoms[at]
	if !a.place || !a.is(lexicon.Both) || len(a.items) < 2 || len(t.rels) > 0 || at > maxObject || t.isAmount(at+1) {
		return false
	}
	for i := range at {
		if b := &t.atoms[i]; b.class != word && b.class != phrase || b.kinds&lexicon.KindsOf(lexicon.And, lexicon.Or) != 0 {
			return false
		}
	}
	return at+1 == len(t.atoms) || !t.atoms[at+1].is(lexicon.Steps)
}

// maxObject bounds the words before "both" in a text where it means the two steps before.
const maxObject = 6

// stated reports whether a clause says that something is done: "2 and 3 must be finished".
func (t *talk) stated(from, to int) bool {
	for i := from; i < to; i++ {
		if a := &t.atoms[i]; a.class == phrase && (a.is(lexicon.Done) || a.is(lexicon.First)) && a.class != group {
			return true
		}
	}
	return false
}

// denies reports whether a "not" stands in the same part of a clause as a reference that no phrase explains.
func (t *talk) denies(from, at, to int) bool {
	nots := 0
	from, to = max(from, at-reach), min(to, at+reach)
	for i := at - 1; i >= from && t.atoms[i].class != comma; i-- {
		if t.atoms[i].class == phrase && t.atoms[i].is(lexicon.Not) {
			nots++
		}
	}
	for i := at + 1; i < to && t.atoms[i].class != comma; i++ {
		if t.atoms[i].class == phrase && t.atoms[i].is(lexicon.Not) {
			nots++
		}
	}
	return nots == 1
}

// bracketed reports whether brackets stand around a clause.
func (t *talk) bracketed(from, to int) bool {
	return from > 0 && t.atoms[from-1].class == opened && to < len(t.atoms) && t.atoms[to].class == closed
}

// doubt notes a reference that was not understood.
func (t *talk) doubt(a *atom) {
	a.used = true
	d := Doubt{Item: -1, Text: t.text[a.off:a.end], Why: "names a step, but no relation to it was read", Off: a.off}
	if len(a.items) > 0 {
		d.Item = a.items[0]
	}
	t.doubts = append(t.doubts, d)
}

// maxNamed bounds the words by which an item is found.
const maxNamed = 12

// named finds the items whose titles have the words between two atoms.
func (t *talk) named(rel *Relation, from, to int) {
	if rel.Kind > Before || from >= to || t.atoms[from].is(lexicon.None) || !strings.ContainsFunc(t.text[rel.Off:rel.End], unicode.IsLetter) {
		return
	}
	if next, ok := t.titled(rel, from); ok {
		if next >= to || !t.atoms[next-1].is(lexicon.And) {
			return
		}
		from = next // "after Tiling and the plumbing"
	} else if !t.guessable(rel, from, to) {
		return
	}
	for from < to {
		next := from
		for next < to && !t.atoms[next].is(lexicon.And) && t.atoms[next].class != slash {
			next++
		}
		if all := t.several(from, min(next, from+maxNamed)); len(all) > 0 {
			rel.Items, rel.Guessed = append(rel.Items, all...), true
			rel.Off, rel.End = min(rel.Off, t.atoms[from].off), max(rel.End, t.atoms[next-1].end)
			from = next + 1
			continue
		}
		if i, ok, weak := t.byTitle(from, min(next, from+maxNamed)); ok && !(t.n.items[i].Group && i > t.self && t.self >= 0) {
			if rel.Kind == Before && t.self >= 0 && (i < t.self || t.timed(rel.Off)) {
				from = next + 1
				continue // "two weeks before the race"
			}
			if weak {
				words := t.text[t.atoms[from].off:t.atoms[next-1].end]
				t.doubts = append(t.doubts, Doubt{Item: t.self, Text: words, Why: "taken for " + t.n.items[i].ID + " by one of the words", Off: rel.Off})
			}
			rel.Items = append(rel.Items, i)
			rel.Guessed = true
			rel.End = max(rel.End, t.atoms[next-1].end)
			rel.Off = min(rel.Off, t.atoms[from].off)
		} else if i >= 0 && rel.Kind == Needs && t.begins(rel.Off) {
			if t.self >= 0 {
				i = t.self
			}
			t.doubts = append(t.doubts, Doubt{Item: i, Text: t.text[t.atoms[from].off:t.atoms[next-1].end], Why: "the words may name several steps", Off: rel.Off})
		}
		from = next + 1
	}
}

// several returns the steps of which there are as many as the words between two atoms say: "both checks", "all three
// snapshots".
func (t *talk) several(from, to int) []int {
	count, all := 0, false
	for i := from; i < to && t.self >= 0; i++ {
		a := &t.atoms[i]
		switch {
		case a.class == group && a.is(lexicon.Both):
			count = 2
		case a.class == phrase && a.is(lexicon.All):
			all = true
		case a.is(lexicon.All):
			all = true
		case a.class == group && a.bare && a.count == 1 && a.value > 1:
			count = a.value
		case a.class == word && a.common:
		case a.class == word && (all || count > 0):
			var found []int
			for _, x := range t.n.stems[t.n.stem(t.text[a.off:a.end])] {
				if x < t.self && !t.n.items[x].Group {
					found = append(found, x)
				}
			}
			if len(found) == count || count == 0 && len(found) > 1 && len(found) < maxStem {
				return found
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}

// timed reports whether a time stands before a place: "two weeks before".
func (t *talk) timed(off int) bool {
	i := sort.Search(len(t.atoms), func(i int) bool { return t.atoms[i].off >= off })
	return i > 0 && (t.isUnit(i-1) || t.atoms[i-1].class == quantity)
}

// demands reads a remark that says of a step, by its words, what it must be: "(the lease must be signed)".
func (t *talk) demands(from, to int) {
	if from == 0 || t.self <= 0 || to-from > maxDemand || t.atoms[from-1].class == comma {
		return
	}
	must := -1
	for i := from; i < to; i++ {
		switch a := &t.atoms[i]; {
		case a.class == group && !a.place && (!a.spelled || a.sure):
			return
		case a.class != phrase || a.used:
		case a.kinds&lexicon.Relations != 0 || a.is(lexicon.Not):
			return
		case a.is(lexicon.Must) && must < 0:
			must = i
		}
	}
	if must <= from || to-must > maxDemanded {
		return
	}
	rel := Relation{Kind: Needs, Off: t.atoms[from].off, End: t.atoms[to-1].end}
	if t.named(&rel, from, to); rel.full() {
		t.state(rel, nil)
	}
}

// maxDemand bounds the words of a remark that says what a step must be, maxDemanded those behind the "must".
const maxDemand, maxDemanded = 14, 6

// guessable reports whether words behind a phrase can name an item. A verb that begins a text is what the item does:
// "Combine the figures" names none, "after the survey, combine" does.
func (t *talk) guessable(rel *Relation, from, to int) bool {
	at := max(0, from-1)
	for at > 0 && t.atoms[at].kinds&lexicon.Relations == 0 {
		at--
	}
	a := &t.atoms[at]
	if a.tok.Side != lexicon.Ahead || a.tok.Opens {
		return true
	}
	if rel.Kind == Uses && !strings.Contains(a.tok.Phrase, " ") {
		return at > 0 && t.atoms[at-1].class == opened // "(uses the map)"
	}
	return at > 0 || rel.Kind == Needs
}

// maxTitle bounds the atoms of a title that is looked up as a whole.
const maxTitle = 14

func (t *talk) hasTitles(rel *Relation, from int) bool {
	_, ok := t.titled(rel, from)
	return ok
}

// titled takes a list of whole titles, as in "depends on: Book the hall, Print the posters", and returns where it ends.
func (t *talk) titled(rel *Relation, from int) (next int, some bool) {
	for from < len(t.atoms) {
		for from < len(t.atoms) && t.atoms[from].class == colon {
			from++
		}
		found, next := t.wholeTitle(from)
		for some && found < 0 && from < len(t.atoms) && t.atoms[from].class == word && t.atoms[from].common {
			from++
			found, next = t.wholeTitle(from)
		}
		if found < 0 {
			return from, some
		}
		rel.Items = append(rel.Items, found)
		rel.Off, rel.End = min(rel.Off, t.atoms[from].off), max(rel.End, t.atoms[next-1].end)
		some, rel.titled = true, true
		from = next
		if from < len(t.atoms) && (t.atoms[from].class == comma || t.atoms[from].class == slash || t.atoms[from].is(lexicon.And)) {
			from++
			continue
		}
		return from, some
	}
	return from, some
}

// wholeTitle returns the item whose whole title begins at a place, the longest one, and where it ends.
func (t *talk) wholeTitle(from int) (found, next int) {
	found = -1
	for i := from; i < min(len(t.atoms), from+maxTitle); i++ {
		if c := t.atoms[i].class; c == stop || c == opened || c == closed {
			break
		} else if c == comma || c == slash {
			continue
		}
		if it, ok := t.n.titles[titleKey(t.text[t.atoms[from].off:t.atoms[i].end])]; ok && it >= 0 && it != t.self {
			next, found = i+1, it
		}
	}
	return found, next
}

// begins reports whether a clause begins at a place.
func (t *talk) begins(off int) bool {
	i := sort.Search(len(t.atoms), func(i int) bool { return t.atoms[i].off >= off })
	if i == 0 {
		return t.self < 0
	}
	c := t.atoms[i-1].class
	return c == opened || c == comma || c == dash || c == colon || c == stop
}

// byTitle returns the one item that the words name: it has a word that no other item has, or more of the words than any
// other. When several have, it returns one of them, and false. Weak is set when most of the words are not those of the
// item. Steps before this one are also known by the words of what is said of them, when no title has any.
func (t *talk) byTitle(from, to int) (item int, ok, weak bool) {
	if item, ok, weak = t.byWords(from, to, t.n.stems, false); ok || t.self < 0 {
		return item, ok, weak
	}
	if earlier, ok, weak := t.byWords(from, to, t.n.stems, true); ok || item >= 0 {
		return max(item, earlier), ok, weak
	}
	if item, ok, weak = t.byWords(from, to, t.n.tails, true); ok {
		return item, ok, weak
	}
	item, ok, _ = t.byWords(from, to, t.n.remarks, true)
	return item, ok, true
}

// byWords returns the item, or the earlier one, that has most of the words between two atoms.
func (t *talk) byWords(from, to int, stems map[string][]int, earlier bool) (item int, ok, weak bool) {
	words, best, second, unique := 0, -1, 0, map[int]bool{}
	count := map[int]int{}
	for i := from; i < to; i++ {
		a := &t.atoms[i]
		if a.class != word && a.class != phrase {
			continue
		}
		stem := t.n.stem(t.text[a.off:a.end])
		if _, tails := stems[isTails]; tails {
			stem = t.n.tail(t.text[a.off:a.end])
		}
		if stem == "" {
			continue
		}
		have := stems[stem]
		if whole := stems[t.n.whole(t.text[a.off:a.end])]; len(have) > 1 && len(whole) > 0 {
			have = whole // the auction, not the auctioneer
		}
		items := slices.DeleteFunc(without(have, []int{t.self}), func(i int) bool {
			return t.self >= 0 && (t.n.within(t.self, i) || earlier && i > t.self)
		})
		words += b2i(a.class == word || len(items) > 0)
		if len(items) > maxStem-1 {
			continue
		}
		for _, x := range items {
			count[x]++
			unique[x] = unique[x] || len(items) == 1
		}
	}
	for x, n := range count {
		switch {
		case best < 0 || n > count[best] || n == count[best] && (unique[x] && !unique[best] || unique[x] == unique[best] && x < best):
			best = x
		}
	}
	if best < 0 {
		return -1, false, false
	}
	for x, n := range count {
		if x != best && (unique[x] || !unique[best]) {
			second = max(second, n)
		}
	}
	return best, count[best] > second && (unique[best] || count[best] > 1), count[best]*2 < words
}
