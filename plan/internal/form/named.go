package form

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

const (
	// maxNameWords and maxName bound a name in front of an entry, in words and bytes.
	maxNameWords = 4
	maxName      = 40
)

// name is a word or two at the start of an entry that other entries may refer to: "dock: into dry dock".
type name struct {
	it        *Item
	label     string
	end, rest int // offsets in Text: the end of the name, and the start of the text behind it
	referred  bool
}

// nameClass identifies entries of the same shape. Names are looked for within one class.
type nameClass struct {
	kind          ItemKind
	bullet, box   bool
	indent, level int
}

// nameEntries makes labels of the words before a colon, a dash or the like in entries of one shape. It
// requires that other entries refer to such words where they state a relation: "- dock: into dry dock", "-
// drain: empty the tanks, after dock".
func nameEntries(items []*Item) {
	classes := map[nameClass][]*name{}
	count, fields := map[nameClass]int{}, map[nameClass]int{}
	drawn := false
	first := map[string][]*name{}
	for _, it := range items {
		if it.Mark.Style != NoMark || it.Kind == Row || it.Kind == Heading && it.Box == 0 || it.Text == "" {
			continue
		}
		c := nameClass{it.Kind, it.Bullet != 0, it.Box != 0, it.Indent, it.Level}
		count[c]++
		drawn = drawn || it.Kind == Plain && ContainsArrow(it.Text)
		end, rest, ok := entryName(it.Text)
		if !ok || len(count) > maxShapes || it.Strong > 0 && rest < len(it.Text) && strings.TrimSpace(it.Text[end:rest]) == "" {
			continue
		}
		n := &name{it: it, label: it.Text[:end], end: end, rest: rest}
		if _, isField := lexicon.Field(n.label); isField && it.Box == 0 {
			fields[c]++
		}
		classes[c] = append(classes[c], n)
		w := lexicon.Fold(n.label[:wordEnd(n.label, 0)])
		if len(first[w]) < maxShapes {
			first[w] = append(first[w], n)
		}
	}
	for c, names := range classes {
		if len(names) < 2 || fields[c]*3 > len(names) || drawn && c.kind == Plain || len(names)*3 < count[c]*2 || !distinct(names) {
			delete(classes, c)
		}
	}
	if len(classes) == 0 {
		return
	}
	for _, it := range items {
		refer(it, first)
	}
	for c, names := range classes {
		least := 2
		if len(names) < 4 {
			least = 1
		}
		referred := 0
		for _, n := range names {
			if n.referred {
				referred++
			}
		}
		if alike := len(names) == count[c] && len(names) > 2 && c.kind == Entry && allWords(names); !alike && (referred < least || referred*4 < len(names) || c.kind == Plain && referred*2 < len(names)) {
			continue
		}
		for _, n := range names {
			n.mark()
		}
	}
}

// LabelBehind returns the label in brackets behind the first words of a text, and its place: "Survey (R1), in
// May".
func LabelBehind(s string) (label string, at int) {
	for at := 1; at < len(s); at++ {
		if strings.IndexByte("([", s[at]) >= 0 {
			if m := bracketMark(s, at); m.Style == Code && m.Noun == "" && 'A' <= m.Label[0] && m.Label[0] <= 'Z' {
				return m.Label, at + 1
			}
		}
	}
	return "", 0
}

// labelsBehind makes labels of the texts in brackets behind the texts of entries, if other places in the text
// refer to some of them: "- Survey (R1)" and "- Plant (R2), needs R1".
func labelsBehind(items []*Item) {
	classes, count := map[nameClass][]*name{}, map[nameClass]int{}
	classOf := func(it *Item) nameClass { return nameClass{it.Kind, it.Bullet != 0, it.Box != 0, it.Indent, it.Level} }
	labels := map[string]*name{}
	for _, it := range items {
		if it.Kind != Entry || it.Mark.Style != NoMark {
			continue
		}
		c := classOf(it)
		count[c]++
		if label, at := LabelBehind(it.Text); at > 0 && labels[label] == nil {
			labels[label] = &name{it: it, label: label, end: at}
			classes[c] = append(classes[c], labels[label])
		}
	}
	if len(labels) < 2 {
		return
	}
	referred := map[nameClass]bool{}
	for _, it := range items {
		for at := 0; at < len(it.Text); {
			end := wordEnd(it.Text, at)
			if n := labels[it.Text[at:end]]; n != nil && (n.it != it || n.end != at) {
				referred[classOf(n.it)] = true
			}
			_, size := utf8.DecodeRuneInString(it.Text[end:])
			at = end + size
		}
	}
	for c, names := range classes {
		if !referred[c] || len(names) < 2 || len(names)*3 < count[c]*2 {
			continue
		}
		for _, n := range names {
			n.it.Mark = Mark{Style: Code, Label: n.label, Off: n.it.TextOff, End: n.it.TextOff}
		}
	}
}

