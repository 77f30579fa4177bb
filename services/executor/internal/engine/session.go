package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// session is one time of ownership: from a registration to its loss or return. Everything in it dies with it.
type session struct {
	e      *Engine
	owner  journal.Owner
	lease  *journal.Lease
	writer *journal.Writer
	sched  *sched.Scheduler
	// calls is the context below which actors are called, background that of scans and loads.
	calls      context.Context //nolint:containedctx // a term is a scope of its own: everything it starts ends with it
	background context.Context //nolint:containedctx // as above
	commands   chan struct{}
	alarms     *alarms
	memory     *memory
	held       holdings
	peers      peers
	asking     *obs.Outage // what attempts need to know before or after they call
	work       sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	runs         map[string]*run
	loading      map[string]*loading
	pendingLoads map[string]bool // runs that wait for their turn to be read
	reads        loadLine
	lines        roomLines
	losses       map[string]loss

	applied appliedCommands
}

// serve owns runs until ctx ends (nil, or what went wrong at letting go) or the ownership is lost (the
// reason).
func (e *Engine) serve(ctx context.Context) error {
	if err := e.alone(ctx); err != nil {
		return err
	}
	registered := time.Now()
	owner, err := e.journal.Register(ctx, e.cfg.ID, e.cfg.Addr)
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if e.jobWorker != "" {
		if err := e.journal.WorkJobsAs(ctx, owner, e.jobWorker); err != nil {
			return fmt.Errorf("register as a worker of jobs: %w", err)
		}
	}
	base := context.WithoutCancel(ctx)
	calls, endCalls := context.WithCancelCause(base)
	background, endBackground := context.WithCancel(base)
	writing, endWriting := context.WithCancel(base)
	beating, endBeating := context.WithCancel(base)
	defer endCalls(nil)
	defer endBackground()
	defer endWriting()
	defer endBeating()
	t := &session{e: e, owner: owner, calls: calls, background: background, commands: make(chan struct{}, 1),
		runs: map[string]*run{}, loading: map[string]*loading{}, pendingLoads: map[string]bool{}, losses: map[string]loss{}}
	t.memory, t.held.by = newMemory(e.cfg.MaxLiveBytes), map[*program]*holding{}
	t.asking = obs.NewOutage(e.log, "what attempts ask", func(error) bool { return true })
	t.alarms = newAlarms(t.loadSoon)
	defer t.alarms.stop()
	t.lease = journal.NewLease(e.journal, owner, e.cfg.Lease, registered)
	t.sched = sched.New(e.cfg.Parallel, e.cfg.ParallelRemote, e.gates, func(x *sched.Task) { t.perform(x.Value.(*attempt)) })
	limits := journal.Limits{Payload: 8*e.cfg.MaxPayload + e.cfg.MaxGraphBytes, Write: 32*e.cfg.MaxPayload + 4*e.cfg.MaxGraphBytes}
	t.writer = journal.NewWriter(e.journal, owner, journal.WriterOptions{Limits: limits, Packer: e.packer, Drain: e.cfg.Grace, Logger: e.log, Observe: e.meters.observe, Account: t.memory.write,
		MaxBacklog: int(min(maxBacklog, e.cfg.MaxLiveBytes/4))})
	t.sched.Conclude = t.writer.Lead

	var wg sync.WaitGroup
	beat, wrote := make(chan error, 1), make(chan error, 1)
	wg.Go(func() { beat <- t.lease.Run(beating) })
	wg.Go(func() { wrote <- t.writer.Run(writing) })
	wg.Go(func() { t.scan(background) })
	wg.Go(func() { t.scanCanceled(background) })
	wg.Go(func() { t.watchCommands(background) })
	wg.Go(func() { t.sweep(background) })
	wg.Go(func() { t.rescueJobs(background) })
	wg.Go(func() { t.watchPrices(background) })
	wg.Go(func() { t.watchCancellations(background) })
	wg.Go(t.watchMemory)
	e.log.InfoContext(ctx, "executor owns runs", "executor", owner.ID, "incarnation", owner.Incarnation)
	for _, g := range e.gates {
		if g, ok := g.(sched.SessionGate); ok {
			g.Begin(owner)
			defer g.End(owner)
		}
	}
	e.set(t)

	select {
	case <-ctx.Done():
		err = t.leave(base, endCalls, endBackground, endWriting)
	case err = <-beat:
		t.abandon(endCalls, endBackground, endWriting)
	case err = <-wrote:
		if err == nil {
			err = errFenced
		}
		t.abandon(endCalls, endBackground, endWriting)
	}
	endBeating()
	wg.Wait()
	return err
}

