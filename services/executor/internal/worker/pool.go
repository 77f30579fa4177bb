package worker

import (
	"container/heap"
	"container/list"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// name is an actor of a namespace.
type name struct{ namespace, actor string }

// pool knows what room there is for visits, at workers that are connected here and at other executors, and
// who waits for some. It is safe for concurrent use, never blocks, and calls nobody while it is locked.
type pool struct {
	// look signals that somebody began to wait, so that other executors' workers are looked for.
	look chan struct{}

	mu     sync.Mutex
	served map[name]*served
	// waiting holds the lines that are not empty, by namespace and actor.
	waiting map[string]map[string]*line
	// entered counts those who began to wait.
	entered uint64
	// reserved are the slots of attempts that have passed the gate and not called yet.
	reserved map[attempt]*slot
}

// served is who serves one actor.
type served struct {
	sessions []*session
	next     int
	far      []*far
	// looked is when far was read.
	looked time.Time
}

// far is another executor with workers for one actor.
type far struct {
	owner journal.Owner
	addr  string
	slots int
	// mine is how many visits this executor has or lets wait there. slots bounds their number, whatever
	// others have there: the far executor schedules its own and those from elsewhere in turns.
	mine int
	// full is until when it need not be asked again, since it just said that there is no room.
	full time.Time
}

// line is who waits for room for one actor: attempts of this executor, and such as other executors sent. Both
// get their turns.
type line struct {
	actor      string
	near, hops list.List // of *waiter
	hopLast    bool
}

// waiter waits for room.
type waiter struct {
	name name
	hop  bool
	// number says who came first: the lower one.
	number  uint64
	ready   func(*slot)
	element *list.Element // nil once it waits no more
}

// slot is room for one visit. It is given back once: by release if no visit began on it, else by the end of
// that visit.
type slot struct {
	pool  *pool
	name  name
	s     *session // nil for far ones
	far   *far
	state slotState // under pool.mu
}

type slotState uint8

const (
	slotFree slotState = iota // given out, no visit began on it yet
	slotTaken
	slotGone
)

func newPool() *pool {
	return &pool{look: make(chan struct{}, 1), served: map[name]*served{}, waiting: map[string]map[string]*line{}, reserved: map[attempt]*slot{}}
}

// granted is a waiter and its grant; it is notified when the lock is released.
type granted struct {
	w *waiter
	p *slot
}

func notify(gs []granted) {
	for _, g := range gs {
		g.w.ready(g.p)
	}
}

// enter asks for room. ready is called once with a slot, before enter returns or later, unless cancel came
// first.
func (p *pool) enter(n name, hop bool, ready func(*slot)) (cancel func()) {
	p.mu.Lock()
	if l := p.waiting[n.namespace][n.actor]; l == nil {
		if pl := p.reserve(n, hop); pl != nil {
			p.mu.Unlock()
			ready(pl)
			return func() {}
		}
	}
	p.entered++
	w := &waiter{name: n, hop: hop, number: p.entered, ready: ready}
	lines := p.waiting[n.namespace]
	if lines == nil {
		lines = map[string]*line{}
		p.waiting[n.namespace] = lines
	}
	l := lines[n.actor]
	if l == nil {
		l = &line{actor: n.actor}
		lines[n.actor] = l
	}
	if hop {
		w.element = l.hops.PushBack(w)
	} else {
		w.element = l.near.PushBack(w)
	}
	p.mu.Unlock()
	if !hop {
		p.lookAround()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leave(w)
	}
}

func (p *pool) lookAround() {
	select {
	case p.look <- struct{}{}:
	default:
	}
}

// leave takes w out of its line. It is called with p.mu held.
func (p *pool) leave(w *waiter) {
	if w.element == nil {
		return
	}
	l := p.waiting[w.name.namespace][w.name.actor]
	if w.hop {
		l.hops.Remove(w.element)
	} else {
		l.near.Remove(w.element)
	}
	w.element = nil
	if !l.empty() {
		return
	}
	delete(p.waiting[w.name.namespace], w.name.actor)
	if len(p.waiting[w.name.namespace]) == 0 {
		delete(p.waiting, w.name.namespace)
	}
}

// reserve is room for n, if there is some. It is called with p.mu held.
func (p *pool) reserve(n name, hop bool) *slot {
	sv := p.served[n]
	if sv == nil {
		return nil
	}
	for range sv.sessions {
		s := sv.sessions[sv.next%len(sv.sessions)]
		sv.next = (sv.next + 1) % len(sv.sessions)
		if s.hasRoom(n.actor) {
			s.take(n.actor)
			return &slot{pool: p, name: n, s: s}
		}
	}
	if hop {
		return nil
	}
	var best *far
	now := time.Now()
	for _, f := range sv.far {
		if f.mine < f.slots && now.After(f.full) && (best == nil || f.slots-f.mine > best.slots-best.mine) {
			best = f
		}
	}
	if best == nil {
		return nil
	}
	best.mine++
	return &slot{pool: p, name: n, far: best}
}

// serve gives the room of a session to those who wait for its actors, the longest first. It looks at the
// session's actors or at those that are waited for, whichever are fewer. It is called with p.mu held.
func (p *pool) serve(s *session) (out []granted) {
	lines := p.linesFor(s)
	heap.Init(&lines)
	for len(lines) > 0 && s.used < s.slots {
		l := lines[0]
		w := l.next()
		s.take(l.actor)
		p.leave(w)
		out = append(out, granted{w, &slot{pool: p, name: w.name, s: s}})
		if l.empty() || !s.hasRoom(l.actor) {
			heap.Pop(&lines)
		} else {
			heap.Fix(&lines, 0)
		}
	}
	return out
}

// linesFor are the queues for whose actors a session has room, in no order.
func (p *pool) linesFor(s *session) (out lines) {
	waiting := p.waiting[s.namespace]
	if s.closed || s.used >= s.slots || len(waiting) == 0 {
		return nil
	}
	take := func(l *line) {
		if l != nil && s.hasRoom(l.actor) {
			out = append(out, l)
		}
	}
	if len(s.actors) < len(waiting) {
		for actor := range s.actors {
			take(waiting[actor])
		}
	} else {
		for _, l := range waiting {
			take(l)
		}
	}
	return out
}

// serveFar gives room for an actor at other executors to the waiters for that actor, the longest first. No
// session here has room while somebody waits, and visits from elsewhere are not sent on. The caller holds
// p.mu.
func (p *pool) serveFar(n name) (out []granted) {
	l := p.waiting[n.namespace][n.actor]
	if l == nil {
		return nil
	}
	for w := front(&l.near); w != nil; w = front(&l.near) {
		pl := p.reserve(n, false)
		if pl == nil {
			break
		}
		p.leave(w)
		out = append(out, granted{w, pl})
	}
	return out
}

func front(l *list.List) *waiter {
	if e := l.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

func (l *line) empty() bool { return l.near.Len()+l.hops.Len() == 0 }

// first is the number of who has waited longest.
func (l *line) first() uint64 {
	a, b := front(&l.near), front(&l.hops)
	switch {
	case a == nil:
		return b.number
	case b == nil:
		return a.number
	}
	return min(a.number, b.number)
}

// lines is a heap of queues that are not empty, the one with the longest wait first.
type lines []*line

func (h lines) Len() int           { return len(h) }
func (h lines) Less(i, j int) bool { return h[i].first() < h[j].first() }
func (h lines) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lines) Push(x any)        { *h = append(*h, x.(*line)) }
func (h *lines) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	*h = (*h)[:last]
	return l
}

