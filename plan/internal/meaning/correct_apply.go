package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// maxAmending bounds how many links are compared for the sentences around a plan.
const maxAmending = 50_000_000

// full notes, once, that the sentences relate too many steps.
func (a *amender) full(off int) {
	if !a.limited {
		a.limited = true
		a.r.Notes = append(a.r.Notes, Note{Fault: true, Code: "LIMIT_REACHED", Element: a.r.Items[0].ID, Message: "the sentences around the plan relate too many steps; not all of them were read", Hint: "state what each step needs in its own line", Off: off})
	}
}

// apply changes the links by one relation. With more, stated needs come on top of earlier ones.
func (a *amender) apply(r Relation, more bool) {
	if len(r.Subjects) == 0 {
		return
	}
	ids := append(slices.Clone(r.Unknown), a.idsOf(r.Items)...)
	// Each link is compared with all existing ones.
	pairs := len(r.Subjects) * (1 + len(ids))
	if a.work += pairs * (1 + len(a.r.Links) + pairs); a.work > maxAmending {
		a.full(r.Off)
		return
	}
	if a.order != nil && (a.shift(r) || r.Kind == Apart && !a.correcting) {
		return
	}
	if a.order != nil {
		a.leaveOrder(r)
	}
	for _, s := range r.Subjects {
		id := a.r.Items[s].ID
		switch r.Kind {
		case Needs, Uses:
			a.need(s, ids, more, r.Off)
		case Before:
			for _, to := range ids {
				a.unlink(to, id)
				a.link(id, to, r.Off)
			}
		case Apart:
			for _, from := range ids {
				a.unlink(from, id)
			}
		case None:
			if a.correcting {
				a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.To == id })
			}
		case Closing, Opening:
			a.end(r.Kind, id, r.Off)
		case Beside:
			if !a.correcting && !a.related(append(ids, id)) {
				continue // the plan already has it so
			}
			a.doubt("a step that runs in parallel to others may have the same needs", append(ids, id), r.Off)
		}
	}
	a.r.Stated = true
}

// need adds needs to a step. In a correction they replace the needs that were stated before the sentence,
// unless more is set.
func (a *amender) need(s int, ids []string, more bool, off int) {
	id := a.r.Items[s].ID
	if a.correcting && !more && !a.replaced[s] {
		a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.To == id })
	}
	if !a.correcting && !more && !a.replaced[s] && slices.ContainsFunc(a.r.Links, func(l Link) bool { return l.To == id && !slices.Contains(ids, l.From) }) {
		a.doubt("a sentence around the plan states needs of this step; they may replace the others or add to them", append([]string{id}, ids...), off)
	}
	a.replaced[s] = true
	for _, from := range ids {
		if from == id {
			a.doubt("a sentence around the plan seems to make this step wait for itself; it was not understood", []string{id}, off)
			continue
		}
		a.link(from, id, off)
	}
}

func (a *amender) link(from, to string, off int) {
	if from == to {
		return // the sentence was not understood
	}
	if !slices.ContainsFunc(a.r.Links, func(l Link) bool { return l.From == from && l.To == to }) {
		a.r.Links = append(a.r.Links, Link{From: from, To: to, Source: Prose, Off: off})
	}
}

func (a *amender) unlink(from, to string) {
	a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.From == from && l.To == to })
}

// shift changes the listed order by a relation that contradicts it, as in "3 comes before 2". It returns true
// if nothing else remains to be done for the relation.
func (a *amender) shift(r Relation) bool {
	if len(r.Unknown) > 0 {
		return false
	}
	switch r.Kind {
	case Closing, Opening:
		a.remove(r.Subjects[0])
		if r.Kind == Closing {
			a.order = append(a.order, r.Subjects[:1])
		} else {
			a.order = slices.Insert(a.order, 0, r.Subjects[:1])
		}
		a.moved = true
		return true
	case Beside:
		if len(r.Items) == 0 {
			return false
		}
		for _, s := range r.Subjects {
			if a.remove(s); a.level(r.Items[0]) >= 0 {
				k := a.level(r.Items[0])
				a.order[k] = append(a.order[k], s)
			}
		}
		a.moved = true
		return true
	case Before, Needs, Uses:
		if len(r.Subjects) != 1 || len(r.Items) != 1 {
			return false
		}
		from, to := r.Items[0], r.Subjects[0]
		if r.Kind == Before {
			from, to = to, from
		}
		f, t := a.level(from), a.level(to)
		switch {
		case f < 0 || t < 0 || from == to:
			return false
		case f == t-1:
			return a.correcting || a.ordered
		case f < t && !a.ordered && !a.moving:
			return false
		case r.Kind == Before:
			a.stated[[2]int{from, to}] = true
			a.remove(from)
			a.order = slices.Insert(a.order, a.level(to), []int{from})
		default:
			a.stated[[2]int{from, to}] = true
			a.remove(to)
			a.order = slices.Insert(a.order, a.level(from)+1, []int{to})
		}
		a.moved = true
		return true
	}
	return false
}

