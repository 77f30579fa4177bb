package engine

import (
	"container/list"
	"sync"
)

// scheduler bounds how many attempts run at once, gives namespaces and their runs their turns, and keeps attempts with equal
// concurrency keys apart. It is safe for concurrent use and never blocks.
type scheduler struct {
	limit   int
	perform func(*attempt)

	mu      sync.Mutex
	running int
	stopped bool
	queued  int
	ring    list.List // of *tenant, those with something queued, the next one first
	tenants map[string]*tenant
	lanes   map[*run]*lane
	keys    map[string]*keyLock
	idle    chan struct{} // closed when stopped and nothing runs
}

// tenant is what one namespace has queued and running.
type tenant struct {
	name    string
	running int
	ring    list.List // of *lane, the next one first
	place   *list.Element
}

// lane is what one run has queued, in order.
type lane struct {
	run    *run
	tenant *tenant
	items  list.List
	place  *list.Element
}

// tenantShare bounds what a namespace may have running to a multiple of what is still free: alone it gets seven eighths of the
// places, and however long its calls hang, a namespace that has nothing running finds one.
const tenantShare = 7

// keyLock is a concurrency key that somebody holds.
type keyLock struct{ waiting list.List }

func newScheduler(limit int, perform func(*attempt)) *scheduler {
	return &scheduler{limit: limit, perform: perform, tenants: map[string]*tenant{}, lanes: map[*run]*lane{}, keys: map[string]*keyLock{}, idle: make(chan struct{})}
}

// add queues a and starts what may start.
func (s *scheduler) add(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(a, false)
	s.dispatch()
}

// push is called with s.mu held.
func (s *scheduler) push(a *attempt, front bool) {
	l := s.lanes[a.run]
	if l == nil {
		l = &lane{run: a.run, tenant: s.tenant(a.run.namespace)}
		s.lanes[a.run] = l
	}
	if front {
		a.place = l.items.PushFront(a)
	} else {
		a.place = l.items.PushBack(a)
	}
	a.lane = &l.items
	t := l.tenant
	suspect := l.place == nil && a.run.suspect.Load()
	switch {
	case suspect:
		l.place = t.ring.PushFront(l)
	case l.place == nil:
		l.place = t.ring.PushBack(l)
	}
	switch {
	case t.place == nil && suspect:
		t.place = s.ring.PushFront(t)
	case t.place == nil:
		t.place = s.ring.PushBack(t)
	case suspect:
		s.ring.MoveToFront(t.place)
	}
	s.queued++
}

func (s *scheduler) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name}
		s.tenants[name] = t
	}
	return t
}

// forget drops a tenant that has nothing left.
func (s *scheduler) forget(t *tenant) {
	if t.running == 0 && t.ring.Len() == 0 {
		delete(s.tenants, t.name)
	}
}

// drop takes a lane out that has nothing queued any more.
func (s *scheduler) drop(l *lane) {
	t := l.tenant
	t.ring.Remove(l.place)
	l.place = nil
	delete(s.lanes, l.run)
	if t.ring.Len() == 0 {
		s.ring.Remove(t.place)
		t.place = nil
		s.forget(t)
	}
}

// next is the first tenant that may start something. Those it passes over have something running, so there are few.
func (s *scheduler) next() *tenant {
	free := s.limit - s.running
	for e := s.ring.Front(); e != nil; e = e.Next() {
		if t := e.Value.(*tenant); t.running == 0 || t.running < tenantShare*free {
			return t
		}
	}
	return nil
}

// dispatch starts attempts while there is room: one of the first run of a tenant, then the next tenant. It is called with
// s.mu held.
func (s *scheduler) dispatch() {
	for s.running < s.limit && !s.stopped {
		t := s.next()
		if t == nil {
			return
		}
		l := t.ring.Front().Value.(*lane)
		a := l.items.Remove(l.items.Front()).(*attempt)
		a.place, a.lane = nil, nil
		s.queued--
		s.ring.MoveToBack(t.place)
		if l.items.Len() == 0 {
			s.drop(l)
		} else {
			t.ring.MoveToBack(l.place)
		}
		if a.key != "" && !a.holdsKey {
			if k := s.keys[a.key]; k != nil {
				a.place, a.lane = k.waiting.PushBack(a), &k.waiting
				s.queued++
				continue
			}
			s.keys[a.key] = &keyLock{}
			a.holdsKey = true
		}
		s.running++
		s.tenant(a.run.namespace).running++
		a.dispatched = true
		go s.perform(a)
	}
}

// remove takes a out of the queue. It reports false if a is running already, or was never queued.
func (s *scheduler) remove(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.place == nil {
		return false
	}
	a.lane.Remove(a.place)
	if l := s.lanes[a.run]; l != nil && a.lane == &l.items && l.items.Len() == 0 {
		s.drop(l)
	}
	a.place, a.lane = nil, nil
	s.queued--
	s.unlock(a)
	return true
}

// done frees the place of an attempt that ran. It is idempotent.
func (s *scheduler) done(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.dispatched {
		return
	}
	a.dispatched = false
	s.running--
	t := s.tenant(a.run.namespace)
	t.running--
	s.forget(t)
	s.unlock(a)
	s.dispatch()
	s.settle()
}

// unlock gives a's key to who has waited longest. It is called with s.mu held.
func (s *scheduler) unlock(a *attempt) {
	if !a.holdsKey {
		return
	}
	a.holdsKey = false
	k := s.keys[a.key]
	next := k.waiting.Front()
	if next == nil {
		delete(s.keys, a.key)
		return
	}
	heir := k.waiting.Remove(next).(*attempt)
	s.queued--
	heir.holdsKey = true
	s.push(heir, true)
}

// stop lets nothing start any more. The channel is closed when nothing runs.
func (s *scheduler) stop() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		s.settle()
	}
	return s.idle
}

func (s *scheduler) settle() {
	if s.stopped && s.running == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// backlog counts attempts that wait for room or for a key.
func (s *scheduler) backlog() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queued
}