// leave lets go in good order: what is in flight may end, what is known is written, and the runs are given
// back.
func (t *session) leave(base context.Context, endCalls context.CancelCauseFunc, endBackground, endWriting context.CancelFunc) error {
	t.e.set(nil)
	t.close()
	endBackground()
	idle := t.sched.Stop()
	drain := time.NewTimer(t.e.cfg.Drain)
	select {
	case <-idle:
	case <-t.lease.Lost():
	case <-drain.C:
	}
	drain.Stop()
	for _, r := range t.all() {
		for _, a := range r.inFlight() {
			a.stop(errStopping)
		}
	}
	endCalls(errStopping)
	for _, r := range t.all() {
		r.interrupt()
	}
	grace := time.NewTimer(t.e.cfg.Grace)
	select {
	case <-idle:
	case <-grace.C:
	}
	grace.Stop()
	t.work.Wait()
	endWriting()
	<-t.writer.Done()
	for _, r := range t.all() {
		r.gone.Store(true)
		r.retire(errStopping)
	}
	ctx, cancel := context.WithTimeout(base, t.e.cfg.Grace)
	defer cancel()
	failpoint.Hit(failpoint.HandoverBefore)
	err := t.e.journal.Deregister(ctx, t.owner)
	failpoint.Hit(failpoint.HandoverAfter)
	return errors.Join(t.writer.Err(), err)
}

// abandon drops everything at once: somebody else owns the runs.
func (t *session) abandon(endCalls context.CancelCauseFunc, endBackground, endWriting context.CancelFunc) {
	t.e.set(nil)
	t.close()
	for _, r := range t.all() {
		r.gone.Store(true)
		r.retire(errFenced)
		r.interrupt()
	}
	idle := t.sched.Stop()
	endCalls(errFenced)
	endBackground()
	endWriting()
	<-t.writer.Done()
	t.work.Wait()
	grace := time.NewTimer(t.e.cfg.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	}
}

// close lets no run in any more.
func (t *session) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

func (t *session) all() []*run {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*run, 0, len(t.runs))
	for _, r := range t.runs {
		out = append(out, r)
	}
	return out
}

func (t *session) live() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.runs)
}

func (t *session) get(id string) *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[id]
}

// insert makes r the run of its id. It reports false when the term is over.
func (t *session) insert(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.put(r)
	return true
}

// insertNew is insert for a run that has only just got its id. It reports false when there is one already.
func (t *session) insertNew(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.runs[r.id] != nil {
		return false
	}
	t.put(r)
	return true
}

// put is called with t.mu held.
func (t *session) put(r *run) {
	if was := t.runs[r.id]; was != nil {
		t.drop(was)
	}
	t.runs[r.id] = r
	r.size.Store(0)
	t.hold(r)
}

func (t *session) remove(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs[r.id] == r {
		t.drop(r)
	}
}

// drop is called with t.mu held.
func (t *session) drop(r *run) {
	delete(t.runs, r.id)
	t.letGo(r)
	if size := r.size.Swap(uncounted); size != uncounted {
		t.memory.Add(r.namespace, -size)
	}
	if r.beyond > 0 {
		t.memory.canceled.Add(r.namespace, -r.beyond)
		r.beyond = 0
	}
}

// spawn runs f beside everything else; the term does not end before it. It reports false, and does nothing,
// when the term is over.
func (t *session) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.work.Go(f)
	return true
}

// actOn acts on a durable decision. It must not block.
func (t *session) actOn(r *run, res journal.Result, c consequence) {
	if c.keep {
		t.spawn(func() { t.evictIdle(r) })
		return
	}
	t.told(r, res, c)
	t.stopAttempts(r, c.effects.Cancels)
	for i := range c.effects.Starts {
		t.launch(r, &c.effects.Starts[i])
	}
	if c.ended {
		r.gone.Store(true)
		r.retire(errDropped)
		t.remove(r)
		t.e.meters.run(string(c.effects.Ended.Status))
		t.e.quotas.Ended(r.namespace)
		return
	}
	r.arm(c.timer)
	if len(c.effects.Spawns) > 0 {
		t.spawn(func() { t.spawnChildren(r, c.effects.Spawns, c.recovered) })
		return
	}
	if c.idle {
		t.evictIdleSoon(r, c.idleTimer)
	}
}

func (t *session) launch(r *run, s *workgraph.Start) {
	a := &attempt{run: r, start: *s}
	a.task = sched.Task{Lane: r, Suspect: r.suspect.Load(), Value: a, Request: sched.GateRequest{Namespace: r.namespace, RunID: r.id, Ref: s.Ref,
		Attempt: s.Attempt, Actor: s.Actor, Key: s.ConcurrencyKey, Priority: r.priority, Queued: time.Now()}}
	if t.e.remote != nil {
		a.task.Request.Remote = t.e.remote(r.namespace, s.Actor)
	}
	r.amu.Lock()
	if r.stopped {
		r.amu.Unlock()
		return
	}
	if r.attempts[s.Ref] == nil {
		t.memory.Add(r.namespace, attemptWeight)
	}
	r.attempts[s.Ref] = a
	r.amu.Unlock()
	if s.Canceled {
		a.stop(errCanceled)
	}
	t.sched.Add(&a.task)
}

