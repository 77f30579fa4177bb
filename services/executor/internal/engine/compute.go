package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// maxEvaluation is how long the expressions of one command may be evaluated. A run is locked meanwhile; what they may cost ends them long
// before on a machine that is not overloaded.
const maxEvaluation = 10 * time.Second

// evaluation is the context of the expressions of one command. It ends by time alone: an evaluation that is interrupted fails its visit, so
// the end of an executor must not interrupt one.
func evaluation() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), maxEvaluation, fmt.Errorf("the expressions of one step of the run take longer than %s", maxEvaluation))
}

// computing bounds how much of a namespace's work keeps processors of this executor busy at once: calls of actors that compute, ends of
// calls in runs with expressions. Every namespace has turns of its own and gets them in order, so that however much one asks for, another finds
// a processor. It is safe for concurrent use.
type computing struct {
	limit int

	mu         sync.Mutex
	namespaces map[string]*turns
}

// turns are those of one namespace, for as long as it uses any.
type turns struct {
	places chan struct{}
	users  int
}

// computingLimit leaves processors to others where there are several; two go on even on one, so that a long evaluation does not hold up
// all short ones of its namespace.
func computingLimit() int { return max(2, runtime.GOMAXPROCS(0)/2) }

func newComputing(limit int) *computing {
	return &computing{limit: limit, namespaces: map[string]*turns{}}
}

// enter waits for a turn of the namespace, at most until ctx ends. After success leave must be called.
func (c *computing) enter(ctx context.Context, namespace string) (leave func(), err error) {
	c.mu.Lock()
	t := c.namespaces[namespace]
	if t == nil {
		t = &turns{places: make(chan struct{}, c.limit)}
		c.namespaces[namespace] = t
	}
	t.users++
	c.mu.Unlock()
	leave = func() {
		<-t.places
		c.forget(namespace, t)
	}
	select {
	case t.places <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case t.places <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		c.forget(namespace, t)
		return nil, context.Cause(ctx)
	}
}

// await waits for a turn of the namespace and goes on without one when that takes too long: what must be done is only put off.
func (c *computing) await(namespace string) (leave func()) {
	ctx, cancel := context.WithTimeout(context.Background(), maxEvaluation)
	defer cancel()
	leave, err := c.enter(ctx, namespace)
	if err != nil {
		return func() {}
	}
	return leave
}

// evaluates reports whether a step of the run may evaluate expressions.
func (r *run) evaluates() bool { return r.program.p.Evaluates() || r.regraphed.Load() }

func (c *computing) forget(namespace string, t *turns) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(c.namespaces, namespace)
	}
}
