package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// What a live run is given, and what its calls result in, is never refused for want of memory, so that live
// runs may come to hold more than they may. Then those of them are evicted that would have to wait anyway:
// they are rows and nothing else until there is room, and stand in line for it as runs do that were never
// read. While that is not enough, the namespace makes one call at a time. Results wait in memory until they
// are written, so a namespace that holds far too much begins no call while results of it wait.

const (
	// While live runs hold too much, lookPause is the pause after a look at what they hold, if they come to
	// hold more, lookAgain that if they do not, and idlePause that after a look which found none to evict.
	lookPause, lookAgain, idlePause = time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond
	// holdBeyond is the share of what a namespace may hold beyond which it makes one call at a time. At twice
	// what it may hold it begins none while something of it waits to be written.
	holdBeyond = 4
)

// watchMemory evicts runs while live ones hold more than they may.
func (t *session) watchMemory() {
	var again <-chan time.Time
	var next time.Time
	for {
		select {
		case <-t.memory.Over:
		case <-again:
		case <-t.background.Done():
			return
		}
		over := t.memory.Excess()
		t.sched.Hold(t.callLimits(over))
		if again = nil; len(over) == 0 {
			continue
		}
		if now := time.Now(); !now.Before(next) && !t.evictExcess(over) {
			next = now.Add(idlePause)
		}
		again = time.After(lookAgain)
		if !t.sleep(lookPause) {
			return
		}
	}
}

// tooMuch tells how many calls at a time the namespaces may make that hold much more than they may, by as
// much as over says.
func (t *session) callLimits(over map[string]int64) (calls map[string]int) {
	for ns, n := range over {
		half := t.memory.Half()
		if n <= half/holdBeyond {
			continue
		}
		if calls == nil {
			calls = map[string]int{}
		}
		if calls[ns] = 1; n > half && t.memory.IsWriting(ns) {
			calls[ns] = 0
		}
	}
	return calls
}

// relieve evicts runs of namespaces that hold more than they may by as much as over says: the youngest first,
// so that the others come to their end, and small ones only where that is not enough. The oldest of a
// namespace stays. It reports whether it has evicted any.
func (t *session) evictExcess(over map[string]int64) (some bool) {
	runs := map[string][]*run{}
	for _, r := range t.all() {
		if over[r.namespace] > 0 {
			runs[r.namespace] = append(runs[r.namespace], r)
		}
	}
	for ns, list := range runs {
		slices.SortFunc(list, func(x, y *run) int { return cmp.Or(y.created.Compare(x.created), cmp.Compare(y.id, x.id)) })
		list, excess := list[:len(list)-1], over[ns]
		evict := func(small bool) {
			for _, r := range list {
				if excess <= 0 || t.background.Err() != nil {
					return
				}
				if (r.size.Load() <= inflight.Small) != small {
					continue
				}
				if n := t.evict(r); n > 0 {
					excess, some = excess-n, true
				}
			}
		}
		evict(false)
		if excess > t.memory.Half()/holdBeyond {
			evict(true)
		}
	}
	return some
}

// evict takes a run out of memory of which everything is durable and nothing is under way, and has it stand
// in line for room. It returns how many bytes that gives back, 0 if the run stays.
func (t *session) evict(r *run) (freed int64) {
	if !r.mu.TryLock() {
		return 0
	}
	defer r.mu.Unlock()
	if !r.evictable() {
		return 0
	}
	if r.unsaved {
		t.writeDetails(r)
		return 0
	}
	list := r.inFlight()
	if !t.sched.Withdraw(tasks(list)) {
		return 0
	}
	r.gone.Store(true)
	freed = r.size.Load() + attemptWeight*int64(len(list))
	r.retire(errDropped)
	t.remove(r)
	t.e.meters.run("EVICTED")
	t.mu.Lock()
	mine := t.markLoad(r.id)
	t.mu.Unlock()
	if mine {
		t.queueForRoom(r.id, &memory.FullError{Namespace: r.namespace, Size: freed})
	}
	return freed
}

// rests reports whether the run is what the journal says, and would go on from there as well. One that is
// ending does not rest. The caller holds r.mu.
func (r *run) evictable() bool {
	if r.gone.Load() || r.pending > 0 || r.rebuilding != nil || r.pendingStart != nil || r.room != nil || r.suspect.Load() || r.State.Draining() {
		return false
	}
	for _, recorded := range r.children {
		if !recorded {
			return false
		}
	}
	r.amu.Lock()
	defer r.amu.Unlock()
	return !r.stopped && r.begun && r.undecided == 0
}

// Held is nil unless the live runs of the namespace hold so much more than they may that it makes one call at
// a time; otherwise it is closed when that may have changed.
func (e *Engine) Held(namespace string) <-chan struct{} {
	t := e.current()
	if t == nil {
		return nil
	}
	return t.sched.HeldUntil(namespace)
}

// tasks are attempts as the scheduler knows them.
func tasks(list []*attempt) []*sched.Task {
	out := make([]*sched.Task, len(list))
	for i, a := range list {
		out[i] = &a.task
	}
	return out
}

// evictIdleSoon takes the run out of memory after a time to linger, unless something comes up. It is safe
// while r.mu is held.
func (t *session) evictIdleSoon(r *run, d time.Duration) {
	if d == 0 {
		t.spawn(func() { t.evictIdle(r) })
		return
	}
	r.amu.Lock()
	defer r.amu.Unlock()
	if r.stopped {
		return
	}
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
	r.idleTimer = time.AfterFunc(d, func() { t.spawn(func() { t.evictIdle(r) }) })
}

// evictIdle takes a run out of memory that has nothing to do for a while: what is left of it are rows.
func (t *session) evictIdle(r *run) {
	r.lock()
	defer r.mu.Unlock()
	if r.gone.Load() || r.pending > 0 || !r.idle() {
		return
	}
	w := &journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq}
	err := r.savePosition(w)
	if err == nil && len(r.State.Unsettled()) > 0 {
		w.Status, _, err = r.status(dbkit.Now(), nil) // when it goes on has changed
	}
	if err != nil {
		t.e.log.ErrorContext(t.background, "run cannot be parked", "err", err, "run_id", r.id)
		return
	}
	r.releaseOwnership(w)
	r.pending++
	if err := t.writer.Submit(journal.Write{Append: w}, func(res journal.Result) { r.acked(ack{res: res, c: consequence{released: true}}) }); err != nil {
		r.pending--
		r.unrelease()
	}
}

// keepPosition puts the run's position into a write that has no events. The caller holds r.mu.
func (r *run) savePosition(w *journal.Append) (err error) {
	if r.SnapSeq == r.Seq {
		return nil
	}
	if w.Snapshot, err = r.snapshot(); err == nil {
		r.SnapSeq = r.Seq
	}
	return err
}
