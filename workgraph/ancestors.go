package workgraph

import (
	"encoding/json"
	"slices"
	"sync"
)

// This file computes which nodes lead to which. That defines nodes.ID: the latest visit of an ancestor
// that had completed when the visit began. Visits that end later, or that only run beside it, are not
// seen. So an expression gives the same value in the machine, in a call, in a second attempt and after
// a restart.

// Scope is what a call may read of its run: what the expressions of its node see. It is safe for
// concurrent use if access to the state is.
type Scope interface {
	// Var is the variable as JSON: input, context, state, args, named, node, visit, attempt, and item
	// in a map. state is the one at the time of asking.
	Var(name string) (json.RawMessage, bool)
	// Ancestor is what the node named id gave, as seen from the calling node. ok is false unless it is
	// an ancestor that has completed.
	Ancestor(id string) (NodeResult, bool)
	// Ancestors are the ids of all nodes that Ancestor finds, as they are in the graph.
	Ancestors() []string
	// Rounds are the results that the node named id gave in a loop that has ended before the calling
	// node: one for each round in which it completed, in their order. Where that loop stands within
	// another one, these are the rounds of the last time that it was entered in the same round of the
	// other one.
	Rounds(id string) []json.RawMessage
}

// NodeResult is what a visit of an ancestor gave.
type NodeResult struct {
	Ref
	Values []json.RawMessage
}

// Result is the one value, a list of several, or null.
func (r NodeResult) Result() json.RawMessage { return single(r.Values) }

// reach computes which nodes lead to which, over edges of all kinds. It belongs to one program and is
// safe for concurrent use.
type reach struct {
	once sync.Once
	// comp numbers the strongly connected components from the ends to the starts. edge lists the edges
	// into every node; those into node v are edge[first[v]:first[v+1]].
	comp        []int32
	first, edge []int32

	coverMu sync.Mutex
	cover   *cover

	mu sync.Mutex
	// sets are the nodes before a node, within one round of a region.
	sets map[[2]int32]bitset
}

// maxReachSets bounds how many nodes' sets are remembered.
const maxReachSets = 8

func (p *Program) reaches() *reach {
	r := p.reach
	r.once.Do(func() {
		n := len(p.nodes)
		arcs := make([]arc, len(p.edges))
		out := make([][]int32, n)
		r.first, r.edge = make([]int32, n+1), make([]int32, len(p.edges))
		for i := range p.edges {
			e := &p.edges[i]
			arcs[i] = arc{from: e.from, to: e.to}
			out[e.from] = append(out[e.from], int32(i))
			r.first[e.to+1]++
		}
		for v := range n {
			r.first[v+1] += r.first[v]
		}
		next := make([]int32, n)
		for i := range p.edges {
			to := p.edges[i].to
			r.edge[r.first[to]+next[to]] = int32(i)
			next[to]++
		}
		r.comp = components(n, arcs, out)
	})
	return r
}

// leadsTo reports whether a path of at least one edge leads from x to v.
func (p *Program) leadsTo(x, v int32) bool { return p.leadsWithin(x, v, 0) }

// leadsWithin is leadsTo within one round of the region's loop: it does not follow the BACK edges that
// begin another round.
func (p *Program) leadsWithin(x, v, region int32) bool {
	r := p.reaches()
	if r.comp[x] < r.comp[v] {
		return false
	}
	if _, direct := p.edgeIndex[edgeKey{x, v, DataEdge}]; direct && region == 0 {
		return true
	}
	// An expression that reads one node usually reads others, so all nodes before v are computed at
	// once.
	key := [2]int32{v, region}
	r.mu.Lock()
	set := r.sets[key]
	r.mu.Unlock()
	if set == nil {
		set = newBitset(len(p.nodes))
		p.before(v, region, func(w int32) bool {
			set.add(int(w))
			return true
		})
		r.mu.Lock()
		if r.sets == nil || len(r.sets) >= maxReachSets {
			r.sets = map[[2]int32]bitset{}
		}
		r.sets[key] = set
		r.mu.Unlock()
	}
	return set.has(int(x))
}

// before calls visit with every node that leads to v within one round of the region. visit reports
// whether to go on to the nodes before that one.
func (p *Program) before(v, region int32, visit func(w int32) bool) {
	r := p.reaches()
	head := int32(-1)
	if region > 0 {
		head = p.regions[region].head
	}
	seen := newBitset(len(p.nodes))
	todo := []int32{v}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range r.edge[r.first[w]:r.first[w+1]] {
			pe := &p.edges[e]
			if w == head && pe.kind == BackEdge || seen.has(int(pe.from)) || region > 0 && !p.within(pe.from, region) {
				continue
			}
			seen.add(int(pe.from))
			if visit(pe.from) {
				todo = append(todo, pe.from)
			}
		}
	}
}

