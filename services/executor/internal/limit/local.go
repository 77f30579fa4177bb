package limit

import (
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
)

// localLimit is what this executor holds of one limit, and the calls that wait for it here. Limiter.mu guards
// it.
type localLimit struct {
	key Key
	// also is the second limit of a rate.
	also string
	rate bool
	kind sched.GateKind
	// waiting are in the order in which they get their turns.
	waiting []*waiter
	dirty   bool
	// due is when to ask again without an event; zero means never.
	due time.Time

	// Of places: holds are the calls that run, allowed is the number of them that the store knows of. The
	// store never knows of fewer.
	holds   []*hold
	allowed int
	over    int
	// rival is the seniority of the first that waits on another executor; zero when none does.
	rival time.Time

	// Of rates: moments are beginnings that were granted and not used, in order.
	moments []moment
	timer   *time.Timer
	// turn is about when the next one can be granted; zero if that is not known.
	turn time.Time
}

type waiter struct {
	// seniority is when it came, later by the handicap of its priority.
	seniority time.Time
	run       string
	ready     func(sched.Pass)
	// refuse, if not nil, is called when the next answer grants nothing: the claim does not wait. asked says
	// that it was asked for.
	refuse func()
	asked  bool
}

type hold struct {
	run   string
	since time.Time
}

// moment is when a call may begin.
type moment struct{ from, until time.Time }

func newWaiter(req sched.GateRequest, ready func(sched.Pass)) *waiter {
	p := req.Priority
	if p < 1 {
		p = sched.DefaultPriority
	}
	return &waiter{seniority: req.Queued.Add(time.Duration(p-1) * handicap), run: req.RunID, ready: ready}
}

// rateKey names the localLimit of a rate.
type rateKey struct {
	Key
	also string
}

// current reports whether b is still in use.
func (b *localLimit) current(l *Limiter) bool {
	if b.rate {
		return l.rates[rateKey{b.key, b.also}] == b
	}
	return l.places[b.key] == b
}

// drop ends the use of b.
func (b *localLimit) drop(l *Limiter) {
	if b.timer != nil {
		b.timer.Stop()
	}
	if b.rate {
		delete(l.rates, rateKey{b.key, b.also})
	} else {
		delete(l.places, b.key)
	}
}

// at says when to ask again.
func (b *localLimit) at(l *Limiter, due time.Time) {
	b.due = due
	if l.soonest.IsZero() || due.Before(l.soonest) {
		l.soonest = due
		l.notify()
	}
}

// push puts w where its turn is.
func (b *localLimit) push(w *waiter) {
	i, _ := slices.BinarySearchFunc(b.waiting, w, func(x, w *waiter) int {
		if x.seniority.After(w.seniority) {
			return 1
		}
		return -1
	})
	b.waiting = slices.Insert(b.waiting, i, w)
}

// ask returns the next request to the store; false if there is none. From then on nothing begins beyond that
// request.
func (b *localLimit) ask(now time.Time) (Ask, bool) {
	a := Ask{Key: b.key, Rate: b.rate, Also: b.also}
	if len(b.waiting) > 0 {
		a.Age = now.Sub(b.waiting[0].seniority)
	}
	if b.rate {
		if now.Before(b.due) {
			return a, false
		}
		a.Want = min(len(b.waiting)-len(b.moments), batch)
		return a, a.Want > 0
	}
	a.Held, a.Want = len(b.holds), len(b.waiting)
	if b.rival.IsZero() && a.Held == b.allowed && a.Want == 0 && now.Before(b.due) {
		return a, false
	}
	for _, h := range b.holds[:min(len(b.holds), maxRuns)] {
		a.Runs = append(a.Runs, h.run)
	}
	b.allowed = a.Held
	for _, w := range b.waiting {
		w.asked = true
	}
	return a, true
}

// failed handles a request whose fate is unknown. The store may know of more than is held, and gets the
// numbers again.
func (b *localLimit) failed(l *Limiter) {
	if !b.dirty {
		b.dirty = true
		l.dirty = append(l.dirty, b)
	}
}

