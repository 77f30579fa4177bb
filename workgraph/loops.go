package workgraph

import (
	"context"
	"slices"
	"sort"
)

// shape is the control structure of a graph: which nodes belong to which loop. It is computed from indexes
// alone.
type shape struct {
	regions []region // regions[0] is the whole graph
	nodeOf  []int32  // innermost region of each node
	topo    []int32  // nodes in an order that respects every edge except BACK ones
}

// region is the whole graph, or the body of one declared loop whose only entry is head.
type region struct {
	head   int32 // -1 for the whole graph and for token regions
	parent int32 // -1 for the whole graph
	slot   int32 // place among the parent's children
	depth  int32
	// token marks an irreducible cycle of ANY joins, in which every live delivery makes a visit of its own.
	token    bool
	inbox    bool    // a token region of one node with an inbox
	nodes    []int32 // direct members, in declared order
	children []int32
	edges    []int32 // edges delivered within the region, in declared order
	backs    []int32 // the BACK edges to head among them
	exits    []int32 // edges from inside, at any depth, to the outside, in declared order
	// expanded is what single rounds have in addition.
	expanded map[int32]*expansionPart
	in       int32 // for a token region: edges from outside plus start nodes inside
}

// arc is an edge by indexes.
type arc struct {
	from, to int32
	back     bool
	message  bool // carries messages and orders nothing
}

// loopFault is a structural fault found while looking for loops.
type loopFault struct {
	code  string
	edge  int32 // -1 if the fault is about nodes
	nodes []int32
}

