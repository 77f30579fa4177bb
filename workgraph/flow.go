package workgraph

import (
	"encoding/json"
)

type verdict uint8

const (
	verdictWait verdict = iota
	verdictRun
	verdictSkip
	verdictFail
)

// joinVerdict says what the inputs of a join mean so far. serial is that of the frame that holds them.
func (n *pnode) joinVerdict(j *joinCount, serial int32) verdict {
	total := int32(len(n.inAt(serial)))
	switch {
	case n.quorum == 0:
		if j.seen < total {
			return verdictWait
		}
		if j.live > 0 {
			return verdictRun
		}
		return verdictSkip
	case j.live >= n.quorum:
		return verdictRun
	case n.Join.Mode == Quorum && j.ran && j.live+total-j.seen < n.quorum:
		return verdictFail
	case j.seen < total:
		return verdictWait
	case j.live > 0:
		return verdictFail
	}
	return verdictSkip // nothing before it ran: the branch was not taken
}

// follow records the decision of one edge and wakes the visits that waited for it.
func (s *State) follow(t *edgeTask) {
	pe := &s.p.edges[t.e]
	st := Step{Op: OpEdge, Node: s.p.nodes[pe.from].ID, Visit: int(t.src.f.serial), To: s.p.nodes[pe.to].ID, Live: t.live, Note: t.note}
	if pe.kind != DataEdge {
		st.Kind = pe.kind
	}
	if t.propagated != nil {
		st.Detail = &Detail{Propagated: t.propagated}
	}
	s.record(st)
	task := *t // the queue may move while this edge is followed
	if f := s.applyEdge(&task); f != nil {
		s.arrived(f, &task)
	} else if r := s.p.nodes[pe.to].region; pe.message && t.live {
		s.instQ = append(s.instQ, instTask{r, s.root})
	}
}

// arrived decides what an edge that was delivered in f means for its target.
func (s *State) arrived(f *frame, t *edgeTask) {
	pe := &s.p.edges[t.e]
	r := s.p.nodes[pe.to].region
	switch {
	case s.p.regions[r].token:
		if t.live {
			s.tokenVisit(r, pe.to, t.e, t.src, t.propagated)
		}
		s.instQ = append(s.instQ, instTask{r, s.root})
	case pe.kind == BackEdge:
		if int(f.backSeen) == len(s.p.regions[r].backs) && f.backLive > 0 {
			s.openLoop(r, f.parent, f, verdictRun)
		}
	case r == f.region:
		ns := &f.nodes[s.p.localNode[pe.to]]
		if ns.status == VisitPending {
			s.decide(ns, s.p.nodes[pe.to].joinVerdict(&ns.join, f.serial))
		}
	default:
		inst := &f.insts[s.p.regions[r].slot]
		if v := s.p.nodes[pe.to].joinVerdict(&inst.join, f.serial); v != verdictWait && !inst.opened && inst.limited == 0 {
			s.openLoop(r, f, nil, v)
		}
	}
}

func (s *State) decide(ns *nodeState, v verdict) {
	switch v {
	case verdictRun:
		s.enter(ns)
	case verdictSkip:
		s.skip(ns, ReasonNoLiveInput)
	case verdictFail:
		n := s.node(ns)
		edges, f := s.sources(ns)
		s.losers(ns, edges, f)
		s.failVisit(ns, Errorf(Permanent, ReasonQuorumUnreachable, "a quorum of %d out of %d inputs can no longer be met", n.Join.N, len(edges)), false)
	}
}

func (s *State) skip(ns *nodeState, note string) {
	st := s.step(OpSkip, ns, nil)
	st.Note = note
	s.record(st)
	s.applySkip(ns, note)
	s.deadEdges(ns, "SKIPPED")
	s.afterVisit(ns)
}

