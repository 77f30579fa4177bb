package workgraph

import (
	"slices"
	"strconv"
	"strings"
)

// This file defines the ids that expansions make and what they mean for the shape of a graph. A node made by
// visit v of node a is called a#v/id. Outside of loops it is like any other node. In a loop it belongs to the
// one round that made it: frames of other rounds have no place for it.

// expansionID splits the id of a node that an expansion made. ok is false for the id of a declared node.
func expansionID(id string) (origin string, visit int, given string, ok bool) {
	slash := strings.LastIndexByte(id, '/')
	if slash < 0 {
		return "", 0, "", false
	}
	hash := strings.LastIndexByte(id[:slash], '#')
	if hash < 1 || slash+1 == len(id) {
		return "", 0, "", false
	}
	visit, err := strconv.Atoi(id[hash+1 : slash])
	if err != nil || visit < 1 || id[hash+1] == '+' || id[hash+1] == '0' {
		return "", 0, "", false
	}
	return id[:hash], visit, id[slash+1:], true
}

// expansionPrefix is the beginning of the ids of one expansion.
func expansionPrefix(node string, visit int) string { return node + "#" + strconv.Itoa(visit) + "/" }

// depthOf counts the nested expansions around a node.
func depthOf(id string) int { return strings.Count(id, "#") }

// expansionPart is what one round of a loop has in addition to the others.
type expansionPart struct {
	nodes, edges, children []int32
}

// origin says which node's expansion made a node, and at which visit.
type origin struct {
	node  int32 // -1 for a declared node
	visit int32
}

// origins reads the ids. It is nil if no expansion made a node.
func (c *checker) origins() []origin {
	if !c.expanded {
		return nil
	}
	var out []origin
	for i := range c.g.Nodes {
		id, visit, _, ok := expansionID(c.g.Nodes[i].ID)
		if !ok {
			continue
		}
		if out == nil {
			out = make([]origin, len(c.g.Nodes))
			for k := range out {
				out[k].node = -1
			}
		}
		if at, known := c.index[id]; known {
			out[i] = origin{at, int32(visit)}
		}
	}
	return out
}

// widenLoops adds to every loop the expansions of its nodes. A sink of an expansion that leads out of the
// loop is not found by following the BACK edges.
func widenLoops(bodies []loopBody, from []origin) {
	if from == nil {
		return
	}
	for k := range bodies {
		b := &bodies[k]
		if b.head < 0 {
			continue
		}
		in := make(map[int32]bool, len(b.nodes))
		for _, v := range b.nodes {
			in[v] = true
		}
		for v := range from {
			if in[int32(v)] {
				continue
			}
			at := from[v].node
			for steps := 0; at >= 0 && !in[at] && steps < len(from); steps++ {
				at = from[at].node
			}
			if at >= 0 && in[at] {
				in[int32(v)] = true
				b.nodes = append(b.nodes, int32(v))
			}
		}
		slices.Sort(b.nodes)
	}
}

// roundOf is the frame of region r to which the node, or a loop around it, is confined. 0 stands for all
// frames.
func (p *Program) roundOf(r, n int32) int32 {
	if p.origins == nil || r == 0 {
		return 0
	}
	for at, steps := n, 0; steps < len(p.origins); steps++ {
		o := p.origins[at]
		if o.node < 0 {
			return 0
		}
		if p.nodes[o.node].region == r {
			return o.visit
		}
		at = o.node
	}
	return 0
}

