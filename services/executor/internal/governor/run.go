package governor

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// idle is how long the loop sleeps when nothing is due.
	idle = time.Minute
	// MaxExchanges is how many accounts are exchanged at once, so that one whose row is locked, or cannot be
	// read, keeps no other from its turn.
	MaxExchanges = 4
	// minFault and maxFault are how long an account waits after a failed exchange: twice as long after each.
	minFault, maxFault = 10 * time.Millisecond, time.Second
)

// Run exchanges until ctx ends.
func (g *Governor) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { g.watch(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	places := make(chan struct{}, MaxExchanges)
	for ctx.Err() == nil {
		due, next := g.due()
		for _, x := range due {
			work.Go(func() {
				defer g.notify()
				defer g.rested(x)
				select {
				case places <- struct{}{}:
					defer func() { <-places }()
				case <-ctx.Done():
					return
				}
				if err := g.exchange(ctx, x); err != nil && ctx.Err() == nil && !journal.IsFenced(err) && errs.ReasonOf(err) != ReasonStale {
					g.log.WarnContext(ctx, "limits of an account not exchanged", "err", err, "account", x.name)
				}
			})
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
		case <-g.wake:
		case <-timer.C:
		}
	}
	return nil
}

// watch passes on the wakes of other executors, and removes leftovers.
func (g *Governor) watch(ctx context.Context) {
	wakes, err := g.store.Wakes(ctx)
	if err != nil && ctx.Err() == nil {
		g.log.WarnContext(ctx, "no notice of accounts, they are asked about instead", "err", err)
	}
	clean := time.NewTicker(sweep)
	defer clean.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case name, ok := <-wakes:
			if !ok {
				wakes = nil
				continue
			}
			g.woken(name)
		case <-clean.C:
			if err := g.store.Sweep(ctx); err != nil && ctx.Err() == nil {
				g.log.WarnContext(ctx, "accounts not swept", "err", err)
			}
		}
	}
}

// woken has an account exchanged for which calls wait here; an empty name means all.
func (g *Governor) woken(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range g.accounts {
		if (name == "" || name == x.name) && x.waits() {
			g.soon(x)
		}
	}
}

// owes reports whether the store does not know all that happened.
func (x *account) owes() bool { return len(x.pending) > 0 || len(x.moves) > 0 || x.refused != nil }

func (x *account) waits() bool {
	for _, l := range x.lines {
		if len(l.waiting) > 0 {
			return true
		}
	}
	return false
}

// due takes the accounts that are due, one exchange of each at a time, and returns the time until the next
// one is.
func (g *Governor) due() (out []*account, next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	next = idle
	for _, x := range g.accounts {
		switch {
		case x.due.IsZero() || x.busy || g.owner.IsZero():
		case now.Before(x.due):
			next = min(next, x.due.Sub(now))
		default:
			x.busy = true
			out = append(out, x)
		}
	}
	return out, next
}

// rested lets an account be exchanged again.
func (g *Governor) rested(x *account) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x.busy = false
}

// asked is a line of an ask with its calls.
type asked struct {
	namespace string
	calls     []*waiter
}

// ask makes the next ask about x. The caller holds g.mu.
func (g *Governor) ask(x *account) (Ask, []asked) {
	if x.sent == nil && x.owes() {
		x.sent, x.pending = x.pending, map[int64]Cost{}
		x.movesSent, x.moves = x.moves, nil
		x.refusedSent, x.refused = x.refused, nil
		x.turn++
	}
	a := Ask{Account: x.name, Limits: x.limits, Turn: x.turn, Held: x.held, Corrections: slices.Clone(x.movesSent)}
	for _, at := range slices.Sorted(maps.Keys(x.sent)) {
		a.Corrections = append(a.Corrections, Correction{At: at, Delta: x.sent[at]})
	}
	if r := x.refusedSent; r != nil {
		a.Refused = &Refusal{Age: time.Since(r.began), RetryAfter: r.retryAfter}
	}
	var calls []asked
	for namespace, l := range x.lines {
		if len(l.waiting) > 0 {
			calls = append(calls, asked{namespace, l.waiting[:min(len(l.waiting), maxCosts)]})
		}
	}
	slices.SortFunc(calls, func(a, b asked) int { return a.calls[0].queued.Compare(b.calls[0].queued) })
	calls = calls[:min(len(calls), maxLines)]
	for i, c := range calls {
		l := x.lines[c.namespace]
		out := Line{Namespace: c.namespace, Calls: len(l.waiting), Age: time.Since(c.calls[0].queued)}
		calls[i].calls = slices.Clone(c.calls)
		for _, w := range c.calls {
			w.cost = x.cost(l, w.estimate)
			out.Costs = append(out.Costs, w.cost)
		}
		a.Lines = append(a.Lines, out)
	}
	return a, calls
}

// exchange does one exchange about an account.
func (g *Governor) exchange(ctx context.Context, x *account) error {
	g.mu.Lock()
	owner := g.owner
	if owner.IsZero() {
		g.mu.Unlock()
		return nil
	}
	a, calls := g.ask(x)
	x.due, x.last = time.Time{}, time.Now()
	g.mu.Unlock()

	call, cancel := context.WithTimeout(ctx, exchange)
	defer cancel()
	sent := time.Now()
	answer, err := g.store.Exchange(call, owner, a)

	g.mu.Lock()
	if g.owner != owner {
		g.mu.Unlock()
		return err
	}
	if err != nil {
		x.fault = min(max(2*x.fault, minFault), maxFault)
		x.until = time.Now().Add(x.fault)
		g.soon(x) // the corrections are sent again, with the same turn
		g.mu.Unlock()
		return err
	}
	x.fault = 0
	x.sent, x.movesSent, x.refusedSent = nil, nil, nil
	x.seen, x.seenAt = answer, time.Now()
	var out []func()
	for i, c := range calls {
		out = append(out, g.granted(x, c, answer.Granted[i], answer.At, sent)...)
	}
	if answer.Paused > patience {
		out = append(out, x.leave()...)
	}
	switch {
	case x.owes():
		g.soon(x)
	case x.waits():
		x.due = time.Now().Add(max(answer.Again, g.gap()))
	}
	g.mu.Unlock()
	for _, f := range out {
		f()
	}
	return nil
}

// leave takes out of line the calls that do not wait for the end of a pause. The caller holds Governor.mu.
func (x *account) leave() (out []func()) {
	for _, l := range x.lines {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
			if w.leaves {
				w.gone = true
				out = append(out, func() { w.ready(nil) })
			}
			return w.leaves
		})
	}
	return out
}

// granted lets the first n calls of a line begin. The caller holds g.mu.
func (g *Governor) granted(x *account, c asked, n int, at int64, sent time.Time) (out []func()) {
	l := x.line(c.namespace)
	for _, w := range c.calls[:n] {
		if w.gone {
			g.correct(x, at, Cost{}.minus(w.cost))
			continue
		}
		w.gone = true
		if i := slices.Index(l.waiting, w); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
		}
		x.held++
		l.flying++
		p := &permit{g: g, account: x, namespace: c.namespace, owner: g.owner, estimate: w.estimate, cost: w.cost, at: at, taken: sent, until: sent.Add(x.limits.keep())}
		out = append(out, func() { w.ready(p) })
	}
	return out
}