// enter lets a visit run whose join is met, unless its own condition is false.
func (s *State) enter(ns *nodeState) {
	n := s.node(ns)
	edges, f := s.sources(ns)
	var refs []InputRef
	if len(edges) > 1 {
		refs = s.liveInputs(edges, f)
	}
	s.markInputs(ns, refs)
	if err := s.tooMuch(edges, f); err != nil {
		s.unmarkInputs(ns)
		if n.quorum > 0 {
			s.losers(ns, edges, f)
		}
		s.failVisit(ns, err, false)
		return
	}
	args, named := s.propagate(ns)
	if s.enteredVoid(ns, named) {
		s.unmarkInputs(ns)
		return
	}
	if n.quorum > 0 {
		s.losers(ns, edges, f)
	}
	var sc *scope
	if n.when != nil || n.over != nil || n.key != nil {
		sc = &scope{s: s, ns: ns, args: args, named: named}
	}
	if n.when != nil {
		ok, note, err := s.cond(n.when, sc)
		if err != nil {
			s.unmarkInputs(ns)
			s.failVisit(ns, Errorf(Permanent, ReasonConditionFailed, "condition %q: %v", n.when.src, err), false)
			return
		}
		if !ok {
			s.unmarkInputs(ns)
			s.skip(ns, note)
			return
		}
	}
	if s.reuse != nil {
		if o := s.reuse[s.ref(ns, 0)]; o != nil {
			s.reuseVisit(ns, refs, args, named, o)
			return
		}
	}
	key, items, ferr := s.evalEntry(n, sc)
	if ferr != nil {
		s.unmarkInputs(ns)
		s.failVisit(ns, ferr, false)
		return
	}
	if _, err := s.bound(ns); err != nil {
		s.unmarkInputs(ns)
		s.failVisit(ns, err, false)
		return
	}
	var d *Detail
	if refs != nil || n.Map != nil || key != "" {
		d = &Detail{Inputs: refs, Mapped: n.Map != nil, Items: items, Key: key}
	}
	s.record(s.step(OpEnter, ns, d))
	s.applyEnter(ns, args, named, n.Map != nil, items, key)
	if n.Map != nil {
		s.mapProgress(ns)
	}
}

// liveInputs names the live edges of a join. A single incoming edge needs no naming.
func (s *State) liveInputs(edges []int32, f *frame) []InputRef {
	refs := make([]InputRef, 0, len(edges))
	for _, e := range edges {
		es := &f.edges[s.p.localEdge[e]]
		if es.state != edgeLive && es.state != edgeUsed {
			continue
		}
		r := InputRef{Node: s.node(es.src).ID, Visit: int(es.src.f.serial)}
		if k := s.p.edges[e].kind; k != DataEdge {
			r.Kind = k
		}
		refs = append(refs, r)
	}
	return refs
}

// evalEntry evaluates the concurrency key and the list of a map.
func (s *State) evalEntry(n *pnode, sc *scope) (key string, items []json.RawMessage, ferr *Error) {
	if n.key != nil {
		v, err := s.eval(n.key, sc)
		if err != nil {
			return "", nil, Errorf(Permanent, ReasonKeyFailed, "concurrency_key: %v", err)
		}
		if text, ok := v.Value().(string); ok {
			key = text
		} else {
			return "", nil, Errorf(Permanent, ReasonKeyFailed, "concurrency_key gives %s, not a string", v.Type().TypeName())
		}
	}
	if n.over == nil {
		return key, nil, nil
	}
	v, err := s.eval(n.over, sc)
	if err != nil {
		return "", nil, Errorf(Permanent, ReasonMapFailed, "map.over: %v", err)
	}
	raw, err := celJSON(v)
	if err != nil {
		return "", nil, Errorf(Permanent, ReasonMapFailed, "map.over: %v", err)
	}
	items, ok := splitList(raw)
	if !ok {
		return "", nil, Errorf(Permanent, ReasonMapFailed, "map.over gives %s, not a list", v.Type().TypeName())
	}
	return key, items, nil
}

// losers stops work that only this decided ANY or QUORUM join would have used.
func (s *State) losers(ns *nodeState, edges []int32, f *frame) {
	if s.node(ns).Join.Losers != CancelLosers || s.p.regions[ns.f.region].token {
		return
	}
	todo := s.moot(nil, edges, f)
	for len(todo) > 0 {
		u := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch {
		case u.resolved() || u == ns:
		case u.m != nil:
			s.stopItems(u)
			s.dropVisit(u)
		case u.status == VisitPending:
			s.dropVisit(u)
			if p := s.p.nodes[u.n].inAt(f.serial); s.p.regions[f.region].head != u.n {
				todo = s.moot(todo, p, f)
			}
		case u.pos >= 0 && s.node(u).Effect == Unsafe && u.intent, u.status == VisitCanceling, u.status == VisitReconciliation:
		case u.pos >= 0 && s.node(u).Effect != Unsafe:
			s.cancelUnit(unit{u, 0})
		default:
			s.dropVisit(u)
		}
	}
}

func (s *State) dropVisit(ns *nodeState) {
	s.drop(unit{ns, 0})
	s.deadEdges(ns, ReasonCanceled)
	s.afterVisit(ns)
}

// moot marks the open edges among these as no longer needed, and adds their sources that have no other use.
// Sources within loops go on, because a loop ends as a whole.
func (s *State) moot(todo []*nodeState, edges []int32, f *frame) []*nodeState {
	for _, e := range edges {
		es := &f.edges[s.p.localEdge[e]]
		from := s.p.edges[e].from
		if es.state != edgeOpen || es.moot || s.p.nodes[from].region != f.region {
			continue
		}
		pe := &s.p.edges[e]
		s.record(Step{Op: OpMoot, Node: s.p.nodes[from].ID, Visit: int(f.serial), To: s.p.nodes[pe.to].ID, Kind: pe.kind})
		if u := s.applyMoot(f, e); u != nil {
			todo = append(todo, u)
		}
	}
	return todo
}