// confine gives nodes and edges that belong to single rounds of loops a place in those rounds only.
func (p *Program) confine() {
	if p.origins == nil {
		return
	}
	for i := range p.nodes {
		p.nodes[i].round = p.roundOf(p.nodes[i].region, int32(i))
	}
	// rounds holds for each edge the round to which it is confined in the region that delivers it, or 0.
	rounds := make([]int32, len(p.edges))
	for e := range p.edges {
		pe := &p.edges[e]
		rounds[e] = max(p.roundOf(pe.scope, pe.from), p.roundOf(pe.scope, pe.to))
		p.group(pe)
	}
	for k := range p.regions {
		r := &p.regions[k]
		if k == 0 || r.token {
			continue
		}
		r.nodes = r.take(r.nodes, func(n int32) int32 { return p.nodes[n].round }, func(g *expansionPart) *[]int32 { return &g.nodes })
		r.edges = r.take(r.edges, func(e int32) int32 { return rounds[e] }, func(g *expansionPart) *[]int32 { return &g.edges })
		r.children = r.take(r.children, func(c int32) int32 { return p.roundOf(int32(k), p.regions[c].member()) },
			func(g *expansionPart) *[]int32 { return &g.children })
		for i, c := range r.children {
			p.regions[c].slot = int32(i)
		}
		for _, g := range r.expanded {
			for i, c := range g.children {
				p.regions[c].slot = int32(len(r.children) + i)
			}
		}
	}
	expanded := map[int32]map[int32]bool{} // by node of a loop: the visits that have expanded
	for i, o := range p.origins {
		if o.node < 0 || p.nodes[i].round == 0 && p.roundOf(p.nodes[o.node].region, int32(i)) == 0 || p.nodes[o.node].round != 0 {
			continue
		}
		if expanded[o.node] == nil {
			expanded[o.node] = map[int32]bool{}
		}
		expanded[o.node][o.visit] = true
	}
	for i := range p.nodes {
		p.confineIn(int32(i), rounds, expanded)
	}
	for n, visits := range expanded {
		p.confineOut(&p.nodes[n], visits, rounds)
	}
}

// member is a node that identifies the region.
func (r *region) member() int32 {
	if r.head < 0 {
		return r.nodes[0]
	}
	return r.head
}

// take moves the members that are confined to one round out of a region's list.
func (r *region) take(list []int32, round func(int32) int32, to func(*expansionPart) *[]int32) []int32 {
	var kept []int32
	for i, v := range list {
		at := round(v)
		if at == 0 {
			if kept != nil {
				kept = append(kept, v)
			}
			continue
		}
		if kept == nil {
			kept = append(make([]int32, 0, len(list)), list[:i]...)
		}
		if r.expanded == nil {
			r.expanded = map[int32]*expansionPart{}
		}
		if r.expanded[at] == nil {
			r.expanded[at] = &expansionPart{}
		}
		l := to(r.expanded[at])
		*l = append(*l, v)
	}
	if kept == nil {
		return list
	}
	return kept
}

// confineIn computes the incoming edges of a node for the rounds that differ from the others.
func (p *Program) confineIn(n int32, rounds []int32, expanded map[int32]map[int32]bool) {
	pn := &p.nodes[n]
	all := pn.in
	var common []int32
	var special []int32
	for _, e := range all {
		if p.edges[e].variant > 0 {
			pn.grouped = true
		}
		if rounds[e] == 0 {
			common = append(common, e)
		} else if !slices.Contains(special, rounds[e]) {
			special = append(special, rounds[e])
		}
	}
	if pn.grouped {
		plain := slices.DeleteFunc(slices.Clone(common), func(e int32) bool { return p.edges[e].variant > 0 })
		pn.multi = p.multiKeys(plain)
	}
	if len(special) == 0 || len(common) == 0 { // a node of the expansion itself has only one list
		return
	}
	pn.in = common
	pn.multi = p.multiKeys(common)
	pn.roundIn, pn.roundMulti = map[int32][]int32{}, map[int32]map[string]bool{}
	for _, v := range special {
		var list []int32
		for _, e := range all {
			pe := &p.edges[e]
			replaced := pe.kind == DataEdge && expanded[pe.from][v] && p.nodes[pe.from].region == pe.scope
			if rounds[e] == v || rounds[e] == 0 && !replaced {
				list = append(list, e)
			}
		}
		pn.roundIn[v], pn.roundMulti[v] = list, p.multiKeys(list)
	}
}

