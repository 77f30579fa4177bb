package engine

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// soonestAsk and latestAsk bound the pause between two requests of one run for prices. Between those
	// bounds the pause is half of the time that the run has waited. When the price book answers again, all
	// runs ask at once.
	soonestAsk = time.Second
	latestAsk  = time.Minute
	// maxAsked is how many calls are priced at a time.
	maxAsked = 1000
)

// watchPrices probes a price book that did not answer, and expedites the runs that wait for prices once it
// does.
func (t *session) watchPrices(ctx context.Context) {
	if t.e.prices == nil {
		return
	}
	tick := time.NewTicker(price.Pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		back := false
		var probes sync.WaitGroup // in parallel, since each may take long
		breakers := t.e.prices.Breakers.All()
		for namespace, f := range breakers {
			if entry, ok := f.Open(); ok {
				// The breaker remembers the result.
				probes.Go(func() { _, _ = t.e.prices.Ask(ctx, namespace, []outbox.Entry{entry}) })
			}
		}
		probes.Wait()
		for _, f := range breakers {
			back = f.Recovered() || back
		}
		if back {
			t.expedite(ctx)
		}
	}
}

// expedite lets runs that wait for prices ask now: those in memory here, and those without an owner.
func (t *session) expedite(ctx context.Context) {
	for _, r := range t.all() {
		if r.tryLock() {
			r.askSoon()
			r.mu.Unlock()
			continue
		}
		// A run that computes must not delay the others.
		t.spawn(func() {
			r.lock()
			defer r.mu.Unlock()
			r.askSoon()
		})
	}
	const most = 10_000
	n, err := most, error(nil)
	for n == most && err == nil {
		n, err = t.e.journal.ExpediteUnpriced(ctx, workgraph.ReasonUnsettled, most)
	}
	if err == nil {
		_, err = t.e.journal.SweepOwnerless(ctx, lateWake, sweepBatch)
	}
	if err != nil && ctx.Err() == nil {
		t.e.log.WarnContext(ctx, "runs that wait for prices cannot be expedited; they ask later", "err", err)
	}
}

// askSoon lets the run ask now for the prices that it waits for, if it does. The caller holds r.mu.
func (r *run) askSoon() {
	if _, ok := r.nextAsk(); ok && !r.asking && !r.gone.Load() {
		r.askAt = time.Now()
		r.setTimer(r.askAt)
	}
}

// price sets the costs of calls that count against a budget in money; it changes usage. A price of the book
// replaces the cost that the call reported. If the book cannot be asked the usage is left unsettled, and the
// run pauses until it is settled.
func (t *session) price(a *attempt, usage []workgraph.Usage, at time.Time) {
	if t.e.prices == nil || len(usage) == 0 {
		return
	}
	r := a.run
	r.lock()
	b := r.State.Budget()
	r.mu.Unlock()
	if b == nil || b.NanoUSD == nil {
		return
	}
	entries := make([]outbox.Entry, len(usage))
	for i := range usage {
		entries[i] = price.EntryOf(r.id, &usage[i], dbkit.Micros(at), i)
	}
	costs, err := t.e.prices.Ask(t.calls, r.namespace, entries)
	if err != nil {
		t.e.log.WarnContext(t.calls, "prices cannot be asked for; the run waits for them", "err", err, "run_id", r.id)
		for i := range usage {
			usage[i].Unsettled = true
		}
		return
	}
	for i, cost := range costs {
		if cost != nil {
			usage[i].CostNanoUSD = cost
		}
	}
}

// asksNow reports whether the caller must ask now for prices, or for room under a cap. At most one
// goroutine does so at a time. The caller holds r.mu.
func (r *run) asksNow() bool {
	at, ok := r.nextAsk()
	if st, _ := r.State.Status(); !ok || st != workgraph.StatusPaused || r.asking || at.After(time.Now()) {
		return false
	}
	r.asking = true
	return true
}

// awaitPrices asks for the prices that a run waits for. Without an answer the run goes on waiting, in memory
// at first and then as a row.
func (t *session) awaitPrices(r *run) {
	r.lock()
	all := r.State.Unsettled()
	waits := slices.Clone(all[:min(len(all), maxAsked)])
	r.mu.Unlock()
	entries := make([]outbox.Entry, len(waits))
	for i := range waits {
		entries[i] = price.EntryOf(r.id, &waits[i].Usage, waits[i].At, i)
	}
	costs, err := make([]*int64, len(entries)), error(nil)
	if t.e.prices != nil && len(entries) > 0 {
		costs, err = t.e.prices.Ask(t.background, r.namespace, entries)
	}
	leave, over := r.step(t.background)
	if over != nil {
		return
	}
	defer leave()
	r.asking = false
	if r.gone.Load() || len(waits) == 0 {
		return
	}
	if err == nil {
		r.askAt = time.Time{}
		if err = r.advance(workgraph.Settled{Costs: costs, Now: time.Now().UTC()}, extra{}); isTooLarge(err) {
			r.rebuild(func(end *ending) {
				r.advanceInstead(end, workgraph.Pause{Reason: journal.ReasonPayloadTooLarge, Now: time.Now().UTC()}, extra{})
			})
		} else if err != nil && !errors.Is(err, errDropped) && !errors.Is(err, workgraph.ErrEnded) {
			t.e.log.ErrorContext(t.background, "prices refused", "err", err, "run_id", r.id)
		}
		return
	}
	t.e.log.DebugContext(t.background, "prices cannot be asked for yet", "err", err, "run_id", r.id)
	r.askAt = time.Now().Add(r.askPause(time.Since(waits[0].At)))
	if at, ok := r.next(); ok {
		r.setTimer(at)
	}
	if r.idle() {
		t.evictIdleSoon(r, 0)
	}
}

// askPause is the pause until the next request of a run that has waited for so long. It differs between runs,
// so that they do not all ask at once.
func (r *run) askPause(waited time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.id))
	d := min(max(waited/2, soonestAsk), latestAsk)
	return d - d/4*time.Duration(h.Sum32()%256)/256
}
