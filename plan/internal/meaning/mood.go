package meaning

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// mood is the mood of an entry of a list.
type mood uint8

const (
	// noMood is the mood of names and of unknown words.
	noMood mood = iota
	// acting is an imperative or infinitive: "dig a hole".
	acting
	// deed is a noun for an action: "excavation of the hole".
	deed
	// stating is a sentence with a finite verb: "the hole is deep".
	stating
)

// moodWords are the words of one language that indicate a mood.
type moodWords struct {
	words map[string]bool
	// ends are endings of words. longest is the length of the longest word or ending, in letters.
	ends    map[string]bool
	longest int
}

var moodNames = [...]string{"do", "end", "deed", "stated", "done"}

// moodTable holds the words for each name in moodNames.
type moodTable [len(moodNames)]moodWords

//go:embed moods.txt
var moodFile string

var moodData = sync.OnceValue(func() map[string]*moodTable {
	out := map[string]*moodTable{}
	for line := range strings.Lines(moodFile) {
		key, list, ok := strings.Cut(strings.TrimSpace(line), ": ")
		name, lang, _ := strings.Cut(key, " ")
		n := slices.Index(moodNames[:], name)
		if line[0] == '#' {
			continue
		}
		if !ok || n < 0 {
			panic("moods.txt: unknown key " + key)
		}
		if out[lang] == nil {
			out[lang] = &moodTable{}
		}
		w := &out[lang][n]
		w.words, w.ends = map[string]bool{}, map[string]bool{}
		for _, s := range strings.Split(list, ", ") {
			s, isEnd := strings.CutPrefix(lexicon.Fold(strings.TrimSpace(s)), "…")
			if isEnd {
				w.ends[s] = true
			} else {
				w.words[s] = true
			}
			w.longest = max(w.longest, utf8.RuneCountInString(s))
		}
	}
	return out
})

// endsWith returns the length, in letters, of the longest of the ends that the text has, or 0. Ends longer
// than most letters are not tried.
func endsWith(s string, ends map[string]bool, most int) int {
	at, best := len(s), 0
	for n := 1; n <= most && at > 0; n++ {
		_, size := utf8.DecodeLastRuneInString(s[:at])
		at -= size
		if ends[s[at:]] {
			best = n
		}
	}
	return best
}

// word reports whether a word indicates the mood, as a whole or by its ending.
func (w *moodWords) word(s string) bool {
	if w.words[s] {
		return true
	}
	n := endsWith(s, w.ends, w.longest)
	return n > 3 || n > 0 && n+1 < utf8.RuneCountInString(s)
}

// begins reports whether the beginning of a text indicates the mood.
func (w *moodWords) begins(lang, s string, words []string) bool {
	if !lexicon.Lang(lang).Spaced() {
		n := 0
		for i := range s {
			if n++; n > w.longest+1 {
				return false
			}
			if w.words[s[:i]] {
				return true
			}
		}
		return w.words[s]
	}
	if w.word(words[0]) {
		return true
	}
	return len(words) > 1 && w.words[words[0]+" "+words[1]]
}

