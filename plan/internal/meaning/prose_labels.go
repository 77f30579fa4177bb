package meaning

import (
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readLabeled reads running text that names its steps by labels: "T1 fetches the tiles. T2 needs T1.", or by
// names that a sentence lists: "There are three tasks: fetch, clean and load. clean needs fetch."
func readLabeled(src *form.Source) []*Reading {
	from, to, ok := running(src)
	if !ok || refuses(src.Text) {
		return nil
	}
	sentences := form.Sentences(src.Text[from:to], from)
	p := roster{lang: proseLanguage(src.Text[from:to]), at: map[string]int{}, told: map[int]int{}}
	p.nouns(sentences)
	if !p.listed(sentences) {
		sentences = parted(sentences)
		for k := range sentences {
			if id, _ := p.label(sentences[k].Text); id != "" && !sentences[k].Question {
				p.add(id, sentences[k].Text, sentences[k].Off)
				p.told[k] = p.at[id]
			}
		}
	}
	if len(p.items) < 3 {
		return nil
	}
	return p.reading(sentences)
}

// parted splits sentences at the commas behind which another label begins to be told: "T1 is to dig, T2 is to plant",
// "T2 needs T1, and T3 needs T2".
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

// roster are the steps that running text names by labels.
type roster struct {
	lang  string
	items []Item
	at    map[string]int
	// told holds for a sentence the item with whose label it begins.
	told map[int]int
	noun map[string]bool // words before a name that begin several sentences
	list int             // the sentence that lists the names, and one more
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

// nouns finds the words that begin several sentences with another name each: "Lot alpha …", "The lot beta …".
func (p *roster) nouns(sentences []form.Sentence) {
	count := map[string]map[string]bool{}
	for k := range sentences {
		if noun, name, _ := p.opening(sentences[k].Text); noun != "" && name != "" && !lexicon.IsCommon(lexicon.Lang(p.lang), lexicon.Fold(name)) {
			if count[noun] == nil {
				count[noun] = map[string]bool{}
			}
			count[noun][name] = true
		}
	}
	p.noun = map[string]bool{}
	for noun, names := range count {
		p.noun[noun] = len(names) > 2
	}
}

// opening returns the first two words of a sentence behind its article, and where they end.
func (p *roster) opening(s string) (noun, name string, end int) {
	at := 0
	for range 3 {
		rest := strings.TrimLeft(s[at:], " ")
		at = len(s) - len(rest)
		n := strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' })
		if n <= 0 || n > 24 {
			return "", "", 0
		}
		switch w := rest[:n]; {
		case noun == "" && hasTone(p.lang, w, toneArticle):
		case noun == "":
			noun = lexicon.Fold(w)
		default:
			return noun, w, at + n
		}
		at += n
	}
	return "", "", 0
}

// label returns the label with which a sentence begins and where it ends: T1, "Step 2", "Task A".
func (p *roster) label(s string) (id string, end int) {
	end = strings.IndexFunc(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(",;:()", r) })
	if end <= 0 || end > 24 {
		return "", 0
	}
	word := s[:end]
	if code(word) {
		return word, end
	}
	if noun, name, to := p.opening(s); p.noun[noun] {
		return name, to
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

// maxListed bounds the words of a name that a sentence lists.
const maxListed = 3

// listed finds a sentence that lists the names of the steps behind a colon, which the other sentences use.
func (p *roster) listed(sentences []form.Sentence) bool {
	folded := sync.OnceValue(func() []string {
		all := make([]string, len(sentences))
		for k := range sentences {
			all[k] = lexicon.Fold(sentences[k].Text)
		}
		return all
	})
	for k := range sentences {
		s := &sentences[k]
		i := strings.IndexByte(s.Text, ':')
		if i < 0 || i+1 >= len(s.Text) {
			continue
		}
		list, off := s.Text[i+1:], s.Off+i+1
		var cuts []int
		for _, t := range lexicon.ScanIn(lexicon.Lang(p.lang), list) {
			if t.Is(lexicon.And) {
				cuts = append(cuts, t.Off, t.End)
			}
		}
		for j, r := range list {
			if strings.ContainsRune(",;，、،", r) {
				cuts = append(cuts, j, j+utf8.RuneLen(r))
			}
		}
		slices.Sort(cuts)
		cuts = append(cuts, len(list), len(list))
		at := 0
		for j := 0; j+1 < len(cuts); j += 2 {
			if cuts[j] < at {
				continue
			}
			raw := list[at:cuts[j]]
			name := strings.Trim(raw, " .,;`*\"'“”„\n")
			if n := len(strings.Fields(name)); n > maxListed {
				p.items, p.at = nil, map[string]int{}
				break
			} else if n > 0 {
				p.add(name, name, off+at+strings.Index(raw, name))
			}
			at = cuts[j+1]
		}
		if len(p.items) >= 3 && p.used(folded()[k+1:]) {
			p.list = k + 1
			return true
		}
		p.items, p.at = nil, map[string]int{}
	}
	return false
}

// used reports whether most sentences, which are folded, name one of the steps.
func (p *roster) used(folded []string) bool {
	var names []string
	for _, it := range p.items[:min(len(p.items), 50)] {
		names = append(names, lexicon.Fold(it.ID))
	}
	n := 0
	for _, s := range folded {
		n += b2i(slices.ContainsFunc(names, func(name string) bool { return wordIndex(s, name) >= 0 }))
	}
	return n > 1 && n*2 > len(folded)
}

// reading makes a reading of what the sentences say of the steps.
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
		if i, ok := p.told[k]; ok {
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
				r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: r.Items[s].ID, Message: "what runs beside other steps may need what they need", Off: rel.Off})
			}
		}
		for _, id := range rel.Unknown {
			if rel.Kind <= Uses {
				link(id, r.Items[s].ID)
			}
		}
	}
}
