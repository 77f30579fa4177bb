package meaning

import (
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// words adds the relations that the texts of records state in words. It is for records without a field for
// dependencies.
func (a *analysis) words(texts func(i int) []text) {
	n := len(a.n.ids)
	named, steps, members := make([]Named, n), make([]step, n), make([][]int, n)
	all := make([][]text, n)
	size := 0
	for i, id := range a.n.ids {
		named[i] = Named{ID: id, Parent: -1}
		all[i] = texts(i)
		for k, t := range all[i] {
			size += len(t.s)
			if k == 0 {
				named[i].Titles = []string{t.s}
			}
		}
		steps[i] = step{id: id, it: &form.Item{Off: a.g.recs[i].off}}
		members[i] = []int{i}
	}
	if size > 4*len(a.c.src.Text) {
		return
	}
	w := &linker{r: a.r, maxLinks: a.c.src.MaxLinks, pathed: -1, names: NewNames(named), steps: steps, members: members}
	for i := range all {
		for _, t := range all[i] {
			w.readText(i, t)
		}
	}
	w.link()
	a.stated = a.r.Stated || len(a.r.Links) > 0
	a.said = w.surelyRelated()
	a.guessed = a.said == 0
}

// cellTexts returns a function with the texts of a record. Fields of ids, owners, outputs and the like are
// left out.
func (a *analysis) cellTexts() func(i int) []text {
	all := make([][]text, len(a.g.recs))
	put := func(col *column) {
		for _, x := range col.cells {
			if s := x.val.Text(); x.val.Kind == form.KindString && len(s) > 2 && strings.IndexByte("{[", s[0]) < 0 && (strings.Contains(s, " ") || !isASCII(s)) {
				all[x.rec] = append(all[x.rec], text{s, x.val.Off})
			}
		}
	}
	if a.title != nil {
		put(a.title)
	}
	for _, col := range a.g.cols {
		if col.is(lexicon.Args) && a.s.form == "table" && col != a.title {
			a.inputs(col, all)
			continue
		}
		if col == a.title || col == a.idColumn() || col.is(lexicon.Owner) || col.is(lexicon.Args) || col.is(lexicon.Output) || col.is(lexicon.Tool) || otherRole(col.name) && !col.is(lexicon.Status) && !col.is(lexicon.Duration) {
			continue
		}
		put(col)
	}
	return func(i int) []text { return all[i] }
}

// inputs adds the texts in a column of inputs that name other records by label: "drawings from W2".
func (a *analysis) inputs(col *column, all [][]text) {
	const lead = "inputs: "
	for _, x := range col.cells {
		for _, p := range splitCell(x.val.Text(), listSigns+" ()[]/") {
			if i, ok := a.n.exact[p.text]; ok && i != x.rec && !digits(p.text) {
				all[x.rec] = append(all[x.rec], text{lead + x.val.Text(), x.val.Off - len(lead)})
				break
			}
		}
	}
}

// leadingLabel returns the label at the beginning of a text, as in "PM-1 Reproduce it" or "T2: dig", or "".
func leadingLabel(s string) string {
	s = strings.TrimLeft(s, "*[(")
	end := strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '.' && r != '_'
	})
	if end <= 0 || end > 12 || end == len(s) {
		return ""
	}
	label := strings.TrimRight(s[:end], ".-")
	if label == "" || !strings.ContainsAny(label, "0123456789") || strings.IndexByte(" :)].–", s[end]) < 0 {
		return ""
	}
	if digits(label) && s[end-1] != '.' && strings.IndexByte(":).", s[end]) < 0 {
		return ""
	}
	return label
}

// applyProse applies the prose below a value to its reading. If the value states no dependencies, relations
// in the prose count; otherwise only corrections do.
func (a *analysis) applyProse() {
	src := a.c.src
	from := src.LineAt(min(a.r.End, len(src.Text))) + 1
	for from < len(src.Lines) && (src.Lines[from].Fence || src.Lines[from].Text == "") {
		from++
	}
	if from >= len(src.Lines) {
		return
	}
	for i := from; i < len(src.Lines); i++ {
		l := &src.Lines[i]
		if l.Fence || l.InCode || l.Text != "" && strings.IndexByte("{[<|", l.Text[0]) >= 0 {
			return
		}
	}
	off := src.Lines[from].Start
	if !a.r.Stated && len(a.r.Links) == 0 {
		amend(src, a.r, src.Text[off:], off, false)
		if len(a.r.Links) > 0 {
			a.r.Stated = true
			a.r.Weight, a.r.Not = max(a.r.Weight, 85), ""
		}
		return
	}
	for i := from; i < len(src.Lines); i++ {
		if l := &src.Lines[i]; corrects(l.Text) {
			amend(src, a.r, src.Text[l.Start:], l.Start, true)
			return
		}
	}
}
