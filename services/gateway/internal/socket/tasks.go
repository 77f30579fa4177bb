package socket

import (
	"context"
	"sync"
)

// tasks are what is under way. Unlike a sync.WaitGroup they may begin while somebody waits for
// their end. The zero value has none. A panic in one is given to caught, and ends nothing else.
type tasks struct {
	caught func(v any)

	mu   sync.Mutex
	n    int
	idle chan struct{}
}

// Go does something in a goroutine.
func (t *tasks) Go(do func()) {
	end := t.begin()
	go func() {
		defer end()
		defer func() {
			if v := recover(); v != nil {
				t.caught(v)
			}
		}()
		do()
	}()
}

// begin counts one task, until end is called.
func (t *tasks) begin() (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.end
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait waits until nothing is under way, or until ctx ends.
func (t *tasks) wait(ctx context.Context) {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
