package meaning

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// Named describes an item whose name a text may use.
type Named struct {
	// ID is the label, Noun the word before it ("Step"), and Titles are texts that name the item.
	ID, Noun string
	Titles   []string
	// Exact are texts that name the item only as a whole.
	Exact []string
	// Parent is the index of the group around the item, or -1. Group is set on items that only group others.
	Parent int
	Group  bool
	// Whole is set on a group that only its whole title names.
	Whole bool
	// Number is the number of a group with a number or a letter: 2 for "Phase B".
	Number int
	// Made is set if the text shows no id and ID was made from the item's position.
	Made bool
}

// Names resolves references in texts to items. It is not safe for concurrent use.
type Names struct {
	items []Named
	lang  lexicon.Lang
	// ended reports whether the result is no longer needed; it may be nil.
	ended func() bool
	// byKey holds the items by folded id. byValue holds the items whose id is a number, or begins or ends
	// with one.
	byKey   map[string]int
	byValue map[int][]int
	// prefixes are the letters of labels such as T1. With them, T9 is known as a label that no item has.
	prefixes map[string]bool
	// steps are the items that are not groups, in order. position holds the position of each item among them.
	steps    []int
	position []int
	// stems are the beginnings of the words in titles, with their items.
	stems map[string][]int
	// remarks are the same for words behind the titles.
	remarks map[string][]int
	// titles holds folded whole titles; -1 stands for a title of several items.
	titles map[string]int
	// numbers is set if most ids are numbers. highest is the largest of them.
	numbers bool
	highest int
	// made is set if the text shows no ids; then bare numbers are no references. nouns are the nouns of the
	// steps.
	made  bool
	nouns map[string]bool
	// looks holds the patterns that several ids share; see looksOf.
	looks map[string]bool
	// spaced is set if some ids have several words.
	spaced bool
	// prior are the subjects of the sentence before the text.
	prior []int
	// cut and put are reused for the atoms of each text.
	cut, put []atom
}

const (
	// stemLength is the number of letters by which words are compared.
	stemLength = 5
	// maxStem bounds the items of a stem. A stem of more items names none of them.
	maxStem = 8
	// maxSample bounds the text from which the language is detected, in bytes.
	maxSample = 8000
)

// NewNames prepares names of items for Relations. The language is that of the titles.
func NewNames(items []Named) *Names { return namesIn(items, titlesLanguage(items)) }

// titlesLanguage detects the language of the titles of items.
func titlesLanguage(items []Named) lexicon.Lang {
	var sample strings.Builder
	for _, it := range items {
		for _, t := range it.Titles {
			if sample.Len() < maxSample {
				sample.WriteString(t)
				sample.WriteByte('\n')
			}
		}
	}
	return lexicon.Language(sample.String())
}

// namesIn prepares the names of items in a language.
func namesIn(items []Named, lang lexicon.Lang) *Names {
	n := &Names{
		items: items, lang: lang, byKey: make(map[string]int, len(items)), byValue: map[int][]int{},
		prefixes: map[string]bool{}, position: make([]int, len(items)), stems: map[string][]int{}, remarks: map[string][]int{}, titles: map[string]int{}, looks: map[string]bool{}, nouns: map[string]bool{}, made: len(items) > 0,
	}
	for i, it := range items {
		n.position[i] = len(n.steps)
		if !it.Group {
			n.steps = append(n.steps, i)
		}
		n.id(i, it.ID)
		n.made = n.made && (it.Made || it.Parent < 0 && it.Group) // numbers of phases are no numbers of steps
		if !it.Group {
			n.nouns[lexicon.Fold(it.Noun)] = true
		}
		for _, t := range it.Titles {
			head := n.head(t)
			n.title(i, head)
			n.words(i, t[len(head):], n.remarks)
		}
		for _, t := range it.Exact {
			n.exactly(i, n.head(t))
		}
		if _, isNumber := lexicon.Number(it.ID); !isNumber && strings.Contains(strings.TrimSpace(it.ID), " ") {
			n.title(i, it.ID)
		}
	}
	n.also()
	n.numbers = len(n.byValue)*2 > len(items)
	seen := map[string]int{}
	for i := range items {
		look := looksOf(items[i].ID)
		seen[look]++
		n.looks[look] = n.looks[look] || seen[look] > 1
	}
	return n
}

// also adds labels besides the ids: R1 in "1. Survey (R1)", and 2a for a below 2. Labels of several items are
// dropped.
func (n *Names) also() {
	labels := map[string]int{}
	note := func(label string, i int) {
		if other, ok := labels[label]; ok && other != i {
			i = -1
		}
		labels[label] = i
	}
	for i, it := range n.items {
		if len(it.Titles) > 0 && strings.ContainsAny(it.Titles[len(it.Titles)-1], "([") {
			label, _ := form.LabelBehind(it.Titles[len(it.Titles)-1])
			note(lexicon.Fold(label), i)
		}
		if it.Parent >= 0 && len(it.ID) == 1 && isLetter(it.ID) && digits(n.items[it.Parent].ID) {
			note(n.items[it.Parent].ID+it.ID, i)
		}
	}
	for label, i := range labels {
		if i >= 0 {
			n.key(label, i)
		}
	}
}

// In sets the language of the text. It is for callers that know more of the text than the items.
func (n *Names) In(lang lexicon.Lang) { n.lang = lang }

