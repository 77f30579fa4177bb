package meaning

import (
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readCorrected reads a plan that is corrected further down: what stands above the correction is read, and the sentences
// below change it. It returns nil when the text corrects nothing.
func readCorrected(src *form.Source, read func(*form.Source) []*Reading) []*Reading {
	at := correctedFrom(src)
	if at < 0 {
		return nil
	}
	head := keepOnly(src, []alternative{{}, {Off: at, End: len(src.Text)}}, 0)
	all := read(head)
	if len(all) == 0 || all[0].Weight < 30 || len(all[0].Items) < 2 {
		return nil
	}
	r := all[0]
	amend(r, src.Text[at:], at, true)
	r.End, r.Open = max(r.End, len(strings.TrimRight(src.Text, " \n\t"))), false
	r.Around = append(r.Around, Span{at, len(src.Text)})
	return all
}

// correctedFrom returns where in a text, below a list, a correction begins, or -1. A correction that lists the steps once
// more is another plan and not meant here.
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
		case entryLine(l.Text) || listed(l.Text):
			entries++
		case entries >= 2 && l.Text[0] != '#' && corrects(l.Text):
			at = l.Start
		}
	}
	if again > 1 {
		return -1
	}
	return at
}

// listed reports whether a line begins with a label as an entry of a list does, not with one that a sentence is about.
func listed(s string) bool {
	s = strings.TrimLeft(s, "*#-•–[( ")
	i := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsDigit(r) && !unicode.IsLetter(r) })
	if i <= 0 || i > 8 {
		return false
	}
	digit := strings.IndexFunc(s[:i], unicode.IsDigit) >= 0
	return strings.ContainsAny(s[i:i+1], ".):") && (digit || i == 1) || digit && strings.Trim(s[:1], "0123456789") != ""
}

// corrects reports whether a line, at its beginning, takes back what was said before.
func corrects(line string) bool {
	line = line[:min(len(line), 120)]
	colon := strings.IndexAny(line, ":：")
	for _, t := range lexicon.Scan(line) {
		if t.Is(lexicon.Correct) && (strings.Count(line[:t.Off], " ") < 3 || t.Off < colon) {
			return true
		}
	}
	words := strings.FieldsFunc(lexicon.Fold(line), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })
	for k, w := range words {
		if k < 3 && slices.Contains(correctionWords, w) {
			return true
		}
	}
	return false
}

// correctionWords are words at the head of corrections besides those of the lexicon.
var correctionWords = []string{
	"edit", "upd", "update", "correction", "corrections", "amendment", "amendments", "erratum", "errata", "ps", "change", "changes",
	"korrektur", "korrekturen", "nachtrag", "änderung", "änderungen", "rectification", "correctif", "corrige", "corrección", "correcciones",
	"correção", "correções", "correzione", "correzioni", "correctie", "correcties", "rättelse", "rättelser", "ändring", "korekta", "poprawka",
	"poprawki", "исправление", "исправления", "поправка", "виправлення", "поправки", "правка", "düzeltme", "düzeltmeler", "koreksi", "ralat",
	"تصحيح", "تعديل", "सुधार", "संशोधन", "đính", "sửa", "訂正", "修正", "정정", "수정", "잘못", "更正", "修改", "勘误", "перепутал", "scusate",
}

// amender changes a reading by sentences that stand around its list.
type amender struct {
	r     *Reading
	names *Names
	lang  string
	place map[string]int
	// order are the items that follow one another as they are listed, those beside each other in one place. It is nil when
	// the text states the links.
	order      [][]int
	correcting bool
	moved      bool
	replaced   map[int]bool
	gone       map[int]bool
	subject    []int
	ordered    bool
}

// amend changes a reading by what a text around its list says. Correcting is set when the text takes back what was said
// before: then a need that is stated replaces the ones before.
func amend(r *Reading, text string, off int, correcting bool) {
	a := &amender{r: r, lang: language(text), correcting: correcting, gone: map[int]bool{}}
	a.index()
	if len(r.Links) == 0 && !r.Stated {
		for i := range r.Items {
			if !a.names.items[i].Group {
				a.order = append(a.order, []int{i})
			}
		}
	}
	a.ordered = hasTone(a.lang, text, toneInOrder|toneRest)
	for _, s := range form.Sentences(text, off) {
		if !s.Question {
			a.sentence(s)
		}
	}
	if a.order != nil && a.moved {
		a.explicit()
	}
	if len(a.gone) > 0 {
		a.clear()
	}
}

// index makes the names of the items.
func (a *amender) index() {
	a.place = map[string]int{}
	groups := map[int]bool{}
	for _, it := range a.r.Items {
		groups[it.Parent] = true
	}
	var named []Named
	for i, it := range a.r.Items {
		a.place[it.ID] = i
		named = append(named, Named{ID: it.ID, Titles: append([]string{it.Title}, it.Also...), Parent: it.Parent, Group: groups[i]})
	}
	a.names = NewNames(named)
	a.names.In(lexicon.Lang(a.lang))
}

