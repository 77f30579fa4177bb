// Package lexicon holds the words of many languages with which plans state order and refer to steps. The
// words are data: one file per language in languages/, with one line per kind. A speaker of the language can
// correct them.
package lexicon

import (
	"embed"
	"slices"
	"sort"
	"strings"
	"sync"
)

//go:embed languages/*.txt
var files embed.FS

// Kind is the meaning of a phrase.
type Kind uint8

// The kinds of phrases; each is a key in the files of languages.
const (
	// Steps are the nouns for a step: step, task, phase.
	Steps Kind = iota
	// Parts are those of the nouns for a step that also mean other things: part, phase, number.
	Parts
	// Groups are nouns for groups of steps: phase, wave, week. Waves are those of them whose steps run in
	// parallel.
	Groups
	Waves
	// And, Or and To stand between references.
	And
	Or
	To
	// Previous, Both and All refer to steps by their place.
	Previous
	Both
	All
	// None says that a step needs nothing.
	None
	// Needs, Uses, Before, Beside and Apart are relations between steps. Apart says that there is none.
	Needs
	Uses
	Before
	Beside
	Apart
	// Then, First, Last and Meanwhile order sentences.
	Then
	First
	Last
	Meanwhile
	// Abreast says that the steps of a group run in parallel.
	Abreast
	// Loose and Chained describe all steps: they need nothing, or each follows the one before. Sequence says
	// that the steps are in order; some of them may still need less.
	Loose
	Chained
	Sequence
	// Plan announces a plan, List a list that is no plan, and Path a chain that is only a part of the plan.
	// Choice goes with alternatives, Correct with a change of mind.
	Plan
	Path
	List
	Choice
	Correct
	Refuse
	// Earlier goes with a number, a noun or both: "two previous steps", "all preceding tasks", "dos pasos
	// anteriores".
	Earlier
	// Others means all other steps. Recent and Leading go with a number: "the last two", "the first three".
	Others
	Recent
	Leading
	// Every and Definite go with a number in words: "all three", "les trois". Every also means all steps:
	// "all steps are independent".
	Every
	Definite
	// Until becomes a need behind a negation: "can't start until 3".
	Until
	// Sources are prepositions that mean a use if they stand before a reference: "the kit from 21".
	Sources
	// Must makes a need of a statement about a step: "the lease must be signed".
	Must
	// Not reverses a relation. Except removes steps from a reference.
	Not
	Except
	// Same says that the relation or need of the step before applies: "same, after 1", "likewise".
	Same
	// Ditto says that the statement about the step before, or about the named step, applies to this step:
	// "idem", "same as 2".
	Ditto
	// Done are words for a state behind a reference: "once 2 is ready".
	Done
	// Units are nouns counted by numbers that are no references: days, people, percent.
	Units
	// Common are the words that identify a language.
	Common
	// Numeral is a number or an ordinal in words.
	Numeral
	kinds
)

var kindNames = [kinds]string{
	"steps", "parts", "groups", "waves", "and", "or", "to", "previous", "both", "all", "none", "needs", "uses", "before", "beside", "apart",
	"then", "first", "last", "meanwhile", "abreast", "loose", "chained", "sequence", "plan", "path", "list", "choice", "correct", "refuse", "earlier", "others", "recent", "leading", "every", "definite",
	"until", "sources", "must", "not", "except", "same", "ditto", "done", "units", "common", "numeral",
}

// String returns the key of the kind in the files.
func (k Kind) String() string { return kindNames[k] }

// Kinds is a set of kinds.
type Kinds uint64

// KindsOf returns the set of the given kinds.
func KindsOf(list ...Kind) Kinds {
	var s Kinds
	for _, k := range list {
		s |= 1 << k
	}
	return s
}

// Has reports whether the set holds k.
func (s Kinds) Has(k Kind) bool { return s&(1<<k) != 0 }

