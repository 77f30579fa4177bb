package discover

import (
	"slices"
	"strings"
	"unicode"
)

// Bounds of words.
const (
	// maxQuery is how much of a query is read, in bytes, and maxQueryWords how many words of it count.
	maxQuery, maxQueryWords = 4 << 10, 64
	// maxWords is how many different words of a workflow are known, and maxWord how long one is in
	// bytes.
	maxWords, maxWord = 256, 64
)

// wordsOf are the different words of texts, in lower case and without the s of a plural, most of them
// at most. A character of a script that puts no blanks between words counts as one.
func wordsOf(most int, texts ...string) []string {
	var out []string
	seen := map[string]bool{}
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			for _, w := range parts(word) {
				if len(out) == most {
					return out
				}
				if w = singular(w); len(w) <= maxWord && !seen[w] {
					seen[w] = true
					out = append(out, w)
				}
			}
		}
	}
	return out
}

// Words are the different words of texts as searches compare them, most of them at most: in lower case and
// without the s of a plural. The words of what is searched and those of a query are to be made by it.
func Words(most int, texts ...string) []string { return wordsOf(most, texts...) }

// unspaced are the scripts that put no blanks between words.
func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai)
}

// parts are the words in letters that no blank separates.
func parts(word string) []string {
	if !strings.ContainsFunc(word, unspaced) {
		return []string{word}
	}
	var out []string
	from := 0
	for i, r := range word {
		if unspaced(r) {
			if from < i {
				out = append(out, word[from:i])
			}
			from = i + len(string(r))
			out = append(out, word[i:from])
		}
	}
	if from < len(word) {
		out = append(out, word[from:])
	}
	return out
}

func singular(w string) string {
	if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
		return w[:len(w)-1]
	}
	return w
}

// table gives names small numbers, so that a name that many workflows have is kept once, and knows who
// has each. The number of a name that nobody has any more is given to another one.
type table struct {
	numbers map[string]uint32
	names   []string
	// users are the places of the workflows that have each name, in no order.
	users [][]uint32
	free  []uint32
}

// take is the number of a name, which one more workflow has, and where the workflow stands among those that
// have it.
func (t *table) take(name string, user uint32) (n, slot uint32) {
	n, ok := t.numbers[name]
	if !ok {
		name = strings.Clone(name) // of a text that need not be kept
		if last := len(t.free) - 1; last >= 0 {
			n, t.free = t.free[last], t.free[:last]
			t.names[n] = name
		} else {
			n = uint32(len(t.names))
			t.names, t.users = append(t.names, name), append(t.users, nil)
		}
		if t.numbers == nil {
			t.numbers = map[string]uint32{}
		}
		t.numbers[name] = n
	}
	t.users[n] = append(t.users[n], user)
	return n, uint32(len(t.users[n]) - 1)
}

// drop takes the workflow at a slot away from those that have a name. The last of them takes its slot.
func (t *table) drop(n, slot uint32) (moved uint32) {
	users := t.users[n]
	last := len(users) - 1
	moved = users[last]
	users[slot] = moved
	if t.users[n] = users[:last]; last == 0 {
		delete(t.numbers, t.names[n])
		t.names[n], t.users[n] = "", nil
		t.free = append(t.free, n)
	}
	return moved
}

// of are the places of the workflows that have a name.
func (t *table) of(name string) []uint32 {
	if n, ok := t.numbers[name]; ok {
		return t.users[n]
	}
	return nil
}

// named are the names of numbers, sorted.
func (t *table) named(numbers []uint32) []string {
	var out []string
	for _, n := range numbers {
		out = append(out, t.names[n])
	}
	slices.Sort(out)
	return out
}