// findShape finds the loops. anyJoin says which nodes have an ANY join; inboxes are the nodes that messages
// activate. from says which nodes expansions have made, or is nil. The shape is nil if ctx has ended or there
// are faults.
func findShape(ctx context.Context, n int, arcs []arc, anyJoin []bool, inboxes []int32, from []origin) (*shape, []loopFault) {
	out, in := make([][]int32, n), make([][]int32, n)
	forwardIn := make([]int32, n)
	for i, a := range arcs {
		if a.message {
			continue
		}
		out[a.from] = append(out[a.from], int32(i))
		in[a.to] = append(in[a.to], int32(i))
		if !a.back {
			forwardIn[a.to]++
		}
	}
	topo := topoOrder(n, arcs, out, forwardIn)
	if len(topo) < n {
		return nil, []loopFault{{code: CodeCycle, edge: -1, nodes: findCycle(n, arcs, out, topo)}}
	}
	s := &shape{nodeOf: make([]int32, n), topo: topo}
	bodies, faults := loopBodies(ctx, n, arcs, out, in, forwardIn)
	if ctx.Err() != nil {
		return nil, nil
	}
	var scc []int32
	var tokens map[int32]tokenLoop
	var regions []loopBody
	for _, b := range bodies {
		if !b.irreducible {
			regions = append(regions, b)
			continue
		}
		if scc == nil {
			scc = components(n, arcs, out)
			tokens = tokenLoops(scc, in, anyJoin)
		}
		whole := tokens[scc[b.head]]
		if !whole.ok {
			faults = append(faults, loopFault{code: CodeIrreducible, edge: b.edge, nodes: whole.nodes})
			continue
		}
		regions = append(regions, loopBody{head: -1, nodes: whole.nodes})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	for _, v := range inboxes {
		regions = append(regions, loopBody{head: -1, edge: -1, nodes: []int32{v}, inbox: true})
	}
	regions = dropCovered(regions)
	widenLoops(regions, from)
	s.nest(n, regions)
	for _, r := range s.regions {
		if r.depth > maxLoopDepth {
			return nil, []loopFault{{code: CodeTooLarge, edge: s.anyBack(arcs, r.head)}}
		}
	}
	s.placeEdges(arcs, forwardIn)
	return s, nil
}

// A graph may come from a model, so the work for its loops is bounded: the sizes of all loops together, and
// how deep loops are nested.
const (
	maxLoopWork  = 20_000_000
	maxLoopDepth = 64
)

// anyBack finds a BACK edge to head.
func (s *shape) anyBack(arcs []arc, head int32) int32 {
	return int32(slices.IndexFunc(arcs, func(a arc) bool { return a.back && a.to == head }))
}

// topoOrder orders the nodes by all edges except BACK ones, and by declared index within a level.
func topoOrder(n int, arcs []arc, out [][]int32, forwardIn []int32) []int32 {
	left := slices.Clone(forwardIn)
	order := make([]int32, 0, n)
	for i := range n {
		if left[i] == 0 {
			order = append(order, int32(i))
		}
	}
	for k := 0; k < len(order); k++ {
		for _, e := range out[order[k]] {
			if a := arcs[e]; !a.back {
				if left[a.to]--; left[a.to] == 0 {
					order = append(order, a.to)
				}
			}
		}
	}
	return order
}

// findCycle lists the nodes of one undeclared cycle in its order.
func findCycle(n int, arcs []arc, out [][]int32, topo []int32) []int32 {
	done := make([]bool, n)
	for _, v := range topo {
		done[v] = true
	}
	// Every remaining node has a remaining predecessor, so a walk backward must meet itself.
	pred := make([]int32, n)
	for i := range pred {
		pred[i] = -1
	}
	for v := range n {
		if done[v] {
			continue
		}
		for _, e := range out[v] {
			if a := arcs[e]; !a.back && !done[a.to] && pred[a.to] < 0 {
				pred[a.to] = int32(v)
			}
		}
	}
	at := int32(slices.Index(done, false))
	seen := map[int32]int{}
	var path []int32
	for {
		if k, ok := seen[at]; ok {
			path = path[k:]
			slices.Reverse(path)
			first := slices.Index(path, slices.Min(path))
			return slices.Concat(path[first:], path[:first])
		}
		seen[at] = len(path)
		path = append(path, at)
		at = pred[at]
	}
}

type loopBody struct {
	head        int32 // -1 for a token region
	edge        int32
	nodes       []int32
	irreducible bool
	inbox       bool
}

// loopBodies finds the loop of every head of BACK edges: the nodes that lead back to it.
func loopBodies(ctx context.Context, n int, arcs []arc, out, in [][]int32, forwardIn []int32) ([]loopBody, []loopFault) {
	var heads []int32
	backs := map[int32][]int32{}
	for e := range arcs {
		if head := arcs[e].to; arcs[e].back {
			if backs[head] == nil {
				heads = append(heads, head)
			}
			backs[head] = append(backs[head], int32(e))
		}
	}
	var bodies []loopBody
	var faults []loopFault
	w := loopWalk{arcs: arcs, out: out, in: in, forwardIn: forwardIn, mark: make([]int32, n), left: maxLoopWork}
	for _, head := range heads {
		if ctx.Err() != nil {
			return nil, nil
		}
		body, multi := w.body(head, backs[head])
		reached := w.reached(head, body)
		if w.left < 0 {
			return nil, []loopFault{{code: CodeTooLarge, edge: backs[head][0]}}
		}
		lost := false
		for _, e := range backs[head] {
			if w.mark[arcs[e].from] != reached {
				faults = append(faults, loopFault{code: CodeNotALoop, edge: e})
				lost = true
			}
		}
		if !lost {
			bodies = append(bodies, loopBody{head: head, edge: backs[head][0], nodes: body, irreducible: multi})
		}
	}
	return bodies, faults
}

// loopWalk walks over the graph once for each loop head and direction, and counts its work.
type loopWalk struct {
	arcs      []arc
	out, in   [][]int32
	forwardIn []int32
	// mark holds the stamp of the last walk that visited a node. stamp is that of the current walk.
	mark  []int32
	stamp int32
	left  int
}

// body are the nodes that lead to the head over its BACK edges, in declared order. multi says that the loop
// can be entered at another node than its head.
func (w *loopWalk) body(head int32, backs []int32) (body []int32, multi bool) {
	w.stamp++
	w.mark[head] = w.stamp
	body = []int32{head}
	for _, e := range backs {
		body = w.add(body, w.arcs[e].from)
	}
	for k := 1; k < len(body) && w.left >= 0; k++ {
		v := body[k]
		multi = multi || w.forwardIn[v] == 0
		w.left -= 1 + len(w.in[v])
		for _, e := range w.in[v] {
			body = w.add(body, w.arcs[e].from)
		}
	}
	slices.Sort(body)
	return body, multi
}

func (w *loopWalk) add(list []int32, v int32) []int32 {
	if w.mark[v] == w.stamp {
		return list
	}
	w.mark[v] = w.stamp
	return append(list, v)
}

// reached marks the nodes of the body to which the head leads without leaving it, and returns the mark.
func (w *loopWalk) reached(head int32, body []int32) int32 {
	within := w.stamp
	w.stamp++
	w.mark[head] = w.stamp
	todo := []int32{head}
	for len(todo) > 0 && w.left >= 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		w.left -= 1 + len(w.out[v])
		for _, e := range w.out[v] {
			if to := w.arcs[e].to; w.mark[to] == within {
				w.mark[to] = w.stamp
				todo = append(todo, to)
			}
		}
	}
	return w.stamp
}

