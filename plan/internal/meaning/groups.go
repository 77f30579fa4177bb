package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// A list of two levels is read in one of two ways. Either the upper level groups the steps ("Preparation"
// above "Export the contacts"), or it holds the steps and the lower level their details ("Paint the frame"
// above "two coats of primer").

const (
	// groupScore is the evidence that makes the upper level groups.
	groupScore = 3
	// From sureGroup on, and up to sureStep, the decision is certain.
	sureGroup, sureStep = 5, -1
)

// shape is a key for items of one level with the same form.
type shape struct {
	parent        *form.Item
	kind          form.ItemKind
	level, indent int
	bullet        bool
	noun          string
}

// siblings is the set of items of one shape that have unlabeled bullets below them.
type siblings struct {
	parents, kids []*form.Item
	count         int // of all items of the shape, with or without bullets below them
}

// grouping finds the items that only group the entries below them, and the items for which this is uncertain.
func (o *outline) grouping() {
	o.groups, o.unsure = map[*form.Item]bool{}, map[*form.Item]bool{}
	families := map[shape]*siblings{}
	var order []*siblings
	for _, it := range o.all {
		s := shape{o.parent[it], it.Kind, it.Level, it.Indent, it.Bullet != 0, it.Mark.Noun}
		f := families[s]
		if f == nil {
			f = &siblings{}
			families[s] = f
			order = append(order, f)
		}
		f.count++
		from := len(f.kids)
		for _, k := range it.Kids {
			if k.Kind == form.Entry && k.Bullet != 0 && k.Mark.Style == form.NoMark && k.Box == 0 {
				f.kids = append(f.kids, k)
			}
		}
		if len(f.kids) > from {
			f.parents = append(f.parents, it)
		}
	}
	lang := languageOf(o.src)
	for _, f := range order {
		if len(f.parents) == 0 || len(f.parents)*2 < f.count {
			continue
		}
		score := o.groupScore(lang, f)
		for _, p := range f.parents {
			o.groups[p] = score >= groupScore
			o.unsure[p] = score > sureStep && score < sureGroup
		}
	}
}

// groupScore weighs the evidence that the parents of a family group the steps below them.
func (o *outline) groupScore(lang string, f *siblings) (score int) {
	n, m := len(f.parents), len(f.kids)
	var steps, noun, titled, demanding, related int
	for _, p := range f.parents {
		t := strings.TrimRight(p.Text, " ")
		if p.Box != 0 || p.Mark.Style == form.Code || p.Mark.Style == form.Word {
			return sureStep // only steps have labels or boxes
		}
		noun += b2i(lexicon.Is(lexicon.Groups, p.Mark.Noun) || isRoman(p.Mark))
		steps += b2i(p.Mark.Style != form.NoMark)
		isTitle := p.Kind == form.Heading || p.Strong > 0 && strings.Trim(t[p.Strong:], " :：.*") == "" || strings.HasSuffix(t, ":") || strings.HasSuffix(t, "：")
		titled += b2i(isTitle)
		demanding += b2i(moodOfClause(lang, t) == acting)
		related += b2i(!isTitle && lexicon.Relates(t))
	}
	var fields, doing int
	for _, k := range f.kids {
		key, _, _ := strings.Cut(k.Text, ":")
		_, known := lexicon.Field(key)
		mood := moodOfClause(lang, k.Text)
		fields += b2i(known || lexicon.Relates(k.Text))
		doing += b2i(!known && (mood == acting || mood == deed))
	}
	switch {
	case noun > 0 && fields*2 < m:
		return sureGroup
	case fields*2 >= m, steps > 0 && (doing*2 <= m || demanding*2 > n):
		return sureStep
	case steps > 0:
		return groupScore - 1 // "1. Preparation" with actions below it
	}
	score = b2i(titled*2 > n)*(2+b2i(f.parents[0].Kind == form.Heading)) + 2*b2i(doing*2 > m) - 2*b2i(demanding*2 > n) - 2*b2i(related > 0)
	return score + b2i(m >= 2*n) - b2i(2*m < 3*n)
}

// phase is the common part of headings of phases: "Phase 1" and "Phase 2" of one document, or headings that
// are actions, such as "Prepare" and "Build".
type phase struct {
	parent *form.Item
	level  int
	noun   string
	acting bool
}

