package form

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// splitInline makes entries of numbered steps on one line if their numbers continue the sequence: "1. pack 2.
// go", or "Plan: 1. pack; 2. load; 3. go". A number within a sentence does not lead on to the number of the
// next line.
func (o *outliner) splitInline(items []*Item) []*Item {
	numbered := 0
	for _, it := range items {
		numbered += b2i(it.Mark.Style == Number)
	}
	out := make([]*Item, 0, len(items))
	for i, it := range items {
		out = append(out, it)
		switch {
		case it.Mark.Style == Number && len(it.Mark.Path) == 1:
			cuts := inlineMarks(it.Text, it.Mark.Path[0]+1)
			if next := nextNumber(items[i+1:]); next > 0 {
				cuts = cuts[:max(0, min(len(cuts), next-it.Mark.Path[0]-1))]
				if it.Mark.Path[0]+len(cuts)+1 != next {
					cuts = nil
				}
			} else if numbered > 1 {
				cuts = nil
			}
			out = o.cut(out, it, cuts)
		case numbered > 0 && it.Kind == Plain && it.Mark.Style == NoMark:
			out = o.cut(out, it, announcedMarks(it.Text)) // "Revised plan: 1. dig 2. plant 3. mulch"
		case numbered == 0 && (it.Kind == Plain && it.Mark.Style == NoMark || it.Mark.Style == Spelled && it.Mark.Weak && it.Mark.Path[0] == 1):
			n := 1
			if it.Mark.Style == Spelled {
				n = 2
			}
			if cuts := countingMarks(it.Text, n); len(cuts)+n > 3 {
				out = o.cut(out, it, cuts)
				break
			}
			if it.Kind == Plain {
				out = o.cut(out, it, announcedMarks(it.Text))
			}
		}
	}
	return out
}

// announcedMarks finds the numbers of three or more steps on one line behind a colon.
func announcedMarks(s string) []Mark {
	cuts := inlineMarks(s, 1)
	if len(cuts) < 3 || cuts[0].Off == 0 || !strings.HasSuffix(strings.TrimSpace(s[:cuts[0].Off]), ":") {
		return nil
	}
	return cuts
}

// ListsInline reports whether a line lists numbered steps behind a colon.
func ListsInline(s string) bool { return announcedMarks(s) != nil }

// nextNumber returns the number of the next line that has one, or 0.
func nextNumber(items []*Item) int {
	for _, it := range items[:min(len(items), 20)] {
		if it.Mark.Style == Number {
			return it.Mark.Path[0]
		}
	}
	return 0
}

// maxInline bounds the steps of one line.
const maxInline = 1000

// inlineMarks finds numbers in a text that continue the sequence from n. Each has a sign behind it and a
// space on both sides.
func inlineMarks(s string, n int) (out []Mark) {
	for from := 0; len(out) < maxInline; n++ {
		num := itoa(n)
		at := -1
		for at < 0 {
			k := strings.Index(s[from:], num)
			if k < 0 {
				return out
			}
			k += from
			from = k + len(num)
			if (k == 0 || s[k-1] == ' ') && from+1 < len(s) && strings.IndexByte(".)", s[from]) >= 0 && s[from+1] == ' ' {
				at = k
			}
		}
		from = skipSpace(s, from+1)
		out = append(out, Mark{Style: Number, Label: num, Path: []int{n}, Off: at, End: from})
	}
	return out
}

// countingMarks finds the words in a text that count steps from n on: "First, …. Second, …", "erstens …,
// zweitens … und drittens …".
func countingMarks(s string, n int) (out []Mark) {
	sep := byte('.')
	for at := 0; at < len(s) && len(out) < maxInline; {
		end := letters(s, at)
		if end == at {
			r, size := utf8.DecodeRuneInString(s[at:])
			if r != ' ' && strings.ContainsRune(".;:!?,–—(", r) {
				sep = s[at]
			} else if r != ' ' {
				sep = 0
			}
			at += size
			continue
		}
		start := at
		if lexicon.Is(lexicon.And, s[at:end]) {
			if at = skipSpace(s, end); sep == 0 {
				sep = ','
			}
		}
		if sep == 0 {
			at = end
			continue
		}
		m := countingMark(s, at, sep)
		if m.Path == nil || m.Path[0] != n {
			at, sep = max(end, letters(s, at)), 0
			continue
		}
		m.Off, at, sep = start, m.End, 0
		out = append(out, m)
		n++
	}
	return out
}