// end makes a step the last or the first one. The last step follows all steps without successors; the first
// one precedes all steps without needs.
func (a *amender) end(kind Kind, id string, off int) {
	from, to := map[string]bool{}, map[string]bool{}
	for _, l := range a.r.Links {
		from[l.From], to[l.To] = true, true
	}
	for _, i := range a.steps() {
		switch other := a.r.Items[i].ID; {
		case other == id:
		case kind == Closing && !from[other]:
			a.link(other, id, off)
		case kind == Opening && !to[other] && !from[id]: // its own successors are not stated yet
			a.link(id, other, off)
		}
	}
}

// related reports whether any of the steps waits for another one of them.
func (a *amender) related(ids []string) bool {
	return slices.ContainsFunc(a.r.Links, func(l Link) bool { return slices.Contains(ids, l.From) && slices.Contains(ids, l.To) })
}

// level returns the index of an item's level in the listed order, or -1.
func (a *amender) level(item int) int {
	return slices.IndexFunc(a.order, func(l []int) bool { return slices.Contains(l, item) })
}

// remove takes an item out of the listed order.
func (a *amender) remove(item int) {
	for k := range a.order {
		a.order[k] = slices.DeleteFunc(a.order[k], func(i int) bool { return i == item })
	}
	a.order = slices.DeleteFunc(a.order, func(l []int) bool { return len(l) == 0 })
}

// leaveOrder gives up the listed order because a relation states needs. In a correction, or if the text says
// that the rest is in order, the other steps still follow one another; otherwise they need nothing.
func (a *amender) leaveOrder(r Relation) {
	for pair := range a.stated {
		a.link(a.r.Items[pair[0]].ID, a.r.Items[pair[1]].ID, r.Off)
	}
	if a.correcting || a.ordered {
		a.explicit()
		if r.Kind != None {
			a.doubt("a correction takes this step out of the listed order; the steps after it may have to wait for more", a.idsOf(r.Subjects), r.Off)
		}
	}
	a.order = nil
}

// explicit turns the listed order into links.
func (a *amender) explicit() {
	for k := 1; k < len(a.order); k++ {
		for _, from := range a.order[k-1] {
			if len(a.r.Links) > a.maxLinks {
				a.full(a.r.Items[from].Off)
				return
			}
			for _, to := range a.order[k] {
				l := Link{From: a.r.Items[from].ID, To: a.r.Items[to].ID, Source: ListedOrder, Off: a.r.Items[to].Off}
				if a.listed || a.stated[[2]int{from, to}] {
					l.Source = Prose
				}
				a.r.Links = append(a.r.Links, l)
			}
		}
	}
	a.order, a.r.Stated = nil, true
}

// swap exchanges two steps: in the listed order, or in all links.
func (a *amender) swap(x, y, off int) {
	if a.order != nil {
		p, q := a.level(x), a.level(y)
		if p >= 0 && q >= 0 && p != q {
			a.order[p], a.order[q] = a.order[q], a.order[p]
			a.moved = true
		}
		return
	}
	idx, idy := a.r.Items[x].ID, a.r.Items[y].ID
	other := func(id string) string {
		switch id {
		case idx:
			return idy
		case idy:
			return idx
		}
		return id
	}
	for k, l := range a.r.Links {
		a.r.Links[k].From, a.r.Links[k].To = other(l.From), other(l.To)
	}
	a.doubt("two steps with stated needs were swapped", []string{idx, idy}, off)
}

