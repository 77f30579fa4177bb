package meaning

import (
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// mood counts whether a sentence is about work to be done, about the past, or explains something.
func (t *proseReader) mood(units []unit) {
	past, meant, general := false, false, false
	for k := range units {
		u := &units[k]
		text := u.main
		if strings.TrimSpace(text) == "" {
			continue
		}
		folded := lexicon.Fold(text)
		for _, h := range tonesIn(t.lang, folded) {
			meant = meant || h.kind&toneIntend != 0
			general = general || h.kind&toneExplain != 0
			past = past || h.kind&toneStory != 0
		}
		past = past || t.perfect(folded)
		past = past || t.lang == "en" && pastVerb(folded)
		meant = meant || t.commands(u)
	}
	t.past += b2i(past)
	t.meant += b2i(meant && !past)
	t.general += b2i(general)
}

// isPast reports whether the text is about the past or explains something, rather than demanding work.
func (t *proseReader) isPast(sentences int) bool {
	return t.past > t.meant && t.past*3 > sentences || t.general > 0 && t.meant == 0
}

// acts reports whether a unit without a word of order demands something.
func (t *proseReader) acts(u *unit) bool {
	if !t.weighs(u.main) || t.spaced() && len(strings.Fields(u.main)) < 3 {
		return false
	}
	folded := lexicon.Fold(u.main)
	return t.commands(u) || hasTone(t.lang, folded, toneIntend)
}

// commands reports whether an English text begins, behind words of order, with a verb in the imperative.
func (t *proseReader) commands(u *unit) bool {
	if t.lang != "en" {
		return false
	}
	s := lexicon.Fold(u.main)
	at := 0
	for _, g := range t.signs(s) {
		if g.kinds&adverbs != 0 && len(strings.Fields(s[at:g.off])) <= 1 {
			at = g.end
		}
	}
	words := strings.FieldsFunc(s[at:], func(r rune) bool { return !unicode.IsLetter(r) })
	for k, w := range words {
		if k+1 < len(words) && finite[words[k+1]] {
			return false // for example "light is absorbed"
		}
		if w == "and" || w == "please" || w == "just" || w == "also" {
			continue
		}
		return moodData()["en"][0].words[w]
	}
	return false
}

// finite are verbs that rule out a command before them.
var finite = setOf("is are was were has have had will can must should gets get may might could would does do did shall")

// pastVerb reports whether an English text is about the past: it has a verb in "-ed" that is no participle.
func pastVerb(s string) bool {
	prev := ""
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }) {
		if strings.HasSuffix(w, "ed") && len(w) > 4 && !participles[prev] && w != "need" && !strings.HasSuffix(w, "eed") {
			return true
		}
		prev = w
	}
	return false
}

// auxiliaries and participleForms belong to the perfect tense. A participle "ge…t" may stand far behind its
// auxiliary; "…ed" stands close to it.
var auxiliaries, participleForms = wordsByLanguage("auxiliaries"), wordsByLanguage("participles")

// perfect reports whether a text is in the perfect tense.
func (t *proseReader) perfect(s string) bool {
	behind := 0
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }) {
		if auxiliaries[t.lang][w] {
			behind = 1
			continue
		}
		for form := range participleForms[t.lang] {
			head, end, _ := strings.Cut(form, "…")
			stem, ok := strings.CutSuffix(w, end)
			if ok && behind > 0 && len(w) > 3 && (head == "" && behind < 3 || head != "" && strings.Contains(stem, head)) {
				return true
			}
		}
		behind += b2i(behind > 0)
	}
	return false
}

// participles are the words before a verb in "-ed" that make it a participle.
var participles = setOf("is are be been being was were has have had having get gets getting the a an this that these those of with and or as if once when " +
	"until fully newly just being it's they're we've i've not all both any each our your their his her its to for by in from")

// gerund reports whether a condition is a step itself, as a verb without a subject: "After collecting the
// figures, …".
func (t *proseReader) gerund(s string) bool {
	f := strings.Fields(lexicon.Fold(s))
	for k := 1; k < len(f) && k < 4; k++ {
		w := strings.Trim(f[k], ",.")
		for end := range gerunds[t.lang] {
			if strings.HasSuffix(w, end) && len(w) > len(end)+2 || w == end {
				return true
			}
		}
	}
	return false
}

// gerunds are the endings of verbs without a subject behind "after", or their auxiliaries.
var gerunds = wordsByLanguage("gerunds")