// countingMark reads a word that counts a step within a text. sep is the sign before it. Ordinals count only
// at the start of a sentence and with a comma behind them.
func countingMark(s string, at int, sep byte) Mark {
	end := numberWord(s, at)
	word := s[at:end]
	v, ok := lexicon.Number(word)
	adverb, counts := lexicon.Counts(word)
	if !ok || !counts {
		return Mark{}
	}
	end = andLast(s, end)
	comma := strings.HasPrefix(s[end:], ",")
	if !adverb && (!comma || sep == ',') || skipSpace(s, end) == len(s) {
		return Mark{}
	}
	return Mark{Style: Spelled, Label: word, Path: []int{v}, Weak: true, End: skipSpace(s, end+b2i(comma))}
}

// splitLetters makes entries 2a and 2b of the lettered parts behind one number: "2. a) pack b) load", on one
// or several lines.
func (o *outliner) splitLetters(items []*Item) []*Item {
	out := make([]*Item, 0, len(items))
	for i := 0; i < len(items); i++ {
		it := items[i]
		out = append(out, it)
		if it.Mark.Style != Number || len(it.Mark.Path) != 1 || it.Kind == Heading {
			continue
		}
		cuts := inlineLetters(it.Text)
		next := i + 1 // index behind the following lines that continue the letters
		for n := len(cuts) + 1; n > 1 && next < len(items) && items[next].Indent > it.Indent && items[next].Mark.Style == Letter && items[next].Mark.Path[0] == n; n++ {
			next++
		}
		if len(cuts) == 0 || len(cuts)+next-i-1 < 2 {
			continue
		}
		number := it.Mark
		from := len(out) - 1
		text, off := it.Text[cuts[0].End:], it.TextOff+cuts[0].End
		for k := range cuts[1:] {
			cuts[k+1].Off, cuts[k+1].End = cuts[k+1].Off-cuts[0].End, cuts[k+1].End-cuts[0].End
		}
		it.Text, it.TextOff, it.Strong = text, off, 0
		label := cuts[0].Label
		out = o.cut(out, it, cuts[1:])
		it.Mark.Label = label
		for _, x := range items[i+1 : next] {
			x.Indent = it.Indent
			out = append(out, x)
		}
		for _, x := range out[from:] {
			x.Mark.Style, x.Mark.Label, x.Mark.Noun, x.Mark.Path = Lettered, number.Label+x.Mark.Label, number.Noun, number.Path
		}
		i = next - 1
	}
	return out
}

// inlineLetters finds the letters a, b, … on one line: a at the start of the text, and the others with the
// same sign behind them and a space on both sides.
func inlineLetters(s string) (out []Mark) {
	if len(s) < 3 || s[0]|0x20 != 'a' || strings.IndexByte(".)", s[1]) < 0 || s[2] != ' ' {
		return nil
	}
	for at := 0; at >= 0 && len(out) < 26; {
		letter, end := s[0]+byte(len(out)), skipSpace(s, at+2)
		out = append(out, Mark{Style: Letter, Label: string(letter), Path: []int{len(out) + 1}, Off: at, End: end})
		k := strings.Index(s[end:], " "+string(letter+1)+s[1:2]+" ")
		if k < 0 {
			break
		}
		at = end + k + 1
	}
	return out
}

// cut splits the last item of out at the marks in its text.
func (o *outliner) cut(out []*Item, it *Item, cuts []Mark) []*Item {
	text, off := it.Text, it.TextOff
	for i, m := range cuts {
		last := out[len(out)-1]
		start := 0
		if i > 0 {
			start = cuts[i-1].End
		}
		last.Text = strings.TrimRight(text[start:m.Off], " ;,；，")
		last.End = last.TextOff + len(last.Text)
		last.Strong = min(last.Strong, len(last.Text))
		next := &Item{Kind: Entry, Off: off + m.Off, End: it.TextOff + len(text), Indent: it.Indent, Bullet: it.Bullet, Mark: m, Text: text[m.End:], TextOff: off + m.End, line: text[m.Off:]}
		next.Mark.Off, next.Mark.End = off+m.Off, off+m.End
		out = append(out, next)
	}
	return out
}

