package team

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
	"github.com/epigraph-run/epigraph/workgraph"
)

// routedTo says how those were found who speak next, after a speaker. decided are the conditions that
// held.
func (r *Rules) routedTo(speak []string, from string, decided []workgraph.Routed) (out []workgraph.Routed) {
	for _, to := range speak {
		if r.team.driven() {
			out = append(out, workgraph.Routed{From: from, To: to, How: workgraph.RoutedByRouter})
			continue
		}
		for _, d := range decided {
			if d.To == to {
				out = append(out, d)
			}
		}
	}
	return out
}

// maxWhy bounds what is told of a decision, in bytes.
const maxWhy = 200

// decision adds how a message led to somebody, by a condition that held. Of several the handoff counts,
// or else the last one.
func decision(list []workgraph.Routed, m *Message, when *When, to string) []workgraph.Routed {
	d := workgraph.Routed{From: m.From, To: to, How: workgraph.RoutedByCondition, Why: when.String()}
	signal := ""
	if n := len(m.Signals); n > 0 {
		signal = m.Signals[n-1].Name
	}
	switch {
	case m.To == to && when.Handoff != "":
		d.How, d.Why = workgraph.RoutedByHandoff, signal
	case signal != "":
		d.How, d.Why = workgraph.RoutedByTool, signal+": "+d.Why
	}
	d.Why = text.Clip(d.Why, maxWhy)
	at := slices.IndexFunc(list, func(x workgraph.Routed) bool { return x.To == to })
	switch {
	case at < 0:
		return append(list, d)
	case list[at].How != workgraph.RoutedByHandoff:
		list[at] = d
	}
	return list
}

// String is the condition in words of the language.
func (w *When) String() string {
	list := func(word string, of []When) string {
		parts := make([]string, len(of))
		for i := range of {
			parts[i] = of[i].String()
		}
		return "(" + strings.Join(parts, " "+word+" ") + ")"
	}
	switch {
	case w.Not != nil:
		return "not " + w.Not.String()
	case w.Text != "":
		return "text has " + w.Text
	case w.Handoff != "":
		return "handoff to " + w.Handoff
	case w.Expr != "":
		return w.Expr
	case w.Else:
		return "else"
	case len(w.Any) > 0:
		return list("or", w.Any)
	}
	return list("and", slices.Clone(w.All))
}
