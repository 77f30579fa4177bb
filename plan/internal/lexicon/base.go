package lexicon

import (
	"strings"
	"unicode/utf8"
)

const (
	// minBase is the fewest letters that stay of a word without its inflections.
	minBase = 3
	// maxEnding bounds the letters of an ending, maxStripped how many are taken from a word.
	maxEnding, maxStripped = 5, 3
)

// Base returns what the forms of a folded word have in common: "sawing", "sawed" and "saw" have "saw",
// "gesägt" and "Sägen" have "säg". It is no word, and only good to compare words of one language.
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

// uninflected takes the longest ending, and the beginning that goes with it, from a word.
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
