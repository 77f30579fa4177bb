package form

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxLabel bounds the bytes of a label and of the noun before it.
const maxLabel = 48

// closers are the signs that end a mark. A sign that also occurs inside texts needs a space behind it.
const closers = ".):：、．）]】"

// mark reads the mark at the start of s. Its places are offsets in s.
func mark(s string) Mark {
	start := len(s) - len(strings.TrimLeft(s, " \t"))
	for _, read := range [...]func(string, int) Mark{signMark, bracketMark, hanMark, numberMark, codeMark, nounMark, spelledMark, sentenceMark, letterMark, wordMark} {
		if m := read(s, start); m.Style != NoMark {
			m.Off = start
			return m
		}
	}
	return Mark{}
}

// markEnd returns the end of the sign that ends a mark at s[at:]. weak reports that there is only a space.
func markEnd(s string, at int) (end int, weak, ok bool) {
	i := skipSpace(s, at)
	if i == len(s) {
		return i, false, true
	}
	if s[i] == '\\' && i+1 < len(s) && strings.IndexByte(".):", s[i+1]) >= 0 {
		i, at = i+1, i+1 // Markdown escapes a sign that would make the line a list entry
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	next := byte(' ')
	if i+n < len(s) {
		next = s[i+n]
	}
	spaced := next == ' ' || next == '\t'
	switch {
	case strings.ContainsRune(closers, r) && i-at <= 2:
		if next >= '0' && next <= '9' && (r == '.' || r == ':' || r == ')') || r == ':' && next == '=' {
			return 0, false, false // "n := 3" is an assignment
		}
		end = i + n
		// "1.)" and "a):" end with two signs.
		if q, m := utf8.DecodeRuneInString(s[end:]); m > 0 && strings.ContainsRune(closers, q) && q != r {
			end += m
		}
		return end, false, true
	case strings.ContainsRune("-–—|·/=•>▸▶►»", r) && spaced:
		return i + n, false, true
	case strings.ContainsRune("–—", r):
		return i + n, false, true
	case i-at >= 2 || i > at && s[at] == '\t':
		return i, true, true
	case i > at:
		return i, true, true
	}
	return 0, false, false
}

// digitsAt returns the end of the digits of one script at s[at:] and their value.
func digitsAt(s string, at int) (end, value int) {
	end = at
	for end < len(s) {
		r, n := utf8.DecodeRuneInString(s[end:])
		d, ok := lexicon.Digit(r)
		if !ok || end-at > 12 {
			break
		}
		value = value*10 + d
		end += n
	}
	return end, value
}

// signMark reads ①, 1️⃣ and 🔟.
func signMark(s string, at int) Mark {
	r, n := utf8.DecodeRuneInString(s[at:])
	if r == '🔟' {
		return Mark{Style: Number, Label: "10", Path: []int{10}, End: skipSpace(s, at+n)}
	}
	if r >= 0x2460 && r <= 0x24ff || r >= 0x2776 && r <= 0x2793 {
		if v, ok := lexicon.Digits(string(r)); ok {
			return Mark{Style: Number, Label: itoa(v), Path: []int{v}, End: afterSign(s, at+n)}
		}
	}
	end, v := digitsAt(s, at)
	if end > at && strings.HasPrefix(strings.TrimPrefix(s[end:], "\ufe0f"), "\u20e3") {
		label := s[at:end]
		for strings.HasPrefix(s[end:], "\ufe0f") || strings.HasPrefix(s[end:], "\u20e3") {
			end += 3
		}
		if more, w := digitsAt(s, end); more > end && strings.HasPrefix(strings.TrimPrefix(s[more:], "\ufe0f"), "\u20e3") {
			label, v, end = label+s[end:more], v*10+w, more // 1️⃣2️⃣ is twelve
			for strings.HasPrefix(s[end:], "\ufe0f") || strings.HasPrefix(s[end:], "\u20e3") {
				end += 3
			}
		}
		return Mark{Style: Number, Label: label, Path: []int{v}, End: afterSign(s, end)}
	}
	return Mark{}
}

// afterSign skips the optional sign behind a mark that is complete without one.
func afterSign(s string, at int) int {
	if end, weak, ok := markEnd(s, at); ok && !weak {
		return end
	}
	return skipSpace(s, at)
}

func skipSpace(s string, at int) int {
	return len(s) - len(strings.TrimLeft(s[at:], space))
}

// bracketMark reads (1), [T2], （一）, 【a】 and [build].
func bracketMark(s string, at int) Mark {
	open, n := utf8.DecodeRuneInString(s[at:])
	var shut string
	switch open {
	case '(':
		shut = ")"
	case '[':
		shut = "]"
	case '（':
		shut = "）"
	case '【':
		shut = "】"
	case '<':
		shut = ">"
	default:
		return Mark{}
	}
	from := at + n
	length := strings.Index(s[from:min(len(s), from+maxLabel)], shut)
	if length < 1 {
		return Mark{}
	}
	inner := s[from : from+length]
	m := mark(inner)
	if end, v := digitsAt(inner, 0); end > 0 && end < len(inner) && isNoun(inner[end:]) {
		m = Mark{Style: Number, Label: inner[:end], Noun: strings.TrimSpace(inner[end:]), Path: []int{v}, End: len(inner)} // [1단계]
	}
	label := strings.TrimSpace(inner)
	switch {
	case m.Style != NoMark && m.End == len(inner) && open != '<':
	case open != '<' && utf8.RuneCountInString(label) == 1 && unicode.IsLetter([]rune(label)[0]):
		m = Mark{Style: Letter, Label: label, Path: []int{letterNumber(label)}}
	case open == '[' && isIdentifier(label) || open == '<' && isIdentifier(label) && strings.ContainsAny(label, "0123456789"):
		m = Mark{Style: Word, Label: label}
	default:
		return Mark{}
	}
	m.Weak, m.End = false, afterSign(s, from+length+len(shut))
	return m
}

// hanMark reads 第一步： and 第2步. nounMark reads 步骤1：.
func hanMark(s string, at int) Mark {
	const ordinal = "第"
	if !strings.HasPrefix(s[at:], ordinal) {
		return Mark{}
	}
	i := at + len(ordinal)
	for i < len(s) && s[i] == ' ' {
		i++
	}
	from := i
	for i < len(s) && i-from < 12 {
		r, n := utf8.DecodeRuneInString(s[i:])
		if _, digit := lexicon.Digit(r); !digit && !strings.ContainsRune("零一二三四五六七八九十百两兩", r) {
			break
		}
		i += n
	}
	v, ok := lexicon.Number(s[from:i])
	if i == from || !ok {
		return Mark{}
	}
	noun := i
	for i < len(s) && i-noun < 12 {
		r, n := utf8.DecodeRuneInString(s[i:])
		if !unicode.Is(unicode.Han, r) && r != ' ' {
			break
		}
		if !lexicon.Is(lexicon.Steps, s[noun:i+n]) && !strings.ContainsRune("步个個阶階段项項任务務骤驟条條环環节節章周波批次轮輪层層期", r) {
			break
		}
		i += n
	}
	end, weak, ok := markEnd(s, i)
	if !ok {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r != '，' && r != ',' {
			return Mark{}
		}
		end = i + n
	}
	return Mark{Style: Spelled, Label: strings.TrimSpace(s[at:i]), Noun: s[noun:i], Path: []int{v}, Weak: weak, End: skipSpace(s, end)}
}

// numberMark reads 1. 1) 1.2 1a: 2-b and the like.
func numberMark(s string, at int) Mark {
	if strings.HasPrefix(s[at:], "#") {
		at++
	}
	end, v := digitsAt(s, at)
	if end == at || end-at > 9 {
		return Mark{}
	}
	m := Mark{Style: Number, Path: []int{v}}
	behind := end
	if strings.HasPrefix(s[end:], ". ") {
		behind += len(". ") // 1. Aşama:
	}
	if noun, e := nounBehind(s, behind); noun != "" {
		m.Label, m.Noun, m.End = s[at:end], noun, skipSpace(s, e)
		return m
	}
	for end+1 < len(s) && (s[end] == '.' || s[end] == '-') {
		next, w := digitsAt(s, end+1)
		if e, weak, ok := markEnd(s, next); next == end+1 || s[end] == '-' && (!ok || weak && isUnit(s[e:]) || e == len(s) || len(m.Path) > 1) {
			break
		}
		m.Path = append(m.Path, w)
		end = next
		if len(m.Path) > 8 {
			return Mark{}
		}
	}
	i := end
	if i < len(s) && (s[i] == '-' || s[i] == '.') {
		i++
	}
	if r, n := utf8.DecodeRuneInString(s[i:]); n > 0 && unicode.IsLetter(r) && !unicode.Is(unicode.Han, r) && !isKana(r) {
		q, _ := utf8.DecodeRuneInString(s[i+n:])
		if !unicode.IsLetter(q) && !unicode.IsDigit(q) {
			if e, weak, ok := markEnd(s, i+n); ok && (i == end || !weak) {
				m.Style, m.Label, m.Weak, m.End = Lettered, s[at:i+n], weak, skipSpace(s, e)
				return m
			}
		}
	}
	e, weak, ok := markEnd(s, end)
	if !ok {
		return Mark{}
	}
	if at > 0 && s[at-1] == '#' {
		m.Style, at = Code, at-1
		m.Path = nil
	}
	if _, _, sign, _ := timeSpan(s, at); weak && sign >= 0 {
		return Mark{} // 2 May – 9 May
	}
	m.Label, m.Weak, m.End = s[at:end], weak, skipSpace(s, e)
	return m
}

// maxOrdinal bounds the letters that follow the digits of an ordinal: 2nd, 3-й, 1번째.
const maxOrdinal = 3

// nounBehind returns the noun for a step behind a number, and the end of the mark: 1단계: and 2nd step – and
// 3-й шаг:.
func nounBehind(s string, at int) (noun string, end int) {
	from := at
	if from < len(s) && s[from] == '-' {
		from++
	}
	next := letters(s, from)
	first := skipSpace(s, next) // start of the next word: 3번 작업
	if word := s[from:next]; from > at || !isNoun(word) || isNoun(s[first:letters(s, first)]) {
		if utf8.RuneCountInString(word) > maxOrdinal || word == "" {
			return "", 0
		}
		from = skipSpace(s, next)
		next = letters(s, from)
	}
	e, weak, ok := markEnd(s, next)
	if !ok || weak || !isNoun(s[from:next]) || e == len(s) {
		return "", 0
	}
	return s[from:next], e
}

// isNoun reports whether a word means a step or a group of steps: "Step", "Wave".
func isNoun(s string) bool { return lexicon.Is(lexicon.Steps, s) || lexicon.Is(lexicon.Groups, s) }

// remarked reports whether a remark in brackets follows: "Wave 1 (in parallel): …".
func remarked(s string, at int) bool {
	r, _ := utf8.DecodeRuneInString(s[skipSpace(s, at):])
	return strings.ContainsRune("([（【", r)
}

// isUnit reports whether a text begins with a unit of measure: "3 days", "12 Uhr".
func isUnit(s string) bool {
	end := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && r != '%' && r != '€' && r != '$' })
	if end < 0 {
		end = len(s)
	}
	return end < maxLabel && lexicon.Is(lexicon.Units, s[:end])
}

