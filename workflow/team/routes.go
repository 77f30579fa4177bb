package team

import (
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Routes say how those were found who speak next: by the answers that were given, or by a model if chosen is
// set. Transitions that always hold choose nobody, and are left out.
func (r *Rules) Routes(ctx context.Context, answers []Message, chosen bool, st *State, move Move) []workgraph.Routed {
	var out []workgraph.Routed
	x := workgraph.NewAccount(ctx)
	add := func(from, to, how, why string) {
		out = append(out, workgraph.Routed{From: from, To: to, How: how, Why: text.Clip(why, maxWhy)})
	}
	for _, to := range move.Speak {
		switch {
		case chosen:
			add(st.Last, to, workgraph.RoutedBySelector, "")
			continue
		case r.team.Choose != nil:
			continue // it was the only one who could
		case r.team.driven():
			add(last(answers).From, to, workgraph.RoutedByRouter, "")
			continue
		}
		for i := range answers {
			m := &answers[i]
			if how, why, is := r.route(x, st, m, to); is {
				add(m.From, to, how, why)
			}
		}
	}
	return out
}

// maxWhy bounds what is told of a decision, in bytes.
const maxWhy = 200

// route is how a message led to who speaks next, if it did by a choice.
func (r *Rules) route(x *workgraph.Account, st *State, m *Message, to string) (how, why string, is bool) {
	signal := ""
	if n := len(m.Signals); n > 0 {
		signal = m.Signals[n-1].Name
	}
	otherwise := false
	for _, i := range r.out[m.From] {
		e := &r.team.Transitions[i]
		switch {
		case e.When == nil || e.To != to:
		case e.When.Else:
			otherwise = true
		case !r.holds(x, st, e.When, m):
		case m.To == to && e.When.Handoff != "":
			return workgraph.RoutedByHandoff, signal, true
		case signal != "":
			how, why = workgraph.RoutedByTool, signal+": "+e.When.String()
		default:
			how, why = workgraph.RoutedByCondition, e.When.String()
		}
	}
	if how == "" && otherwise {
		how = workgraph.RoutedElse
	}
	return how, why, how != ""
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
