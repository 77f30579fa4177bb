package meaning

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxProse bounds the running text that is read, in bytes.
const maxProse = 40_000

// readProse reads a plan in running text. Each part of a sentence that describes work is a step. Words such
// as "then", "meanwhile" and "once both are done" state its needs.
func readProse(src *form.Source) []*Reading {
	from, to, ok := running(src)
	if !ok || Refuses(src.Text) || strings.Count(src.Text, "=") > 2 {
		return nil
	}
	t := &proseReader{lang: language(src.Text[from:to]), words: map[string][]int{}}
	if t.lang == "" {
		return nil
	}
	sentences := form.Sentences(src.Text[from:to], from)
	for k := range sentences {
		if !sentences[k].Question {
			t.sentence(&sentences[k])
		}
		if len(t.steps) > src.MaxItems {
			return nil
		}
	}
	return t.reading(sentences)
}

// running returns the extent of the running text without greetings and the like. ok is false if the text has
// a list or is not running text.
func running(src *form.Source) (from, to int, ok bool) {
	from, to = -1, 0
	short, ended, lines, entries := 0, 0, 0, 0
	more, moreShort, moreEnded := 0, 0, 0
	for i := range src.Lines {
		l := &src.Lines[i]
		n := utf8.RuneCountInString(l.Text)
		switch {
		case l.Text == "":
			continue
		case l.Fence || l.InCode || l.Text[0] == '|' || l.Text[0] == '{' || l.Text[0] == '<':
			return 0, 0, false
		case listed(l.Text) || entryLine(l.Text) || l.Text[0] == '#':
			entries++
		}
		wide := n >= 60 || l.Text[0] >= 0xE3 && n >= 20
		ends := strings.ContainsAny(l.Text[max(0, len(l.Text)-4):], ".。।!！;")
		if from < 0 && !wide && (!ends || n < 12) && (n < 30 || !strings.HasSuffix(l.Text, ",")) {
			continue // a greeting, a subject, or a title
		}
		if from < 0 {
			from = l.Start
		}
		more++
		moreShort += b2i(n < 60)
		moreEnded += b2i(ends)
		if wide || ends {
			to, lines, short, ended = l.End, more, moreShort, moreEnded
		}
	}
	// Short lines that are not whole sentences belong to a list or a poem.
	flowing := lines < 4 || short*3 < lines*2 || ended == lines
	return from, to, from >= 0 && to > from && to-from < maxProse && entries < 2 && flowing
}

// proseStep is a step in running text.
type proseStep struct {
	text     string
	off, end int
	needs    []int
	// linked is set if a word states when the step comes. waited is set if another step waits for it.
	linked, waited bool
}

type proseReader struct {
	lang  string
	steps []proseStep
	// words holds the steps by the stems of their words.
	words map[string][]int
	// group are the last steps that run in parallel.
	group []int
	// branch is the step of the current sentence that runs in parallel to others, or -1. A step behind it may
	// wait for it alone.
	branch int
	// lastRead is the step of the last main clause.
	lastRead int
	// connected counts sentences with a word of order, theses sentences that list arguments, past sentences
	// about the past, meant sentences about work to be done, and general sentences that explain something.
	connected, theses, past, meant, general int
	unsure                                  bool
	intro                                   string
	// idle are the sentences without a word of order before the first step, skipped those after it.
	idle, skipped []form.Sentence
}

// sentence reads a sentence.
func (t *proseReader) sentence(s *form.Sentence) {
	if t.chats(s) {
		return
	}
	units := t.units(s)
	t.mood(units)
	if len(t.steps) == 0 && hasTone(t.lang, s.Text, toneIntro) && !slices.ContainsFunc(units, func(u unit) bool { return u.kinds != 0 || u.free || u.parallel }) && len(t.enumerated(&units[0])) < 2 {
		t.idle = append(t.idle, *s)
		return
	}
	said := false
	t.branch = -1
	for k := range units {
		u := &units[k]
		ordered := u.ordered() || t.resolves(u) || len(t.enumerated(u)) > 1 ||
			k+1 < len(units) && (units[k+1].parallel || units[k+1].kinds&^lexicon.KindsOf(lexicon.First) != 0 || units[k+1].free && t.acts(u))
		if !ordered && !said {
			if len(t.steps) == 0 || !t.acts(u) {
				continue
			}
			// The sentence stands between steps and says what to do but not when.
			t.unsure = true
		}
		if !said {
			t.connected += b2i(ordered)
			if len(t.steps) == 0 && !u.kinds.Has(lexicon.First) && len(t.idle) > 0 && t.opens(&t.idle[len(t.idle)-1]) {
				i := t.idle[len(t.idle)-1]
				t.idle = t.idle[:len(t.idle)-1]
				t.step(&unit{text: i.Text, off: i.Off, end: i.Off + len(i.Text)}, nil, false)
			}
		}
		said = true
		t.addUnit(u)
	}
	if !said {
		if len(t.steps) == 0 {
			t.idle = append(t.idle, *s)
		} else {
			t.skipped = append(t.skipped, *s)
		}
	}
}

