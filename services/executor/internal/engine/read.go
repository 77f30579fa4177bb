package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// read makes a run of this executor live: it reads the run, makes room for it, and continues it. It does
// nothing if the run has ended or belongs to another owner.
func (t *session) read(ctx context.Context, id string, has *turnsHeld) error {
	done, ok := t.readTurn()
	if !ok {
		return nil
	}
	defer done()
	loaded, err := t.e.journal.Load(ctx, id)
	if err != nil {
		if errs.ReasonOf(err) == journal.ReasonRunNotFound {
			return nil
		}
		return err
	}
	row := loaded.Run
	if row.State.Ended() || row.Owner != t.owner {
		return nil
	}
	r, err := t.restore(ctx, loaded, has)
	if err != nil {
		return err
	}
	for _, doing := range r.marks.now {
		defer t.unmark(r, doing)
	}
	defer func() { r.takeRoom()() }() // unless it has begun
	if row.LastSeq == 0 {
		done() // the registry may be asked, which takes time
		if ready, err := t.readPending(ctx, r, row, loaded.Snapshot); err != nil || !ready {
			return err
		}
	}
	commands, err := t.withCancel(ctx, row, loaded.Command)
	if err != nil {
		return err
	}
	r.trace = t.resumeTrace(row)
	done() // its size is known
	size, err := t.makeRoom(r, !row.CancelTime.IsZero(), commands, has)
	if err != nil {
		return err
	}
	defer r.stepIn(func() {})() // before insert makes it visible
	if !t.insert(r) {
		t.memory.Add(r.namespace, -size)
		t.memory.Canceled.Add(r.namespace, -r.beyond)
		return nil
	}
	r.weigh()
	t.memory.Add(r.namespace, -size)
	if err := t.continueRun(ctx, r, commands); err != nil {
		t.remove(r)
		return err
	}
	if row.Takeovers > 0 && r.pendingStart == nil {
		t.confirmHarmless(r)
	}
	return nil
}

// restore builds the run of a row; no other goroutine sees it yet. Reading a suspect takes the turn of
// suspects, and is recorded in the journal and in r.marks.
func (t *session) restore(ctx context.Context, loaded journal.Loaded, has *turnsHeld) (*run, error) {
	row := &loaded.Run
	suspect := t.e.TakeOverPolicy().Suspect(row.Takeovers)
	if suspect {
		if has.suspect == nil {
			leave, free := t.e.suspects.Try()
			if !free {
				return nil, errSuspectAtWork
			}
			has.suspect = leave
		}
		if row.Doing == "" { // else the claim has recorded it
			row.Doing = journal.DoingReading
			t.writeMark(row.ID, row.Doing, "")
		}
	}
	at, err := t.e.Positions().Load(ctx, loaded)
	var lineage record.Lineage
	if err == nil {
		lineage, err = record.LineageOf(*row)
	}
	if err != nil {
		if row.Doing != "" {
			t.writeMark(row.ID, "", row.Doing)
		}
		return nil, err
	}
	r := t.newRun(row.ID, at)
	if row.Doing != "" {
		r.marks.now = []string{row.Doing}
	}
	r.identity = identity{id: row.ID, namespace: row.Namespace, root: row.RootID, task: row.TaskID, epic: row.EpicID, schedule: row.ScheduleID, priority: int(row.Priority),
		created: row.CreateTime, origin: tracing.OfRun(*row), lineage: lineage, deadline: row.Deadline}
	r.payer.Store(lineage.Payer)
	r.usage, r.started, r.metadata, r.holds = row.Usage, row.StartTime, row.Metadata, true
	r.suspect.Store(suspect)
	r.graphChanged.Store(r.State.MayExpand())
	return r, nil
}

// makeRoom takes what a run needs to become live: memory, and a turn to compute if the run or its commands
// compute. It returns how many bytes were taken. A noTurnError or a memory.FullError says what is missing.
func (t *session) makeRoom(r *run, canceled bool, commands []journal.Command, has *turnsHeld) (size int64, err error) {
	if has.compute == nil && (r.evaluates() || slices.ContainsFunc(commands, computes)) {
		leave, ok := t.e.computing.Try(r.namespace)
		if !ok {
			return 0, &noTurnError{r.namespace}
		}
		has.compute = leave
	}
	size = r.Weight()
	if !t.countsGraph(r.Program) {
		size += r.Program.Bytes()
	}
	beyond, ok := t.memory.Take(r.id, r.namespace, size, canceled)
	if !ok {
		return 0, &memory.FullError{Namespace: r.namespace, Size: size, Canceled: canceled}
	}
	r.beyond = beyond
	return size, nil
}

