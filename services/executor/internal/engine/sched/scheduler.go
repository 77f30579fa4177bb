// Package sched decides which attempts begin: how many at once, in which order among namespaces and runs,
// and through which gates. It knows of a run only what a Task has.
package sched

import (
	"container/list"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/goroutine"
)

// Task is one attempt that wants a slot. The caller sets the exported fields before Add and does not change
// them afterwards.
type Task struct {
	// Request describes the attempt to gates.
	Request GateRequest
	// Lane orders tasks: those with equal lanes begin in the order of Add. It is usually a pointer to the
	// run.
	Lane any
	// Suspect tasks go before all others of their namespace.
	Suspect bool
	// Value belongs to the caller.
	Value any

	// The scheduler's lock guards the fields below.
	place      *list.Element
	line       *list.List
	dispatched bool
	way        *passage // nil if no gate concerns it
}

// Scheduler bounds how many attempts run at once, alternates between namespaces and between their runs, and
// takes attempts through their gates. It is safe for concurrent use and never blocks.
type Scheduler struct {
	perform func(*Task)
	// AfterTask is called after perform, on the same goroutine, and may add tasks. Nil does nothing.
	AfterTask func()
	gates     []Gate

	mu      sync.Mutex
	local   pool
	remote  pool
	stopped bool
	// entering are attempts that enter a gate as soon as the lock is released.
	entering []*Task
	// after are releases and cancels of gates, which are called then.
	after   []func()
	waiting list.List // of *Task, those at gates
	at      []int     // how many wait at each gate
	idle    chan struct{}
	// rehold is closed when the bounds of namespaces change.
	rehold chan struct{}
}

// pool is a number of slots and the line for them.
type pool struct {
	limit   int
	running int
	queued  int
	ring    list.List // of *tenant, those with queued attempts, the next one first
	tenants map[string]*tenant
	lanes   map[any]*lane
	// held bounds the running attempts of some namespaces: see Scheduler.Hold.
	held map[string]int
}

// tenant is what one namespace has queued and running.
type tenant struct {
	name    string
	running int
	queued  int
	// passed are attempts that have passed their gates. They go first, since others wait for what they
	// hold.
	passed  list.List
	classes [classes]class
	place   *list.Element
}

// class is the lanes of one priority.
type class struct {
	ring list.List // of *lane, the next one first
	// since is when the class had its last turn, or last had nothing queued.
	since time.Time
}

// lane is the queue of one run.
type lane struct {
	key    any // of Task.Lane
	tenant *tenant
	class  int
	items  list.List
	place  *list.Element
}

const (
	// tenantShare bounds the running attempts of a namespace to a multiple of the free slots. A single
	// namespace gets seven eighths of the slots. However long its calls take, another namespace with
	// nothing running finds a free slot.
	tenantShare = 7
	// classes are one for suspect runs, which goes first, and one for each priority.
	classes = 1 + MaxPriority
	// passOverTime is how long a class may be passed over, for each step that it is below the class that
	// gets the turns.
	passOverTime = time.Second
)

// Priorities of runs.
const (
	// DefaultPriority is used for runs without a priority.
	DefaultPriority = 2
	// MaxPriority is the least urgent one.
	MaxPriority = 4
)

// New returns a scheduler with this many local and remote slots. perform makes the call of a task, on a
// goroutine of the scheduler. Done must be called for the task afterwards.
func New(limit, remote int, gates []Gate, perform func(*Task)) *Scheduler {
	p := func(limit int) pool {
		return pool{limit: limit, tenants: map[string]*tenant{}, lanes: map[any]*lane{}}
	}
	return &Scheduler{local: p(limit), remote: p(remote), gates: gates, at: make([]int, len(gates)), perform: perform, idle: make(chan struct{}), rehold: make(chan struct{})}
}

// Add queues a and starts what may start. a may be visible to others before: see Engine.HeldBack.
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

// unlock releases s.mu and then calls gates. Gates may call back at once, so no lock is held.
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

