package limit

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// refresh is how often an executor looks whether limits were changed.
	refresh = 2 * time.Second
	// again is how often it asks again for what it waits for, in case a wake-up was lost.
	again = 500 * time.Millisecond
	// renew is how often it says again what it holds, and finds out who else waits for it.
	renew = 5 * time.Second
	// batch is how many limits go into one exchange.
	batch = 1000
	// exchange is how long one exchange may take.
	exchange = 10 * time.Second
	// sweep is how often leftovers are removed.
	sweep = 10 * time.Minute
)

// Limiter is one executor's part in the limits: it knows the limits, holds the places of its calls, and
// exchanges both with the store, many at a time, after each change. Calls without a limit cost a look into a
// map. It is safe for concurrent use.
type Limiter struct {
	store Store
	log   *slog.Logger
	table atomic.Pointer[limitTable]
	wake  chan struct{}

	mu     sync.Mutex
	owner  journal.Owner
	turn   int64
	dirty  []*localLimit
	places map[Key]*localLimit
	rates  map[rateKey]*localLimit
	// soonest is not after the first time that a localLimit is due; zero when none is.
	soonest time.Time
	grants  map[sched.GateKind]int64
}

// limitTable is what limits there are, as of the last look.
type limitTable struct {
	version    int64
	actors     map[Key]Limit // by namespace and actor
	keys       map[Key]Limit // by namespace and concurrency key
	namespaces map[string]Limit
}

// New returns a limiter that knows of no limit until Run runs. log may be nil.
func New(store Store, log *slog.Logger) *Limiter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l := &Limiter{store: store, log: log, wake: make(chan struct{}, 1), places: map[Key]*localLimit{}, rates: map[rateKey]*localLimit{}, grants: map[sched.GateKind]int64{}}
	l.table.Store(&limitTable{version: -1})
	return l
}

// Gates are what attempts have to pass, in this order: keys, actors, rates.
func (l *Limiter) Gates() []sched.Gate {
	return []sched.Gate{&keyGate{l}, &actorGate{l}, &rateGate{l}}
}

// Around is Gates with others among them: rates come last, since what they let through must begin soon.
func (l *Limiter) Around(others ...sched.Gate) []sched.Gate {
	gates := l.Gates()
	return slices.Insert(gates, len(gates)-1, others...)
}

// Quota is the limit of a namespace as a whole, as of the last look; false when it has none.
func (l *Limiter) Quota(namespace string) (Limit, bool) {
	q, ok := l.table.Load().namespaces[namespace]
	return q, ok
}

// Retention is how long a namespace's runs are kept after their end by its own word; 0 if it says nothing.
func (l *Limiter) Retention(namespace string) time.Duration {
	q, _ := l.Quota(namespace)
	return q.Retention
}

// Retains reports whether any namespace has a word of its own on how long its runs are kept.
func (l *Limiter) Retains() bool {
	for _, q := range l.table.Load().namespaces {
		if q.Retention > 0 {
			return true
		}
	}
	return false
}

// Refresh looks whether limits were changed.
func (l *Limiter) Refresh(ctx context.Context) error {
	have := l.table.Load().version
	version, limits, err := l.store.All(ctx, have)
	if err != nil || version == have {
		return err
	}
	k := &limitTable{version: version, actors: map[Key]Limit{}, keys: map[Key]Limit{}, namespaces: map[string]Limit{}}
	for _, x := range limits {
		if x.Name == Namespace {
			k.namespaces[x.Namespace] = x
		} else if name, ok := cut(x.Name, actors); ok {
			k.actors[Key{x.Namespace, name}] = x
		} else if name, ok := cut(x.Name, keys); ok {
			k.keys[Key{x.Namespace, name}] = x
		}
	}
	for old := l.table.Load(); old.version < version; old = l.table.Load() {
		if l.table.CompareAndSwap(old, k) {
			l.renew()
		}
	}
	return nil
}

func cut(s, prefix string) (string, bool) {
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return "", false
}

// Run exchanges until ctx ends.
func (l *Limiter) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { l.watch(ctx) })
	idle := time.NewTimer(0)
	defer idle.Stop()
	fault := 10 * time.Millisecond
	for {
		wait, err := l.exchange(ctx)
		switch {
		case err == nil:
			fault = 10 * time.Millisecond
		case errs.ReasonOf(err) == ReasonStale:
			wait = 0 // the changes since then go with a later turn
		default:
			if ctx.Err() == nil && !journal.IsFenced(err) {
				l.log.WarnContext(ctx, "limits not exchanged", "err", err)
			}
			wait, fault = fault, min(2*fault, time.Second)
		}
		if wait == 0 && ctx.Err() == nil {
			continue
		}
		idle.Reset(wait)
		if err != nil {
			// A request now would fare no better.
			select {
			case <-ctx.Done():
				return nil
			case <-idle.C:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-idle.C:
		}
	}
}