func isKana(r rune) bool {
	return unicode.Is(unicode.Hiragana, r) || unicode.Is(unicode.Katakana, r) || unicode.Is(unicode.Hangul, r)
}

// letters returns the end of the run of letters at s[at:].
func letters(s string, at int) int {
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		if !unicode.IsLetter(r) && !unicode.IsMark(r) {
			break
		}
		at += n
	}
	return at
}

// codeMark reads T1, AP-3, WP2.1, TRAM-201, #E1, task_4 and 行动1.
func codeMark(s string, at int) Mark {
	i := at
	if strings.HasPrefix(s[i:], "#") || strings.HasPrefix(s[i:], "$") || strings.HasPrefix(s[i:], "@") {
		i++
	}
	word := i
	i = letters(s, i)
	if i == word || utf8.RuneCountInString(s[word:i]) > 12 {
		return Mark{}
	}
	joint := i
	if i < len(s) && (s[i] == '-' || s[i] == '_' || s[i] == '.') {
		i++
	}
	end, _ := digitsAt(s, i)
	if end == i {
		// AI-REQ-3, stage-a-2
		if i == joint {
			return Mark{}
		}
		j := letters(s, i)
		if j == i || j >= len(s) || s[j] != '-' && s[j] != '_' {
			return Mark{}
		}
		if end, _ = digitsAt(s, j+1); end == j+1 {
			return Mark{}
		}
	}
	for end+1 < len(s) && (s[end] == '.' || s[end] == '-' || s[end] == '_') {
		next, _ := digitsAt(s, end+1)
		if next == end+1 {
			break
		}
		end = next
	}
	tail := end
	if tail < len(s) && s[tail] == '.' {
		tail++ // F1.a
	}
	if j := letters(s, tail); j > tail && utf8.RuneCountInString(s[tail:j]) == 1 && !hanRune(s[tail:]) {
		end = j
	}
	e, weak, ok := markEnd(s, end)
	if !ok || end-at > maxLabel {
		return Mark{}
	}
	m := Mark{Style: Code, Label: s[at:end], Weak: weak, End: skipSpace(s, e)}
	if r, _ := utf8.DecodeRuneInString(s[word:]); joint == i && (unicode.Is(unicode.Han, r) || isKana(r)) {
		if d, v := digitsAt(s, i); lexicon.Is(lexicon.Steps, s[word:joint]) && d == end {
			m.Style, m.Noun, m.Label, m.Path = Number, s[word:joint], s[i:end], []int{v}
		}
	}
	return m
}

