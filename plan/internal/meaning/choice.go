package meaning

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// alternative is one of several plans in a text, of which only one is meant.
type alternative struct {
	// Names are the folded names that the text may use for it: "option b", "b", "new controller". Index 0 is
	// the label and index 1 the noun; either may be empty. Off and End delimit its part of the text.
	Names    []string
	Head     string
	Off, End int
	entries  int
	score    int
	// called is set if a sentence only names this alternative, as in "Decision: rent."
	called bool
}

// maxAlternatives is the largest number of alternatives that are read.
const maxAlternatives = 6

// readChoice reads a text that offers several plans. It returns the readings of the plan that the text
// chooses, or of the first plan, with notes about what the others contain. It returns nil if the text offers
// no choice.
func readChoice(src *form.Source, read func(*form.Source) []*Reading) []*Reading {
	alts, chosen := alternatives(src)
	if len(alts) == 0 {
		return nil
	}
	at := max(chosen, 0)
	all := readOne(src, alts, at, read)
	if len(all) == 0 || all[0].Weight < 30 {
		return nil
	}
	r := all[0]
	note := Note{Code: "SEVERAL_PLANS", Off: alts[at].Off, Hint: "ask for one plan"}
	note.Message = "the text has several plans and chooses this one"
	if chosen < 0 {
		note.Code, note.Message = "AMBIGUOUS", "the text has several plans and chooses none; the first one was read"
	}
	have := map[string]bool{}
	for _, it := range r.Items {
		have[it.ID] = true
	}
	var more []string
	for k := range alts {
		if k == at {
			continue
		}
		r.Around = append(r.Around, Span{alts[k].Off, alts[k].End})
		other := readOne(src, alts, k, read)
		if len(other) == 0 {
			continue
		}
		r.Notes = append(r.Notes, alternativeNotes(r, other[0], alts[k].Off)...)
		for _, it := range other[0].Items {
			if chosen < 0 || !have[it.ID] {
				more = append(more, it.ID)
			}
		}
	}
	if len(more) > 0 {
		note.Element = strings.Join(more[:min(len(more), 100)], ", ")
		note.Message += fmt.Sprintf("; others have %s", note.Element)
	}
	if note.Element != "" || chosen < 0 {
		r.Notes = append(r.Notes, note)
	}
	return all
}

// readOne reads one of several alternatives. If its head is read as a step with details, it is read again
// without the head.
func readOne(src *form.Source, alts []alternative, k int, read func(*form.Source) []*Reading) []*Reading {
	only := blankOthers(src, alts, k)
	all := read(only)
	if len(all) > 0 && all[0].Weight >= 30 && len(all[0].Items) > 1 {
		return all
	}
	off := alts[k].Off
	return read(blanked(only, Span{off, src.Lines[src.LineAt(off)].End}))
}

// alternativeNotes returns a note with the place and the steps of an alternative that was not read. It
// returns nil unless the two plans share ids: without shared ids, the ids of the other plan suffice to tell
// them apart.
func alternativeNotes(r, other *Reading, off int) []Note {
	if len(OtherPlan(r, other)) == 0 || sharedIDs(r, other) == 0 {
		return nil
	}
	var titles []string
	for i := range other.Items[:min(len(other.Items), 20)] {
		titles = append(titles, other.Items[i].ID+" "+clipped(squeeze(other.Items[i].Title)))
	}
	list := strings.Join(titles, "; ")
	return []Note{{Code: "SEVERAL_PLANS", Element: clipped(list), Off: off, Message: "another plan was not read: " + list, Hint: "ask for one plan"}}
}

// blankOthers returns the text with all alternatives but one blanked out. Offsets do not change.
func blankOthers(src *form.Source, alts []alternative, keep int) *form.Source {
	var spans []Span
	for k := range alts {
		if k != keep {
			spans = append(spans, Span{alts[k].Off, alts[k].End})
		}
	}
	return blanked(src, spans...)
}

