package view

import (
	"fmt"
	"strings"

	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// maxAlike is how many warnings of one code are shown.
const maxAlike = 5

// Diagnostics shows every error, and the first warnings of each code, with their lines of the text and a
// caret under the place. The other warnings are counted. A note takes one dim line.
func Diagnostics(s Style, name, text string, ds []*planv1.Diagnostic) string {
	lines := strings.Split(text, "\n")
	var b strings.Builder
	alike := map[string]int{}
	var codes []string // of those that are counted
	for _, d := range ds {
		if d.GetSeverity() == planv1.Severity_SEVERITY_WARNING {
			c := d.GetCode()
			if alike[c]++; alike[c] == maxAlike+1 {
				codes = append(codes, c)
			}
			if alike[c] > maxAlike {
				continue
			}
		}
		place := OneLine(name, 0)
		if d.GetLine() > 0 {
			place = fmt.Sprintf("%s:%d:%d", place, d.GetLine(), d.GetColumn())
		}
		code, message, hint := OneLine(d.GetCode(), 0), Message(d.GetMessage()), OneLine(d.GetHint(), 0)
		if d.GetSeverity() == planv1.Severity_SEVERITY_INFO {
			if code == "OPEN_END" {
				message += " (--complete says that nothing was)"
			}
			b.WriteString(s.Fit(s.dim(fmt.Sprintf("%s: note[%s]: %s", place, code, message))) + "\n")
			continue
		}
		word, paint := "warning", s.yellow
		if d.GetSeverity() == planv1.Severity_SEVERITY_ERROR {
			word, paint = "error", s.red
		}
		fmt.Fprintf(&b, "%s\n", s.Fit(fmt.Sprintf("%s: %s %s", s.Bold(place), paint(word+"["+code+"]:"), message)))
		if n := int(d.GetLine()); n > 0 && n <= len(lines) {
			excerpt(&b, s, lines[n-1], n, int(d.GetColumn()), d.GetElement(), paint)
		}
		if hint != "" {
			fmt.Fprintf(&b, "%s\n", s.Fit(fmt.Sprintf("  %s %s", s.cyan("help:"), hint)))
		}
	}
	for _, c := range codes {
		b.WriteString(s.Fit(fmt.Sprintf("%s %s %s more of this code", s.Bold(OneLine(name, 0)+":"), s.yellow("warning["+OneLine(c, 0)+"]:"), Count(int64(alike[c]-maxAlike)))) + "\n")
	}
	return b.String()
}

// maxExcerpt is how many columns of a line are shown around the place.
const maxExcerpt = 100

// excerpt shows the part of a line around a place. Column and element count characters, as the reader of
// plans does; every one of them keeps its place, so that harmful ones and tabs become a space.
func excerpt(b *strings.Builder, s Style, line string, number, column int, element string, paint func(string) string) {
	runes := []rune(strings.Map(func(r rune) rune {
		if !harmless(r) {
			return ' '
		}
		return r
	}, strings.TrimRight(line, "\r\n")))
	at := min(max(column-1, 0), len(runes))
	marked := 1
	if n := len([]rune(element)); n > 0 && strings.HasPrefix(string(runes[at:]), element) {
		marked = n
	}
	// The place has priority, then the text before it, then the text after it.
	most := maxExcerpt
	if s.Width > 0 {
		most = min(most, max(s.Width-10, 12)) // less the number and two signs that something is left out
	}
	from, room := at, most*2/3
	for from > 0 && room-columns(runes[from-1]) >= 0 {
		from--
		room -= columns(runes[from])
	}
	lead := string(runes[from:at])
	if from > 0 {
		lead = "…" + lead
	}
	rest := string(runes[at:])
	shown := cut(rest, max(most-Columns(lead), most/3))
	under := Columns(cut(shown, Columns(string(runes[at:min(at+marked, len(runes))]))))
	if len(shown) < len(rest) {
		shown += "…"
	}
	gutter := fmt.Sprintf("%5d | ", number)
	fmt.Fprintf(b, "%s%s\n", s.dim(gutter), strings.TrimRight(lead+shown, " "))
	fmt.Fprintf(b, "%s%s%s\n", s.dim(strings.Repeat(" ", len(gutter)-2)+"| "), strings.Repeat(" ", Columns(lead)), paint("^"+strings.Repeat("~", max(under-1, 0))))
}

// Plan shows the reading of a text: a summary, the problems with their dependencies, parts below their
// wholes, and the repairs. Dependencies that only the order of the text implies are marked.
func Plan(s Style, r *plannerv1.ParsePlanResponse) string {
	if r.GetNoPlan() {
		why := OneLine(r.GetNoPlanReason(), 0)
		if m := r.GetNoPlanMessage(); m != "" {
			why += ": " + OneLine(m, 0)
		}
		return s.yellow("There is no plan in this text") + " (" + why + ").\n"
	}
	g := r.GetGraph()
	var b strings.Builder
	needs, follows, assumed := map[string][]string{}, map[string][]string{}, 0
	for _, e := range g.GetEdges() {
		if Assumed(e) {
			follows[e.GetTo()] = append(follows[e.GetTo()], e.GetFrom())
			assumed++
			continue
		}
		needs[e.GetTo()] = append(needs[e.GetTo()], e.GetFrom())
	}
	edges := Plural(len(g.GetEdges()), "dependency")
	if assumed > 0 {
		edges += fmt.Sprintf(" (%s assumed from the order)", Count(int64(assumed)))
	}
	b.WriteString(s.Fit(fmt.Sprintf("%s, %s, dialect %s, hash %.12s", Plural(len(g.GetProblems()), "problem"), edges, OneLine(r.GetDialect(), 0), r.GetHash())) + "\n")
	level := map[string]int{}
	name := func(p *planv1.Problem) string {
		return strings.Repeat("  ", min(level[p.GetId()], 8)) + OneLine(p.GetId(), 32)
	}
	idWidth := 0
	for _, p := range g.GetProblems() {
		if up := p.GetParentId(); up != "" {
			level[p.GetId()] = level[up] + 1
		}
		idWidth = max(idWidth, Columns(name(p)))
	}
	for _, p := range g.GetProblems() {
		line := "  " + s.Bold(pad(name(p), idWidth))
		if p.GetRequest() != p.GetId() {
			line += "  " + OneLine(p.GetRequest(), 60)
		}
		if tool := p.GetTool(); tool != "" && !strings.Contains(p.GetRequest(), tool) {
			line += s.dim("  (" + OneLine(tool, 40) + ")")
		}
		if from := needs[p.GetId()]; len(from) > 0 {
			line += s.dim("  ← " + OneLine(strings.Join(from, ", "), 80))
		}
		if from := follows[p.GetId()]; len(from) > 0 {
			line += s.dim("  ⇠ " + OneLine(strings.Join(from, ", "), 80))
		}
		b.WriteString(s.Fit(strings.TrimRight(line, " ")) + "\n")
		writeDetails(&b, s, idWidth+4, p.GetDetails())
	}
	if around := r.GetSurroundings(); len(around) > 0 {
		b.WriteString(s.Fit(s.dim("part of no problem: "+lineRanges(around))) + "\n")
	}
	for _, p := range r.GetRepairs() {
		word := "offered"
		if p.GetApplied() {
			word = "repaired"
		}
		b.WriteString(s.Fit(fmt.Sprintf("  %s %s: %s", s.cyan(word), OneLine(p.GetCode(), 0), OneLine(p.GetMessage(), 0))) + "\n")
	}
	return b.String()
}

// Assumed reports whether nothing but the order of the text implies the dependency.
func Assumed(e *planv1.ProblemEdge) bool {
	return e.GetSource() == planv1.EdgeSource_EDGE_SOURCE_NUMBERING || e.GetSource() == planv1.EdgeSource_EDGE_SOURCE_LISTED_ORDER
}

// Plural is a number with its word, which takes an s, or -ies for -y, unless the number is one.
func Plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "y"):
		word = word[:len(word)-1] + "ies"
	default:
		word += "s"
	}
	return Count(int64(n)) + " " + word
}

