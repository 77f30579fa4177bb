package workgraph

import "slices"

// remap moves the state to the program of another graph. Nodes and edges are the same if their ids are, and
// loops if their heads are. State of parts that the new graph does not have is dropped; new parts begin as
// pending. Pointers to visits become invalid, pointers to frames stay valid. Nothing is decided.
func (s *State) remap(q *Program) {
	m := &move{s: s, p: s.p, q: q}
	s.forgetApprovals()
	m.nodes, m.edges, m.regions = q.match(s.p)
	frames := []*frame{s.root}
	for _, fs := range s.frames {
		frames = append(frames, fs...)
	}
	for _, list := range s.tokens {
		for _, ns := range list {
			frames = append(frames, ns.f)
		}
	}
	olds := make([]oldFrame, len(frames))
	for i, f := range frames {
		olds[i] = oldFrame{f, f.region, f.nodes, f.edges, f.insts}
		m.layOut(f)
	}
	for i := range olds {
		m.fill(&olds[i])
	}
	for _, f := range frames {
		if f.parent != nil {
			f.inst = &f.parent.insts[q.regions[f.region].slot]
		}
		f.tokenSrc = m.visit(f.tokenSrc)
		if f.tokenEdge >= 0 {
			f.tokenEdge = m.edges[f.tokenEdge]
		}
	}
	m.rest()
	s.p = q
	for _, f := range frames {
		s.recount(f)
	}
}

// match finds the number of each node, edge and region of an older program in this one, or -1.
func (p *Program) match(old *Program) (nodes, edges, regions []int32) {
	nodes, edges, regions = make([]int32, len(old.nodes)), make([]int32, len(old.edges)), make([]int32, len(old.regions))
	for i := range old.nodes {
		nodes[i] = -1
		if n, ok := p.index[old.nodes[i].ID]; ok {
			nodes[i] = n
		}
	}
	for i := range old.edges {
		edges[i] = -1
		e := &old.edges[i]
		if n, ok := p.edgeIndex[edgeKey{nodes[e.from], nodes[e.to], e.kind}]; ok {
			edges[i] = n
		}
	}
	heads := make(map[int32]int32, len(p.regions))
	for i := range p.regions {
		if r := &p.regions[i]; i > 0 && !r.token {
			heads[r.head] = int32(i)
		}
	}
	for i := range old.regions {
		r := &old.regions[i]
		regions[i] = -1
		switch {
		case i == 0:
			regions[i] = 0
		case r.token:
			if n := nodes[r.nodes[0]]; n >= 0 {
				if k := p.nodes[n].region; p.regions[k].token && p.regions[k].inbox == r.inbox {
					regions[i] = k
				}
			}
		default:
			if k, ok := heads[nodes[r.head]]; ok {
				regions[i] = k
			}
		}
	}
	return nodes, edges, regions
}

// move is one remap under way.
type move struct {
	s                     *State
	p, q                  *Program
	nodes, edges, regions []int32
}

type oldFrame struct {
	f      *frame
	region int32
	nodes  []nodeState
	edges  []edgeState
	insts  []instance
}

// visit is the new place of a visit. The frames must have been laid out.
func (m *move) visit(ns *nodeState) *nodeState {
	if ns == nil || m.nodes[ns.n] < 0 {
		return nil
	}
	if m.q.regions[ns.f.region].token {
		return &ns.f.nodes[0]
	}
	if m.q.nodes[m.nodes[ns.n]].region != ns.f.region {
		return nil // now in a loop that has not begun, or no longer in one
	}
	return &ns.f.nodes[m.q.localNode[m.nodes[ns.n]]]
}

func (m *move) layOut(f *frame) {
	r := &m.q.regions[m.regions[f.region]]
	f.region = m.regions[f.region]
	if r.token {
		n := m.nodes[f.nodes[0].n]
		f.nodes = []nodeState{{f: f, n: n, try: try{status: VisitPending, pos: -1}}}
		f.edges = make([]edgeState, 1)
		return
	}
	m.q.layOut(f, r)
}

// fill moves the contents of a frame to their new places.
func (m *move) fill(o *oldFrame) {
	for i := range o.nodes {
		old := &o.nodes[i]
		ns := m.visit(old)
		if ns == nil {
			continue
		}
		n := ns.n
		*ns = *old
		ns.n = n
	}
	if m.p.regions[o.region].token {
		o.f.edges[0] = edgeState{src: m.visit(o.edges[0].src), propagated: o.edges[0].propagated}
		return
	}
	r := &m.p.regions[o.region]
	m.p.eachIn(r, o.f.serial, func(g *expansionPart) {
		for _, e := range g.edges {
			to := m.edges[e]
			if to < 0 || m.q.edges[to].scope != o.f.region {
				continue
			}
			es := o.edges[m.p.localEdge[e]]
			es.src = m.visit(es.src)
			o.f.edges[m.q.localEdge[to]] = es
		}
		for _, c := range g.children {
			// A loop that has another parent now, since a loop was put around it, has not begun.
			if k := m.regions[c]; k >= 0 && m.q.regions[k].parent == o.f.region {
				m.instance(&o.f.insts[m.q.regions[k].slot], &o.insts[m.p.regions[c].slot], c, k)
			}
		}
	})
}

// eachIn calls do with the parts that every frame of a region has, and with those that only this frame has.
func (p *Program) eachIn(r *region, serial int32, do func(*expansionPart)) {
	do(&expansionPart{r.nodes, r.edges, r.children})
	if g := r.expanded[serial]; g != nil {
		do(g)
	}
}

