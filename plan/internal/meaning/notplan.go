package meaning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// listing is a list or an outline together with the text around it.
type listing struct {
	// Lang is the language of the text. Headings are the headings above and inside the list, Intro is the
	// line before it, and Outro is the text behind it.
	Lang         string
	Headings     []string
	Intro, Outro string
	// Entries are the texts of the entries, if possible without relations to other entries.
	Entries []string
	// Related is the number of entries with a relation to another one. Boxes is set if the entries have check
	// boxes, Nouns if they are marked as steps ("Step 2", "T2").
	Related      int
	Boxes, Nouns bool
	// Checked is set if all boxes are checked.
	Checked bool
	// Linked is set if any entry is linked to another one, even by a guess.
	Linked bool
	// langs are Lang, or the possible languages of the entries.
	langs []string
	// looks caches the results of look; it may be nil.
	looks map[string]looks
}

// scoreNoPlan is the lowest score of a listing that is no plan.
const scoreNoPlan = 4

// notPlan weighs the evidence that a list is no plan, and returns the reasons. A positive score speaks
// against a plan.
func notPlan(l *listing) (score int, why []string) {
	all := strings.Join(slices.Concat([]string{l.Intro, l.Outro}, l.Headings, l.Entries), "\n")
	if l.Lang == "" {
		l.Lang = language(all)
	}
	l.langs = languagesOf(l.Lang, all)
	var v verdict
	head, intro := v.surroundings(l)
	if len(l.Entries) > 0 {
		v.entries(l, head, intro)
	}
	return v.score, v.why
}

// verdict adds up the evidence that a list is no plan.
type verdict struct {
	score int
	why   []string
}

func (v *verdict) say(n int, reason string) {
	if n != 0 {
		v.score += n
		v.why = append(v.why, reason)
	}
}

// surroundings weighs the text around a list. It returns what the headings and the line before the list
// announce, as announces does; several headings are added up.
func (v *verdict) surroundings(l *listing) (head, intro int) {
	versions := b2i(version(l.Intro))
	for _, h := range l.Headings {
		head += announces(l.Lang, h, true)
		versions += b2i(version(h))
	}
	v.say(6*max(-1, min(1, head)), "its heading")
	if versions > 0 && head >= 0 {
		v.say(4, "it is below a version")
	}
	intro = announces(l.Lang, l.Intro, false)
	if head == 0 || intro > 0 {
		v.say(5*intro, "the line before it")
	}
	if Refuses(l.Intro) || len(l.Headings) > 0 && Refuses(l.Headings[0]) {
		v.say(6, "it follows a refusal")
	}
	if word, _, _ := strings.Cut(l.Intro, " "); word == "def" || word == "func" || word == "function" || word == "fn" {
		v.say(8, "it is the body of a function")
	}
	if asks(l.Intro) {
		v.say(3, "the line before it is a question")
	}
	return head, intro
}

// entries weighs the entries of a list. head and intro are the results of surroundings.
func (v *verdict) entries(l *listing, head, intro int) {
	n := len(l.Entries)
	var c looks
	for _, e := range l.Entries {
		for k, is := range l.look(e) {
			c[k] += is
		}
	}
	most := func(k int) bool { return k*2 > n || k*2 == n && n > 2 }
	if most(c[asking]) {
		v.say(12, "its entries are questions")
	}
	if most(c[money]) {
		v.say(5, "its entries have prices or measures")
	}
	if most(c[years]) {
		v.say(5, "its entries begin with years")
	}
	if most(c[links]) {
		v.say(5, "its entries are links or contacts")
	}
	if most(c[codeLike]) {
		v.say(8, "its entries are expressions or commits")
	}
	if most(c[empty]) && l.Related == 0 {
		v.say(8, "its entries are empty")
	}
	describes := n > 1 && c[descriptive]*5 >= n*3 && c[action]*3 < n
	if describes {
		v.say(7, "its entries describe how things are")
	}
	if strings.HasSuffix(strings.TrimRight(l.Intro, " *_"), " are:") && most(c[fewWords]) && c[action]*2 <= n {
		v.say(4, "its entries are names")
	}
	if n > 1 && c[past]*5 >= n*3 && !describes {
		v.say(5, "its entries report past work")
	}
	if n > 1 && c[defined]*5 >= n*4 && c[action]*2 < n {
		v.say(2, "its entries define terms")
	}
	switch {
	case most(c[action]) && (intro <= 0 || c[defined]*5 < n*4):
		v.say(-4, "its entries are actions")
	case c[action]*3 >= n && intro <= 0 && head <= 0 && !most(c[fewWords]):
		v.say(-2, "some entries are actions")
	case !describes && l.Related == 0 && !l.Linked && c[ordered] == 0 && (c[action]+c[deedNamed])*3 < n+b2i(l.Checked)*n:
		v.say(4-2*b2i(l.Lang == ""), "its entries are names of things")
	}
	if l.Related*4 < n || most(c[codeLike]) {
		v.say(-min(l.Related, 3), "an entry refers to another")
	} else {
		v.say(-3*min(3, l.Related), "its entries refer to one another")
	}
	if l.Boxes && (!l.Checked || most(c[action])) {
		v.say(-3, "it has check boxes")
	}
	if l.Nouns {
		v.say(-4, "its entries are marked as steps")
	}
}

