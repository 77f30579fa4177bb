package meaning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// orderSign is a phrase of order in running text. opens is set if it may begin a clause, as "once" does.
type orderSign struct {
	off, end int
	kinds    lexicon.Kinds
	tone     tone
	opens    bool
	// behind is set if its object stands before it: "2の後".
	behind bool
}

var (
	adverbs    = lexicon.KindsOf(lexicon.First, lexicon.Then, lexicon.Last, lexicon.Meanwhile)
	orderKinds = adverbs | lexicon.KindsOf(lexicon.Both, lexicon.All, lexicon.None, lexicon.Needs, lexicon.Before, lexicon.Beside, lexicon.Apart, lexicon.And, lexicon.Not, lexicon.Until)
)

const orderTones = toneWhen | toneFree | toneWhile | toneTwo | toneThence | toneStart | toneAhead

// signs finds the phrases of order in a text. If phrases overlap, the first and longest one counts.
func (t *proseReader) signs(s string) []orderSign {
	var all []orderSign
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s) {
		if k := tok.Kinds & orderKinds; k != 0 && strings.IndexFunc(tok.Phrase, unicode.IsLetter) >= 0 {
			if strings.HasSuffix(tok.Phrase, ":") && tok.Is(lexicon.Before) {
				k = lexicon.KindsOf(lexicon.Then) // for example "Next: …"
			}
			all = append(all, orderSign{off: tok.Off, end: tok.End, kinds: k, opens: tok.Opens, behind: tok.Side == lexicon.Behind})
		}
	}
	text, place := lexicon.FoldPlaces(s)
	for _, h := range tonesIn(t.lang, text) {
		if k := h.kind & orderTones; k != 0 {
			all = append(all, orderSign{off: place(h.off), end: place(h.end), tone: k})
		}
	}
	slices.SortStableFunc(all, func(a, b orderSign) int {
		if a.off != b.off {
			return a.off - b.off
		}
		return b.end - a.end
	})
	out := all[:0]
	for _, g := range all {
		if n := len(out); n > 0 && g.off < out[n-1].end {
			if last := &out[n-1]; g.off == last.off && g.end == last.end {
				last.kinds, last.tone, last.opens, last.behind = last.kinds|g.kinds, last.tone|g.tone, last.opens || g.opens, last.behind || g.behind
			}
			continue
		}
		out = append(out, g)
	}
	for k := range out {
		if g := &out[k]; g.kinds&adverbs != 0 && t.adjective(s, g) {
			g.kinds &^= adverbs
		}
	}
	return out
}

// ahead returns the end of the text before an offset, as far as words of order may reach.
func ahead(s string, at int) string {
	from := max(0, at-maxRest/4)
	for from > 0 && from < at && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:at]
}

// wordsUpTo counts the words of a text, up to most.
func wordsUpTo(s string, most int) (n int) {
	for range strings.FieldsSeq(s) {
		if n++; n == most {
			break
		}
	}
	return n
}

// adjective reports whether a word of order only describes a thing or a time: "the first round", "next week".
func (t *proseReader) adjective(s string, g *orderSign) bool {
	if !t.spaced() || strings.Contains(s[g.off:g.end], " ") {
		return false
	}
	before := strings.Fields(ahead(s, g.off))
	if n := len(before); n > 0 && hasTone(t.lang, before[n-1], toneArticle) {
		return true
	}
	after := strings.Fields(s[g.end:min(len(s), g.end+maxTone)])
	return len(after) > 0 && lexicon.Is(lexicon.Units, strings.Trim(after[0], ",.;:")) && g.kinds.Has(lexicon.Then)
}

// condition is a condition that a step waits for, or comes before.
type condition struct {
	kind Kind
	text string
	// off is its offset. loose is set if it counts only when it names a step.
	off   int
	loose bool
}

// unit is a part of a sentence that may be a step, with its words of order.
type unit struct {
	text     string // all of it
	main     string // without conditions
	mains    []string
	off, end int
	kinds    lexicon.Kinds
	free     bool
	parallel bool
	conds    []condition
	// trails is set if there is more text behind the step that was not understood.
	trails bool
}