// Relations are the kinds that relate one step to others.
const Relations Kinds = 1<<Needs | 1<<Uses | 1<<Before | 1<<Beside | 1<<Apart

// Role is the purpose of a field of a record.
type Role string

// The roles of fields.
const (
	ID       Role = "id"
	Title    Role = "title"
	Requires Role = "needs"
	Next     Role = "next"
	Parallel Role = "beside"
	Series   Role = "series"
	Output   Role = "output"
	Owner    Role = "owner"
	Duration Role = "duration"
	Tool     Role = "tool"
	Args     Role = "args"
	Status   Role = "status"
	// Within is a field that names what the record belongs to, replaces or resembles. It states no order.
	Within Role = "within"
	// Nothing is a cell that names no other step.
	Nothing Role = "nothing"
)

// Lang is a language by its two-letter code; "" means any language.
type Lang string

// English is accepted within texts of all languages.
const English Lang = "en"

// Side says where the reference of a relation stands.
type Side uint8

const (
	// Ahead is a phrase before its reference: "after 2".
	Ahead Side = iota
	// Behind is a phrase behind its reference: "2の後".
	Behind
	// Around is a phrase of two parts with its reference between them: "sobald 2 fertig ist".
	Around
)

type part uint8

const (
	whole part = iota
	opening
	closing
)

// entry is one meaning of a phrase. The two parts of an Around phrase have the same pair.
type entry struct {
	kind Kind
	side Side
	part part
	lang Lang
	pair int32
	// value is the number of a numeral. opens is set for a phrase that opens a clause, such as "once".
	value          int32
	ordinal, opens bool
}

type phrase struct {
	text    string
	entries []entry
}

type lexicon struct {
	phrases []phrase
	trie    Trie
	sets    map[Lang]uint32 // for each language, the trie sets of it and of English
	numbers map[string]int
	// ordinals are number words that state a place. marks are words such as "secondly".
	ordinals, marks map[string]bool
	fields          map[string][]Role
	common          map[string]langs
	// abbreviations end with a point that does not end a sentence. counted are nouns behind the number of an
	// ordinal.
	abbreviations, counted map[string]bool
	// inflections holds, per language and ending, the prefixes that go with the ending; "" is a prefix as
	// well.
	inflections map[Lang]map[string][]string
	// writing holds properties of a language: unspaced, verb last.
	writing map[Lang]map[string]bool
	months  map[string]int
	blocks  map[string]Block
	stems   map[Block][]string
}

var data = sync.OnceValue(load)

func load() *lexicon {
	l := &lexicon{sets: map[Lang]uint32{}, numbers: map[string]int{}, ordinals: map[string]bool{}, marks: map[string]bool{}, fields: map[string][]Role{}, common: map[string]langs{}, abbreviations: map[string]bool{}, counted: map[string]bool{}, inflections: map[Lang]map[string][]string{}, writing: map[Lang]map[string]bool{}, months: map[string]int{}, blocks: map[string]Block{}, stems: map[Block][]string{}}
	b := builder{lexicon: l, at: map[string]int{}}
	dir, err := files.ReadDir("languages")
	if err != nil {
		panic(err)
	}
	// English comes first, so that its meaning of a field name takes precedence.
	sort.SliceStable(dir, func(i, j int) bool { return dir[i].Name() == "en.txt" && dir[j].Name() != "en.txt" })
	for _, f := range dir {
		text, err := files.ReadFile("languages/" + f.Name())
		if err != nil {
			panic(err)
		}
		lang := Lang(strings.TrimSuffix(f.Name(), ".txt"))
		b.endings, b.adverbs = nil, nil
		for line := range strings.Lines(string(text)) {
			if key, list, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && key[0] != '#' {
				b.line(lang, key, strings.TrimSpace(list))
			}
		}
	}
	sort.Slice(l.phrases, func(i, j int) bool { return l.phrases[i].text < l.phrases[j].text })
	keys, sets := make([]string, len(l.phrases)), make([]uint32, len(l.phrases))
	for i := range l.phrases {
		keys[i] = l.phrases[i].text
		for _, e := range l.phrases[i].entries {
			sets[i] |= l.set(e.lang)
		}
	}
	for lang := range l.sets {
		l.sets[lang] |= l.set(English)
	}
	l.trie = NewTrie(keys, sets)
	return l
}

