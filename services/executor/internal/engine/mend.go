package engine

import (
	"context"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// A decision can come to nothing after the machine has taken it: its evaluation was aborted, or it is too
// large to be written. The machine is of no use then and is rebuilt from the journal. The run stays what it
// is meanwhile: its calls go on, and the outcomes of those that end wait for the run's lock.

// mend rebuilds the machine from what is durable, once all that was decided before the last decision is. Then
// redo is called with r.mu held, unless it is nil: it decides the last command another way, or again after
// what ends the run, if there is such. The caller holds r.mu.
func (r *run) rebuild(redo func(end *ending)) {
	if r.rebuilding != nil {
		return
	}
	whole := make(chan struct{})
	r.rebuilding = whole
	quiet := r.awaitQuiet()
	if !r.t.spawn(func() {
		defer close(whole)
		r.t.rebuild(r, quiet, redo)
	}) {
		r.rebuilding = nil
		r.gone.Store(true) // the term is over
		close(whole)
	}
}

func (t *session) rebuild(r *run, quiet <-chan struct{}, redo func(end *ending)) {
	// What a call has brought is not lost because the executor stops.
	ctx, cancel := t.withGrace()
	defer cancel()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	for wait := soonestTry; !r.gone.Load(); wait = min(2*wait, latestTry) {
		again, loaded, err := t.reload(ctx, r)
		if err == nil {
			t.rebuilt(r, again, loaded, redo)
			return
		}
		if errors.Is(err, errDropped) || journal.IsFenced(err) {
			break
		}
		t.e.log.ErrorContext(ctx, "run cannot be read again", "err", err, "run_id", r.id)
		if !t.sleep(wait) {
			break
		}
	}
	r.mu.Lock()
	r.rebuilding = nil
	r.mu.Unlock()
	if !r.gone.Swap(true) {
		r.retire(errDropped)
		t.remove(r)
	}
}

// again reads the run from the journal, beside the one that is live.
func (t *session) reload(ctx context.Context, r *run) (replay.Position, journal.Loaded, error) {
	if done, ok := t.readTurn(); ok {
		defer done()
	}
	loaded, err := t.e.journal.Load(ctx, r.id)
	if err != nil {
		return replay.Position{}, loaded, err
	}
	if loaded.Run.State.Ended() || loaded.Run.Owner != t.owner {
		return replay.Position{}, loaded, errDropped
	}
	at, err := t.e.Positions().Load(ctx, loaded)
	return at, loaded, err
}

// mended gives the run the machine that was read again, and goes on.
func (t *session) rebuilt(r *run, again replay.Position, loaded journal.Loaded, redo func(end *ending)) {
	// Calls of the run that have the turns may wait for its lock: what is decided here takes one if it is
	// free, as everything does that has the lock.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rebuilding = nil
	if r.gone.Load() {
		return
	}
	if again.Program != r.Program {
		again.Expanded = program.Weight(again.Program.Machine, len(loaded.Graph))
	}
	// The graph that is counted for the run stays, and what heartbeats said meanwhile.
	again.Program, again.Sure, again.Unsure, again.Refusal, again.Details = r.Program, r.Sure, r.Unsure, r.Refusal, r.Details
	r.Position = again
	r.State.OnEvaluation(r.evaluation)
	r.usage, r.metadata = loaded.Run.Usage, loaded.Run.Metadata
	r.weigh()
	missing := r.recountChildren()
	r.amu.Lock()
	r.aborted = false
	r.amu.Unlock()
	if at, ok := r.next(); ok {
		r.setTimer(at)
	}
	end := r.pendingEnd(loaded.Command, time.Now().UTC())
	if redo != nil {
		redo(end)
	} else {
		r.endFirst(end)
	}
	if len(missing) > 0 {
		t.spawn(func() { t.spawnChildren(r, missing, true) })
	} else if r.rebuilding == nil && !r.gone.Load() && r.pending == 0 && r.idle() {
		t.evictIdleSoon(r, r.idleTTL())
	}
	t.pollCommandsSoon()
}

// recount goes by the machine for the children that the run waits for. It returns those of which it is not
// known any more whether they are recorded. The caller holds r.mu.
func (r *run) recountChildren() (missing []workgraph.Spawn) {
	was := r.children
	r.children = map[string]bool{}
	for _, s := range r.State.Spawns() {
		recorded, known := was[s.Child.ID]
		r.children[s.Child.ID] = recorded
		if !known {
			missing = append(missing, s)
		}
	}
	return missing
}

// closing is what ends the run now: a cancel among its commands, or its deadline. The caller holds r.mu.
func (r *run) pendingEnd(commands []journal.Command, now time.Time) *ending {
	for i := range commands {
		m := &commands[i]
		if !isCancel(*m) || r.taken[m.ID] || r.t.applied.has(m.ID) {
			continue
		}
		l, err := record.DecodePayload(m.Body)
		if err != nil {
			continue // it is dropped with the other commands
		}
		r.taken[m.ID] = true
		r.linkCommand(m.Kind, l.Trace)
		return &ending{l.Command(m.Kind, now), extra{from: origin{id: m.ID, more: true, requestID: l.RequestID, principal: l.Principal}}}
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		return &ending{cmd: workgraph.DeadlinePassed{Now: now}}
	}
	return nil
}

// endFirst decides what ends the run, if there is such. The caller holds r.mu.
func (r *run) endFirst(end *ending) {
	if end == nil {
		return
	}
	if err := r.advance(end.cmd, end.x); err != nil && !errors.Is(err, errDropped) {
		delete(r.taken, end.x.from.id)
		r.t.e.log.WarnContext(r.t.background, "end of the run refused", "err", err, "run_id", r.id)
	}
}

// advanceAfter is advance for what is to become durable together with what ends the run. The caller holds
// r.mu.
func (r *run) advanceAfter(end *ending, cmd workgraph.Command, x extra) error {
	evs, eff, err := r.State.Advance(end.cmd)
	if err != nil {
		delete(r.taken, end.x.from.id)
		return r.advance(cmd, x)
	}
	more, fx, err := r.State.Advance(cmd)
	switch {
	case errors.Is(err, workgraph.ErrAborted):
		delete(r.taken, end.x.from.id)
		r.rebuild(x.again)
		return errDropped
	case err != nil:
		end.x.leads = x.leads
		return errors.Join(r.commit(evs, eff, end.x), err)
	}
	x.from.id, x.from.more, x.from.requestID, x.from.principal = end.x.from.id, end.x.from.more, end.x.from.requestID, end.x.from.principal
	eff = eff.And(fx)
	r.dropLargeOutputs(eff.Ended)
	if err = r.commit(append(evs, more...), eff, x); err != nil {
		delete(r.taken, end.x.from.id)
	}
	return err
}

// insist gives the machine, which has just been mended, a command that takes the place of one that could not
// be written. If that cannot be written either, the run is ended as tidily as can be, and what was used is
// booked. The caller holds r.mu.
func (r *run) advanceInstead(end *ending, cmd workgraph.Command, x extra) {
	r.endFirst(end)
	x.again = func(end *ending) { r.advanceInstead(end, cmd, x) }
	err := r.advance(cmd, x)
	if !isTooLarge(err) {
		if err != nil && !errors.Is(err, errDropped) && !errors.Is(err, workgraph.ErrEnded) && !errors.Is(err, workgraph.ErrStale) {
			r.t.e.log.WarnContext(r.t.background, "what takes the place of a decision that is too large is refused", "err", err, "run_id", r.id)
		}
		return
	}
	r.t.e.log.WarnContext(r.t.background, "a decision is too large whatever takes its place, the run is canceled", "err", err, "run_id", r.id)
	r.rebuild(func(*ending) {
		err := r.advance(workgraph.Cancel{Reason: journal.ReasonPayloadTooLarge, Now: time.Now().UTC()}, extra{})
		if _, ends := cmd.(workgraph.Ended); ends && err == nil {
			err = r.advance(cmd, x)
		}
		if isTooLarge(err) {
			r.t.dropAndReload(r, err)
		}
	})
}

// lose gives up a run whose decisions cannot become durable: they must be forgotten, so the run is read again
// from what is. It may be called with r.mu held.
func (t *session) dropAndReload(r *run, cause error) {
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
