package workgraph

import "strings"

// Routed are the decisions of an event about which way a run goes: the conditions of edges that held where
// others might have. Ways round a loop, and those of errors, are left out.
func (p *Program) Routed(ev *Event) []Routed {
	var out []Routed
	for i := range ev.Steps {
		s := &ev.Steps[i]
		if s.Op != OpEdge || !s.Live || s.Kind != "" && s.Kind != DataEdge {
			continue
		}
		from, known := p.index[s.Node]
		to, there := p.index[s.To]
		if !known || !there {
			continue
		}
		at, ok := p.edgeIndex[edgeKey{from, to, DataEdge}]
		if !ok || p.g.Edges[at].When == "" {
			continue
		}
		r := Routed{From: s.Node, To: s.To, How: RoutedByCondition, Why: clipText(p.g.Edges[at].When, maxRoutedWhy)}
		if strings.HasSuffix(r.Why, routeDefault) || strings.HasSuffix(r.Why, routeOnward) {
			r.How = RoutedElse
		}
		out = append(out, r)
	}
	return out
}

// maxRoutedWhy bounds the condition of a decision, in bytes.
const maxRoutedWhy = 200

// The ends of conditions of routes that are taken if no rule of a switch holds.
const (
	routeDefault = `result.route == "default"`
	routeOnward  = `result.route == "continue"`
)
