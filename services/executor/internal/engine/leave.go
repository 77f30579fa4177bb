package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// leaving are the runs of members of a team that are canceled, since the user wants something else.
type leaving struct {
	reason   string
	children []string
}

// leftCalls are calls under way that a request leaves. Each of them is told to stop, as a canceled one
// is, and what it used counts when it ends. The request is applied with the end of the last one.
type leftCalls struct {
	x    extra
	text string
	// open are the calls that have not ended yet. The value is their attempt.
	open map[workgraph.Ref]int
	// ended are the calls that have.
	ended []leftCall
}

// leftCall is a call that has ended after it was left. What it gave is ignored.
type leftCall struct {
	ref     workgraph.Ref
	attempt int
	of      endedAttempt
}

// leave ends what the members of the team do: their calls end, and their runs are canceled. One write
// does all of it, so that after a crash either all are left or the command is applied anew. It waits
// for the calls, which the grace bounds, since only they know what they used. The caller holds r.mu.
func (r *run) leave(m *journal.Command, l *record.Payload, x extra) error {
	who := command.WhoSpeaks(r.State)
	unrecorded := func(child string) bool { return !r.children[child] }
	st, _ := r.State.Status()
	switch {
	case r.leftCalls != nil:
		// An earlier request waits for the ends of its calls.
		delete(r.applying, m.ID)
		r.early = true
		return nil
	case st == workgraph.StatusPaused && slices.ContainsFunc(who.Children, unrecorded):
		// Such a child begins when the run is resumed, until when nobody would hear the request.
		r.Unheard, x.keep = r.Unheard.With(m.Key), true
		return r.drop(m, x, errors.New("the team is paused, and members begin when it goes on"))
	case slices.ContainsFunc(who.Children, unrecorded), who.Nobody() && r.State.InFlight() > 0:
		// A child that is not recorded hears nothing, and between two turns nobody speaks yet. The command
		// waits for the end of a call, or for the child.
		delete(r.applying, m.ID)
		r.early = true
		return nil
	case who.Nobody():
		r.Unheard, x.keep = r.Unheard.With(m.Key), true
		return r.drop(m, x, errors.New("nobody speaks who can be left"))
	}
	x.progress, x.leaves = true, leaving{l.Reason, who.Children}
	left := &leftCalls{x: x, open: map[workgraph.Ref]int{}}
	left.text, _ = actor.LeftFor(l.Reason)
	for i := range who.Calls {
		left.open[who.Calls[i].Ref] = who.Calls[i].Attempt
	}
	r.leftCalls = left
	for _, a := range r.stopLeft(left.open) {
		r.removeAttempt(a)
		r.t.e.meters.ended(a.start.Actor, notPerformed(errCanceled), nil)
		left.end(a, endedAttempt{actor: a.start.Actor})
	}
	if len(left.open) > 0 {
		return nil
	}
	return r.leaveEnded(left, nil)
}

// stopLeft tells calls that are left to stop, also those whose start is not durable yet. It returns
// those that have not begun: they end at once.
func (r *run) stopLeft(open map[workgraph.Ref]int) (unbegun []*attempt) {
	r.amu.Lock()
	r.toLeave = maps.Clone(open)
	var found []*attempt
	for ref, n := range open {
		if a := r.attempts[ref]; a != nil && a.start.Attempt == n {
			found = append(found, a)
		}
	}
	r.amu.Unlock()
	for _, a := range found {
		if !r.t.sched.Remove(&a.task) {
			a.stop(errCanceled)
		} else if a.reported.CompareAndSwap(false, true) {
			unbegun = append(unbegun, a)
		}
	}
	return unbegun
}

// end notes the end of a call. It reports false if the call is not one of those that are left.
func (l *leftCalls) end(a *attempt, of endedAttempt) bool {
	if l == nil || l.open[a.start.Ref] != a.start.Attempt {
		return false
	}
	delete(l.open, a.start.Ref)
	l.ended = append(l.ended, leftCall{a.start.Ref, a.start.Attempt, of})
	return true
}

