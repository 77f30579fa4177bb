package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// commandBatch is how many commands are read at a time.
	commandBatch = journal.MaxLoadedCommandBytes
	// smallCommand is the largest body that a look reads. The commands of a run that has larger ones are read
	// separately, largeBatch at a time, in a turn of its namespace.
	smallCommand, largeBatch = 4 << 10, 32
	// longestRest is the longest pause between two looks.
	longestRest = 50 * time.Millisecond
)

// watchCommands applies commands to the runs of this owner, whichever replica enqueued them.
func (t *session) watchCommands(ctx context.Context) {
	wakes, err := t.e.journal.CommandWakes(ctx, t.owner)
	if err != nil {
		t.e.log.WarnContext(ctx, "no notice of commands; they are polled for", "err", err)
	}
	poll := time.NewTicker(t.e.cfg.CommandPoll)
	defer poll.Stop()
	for took := time.Duration(0); ; {
		// With many commands a look takes long. The pause lets commands gather, so that looking takes a third
		// of the time at most, up to longestRest.
		if !t.sleep(min(2*took, longestRest)) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case _, ok := <-wakes:
			if !ok {
				wakes = nil
			}
		case <-t.commands:
		case <-poll.C:
		}
		began := time.Now()
		t.deliverCommands(ctx)
		took = time.Since(began)
	}
}

// deliverCommands looks once for commands of this owner. It reads at most commandBatch of them, the oldest
// first, and gives them to their runs; runs that are not in memory are loaded. If there may be more commands,
// another look is requested. Only one goroutine at a time may call it.
func (t *session) deliverCommands(ctx context.Context) {
	t.applied.forget()
	look := journal.CommandQuery{Limit: commandBatch, Small: smallCommand}
	look.Busy, look.Ending = t.beingHandled()
	look.Runs = t.owned()
	commands, err := t.e.journal.PendingCommands(ctx, t.owner, look)
	if err != nil {
		if ctx.Err() == nil && !journal.IsFenced(err) {
			t.e.log.WarnContext(ctx, "commands cannot be read", "err", err)
		}
		return
	}
	byRun := map[string][]journal.Command{}
	var order []string
	for _, m := range commands {
		if byRun[m.RunID] == nil {
			order = append(order, m.RunID)
		}
		byRun[m.RunID] = append(byRun[m.RunID], m)
	}
	news, more := false, len(commands) == commandBatch
	for _, id := range order {
		if r := t.get(id); r != nil {
			if r.evaluates() || slices.ContainsFunc(byRun[id], computes) || slices.ContainsFunc(byRun[id], bodyLeftOut) {
				r.applyBeside(byRun[id], more)
			} else {
				news = r.apply(byRun[id], more) || news
			}
			continue
		}
		// The load of the run applies its commands.
		if !t.noteCommandsInLine(id, slices.ContainsFunc(byRun[id], isCancel)) {
			t.loadSoon(byRun[id][0].Namespace, id)
		}
	}
	if more && news {
		t.pollCommandsSoon()
	}
}

// beingHandled returns the runs whose commands a look leaves out: runs of which applyBeside has commands,
// runs that are being read, and runs that wait to be read. A look still reads a cancel of the runs in busy,
// and nothing of those in ending. A goroutine that applies commands or reads a run requests another look when
// it is done.
func (t *session) beingHandled() (busy, ending []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.pendingLoads {
		switch x := t.lines.by[id]; {
		case x == nil || x.canceled:
			ending = append(ending, id)
		case x.hasCommands: // many may be in line, few of which have commands
			busy = append(busy, id)
		}
	}
	for id, l := range t.loading {
		l.again = true
		ending = append(ending, id)
	}
	for id, r := range t.runs {
		switch {
		case r.askAgainAfter(&r.canceling):
			ending = append(ending, id)
		case r.askAgainAfter(&r.opening):
			busy = append(busy, id)
		}
	}
	return busy, ending
}

