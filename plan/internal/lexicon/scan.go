package lexicon

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Token is a phrase found in a text. All its meanings have the same place.
type Token struct {
	Kinds Kinds
	// Phrase is the folded phrase as written in the files. For an Around phrase it is the opening part.
	Phrase string
	// Side says where the reference of a relation stands. Around phrases also have the place of their closing
	// part.
	Side               Side
	Off, End           int
	CloseOff, CloseEnd int
	// Value is the number of a numeral; Ordinal distinguishes "third" from "three". Opens is set for a phrase
	// that opens a clause, such as "once".
	Value          int
	Ordinal, Opens bool
}

// Is reports whether the token is of the kind.
func (t *Token) Is(k Kind) bool { return t.Kinds.Has(k) }

// maxAround bounds the distance in bytes between the two parts of an Around phrase.
const maxAround = 300

// maxCounted bounds the length of a number between two parts: "the two above".
const maxCounted = 24

// found is a phrase found at a place in the folded text.
type found struct {
	phrase   *phrase
	off, end int
	close    int // index in the list of the closing part, or -1
	entry    int // index of the entry that was paired
}

// Scan finds the phrases of all languages in a text. Of overlapping phrases the first and longest one counts.
func Scan(text string) []Token { return ScanIn("", text) }

// ScanIn finds the phrases of one language, and of English, in a text. If both have a phrase, the meaning in
// that language counts.
func ScanIn(lang Lang, text string) []Token {
	l := data()
	f := foldText(text)
	set := AllSets
	if lang != "" {
		var known bool
		if set, known = l.sets[lang]; !known {
			set = l.sets[English]
		}
	}
	var few [32]found
	all := few[:0]
	for i := 0; i < len(f.text); {
		if node := l.trie.Next(0, f.text[i], set); node >= 0 && !joined(f.text, i) {
			all = l.matches(all, f.text, i, node, set)
		}
		if f.text[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(f.text[i:])
		i += n
	}
	if len(all) == 0 {
		return nil
	}
	pair(all, f.text, lang)
	return pick(all, &f, lang)
}

// matches appends the phrases that begin at a place, whose first byte leads to the given node.
func (l *lexicon) matches(all []found, text string, at int, node int32, set uint32) []found {
	for end := at + 1; ; end++ {
		if k := l.trie.Key(node); k >= 0 && !joined(text, end) {
			all = append(all, found{phrase: &l.phrases[k], off: at, end: end, close: -1})
		}
		if end >= len(text) {
			return all
		}
		if node = l.trie.Next(node, text[end], set); node < 0 {
			return all
		}
	}
}

// joined reports whether a place is within a word.
func joined(text string, at int) bool {
	if at <= 0 || at >= len(text) {
		return false
	}
	if name(text[at]) && name(text[at-1]) && (text[at] == '_' || text[at-1] == '_' || digit(text[at-1]) != digit(text[at])) {
		return true // "or_2" and "a0oj" are names
	}
	if text[at] < utf8.RuneSelf && !letter(rune(text[at])) || text[at-1] < utf8.RuneSelf && !letter(rune(text[at-1])) {
		return false
	}
	if text[at] < utf8.RuneSelf && text[at-1] < utf8.RuneSelf {
		return true
	}
	b, _ := utf8.DecodeRuneInString(text[at:])
	a, _ := utf8.DecodeLastRuneInString(text[:at])
	return letter(a) && letter(b) && script(a) == script(b)
}

// name reports whether a byte may be part of a name in code.
func name(c byte) bool { return c == '_' || digit(c) || letter(rune(c)) && c < utf8.RuneSelf }

func digit(c byte) bool { return c >= '0' && c <= '9' }

func letter(r rune) bool {
	if r < 0x80 {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return unicode.IsLetter(r) || unicode.Is(unicode.M, r)
}

// script returns 1 for letters of scripts with spaces between words. For other letters it returns different
// values, so that each of them counts as a word of its own.
func script(r rune) int {
	switch {
	case r < 0x1100:
		return scriptSpaced(r)
	case r <= 0x11FF, r >= 0x2E80 && r <= 0xD7FF, r >= 0xF900 && r <= 0xFAFF, r >= 0x20000:
		unspaced := int(r) + 10
		return unspaced
	}
	return 1
}

func scriptSpaced(r rune) int {
	if r >= 0x0E00 && r <= 0x0EFF { // Thai and Lao
		return int(r) + 10
	}
	return 1
}

// pair finds the closing part of each opening part: the next one in the same sentence.
func pair(all []found, text string, lang Lang) {
	var open map[int32]int
	last := 0
	for i := range all {
		m := &all[i]
		if len(open) > 0 && sentenceEnd(text[last:m.off]) {
			clear(open)
		}
		last = m.off
		for n := range m.phrase.entries {
			e := &m.phrase.entries[n]
			switch {
			case e.part == whole || !e.in(lang):
			case e.part == opening:
				if o, ok := open[e.pair]; !ok || m.off-all[o].off > maxAround {
					if open == nil {
						open = map[int32]int{}
					}
					open[e.pair] = i
				}
			default:
				o, ok := open[e.pair]
				if !ok || all[o].end >= m.off || m.off-all[o].end > maxAround || (e.kind == Recent || e.kind == Leading) && m.off-all[o].end > maxCounted {
					continue
				}
				delete(open, e.pair)
				if c := all[o].close; c < 0 || all[c].off == m.off && all[c].end < m.end || all[c].off > m.off {
					all[o].close = i
					for k := range all[o].phrase.entries {
						if oe := &all[o].phrase.entries[k]; oe.pair == e.pair && oe.part == opening {
							all[o].entry = k
						}
					}
				}
			}
		}
	}
}

// sentenceEnd reports whether a sentence ends in the text. A point behind a digit does not end one.
func sentenceEnd(text string) bool {
	if strings.ContainsAny(text, "\n;!?。；！？") {
		return true
	}
	for i := 1; i < len(text); i++ {
		if text[i] == '.' && (text[i-1] < '0' || text[i-1] > '9') {
			return true
		}
	}
	return false
}

func (e *entry) in(lang Lang) bool { return lang == "" || e.lang == lang || e.lang == English }

// pick drops unpaired parts and overlapping phrases.
func pick(all []found, f *folded, lang Lang) []Token {
	out := make([]Token, 0, len(all))
	end := 0
	var taken map[int]int // indexes of the closing parts that are taken
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].off == all[i].off {
			j++
		}
		if all[i].off < end {
			i = j
			continue
		}
		for k := j - 1; k >= i; k-- {
			if e, ok := taken[all[k].off]; ok && e >= all[k].end {
				continue
			}
			if t, ok := all[k].token(all, f, lang); ok {
				if t.Side == Around {
					if taken == nil {
						taken = map[int]int{}
					}
					taken[all[all[k].close].off] = all[all[k].close].end
				}
				out = append(out, t)
				end = all[k].end
				break
			}
		}
		i = j
	}
	return out
}