// mention is a reference in a sentence.
type mention struct {
	ids      []string
	off, end int
}

// mentions returns the references of a text, with the places that they have in it.
func (a *amender) mentions(text string) (out []mention) {
	for _, g := range a.names.groups(-1, text, a.names.atoms(text)) {
		if g.class != group || len(g.items)+len(g.unknown) == 0 {
			continue
		}
		m := mention{off: g.off, end: g.end}
		for _, i := range g.items {
			m.ids = append(m.ids, a.r.Items[i].ID)
		}
		m.ids = append(m.ids, g.unknown...)
		out = append(out, m)
	}
	return out
}

func (a *amender) sentence(s form.Sentence) {
	rels, _ := a.names.Relations(-1, s.Text, s.Off)
	all := a.mentions(s.Text)
	a.replaced = map[int]bool{}
	if len(all) == 0 && len(rels) == 0 || a.sequence(all) {
		return
	}
	said, last := len(rels) > 0, Relation{Kind: None}
	if len(a.subject) > 0 {
		last = Relation{Kind: Needs, Subjects: a.subject}
	}
	for k, c := range s.Clauses {
		end := c.Off + len(c.Text)
		if k+1 < len(s.Clauses) {
			end = s.Clauses[k+1].Off
		}
		var here []mention
		for _, m := range all {
			if m.off+s.Off >= c.Off && m.off+s.Off < end {
				here = append(here, m)
			}
		}
		stated := false
		for _, r := range rels {
			if r.Off >= c.Off && r.Off < end {
				stated = true
				if len(r.Subjects) == 0 {
					r.Subjects = last.Subjects
				}
				a.apply(r, also(a.lang, c.Text))
				last = r
			}
		}
		if !stated && len(here) > 0 && (a.change(c, here, s) || a.goesOn(c, here, last)) {
			said = true
		}
		if len(here) > 0 && !stated && len(here[0].ids) > 0 {
			if i, ok := a.place[here[0].ids[0]]; ok && len(last.Subjects) == 0 {
				last = Relation{Kind: None, Subjects: []int{i}}
			}
		}
	}
	a.subject = last.Subjects
	if !said && a.correcting {
		for _, m := range all {
			a.doubt("a correction names this step and was not understood: "+form.Clip(s.Text), m.ids, s.Off)
		}
	}
}

// sequence reads a sentence that lists all steps in their order.
func (a *amender) sequence(all []mention) bool {
	if a.order == nil {
		return false
	}
	var ids []int
	for _, m := range all {
		for _, id := range m.ids {
			i, ok := a.place[id]
			if !ok || slices.Contains(ids, i) {
				return false
			}
			ids = append(ids, i)
		}
	}
	n := 0
	for _, level := range a.order {
		n += len(level)
	}
	if len(ids) != n || n < 3 {
		return false
	}
	a.order = a.order[:0]
	for _, i := range ids {
		a.order = append(a.order, []int{i})
	}
	a.moved = true
	return true
}

// change reads a clause that drops, adds or swaps steps.
func (a *amender) change(c form.Clause, here []mention, s form.Sentence) bool {
	var kinds tone
	for _, h := range tonesIn(a.lang, lexicon.Fold(c.Text)) {
		kinds |= h.kind
	}
	var known []int
	var fresh []string
	for _, m := range here {
		for _, id := range m.ids {
			if i, ok := a.place[id]; ok {
				known = append(known, i)
			} else {
				fresh = append(fresh, id)
			}
		}
	}
	switch {
	case len(fresh) == 1 && kinds&toneAdd != 0:
		a.add(fresh[0], c, here[0], s)
	case kinds&toneSwap != 0 && len(known) == 2:
		a.swap(known[0], known[1], c.Off)
	case kinds&toneDrop != 0 && len(known) > 0 && a.correcting:
		for _, i := range known {
			a.drop(i)
		}
	default:
		return false
	}
	return true
}

// goesOn reads a clause that names a step and goes on with what the clause before said: "only for 1", "and not for 3".
func (a *amender) goesOn(c form.Clause, here []mention, last Relation) bool {
	if len(last.Subjects) == 0 || last.Kind == Beside || len(here) != 1 || !a.correcting {
		return false
	}
	r := Relation{Kind: Needs, Subjects: last.Subjects, Off: c.Off, End: c.Off + len(c.Text)}
	if last.Kind == Before {
		r.Kind = Before
	}
	for _, id := range here[0].ids {
		if i, ok := a.place[id]; ok && !slices.Contains(r.Subjects, i) {
			r.Items = append(r.Items, i)
		}
	}
	for _, t := range lexicon.ScanIn(lexicon.Lang(a.lang), c.Text) {
		if t.Is(lexicon.Not) || t.Is(lexicon.Except) || t.Is(lexicon.Apart) {
			r.Kind = Apart
		}
	}
	if len(r.Items) == 0 || last.Kind == Needs && r.Kind == Needs && len(last.Items) > 0 && c.Sep != ',' {
		return false
	}
	a.apply(r, last.Kind == Needs && len(last.Items) > 0)
	return true
}

