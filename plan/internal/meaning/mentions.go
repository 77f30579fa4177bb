package meaning

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// class is the class of an atom.
type class uint8

const (
	word     class = iota
	phrase         // a phrase of the lexicon
	number         // a number that may refer to an item
	quantity       // a number that does not refer to an item
	label          // the id of an item, or a text that looks like one
	group          // adjacent references that were combined
	closing        // the closing part of a two-part phrase
	comma          // , 、
	slash          // / + &, |
	dash           // – — -
	point          // the dot behind an ordinal number
	colon          // :
	opened         // (
	closed         // )
	stop           // the end of a sentence
)

// atom is a word, number, sign or phrase in a text, or a group of references.
type atom struct {
	class    class
	off, end int
	kinds    lexicon.Kinds
	tok      lexicon.Token
	value    int
	ordinal  bool
	// items are the items that a label or group refers to, unknown the ids that no item has. sure is set if
	// the atom is a reference in any context. positional is set if it refers by position, as "both" does.
	items      []int
	unknown    []string
	sure       bool
	positional bool
	// spelled is set on numbers in words, bare on groups of numbers without a noun, part on nouns such as
	// "phase".
	spelled, bare, part bool
	// count is the number of references in a group. common is set on words that name nothing.
	count  int
	common bool
	used   bool
	// vague is set on "all three" if more than three steps come before.
	vague bool
}

func (a *atom) is(k lexicon.Kind) bool { return a.kinds.Has(k) }

// isUnit reports whether an atom is a unit such as "days".
func (a *atom) isUnit() bool {
	return a.class == phrase && a.is(lexicon.Units) && !a.is(lexicon.Done)
}

// isAmount reports whether an atom turns a bare number before it into an amount.
func (a *atom) isAmount(text string) bool {
	return a.isUnit() || a.class == word && !a.common && isWordLetter(firstRune(text[a.off:]))
}

// lexer splits a text into atoms.
type lexer struct {
	n     *Names
	text  string
	toks  []lexicon.Token
	atoms []atom
	ends  map[int]int // the ends of closing parts, by offset
	depth int         // of nested brackets
}

// atoms splits a text into words, numbers, labels, phrases and signs. The result is valid until the next
// call.
func (n *Names) atoms(text string) []atom {
	x := lexer{n: n, text: text, toks: lexicon.ScanIn(n.lang, text), atoms: n.cut[:0]}
	for at, k := 0, 1; at < len(text); k++ {
		if at = x.next(at); k&1023 == 0 && n.ended != nil && n.ended() {
			break
		}
	}
	n.cut = x.atoms
	n.dated(x.atoms)
	return x.atoms
}

// dated marks numbers behind units of time as quantities: "weeks 1-3", "days 4 and 5".
func (n *Names) dated(in []atom) {
	for i := 0; i < len(in); i++ {
		a := &in[i]
		if a.class != phrase || !a.is(lexicon.Units) || a.kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.Steps, lexicon.Done)) != 0 || n.nouns[a.tok.Phrase] || a.end-a.off < 2 {
			continue
		}
		for i++; i < len(in) && in[i].class == number && !in[i].sure && !in[i].spelled; i++ {
			in[i].class = quantity
			if i+1 < len(in) && (in[i+1].class == dash || in[i+1].class == phrase && in[i+1].is(lexicon.To)) {
				i++
			}
		}
		i--
	}
}

// bare reports whether the atoms end in a relation or a list of references, so that another reference may
// follow directly.
func bare(out []atom) bool {
	n := len(out)
	if n == 0 {
		return false
	}
	a := &out[n-1]
	if a.class == phrase && a.kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.Sources, lexicon.Steps)) != 0 {
		return true
	}
	joint := a.class == comma || a.class == slash || a.kinds&lexicon.KindsOf(lexicon.And, lexicon.Or, lexicon.To) != 0
	return joint && n > 1 && (out[n-2].class == number || out[n-2].class == label)
}