// maxShapes bounds the number of shapes of entries, and the number of names that begin with the same word.
const maxShapes = 40

func (n *name) mark() {
	it := n.it
	it.Mark = Mark{Style: Word, Label: n.label, Off: it.TextOff, End: it.TextOff + n.rest}
	it.Text, it.TextOff, it.Strong = it.Text[n.rest:], it.TextOff+n.rest, 0
	if it.Kind == Plain {
		it.Kind = Entry
	}
}

// allWords reports whether all names are single words in small letters with a text behind them: "lint – check
// the style".
func allWords(names []*name) bool {
	for _, n := range names {
		r, _ := utf8.DecodeRuneInString(n.label)
		if !unicode.IsLower(r) || strings.Contains(n.label, " ") || n.rest >= len(n.it.Text) || n.rest == n.end {
			return false
		}
	}
	return true
}

func distinct(names []*name) bool {
	seen := make(map[string]bool, len(names))
	for _, n := range names {
		key := lexicon.Fold(n.label)
		if seen[key] {
			return false
		}
		seen[key] = true
	}
	return true
}

// refer records the names that an item refers to where it states a relation.
func refer(it *Item, first map[string][]*name) {
	var found []*name
	for at := 0; at < len(it.Text); {
		r, size := utf8.DecodeRuneInString(it.Text[at:])
		if !nameRune(r) {
			at += size
			continue
		}
		end := wordEnd(it.Text, at)
		for _, n := range first[lexicon.Fold(it.Text[at:end])] {
			stop := at + len(n.label)
			if n.it == it || n.referred || stop > len(it.Text) || !strings.EqualFold(it.Text[at:stop], n.label) {
				continue
			}
			if r, _ := utf8.DecodeRuneInString(it.Text[stop:]); !nameRune(r) {
				found = append(found, n)
			}
		}
		at = end
	}
	if len(found) > 0 && lexicon.Relates(it.Text) {
		for _, n := range found {
			n.referred = true
		}
	}
}

func nameRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsMark(r) || unicode.IsDigit(r)
}

// wordEnd returns the end of the word at s[at:], including hyphens inside it.
func wordEnd(s string, at int) int {
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		next, _ := utf8.DecodeRuneInString(s[at+n:])
		if !nameRune(r) && !(strings.ContainsRune("-'’./", r) && nameRune(next)) {
			break
		}
		at += n
	}
	return at
}

// entryName returns the end of a name at the start of a text, and the start of the text behind its sign. A
// single word may be the whole text.
func entryName(s string) (end, rest int, ok bool) {
	if r, _ := utf8.DecodeRuneInString(s); !unicode.IsLetter(r) {
		return 0, 0, false
	}
	for words := 1; words <= maxNameWords && end < maxName; words++ {
		end = wordEnd(s, end)
		if end > maxName {
			return 0, 0, false
		}
		at := skipSpace(s, end)
		if at == len(s) {
			return end, at, words == 1
		}
		r, n := utf8.DecodeRuneInString(s[at:])
		spaced := strings.HasPrefix(s[at+n:], " ")
		switch {
		case r == '：', r == ':' && (spaced || at+n == len(s) || strings.HasPrefix(s[at+n:], ":")),
			r == '|', r == '—', r == '–' && at > end, (r == '-' || r == '=' && words == 1) && at > end && spaced:
			return end, skipSpace(s, at+n+len(s[at+n:])-len(strings.TrimLeft(s[at+n:], ":"))), true
		case (r == '(' || r == '[') && at > end && words == 1, at-end > 1:
			return end, at, true
		case at == end || !nameRune(r):
			return 0, 0, false
		}
		end = at
	}
	return 0, 0, false
}
