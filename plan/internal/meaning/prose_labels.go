package meaning

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readLabeled reads running text that names its steps by labels ("T1 fetches the tiles. T2 needs T1."), or by
// names that a sentence lists ("There are three tasks: fetch, clean and load. clean needs fetch.").
func readLabeled(src *form.Source) []*Reading {
	from, to, ok := running(src)
	if !ok || Refuses(src.Text) {
		return nil
	}
	sentences := form.Sentences(src.Text[from:to], from)
	p := roster{lang: language(src.Text[from:to]), at: map[string]int{}, begins: map[int]int{}}
	if !p.listed(sentences) {
		sentences = parted(sentences)
		for k := range sentences {
			if id, _ := p.label(sentences[k].Text); id != "" && !sentences[k].Question {
				p.add(id, sentences[k].Text, sentences[k].Off)
				p.begins[k] = p.at[id]
			}
		}
	}
	if len(p.items) < 3 {
		return nil
	}
	return p.reading(sentences)
}

// parted splits sentences at commas that precede a statement about another label: "T1 is to dig, T2 is to
// plant", "T2 needs T1, and T3 needs T2".
func parted(sentences []form.Sentence) (out []form.Sentence) {
	for _, s := range sentences {
		related := false
		for at := 0; ; {
			i := strings.Index(s.Text[at:], ", ")
			if i < 0 {
				break
			}
			related = related || lexicon.Relates(s.Text[at:at+i])
			at += i + 2
			words := strings.Fields(s.Text[at:min(len(s.Text), at+maxTone)])
			next := at
			if len(words) > 0 && lexicon.Is(lexicon.And, words[0]) {
				next += strings.Index(s.Text[at:], words[0]) + len(words[0]) + 1
				words = words[1:]
			}
			if len(words) < 3 || !code(words[0]) || code(words[1]) || lexicon.Is(lexicon.And, words[1]) || related && !lexicon.Relates(words[1]+" "+words[2]) {
				continue
			}
			out = append(out, form.Sentence{Text: strings.TrimRight(s.Text[:at], ", "), Off: s.Off, Question: s.Question})
			s.Text, s.Off, at, related = s.Text[next:], s.Off+next, 0, false
		}
		out = append(out, s)
	}
	return out
}

// roster collects the steps that running text names by labels.
type roster struct {
	lang  string
	items []Item
	at    map[string]int
	// begins holds, by sentence, the item whose label the sentence begins with.
	begins map[int]int
	list   int // index of the sentence that lists the names, plus one
}

func (p *roster) add(id, title string, off int) {
	if i, ok := p.at[id]; ok {
		if p.items[i].Title == id {
			p.items[i].Title = title
		}
		return
	}
	p.at[id] = len(p.items)
	p.items = append(p.items, Item{ID: id, Shown: true, Title: strings.Join(strings.Fields(title), " "), Parent: -1, Off: off, End: off + len(title)})
}

// label returns the label at the beginning of a sentence and its end: T1, "Step 2", "Task A".
func (p *roster) label(s string) (id string, end int) {
	end = strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",;:()", r) })
	if end <= 0 || end > 24 {
		return "", 0
	}
	word := s[:end]
	if code(word) {
		return word, end
	}
	if !lexicon.Is(lexicon.Steps, word) {
		return "", 0
	}
	rest := strings.TrimLeft(s[end:], " ")
	n := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if n <= 0 || n > 12 {
		return "", 0
	}
	_, number := lexicon.Number(rest[:n])
	if code(rest[:n]) || number || utf8.RuneCountInString(rest[:n]) == 1 && strings.ToUpper(rest[:n]) == rest[:n] {
		return rest[:n], len(s) - len(rest) + n
	}
	return "", 0
}

// code reports whether a word is a label of capitals and digits: T1, WP-3, A2b.
func code(w string) bool {
	n := strings.IndexFunc(w, func(r rune) bool { return !unicode.IsUpper(r) })
	digits := strings.TrimLeft(w[max(0, n):], "-_")
	return n > 0 && n < 5 && digits != "" && len(digits) < 5 && digits[0] >= '0' && digits[0] <= '9'
}

// maxListed bounds the words of a name in a list of names.
const maxListed = 3