// endLeft ends a call that was left, and with the last one the request is applied. It reports false if
// the call is not one of those that are left. The caller holds r.mu.
func (r *run) endLeft(a *attempt, of endedAttempt) bool {
	if !r.leftCalls.end(a, of) {
		return false
	}
	if len(r.leftCalls.open) == 0 {
		_ = r.leaveEnded(r.leftCalls, nil) // the run is dropped then, and the command is applied anew
	}
	return true
}

// leaveEnded applies a request whose calls have ended: as failed by it, whatever they say themselves,
// and with what they used. It does so after first, which ends the run, unless it is nil. Its only
// error is errDropped. The caller holds r.mu.
func (r *run) leaveEnded(left *leftCalls, first *ending) error {
	r.endFirst(first)
	if r.gone.Load() || r.rebuilding != nil {
		return errDropped
	}
	evs, eff, x, err := r.endCalls(left)
	switch {
	case errors.Is(err, workgraph.ErrAborted):
		r.rebuild(func(first *ending) { _ = r.leaveEnded(left, first) })
		return errDropped
	case err != nil:
		r.t.dropAndReload(r, err)
		return errDropped
	}
	r.forgetLeft()
	if len(evs) == 0 && r.State.End() != nil {
		return errDropped // the end of the run came first, and nobody hears the request
	}
	r.applying[x.from.id] = true
	if r.early {
		r.early, x.from.more = false, true
		defer r.t.pollCommandsSoon()
	}
	if slices.ContainsFunc(x.attempt.usage, func(u workgraph.Usage) bool { return u.Unsettled }) {
		r.askAt = time.Now().Add(r.askPause(0))
	}
	r.dropLargeOutputs(eff.Ended)
	if err := r.commit(evs, eff, x); err != nil {
		r.t.dropAndReload(r, err)
		return errDropped
	}
	return nil
}

// endCalls gives the ends of calls that are left to the machine. x is what accompanies them.
func (r *run) endCalls(left *leftCalls) (evs []workgraph.Event, eff workgraph.Effects, x extra, err error) {
	x, now := left.x, time.Now().UTC()
	x.left = make(map[workgraph.Ref]endedAttempt, len(left.ended))
	for i := range left.ended {
		c := &left.ended[i]
		fail := actor.AnotherRequest(left.text)
		fail.Usage = c.of.usage
		es, fx, err := r.State.Advance(workgraph.Ended{Ref: c.ref, Attempt: c.attempt, Err: fail, Now: now})
		switch {
		case errors.Is(err, workgraph.ErrStale), errors.Is(err, workgraph.ErrEnded):
			continue // the run came to its end first, or the visit did
		case err != nil:
			return nil, eff, x, err
		}
		evs, eff = append(evs, es...), eff.And(fx)
		x.left[c.ref] = c.of
		x.attempt.usage, x.attempt.entries = append(x.attempt.usage, c.of.usage...), append(x.attempt.entries, c.of.entries...)
		if x.attempt.trace == (outbox.Trace{}) {
			x.attempt.trace = c.of.trace
		}
	}
	return evs, eff, x, nil
}

// forgetLeft ends the wait for calls that are left.
func (r *run) forgetLeft() {
	r.leftCalls = nil
	r.amu.Lock()
	defer r.amu.Unlock()
	r.toLeave = nil
}

// leaveChildren adds the commands that cancel the runs of members that are left.
func (r *run) leaveChildren(w *journal.Append, of leaving, now time.Time) error {
	for _, id := range of.children {
		if !r.children[id] {
			continue // it has ended meanwhile
		}
		body, err := (&record.Payload{Reason: of.reason, Trace: tracing.OfSpan(r.trace)}).Encode()
		if err != nil {
			return fmt.Errorf("encode cancel of member: %w", err)
		}
		w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: id, Kind: journal.CommandCancel, Key: "left", Body: body, Time: now})
	}
	return nil
}
