// Package admission bounds how much expensive work goes on at once: for each namespace, and for all together.
// While there is room for all, a namespace waits only behind its own work. The package must not know what the
// work is. It is written here because a weighted semaphore knows no namespaces and no order among them.
package admission

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Costs are about the number of things that a piece of work goes over.
const (
	// Free is the highest cost of work that passes at once.
	Free = 2_000
	// PerNamespace is the cost that one namespace may have under way. Work that costs more is admitted alone.
	PerNamespace = 20_000
	// Overall is what all work may cost at once.
	Overall = 4 * PerNamespace
	// Waiting is how many pieces of one namespace may wait.
	Waiting = 256
)

// ReasonBusy is the reason when a piece of work found no turn in time, or too many wait.
const ReasonBusy = "NAMESPACE_BUSY"

// Control lets work in. It is safe for concurrent use; the zero value is ready.
type Control struct {
	mu     sync.Mutex
	spaces map[string]*space
	// used is what the work that goes on costs.
	used int
	line list.List // of *piece, in the order of their coming
}

// space is a namespace with work under way or waiting.
type space struct{ used, waiting int }

type piece struct {
	namespace string
	cost      int
	in        chan struct{}
}

// Enter waits for the turn of a piece of work, at most until ctx ends. After success the caller must call
// leave when the work is done or given up.
func (c *Control) Enter(ctx context.Context, namespace string, cost int) (leave func(), err error) {
	if cost <= Free {
		return func() {}, nil
	}
	p := &piece{namespace: namespace, cost: min(cost, PerNamespace), in: make(chan struct{})}
	c.mu.Lock()
	s := c.spaces[namespace]
	if s == nil {
		if c.spaces == nil {
			c.spaces = map[string]*space{}
		}
		s = &space{}
		c.spaces[namespace] = s
	}
	if s.waiting >= Waiting {
		c.mu.Unlock()
		return nil, Busy(nil)
	}
	s.waiting++
	place := c.line.PushBack(p)
	c.admit()
	c.mu.Unlock()
	select {
	case <-p.in:
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		select {
		case <-p.in: // it was let in at the same moment
			c.done(p)
		default:
			c.line.Remove(place)
			s.waiting--
			c.forget(namespace)
			c.admit() // it may have stood before others
		}
		return nil, Busy(context.Cause(ctx))
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.done(p)
		})
	}, nil
}

// Busy is the error of work that found no turn before its context ended; err is the end of the context.
func Busy(err error) error {
	return errs.New(errs.ResourceExhausted, ReasonBusy, "too much large work of the namespace goes on or waits already").
		Hint("try again in a moment, or send smaller graphs and texts").RetryAfter(time.Second).With(err)
}

// admit admits waiting work in the order of arrival. Work with room in its namespace but not in the total
// holds up the work behind it, so that it is not overtaken for ever. The caller holds c.mu.
func (c *Control) admit() {
	for e := c.line.Front(); e != nil; {
		p, next := e.Value.(*piece), e.Next()
		s := c.spaces[p.namespace]
		if s.used+p.cost <= PerNamespace {
			if c.used+p.cost > Overall {
				return
			}
			c.line.Remove(e)
			s.waiting--
			s.used += p.cost
			c.used += p.cost
			close(p.in)
		}
		e = next
	}
}

// done gives back what a piece of work held. It is called with c.mu held.
func (c *Control) done(p *piece) {
	c.spaces[p.namespace].used -= p.cost
	c.used -= p.cost
	c.forget(p.namespace)
	c.admit()
}

// forget drops a namespace without work. It is called with c.mu held.
func (c *Control) forget(namespace string) {
	if s := c.spaces[namespace]; s.used == 0 && s.waiting == 0 {
		delete(c.spaces, namespace)
	}
}
