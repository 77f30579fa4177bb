package view

import (
	"fmt"
	"strings"

	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// Diagnostics shows every finding with its line of the text and a caret under the place.
func Diagnostics(s Style, name, text string, ds []*planv1.Diagnostic) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	var b strings.Builder
	for _, d := range ds {
		word, paint := "warning", s.yellow
		switch d.GetSeverity() {
		case planv1.Severity_SEVERITY_ERROR:
			word, paint = "error", s.red
		case planv1.Severity_SEVERITY_INFO:
			word, paint = "note", s.cyan
		}
		place := name
		if d.GetLine() > 0 {
			place = fmt.Sprintf("%s:%d:%d", name, d.GetLine(), d.GetColumn())
		}
		fmt.Fprintf(&b, "%s: %s %s\n", s.Bold(place), paint(word+"["+d.GetCode()+"]:"), OneLine(d.GetMessage(), 0))
		if n := int(d.GetLine()); n > 0 && n <= len(lines) {
			excerpt(&b, s, lines[n-1], n, int(d.GetColumn()), d.GetElement(), paint)
		}
		if d.GetHint() != "" {
			fmt.Fprintf(&b, "  %s %s\n", s.cyan("help:"), OneLine(d.GetHint(), 0))
		}
	}
	return b.String()
}

// maxExcerpt is how many characters of a line are shown around the place.
const maxExcerpt = 100

func excerpt(b *strings.Builder, s Style, line string, number, column int, element string, paint func(string) string) {
	runes := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line))
	at := min(max(column-1, 0), len(runes))
	from := 0
	if at > maxExcerpt*2/3 {
		from = at - maxExcerpt/2
	}
	to := min(len(runes), from+maxExcerpt)
	shown := string(runes[from:to])
	if from > 0 {
		shown = "…" + shown
		at++
	}
	if to < len(runes) {
		shown += "…"
	}
	width := 1
	if n := len([]rune(element)); n > 0 && strings.HasPrefix(string(runes[min(max(column-1, 0), len(runes)):]), element) {
		width = min(n, maxExcerpt)
	}
	gutter := fmt.Sprintf("%5d | ", number)
	fmt.Fprintf(b, "%s%s\n", s.dim(gutter), shown)
	fmt.Fprintf(b, "%s%s%s\n", s.dim(strings.Repeat(" ", len(gutter)-2)+"| "), blanks(shown, at-from), paint("^"+strings.Repeat("~", width-1)))
}

// blanks is as wide as the first n characters of text; East Asian wide characters take two columns.
func blanks(text string, n int) string {
	var b strings.Builder
	for i, r := range []rune(text) {
		if i == n {
			break
		}
		b.WriteByte(' ')
		if wide(r) {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func wide(r rune) bool {
	return r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
		r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000)
}

// Plan shows what a text says: a summary, the problems in layers of what can run together, and the repairs.
func Plan(s Style, r *plannerv1.ParsePlanResponse) string {
	if r.GetNoPlan() {
		return s.yellow("There is no plan in this text") + " (" + r.GetNoPlanReason() + ").\n"
	}
	g := r.GetGraph()
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, dialect %s, hash %.12s\n", plural(len(g.GetProblems()), "problem"), plural(len(g.GetEdges()), "dependency"), r.GetDialect(), r.GetHash())
	needs := map[string][]string{}
	for _, e := range g.GetEdges() {
		needs[e.GetTo()] = append(needs[e.GetTo()], e.GetFrom())
	}
	idWidth := 0
	for _, p := range g.GetProblems() {
		idWidth = max(idWidth, len([]rune(OneLine(p.GetId(), 32))))
	}
	for _, p := range g.GetProblems() {
		line := "  " + s.Bold(pad(OneLine(p.GetId(), 32), idWidth)) + "  " + pad(OneLine(p.GetRequest(), 60), 0)
		if from := needs[p.GetId()]; len(from) > 0 {
			line += s.dim("  ← " + OneLine(strings.Join(from, ", "), 80))
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for _, p := range r.GetRepairs() {
		word := "offered"
		if p.GetApplied() {
			word = "repaired"
		}
		fmt.Fprintf(&b, "  %s %s: %s\n", s.cyan(word), p.GetCode(), OneLine(p.GetMessage(), 0))
	}
	return b.String()
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	if strings.HasSuffix(word, "y") {
		return fmt.Sprintf("%d %sies", n, word[:len(word)-1])
	}
	return fmt.Sprintf("%d %ss", n, word)
}
