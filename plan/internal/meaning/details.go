package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// details returns, for each step, the lines of its own below its first one, as they are written and without
// the indentation that they share. Lines of fields and the line of the title are left out. The steps are in
// the order of the text. Around are the lines between them that are part of none.
func details(src *form.Source, steps []step) (out []string, around []Span) {
	lines := make([][]string, len(steps))
	var open []int // the steps that the line stands in, the innermost last
	next, fenced := 0, -1
	for k := src.LineAt(steps[0].it.Off); k < len(src.Lines); k++ {
		l := &src.Lines[k]
		begins := false
		for next < len(steps) && steps[next].it.Off < max(l.End, l.Start+1) {
			open, begins = append(open, next), true
			next++
		}
		for len(open) > 0 && steps[open[len(open)-1]].it.End <= l.Off {
			open = open[:len(open)-1]
		}
		if l.Fence && fenced >= 0 { // the end of a code fence that a step opened
			lines[fenced] = append(lines[fenced], strings.TrimRight(src.Text[l.Start:l.End], " \t\r"))
			fenced = -1
			continue
		}
		if begins || len(open) == 0 {
			if len(open) == 0 && next == len(steps) {
				break
			}
			if !begins && l.Text != "" {
				around = append(around, Span{l.Off, l.End})
			}
			continue
		}
		top := open[len(open)-1]
		if l.Text == "" && len(lines[top]) == 0 || steps[top].told(l) {
			continue
		}
		if l.Fence {
			fenced = top
		}
		lines[top] = append(lines[top], strings.TrimRight(src.Text[l.Start:l.End], " \t\r"))
	}
	out = make([]string, len(steps))
	for i := range lines {
		out[i] = dedent(lines[i])
	}
	return out, around
}

// told reports whether a line below a step is its title or one of its fields.
func (st *step) told(l *form.Line) bool {
	if st.it.Text == "" && len(st.texts) > 1 && l.Start <= st.texts[1].off && st.texts[1].off <= l.End {
		return true
	}
	for _, a := range st.attrs {
		if l.Start <= a.Off && a.Off <= l.End {
			return true
		}
	}
	return false
}

// dedent joins lines without the white space that all of them begin with.
func dedent(lines []string) string {
	shared := -1
	for _, s := range lines {
		if n := len(s) - len(strings.TrimLeft(s, " \t")); s != "" && (shared < 0 || n < shared) {
			shared = n
		}
	}
	for i, s := range lines {
		lines[i] = s[min(len(s), max(0, shared)):]
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}