// next reads the atom at an offset and returns the offset at which the next one may begin.
func (x *lexer) next(at int) int {
	r, size := utf8.DecodeRuneInString(x.text[at:])
	if unicode.IsSpace(r) && r != '\n' {
		return at + size
	}
	if end, ok := x.ends[at]; ok {
		x.add(atom{class: closing, off: at, end: end})
		return end
	}
	for len(x.toks) > 0 && x.toks[0].Off < at {
		x.toks = x.toks[1:]
	}
	if end := at + len(joinedAnd); r == 'و' && x.begins(at) {
		w := x.text[end : end+letters(x.text[end:])]
		if i, ok := x.n.keyed(w); ok && w != "" {
			x.add(atom{class: phrase, off: at, end: end, kinds: lexicon.KindsOf(lexicon.And)})
			x.add(atom{class: label, off: end, end: end + len(w), items: []int{i}})
			return end + len(w)
		}
	}
	tokEnd := 0
	x.uncut(at)
	if len(x.toks) > 0 && x.toks[0].Off == at {
		tokEnd = x.toks[0].End
	}
	if end, i, ok := x.label(at); ok && (end > tokEnd || end == tokEnd && !x.shadowed(at, end, x.toks[0].Kinds)) {
		a := atom{class: label, off: at, end: end, items: []int{i}, sure: x.n.sure(x.text[at:end])}
		if v, isNumber := lexicon.Digits(strings.Trim(x.text[at:end], "#")); isNumber {
			a.class, a.value = number, v
		}
		if !x.countable(at, end) {
			a.class = quantity
		}
		x.add(a)
		return end
	}
	if end := x.missing(at); end > max(at, tokEnd) {
		x.add(atom{class: label, off: at, end: end, unknown: []string{x.text[at:end]}, sure: true})
		return end
	}
	if tokEnd > 0 {
		return x.phrase(x.toks[0])
	}
	if _, isDigit := lexicon.Digits(string(r)); isDigit {
		return x.number(at)
	}
	if r == '#' && at+1 < len(x.text) && x.text[at+1] >= '0' && x.text[at+1] <= '9' {
		end := x.number(at + 1)
		last := &x.atoms[len(x.atoms)-1]
		last.off, last.sure = at, last.class == number
		return end
	}
	if unicode.IsLetter(r) {
		return x.word(at)
	}
	return x.sign(at, r, size)
}

// uncut shortens the phrase at an offset if its last word begins a label: "after it" in "after IT-1".
func (x *lexer) uncut(at int) {
	if len(x.toks) == 0 || x.toks[0].Off != at || x.toks[0].End >= len(x.text) || strings.IndexByte("-_.#", x.text[x.toks[0].End]) < 0 {
		return
	}
	last := at + strings.LastIndexByte(x.text[at:x.toks[0].End], ' ') + 1
	if end, _, ok := x.label(last); last == at || !ok || end <= x.toks[0].End {
		return
	}
	shorter := lexicon.ScanIn(x.n.lang, x.text[at:last])
	for i := range shorter {
		shorter[i].Off += at
		shorter[i].End += at
	}
	x.toks = append(shorter, x.toks[1:]...)
}

// joinedAnd is the Arabic "and", which is written as one word with the text behind it.
const joinedAnd = "و"

// begins reports whether a word begins at an offset.
func (x *lexer) begins(at int) bool {
	return at == 0 || !continues(lastRune(x.text[:at]), firstRune(x.text[at:]))
}

func (x *lexer) add(a atom) { x.atoms = append(x.atoms, a) }

// totals are the kinds of words that accompany a number of all steps: "all three".
const totals lexicon.Kinds = 1<<lexicon.Every | 1<<lexicon.Definite