// next is the waiter whose turn it is.
func (l *line) next() *waiter {
	a, b := front(&l.near), front(&l.hops)
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	l.hopLast = !l.hopLast
	if l.hopLast {
		return b
	}
	return a
}

// release gives the slot back if no visit began on it.
func (pl *slot) release() { pl.give(slotFree) }

// end gives the slot back after its visit.
func (pl *slot) end() { pl.give(slotTaken) }

func (pl *slot) give(from slotState) {
	p := pl.pool
	p.mu.Lock()
	if pl.state != from {
		p.mu.Unlock()
		return
	}
	pl.state = slotGone
	var out []granted
	if pl.s != nil {
		pl.s.giveBack(pl.name.actor)
		out = p.serve(pl.s)
	} else {
		pl.far.mine--
		out = p.serveFar(pl.name)
	}
	p.mu.Unlock()
	notify(out)
}

// take marks that a visit begins. It reports false if the slot is no good any more.
func (pl *slot) take() bool {
	p := pl.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if pl.state != slotFree || pl.s != nil && pl.s.gone {
		return false
	}
	pl.state = slotTaken
	return true
}

// exhausted remembers that the far executor of the slot has no room for a while.
func (pl *slot) exhausted(d time.Duration) {
	pl.pool.mu.Lock()
	defer pl.pool.mu.Unlock()
	pl.far.full = time.Now().Add(d)
}

