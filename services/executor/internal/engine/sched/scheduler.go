// Package sched decides which attempts begin: how many at once, in which order among namespaces and runs, and
// through which gates. It knows nothing of runs but what a Task says.
package sched

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/goroutine"
)

// Task is one attempt that wants a place. The caller fills in the exported fields before Add, and leaves them
// alone from then on.
type Task struct {
	// Request is what gates are asked with.
	Request GateRequest
	// Lane orders tasks: those with equal lanes begin in the order in which they were added. Mostly a pointer
	// to the run.
	Lane any
	// Suspect tasks go before all others of their namespace.
	Suspect bool
	// Value is the caller's.
	Value any

	// Under the scheduler's lock.
	place      *list.Element
	line       *list.List
	dispatched bool
	way        *passage // nil when no gate concerns it
}

// Scheduler bounds how many attempts run at once, gives namespaces and their runs their turns, and leads
// attempts through their gates. It is safe for concurrent use and never blocks.
type Scheduler struct {
	perform func(*Task)
	// Conclude is called after perform, on the same goroutine, and may add further tasks. Nil does nothing.
	Conclude func()
	gates    []Gate

	mu      sync.Mutex
	local   pool
	remote  pool
	stopped bool
	// entering are attempts that are to enter a gate as soon as the lock is given back.
	entering []*Task
	// after is what is to be called then: releases and cancels of gates.
	after   []func()
	waiting list.List // of *Task, those at gates
	at      []int     // how many wait at each gate
	idle    chan struct{}
	// rehold is closed when other namespaces are held.
	rehold chan struct{}
}

// pool is a number of places and what stands in line for them.
type pool struct {
	limit   int
	running int
	queued  int
	ring    list.List // of *tenant, those with something queued, the next one first
	tenants map[string]*tenant
	lanes   map[any]*lane
	// held is how many attempts some namespaces may have running: see Scheduler.Hold.
	held map[string]int
}

// tenant is what one namespace has queued and running.
type tenant struct {
	name    string
	running int
	queued  int
	// passed are attempts that have come through their gates: they go first, since they hold what others wait
	// for.
	passed  list.List
	classes [classes]class
	place   *list.Element
}

// class is the lanes of one priority.
type class struct {
	ring list.List // of *lane, the next one first
	// since is when it had its last turn, or when it had nothing queued.
	since time.Time
}

// lane is what one run has queued, in order.
type lane struct {
	key    any // of Task.Lane
	tenant *tenant
	class  int
	items  list.List
	place  *list.Element
}

const (
	// tenantShare bounds what a namespace may have running to a multiple of what is still free: alone it gets
	// seven eighths of the places, and however long its calls hang, a namespace that has nothing running
	// finds one.
	tenantShare = 7
	// classes are that of suspect runs, which go before all others, and one for each priority.
	classes = 1 + MaxPriority
	// passOverTime is how long a class is passed over for each step that it stands behind the one that gets
	// its turns.
	passOverTime = time.Second
)

// Priorities of runs.
const (
	// DefaultPriority is that of runs which say nothing.
	DefaultPriority = 2
	// MaxPriority is the least urgent.
	MaxPriority = 4
)

// New returns a scheduler of this many local and remote places. perform makes the call of a task on a
// goroutine of the scheduler, and Done must be called for it.
func New(limit, remote int, gates []Gate, perform func(*Task)) *Scheduler {
	p := func(limit int) pool {
		return pool{limit: limit, tenants: map[string]*tenant{}, lanes: map[any]*lane{}}
	}
	return &Scheduler{local: p(limit), remote: p(remote), gates: gates, at: make([]int, len(gates)), perform: perform, idle: make(chan struct{}), rehold: make(chan struct{})}
}

// Add queues a and starts what may start. Others may have found a before: see HeldBack.
func (s *Scheduler) Add(a *Task) {
	var way *passage
	if req := a.Request; len(s.gates) > 0 {
		for i, g := range s.gates {
			if g.Concerns(req) {
				if way == nil {
					way = &passage{}
				}
				way.gates = append(way.gates, i)
			}
		}
		if way != nil {
			way.passes, way.has = make([]Pass, len(way.gates)), make([]bool, len(way.gates))
		}
	}
	s.mu.Lock()
	a.way = way
	s.pool(a).push(a)
	s.dispatch()
	s.unlock()
}

