package meaning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// listing is a list, or an outline, with what stands around it.
type listing struct {
	// Lang is the language of the text, Headings the headings above and in the list, Intro the line before it
	// and Outro what follows.
	Lang         string
	Headings     []string
	Intro, Outro string
	// Entries are the texts of the entries, without what they say of other entries when that is known.
	Entries []string
	// Related is the number of entries that state a relation with another one. Boxes tells that they have
	// check boxes, Nouns that they are marked as steps ("Step 2", "T2").
	Related      int
	Boxes, Nouns bool
	// Checked tells that all its boxes are checked.
	Checked bool
	// Linked tells that something leads from one entry to another, even if only by a guess.
	Linked bool
	// langs are the languages of the entries: Lang, or those that they may be written in.
	langs []string
	// Spoken tells that they are counted as reasons in a speech are: "First, …", "Secondly, …".
	Spoken bool
	// looks remembers what entries look like.
	looks map[string]entryCounts
}

// scoreNoPlan is the score from which a listing is no plan.
const scoreNoPlan = 4

// notPlan weighs the evidence that a list is no plan: above 0 against a plan, below 0 for one, with the
// reasons.
func notPlan(l *listing) (score int, why []string) {
	say := func(n int, reason string) {
		if n != 0 {
			score += n
			why = append(why, reason)
		}
	}
	all := strings.Join(slices.Concat([]string{l.Intro, l.Outro}, l.Headings, l.Entries), "\n")
	if l.Lang == "" {
		l.Lang = language(all)
	}
	l.langs = languagesOf(l.Lang, all)
	head, versions, laws := 0, b2i(version(l.Intro)), b2i(legal(l.Lang, l.Intro))
	for _, h := range l.Headings {
		head += announces(l.Lang, h, true)
		versions += b2i(version(h))
		laws += b2i(legal(l.Lang, h))
	}
	say(6*max(-1, min(1, head)), "what its heading announces")
	if versions > 0 && head >= 0 {
		say(4, "it stands below a version")
	}
	if laws > 1 {
		say(8, "it stands in an article of a contract or a law")
	}
	intro := announces(l.Lang, l.Intro, false)
	if head == 0 || intro > 0 {
		say(5*intro, "what the line before it announces")
	}
	if refuses(l.Intro) || len(l.Headings) > 0 && refuses(l.Headings[0]) {
		say(6, "it comes with a refusal")
	}
	if word, _, _ := strings.Cut(l.Intro, " "); word == "def" || word == "func" || word == "function" || word == "fn" {
		say(8, "it is the body of a function")
	}
	if asks(l.Intro) {
		say(3, "the line before it asks")
	}
	n := len(l.Entries)
	if n == 0 {
		return score, why
	}
	var c entryCounts
	for _, e := range l.Entries {
		c.plus(l.look(e))
	}
	most := func(k int) bool { return k*2 > n || k*2 == n && n > 2 }
	switch {
	case most(c.questions):
		say(12, "its entries ask")
	case c.questions > 0:
		say(2, "an entry asks")
	}
	if most(c.money) {
		say(5, "its entries have prices or measures")
	}
	if most(c.years) {
		say(5, "its entries begin with years")
	}
	if most(c.links) {
		say(5, "its entries are links or contacts")
	}
	if most(c.speech) {
		say(3, "its entries are quotes or choices")
	}
	if most(c.code) {
		say(8, "its entries are expressions or commits")
	}
	if most(c.empty) && l.Related == 0 {
		say(8, "its entries say nothing")
	}
	told := n > 1 && c.told*5 >= n*3 && c.action*3 < n
	if told {
		say(7, "its entries tell how things are")
	}
	if short := most(c.short) && c.action*2 <= n && l.Related == 0; short && (asks(l.Intro) || strings.HasSuffix(strings.TrimRight(l.Intro, " *_"), " are:")) {
		say(4, "its entries are names")
	}
	if n > 1 && c.past*5 >= n*3 && !told {
		say(5, "its entries tell what is over")
	}
	if n > 1 && c.defined*5 >= n*4 && c.action*2 < n {
		say(2, "its entries explain words")
	}
	if most(c.other) {
		say(6, "its entries are heads of other lists")
	}
	switch {
	case most(c.action) && (intro <= 0 || c.defined*5 < n*4):
		say(-4, "its entries say what to do")
	case c.action*3 >= n && intro <= 0 && head <= 0 && !most(c.short):
		say(-2, "some entries say what to do")
	case !told && l.Related == 0 && !l.Linked && c.order == 0 && (c.action+c.deed)*3 < n+b2i(l.Checked)*n:
		say(4-2*b2i(l.Lang == ""), "its entries are names of things")
	}
	if l.Spoken && !most(c.action) && l.Related == 0 {
		say(6, "its entries are counted as reasons are")
	}
	if c.order > 0 {
		say(-min(3, c.order), "its entries have an order in words")
	}
	if l.Related*4 < n || most(c.code) {
		say(-min(l.Related, 3), "an entry names another")
	} else {
		say(-3*min(3, l.Related), "its entries name one another")
	}
	if l.Boxes && (!l.Checked || most(c.action)) {
		say(-3, "it has check boxes")
	}
	if l.Nouns {
		say(-4, "its entries are marked as steps")
	}
	return score, why
}