// granted takes the answer to an ask and returns the functions to call without the lock.
func (b *localLimit) granted(l *Limiter, g Grant, sent, received time.Time) []func() {
	if g.Unbounded {
		return b.lift(l)
	}
	if b.rate {
		for i := range g.N {
			at := g.First + time.Duration(i)*g.Every
			// It began between sent and received: not earlier than the one, not later than the other allows.
			b.moments = append(b.moments, moment{from: received.Add(at), until: sent.Add(at + g.Slack)})
		}
		b.due, b.turn = time.Time{}, time.Time{}
		if g.Again > 0 {
			b.due, b.turn = received.Add(jitter(g.Again)), received.Add(g.Again)
		}
		return b.turns(l, received)
	}
	b.allowed += g.N
	b.over = g.Over
	b.rival = time.Time{}
	if g.Rival {
		b.rival = received.Add(-g.RivalAge)
	}
	out := b.hand(l, received)
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		if w.refuse == nil || !w.asked {
			return false
		}
		out = append(out, w.refuse)
		return true
	})
	switch {
	case len(b.waiting) > 0:
		b.at(l, received.Add(jitter(again)))
	case len(b.holds) > 0:
		b.at(l, received.Add(jitter(renew)))
	default:
		b.due = time.Time{}
	}
	if len(b.holds) < b.allowed {
		l.mark(b)
	} else if len(b.holds) == 0 && len(b.waiting) == 0 {
		b.drop(l)
	}
	return out
}

// hand lets those begin for whom there is room here.
func (b *localLimit) hand(l *Limiter, now time.Time) (out []func()) {
	for len(b.waiting) > 0 && len(b.holds) < b.allowed {
		w := b.waiting[0]
		b.waiting = b.waiting[1:]
		h := &hold{run: w.run, since: now}
		b.holds = append(b.holds, h)
		l.grants[b.kind]++
		out = append(out, func() { w.ready(sched.Pass{Release: func() { b.endHold(l, h) }}) })
	}
	return out
}

// endHold gives a place back, to the next one here if nobody elsewhere has waited for longer.
func (b *localLimit) endHold(l *Limiter, h *hold) {
	l.mu.Lock()
	i := slices.Index(b.holds, h)
	if i < 0 || !b.current(l) {
		l.mu.Unlock()
		return
	}
	b.holds = slices.Delete(b.holds, i, i+1)
	var out []func()
	switch {
	case b.kind == sched.GateQuota:
		// It is the place of an open run now, or came to nothing. The store counts which.
		b.allowed--
		b.due = time.Time{}
		l.mark(b)
	case b.over > 0:
		b.over--
	case len(b.waiting) > 0 && (b.rival.IsZero() || !b.rival.Before(b.waiting[0].seniority)):
		out = b.hand(l, time.Now())
	}
	if len(b.holds) < b.allowed {
		l.mark(b)
	}
	l.mu.Unlock()
	for _, f := range out {
		f()
	}
}

// lift lets all begin that wait: nothing bounds them any more.
func (b *localLimit) lift(l *Limiter) (out []func()) {
	for _, w := range b.waiting {
		l.grants[b.kind]++
		out = append(out, func() { w.ready(sched.Pass{}) })
	}
	b.waiting, b.due = nil, time.Time{}
	b.drop(l)
	return out
}

// turns lets the calls begin whose time has come, and sets the timer for the next.
func (b *localLimit) turns(l *Limiter, now time.Time) (out []func()) {
	for len(b.moments) > 0 {
		m := b.moments[0]
		switch {
		case !now.Before(m.until):
			b.moments = b.moments[1:]
			continue
		case now.Before(m.from) || len(b.waiting) == 0:
		default:
			b.moments = b.moments[1:]
			w := b.waiting[0]
			b.waiting = b.waiting[1:]
			l.grants[b.kind]++
			out = append(out, func() { w.ready(sched.Pass{Until: m.until}) })
			continue
		}
		break
	}
	n := len(b.moments)
	switch {
	case len(b.waiting) == 0 && n == 0:
		b.drop(l)
	case len(b.waiting) == 0:
		// Unused grants expire by themselves; a call that arrives before that may use one.
		b.alarm(l, b.moments[n-1].until)
	case n > 0:
		b.alarm(l, b.moments[0].from)
	}
	if len(b.waiting) > n {
		if n > 0 {
			// The next exchange comes while there is still something to go on with.
			b.due = later(b.due, b.moments[n-1].from.Add(-horizon/5))
		}
		if now.Before(b.due) {
			b.at(l, b.due)
		} else {
			l.mark(b)
		}
	}
	return out
}

// alarm calls turns at a time.
func (b *localLimit) alarm(l *Limiter, at time.Time) {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.timer = time.AfterFunc(time.Until(at), func() {
		l.mu.Lock()
		var out []func()
		if b.current(l) {
			out = b.turns(l, time.Now())
		}
		l.mu.Unlock()
		for _, f := range out {
			f()
		}
	})
}