// judge lowers the weight of a reading by the evidence that its list is no plan.
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

// announces returns 1 if a heading or an intro announces a list that is no plan, -1 if it announces a plan,
// and 0 otherwise.
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

// lastSentence returns the last sentence of a paragraph.
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

// Refuses reports whether a text begins with a refusal.
func Refuses(s string) bool {
	s = opening(strings.TrimLeft(s, " \t\r\n\"'“#*>-`"))
	refusal := func(t lexicon.Token) bool { return t.Off < 3 && t.Is(lexicon.Refuse) }
	return slices.ContainsFunc(lexicon.Scan(s), refusal) || hasTone("", s, toneDecline)
}

// maxRefusal bounds the text of the opening, in bytes.
const maxRefusal = 300

// opening returns the first line of a text.
func opening(s string) string {
	s = strings.TrimSpace(s[:min(len(s), maxRefusal)])
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// version reports whether a heading names a version: "[1.2.0] - 2024-01-02", "v2.1.0".
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

// questionEnds are the endings of questions without a question mark.
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

// look is a property of an entry of a list.
type look uint8

const (
	asking look = iota
	money
	years
	links
	past
	defined
	action
	deedNamed
	ordered
	codeLike
	descriptive
	fewWords
	empty
	lookCount
)

// looks counts the entries of a list with each property.
type looks [lookCount]int

// look returns the properties of an entry. It uses the cache, because the lists of one text share many
// entries.
func (l *listing) look(e string) looks {
	c, ok := l.looks[e]
	if !ok {
		c = entryLooks(l.Lang, l.langs, e)
		if l.looks != nil {
			l.looks[e] = c
		}
	}
	return c
}

// entryLooks returns the properties of an entry.
func entryLooks(lang string, langs []string, e string) (c looks) {
	first, _, _ := strings.Cut(strings.TrimSpace(e), "\n")
	first = strings.TrimSpace(first)
	folded := lexicon.Fold(first)
	code, m, over := computed(first), moodIn(langs, first), isDone(lang, first)
	if over && m == acting {
		m = noMood
	}
	order := false
	for _, t := range lexicon.ScanIn(lexicon.Lang(lang), first) {
		order = order || t.Kinds&lexicon.KindsOf(lexicon.Then, lexicon.First, lexicon.Last, lexicon.Meanwhile) != 0 && t.Off < 4
	}
	for k, is := range [lookCount]bool{
		asking:      strings.ContainsAny(first, "?？؟¿") || asks(first),
		money:       priced(folded),
		years:       yearAhead(first),
		links:       contact(folded),
		past:        over || m != acting && hasTone(lang, first, tonePast),
		defined:     defines(first),
		action:      !code && m == acting,
		deedNamed:   !code && m == deed,
		ordered:     order,
		codeLike:    code,
		descriptive: m == stating,
		fewWords:    len(strings.Fields(first)) <= 2,
		empty:       first == "",
	} {
		c[k] = b2i(is)
	}
	return c
}

// measures are units of money and of kitchens that follow a number.
var measures = wordsOf("measures")

// priced reports whether a text names a price or a measured amount.
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

// yearAhead reports whether a text begins with a year.
func yearAhead(s string) bool {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n == 4 && (s[0] == '1' || s[0] == '2') && (len(s) == n || !unicode.IsLetter(rune(s[n])))
}

// contact reports whether a text is a link, a person with a title, a telephone number, or consists only of
// digits and signs.
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

// participle reports whether an English word is a participle that begins a report of past work: "Fixed a
// leak".
func participle(w string) bool {
	w = strings.TrimRight(w, ":")
	return len(w) > 4 && strings.HasSuffix(w, "ed") && !strings.HasSuffix(w, "eed") && !moodData()["en"][0].words[w] && w != "embed" && w != "shred"
}

// computed reports whether a text is an expression or statement of a program, or a commit.
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

// defines reports whether a text explains a term: "X: a sort of Y", "X – a sort of Y", "x = y".
func defines(s string) bool {
	for _, sign := range [...]string{" – ", " — ", " - ", ": ", " = ", "："} {
		if i := strings.Index(s, sign); i > 0 && i < 60 {
			return len(strings.Fields(s[:i])) <= 5 && strings.TrimSpace(s[i+len(sign):]) != ""
		}
	}
	return false
}