func hanRune(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.Is(unicode.Han, r) || isKana(r)
}

// nounMark reads Step 1: and Task A – and Phase II. and 任务A： and Шаг первый: and 1. adım: and Step One.
func nounMark(s string, at int) Mark {
	i := at
	for words := 0; words < 2 && i < len(s) && i-at < maxLabel; words++ {
		end := letters(s, i)
		if end == i {
			return Mark{}
		}
		noun := strings.TrimSpace(s[at:end])
		if len(noun) == 1 {
			return Mark{}
		}
		if hanRune(noun) {
			// A letter or numeral may follow a Chinese noun directly: 任务A, 步骤一.
			k := strings.IndexFunc(noun, func(r rune) bool { return r < 0x80 || strings.ContainsRune("一二三四五六七八九十", r) })
			if k > 0 && (noun[k] < 0x80 || lexicon.Is(lexicon.Steps, noun[:k])) {
				end, noun = at+k, noun[:k]
			}
		}
		j := end
		for j < len(s) && (s[j] == ' ' || s[j] == '#') {
			j++
		}
		if m := ordinal(s, j); m.Style != NoMark && (j > end || !isASCIILetter(s, end-1)) {
			known := lexicon.Is(lexicon.Steps, noun) || lexicon.Is(lexicon.Groups, noun) && remarked(s, m.End)
			if e, weak, ok := markEnd(s, m.End); ok && (!weak || known) {
				if !known && (m.Style == Spelled || e == len(s) || lexicon.Relates(noun) || strings.Contains(s[m.End:e], "=")) {
					return Mark{}
				}
				m.Noun, m.Weak, m.End = noun, weak, skipSpace(s, e)
				return m
			}
		}
		if j >= len(s) || j == end || s[end] != ' ' {
			return Mark{}
		}
		i = j
	}
	return Mark{}
}

