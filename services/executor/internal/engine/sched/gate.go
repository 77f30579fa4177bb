package sched

import (
	"container/list"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Gate lets attempts pass before they take a place. An attempt comes to it when its turn has come, waits
// there without a place and without a goroutine, and takes a place as soon as one is free after it has
// passed. Implementations are safe for concurrent use and never block.
type Gate interface {
	// Kind names the gate in metrics and explanations.
	Kind() GateKind
	// Concerns reports whether a call like this has to pass at all. It is asked once for every attempt, so it
	// must cost next to nothing.
	Concerns(req GateRequest) bool
	// Enter asks for a pass. ready is called when there is one, before Enter returns or later, on any
	// goroutine, but not while a lock is held that Enter, the returned cancel or a Release takes. cancel
	// gives up; ready may still be called while it runs, and the pass is released at once then.
	Enter(req GateRequest, ready func(Pass)) (cancel func())
	// Holding tells what keeps a request waiting that entered and was not let through yet. The second result
	// is false when that is not known.
	Holding(req GateRequest) (GateWait, bool)
}

// SessionGate is a Gate that must know on whose behalf it lets attempts through.
type SessionGate interface {
	Gate
	// Begin says that the attempts from now on are those of owner. All passes of the owner before are void;
	// what it still releases means nothing any more. The engine calls it before the first attempt of owner
	// enters.
	Begin(owner journal.Owner)
	// End says that owner has nothing in flight any more that it still answers for.
	End(owner journal.Owner)
}

// Pass says that an attempt may begin as far as one gate is concerned.
type Pass struct {
	// Release is called once, when the attempt has ended or does not begin after all; nil does nothing. It
	// must not block.
	Release func()
	// Until is when a pass goes stale that was not used; the attempt then enters again. Zero means never.
	Until time.Time
}

// GateRequest is what a gate is told of an attempt. Two requests of one attempt are equal.
type GateRequest struct {
	Namespace, RunID string
	Ref              workgraph.Ref
	Attempt          int
	Actor            string
	// Key is the concurrency key, without the namespace; mostly empty.
	Key string
	// Priority is 1 (first) to 4.
	Priority int
	// Remote says that the actor is served by a remote worker.
	Remote bool
	// Queued is when the attempt could have begun for all its run cared.
	Queued time.Time
}

// GateKind says what kind of thing an attempt waits for.
type GateKind string

// The kinds of waiting.
const (
	GatePlace  GateKind = "place" // the executor has no place free
	GateKey    GateKind = "key"   // somebody holds the concurrency key
	GateLimit  GateKind = "limit" // as many calls of an actor run as may
	GateRate   GateKind = "rate"  // as many calls began as may
	GateWorker GateKind = "worker"
	GateQuota  GateKind = "quota" // the namespace has as much open as it may
)

// GateWait is what holds an attempt back.
type GateWait struct {
	Kind GateKind
	// Name is the key, actor, limit or place that it waits for.
	Name  string
	Since time.Time
	// Until is when it ends by itself, if that is known.
	Until time.Time
	// HolderRunIDs are runs that hold what it waits for, as far as known here.
	HolderRunIDs []string
	// Message says more in a sentence; may be empty.
	Message string
}

// passage is the way of one attempt through its gates. The scheduler's lock guards it.
type passage struct {
	gates  []int // of scheduler.gates, those that concern the attempt, in order
	passes []Pass
	has    []bool
	// at is the gate that it waits at, as an index of gates; len(gates) when it has passed all.
	at int
	// turn counts the gates it came to, so that a late answer of one is told apart.
	turn   int
	since  time.Time
	cancel func()
	gone   bool
	place  *list.Element // in scheduler.waiting
}

// missing is the first gate whose pass is not there or stale, which is then given back by the returned
// function.
func (p *passage) missing(now time.Time) (at int, stale func()) {
	for i := range p.gates {
		if !p.has[i] {
			return i, nil
		}
		if u := p.passes[i].Until; !u.IsZero() && now.After(u) {
			if stale = p.passes[i].Release; stale == nil {
				stale = func() {}
			}
			p.has[i], p.passes[i] = false, Pass{}
			return i, stale
		}
	}
	return len(p.gates), nil
}

// give takes all passes out of p.
func (p *passage) give() []func() {
	var out []func()
	for i := range p.passes {
		if p.has[i] && p.passes[i].Release != nil {
			out = append(out, p.passes[i].Release)
		}
		p.has[i], p.passes[i] = false, Pass{}
	}
	return out
}

// KeyGate keeps attempts of this process with equal concurrency keys apart. It is what an engine uses that is
// given no gate for keys.
type KeyGate struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

// keyLock is a concurrency key that somebody holds.
type keyLock struct {
	holder  string // a run id
	since   time.Time
	waiting list.List // of *keyWaiter
}

type keyWaiter struct {
	run   string
	ready func(Pass)
	place *list.Element
}

// NewKeyGate returns a gate that nobody has passed.
func NewKeyGate() *KeyGate { return &KeyGate{keys: map[string]*keyLock{}} }

// Kind implements Gate.
func (g *KeyGate) Kind() GateKind { return GateKey }

// Concerns implements Gate.
func (g *KeyGate) Concerns(req GateRequest) bool { return req.Key != "" }

// Enter implements Gate.
func (g *KeyGate) Enter(req GateRequest, ready func(Pass)) func() {
	key := req.Namespace + "\x00" + req.Key
	g.mu.Lock()
	k := g.keys[key]
	if k == nil {
		g.keys[key] = &keyLock{holder: req.RunID, since: time.Now()}
		g.mu.Unlock()
		ready(Pass{Release: g.passOn(key)})
		return func() {}
	}
	w := &keyWaiter{run: req.RunID, ready: ready}
	w.place = k.waiting.PushBack(w)
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if w.place != nil {
			k.waiting.Remove(w.place)
			w.place = nil
		}
	}
}

// passOn gives the key to who has waited longest.
func (g *KeyGate) passOn(key string) func() {
	return sync.OnceFunc(func() {
		g.mu.Lock()
		k := g.keys[key]
		next := k.waiting.Front()
		if next == nil {
			delete(g.keys, key)
			g.mu.Unlock()
			return
		}
		heir := k.waiting.Remove(next).(*keyWaiter)
		heir.place = nil
		k.holder, k.since = heir.run, time.Now()
		g.mu.Unlock()
		heir.ready(Pass{Release: g.passOn(key)})
	})
}

// Holding implements Gate.
func (g *KeyGate) Holding(req GateRequest) (GateWait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[req.Namespace+"\x00"+req.Key]
	if k == nil {
		return GateWait{}, false
	}
	return GateWait{Kind: GateKey, Name: req.Key, Since: k.since, HolderRunIDs: []string{k.holder}}, true
}
