package obs

import (
	"log/slog"
	"sync"
	"time"
)

// maxKinds bounds what a Seldom remembers. Kinds are constants of the code, of which there are far fewer.
const maxKinds = 1000

// Seldom lets one line of each kind through in half a minute and counts those between, for what may happen
// with every request while something is away. The zero value is usable. It is safe for concurrent use.
type Seldom struct {
	mu    sync.Mutex
	kinds map[string]*repeated
}

type repeated struct {
	told time.Time
	left int
}

// Level is the level at which a line of this kind is logged that is worth level by itself: debug if one was
// told less than half a minute ago. left is how many were left out since then.
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
		s.kinds[kind] = &repeated{told: now}
		return level, 0
	case now.Sub(k.told) < outageEvery:
		k.left++
		return slog.LevelDebug, 0
	}
	left, k.told, k.left = k.left, now, 0
	return level, left
}