// stopAttempts asks attempts to stop. Those that have not begun are reported at once.
func (t *session) stopAttempts(r *run, refs []workgraph.Ref) {
	var waiting []*attempt
	for _, ref := range refs {
		r.amu.Lock()
		a := r.attempts[ref]
		r.amu.Unlock()
		if a == nil {
			continue
		}
		if t.sched.Remove(&a.task) {
			waiting = append(waiting, a)
		} else {
			a.stop(errCanceled)
		}
	}
	if len(waiting) > 0 {
		t.spawn(func() {
			for len(waiting) > 0 {
				n := 1
				for n < min(len(waiting), endsTogether) && waiting[n].start.Actor == waiting[0].start.Actor {
					n++
				}
				t.endUnbegun(r, waiting[:n])
				waiting = waiting[n:]
			}
			// An executor that leads while the journal is away does so until the writer is stopped, and that
			// is when the term's work has ended.
			go t.writer.Lead()
		})
	}
}

// endsTogether is how many attempts that have not begun are ended in one commit.
const endsTogether = 500

// endUnbegun ends attempts of one actor that were taken out of their line since their run or their map is
// being canceled: all in one commit, as a map may have a thousand of them.
func (t *session) endUnbegun(r *run, list []*attempt) {
	leave, err := r.step(t.calls)
	if err != nil {
		return
	}
	defer leave()
	fail := notPerformed(errCanceled)
	list = slices.DeleteFunc(list, func(a *attempt) bool { return !a.reported.CompareAndSwap(false, true) })
	for _, a := range list {
		r.forget(a)
		r.concluded(a)
		t.e.meters.ended(a, fail, nil)
	}
	r.endTogether(list, fail, nil)
}

// endTogether ends attempts in one commit, after what ends the run, if there is such. The caller holds r.mu.
func (r *run) endTogether(list []*attempt, fail *workgraph.Error, first *closing) {
	r.endFirst(first)
	var evs []workgraph.Event
	var eff workgraph.Effects
	now := time.Now().UTC()
	for _, a := range list {
		if r.gone.Load() || r.mending != nil || r.state.End() != nil {
			break
		}
		es, fx, err := r.state.Advance(workgraph.Ended{Ref: a.start.Ref, Attempt: a.start.Attempt, Err: fail, Now: now})
		switch {
		case err == nil:
			evs, eff = append(evs, es...), eff.And(fx)
		case errors.Is(err, workgraph.ErrAborted):
			r.mend(func(first *closing) { r.endTogether(list, fail, first) })
			return
		case !errors.Is(err, workgraph.ErrStale):
			r.t.e.log.ErrorContext(r.t.calls, "end of attempt refused", "err", err, "run_id", r.id, "node", a.start.Node, "visit", a.start.Visit)
		}
	}
	if len(evs) == 0 {
		return
	}
	r.slim(eff.Ended)
	if err := r.commit(evs, eff, extra{progress: true, attempt: endedAttempt{actor: list[0].start.Actor}}); err != nil && isTooLarge(err) {
		r.t.lose(r, err)
	}
}

func (r *run) inFlight() []*attempt {
	r.amu.Lock()
	defer r.amu.Unlock()
	out := make([]*attempt, 0, len(r.attempts))
	for _, a := range r.attempts {
		out = append(out, a)
	}
	return out
}

// lose gives up a run whose decisions cannot become durable: they must be forgotten, so the run is read again
// from what is. It may be called with r.mu held.
func (t *session) lose(r *run, cause error) {
	if r.gone.Swap(true) {
		return
	}
	r.retire(errDropped)
	t.remove(r)
	switch errs.ReasonOf(cause) {
	case journal.ReasonFenced, journal.ReasonWriterStopped:
		return
	case journal.ReasonNotOwner, journal.ReasonRunNotFound:
		t.e.log.WarnContext(t.calls, "run belongs to another executor", "run_id", r.id)
		return
	}
	t.mu.Lock()
	l := t.losses[r.id]
	l.times, l.reason = l.times+1, errs.ReasonOf(cause)
	t.losses[r.id] = l
	t.mu.Unlock()
	t.e.log.ErrorContext(t.calls, "decision cannot be written; the run is read again", "err", cause, "run_id", r.id, "times", l.times)
	t.loadSoon(r.namespace, r.id)
}

// loss is how often decisions of a run could not be written, and why the last one could not.
type loss struct {
	times  int
	reason string
}

// maxLosses is after how many losses a run is paused: reading it again does not help. A paused run is seen,
// an endless loop is not.
const maxLosses = 3

// lost is why the run is to be paused when it is read; empty if it is not.
func (t *session) lost(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.losses[id]
	if l.times < maxLosses {
		return ""
	}
	delete(t.losses, id)
	return l.reason
}

// awaitQuiet returns what is closed once no write of r is without its answer. The caller holds r.mu.
func (r *run) awaitQuiet() <-chan struct{} {
	if r.quiet == nil {
		r.quiet = make(chan struct{})
	}
	quiet := r.quiet
	if r.pending == 0 {
		close(quiet)
		r.quiet = nil
	}
	return quiet
}
