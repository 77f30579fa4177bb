package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// actOn acts on a durable decision. It must not block.
func (t *session) actOn(r *run, res journal.Result, c consequence) {
	if c.keep {
		t.spawn(func() { t.evictIdle(r) })
		return
	}
	t.publish(r, res, c)
	t.stopAttempts(r, c.effects.Cancels)
	for i := range c.effects.Starts {
		t.startAttempt(r, &c.effects.Starts[i])
	}
	clear(c.effects.Starts) // the machine allocates several together, and each holds arguments and results
	if c.ended {
		r.gone.Store(true)
		r.retire(errDropped)
		t.remove(r)
		t.e.meters.run(string(c.effects.Ended.Status))
		t.agentEnded(r, c.effects.Ended)
		t.tellUnfinished(r, c.effects.Ended)
		t.e.quotas.Ended(r.namespace)
		return
	}
	r.setTimer(c.timer)
	if len(c.heldBack) > 0 {
		t.spawn(func() { t.spawnChildren(r, c.heldBack, true) })
	}
	if len(c.effects.Spawns) > 0 {
		t.spawn(func() { t.spawnChildren(r, c.effects.Spawns, c.recovered) })
		return
	}
	if c.idle {
		t.evictIdleSoon(r, c.idleTimer)
	}
}

// tellUnfinished tells of the end of a run that did not complete, for the work that it has under way
// elsewhere.
func (t *session) tellUnfinished(r *run, end *workgraph.RunEnd) {
	if t.e.unfinished == nil || end.Status == workgraph.StatusCompleted {
		return
	}
	t.spawn(func() {
		r.lock()
		p, state := r.Program.Machine, r.State.StateValues()
		r.mu.Unlock()
		t.e.unfinished(p, state)
	})
}

func (t *session) startAttempt(r *run, s *workgraph.Start) {
	a := &attempt{run: r, start: *s}
	a.task = sched.Task{Lane: r, Suspect: r.suspect.Load(), Value: a, Request: sched.GateRequest{Namespace: r.namespace, RunID: r.id, Ref: s.Ref,
		Attempt: s.Attempt, Actor: s.Actor, Key: s.ConcurrencyKey, Priority: r.priority, Queued: time.Now()}}
	if t.e.remote != nil {
		a.task.Request.Remote = t.e.remote(r.namespace, s.Actor)
	}
	if t.e.modelCall != nil {
		a.task.Request.Model = t.e.modelCall(s)
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
	left := r.toLeave[s.Ref] == s.Attempt
	r.amu.Unlock()
	if s.Canceled || left {
		a.stop(errCanceled)
	}
	t.sched.Add(&a.task)
}

// stopAttempts asks attempts to stop. Attempts that have not begun are ended at once.
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
			// While the database is unreachable, Lead returns only when the writer is stopped. The writer is
			// stopped after the session's work has ended, so this goroutine must not be part of that work.
			go t.writer.Lead()
		})
	}
}

// endsTogether is how many attempts that have not begun end in one commit.
const endsTogether = 500

// endUnbegun ends attempts of one actor that were removed from their queue because their run or map is being
// canceled. One commit ends them all, since a map may have a thousand.
func (t *session) endUnbegun(r *run, list []*attempt) {
	leave, err := r.step(t.calls)
	if err != nil {
		return
	}
	defer leave()
	fail := notPerformed(errCanceled)
	list = slices.DeleteFunc(list, func(a *attempt) bool { return !a.reported.CompareAndSwap(false, true) })
	for _, a := range list {
		r.removeAttempt(a)
		r.outcomeDecided(a)
		t.e.meters.ended(a.start.Actor, fail, nil)
	}
	list = slices.DeleteFunc(list, func(a *attempt) bool { return r.endLeft(a, endedAttempt{actor: a.start.Actor}) })
	r.endTogether(list, fail, nil)
}

// endTogether ends attempts in one commit, after first, which ends the run, unless it is nil. The caller
// holds r.mu.
func (r *run) endTogether(list []*attempt, fail *workgraph.Error, first *ending) {
	r.endFirst(first)
	var evs []workgraph.Event
	var eff workgraph.Effects
	now := time.Now().UTC()
	for _, a := range list {
		if r.gone.Load() || r.rebuilding != nil || r.State.End() != nil {
			break
		}
		es, fx, err := r.State.Advance(workgraph.Ended{Ref: a.start.Ref, Attempt: a.start.Attempt, Err: fail, Now: now})
		switch {
		case err == nil:
			evs, eff = append(evs, es...), eff.And(fx)
		case errors.Is(err, workgraph.ErrAborted):
			r.rebuild(func(first *ending) { r.endTogether(list, fail, first) })
			return
		case !errors.Is(err, workgraph.ErrStale):
			r.t.e.log.ErrorContext(r.t.calls, "end of attempt refused", "err", err, "run_id", r.id, "node", a.start.Node, "visit", a.start.Visit)
		}
	}
	if len(evs) == 0 {
		return
	}
	r.dropLargeOutputs(eff.Ended)
	if err := r.commit(evs, eff, extra{progress: true, attempt: endedAttempt{actor: list[0].start.Actor}}); err != nil && isTooLarge(err) {
		r.t.dropAndReload(r, err)
	}
}

// ownershipReleased handles the answer to the write that released ownership.
func (t *session) ownershipReleased(r *run, released chan struct{}, res journal.Result, c consequence) {
	defer close(released)
	if res.Err != nil {
		r.gone.Store(false)
		t.dropAndReload(r, res.Err)
		return
	}
	t.publish(r, res, c)
	r.retire(errDropped)
	t.remove(r)
}

// publish announces a durable decision: to watchers, to the outbox, and to the owners of runs that got
// commands.
func (t *session) publish(r *run, res journal.Result, c consequence) {
	for i := range c.events {
		if d := c.events[i].Durable; d.Kind == workgraph.RunPaused {
			if d.Reason == workgraph.ReasonBudget || d.Reason == workgraph.ReasonUnsettled {
				failpoint.Hit(failpoint.BudgetAfter)
			}
			t.e.meters.paused(d.Reason)
		}
	}
	for i := range c.routes {
		t.e.meters.routing.count(c.routes[i].namespace, c.routes[i].workflow, c.routes[i].Routed)
	}
	t.e.feed.Publish(c.events...)
	if c.outbox.any {
		t.e.wake(c.outbox.urgent)
	}
	if len(c.commands) > len(res.Claimed) {
		t.pollCommandsSoon()
	}
	for _, id := range res.Claimed {
		failpoint.Hit(failpoint.ClaimAfter)
		t.loadSoon(r.namespace, id) // its parent or a child, in its namespace
	}
}

// startAgain starts a blocked attempt once more if nothing blocks it any longer. The caller holds r.mu.
func (r *run) startAgain(a *attempt) bool {
	if r.gone.Load() || r.attemptBlockerLocked() != nil {
		return false
	}
	for _, s := range r.State.Outstanding() {
		if s.Ref == a.start.Ref && s.Attempt == a.start.Attempt && !s.Canceled {
			r.t.startAttempt(r, &s)
			return true
		}
	}
	return false
}
