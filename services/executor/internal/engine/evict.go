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

// Inputs of live runs and results of their calls are never refused for lack of memory, so live runs may come
// to hold more than they may. Then live runs are evicted that would have to wait anyway, and wait in line for
// room like runs that were never read. If that is not enough, the namespace makes one call at a time. Results
// stay in memory until they are written, so a namespace far above its share begins no call while results of
// it wait for the writer.

const (
	// Pauses between two looks while live runs hold too much: lookPause at least, lookAgain if they do not
	// come to hold more, and idlePause after a look that found nothing to evict.
	lookPause, lookAgain, idlePause = time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond
	// A namespace makes one call at a time when its excess is more than its share divided by holdBeyond. At
	// an excess of a whole share, it begins none while something of it waits to be written.
	holdBeyond = 4
)

// watchMemory evicts runs while live runs hold more than they may.
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

// callLimits says how many calls at a time those namespaces may make whose excess, in over, is large.
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

// evictExcess evicts runs of namespaces by their excess, in over. The youngest go first, so that older ones
// come to their end; small ones go only if that is not enough. The oldest run of a namespace stays. It
// reports whether it evicted any.
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

// evict takes a run out of memory if everything of it is durable and nothing is in flight, and puts it in
// line for room. It returns how many bytes that frees; 0 if the run stays.
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

// evictable reports whether the run agrees with the journal and could be continued from there. A run that is
// ending is not evictable. The caller holds r.mu.
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

// Held returns nil, or a channel if live runs of the namespace hold so much more than they may that it makes
// one call at a time. The channel is closed when that may have changed.
func (e *Engine) Held(namespace string) <-chan struct{} {
	t := e.current()
	if t == nil {
		return nil
	}
	return t.sched.HeldUntil(namespace)
}

// tasks returns the scheduler's tasks of attempts.
func tasks(list []*attempt) []*sched.Task {
	out := make([]*sched.Task, len(list))
	for i, a := range list {
		out[i] = &a.task
	}
	return out
}

// evictIdleSoon evicts the run after d if it is still idle then. A large run stays longer than d while there
// is plenty of memory, since to save it and to read it again costs as much as it is large. It is safe while
// r.mu is held.
func (t *session) evictIdleSoon(r *run, d time.Duration) {
	if d == 0 {
		t.spawn(func() { t.evictIdle(r) })
		return
	}
	t.evictIdleAfter(r, d, time.Now().Add(patience(d, r.size.Load())))
}

// evictIdleAfter looks at the run after d, and again until the time until, at which it is evicted.
func (t *session) evictIdleAfter(r *run, d time.Duration, until time.Time) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if r.stopped {
		return
	}
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
	r.idleTimer = time.AfterFunc(d, func() {
		if left := time.Until(until); left > 0 && t.memory.Plenty() {
			t.evictIdleAfter(r, min(left, max(d, idleLook)), until)
			return
		}
		t.spawn(func() { t.evictIdle(r) })
	})
}

const (
	// patienceBytes is how large a run is for which an idle run stays twice as long as a small one.
	// mostPatience is how much longer any run stays. idleLook is the pause between two looks whether memory
	// is short.
	patienceBytes, mostPatience, idleLook = 16 << 10, time.Minute, time.Second
)

// patience is how long an idle run of this size stays in memory where a small one stays d.
func patience(d time.Duration, size int64) time.Duration {
	return d + min(time.Duration(max(size, 0)/patienceBytes)*d, mostPatience)
}

// evictIdle evicts a run that has nothing to do for a while. Only its rows remain.
func (t *session) evictIdle(r *run) {
	r.lock()
	defer r.mu.Unlock()
	if r.gone.Load() || r.pending > 0 || !r.idle() {
		return
	}
	w := &journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq}
	err := r.savePosition(w)
	if err == nil && (len(r.State.Unsettled()) > 0 || r.State.Refused() != nil) {
		w.Status, _, err = r.status(dbkit.Now(), nil) // the time when it continues has changed
	}
	if err != nil {
		t.e.log.ErrorContext(t.background, "run cannot be evicted", "err", err, "run_id", r.id)
		return
	}
	r.releaseOwnership(w)
	r.pending++
	if err := t.writer.Submit(journal.Write{Append: w}, func(res journal.Result) { r.acked(ack{res: res, c: consequence{released: true}}) }); err != nil {
		r.pending--
		r.unrelease()
	}
}

// savePosition puts the run's position into a write without events. The caller holds r.mu.
func (r *run) savePosition(w *journal.Append) (err error) {
	if r.SnapSeq == r.Seq {
		return nil
	}
	if w.Snapshot, err = r.snapshot(); err == nil {
		r.SnapSeq = r.Seq
	}
	return err
}
