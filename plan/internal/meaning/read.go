package meaning

import (
	"slices"
	"sort"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readers are the readers of all forms. Each returns the readings that it finds.
var readers = [...]func(*form.Source) []*Reading{
	readRecords, readCode, readDiagram, readOutline, readProse, readLabeled,
}

// Read returns the readings of a text, the most likely first. The text must be valid UTF-8. Read takes time
// linear in its length. If a text has alternatives such as "Option A" and "Option B", the chosen one is read.
// A correction below a plan is applied to it.
func Read(src *form.Source) []*Reading {
	if argues(src) {
		return []*Reading{{Form: "outline", Weight: pastWeight, Not: "an argument: premises and a conclusion"}}
	}
	src = withoutPrograms(src)
	if all := readChoice(src, readAll); all != nil {
		return all
	}
	if all := readCorrected(src, readAll); all != nil {
		return all
	}
	if all := readSection(src, readAll); all != nil {
		return all
	}
	all := firstPlan(joined(readAll(src)))
	if len(all) > 0 && all[0].Weight >= 30 {
		amendBelow(src, all[0])
	}
	return all
}

// amendBelow applies the sentences below a plan to it: "Steps 2 and 3 can run side by side; 4 waits for
// both."
func amendBelow(src *form.Source, r *Reading) {
	if r.Form == "prose" || r.Form == "code" || len(r.Items) < 2 || len(r.Items) > src.MaxItems || r.End >= len(src.Text) {
		return
	}
	end := r.End
	for i := src.LineAt(r.End) + 1; i < len(src.Lines) && !src.Lines[i].Fence; i++ {
		end = src.Lines[i].End
	}
	for _, s := range r.left {
		if s.Off >= r.End {
			end = min(end, s.Off) // another list, which is not read
		}
	}
	if end > r.End && end-r.End < maxClosing {
		amend(src, r, src.Text[r.End:end], r.End, false)
	}
}

// maxClosing bounds the text below a plan that is applied to it, in bytes.
const maxClosing = 8 << 10

func readAll(src *form.Source) []*Reading {
	var all []*Reading
	for _, read := range readers {
		if src.Ended() {
			return nil
		}
		all = append(all, read(src)...)
	}
	prefer(all)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Weight > all[j].Weight })
	return all
}

// preference is a rule by which one of two readings of a text is clearly the better one.
type preference struct {
	loser, winner string // forms
	when          func(loser, winner *Reading) bool
}

// preferences are for texts in which one form looks like another one.
var preferences = [...]preference{
	// Commas in a part of a list look like table rows. The list wins.
	{"table", "outline", func(l, w *Reading) bool {
		return w.Weight >= 70 && len(w.Items) > len(l.Items) && spans(l, w) && w.knows(l)
	}},
	// Data below a list may contain only ids of its steps. The list wins.
	{"records", "outline", func(l, w *Reading) bool {
		return w.Weight >= 70 && untitled(l) && w.Start < l.Start && len(w.Links) >= len(l.Links) && w.knows(l)
	}},
	// Calls in one statement look like data. The program wins.
	{"records", "code", func(l, w *Reading) bool {
		return w.Weight >= 30 && l.by(callsInside) && w.Start < l.Start && w.End > l.End
	}},
	// A remark in brackets looks like a call: "2. ask the shop(after:1)". The list wins.
	{"code", "outline", func(l, w *Reading) bool {
		return w.Weight >= 70 && len(l.Links) == 0 && len(w.Links) > 0 && overlaps(w, l)
	}},
	// Assignments look like list entries. The program wins.
	{"outline", "code", func(l, w *Reading) bool {
		return len(w.Items) > len(l.Items) && len(w.Links) > 0 && len(w.Links) >= len(l.Links) && overlaps(w, l) && sharedIDs(w, l) == len(l.Items)
	}},
	// Rows of bars in a drawing look like code. The drawing wins.
	{"code", "diagram", func(l, w *Reading) bool {
		return w.by("art") && len(w.Items) > 2 && w.Start <= l.Start && l.End <= w.End
	}},
	// Names in a drawing, one to a line, look like pseudo code. The drawing wins.
	{"code", "diagram", func(l, w *Reading) bool {
		return l.by("pseudo code") && w.by("arrows") && overlaps(l, w) && sharedIDs(w, l)*2 >= len(w.Items)
	}},
	// Arrows that point to needs ("2. fill → after 1") or owners ("A1 → Ann: fill") are part of a list.
	// Otherwise the drawing wins.
	{"diagram", "outline", func(l, w *Reading) bool { return l.by("arrows") && w.lists(l) && w.outdoes(l) }},
	{"outline", "diagram", func(l, w *Reading) bool {
		return w.by("arrows") && l.lists(w) && !l.outdoes(w) && (within(l, w) || l.names(w))
	}},
}

