package engine

import (
	"context"
	"errors"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Loading makes a run live that this executor owns: the run is read from the journal and continues. It may
// have to wait for three things that runs share: the one turn of suspects (suspects.go), a turn of its
// namespace to compute (compute.go), and room in memory (roomline.go).
//
//	loadSoon -> queueLoad -> [ loadLine ] -> loadInTurn -> tryLoad -> load -> read
//	               ^                             |
//	               +--------- retryLoad <--------+ something is missing, or the journal fails
//
// session.pendingLoads has the runs that wait anywhere in this, or for room. session.loading has those that
// are being read.

// loadSoon starts the load of a run, unless it is pending already. It does not wait.
func (t *session) loadSoon(namespace, id string) {
	t.mu.Lock()
	l := t.loading[id]
	if l != nil {
		l.again, l.wanted = true, true
	}
	mine := l == nil && t.markLoad(id)
	t.mu.Unlock()
	if mine {
		t.queueLoad(&pendingLoad{namespace: namespace, id: id, wait: soonestTry}, false)
	}
}

// queueLoad has a run read when its turn comes; with first, before all runs that wait. The caller has marked
// the run with markLoad.
func (t *session) queueLoad(b *pendingLoad, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		b.has.release()
	case t.reads.reading < t.e.cfg.RecoverParallel:
		t.reads.reading++
		t.work.Go(func() { t.loadInTurn(b) })
	default:
		t.reads.push(b, first)
	}
}

// loadInTurn loads b, and then the queued runs until there are none. Memory that was reserved for a run and
// not used is given back after each try.
func (t *session) loadInTurn(b *pendingLoad) {
	for b != nil {
		t.unmarkLoad(b.id)
		err := t.tryLoad(b.namespace, b.id, &b.has)
		t.memory.Forfeit(b.id, b.namespace)
		if err == nil || !t.retryLoad(b, err) {
			b.has.release()
		}
		t.mu.Lock()
		if b = t.reads.pop(); b == nil {
			t.reads.reading--
		}
		t.mu.Unlock()
	}
}

// retryLoad has a failed load tried again when what it lacked is there. It reports false, and leaves the
// turns that are held to the caller, if another load of the run is pending or the session is closed.
func (t *session) retryLoad(b *pendingLoad, err error) bool {
	t.mu.Lock()
	mine := t.markLoad(b.id)
	t.mu.Unlock()
	if !mine {
		return false
	}
	busy, computes := errors.AsType[*noTurnError](err)
	lacks, full := errors.AsType[*memory.FullError](err)
	if computes {
		if b.has.compute != nil {
			b.has.compute() // another load read the run, and had no turn
			b.has.compute = nil
		}
	} else {
		// A turn to compute is not held while the run waits for the turn of suspects or for room.
		b.has.release()
	}
	if full {
		t.queueForRoom(b.id, lacks)
		return true
	}
	return t.spawn(func() {
		switch {
		case computes:
			b.has.compute, err = t.e.computing.Enter(t.background, busy.namespace)
		case errors.Is(err, errSuspectAtWork):
			b.has.suspect, err = t.e.suspects.Take(t.background)
		case t.sleep(b.wait):
			b.wait = min(2*b.wait, latestTry)
			t.queueLoad(b, false)
			return
		default:
			return
		}
		if err != nil {
			b.has.release()
			return
		}
		b.wait = soonestTry
		t.queueLoad(b, true)
	})
}

// markLoad marks the load of a run as pending. It reports false if one is pending already or the session is
// closed. unmarkLoad removes the mark. The caller holds t.mu.
func (t *session) markLoad(id string) bool {
	if t.closed || t.pendingLoads[id] {
		return false
	}
	t.pendingLoads[id] = true
	return true
}

// unmarkLoad removes the mark of markLoad.
func (t *session) unmarkLoad(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pendingLoads, id)
}

// tryLoad tries once to make a run of this session live. It returns nil if the run is live, or cannot be
// loaded by this session. A memory.FullError, a noTurnError or errSuspectAtWork says what is missing. Turns
// that are free are taken and left in has.
func (t *session) tryLoad(namespace, id string, has *turnsHeld) error {
	err := t.load(t.background, namespace, id, has)
	if err == nil || t.background.Err() != nil || journal.IsFenced(err) {
		return nil
	}
	_, full := errors.AsType[*memory.FullError](err)
	if _, busy := errors.AsType[*noTurnError](err); !full && !busy && !errors.Is(err, errSuspectAtWork) {
		t.e.log.ErrorContext(t.background, "run cannot be read", "err", err, "run_id", id)
	}
	return err
}

// load reads a run and continues it, unless it has ended or belongs to another owner.
func (t *session) load(ctx context.Context, namespace, id string, has *turnsHeld) error {
	t.mu.Lock()
	for r := t.runs[id]; r != nil || t.closed; r = t.runs[id] {
		t.mu.Unlock()
		if r == nil || !r.awaitRelease(ctx) {
			return nil
		}
		t.mu.Lock()
		if t.runs[id] == r {
			t.mu.Unlock()
			return nil
		}
	}
	if l := t.loading[id]; l != nil {
		t.mu.Unlock()
		<-l.done
		return l.err
	}
	l := &loading{done: make(chan struct{})}
	t.loading[id] = l
	t.mu.Unlock()
	l.err = t.read(ctx, id, has)
	t.mu.Lock()
	delete(t.loading, id)
	// A run that had another owner, or none, when it was read may have been claimed since. After an error the
	// load is retried anyway.
	claimed := l.wanted && l.err == nil && t.runs[id] == nil
	t.mu.Unlock()
	close(l.done)
	if l.again {
		t.pollCommandsSoon()
	}
	if claimed {
		t.loadSoon(namespace, id)
	}
	return l.err
}