// judge lowers the weight of a reading by what speaks against its list being a plan.
func (r *Reading) judge(l *listing) {
	score, why := notPlan(l)
	switch {
	case score >= scoreNoPlan:
		r.Weight, r.Not = min(r.Weight, 20), "a list that is no plan: "+strings.Join(why, "; ")
	case score > 0:
		r.Weight -= 3 * score
	case len(l.Entries) == 1 && score == 0:
		r.Weight -= 5
	}
}

// announces tells whether a heading or an intro announces a list that is no plan (1), a plan (-1), or
// neither.
func announces(lang, s string, heading bool) int {
	if s == "" {
		return 0
	}
	if !heading {
		s = lastSentence(s)
	}
	words := len(strings.Fields(s))
	if words > 10 && (heading || !strings.ContainsAny(s[max(0, len(s)-4):], ":：")) {
		return 0
	}
	other, plan := false, false
	folded := strings.Trim(lexicon.Fold(s), " :：*_#")
	for _, h := range tonesIn(lang, folded) {
		other = other || h.kind&toneOther != 0 || h.kind&toneAlone != 0 && h.off == 0 && h.end == len(folded)
		plan = plan || h.kind&toneTodo != 0
	}
	for _, t := range lexicon.ScanIn(lexicon.Lang(lang), s) {
		other = other || t.Is(lexicon.List)
		plan = plan || t.Is(lexicon.Plan)
	}
	switch {
	case plan == other, plan && !heading && asks(s):
		return 0
	case plan:
		return -1
	}
	return 1
}

// lastSentence returns what a paragraph says last.
func lastSentence(s string) string {
	s = strings.TrimSpace(s)
	end := strings.TrimRight(s, ":：.!?。！？ *_")
	if i := strings.LastIndexAny(end, ".!?\n"); i >= 0 {
		return s[i+1:]
	}
	if i := strings.LastIndex(end, "。"); i >= 0 {
		return s[i+3:]
	}
	return s
}

// refuses reports whether a text begins with a refusal.
func refuses(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n\"'“#*>-`")
	for _, t := range lexicon.Scan(s[:min(len(s), 200)]) {
		if t.Is(lexicon.Refuse) {
			if t.Off < 3 {
				return true
			}
			break
		}
	}
	return hasTone("", opening(s), toneDecline)
}

// maxRefusal bounds the first sentences of a text, in bytes.
const maxRefusal = 300

// opening returns the first sentences of a text: those before its first list.
func opening(s string) string {
	s = strings.TrimSpace(s[:min(len(s), maxRefusal)])
	if i := strings.Index(s, "\n"); i >= 0 {
		s = s[:i]
	}
	return s
}

// legal reports whether a heading is that of a part of a law or a contract: "Article 3", "第三条".
func legal(lang, s string) bool {
	folded := strings.TrimLeft(lexicon.Fold(s), " *#")
	for _, h := range tonesIn(lang, folded) {
		if h.kind&toneLaw != 0 && h.off == 0 {
			rest := strings.TrimLeft(folded[h.end:], " .")
			return rest != "" && (rest[0] >= '0' && rest[0] <= '9' || strings.Trim(firstWord(rest), "ivx.:") == "")
		}
	}
	if strings.HasPrefix(folded, "第") || strings.HasPrefix(folded, "제") {
		for n, r := range folded {
			if r == '条' || r == '條' || r == '조' {
				return n > len("第")
			}
			if n > 12 {
				break
			}
		}
	}
	return false
}