// add lets a session take visits.
func (p *pool) add(s *session) {
	p.mu.Lock()
	for actor := range s.actors {
		n := name{s.namespace, actor}
		sv := p.served[n]
		if sv == nil {
			sv = &served{}
			p.served[n] = sv
		}
		sv.sessions = append(sv.sessions, s)
	}
	out := p.serve(s)
	p.mu.Unlock()
	notify(out)
}

// remove lets a session take no more visits. gone says that those reserved at it cannot begin either.
func (p *pool) remove(s *session, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.gone = s.gone || gone
	if s.closed {
		return
	}
	s.closed = true
	for actor := range s.actors {
		n := name{s.namespace, actor}
		sv := p.served[n]
		if sv == nil { // a session whose actors could not be recorded was never added
			continue
		}
		for i, other := range sv.sessions {
			if other == s {
				sv.sessions = append(sv.sessions[:i:i], sv.sessions[i+1:]...)
				break
			}
		}
		if len(sv.sessions) == 0 && len(sv.far) == 0 {
			delete(p.served, n)
		}
	}
}

// serving lists the effects under which sessions that are connected here serve an actor.
func (p *pool) serving(n name) (effect string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sv := p.served[n]; sv != nil && len(sv.sessions) > 0 {
		return sv.sessions[0].effects[n.actor], true
	}
	return "", false
}

// wanted lists, by namespace, the actors for which somebody waits whom only other executors' workers can
// help.
func (p *pool) wanted() map[string][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string][]string{}
	for ns, lines := range p.waiting {
		for actor, l := range lines {
			if l.near.Len() > 0 {
				out[ns] = append(out[ns], actor)
			}
		}
	}
	return out
}

// found takes in which other executors have workers for an actor.
func (p *pool) found(n name, routes []journal.WorkerRoute) {
	p.mu.Lock()
	sv := p.served[n]
	if sv == nil {
		sv = &served{}
		p.served[n] = sv
	}
	old := sv.far
	sv.far, sv.looked = nil, time.Now()
	for _, r := range routes {
		f := &far{owner: r.Executor, addr: r.Addr}
		for _, o := range old {
			if o.owner == r.Executor {
				f = o // the slots that are given out know it
				f.addr = r.Addr
			}
		}
		f.slots = r.Slots
		sv.far = append(sv.far, f)
	}
	if len(sv.sessions) == 0 && len(sv.far) == 0 {
		delete(p.served, n)
	}
	out := p.serveFar(n)
	p.mu.Unlock()
	notify(out)
}

// holding is since when the oldest attempt waits for n, and how many workers are known that serve it.
func (p *pool) holding(n name) (workers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if sv := p.served[n]; sv != nil {
		workers = len(sv.sessions) + len(sv.far)
	}
	return workers
}