// weighty are the kinds of words that may be part of a name like any other word.
const weighty lexicon.Kinds = 1<<lexicon.Units | 1<<lexicon.Correct | 1<<lexicon.Choice | 1<<lexicon.Plan | 1<<lexicon.List |
	1<<lexicon.Done | 1<<lexicon.Refuse | 1<<lexicon.Groups | 1<<lexicon.Waves | 1<<lexicon.Abreast | totals

// shadowed reports whether the text is a word of the lexicon that happens to be an id, too, such as "a".
// Capitals or brackets make it an id.
func (x *lexer) shadowed(at, end int, kinds lexicon.Kinds) bool {
	if kinds&^weighty == 0 || at > 0 && x.text[at-1] == '(' || end < len(x.text) && x.text[end] == ')' && x.depth == 0 {
		return false
	}
	return strings.ToUpper(x.text[at:end]) != x.text[at:end] && !x.standsAlone(end)
}

// standsAlone reports whether the text behind a word excludes that it is an article or preposition: nothing,
// a sign, or "and" with another one-letter id.
func (x *lexer) standsAlone(end int) bool {
	rest := strings.TrimLeft(x.text[end:], " ")
	if rest == "" || strings.ContainsRune(",;.)]，；。）", firstRune(rest)) {
		return true
	}
	n := letters(rest)
	next := strings.TrimLeft(rest[n:], " ")
	k := letters(next)
	return utf8.RuneCountInString(next[:k]) == 1 && x.n.has(lexicon.Fold(next[:k])) && lexicon.Is(lexicon.And, rest[:n])
}

// sure reports whether a label is a reference in any context: it has letters and digits, or signs.
func (n *Names) sure(s string) bool {
	if s[0] == '#' || strings.Contains(s, "_") {
		return true
	}
	letters := strings.ContainsFunc(s, unicode.IsLetter)
	digits := strings.ContainsFunc(s, func(r rune) bool { _, ok := lexicon.Digits(string(r)); return ok })
	if digits {
		return letters || strings.Contains(strings.Trim(s, "."), ".") || s[0] > 0x80 && !unicode.IsDigit(firstRune(s))
	}
	return false
}

func firstRune(s string) rune { r, _ := utf8.DecodeRuneInString(s); return r }

// maxLabel bounds the length of labels, in bytes.
const maxLabel = 64

// label finds the longest id that begins at an offset.
func (x *lexer) label(at int) (end, item int, ok bool) {
	if at > 0 && continues(lastRune(x.text[:at]), firstRune(x.text[at:])) {
		return 0, 0, false
	}
	limit := min(len(x.text), at+maxLabel)
	var last rune
	for i, r := range x.text[at:limit] {
		p := at + i
		if i > 0 && !continues(last, r) {
			if j, found := x.n.keyed(x.text[at:p]); found && x.exact(at, p, j) {
				end, item, ok = p, j, true
			}
		}
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.M, r) && !strings.ContainsRune("-_.#", r) {
			if _, sign := lexicon.Digits(string(r)); !sign && r != '\ufe0f' && r != '\u20e3' && !(r == ' ' && x.n.spaced) {
				return trimLabel(x.text, at, end), item, ok
			}
		}
		last = r
	}
	if limit == len(x.text) {
		if j, found := x.n.keyed(x.text[at:]); found && x.exact(at, limit, j) {
			end, item, ok = limit, j, true
		}
	}
	return trimLabel(x.text, at, end), item, ok
}

// keyed returns the item with an id, ignoring trailing signs.
func (n *Names) keyed(s string) (item int, ok bool) {
	var few [maxLabel + 8]byte
	item, ok = n.byKey[string(bytes.TrimRight(lexicon.AppendFold(few[:0], s), "-."))]
	return item, ok && !(n.items[item].Group && strings.Contains(s, " ")) // "phase 2": a noun, a number
}

// exact reports whether a one-letter label has the same case as the id. It is true for longer labels.
func (x *lexer) exact(at, end, item int) bool {
	s := strings.TrimRight(x.text[at:end], "-.")
	return utf8.RuneCountInString(s) > 1 || !unicode.IsLetter(firstRune(s)) || strings.Contains(x.n.items[item].ID, s)
}