// prefer lowers the weight of readings to which another one is preferred.
func prefer(all []*Reading) {
	of := map[string][]*Reading{}
	for _, r := range all {
		of[r.Form] = append(of[r.Form], r)
		r.remarked = r.Form == "diagram" && r.by("arrows") && r.pointsAtWords()
	}
	for _, data := range of["records"] {
		if data.Not != "" {
			insideData(of["outline"], data)
		}
	}
	for _, p := range preferences {
		for _, l := range of[p.loser] {
			for _, w := range of[p.winner] {
				if p.when(l, w) {
					l.Weight = min(l.Weight, w.Weight-closeReading)
				}
			}
		}
	}
}

// knows reports whether a list has all items of another reading. The ids are collected once, because a text
// may have many records that are compared with one list.
func (r *Reading) knows(d *Reading) bool {
	if r.ids == nil {
		r.ids = make(map[string]bool, len(r.Items))
		for i := range r.Items {
			r.ids[r.Items[i].ID] = true
		}
	}
	return !slices.ContainsFunc(d.Items, func(it Item) bool { return !r.ids[it.ID] })
}

// by reports whether the evidence is the main evidence of a reading.
func (r *Reading) by(evidence string) bool { return len(r.Evidence) > 0 && r.Evidence[0] == evidence }

// lists reports whether a reading is a list that overlaps a drawing.
func (r *Reading) lists(d *Reading) bool { return r.Not == "" && len(r.Items) > 1 && overlaps(r, d) }

// names reports whether a list consists of names in a drawing that were read as entries with labels: most
// entries are only an id.
func (r *Reading) names(d *Reading) bool {
	if len(d.Items) <= len(r.Items) || !d.knows(r) {
		return false
	}
	n := 0
	for i := range r.Items {
		it := &r.Items[i]
		n += b2i(it.Title == it.ID || IsArrowLine(it.Title)) // the line of arrows may be below the last entry
	}
	return n*2 > len(r.Items)
}

// outdoes reports whether the arrows of a drawing are a part of a list.
func (r *Reading) outdoes(d *Reading) bool {
	if r.names(d) {
		return false
	}
	stated := r.Stated && len(r.Links) > 0
	return d.remarked || stated && r.lead(d) || r.Stated && len(r.Links) >= len(d.Links) && !within(r, d)
}

// insideData discards lists inside data that is no plan.
func insideData(all []*Reading, data *Reading) {
	for _, r := range all {
		if r.Form == "outline" && !r.Stated && !r.demands && r.Not == "" && r.Start > data.Start && r.End <= data.End && r.by("bullets") {
			r.Weight, r.Not = min(r.Weight, 20), data.Not
		}
	}
}

// pointsAtWords reports whether many arrows of a drawing, at least two fifths, point to words of a relation
// rather than to names of steps.
func (r *Reading) pointsAtWords() bool {
	related := make(map[string]bool, len(r.Items))
	for i := range r.Items {
		for _, t := range lexicon.Scan(r.Items[i].Title) {
			related[r.Items[i].ID] = related[r.Items[i].ID] || t.Kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.None)) != 0 && !strings.ContainsAny(t.Phrase, "->")
		}
	}
	n := 0
	for _, l := range r.Links {
		n += b2i(related[l.To])
	}
	return n*5 >= len(r.Links)*2
}