// also reports whether a clause adds to what was said before.
func also(lang, text string) bool {
	for _, w := range strings.FieldsFunc(lexicon.Fold(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		if slices.Contains(alsoWords, w) {
			return true
		}
	}
	return lang == "ja" && strings.Contains(text, "も") || lang == "zh" && strings.Contains(text, "也") || lang == "zh" && strings.Contains(text, "还")
}

var alsoWords = []string{
	"also", "too", "additionally", "moreover", "auch", "zusätzlich", "außerdem", "aussi", "également", "también", "además", "também", "ademais",
	"anche", "inoltre", "ook", "tevens", "också", "även", "też", "także", "również", "также", "тоже", "також", "теж", "de", "da", "ayrıca",
	"أيضا", "أيضاً", "كذلك", "भी", "juga", "cũng", "또한", "도",
}

// apply changes the links by one relation.
func (a *amender) apply(r Relation, more bool) {
	if len(r.Subjects) == 0 {
		return
	}
	ids := append([]string{}, r.Unknown...)
	for _, i := range r.Items {
		ids = append(ids, a.r.Items[i].ID)
	}
	if a.order != nil && (a.shift(r) || !a.leaveOrder(r)) {
		return
	}
	for _, s := range r.Subjects {
		id := a.r.Items[s].ID
		switch r.Kind {
		case Needs, Uses:
			a.need(s, ids, more, r.Off)
		case Before:
			for _, to := range ids {
				a.unlink(to, id)
				a.link(id, to, r.Off)
			}
		case Apart:
			for _, from := range ids {
				a.unlink(from, id)
			}
		case None:
			if a.correcting {
				a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.To == id })
			}
		case Beside:
			a.beside(id, ids, r.Off)
		}
	}
	a.r.Stated = true
}

// need states what a step needs; in a correction that replaces what was stated before the sentence.
func (a *amender) need(s int, ids []string, more bool, off int) {
	id := a.r.Items[s].ID
	if a.correcting && !more && !a.replaced[s] {
		a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.To == id })
	}
	a.replaced[s] = true
	for _, from := range ids {
		a.link(from, id, off)
	}
}

func (a *amender) link(from, to string, off int) {
	if !slices.ContainsFunc(a.r.Links, func(l Link) bool { return l.From == from && l.To == to }) {
		a.r.Links = append(a.r.Links, Link{From: from, To: to, Source: Prose, Off: off})
	}
}

func (a *amender) unlink(from, to string) {
	a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.From == from && l.To == to })
}

// beside lets a step need what others need.
func (a *amender) beside(id string, others []string, off int) {
	var needs []string
	for _, l := range a.r.Links {
		if slices.Contains(others, l.To) {
			needs = append(needs, l.From)
		}
	}
	if a.correcting || len(needs) > 0 {
		a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.To == id && !slices.Contains(needs, l.From) })
	}
	for _, from := range needs {
		if from != id {
			a.link(from, id, off)
		}
	}
}

// shift changes the listed order by a relation that contradicts it: "3 comes before 2". It reports whether that is all.
func (a *amender) shift(r Relation) bool {
	if len(r.Unknown) > 0 {
		return false
	}
	switch r.Kind {
	case Beside:
		if len(r.Items) == 0 {
			return false
		}
		for _, s := range r.Subjects {
			if a.remove(s); a.level(r.Items[0]) >= 0 {
				k := a.level(r.Items[0])
				a.order[k] = append(a.order[k], s)
			}
		}
		a.moved = true
		return true
	case Before, Needs, Uses:
		if len(r.Subjects) != 1 || len(r.Items) != 1 {
			return false
		}
		from, to := r.Items[0], r.Subjects[0]
		if r.Kind == Before {
			from, to = to, from
		}
		f, t := a.level(from), a.level(to)
		switch {
		case f < 0 || t < 0 || from == to:
			return false
		case f == t-1:
			return a.correcting || a.ordered
		case f < t && !a.ordered:
			return false
		case r.Kind == Before:
			a.remove(from)
			a.order = slices.Insert(a.order, a.level(to), []int{from})
		default:
			a.remove(to)
			a.order = slices.Insert(a.order, a.level(from)+1, []int{to})
		}
		a.moved = true
		return true
	}
	return false
}

