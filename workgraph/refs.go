package workgraph

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// exprUse is one place of an expression that reads other nodes or the input.
type exprUse struct {
	expr  *Expr
	place Fault // without code and message
	// of is the node whose ancestors the expression sees. at is the node from whose place names are resolved.
	// over says that of itself has completed.
	of, at string
	over   bool
}

// nodeExpr compiles an expression that stands at a node.
func (c *checker) nodeExpr(id, field, src string) *Expr {
	return c.expr(exprUse{place: Fault{Node: id, Field: field}, of: id, at: id}, src)
}

// edgeExpr compiles an expression that stands at an edge. It is evaluated when the source has ended.
func (c *checker) edgeExpr(e *Edge, field, src string) *Expr {
	return c.expr(exprUse{place: Fault{From: e.From, To: e.To, Field: field}, of: e.From, at: e.To, over: e.Kind != ErrorEdge}, src)
}

// giving reports an expression that can never give the type that its place needs. Stored graphs are accepted
// as they are.
func (c *checker) giving(want string, place Fault, e *Expr) *Expr {
	if e == nil || e.gives == "" || e.gives == want || c.expanded && c.actors == nil || c.full() {
		return e
	}
	place.Code, place.Message = CodeBadExpression, fmt.Sprintf("%q gives %s, not a %s", e.src, e.gives, want)
	if e.wholeNode {
		place.Hint = fmt.Sprintf("write %s.result for what the node gave", e.src)
	}
	c.add(place)
	return e
}

// checkNodeRefs reports a nodes.ID that is not declared or cannot have ended when the expression is
// evaluated, and fields that no node or input has. whole says that every edge is known.
func (c *checker) checkNodeRefs(p *Program, whole bool) {
	if c.expanded && c.actors == nil {
		return // each part of the graph was checked when it was given
	}
	type question struct {
		use *exprUse
		id  string
	}
	var asked []question
	var pairs [][2]int32
	for i := range c.uses {
		u := &c.uses[i]
		// At run time it would be a missing key, which makes a condition false without an error.
		for _, f := range u.expr.unknownFields {
			c.refFault(u, CodeBadExpression, "a node has "+strings.Join(nodeFields, ", "), "%q asks for %q of nodes.%s, which no node has", u.expr.src, f.field, f.id)
		}
		for _, key := range u.expr.unknownInput {
			c.refFault(u, CodeBadExpression, "write input.named."+key, "%q asks for %q of input, which has args and named", u.expr.src, key)
		}
		for _, id := range u.expr.nodeRefs {
			x, declared := p.resolve(u.at, id)
			if declared {
				of, ok := c.index[u.of]
				if !whole || !ok || u.over && x == of {
					continue
				}
				asked, pairs = append(asked, question{u, id}), append(pairs, [2]int32{x, of})
				continue
			}
			if c.outer == nil {
				c.refFault(u, CodeUnknownNodeRef, c.nearest(id), "%q refers to nodes.%s, which is not declared", u.expr.src, id)
				continue
			}
			switch declared, before := c.outer(id); {
			case !declared:
				c.refFault(u, CodeUnknownNodeRef, c.nearest(id), "%q refers to nodes.%s, which is not declared", u.expr.src, id)
			case !before:
				c.refFault(u, CodeNotBefore, "pass the result on to the node, or draw an edge", "%q refers to nodes.%s, which does not lead here", u.expr.src, id)
			}
		}
	}
	for k, leads := range p.leadAll(c.ctx, pairs) {
		if leads || c.full() {
			continue
		}
		q, x, v := asked[k], pairs[k][0], pairs[k][1]
		hint := fmt.Sprintf("draw an edge from %q, or pass its result on", p.nodes[x].ID)
		switch {
		case x == v && q.use.place.Node == "":
			hint = "on an ERROR edge result is the error of the source"
		case x == v:
			hint = "the node itself has not ended here: use result or values where it has"
		case p.leadsTo(v, x):
			hint = fmt.Sprintf("it comes after %q: refer to a node before it, or draw the edge the other way", p.nodes[v].ID)
		}
		c.refFault(q.use, CodeNotBefore, hint, "%q refers to nodes.%s, which is no node before %q and so has no result here", q.use.expr.src, q.id, p.nodes[v].ID)
	}
}

func (c *checker) refFault(u *exprUse, code, hint, format string, args ...any) {
	if c.full() {
		return
	}
	f := u.place
	f.Code, f.Hint, f.Message = code, hint, fmt.Sprintf(format, args...)
	c.add(f)
}

// leadAll answers leadsTo for many pairs, in one pass over the edges for each reachBatch different sources.
// If ctx ends, the answers must not be used.
func (p *Program) leadAll(ctx context.Context, pairs [][2]int32) []bool {
	out := make([]bool, len(pairs))
	var open []int
	for i, q := range pairs {
		if _, direct := p.edgeIndex[edgeKey{q[0], q[1], DataEdge}]; direct {
			out[i] = true
			continue
		}
		open = append(open, i)
	}
	if len(open) <= 8 {
		for _, i := range open {
			out[i] = p.leadsTo(pairs[i][0], pairs[i][1])
		}
		return out
	}
	slices.SortFunc(open, func(a, b int) int { return int(pairs[a][0]) - int(pairs[b][0]) })
	r := p.reaches()
	byComp := r.order()
	for len(open) > 0 && ctx.Err() == nil {
		bits := map[int32]int{}
		n := 0
		for n < len(open) {
			x := pairs[open[n]][0]
			if _, ok := bits[x]; !ok && len(bits) == reachBatch {
				break
			} else if !ok {
				bits[x] = len(bits)
			}
			n++
		}
		sets := p.reachFrom(r, byComp, bits)
		for _, i := range open[:n] {
			out[i] = sets[r.comp[pairs[i][1]]].has(bits[pairs[i][0]])
		}
		open = open[n:]
	}
	return out
}

// order lists the nodes so that the components of ancestors come first.
func (r *reach) order() []int32 {
	out := make([]int32, len(r.comp))
	for v := range out {
		out[v] = int32(v)
	}
	slices.SortFunc(out, func(a, b int32) int { return int(r.comp[b]) - int(r.comp[a]) })
	return out
}

// reachFrom computes for every component which of the sources, by their bits, lead to its nodes.
func (p *Program) reachFrom(r *reach, byComp []int32, bits map[int32]int) []reachSet {
	sets := make([]reachSet, len(r.comp))
	own := make([]int32, len(r.comp)) // the bit of a source, plus one
	for x, b := range bits {
		own[x] = int32(b) + 1
	}
	for lo := 0; lo < len(byComp); {
		comp := r.comp[byComp[lo]]
		hi := lo
		cyclic := false
		set := &sets[comp]
		for ; hi < len(byComp) && r.comp[byComp[hi]] == comp; hi++ {
			v := byComp[hi]
			for _, e := range r.edge[r.first[v]:r.first[v+1]] {
				w := p.edges[e].from
				if r.comp[w] == comp {
					cyclic = true
					continue
				}
				set.join(sets[r.comp[w]])
				if b := own[w]; b > 0 {
					set.add(int(b) - 1)
				}
			}
		}
		for _, v := range byComp[lo:hi] {
			if b := own[v]; b > 0 && cyclic {
				set.add(int(b) - 1)
			}
		}
		lo = hi
	}
	return sets
}
