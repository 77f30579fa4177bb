package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/obs"
)

// maxSpans is how many spans a waterfall shows.
const maxSpans = 120

// Waterfall draws the spans of a trace below each other, each as a bar on one time line. Spans without their
// parent stand at the top.
func Waterfall(s Style, spans []obs.Span, width int) string {
	if len(spans) == 0 {
		return "no spans\n"
	}
	children := map[string][]int{}
	known := map[string]bool{}
	begin, end := spans[0].Start, spans[0].End
	for _, sp := range spans {
		known[sp.SpanID] = true
		if sp.Start.Before(begin) {
			begin = sp.Start
		}
		if sp.End.After(end) {
			end = sp.End
		}
	}
	for i, sp := range spans {
		parent := sp.ParentID
		if !known[parent] || parent == sp.SpanID {
			parent = ""
		}
		children[parent] = append(children[parent], i)
	}
	service := 8
	if width < 56 {
		service = 0 // is left out
	}
	rest := width - service - 12
	label := min(max(rest*3/5, 12), 42)
	bar := max(rest-label, 8)
	total := max(end.Sub(begin), time.Microsecond)
	column := func(t time.Time) int { return int(int64(bar-1) * int64(t.Sub(begin)) / int64(total)) }
	var b strings.Builder
	s.Width = width
	b.WriteString(s.Fit(s.dim(fmt.Sprintf("trace %s, %s, %s", OneLine(spans[0].TraceID, 0), Plural(len(spans), "span"), Took(total)))) + "\n")
	lines := 0
	var draw func(parent string, depth int)
	draw = func(parent string, depth int) {
		for _, i := range children[parent] {
			if lines++; lines > maxSpans {
				continue
			}
			sp := spans[i]
			from, to := column(sp.Start), column(sp.End)
			line := strings.Repeat(" ", from) + strings.Repeat("▇", max(to-from, 0)+1)
			paint := s.cyan
			if sp.Failed {
				paint = s.red
			}
			lead := strings.Repeat(" ", min(depth, 10))
			if service > 0 {
				b.WriteString(s.dim(pad(OneLine(strings.TrimPrefix(sp.Service, "epigraph-"), service), service)) + " ")
			}
			fmt.Fprintf(&b, "%s %s%s %s\n",
				pad(lead+OneLine(spanName(sp.Name), label-len(lead)), label),
				paint(line), strings.Repeat(" ", max(bar-from-max(to-from, 0)-1, 0)), Took(sp.End.Sub(sp.Start)))
			draw(sp.SpanID, depth+1)
		}
	}
	draw("", 0)
	if lines > maxSpans {
		fmt.Fprintf(&b, "%s\n", s.dim(fmt.Sprintf("… and %d more spans", lines-maxSpans)))
	}
	return b.String()
}

// spanName is a span's name without what every RPC has in common.
func spanName(name string) string {
	if rest, ok := strings.CutPrefix(name, "epigraph."); ok {
		if _, method, ok := strings.Cut(rest, ".v1."); ok {
			return method
		}
	}
	return name
}
