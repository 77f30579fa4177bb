package engine

import (
	"sync"
)

// appliedCommands are the commands that became durably applied since the present look began. The look may
// have read them before that, so they are skipped. It is safe for concurrent use.
type appliedCommands struct {
	mu  sync.Mutex
	ids map[int64]struct{}
}

// forget empties the set when a look begins: the look does not read commands that are durably applied by now.
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