// splitGroups makes entries of the labels on the line of their group: "Wave 1 (in parallel): T1 load the
// rows, T2 load the prices". Labels that mark other lines are only references there.
func (o *outliner) splitGroups(items []*Item) []*Item {
	marked := map[string]bool{}
	some := false
	for _, it := range items {
		if m := it.Mark; m.Style == Code || m.Style == Word {
			marked[m.Label] = true
		}
		some = some || lexicon.Is(lexicon.Groups, it.Mark.Noun)
	}
	if !some {
		return items
	}
	cuts := make(map[*Item][]Mark, len(items))
	seen := map[string]bool{}
	lines := 0
	for _, it := range items {
		if !lexicon.Is(lexicon.Groups, it.Mark.Noun) {
			continue
		}
		marks := groupMarks(it.Text, lexicon.Is(lexicon.Waves, it.Mark.Noun))
		for _, m := range marks {
			if marked[m.Label] || seen[m.Label] {
				return items
			}
			seen[m.Label] = true
		}
		lines++
		if len(marks) > 0 {
			cuts[it] = marks
		}
	}
	if len(cuts) != lines || len(seen) < 2 {
		return items
	}
	out := make([]*Item, 0, len(items)+len(seen))
	for _, it := range items {
		out = append(out, it)
		if len(cuts[it]) > 0 {
			from := len(out)
			it.Kind, it.Level, it.Bullet, it.Box = Heading, groupLevel, 0, 0
			out = o.cut(out, it, cuts[it])
			for _, k := range out[from:] {
				k.Bullet, k.Strong = '-', 0
			}
		}
	}
	return out
}

// groupMarks returns the labels of a text that consists of labels, each with the words behind it up to a
// comma or the like. A remark in brackets or a title with a colon may precede them. In a wave any words may
// be labels.
func groupMarks(s string, wave bool) (out []Mark) {
	at := 0
	if remarked(s, 0) {
		at = max(0, strings.IndexAny(s, ")]）】"))
	}
	if i := strings.IndexAny(s[at:], ":：—–"); i >= 0 && !strings.ContainsAny(s[at:at+i], ",;") {
		at = skipSpace(s, at+i+1)
		for at < len(s) && s[at] >= 0x80 && s[at] < 0xC0 { // the remaining bytes of a sign
			at++
		}
		at = skipSpace(s, at)
	}
	for len(out) < maxInline {
		end := segmentEnd(s, at)
		m := codeMark(s, at)
		if m.Style != Code || m.End > end {
			m = segmentName(s, at, end, wave)
		}
		if m.Style == NoMark {
			return nil
		}
		m.Off, m.Weak, m.End = at, false, min(m.End, end)
		out = append(out, m)
		if end >= len(s) {
			return out
		}
		at = skipSpace(s, end+1)
	}
	return nil
}

// segmentEnd returns the end of the part of a list at s[at:]: the next comma or the like outside brackets.
func segmentEnd(s string, at int) int {
	depth := 0
	for i := at; i < len(s); i++ {
		switch c := s[i]; {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case depth <= 0 && strings.IndexByte(",;|+&", c) >= 0:
			return i
		}
	}
	return len(s)
}

// segmentName reads the part of a list as a name, alone or with a remark in brackets: "parse (the rows)".
func segmentName(s string, at, end int, wave bool) Mark {
	stop := at
	for stop < end && s[stop] != ' ' && s[stop] != '(' {
		stop++
	}
	rest := strings.TrimSpace(s[stop:end])
	if !wave || !isIdentifier(s[at:stop]) || rest != "" && rest[0] != '(' {
		return Mark{}
	}
	return Mark{Style: Word, Label: s[at:stop], End: skipSpace(s, stop)}
}