// watch keeps the limits up to date and passes on the wakes of other executors.
func (l *Limiter) watch(ctx context.Context) {
	wakes, err := l.store.Wakes(ctx)
	if err != nil && ctx.Err() == nil {
		l.log.WarnContext(ctx, "no notice of limits, they are looked for instead", "err", err)
	}
	look, clean := time.NewTicker(refresh), time.NewTicker(sweep)
	defer look.Stop()
	defer clean.Stop()
	changed := true
	for {
		if changed {
			if err := l.Refresh(ctx); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "limits not read", "err", err)
			}
		}
		changed = false
		select {
		case <-ctx.Done():
			return
		case k, ok := <-wakes:
			switch {
			case !ok:
				wakes = nil
			case k == Key{}:
				changed = true
			default:
				l.woken(k)
			}
		case <-look.C:
			changed = true
		case <-clean.C:
			if err := l.store.Sweep(ctx); err != nil && ctx.Err() == nil {
				l.log.WarnContext(ctx, "limits not swept", "err", err)
			}
		}
	}
}

// woken handles a wake: another executor released a place of k, or wants one.
func (l *Limiter) woken(k Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.places[k]; b != nil {
		b.due = time.Time{}
		l.mark(b)
	}
}

// renew makes all localLimits be exchanged at the next opportunity.
func (l *Limiter) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.places {
		b.due = time.Time{}
		l.mark(b)
	}
	for _, b := range l.rates {
		b.due = time.Time{}
		l.mark(b)
	}
}

// mark says that b has something to exchange. It is called with l.mu held.
func (l *Limiter) mark(b *localLimit) {
	if !b.dirty {
		b.dirty = true
		l.dirty = append(l.dirty, b)
	}
	l.notify()
}

func (l *Limiter) notify() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// overdue marks the localLimits that are due, and returns the time until the next one is. The caller holds
// l.mu.
func (l *Limiter) overdue(now time.Time) time.Duration {
	if !l.soonest.IsZero() && !now.Before(l.soonest) {
		l.soonest = time.Time{}
		look := func(b *localLimit) {
			switch {
			case b.dirty || b.due.IsZero():
			case now.Before(b.due):
				if l.soonest.IsZero() || b.due.Before(l.soonest) {
					l.soonest = b.due
				}
			default:
				b.dirty = true
				l.dirty = append(l.dirty, b)
			}
		}
		for _, b := range l.places {
			look(b)
		}
		for _, b := range l.rates {
			look(b)
		}
	}
	if l.soonest.IsZero() {
		return renew
	}
	return min(renew, l.soonest.Sub(now))
}

// begin implements sched.SessionGate for all gates: places held for an earlier owner are void.
func (l *Limiter) begin(owner journal.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == owner {
		return
	}
	// The incarnation distinguishes turns, so counting may go on.
	l.owner, l.dirty = owner, nil
	l.places, l.rates, l.soonest = map[Key]*localLimit{}, map[rateKey]*localLimit{}, time.Time{}
}

func (l *Limiter) end(owner journal.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == owner {
		l.owner, l.dirty = journal.Owner{}, nil
		l.places, l.rates, l.soonest = map[Key]*localLimit{}, map[rateKey]*localLimit{}, time.Time{}
	}
}

// exchange does one exchange if there is something to do, and returns how long nothing need be done.
func (l *Limiter) exchange(ctx context.Context) (time.Duration, error) {
	now := time.Now()
	l.mu.Lock()
	owner, wait := l.owner, l.overdue(now)
	n := min(len(l.dirty), batch)
	limits := slices.Clone(l.dirty[:n])
	l.dirty = append(l.dirty[:0], l.dirty[n:]...)
	asks := make([]Ask, 0, n)
	asked := limits[:0]
	for _, b := range limits {
		b.dirty = false
		if !b.current(l) {
			continue
		}
		if a, ok := b.ask(now); ok {
			asks, asked = append(asks, a), append(asked, b)
		}
	}
	if len(asks) == 0 || owner.IsZero() {
		more := len(l.dirty) > 0
		l.mu.Unlock()
		if more {
			wait = 0
		}
		return wait, nil
	}
	l.turn++
	turn := l.turn
	l.mu.Unlock()

	call, cancel := context.WithTimeout(ctx, exchange)
	defer cancel()
	sent := time.Now()
	grants, err := l.store.Sync(call, owner, turn, asks)
	received := time.Now()

	if journal.IsFenced(err) {
		l.end(owner)
	}
	l.mu.Lock()
	var pass []func()
	for i, b := range asked {
		if !b.current(l) {
			continue
		}
		if err != nil {
			b.failed(l)
			continue
		}
		pass = append(pass, b.granted(l, grants[i], sent, received)...)
	}
	l.mu.Unlock()
	for _, f := range pass {
		f()
	}
	return 0, err
}

// jitter spreads what several executors would do at the same moment.
func jitter(d time.Duration) time.Duration { return d + rand.N(d/5+1) }