// drop removes a step from the plan. Steps that waited only for it now wait for its needs.
func (a *amender) drop(item int) {
	id := a.r.Items[item].ID
	if a.order != nil {
		a.remove(item)
	}
	var needs, next []Link
	for _, l := range a.r.Links {
		switch id {
		case l.From:
			next = append(next, l)
		case l.To:
			needs = append(needs, l)
		}
	}
	a.r.Links = slices.DeleteFunc(a.r.Links, func(l Link) bool { return l.From == id || l.To == id })
	for _, n := range next {
		if !slices.ContainsFunc(a.r.Links, func(l Link) bool { return l.To == n.To }) {
			for _, l := range needs {
				a.link(l.From, n.To, n.Off)
			}
		}
	}
	if len(next) > 0 {
		a.r.Stated = true
	}
	a.gone[item] = true
	a.subject = nil
}

// clear removes the dropped items.
func (a *amender) clear() {
	place := make([]int, len(a.r.Items))
	var kept []Item
	for i, it := range a.r.Items {
		place[i] = len(kept)
		if a.gone[i] {
			a.r.Around = append(a.r.Around, Span{it.Off, it.End})
		} else {
			kept = append(kept, it)
		}
	}
	for k := range kept {
		if p := kept[k].Parent; p >= 0 && a.gone[p] {
			kept[k].Parent = -1
		} else if p >= 0 {
			kept[k].Parent = place[p]
		}
	}
	a.r.Items = kept
}

// between inserts a new step between two others.
func (a *amender) between(id string, x, y int, s form.Sentence, end int) {
	from, to := a.r.Items[x].ID, a.r.Items[y].ID
	a.add(id, s, end)
	last := len(a.r.Items) - 1
	it := a.r.Items[last]
	copy(a.r.Items[y+1:], a.r.Items[y:last])
	a.r.Items[y] = it
	for k := range a.r.Items {
		if k != y && a.r.Items[k].Parent >= y {
			a.r.Items[k].Parent++
		}
	}
	a.r.Items[y].Parent = a.r.Items[x].Parent
	a.index()
	a.unlink(from, to)
	a.link(from, id, s.Off)
	a.link(id, to, s.Off)
	a.subject = []int{y}
}

// add appends a new step without needs to the plan. Its title is the rest of the sentence from end on.
func (a *amender) add(id string, s form.Sentence, end int) {
	title := s.Text[min(end, len(s.Text)):]
	if i := strings.IndexAny(title, ":"); i >= 0 && i < 40 {
		title = title[i+1:]
	}
	title = strings.Trim(title, " ,.;:\"“”„«»–—-")
	if i := strings.IndexAny(title, ".;\""); i > 0 {
		title = title[:i]
	}
	if title == "" {
		title = s.Text
	}
	if a.order != nil {
		a.explicit()
	}
	a.r.Items = append(a.r.Items, Item{ID: id, Shown: true, Title: title, Parent: -1, Off: s.Off, End: s.Off + len(s.Text)})
	a.r.Stated = true
	a.index()
	a.subject = []int{len(a.r.Items) - 1}
}

// maxDoubts bounds the notes of a reading.
const maxDoubts = 200

// doubt notes that a sentence about steps was not understood or is ambiguous.
func (a *amender) doubt(message string, ids []string, off int) {
	if len(a.r.Notes) < maxDoubts && len(ids) > 0 {
		a.r.Notes = append(a.r.Notes, Note{Code: "AMBIGUOUS", Element: strings.Join(ids, ", "), Message: message, Off: off})
	}
}

// withoutStruck removes steps that are struck through from a reading. A struck entry with a check box is done
// and stays.
func withoutStruck(r *Reading, steps []step) {
	a := &amender{r: r, gone: map[int]bool{}}
	for i := range steps {
		if steps[i].it.Struck && steps[i].it.Box == 0 {
			a.gone[i] = true
		}
	}
	if len(a.gone) == 0 || len(a.gone) == len(steps) {
		return
	}
	a.index()
	for i := range steps {
		if a.gone[i] {
			a.drop(i)
			r.Notes = append(r.Notes, Note{Code: "SKIPPED_TEXT", Element: steps[i].id, Off: steps[i].it.Off, Message: "this step is struck through and was left out"})
		}
	}
	a.clear()
}
