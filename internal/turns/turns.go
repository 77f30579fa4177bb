// Package turns bounds how much of one kind of work each key has under way, and all keys together. It must
// not know what the work is. It is written here because semaphores of libraries have one queue, in which a
// key with much work delays the others.
package turns

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// ErrFull is the error of who comes while as many of the key wait for a turn as may.
var ErrFull = errors.New("too many wait for a turn already")

// Bounds say how many turns there are.
type Bounds struct {
	// Key is how many turns one key has at once; less than one is one.
	Key int
	// All is how many turns all keys have together; 0 does not bound.
	All int
	// Waiting is how many of one key may wait for a turn; 0 does not bound.
	Waiting int
}

// Turns are a number of turns for every key. One key's work waits behind itself, in the order of its coming.
// Where all keys together have as many turns as there are, each that waits gets one in turn, however many of
// it wait. Turns are safe for concurrent use.
type Turns struct {
	bounds Bounds
	// rests says that keys stand back: see NewResting.
	rests bool

	mu    sync.Mutex
	byKey map[string]*line
	// used are the turns of all keys.
	used int
	// next holds the queues of keys that would get a turn if there was one, in that order. It is empty unless
	// all turns are used.
	next list.List // of *line
	// sweepAt is of how many keys something is known when those that have rested are forgotten.
	sweepAt int
}

// line is what one key uses and waits for, and what it has used lately.
type line struct {
	key     string
	used    int
	waiting list.List // of chan struct{}, closed when the turn comes
	// queued says that the line stands in next.
	queued bool
	wear   wear
}

// New returns limit turns for every key, at least one.
func New(limit int) *Turns { return Within(Bounds{Key: limit}) }

// Within returns turns that keep to these bounds.
func Within(b Bounds) *Turns {
	b.Key = max(1, b.Key)
	return &Turns{bounds: b, byKey: map[string]*line{}}
}

// Enter waits for a turn of the key, at most until ctx ends; then its cause is the error. It is ErrFull where
// too many wait already. After success leave must be called, once.
func (t *Turns) Enter(ctx context.Context, key string) (leave func(), err error) {
	return t.EnterUnless(ctx, key, nil)
}

// Try takes a turn if one is free.
func (t *Turns) Try(key string) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.line(key)
	if !t.free(l) {
		t.forget(l)
		return nil, false
	}
	t.take(l)
	return t.leaving(l), true
}

// EnterUnless is Enter that also ends when unless is closed: then there is no error and no turn, and leave is
// nil. A turn that is free is taken whatever has ended.
func (t *Turns) EnterUnless(ctx context.Context, key string, unless <-chan struct{}) (leave func(), err error) {
	t.mu.Lock()
	l := t.line(key)
	if t.free(l) {
		t.take(l)
		leave = t.leaving(l)
		t.mu.Unlock()
		return leave, nil
	}
	if t.bounds.Waiting > 0 && l.waiting.Len() >= t.bounds.Waiting {
		t.mu.Unlock()
		return nil, ErrFull
	}
	in := make(chan struct{})
	place := l.waiting.PushBack(in)
	t.queue(l)
	t.mu.Unlock()
	select {
	case <-in:
	case <-unless:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-in: // perhaps at the same moment as the end
		return t.leaving(l), nil
	default:
		l.waiting.Remove(place) // admit skips a line in which nobody waits any more
		t.forget(l)
		return nil, err
	}
}

// Keys is of how many keys turns are used or waited for.
func (t *Turns) Keys() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, l := range t.byKey {
		if !l.idle() {
			n++
		}
	}
	return n
}

// What follows is called with t.mu held, but for leave.

func (t *Turns) line(key string) *line {
	l := t.byKey[key]
	if l == nil {
		if t.rests && len(t.byKey) >= t.sweepAt {
			t.sweep()
		}
		l = &line{key: key}
		t.byKey[key] = l
	}
	return l
}

// free reports whether the line may have one more turn now. Then nobody waits who could have it instead.
func (t *Turns) free(l *line) bool {
	return l.used < t.bounds.Key && (t.bounds.All <= 0 || t.used < t.bounds.All)
}

func (t *Turns) take(l *line) {
	l.used++
	t.used++
}

// leave gives a turn back.
func (t *Turns) leave(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.used--
	t.used--
	t.queue(l)
	for e := t.next.Front(); e != nil && t.free(e.Value.(*line)); e = t.next.Front() {
		first := t.next.Remove(e).(*line)
		first.queued = false
		if first.waiting.Len() > 0 {
			t.take(first)
			close(first.waiting.Remove(first.waiting.Front()).(chan struct{}))
		}
		t.queue(first)
		t.forget(first)
	}
	t.forget(l)
}

// queue makes the queue of a key wait for its turn among the others, if the key's own bound admits somebody
// in it.
func (t *Turns) queue(l *line) {
	if !l.queued && l.waiting.Len() > 0 && l.used < t.bounds.Key {
		l.queued = true
		t.next.PushBack(l)
	}
}

// idle reports whether nothing is in the line.
func (l *line) idle() bool { return l.used == 0 && l.waiting.Len() == 0 && !l.queued }

// forget drops a line that nothing is in. Where keys rest, it is remembered until it has rested.
func (t *Turns) forget(l *line) {
	if l.idle() && l.wear.asOf.IsZero() {
		delete(t.byKey, l.key)
	}
}
