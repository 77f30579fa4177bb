// Package turns owns how many at once of one kind of work each key may have under way. It must not know what
// the work is.
package turns

import (
	"context"
	"sync"
)

// Turns are a number of turns for every key. One key's work waits behind itself alone. It is safe for
// concurrent use.
type Turns struct {
	limit int

	mu    sync.Mutex
	byKey map[string]*places
}

// places are those of one key, for as long as it uses any.
type places struct {
	taken chan struct{}
	users int
}

// New returns limit turns for every key, at least one.
func New(limit int) *Turns { return &Turns{limit: max(1, limit), byKey: map[string]*places{}} }

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
	return len(t.byKey)
}

func (t *Turns) use(key string) *places {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byKey[key]
	if p == nil {
		p = &places{taken: make(chan struct{}, t.limit)}
		t.byKey[key] = p
	}
	p.users++
	return p
}

func (t *Turns) leaving(key string, p *places) (leave func()) {
	return func() {
		<-p.taken
		t.forget(key, p)
	}
}

func (t *Turns) forget(key string, p *places) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(t.byKey, key)
	}
}