// owned is about how many runs this owner has.
func (t *session) owned() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.runs) + len(t.pendingLoads)
}

// noteCommandsInLine notes that a run which waits in line for room has commands, so that looks leave it out
// from now on. It reports false if the run is not in line. A cancel moves the run to the line of canceled
// runs.
func (t *session) noteCommandsInLine(id string, cancel bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.lines.by[id]
	if x == nil {
		return false
	}
	x.hasCommands = true
	if cancel {
		t.cancelInLine(x)
	}
	return true
}

// askAgainAfter reports whether the goroutine of applyBeside that under belongs to is at work, and makes it
// request another look when it is done.
func (r *run) askAgainAfter(under *atomic.Bool) bool {
	if !under.Load() {
		return false
	}
	r.missed.Store(true)
	return under.Load() // if it ended meanwhile, it may not have seen missed
}

// applyBeside applies commands of a run on a goroutine of its own, so that commands of other runs do not wait
// while this run computes, is locked, or reads large commands. more is set if there are commands that were
// not read.
//
// There is at most one goroutine for commands with a cancel (r.canceling) and one for other commands
// (r.opening). So a cancel does not wait for what the run computes, and is applied before the commands beside
// it.
func (r *run) applyBeside(commands []journal.Command, more bool) {
	cancel := slices.ContainsFunc(commands, isCancel)
	under := &r.opening
	if cancel {
		under = &r.canceling
	}
	if under.Swap(true) {
		if !r.askAgainAfter(under) {
			r.t.pollCommandsSoon()
		}
		return
	}
	r.t.spawn(func() {
		defer func() {
			under.Store(false)
			if r.missed.Swap(false) || more {
				r.t.pollCommandsSoon()
			}
		}()
		if cancel {
			defer r.stepToEnd()()
			r.applyLocked(slices.DeleteFunc(slices.Clone(commands), func(m journal.Command) bool { return !isCancel(m) }))
			n := len(commands)
			commands = slices.DeleteFunc(commands, bodyLeftOut)
			more = r.applyLocked(commands) && more || len(commands) < n
			return
		}
		if slices.ContainsFunc(commands, bodyLeftOut) {
			more = r.applyLarge(more)
			return
		}
		leave, err := r.stepComputing(r.t.background)
		if err != nil {
			return
		}
		defer leave()
		more = r.applyLocked(commands) && more
	})
}

// applyLarge reads commands of a run including the large bodies that a look leaves out, and applies them.
// more says, and the result reports, whether there are commands that were not read.
//
// The commands are read in a turn of the namespace, which bounds how many are in memory at once. The run is
// not locked meanwhile: r.appliedMeanwhile collects what becomes durably applied in that time.
func (r *run) applyLarge(more bool) bool {
	ctx := r.t.background
	give, err := r.t.e.computing.EnterUnless(ctx, r.namespace, r.ends)
	if err != nil {
		return false
	}
	r.lock()
	r.appliedMeanwhile = map[int64]bool{}
	most := largeBatch + len(r.applying) // commands of unanswered writes are still listed
	r.mu.Unlock()
	commands, err := r.t.e.journal.UnappliedCommands(ctx, r.namespace, r.id, most)
	defer r.stepIn(give)()
	defer func() { r.appliedMeanwhile = nil }()
	if err != nil {
		if ctx.Err() == nil && !journal.IsFenced(err) {
			r.t.e.log.WarnContext(ctx, "commands cannot be read", "err", err, "run_id", r.id)
		}
		return false // the next look finds them
	}
	return r.applyLocked(commands) && (more || len(commands) == most)
}

func bodyLeftOut(m journal.Command) bool { return m.Left }

// computes reports whether a command changes a graph, or carries an outcome from outside, which may expand
// it.
func computes(m journal.Command) bool {
	return m.Kind == journal.CommandAmend || m.Kind == journal.CommandCompletion || m.Kind == journal.CommandReconcile
}

