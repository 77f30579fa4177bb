package engine

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// wake is what a job about a run carries: what the journal puts in, and for a timer when exactly the run
// wants to go on.
type wake struct {
	journal.JobArgs
	Due time.Time `json:"due,omitzero"`
	// Start says that the run is to be begun.
	Start bool `json:"start,omitempty"`
}

// job asks for the run at a time, a little early, so that whoever takes it can hold it to the instant.
func (r *run) job(kind journal.JobKind, due time.Time) (journal.Job, error) {
	args, err := json.Marshal(wake{JobArgs: journal.JobArgs{Namespace: r.namespace, RunID: r.id}, Due: due, Start: kind == journal.JobStart})
	if err != nil {
		return journal.Job{}, fmt.Errorf("encode job: %w", err)
	}
	job := journal.Job{Kind: kind, RunID: r.id, Priority: r.priority, Args: args}
	if !due.IsZero() {
		job.At = due.Add(-journal.WakeEarly)
	}
	return job, nil
}

// releaseOwnership makes w the last write of this owner: with it the run is nobody's, and for its next timer
// a job is on its way. From here on this value decides nothing more; for commands that came meanwhile the run
// is read anew, here if it can be. The caller holds r.mu.
func (r *run) releaseOwnership(w *journal.Append) {
	w.Release, w.Claims = true, r.t.takes()
	if at, ok := r.next(); ok {
		job, err := r.job(journal.JobWake, at)
		if err != nil { // two texts and a time always marshal
			panic("engine: " + err.Error())
		}
		w.Jobs = append(w.Jobs, job)
	}
	r.gone.Store(true)
	r.released = make(chan struct{})
}

// unrelease takes releaseOwnership back when its write was not even queued. The caller holds r.mu.
func (r *run) unrelease() {
	if r.released == nil {
		return
	}
	close(r.released)
	r.released = nil
	r.gone.Store(false)
}

// given follows the answer to the write that gave the run away.
func (t *session) given(r *run, released chan struct{}, res journal.Result, c consequence) {
	defer close(released)
	if res.Err != nil {
		r.gone.Store(false)
		t.lose(r, res.Err)
		return
	}
	t.told(r, res, c)
	r.retire(errDropped)
	t.remove(r)
}

// told lets everybody know of what has become durable of a run.
func (t *session) told(r *run, res journal.Result, c consequence) {
	for i := range c.events {
		if d := c.events[i].Durable; d.Kind == workgraph.RunPaused {
			if d.Reason == workgraph.ReasonBudget || d.Reason == workgraph.ReasonUnsettled {
				failpoint.Hit(failpoint.BudgetAfter)
			}
			t.e.meters.paused(d.Reason)
		}
	}
	t.e.feed.Publish(c.events...)
	if c.outbox {
		t.e.wake()
	}
	if len(c.hasCommands) > len(res.Claimed) {
		t.pollCommandsSoon()
	}
	for _, id := range res.Claimed {
		failpoint.Hit(failpoint.ClaimAfter)
		t.loadSoon(r.namespace, id) // only its family is told by a run
	}
}