// confineOut computes the outgoing edges of a node in a loop. Visits that have expanded lead into their
// expansion.
func (p *Program) confineOut(pn *pnode, visits map[int32]bool, rounds []int32) {
	all := pn.out
	pn.out = nil
	pn.roundOut = map[int32][]int32{}
	own := func(e int32) int32 { // the visit of the node whose expansion the edge enters
		pe := &p.edges[e]
		if o := p.origins[pe.to]; o.node == pe.from && pe.kind == DataEdge {
			return o.visit
		}
		return 0
	}
	for _, e := range all {
		if own(e) == 0 {
			pn.out = append(pn.out, e)
		}
	}
	for v := range visits {
		var list []int32
		for _, e := range all {
			if at := own(e); at == v || at == 0 && p.edges[e].kind != DataEdge {
				list = append(list, e)
			}
		}
		pn.roundOut[v] = list
	}

}

// group finds the edge that this edge, which leaves a loop from an expansion, replaces. Of both edges only
// the latest round's delivery counts.
func (p *Program) group(pe *pedge) {
	pe.instead = -1
	for at, steps := pe.from, 0; steps < len(p.origins); steps++ {
		o := p.origins[at]
		if o.node < 0 {
			return
		}
		on := &p.nodes[o.node]
		if on.region != 0 && p.roundOf(on.region, at) > 0 && on.round == 0 {
			if e, ok := p.edgeIndex[edgeKey{o.node, pe.to, DataEdge}]; ok && p.edges[e].scope == pe.scope && pe.scope != on.region {
				pe.instead, pe.variant = e, o.visit
			}
			return
		}
		at = o.node
	}
}

// inAt are the edges that a join waits for. round is that of the loop that delivers the edges.
func (n *pnode) inAt(round int32) []int32 {
	if n.roundIn != nil {
		if l, ok := n.roundIn[round]; ok {
			return l
		}
	}
	return n.in
}

// out are the edges that the end of a visit decides.
func (s *State) out(ns *nodeState) []int32 {
	n := &s.p.nodes[ns.n]
	if n.roundOut != nil {
		if l, ok := n.roundOut[ns.f.serial]; ok {
			return l
		}
	}
	return n.out
}

// multiAt are the keys that give a list at a join.
func (s *State) multiAt(n int32, edges []int32, f *frame) map[string]bool {
	pn := &s.p.nodes[n]
	if pn.roundMulti != nil {
		if m, ok := pn.roundMulti[f.serial]; ok {
			return m
		}
	}
	if !pn.grouped {
		return pn.multi
	}
	// Among an edge that leaves a loop and the edges that replace it, those of the delivering round count.
	stands := map[int32]int32{}
	for _, e := range edges {
		if pe := &s.p.edges[e]; pe.variant > 0 && f.edges[s.p.localEdge[e]].state == edgeUsed {
			stands[pe.instead] = pe.variant
		}
	}
	return s.p.multiKeys(slices.DeleteFunc(slices.Clone(edges), func(e int32) bool {
		pe := &s.p.edges[e]
		if pe.variant > 0 {
			return stands[pe.instead] != pe.variant
		}
		return stands[e] > 0
	}))
}

// newest keeps, among deliveries that replace each other, only those of the latest round live.
func (s *State) newest(tasks []edgeTask) {
	if s.p.origins == nil {
		return
	}
	round := func(t *edgeTask) (int32, int32) {
		if pe := &s.p.edges[t.e]; pe.variant > 0 {
			return pe.instead, pe.variant
		}
		if t.src == nil {
			return t.e, 0
		}
		return t.e, t.src.f.serial
	}
	last := map[int32]int32{}
	for i := range tasks {
		if tasks[i].live {
			e, v := round(&tasks[i])
			last[e] = max(last[e], v)
		}
	}
	for i := range tasks {
		if e, v := round(&tasks[i]); tasks[i].live && v < last[e] {
			tasks[i].live, tasks[i].propagated = false, nil
		}
	}
}