func isASCIILetter(s string, at int) bool {
	return at >= 0 && (s[at]|0x20) >= 'a' && (s[at]|0x20) <= 'z'
}

// ordinal reads the number, letter or number word at s[at:]. End is its end.
func ordinal(s string, at int) Mark {
	if end, v := digitsAt(s, at); end > at {
		m := Mark{Style: Number, Path: []int{v}}
		for end+1 < len(s) && s[end] == '.' {
			next, w := digitsAt(s, end+1)
			if next == end+1 {
				break
			}
			m.Path = append(m.Path, w)
			end = next
		}
		if j := letters(s, end); j > end && utf8.RuneCountInString(s[end:j]) == 1 && !hanRune(s[end:]) {
			m.Style, end = Lettered, j
		}
		m.Label, m.End = s[at:end], end
		if end < len(s) && s[end] == '/' {
			if total, _ := digitsAt(s, end+1); total > end+1 {
				m.End = total // 1/3
			}
		}
		return m
	}
	end := numberWord(s, at)
	word := s[at:end]
	switch n := utf8.RuneCountInString(word); {
	case n == 0:
		return Mark{}
	case n == 1 && !hanRune(word):
		return Mark{Style: Letter, Label: word, Path: []int{letterNumber(word)}, End: end}
	case n > maxNumberWord:
		return Mark{}
	}
	if v, ok := lexicon.Number(word); ok {
		return Mark{Style: Spelled, Label: word, Path: []int{v}, End: end}
	}
	return Mark{}
}

