package meaning

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxProse bounds the running text that is read for a plan.
const maxProse = 40_000

// readProse reads a plan that is told in running text. Each part of a sentence with work in it is a step; words such as
// "then", "meanwhile" and "once both are done" say what it waits for.
func readProse(src *form.Source) []*Reading {
	from, to, ok := running(src)
	if !ok || refuses(src.Text) || strings.Count(src.Text, "=") > 2 {
		return nil
	}
	t := &teller{lang: language(src.Text[from:to])}
	sentences := form.Sentences(src.Text[from:to], from)
	for k := range sentences {
		if !sentences[k].Question {
			t.sentence(&sentences[k], k)
		}
		if len(t.steps) > src.MaxItems {
			return nil
		}
	}
	return t.reading(sentences)
}

// running returns where the running text stands, without greetings and the like, when the text has no list.
func running(src *form.Source) (from, to int, ok bool) {
	from, to = -1, 0
	short, lines, entries := 0, 0, 0
	more, moreShort := 0, 0
	for i := range src.Lines {
		l := &src.Lines[i]
		n := utf8.RuneCountInString(l.Text)
		switch {
		case l.Text == "":
			continue
		case l.Fence || l.InCode || l.Text[0] == '|' || l.Text[0] == '{' || l.Text[0] == '<':
			return 0, 0, false
		case listed(l.Text) || entryLine(l.Text) || l.Text[0] == '#' || stepLine(l.Text):
			entries++
		}
		wide := n >= 60 || l.Text[0] >= 0xE3 && n >= 20
		if from < 0 && !wide && (n < 40 || !strings.ContainsAny(l.Text, ".。।")) {
			continue // a greeting, a subject, a title
		}
		if from < 0 {
			from = l.Start
		}
		more++
		if n < 60 {
			moreShort++
		}
		if wide || strings.ContainsAny(l.Text[max(0, len(l.Text)-4):], ".。।!！;") {
			to, lines, short = l.End, more, moreShort
		}
	}
	return from, to, from >= 0 && to > from && to-from < maxProse && entries < 2 && (lines < 4 || short*3 < lines*2)
}

// stepLine reports whether a line begins as a step of a list does: "Week 2: …", "Step two, …".
func stepLine(s string) bool {
	head := s[:min(len(s), 30)]
	if i := strings.IndexAny(head, ":："); i > 0 && strings.Count(head[:i], " ") < 3 && strings.ContainsFunc(head[:i], unicode.IsDigit) {
		return true
	}
	for _, t := range lexicon.Scan(head) {
		if t.Is(lexicon.Steps) && t.Off < 16 {
			return true
		}
	}
	return false
}

// tale is a step that running text tells.
type tale struct {
	text     string
	off, end int
	needs    []int
	// linked tells that a word says what it waits for, open that it waits for nothing. Stems are the beginnings of its words.
	linked, open bool
	stems        map[string]bool
}

type teller struct {
	lang  string
	steps []tale
	// group are the steps that were told last and run beside each other.
	group []int
	// connected counts sentences with a word of order, thesis those that list arguments, past those about what is over.
	connected, thesis, past int
	unsure                  bool
	// idle are sentences without a word of order before the first step, skipped those behind it.
	idle, skipped []form.Sentence
}

// part is a part of a sentence that may be a step, with what its words of order are.
type part struct {
	text            string
	off             int
	condition, main string
	kinds           lexicon.Kinds
	tones           tone
	beside          bool
}

// sentence reads one sentence.
func (t *teller) sentence(s *form.Sentence, n int) {
	parts := t.parts(s)
	for k := range parts {
		if parts[k].condition == "" && parts[k].tones&tonePast != 0 && parts[k].tones&toneFree == 0 {
			t.past++
			break
		}
	}
	said := false
	for k := range parts {
		p := &parts[k]
		ordered := k+1 < len(parts) && parts[k+1].beside || p.kinds&lexicon.KindsOf(lexicon.First, lexicon.Then, lexicon.Last, lexicon.Meanwhile) != 0 || p.condition != "" || p.tones&toneFree != 0 || p.beside || len(t.enumerated(p)) > 1
		if !ordered && !said {
			continue
		}
		if !ordered && len(strings.Fields(p.text)) < 3 && t.spaced() {
			continue
		}
		if !said {
			t.connected++
			if len(t.steps) == 0 && !p.kinds.Has(lexicon.First) && len(t.idle) > 0 {
				i := t.idle[len(t.idle)-1]
				t.idle = t.idle[:len(t.idle)-1]
				t.step(part{text: i.Text, off: i.Off}, nil, false)
			}
		}
		said = true
		t.tell(p)
	}
	if !said {
		if len(t.steps) == 0 {
			t.idle = append(t.idle, *s)
		} else {
			t.skipped = append(t.skipped, *s)
		}
	}
}