// set returns the trie set of a language.
func (l *lexicon) set(lang Lang) uint32 {
	if _, ok := l.sets[lang]; !ok {
		l.sets[lang] = 1 << len(l.sets)
	}
	return l.sets[lang]
}

type builder struct {
	*lexicon
	at    map[string]int
	pairs int32
	// endings are contractions of the last word of a phrase with an article: "de" becomes "del".
	endings [][2]string
	// adverbs may stand between a verb and its preposition: "depends also on".
	adverbs []string
}

// line adds one line of a file. Phrases are separated by ", ". A section behind ";" belongs to the same kind.
func (b *builder) line(lang Lang, key, list string) {
	list = strings.ReplaceAll(list, "; ", ", ")
	for i, s := range strings.Split(list, ", ") {
		s = Fold(strings.TrimSpace(s))
		if s == "" {
			continue
		}
		switch role, isField := strings.CutPrefix(key, "field "); {
		case isField:
			b.fields[s] = append(b.fields[s], Role(role))
		case strings.HasPrefix(key, "block "):
			b.block(strings.TrimPrefix(key, "block "), s)
		case key == "numbers" || key == "ordinals" || key == "marks":
			if _, ok := b.numbers[s]; !ok || key == "ordinals" {
				b.numbers[s] = i
			}
			switch key {
			case "ordinals":
				b.ordinals[s] = true
			case "marks":
				b.marks[s] = true
				continue
			}
			b.add(s, entry{kind: Numeral, lang: lang, value: int32(i), ordinal: key == "ordinals"})
		case key == "months":
			for name := range strings.SplitSeq(s, "/") {
				b.months[name] = i + 1
			}
		case key == "adverbs":
			b.adverbs = append(b.adverbs, s)
		case key == "endings":
			from, to, _ := strings.Cut(s, "/")
			b.endings = append(b.endings, [2]string{" " + from, " " + to})
		case key == "inflections":
			head, tail, ok := strings.Cut(s, "…")
			if !ok {
				head, tail = "", s
			}
			if b.inflections[lang] == nil {
				b.inflections[lang] = map[string][]string{}
			}
			b.inflections[lang][tail] = append(b.inflections[lang][tail], head)
		case key == "abbreviations":
			b.abbreviations[s] = true
		case key == "ordinal nouns":
			b.counted[s] = true
		case key == "common":
			b.common[s] = b.common[s].with(lang)
		case key == "writing":
			if b.writing[lang] == nil {
				b.writing[lang] = map[string]bool{}
			}
			b.writing[lang][s] = true
		default:
			k := slices.Index(kindNames[:], key)
			if k < 0 {
				panic("language " + string(lang) + ": unknown key " + key)
			}
			b.phrase(lang, Kind(k), s)
			b.parted(lang, Kind(k), s)
		}
	}
}

// parted adds a phrase of Needs or Apart once for each adverb, with the adverb behind the verb.
func (b *builder) parted(lang Lang, k Kind, s string) {
	verb, rest, ok := strings.Cut(s, " ")
	if !ok || k != Needs && k != Apart || strings.HasPrefix(rest, "…") || strings.HasPrefix(s, "…") || strings.HasSuffix(verb, ":") {
		return
	}
	for _, a := range b.adverbs {
		b.phrase(lang, k, verb+" "+a+" "+rest)
	}
}

