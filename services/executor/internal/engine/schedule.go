package engine

import (
	"container/list"
	"sync"
)

// scheduler bounds how many attempts run at once, gives runs their turns, and keeps attempts with equal concurrency keys
// apart. It is safe for concurrent use and never blocks.
type scheduler struct {
	limit   int
	perform func(*attempt)

	mu      sync.Mutex
	running int
	stopped bool
	queued  int
	ring    list.List // of *lane, those with something queued, the next one first
	lanes   map[*run]*lane
	keys    map[string]*keyLock
	idle    chan struct{} // closed when stopped and nothing runs
}

// lane is what one run has queued, in order.
type lane struct {
	run   *run
	items list.List
	place *list.Element
}

// keyLock is a concurrency key that somebody holds.
type keyLock struct{ waiting list.List }

func newScheduler(limit int, perform func(*attempt)) *scheduler {
	return &scheduler{limit: limit, perform: perform, lanes: map[*run]*lane{}, keys: map[string]*keyLock{}, idle: make(chan struct{})}
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
		l = &lane{run: a.run}
		s.lanes[a.run] = l
	}
	if front {
		a.place = l.items.PushFront(a)
	} else {
		a.place = l.items.PushBack(a)
	}
	a.lane = &l.items
	switch {
	case l.place != nil:
	case a.run.suspect.Load():
		l.place = s.ring.PushFront(l)
	default:
		l.place = s.ring.PushBack(l)
	}
	s.queued++
}

// dispatch starts attempts while there is room: one per run, then the next run. It is called with s.mu held.
func (s *scheduler) dispatch() {
	for s.running < s.limit && !s.stopped {
		first := s.ring.Front()
		if first == nil {
			return
		}
		l := first.Value.(*lane)
		a := l.items.Remove(l.items.Front()).(*attempt)
		a.place, a.lane = nil, nil
		s.queued--
		if l.items.Len() == 0 {
			s.ring.Remove(first)
			l.place = nil
			delete(s.lanes, l.run)
		} else {
			s.ring.MoveToBack(first)
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
		s.ring.Remove(l.place)
		delete(s.lanes, a.run)
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