func trimLabel(text string, at, end int) int {
	for end > at && (text[end-1] == '.' || text[end-1] == '-') {
		end--
	}
	return end
}

func lastRune(s string) rune { r, _ := utf8.DecodeLastRuneInString(s); return r }

// continues reports whether b continues the word or number of a. Letters of scripts without spaces end a
// label in another script.
func continues(a, b rune) bool {
	_, da := lexicon.Digit(a)
	_, db := lexicon.Digit(b)
	if b == '\ufe0f' || b == '\u20e3' {
		return true
	}
	la, lb := isWordLetter(a), isWordLetter(b)
	return (da || la || a == '_') && (db || lb || b == '_')
}

// isWordLetter reports whether a rune is a letter, or a mark on one, of a script that separates words by
// spaces.
func isWordLetter(r rune) bool {
	if !unicode.IsLetter(r) && !unicode.Is(unicode.M, r) {
		return false
	}
	return r < 0x0E00 || r > 0x0EFF && r < 0x1100 || r > 0x11FF && r < 0x2E80
}

// phrase adds a phrase of the lexicon.
func (x *lexer) phrase(t lexicon.Token) int {
	a := atom{class: phrase, off: t.Off, end: t.End, kinds: t.Kinds, tok: t}
	switch {
	case t.Side == lexicon.Around:
		if x.ends == nil {
			x.ends = map[int]int{}
		}
		x.ends[t.CloseOff] = t.CloseEnd
	case t.Kinds.Has(lexicon.Numeral) && t.Kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.First)) == 0:
		a.class, a.value, a.ordinal, a.spelled = number, t.Value, t.Ordinal, true
		a.items = x.n.byValue[t.Value]
	case t.Kinds&^totals == 0:
		a.class, a.common = word, true // "all" and "the", which matter only in front of a number
	case t.Phrase == "-" || t.Phrase == "–" || t.Phrase == "—":
		a.class = dash
	case t.Phrase == "、" || t.Phrase == ",":
		a.class = comma
	case t.Phrase == "&" || t.Phrase == "+":
		a.class = slash
	}
	x.add(a)
	return t.End
}

// suffixes turn a number into an ordinal.
var suffixes = []string{
	"st", "nd", "rd", "th", "er", "ère", "ere", "e", "ème", "eme", "re", "º", "ª", "o", "a", "й", "я", "е", "го", "ої", "ої",
	"му", "ой", "ій", "ю", "м", "х", "и", "ий", "ого", "те", "de", "ste", "vs", "inci", "nci", "üncü", "ncı", "ıncı",
}

// maxShown is the highest number that may be the id of a missing item. Higher numbers count or name something
// else, such as an account or a telephone.
const maxShown = 99_999

// number adds a number and decides whether it may be a reference.
func (x *lexer) number(at int) int {
	end, v := at, 0
	for end < len(x.text) {
		r, size := utf8.DecodeRuneInString(x.text[end:])
		d, ok := lexicon.Digits(string(r))
		if !ok || end > at && r >= 0x2460 && r < 0x10000 && unicode.Is(unicode.No, r) {
			if r == '\ufe0f' || r == '\u20e3' {
				end += size
				continue
			}
			break
		}
		v, end = min(v*10+d, 1<<30), end+size
		if unicode.Is(unicode.No, r) {
			v = d
		}
	}
	a := atom{class: number, off: at, end: end, value: v, items: x.n.byValue[v]}
	if !x.countable(at, end) || v > maxShown && len(a.items) == 0 {
		a.class = quantity
	}
	rest := x.text[end:]
	mark := strings.TrimPrefix(strings.TrimPrefix(rest, "-"), "'")
	if n := letters(mark); n > 0 {
		isSuffix := slices.Contains(suffixes, lexicon.Fold(mark[:n]))
		switch {
		case isSuffix && (len(mark) < len(rest) || n > 1 || mark[0] > 0x80 || mark[0] == 'e'):
			a.ordinal, a.end = true, end+len(rest)-len(mark)+n
		case len(mark) == len(rest) && n == 1 && len(x.n.prefixes) == 0 && len(a.items) > 1:
			a.class, a.end, a.sure, a.items = label, end+n, true, nil
			a.unknown = []string{x.text[at : end+n]}
		case isWordLetter(firstRune(mark)) && rest[0] != '-':
			a.class, a.end = quantity, end+n
		case rest[0] == '-':
			a.class = quantity
		}
	}
	x.add(a)
	return max(a.end, end)
}

