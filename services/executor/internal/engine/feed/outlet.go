package feed

import (
	"context"
	"sync"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Interest names the ephemeral events of a run, or with Tree those of all runs whose root it is.
type Interest struct {
	Namespace, RunID string
	Tree             bool
}

// Elsewhere brings ephemeral events of other executors to Deliver. It is safe for concurrent use.
type Elsewhere interface {
	// Want asks for events until leave is called. It does not block, and the events may be late.
	Want(Interest) (leave func())
}

// From sets where the ephemeral events of runs come from that other executors own. It is called before any
// watch.
func (f *Feed) From(e Elsewhere) { f.elsewhere = e }

// Deliver passes ephemeral events of other executors on to the watchers here.
func (f *Feed) Deliver(events ...Event) { f.hub.publish(true, events...) }

// Watched reports whether somebody wants the ephemeral events of a run, here or at another executor.
func (f *Feed) Watched(runID, rootID string) bool { return f.hub.watched(runID, rootID) }

// maxInterests bounds the interests of one outlet: those of all watches of an executor.
const maxInterests = 200_000

// maxOutlet bounds the events that wait in an outlet, in bytes. Each namespace has maxHeldBytes of them.
const maxOutlet = 64 << 20

// Outlet gives another executor the ephemeral events of this process's runs. Events that it does not take in
// time are dropped, the oldest first. One goroutine may take, while others change the interests.
type Outlet struct {
	hub  *hub
	wake chan struct{}

	interests sync.Mutex
	undo      map[Interest]func()

	// mu is taken under the lock of the hub, and interests around it.
	mu    sync.Mutex
	queue map[string]*buffer // by namespace
	turns []string           // the namespaces whose events wait, in the order of their turns
	bytes int
}

// Outlet returns a new outlet. The caller closes it.
func (f *Feed) Outlet() *Outlet {
	return &Outlet{hub: f.hub, wake: make(chan struct{}, 1), undo: map[Interest]func(){}, queue: map[string]*buffer{}}
}

// outletSink is an outlet in one namespace, as the hub knows it.
type outletSink struct {
	o         *Outlet
	namespace string
}

// Begin adds an interest. What attempts under way have written so far comes with each call.
func (o *Outlet) Begin(i Interest) error {
	o.interests.Lock()
	defer o.interests.Unlock()
	if undo := o.undo[i]; undo != nil {
		undo()
	} else if len(o.undo) >= maxInterests {
		return errs.New(errs.ResourceExhausted, ReasonTooManyWatches, "%d runs are watched by one executor, which is the limit", maxInterests)
	}
	to := outletSink{o, i.Namespace}
	if i.Tree {
		o.undo[i] = o.hub.ofTree(i.RunID, to)
	} else {
		o.undo[i] = o.hub.ofRun(i.RunID, to, true, nil)
	}
	return nil
}

// End removes an interest.
func (o *Outlet) End(i Interest) {
	o.interests.Lock()
	defer o.interests.Unlock()
	undo := o.undo[i]
	delete(o.undo, i)
	if undo != nil {
		undo()
	}
}

// Close removes all interests.
func (o *Outlet) Close() {
	o.interests.Lock()
	defer o.interests.Unlock()
	for i, undo := range o.undo {
		undo()
		delete(o.undo, i)
	}
}

func (outletSink) wantsText() bool { return true }

// put takes the events of this process's runs alone, so that none goes around.
func (s outletSink) put(ev Event, far bool) {
	if far || ev.Ephemeral == nil || ev.Namespace != s.namespace {
		return
	}
	o := s.o
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue[s.namespace]
	if q == nil {
		if o.bytes >= maxOutlet {
			return
		}
		q = &buffer{}
		o.queue[s.namespace] = q
		o.turns = append(o.turns, s.namespace)
	}
	before := q.bytes
	if o.bytes+ev.size() <= maxOutlet {
		q.add(ev)
	}
	o.bytes += q.bytes - before
	signal(o.wake)
}

// Take waits for events, and returns those of one namespace. The namespaces take turns.
func (o *Outlet) Take(ctx context.Context) ([]Event, error) {
	for {
		o.mu.Lock()
		if len(o.turns) > 0 {
			ns := o.turns[0]
			o.turns = o.turns[1:]
			q := o.queue[ns]
			delete(o.queue, ns)
			o.bytes -= q.bytes
			o.mu.Unlock()
			return q.events, nil
		}
		o.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-o.wake:
		}
	}
}