// within reports whether the node lies in the region.
func (p *Program) within(n, region int32) bool {
	r := p.nodes[n].region
	for r >= 0 && p.regions[r].depth > p.regions[region].depth {
		r = p.regions[r].parent
	}
	return r == region
}

// ancestor is the visit of node x that ns sees, or nil. round reports whether x leads to ns within one
// round of a region; if it is nil, leadsWithin answers that.
func (s *State) ancestor(ns *nodeState, x int32, round func(x, region int32) bool) *nodeState {
	if round == nil {
		round = func(x, region int32) bool { return s.p.leadsWithin(x, ns.n, region) }
	}
	g := ns.f
	for !s.p.within(x, g.region) {
		g = g.parent
	}
	token := s.p.regions[s.p.nodes[x].region].token
	for i := s.visitCount(x) - 1; i >= 0; i-- {
		c := s.visitAt(x, i)
		if c == ns || c.status != VisitCompleted || ns.enteredAt > 0 && c.endedAt > ns.enteredAt {
			continue
		}
		h := c.f
		for h.region != g.region {
			h = h.parent
		}
		switch {
		case token && g.region == s.p.nodes[x].region:
			return c // visits of such loops have no other order
		case h.serial > g.serial, h.serial == g.serial && !round(x, g.region):
		default:
			return c
		}
	}
	return nil
}

// roundsOf are the results of node x in the loop that ns comes behind, in the order of its rounds.
func (s *State) roundsOf(ns *nodeState, x int32) []json.RawMessage {
	g := ns.f
	for !s.p.within(x, g.region) {
		g = g.parent
	}
	var out []json.RawMessage
	for i := s.visitCount(x) - 1; i >= 0; i-- {
		c := s.visitAt(x, i)
		h := c.f
		for h.region != g.region {
			h = h.parent
		}
		if h.serial < g.serial {
			break // an earlier round of the loop around both
		}
		if h == g && c != ns && c.status == VisitCompleted && (ns.enteredAt == 0 || c.endedAt <= ns.enteredAt) {
			out = append(out, single(c.values))
		}
	}
	slices.Reverse(out)
	return out
}

// ancestors are all nodes that ns sees.
func (s *State) ancestors(ns *nodeState) []int32 {
	rounds := map[int32][]bool{}
	round := func(x, region int32) bool {
		set, ok := rounds[region]
		if !ok {
			set = make([]bool, len(s.p.nodes))
			s.p.before(ns.n, region, func(w int32) bool {
				set[w] = true
				return true
			})
			rounds[region] = set
		}
		return set[x]
	}
	var out []int32
	for x, latest := range s.latest {
		if latest != nil && s.ancestor(ns, int32(x), round) != nil {
			out = append(out, int32(x))
		}
	}
	return out
}

// ScopeOf is the Scope of a call of a visit, or of an item of one. Every read goes to the state, so the
// caller's lock must be held then.
func (s *State) ScopeOf(ref Ref) Scope { return visitScope{s, ref} }

type visitScope struct {
	s   *State
	ref Ref
}

func (v visitScope) unit() (unit, bool) {
	if v.s.root == nil {
		return unit{}, false
	}
	return v.s.find(v.ref)
}

func (v visitScope) Var(name string) (json.RawMessage, bool) {
	if name != "item" {
		return v.s.Var(name)
	}
	u, ok := v.unit()
	if !ok || u.item == 0 {
		return nil, false
	}
	return u.ns.m.list[u.item-1], true
}

func (v visitScope) Ancestor(id string) (NodeResult, bool) {
	u, ok := v.unit()
	if !ok {
		return NodeResult{}, false
	}
	x, ok := v.s.p.resolve(v.ref.Node, id)
	if !ok {
		return NodeResult{}, false
	}
	c := v.s.ancestor(u.ns, x, nil)
	if c == nil {
		return NodeResult{}, false
	}
	return v.s.resultOf(c), true
}

func (v visitScope) Ancestors() []string {
	u, ok := v.unit()
	if !ok {
		return nil
	}
	return v.s.ids(v.s.ancestors(u.ns))
}

func (v visitScope) Rounds(id string) []json.RawMessage {
	u, ok := v.unit()
	if !ok {
		return nil
	}
	x, ok := v.s.p.resolve(v.ref.Node, id)
	if !ok {
		return nil
	}
	return v.s.roundsOf(u.ns, x)
}

func (s *State) resultOf(ns *nodeState) NodeResult {
	return NodeResult{Ref: s.ref(ns, 0), Values: ns.values}
}

func (s *State) ids(nodes []int32) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = s.p.nodes[n].ID
	}
	return out
}