// lead reports whether all arrows lead from steps of a list, on the line of the step, to something other than
// a step.
func (r *Reading) lead(d *Reading) bool {
	at := make(map[string]*Item, len(r.Items))
	for i := range r.Items {
		at[r.Items[i].ID] = &r.Items[i]
	}
	for _, l := range d.Links {
		if it := at[l.From]; it == nil || at[l.To] != nil || l.Off < it.Off || l.Off > it.End {
			return false
		}
	}
	return len(d.Links) > 0
}

// untitled reports whether no item of a reading has a title.
func untitled(r *Reading) bool {
	return !slices.ContainsFunc(r.Items, func(it Item) bool { return it.Title != it.ID })
}

// within reports whether a reading spans a part and has all steps of it.
func within(part, r *Reading) bool {
	return spans(part, r) && sharedIDs(r, part) == len(part.Items)
}

// spans reports whether a reading covers the text of a part and has at least as many items and links.
func spans(part, r *Reading) bool {
	return len(part.Links) <= len(r.Links) && len(part.Items) <= len(r.Items) && r.Start <= part.Start && r.End >= part.End
}

// closeReading is the difference in weight that makes one reading clearly better.
const closeReading = 6

// joined combines the most likely reading with readings of other parts of the text if a link of one part
// names a step of the other. A list, a table and a drawing may be the parts of one plan.
func joined(all []*Reading) []*Reading {
	if len(all) < 2 || all[0].Weight < 60 {
		return all
	}
	best := all[0]
	have := make(map[string]bool, len(best.Items))
	missing := map[string]bool{} // ends of links that are not steps yet
	note := func(r *Reading) {
		for i := range r.Items {
			have[r.Items[i].ID] = true
		}
		for _, l := range r.Links {
			for _, id := range [...]string{l.From, l.To} {
				if !have[id] {
					missing[id] = true
				}
			}
		}
	}
	note(best)
	parts := []*Reading{best}
	rest := slices.Clone(all[1:])
	for again := true; again && len(parts) < maxParts; {
		again = false
		for i, r := range rest {
			if r == nil || r.Weight < 30 && r.Weight != partWeight || !apartFrom(parts, r) || !fits(r, have, missing) {
				continue
			}
			parts, rest[i], again = append(parts, r), nil, true
			note(r)
		}
	}
	if len(parts) == 1 {
		return all
	}
	sort.SliceStable(parts, func(i, j int) bool { return parts[i].Start < parts[j].Start })
	return append([]*Reading{together(parts, best)}, all...)
}

const (
	// maxParts bounds the parts of one plan. partWeight is the weight of a part that is no plan by itself.
	maxParts   = 20
	partWeight = 29
)

// apartFrom reports whether no step of a reading overlaps a step of the others. Lists, tables and drawings
// may alternate.
func apartFrom(parts []*Reading, r *Reading) bool {
	for _, p := range parts {
		if overlaps(r, p) && (crosses(p, r) || crosses(r, p)) {
			return false
		}
	}
	return true
}

// crosses reports whether a step of b begins inside a step of a.
func crosses(a, b *Reading) bool {
	for i := range b.Items {
		at := b.Items[i].Off
		k := sort.Search(len(a.Items), func(k int) bool { return a.Items[k].Off > at }) - 1
		if k >= 0 && at < max(a.Items[k].End, a.Items[k].Off+1) {
			return true
		}
	}
	return false
}

// fits reports whether a reading has a missing step or a link to a known step, and has no known step again.
func fits(r *Reading, have, missing map[string]bool) bool {
	own := make(map[string]bool, len(r.Items))
	some := false
	for i := range r.Items {
		id := r.Items[i].ID
		if have[id] || len(id) == 4 && yearAhead(id) || !r.Items[i].Shown && (r.Form == "outline" || r.Form == "prose") {
			return false
		}
		own[id] = true
		some = some || missing[id]
	}
	for _, l := range r.Links {
		some = some || have[l.From] && own[l.To] || own[l.From] && have[l.To]
	}
	return some
}