// maxDetails is how many lines of a problem's details are shown.
const maxDetails = 3

// writeDetails shows what the text says below the request of a problem.
func writeDetails(b *strings.Builder, s Style, indent int, details string) {
	if details == "" {
		return
	}
	lines := strings.Split(details, "\n")
	for i, line := range lines {
		if i == maxDetails {
			line = fmt.Sprintf("… %d more", len(lines)-i)
		}
		b.WriteString(s.Fit(strings.Repeat(" ", indent)+s.dim(OneLine(line, 80))) + "\n")
		if i == maxDetails {
			return
		}
	}
}

// maxRanges is how many ranges of lines are named.
const maxRanges = 12

// lineRanges names ranges of lines: "lines 1-3, 9".
func lineRanges(rs []*planv1.LineRange) string {
	parts := make([]string, 0, len(rs))
	for i, r := range rs {
		switch {
		case i == maxRanges:
			return "lines " + strings.Join(parts, ", ") + fmt.Sprintf(" and %d more places", len(rs)-i)
		case r.GetFirst() == r.GetLast():
			parts = append(parts, fmt.Sprint(r.GetFirst()))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", r.GetFirst(), r.GetLast()))
		}
	}
	if len(rs) == 1 && rs[0].GetFirst() == rs[0].GetLast() {
		return "line " + parts[0]
	}
	return "lines " + strings.Join(parts, ", ")
}