// components numbers the strongly connected components (Tarjan, without recursion).
func components(n int, arcs []arc, out [][]int32) []int32 {
	comp, index, low := make([]int32, n), make([]int32, n), make([]int32, n)
	for i := range comp {
		comp[i] = -1
	}
	type call struct {
		v int32
		i int
	}
	var stack []int32
	var next, count int32
	for root := range n {
		if index[root] != 0 {
			continue
		}
		calls := []call{{v: int32(root)}}
		for len(calls) > 0 {
			c := &calls[len(calls)-1]
			if c.i == 0 {
				next++
				index[c.v], low[c.v] = next, next
				stack = append(stack, c.v)
			}
			if c.i < len(out[c.v]) {
				w := arcs[out[c.v][c.i]].to
				c.i++
				if index[w] == 0 {
					calls = append(calls, call{v: w})
				} else if comp[w] < 0 {
					low[c.v] = min(low[c.v], index[w])
				}
				continue
			}
			v := c.v
			calls = calls[:len(calls)-1]
			if len(calls) > 0 {
				p := calls[len(calls)-1].v
				low[p] = min(low[p], low[v])
			}
			if low[v] == index[v] {
				for {
					w := stack[len(stack)-1]
					stack = stack[:len(stack)-1]
					comp[w] = count
					if w == v {
						break
					}
				}
				count++
			}
		}
	}
	return comp
}

// tokenLoop is the whole component of an irreducible cycle. ok says that every join in it is ANY.
type tokenLoop struct {
	nodes []int32
	ok    bool
}

// tokenLoops are the components by number.
func tokenLoops(scc []int32, in [][]int32, anyJoin []bool) map[int32]tokenLoop {
	out := map[int32]tokenLoop{}
	for v, c := range scc {
		t, known := out[c]
		t.nodes = append(t.nodes, int32(v))
		t.ok = (t.ok || !known) && (len(in[v]) < 2 || anyJoin[v])
		out[c] = t
	}
	return out
}

// dropCovered removes loops within a token region, and duplicates of one token region.
func dropCovered(bodies []loopBody) []loopBody {
	covered := map[int32]bool{}
	var kept []loopBody
	for _, b := range bodies {
		if b.head < 0 && !covered[b.nodes[0]] {
			for _, v := range b.nodes {
				covered[v] = true
			}
			kept = append(kept, b)
		}
	}
	for _, b := range bodies {
		if b.head >= 0 && !covered[b.head] {
			kept = append(kept, b)
		}
	}
	return kept
}

// nest orders the loops by size, so that the smallest one that holds a node is the innermost.
func (s *shape) nest(n int, bodies []loopBody) {
	sort.SliceStable(bodies, func(i, j int) bool { return len(bodies[i].nodes) > len(bodies[j].nodes) })
	s.regions = make([]region, 1+len(bodies))
	s.regions[0] = region{head: -1, parent: -1}
	for k, b := range bodies {
		r := &s.regions[k+1]
		r.head, r.token, r.inbox = b.head, b.head < 0, b.inbox
		r.parent = s.nodeOf[b.nodes[0]] // larger regions were assigned before, and regions nest
		r.depth = s.regions[r.parent].depth + 1
		r.slot = int32(len(s.regions[r.parent].children))
		s.regions[r.parent].children = append(s.regions[r.parent].children, int32(k+1))
		for _, v := range b.nodes {
			s.nodeOf[v] = int32(k + 1)
		}
	}
	for v := range n {
		r := &s.regions[s.nodeOf[v]]
		r.nodes = append(r.nodes, int32(v))
	}
}

// placeEdges finds for every edge the region that delivers it and the loops that it leaves.
func (s *shape) placeEdges(arcs []arc, forwardIn []int32) {
	for e, a := range arcs {
		if a.message {
			continue
		}
		scope := s.scope(a)
		r := &s.regions[scope]
		r.edges = append(r.edges, int32(e))
		if a.back && !r.token {
			r.backs = append(r.backs, int32(e))
		}
		for at := s.nodeOf[a.from]; at != scope && at >= 0; at = s.regions[at].parent {
			s.regions[at].exits = append(s.regions[at].exits, int32(e))
		}
		if to := s.nodeOf[a.to]; s.regions[to].token && s.nodeOf[a.from] != to {
			s.regions[to].in++
		}
	}
	for v, d := range forwardIn {
		if r := &s.regions[s.nodeOf[v]]; r.token && d == 0 {
			r.in++
		}
	}
}

// scope is the region whose frames hold the edge: that of the target, or its parent if the edge enters the
// target's loop.
func (s *shape) scope(a arc) int32 {
	to := s.nodeOf[a.to]
	if a.back && s.regions[to].head == a.to {
		return to
	}
	if entered := s.regions[to]; (entered.token || entered.head == a.to) && !s.within(s.nodeOf[a.from], to) {
		return entered.parent
	}
	return to
}

// within reports whether region r is anc or lies in it.
func (s *shape) within(r, anc int32) bool {
	for r >= 0 && s.regions[r].depth > s.regions[anc].depth {
		r = s.regions[r].parent
	}
	return r == anc
}
