// Package turns owns how many at once of one kind of work each key may have under way. It must not know what the work is.
package turns

import (
	"context"
	"sync"
)

// Turns are a number of turns for every key. One key's work waits behind itself alone. It is safe for concurrent use.
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

// Enter waits for a turn of the key, at most until ctx ends; then its cause is the error. After success leave must be called, once.
func (t *Turns) Enter(ctx context.Context, key string) (leave func(), err error) {
	t.mu.Lock()
	p := t.byKey[key]
	if p == nil {
		p = &places{taken: make(chan struct{}, t.limit)}
		t.byKey[key] = p
	}
	p.users++
	t.mu.Unlock()
	select {
	case p.taken <- struct{}{}:
	default:
		select {
		case p.taken <- struct{}{}:
		case <-ctx.Done():
			t.forget(key, p)
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		<-p.taken
		t.forget(key, p)
	}, nil
}

func (t *Turns) forget(key string, p *places) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(t.byKey, key)
	}
}
