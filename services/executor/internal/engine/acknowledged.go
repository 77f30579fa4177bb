package engine

import (
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func (r *run) consequence(events []feed.Event, eff workgraph.Effects) consequence {
	c := consequence{events: events, effects: eff, ended: eff.Ended != nil}
	if !c.ended {
		c.timer, _ = r.next()
		c.idle, c.idleTimer = r.idle(), r.idleTTL()
	}
	return c
}

// acked is called when a write was answered, by whoever leads the writer, which all runs wait for. A run that
// is locked, since it evaluates expressions, hears of its answers later and in order.
func (r *run) acked(a ack) {
	r.kmu.Lock()
	if r.acks == nil && r.mu.TryLock() {
		r.kmu.Unlock()
		r.hear(a)
		return
	}
	first := r.acks == nil
	r.acks = append(r.acks, a)
	r.kmu.Unlock()
	if first {
		go r.catchUp()
	}
}

// catchUp hears the answers that came while the run was locked. It is no part of the term's work: that ends
// before the writer, which answers until its end.
func (r *run) catchUp() {
	for i := 0; ; i++ {
		r.mu.Lock()
		r.kmu.Lock()
		if i == len(r.acks) {
			r.acks = nil
			r.kmu.Unlock()
			r.mu.Unlock()
			return
		}
		a := r.acks[i]
		r.kmu.Unlock()
		r.hear(a)
	}
}

// hear takes note of the answer to a write and sets going what follows. The caller holds r.mu, which is given
// back.
func (r *run) hear(a ack) {
	if a.after != nil {
		defer func() { a.after(a.res.Err) }()
	}
	if r.pending--; r.pending == 0 && r.quiet != nil {
		close(r.quiet)
		r.quiet = nil
	}
	if a.res.Err == nil {
		r.t.applied.add(a.c.applied) // before it is forgotten here
		r.durable, r.over = max(r.durable, a.res.LastSeq), r.over || a.c.ended
	}
	for _, id := range a.c.applied {
		delete(r.taken, id)
		if r.heard != nil && a.res.Err == nil {
			r.heard[id] = true
		}
	}
	released := r.released
	r.mu.Unlock()
	if a.before != nil {
		a.before()
	}
	r.follow(a.res, a.c, released)
}

// follow sets going what follows from a write that was answered.
func (r *run) follow(res journal.Result, c consequence, released chan struct{}) {
	if c.released {
		r.t.given(r, released, res, c)
		return
	}
	if r.gone.Load() {
		if res.Err == nil {
			r.t.told(r, res, c) // it happened, even if nothing follows from it here
		}
		return
	}
	if res.Err != nil {
		r.t.lose(r, res.Err)
		return
	}
	r.t.actOn(r, res, c)
}