func isCancel(m journal.Command) bool { return m.Kind == journal.CommandCancel }

// apply gives commands to the machine, in order, and reports whether any of them was new. If the run is
// locked it does not wait: applyBeside applies the commands. more is set if there are commands that were not
// read.
func (r *run) apply(commands []journal.Command, more bool) bool {
	if !r.tryLock() {
		r.applyBeside(commands, more)
		return false
	}
	defer r.mu.Unlock()
	return r.applyLocked(commands)
}

// applyLocked is apply for a caller that holds r.mu.
func (r *run) applyLocked(commands []journal.Command) (news bool) {
	for i := range commands {
		m := &commands[i]
		if r.gone.Load() || r.rebuilding != nil {
			return news // it is applied when the run continues, here or elsewhere
		}
		if r.applying[m.ID] || r.appliedMeanwhile[m.ID] || r.t.applied.has(m.ID) {
			continue
		}
		news = true
		r.applying[m.ID] = true
		if err := r.applyCommand(m, i < len(commands)-1); err != nil && !errors.Is(err, errDropped) {
			delete(r.applying, m.ID)
			r.t.e.log.ErrorContext(r.t.background, "command cannot be applied", "err", err, "run_id", r.id, "kind", m.Kind)
		} else if r.rebuilding != nil {
			delete(r.applying, m.ID)
		}
	}
	return news
}

// applyCommand gives one command to the machine. A command that comes too late, or no longer fits the run, is
// applied without an effect: see drop. more is set if further commands of the run follow.
func (r *run) applyCommand(m *journal.Command, more bool) error {
	x := extra{from: origin{id: m.ID, more: more}}
	now := time.Now().UTC()
	l, err := record.DecodePayload(m.Body)
	if err != nil {
		return r.drop(m, x, err)
	}
	x.from.requestID, x.from.principal = l.RequestID, l.Principal
	r.linkCommand(m.Kind, l.Trace)
	cmd := l.Command(m.Kind, now)
	switch m.Kind {
	case journal.CommandAmend:
		if cmd, x.from.change, err = r.amendment(l, now); errors.Is(err, workgraph.ErrAborted) {
			delete(r.applying, m.ID) // it is applied after what ends the run
			return errDropped
		} else if err != nil {
			r.Refusal, x.keep = refusalOf(l, err, now), true
			return r.drop(m, x, err)
		}
	case journal.CommandChildEnded:
		if l.Totals != nil {
			x.from.rollup = *l.Totals
		}
		if l.Slot != nil {
			delete(r.children, l.Slot.RunID)
			l.Slot.Usage = l.Usage
		}
	case journal.CommandResume, journal.CommandReconcile:
		if st, reason := r.State.Status(); l.Reason == workgraph.ReasonParentResumed && (st != workgraph.StatusPaused || reason != workgraph.ReasonParentPaused) {
			return r.drop(m, x, errors.New("the run was paused for another reason than its parent"))
		}
		x.progress = true
		if c, ok := cmd.(workgraph.Resume); ok && r.t.e.prices != nil {
			c.Price = true
			cmd = c
		}
	case journal.CommandCancel:
		if st, _ := r.State.Status(); st == workgraph.StatusPending {
			return r.beginAndEnd(l.Reason, x)
		}
	}
	if m.Kind == journal.CommandLeave {
		return r.leave(m, l, x)
	}
	if cmd == nil {
		return r.drop(m, x, errors.New("the command has an unknown kind"))
	}
	err = r.advance(cmd, x)
	switch {
	case err == nil, errors.Is(err, errDropped):
		if m.Kind == journal.CommandAmend && err == nil {
			r.Refusal = nil
		}
		return err
	case m.Kind == journal.CommandAmend && !isTooLarge(err):
		r.Refusal, x.keep = refusalOf(l, err, now), true
	case m.Kind == journal.CommandCompletion && errors.Is(err, workgraph.ErrStale) && r.underWay(l.Ref, l.Attempt):
		// The completion came before the end of the call that started the work. The command waits for that
		// end.
		delete(r.applying, m.ID)
		r.early = true
		return nil
	case isTooLarge(err):
		// What follows from it cannot be written. The run continues without it.
		r.rebuild(func(end *ending) {
			r.endFirst(end)
			if end != nil && end.x.from.id == m.ID || r.rebuilding != nil {
				return
			}
			r.applying[m.ID] = true
			x := extra{from: origin{id: m.ID}}
			if m.Kind == journal.CommandAmend {
				r.Refusal, x.keep = refusalOf(l, err, now), true
			}
			if err := r.drop(m, x, err); err != nil {
				r.t.dropAndReload(r, err)
			}
		})
		return nil
	}
	return r.drop(m, x, err)
}

