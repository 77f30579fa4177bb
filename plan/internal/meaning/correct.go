package meaning

import (
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxCorrection bounds the text that is read as a correction, in bytes.
const maxCorrection = 20_000

// readCorrected reads a plan with a correction below it: it reads the text above the correction and applies
// the sentences of the correction. It returns nil if the text has no correction.
func readCorrected(src *form.Source, read func(*form.Source) []*Reading) []*Reading {
	at := correctedFrom(src)
	if at < 0 || len(src.Text)-at > maxCorrection {
		return nil
	}
	head := blankOthers(src, []alternative{{}, {Off: at, End: len(src.Text)}}, 0)
	all := read(head)
	if len(all) == 0 || all[0].Weight < 30 || len(all[0].Items) < 2 {
		return nil
	}
	r := all[0]
	amend(src, r, src.Text[at:], at, true)
	r.End, r.Open = max(r.End, len(strings.TrimRight(src.Text, " \n\t"))), false
	r.Around = append(r.Around, Span{at, len(src.Text)})
	return all
}

// correctedFrom returns the offset at which a correction begins below a list, or -1. A correction that lists
// the steps once more is another plan and does not count.
func correctedFrom(src *form.Source) int {
	entries, at, again := 0, -1, 0
	for i := range src.Lines {
		l := &src.Lines[i]
		switch {
		case l.Text == "" || l.InCode || l.Fence:
		case at >= 0:
			if listed(l.Text) {
				again++
			}
		case entries >= 2 && form.ListsInline(l.Text):
			return -1
		case entryLine(l.Text) || listed(l.Text) || named(l.Text) && !corrects(l.Text):
			entries++
		case entries >= 2 && l.Indent == 0 && corrects(l.Text):
			at = l.Start
		}
	}
	if again > 1 {
		return -1
	}
	return at
}

// named reports whether a line begins with a one-word name and a colon: "build: depends on art".
func named(s string) bool {
	i := strings.IndexAny(s, ": \t")
	return i > 1 && s[i] == ':'
}

// listed reports whether a line begins with the label of a list entry rather than with a label that a
// sentence is about.
func listed(s string) bool {
	s = strings.TrimLeft(s, "*#-•–[( ")
	i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) && !unicode.IsLetter(r) })
	if i <= 0 || i > 8 {
		return false
	}
	if strings.HasPrefix(s[i:], " :") {
		s = s[:i] + s[i+1:]
	}
	digit := strings.IndexFunc(s[:i], unicode.IsDigit) >= 0
	return strings.ContainsAny(s[i:i+1], ".):") && (digit || i == 1) || digit && strings.Trim(s[:1], "0123456789") != ""
}

// corrects reports whether the beginning of a line takes back an earlier statement.
func corrects(line string) bool {
	line = line[:min(len(line), 120)]
	colon := strings.IndexAny(line, ":：")
	for _, t := range lexicon.Scan(line) {
		if t.Is(lexicon.Correct) && (t.Off < 24 || t.Off < colon) {
			return true
		}
	}
	return false
}

// amender changes a reading by the sentences around its list.
type amender struct {
	maxLinks int
	r        *Reading
	names    *Names
	lang     string
	itemOf   map[string]int
	// order are the levels of the listed order: each level follows the one before, and its items run in
	// parallel. It is nil if the text states the links.
	order      [][]int
	correcting bool
	moved      bool
	// listed is set if the text states the whole order. stated holds the pairs of consecutive steps whose
	// order a sentence states.
	listed bool
	stated map[[2]int]bool
	// moving is set while the sentence says that a step is moved.
	moving   bool
	replaced map[int]bool
	gone     map[int]bool
	subject  []int
	ordered  bool
	// work counts the links that were compared. limited is set once a note about the limit exists.
	work    int
	limited bool
	// old is the number of items before the amendment. applied is the number of sentences that changed
	// something.
	old, applied int
}