// openLoop opens the next frame of a loop, unless its head is at its limit or an approval before it is void.
// prev is nil if the loop is entered from outside.
func (s *State) openLoop(region int32, parent, prev *frame, v verdict) {
	if prev == nil && parent == s.root && v == verdictRun && s.loopVoid(region) {
		return
	}
	s.openRound(region, parent, prev, v)
}

// openRound is openLoop without the check of approvals.
func (s *State) openRound(region int32, parent, prev *frame, v verdict) {
	head := s.p.regions[region].head
	serial := len(s.frames[region]) + 1
	if v == verdictRun && s.atLimit(head, serial) {
		l := limitedVisit{region: region, parent: parent, prev: prev, node: head}
		s.recordLimit(OpLimit, l, serial)
		s.applyLimit(l)
		s.wantPause = ReasonMaxVisits
		return
	}
	d := &Detail{Within: int(parent.serial)}
	if prev != nil {
		d.From = int(prev.serial)
	}
	s.record(Step{Op: OpLoop, Node: s.p.nodes[head].ID, Visit: serial, Detail: d})
	f := s.applyLoop(region, parent, prev)
	s.decide(&f.nodes[s.p.localNode[head]], v)
}

func (s *State) atLimit(n int32, visit int) bool {
	limit := s.p.nodes[n].maxVisits
	return limit != Unlimited && visit > limit+s.granted[n]
}

func (s *State) recordLimit(op Op, l limitedVisit, visit int) {
	d := &Detail{Propagated: l.propagated}
	if l.parent != nil {
		d.Within = int(l.parent.serial)
	}
	if l.prev != nil {
		d.From = int(l.prev.serial)
	}
	if l.src != nil {
		d.Inputs = []InputRef{{Node: s.node(l.src).ID, Visit: int(l.src.f.serial), Kind: s.p.edges[l.edge].kind}}
	}
	s.record(Step{Op: op, Node: s.p.nodes[l.node].ID, Visit: visit, Detail: d})
}

// unlimit lets a visit go on that was held at its limit.
func (s *State) unlimit(l limitedVisit) {
	visit := len(s.frames[l.region]) + 1
	if s.p.regions[l.region].token {
		visit = len(s.tokens[l.node]) + 1
	}
	s.recordLimit(OpUnlimit, l, visit)
	s.applyUnlimit(l)
	if !s.p.regions[l.region].token {
		v := verdictRun
		s.openLoop(l.region, l.parent, l.prev, v)
		return
	}
	if s.p.regions[l.region].inbox {
		s.checkInbox(l.node)
		return
	}
	s.tokenVisit(l.region, l.node, l.edge, l.src, l.propagated)
}

// tokenVisit makes one visit in an irreducible loop.
func (s *State) tokenVisit(region, n, e int32, src *nodeState, propagated *Input) {
	visit := len(s.tokens[n]) + 1
	if s.atLimit(n, visit) {
		l := limitedVisit{region: region, parent: s.root, edge: e, src: src, node: n, propagated: propagated}
		s.recordLimit(OpLimit, l, visit)
		s.applyLimit(l)
		s.wantPause = ReasonMaxVisits
		return
	}
	d := &Detail{Within: 1, Propagated: propagated}
	if src != nil {
		d.Inputs = []InputRef{{Node: s.node(src).ID, Visit: int(src.f.serial), Kind: s.p.edges[e].kind}}
	}
	s.record(Step{Op: OpLoop, Node: s.p.nodes[n].ID, Visit: visit, Detail: d})
	s.enter(s.applyToken(region, n, e, src, propagated))
}

// checkLoop ends a loop in which nothing is open.
func (s *State) checkLoop(t instTask) {
	r := &s.p.regions[t.region]
	if r.inbox {
		s.checkInbox(r.nodes[0])
		return
	}
	inst := &t.parent.insts[r.slot]
	if inst.closed || inst.active > 0 || inst.limited > 0 {
		return
	}
	if r.token && inst.entries < r.in || !r.token && !inst.opened {
		return
	}
	node := r.head
	if r.token {
		node = r.nodes[0]
	}
	s.record(Step{Op: OpLoopEnd, Node: s.p.nodes[node].ID, Visit: int(inst.last), Detail: &Detail{Within: int(t.parent.serial)}})
	for _, e := range s.applyLoopEnd(t.region, inst, t.parent) {
		if s.drain == "" { // an earlier edge may have failed the run
			s.arrived(t.parent, &e)
		}
	}
	if t.parent.inst != nil {
		s.instQ = append(s.instQ, instTask{t.parent.region, t.parent.parent})
	}
}