// token returns the token of a match. It returns false if the match has no meaning at its place.
func (m *found) token(all []found, f *folded, lang Lang) (Token, bool) {
	t := Token{Phrase: m.phrase.text, Off: f.place(m.off), End: f.place(m.end)}
	if m.close >= 0 {
		e, c := &m.phrase.entries[m.entry], &all[m.close]
		t.Kinds, t.Side, t.Opens = KindsOf(e.kind), Around, true
		t.CloseOff, t.CloseEnd = f.place(c.off), f.place(c.end)
		return t, true
	}
	own := false
	for n := range m.phrase.entries {
		e := &m.phrase.entries[n]
		if e.part != whole || !e.in(lang) || own && e.lang != lang {
			continue
		}
		if !own && lang != "" && e.lang == lang {
			own, t = true, Token{Phrase: t.Phrase, Off: t.Off, End: t.End}
		}
		if t.Kinds == 0 || Relations.Has(e.kind) || (e.kind == Steps || e.kind == Ditto) && e.side == Behind {
			t.Side = e.side
		}
		t.Opens = t.Opens || e.opens && (Relations.Has(e.kind) || e.kind == Ditto)
		t.Value, t.Ordinal = max(t.Value, int(e.value)), t.Ordinal || e.ordinal
		t.Kinds |= KindsOf(e.kind)
	}
	return t, t.Kinds != 0
}
