package engine

import (
	"context"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// A run that finds no room in memory waits in a line for it. There may be very many such runs, so most are
// entries of a queue without a goroutine. In each namespace, roomWaiters runs at a time wait with the memory
// budget, with a goroutine each.
//
//	queueForRoom -> [ queue of the namespace ] -> roomWaiters with the budget -> queueLoad
//	                        |                            |
//	                        +--- releaseWaiting, if another executor lives
//
// A canceled run is read only to end it, so it does not wait for other runs to end. Canceled runs of a
// namespace have a line of their own, which waits with a small budget reserved for them. cancelInLine moves a
// run from the one line to the other.

const (
	// roomWaiters is how many runs of a line wait with the budget at once. With more than one, small runs get
	// in while a large one waits.
	roomWaiters = 16
	// roomWait is how long a run waits in line before it is handed back, if another executor lives that may
	// have room. It is long enough for the run's turn to have come.
	roomWait = 20 * time.Second
	// handedBack is how many runs are handed back at once.
	handedBack = 500
)

// Causes with which a run's wait with the budget ends.
var (
	// errGivenBack means that the run is handed back.
	errGivenBack = errors.New("engine: there is no room for the run, another executor may have it")
	// errCanceledInLine means that the run moves to the line of canceled runs.
	errCanceledInLine = errors.New("engine: the run was canceled while it stood in line")
)

// queueForRoom puts a run in line for the room that it lacks. When there is room, it is reserved for the run
// and the run is loaded. A run that waits for longer than roomWait is handed back if other executors live.
// The caller has marked the run with markLoad.
func (t *session) queueForRoom(id string, lacks *memory.FullError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enterLine(id, lacks, time.Now())
}

// enterLine is queueForRoom for a run that has waited since a time. The caller holds t.mu.
func (t *session) enterLine(id string, lacks *memory.FullError, since time.Time) {
	if t.closed {
		return
	}
	if t.lines.by == nil {
		t.lines.by, t.lines.byKey = map[string]*inLine{}, map[lineKey]*spaceLine{}
	}
	x := &inLine{id: id, lacks: lacks, since: since, canceled: lacks.Canceled}
	t.lines.by[id] = x
	line := t.lines.byKey[lineOf(lacks)]
	if line == nil {
		line = &spaceLine{}
		t.lines.byKey[lineOf(lacks)] = line
	}
	if line.waiting < roomWaiters {
		line.waiting++
		t.work.Go(func() { t.waitInTurn(x, line) })
	} else {
		line.queue = append(line.queue, x)
	}
	if !t.lines.watched {
		t.lines.watched = true
		t.work.Go(t.releaseWaiting)
	}
}

// waitInTurn waits for room for x, and then for each run of the queue.
func (t *session) waitInTurn(x *inLine, line *spaceLine) {
	for ; x != nil; x = t.nextInLine(lineOf(x.lacks), line) {
		t.waitForRoom(x)
	}
}

// nextInLine returns the next run of the queue. If there is none, it returns nil and the caller no longer
// counts as waiting.
func (t *session) nextInLine(key lineKey, line *spaceLine) *inLine {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(line.queue) > 0 && t.background.Err() == nil {
		x := line.queue[0]
		line.queue[0] = nil
		line.queue = line.queue[1:]
		if !x.left {
			return x
		}
	}
	if line.waiting--; line.waiting == 0 {
		delete(t.lines.byKey, key)
	}
	return nil
}

// waitForRoom waits for room for a run and has it loaded. If x.stop ends the wait, its cause says what
// happens instead: the run is handed back, or moves to the line of canceled runs.
func (t *session) waitForRoom(x *inLine) {
	ctx, cancel := context.WithCancelCause(t.background)
	defer cancel(nil)
	t.mu.Lock()
	if x.left {
		t.mu.Unlock()
		return
	}
	x.stop = cancel
	t.mu.Unlock()
	err := t.memory.Await(ctx, x.id, x.lacks)
	t.mu.Lock()
	t.leaveLine(x)
	if err != nil && errors.Is(context.Cause(ctx), errCanceledInLine) {
		t.enterLine(x.id, x.lacks.ForCanceled(), x.since)
	}
	t.mu.Unlock()
	switch {
	case err == nil:
		b := &pendingLoad{namespace: x.lacks.Namespace, id: x.id, wait: soonestTry}
		if x.lacks.Size > inflight.Small {
			// Reading a large run uses a processor for long, so it needs a turn to compute of its namespace.
			if b.has.compute, err = t.e.computing.Enter(t.background, b.namespace); err != nil {
				b.has.compute = nil
			}
		}
		t.queueLoad(b, true)
	case errors.Is(context.Cause(ctx), errGivenBack):
		t.unmarkLoad(x.id)
		t.handBack(t.background, x.id)
	}
}

// leaveLine takes a run out of its line. The caller holds t.mu.
func (t *session) leaveLine(x *inLine) {
	x.left = true
	if t.lines.by[x.id] == x {
		delete(t.lines.by, x.id)
	}
}

// cancelInLine moves a canceled run to the line of canceled runs. The caller holds t.mu.
func (t *session) cancelInLine(x *inLine) {
	if x.canceled {
		return
	}
	x.canceled = true
	if x.stop != nil {
		x.stop(errCanceledInLine) // waitForRoom does the rest
		return
	}
	t.leaveLine(x)
	t.enterLine(x.id, x.lacks.ForCanceled(), x.since)
}

// queuedCanceled are the namespaces whose canceled runs wait in the queue here, behind those that wait with
// the budget.
func (t *session) queuedCanceled() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, line := range t.lines.byKey {
		if key.canceled && len(line.queue) > 0 {
			names = append(names, key.namespace)
		}
	}
	return names
}

// releaseWaiting hands back runs that have waited in line for too long while other executors live. It returns
// when no run is in line.
func (t *session) releaseWaiting() {
	for t.sleep(t.e.roomWait / 4) {
		peers := t.hasPeers()
		var old []string
		t.mu.Lock()
		if len(t.lines.by) == 0 {
			t.lines.watched = false
			t.mu.Unlock()
			return
		}
		for id, x := range t.lines.by {
			switch {
			case !peers || time.Since(x.since) < t.e.roomWait:
			case x.stop != nil:
				x.stop(errGivenBack)
			default:
				t.leaveLine(x)
				delete(t.pendingLoads, id)
				old = append(old, id)
			}
		}
		t.mu.Unlock()
		for len(old) > 0 {
			n := min(len(old), handedBack)
			t.handBack(t.background, old[:n]...)
			old = old[n:]
		}
	}
}

// handBack releases ownership of runs for which there is no room here.
func (t *session) handBack(ctx context.Context, ids ...string) {
	if err := t.e.journal.Release(ctx, t.owner, ids); err != nil && ctx.Err() == nil && !journal.IsFenced(err) {
		t.e.log.WarnContext(ctx, "runs not handed back", "err", err, "count", len(ids), "first", ids[0])
	}
}