// amend changes a reading by the text around its list. If correcting is set, the text corrects the list: a
// stated need replaces earlier ones.
func amend(src *form.Source, r *Reading, text string, off int, correcting bool) {
	a := &amender{r: r, maxLinks: src.MaxLinks, lang: language(text), correcting: correcting, gone: map[int]bool{}, stated: map[[2]int]bool{}, old: len(r.Items)}
	a.index()
	if len(r.Links) == 0 && !r.Stated {
		for _, i := range a.steps() {
			a.order = append(a.order, []int{i})
		}
	}
	a.ordered = hasTone(a.lang, text, toneRest)
	if !correcting {
		text = a.arrows(text, off)
	}
	for _, s := range form.Sentences(text, off) {
		if !s.Question {
			a.sentence(s)
		}
	}
	if a.applied == 0 && correcting {
		all := a.idsOf(a.steps())
		a.doubt("the text corrects the plan, but the correction was not understood", all[:min(len(all), 100)], off)
	}
	if a.order != nil && a.moved {
		a.explicit()
	}
	if len(a.gone) > 0 {
		a.clear()
	}
}

// arrows blanks the lines of arrows between steps in a text. If the plan states no links, the arrows become
// its links. Otherwise they only summarize the plan, as a critical path does.
func (a *amender) arrows(text string, off int) string {
	stated := a.r.Stated || len(a.r.Links) > 0
	known := func(id string) bool { _, ok := a.itemOf[id]; return ok }
	var out strings.Builder
	at := 0
	for line := range strings.Lines(text) {
		if links, ok := arrowLine(strings.TrimSpace(line), off+at, known, a.maxLinks); ok {
			if !stated && !lexicon.Has(lexicon.Path, line) {
				a.r.Links = append(a.r.Links, links...)
			}
			line = strings.Repeat(" ", len(line)-1) + line[len(line)-1:]
		}
		out.WriteString(line)
		at += len(line)
	}
	if len(a.r.Links) > 0 && !stated {
		a.r.Stated, a.order = true, nil
	}
	return out.String()
}

// steps returns the items that are not groups.
func (a *amender) steps() (out []int) {
	for i := range a.r.Items {
		if !a.names.items[i].Group {
			out = append(out, i)
		}
	}
	return out
}

// index builds the names of the items.
func (a *amender) index() {
	a.itemOf = map[string]int{}
	groups := map[int]bool{}
	for _, it := range a.r.Items {
		groups[it.Parent] = true
	}
	var named []Named
	for i, it := range a.r.Items {
		a.itemOf[it.ID] = i
		named = append(named, Named{ID: it.ID, Titles: append([]string{it.Title}, it.Also...), Parent: it.Parent, Group: groups[i]})
	}
	a.names = NewNames(named)
	a.names.In(lexicon.Lang(a.lang))
}

// mention is a reference in a sentence. explicit is set if the sentence uses an id rather than a title.
type mention struct {
	ids      []string
	off, end int
	explicit bool
	amount   bool
}

// mentions returns the references in a text, with offsets in that text.
func (a *amender) mentions(text string) (out []mention) {
	atoms := a.names.groups(-1, text, a.names.atoms(text))
	for k, g := range atoms {
		if g.class != group || len(g.items)+len(g.unknown) == 0 {
			continue
		}
		m := mention{off: g.off, end: g.end, explicit: len(g.unknown) > 0, amount: !g.sure && k+1 < len(atoms) && atoms[k+1].isAmount(text)}
		for _, i := range g.items {
			id := a.r.Items[i].ID
			m.ids = append(m.ids, id)
			m.explicit = m.explicit || strings.Contains(lexicon.Fold(text[g.off:g.end]), lexicon.Fold(id)) || strings.ContainsFunc(text[g.off:g.end], unicode.IsDigit)
		}
		m.ids = append(m.ids, g.unknown...)
		out = append(out, m)
	}
	return out
}