// ordered reports whether a word states the position of the unit in the order.
func (u *unit) ordered() bool {
	return u.kinds != 0 || len(u.conds) > 0 && slices.ContainsFunc(u.conds, func(c condition) bool { return !c.loose }) || u.free || u.parallel
}

// units splits a sentence into parts that may be steps.
func (t *proseReader) units(s *form.Sentence) (out []unit) {
	var cur unit
	flush := func() {
		if t.letters(cur.text) > 0 {
			cur.text = strings.TrimSpace(cur.text)
			cur.main = strings.Join(cur.mains, "")
			out = append(out, cur)
		}
		cur = unit{}
	}
	open, at := 0, s.Off // open brackets up to offset at
	for k, c := range s.Clauses {
		end := s.Off + len(s.Text)
		part := s.Text[at-s.Off : c.Off-s.Off]
		open, at = open+strings.Count(part, "(")-strings.Count(part, ")"), c.Off
		last := k+1 == len(s.Clauses)
		if !last {
			end = s.Clauses[k+1].Off
		}
		for _, piece := range t.pieces(s.Text[c.Off-s.Off:end-s.Off], c.Off) {
			u := t.read(piece, last, len(cur.mains) > 0)
			if theses[firstWord(lexicon.Fold(strings.TrimLeft(piece.text, " ")))] && k > 0 && wordsUpTo(cur.text, 5) <= 4 {
				t.theses++
			}
			if len(cur.mains) == 0 && len(cur.conds) > 0 && (u.kinds != 0 || len(u.conds) > 0) && !correlative(piece.text) && t.letters(u.text) > 5 && (t.ands(piece.text) || wordsUpTo(cur.text, 10) > 9 && t.spaced()) {
				cur.mains = []string{cur.text} // for example "After the rain we plant the trees, and then …"
			}
			leads := len(u.conds) > 0 && !u.conds[0].loose && (u.main == "" && !last || t.added(piece.text) || last && u.main != u.text && u.main != "")
			fresh := u.parallel || c.Sep == ';' || u.kinds&^lexicon.KindsOf(lexicon.First) != 0 || u.kinds != 0 && (cur.ordered() || c.Sep == ':') || u.free && t.andLed(piece.text) || leads
			if c.Sep == '(' || c.Sep == ')' {
				fresh = false
			}
			switch {
			case fresh && len(cur.mains) > 0:
				if c.Sep == ':' && !cur.ordered() && len(out) == 0 && (u.ordered() || len(t.steps) == 0) {
					t.intro = cur.text
					cur = unit{} // for example "I would do it like this: first …"
				}
				flush()
			case len(cur.conds) > 0 && len(cur.mains) == 0 && u.kinds.Has(lexicon.Then) && correlative(piece.text):
				u.kinds &^= lexicon.KindsOf(lexicon.Then)
			}
			if cur.text == "" {
				cur.off = piece.off
			}
			cur.end = piece.off + len(piece.text)
			cur.text = s.Text[cur.off-s.Off : cur.end-s.Off]
			cur.kinds |= u.kinds
			remark := open > 0 && !u.ordered() // for example "first dig (Ann, 2h)"
			cur.trails = cur.trails || len(cur.mains) > 0 && !remark && t.letters(u.main) > 0
			cur.free, cur.parallel = cur.free || u.free, cur.parallel || u.parallel
			cur.conds = append(cur.conds, u.conds...)
			if strings.TrimSpace(u.main) != "" {
				cur.mains = append(cur.mains, u.main)
			}
		}
	}
	flush()
	return out
}