// maxNumberWord bounds the letters of a number in words.
const maxNumberWord = 24

// numberWord returns the end of the number in words at s[at:]. The number may contain apostrophes, hyphens
// and up to four words ("п'ятий", "во-вторых", "en tercer lugar"). If there is none, it returns the end of
// the first word.
func numberWord(s string, at int) int {
	first := letters(s, at)
	best := first
	for end, words := first, 1; words <= 4 && end > at && end-at <= 2*maxNumberWord; words++ {
		if _, ok := lexicon.Number(s[at:end]); ok {
			best = end
		}
		r, n := utf8.DecodeRuneInString(s[end:])
		if !strings.ContainsRune(" -'’ʼ", r) || n == 0 {
			break
		}
		next := letters(s, end+n)
		if next == end+n || lexicon.Is(lexicon.Steps, s[end+n:next]) {
			break
		}
		end = next
	}
	return best
}

func letterNumber(s string) int {
	r, _ := utf8.DecodeRuneInString(s)
	r = unicode.ToLower(r)
	switch {
	case r >= 'a' && r <= 'z':
		return int(r-'a') + 1
	case r >= 'а' && r <= 'я':
		return int(r-'а') + 1
	}
	return 0
}

// spelledMark reads One: and Third – and Erstens, and First step: and II. and 一、.
func spelledMark(s string, at int) Mark {
	end := numberWord(s, at)
	if end == at || end-at > maxLabel {
		return Mark{}
	}
	word := s[at:end]
	v, ok := lexicon.Number(word)
	if !ok || utf8.RuneCountInString(word) == 1 && !hanRune(word) {
		return Mark{}
	}
	if e, weak, ok := markEnd(s, end); ok && !weak {
		return Mark{Style: Spelled, Label: word, Path: []int{v}, End: skipSpace(s, e)}
	}
	if r, n := utf8.DecodeRuneInString(s[end:]); strings.ContainsRune(",，、،", r) && n > 0 && counts(word) && skipSpace(s, end+n) < len(s) {
		// "Second, …"
		return Mark{Style: Spelled, Label: word, Path: []int{v}, Weak: true, End: skipSpace(s, end+n)}
	}
	if adverb, _ := lexicon.Counts(word); adverb && strings.HasPrefix(s[end:], " ") && skipSpace(s, end) < len(s) {
		// "Erstens den …"
		return Mark{Style: Spelled, Label: word, Path: []int{v}, Weak: true, End: skipSpace(s, end)}
	}
	// "First step: …", "Zweiter Schritt – …". "1. adım" has a number and is read elsewhere.
	from := skipSpace(s, andLast(s, end))
	if next := letters(s, from); next > from && isNoun(s[from:next]) {
		if e, weak, ok := markEnd(s, next); ok && (!weak || remarked(s, next)) {
			return Mark{Style: Spelled, Label: word, Noun: s[from:next], Path: []int{v}, End: skipSpace(s, e)}
		}
	}
	return Mark{}
}

