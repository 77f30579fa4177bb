package meaning

import (
	"slices"
	"sort"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// maxNamed bounds the words from which an item is found.
const maxNamed = 12

// named adds the items that the words between two atoms name by their titles.
func (t *relationReader) named(rel *Relation, from, to int) {
	if rel.Kind > Before || from >= to || t.atoms[from].is(lexicon.None) || !strings.ContainsFunc(t.text[rel.Off:rel.End], unicode.IsLetter) {
		return
	}
	if t.titled(rel, from) || !t.guessable(rel, from) {
		return
	}
	for from < to {
		next := from
		for next < to && !t.atoms[next].is(lexicon.And) && t.atoms[next].class != slash {
			next++
		}
		if all := t.several(from, min(next, from+maxNamed)); len(all) > 0 {
			rel.Items, rel.Guessed = append(rel.Items, all...), true
			rel.Off, rel.End = min(rel.Off, t.atoms[from].off), max(rel.End, t.atoms[next-1].end)
			from = next + 1
			continue
		}
		if i, ok, weak := t.byTitle(from, min(next, from+maxNamed)); ok && !(t.n.items[i].Group && i > t.self && t.self >= 0) {
			if rel.Kind == Before && t.self >= 0 && t.timed(rel.Off) {
				from = next + 1
				continue // for example "two weeks before the race"
			}
			if rel.Kind == Before && i < t.self {
				why := "it may come before " + t.n.items[i].ID + ", which is listed earlier"
				whole := t.wholly(i, from, next)
				if whole {
					why = "taken for a step after it, although it is listed earlier"
				}
				t.doubts = append(t.doubts, Doubt{Item: t.self, Text: t.text[t.atoms[from].off:t.atoms[next-1].end], Why: why, Off: rel.Off})
				if !whole {
					from = next + 1
					continue
				}
			}
			if weak {
				words := t.text[t.atoms[from].off:t.atoms[next-1].end]
				t.doubts = append(t.doubts, Doubt{Item: t.self, Text: words, Why: "taken for " + t.n.items[i].ID + " by one of the words", Off: rel.Off})
			}
			rel.Items = append(rel.Items, i)
			rel.Guessed = true
			rel.End = max(rel.End, t.atoms[next-1].end)
			rel.Off = min(rel.Off, t.atoms[from].off)
		} else if i >= 0 && rel.Kind == Needs && t.begins(rel.Off) {
			if t.self >= 0 {
				i = t.self
			}
			t.doubts = append(t.doubts, Doubt{Item: i, Text: t.text[t.atoms[from].off:t.atoms[next-1].end], Why: "the words may name several steps", Off: rel.Off})
		}
		from = next + 1
	}
}

// stemOf returns the stem of an atom that is a word or a phrase, or "".
func (t *relationReader) stemOf(a *atom) string {
	if a.class != word && a.class != phrase {
		return ""
	}
	return t.n.stem(t.text[a.off:a.end])
}

// wholly reports whether there are at least two words between two atoms and the title of an item has all of
// them.
func (t *relationReader) wholly(item, from, to int) bool {
	words := 0
	for i := from; i < to; i++ {
		stem := t.stemOf(&t.atoms[i])
		if stem == "" {
			continue
		}
		if words++; !slices.Contains(t.n.stems[stem], item) {
			return false
		}
	}
	return words > 1
}

// several returns the earlier steps with a word in their titles if their number is the one stated: "both
// checks", "all three snapshots".
func (t *relationReader) several(from, to int) []int {
	count := 0
	for i := from; i < to && t.self >= 0; i++ {
		a := &t.atoms[i]
		switch {
		case a.class == group && a.is(lexicon.Both):
			count = 2
		case a.class == group && a.bare && a.count == 1 && a.value > 1:
			count = a.value
		case a.class == word && a.common:
		case a.class == word && count > 0:
			var found []int
			for _, x := range t.n.stems[t.n.stem(t.text[a.off:a.end])] {
				if x < t.self && !t.n.items[x].Group {
					found = append(found, x)
				}
			}
			if len(found) == count {
				return found
			}
			return nil
		default:
			return nil
		}
	}
	return nil
}

// timed reports whether a time precedes an offset: "two weeks before".
func (t *relationReader) timed(off int) bool {
	i := sort.Search(len(t.atoms), func(i int) bool { return t.atoms[i].off >= off })
	return i > 0 && (t.isUnit(i-1) || t.atoms[i-1].class == quantity)
}

// demands reads a remark with a demand on another step, which it names by words: "(the lease must be
// signed)".
func (t *relationReader) demands(from, to int) {
	if from == 0 || t.self <= 0 || to-from > maxDemand || t.atoms[from-1].class == comma {
		return
	}
	must := -1
	for i := from; i < to; i++ {
		switch a := &t.atoms[i]; {
		case a.class == group && !a.positional && (!a.spelled || a.sure):
			return
		case a.class != phrase || a.used:
		case a.kinds&lexicon.Relations != 0 || a.is(lexicon.Not):
			return
		case a.is(lexicon.Must) && must < 0:
			must = i
		}
	}
	if must <= from || to-must > maxDemanded {
		return
	}
	rel := Relation{Kind: Needs, Off: t.atoms[from].off, End: t.atoms[to-1].end}
	if t.named(&rel, from, to); rel.full() {
		t.state(rel, nil)
	}
}

// maxDemand bounds the words of such a remark, maxDemanded those behind the "must".
const maxDemand, maxDemanded = 14, 6

// guessable reports whether words behind a phrase may name an item. A verb at the beginning of a text is the
// step's own action: "Combine the figures" names no item, "after the survey, combine" does.
func (t *relationReader) guessable(rel *Relation, from int) bool {
	at := max(0, from-1)
	for at > 0 && t.atoms[at].kinds&lexicon.Relations == 0 {
		at--
	}
	a := &t.atoms[at]
	if a.tok.Side != lexicon.Ahead || a.tok.Opens {
		return true
	}
	if rel.Kind == Uses && !strings.Contains(a.tok.Phrase, " ") {
		return at > 0 && t.atoms[at-1].class == opened // for example "(uses the map)"
	}
	return at > 0 || rel.Kind == Needs
}

// maxTitle bounds the atoms of a title that is looked up as a whole.
const maxTitle = 14

// titled adds the items of a list of whole titles, as in "depends on: Book the hall, Print the posters". It
// returns false if there is none.
func (t *relationReader) titled(rel *Relation, from int) (some bool) {
	for from < len(t.atoms) {
		for from < len(t.atoms) && t.atoms[from].class == colon {
			from++
		}
		found, next := t.wholeTitle(from)
		for some && found < 0 && from < len(t.atoms) && t.atoms[from].class == word && t.atoms[from].common {
			from++
			found, next = t.wholeTitle(from)
		}
		if found < 0 {
			return some
		}
		rel.Items = append(rel.Items, found)
		rel.Off, rel.End = min(rel.Off, t.atoms[from].off), max(rel.End, t.atoms[next-1].end)
		some, rel.titled = true, true
		from = next
		if from < len(t.atoms) && (t.atoms[from].class == comma || t.atoms[from].class == slash || t.atoms[from].is(lexicon.And)) {
			from++
			continue
		}
		break
	}
	return some
}

// wholeTitle returns the item with the longest title that begins at an atom, or -1, and the atom behind the
// title.
func (t *relationReader) wholeTitle(from int) (found, next int) {
	found = -1
	for i := from; i < min(len(t.atoms), from+maxTitle); i++ {
		if c := t.atoms[i].class; c == stop || c == opened || c == closed {
			break
		} else if c == comma || c == slash {
			continue
		}
		if it, ok := t.n.titles[titleKey(t.text[t.atoms[from].off:t.atoms[i].end])]; ok && it >= 0 && it != t.self {
			next, found = i+1, it
		}
	}
	return found, next
}

// begins reports whether a clause begins at an offset.
func (t *relationReader) begins(off int) bool {
	i := sort.Search(len(t.atoms), func(i int) bool { return t.atoms[i].off >= off })
	if i == 0 {
		return t.self < 0
	}
	c := t.atoms[i-1].class
	return c == opened || c == comma || c == dash || c == colon || c == stop
}

// byTitle returns the item that the words name: it has a word that no other item has, or more of the words
// than any other. If several items do, it returns one of them and ok is false. weak is set if most of the
// words do not belong to the item. Steps before self are also found by the words of their remarks if no title
// has any.
func (t *relationReader) byTitle(from, to int) (item int, ok, weak bool) {
	if item, ok, weak = t.byWords(from, to, t.n.stems, false); ok || t.self < 0 {
		return item, ok, weak
	}
	if earlier, ok, weak := t.byWords(from, to, t.n.stems, true); ok || item >= 0 {
		return max(item, earlier), ok, weak
	}
	item, ok, _ = t.byWords(from, to, t.n.remarks, true)
	return item, ok, true
}

// byWords returns the item with the most words between two atoms, for byTitle. earlier admits only items
// before self.
func (t *relationReader) byWords(from, to int, stems map[string][]int, earlier bool) (item int, ok, weak bool) {
	words, best, second, unique := 0, -1, 0, map[int]bool{}
	count := map[int]int{}
	for i := from; i < to; i++ {
		a := &t.atoms[i]
		stem := t.stemOf(a)
		if stem == "" {
			continue
		}
		have := stems[stem]
		if len(have) == 0 && earlier {
			have = stems[t.n.tail(t.text[a.off:a.end])]
		}
		if whole := stems[t.n.whole(t.text[a.off:a.end])]; len(have) > 1 && len(whole) > 0 {
			have = whole // for example the auction, not the auctioneer
		}
		items := slices.DeleteFunc(without(have, []int{t.self}), func(i int) bool {
			return t.self >= 0 && (t.n.within(t.self, i) || earlier && i > t.self)
		})
		words += b2i(a.class == word || len(items) > 0)
		if len(items) > maxStem-1 {
			continue
		}
		for _, x := range items {
			count[x]++
			unique[x] = unique[x] || len(items) == 1
		}
	}
	for x, n := range count {
		switch {
		case best < 0 || n > count[best] || n == count[best] && (unique[x] && !unique[best] || unique[x] == unique[best] && x < best):
			best = x
		}
	}
	if best < 0 {
		return -1, false, false
	}
	for x, n := range count {
		if x != best && (unique[x] || !unique[best]) {
			second = max(second, n)
		}
	}
	return best, count[best] > second && (unique[best] || count[best] > 1), count[best]*2 < words
}
