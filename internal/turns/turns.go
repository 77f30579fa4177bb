// Package turns owns how many at once of one kind of work each key may have under way. It must not know what
// the work is.
package turns

import (
	"context"
	"maps"
	"sync"
	"time"
)

// Turns are a number of turns for every key. One key's work waits behind itself alone. It is safe for
// concurrent use.
type Turns struct {
	limit int
	// rests says that keys stand back: see NewResting.
	rests bool

	mu    sync.Mutex
	byKey map[string]*places
	// sweepAt is of how many keys something is known when those that owe nothing any more are forgotten.
	sweepAt int
	// last are the two keys that took turns last.
	last [2]use
}

// use is when a key took a turn.
type use struct {
	key string
	at  time.Time
}

// places are those of one key, for as long as it uses any.
type places struct {
	taken chan struct{}
	users int
	// owed is how long the key is to stand back, as of the time.
	owed time.Duration
	asOf time.Time
}

const (
	// restFrom is how much a key owes before it stands back, restMost the longest that it does so.
	restFrom = 5 * time.Millisecond
	restMost = time.Second
	// restBeside is how long ago another key took a turn for which a key stands back.
	restBeside = time.Second
	// minSweep is how many keys are remembered at least before it is looked which can be forgotten.
	minSweep = 100
)

// New returns limit turns for every key, at least one.
func New(limit int) *Turns { return &Turns{limit: max(1, limit), byKey: map[string]*places{}} }

// NewResting is New for work that takes processors: a key that uses a turn for long, or turns one after the
// other, leaves it unused for as long again, as long as others take turns too. So they find a processor, and
// the one who computes without end gets half of what it would alone.
func NewResting(limit int) *Turns {
	t := New(limit)
	t.rests, t.sweepAt = true, minSweep
	return t
}

// Enter waits for a turn of the key, at most until ctx ends; then its cause is the error. After success leave
// must be called, once.
func (t *Turns) Enter(ctx context.Context, key string) (leave func(), err error) {
	return t.EnterUnless(ctx, key, nil)
}

// Try takes a turn if one is free.
func (t *Turns) Try(key string) (leave func(), ok bool) {
	p := t.use(key)
	select {
	case p.taken <- struct{}{}:
		return t.leaving(key, p), true
	default:
		t.forget(key, p)
		return nil, false
	}
}

// EnterUnless is Enter that also ends when unless is closed: then there is no error and no turn, and leave is
// nil. A turn that is free is taken whatever has ended.
func (t *Turns) EnterUnless(ctx context.Context, key string, unless <-chan struct{}) (leave func(), err error) {
	p := t.use(key)
	select {
	case p.taken <- struct{}{}:
		return t.leaving(key, p), nil
	default:
	}
	select {
	case p.taken <- struct{}{}:
		return t.leaving(key, p), nil
	case <-unless:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.forget(key, p)
	return nil, err
}

// Keys is of how many keys turns are used or waited for.
func (t *Turns) Keys() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, p := range t.byKey {
		if p.users > 0 {
			n++
		}
	}
	return n
}

func (t *Turns) use(key string) *places {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byKey[key]
	if p == nil {
		if t.rests && len(t.byKey) >= t.sweepAt {
			t.sweep()
		}
		p = &places{taken: make(chan struct{}, t.limit)}
		t.byKey[key] = p
	}
	p.users++
	return p
}

// sweep forgets keys that use no turns and owe nothing. The caller holds t.mu.
func (t *Turns) sweep() {
	now := time.Now()
	maps.DeleteFunc(t.byKey, func(_ string, p *places) bool { return p.users == 0 && p.owed <= now.Sub(p.asOf) })
	t.sweepAt = max(minSweep, 2*len(t.byKey))
}

func (t *Turns) leaving(key string, p *places) (leave func()) {
	give := func() {
		<-p.taken
		t.forget(key, p)
	}
	if !t.rests {
		return give
	}
	begun := time.Now()
	t.mu.Lock()
	if t.last[0].key != key {
		t.last[1] = t.last[0]
	}
	t.last[0] = use{key, begun}
	t.mu.Unlock()
	return func() {
		if rest := t.rest(key, p, begun); rest > 0 {
			time.AfterFunc(rest, give)
			return
		}
		give()
	}
}

// rest is how long a turn that ends now is to stay unused. What a key owes, the time passes that it used none.
func (t *Turns) rest(key string, p *places, begun time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	p.owed = max(0, p.owed-max(0, begun.Sub(p.asOf))) + now.Sub(begun)
	p.asOf = now
	other := t.last[0]
	if other.key == key {
		other = t.last[1]
	}
	if p.owed < restFrom || other.key == key || other.at.IsZero() || now.Sub(other.at) > restBeside {
		return 0
	}
	rest := min(p.owed, restMost)
	p.owed, p.asOf = 0, now.Add(rest)
	return rest
}

func (t *Turns) forget(key string, p *places) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.users--; p.users == 0 && p.owed == 0 {
		delete(t.byKey, key)
	}
}
