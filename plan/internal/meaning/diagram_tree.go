package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// belowWords are stems of words that tell what stands below in a tree, in many languages.
var belowWords = [...]string{"below", "under", "nested", "beneath", "child", "branch", "unter", "zweig", "dessous", "enfant", "branche", "debajo", "hijo", "rama", "abaixo", "filho", "sotto", "figli", "onder", "ниже", "под ", "дочерн", "нижче", "poniżej", "dziec", "altında", "bawah", "bên dưới", "下", "아래", "नीचे", "تحت"}

// readTree reads a tree of branches such as "├── name", if the text around it says that each step needs
// those below it. A tree without such words only shows what belongs together.
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
	said := false
	for i := max(0, first-senseLines); i < min(len(src.Lines), last+senseLines); i++ {
		said = said || (i < first || i > last) && needsBelow(src.Lines[i].Text)
	}
	if !said {
		return nil
	}
	p := newProgram(90, "tree")
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
			p.link(k, stack[len(stack)-1], Stated, name.Off)
		}
		stack, depths = append(stack, k), append(depths, depth)
	}
	return []*Reading{p.reading()}
}

// needsBelow reports whether a line says that a step needs what stands below it in a tree.
func needsBelow(s string) bool {
	if s == "" || len(s) > 400 {
		return false
	}
	lower := strings.ToLower(s)
	for _, w := range belowWords {
		if !strings.Contains(lower, w) {
			continue
		}
		for _, t := range lexicon.ScanIn(lexicon.Language(s), s) {
			if t.Is(lexicon.Needs) || t.Is(lexicon.Uses) {
				return true
			}
		}
	}
	return false
}

// treeName returns the name on a line of a tree, and how deep its branch stands: 0 for a line without one.
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
