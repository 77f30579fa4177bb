package engine

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Prices knows what calls cost.
type Prices interface {
	// Prices is what each entry costs in nano-USD, in their order; nil where no price is known. Nothing is
	// booked.
	Prices(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error)
}

const (
	// priceTime is how long the prices of a call that has ended are waited for.
	priceTime = 2 * time.Second
	// pricePause is how long nobody asks again after nobody answered.
	pricePause = time.Second
	// soonestAsk and latestAsk bound the pause between two asks for one run; in between it is half of the
	// time that it has waited. An executor that hears from the price book again lets all of them ask at once.
	soonestAsk = time.Second
	latestAsk  = time.Minute
	// maxAsked is how many calls are priced at a time.
	maxAsked = 1000
)

// errPricesAway answers for a price book that has just not answered.
var errPricesAway = errs.New(errs.Unavailable, "PRICES_AWAY", "the price book did not answer a moment ago")

// fuses are those of all namespaces: one whose price book does not answer, since it calls it too often itself
// for instance, keeps no other from asking. It is safe for concurrent use.
type fuses struct {
	mu sync.Mutex
	by map[string]*fuse
}

func (f *fuses) of(namespace string) *fuse {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[string]*fuse{}
	}
	if f.by[namespace] == nil {
		f.by[namespace] = &fuse{}
	}
	return f.by[namespace]
}

// all are the fuses by namespace.
func (f *fuses) all() map[string]*fuse {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.by)
}

// fuse lets nobody ask for a while what has just not answered, and then one at a time until it answers. The
// zero value lets everybody ask. It is safe for concurrent use.
type fuse struct {
	mu      sync.Mutex
	until   time.Time // zero while all is well
	probing bool
	// entry is what was asked for last without an answer.
	entry outbox.Entry
	// back says that it answered again since somebody last looked.
	back bool
}

// enter reports whether the caller may ask; then leave must be called.
func (f *fuse) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return true
	}
	if f.probing || time.Now().Before(f.until) {
		return false
	}
	f.probing = true
	return true
}

// leave tells how asking for entry went; asked says that the caller did not give up meanwhile.
func (f *fuse) leave(asked, answered bool, entry outbox.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.probing = false
	switch {
	case !asked:
	case answered:
		f.back = f.back || !f.until.IsZero()
		f.until = time.Time{}
	default:
		f.until, f.entry = time.Now().Add(pricePause), entry
	}
}

// blown is what to ask for while there is no answer.
func (f *fuse) blown() (entry outbox.Entry, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entry, !f.until.IsZero()
}

// cameBack reports, once, that there was an answer after there was none.
func (f *fuse) cameBack() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	back := f.back
	f.back = false
	return back
}

// watchPrices asks for prices while there is no answer, and lets the runs that wait for them know when there
// is one.
func (t *session) watchPrices(ctx context.Context) {
	if t.e.prices == nil {
		return
	}
	tick := time.NewTicker(pricePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		back := false
		var probes sync.WaitGroup // together, since each may take its time
		fuses := t.e.fuses.all()
		for namespace, f := range fuses {
			if entry, ok := f.blown(); ok {
				// The fuse remembers how it went
				probes.Go(func() { _, _ = t.e.ask(ctx, namespace, []outbox.Entry{entry}) })
			}
		}
		probes.Wait()
		for _, f := range fuses {
			back = f.cameBack() || back
		}
		if back {
			t.expedite(ctx)
		}
	}
}

// expedite lets runs ask that wait for prices: those in memory here, and those that are nobody's.
func (t *session) expedite(ctx context.Context) {
	for _, r := range t.all() {
		if r.tryLock() {
			r.askSoon()
			r.mu.Unlock()
			continue
		}
		// Nobody waits for a run that computes.
		t.spawn(func() {
			r.lock()
			defer r.mu.Unlock()
			r.askSoon()
		})
	}
	const most = 10_000
	n, err := most, error(nil)
	for n == most && err == nil {
		n, err = t.e.journal.ExpediteUnpriced(ctx, ReasonUnsettled, most)
	}
	if err == nil {
		_, err = t.e.journal.SweepOwnerless(ctx, lateWake, sweepBatch)
	}
	if err != nil && ctx.Err() == nil {
		t.e.log.WarnContext(ctx, "runs that wait for prices are not woken, so they ask later by themselves", "err", err)
	}
}

// askSoon lets the run ask for the prices that it waits for, if it does. The caller holds r.mu.
func (r *run) askSoon() {
	if _, ok := r.nextAsk(); ok && !r.asking && !r.gone.Load() {
		r.askAt = time.Now()
		r.arm(r.askAt)
	}
}

// unanswered reports whether an error says nothing of prices: asking again may help.
func unanswered(err error) bool {
	return err != nil && !errs.Is(err, errs.InvalidArgument) && !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.FailedPrecondition)
}

