package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// scan takes over runs that no live executor owns, for as long as the term lasts.
func (t *session) scan(ctx context.Context) {
	for {
		wait := t.e.cfg.ScanInterval
		// A run that only stands in line here would count one more take-over if this executor went down, and
		// could as well be started by another: of a namespace no more are claimed than can be worked on soon.
		began, except := time.Now(), t.crowded()
		switch more := !t.memory.Full() && t.takeOver(ctx, journal.TakeOverOptions{Limit: min(t.e.cfg.Parallel, takeBatch), Except: except}); {
		case more:
			wait = 0
		case t.memory.Full() || len(except) > 0:
			wait = min(wait, max(crowdedPause, 4*time.Since(began)))
		}
		if ctx.Err() != nil {
			return
		}
		if wait == 0 {
			continue
		}
		if !sleep.For(ctx, wait) {
			return
		}
	}
}

const (
	// takeBatch is how many runs are claimed at a time. A small number spreads them over the replicas.
	takeBatch = 128
	// crowdedPause is the pause between two looks at a full line.
	crowdedPause = 20 * time.Millisecond
	// canceledPause is the pause between two looks for canceled runs, and canceledBatch how many are claimed
	// at a time.
	canceledPause, canceledBatch = time.Second, 32
)

// scanCanceled takes over canceled runs that no live executor owns while this one has no room for what others
// do: such a run is to end, however full memory is, and scan and jobs leave it to others.
func (t *session) scanCanceled(ctx context.Context) {
	for t.rest(canceledPause) {
		for t.waitsForRoom() && t.takeOver(ctx, journal.TakeOverOptions{Limit: canceledBatch, Except: t.manyCanceled(), Canceled: true}) {
		}
	}
}

// waitsForRoom reports whether there are runs for which this executor has no room.
func (t *session) waitsForRoom() bool {
	t.mu.Lock()
	waiting := len(t.lines.by) > 0
	t.mu.Unlock()
	return waiting || t.memory.Full() || len(t.crowded()) > 0
}

