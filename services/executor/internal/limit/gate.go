package limit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// maxKey is the longest concurrency key that is kept as it is.
const maxKey = 280

// safe is a key that every database takes: one that is odd or long goes by its hash.
func safe(key string) string {
	if len(key) <= maxKey && utf8.ValidString(key) && !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' }) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// enter puts a request into the queue of its limit.
func (l *Limiter) enter(k Key, kind sched.GateKind, req sched.GateRequest, ready func(sched.Pass)) func() {
	l.mu.Lock()
	b := l.places[k]
	if b == nil {
		b = &localLimit{key: k, kind: kind}
		l.places[k] = b
	}
	w := newWaiter(req, ready)
	b.push(w)
	var out []func()
	// A place that was released a moment ago may still be held here.
	if b.rival.IsZero() && b.over == 0 {
		out = b.hand(l, time.Now())
	}
	if len(b.waiting) > 0 {
		l.mark(b)
	}
	return l.entered(b, w, out)
}

// enterRate is enter for beginnings.
func (l *Limiter) enterRate(k rateKey, req sched.GateRequest, ready func(sched.Pass)) func() {
	l.mu.Lock()
	b := l.rates[k]
	if b == nil {
		b = &localLimit{key: k.Key, also: k.also, kind: sched.GateRate, rate: true}
		l.rates[k] = b
	}
	w := newWaiter(req, ready)
	b.push(w)
	return l.entered(b, w, b.turns(l, time.Now()))
}

// entered gives l.mu back, calls out and returns the way to give up.
func (l *Limiter) entered(b *localLimit, w *waiter, out []func()) func() {
	l.mu.Unlock()
	for _, f := range out {
		f()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(b.waiting, w)
		if i < 0 {
			return
		}
		b.waiting = slices.Delete(b.waiting, i, i+1)
		if !b.rate && b.current(l) {
			l.mark(b)
		}
	}
}

// holding describes the limit that keeps the waiters for k.
func (l *Limiter) holding(k Key, kind sched.GateKind) (sched.GateWait, bool) {
	out := sched.GateWait{Kind: kind, Name: k.Name}
	if kind == sched.GateKey { // no limit is meant, but the key itself
		_, out.Name, _ = strings.Cut(k.Name, "/")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.places[k]
	if b == nil {
		return out, false
	}
	for _, h := range b.holds[:min(len(b.holds), maxRuns)] {
		if out.Since.IsZero() || h.since.Before(out.Since) {
			out.Since = h.since
		}
		if !slices.Contains(out.HolderRunIDs, h.run) {
			out.HolderRunIDs = append(out.HolderRunIDs, h.run)
		}
	}
	return out, true
}

// keyGate bounds calls with equal concurrency keys.
type keyGate struct{ *Limiter }

func (g *keyGate) Kind() sched.GateKind { return sched.GateKey }

// Concerns implements sched.Gate. A key without a limit of its own means one at a time.
func (g *keyGate) Concerns(req sched.GateRequest) bool {
	if req.Key == "" {
		return false
	}
	x, ok := g.table.Load().keys[Key{req.Namespace, req.Key}]
	return !ok || x.MaxConcurrent > 0
}

func (g *keyGate) Enter(req sched.GateRequest, ready func(sched.Pass)) func() {
	return g.enter(ConcurrencyKey(req.Namespace, safe(req.Key)), sched.GateKey, req, ready)
}

func (g *keyGate) WaitOf(req sched.GateRequest) (sched.GateWait, bool) {
	return g.holding(ConcurrencyKey(req.Namespace, safe(req.Key)), sched.GateKey)
}

// Begin implements sched.SessionGate, for the other gates too.
func (g *keyGate) Begin(owner journal.Owner) { g.begin(owner) }

// End implements sched.SessionGate, for the other gates too.
func (g *keyGate) End(owner journal.Owner) { g.end(owner) }

// actorGate bounds calls of an actor.
type actorGate struct{ *Limiter }

func (g *actorGate) Kind() sched.GateKind { return sched.GateLimit }

func (g *actorGate) Concerns(req sched.GateRequest) bool {
	k := g.table.Load()
	return len(k.actors) > 0 && k.actors[Key{req.Namespace, req.Actor}].MaxConcurrent > 0
}

func (g *actorGate) Enter(req sched.GateRequest, ready func(sched.Pass)) func() {
	return g.enter(ActorKey(req.Namespace, req.Actor), sched.GateLimit, req, ready)
}

func (g *actorGate) WaitOf(req sched.GateRequest) (sched.GateWait, bool) {
	return g.holding(ActorKey(req.Namespace, req.Actor), sched.GateLimit)
}

// rateGate lets calls begin no faster than the rates of their key and of their actor allow. A pass expires
// soon.
type rateGate struct{ *Limiter }

func (g *rateGate) Kind() sched.GateKind { return sched.GateRate }

// of is the rates that concern a request; the zero value is none.
func (g *rateGate) of(req sched.GateRequest) (k rateKey) {
	known := g.table.Load()
	if len(known.actors) > 0 && known.actors[Key{req.Namespace, req.Actor}].MaxRate > 0 {
		k.Key = ActorKey(req.Namespace, req.Actor)
	}
	if req.Key != "" && len(known.keys) > 0 && known.keys[Key{req.Namespace, req.Key}].MaxRate > 0 {
		k.also = k.Name
		k.Key = ConcurrencyKey(req.Namespace, safe(req.Key))
	}
	return k
}

func (g *rateGate) Concerns(req sched.GateRequest) bool { return g.of(req) != rateKey{} }

func (g *rateGate) Enter(req sched.GateRequest, ready func(sched.Pass)) func() {
	k := g.of(req)
	if (k == rateKey{}) {
		ready(sched.Pass{}) // lifted in between
		return func() {}
	}
	return g.enterRate(k, req, ready)
}

func (g *rateGate) WaitOf(req sched.GateRequest) (sched.GateWait, bool) {
	k := g.of(req)
	out := sched.GateWait{Kind: sched.GateRate, Name: k.Name}
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.rates[k]
	if b == nil {
		return out, false
	}
	if len(b.moments) > 0 {
		out.Until = b.moments[0].from
	} else {
		out.Until = b.turn
	}
	return out, true
}
