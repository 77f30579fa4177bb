package turns

import (
	"maps"
	"math"
	"time"
)

const (
	// restFrom is how much a key owes before it stands back, restMost the longest that it does so.
	restFrom = 5 * time.Millisecond
	restMost = time.Second
	// lately is how far back it matters what a key has used, more or less: it counts the less the longer ago
	// it was.
	lately = time.Second
	// heavier is how many times as much as another key a key has used lately when it stands back for it.
	heavier = 1.5
	// beside is at how many other keys it looks.
	beside = 16
	// minSweep is how many keys are remembered at least before it is looked which can be forgotten.
	minSweep = 100
)

// NewResting is New for work that takes processors. A key that uses a turn for long, or turns one after the
// other, pauses for as long as it used them, while there are others that use less. So the others find a
// processor, and a key that computes without end gets half of what it would alone.
func NewResting(limit int) *Turns {
	t := New(limit)
	t.rests, t.sweepAt = true, minSweep
	return t
}

// NewComputing is NewResting for all the work that takes processors in a process which may use so many of
// them: one key has half of them, at least one. Services of one process share these turns, so that a key that
// keeps one service busy leaves processors to others at all of them.
func NewComputing(processors int) *Turns { return NewResting(max(1, processors/2)) }

// wear is what a key has used, as of a time.
type wear struct {
	// owed is the length of its pause, which passes while it uses nothing.
	owed time.Duration
	// used is how long it has used turns lately.
	used time.Duration
	asOf time.Time
}

// at is the pause that is left at a later time, if the key has used nothing more.
func (w wear) at(now time.Time) wear {
	idle := now.Sub(w.asOf)
	if idle <= 0 {
		return w
	}
	return wear{owed: max(0, w.owed-idle), used: time.Duration(float64(w.used) * math.Exp(-idle.Seconds()/lately.Seconds())), asOf: now}
}

// leaving returns what ends a turn that begins now. The caller holds t.mu.
func (t *Turns) leaving(l *line) (leave func()) {
	if !t.rests {
		return func() { t.leave(l) }
	}
	begun := time.Now()
	l.wear = l.wear.at(begun)
	return func() {
		if rest := t.rest(l, begun); rest > 0 {
			time.AfterFunc(rest, func() { t.leave(l) })
			return
		}
		t.leave(l)
	}
}

// rest is how long a turn that ends now is to stay unused.
func (t *Turns) rest(l *line, begun time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	took := now.Sub(begun)
	l.wear = wear{owed: l.wear.owed + took, used: l.wear.used + took, asOf: now}
	if l.wear.owed < restFrom || !t.weighsOn(l, now) {
		return 0
	}
	rest := min(l.wear.owed, restMost)
	l.wear.owed = 0
	return rest
}

// weighsOn reports whether there is another key at work that has used less lately. The caller holds t.mu.
func (t *Turns) weighsOn(l *line, now time.Time) bool {
	looked := 0
	for _, other := range t.byKey {
		if other == l {
			continue
		}
		if looked++; looked > beside {
			break
		}
		if (other.used > 0 || now.Sub(other.wear.asOf) < lately) && heavier*float64(other.wear.at(now).used) < float64(l.wear.used) {
			return true
		}
	}
	return false
}

// sweep forgets keys that use no turns and have rested. The caller holds t.mu.
func (t *Turns) sweep() {
	now := time.Now()
	maps.DeleteFunc(t.byKey, func(_ string, l *line) bool { return l.idle() && now.Sub(l.wear.asOf) > max(lately, l.wear.owed) })
	t.sweepAt = max(minSweep, 2*len(t.byKey))
}