// alternatives finds the parts of a text that are alternatives to each other, and the index of the one that
// the text chooses, or -1. Either their heads name options ("Option A"), or one of two or three lists is
// chosen and the text says that they are alternatives.
func alternatives(src *form.Source) (alts []alternative, chosen int) {
	lang := languageOf(src)
	if alts, chosen = alternativesBy(src, "", optionHead); len(alts) > 0 {
		return alts, chosen
	}
	alts, chosen = alternativesBy(src, lang, listHead)
	if len(alts) == 0 || chosen < 0 || alts[chosen].score < 2 || len(alts) > 3 {
		return nil, -1
	}
	if alts[chosen].called {
		return alts, chosen
	}
	for _, w := range strings.FieldsFunc(lexicon.Fold(src.Text[:alts[0].Off]), notLetter) {
		if n, ok := lexicon.Number(w); ok && n == len(alts) || len(alts) == 2 && lexicon.Is(lexicon.Both, w) {
			return alts, chosen
		}
	}
	noun := func(k int) string {
		head := alts[k].Names[2]
		for _, h := range tonesIn(lang, head) {
			if h.kind&toneOption != 0 && h.end-h.off < len(head) && !hasTone(lang, head, toneRevised) {
				return head[h.off:h.end]
			}
		}
		return ""
	}
	if noun(0) != "" && noun(0) == noun(len(alts)-1) {
		return alts, chosen
	}
	return nil, -1
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// listHead returns the names of a part whose head is a short line directly above an entry of a list.
func listHead(src *form.Source, i int, _ string) []string {
	line := src.Lines[i].Text
	s := strings.Trim(lexicon.Fold(line), " #*_【】[]「」:：")
	if s == "" || i+1 >= len(src.Lines) || !entryLine(src.Lines[i+1].Text) || entryLine(line) || len(strings.Fields(s)) > 6 {
		return nil
	}
	return names("", "", s, s)
}

// alternativesBy finds the alternatives whose heads the function head recognizes.
func alternativesBy(src *form.Source, lang string, head func(src *form.Source, i int, lang string) []string) (alts []alternative, chosen int) {
	var rest []form.Sentence
	for i := range src.Lines {
		l := &src.Lines[i]
		if l.Text == "" {
			continue
		}
		if names := head(src, i, lang); names != nil {
			if len(alts) == maxAlternatives {
				return nil, -1
			}
			alts = append(alts, alternative{Names: names, Head: l.Text, Off: l.Start, End: l.End})
			continue
		}
		if n := len(alts); n > 0 && entryLine(l.Text) {
			alts[n-1].entries++
			alts[n-1].End = l.End
		} else if n > 0 && l.Indent > 0 && alts[n-1].entries > 0 {
			alts[n-1].End = l.End
		}
	}
	if len(alts) < 2 || !distinct(alts) {
		return nil, -1
	}
	for k := range alts {
		if alts[k].entries == 0 {
			return nil, -1
		}
	}
	at := 0
	for k := range alts {
		rest = append(rest, form.Sentences(src.Text[at:alts[k].Off], at)...)
		at = alts[k].End
	}
	rest = append(rest, form.Sentences(src.Text[at:], at)...)
	return alts, decide(lang, alts, rest)
}

// entryLine reports whether a line looks like an entry of a list or a row of a table.
func entryLine(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	if strings.ContainsRune("-*+•◦▪|–→{[☐☑✅", r) {
		return !strings.HasPrefix(s, "**")
	}
	i := strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && r != '-'
	})
	if i <= 0 || i > 12 {
		return false
	}
	label, next := s[:i], strings.Replace(s[i:], " :", ":", 1)
	if !strings.HasPrefix(s[i:], " :") {
		next = s[i:]
	}
	digit := strings.IndexFunc(label, unicode.IsDigit) >= 0
	if strings.HasPrefix(next, ".") || strings.HasPrefix(next, ")") || strings.HasPrefix(next, ":") || strings.HasPrefix(next, "、") {
		return digit || i == n
	}
	return digit && utf8.RuneCountInString(label) <= 5
}

// optionHead returns the names of an alternative if a line is the head of one: "Option A: …", "**Variant
// 2**", "甲方案：…", "A planı".
func optionHead(src *form.Source, i int, lang string) []string {
	line := src.Lines[i].Text
	s := strings.Trim(lexicon.Fold(line), " #*_【】[]「」<>=`-–—|:")
	r, _ := utf8.DecodeRuneInString(line)
	if unicode.IsDigit(r) || len(s) > 120 || entryLine(line) && line[0] != '[' || strings.HasSuffix(s, ".") || strings.HasSuffix(s, "。") {
		return nil
	}
	for _, h := range tonesIn(lang, s[:min(len(s), 40)]) {
		if h.kind&toneOption == 0 || h.off > 20 {
			continue
		}
		ahead, behind := strings.TrimSpace(s[:h.off]), s[h.end:]
		noun := s[h.off:h.end]
		if ahead != "" && labelLike(ahead) {
			return names(ahead, noun, ahead+noun, ahead+" "+noun)
		}
		if h.off > 0 || behind == "" {
			continue
		}
		label := strings.TrimLeft(behind, " -")
		i := strings.IndexFunc(label, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) })
		tail := ""
		if i >= 0 {
			label, tail = label[:i], label[i:]
		}
		title := strings.TrimLeft(tail, " :：–—-,.、)（(")
		switch _, number := lexicon.Number(label); {
		case labelLike(label) && (tail == "" || strings.ContainsAny(tail[:1], " :-.,)([]") || tail[0] >= 0x80), number:
			return names(label, noun, noun+" "+label, noun+label, title)
		case label != "" && (tail == "" || strings.Trim(tail, " :") == ""):
			return names("", noun, noun+" "+label, label)
		}
	}
	return nil
}

