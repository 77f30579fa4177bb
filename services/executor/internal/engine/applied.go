package engine

import (
	"sync"
)

// appliedCommands are the commands that were durably taken up since the last look began. That look may have
// read them before, so they are skipped when its commands are taken up. It is safe for concurrent use.
type appliedCommands struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

// forget empties the set when a new look begins: what is durably taken up by now is no longer read.
func (s *appliedCommands) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ids)
}

func (s *appliedCommands) add(ids []int64) {
	if len(ids) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[int64]struct{}{}
	}
	for _, id := range ids {
		s.ids[id] = struct{}{}
	}
}

func (s *appliedCommands) has(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}
