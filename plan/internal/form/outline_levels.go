package form

import (
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// dropAmounts reads numbers with only a space behind them as amounts if they do not count entries: "3 eggs",
// "1 onion", "20 g of salt". Numbers count entries if each is larger than the one before or restarts at 1, or
// if they are 1 to n in any order. Addresses such as 203.0.113.9 never count entries.
func dropAmounts(items []*Item) {
	falls, all, units, first := 0, 0, 0, 0
	last, seen, highest := map[int]int{}, map[int]bool{}, 0
	for _, it := range items {
		m := it.Mark
		if m.Style != Number || m.Noun != "" {
			continue
		}
		if len(m.Path) == 4 && slices.Max(m.Path) > 99 { // an IP address
			it.unmark()
		}
		if !m.Weak || len(m.Path) != 1 {
			continue
		}
		n := m.Path[0]
		all++
		units += b2i(isUnit(it.Text))
		if all == 1 {
			first = n
		}
		falls += b2i(n <= last[it.Indent] && (n != 1 || first != 1))
		seen[n], last[it.Indent], highest = true, n, max(highest, n)
	}
	if all < 2 || (falls == 0 || len(seen) == all && highest == all) && units*2 < all {
		return
	}
	for _, it := range items {
		if m := it.Mark; m.Style == Number && m.Noun == "" && m.Weak && len(m.Path) == 1 {
			it.unmark()
		}
	}
}

// dropWeakMarks makes marks with only a space behind them part of the text, unless there are others of their
// kind.
func dropWeakMarks(items []*Item) {
	type class struct {
		style  MarkStyle
		prefix string
		bullet bool
	}
	of := func(it *Item) class {
		if it.Mark.Style == Lettered {
			return class{Number, "", it.Bullet != 0 || it.Kind == Heading}
		}
		prefix := codePrefix(it.Mark)
		if it.Mark.Style == Code { // A1 and B1, HR-1 and IT-1 belong to one series
			prefix = "A" + strings.TrimLeftFunc(prefix, unicode.IsUpper)
		}
		return class{it.Mark.Style, prefix, it.Bullet != 0 || it.Kind == Heading}
	}
	count := map[class]int{}
	seen := map[class]map[string]bool{}
	for _, it := range items {
		if it.Mark.Style == NoMark {
			continue
		}
		c := of(it)
		if seen[c] == nil {
			seen[c] = map[string]bool{}
		}
		key := it.Mark.Label
		if it.Mark.Style == Spelled {
			key = itoa(it.Mark.Path[0])
		}
		if !seen[c][key] {
			seen[c][key] = true
			count[c]++
		}
	}
	named := map[shape]int{}
	at := func(it *Item) shape { return shape{it.Kind, it.Bullet != 0, it.Box != 0, it.Indent} }
	for _, it := range items {
		if _, _, ok := entryName(it.Text); ok && it.Mark.Style == NoMark && it.Bullet != 0 {
			named[at(it)]++
		}
	}
	for _, it := range items {
		// "e2e: …" is a name if there are others such as lint: and build:.
		alone := it.Mark.Style != NoMark && count[of(it)] < 2
		if alone && (it.Mark.Weak || it.Mark.Noun != "" && it.Bullet != 0 && !isNoun(it.Mark.Noun) && named[at(it)] > 1 || it.Mark.Style == Code && named[at(it)] > 1) {
			it.unmark()
		}
	}
}

// groupLevel is the level of a line such as "Phase 1: Prepare" above numbered entries.
const groupLevel = 8

// promoteGroups makes headings of lines with a noun and a number if there are entries without the noun
// between them. These must be numbered; behind a noun for groups they may also be bullets that are no fields.
func promoteGroups(items []*Item) {
	between, nouns, gaps := map[string]int{}, map[string]int{}, false
	indentedEntries(items)
	last := ""
	for _, it := range items {
		switch m := it.Mark; {
		case it.Kind == Heading && it.Level < 7:
			last = ""
		case m.Noun != "" && it.Bullet == 0 && it.Box == 0:
			last = m.Noun
			nouns[last]++
		case last == "":
		case m.Style != NoMark, it.Kind == Entry && (it.Bullet != 0 || it.Box != 0) && lexicon.Is(lexicon.Groups, last) && !isField(it):
			between[last]++
			last, gaps = "", true
		}
	}
	if !gaps {
		return
	}
	for _, it := range items {
		if n := it.Mark.Noun; n != "" && it.Kind == Entry && it.Bullet == 0 && it.Box == 0 && between[n]*2 > nouns[n] {
			it.Kind, it.Level = Heading, groupLevel
		}
	}
}

// maxEntryWords bounds the words of a line that is an entry without any sign.
const maxEntryWords = 10

// indentedEntries makes entries of short lines indented below lines such as "Phase 1", if all lines below
// these are short.
func indentedEntries(items []*Item) {
	var found []*Item
	var head *Item
	heads, held := 0, 0
	for i, it := range items {
		switch {
		case it.Mark.Noun != "" && it.Bullet == 0 && it.Box == 0 && lexicon.Is(lexicon.Groups, it.Mark.Noun):
			head = it
			heads++
			held += b2i(i+1 < len(items) && items[i+1].Kind == Plain && items[i+1].Indent > it.Indent)
		case head == nil || it.Indent <= head.Indent:
			head = nil
		case it.Kind != Plain || len(strings.Fields(it.Text)) > maxEntryWords || strings.HasSuffix(it.Text, ".") || isField(it):
			return
		default:
			found = append(found, it)
		}
	}
	if heads < 2 || held < heads {
		return
	}
	for _, it := range found {
		it.Kind, it.Bullet = Entry, '-'
	}
}

// isField reports whether an item is a field of the item above it: "Owner: Ann".
func isField(it *Item) bool {
	at := strings.IndexAny(it.Text[:min(len(it.Text), maxLabel)], ":：")
	if at <= 0 {
		return false
	}
	_, known := lexicon.Field(it.Text[:at])
	return known
}

// codePrefix returns the common part of the labels of a series: T of T1, AP- of AP-3.
func codePrefix(m Mark) string {
	switch m.Style {
	case Code:
		label := m.Label
		if at := strings.LastIndexByte(label, '.'); at > 0 && at == len(label)-2 {
			label = label[:at] // P1.a
		}
		return strings.TrimRightFunc(label, func(r rune) bool { return unicode.IsDigit(r) || r == '.' })
	case Number:
		return m.Noun
	}
	return ""
}

// place inserts an item into the tree.
func (o *outliner) place(it *Item) {
	top := func() *Item { return o.stack[len(o.stack)-1] }
	pop := func() {
		done := top()
		o.stack = o.stack[:len(o.stack)-1]
		top().End = max(top().End, done.End)
	}
	switch it.Kind {
	case Heading:
		for len(o.stack) > 1 && (top().Kind != Heading || top().Level >= it.Level) {
			pop()
		}
	case Entry:
		for len(o.stack) > 1 && top().Kind != Heading && !o.below(it, top()) {
			pop()
		}
	default:
		for len(o.stack) > 1 && top().Kind != Heading && !o.continues(it, top()) {
			pop()
		}
	}
	if len(o.stack) > o.src.MaxDepth {
		pop()
	}
	p := top()
	p.Kids = append(p.Kids, it)
	p.End = max(p.End, it.End)
	for _, a := range o.stack {
		a.End = max(a.End, it.End)
	}
	if it.Kind == Heading || it.Kind == Entry {
		o.stack = append(o.stack, it)
	}
}

// below reports whether an entry belongs to the one above it.
func (o *outliner) below(it, above *Item) bool {
	a, b := above.Mark, it.Mark
	if a.Style == b.Style && a.Noun == b.Noun && len(a.Path) == 1 && len(b.Path) == 1 && b.Path[0] == a.Path[0]+1 && it.Indent+len(b.Label) == above.Indent+len(a.Label) {
		return false // the numbers continue, and both are flush right
	}
	if it.Indent != above.Indent {
		return it.Indent > above.Indent
	}
	// Models write the details of a numbered step as bullets in the same column.
	if it.Bullet != 0 && it.Mark.Style == NoMark && it.Box == 0 && above.Bullet == 0 && above.Mark.Style != NoMark {
		return true
	}
	// 1.1 belongs to 1, regardless of indentation.
	return a.Style == Number && b.Style == Number && len(b.Path) > len(a.Path) && len(a.Path) > 0 && samePath(a.Path, b.Path[:len(a.Path)])
}

func samePath(a, b []int) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// continues reports whether a line without a mark continues the entry above it.
func (o *outliner) continues(it, above *Item) bool {
	if it.Indent <= above.Indent && it.opens {
		return false
	}
	if it.Indent == above.Indent && above.Bullet != 0 && (strings.HasSuffix(it.Text, ":") || strings.HasSuffix(it.Text, "：")) {
		return false // it announces the following lines
	}
	return it.Indent > above.Indent || !it.Gap && it.Indent == above.Indent
}