// idleTTL is how long a run stays in memory that could leave it: while it waits for children a moment, since
// they are mostly quick. The caller holds r.mu.
func (r *run) idleTTL() time.Duration {
	if len(r.children) > 0 {
		return r.t.e.cfg.IdleTTL
	}
	return 0
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
	err := r.keepPosition(w)
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
func (r *run) keepPosition(w *journal.Append) (err error) {
	if r.SnapSeq == r.Seq {
		return nil
	}
	if w.Snapshot, err = r.snapshot(); err == nil {
		r.SnapSeq = r.Seq
	}
	return err
}

// Work carries out a job about a run: it claims the run and goes on with it, or holds it until its instant.
// An error means that the job should come again, perhaps to another executor; an errs.Unavailable one says
// that nothing is wrong.
func (e *Engine) Work(ctx context.Context, args []byte) error {
	t := e.current()
	if t == nil {
		return e.notReady()
	}
	var w wake
	if err := json.Unmarshal(args, &w); err != nil || w.RunID == "" {
		return errs.New(errs.InvalidArgument, "JOB_INVALID", "the job names no run").With(err)
	}
	trace.SpanFromContext(ctx).SetAttributes(tracing.RunAttribute(w.RunID))
	if w.Start {
		// A run for which its namespace has no room is not even claimed: it is begun when there is some.
		if room, err := e.quotas.Room(ctx, w.Namespace); err != nil || !room {
			return err
		}
	}
	return t.claim(ctx, w)
}

// claim claims a run that nobody owns and sees that it goes on at its time.
func (t *session) claim(ctx context.Context, w wake) error {
	if r := t.get(w.RunID); r != nil && !r.gone.Load() {
		t.pollCommandsSoon()
		return nil
	}
	if !t.memory.Room(w.Namespace, 1) {
		return t.errFull(errs.Unavailable)
	}
	owner, err := t.e.journal.ClaimRun(ctx, t.owner, w.Namespace, w.RunID, t.e.TakeOverPolicy())
	switch {
	case errs.ReasonOf(err) == journal.ReasonRunNotFound:
		return nil
	case err != nil:
		return err
	case owner != t.owner:
		return nil // somebody has it, or it has ended
	}
	failpoint.Hit(failpoint.ClaimAfter)
	if at := w.Due.Add(-holdBefore); time.Now().Before(at) {
		t.alarms.set(w.Namespace, w.RunID, at)
		return nil
	}
	t.loadSoon(w.Namespace, w.RunID)
	return nil
}

// wake takes a run up at once for which commands were written here. A job is on its way too, so it may fail.
func (t *session) wake(namespace, id string) {
	err := t.claim(t.background, wake{JobArgs: journal.JobArgs{Namespace: namespace, RunID: id}})
	if err != nil && t.background.Err() == nil && !journal.IsFenced(err) {
		t.e.log.DebugContext(t.background, "run not taken up here", "err", err, "run_id", id)
	}
}

// holdBefore is how long before its timer a run is read, so that it stands ready at the instant: several
// times what reading takes, since a process that does much has others before it.
const holdBefore = 50 * time.Millisecond

// takes reports whether runs may be claimed for this term: it can read them now.
func (t *session) takes() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && !t.memory.Full()
}

// alarms are the runs that this executor has claimed and not read yet, since their time is near but has not
// come: an id and a time each, and one timer for all. It is safe for concurrent use.
type alarms struct {
	ring func(namespace, id string)

	mu    sync.Mutex
	heap  alarmHeap
	timer *time.Timer
	over  bool
}

type alarm struct {
	at            time.Time
	namespace, id string
}

type alarmHeap []alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h alarmHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *alarmHeap) Push(x any)        { *h = append(*h, x.(alarm)) }
func (h *alarmHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*h = old[:len(old)-1]
	return last
}

func newAlarms(ring func(namespace, id string)) *alarms { return &alarms{ring: ring} }

func (a *alarms) set(namespace, id string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	heap.Push(&a.heap, alarm{at, namespace, id})
	a.arm()
}

// arm is called with a.mu held.
func (a *alarms) arm() {
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
	if len(a.heap) > 0 && !a.over {
		a.timer = time.AfterFunc(time.Until(a.heap[0].at), a.due)
	}
}

func (a *alarms) due() {
	a.mu.Lock()
	var due []alarm
	for now := time.Now(); len(a.heap) > 0 && !a.heap[0].at.After(now); {
		due = append(due, heap.Pop(&a.heap).(alarm))
	}
	a.arm()
	a.mu.Unlock()
	for _, x := range due {
		a.ring(x.namespace, x.id)
	}
}

func (a *alarms) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over, a.heap = true, nil
	a.arm()
}

// beginning is the command that begins a run which was recorded and never begun, from its row.
func (r *run) beginning(now time.Time) (workgraph.Begin, error) {
	if r.pendingStart == nil {
		return workgraph.Begin{}, fmt.Errorf("run %s has begun: %w", r.id, workgraph.ErrState)
	}
	b := *r.pendingStart
	b.Now = now
	return b, nil
}

// Live is how many runs are in memory here.
func (e *Engine) Live() int {
	t := e.current()
	if t == nil {
		return 0
	}
	return t.live()
}