// version reports whether a heading names a version: "## [1.2.0] - 2024-01-02", "v2.1".
func version(s string) bool {
	s = strings.TrimLeft(lexicon.Fold(s), "[ v")
	digits, dots := 0, 0
	for _, r := range s {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r == '.':
			dots++
		default:
			return dots > 0 && digits > dots && strings.ContainsRune("] (-–—:", r)
		}
	}
	return dots > 1 && digits > dots
}

// questionEnds are what ends a question without a question mark.
var questionEnds = [...]string{"か", "吗", "呢", "嗎"}

// asks reports whether a text is a question.
func asks(s string) bool {
	s = strings.TrimRight(s, " \t*_\"'”»」)）:")
	if strings.HasSuffix(s, "?") || strings.HasSuffix(s, "？") || strings.HasSuffix(s, "؟") {
		return true
	}
	s = strings.TrimRight(s, ".。")
	for _, e := range questionEnds {
		if strings.HasSuffix(s, e) {
			return true
		}
	}
	return strings.HasPrefix(s, "¿")
}

// entryCounts counts what the entries of a list look like.
type entryCounts struct {
	other, questions, money, years, links, speech, past, defined, action, deed, order, code, told, short, empty int
}

// plus adds what an entry looks like.
func (c *entryCounts) plus(e entryCounts) {
	c.other += e.other
	c.questions += e.questions
	c.money += e.money
	c.years += e.years
	c.links += e.links
	c.speech += e.speech
	c.past += e.past
	c.defined += e.defined
	c.action += e.action
	c.deed += e.deed
	c.order += e.order
	c.code += e.code
	c.told += e.told
	c.short += e.short
	c.empty += e.empty
}

// look returns what an entry looks like. Lists of one text have many entries in common.
func (l *listing) look(e string) (c entryCounts) {
	if c, ok := l.looks[e]; ok {
		return c
	}
	c.add(l.Lang, l.langs, e)
	if l.looks != nil {
		l.looks[e] = c
	}
	return c
}

func (c *entryCounts) add(lang string, langs []string, e string) {
	e = strings.TrimSpace(e)
	first := e
	if i := strings.IndexByte(e, '\n'); i >= 0 {
		first = strings.TrimSpace(e[:i])
	}
	folded := lexicon.Fold(first)
	count := func(n *int, ok bool) {
		if ok {
			*n++
		}
	}
	count(&c.other, len(strings.Fields(first)) <= 3 && announces(lang, first, true) > 0)
	count(&c.questions, asks(first) || strings.ContainsAny(first, "?？؟¿"))
	count(&c.money, priced(folded))
	count(&c.years, yearAhead(first))
	count(&c.links, contact(folded))
	count(&c.speech, strings.HasPrefix(first, "\"") || strings.HasPrefix(first, "“") || strings.HasPrefix(first, "«") || strings.HasPrefix(first, "„"))
	count(&c.defined, defines(first))
	code := computed(first)
	m := moodIn(langs, first)
	over := isDone(lang, first)
	if over && m == acting {
		m = noMood
	}
	count(&c.action, !code && m == acting)
	count(&c.deed, !code && m == deed)
	count(&c.told, m == told)
	count(&c.past, over || m != acting && hasTone(lang, first, tonePast))
	count(&c.code, code)
	count(&c.empty, first == "")
	count(&c.short, len(strings.Fields(first)) <= 2)
	ordered := false
	for _, t := range lexicon.ScanIn(lexicon.Lang(lang), first) {
		ordered = ordered || t.Kinds&lexicon.KindsOf(lexicon.Then, lexicon.First, lexicon.Last, lexicon.Meanwhile) != 0 && t.Off < 4
	}
	count(&c.order, ordered)
}

// measures are units of money and of kitchens; they stand behind a number.
var measures = setOf("€ $ £ ¥ ₺ ₽ ₹ ₩ zł kr usd eur gbp руб грн ريال tl元 円 원 元 g kg mg ml l cl dl oz lb lbs cup cups tbsp tsp " +
	"tablespoon tablespoons teaspoon teaspoons el tl esslöffel teelöffel prise pincée cucharada cucharadas colher colheres cucchiaio " +
	"г кг мл л шт gr gram gramm grammes克 毫升 克 グラム m² m2 °c % x ms kcal gb mb tb kb inç inch inches zoll pouces mah kw")