// firstPlan moves a list in front of a drawing of other steps further down, or the other way round, and notes
// the content of the reading that does not count. Of several plans in a text the first one counts.
func firstPlan(all []*Reading) []*Reading {
	if len(all) == 0 || all[0].Form != "outline" && all[0].Form != "diagram" {
		return all
	}
	best := all[0]
	for k, r := range all[1:] {
		if r.Weight < otherPlanWeight || r.Not != "" || r.Form == best.Form || r.Form != "outline" && r.Form != "diagram" || len(r.Items) < 2 || overlaps(r, best) || retold(best, r) {
			continue
		}
		chosen, other := best, r
		if r.Start < best.Start {
			chosen, other = r, best
			all = append([]*Reading{r}, slices.Delete(slices.Clone(all), k+1, k+2)...)
		}
		chosen.Notes = append(chosen.Notes, OtherPlan(chosen.chained(), other.chained())...)
		chosen.left = append(chosen.left, Span{other.Start, other.End})
		chosen.Around = append(chosen.Around, Span{other.Start, other.End})
		return all
	}
	return all
}

// otherPlanWeight is the lowest weight of a second list or drawing that is another plan.
const otherPlanWeight = 50

// retold reports whether two readings share a step, by its id or by a word of its title.
func retold(a, b *Reading) bool {
	words := map[string]bool{}
	for i := range a.Items {
		words[lexicon.Fold(a.Items[i].ID)] = true
		for _, w := range titleWords(a.Items[i].Title) {
			words[w] = true
		}
	}
	same := 0
	for i := range b.Items {
		same += b2i(words[lexicon.Fold(b.Items[i].ID)] || slices.ContainsFunc(titleWords(b.Items[i].Title), func(w string) bool { return words[w] }))
	}
	return same > 0
}

// titleWords returns the words of a title that have at least four bytes.
func titleWords(s string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(lexicon.Fold(s), func(r rune) bool { return !isLetterOrDigit(r) }), func(w string) bool { return len(w) < 4 })
}

// inOrder sorts items by their offsets.
func (r *Reading) inOrder() {
	order := make([]int, len(r.Items))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return r.Items[order[a]].Off < r.Items[order[b]].Off })
	place := make([]int, len(order))
	items := make([]Item, len(order))
	for to, from := range order {
		place[from], items[to] = to, r.Items[from]
	}
	for i := range items {
		if items[i].Parent >= 0 {
			items[i].Parent = place[items[i].Parent]
		}
	}
	r.Items = items
}

// together combines parts, in the order of the text, into one reading.
func together(parts []*Reading, best *Reading) *Reading {
	sum := &Reading{Form: best.Form, Apart: best.Form == "records", Stated: true, Start: parts[0].Start, Weight: best.Weight + 1, Evidence: []string{"parts that name each other's steps"}}
	for _, p := range parts {
		base := len(sum.Items)
		for _, it := range p.Items {
			if it.Parent >= 0 {
				it.Parent += base
			}
			sum.Items = append(sum.Items, it)
		}
		if !p.Stated && len(p.Links) == 0 {
			for i := 1; i < len(p.Items); i++ {
				sum.Links = append(sum.Links, Link{From: p.Items[i-1].ID, To: p.Items[i].ID, Source: ListedOrder, Off: p.Items[i].Off})
			}
		}
		sum.Links = append(sum.Links, p.Links...)
		sum.Notes = append(sum.Notes, p.Notes...)
		sum.Around = append(sum.Around, p.Around...)
		own := *p
		own.outer = nil
		sum.outside = append(sum.outside, own.Outside()...)
		for _, v := range p.outer { // several parts may be in one value
			if n := len(sum.outer); n == 0 || sum.outer[n-1] != v {
				sum.outer = append(sum.outer, v)
			}
		}
		sum.End = max(sum.End, p.End)
	}
	sum.inOrder()
	sum.Open = parts[len(parts)-1].Open
	sum.Notes = slices.DeleteFunc(sum.Notes, func(n Note) bool { return n.Code == "SEVERAL_PLANS" })
	return sum
}