func (s *Scheduler) pool(a *Task) *pool {
	if a.Request.Remote {
		return &s.remote
	}
	return &s.local
}

// unlock gives s.mu back and does with gates what is due. Gates may answer at once, so nothing is held then.
func (s *Scheduler) unlock() {
	entering, after := s.entering, s.after
	s.entering, s.after = nil, nil
	s.mu.Unlock()
	for _, f := range after {
		f()
	}
	for _, a := range entering {
		s.enter(a)
	}
}

// enter is called without s.mu.
func (s *Scheduler) enter(a *Task) {
	w := a.way
	s.mu.Lock()
	if w.gone {
		s.mu.Unlock()
		return
	}
	gate, turn := s.gates[w.gates[w.at]], w.turn
	s.mu.Unlock()
	cancel := gate.Enter(a.Request, func(p Pass) { s.through(a, turn, p) })
	s.mu.Lock()
	switch {
	case w.gone:
		s.after = append(s.after, cancel)
	case w.turn == turn && w.place != nil:
		w.cancel = cancel
	}
	s.unlock()
}

// wait puts a at the gate with number at. It is called with s.mu held.
func (s *Scheduler) wait(a *Task, at int, now time.Time) {
	w := a.way
	w.at, w.since, w.cancel = at, now, nil
	w.turn++
	w.place = s.waiting.PushBack(a)
	s.at[w.gates[at]]++
	s.entering = append(s.entering, a)
}

// leave takes a from its gate. It is called with s.mu held.
func (s *Scheduler) leave(a *Task) {
	w := a.way
	if w.place == nil {
		return
	}
	s.waiting.Remove(w.place)
	w.place = nil
	s.at[w.gates[w.at]]--
}

// through is called by a gate when a may pass.
func (s *Scheduler) through(a *Task, turn int, p Pass) {
	w := a.way
	s.mu.Lock()
	defer s.unlock()
	if w.gone || w.place == nil || w.turn != turn {
		if p.Release != nil {
			s.after = append(s.after, p.Release)
		}
		return
	}
	s.leave(a)
	w.cancel = nil
	w.passes[w.at], w.has[w.at] = p, true
	if !s.halt(a) {
		s.pool(a).pushPassed(a)
		s.dispatch()
	}
}

// halt sends a to the first gate whose pass it lacks. It reports false if it has all. It is called with s.mu
// held.
func (s *Scheduler) halt(a *Task) bool {
	if a.way == nil {
		return false
	}
	now := time.Now()
	at, stale := a.way.missing(now)
	if stale != nil {
		s.after = append(s.after, stale)
	}
	if at == len(a.way.gates) {
		return false
	}
	s.wait(a, at, now)
	return true
}

// push puts a at the end of its run's line.
func (p *pool) push(a *Task) {
	suspect := a.Suspect
	l := p.lanes[a.Lane]
	if l == nil {
		l = &lane{key: a.Lane, tenant: p.tenant(a.Request.Namespace), class: Class(a.Request.Priority)}
		if suspect {
			l.class = 0
		}
		p.lanes[a.Lane] = l
	}
	a.place, a.line = l.items.PushBack(a), &l.items
	t := l.tenant
	fresh := l.place == nil
	if fresh {
		c := &t.classes[l.class]
		if c.ring.Len() == 0 {
			c.since = a.Request.Queued
		}
		l.place = c.ring.PushBack(l)
	}
	p.line(t, fresh && suspect)
	p.queued++
	t.queued++
}

// pushPassed puts a before all others of its namespace.
func (p *pool) pushPassed(a *Task) {
	t := p.tenant(a.Request.Namespace)
	a.place, a.line = t.passed.PushBack(a), &t.passed
	p.line(t, false)
	p.queued++
	t.queued++
}

func (p *pool) line(t *tenant, first bool) {
	switch {
	case t.place == nil && first:
		t.place = p.ring.PushFront(t)
	case t.place == nil:
		t.place = p.ring.PushBack(t)
	case first:
		p.ring.MoveToFront(t.place)
	}
}

