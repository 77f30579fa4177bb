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

// tone is a kind of phrase in running text, or a set of kinds.
type tone uint64

// The kinds of phrases in tones.txt.
const (
	toneWhen tone = 1 << iota
	toneFree
	toneSwap
	toneDrop
	toneAdd
	toneRest
	toneChosen
	toneRejected
	toneOther
	tonePast

	toneTodo
	toneAlone
	toneOption
	toneNeed
	toneInstead
	tonePronoun
	toneWhile
	toneTwo
	toneThence
	toneStart
	toneArticle
	toneDecline
	toneAhead
	toneIntend
	toneExplain
	toneStory
	toneChat
	toneIntro
	toneMove
	toneRevised
)

var toneNames = []string{
	"when", "free", "swap", "drop", "add", "rest", "chosen", "rejected", "other", "past", "todo", "alone", "option", "need", "instead", "pronoun", "while", "two", "thence", "start", "article", "decline", "ahead", "intend", "explain", "story", "chat", "intro", "move", "revised",
}

// toneHit is a phrase of tones.txt in a text.
type toneHit struct {
	kind     tone
	off, end int
}

type tonePhrase struct {
	text string
	// kinds holds the kinds of the phrase by language, all those of all languages. suffix is set if the
	// phrase is the end of a word. rest is a text that must follow the phrase.
	kinds  map[string]tone
	all    tone
	suffix bool
	rest   string
}

type toneWords struct {
	phrases []tonePhrase // sorted by text, followed by copies of the suffixes
	// words finds all phrases, ends only suffixes. sets holds the set number of each language in both.
	words, ends lexicon.Trie
	sets        map[string]uint32
}

//go:embed tones.txt
var toneFile string

var toneData = sync.OnceValue(func() *toneWords {
	w := &toneWords{sets: map[string]uint32{"": lexicon.AllSets}}
	at := map[string]int{}
	for line := range strings.Lines(toneFile) {
		key, list, ok := strings.Cut(strings.TrimSpace(line), ": ")
		name, lang, _ := strings.Cut(key, " ")
		n := slices.Index(toneNames, name)
		if line[0] == '#' {
			continue
		}
		if !ok || n < 0 {
			panic("tones.txt: unknown key " + key)
		}
		if w.sets[lang] == 0 {
			w.sets[lang] = 1 << len(w.sets)
		}
		for _, s := range strings.Split(list, ", ") {
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
			w.phrases[i].all |= 1 << n
		}
	}
	sort.SliceStable(w.phrases, func(i, j int) bool { return w.phrases[i].text < w.phrases[j].text })
	w.words = w.trie(0)
	n := len(w.phrases)
	for _, p := range w.phrases {
		if p.suffix {
			w.phrases = append(w.phrases, p)
		}
	}
	w.ends = w.trie(n)
	return w
})

// trie makes a trie of the phrases from an index on. Its keys are relative to that index.
func (w *toneWords) trie(from int) lexicon.Trie {
	var keys []string
	var sets []uint32
	for _, p := range w.phrases[from:] {
		in := uint32(0)
		for lang := range p.kinds {
			in |= w.sets[lang]
		}
		keys, sets = append(keys, p.text), append(sets, in)
	}
	return lexicon.NewTrie(keys, sets)
}

// maxTone bounds the phrases of tones.txt, in bytes.
const maxTone = 60

// maxRest bounds the distance between a phrase and the text that must follow it, in bytes.
const maxRest = 1000

// tonesIn finds the phrases of a language, or of all languages if lang is "". At each offset it returns the
// longest phrase of each kind. The text must be folded.
func tonesIn(lang, text string) (hits []toneHit) {
	w := toneData()
	set := w.sets[lang]
	for i := 0; i < len(text); {
		if node := w.words.Next(0, text[i], set); node > 0 {
			hits = w.at(hits, lang, text, i, node, set)
		}
		if text[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		i += n
	}
	return hits
}

// at appends the phrases that begin at offset i. node is the trie node of the first byte.
func (w *toneWords) at(hits []toneHit, lang, text string, i int, node int32, set uint32) []toneHit {
	trie, base := &w.words, 0
	if joinedAt(text, i) {
		trie, base = &w.ends, len(w.phrases)-w.ends.Len()
		node = trie.Next(0, text[i], set)
	}
	from := len(hits)
	for end := i + 1; node > 0; end++ {
		if k := int(trie.Key(node)); k >= 0 && !joinedAt(text, end) {
			last := base + k
			for k = last; k > base && w.phrases[k-1].text == w.phrases[last].text; k-- {
			}
			for ; k <= last; k++ {
				hits = w.phrases[k].hit(hits, lang, text, i, end)
			}
		}
		if end >= len(text) || end-i >= maxTone {
			break
		}
		node = trie.Next(node, text[end], set)
	}
	if len(hits) < from+2 {
		return hits
	}
	for k := from; k < len(hits); k++ { // keep the longest of each kind
		for _, later := range hits[k+1:] {
			hits[k].kind &^= later.kind
		}
	}
	return append(hits[:from], slices.DeleteFunc(hits[from:], func(h toneHit) bool { return h.kind == 0 })...)
}

// hit appends the phrase, found between two offsets, if it belongs to the language.
func (p *tonePhrase) hit(hits []toneHit, lang, text string, off, end int) []toneHit {
	kind := p.all
	if lang != "" {
		kind = p.kinds[lang]
	}
	if kind == 0 || p.rest != "" && !strings.Contains(text[end-1:min(len(text), end-1+maxRest)], p.rest) {
		return hits
	}
	return append(hits, toneHit{kind, off, end})
}

// hasTone reports whether a text contains a phrase of one of the kinds.
func hasTone(lang, text string, kinds tone) bool {
	for _, h := range tonesIn(lang, lexicon.Fold(text)) {
		if h.kind&kinds != 0 {
			return true
		}
	}
	return false
}

// joinedAt reports whether an offset is inside a word of a script that separates words by spaces.
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

// verbLast reports whether a language places verbs behind their objects.
func verbLast(lang string) bool { return lexicon.Lang(lang).VerbLast() }

// language returns the language of a text, or "".
func language(text string) string { return string(lexicon.Language(text)) }

type languageKey struct{}

// languageOf returns the language of a whole source. The result is cached.
func languageOf(src *form.Source) string {
	return form.Once(src, languageKey{}, func() string { return language(src.Text) })
}