// read reads the words of order of a piece. last is set if the piece ends the sentence, behind if the piece
// follows a step.
func (t *proseReader) read(p piece, last, behind bool) unit {
	u := unit{text: p.text, off: p.off, end: p.off + len(p.text), parallel: p.parallel}
	signs := t.signs(p.text)
	if behind && len(signs) > 0 && signs[0].tone&toneWhile != 0 && t.letters(ahead(p.text, signs[0].off)) == 0 && !verbLast(t.lang) {
		u.parallel = true // for example "…, while she paints the doors"
		signs = signs[1:]
	}
	from, to := t.condition(p.text, signs, last, &u)
	for _, g := range signs {
		if g.off >= from && g.off < to {
			continue
		}
		u.kinds |= g.kinds & adverbs
		switch {
		case g.tone&toneThence != 0:
			u.kinds |= lexicon.KindsOf(lexicon.Then)
		case g.tone&toneStart != 0 && (t.spaced() || t.letters(p.text[:g.off]) == 0):
			u.kinds |= lexicon.KindsOf(lexicon.First)
		}
		u.free = u.free || g.tone&toneFree != 0
		if g.kinds.Has(lexicon.Apart) || g.kinds.Has(lexicon.None) && strings.Contains(p.text[g.off:g.end], " ") {
			if i, _ := t.found(p.text[g.end:]); i < 0 {
				u.free = true
			}
		}
	}
	rest, at := 0, 0
	for _, g := range signs {
		if g.kinds&adverbs != 0 || g.tone&(toneThence|toneStart|toneWhile) != 0 || g.tone&toneFree != 0 {
			rest += t.letters(p.text[at:max(at, g.off)])
			at = max(at, g.end)
		}
	}
	rest += t.letters(p.text[at:])
	switch {
	case from == 0 && to == len(p.text): // only a condition
	case len(u.conds) > 0 && from > 0 && to == len(p.text):
		u.main = p.text[:from]
	case len(u.conds) > 0 && to < len(p.text):
		u.main = p.text[to:]
	case rest < 2 && u.kinds != 0 || rest == 0: // only words of order
	default:
		u.main = p.text
	}
	if len(u.conds) > 0 && last && u.main == "" {
		u.main = p.text // for example "After the rain we plant the trees."
	}
	return u
}

