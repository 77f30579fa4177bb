package meaning

import "github.com/epigraph-run/epigraph/plan/internal/lexicon"

// linkEnds are the two ends of a link.
type linkEnds struct{ from, to string }

// Differences calls say for each item and link that only one of two readings has, and returns their number.
// there is set if only b has it. The element of a link is "A -> B".
func Differences(a, b *Reading, say func(element string, off int, link, there bool)) (n int) {
	items := make(map[string]int, len(a.Items))
	for i := range a.Items {
		items[a.Items[i].ID]++
	}
	for i := range b.Items {
		it := &b.Items[i]
		if items[it.ID]--; items[it.ID] < 0 {
			n++
			say(it.ID, it.Off, false, true)
		}
	}
	for i := range a.Items {
		it := &a.Items[i]
		if items[it.ID] > 0 {
			items[it.ID]--
			n++
			say(it.ID, it.Off, false, false)
		}
	}
	links := make(map[linkEnds]int, len(a.Links))
	for _, l := range a.Links {
		links[linkEnds{l.From, l.To}]++
	}
	for _, l := range b.Links {
		if k := (linkEnds{l.From, l.To}); links[k] == 0 {
			n++
			say(l.From+" -> "+l.To, l.Off, true, true)
		} else {
			links[k]--
		}
	}
	for _, l := range a.Links {
		if k := (linkEnds{l.From, l.To}); links[k] > 0 {
			links[k]--
			n++
			say(l.From+" -> "+l.To, l.Off, true, false)
		}
	}
	return n
}

// Replaces reports whether the later of two plans in a text revises the earlier one: they share at least half
// of the ids of the smaller one, and the later one is at least half as large as the other. If so the later
// plan counts, otherwise the earlier one.
func Replaces(earlier, later *Reading) bool {
	smaller := min(len(earlier.Items), len(later.Items))
	return sharedIDs(earlier, later)*2 >= smaller && len(later.Items)*2 >= len(earlier.Items)
}

// maxOther bounds the notes about the differences of another plan.
const maxOther = 200

// OtherPlan returns a note for each difference between r and another plan in the text that is not read.
func OtherPlan(r, other *Reading) (notes []Note) {
	say := func(element, what string) {
		if len(notes) < maxOther {
			notes = append(notes, Note{Code: "SEVERAL_PLANS", Element: clipped(element), Off: other.Start, Message: "the text has another plan, which was not read; " + what, Hint: "ask for one plan"})
		}
	}
	Differences(r, other, func(element string, _ int, _, there bool) {
		if there {
			say(element, clipped(element)+" is only there")
		} else {
			say(element, clipped(element)+" is not there")
		}
	})
	titles := make(map[string]string, len(other.Items))
	for i := range other.Items {
		titles[other.Items[i].ID] = squeeze(other.Items[i].Title)
	}
	for i := range r.Items {
		it := &r.Items[i]
		if title, ok := titles[it.ID]; ok && squeeze(it.Title) != title {
			say(it.ID, it.ID+" has another text there: "+clipped(title))
		}
	}
	return notes
}

// Revises reports whether the text between two plans says that the later one replaces the earlier one.
func Revises(between string) bool {
	return hasTone("", between, toneRevised) || lexicon.Has(lexicon.Correct, between)
}