// continueRun begins or recovers a run that has just become live, and applies its commands. The caller holds
// r.mu.
func (t *session) continueRun(ctx context.Context, r *run, commands []journal.Command) error {
	now := time.Now().UTC()
	if r.pendingStart != nil {
		if err := r.beginNow(now, commands); err != nil {
			return fmt.Errorf("begin run %s: %w", r.id, err)
		}
		r.markBegun()
		return nil
	}
	if why := t.lossReason(r.id); why != "" {
		err := r.advance(workgraph.Pause{Reason: why, Now: now}, extra{})
		if errors.Is(err, workgraph.ErrState) { // it is ending
			err = r.advance(workgraph.Cancel{Reason: why, Now: now}, extra{})
		}
		if err != nil && !errors.Is(err, errDropped) {
			t.e.log.ErrorContext(ctx, "run cannot be paused", "err", err, "run_id", r.id)
		}
	}
	if err := r.advance(workgraph.Recover{Now: now}, extra{recover: true}); err != nil && !errors.Is(err, workgraph.ErrEnded) && !errors.Is(err, errDropped) {
		return fmt.Errorf("recover run %s: %w", r.id, err)
	}
	r.markBegun()
	if at, ok := r.next(); ok && !at.After(time.Now()) {
		// The time has come, or passed while nothing owned the run.
		r.setTimer(at)
	}
	r.applyLocked(commands)
	return nil
}

// withCancel adds the run's cancel to its commands: it may be behind more commands than are loaded with the
// run.
func (t *session) withCancel(ctx context.Context, row journal.Run, commands []journal.Command) ([]journal.Command, error) {
	if row.CancelTime.IsZero() || len(commands) < journal.MaxLoadedCommandBytes || slices.ContainsFunc(commands, isCancel) {
		return commands, nil
	}
	m, found, err := t.e.journal.FindCommand(ctx, row.Namespace, row.ID, journal.CommandCancel, "", true)
	if err != nil || !found {
		return commands, err
	}
	return append(commands, m), nil
}

// confirmHarmless records progress of a run that was taken over, if it is still live after ProgressAfter.
func (t *session) confirmHarmless(r *run) {
	time.AfterFunc(t.e.cfg.ProgressAfter, func() {
		r.lock()
		defer r.mu.Unlock()
		if r.gone.Load() {
			return
		}
		r.suspect.Store(false)
		r.write(&journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Progress: true})
	})
}

// awaitRelease waits until the write that releases ownership, if there is one, is answered. It reports
// whether there is one: then the run must be read anew.
func (r *run) awaitRelease(ctx context.Context) bool {
	r.mu.Lock()
	released := r.released
	r.mu.Unlock()
	if released == nil {
		return false
	}
	select {
	case <-released:
	case <-ctx.Done():
	}
	return true
}