func counts(word string) bool { _, ok := lexicon.Counts(word); return ok }

// andLast skips "and last" behind an ordinal: "Fifth and last step".
func andLast(s string, at int) int {
	from := skipSpace(s, at)
	and := letters(s, from)
	if from == at || and == from || !lexicon.Is(lexicon.And, s[from:and]) {
		return at
	}
	from = skipSpace(s, and)
	if last := letters(s, from); last > from {
		return last
	}
	return at
}

// sentenceMark reads "The first step is to …" and "The second step, …".
func sentenceMark(s string, at int) Mark {
	from := letters(s, at)
	if from == at || from-at > maxArticle || !strings.HasPrefix(s[from:], " ") || !lexicon.IsCommon("", lexicon.Fold(s[at:from])) {
		return Mark{}
	}
	end := numberWord(s, from+1)
	word := s[from+1 : end]
	v, ok := lexicon.Number(word)
	from = skipSpace(s, andLast(s, end))
	end = letters(s, from)
	if !ok || !counts(word) || end == from || end == len(s) || !lexicon.Is(lexicon.Steps, s[from:end]) {
		return Mark{}
	}
	m := Mark{Style: Spelled, Label: word, Noun: s[from:end], Path: []int{v}, Weak: true, End: skipSpace(s, end+b2i(s[end] == ','))}
	for range 2 { // is to
		next := letters(s, m.End)
		if s[end] == ',' || next == m.End || next-m.End > maxArticle+1 || !lexicon.IsCommon("", lexicon.Fold(s[m.End:next])) {
			break
		}
		m.End = skipSpace(s, next)
	}
	if m.End == len(s) || s[end] == ' ' && m.End == end+1 {
		return Mark{}
	}
	return m
}

// maxArticle bounds the bytes of an article.
const maxArticle = 4

// letterMark reads a) and B. and C – and Г).
func letterMark(s string, at int) Mark {
	r, n := utf8.DecodeRuneInString(s[at:])
	if n == 0 || !unicode.IsLetter(r) || hanRune(s[at:]) && !strings.ContainsRune("가나다라마바사甲乙丙丁戊己庚辛", r) {
		return Mark{}
	}
	if strings.HasPrefix(s[at+n:], "ـ") {
		n += len("ـ") // a sign that only lengthens an Arabic letter
	}
	label := s[at : at+n]
	e, weak, ok := markEnd(s, at+n)
	if !ok || weak && e < at+n+2 || e == len(s) || s[at+n] == '.' && s[e-1] == '.' && s[e] != ' ' || s[e] == ':' {
		return Mark{}
	}
	return Mark{Style: Letter, Label: label, Path: []int{letterNumber(label)}, Weak: weak, End: skipSpace(s, e)}
}

// isIdentifier reports whether s is written like a name in a program: one plain word, or with _, - or digits
// inside.
func isIdentifier(s string) bool {
	if s == "" || len(s) > maxLabel {
		return false
	}
	for i, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsMark(r) && (i == 0 || !unicode.IsDigit(r) && !strings.ContainsRune("_-./", r)) {
			return false
		}
	}
	return true
}

// wordMark reads fetch_data: and the like.
func wordMark(s string, at int) Mark {
	end := at
	for end < len(s) && end-at < maxLabel {
		r, n := utf8.DecodeRuneInString(s[end:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '-' {
			break
		}
		end += n
	}
	label := s[at:end]
	if end > at && isIdentifier(label) && strings.HasPrefix(s[end:], ") ") {
		return Mark{Style: Word, Label: label, End: skipSpace(s, end+1)}
	}
	if end == at || !strings.ContainsAny(label, "_-") || !isIdentifier(label) || strings.HasSuffix(label, "-") {
		return Mark{}
	}
	e, weak, ok := markEnd(s, end)
	if !ok || e == len(s) && strings.HasSuffix(s, ":") || !strings.Contains(label, "_") && (weak || e == len(s)) {
		return Mark{}
	}
	return Mark{Style: Word, Label: label, Weak: weak, End: skipSpace(s, e)}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