// letters returns the length of the word letters at the beginning of a text.
func letters(s string) int {
	for i, r := range s {
		if !isWordLetter(r) {
			return i
		}
	}
	return len(s)
}

// countable reports whether the signs around the digits allow a reference: the digits are no part of an
// amount, a time, a version or a decimal number.
func (x *lexer) countable(at, end int) bool {
	if at > 0 {
		switch r := lastRune(x.text[:at]); {
		case r == '~' && at > 1 && x.text[at-2] >= '0' && x.text[at-2] <= '9':
		case strings.ContainsRune("$€£¥₹₽~≈", r):
			return false
		case r == '.' || r == ',' || r == ':':
			if at > 1 && x.text[at-2] >= '0' && x.text[at-2] <= '9' && (r != ',' || !x.small(at, end)) {
				return at > 2 && x.text[at-3:at-1] == ".."
			}
		case r == '/' && at > 1 && x.text[at-2] >= '0' && x.text[at-2] <= '9':
			return x.small(at, end) && x.text[at] != '0'
		case continues(r, '0'):
			return r > 0x80 && !unicode.IsDigit(r)
		}
	}
	if end < len(x.text) {
		rest := x.text[end:]
		switch r := firstRune(rest); {
		case strings.ContainsRune("%°€$£％‰", r):
			return false
		case (r == '.' || r == ':') && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
			return false
		case r == ',' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
			return x.small(at, end) && !(len(rest) > 3 && rest[3] >= '0' && rest[3] <= '9')
		}
	}
	return true
}

// small reports whether an item has this number.
func (x *lexer) small(at, end int) bool {
	v, ok := lexicon.Digits(x.text[at:end])
	return ok && len(x.n.byValue[v]) > 0
}

// word adds a word, or a single letter of a script without spaces.
func (x *lexer) word(at int) int {
	end := at
	r, size := utf8.DecodeRuneInString(x.text[at:])
	if !isWordLetter(r) {
		end += size
	} else {
		last := r
		for i, r := range x.text[at:] {
			if i > 0 && !continues(last, r) {
				break
			}
			end, last = at+i+utf8.RuneLen(r), r
		}
	}
	w := x.text[at:end]
	a := atom{class: word, off: at, end: end, common: lexicon.IsCommon(x.n.lang, lexicon.Fold(w))}
	if d := strings.IndexFunc(w, unicode.IsDigit); d > 0 && x.n.prefixes[lexicon.Fold(w[:d])] {
		a.class, a.end, a.unknown, a.sure = label, end, []string{w}, true
	}
	x.add(a)
	return end
}