func (t *teller) spaced() bool { return t.lang != "zh" && t.lang != "ja" }

// thesisWords follow a word of order where arguments are told rather than steps.
var thesisWords = map[string]bool{"que": true, "that": true, "dass": true, "che": true, "что": true, "що": true, "że": true, "att": true, "dat": true, "bahwa": true, "rằng": true}

// parts splits a sentence into what may be steps of their own.
func (t *teller) parts(s *form.Sentence) (out []part) {
	var cur part
	var condition, main strings.Builder
	during := false
	begin := func() {
		cur = part{}
		condition.Reset()
		main.Reset()
	}
	flush := func() {
		if cur.text = strings.TrimSpace(cur.text); cur.text != "" {
			cur.condition, cur.main = condition.String(), main.String()
			out = append(out, cur)
		}
		begin()
	}
	for k, c := range s.Clauses {
		end := s.Off + len(s.Text)
		if k+1 < len(s.Clauses) {
			end = s.Clauses[k+1].Off
		}
		whole := s.Text[c.Off-s.Off : end-s.Off]
		for _, piece := range t.pieces(whole, c.Off) {
			kinds, tones, ahead, bare := t.words(piece.text)
			if f := strings.Fields(lexicon.Fold(piece.text)); len(f) > 0 && k > 0 && thesisWords[f[0]] && bareOrder(cur.text) {
				t.thesis++
			}
			piece.beside, during = piece.beside || during, t.endsWithWhile(piece.text)
			when := ahead&toneWhen != 0 || condition.Len() > 0 && main.Len() == 0 && k+1 < len(s.Clauses) && t.andLed(piece.text) && kinds == 0
			order := kinds & lexicon.KindsOf(lexicon.Then, lexicon.Last, lexicon.Meanwhile, lexicon.First)
			fresh := piece.beside || c.Sep == ';' || order != 0 || when && main.Len() > 0 && (k+1 < len(s.Clauses) || ahead&toneAdd != 0)
			if c.Sep == '(' || c.Sep == ')' {
				fresh = false
			}
			if andThen := order.Has(lexicon.Then) && condition.Len() > 30 && !correlative(piece.text); fresh && (andThen || main.Len() > 0 || condition.Len() > 0 && !when && c.Sep == ';') {
				flush()
			}
			if c.Sep == ':' && cur.kinds == 0 && condition.Len() == 0 && order != 0 {
				begin() // "I would do it like this: first …"
			}
			if cur.text == "" {
				cur.off = piece.off
			}
			cur.text = s.Text[cur.off-s.Off : piece.off+len(piece.text)-s.Off]
			cur.kinds |= kinds
			cur.tones |= tones
			cur.beside = cur.beside || piece.beside
			switch {
			case when:
				condition.WriteString(" " + piece.text)
				if k+1 == len(s.Clauses) || ahead&toneDone != 0 || len(strings.Fields(piece.text)) > 9 && t.spaced() {
					main.WriteString(" " + piece.text)
				}
			case !bare:
				main.WriteString(" " + piece.text)
			}
		}
	}
	flush()
	return out
}

func bareOrder(s string) bool { return len(s) < 100 && len(strings.Fields(s)) <= 4 }

type piece struct {
	text   string
	off    int
	beside bool
}