// event is a part of a sentence that matters for a correction.
type event struct {
	what     rune // 'm'ention, 'r'elation, 'n'ot, 'p'ronoun, or ',' between clauses
	off, end int
	ids      []string
	kind     Kind
	behind   bool
	// guess is set on mentions by title. unless is set on relations that become a need when negated: "not
	// until 3".
	guess, unless bool
	// amount is set on numbers that count what follows. uses is set on relations that ignore such numbers, as
	// in "compare 3 shops".
	amount, uses bool
}

// events returns the events of a folded sentence in order.
func (a *amender) events(text string, all []mention) (out []event) {
	taken := func(off, end int) bool {
		return slices.ContainsFunc(all, func(m mention) bool { return m.off < end && off < m.end })
	}
	for _, m := range all {
		out = append(out, event{what: 'm', off: m.off, end: m.end, ids: m.ids, guess: !m.explicit, amount: m.amount})
	}
	for _, t := range lexicon.ScanIn(lexicon.Lang(a.lang), text) {
		e := event{off: t.Off, end: t.End, behind: t.Side == lexicon.Behind}
		switch {
		case t.Is(lexicon.Not):
			e.what, e.unless = 'n', t.Is(lexicon.Until)
		case t.Is(lexicon.Apart):
			e.what, e.kind = 'r', Apart
		case t.Is(lexicon.None) && len(t.Phrase) > 3:
			e.what, e.kind = 'r', None
		case t.Is(lexicon.Needs) || t.Is(lexicon.Uses):
			e.what, e.kind, e.uses = 'r', Needs, !t.Is(lexicon.Needs)
		case t.Is(lexicon.Before):
			e.what, e.kind, e.unless = 'r', Before, t.Is(lexicon.Until)
		case t.Is(lexicon.Until):
			e.what, e.kind, e.unless = 'r', None, true
		case t.Is(lexicon.Beside):
			e.what, e.kind = 'r', Beside
		case t.Is(lexicon.Previous):
			e.what = 'p'
		}
		if e.what != 0 && !taken(t.Off, t.End) {
			out = append(out, e)
		}
	}
	for _, h := range tonesIn(a.lang, text) {
		e := event{off: h.off, end: h.end}
		switch {
		case h.kind&toneInstead != 0:
			e.what = 'n'
		case h.kind&toneNeed != 0:
			e.what, e.behind = 'r', verbLast(a.lang)
		case h.kind&tonePronoun != 0:
			e.what = 'p'
		}
		if e.what == 0 || taken(h.off, h.end) {
			continue
		}
		over := func(x event) bool { return x.what != 'm' && x.off < h.end && h.off < x.end }
		if e.what == 'n' {
			out = slices.DeleteFunc(out, over)
		}
		if !slices.ContainsFunc(out, over) {
			out = append(out, e)
		}
	}
	for _, s := range form.Sentences(text, 0) {
		for _, c := range s.Clauses {
			if c.Off > 0 && c.Sep != '(' && c.Sep != ')' && !taken(c.Off-1, c.Off) {
				out = append(out, event{what: ',', off: c.Off, end: c.Off})
			}
		}
	}
	slices.SortStableFunc(out, func(x, y event) int {
		if x.off == y.off && x.what != y.what && (x.what == ',' || y.what == ',') {
			return int(x.what) - int(y.what) // ',' sorts first
		}
		return x.off - y.off
	})
	return out
}