// phaseOf returns the phase directly above an item. ok is false if there is none.
func (o *outline) phaseOf(it *form.Item) (p phase, ok bool) {
	h := o.parent[it]
	if h == nil || h.Kind != form.Heading || h.Level == 0 {
		return p, false
	}
	p = phase{parent: o.parent[h], level: h.Level, noun: h.Mark.Noun}
	if word, rest, two := strings.Cut(squeeze(h.Text), " "); h.Mark.Style == form.NoMark {
		if two && digits(strings.TrimRight(rest, ":.")) && lexicon.Is(lexicon.Groups, word) {
			p.noun = lexicon.Fold(word) // for example "Week 1"
		}
		p.acting = p.noun == "" && moodOfClause(languageOf(o.src), h.Text) == acting
	}
	return p, p.noun != "" || p.acting || h.Mark.Style != form.NoMark
}

// mixed finds steps that are numbered in some phases and have bullets or check boxes in others. It returns
// the numbered items together with the bullets and boxes of other phases, in the order of the text, and the
// remaining bullets and boxes. Bullets below a heading without a noun count if at least half of them are
// actions.
func (o *outline) mixed(numbers, bullets, boxes []*form.Item) (steps, otherBullets, otherBoxes []*form.Item) {
	phases := map[phase]bool{}
	numbered := map[*form.Item]bool{} // headings with numbers below them; bullets there are no steps
	for _, it := range numbers {
		if p, ok := o.phaseOf(it); ok {
			phases[p], numbered[o.parent[it]] = true, true
		}
	}
	if len(phases) == 0 {
		return numbers, bullets, boxes
	}
	lang := languageOf(o.src)
	found, doing := map[*form.Item][]*form.Item{}, map[*form.Item]int{} // by heading
	split := func(items []*form.Item) (rest []*form.Item) {
		for _, it := range items {
			h := o.parent[it]
			if p, ok := o.phaseOf(it); !ok || !phases[p] || numbered[h] || it.Mark.Style != form.NoMark {
				rest = append(rest, it)
				continue
			}
			found[h] = append(found[h], it)
			mood := moodOfClause(lang, it.Text)
			doing[h] += b2i(mood == acting || mood == deed)
		}
		return rest
	}
	otherBullets, otherBoxes = split(bullets), split(boxes)
	steps = numbers
	for h, items := range found {
		p, _ := o.phaseOf(items[0])
		switch {
		case p.noun != "" || doing[h]*2 >= len(items):
			steps = append(steps, items...)
		case items[0].Box != 0:
			otherBoxes = append(otherBoxes, items...)
		default:
			otherBullets = append(otherBullets, items...)
		}
	}
	for _, list := range [...][]*form.Item{steps, otherBullets, otherBoxes} {
		slices.SortStableFunc(list, func(a, b *form.Item) int { return a.Off - b.Off })
	}
	return steps, otherBullets, otherBoxes
}

// isRoman reports whether a mark is a Roman number, like the mark of a chapter.
func isRoman(m form.Mark) bool {
	_, ok := lexicon.Roman(lexicon.Fold(m.Label))
	return ok && m.Noun == "" && m.Style == form.Spelled
}

// maxUnsure bounds the notes about entries that may be steps or details. maxDetails bounds the details in a
// note.
const maxUnsure, maxDetails = 200, 20

// unsureOf notes which details may be steps, and which steps may be details.
func (o *outline) unsureOf(r *Reading, steps []step) {
	said := 0
	note := func(id string, off int, message string) {
		if said++; said <= maxUnsure {
			r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: id, Off: off, Message: message, Hint: "write steps and details in different ways"})
		}
	}
	for i := range steps {
		st := &steps[i]
		if o.unsure[st.it] && !o.groups[st.it] {
			var kids []string
			for _, k := range st.it.Kids {
				if k.Kind == form.Entry && len(kids) < maxDetails {
					kids = append(kids, clipped(squeeze(k.Text)))
				}
			}
			note(st.id, st.it.Off, "what stands below "+clipped(squeeze(st.it.Text))+" was read as details and may be steps: "+strings.Join(kids, "; "))
		}
		if p := o.parent[st.it]; p != nil && o.unsure[p] && o.groups[p] {
			note(st.id, st.it.Off, clipped(squeeze(st.it.Text))+" was read as a step and may be a detail of "+clipped(squeeze(p.Text)))
		}
	}
}
