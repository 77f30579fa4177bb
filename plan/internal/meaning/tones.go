package meaning

import (
	_ "embed"
	"slices"
	"sort"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// tone is a kind of words of running text; a set of them is their sum.
type tone uint32

// The kinds of words of tones.txt.
const (
	toneWhen tone = 1 << iota
	toneDone
	toneFree
	toneSwap
	toneDrop
	toneAdd
	toneRest
	toneInOrder
	toneChosen
	toneRejected
	toneOther
	tonePast
	toneDo
	toneTodo
	toneAlone
	toneOption
	toneNeed
	toneUnless
	toneInstead
	tonePronoun
	toneWhile
	toneTwo
	toneThence
	toneStart
	toneFinal
)

var toneNames = []string{
	"when", "done", "free", "swap", "drop", "add", "rest", "inorder", "chosen", "rejected", "other", "past", "do", "todo", "alone", "option", "need", "unless", "instead", "pronoun", "while", "two", "thence", "start", "final",
}

// toneHit is a phrase of tones.txt in a text.
type toneHit struct {
	kind     tone
	off, end int
}

type tonePhrase struct {
	text string
	// kinds holds the kinds of the phrase in each language. Suffix is set for what ends a word, and rest is what must
	// follow somewhere behind.
	kinds  map[string]tone
	suffix bool
	rest   string
}

type toneWords struct {
	phrases []tonePhrase
	// starts are the places of the phrases by their first byte; inside tells which of these begin what ends a word.
	starts [257]int
	inside [256]bool
}

//go:embed tones.txt
var toneFile string

var toneData = sync.OnceValue(func() *toneWords {
	w := &toneWords{}
	at := map[string]int{}
	for line := range strings.Lines(toneFile) {
		key, list, ok := strings.Cut(strings.TrimSpace(line), ": ")
		name, lang, _ := strings.Cut(key, " ")
		n := slices.Index(toneNames, name)
		for _, s := range strings.Split(list, ", ") {
			switch {
			case !ok || line[0] == '#':
			case n >= 0:
				p := tonePhrase{}
				p.text, p.suffix = strings.CutPrefix(lexicon.Fold(strings.TrimSpace(s)), "…")
				p.text, p.rest, _ = strings.Cut(p.text, " … ")
				i, known := at[s]
				if !known {
					i = len(w.phrases)
					at[s], p.kinds = i, map[string]tone{}
					w.phrases = append(w.phrases, p)
				}
				w.phrases[i].kinds[lang] |= 1 << n
			}
		}
	}
	sort.Slice(w.phrases, func(i, j int) bool { return w.phrases[i].text < w.phrases[j].text })
	n := 0
	for c := range w.starts {
		for n < len(w.phrases) && int(w.phrases[n].text[0]) < c {
			w.inside[w.phrases[n].text[0]] = w.inside[w.phrases[n].text[0]] || w.phrases[n].suffix
			n++
		}
		w.starts[c] = n
	}
	return w
})

// maxTone bounds how long, in bytes, a phrase of tones.txt is.
const maxTone = 60

// maxRest bounds how far from a phrase, in bytes, what must follow it stands.
const maxRest = 1000

// tonesIn finds the phrases of a language, or of all when it is "", in a text; at each place the longest one
// of each kind. The text is folded.
func tonesIn(lang, text string) (hits []toneHit) {
	w := toneData()
	for i := 0; i < len(text); {
		n := 1
		if text[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRuneInString(text[i:])
		}
		lo, hi := w.starts[text[i]], w.starts[int(text[i])+1]
		inside := lo < hi && joinedAt(text, i)
		if inside && !w.inside[text[i]] {
			lo = hi
		}
		from := len(hits)
		for d := 0; i+d < len(text) && d < maxTone && lo < hi; d++ {
			c := text[i+d]
			if d > 0 {
				lo += sort.Search(hi-lo, func(k int) bool { return len(w.phrases[lo+k].text) > d && w.phrases[lo+k].text[d] >= c })
				hi = lo + sort.Search(hi-lo, func(k int) bool { return w.phrases[lo+k].text[d] > c })
			}
			for k := lo; k < hi && len(w.phrases[k].text) == d+1; k++ {
				p := &w.phrases[k]
				if inside && !p.suffix || joinedAt(text, i+d+1) || p.rest != "" && !strings.Contains(text[i+d:min(len(text), i+d+maxRest)], p.rest) {
					continue
				}
				kind := p.kinds[lang]
				if lang == "" {
					for _, x := range p.kinds {
						kind |= x
					}
				}
				if kind != 0 {
					hits = append(hits, toneHit{kind, i, i + d + 1})
				}
			}
		}
		for k := from; k < len(hits); k++ { // of each kind the longest
			for _, later := range hits[k+1:] {
				hits[k].kind &^= later.kind
			}
		}
		if len(hits) > from+1 {
			hits = append(hits[:from], slices.DeleteFunc(hits[from:], func(h toneHit) bool { return h.kind == 0 })...)
		}
		i += n
	}
	return hits
}

// hasTone reports whether a phrase of one of the kinds stands in the text.
func hasTone(lang, text string, kinds tone) bool {
	for _, h := range tonesIn(lang, lexicon.Fold(text)) {
		if h.kind&kinds != 0 {
			return true
		}
	}
	return false
}

// joinedAt reports whether a place stands within a word of a script that puts spaces between words.
func joinedAt(text string, at int) bool {
	if at <= 0 || at >= len(text) {
		return false
	}
	if b := text[at]; b < utf8.RuneSelf && !spaced(rune(b)) {
		return false
	}
	a, _ := utf8.DecodeLastRuneInString(text[:at])
	b, _ := utf8.DecodeRuneInString(text[at:])
	return spaced(a) && spaced(b)
}

func spaced(r rune) bool {
	if r < 0x80 {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return (unicode.IsLetter(r) || unicode.IsMark(r)) && (r < 0x1100 || r > 0x11FF && r < 0x2E80)
}

// language tells the language of a text, or is "".
func language(text string) string { return string(lexicon.Language(text)) }

type languageKey struct{}

// languageOf tells the language of a whole text.
func languageOf(src *form.Source) string {
	return form.Once(src, languageKey{}, func() string { return language(src.Text) })
}