// priced reports whether a text names a price or an amount of something.
func priced(s string) bool {
	if strings.ContainsAny(s, "€£₺₽₹₩¥") {
		return true
	}
	if i := strings.IndexByte(s, '$'); i >= 0 && i+2 < len(s) && s[i+1] >= '0' && s[i+1] <= '9' && (s[i+2] >= '0' && s[i+2] <= '9' || s[i+2] == '.' || s[i+2] == ',') {
		return true
	}
	prev := ""
	for _, w := range strings.Fields(s) {
		w = strings.Trim(w, ".,;:()–-")
		if measures[w] && prev != "" && prev[0] >= '0' && prev[0] <= '9' {
			return true
		}
		prev = w
	}
	return false
}

// yearAhead reports whether a text begins with a year or a date.
func yearAhead(s string) bool {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n == 4 && (s[0] == '1' || s[0] == '2') && (len(s) == n || !unicode.IsLetter(rune(s[n])))
}

// contact reports whether a text is a link or an address of a person.
func contact(s string) bool {
	if strings.HasPrefix(s, "http") || strings.HasPrefix(s, "www.") || strings.HasPrefix(s, "(http") || strings.Contains(s, "](http") || strings.Contains(s, "doi.org") ||
		strings.Contains(s, "tel.") || strings.HasPrefix(s, "dr. ") || strings.HasPrefix(s, "prof. ") || strings.HasPrefix(s, "mr. ") {
		return true
	}
	digits, rest := 0, 0
	for _, r := range s {
		if unicode.IsDigit(r) || strings.ContainsRune(".,:;%-+> …", r) {
			digits++
		} else {
			rest++
		}
	}
	return rest == 0 && digits > 0 || strings.Contains(s, ".....")
}

// participle reports whether an English word is a participle that begins what was done: "Fixed a leak".
func participle(w string) bool {
	w = strings.TrimRight(w, ":")
	return len(w) > 4 && strings.HasSuffix(w, "ed") && !strings.HasSuffix(w, "eed") && !moodData()["en"][0].words[w] && w != "embed" && w != "shred"
}

// computed reports whether a text is an expression or a statement of a program, or a commit.
func computed(s string) bool {
	if s == "" {
		return false
	}
	if strings.HasSuffix(s, ";") && strings.ContainsAny(s, "=(){}<>") && !strings.ContainsAny(s, "–—") || strings.HasSuffix(s, "{") || strings.HasPrefix(s, ":") && strings.Contains(s, "->") {
		return true
	}
	if at := strings.IndexByte(s, '('); at > 0 && form.IsName(s[:at]) {
		if end := strings.IndexByte(s, ')'); end > at {
			rest := strings.TrimLeft(s[end+1:], " *_`")
			return strings.HasPrefix(rest, "–") || strings.HasPrefix(rest, "—") || strings.HasPrefix(rest, "- ") || strings.HasPrefix(rest, ": ")
		}
	}
	word, _, _ := strings.Cut(s, " ")
	if len(word) >= 6 && len(word) <= 40 && strings.Trim(word, "0123456789abcdef") == "" && strings.ContainsAny(word, "0123456789") && strings.ContainsAny(word, "abcdef") {
		return true
	}
	if _, bar, ok := strings.Cut(s, " | "); ok && strings.Trim(bar, "0123456789 +-") == "" && strings.ContainsAny(bar, "+-") {
		return true // a file with its changed lines
	}
	letters, signs := 0, false
	for _, w := range strings.Fields(s) {
		switch r, _ := utf8.DecodeRuneInString(w); {
		case unicode.IsLetter(r) && len(w) > 1:
			letters++
		case strings.ContainsRune("+-*/=|", r):
			signs = true
		}
	}
	return letters == 0 && (signs || strings.Trim(s, "0123456789.,") == "") || letters <= 1 && strings.Contains(s, "=>") && !strings.ContainsAny(s, ",;")
}

// defines reports whether a text explains a term: "X: what it is", "X – what it is", "x = y".
func defines(s string) bool {
	for _, sign := range [...]string{" – ", " — ", " - ", ": ", " = ", "："} {
		if i := strings.Index(s, sign); i > 0 && i < 60 {
			return len(strings.Fields(s[:i])) <= 5 && strings.TrimSpace(s[i+len(sign):]) != ""
		}
	}
	return false
}
