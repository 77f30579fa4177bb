package lexicon

import (
	"strings"
	"unicode/utf8"
)

const (
	// minBase is the smallest number of letters left of a word without its inflections.
	minBase = 3
	// maxEnding bounds the letters of an ending. maxStripped bounds the number of endings taken from a word.
	maxEnding, maxStripped = 5, 3
)

// Base returns the common part of the forms of a folded word: "saw" for "sawing", "sawed" and "saw", "säg"
// for "gesägt" and "Sägen". The result is no word. It only serves to compare words of one language.
func Base(lang Lang, word string) string {
	endings := data().inflections[lang]
	for range maxStripped {
		base := uninflected(endings, word)
		if base == word {
			break
		}
		word = base
	}
	r, n := utf8.DecodeLastRuneInString(word)
	before, _ := utf8.DecodeLastRuneInString(word[:len(word)-n])
	switch {
	case lang != English:
	case r == before && len(word) > minBase: // cutting, cut
		return word[:len(word)-n]
	case r == 'y': // dry, dried
		return word[:len(word)-1] + "i"
	}
	return word
}

// uninflected removes the longest ending from a word, together with the prefix that goes with it.
func uninflected(endings map[string][]string, word string) string {
	at := len(word)
	best := word
	for n := 0; n <= maxEnding && at > 0; n++ {
		for _, head := range endings[word[at:]] {
			if base, ok := strings.CutPrefix(word[:at], head); ok && len(base) < len(best) && utf8.RuneCountInString(base) >= minBase {
				best = base
			}
		}
		_, size := utf8.DecodeLastRuneInString(word[:at])
		at -= size
	}
	return best
}