// sentence changes the reading by one sentence.
func (a *amender) sentence(s form.Sentence) {
	text := lexicon.Fold(s.Text)
	shown := text
	if len(s.Text) == len(text) {
		shown = s.Text // ids of one letter depend on the case
	}
	all := a.split(shown, a.mentions(shown))
	if explicit := slices.ContainsFunc(all, func(m mention) bool { return m.explicit }); explicit {
		// Mentions by title count only besides explicit ones.
	} else if !a.correcting || !hasTone(a.lang, text, toneDrop|toneSwap) {
		all = nil
	}
	a.replaced = map[int]bool{}
	if !a.correcting && len(all) > 0 && hasTone(a.lang, text, toneInstead) {
		a.correcting = true // for example "3 waits for 2b instead of 2"
		defer func() { a.correcting = false }()
	}
	a.moving = a.correcting && hasTone(a.lang, text, toneMove)
	if len(all) > 0 && a.orders(all, s) {
		a.applied++
		return
	}
	said := a.change(text, all, s)
	if said || !a.correcting && a.relations(s, all) || a.inOrder(text, all, s) || a.claims(a.events(text, all), s) {
		a.applied++
		return
	}
	for _, m := range all {
		a.doubt("a correction names this step and was not understood: "+form.Clip(s.Text), m.ids, s.Off)
	}
}

// relations applies the relations that a sentence states about steps. It returns false, and changes nothing,
// if a part of the sentence was not understood.
func (a *amender) relations(s form.Sentence, all []mention) bool {
	if hasTone(a.lang, s.Text, toneInstead) {
		return false
	}
	a.names.prior = a.subject
	rels, doubts := a.names.Relations(-1, s.Text, s.Off)
	a.names.prior = nil
	if len(rels) == 0 || len(doubts) > 0 || slices.ContainsFunc(rels, func(r Relation) bool { return len(r.Subjects) == 0 || r.Kind == Beside }) {
		return false
	}
	if !a.covers(rels, all) {
		return false
	}
	for _, r := range rels {
		a.apply(r, true)
		a.subject = r.Subjects
	}
	return true
}

// split splits mentions that extend over a comma into the next clause's subject: "after 2, and step 4 after
// 3".
func (a *amender) split(text string, all []mention) (out []mention) {
	relation := func(from, to int) bool {
		for _, t := range lexicon.ScanIn(lexicon.Lang(a.lang), text[from:to]) {
			if t.Kinds&lexicon.Relations != 0 {
				return true
			}
		}
		return false
	}
	for k, m := range all {
		comma := strings.LastIndexAny(text[m.off:m.end], ",，،")
		next := len(text)
		if k+1 < len(all) {
			next = all[k+1].off
		}
		if comma < 0 || k == 0 || k+1 == len(all) || !relation(all[k-1].end, m.off) || !relation(m.end, next) {
			out = append(out, m)
			continue
		}
		at := m.off + comma
		for _, part := range [...][2]int{{m.off, at}, {at, m.end}} {
			for _, t := range a.mentions(text[part[0]:part[1]]) {
				t.off, t.end = t.off+part[0], t.end+part[0]
				out = append(out, t)
			}
		}
	}
	return out
}

// claims reads the relations that a sentence of a correction states. The subject is the first mention, or
// else the subject of the sentence before.
func (a *amender) claims(all []event, s form.Sentence) (said bool) {
	c := claimReader{a: a, sentence: s, subject: a.subject}
	for k := range all {
		switch e := &all[k]; e.what {
		case ',':
			c.broke = true
			c.negated = c.negated && c.open != nil
		case 'n':
			c.negation(e)
		case 'p':
			c.pronoun(e)
		case 'm':
			c.mention(e, all[k+1:])
		case 'r':
			c.relation(e)
		}
	}
	if len(c.subject) > 0 {
		a.subject = c.subject
	}
	return c.said
}

// claimReader is the state of reading a sentence of a correction, one event after another.
type claimReader struct {
	a          *amender
	sentence   form.Sentence
	subject    []int
	open, last *event  // the relation that has no mention yet, and the last one that had one
	waiting    []event // mentions that no relation has used yet
	negated    bool
	broke      bool // a clause has ended since the last relation
	said       bool // a relation was applied
}

// emit applies a relation of the subject to ids. With not, the relation is denied.
func (c *claimReader) emit(kind Kind, off int, ids []string, not bool) {
	if not {
		kind = Apart
	}
	r, fresh := c.a.relation(kind, c.subject, ids, c.sentence.Off)
	if len(c.subject) > 0 {
		c.said = true
		c.a.apply(r, fresh || also(c.a.lang, c.sentence.Text) && kind == Needs)
	}
}