// resolves reports whether a condition in a unit names known steps.
func (t *proseReader) resolves(u *unit) bool {
	before := t.unsure
	defer func() { t.unsure = before }()
	for k := range u.conds {
		if _, named := t.refers(u.conds[k].text); named {
			return true
		}
	}
	return false
}

// maxOpening bounds the words of a sentence that is no first step unless it demands something.
const maxOpening = 4

// opens reports whether a sentence before the first word of order is the first step.
func (t *proseReader) opens(s *form.Sentence) bool {
	return !t.spaced() || len(strings.Fields(s.Text)) > maxOpening || t.acts(&unit{main: s.Text})
}

// verb reports whether the phrase of a condition in a unit is in fact a verb with a subject: "Ann sets up the
// cluster".
func (t *proseReader) verb(u *unit, c *condition) bool {
	all := lexicon.ScanIn(lexicon.Lang(t.lang), c.text[:min(len(c.text), maxRest)])
	return c.off > u.off && len(all) > 0 && all[0].Off == 0 && all[0].Is(lexicon.Before) && !all[0].Opens
}

// maxChat bounds the offset of words that address the reader, in bytes.
const maxChat = 16

// chats reports whether a sentence only addresses the reader: "Let me know what you think."
func (t *proseReader) chats(s *form.Sentence) bool {
	text := lexicon.Fold(s.Text)
	for _, h := range tonesIn(t.lang, text) {
		if h.kind&toneChat != 0 && (h.off < maxChat || h.end >= len(strings.TrimRight(text, ".!。！"))) {
			return !t.units(s)[0].ordered() || h.off < 3
		}
	}
	return false
}

// unitOrder is the order that a unit states for its step.
type unitOrder struct {
	// needs are the steps that it waits for, before the steps that wait for it.
	needs, before []int
	// waits is set if a condition states needs, linked if any word states when the step comes.
	waits, linked bool
	// parallel is set if it runs in parallel to the step before, branch if it continues that step alone.
	parallel, branch bool
}

// addUnit adds the steps of a unit.
func (t *proseReader) addUnit(u *unit) {
	if strings.TrimSpace(u.main) == "" && len(u.conds) == 0 {
		return
	}
	w, ok := t.conditions(u)
	if !ok {
		return
	}
	t.unsure = t.unsure || u.trails
	t.readOrder(u, w)
	if list := t.enumerated(u); len(list) > 1 {
		t.addAll(u, w, list)
		return
	}
	group := t.group
	t.step(u, w.needs, w.linked)
	self := len(t.steps) - 1
	for _, i := range w.before {
		t.link(self, i)
	}
	if t.branch = -1; w.parallel && len(group) > 0 || w.branch {
		t.branch = self
	}
	switch {
	case len(w.before) > 0:
		t.group = group
	case w.branch:
		t.group = append(slices.DeleteFunc(slices.Clone(group), func(i int) bool { return i == w.needs[0] }), self)
	case w.parallel && len(group) < maxGroup:
		t.group = append(slices.Clone(group), self)
	}
}

// conditions reads the conditions of a unit. ok is false if it has already added all steps of the unit.
func (t *proseReader) conditions(u *unit) (w *unitOrder, ok bool) {
	w = &unitOrder{linked: true}
	for k := range u.conds {
		c := &u.conds[k]
		known := len(t.steps)
		switch {
		case c.kind == Before:
			to, sure := t.found(c.text)
			if t.pronounOnly(c.text) && known > 0 {
				to, sure = t.lastRead, true // for example "and before that"
			}
			switch {
			case to >= 0 && sure:
				w.before = append(w.before, to)
				t.unsure = true
			case !c.loose && !t.verb(u, c):
				// "Before we pour the concrete, we dig" states the later step first.
				t.addBefore(u, c)
				return w, false
			default:
				t.unsure = true
			}
		case c.kind == Beside:
			list, named := t.refers(c.text)
			if named && len(list) > 0 {
				w.needs = append(w.needs, t.steps[list[len(list)-1]].needs...)
				w.waits = true
			} else if !c.loose {
				u.kinds |= lexicon.KindsOf(lexicon.Meanwhile)
			}
		default:
			list, named := t.refers(c.text)
			if !named && c.loose {
				t.unsure = true
				continue
			}
			if known == 0 && t.gerund(c.text) {
				t.step(&unit{text: c.text, off: c.off, end: c.off + len(c.text)}, nil, false)
				list, t.unsure = []int{0}, true
			}
			for _, i := range list {
				if !slices.Contains(w.needs, i) {
					w.needs = append(w.needs, i)
				}
			}
			w.waits = true
		}
	}
	return w, true
}

