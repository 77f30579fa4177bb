package lexicon

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// langs is a set of languages that use spaces between words.
type langs []Lang

func (l langs) with(x Lang) langs { return append(l[:len(l):len(l)], x) }

// maxWords bounds the words that decide the language of a text.
const maxWords = 400

// Language returns the language of a text by its script and its most common words, or "" if it is unclear.
func Language(text string) Lang {
	list, votes := Languages(text)
	if len(list) == 0 || votes[0] < 4 || len(list) > 1 && votes[0] == votes[1] {
		return ""
	}
	return list[0]
}

// Languages returns the languages that a text may be in, the most likely first, with the votes for each.
func Languages(text string) (list []Lang, votes []int) {
	common := data().common
	var few [128]byte
	count := map[Lang]int{}
	words := 0
	for w := range strings.FieldsFuncSeq(text, notInWord) {
		if words++; words > maxWords {
			break
		}
		folded := AppendFold(few[:0], w)
		if len(folded) > 0 && folded[0] >= utf8.RuneSelf {
			if l := scriptLanguage(string(folded)); l != "" {
				count[l] += 4
				continue
			}
		}
		for _, l := range common[string(folded)] {
			count[l] += min(2, len(folded))
		}
	}
	if count["zh"] > 0 && count["ja"]*4 > count["zh"] {
		count["ja"] += count["zh"]
	}
	for l := range count {
		list = append(list, l)
	}
	sort.Slice(list, func(i, k int) bool {
		a, b := count[list[i]], count[list[k]]
		return a > b || a == b && list[i] < list[k]
	})
	for _, l := range list {
		votes = append(votes, count[l])
	}
	return list, votes
}

func notInWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r|0x20 < 'a' || r|0x20 > 'z'
	}
	return !unicode.IsLetter(r) && !unicode.Is(unicode.M, r)
}

// scriptLanguage returns the language of a word that is identified by its letters.
func scriptLanguage(w string) Lang {
	for _, r := range w {
		switch {
		case r < 0x400:
			return ""
		case strings.ContainsRune("іїєґ", r):
			return "uk"
		case strings.ContainsRune("ыэъ", r):
			return "ru"
		case unicode.In(r, unicode.Hiragana, unicode.Katakana):
			return "ja"
		case unicode.Is(unicode.Hangul, r):
			return "ko"
		case unicode.Is(unicode.Devanagari, r):
			return "hi"
		case unicode.Is(unicode.Arabic, r):
			return "ar"
		case unicode.Is(unicode.Han, r):
			for _, k := range w {
				if unicode.In(k, unicode.Hiragana, unicode.Katakana) {
					return "ja"
				}
			}
			return "zh"
		}
	}
	return ""
}

// IsCommon reports whether a folded word is one of the most common words of a language. For "" it considers
// all languages.
func IsCommon(lang Lang, word string) bool {
	list := data().common[word]
	if lang == "" {
		return len(list) > 0
	}
	for _, l := range list {
		if l == lang || l == English {
			return true
		}
	}
	return false
}

// Spaced reports whether a language puts spaces between words.
func (l Lang) Spaced() bool { return !data().writing[l]["unspaced"] }

// VerbLast reports whether verbs of the language stand behind their objects.
func (l Lang) VerbLast() bool { return data().writing[l]["verb last"] }