// pieces splits a clause before "and then", "while" and the like inside of it.
func (t *teller) pieces(s string, off int) (out []piece) {
	at, beside := 0, false
	cut := func(i int, b bool) {
		if i-at > 12 && len(strings.TrimRight(s, " ,"))-i > 12 {
			out = append(out, piece{s[at:i], off + at, beside})
			at, beside = i, b
		}
	}
	type mark struct {
		off    int
		beside bool
	}
	var marks []mark
	toks := lexicon.ScanIn(lexicon.Lang(t.lang), s)
	for k, tok := range toks {
		if tok.Kinds&lexicon.KindsOf(lexicon.Then, lexicon.Last, lexicon.Meanwhile) == 0 || tok.Is(lexicon.Needs) {
			continue
		}
		at := tok.Off
		if k > 0 && toks[k-1].Is(lexicon.And) && tok.Off-toks[k-1].End <= 2 {
			at = toks[k-1].Off
		} else if !tok.Is(lexicon.Meanwhile) && t.spaced() || len(strings.Fields(s[:tok.Off])) < 4 && t.spaced() {
			continue
		}
		if len(s)-tok.End < 9 {
			continue
		}
		marks = append(marks, mark{at, tok.Is(lexicon.Meanwhile)})
	}
	folded := lexicon.Fold(s)
	if len(folded) == len(s) {
		for _, h := range tonesIn(t.lang, folded) {
			if h.kind&toneWhile != 0 && h.off > 12 && !t.verbLast() {
				marks = append(marks, mark{h.off, true})
			}
		}
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.off - b.off })
	for _, m := range marks {
		cut(m.off, m.beside)
	}
	return append(out, piece{s[at:], off + at, beside})
}

// words returns the words of order in a piece, those of them that begin it, and whether it holds nothing else.
func (t *teller) words(s string) (kinds lexicon.Kinds, tones, ahead tone, bare bool) {
	n := 0
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s) {
		k := tok.Kinds & lexicon.KindsOf(lexicon.First, lexicon.Then, lexicon.Last, lexicon.Meanwhile, lexicon.Both, lexicon.All)
		if k != 0 {
			kinds |= k
			n += tok.End - tok.Off
		}
	}
	folded := lexicon.Fold(s)
	hits := tonesIn(t.lang, folded)
	done := -1 // the last place that says that something is ready
	for _, h := range hits {
		if h.kind&toneDone != 0 {
			done = h.off
		}
	}
	for _, h := range hits {
		tones |= h.kind
		switch {
		case h.off > len(folded)/2:
		case h.kind&toneThence != 0:
			n += h.end - h.off
			kinds |= lexicon.KindsOf(lexicon.Then)
		case h.kind&toneStart != 0:
			kinds |= lexicon.KindsOf(lexicon.First)
		case h.kind&toneFinal != 0:
			kinds |= lexicon.KindsOf(lexicon.Last)
		}
		if h.kind&toneWhen == 0 {
			continue
		}
		before := wordsUpTo(folded[:h.off], 2)
		switch t.lang {
		case "tr", "ja", "ko", "hi":
			ahead |= toneWhen
			if utf8.RuneCountInString(folded[h.end:min(len(folded), h.end+24)]) > 4 {
				ahead |= toneDone // the condition and what follows stand in one
			}
		case "zh":
			if rest := strings.TrimRight(folded[h.end:], " ,，、。"); h.off < 12 || len(rest) < 12 && utf8.RuneCountInString(rest) < 3 {
				ahead |= toneWhen
			}
		default:
			if before <= 1 {
				ahead |= toneWhen
			} else if h.end-h.off > 3 && done >= h.end {
				ahead |= toneWhen | toneDone
			}
			if before == 1 || strings.HasPrefix(folded[h.off:], "و") && h.off == 0 {
				ahead |= toneAdd // "and after that"
			}
		}
	}
	letters := 0
	for _, r := range s {
		if unicode.IsLetter(r) {
			letters += utf8.RuneLen(r)
		}
	}
	return kinds, tones, ahead, letters-n < 6 && n > 0
}

// wordsUpTo counts the words of a text up to a number of them.
func wordsUpTo(s string, most int) (n int) {
	for range strings.FieldsSeq(s) {
		if n++; n == most {
			break
		}
	}
	return n
}

// correlative reports whether a clause begins with the "then" that only goes with the "when" before it.
func correlative(s string) bool {
	f := strings.Fields(lexicon.Fold(s))
	return len(f) > 0 && correlatives[strings.Trim(f[0], ",")]
}

