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

// acked handles the answer to a write. It is called by the goroutine that leads the writer, which all runs
// wait for, so it does not wait for r.mu: if the run is locked, the answer is handled later, in order.
func (r *run) acked(a ack) {
	r.kmu.Lock()
	if r.acks == nil && r.mu.TryLock() {
		r.kmu.Unlock()
		r.acknowledge(a)
		return
	}
	first := r.acks == nil
	r.acks = append(r.acks, a)
	r.kmu.Unlock()
	if first {
		go r.catchUp()
	}
}

// catchUp handles the answers that arrived while the run was locked. It is not part of the session's work,
// which ends before the writer; the writer answers until its end.
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
		r.acknowledge(a)
	}
}

// acknowledge records the answer to a write and starts what follows. The caller holds r.mu; acknowledge
// unlocks it.
func (r *run) acknowledge(a ack) {
	if a.after != nil {
		defer func() { a.after(a.res.Err) }()
	}
	if r.pending--; r.pending == 0 && r.quiet != nil {
		close(r.quiet)
		r.quiet = nil
	}
	if a.res.Err == nil {
		r.t.applied.add(a.c.applied) // before it leaves r.applying
		for _, s := range a.c.saved {
			r.t.e.outcomes.Put(s.key, s.out, s.until)
		}
		r.durable, r.over = max(r.durable, a.res.LastSeq), r.over || a.c.ended
	}
	for _, id := range a.c.applied {
		delete(r.applying, id)
		if r.appliedMeanwhile != nil && a.res.Err == nil {
			r.appliedMeanwhile[id] = true
		}
	}
	r.t.e.threadsAnswered(r.namespace, a.c.threads, a.res.Err)
	released := r.released
	r.mu.Unlock()
	if a.res.Err == nil {
		r.t.giveBack(r.namespace, a.c.unused)
	}
	if a.before != nil {
		a.before()
	}
	r.actOnAnswer(a.res, a.c, released)
}

// actOnAnswer starts what follows from an answered write.
func (r *run) actOnAnswer(res journal.Result, c consequence, released chan struct{}) {
	if c.released {
		r.t.ownershipReleased(r, released, res, c)
		return
	}
	if r.gone.Load() {
		if res.Err == nil {
			r.t.publish(r, res, c) // it happened, even if this executor does not act on it
		}
		return
	}
	if res.Err != nil {
		r.t.dropAndReload(r, res.Err)
		return
	}
	r.t.actOn(r, res, c)
}
