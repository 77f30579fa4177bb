package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// readTree reads a tree of branches such as "├── name" if the text around it says that each step needs the
// steps below it, or the one above. Without such a sentence a tree only shows what belongs together, and
// readTree returns nil.
func readTree(src *form.Source) []*Reading {
	first, last, branches := -1, -1, 0
	for i := range src.Lines {
		l := &src.Lines[i]
		if _, depth := treeName(src, l); depth > 0 {
			branches++
			if first < 0 {
				first = i
			}
			last = i
		} else if first >= 0 && l.Text != "" && last == i-1 {
			break
		}
	}
	if branches < 2 {
		return nil
	}
	if first > 0 && src.Lines[first-1].Text != "" && !src.Lines[first-1].Fence {
		first--
	}
	said, down := false, false
	for i := max(0, first-senseLines); i < min(len(src.Lines), last+senseLines) && !said; i++ {
		if i < first || i > last {
			said, down = treeSense(src.Lines[i].Text)
		}
	}
	if !said {
		return nil
	}
	p := newProgram(src, 90, "tree")
	p.r.Form = "diagram"
	p.r.Stated = true
	var stack []int
	var depths []int
	for i := first; i <= last; i++ {
		name, depth := treeName(src, &src.Lines[i])
		if name.Text == "" {
			continue
		}
		for len(stack) > 0 && depths[len(depths)-1] >= depth {
			stack, depths = stack[:len(stack)-1], depths[:len(depths)-1]
		}
		k := p.item(name.Text, name.Text, true, name.Off, name.Off+len(name.Text))
		if len(stack) > 0 {
			if up := stack[len(stack)-1]; down {
				p.link(up, k, Stated, name.Off)
			} else {
				p.link(k, up, Stated, name.Off)
			}
		}
		stack, depths = append(stack, k), append(depths, depth)
	}
	return []*Reading{p.reading()}
}

// treeSense returns whether a line says that steps need the steps below or above them in a tree, and whether
// the order runs down. The object of the relation decides, or its subject if the object names neither.
func treeSense(s string) (says, down bool) {
	if s == "" || len(s) > 400 {
		return false, false
	}
	for _, t := range lexicon.ScanIn(lexicon.Language(s), s) {
		needs := t.Is(lexicon.Needs) || t.Is(lexicon.Uses)
		if !needs && !t.Is(lexicon.Before) {
			continue
		}
		behind, ahead := strings.ToLower(s[t.End:]), strings.ToLower(s[:t.Off])
		if t.Side == lexicon.Behind {
			behind, ahead = ahead, behind
		}
		below, above := stemAt(behind, "of below"), stemAt(behind, "of above")
		if below < 0 && above < 0 {
			above, below = stemAt(ahead, "of below"), stemAt(ahead, "of above")
		}
		if below >= 0 || above >= 0 {
			return true, (below < 0 || above >= 0 && above < below) == needs
		}
	}
	return false, false
}

// treeName returns the name on a line of a tree and the depth of its branch, or the whole line and 0 if the
// line has no branch.
func treeName(src *form.Source, l *form.Line) (form.Piece, int) {
	s := src.Text[l.Start:l.End]
	for _, branch := range [...]string{"├", "└", "|-", "`-", "+-", "\\-"} {
		i := strings.Index(s, branch)
		if i < 0 || strings.Trim(s[:i], "│| \t\u00a0") != "" {
			continue
		}
		rest := strings.TrimLeft(s[i+len(branch):], "─- >")
		return form.Piece{Text: rest, Off: l.End - len(rest)}, 1 + len([]rune(s[:i]))
	}
	return form.Piece{Text: l.Text, Off: l.Off}, 0
}