var correlatives = map[string]bool{
	"then": true, "dann": true, "so": true, "alors": true, "entonces": true, "então": true, "allora": true, "dan": true, "då": true, "så": true,
	"wtedy": true, "to": true, "то": true, "тогда": true, "тоді": true, "maka": true, "thì": true, "barulah": true, "baru": true,
}

// andLed reports whether a clause begins with "and".
func (t *teller) andLed(s string) bool {
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s) {
		return tok.Off <= 1 && tok.Is(lexicon.And)
	}
	return false
}

// endsWithWhile reports whether a clause ends with a word such as "while".
func (t *teller) endsWithWhile(s string) bool {
	folded := strings.TrimRight(lexicon.Fold(s), " ,")
	for _, h := range tonesIn(t.lang, folded) {
		if h.kind&toneWhile != 0 && h.end == len(folded) && h.off > 0 && !t.verbLast() {
			return true
		}
	}
	return false
}

func (t *teller) verbLast() bool {
	return t.lang == "tr" || t.lang == "ja" || t.lang == "ko" || t.lang == "hi"
}

// tell adds the step of a part.
func (t *teller) tell(p *part) {
	if p.main == "" && p.condition == "" {
		return
	}
	var needs []int
	linked := true
	switch {
	case p.kinds.Has(lexicon.Last):
		needs = t.ends()
	case p.condition != "":
		needs = t.refersEach(p.condition)
		t.unsure = t.unsure || len(t.group) > 1 && !hasTone(t.lang, p.condition, toneTwo)
	case p.tones&toneFree != 0 && !p.kinds.Has(lexicon.Then):
		linked = false
	case p.kinds.Has(lexicon.Meanwhile) || p.beside:
		if len(t.steps) > 0 {
			needs = t.steps[len(t.steps)-1].needs
		}
	case p.kinds.Has(lexicon.First) && !p.kinds.Has(lexicon.Then):
		if len(t.steps) > 0 {
			needs = t.group
		}
	case p.kinds.Has(lexicon.Then):
		needs = slices.Clone(t.group)
	default:
		needs = t.refers(p.text)
		linked = false
		t.unsure = true
	}
	if list := t.enumerated(p); len(list) > 1 {
		if p.condition == "" && p.tones&toneFree == 0 {
			needs = slices.Clone(t.group)
		}
		t.unsure = true
		var group []int
		for _, l := range list {
			t.step(l, needs, linked)
			group = append(group, len(t.steps)-1)
		}
		t.group = group
		return
	}
	beside := (p.kinds.Has(lexicon.Meanwhile) || p.beside || p.tones&toneFree != 0) && p.condition == ""
	group := t.group
	t.step(*p, needs, linked)
	if beside {
		t.group = append(slices.Clone(group), len(t.steps)-1)
	}
}

func (t *teller) step(p part, needs []int, linked bool) {
	s := tale{text: strings.Join(strings.Fields(p.text), " "), off: p.off, end: p.off + len(p.text), needs: needs, linked: linked}
	s.open = p.tones&toneFree != 0
	s.stems = stems(p.text)
	t.steps = append(t.steps, s)
	t.group = []int{len(t.steps) - 1}
}

// enumerated splits "two things: a, and b" into as many steps as the text says.
func (t *teller) enumerated(p *part) (out []part) {
	count, at := 0, 0
	for i, r := range p.text {
		if unicode.IsLetter(r) || unicode.IsMark(r) {
			continue
		}
		if at < i {
			if n, ok := lexicon.Number(p.text[at:i]); ok && n > 1 && n < 7 && count == 0 {
				count = n
			}
		}
		at = i + utf8.RuneLen(r)
		if count > 0 && strings.ContainsRune(":：,", r) {
			break
		}
	}
	if count == 0 || at == 0 || at >= len(p.text) {
		return nil
	}
	if c := p.text[at-1]; c != ':' && c != ',' && c < utf8.RuneSelf {
		return nil
	}
	rest := p.text[at:]
	start := 0
	add := func(to, next int) {
		if s := strings.Trim(rest[start:to], " ,;.，、"); s != "" {
			out = append(out, part{text: s, off: p.off + at + start, tones: p.tones})
		}
		start = next
	}
	ands := map[int]int{}
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), rest) {
		if tok.Is(lexicon.And) {
			ands[tok.Off] = tok.End
		}
	}
	for i, r := range rest {
		if i < start {
			continue
		}
		if end, ok := ands[i]; ok {
			add(i, end)
		} else if strings.ContainsRune(",;，、；،", r) {
			add(i, i+utf8.RuneLen(r))
		}
	}
	add(len(rest), len(rest))
	if len(out) != count {
		t.unsure = true
		return nil
	}
	return out
}

