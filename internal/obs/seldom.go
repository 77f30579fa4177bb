package obs

import (
	"log/slog"
	"sync"
	"time"
)

// maxKinds bounds the memory of a Seldom. Kinds are constants of the code, of which there are far fewer.
const maxKinds = 1000

// Seldom lets one line of each kind through in half a minute and counts the others, for lines that every
// request may cause during an outage. The zero value is usable. It is safe for concurrent use.
type Seldom struct {
	mu    sync.Mutex
	kinds map[string]*repeated
}

type repeated struct {
	logged time.Time
	left   int
}

// Level is the level for a line of this kind, which deserves level by itself: debug if one was passed less
// than half a minute ago. left is how many were left out since then.
func (s *Seldom) Level(kind string, level slog.Level) (_ slog.Level, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	k := s.kinds[kind]
	switch {
	case k == nil:
		if s.kinds == nil || len(s.kinds) >= maxKinds {
			s.kinds = map[string]*repeated{}
		}
		s.kinds[kind] = &repeated{logged: now}
		return level, 0
	case now.Sub(k.logged) < outageEvery:
		k.left++
		return slog.LevelDebug, 0
	}
	left, k.logged, k.left = k.left, now, 0
	return level, left
}