// letters counts the letters of all words but common ones.
func (t *proseReader) letters(s string) (n int) {
	for _, w := range strings.FieldsFunc(lexicon.Fold(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		if !lexicon.IsCommon(lexicon.Lang(t.lang), w) {
			n += utf8.RuneCountInString(w)
		}
	}
	return n
}

// condition finds the condition in a piece, adds it to u and returns its extent, which is empty if there is
// none.
func (t *proseReader) condition(s string, signs []orderSign, last bool, u *unit) (from, to int) {
	add := func(kind Kind, from, to, end int, loose bool) (int, int) {
		u.conds = append(u.conds, condition{kind: kind, text: s[from:to], off: u.off + from, loose: loose})
		return from, end
	}
	if verbLast(t.lang) || !t.spaced() {
		for k := len(signs) - 1; k >= 0; k-- {
			g := &signs[k]
			if g.tone&toneWhen == 0 && !(g.kinds.Has(lexicon.Needs) && (g.behind || g.kinds&adverbs == 0 && t.weighs(s[g.end:]))) {
				continue
			}
			if !verbLast(t.lang) && g.off < 6 {
				end := len(s)
				for _, h := range signs[k+1:] {
					if h.tone&toneWhen != 0 {
						end = h.end
					}
				}
				if end == len(s) && last {
					continue
				}
				return add(Needs, 0, end, end, false)
			}
			if len(strings.TrimSpace(ahead(s, g.off))) > 3 {
				return add(Needs, 0, g.end, g.end, false)
			}
		}
		return 0, 0
	}
	words := 0
	at := 0
	for k := range signs {
		g := &signs[k]
		if g.off < at {
			continue
		}
		words += wordsUpTo(s[at:g.off], 9)
		light := words <= 1 || words < 9 && t.letters(ahead(s, g.off)) == 0
		kind, ok := t.relation(s, g)
		switch {
		case !ok:
			if g.kinds&adverbs == 0 && g.kinds&lexicon.KindsOf(lexicon.And) == 0 {
				words += len(strings.Fields(s[g.off:g.end]))
			}
			at = g.end
			continue
		case light && g.tone&toneWhen == 0 && kind == Needs && !g.opens && !t.conjoins(s[g.off:g.end]) && t.pronoun(s[g.end:]) == 0:
			// "Depends on the weather" begins no clause.
		case light:
			if n := t.pronoun(s[g.end:]); n > 0 && last && t.weighs(s[g.end+n:]) {
				return add(kind, g.off, g.end+n, g.end+n, false) // "and after that we plant the trees"
			}
			return add(kind, g.off, len(s), len(s), false)
		case g.kinds&lexicon.Relations != 0 && kind != Apart:
			return add(kind, g.off, len(s), len(s), true)
		}
		words += len(strings.Fields(s[g.off:g.end]))
		at = g.end
	}
	return 0, 0
}

// conjoins reports whether a phrase of several words begins with a conjunction: "khi đã có".
func (t *proseReader) conjoins(s string) bool {
	first, _, more := strings.Cut(s, " ")
	return more && hasTone(t.lang, first, toneWhen)
}

// relation returns the relation that a phrase states.
func (t *proseReader) relation(s string, g *orderSign) (Kind, bool) {
	next := strings.TrimLeft(s[g.end:], " ")
	before := g.tone&toneWhen != 0 && g.kinds&adverbs == lexicon.KindsOf(lexicon.Then) && next != "" && !strings.ContainsAny(next[:1], ",.:;")
	switch {
	case before: // "Après le tri …" is a relation, "Après, …" is not
		g.kinds &^= adverbs
		return Needs, true
	case g.kinds&adverbs != 0 || g.tone&(toneThence|toneStart) != 0:
		return 0, false
	case g.tone&toneAhead != 0:
		return Before, true
	case g.tone&toneWhen != 0 || g.kinds.Has(lexicon.Needs):
		return Needs, true
	case g.kinds.Has(lexicon.Before):
		return Before, true
	case g.kinds.Has(lexicon.Beside):
		return Beside, true
	}
	return 0, false
}

func (t *proseReader) spaced() bool { return lexicon.Lang(t.lang).Spaced() }

// theses introduce an argument behind a word of order: "d'abord, que la langue change".
var theses = wordsOf("theses")

type piece struct {
	text     string
	off      int
	parallel bool
}

// pieces splits a clause before phrases such as "and then" and "while" in it.
func (t *proseReader) pieces(s string, off int) (out []piece) {
	at, beside := 0, false
	cut := func(i int, b bool) {
		if t.weighs(s[at:i]) && t.weighs(s[i:]) {
			out = append(out, piece{s[at:i], off + at, beside})
			at, beside = i, b
		}
	}
	signs := t.signs(s)
	for k, g := range signs {
		meanwhile := g.kinds.Has(lexicon.Meanwhile) || g.tone&toneWhile != 0 && !verbLast(t.lang)
		then := g.kinds&lexicon.KindsOf(lexicon.Then, lexicon.Last) != 0 && !g.kinds.Has(lexicon.Needs)
		if kind, ok := t.relation(s, &g); ok && (kind == Needs || kind == Before) && t.pronoun(s[g.end:]) > 0 {
			then = true // for example "… and only after that …"
		}
		switch {
		case !meanwhile && !then:
		case k > 0 && signs[k-1].kinds.Has(lexicon.And) && t.near(s[signs[k-1].end:g.off]):
			cut(signs[k-1].off, meanwhile)
		case then && t.andLed(s[g.off:g.end]):
			cut(g.off, meanwhile)
		case meanwhile && g.tone&toneWhile != 0:
			cut(g.off, true)
		case !t.spaced() && g.tone&toneWhen == 0:
			cut(g.off, meanwhile)
		}
	}
	return append(out, piece{s[at:], off + at, beside})
}

// near reports whether there are at most two words, such as "only", between "and" and a word of order.
func (t *proseReader) near(s string) bool {
	return len(strings.Fields(s)) <= 2 && !strings.ContainsAny(s, ",;:")
}

// pronoun returns the length of the pronoun at the beginning of a text, including leading spaces, or 0.
func (t *proseReader) pronoun(s string) int {
	text, place := lexicon.FoldPlaces(s[:min(len(s), maxTone)])
	for _, h := range tonesIn(t.lang, text) {
		if h.kind&(tonePronoun|toneTwo) != 0 && strings.TrimSpace(text[:h.off]) == "" {
			return place(h.end)
		}
	}
	trimmed := strings.TrimLeft(text, " ")
	end := strings.IndexFunc(trimmed, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 {
		end = len(trimmed)
	}
	if end > 0 && backPronouns[t.lang][trimmed[:end]] {
		return place(len(text) - len(trimmed) + end)
	}
	return 0
}

// backPronouns refer to earlier steps, in addition to the pronouns of corrections.
var backPronouns = wordsByLanguage("pronouns")

// weighs reports whether a text is long enough for a step.
func (t *proseReader) weighs(s string) bool {
	if !t.spaced() || t.lang == "ko" {
		return utf8.RuneCountInString(strings.Trim(s, " ,，、。.")) >= 4
	}
	return len(strings.Fields(s)) > 1 && len(strings.TrimRight(s, " ,.")) > 7
}

// correlative reports whether a clause begins with a "then" that belongs to the "when" before it.
func correlative(s string) bool {
	f := strings.Fields(lexicon.Fold(s))
	return len(f) > 0 && correlatives[strings.Trim(f[0], ",")]
}

// correlatives belong to the word of a condition before them.
var correlatives = wordsOf("correlatives")

// ands reports whether a clause begins with "and" or another word that adds a step.
func (t *proseReader) ands(s string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(s, " "), " ")
	return t.andLed(s) || strings.HasPrefix(s, "و") || lexicon.Is(lexicon.And, first)
}

// andLed reports whether a clause begins with "and".
func (t *proseReader) andLed(s string) bool {
	for _, tok := range lexicon.ScanIn(lexicon.Lang(t.lang), s) {
		return tok.Off <= 1 && tok.Is(lexicon.And)
	}
	return false
}

// added reports whether a condition begins with "and", so that another step follows it.
func (t *proseReader) added(s string) bool {
	return t.ands(s) && (len(strings.Fields(s)) > 3 || !t.spaced())
}

// enumerated splits "two things: a, and b" into the number of steps that the text states, or returns nil.
func (t *proseReader) enumerated(u *unit) (out []unit) {
	count, at := 0, -1
	s := u.text
	start := 0
	for i, r := range s {
		if strings.ContainsRune(":：", r) {
			at = i + utf8.RuneLen(r)
			break
		}
		if unicode.IsLetter(r) || unicode.IsMark(r) {
			if t.spaced() {
				continue
			}
			if n, ok := lexicon.Number(string(r)); ok && n > 1 && n < 7 && count == 0 {
				count = n
			}
			continue
		}
		if n, ok := lexicon.Number(s[start:i]); ok && n > 1 && n < 7 && count == 0 {
			count = n
		}
		start = i + utf8.RuneLen(r)
		if count > 0 && r == ',' && at < 0 {
			at = start
			break
		}
	}
	if at < 0 && count == 0 && u.kinds&adverbs == lexicon.KindsOf(lexicon.Meanwhile) && len(u.conds) == 0 && t.spaced() {
		return t.abreast(u)
	}
	if at < 0 || at >= len(s) || count == 0 && !u.kinds.Has(lexicon.Meanwhile) && !u.free {
		return nil
	}
	rest := s[at:]
	start = 0
	add := func(to, next int) {
		if x := strings.Trim(rest[start:to], " ,;.，、。"); x != "" {
			lead := len(rest[start:to]) - len(strings.TrimLeft(rest[start:to], " ,;，、"))
			out = append(out, unit{text: x, main: x, off: u.off + at + start + lead, end: u.off + at + start + lead + len(x), free: u.free})
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
	if count > 0 && len(out) != count || len(out) < 2 {
		return nil
	}
	return out
}

// abreast splits parallel steps at the "and" between them: "Getting the loan and settling the boundary can
// run side by side."
func (t *proseReader) abreast(u *unit) []unit {
	signs := t.signs(u.text)
	n := len(signs)
	if n < 2 || !signs[n-1].kinds.Has(lexicon.Meanwhile) || t.weighs(u.text[signs[n-1].end:]) {
		return nil
	}
	at := -1
	for _, g := range signs[:n-1] {
		if g.kinds.Has(lexicon.And) {
			if at >= 0 {
				return nil
			}
			at = g.end
			if !t.weighs(u.text[:g.off]) || !t.weighs(u.text[g.end:signs[n-1].off]) {
				return nil
			}
		}
	}
	if at < 0 {
		return nil
	}
	first := unit{text: u.text[:at], main: u.text[:at], off: u.off, end: u.off + at}
	return []unit{first, {text: u.text[at:], main: u.text[at:], off: u.off + at, end: u.end}}
}