// missing returns the end of a name that looks like the ids, that no item has, and that stands where a
// relation or a list of references expects one: "after F" with steps A to D, "after 2.6", "needs AB-9". Plain
// words count only in backticks or brackets: "after `lint`". It returns at if there is no such name.
func (x *lexer) missing(at int) int {
	end := labelEnd(x.text, at)
	before, quoted := x.atoms, at > 0 && strings.IndexByte("`[", x.text[at-1]) >= 0 && end < len(x.text) && strings.IndexByte("`]", x.text[end]) >= 0
	if n := len(before); quoted && n > 0 && before[n-1].class == opened {
		before = before[:n-1]
	}
	look := looksOf(x.text[at:end])
	known := strings.HasSuffix(look, "0") && x.n.prefixes[strings.TrimRight(lexicon.Fold(x.text[at:end]), "-_.#0123456789")]
	switch {
	case end == at || !x.begins(at) || !known && !bare(before):
		return at
	case look == "0" || look == "" || !x.n.looks[look]:
		return at
	case look == "A" && end > at+1, strings.Trim(look, "aA") == "" && look != "A":
		if last := &before[len(before)-1]; !quoted || x.n.numbers || last.is(lexicon.Sources) || last.is(lexicon.Steps) || last.is(lexicon.Uses) {
			return at
		}
	case look == "A0" && !known && periods[strings.TrimRight(x.text[at:end], "0123456789")]:
		return at
	}
	rest := strings.TrimLeft(x.text[end:], " ")
	if quoted || known || rest == "" || strings.IndexByte(",;.)]&+/", rest[0]) >= 0 || lexicon.Is(lexicon.And, rest[:letters(rest)]) {
		return end
	}
	return at
}

// periods are abbreviations in front of numbers that are no ids, such as those for quarters and weeks.
var periods = setOf("Q H KW CW W FY S T B K V P")

// labelEnd returns the end of the letters and digits at s[at:], including signs between them.
func labelEnd(s string, at int) int {
	end := at
	for i, r := range s[at:min(len(s), at+maxLabel)] {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			end = at + i + utf8.RuneLen(r)
		} else if !strings.ContainsRune("-_.", r) || at+i > end {
			break
		}
	}
	return end
}

// looksOf returns the pattern of an id: "A0" for T12, "0.0" for 2.1, "A-0" for AB-9. It returns "" if the id
// has other signs.
func looksOf(id string) string {
	var look []byte
	for _, r := range id {
		switch {
		case unicode.IsDigit(r):
			r = '0'
		case unicode.IsUpper(r):
			r = 'A'
		case unicode.IsLetter(r):
			r = 'a'
		case r >= utf8.RuneSelf:
			return ""
		}
		if n := len(look); n == 0 || look[n-1] != byte(r) {
			look = append(look, byte(r))
		}
	}
	return string(look)
}

// sign adds the sign at an offset, unless it has no meaning.
func (x *lexer) sign(at int, r rune, size int) int {
	a := atom{off: at, end: at + size}
	rest := x.text[at+size:]
	switch r {
	case ',', '，', '、', '،':
		a.class = comma
	case '/', '+', '&', '＆', '＋', '|', '／':
		a.class = slash
	case '–', '—', '-':
		a.class = dash
	case ':', '：':
		a.class = colon
	case '(', '（', '[', '【', '{':
		a.class = opened
		x.depth++
	case ')', '）', ']', '】', '}':
		if x.depth == 0 {
			return at + size
		}
		a.class = closed
		x.depth--
	case '.':
		if n := len(x.atoms); n > 0 && x.atoms[n-1].end == at && x.atoms[n-1].class == number && goesOn(rest) {
			a.class = point
			break
		}
		if rest != "" && !unicode.IsSpace(firstRune(rest)) && firstRune(rest) != ')' {
			return at + size
		}
		a.class = stop
	case '!', '?', ';', '。', '！', '？', '；', '\n', '।', '؛', '؟':
		a.class = stop
	default:
		return at + size
	}
	x.add(a)
	return at + size
}

// goesOn reports whether a sentence may continue behind the dot of a number.
func goesOn(rest string) bool {
	rest = strings.TrimLeft(rest, " ")
	r := firstRune(rest)
	return rest != "" && (unicode.IsLower(r) || unicode.IsDigit(r) || r == '\'' || unicode.Is(unicode.Lo, r) || r == ',' ||
		unicode.IsUpper(r) && lexicon.Is(lexicon.Steps, rest[:letters(rest)]))
}
