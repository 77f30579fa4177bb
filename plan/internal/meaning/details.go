package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// details returns the lines of each step below its first one, verbatim but without their common indentation.
// Lines with fields or the title are left out. The steps must be in the order of the text. around are the
// lines between steps that belong to none.
func details(src *form.Source, steps []step) (out []string, around []Span) {
	lines := make([][]string, len(steps))
	skip := fieldLines(src, steps)
	var open []int // the steps that contain the line, the innermost last
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
		if begins {
			fenced = -1
			continue
		}
		own := fenced
		switch {
		case l.Fence && fenced >= 0:
			fenced = -1
		case fenced >= 0:
		case len(open) > 0:
			own = open[len(open)-1]
		case l.Fence && fenceOf(src, k, steps, next):
			own = next - 1
		}
		if own < 0 && next == len(steps) {
			break
		}
		switch {
		case own < 0:
			if l.Text != "" {
				around = append(around, Span{l.Off, l.End})
			}
		case l.Text == "" && len(lines[own]) == 0, skip[k]:
		default:
			if l.Fence && src.Lines[min(k+1, len(src.Lines)-1)].InCode {
				fenced = own
			}
			lines[own] = append(lines[own], strings.TrimRight(src.Text[l.Start:l.End], " \t\r"))
		}
	}
	out = make([]string, len(steps))
	for i := range lines {
		out[i] = dedent(lines[i])
	}
	return out, around
}

// fenceOf reports whether a code fence on line k belongs to the step that began last: it is indented below
// the step, directly follows a line of text, or another step comes after it.
func fenceOf(src *form.Source, k int, steps []step, next int) bool {
	if next == 0 || k+1 >= len(src.Lines) || !src.Lines[k+1].InCode {
		return false // the end of a fence around the steps
	}
	it := steps[next-1].it
	return src.Lines[k].Indent > it.Indent || k > 0 && src.Lines[k-1].Text != "" || next < len(steps) || it.Kind == form.Heading
}

// fieldLines returns the lines below the steps that hold titles or fields.
func fieldLines(src *form.Source, steps []step) map[int]bool {
	lines := map[int]bool{}
	for i := range steps {
		st := &steps[i]
		if st.it.Text == "" && len(st.texts) > 1 {
			lines[src.LineAt(st.texts[1].off)] = true
		}
		for _, a := range st.attrs {
			lines[src.LineAt(a.Off)] = true
		}
	}
	return lines
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
