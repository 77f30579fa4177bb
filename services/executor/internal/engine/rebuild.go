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

// A decision can fail after the machine has taken it: its evaluation was aborted, or it is too large to be
// written. The machine is unusable then and is rebuilt from the journal. The run stays live meanwhile: its
// calls go on, and their outcomes wait for the run's lock.

// rebuild rebuilds the machine from the journal, once all earlier decisions are durable. Then redo, unless it
// is nil, is called with r.mu held. It decides the last command in another way, or again, after end, which
// ends the run, unless it is nil. The caller of rebuild holds r.mu.
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
		r.gone.Store(true) // the session is closed
		close(whole)
	}
}

func (t *session) rebuild(r *run, quiet <-chan struct{}, redo func(end *ending)) {
	// The outcome of a call must not be lost because the executor stops.
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

// reload reads the run from the journal, beside the live one.
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

// rebuilt gives the run its new machine and continues it.
func (t *session) rebuilt(r *run, again replay.Position, loaded journal.Loaded, redo func(end *ending)) {
	// Calls of the run may hold turns and wait for its lock. So decisions here do not wait for a turn, but
	// take one if it is free.
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rebuilding = nil
	if r.gone.Load() {
		return
	}
	if again.Program != r.Program {
		again.GraphBytes = program.Weight(again.Program.Machine, len(loaded.Graph))
	}
	// The program that is counted for the run stays, and so do details that arrived meanwhile.
	again.Program, again.ChildrenRecorded, again.Uncertain, again.Details = r.Program, r.ChildrenRecorded, r.Uncertain, r.Details
	again.Refusal, again.Unheard = r.Refusal, r.Unheard
	r.said = said{}
	r.Position = again
	r.State.OnEvaluation(r.evaluation)
	r.usage, r.metadata = loaded.Run.Usage, loaded.Run.Metadata
	if m, err := record.DecodeMetadata(r.metadata); err == nil {
		r.payer.Store(m.Payer)
	}
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

// recountChildren takes the children that the run waits for from the machine. It returns those that are not
// known to be recorded any longer. The caller holds r.mu.
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

// pendingEnd returns what ends the run now: a cancel among its commands, or its deadline; nil if there is
// neither. The caller holds r.mu.
func (r *run) pendingEnd(commands []journal.Command, now time.Time) *ending {
	for i := range commands {
		m := &commands[i]
		if !isCancel(*m) || r.applying[m.ID] || r.t.applied.has(m.ID) {
			continue
		}
		l, err := record.DecodePayload(m.Body)
		if err != nil {
			continue // it is dropped with the other commands
		}
		r.applying[m.ID] = true
		r.linkCommand(m.Kind, l.Trace)
		return &ending{l.Command(m.Kind, now), extra{from: origin{id: m.ID, more: true, requestID: l.RequestID, principal: l.Principal}}}
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		return &ending{cmd: workgraph.DeadlinePassed{Now: now}}
	}
	return nil
}

// endFirst ends the run by end, unless it is nil. The caller holds r.mu.
func (r *run) endFirst(end *ending) {
	if end == nil {
		return
	}
	if err := r.advance(end.cmd, end.x); err != nil && !errors.Is(err, errDropped) {
		delete(r.applying, end.x.from.id)
		r.t.e.log.WarnContext(r.t.background, "end of the run refused", "err", err, "run_id", r.id)
	}
}

// advanceAfter makes a decision durable together with the end of the run. The caller holds r.mu.
func (r *run) advanceAfter(end *ending, cmd workgraph.Command, x extra) error {
	evs, eff, err := r.State.Advance(end.cmd)
	if err != nil {
		delete(r.applying, end.x.from.id)
		return r.advance(cmd, x)
	}
	more, fx, err := r.State.Advance(cmd)
	switch {
	case errors.Is(err, workgraph.ErrAborted):
		delete(r.applying, end.x.from.id)
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
		delete(r.applying, end.x.from.id)
	}
	return err
}

// advanceInstead gives the machine, after a rebuild, the replacement of a command that could not be written.
// If the replacement cannot be written either, the run is canceled and its usage is booked. The caller holds
// r.mu.
func (r *run) advanceInstead(end *ending, cmd workgraph.Command, x extra) {
	r.endFirst(end)
	x.again = func(end *ending) { r.advanceInstead(end, cmd, x) }
	err := r.advance(cmd, x)
	if !isTooLarge(err) {
		if err != nil && !errors.Is(err, errDropped) && !errors.Is(err, workgraph.ErrEnded) && !errors.Is(err, workgraph.ErrStale) {
			r.t.e.log.WarnContext(r.t.background, "the replacement of a decision that is too large is refused", "err", err, "run_id", r.id)
		}
		return
	}
	r.t.e.log.WarnContext(r.t.background, "a decision and its replacement are too large; the run is canceled", "err", err, "run_id", r.id)
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

// dropAndReload drops a run whose decisions cannot become durable, and reads it again from the journal. It
// may be called with r.mu held.
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
