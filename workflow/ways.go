package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// This file knows which nodes come before a node, and without which routes of switches it does not run.

// conds are routes of switches, each as "SWITCH ROUTE", sorted.
type conds []string

// maxConds is how many routes are kept of a node. Beyond that nothing is known of it.
const maxConds = 32

// end is a way on from a node, what must hold for it, and the route that it is of a switch.
type end struct{ from, when, route string }

// set is a set of small numbers.
type set []uint64

func (s set) has(n int) bool { return n/64 < len(s) && s[n/64]&(1<<(n%64)) != 0 }

func (s *set) add(n int) {
	for len(*s) <= n/64 {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s *set) merge(other set) {
	for len(*s) < len(other) {
		*s = append(*s, 0)
	}
	for i, w := range other {
		(*s)[i] |= w
	}
}

// put adds a node with the edges into it.
func (c *compiler) put(n workgraph.Node, in []end) {
	c.g.Nodes = append(c.g.Nodes, n)
	var before set
	var when []conds
	seen := make(map[end]bool, len(in))
	for _, e := range in {
		if seen[e] {
			continue
		}
		if seen[e] = true; len(c.g.Edges) == maxEdges {
			c.tooLarge = true
			c.add(Fault{Code: "TOO_LARGE", Message: fmt.Sprintf("the workflow has more than %d ways between its steps", maxEdges), Hint: "put a `merge` between steps that many others follow"})
			break
		}
		c.g.Edges = append(c.g.Edges, workgraph.Edge{From: e.from, To: n.ID, When: e.when})
		if k, ok := c.number[e.from]; ok {
			before.merge(c.before[k])
			before.add(k)
			when = append(when, c.when[k].with(e))
		}
	}
	c.number[n.ID] = len(c.before)
	c.before, c.when = append(c.before, before), append(c.when, c.joined(n.ID, when))
}

// with are the routes of the source of a way, and the one of the way itself.
func (w conds) with(e end) conds {
	if e.route == "" {
		return w
	}
	out := slices.Clone(w)
	at, _ := slices.BinarySearch(out, e.from+" "+e.route)
	return slices.Insert(out, at, e.from+" "+e.route)
}

// joined are the routes without which a node does not run that has these ways in, any of which lets it
// run: what they have in common. If each of them has more than that, the node has a condition of its
// own.
func (c *compiler) joined(id string, ways []conds) conds {
	if len(ways) == 0 {
		return nil
	}
	for again := true; again; {
		ways, again = c.folded(ways)
	}
	common := shared(ways)
	unknown := len(ways) > 1 && !slices.ContainsFunc(ways, func(w conds) bool { return len(w) == len(common) })
	if unknown || len(common) > maxConds {
		common = slices.Clone(common[:min(len(common), maxConds)])
		at, _ := slices.BinarySearch(common, id+" ")
		common = slices.Insert(common, at, id+" ")
	}
	return common
}

// shared is what all ways have in common.
func shared(ways []conds) conds {
	return slices.DeleteFunc(slices.Clone(ways[0]), func(cond string) bool {
		return slices.ContainsFunc(ways, func(w conds) bool { _, ok := slices.BinarySearch(w, cond); return !ok })
	})
}

// folded takes ways that are all routes of a switch for one way to that switch, and equal ways for one.
// again reports whether it found such a switch: then there may be more.
func (c *compiler) folded(ways []conds) (out []conds, again bool) {
	common := shared(ways)
	// rest names a switch and all other conditions of a way, with which the way is one of its routes.
	rest := func(w conds, i int) string {
		name, _, _ := strings.Cut(w[i], " ")
		var b strings.Builder
		b.WriteString(name)
		for k, cond := range w {
			if _, ok := slices.BinarySearch(common, cond); k != i && !ok {
				b.WriteString("\n" + cond)
			}
		}
		return b.String()
	}
	routes := map[string]map[string]bool{}
	for _, w := range ways {
		for i, cond := range w {
			if _, route, _ := strings.Cut(cond, " "); route != "" {
				key := rest(w, i)
				if routes[key] == nil {
					routes[key] = map[string]bool{}
				}
				routes[key][route] = true
			}
		}
	}
	all := func(w conds, i int) bool {
		name, _, _ := strings.Cut(w[i], " ")
		b, ok := c.body(name).(*switchBody)
		return ok && len(routes[rest(w, i)]) == len(b.routes())
	}
	seen := map[string]bool{}
	for _, w := range ways {
		for i := range w {
			if all(w, i) {
				w, again = slices.Delete(slices.Clone(w), i, i+1), true
				break
			}
		}
		if key := strings.Join(w, "\n"); !seen[key] {
			seen[key] = true
			out = append(out, w)
		}
	}
	return out, again
}

// certain reports whether a step that comes before another one has run whenever the other one runs.
func (c *compiler) certain(id, before string) bool {
	k, ok := c.number[id]
	if !ok {
		return false
	}
	have := c.when[c.number[before]]
	for _, cond := range c.when[k] {
		if _, ok := slices.BinarySearch(have, cond); !ok {
			return false
		}
	}
	return true
}