// ends returns the steps for which no other one waits.
func (t *teller) ends() (out []int) {
	waited := map[int]bool{}
	for i := range t.steps {
		for _, n := range t.steps[i].needs {
			waited[n] = true
		}
	}
	for i := range t.steps {
		if !waited[i] {
			out = append(out, i)
		}
	}
	return out
}

// refersEach returns the steps that a condition is about; each part of it between "and" is about its own.
func (t *teller) refersEach(s string) (out []int) {
	var parts []string
	at := 0
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s) {
		if tok.Is(lexicon.And) && len(strings.TrimSpace(s[at:tok.Off])) > 8 {
			parts = append(parts, s[at:tok.Off])
			at = tok.End
		}
	}
	parts = append(parts, s[at:])
	if len(parts) == 1 || hasTone(t.lang, s, toneTwo) {
		return t.refers(s)
	}
	hit := false
	for _, p := range parts {
		before := t.unsure
		t.unsure = false
		for _, i := range t.refers(p) {
			if !slices.Contains(out, i) {
				out = append(out, i)
			}
		}
		hit = hit || t.unsure
		t.unsure = t.unsure || before
	}
	t.unsure = true
	if e := t.ends(); !hit && len(e) >= len(parts) {
		return e[len(e)-len(parts):]
	}
	slices.Sort(out)
	return out
}

// refers returns the steps that a condition is about: both or all, those whose words it uses, or else the last ones.
func (t *teller) refers(s string) []int {
	n := len(t.steps)
	if n == 0 {
		return nil
	}
	count := 0
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s) {
		if tok.Is(lexicon.All) && !tok.Is(lexicon.Previous) {
			return t.ends()
		}
	}
	if hasTone(t.lang, s, toneTwo) {
		count = 2
	}
	for _, w := range strings.FieldsFunc(lexicon.Fold(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		if k, ok := lexicon.Number(w); ok && k > 2 && k < 6 && count == 0 && len(w) > 2 {
			count = k
		}
	}
	if count > 0 {
		if e := t.ends(); len(e) >= count {
			return e[len(e)-count:]
		}
		return span(max(0, n-count), n)
	}
	mine := stems(s)
	var hits []int
	used := map[string]bool{}
	for i := n - 1; i >= 0; i-- {
		for w := range t.steps[i].stems {
			if mine[w] && !used[w] {
				if !slices.Contains(hits, i) {
					hits = append(hits, i)
				}
				used[w] = true
			}
		}
	}
	if len(hits) == 0 {
		return slices.Clone(t.group)
	}
	t.unsure = true
	slices.Sort(hits)
	return t.latest(hits)
}

// latest drops the steps that others of the list wait for.
func (t *teller) latest(list []int) (out []int) {
	above := map[int]bool{}
	for _, i := range list {
		for _, n := range t.steps[i].needs {
			above[n] = true
		}
	}
	for _, i := range list {
		if !above[i] {
			out = append(out, i)
		}
	}
	return out
}

func span(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// stems returns the beginnings of the longer words of a text, of scripts without spaces pairs of signs.
func stems(s string) map[string]bool {
	out := map[string]bool{}
	var prev rune
	for _, r := range s {
		if r >= 0x4E00 && r <= 0x9FFF && prev >= 0x4E00 && prev <= 0x9FFF {
			out[string([]rune{prev, r})] = true
		}
		prev = r
	}
	for k, w := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		rs := []rune(lexicon.Fold(w))
		upper := k > 0 && unicode.IsUpper([]rune(w)[0])
		switch {
		case len(rs) == 0: // signs that are left out of folded words
		case rs[0] >= 0xAC00 && rs[0] <= 0xD7A3:
			if len(rs) > 1 {
				out[string(rs[:2])] = true
			}
		case rs[0] >= 0x3040:
		case len(rs) > 5 || upper && len(rs) > 2:
			out[string(rs[:min(len(rs), 5)])] = true
		}
	}
	for w := range out {
		if lexicon.Is(lexicon.Then, w) || stopStems[w] {
			delete(out, w)
		}
	}
	return out
}