// phrase adds a phrase. "…" in it is the place of the reference.
func (b *builder) phrase(lang Lang, k Kind, s string) {
	parts := strings.Split(s, "…")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	e := entry{kind: k, lang: lang}
	switch {
	case len(parts) == 1:
		b.add(parts[0], e)
		if lang == "ar" && (k == Then || k == First || k == Last || k == Meanwhile) {
			b.add("و"+parts[0], e) // "and" is written together with the next word
		}
		for _, end := range b.endings {
			if stem, ok := strings.CutSuffix(parts[0], end[0]); ok && Relations.Has(k) {
				b.add(stem+end[1], e)
			}
		}
	case k == And && len(parts) <= 3, k == To && len(parts) == 3:
		b.add(parts[1], e)
	case k == To:
		b.add(parts[0], e)
	case k == Steps || k == Parts || k == Groups || k == Waves:
		b.add(parts[0], e)
		e.side = Behind
		b.add(parts[1], e)
	case parts[0] != "" && parts[1] != "":
		b.pairs++
		e.side, e.pair, e.part, e.opens = Around, b.pairs, opening, true
		b.add(parts[0], e)
		e.part = closing
		b.add(parts[1], e)
	case parts[0] != "":
		e.opens = !strings.HasSuffix(parts[0], ":")
		b.add(parts[0], e)
	default:
		e.side = Behind
		b.add(parts[1], e)
	}
}

func (b *builder) add(s string, e entry) {
	if s == "" {
		return
	}
	i, ok := b.at[s]
	if !ok {
		i = len(b.phrases)
		b.at[s] = i
		b.phrases = append(b.phrases, phrase{text: s})
	}
	b.phrases[i].entries = append(b.phrases[i].entries, e)
}

// Fields returns the roles that a field with this name may have, the most likely first.
func Fields(name string) []Role { return data().fields[foldName(name)] }

// Field returns the most likely role of a field with this name.
func Field(name string) (Role, bool) {
	r := Fields(name)
	if len(r) == 0 {
		return "", false
	}
	return r[0], true
}

// foldName returns a field name in the form of the files: depends_on, dependsOn and "Depends On:" are the
// same.
func foldName(name string) string {
	name = strings.TrimRight(strings.TrimSpace(name), ":： *?")
	for _, s := range [2]string{name, strings.TrimRight(name, "….")} {
		if _, ok := data().fields[Fold(s)]; ok {
			return Fold(s)
		}
	}
	var sb strings.Builder
	var last rune
	for _, r := range name {
		switch {
		case r == '_' || r == '-':
			r = ' '
		case r >= 'A' && r <= 'Z' && last >= 'a' && last <= 'z':
			sb.WriteByte(' ')
		}
		sb.WriteRune(r)
		last = r
	}
	return Fold(sb.String())
}

// lookup returns the meanings of a whole phrase.
func (l *lexicon) lookup(folded string) []entry {
	node := int32(0)
	for i := range len(folded) {
		if node = l.trie.Next(node, folded[i], AllSets); node < 0 {
			return nil
		}
	}
	if i := l.trie.Key(node); i >= 0 {
		return l.phrases[i].entries
	}
	return nil
}

// Is reports whether the whole text is a phrase of the kind.
func Is(k Kind, text string) bool {
	for _, e := range data().lookup(Fold(strings.TrimSpace(text))) {
		if e.kind == k && e.part == whole {
			return true
		}
	}
	return false
}

// IsAbbreviation reports whether a point behind the word does not end a sentence: "bzw", "Dr".
func IsAbbreviation(word string) bool { return data().abbreviations[Fold(word)] }

// FollowsOrdinal reports whether a word may follow the number and point of an ordinal: "3. Schritt".
func FollowsOrdinal(word string) bool { return data().counted[Fold(word)] }

// Relates reports whether the text contains a phrase that relates steps.
func Relates(text string) bool {
	for _, t := range Scan(text) {
		if t.Kinds&Relations != 0 {
			return true
		}
	}
	return false
}

// Has reports whether the text contains a phrase of the kind.
func Has(k Kind, text string) bool {
	for _, t := range Scan(text) {
		if t.Kinds.Has(k) {
			return true
		}
	}
	return false
}