// crowded are the namespaces for whose runs there is no room here.
func (t *session) crowded() []string {
	out := t.memory.Crowded()
	for _, ns := range t.sched.Crowded() {
		if !slices.Contains(out, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// takeOver claims what Limit, Except and Canceled of o say, reads it, and reports whether there is more.
func (t *session) takeOver(ctx context.Context, o journal.TakeOverOptions) (more bool) {
	leave, free := t.e.suspects.Try()
	defer leave()
	o.Lease, o.NoSuspects, o.TakeOverPolicy, o.QuarantineEvent, o.QuarantineJobs = t.e.cfg.Lease, !free, t.e.TakeOverPolicy(), quarantine, feed.QuarantineJobs
	res, err := t.e.journal.TakeOver(ctx, t.owner, o)
	if err != nil {
		if ctx.Err() == nil && !journal.IsFenced(err) {
			t.e.log.WarnContext(ctx, "take-over did not work", "err", err)
		}
		return false
	}
	if len(res.Claimed) > 0 {
		failpoint.Hit(failpoint.TakeoverAfter)
	}
	for _, ref := range res.Quarantined {
		t.e.log.ErrorContext(ctx, "run brought its owners down and is quarantined", "run_id", ref.RunID, "takeovers", ref.Takeovers, "doing", ref.DiedDoing)
	}
	t.e.explained.Add(res.AtWork)
	if !slices.ContainsFunc(res.Claimed, func(f journal.RunRef) bool { return f.Doing != "" }) {
		leave() // else no other suspect works until this one stands
	}
	t.e.meters.takeover("quarantined", len(res.Quarantined))
	t.e.meters.takeover("claimed", len(res.Claimed))
	if len(res.Claimed) > 0 {
		t.e.log.InfoContext(ctx, "runs taken over", "count", len(res.Claimed))
	}
	var g errgroup.Group
	g.SetLimit(t.e.cfg.RecoverParallel)
	for _, ref := range res.Claimed {
		g.Go(func() error {
			// What is claimed is this executor's to read; what does not fit into memory waits for room, and
			// meanwhile others may have it.
			if !o.Canceled && !t.memory.Room(ref.Namespace, 1) {
				t.handBack(ctx, ref.RunID)
				return nil
			}
			var has turnsHeld
			if ref.Doing != "" {
				has.suspect = leave
			}
			defer has.release()
			if err := t.tryLoad(ref.Namespace, ref.RunID, &has); err != nil {
				t.loadSoon(ref.Namespace, ref.RunID) // others do not wait for one that cannot be read
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return false
	}
	return res.More
}

// quarantine is the event that records the end of patience with a run.
func quarantine(ref journal.RunRef) journal.Event {
	ev, err := record.EncodeEvent(&record.Durable{Event: workgraph.Event{
		Version: workgraph.MachineVersion, Seq: ref.LastSeq + 1, Kind: workgraph.RunPaused, At: dbkit.Now(), Reason: journal.ReasonQuarantined,
	}})
	if err != nil {
		panic(fmt.Sprintf("engine: a constant event cannot be encoded: %v", err))
	}
	return ev
}

// rest waits, and reports whether the term goes on.
func (t *session) rest(d time.Duration) bool {
	return sleep.For(t.background, d)
}

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
	suspect := t.e.TakeOverPolicy().Suspect(row.Takeovers)
	if suspect {
		if has.suspect == nil {
			leave, free := t.e.suspects.Try()
			if !free {
				return errSuspectAtWork
			}
			has.suspect = leave
		}
		if row.Doing == "" { // else it is recorded since its claim
			row.Doing = journal.DoingReading
			t.says(id, row.Doing, "")
		}
	}
	at, err := t.e.Positions().Load(ctx, loaded)
	if err != nil {
		if row.Doing != "" {
			t.says(id, "", row.Doing)
		}
		return err
	}
	r := t.newRun(id, at)
	if row.Doing != "" {
		r.marks.now = []string{row.Doing}
		defer t.unmark(r, row.Doing)
	}
	r.namespace, r.root, r.task, r.created, r.usage, r.started = row.Namespace, row.RootID, row.TaskID, row.CreateTime, row.Usage, row.StartTime
	r.priority, r.deadline, r.schedule, r.metadata = int(row.Priority), row.Deadline, row.ScheduleID, row.Metadata
	if r.lineage, err = record.LineageOf(row); err != nil {
		return err
	}
	if row.LastSeq == 0 {
		done() // the registry may be asked
		ready, err := t.readPending(ctx, r, row, loaded.Snapshot)
		defer func() { r.takeRoom()() }()
		if err != nil || !ready {
			return err
		}
	}
	commands, err := t.withCancel(ctx, row, loaded.Command)
	if err != nil {
		r.takeRoom()()
		return err
	}
	r.trace = t.continued(row)
	r.suspect.Store(suspect)
	r.regraphed.Store(r.State.MayExpand())
	done() // what it takes is known
	if has.compute == nil && (r.evaluates() || slices.ContainsFunc(commands, computes)) {
		give, ok := t.e.computing.Try(r.namespace)
		if !ok {
			r.takeRoom()()
			return &noTurnError{r.namespace}
		}
		has.compute = give
	}
	size := r.Weight()
	if !t.holds(r.Program) {
		size += r.Program.Bytes()
	}
	canceled := !row.CancelTime.IsZero()
	beyond, ok := t.memory.Take(id, r.namespace, size, canceled)
	if !ok {
		r.takeRoom()()
		return &memory.FullError{Namespace: r.namespace, Size: size, Canceled: canceled}
	}
	r.beyond = beyond
	defer r.stepIn(func() {})() // before anybody finds it
	if !t.insert(r) {
		t.memory.Add(r.namespace, -size)
		t.memory.Canceled.Add(r.namespace, -beyond)
		return nil
	}
	r.weigh()
	t.memory.Add(r.namespace, -size)
	now := time.Now().UTC()
	if r.pendingStart != nil {
		if err := r.beginNow(now, commands); err != nil {
			t.remove(r)
			return fmt.Errorf("begin run %s: %w", id, err)
		}
		r.begins()
		return nil
	}
	if why := t.lost(id); why != "" {
		err := r.advance(workgraph.Pause{Reason: why, Now: now}, extra{})
		if errors.Is(err, workgraph.ErrState) { // it is ending
			err = r.advance(workgraph.Cancel{Reason: why, Now: now}, extra{})
		}
		if err != nil && !errors.Is(err, errDropped) {
			t.e.log.ErrorContext(ctx, "run cannot be paused", "err", err, "run_id", id)
		}
	}
	if err := r.advance(workgraph.Recover{Now: now}, extra{recover: true}); err != nil && !errors.Is(err, workgraph.ErrEnded) && !errors.Is(err, errDropped) {
		t.remove(r)
		return fmt.Errorf("recover run %s: %w", id, err)
	}
	r.begins()
	if at, ok := r.next(); ok && !at.After(time.Now()) {
		// Its time has come, or passed while nobody held it.
		r.arm(at)
	}
	r.applyLocked(commands)
	if row.Takeovers > 0 {
		t.vouch(r)
	}
	return nil
}

// withCancel is the commands of a run together with its cancel, which may be behind more commands than comes
// along with the run.
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

// vouch tells the journal, after a while, that a run which was taken over does no harm.
func (t *session) vouch(r *run) {
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

// write queues a write that carries no decision. The caller holds r.mu.
func (r *run) write(w *journal.Append) {
	r.pending++
	if err := r.t.writer.Submit(journal.Write{Append: w}, func(res journal.Result) { r.acked(ack{res: res, c: consequence{keep: true}}) }); err != nil {
		r.pending--
	}
}

// leaving reports, when it is known, whether the run was just given away: then it must be read anew by
// whoever wants it.
func (r *run) leaving(ctx context.Context) bool {
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

// handBack lets others have a run for which there is no room here.
func (t *session) handBack(ctx context.Context, ids ...string) {
	if err := t.e.journal.Release(ctx, t.owner, ids); err != nil && ctx.Err() == nil && !journal.IsFenced(err) {
		t.e.log.WarnContext(ctx, "runs not handed back", "err", err, "count", len(ids), "first", ids[0])
	}
}

// readPending reads what a run begins with that was recorded and never begun. It is not ready before its
// time, unless it is to end; then an alarm is set.
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
	var rec recorded
	if len(kept) > 0 {
		if err := json.Unmarshal(kept, &rec); err != nil {
			return false, fmt.Errorf("decode pending run: %w", err)
		}
	}
	given, err := record.GivenOf(row.Metadata)
	if err != nil {
		return false, err
	}
	b.Budget = given.Budget
	b.Reuse = rec.Reuse
	r.pendingStart, r.pendingSignal = b, rec.Signal
	r.Given = record.InputSize(b.Input, b.Context)
	if r.task != "" && !r.lineage.Borrowed && t.e.claims != nil && row.CancelTime.IsZero() {
		// Its claim may have run out while it waited.
		switch err := t.e.claims.Claim(ctx, r.namespace, r.task, r.id, t.e.cfg.ClaimLease); {
		case err == nil:
		case passing(err) || ctx.Err() != nil:
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
		return r.neverBegun(r.refused, extra{})
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		return r.neverBegun(workgraph.ReasonDeadline, extra{})
	}
	r.started = dbkit.Micros(now)
	begin, err := r.beginning(now)
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

// rescueEvery is how often jobs are looked for that an executor died with.
const rescueEvery = time.Second

// rescueJobs lets jobs come again with which an executor died: once it is not heard of any more, and not only
// when they have taken longer than they may. Nor do they wait for a long lease: a job that comes twice does
// no harm, as a run that two work on would.
func (t *session) rescueJobs(ctx context.Context) {
	tick := time.NewTicker(rescueEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, err := t.e.journal.RescueJobs(ctx, t.e.jobWorker, min(t.e.cfg.Lease, journal.DefaultLease), sweepBatch)
		switch {
		case err != nil && ctx.Err() == nil:
			t.e.log.WarnContext(ctx, "jobs of dead executors not looked for", "err", err)
		case n > 0:
			t.e.log.InfoContext(ctx, "jobs that executors died with come again", "count", n)
		}
	}
}

const (
	// lateWake is how long a wake-up may be overdue until another one is sent, and sweepBatch how many are
	// sent at a time.
	lateWake   = 5 * time.Second
	sweepBatch = 1000
)

// sweep sees to it that wake-ups come in time, whoever leads the queue: it is always ahead of the leader,
// whose statement for many jobs at once may take as long as they are many when the table's statistics are
// old. And it gives parked and pending runs whose wake-up was lost another one, for as long as the term
// lasts.
func (t *session) sweep(ctx context.Context) {
	const ahead = 12 * time.Second
	tick := time.NewTicker(lateWake)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for ready := sweepBatch; ready >= sweepBatch; {
			var err error
			if ready, err = t.e.journal.ReadyJobs(ctx, ahead, sweepBatch); err != nil && ctx.Err() == nil {
				t.e.log.WarnContext(ctx, "jobs that are due before long not made ready", "err", err)
			}
		}
		n, err := t.e.journal.SweepOwnerless(ctx, lateWake, sweepBatch)
		switch {
		case err != nil && ctx.Err() == nil:
			t.e.log.WarnContext(ctx, "parked runs not swept", "err", err)
		case n > 0:
			t.e.log.InfoContext(ctx, "wake-ups that were lost are sent again", "count", n)
		}
	}
}

// continued is what the spans of a run hang below that goes on here. A run that only now begins does so in
// the trace in which it was recorded. One that was parked, or whose owner is gone, gets a new trace, since
// the first one may be days old. Each of the two links to the other, so that the first trace leads to all
// later ones. A caller who wanted no trace gets none.
func (t *session) continued(row journal.Run) trace.SpanContext {
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
