package sched

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Gate admits attempts before they take a slot. An attempt reaches a gate in its turn, and waits there
// without a slot and without a goroutine. Once it has passed all gates it takes the next free slot.
// Implementations are safe for concurrent use and never block.
type Gate interface {
	// Kind names the gate in metrics and explanations.
	Kind() GateKind
	// Concerns reports whether a call must pass this gate. It is called once for every attempt, so it must
	// be cheap.
	Concerns(req GateRequest) bool
	// Enter asks for a pass. The gate calls ready with it, before Enter returns or later, on any goroutine.
	// It must not hold a lock then that Enter, cancel or a Release takes. cancel withdraws the request. A
	// ready call that comes during cancel is allowed; its pass is released at once.
	Enter(req GateRequest, ready func(Pass)) (cancel func())
	// WaitOf describes what a waiting request waits for. ok is false if that is not known.
	WaitOf(req GateRequest) (GateWait, bool)
}

// SessionGate is a Gate that must know for which ownership session it admits attempts.
type SessionGate interface {
	Gate
	// Begin starts the session of owner. Passes of earlier sessions become void, and their releases do
	// nothing. The engine calls it before the first attempt of owner enters.
	Begin(owner journal.Owner)
	// End reports that owner has no attempts in flight for which it is responsible.
	End(owner journal.Owner)
}

// Pass permits an attempt to begin, as far as one gate is concerned.
type Pass struct {
	// Release is called once, when the attempt has ended or will not begin; nil does nothing. It must not
	// block.
	Release func()
	// Until is when an unused pass expires. The attempt then enters again. The zero time means never.
	Until time.Time
	// Carry, if set, adds to the context of the attempt what its call needs to know of the pass.
	Carry func(context.Context) context.Context
}

// GateRequest describes an attempt to a gate. Two requests of one attempt are equal.
type GateRequest struct {
	Namespace, RunID string
	Ref              workgraph.Ref
	Attempt          int
	Actor            string
	// Key is the concurrency key without the namespace. It is usually empty.
	Key string
	// Priority is 1 (first) to 4.
	Priority int
	// Remote reports that a remote worker serves the actor.
	Remote bool
	// Queued is when the attempt was ready to begin.
	Queued time.Time
	// Model is the model call that the attempt is to make; the zero value means none.
	Model ModelCall
}

// ModelCall is a model call as it is estimated before the attempt begins.
type ModelCall struct {
	Profile string
	// Input and Output are tokens.
	Input, Output int64
}

// GateKind is the kind of what an attempt waits for.
type GateKind string

// The kinds of waiting.
const (
	GateSlot   GateKind = "slot"  // no slot of the executor is free
	GateKey    GateKind = "key"   // another call holds the concurrency key
	GateLimit  GateKind = "limit" // the limit of concurrent calls of an actor is reached
	GateRate   GateKind = "rate"  // the rate limit is reached
	GateWorker GateKind = "worker"
	GateQuota  GateKind = "quota" // the quota of the namespace is reached
	// GateAccount means that the account at a model provider has no room.
	GateAccount GateKind = "account"
)

// GateWait describes why an attempt waits.
type GateWait struct {
	Kind GateKind
	// Name is the key, actor, limit or slot that it waits for.
	Name  string
	Since time.Time
	// Until is when the wait ends by itself, if that is known.
	Until time.Time
	// HolderRunIDs are the runs that hold what it waits for, as far as this executor knows.
	HolderRunIDs []string
	// Message is a further sentence; it may be empty.
	Message string
}

// passage is the way of one attempt through its gates. The scheduler's lock guards it.
type passage struct {
	gates  []int // indexes in Scheduler.gates of those that concern the attempt, in order
	passes []Pass
	has    []bool
	// at is the gate at which it waits, as an index of gates; len(gates) once it has passed all.
	at int
	// turn counts the gates that it entered, so that a late answer is recognized.
	turn   int
	since  time.Time
	cancel func()
	gone   bool
	place  *list.Element // in Scheduler.waiting
}

// missing is the first gate without a valid pass. stale returns an expired pass.
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

// give removes all passes from p and returns their releases.
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

// Carry adds to the context of a task that runs what its passes carry.
func (a *Task) Carry(ctx context.Context) context.Context {
	if a.way == nil {
		return ctx
	}
	for _, p := range a.way.passes {
		if p.Carry != nil {
			ctx = p.Carry(ctx)
		}
	}
	return ctx
}

// KeyGate serializes attempts of this process with equal concurrency keys. It is the default of an engine
// without a gate for keys.
type KeyGate struct {
	mu   sync.Mutex
	keys map[string]*keyLock
}

// keyLock is a concurrency key that is held.
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

// NewKeyGate returns a gate with no key held.
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

// passOn gives the key to the request that has waited longest.
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

// WaitOf implements Gate.
func (g *KeyGate) WaitOf(req GateRequest) (GateWait, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[req.Namespace+"\x00"+req.Key]
	if k == nil {
		return GateWait{}, false
	}
	return GateWait{Kind: GateKey, Name: req.Key, Since: k.since, HolderRunIDs: []string{k.holder}}, true
}