// listed finds a sentence that lists, behind a colon, names which the following sentences use.
func (p *roster) listed(sentences []form.Sentence) bool {
	for k := range sentences {
		s := &sentences[k]
		p.items, p.at = nil, map[string]int{}
		listing := false
		for _, c := range s.Clauses {
			listing = listing || c.Sep == ':'
			if !listing {
				continue
			}
			at := 0
			name := func(end int) {
				raw := c.Text[at:end]
				if n := strings.Trim(raw, " `*\"'“”„\n"); n != "" {
					p.add(n, n, c.Off+at+strings.Index(raw, n))
				}
			}
			for _, t := range lexicon.ScanIn(lexicon.Lang(p.lang), c.Text) {
				if t.Is(lexicon.And) {
					name(t.Off)
					at = t.End
				}
			}
			name(len(c.Text))
		}
		long := slices.ContainsFunc(p.items, func(it Item) bool { return len(strings.Fields(it.ID)) > maxListed })
		if len(p.items) >= 3 && !long && p.used(sentences[k+1:]) {
			p.list = k + 1
			return true
		}
	}
	p.items, p.at = nil, map[string]int{}
	return false
}

// used reports whether most of the sentences name a step.
func (p *roster) used(sentences []form.Sentence) bool {
	var names []string
	for _, it := range p.items[:min(len(p.items), 50)] {
		names = append(names, lexicon.Fold(it.ID))
	}
	n := 0
	for k := range sentences {
		text := lexicon.Fold(sentences[k].Text)
		n += b2i(slices.ContainsFunc(names, func(name string) bool { return wordIndex(text, name) >= 0 }))
	}
	return n > 1 && n*2 > len(sentences)
}

// reading makes a reading of the relations that the sentences state.
func (p *roster) reading(sentences []form.Sentence) []*Reading {
	var named []Named
	for _, it := range p.items {
		named = append(named, Named{ID: it.ID, Titles: []string{it.Title}, Parent: -1})
	}
	names := NewNames(named)
	names.In(lexicon.Lang(p.lang))
	r := &Reading{Form: "prose", Stated: true, Items: p.items, Start: sentences[0].Off}
	seen := map[Link]bool{}
	for k := range sentences {
		s := &sentences[k]
		r.End = max(r.End, s.Off+len(s.Text))
		if s.Question || k+1 == p.list {
			continue
		}
		self, text, off := -1, s.Text, s.Off
		if i, ok := p.begins[k]; ok {
			_, end := p.label(s.Text)
			self, text, off = i, s.Text[end:], s.Off+end
		}
		rels, doubts := names.Relations(self, text, off)
		for _, d := range doubts {
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: d.Text, Message: "this sentence names a step and was not understood: " + s.Text, Off: d.Off})
		}
		for _, rel := range rels {
			p.relate(r, rel, seen)
		}
		if len(rels)+len(doubts) == 0 && self < 0 {
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: form.Clip(s.Text), Message: "this sentence was read as no step: " + s.Text, Off: s.Off})
		}
		if len(r.Notes) > maxDoubts {
			return nil
		}
	}
	if len(r.Links) < 2 || len(r.Links)*2 < len(r.Items) {
		return nil
	}
	r.Weight = 70
	r.Evidence = append(r.Evidence, "labels in running text")
	return []*Reading{r}
}

// relate adds the links of a relation.
func (p *roster) relate(r *Reading, rel Relation, seen map[Link]bool) {
	link := func(from, to string) {
		l := Link{From: from, To: to, Source: Prose}
		if from != to && !seen[l] {
			seen[l] = true
			l.Off = rel.Off
			r.Links = append(r.Links, l)
		}
	}
	for _, s := range rel.Subjects {
		for _, i := range rel.Items {
			switch rel.Kind {
			case Needs, Uses:
				link(r.Items[i].ID, r.Items[s].ID)
			case Before:
				link(r.Items[s].ID, r.Items[i].ID)
			case Beside:
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: r.Items[s].ID, Message: "a step that runs in parallel to others may have the same needs", Off: rel.Off})
			}
		}
		for _, id := range rel.Unknown {
			if rel.Kind <= Uses {
				link(id, r.Items[s].ID)
			}
		}
	}
}