// level returns the place of an item in the listed order, or -1.
func (a *amender) level(item int) int {
	return slices.IndexFunc(a.order, func(l []int) bool { return slices.Contains(l, item) })
}

// remove takes an item out of the listed order.
func (a *amender) remove(item int) {
	for k := range a.order {
		a.order[k] = slices.DeleteFunc(a.order[k], func(i int) bool { return i == item })
	}
	a.order = slices.DeleteFunc(a.order, func(l []int) bool { return len(l) == 0 })
}

// leaveOrder ends the listed order because a relation states needs. In a correction, and where the text says that the rest
// is in order, the other steps keep following one another; else they need nothing.
func (a *amender) leaveOrder(r Relation) bool {
	if r.Kind == Apart && !a.correcting {
		return false
	}
	if a.correcting || a.ordered {
		a.explicit()
		if r.Kind != None {
			var ids []string
			for _, s := range r.Subjects {
				ids = append(ids, a.r.Items[s].ID)
			}
			a.doubt("a correction takes this step out of the listed order; what follows it may be meant to wait for more", ids, r.Off)
		}
	}
	a.order = nil
	return true
}

// explicit turns the listed order into links.
func (a *amender) explicit() {
	for k := 1; k < len(a.order); k++ {
		for _, from := range a.order[k-1] {
			for _, to := range a.order[k] {
				l := Link{From: a.r.Items[from].ID, To: a.r.Items[to].ID, Source: ListedOrder, Off: a.r.Items[to].Off}
				a.r.Links = append(a.r.Links, l)
			}
		}
	}
	a.order, a.r.Stated = nil, true
}

// swap lets two steps change places.
func (a *amender) swap(x, y, off int) {
	if a.order != nil {
		p, q := a.level(x), a.level(y)
		if p >= 0 && q >= 0 && p != q {
			a.order[p], a.order[q] = a.order[q], a.order[p]
			a.moved = true
		}
		return
	}
	idx, idy := a.r.Items[x].ID, a.r.Items[y].ID
	other := func(id string) string {
		switch id {
		case idx:
			return idy
		case idy:
			return idx
		}
		return id
	}
	for k, l := range a.r.Links {
		a.r.Links[k].From, a.r.Links[k].To = other(l.From), other(l.To)
	}
	a.doubt("two steps with stated needs change places", []string{idx, idy}, off)
}

// drop takes a step out of the plan. What waits for it and nothing else waits for what it waited for.
func (a *amender) drop(item int) {
	id := a.r.Items[item].ID
	if a.order != nil {
		a.remove(item)
	}
	var needs, next []Link
	for _, l := range a.r.Links {
		switch id {
		case l.From:
			next = append(next, l)
		case l.To:
			needs = append(needs, l)
		}
	}
	a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.From == id || l.To == id })
	for _, n := range next {
		if !slices.ContainsFunc(a.r.Links, func(l Link) bool { return l.To == n.To }) {
			for _, l := range needs {
				a.link(l.From, n.To, n.Off)
			}
		}
	}
	if len(next) > 0 {
		a.r.Stated = true
	}
	a.gone[item] = true
	a.subject = nil
}

// clear takes the dropped items out.
func (a *amender) clear() {
	place := make([]int, len(a.r.Items))
	var kept []Item
	for i, it := range a.r.Items {
		place[i] = len(kept)
		if !a.gone[i] {
			kept = append(kept, it)
		}
	}
	for k := range kept {
		if p := kept[k].Parent; p >= 0 && a.gone[p] {
			kept[k].Parent = -1
		} else if p >= 0 {
			kept[k].Parent = place[p]
		}
	}
	a.r.Items = kept
}

// add puts a new step at the end of the plan: what it waits for is stated, or nothing.
func (a *amender) add(id string, c form.Clause, m mention, s form.Sentence) {
	title := s.Text[m.end:]
	if i := strings.IndexAny(title, ":"); i >= 0 && i < 40 {
		title = title[i+1:]
	}
	title = strings.Trim(title, " ,.;:\"“”„«»–—-")
	if i := strings.IndexAny(title, ".;\""); i > 0 {
		title = title[:i]
	}
	if title == "" {
		title = c.Text
	}
	if a.order != nil {
		a.explicit()
	}
	a.r.Items = append(a.r.Items, Item{ID: id, Shown: true, Title: title, Parent: -1, Off: c.Off, End: s.Off + len(s.Text)})
	a.r.Stated = true
	a.index()
	a.subject = []int{len(a.r.Items) - 1}
}

// maxDoubts bounds the notes of a reading.
const maxDoubts = 200

// doubt notes that a sentence about steps is not understood, or may mean something else.
func (a *amender) doubt(message string, ids []string, off int) {
	if len(a.r.Notes) < maxDoubts && len(ids) > 0 {
		a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: strings.Join(ids, ", "), Message: message, Off: off})
	}
}
