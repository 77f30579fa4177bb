package team

import (
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// anew drops what is under way, since there is a new request: those begin who hear the input. What was
// said is still heard, and calls nobody. What tools have set for the graph to read is set back, so that
// the new request is not led to where the old one was.
func (r *Rules) anew(st *State) {
	st.Speaking, st.Choosing, st.Lost = nil, nil, ""
	for _, key := range r.flags {
		st.Values[key], _ = r.team.State[key].Combine(nil, nil) // Compile has done it
	}
	if !r.team.driven() {
		st.Ready, st.Arrived = slices.Clone(r.starts), map[string][]int{}
		return
	}
	for _, q := range st.Queues {
		for i := range q {
			q[i].Past = true
		}
	}
}

// flags are the keys of the state that tools set and that expressions of the graph read: conditions, tasks
// and candidates. Keys that gather values are no flags.
func (t *Team) flags() (out []string) {
	for key, k := range t.State {
		if k.Reducer != "" && k.Reducer != workgraph.Replace {
			continue
		}
		set := slices.ContainsFunc(t.Members, func(m Member) bool {
			for name := range m.Signals {
				if _, ok := m.Signals[name].Set[key]; ok {
					return true
				}
			}
			return false
		})
		if set && slices.ContainsFunc(t.expressions(), func(src string) bool { return strings.Contains(src, "state") && mentions(src, key) }) {
			out = append(out, key)
		}
	}
	return out
}

// expressions are those that say who speaks and what it is told.
func (t *Team) expressions() (out []string) {
	var conditions func(list []When)
	conditions = func(list []When) {
		for i := range list {
			w := &list[i]
			out = append(out, w.Expr)
			conditions(w.Any)
			conditions(w.All)
			if w.Not != nil {
				conditions([]When{*w.Not})
			}
		}
	}
	for i := range t.Transitions {
		if w := t.Transitions[i].When; w != nil {
			conditions([]When{*w})
		}
	}
	for i := range t.Members {
		out = append(out, t.Members[i].Task)
	}
	if t.Choose != nil {
		out = append(out, t.Choose.Candidates)
	}
	return out
}