// readOrder reads the words of order of a unit, as far as its conditions leave the order open.
func (t *proseReader) readOrder(u *unit, w *unitOrder) {
	w.branch = t.branch >= 0 && !w.waits && u.kinds&adverbs == lexicon.KindsOf(lexicon.Then) && t.ands(u.text)
	switch {
	case w.branch:
		w.needs = []int{t.branch}
		t.unsure = true
	case w.waits && u.kinds.Has(lexicon.Last) && len(w.needs) < 2:
		w.needs = t.ends(len(t.steps))
	case w.waits:
	case len(w.before) > 0:
	case u.kinds.Has(lexicon.Last):
		w.needs = t.ends(len(t.steps))
	case u.free && !u.kinds.Has(lexicon.Then):
		w.linked, w.parallel = false, true
	case u.kinds.Has(lexicon.Meanwhile) || u.parallel:
		w.parallel = true
		if len(t.steps) > 0 {
			w.needs = t.steps[len(t.steps)-1].needs
		}
	case u.kinds.Has(lexicon.First) && !u.kinds.Has(lexicon.Then):
		if len(t.steps) > 0 && slices.ContainsFunc(t.group, func(i int) bool { return t.steps[i].linked }) {
			w.needs = slices.Clone(t.group)
		}
	case u.kinds.Has(lexicon.Then):
		w.needs = slices.Clone(t.group)
	default:
		w.linked = false
		if list, named := t.refers(u.text); named && !t.commands(u) {
			w.needs = list
		} else {
			w.needs = slices.Clone(t.group)
		}
		t.unsure = true
	}
}

// addAll adds the steps of a unit that lists several ones.
func (t *proseReader) addAll(u *unit, w *unitOrder, list []unit) {
	if !w.waits && (u.free || !u.ordered()) && len(t.steps) == 0 {
		w.needs = nil
	} else if !w.waits {
		w.needs = slices.Clone(t.group)
	}
	t.unsure = true
	var group []int
	for k := range list {
		t.step(&list[k], w.needs, w.linked)
		group = append(group, len(t.steps)-1)
	}
	t.group = group
}

// maxGroup bounds the steps that run in parallel.
const maxGroup = 64

// addBefore adds the two steps of "before a, b".
func (t *proseReader) addBefore(u *unit, c *condition) {
	main := strings.TrimSpace(u.main)
	at := u.off + max(0, strings.Index(u.text, main))
	t.step(&unit{text: main, off: at, end: at + len(main)}, slices.Clone(t.group), true)
	first := len(t.steps) - 1
	t.step(&unit{text: strings.Trim(c.text, " ,"), off: c.off, end: c.off + len(c.text)}, []int{first}, true)
	t.lastRead, t.unsure = first, true
}

// pronounOnly reports whether a condition refers to earlier steps only by a pronoun: "before that".
func (t *proseReader) pronounOnly(s string) bool {
	for _, g := range t.signs(s) {
		if n := t.pronoun(s[g.end:]); n > 0 {
			return t.letters(s[g.end+n:]) == 0
		}
	}
	return false
}

// link makes step to wait for step from.
func (t *proseReader) link(from, to int) {
	if from != to && !slices.Contains(t.steps[to].needs, from) {
		t.steps[to].needs = append(slices.Clone(t.steps[to].needs), from)
		t.steps[from].waited = true
		t.steps[to].linked = true
	}
}

// step adds a step, which becomes the last group.
func (t *proseReader) step(u *unit, needs []int, linked bool) {
	s := proseStep{text: strings.Join(strings.Fields(u.text), " "), off: u.off, end: u.end, needs: needs, linked: linked}
	for _, i := range needs {
		t.steps[i].waited = true
	}
	t.steps = append(t.steps, s)
	name := u.main
	if strings.TrimSpace(name) == "" {
		name = u.text
	}
	t.noteWords(len(t.steps)-1, name)
	t.lastRead = len(t.steps) - 1
	t.group = []int{t.lastRead}
}