// id adds the ways in which a text may write an id.
func (n *Names) id(i int, id string) {
	key := strings.Trim(lexicon.Fold(strings.TrimSpace(id)), "[]().:")
	if key == "" {
		return
	}
	n.key(key, i)
	if rest := strings.TrimLeft(key, "#"); rest != key {
		n.key(rest, i)
	}
	n.key(compact(key), i)
	if w := strings.Fields(key); len(w) > 1 {
		switch {
		case lexicon.Is(lexicon.Steps, w[0]):
			n.id(i, strings.Join(w[1:], " "))
			return
		case lexicon.Is(lexicon.Steps, w[len(w)-1]):
			n.id(i, strings.Join(w[:len(w)-1], " "))
			return
		}
	}
	letters := strings.IndexFunc(key, func(r rune) bool { _, ok := lexicon.Digit(r); return ok })
	if letters > 0 {
		n.prefixes[strings.Trim(key[:letters], "-_. #")] = true
	}
	if v, ok := lexicon.Number(key); ok && !isLetter(key) {
		n.value(v, i)
	} else if v, ok := leadingNumber(key); ok {
		n.value(v, i)
	}
}

// isLetter reports whether an id is a single letter such as i, v or x. Such an id is no Roman number.
func isLetter(key string) bool {
	return utf8.RuneCountInString(key) == 1 && key[0] < 0x80 && key[0] >= 'a'
}

func (n *Names) key(key string, i int) {
	if _, ok := n.byKey[key]; !ok && key != "" {
		n.byKey[key] = i
		n.spaced = n.spaced || strings.Contains(key, " ")
	}
}

func (n *Names) value(v, i int) {
	if list := n.byValue[v]; len(list) == 0 || list[len(list)-1] != i {
		n.byValue[v] = append(list, i)
	}
	n.highest = max(n.highest, v)
}

// compact drops the signs between the letters and digits of a label.
func compact(key string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_ #", r) {
			return -1
		}
		return r
	}, key)
}

// leadingNumber returns the number at the beginning of ids such as 2a and 2.1, or else the number at the end,
// as in T2.
func leadingNumber(key string) (int, bool) {
	end := 0
	for end < len(key) && key[end] >= '0' && key[end] <= '9' {
		end++
	}
	if end > 0 {
		return lexicon.Digits(key[:end])
	}
	start := len(key)
	for start > 0 && key[start-1] >= '0' && key[start-1] <= '9' {
		start--
	}
	return lexicon.Digits(key[start:])
}

// head returns the part of a title that names the item, without a remark behind it.
func (n *Names) head(text string) string {
	for _, sign := range []string{"\n", "(", "（", " – ", " — ", " - ", ";", ". ", "。"} {
		if at := strings.Index(text, sign); at > 0 {
			text = text[:at]
		}
	}
	for _, t := range lexicon.ScanIn(n.lang, text) {
		if t.Kinds&(lexicon.Relations&^lexicon.KindsOf(lexicon.Uses)|lexicon.KindsOf(lexicon.Ditto)) != 0 && t.Off > 0 {
			return text[:t.Off]
		}
	}
	return text
}

// exactly adds a title that names an item as a whole.
func (n *Names) exactly(i int, text string) {
	if key := titleKey(text); key != "" {
		if other, ok := n.titles[key]; ok && other != i {
			i = -1
		}
		n.titles[key] = i
	}
}

// title adds a title and, unless only the whole title counts, its words.
func (n *Names) title(i int, text string) {
	n.exactly(i, text)
	if n.items[i].Whole {
		return
	}
	n.words(i, text, n.stems)
}

// tail returns a key for the end of a word in languages with compound words, so that "Antrag" names
// "Bauantrag". It is "" in other languages.
func (n *Names) tail(word string) string {
	w := []rune(lexicon.Base(n.lang, lexicon.Fold(word)))
	if n.lang != "de" && n.lang != "nl" && n.lang != "sv" || len(w) < stemLength {
		return ""
	}
	return "…" + string(w[len(w)-stemLength:])
}

// words adds the words of a text to the stems of an item.
func (n *Names) words(i int, text string, stems map[string][]int) {
	start := -1
	note := func(word string) {
		stem := n.stem(word)
		if stem == "" {
			return
		}
		for _, key := range [3]string{stem, n.whole(word), n.tail(word)} {
			list := stems[key]
			if key != "" && len(list) <= maxStem && (len(list) == 0 || list[len(list)-1] != i) {
				stems[key] = append(list, i)
			}
		}
	}
	for at, r := range text + " " {
		if unicode.IsLetter(r) || unicode.Is(unicode.M, r) {
			if start < 0 {
				start = at
			}
			continue
		}
		if start >= 0 {
			note(text[start:at])
		}
		start = -1
	}
}

// titleKey returns the form in which whole titles are compared.
func titleKey(text string) string {
	return strings.Trim(lexicon.Fold(text), " .,:;!?*_`\"'«»„“”()")
}

// whole returns the key of a whole word, or "" if the word is no longer than its stem.
func (n *Names) whole(word string) string {
	w := lexicon.Base(n.lang, lexicon.Fold(word))
	if utf8.RuneCountInString(w) <= stemLength {
		return ""
	}
	return "=" + w
}

// stem returns the beginning of a word, or "" for a word that names nothing.
func (n *Names) stem(word string) string {
	w := lexicon.Fold(word)
	if lexicon.IsCommon(n.lang, w) {
		return ""
	}
	if count := utf8.RuneCountInString(w); count < 3 || count == 3 && w[0] < 0x80 && lexicon.Is(lexicon.Steps, w) {
		return ""
	}
	w = lexicon.Base(n.lang, w)
	count, end := 0, 0
	for i, r := range w {
		if count++; count > stemLength {
			break
		}
		end = i + utf8.RuneLen(r)
	}
	return w[:end]
}
