// Package lexicon holds the words with which plans state order and refer to steps, in many languages. The
// words are data: a file for each language in languages/, one line for each kind, so that a speaker of the
// language can mend them.
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

// Kind says what a phrase tells.
type Kind uint8

// The kinds of phrases; each is a key of the files of languages.
const (
	// Steps are the nouns for a step: step, task, phase.
	Steps Kind = iota
	// Parts are those of the nouns that are said of other things, too: part, phase, number.
	Parts
	// Groups are nouns for what holds steps: phase, wave, week. Waves are those of them whose steps run side
	// by side.
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
	// None says that there is nothing to wait for.
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
	// Abreast is said of a group: that its steps run side by side.
	Abreast
	// Loose and Chained are said of all steps: that they need nothing, that each follows the one before.
	// Sequence says that they are in order, which leaves open whether some need less.
	Loose
	Chained
	Sequence
	// Plan announces a plan, List a list that is none, Path a chain of steps out of a plan, which is not all
	// of it. Choice goes with alternatives, Correct with a change of mind.
	Plan
	Path
	List
	Choice
	Correct
	Refuse
	// Earlier goes with a number, a noun or both: "two previous steps", "all preceding tasks", "dos pasos
	// anteriores".
	Earlier
	// Others are all other steps. Recent and Leading go with a number: "the last two", "the first three".
	Others
	Recent
	Leading
	// Every and Definite go with a number in words, too: "all three", "les trois". Every is said of all steps
	// besides: "all steps are independent".
	Every
	Definite
	// Until turns into a need behind a negation: "can't start until 3".
	Until
	// Sources are prepositions that make a use of a reference, not of a word: "the kit from 21".
	Sources
	// Must makes a need of what is said of a step: "the lease must be signed".
	Must
	// Not turns a relation round, Except takes steps out of a reference.
	Not
	Except
	// Same says that a relation or a need is that of the step before: "same, after 1", "likewise".
	Same
	// Ditto says by itself that what is said of the step before, or of the one that it names, is said of this
	// one: "idem", "same as 2".
	Ditto
	// Done are words of a state that stand behind a reference: "once 2 is ready".
	Done
	// Units are what is counted by numbers that are no references: days, people, percent.
	Units
	// Common are the words by which a language is told.
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

// KindsOf returns the set of the kinds that are given.
func KindsOf(list ...Kind) Kinds {
	var s Kinds
	for _, k := range list {
		s |= 1 << k
	}
	return s
}

// Has reports whether the set holds k.
func (s Kinds) Has(k Kind) bool { return s&(1<<k) != 0 }

// Relations are the kinds that relate one step with others.
const Relations Kinds = 1<<Needs | 1<<Uses | 1<<Before | 1<<Beside | 1<<Apart

// Role says what a field of a record is for.
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
	// Within is a field that names what a record belongs to, replaces or resembles, which is no order.
	Within Role = "within"
	// Nothing is what a cell says that names no other step.
	Nothing Role = "nothing"
)

// Lang is a language by its two letters; "" is any.
type Lang string

// English is used within texts of all languages.
const English Lang = "en"

// Side says where a relation has its reference.
type Side uint8

const (
	// Ahead is a phrase that stands ahead of its reference: "after 2".
	Ahead Side = iota
	// Behind is a phrase that stands behind its reference: "2の後".
	Behind
	// Around is a phrase of two parts that has its reference between them: "sobald 2 fertig ist".
	Around
)

type part uint8

const (
	whole part = iota
	opening
	closing
)

// entry is one meaning of a phrase. The two parts of a phrase that goes around a reference have the same
// pair.
type entry struct {
	kind Kind
	side Side
	part part
	lang Lang
	pair int32
	// value is the number of a numeral. opens is set on a phrase that opens a clause: "once … is done".
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
	sets    map[Lang]uint32 // each language with English, as sets for the trie
	numbers map[string]int
	// ordinals are those of the numbers that say a place; marks are words such as "secondly".
	ordinals, marks map[string]bool
	fields          map[string][]Role
	common          map[string]langs
	// abbreviations end with a point and do not end a sentence; counted are nouns behind the number of an
	// ordinal.
	abbreviations, counted map[string]bool
	// inflections are what forms of a word begin and end with, for each language; "" is a beginning, too.
	inflections map[Lang]map[string][]string
	// writing are facts of a language: unspaced, verb last.
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
	// English comes first, so that its meaning of a field's name is the first one.
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

// set returns the set for the trie that holds a language.
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
	// endings are what the last word of a phrase becomes in front of an article: "de" is "del".
	endings [][2]string
	// adverbs are words that stand inside of a verb with its preposition: "depends also on".
	adverbs []string
}

// line adds one line of a file. Phrases are parted by ", "; a section behind ";" goes on in the same kind.
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

// parted adds a phrase of what a step needs, or does not, with each adverb behind its verb.
func (b *builder) parted(lang Lang, k Kind, s string) {
	verb, rest, ok := strings.Cut(s, " ")
	if !ok || k != Needs && k != Apart || strings.HasPrefix(rest, "…") || strings.HasPrefix(s, "…") || strings.HasSuffix(verb, ":") {
		return
	}
	for _, a := range b.adverbs {
		b.phrase(lang, k, verb+" "+a+" "+rest)
	}
}

// phrase adds a phrase; "…" in it marks where the reference stands.
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
			b.add("و"+parts[0], e) // "and" is written together with what follows
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

// Fields returns the roles that a field of this name can have, the likeliest first.
func Fields(name string) []Role { return data().fields[foldName(name)] }

// Field returns the likeliest role of a field of this name.
func Field(name string) (Role, bool) {
	r := Fields(name)
	if len(r) == 0 {
		return "", false
	}
	return r[0], true
}

// foldName brings a field's name into the form of the files: depends_on, dependsOn and "Depends On:" are one.
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

// Is reports whether the phrase, as a whole, is of the kind.
func Is(k Kind, text string) bool {
	for _, e := range data().lookup(Fold(strings.TrimSpace(text))) {
		if e.kind == k && e.part == whole {
			return true
		}
	}
	return false
}

// IsAbbreviation reports whether a word, before a point, is one that does not end a sentence: "bzw", "Dr".
func IsAbbreviation(word string) bool { return data().abbreviations[Fold(word)] }

// FollowsOrdinal reports whether a word stands behind the number and the point of an ordinal: "3. Schritt".
func FollowsOrdinal(word string) bool { return data().counted[Fold(word)] }

// Relates reports whether a phrase in the text relates steps.
func Relates(text string) bool {
	for _, t := range Scan(text) {
		if t.Kinds&Relations != 0 {
			return true
		}
	}
	return false
}

// Has reports whether a phrase of the kind stands in the text.
func Has(k Kind, text string) bool {
	for _, t := range Scan(text) {
		if t.Kinds.Has(k) {
			return true
		}
	}
	return false
}