// underWay reports whether an attempt is in flight. The caller holds r.mu.
func (r *run) underWay(ref workgraph.Ref, attempt int) bool {
	return slices.ContainsFunc(r.State.Outstanding(), func(s workgraph.Start) bool { return s.Ref == ref && s.Attempt == attempt })
}

// drop applies a command without an effect.
func (r *run) drop(m *journal.Command, x extra, why error) error {
	r.t.e.log.DebugContext(r.t.background, "command came too late or does not fit", "why", why, "run_id", r.id, "kind", m.Kind, "key", m.Key)
	return r.writeApplied(x)
}

// writeApplied writes that a command is applied, and nothing else. The caller holds r.mu.
func (r *run) writeApplied(x extra) error {
	w := &journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Applied: []int64{x.from.id}, Progress: x.progress}
	was := r.SnapSeq
	if x.keep {
		var err error
		if w.Snapshot, err = r.snapshot(); err != nil {
			return err
		}
		r.SnapSeq = r.Seq
	}
	c := consequence{keep: true, applied: w.Applied}
	if !x.from.more && r.idle() && r.idleTTL() == 0 {
		if err := r.savePosition(w); err != nil {
			return err
		}
		r.releaseOwnership(w)
		c.released = true
	}
	r.pending++
	err := r.t.writer.Submit(journal.Write{Append: w}, func(res journal.Result) { r.acked(ack{res: res, c: c, after: x.after}) })
	if err != nil {
		r.pending--
		r.unrelease()
		r.SnapSeq = was
		if x.keep && errs.ReasonOf(err) == journal.ReasonPayloadTooLarge {
			x.keep = false // the position does not fit, so only the live run knows the refusal
			return r.writeApplied(x)
		}
	}
	return err
}

// beginAndEnd ends a run that has not begun: it begins and ends in one write, and nothing is called.
func (r *run) beginAndEnd(reason string, x extra) error {
	now := time.Now().UTC()
	begin, err := r.beginCommand(now)
	if err != nil {
		return err
	}
	begin.Held = true
	evs, eff, err := r.State.Advance(begin)
	if err != nil {
		return err
	}
	if eff.Ended == nil { // else there was nothing to call
		es, fx, err := r.State.Advance(workgraph.Cancel{Reason: reason, Now: now})
		if err != nil {
			return err
		}
		evs, eff.Ended = append(evs, es...), fx.Ended
	}
	return r.commit(evs, workgraph.Effects{Ended: eff.Ended}, x)
}

// linkCommand records in the run's trace which request or run a command comes from, unless that has the same
// trace.
func (r *run) linkCommand(kind journal.CommandKind, from outbox.Trace) {
	sc := tracing.Span(from)
	if !r.trace.IsSampled() || !sc.IsSampled() || sc.TraceID() == r.trace.TraceID() {
		return
	}
	_, span := r.t.e.tracer.Start(trace.ContextWithSpanContext(context.Background(), r.trace), "run.command", trace.WithLinks(tracing.LinksTo(sc)...),
		trace.WithAttributes(tracing.RunAttribute(r.id), attribute.String("epigraph.command", string(kind))))
	span.End()
}
