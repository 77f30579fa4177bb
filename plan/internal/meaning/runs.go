package meaning

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// run is a coherent part of a series: the items below one heading or one line of text.
type run struct {
	items []*form.Item
	// head is the heading above the run, intro the line of text before it. Both may be nil.
	head, intro *form.Item
}

// runs splits a series where another heading or a line of text separates two of its items.
func (o *outline) runs(items []*form.Item) []run {
	in := make(map[*form.Item]bool, len(items))
	for _, it := range items {
		in[it] = true
	}
	var out []run
	var intro *form.Item
	fresh := true
	again := restarts(items)
	for _, it := range o.all {
		switch {
		case in[it] && again[it]:
			out = append(out, run{head: out[len(out)-1].head, intro: intro, items: []*form.Item{it}})
			intro, fresh = nil, false
		case in[it]:
			p := o.parent[it]
			if p.Kind != form.Heading || p.Level == 0 {
				p = nil
			}
			nested := o.parent[it].Kind == form.Entry
			if len(out) == 0 || !nested && (p != out[len(out)-1].head || fresh && intro != nil) {
				out = append(out, run{head: p, intro: intro})
			}
			out[len(out)-1].items = append(out[len(out)-1].items, it)
			intro, fresh = nil, false
		case it.Kind == form.Heading:
			intro, fresh = nil, true
		case it.Kind == form.Plain && o.parent[it].Kind == form.Heading:
			intro, fresh = it, true
		}
	}
	return out
}

// restarts returns the items, behind a gap, at which a list repeats its first two marks.
func restarts(items []*form.Item) map[*form.Item]bool {
	if len(items) < 4 || items[0].Mark.Style == form.NoMark || items[0].Mark.Label == items[1].Mark.Label {
		return nil
	}
	out := map[*form.Item]bool{}
	for i := 2; i+1 < len(items); i++ {
		if it := items[i]; it.Gap && it.Mark.Label == items[0].Mark.Label && items[i+1].Mark.Label == items[1].Mark.Label && it.Indent == items[0].Indent && it.Kind == items[0].Kind {
			out[it] = true
		}
	}
	return out
}

// announced reports whether the heading above a run or the line before it announces a plan.
func (r *run) announced(lang string) bool {
	if r.head != nil && announces(lang, squeeze(r.head.Text), true) < 0 {
		return true
	}
	return r.intro != nil && announces(lang, squeeze(r.intro.Text), false) < 0
}

// phase reports whether a run is below a heading with a number, such as "Phase 2: Build".
func (r *run) phase() bool { return r.head != nil && r.head.Mark.Style != form.NoMark }

// choosePlan returns the run of a series that is the plan if the other runs are something else: lists under
// other headings, or an earlier version of the list. It returns the items of the plan and the other runs.
func (o *outline) choosePlan(s series) ([]*form.Item, []run) {
	all := o.runs(s.items)
	if len(all) < 2 {
		return s.items, nil
	}
	lang := languageOf(o.src)
	announced, last := 0, 0
	phases := true
	for i := range all {
		phases = phases && all[i].phase()
		if all[i].announced(lang) {
			announced++
			last = i
		}
	}
	again, goesOn := o.numbering(all)
	switch {
	case phases || goesOn:
		return s.items, nil
	case announced == 1 && (again || all[last].head != nil && s.name != "labels"):
	case again && !headed(all):
		last = 0
		for i := range all { // the same rule as in Replaces, for runs whose marks start again
			if len(all[i].items)*2 >= len(all[last].items) {
				last = i
			}
		}
	default:
		return s.items, nil
	}
	return all[last].items, append(append([]run{}, all[:last]...), all[last+1:]...)
}

// headed reports whether every run has a heading of its own.
func headed(all []run) bool {
	for i := range all {
		if all[i].head == nil || i > 0 && all[i].head == all[i-1].head {
			return false
		}
	}
	return true
}

// numbering reports whether the numbers of a later run start again, and whether the numbers continue over all
// runs.
func (o *outline) numbering(all []run) (restarts, goesOn bool) {
	seen := map[string]bool{}
	goesOn = true
	next := 0
	for i := range all {
		for k, it := range all[i].items {
			m := it.Mark
			if len(m.Path) == 1 && m.Style == form.Number && m.Noun == "" {
				goesOn = goesOn && (k > 0 || i == 0 || m.Path[0] == next)
				next = m.Path[0] + 1
			} else if k == 0 {
				goesOn = false
			}
			key := strings.ToLower(m.Label)
			if i > 0 && k == 0 && m.Style != form.NoMark && seen[key] {
				restarts = true
			}
			seen[key] = true
		}
	}
	return restarts, goesOn
}

// maxRuns bounds how many of the other lists are read.
const maxRuns = 4

// noteOthers notes the differences between the plan and the other runs, unless a run states relations of the
// plan's steps.
func (o *outline) noteOthers(r *Reading, s series, left []run) {
	for i := range left {
		if s.items = left[i].items; i < maxRuns && o.statesRelations(r, s.items) {
			continue
		}
		if i < maxRuns {
			if other := o.readSeries(s); other != nil {
				r.Notes = append(r.Notes, OtherPlan(r.chained(), other.chained())...)
			}
		}
		r.left = append(r.left, Span{s.items[0].Off, s.items[len(s.items)-1].End})
	}
	r.Around = append(r.Around, r.left...)
}

// statesRelations reports whether most entries of a list below a plan state relations of its steps: "Step 3
// can only begin when 1 and 2 are complete."
func (o *outline) statesRelations(r *Reading, entries []*form.Item) bool {
	if len(r.Items) < 2 || len(r.Items) > maxRemarked || entries[0].Off < r.Items[len(r.Items)-1].Off {
		return false
	}
	named := make([]Named, len(r.Items))
	for i := range r.Items {
		named[i] = Named{ID: r.Items[i].ID, Titles: []string{r.Items[i].Title}, Parent: r.Items[i].Parent}
	}
	names, n := NewNames(named), 0
	for _, it := range entries {
		rels, _ := names.Relations(-1, strings.TrimLeft(o.src.Text[it.Off:it.End], "-*•+ "), it.Off)
		n += b2i(slices.ContainsFunc(rels, func(r Relation) bool { return len(r.Subjects) > 0 && !r.Guessed }))
	}
	return n*2 > len(entries)
}

// maxRemarked bounds the steps of a plan for which a list below is read.
const maxRemarked = 500

// chained returns the reading with explicit links in listed order, if it states no dependencies.
func (r *Reading) chained() *Reading {
	if r.Stated || len(r.Links) > 0 {
		return r
	}
	c := *r
	prev := ""
	for i := range c.Items {
		if prev != "" {
			c.Links = append(c.Links, Link{From: prev, To: c.Items[i].ID, Source: ListedOrder})
		}
		prev = c.Items[i].ID
	}
	return &c
}

// clipped shortens a text for a message.
func clipped(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
