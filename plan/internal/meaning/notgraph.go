package meaning

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// otherArrows reports whether the arrows in n lines from first on are no order of steps: the axes of a chart,
// renamed files, paths, or an error message.
func otherArrows(src *form.Source, first, n int) bool {
	if chartAbove(src, first) || traceAbove(src, first) {
		return true
	}
	lines, renames, paths := 0, 0, 0
	for i := first; i < first+n; i++ {
		text := strings.TrimRight(src.Lines[i].Text, " .")
		parts, _ := form.SplitArrows(text, 0)
		if len(parts) < 2 {
			continue
		}
		lines++
		renames += b2i(len(parts) == 2 && movesFile(parts[0].Text, parts[1].Text))
		paths += b2i(len(parts) == 2 && strings.HasPrefix(parts[0].Text, "/") && strings.HasPrefix(parts[1].Text, "/"))
		head, _, ok := strings.Cut(parts[0].Text, ":")
		if ok && n == 1 && strings.Contains(head, ". ") && hasTone(languageOf(src), head, tonePast) {
			return true // for example "It is complete. All was executed: 1 -> 2"
		}
	}
	return lines > 0 && (renames == lines || paths == lines)
}

// charts are the Mermaid drawings whose arrows are no order of steps.
var charts = setOf("quadrantchart xychart xychart-beta sequencediagram classdiagram classdiagram-v2 gitgraph journey mindmap c4container c4component erdiagram pie radar-beta sankey-beta packet-beta requirementdiagram c4context")

// chartAbove reports whether the first line in the fence around line i names such a chart.
func chartAbove(src *form.Source, i int) bool {
	if !src.Lines[i].InCode || src.Lines[i].Lang != "mermaid" {
		return false
	}
	for i > 0 && src.Lines[i-1].InCode && !src.Lines[i-1].Fence {
		i--
	}
	word, _, _ := strings.Cut(src.Lines[i].Text, " ")
	return charts[strings.ToLower(word)]
}

// chartAlone reports whether a text without fences begins like such a chart.
func chartAlone(src *form.Source) bool {
	for i := range src.Lines {
		if l := &src.Lines[i]; l.Text != "" {
			word, _, _ := strings.Cut(l.Text, " ")
			return !l.Fence && len(word) > len("pie") && charts[strings.ToLower(word)]
		}
	}
	return false
}

// traceAbove reports whether a stack trace begins at most 11 lines above line i.
func traceAbove(src *form.Source, i int) bool {
	for k := i; k >= 0 && k > i-12; k-- {
		if t := src.Lines[k].Text; strings.HasPrefix(t, "Traceback (") || strings.HasPrefix(t, "Exception in thread") || strings.HasPrefix(t, "panic: ") {
			return true
		}
	}
	return false
}

// movesFile reports whether a file is moved: both paths have the same last part.
func movesFile(a, b string) bool {
	a, b = a[strings.LastIndexByte(a, ' ')+1:], strings.TrimSpace(b)
	b, _, _ = strings.Cut(b, " ")
	base := a[strings.LastIndexByte(a, '/')+1:]
	return a != base && base == b[strings.LastIndexByte(b, '/')+1:] && strings.IndexByte(base, '.') > 0
}