// wait puts a at gate number at. The caller holds s.mu.
func (s *Scheduler) wait(a *Task, at int, now time.Time) {
	w := a.way
	w.at, w.since, w.cancel = at, now, nil
	w.turn++
	w.place = s.waiting.PushBack(a)
	s.at[w.gates[at]]++
	s.entering = append(s.entering, a)
}

// leave takes a from its gate. The caller holds s.mu.
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

// halt sends a to the first gate whose pass it lacks. It returns false if a has all passes. The caller
// holds s.mu.
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

// push adds a to the end of its run's lane.
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

// tidy removes a tenant without queued attempts from the ring, and drops it if it has none running either.
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

// drop removes an empty lane.
func (p *pool) drop(l *lane) {
	l.tenant.classes[l.class].ring.Remove(l.place)
	l.place = nil
	delete(p.lanes, l.key)
	p.tidy(l.tenant)
}

// next is the first tenant that may start an attempt. The tenants before it have attempts running, so they
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

// class is the class whose turn it is: the most urgent one, unless another has been passed over for too
// long.
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

// take removes the next attempt of t from its queue.
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

// dispatch starts attempts while slots are free: one of the first run of a tenant, then one of the next
// tenant. The caller holds s.mu.
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

// work performs a on its own goroutine.
func (s *Scheduler) work(a *Task) {
	goroutine.Reserve()
	s.perform(a)
	if s.AfterTask != nil {
		s.AfterTask()
	}
}

// Remove takes a out of its line or from its gate. It returns false if a is running or was never queued.
func (s *Scheduler) Remove(a *Task) bool {
	s.mu.Lock()
	defer s.unlock()
	return s.takeOut(a)
}

// takeOut is Remove for callers that hold s.mu.
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

// Withdraw takes attempts of one run out of their lines and gates. If one of them is running, or is about
// to be queued, it leaves all where they are and returns false.
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

// Hold bounds the running attempts of each of these namespaces, local and remote ones separately, and lifts
// the bounds of all others.
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

// HeldUntil is nil for an unbounded namespace. Otherwise it is closed when the bounds change.
func (s *Scheduler) HeldUntil(namespace string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.local.held[namespace]; s.stopped || !held {
		return nil
	}
	return s.rehold
}

// quit gives up the passes and requests of w. The caller holds s.mu.
func (s *Scheduler) quit(w *passage) {
	w.gone = true
	if w.cancel != nil {
		s.after = append(s.after, w.cancel)
		w.cancel = nil
	}
	s.after = append(s.after, w.give()...)
}

// Done frees the slot of an attempt that ran. It is idempotent.
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

// Stop prevents further starts. The channel is closed when nothing runs.
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

// Backlog counts the attempts that wait for a slot.
func (s *Scheduler) Backlog() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local.queued + s.remote.queued
}

// Crowded are the namespaces with so many attempts waiting for a slot that further runs would only wait,
// too.
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

// AtGates calls f for each gate with the number of attempts that wait there.
func (s *Scheduler) AtGates(f func(GateKind, int)) {
	s.mu.Lock()
	at := append([]int(nil), s.at...)
	s.mu.Unlock()
	for i, n := range at {
		f(s.gates[i].Kind(), n)
	}
}

// WaitOf describes what a waits for. ok is false if it runs.
func (s *Scheduler) WaitOf(a *Task) (GateWait, bool) {
	s.mu.Lock()
	if a.place != nil {
		s.mu.Unlock()
		return GateWait{Kind: GateSlot, Since: a.Request.Queued}, true
	}
	w := a.way
	if w == nil || w.place == nil {
		s.mu.Unlock()
		return GateWait{}, false
	}
	g, since := s.gates[w.gates[w.at]], w.since
	s.mu.Unlock()
	b, ok := g.WaitOf(a.Request)
	if !ok {
		b = GateWait{Kind: g.Kind(), Name: a.Request.Actor}
	}
	if b.Since.IsZero() {
		b.Since = since
	}
	return b, true
}

// Class is the effective priority of a run: DefaultPriority if the given one does not exist.
func Class(priority int) int {
	if priority < 1 || priority > MaxPriority {
		return DefaultPriority
	}
	return priority
}