func (p *pool) tenant(name string) *tenant {
	t := p.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		p.tenants[name] = t
	}
	return t
}

// tidy takes a tenant out of the ring that has nothing queued, and forgets it if it has nothing running
// either.
func (p *pool) tidy(t *tenant) {
	if t.passed.Len() > 0 {
		return
	}
	for i := range t.classes {
		if t.classes[i].ring.Len() > 0 {
			return
		}
	}
	if t.place != nil {
		p.ring.Remove(t.place)
		t.place = nil
	}
	if t.running == 0 {
		delete(p.tenants, t.name)
	}
}

// drop takes a lane out that has nothing queued any more.
func (p *pool) drop(l *lane) {
	l.tenant.classes[l.class].ring.Remove(l.place)
	l.place = nil
	delete(p.lanes, l.key)
	p.tidy(l.tenant)
}

// next is the first tenant that may start something. Those it passes over have something running, so there
// are few.
func (p *pool) next() *tenant {
	free := p.limit - p.running
	for e := p.ring.Front(); e != nil; e = e.Next() {
		t := e.Value.(*tenant)
		if most, held := p.held[t.name]; held {
			if t.running < most {
				return t
			}
		} else if t.running == 0 || t.running < tenantShare*free {
			return t
		}
	}
	return nil
}

// class is whose turn it is: that of the most urgent class, unless another was passed over for longer than is
// fair.
func (t *tenant) class() int {
	first := -1
	var now time.Time
	for i := range t.classes {
		c := &t.classes[i]
		switch {
		case c.ring.Len() == 0:
			continue
		case first < 0:
			first = i
			continue
		case now.IsZero():
			now = time.Now()
		}
		if first > 0 && now.Sub(c.since) >= time.Duration(i-first)*passOverTime {
			c.since = now
			return i
		}
	}
	if !now.IsZero() {
		t.classes[first].since = now
	}
	return first
}

// take is the next attempt of t.
func (p *pool) take(t *tenant) *Task {
	var a *Task
	t.queued--
	p.ring.MoveToBack(t.place)
	if first := t.passed.Front(); first != nil {
		a = t.passed.Remove(first).(*Task)
		p.tidy(t)
	} else {
		ring := &t.classes[t.class()].ring
		l := ring.Front().Value.(*lane)
		a = l.items.Remove(l.items.Front()).(*Task)
		if l.items.Len() == 0 {
			p.drop(l)
		} else {
			ring.MoveToBack(l.place)
		}
	}
	a.place, a.line = nil, nil
	p.queued--
	return a
}

// dispatch starts attempts while there is room: one of the first run of a tenant, then the next tenant. It is
// called with s.mu held.
func (s *Scheduler) dispatch() {
	s.fill(&s.local)
	if s.remote.queued > 0 {
		s.fill(&s.remote)
	}
}

func (s *Scheduler) fill(p *pool) {
	for p.running < p.limit && !s.stopped {
		t := p.next()
		if t == nil {
			return
		}
		a := p.take(t)
		if s.halt(a) {
			continue
		}
		p.running++
		p.tenant(a.Request.Namespace).running++
		a.dispatched = true
		go s.work(a)
	}
}

// work performs a on a goroutine of its own.
func (s *Scheduler) work(a *Task) {
	goroutine.Reserve()
	s.perform(a)
	if s.Conclude != nil {
		s.Conclude()
	}
}

// Remove takes a out of its line or from its gate. It reports false if a is running already, or was never
// queued.
func (s *Scheduler) Remove(a *Task) bool {
	s.mu.Lock()
	defer s.unlock()
	return s.takeOut(a)
}

// takeOut is remove, with s.mu held.
func (s *Scheduler) takeOut(a *Task) bool {
	w := a.way
	switch {
	case a.place != nil:
		p := s.pool(a)
		p.tenant(a.Request.Namespace).queued--
		a.line.Remove(a.place)
		if l := p.lanes[a.Lane]; l != nil && a.line == &l.items {
			if l.items.Len() == 0 {
				p.drop(l)
			}
		} else {
			p.tidy(p.tenant(a.Request.Namespace))
		}
		a.place, a.line = nil, nil
		p.queued--
	case w != nil && w.place != nil:
		s.leave(a)
	default:
		return false
	}
	if w != nil {
		s.quit(w)
	}
	return true
}