// pastWeight is the weight of a text with words of order that is no plan.
const pastWeight = 10

// reading makes a reading of the steps, or returns nil if they do not form a plan.
func (t *proseReader) reading(sentences []form.Sentence) []*Reading {
	n := len(t.steps)
	questions, linked := 0, 0
	for _, s := range sentences {
		if s.Question {
			questions++
		}
	}
	for i := range t.steps {
		linked += b2i(t.steps[i].linked)
	}
	if n < 3 || t.theses > 1 || questions*3 > len(sentences) || linked < 2 || t.connected*2 < len(sentences) && linked < 3 {
		return nil
	}
	order := span(0, n)
	sort.SliceStable(order, func(a, b int) bool { return t.steps[order[a]].off < t.steps[order[b]].off })
	place := make([]string, n)
	for k, i := range order {
		place[i] = strconv.Itoa(k + 1)
	}
	r := &Reading{Form: "prose", Stated: true, Start: t.steps[order[0]].off}
	for _, i := range order {
		s := &t.steps[i]
		r.Items = append(r.Items, Item{ID: place[i], Title: s.text, Parent: -1, Off: s.off, End: s.end})
		r.End = max(r.End, s.end)
		for _, k := range s.needs {
			r.Links = append(r.Links, Link{From: place[k], To: place[i], Source: Prose, Off: s.off})
		}
	}
	r.Weight = 45 + 20*linked/n
	if t.isPast(len(sentences)) {
		r.Weight = pastWeight
	}
	r.Evidence = append(r.Evidence, "words of order in running text")
	if t.unsure || n > linked+1 || len(t.skipped) > 0 {
		for i := range r.Items[:min(n, maxDoubts)] {
			t.doubt(r, r.Items[i].ID, "this step and its needs were read from running text and may be wrong: "+r.Items[i].Title, r.Items[i].Off)
		}
	}
	if last := sentences[len(sentences)-1]; t.cutOff(last.Text) {
		r.Notes = append(r.Notes, Note{Fault: true, Code: "TRUNCATED", Element: r.Items[n-1].ID, Off: last.Off + len(last.Text), Message: "the text ends in the middle of a sentence: " + form.Clip(last.Text), Hint: "ask for the rest of the plan"})
	}
	for _, s := range append(t.idle, t.skipped...) {
		t.doubt(r, form.Clip(s.Text), "this sentence was read as no step: "+s.Text, s.Off)
	}
	t.uncovered(r, sentences)
	return []*Reading{r}
}

// uncovered notes the parts outside of steps in sentences that contain a step.
func (t *proseReader) uncovered(r *Reading, sentences []form.Sentence) {
	k := 0
	for _, s := range sentences {
		end := s.Off + len(s.Text)
		at, some := s.Off, false
		for ; k < len(r.Items) && r.Items[k].Off < end; k++ {
			if it := &r.Items[k]; it.Off >= at {
				t.leftOut(r, s, at, it.Off)
			}
			at, some = max(at, r.Items[k].End), true
		}
		if some && at < end {
			t.leftOut(r, s, at, end)
		}
	}
}

// leftOut notes a part of a sentence between two offsets, unless it has hardly any content.
func (t *proseReader) leftOut(r *Reading, s form.Sentence, from, to int) {
	raw := strings.TrimRight(s.Text[from-s.Off:to-s.Off], " \n")
	if strings.HasSuffix(raw, ":") || strings.HasSuffix(raw, "：") {
		return // for example "I would do it like this:"
	}
	if text := strings.Trim(raw, " ,.;!-–—()"); t.letters(text) > 4 {
		t.doubt(r, form.Clip(text), "this part of a sentence was read as no step: "+text, from)
	}
}

// cutOff reports whether a sentence ends in the middle: "only when the".
func (t *proseReader) cutOff(s string) bool {
	s = strings.TrimRight(s, " \n")
	last := s[strings.LastIndexAny(s, " \n")+1:]
	return strings.HasSuffix(s, ",") || hasTone(t.lang, last, toneArticle)
}

func (t *proseReader) doubt(r *Reading, element, message string, off int) {
	if len(r.Notes) < maxDoubts {
		r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: element, Message: message, Off: off, Hint: "ask for a list that states the needs of each step"})
	}
}