// names collects the names of an alternative: the label and the noun, which may be empty, then the others.
func names(label, noun string, more ...string) []string {
	out := []string{label, noun}
	for _, m := range more {
		if m = strings.TrimSpace(m); m != "" {
			out = append(out, m)
		}
	}
	return out
}

// labelLike reports whether a word is as short as the label of an alternative: a, 2, ii, 甲, alfa.
func labelLike(s string) bool {
	n := utf8.RuneCountInString(s)
	_, number := lexicon.Number(s)
	return n == 1 || number && n <= 12
}

// distinct reports whether the alternatives have different names and share one noun.
func distinct(alts []alternative) bool {
	seen := map[string]bool{}
	for k := range alts {
		key := alts[k].Names[0] + "|" + alts[k].Names[2]
		if seen[key] || alts[k].Names[1] != alts[0].Names[1] {
			return false
		}
		seen[key] = true
	}
	return true
}

// decide returns the index of the alternative that the heads or the remaining sentences choose, or -1.
func decide(lang string, alts []alternative, rest []form.Sentence) int {
	for k := range alts {
		alts[k].score += 2 * tally(lang, lexicon.Fold(alts[k].Head), 0)
		if hasTone(lang, alts[k].Head, toneRevised) {
			alts[k].score += 3 * k // a plan further down is more likely the corrected one
		}
	}
	for n, s := range rest {
		before := 0
		for _, c := range s.Clauses {
			text := lexicon.Fold(c.Text)
			some := false
			for k := range alts {
				if i := alts[k].in(text, c.Text); i >= 0 {
					some = true
					alts[k].called = alts[k].called || before > 0 && c.Sep == ':' && slices.Contains(alts[k].Names[2:], text)
					if v := tally(lang, text, i); v != 0 {
						alts[k].score += 3 * v
					} else if before != 0 {
						alts[k].score += 2 * before
					} else if n == len(rest)-1 {
						alts[k].score++
					}
				}
			}
			if some {
				before = 0
			} else {
				before = tally(lang, text, len(text))
			}
		}
	}
	best, second := -1, -1<<30
	for k := range alts {
		if best < 0 || alts[k].score > alts[best].score {
			if best >= 0 {
				second = max(second, alts[best].score)
			}
			best = k
		} else {
			second = max(second, alts[k].score)
		}
	}
	if alts[best].score <= second || alts[best].score <= 0 && len(alts) > 2 {
		return -1
	}
	return best
}

// in returns the offset at which a text names the alternative, by a name or by its label alone, or -1. The
// parameter shown is the text before folding.
func (a *alternative) in(text, shown string) int {
	for _, name := range a.Names[2:] {
		if i := wordIndex(text, name); i >= 0 {
			return i
		}
	}
	label := a.Names[0]
	if label == "" {
		return -1
	}
	i := wordIndex(text, label)
	if up := strings.ToUpper(label); i >= 0 && len(label) == 1 && len(shown) == len(text) && wordIndex(a.Head, up) >= 0 {
		i = wordIndex(shown, up) // "a" is an article, "A" is not
	}
	if i > 0 && label == "a" && wordIndex(text, a.Names[1]) < 0 {
		return -1
	}
	return i
}

// wordIndex returns the offset of a phrase in a text at word boundaries, or -1.
func wordIndex(text, phrase string) int {
	for at := 0; at < len(text); {
		i := strings.Index(text[at:], phrase)
		if i < 0 || phrase == "" {
			return -1
		}
		i += at
		if !joinedAt(text, i) && !joinedAt(text, i+len(phrase)) {
			return i
		}
		at = i + len(phrase)
	}
	return -1
}

// tally returns 1 if a clause chooses the thing named at an offset, -1 if the clause rejects it, and 0 if it
// does neither. The closest phrase decides. A phrase before the offset counts as closer than one behind it.
func tally(lang, text string, at int) int {
	value, best := 0, 1<<30
	for _, h := range tonesIn(lang, text) {
		if h.kind&(toneChosen|toneRejected) == 0 {
			continue
		}
		d := at - h.end
		if h.off >= at {
			d = 2*(h.off-at) + 1
		}
		v := 1
		if h.kind&toneRejected != 0 {
			v = -1
		}
		if d < best || d == best && v < 0 {
			value, best = v, d
		}
	}
	return value
}