// Withdraw takes attempts of one run out of their lines and gates. It reports false, and leaves all where
// they are, if one of them is running, or is just about to be queued.
func (s *Scheduler) Withdraw(list []*Task) bool {
	s.mu.Lock()
	defer s.unlock()
	for _, a := range list {
		if a.place == nil && (a.way == nil || a.way.place == nil) {
			return false
		}
	}
	for _, a := range list {
		s.takeOut(a)
	}
	return true
}

// Hold bounds how many local and how many remote attempts each of these namespaces has running, and lifts the
// bounds of all others.
func (s *Scheduler) Hold(most map[string]int) {
	s.mu.Lock()
	defer s.unlock()
	if maps.Equal(most, s.local.held) {
		return
	}
	s.local.held, s.remote.held = most, most
	close(s.rehold)
	s.rehold = make(chan struct{})
	s.dispatch()
}

// HeldUntil is nil for a namespace that is not held, and otherwise closed when that may have changed.
func (s *Scheduler) HeldUntil(namespace string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.local.held[namespace]; s.stopped || !held {
		return nil
	}
	return s.rehold
}

// quit gives up what w has and waits for. It is called with s.mu held.
func (s *Scheduler) quit(w *passage) {
	w.gone = true
	if w.cancel != nil {
		s.after = append(s.after, w.cancel)
		w.cancel = nil
	}
	s.after = append(s.after, w.give()...)
}

// Done frees the place of an attempt that ran. It is idempotent.
func (s *Scheduler) Done(a *Task) {
	s.mu.Lock()
	if !a.dispatched {
		s.mu.Unlock()
		return
	}
	a.dispatched = false
	p := s.pool(a)
	p.running--
	t := p.tenant(a.Request.Namespace)
	t.running--
	p.tidy(t)
	if a.way != nil {
		s.quit(a.way)
	}
	s.dispatch()
	s.signalIdle()
	s.unlock()
}

// Stop lets nothing start any more. The channel is closed when nothing runs.
func (s *Scheduler) Stop() <-chan struct{} {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		for s.waiting.Len() > 0 {
			a := s.waiting.Front().Value.(*Task)
			s.leave(a)
			s.quit(a.way)
		}
		s.signalIdle()
	}
	s.unlock()
	return s.idle
}

func (s *Scheduler) signalIdle() {
	if s.stopped && s.local.running == 0 && s.remote.running == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// Backlog counts attempts that wait for a place.
func (s *Scheduler) Backlog() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local.queued + s.remote.queued
}

// Crowded are the namespaces of which so many attempts wait for a place that more runs of theirs would only
// stand in line.
func (s *Scheduler) Crowded() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range []*pool{&s.local, &s.remote} {
		for _, t := range p.tenants {
			if t.queued >= s.local.limit && !slices.Contains(names, t.name) {
				names = append(names, t.name)
			}
		}
	}
	return names
}

// AtGates calls f with the number of attempts that wait at gates of each kind.
func (s *Scheduler) AtGates(f func(GateKind, int)) {
	s.mu.Lock()
	at := append([]int(nil), s.at...)
	s.mu.Unlock()
	for i, n := range at {
		f(s.gates[i].Kind(), n)
	}
}

// Holding tells what keeps a from running; false when it runs.
func (s *Scheduler) Holding(a *Task) (GateWait, bool) {
	s.mu.Lock()
	if a.place != nil {
		s.mu.Unlock()
		return GateWait{Kind: GatePlace, Since: a.Request.Queued}, true
	}
	w := a.way
	if w == nil || w.place == nil {
		s.mu.Unlock()
		return GateWait{}, false
	}
	g, since := s.gates[w.gates[w.at]], w.since
	s.mu.Unlock()
	b, ok := g.Holding(a.Request)
	if !ok {
		b = GateWait{Kind: g.Kind(), Name: a.Request.Actor}
	}
	if b.Since.IsZero() {
		b.Since = since
	}
	return b, true
}

// Class is the priority that counts for a run of this one: DefaultPriority where there is no such priority.
func Class(priority int) int {
	if priority < 1 || priority > MaxPriority {
		return DefaultPriority
	}
	return priority
}