// negation reads a "not". With "until", a second one makes a need of both: "can't start without 3".
func (c *claimReader) negation(e *event) {
	switch {
	case e.unless && c.negated:
		c.open, c.negated = &event{what: 'r', kind: Needs, off: e.off}, false // "can't start without 3"
	case verbLast(c.a.lang) && len(c.waiting) > 0:
		c.waiting[len(c.waiting)-1].kind = Apart
	default:
		c.negated = true
	}
}

// pronoun reads a reference to the subject of the sentence before.
func (c *claimReader) pronoun(e *event) {
	before := c.a.subject
	switch {
	case c.open != nil && len(before) > 0 && !slices.Equal(c.subject, before):
		c.emit(c.open.kind, e.off, c.a.idsOf(before), false)
		c.last, c.open = c.open, nil
	case verbLast(c.a.lang) && len(before) > 0 && len(c.waiting) > 0:
		c.waiting = append(c.waiting, event{what: 'm', off: e.off, ids: c.a.idsOf(before)})
	}
}

// mention reads a mention: the object of a relation, or a possible subject.
func (c *claimReader) mention(e *event, rest []event) {
	switch {
	case e.guess && (c.open == nil || c.broke), e.amount && c.open != nil && c.open.uses:
	case c.open != nil && (!c.broke || !c.a.relationFollows(rest)):
		c.emit(c.open.kind, e.off, e.ids, c.negated)
		c.last, c.open, c.negated = c.open, nil, false
	case c.last != nil && !c.a.relationFollows(rest):
		kind := c.last.kind
		if kind == Apart || kind == None {
			kind = Needs
		}
		c.emit(kind, e.off, e.ids, c.negated)
		c.negated = false
	default:
		c.waiting, c.open = append(c.waiting, *e), nil
		if !verbLast(c.a.lang) || len(c.waiting) == 1 {
			c.subject = c.a.itemsOf(e.ids)
		}
	}
}

// relation reads a phrase of relation, which may follow its objects.
func (c *claimReader) relation(e *event) {
	if e.behind && len(c.waiting) > 0 {
		first := c.a.itemsOf(c.waiting[0].ids)
		switch {
		case len(c.waiting) > 1 || len(c.subject) == 0:
			c.subject = first
			for _, w := range c.waiting[1:] {
				c.emit(e.kind, e.off, w.ids, w.kind == Apart || c.negated)
			}
		case !slices.Equal(c.subject, first):
			c.emit(e.kind, e.off, c.waiting[0].ids, c.negated)
		}
		c.waiting, c.last, c.negated = nil, e, false
		return
	}
	c.waiting, c.broke = nil, false
	switch {
	case e.unless && c.negated:
		c.open, c.negated = &event{what: 'r', kind: Needs, off: e.off}, false
		return
	case e.unless && e.kind == None:
		return
	case e.kind == None:
		c.emit(None, e.off, nil, false)
		c.last = e
		return
	case c.negated && e.kind == Needs:
		e.kind, c.negated = Apart, false
	}
	c.open = e
}

// relation returns a relation to ids. fresh is set if this amendment added all of them.
func (a *amender) relation(kind Kind, subject []int, ids []string, off int) (r Relation, fresh bool) {
	r, fresh = Relation{Kind: kind, Subjects: subject, Off: off}, true
	for _, id := range ids {
		if i, ok := a.itemOf[id]; ok {
			r.Items = append(r.Items, i)
			fresh = fresh && a.isNew(i)
		} else {
			r.Unknown = append(r.Unknown, id)
			fresh = false
		}
	}
	return r, fresh
}

// relationFollows reports whether the next event is a relation. In languages with the verb at the end,
// mentions may come before it.
func (a *amender) relationFollows(rest []event) bool {
	for _, e := range rest {
		switch {
		case e.what == 'r' || e.unless:
			return true
		case e.what == 'm' || e.what == ',':
			return e.what == 'm' && verbLast(a.lang) && a.relationFollows(rest[1:])
		}
	}
	return false
}