// contains reports whether a text contains a word of the mood.
func (w *moodWords) contains(lang, s string, words []string) bool {
	if lang == "zh" {
		for i := range s {
			if _, n := utf8.DecodeRuneInString(s[i:]); w.words[s[i:i+n]] {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(words, w.word)
}

// maxMood bounds the words of an entry that are considered.
const maxMood = 40

// moodOf returns the mood of an entry: the mood of its first clause, or of the clause behind a name ("Dig:
// dig a hole", "Ann – dig a hole").
func moodOf(lang, s string) mood {
	head, tail, named := cutName(s)
	m := moodOfClause(lang, head)
	if m == acting || !named {
		return m
	}
	if behind := moodOfClause(lang, tail); behind != noMood && (behind != deed || m == noMood) {
		return behind
	}
	return m
}

// cutName splits a text at the sign behind its first words. named is false if there is no such sign.
func cutName(s string) (head, tail string, named bool) {
	for _, sign := range [...]string{": ", "：", " – ", " — ", " - ", " | ", " / ", "→ ", ". "} {
		if i := strings.Index(s, sign); i > 0 && i < 60 {
			return s[:i], s[i+len(sign):], true
		}
	}
	return s, "", false
}

// clause returns the first clause of a text.
func clause(s string) string {
	s = strings.TrimLeft(s, " *_`\"“«„'([【-–—>•.。:)]】")
	for i, r := range s {
		if i > 0 && strings.ContainsRune("(（[,，;；:：–—。！!、", r) || r == '.' && (i+1 == len(s) || s[i+1] == ' ') {
			return s[:i]
		}
	}
	return s
}

// moodOfClause returns the mood of the first clause of a text.
func moodOfClause(lang, s string) mood {
	s = clause(s)
	last := s[strings.LastIndexByte(strings.TrimRight(s, " "), ' ')+1:]
	s = strings.TrimRight(lexicon.Fold(s), " .…*_`\"”»?")
	words := strings.Fields(s)
	if len(words) == 0 {
		return noMood
	}
	words = words[:min(len(words), maxMood)]
	for i, w := range words {
		words[i] = strings.Trim(w, "*_`\"'")
	}
	table := moodData()[lang]
	if table == nil {
		return noMood
	}
	do, end, deeds, states := &table[0], &table[1], &table[2], &table[3]
	if lang == "ja" || lang == "ko" {
		return moodByEnd(s, end, deeds, states)
	}
	switch first := words[0]; {
	case lang != "zh" && pronoun(lang, first):
	case lang == "en" && len(words) > 1 && words[1] == "of":
		return deed
	// For example "light is absorbed".
	case len(words) > 1 && lang == "en" && states.words[words[1]] && !commands(lang, words):
	case lang == "sv" && !do.words[first] && states.contains(lang, s, words): // "nya loggan ligger ute"
	case do.begins(lang, s, words), commands(lang, words):
		return acting
	}
	if states.contains(lang, s, words) {
		return stating
	}
	if hasTone(lang, words[0], toneArticle) {
		return noMood
	}
	final := words[len(words)-1]
	switch {
	case end.word(final) && (lang != "de" || !capital(last)):
		return acting
	case lang == "de" && end.word(final) && len(words) > 1 && !deeds.word(final):
		return noMood
	case end.word(final), deeds.begins(lang, s, words), deeds.word(final):
		return deed
	}
	return noMood
}

// moodByEnd returns the mood of a clause in a language with the verb at the end. The longest ending decides.
func moodByEnd(s string, end, deeds, states *moodWords) mood {
	m, best := noMood, 0
	for k, w := range [...]*moodWords{end, deeds, states} {
		if n := endsWith(s, w.words, w.longest); n > best {
			m, best = [...]mood{acting, deed, stating}[k], n
		}
	}
	return m
}

// pronoun reports whether a word cannot begin a demand.
func pronoun(lang, w string) bool { return moodData()[lang][3].words[w] }

// isDone reports whether an entry begins, or in some languages ends, with a verb in the past: "Fixed a leak".
func isDone(lang, s string) bool {
	words := strings.Fields(lexicon.Fold(clause(s)))
	if len(words) == 0 {
		return false
	}
	first := strings.Trim(words[0], "*_`:")
	if lang == "en" || lang == "" {
		return participle(first)
	}
	table := moodData()[lang]
	if table == nil {
		return false
	}
	w := &table[4]
	switch lang {
	case "ja", "ko":
		return endsWith(strings.TrimRight(strings.Join(words, " "), ". "), w.words, w.longest) > 0
	case "de", "nl", "tr":
		return w.word(first) || w.word(words[len(words)-1])
	}
	return w.word(first)
}

// commandArticles are the articles that follow directly behind a verb but not behind a noun.
var commandArticles = wordsByLanguage("command articles")

// commands reports whether a text begins with a word and such an article. Then the word is a verb, even if it
// is unknown.
func commands(lang string, words []string) bool {
	if len(words) < 2 || !commandArticles[lang][words[1]] || lexicon.IsCommon(lexicon.Lang(lang), words[0]) {
		return false
	}
	r, _ := utf8.DecodeRuneInString(words[0])
	relates := false
	for _, t := range lexicon.ScanIn(lexicon.Lang(lang), words[0]) {
		relates = relates || t.Off == 0
	}
	return unicode.IsLetter(r) && !relates && !commandArticles[lang][words[0]] && !(lang == "en" && (strings.HasSuffix(words[0], "ing") || strings.HasSuffix(words[0], "s")))
}

// capital reports whether a text begins with a capital letter.
func capital(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsUpper(r)
}

// moodIn returns the mood of an entry in the first language in which it has one. A demand in any language
// takes precedence.
func moodIn(langs []string, s string) (m mood) {
	for _, lang := range langs {
		if k := moodOf(lang, s); k == acting || m == noMood {
			m = k
		}
		if m == acting {
			break
		}
	}
	return m
}

// maxLanguages bounds the candidates for the language of a text without common words.
const maxLanguages = 4

// languagesOf returns the possible languages of a text: lang, perhaps with English, or the candidates if lang
// is "".
func languagesOf(lang, text string) []string {
	switch lang {
	case "":
	case "ar", "hi", "ja", "ko", "ru", "uk", "zh":
		return []string{lang, "en"}
	default:
		return []string{lang}
	}
	out := []string{"en"}
	list, _ := lexicon.Languages(text)
	for _, l := range list[:min(len(list), maxLanguages)] {
		if l != "en" {
			out = append(out, string(l))
		}
	}
	return out
}

// acts reports whether the first clause of a text demands something.
func acts(lang, s string) bool {
	if lang == "" {
		lang = "en"
	}
	return moodOfClause(lang, s) == acting
}