// stopStems begin words of order and other words that name nothing.
var stopStems = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields("after befor finis ready compl start begin anoth other their there where while which these those until needs " +
		"werde würde könne müsse sobal nachd danac ansch währe schli erled ferti beide arbei lorsq ensui termi despu cuand mient estén listo depoi quand " +
		"enqua pront conte dopo mentre prima потом после когда закон готов щойно далі тільк potem kiedy gotow zakoń sonra önce bitin hazır setel selesa " +
		"عندما ذلك once then both with from when that this first next the and und der die das wir les des los las gli sie") {
		m[w] = true
	}
	return m
}()

// reading makes a reading of the steps, when they are told as a plan.
func (t *teller) reading(sentences []form.Sentence) []*Reading {
	n := len(t.steps)
	questions, linked := 0, 0
	for _, s := range sentences {
		if s.Question {
			questions++
		}
	}
	for i := range t.steps {
		if t.steps[i].linked {
			linked++
		}
	}
	if n < 3 || t.thesis > 0 || questions*3 > len(sentences) || linked < 2 || t.connected*2 < len(sentences) && t.connected < 3 {
		return nil
	}
	r := &Reading{Form: "prose", Stated: true, Start: t.steps[0].off, End: t.steps[n-1].end}
	for i := range t.steps {
		s := &t.steps[i]
		r.Items = append(r.Items, Item{ID: strconv.Itoa(i + 1), Title: s.text, Parent: -1, Off: s.off, End: s.end})
		for _, k := range s.needs {
			r.Links = append(r.Links, Link{From: strconv.Itoa(k + 1), To: strconv.Itoa(i + 1), Source: Prose, Off: s.off})
		}
	}
	r.Weight = 45 + 20*linked/n
	if t.past*2 > len(sentences) {
		r.Weight -= 35
	}
	r.Evidence = append(r.Evidence, "words of order in running text")
	if t.unsure || n > linked+1 || len(t.skipped) > 0 {
		for i := range r.Items[:min(n, maxDoubts)] {
			t.doubt(r, r.Items[i].ID, "this step, and what it waits for, were read from running text and may mean something else: "+r.Items[i].Title, r.Items[i].Off)
		}
	}
	if last := sentences[len(sentences)-1]; t.cutOff(last.Text) {
		r.Notes = append(r.Notes, Note{Fault: true, Code: "TRUNCATED", Element: r.Items[n-1].ID, Off: last.Off + len(last.Text), Message: "the text ends in the middle of a sentence: " + form.Clip(last.Text), Hint: "ask for the rest of the plan"})
	}
	for _, s := range append(t.idle, t.skipped...) {
		t.doubt(r, form.Clip(s.Text), "this sentence was read as no step: "+s.Text, s.Off)
	}
	return []*Reading{r}
}

// cutOff reports whether a sentence ends with a word that never ends one: "only when the".
func (t *teller) cutOff(s string) bool {
	s = strings.TrimRight(s, " \n")
	last := s[strings.LastIndexAny(s, " \n")+1:]
	if r, _ := utf8.DecodeLastRuneInString(s); r == ',' || !unicode.IsLetter(r) {
		return r == ','
	}
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s[max(0, len(s)-maxTone):]) {
		if tok.End == min(len(s), maxTone) && (tok.Is(lexicon.And) || tok.Is(lexicon.Sources) || tok.Kinds&lexicon.Relations != 0 && tok.Side == lexicon.Ahead) && t.spaced() && !t.verbLast() {
			return true
		}
	}
	return hasTone(t.lang, last, toneArticle)
}

func (t *teller) doubt(r *Reading, element, message string, off int) {
	if len(r.Notes) < maxDoubts {
		r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: element, Message: message, Off: off, Hint: "ask for a list that says what each step waits for"})
	}
}