func (a *amender) isNew(i int) bool { return i >= a.old }

func (a *amender) idsOf(items []int) (ids []string) {
	for _, i := range items {
		ids = append(ids, a.r.Items[i].ID)
	}
	return ids
}

func (a *amender) itemsOf(ids []string) (items []int) {
	for _, id := range ids {
		if i, ok := a.itemOf[id]; ok {
			items = append(items, i)
		}
	}
	return items
}

// change reads a sentence that drops, adds or swaps steps. It returns false for other sentences.
func (a *amender) change(text string, all []mention, s form.Sentence) (said bool) {
	at, recent := 0, a.subject
	for _, e := range append(a.events(text, all), event{what: ',', off: len(text)}) {
		if e.what != ',' {
			continue
		}
		clause := text[at:e.off]
		var kinds tone
		for _, h := range tonesIn(a.lang, clause) {
			kinds |= h.kind
		}
		var known []int
		var fresh []string
		end := 0
		for _, m := range all {
			if m.off < at || m.off >= e.off {
				continue
			}
			end = m.end
			known = append(known, a.itemsOf(m.ids)...)
			for _, id := range m.ids {
				if _, ok := a.itemOf[id]; !ok && !countWord(id) {
					fresh = append(fresh, id)
				}
			}
		}
		if len(known) == 0 && len(fresh) == 0 && kinds&toneDrop != 0 && kinds&tonePronoun != 0 {
			known = recent // for example "3 turned out to be needless: drop it"
		}
		if len(known) > 0 {
			recent = known
		}
		switch {
		case len(fresh) == 1 && len(known) == 2 && kinds&toneAdd != 0 && saysBetween(clause):
			a.between(fresh[0], known[0], known[1], s, end)
			return true
		case len(fresh) == 1 && kinds&toneAdd != 0:
			a.add(fresh[0], s, end)
			rest := slices.DeleteFunc(slices.Clone(all), func(m mention) bool { return m.off < end })
			a.claims(slices.DeleteFunc(a.events(text, rest), func(e event) bool { return e.off < end }), s)
			return true
		case kinds&toneSwap != 0 && len(known) == 2:
			a.swap(known[0], known[1], s.Off)
			said = true
		case kinds&toneDrop != 0 && len(known) > 0 && a.correcting && !a.claimed(clause):
			for _, i := range known {
				a.drop(i)
			}
			said = true
		}
		at = e.off
	}
	return said
}

// saysBetween reports whether a clause contains a word for "between".
func saysBetween(clause string) bool {
	for word := range betweenWords {
		if wordIndex(clause, word) >= 0 {
			return true
		}
	}
	return false
}

var betweenWords = wordsOf("between")

// countWord reports whether an id that no step has is a number in words, which counts something: "one more
// step".
func countWord(id string) bool {
	_, number := lexicon.Number(id)
	return number && len(id) > 2 && strings.IndexFunc(id, unicode.IsDigit) < 0
}

// claimed reports whether a clause states a relation. Then the clause drops the relation, not a step.
func (a *amender) claimed(clause string) bool {
	hits := tonesIn(a.lang, clause)
	for _, t := range lexicon.ScanIn(lexicon.Lang(a.lang), clause) {
		drops := func(h toneHit) bool { return h.kind&toneDrop != 0 && h.off < t.End && t.Off < h.end }
		if t.Kinds&lexicon.KindsOf(lexicon.Needs, lexicon.Apart, lexicon.Beside) != 0 && !slices.ContainsFunc(hits, drops) {
			return true
		}
	}
	return false
}

// also reports whether a clause adds to earlier statements.
func also(lang, text string) bool {
	return slices.ContainsFunc(lexicon.ScanIn(lexicon.Lang(lang), text), func(t lexicon.Token) bool { return t.Is(lexicon.Same) })
}
