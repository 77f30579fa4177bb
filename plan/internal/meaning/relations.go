package meaning

import (
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// Kind is the kind of a relation between steps.
type Kind uint8

// The kinds of relations.
const (
	// Needs and Uses mean that the items come before the subjects.
	Needs Kind = iota
	Uses
	// Before means that the subjects come before the items.
	Before
	// Beside means that the subjects run in parallel to the items and have the same needs.
	Beside
	// Apart means that the subjects do not need the items.
	Apart
	// None means that the subjects need nothing.
	None
	// Ditto means that the relations of the items apply to the subjects, too.
	Ditto
	// Closing and Opening mean that the subject comes after, or before, all others.
	Closing
	Opening
)

// Relation is one statement of a text about steps. Subjects and Items are indexes of items; Unknown are ids
// that no item has. Guessed is set if the items were found by words of their titles.
type Relation struct {
	Kind            Kind
	Subjects, Items []int
	Unknown         []string
	Guessed         bool
	Off, End        int
	// titled is set if the items were found by whole titles, positional if they were found by a word such as
	// "both".
	titled, positional bool
	// own is set if the reference is a label or number, with which a step may name itself.
	own bool
}

// Doubt is a part of a text that names a step and was not understood. Item is the index of the step, or -1.
type Doubt struct {
	Item      int
	Text, Why string
	Off       int
	// Stranger is set if the text may name something other than a step: "after lunch".
	Stranger bool
}

// message describes the doubt, as seen from the step whose text it is about. Why says how the text was read
// if it begins with "taken", and otherwise why it was not understood.
func (d *Doubt) message() string {
	if strings.HasPrefix(d.Why, "taken ") {
		return "it names " + squeeze(d.Text) + ", which was " + d.Why
	}
	return "it names " + squeeze(d.Text) + ", but the relation was not understood: " + d.Why
}

// relationReader reads the relations in one text.
type relationReader struct {
	n     *Names
	self  int
	text  string
	atoms []atom
	// subject are the subjects of the sentence, if it is not about self. open is the atom of the relation
	// that has no items yet, or -1.
	subject []int
	open    int
	// prior are the subjects of the sentence before. pending are needs whose subject follows: "once 1 is
	// done, 2 …".
	prior   []int
	pending []Relation
	// last is the atom of the last relation in the sentence, or -1. It applies to references that follow:
	// "needs 1; 2; 3".
	last int
	// lost is the atom of the first phrase that introduces a need but no known item, or -1.
	lost   int
	rels   []Relation
	doubts []Doubt
}

// Relations returns the relations that a text states about the item self, or about any items if self is -1.
// off is added to all offsets.
func (n *Names) Relations(self int, text string, off int) (rels []Relation, doubts []Doubt) {
	t := relationReader{n: n, self: self, text: text, open: -1, last: -1, lost: -1, prior: n.prior}
	t.atoms = n.groups(self, text, n.atoms(text))
	if len(t.atoms) > 0 && t.atoms[0].class == group && len(t.atoms[0].items) == 1 && t.atoms[0].items[0] == self && (len(t.atoms) == 1 || t.atoms[1].class != phrase || t.atoms[1].kinds&lexicon.Relations == 0) {
		t.atoms[0].used = true // its own name, as in "e2e: browser tests"
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
		t.doubts = append(t.doubts, Doubt{Item: self, Text: text[at:end], Why: "no step has these words in its title", Off: at, Stranger: true})
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

// parts reports whether an atom separates clauses.
func (t *relationReader) parts(i int) bool {
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
func (t *relationReader) clause(from, to int) {
	none, said := false, len(t.rels)
	var free []int // steps that need nothing, outside of the steps
	if t.order(from, to) {
		return
	}
	t.ditto(from, to)
	for i := from; i < to; i++ {
		if a := &t.atoms[i]; t.relates(from, i) {
			t.relation(from, i, to)
		} else if a.class == phrase && a.is(lexicon.None) && t.says(from, i, to) {
			none = true
			if t.self < 0 {
				free = t.freed(from, i)
			}
		}
	}
	if len(t.rels) == said {
		t.demands(from, to)
		t.thereafter(from, to)
	}
	t.rest(from, to)
	if free = t.about(free); none && (len(free) > 0 || t.self >= 0) {
		t.rels = append(t.rels, Relation{Kind: None, Subjects: free, Off: t.atoms[from].off, End: t.atoms[to-1].end})
	}
}

// relates reports whether an atom states a relation: it is a phrase of relation, or "until" behind a "not".
func (t *relationReader) relates(from, at int) bool {
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

// negated returns the number of atoms between an atom and the "not" before it, or -1 if there is none within
// the given number of atoms.
func (t *relationReader) negated(from, at, within int) int {
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

// about returns the subjects of a relation: those given, those of the sentence, or self.
func (t *relationReader) about(subject []int) []int {
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

// says reports whether a phrase of the kind None states that nothing is needed: it is long enough, or it is
// the only content of its part of the clause.
func (t *relationReader) says(from, at, to int) bool {
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
		if a := &t.atoms[i]; a.class == group && t.self >= 0 || a.class == word && !a.common {
			return false
		}
	}
	return true
}

// kindOf returns the kind of relation that a phrase states, with regard to a "not" before it.
func (t *relationReader) kindOf(from, at, to int) Kind {
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
	switch words := t.negated(from, at, 5); {
	case words >= 0 && k == Before:
		return Needs
	case words >= 0 && words <= 1 && k <= Uses && !a.is(lexicon.Until):
		return Apart
	}
	return k
}

// reach bounds the atoms before and behind a phrase that are considered for it. It keeps the time linear.
const reach = 120

// relation reads the references of a phrase of relation and adds the relation.
func (t *relationReader) relation(from, at, to int) {
	from, to = max(from, at-reach), min(to, at+reach)
	a := &t.atoms[at]
	k := t.kindOf(from, at, to)
	rel := Relation{Kind: k, Off: a.off, End: a.end}
	var subject []int
	switch a.tok.Side {
	case lexicon.Around:
		subject = t.enclosed(&rel, from, at, to)
	case lexicon.Behind:
		subject = t.behind(&rel, from, at)
		if !rel.full() {
			t.named(&rel, t.start(from, at), at)
		}
	default:
		subject = t.following(&rel, from, at, to)
	}
	if rel.Guessed && supposes[a.tok.Phrase] && t.self >= 0 {
		// "If we have a barrel" may be true of later steps, too.
		rel.Items = slices.DeleteFunc(rel.Items, func(i int) bool { return i > t.self })
		if len(rel.Items) > 0 && len(t.doubts) == 0 {
			t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[rel.Off:rel.End], Why: "taken for a step to wait for, although the case may not happen", Off: rel.Off})
		}
	}
	if !rel.full() {
		if strings.ContainsFunc(a.tok.Phrase, unicode.IsLetter) {
			t.open = at
		}
		if t.lost < 0 && k == Needs && a.tok.Side != lexicon.Behind && at+1 < to && t.begins(a.off) {
			t.lost = at
		}
		return
	}
	if t.open, t.last = -1, at; subject == nil {
		subject = t.lead(from, at)
	}
	t.state(rel, subject)
}

// enclosed reads the references between the two parts of a phrase, or else those behind it. It returns the
// subject.
func (t *relationReader) enclosed(rel *Relation, from, at, to int) (subject []int) {
	a := &t.atoms[at]
	shut := t.find(at, to, a.tok.CloseOff)
	for i := at + 1; i < shut; i++ {
		t.take(rel, i, true)
	}
	rel.End = max(rel.End, a.tok.CloseEnd)
	if i := shut + 1; !rel.full() && t.ends(at+1, shut) {
		for ; i < to && t.light(i); i++ {
		}
		if i < to {
			t.take(rel, i, false) // for example "когда готовы 2 и 3"
		}
		if !rel.full() && i < to {
			t.named(rel, i, t.stretch(i, to)) // for example "cuando estén listos los planos y la obra"
		}
	}
	if !rel.full() {
		t.named(rel, at+1, shut)
	}
	if i := shut + 1; rel.full() && i+1 < to && t.atoms[i].is(lexicon.And) {
		if t.take(rel, i+1, true); t.atoms[i+1].class != group {
			t.named(rel, i+1, t.stretch(i+1, to)) // "after the sawing is done and the glue is dry"
		}
	}
	if rel.full() {
		subject = t.subjectOf(from, at)
	}
	return subject
}

// following reads the references behind a phrase. If there is nothing behind it, the phrase relates the
// references before it to this step. It returns the subject.
func (t *relationReader) following(rel *Relation, from, at, to int) (subject []int) {
	if i := t.behindColon(at+1, to); i < to && rel.Kind <= Before && t.titled(rel, i) {
		for ; i < to && t.atoms[i].off < rel.End; i++ {
			t.atoms[i].used = true
		}
		if t.self < 0 {
			subject = t.subjectOf(from, at)
		}
		return subject
	}
	t.ahead(rel, at, to)
	if rel.full() {
		return t.subjectOf(from, at)
	}
	i := at - 1
	if t.atoms[at].is(lexicon.Then) || !t.ends(at+1, to) || i < from || !t.near(i, from) {
		t.named(rel, t.behindColon(at+1, to), t.stretch(at+1, to))
		return nil
	}
	// For example "2 and 3 have to be done before".
	switch {
	case rel.Kind == Before:
		rel.Kind = Needs
	case rel.Kind <= Uses && at+1 < to && (t.atoms[at+1].class == word || t.atoms[at+1].is(lexicon.Then)):
		rel.Kind = Before // for example "2 and 4 wait for this"
	}
	for ; i >= from && t.atoms[i].class != group; i-- {
	}
	if !t.atoms[i].used && !t.isUnit(i+1) {
		t.take(rel, i, true)
	}
	return nil
}

// supposes are words for a case that may not happen: "if the value is above 50".
var supposes = wordsOf("supposing")

// maxNested bounds the levels of groups above an item that are considered.
const maxNested = 20

// within reports whether an item is inside a group. A reference of an item to its own group is no relation.
func (n *Names) within(item, group int) bool {
	for d := 0; item >= 0 && d < maxNested; d++ {
		if item = n.items[item].Parent; item == group {
			return true
		}
	}
	return false
}

func (r *Relation) full() bool { return len(r.Items)+len(r.Unknown) > 0 }

// state adds a relation, or puts it into pending if it has no subject yet.
func (t *relationReader) state(rel Relation, subject []int) {
	if len(subject) > 0 {
		t.subject = subject
	}
	rel.Subjects = t.about(subject)
	if len(rel.Subjects) == 0 && t.self < 0 && len(t.pending) < maxPending {
		t.pending = append(t.pending, rel)
		return
	}
	// A step that names itself by its label waits for itself. Other references to itself or to its group are
	// no relations, nor are the last digits of its number.
	itself := rel.Kind == Needs && rel.own && len(rel.Subjects) == 1 && len(subject) == 0 && !strings.Contains(t.n.items[rel.Subjects[0]].ID, ".")
	rel.Items = slices.DeleteFunc(slices.Clone(rel.Items), func(i int) bool {
		return !itself && slices.Contains(rel.Subjects, i) || slices.ContainsFunc(rel.Subjects, func(s int) bool { return t.n.within(s, i) || t.n.within(i, s) })
	})
	if len(rel.Subjects) == 0 || !rel.full() {
		return
	}
	t.rels = append(t.rels, rel)
	if t.self >= 0 && t.hedged(rel.Off, rel.End) {
		t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[rel.Off:rel.End], Why: "taken for certain, although the text expresses doubt", Off: rel.Off})
	}
}

// hedges are words that express uncertainty.
var hedges = wordsOf("hedging")

// maxHedge bounds the text around a relation in which a hedge is looked for, in bytes.
const maxHedge = 60

// hedged reports whether the part of a sentence around a relation expresses uncertainty: "(maybe after 1?)".
func (t *relationReader) hedged(off, end int) bool {
	from, to := max(0, off-maxHedge), min(len(t.text), end+maxHedge)
	if i := strings.LastIndexAny(t.text[from:off], "([;.!?\n（。；"); i >= 0 {
		from += i + 1
	}
	if i := strings.IndexAny(t.text[end:to], ")];.!\n）。；"); i >= 0 {
		to = end + i
	}
	part := strings.ToLower(t.text[from:to])
	for w := range hedges {
		if w[0] < 0xE3 && wordIndex(part, w) >= 0 || w[0] >= 0xE3 && strings.Contains(part, w) {
			return true
		}
	}
	return strings.HasPrefix(strings.TrimLeft(t.text[end:to], " "), "?") || strings.HasPrefix(t.text[end:to], "？")
}

// maxPending bounds the needs of a sentence whose subject follows.
const maxPending = 20

// rest reads the references that belong to no phrase.
func (t *relationReader) rest(from, to int) {
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
			}
		case alone == i && t.last >= 0 && t.last < from && t.atoms[from-1].class == stop:
			rel.Kind = t.kindOf(0, t.last, to) // for example "needs 1; 2; 3"
		case a.spelled && !a.sure:
			continue
		case a.sure && (a.part || t.denies(from, i, to)):
			if len(a.items) == 0 {
				continue
			}
			t.doubt(a)
			continue
		case a.sure && len(a.items) == 0 && t.text[a.off] == '#': // for example "fix issue #9"
			t.doubt(a)
			continue
		case a.sure:
		case t.sourced(i) && !t.isAmount(i+1) && !a.positional && a.count > 0 && t.resolved(a):
		case t.sums(from, i, to):
		case t.inRemark(from, i, to):
			t.take(&rel, i, true)
			t.state(rel, nil)
			t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[a.off:a.end], Why: "taken for a step to wait for", Off: a.off})
			continue
		default:
			continue
		}
		t.take(&rel, i, false)
		t.state(rel, nil)
	}
}

// stated reports whether a clause has a word for done or first: "2 and 3 must be finished".
func (t *relationReader) stated(from, to int) bool {
	for i := from; i < to; i++ {
		if a := &t.atoms[i]; a.class == phrase && (a.is(lexicon.Done) || a.is(lexicon.First)) && a.class != group {
			return true
		}
	}
	return false
}

// denies reports whether the part of a clause around a reference contains exactly one "not".
func (t *relationReader) denies(from, at, to int) bool {
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

// bracketed reports whether a clause is in brackets.
func (t *relationReader) bracketed(from, to int) bool {
	return from > 0 && t.atoms[from-1].class == opened && to < len(t.atoms) && t.atoms[to].class == closed
}

// doubt adds a doubt about a reference.
func (t *relationReader) doubt(a *atom) {
	a.used = true
	d := Doubt{Item: -1, Text: t.text[a.off:a.end], Why: "no relation to it was found", Off: a.off}
	if len(a.items) > 0 {
		d.Item = a.items[0]
	}
	t.doubts = append(t.doubts, d)
}
