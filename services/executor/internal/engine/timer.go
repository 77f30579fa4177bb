package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// setTimer sets the run's one timer. A zero time removes it.
func (r *run) setTimer(at time.Time) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if r.stopped || at.Equal(r.timerAt) {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.timerAt = at
	if !at.IsZero() {
		r.timer = time.AfterFunc(time.Until(at), func() { r.timerDue(at) })
	}
}

// timerDue lets the machine look at its timers. A wake-up that came too early is repeated.
func (r *run) timerDue(at time.Time) {
	r.amu.Lock()
	if r.stopped || !at.Equal(r.timerAt) {
		r.amu.Unlock()
		return
	}
	r.timerAt = time.Time{}
	r.amu.Unlock()
	if !r.t.lease.Await(r.t.background) {
		return // the session is about to end, and the next owner sets its own timers
	}
	leave := r.stepBefore(r.deadline)
	if leave == nil {
		return
	}
	defer leave()
	if r.asksNow() {
		if r.State.Refused() != nil {
			r.t.spawn(func() { r.t.awaitRoom(r) })
		} else {
			r.t.spawn(func() { r.t.awaitPrices(r) })
		}
	}
	before, now := r.Seq, time.Now().UTC()
	var cmd workgraph.Command = workgraph.TimerDue{Now: now}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		cmd = workgraph.DeadlinePassed{Now: now}
	}
	if err := r.advance(cmd, extra{}); err != nil {
		r.t.e.log.DebugContext(context.Background(), "timer refused", "err", err, "run_id", r.id)
		return
	}
	if r.Seq == before {
		if next, ok := r.next(); ok {
			if soon := time.Now().Add(time.Millisecond); next.Before(soon) {
				next = soon
			}
			if r.asking {
				next = r.deadline // the goroutine that asks sets the next timer
			}
			r.setTimer(next)
		}
	}
}
