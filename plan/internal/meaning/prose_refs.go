package meaning

import (
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxShared bounds the steps of a word. A word of more steps names none of them.
const maxShared = 6

// noteWords adds the words of a step to the index of words.
func (t *proseReader) noteWords(i int, s string) {
	for w := range t.stems(s) {
		if list := t.words[w]; len(list) <= maxShared {
			t.words[w] = append(list, i)
		}
	}
}

// found returns the step that shares the most words with a text, or -1. Of several it returns the last; sure
// is set if there is only one.
func (t *proseReader) found(s string) (best int, sure bool) {
	score := map[int]int{}
	for w := range t.stems(s) {
		list := t.words[w]
		if len(list) > maxShared {
			continue
		}
		for _, i := range list {
			score[i] += 1 + b2i(len(list) == 1)
		}
	}
	best = -1
	for i, n := range score {
		switch {
		case best < 0 || n > score[best]:
			best, sure = i, true
		case n == score[best]:
			best, sure = max(best, i), false
		}
	}
	return best, sure
}

// refers returns the steps that a condition refers to: both or all, the steps whose words it uses, or else
// the last ones. named is set if the condition names them.
func (t *proseReader) refers(s string) (out []int, named bool) {
	if len(t.steps) == 0 {
		return nil, false
	}
	c := t.wording(s)
	var hits []int // the steps whose words the parts use
	unnamed := 0
	for _, p := range c.parts {
		if i, sure := t.found(p); i >= 0 {
			t.unsure = t.unsure || !sure
			hits = append(hits, i)
		} else {
			unnamed++
		}
	}
	switch {
	case c.all && len(hits) < 2:
		return t.ends(len(t.steps)), true
	case (c.two || c.count > 0) && len(hits) < 2:
		n := max(c.count, 2)
		if ends := t.ends(n); len(ends) == n {
			return ends, true
		}
		t.unsure = true
		return span(max(0, len(t.steps)-n), len(t.steps)), true
	case len(hits) == 0 && len(c.parts) == 1 && t.pronounOnly(s):
		return slices.Clone(t.group), true
	case len(hits) == 0:
		return t.unnamed(s, len(c.parts)), false
	}
	t.unsure = true
	if unnamed > 0 && len(c.parts) > 1 {
		// In "when the cake is cool and Tom is back", an unnamed part refers to the last step for which no
		// other step waits yet.
		ends := t.ends(2 * len(c.parts))
		for k := len(ends) - 1; k >= 0 && unnamed > 0; k-- {
			if !slices.Contains(hits, ends[k]) {
				hits = append(hits, ends[k])
				unnamed--
			}
		}
	}
	slices.Sort(hits)
	return t.latest(slices.Compact(hits)), true
}

// wording is the form of a condition: its parts between words for "and", and the words that count steps.
type wording struct {
	two, all bool
	count    int // a number from 3 to 6, or 0
	parts    []string
}

// wording splits a condition.
func (t *proseReader) wording(s string) (c wording) {
	var ands []int // the offsets at which words for "and" begin and end
	for _, g := range t.signs(s) {
		c.two = c.two || g.tone&toneTwo != 0 || g.kinds.Has(lexicon.Both)
		c.all = c.all || g.kinds.Has(lexicon.All)
		if g.kinds.Has(lexicon.And) && len(strings.TrimSpace(s[:g.off])) > 3 {
			ands = append(ands, g.off, g.end)
		}
	}
	if t.lang == "ar" && len(ands) == 0 {
		for i := strings.Index(s, " و"); i > 0 && len(ands) < maxParts; { // "and" is a part of the word
			ands = append(ands, i, i+1)
			n := strings.Index(s[i+1:], " و")
			if n < 0 {
				break
			}
			i += 1 + n
		}
	}
	for _, w := range strings.FieldsFunc(lexicon.Fold(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		if k, ok := lexicon.Number(w); ok && k > 2 && k < 7 && c.count == 0 && len(w) > 2 {
			c.count = k
		}
	}
	at := 0
	for k := 0; k+1 < len(ands) && len(c.parts) < maxParts; k += 2 {
		c.parts = append(c.parts, s[at:ands[k]])
		at = ands[k+1]
	}
	c.parts = append(c.parts, s[at:])
	return c
}

// unnamed returns the steps that a condition refers to whose parts name none: the last steps for which no
// other step waits, if there is one for each of several parts, or else the last group.
func (t *proseReader) unnamed(s string, parts int) []int {
	if ends := t.ends(parts); parts > 1 && len(ends) == parts {
		t.unsure = true
		return ends
	}
	if t.letters(s) > 0 {
		t.unsure = true
		if !t.pronounOnly(s) && len(t.group) > 1 {
			return t.group[:1:1] // only one thing is ready, not all parallel steps
		}
	}
	return slices.Clone(t.group)
}

// ends returns the last steps for which no other step waits, at most most of them.
func (t *proseReader) ends(most int) (out []int) {
	for i := len(t.steps) - 1; i >= 0 && len(out) < most; i-- {
		if !t.steps[i].waited {
			out = append(out, i)
		}
	}
	slices.Reverse(out)
	return out
}

// latest drops the steps for which other steps of the list wait.
func (t *proseReader) latest(list []int) (out []int) {
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

// span returns the numbers [from, to).
func span(from, to int) (out []int) {
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

// stems returns the stems of the meaningful words of a text. For scripts without spaces the stems are pairs
// of characters.
func (t *proseReader) stems(s string) map[string]bool {
	out := map[string]bool{}
	var prev rune
	pairs := func(r rune) bool { return r >= 0x4E00 && r <= 0x9FFF || r >= 0x30A1 && r <= 0x30FA }
	for _, r := range s {
		if pairs(r) && pairs(prev) {
			out[string([]rune{prev, r})] = true
		}
		prev = r
	}
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		folded := lexicon.Fold(w)
		rs := []rune(folded)
		switch {
		case len(rs) < 3 && (len(rs) < 2 || rs[0] < 0xAC00):
		case rs[0] >= 0xAC00 && rs[0] <= 0xD7A3:
			out[string(rs[:2])] = true
		case rs[0] >= 0x3040:
		case lexicon.IsCommon(lexicon.Lang(t.lang), folded) || stopWords[folded] || hasTone(t.lang, folded, toneWhen|toneTwo) || lexicon.Is(lexicon.Then, folded):
		default:
			out[string(rs[:t.stem(rs)])] = true
		}
	}
	return out
}

// stem returns the number of letters that count in a word: its beginning, without the ending of a short word.
func (t *proseReader) stem(rs []rune) int {
	n := len(rs)
	switch {
	case n > stemLength:
		return stemLength
	case n == stemLength || n == 4 && (rs[3] == 's' || t.lang == "ru" || t.lang == "uk" || t.lang == "pl"):
		return n - 1
	}
	return n
}

// stopWords name nothing.
var stopWords = wordsOf("stop words")