// readPending reads what a run that has not begun begins with. ready is false before the run's time, unless
// it is to end; an alarm is set then.
func (t *session) readPending(ctx context.Context, r *run, row journal.Run, kept []byte) (ready bool, err error) {
	if row.WakeTime.After(time.Now()) && row.CancelTime.IsZero() {
		t.alarms.set(row.Namespace, r.id, row.WakeTime)
		return false, nil
	}
	b := &workgraph.Begin{Context: row.Context}
	if len(row.Args) > 0 {
		if err := json.Unmarshal(row.Args, &b.Input.Args); err != nil {
			return false, fmt.Errorf("decode arguments: %w", err)
		}
	}
	if len(row.Named) > 0 {
		if err := json.Unmarshal(row.Named, &b.Input.Named); err != nil {
			return false, fmt.Errorf("decode arguments: %w", err)
		}
	}
	req := command.StartRequest{Input: b.Input, Attachments: row.Attachments}
	b.Input = req.Propagates()
	var rec pendingExtras
	if len(kept) > 0 {
		if err := json.Unmarshal(kept, &rec); err != nil {
			return false, fmt.Errorf("decode pending run: %w", err)
		}
	}
	given, err := record.CallerDataOf(row.Metadata)
	if err != nil {
		return false, err
	}
	b.Budget = given.Budget
	b.Reuse = rec.Reuse
	r.pendingStart, r.pendingSignal = b, rec.Signal
	r.InputBytes = record.InputSize(b.Input, b.Context)
	if r.task != "" && !r.lineage.Borrowed && t.e.claims != nil && row.CancelTime.IsZero() {
		// Its claim may have expired while it waited.
		switch _, err := t.e.claims.Claim(ctx, r.namespace, r.task, r.id, t.e.cfg.ClaimLease); {
		case err == nil:
		case transient(err) || ctx.Err() != nil:
			return false, err
		default:
			r.refused = errs.ReasonOf(err)
		}
	}
	if row.CancelTime.IsZero() && r.lineage.Parent == "" && r.refused == "" {
		release, ok, err := t.e.quotas.Admit(ctx, r.namespace)
		if err != nil {
			return false, err
		}
		if !ok {
			return false, t.noRoom(ctx, row)
		}
		r.room = release
	}
	return true, nil
}

// beginNow begins a run that was recorded earlier. The caller holds r.mu.
func (r *run) beginNow(now time.Time, commands []journal.Command) error {
	room := r.takeRoom()
	kept := false
	defer func() {
		if !kept {
			room()
		}
	}()
	if i := slices.IndexFunc(commands, func(m journal.Command) bool { return m.Kind == journal.CommandCancel }); i >= 0 {
		r.applyLocked(commands[i : i+1])
		return nil
	}
	if r.refused != "" {
		return r.beginAndEnd(r.refused, extra{})
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		return r.beginAndEnd(workgraph.ReasonDeadline, extra{})
	}
	r.started = dbkit.Micros(now)
	begin, err := r.beginCommand(now)
	if err != nil {
		return err
	}
	evs, eff, err := r.State.Advance(begin)
	if err != nil {
		return err
	}
	if sig := r.pendingSignal; sig != nil && eff.Ended == nil {
		more, fx, err := r.State.Advance(workgraph.Signaled{Name: sig.Name, Payload: sig.Payload, Now: now})
		if errors.Is(err, workgraph.ErrAborted) {
			return err
		}
		if err == nil { // it was checked when it was recorded
			evs, eff = append(evs, more...), eff.And(fx)
		}
	}
	if err := r.commit(evs, eff, extra{begins: true, after: func(error) { room() }}); err != nil {
		return err
	}
	kept = true
	r.applyLocked(commands)
	return nil
}

// resumeTrace returns the parent of the spans of a run that continues here. A run that begins only now stays
// in the trace in which it was recorded. A run that was evicted or taken over gets a new trace, since the
// first one may be days old. The two traces link to each other, so that the first one leads to all later
// ones. A run without a sampled trace gets none.
func (t *session) resumeTrace(row journal.Run) trace.SpanContext {
	origin, ctx := tracing.OfRun(row), context.Background()
	if origin.IsValid() && !origin.IsSampled() {
		return origin
	}
	below := trace.ContextWithRemoteSpanContext(ctx, origin)
	if row.LastSeq == 0 {
		_, span := t.e.tracer.Start(below, "run.begin", trace.WithAttributes(tracing.RunAttribute(row.ID)))
		defer span.End()
		return tracing.FirstValid(span.SpanContext(), origin)
	}
	_, span := t.e.tracer.Start(ctx, "run.resume", trace.WithNewRoot(), trace.WithLinks(tracing.LinksTo(origin)...), trace.WithAttributes(tracing.RunAttribute(row.ID)))
	defer span.End()
	if origin.IsValid() && span.SpanContext().IsValid() {
		_, to := t.e.tracer.Start(below, "run.continued", trace.WithLinks(tracing.LinksTo(span.SpanContext())...), trace.WithAttributes(tracing.RunAttribute(row.ID)))
		to.End()
	}
	return tracing.FirstValid(span.SpanContext(), origin)
}
