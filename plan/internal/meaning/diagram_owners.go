package meaning

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// assignedWeight is the weight of a reading of owners and their work.
const assignedWeight = 60

// readAssigned reads arrows from owners to their work: "Ann → draft; Bob → review". The steps are the pieces
// of work, in the order of the list.
func readAssigned(src *form.Source) []*Reading {
	r := &Reading{Form: "outline", Start: -1, Weight: assignedWeight, Evidence: []string{"who does what"}}
	lang := languageOf(src)
	for i := range src.Lines {
		l := &src.Lines[i]
		if !form.ContainsArrow(l.Text) {
			continue
		}
		if l.InCode || len(r.Items) > src.MaxItems {
			return nil
		}
		for _, part := range assignments(arrowPrefix(form.Piece{Text: l.Text, Off: l.Off})) {
			ends, back := form.SplitArrows(part.Text, part.Off)
			if len(ends) != 2 || back[0] || !personal(lang, strings.TrimSpace(ends[0].Text)) || !acts(lang, strings.TrimSpace(ends[1].Text)) {
				return nil
			}
			who, what := squeeze(ends[0].Text), strings.Trim(ends[1].Text, " .;,。")
			off := ends[1].Off + strings.Index(ends[1].Text, what)
			r.Items = append(r.Items, Item{
				ID: strconv.Itoa(len(r.Items) + 1), Title: squeeze(what), Parent: -1, Off: off, End: off + len(what),
				Attrs: []Attr{{Key: "owner", Role: Owner, Value: who, Off: ends[0].Off}},
			})
			if r.Start < 0 {
				r.Start = l.Start
			}
			r.End = l.End
		}
	}
	if len(r.Items) < 2 {
		return nil
	}
	for i := range r.Items[:min(len(r.Items), maxDoubts)] {
		it := &r.Items[i]
		r.Notes = append(r.Notes, Note{Code: "AMBIGUOUS", Element: it.ID, Off: it.Off, Message: it.Attrs[0].Value + " was read as the owner of this step, not as a step before it", Hint: "write the owner behind the step: \"" + form.Clip(it.Title) + " (owner: " + it.Attrs[0].Value + ")\""})
	}
	r.Open = r.End >= len(strings.TrimRight(src.Text, " \n\t\r"))
	return []*Reading{r}
}

// assignments splits a line at semicolons, and at commas if each part contains an arrow.
func assignments(p form.Piece) (out []form.Piece) {
	for _, part := range form.SplitSemicolons(p.Text, p.Off) {
		at, whole := 0, len(out)
		for _, s := range strings.SplitAfter(part.Text, ", ") {
			out = append(out, form.Piece{Text: strings.TrimSuffix(s, ", "), Off: part.Off + at})
			at += len(s)
			if !form.ContainsArrow(s) {
				out = append(out[:whole], part)
				break
			}
		}
	}
	return out
}

// personal reports whether a text may be the name of a person: one or two capitalized words that are no
// demand.
func personal(lang, s string) bool {
	words := strings.Fields(s)
	if len(words) == 0 || len(words) > 2 || acts(lang, s) {
		return false
	}
	for _, w := range words {
		if !capital(w) || len(w) < 2 || strings.ToUpper(w) == w || strings.ContainsFunc(w, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && r != '.' && r != '\'' }) {
			return false
		}
	}
	return true
}