func (m *move) instance(to, from *instance, old, now int32) {
	exits := to.exits
	*to = *from
	to.exits = exits
	for i, e := range m.p.regions[old].exits {
		if m.edges[e] < 0 {
			continue
		}
		if k, ok := slices.BinarySearch(m.q.regions[now].exits, m.edges[e]); ok {
			x := from.exits[i]
			exits[k] = exitState{src: m.visit(x.src), propagated: x.propagated, live: x.live}
		}
	}
}

// rest moves everything that is not in frames.
func (m *move) rest() {
	s := m.s
	latest := make([]*nodeState, len(m.q.nodes))
	for i, ns := range s.latest {
		if n := m.nodes[i]; n >= 0 {
			latest[n] = m.visit(ns)
		}
	}
	s.latest = latest
	if s.frames != nil {
		frames := make(map[int32][]*frame, len(s.frames))
		for r, fs := range s.frames {
			if k := m.regions[r]; k >= 0 {
				frames[k] = fs
			}
		}
		s.frames = frames
	}
	if s.tokens != nil {
		tokens := make(map[int32][]*nodeState, len(s.tokens))
		for n, list := range s.tokens {
			for i, ns := range list {
				list[i] = m.visit(ns)
			}
			tokens[m.nodes[n]] = list
		}
		s.tokens = tokens
	}
	if s.granted != nil {
		granted := make(map[int32]int, len(s.granted))
		for n, k := range s.granted {
			if m.nodes[n] >= 0 {
				granted[m.nodes[n]] = k
			}
		}
		s.granted = granted
	}
	if s.inboxes != nil {
		inboxes := make(map[int32]*inboxState, len(s.inboxes))
		for n, b := range s.inboxes {
			if to := m.nodes[n]; to >= 0 && m.q.nodes[to].inbox != nil {
				inboxes[to] = b
			}
		}
		s.inboxes = inboxes
	}
	for i := range s.limited {
		l := &s.limited[i]
		l.region, l.node, l.src = m.regions[l.region], m.nodes[l.node], m.visit(l.src)
		if l.edge >= 0 && l.src != nil {
			l.edge = m.edges[l.edge]
		}
	}
	for i, ns := range s.terminated {
		s.terminated[i] = m.visit(ns)
	}
	for i := range s.flights {
		s.flights[i].ns = m.visit(s.flights[i].ns)
	}
	s.held = m.units(s.held)
	m.waits()
	for i := range s.instQ {
		s.instQ[i].region = m.regions[s.instQ[i].region]
	}
	for i := range s.expandQ {
		s.expandQ[i].ns = m.visit(s.expandQ[i].ns)
	}
	timers := s.timers[:0]
	for _, t := range s.timers {
		if !t.valid() { // valid reads the old places, which are unchanged
			continue
		}
		if t.ns = m.visit(t.ns); t.ns != nil {
			timers.push(t)
		}
	}
	clear(s.timers[len(timers):])
	s.timers = timers
}

// waits moves the open waits and their indexes.
func (m *move) waits() {
	s := m.s
	for i := range s.waits {
		s.waits[i].ns = m.visit(s.waits[i].ns)
	}
	for id, u := range s.asks {
		u.ns = m.visit(u.ns)
		s.asks[id] = u
	}
	for name, ls := range s.listeners {
		ls = slices.DeleteFunc(ls, func(l listener) bool { return !l.valid() || m.visit(l.ns) == nil })
		for i := range ls {
			ls[i].ns = m.visit(ls[i].ns)
		}
		if s.listeners[name] = ls; len(ls) == 0 {
			delete(s.listeners, name)
		}
	}
}

func (m *move) units(us []unit) []unit {
	var out []unit
	for _, u := range us {
		if u.try().status != VisitHeld {
			continue
		}
		if u.ns = m.visit(u.ns); u.ns != nil {
			out = append(out, u)
		}
	}
	return out
}

// recount computes the counters of a frame from its contents.
func (s *State) recount(f *frame) {
	p := s.p
	if p.regions[f.region].token {
		return
	}
	f.open = 0
	for i := range f.nodes {
		ns := &f.nodes[i]
		if !ns.resolved() {
			f.open++
		}
		ns.moot = 0
		for _, e := range s.out(ns) {
			if p.edges[e].scope == f.region && f.edges[p.localEdge[e]].moot {
				ns.moot++
			}
		}
		if ns.status == VisitPending && p.regions[f.region].head != ns.n {
			ns.join = s.countJoin(p.nodes[ns.n].inAt(f.serial), f)
		}
	}
	p.eachIn(&p.regions[f.region], f.serial, func(g *expansionPart) {
		for _, c := range g.children {
			inst := &f.insts[p.regions[c].slot]
			if !inst.closed {
				f.open++
			}
			if head := p.regions[c].head; head >= 0 && !inst.opened {
				inst.join = s.countJoin(p.nodes[head].inAt(f.serial), f)
			}
		}
	})
}

// countJoin counts the edges that have been decided so far.
func (s *State) countJoin(edges []int32, f *frame) joinCount {
	var j joinCount
	for _, e := range edges {
		es := &f.edges[s.p.localEdge[e]]
		if es.state == edgeOpen {
			continue
		}
		j.seen++
		if es.state != edgeDead {
			j.live++
		}
		j.ran = j.ran || es.src != nil && es.src.status != VisitSkipped && es.src.status != VisitCanceled
	}
	return j
}