// ask finds out what entries cost. One that the price book refuses has no price.
func (e *Engine) ask(ctx context.Context, namespace string, entries []outbox.Entry) ([]*int64, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	fuse := e.fuses.of(namespace)
	if !fuse.enter() {
		return nil, errPricesAway
	}
	asking, cancel := context.WithTimeout(ctx, priceTime)
	defer cancel()
	costs, err := e.prices.Prices(asking, namespace, entries)
	if err == nil && len(costs) != len(entries) {
		err = errs.New(errs.Internal, errs.ReasonInternal, "%d prices for %d calls", len(costs), len(entries))
	}
	// A caller that gave up meanwhile knows nothing of the price book.
	fuse.leave(ctx.Err() == nil, !unanswered(err), entries[0])
	if err != nil && !unanswered(err) {
		e.log.WarnContext(ctx, "calls are not priced, so they do not count against their run's budget", "err", err)
		return make([]*int64, len(entries)), nil
	}
	return costs, err
}

// price finds out what calls cost that count against a budget in money; usage is changed. The price book goes
// first; where it knows no price, what the call says itself stays. What cannot be asked for is left
// unsettled: the run stands still until it is.
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
		entries[i] = priced(r.id, &usage[i], dbkit.Micros(at), i)
	}
	costs, err := t.e.ask(t.calls, r.namespace, entries)
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

// priced is usage in the form in which its price is asked for. It is in no books.
func priced(runID string, u *workgraph.Usage, at time.Time, call int) outbox.Entry {
	return outbox.Entry{RunID: runID, Call: call, Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, CachedTokens: u.CachedTokens,
		OutputTokens: u.OutputTokens, ReasoningTokens: u.ReasoningTokens, Time: at, Tool: u.Model == ""}
}

// spentBefore is what a run has spent that gets its first cap in money, as far as the price book answers; the
// machine has it settled in any case.
func (e *Engine) spentBefore(ctx context.Context, row journal.Run, prior []workgraph.Unsettled) (sum int64) {
	entries := make([]outbox.Entry, len(prior))
	for i := range prior {
		entries[i] = priced(row.ID, &prior[i].Usage, prior[i].At, i)
	}
	costs, err := e.ask(ctx, row.Namespace, entries)
	if err != nil {
		return 0
	}
	for i, cost := range costs {
		if cost == nil {
			cost = prior[i].Usage.CostNanoUSD
		}
		if cost != nil && sum <= math.MaxInt64-max(*cost, 0) {
			sum += max(*cost, 0)
		}
	}
	return sum
}

// nextAsk is when prices are asked for that the run waits for; ok is false when it waits for none. The caller
// holds r.mu.
func (r *run) nextAsk() (at time.Time, ok bool) {
	if len(r.State.Unsettled()) == 0 {
		r.askAt = time.Time{}
		return time.Time{}, false
	}
	if r.askAt.IsZero() {
		r.askAt = time.Now()
	}
	return r.askAt, true
}

// asksNow reports whether somebody should ask for prices now, and makes the caller the one. The caller holds
// r.mu.
func (r *run) asksNow() bool {
	at, ok := r.nextAsk()
	if st, _ := r.State.Status(); !ok || st != workgraph.StatusPaused || r.asking || at.After(time.Now()) {
		return false
	}
	r.asking = true
	return true
}

// awaitPrices asks for the prices that a run waits for. If nobody answers the run waits on: in memory for a
// while, then in its row.
func (t *session) awaitPrices(r *run) {
	r.lock()
	all := r.State.Unsettled()
	waits := slices.Clone(all[:min(len(all), maxAsked)])
	r.mu.Unlock()
	entries := make([]outbox.Entry, len(waits))
	for i := range waits {
		entries[i] = priced(r.id, &waits[i].Usage, waits[i].At, i)
	}
	costs, err := make([]*int64, len(entries)), error(nil)
	if t.e.prices != nil && len(entries) > 0 {
		costs, err = t.e.ask(t.background, r.namespace, entries)
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
			r.mend(func(end *closing) {
				r.insist(end, workgraph.Pause{Reason: ReasonPayloadTooLarge, Now: time.Now().UTC()}, extra{})
			})
		} else if err != nil && !errors.Is(err, errDropped) && !errors.Is(err, workgraph.ErrEnded) {
			t.e.log.ErrorContext(t.background, "prices refused", "err", err, "run_id", r.id)
		}
		return
	}
	t.e.log.DebugContext(t.background, "prices cannot be asked for yet", "err", err, "run_id", r.id)
	r.askAt = time.Now().Add(r.askPause(time.Since(waits[0].At)))
	if at, ok := r.next(); ok {
		r.arm(at)
	}
	if r.idle() {
		t.evictIdleSoon(r, 0)
	}
}

// askPause is how long a run that has waited for so long waits until the next ask: somewhat different for
// every run, so that they do not all come at once.
func (r *run) askPause(waited time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.id))
	d := min(max(waited/2, soonestAsk), latestAsk)
	return d - d/4*time.Duration(h.Sum32()%256)/256
}
