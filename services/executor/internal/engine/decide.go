package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// write queues a write without a decision. The caller holds r.mu.
func (r *run) write(w *journal.Append) {
	r.pending++
	if err := r.t.writer.Submit(journal.Write{Append: w}, func(res journal.Result) { r.acked(ack{res: res, c: consequence{keep: true}}) }); err != nil {
		r.pending--
	}
}

// advance gives cmd to the machine and queues the decision. The caller holds r.mu.
//
// An error of the machine leaves everything as it was, except that an aborted evaluation makes the machine be
// rebuilt. If the decision cannot be written, the run is dropped and read again.
func (r *run) advance(cmd workgraph.Command, x extra) error {
	if r.gone.Load() || r.rebuilding != nil {
		return errDropped
	}
	defer r.markStep(cmd)()
	evs, eff, err := r.State.Advance(cmd)
	if err != nil {
		switch {
		case errors.Is(err, workgraph.ErrCorrupt):
			r.t.dropAndReload(r, err)
		case errors.Is(err, workgraph.ErrAborted):
			r.rebuild(x.again)
			return errDropped
		}
		return err
	}
	if x.recover {
		eff.Starts = r.State.Outstanding()
		for _, s := range eff.Spawns {
			r.children[s.Child.ID] = r.ChildrenRecorded && !r.Uncertain[s.Child.ID]
		}
	}
	r.dropLargeOutputs(eff.Ended)
	if len(evs) == 0 && x.from.id == 0 {
		if x.recover {
			c := r.consequence(nil, eff)
			c.recovered = true
			r.t.actOn(r, journal.Result{}, c)
		}
		if x.after != nil {
			x.after(nil)
		}
		return nil
	}
	return r.commit(evs, eff, x)
}

// commit queues a decision of the machine. The caller holds r.mu.
func (r *run) commit(evs []workgraph.Event, eff workgraph.Effects, x extra) error {
	w := &journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Progress: x.progress}
	c, err := r.fill(w, evs, eff, x)
	if err != nil {
		r.t.dropAndReload(r, err)
		return err
	}
	r.pending++
	committed := r.commitSpan(len(w.Events))
	submit := r.t.writer.Submit
	if x.leads {
		submit = r.t.writer.Leave
	}
	err = submit(journal.Write{Append: w}, func(res journal.Result) {
		committed(res.Err)
		r.acked(ack{res: res, c: c, after: x.after})
	})
	if err != nil {
		committed(err)
		r.pending--
		r.unrelease()
		if errs.ReasonOf(err) == journal.ReasonPayloadTooLarge {
			return &tooLargeError{err}
		}
		r.t.dropAndReload(r, err)
		return err
	}
	return nil
}

// sampled reports whether spans below the run's span are recorded, so that it is worth building them.
func (r *run) sampled() bool { return r.trace.IsSampled() || !r.trace.IsValid() }

// commitSpan starts the span of one commit: from queueing the decision, over the flush that it shares with
// others, to the answer. The returned function ends it.
func (r *run) commitSpan(events int) func(error) {
	if !r.sampled() {
		return func(error) {}
	}
	_, span := r.t.e.tracer.Start(trace.ContextWithSpanContext(context.Background(), r.trace), "journal.commit",
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.RunAttribute(r.id), attribute.Int("epigraph.journal.events", events)))
	return func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, errs.ReasonOf(err))
		}
		span.End()
	}
}

// dropLargeOutputs removes outputs over the limit from the end of a run that did not complete, so that the
// end can be written. The outputs stay readable as visits.
func (r *run) dropLargeOutputs(end *workgraph.RunEnd) {
	if end == nil || end.Status == workgraph.StatusCompleted {
		return
	}
	n := 0
	for _, v := range end.Outputs {
		n += len(v)
	}
	if n <= r.t.e.cfg.MaxPayload {
		return
	}
	end.Outputs, end.Result = nil, nil
	if end.Message != "" {
		end.Message += "; "
	}
	end.Message += fmt.Sprintf("the outputs of the nodes that completed, %d bytes, are left out", n)
}

// tooLargeError says that a decision is too large to be written. The machine has taken it already, so it must
// be rebuilt.
type tooLargeError struct{ err error }

func (e *tooLargeError) Error() string { return "decision too large: " + e.err.Error() }

func (e *tooLargeError) Unwrap() error { return e.err }

// fill puts a decision into w, advances r.Seq, and returns what follows once w is durable. The caller holds
// r.mu.
func (r *run) fill(w *journal.Append, evs []workgraph.Event, eff workgraph.Effects, x extra) (consequence, error) {
	out := make([]feed.Event, 0, len(evs))
	was := r.Graph
	if eff.Graph != nil {
		var err error
		if w.GraphHash, w.Graph, err = r.ChangeGraph(eff.Graph); err != nil {
			return consequence{}, err
		}
		r.graphChanged.Store(true)
	}
	changes := record.GraphChanges(evs, was, w.GraphHash, x.from.change)
	for i := range evs {
		d := &record.Durable{Event: evs[i], GraphChange: changes[i]}
		if d.Kind == workgraph.AttemptEnded {
			of, left := x.left[d.Ref]
			if !left {
				of = x.attempt
			}
			d.StartTime, d.Actor, d.Cached, d.Principal = of.start, of.actor, of.cached, of.reporter
		}
		if i == 0 && (x.from.requestID != "" || x.from.principal != "") {
			d.RequestID, d.Principal = x.from.requestID, x.from.principal
		}
		row, err := record.EncodeEvent(d)
		if err != nil {
			return consequence{}, err
		}
		r.Position.Count(d, len(row.Data))
		w.Events = append(w.Events, row)
		ev := feed.Event{RunID: r.id, RootID: r.root, Durable: d}
		if d.Kind == workgraph.RunStarted {
			ev.GraphHash = r.Program.Hash
		}
		out = append(out, ev)
	}
	r.addUsage(x.attempt.usage)
	r.addUsageOfChild(x.from.rollup)
	r.Seq += int64(len(evs))
	if x.from.id != 0 {
		w.Applied = []int64{x.from.id}
	}
	now := dbkit.Now()
	var err error
	if w.Status, w.Outcome, err = r.status(now, eff.Ended); err != nil {
		return consequence{}, err
	}
	if len(evs) > 0 {
		if w.Outbox, err = r.accounting(x, evs, eff.Ended, now); err != nil {
			return consequence{}, err
		}
	}
	if x.begins {
		if err := r.confirm(w, now); err != nil {
			return consequence{}, err
		}
	}
	if err := r.relatedCommands(w, eff, now); err != nil {
		return consequence{}, err
	}
	if err := r.leaveChildren(w, x.leaves, now); err != nil {
		return consequence{}, err
	}
	if err := r.steerChildren(w, evs, x, now); err != nil {
		return consequence{}, err
	}
	if err := r.writeBudget(w, evs, now); err != nil {
		return consequence{}, err
	}
	if err := r.writePayer(w, x.attempt.payer); err != nil {
		return consequence{}, err
	}
	if eff.Ended != nil && r.schedule != "" {
		// The schedule may wait for the end of this run.
		w.Jobs = append(w.Jobs, journal.ScheduleJob(r.namespace, r.schedule, time.Time{}))
	}
	if eff.Ended != nil && (r.lineage.Workflow != "" || r.lineage.TurnOf != "") && r.root == r.id && r.t.e.triggered {
		// Triggers may wait for the end of runs of this workflow.
		w.Jobs = append(w.Jobs, journal.EndJob(r.namespace, r.id))
	}
	r.letTurnsGoOn(w, eff)
	r.interruptRows(w, eff, now)
	r.lineUp(eff.Threads)
	r.addToThreads(w, eff.Threads, now)
	if err := r.tellLearned(w); err != nil {
		return consequence{}, err
	}
	r.webhookJobs(w, evs, eff)
	saved := r.keepOutcomes(w, evs, eff.Kept, x)
	// A snapshot saves reading an expanded graph by way of the first one, which takes longer.
	c := r.consequence(out, eff)
	c.heldBack = r.goOnSpawning()
	leaves := c.idle && c.idleTimer == 0 && !x.from.more && !x.recover
	if r.wantsSnapshot(eff.Ended != nil, leaves) || w.GraphHash != "" {
		if w.Snapshot, err = r.snapshot(); err != nil {
			return consequence{}, err
		}
		r.SnapSeq = r.Seq
	}
	r.weigh()
	c.recovered, c.saved, c.routes, c.unused = x.recover, saved, r.routes(out), x.unused()
	c.outbox, c.commands, c.applied, c.threads = waking(w), w.Command, w.Applied, w.Threads
	if leaves {
		r.releaseOwnership(w)
		c.released = true
	}
	return c, nil
}

// wantsSnapshot spaces snapshots so that together they cost no more than a small multiple of the journal. A
// run that leaves memory always gets one, since it is read back from it. A run that is idle and stays gets
// none: with thousands of children or commands it is idle after each.
func (r *run) wantsSnapshot(ended, leaves bool) bool {
	since := r.Seq - r.SnapSeq
	if ended || since == 0 {
		return false
	}
	return leaves || since >= max(int64(r.t.e.cfg.SnapshotEvery), r.SnapSeq/2)
}

// status derives the run's row from the machine. The caller holds r.mu.
func (r *run) status(now time.Time, end *workgraph.RunEnd) (*journal.Status, *journal.Outcome, error) {
	s := &journal.Status{State: journal.StateRunning, StartTime: r.started, UpdateTime: now, Usage: r.usage, Nodes: r.Tally.Counts}
	st, reason := r.State.Status()
	switch st {
	case workgraph.StatusPaused:
		s.State, s.Reason = journal.StatePaused, reason
	case workgraph.StatusDraining:
		s.Reason = reason
	case workgraph.StatusRunning:
		if r.State.InFlight() == 0 {
			s.State = journal.StateWaiting
		}
	}
	// A run that waits for prices, or for room under a cap, continues by itself, whichever executor
	// owns it.
	if at, ok := r.next(); ok && (r.State.InFlight() == 0 || len(r.State.Unsettled()) > 0 || r.State.Refused() != nil) {
		s.WakeTime = dbkit.Micros(at)
	}
	if end == nil {
		return s, nil, nil
	}
	s.State, s.Reason, s.EndTime = journalState(end.Status), end.Reason, now
	o := &journal.Outcome{Result: end.Result}
	if len(end.Outputs) > 0 {
		b, err := json.Marshal(end.Outputs)
		if err != nil {
			return nil, nil, err
		}
		o.Outputs = b
	}
	if e := record.NewRunError(end); e != nil {
		b, err := json.Marshal(e)
		if err != nil {
			return nil, nil, err
		}
		o.Error = b
	}
	return s, o, nil
}

func journalState(s workgraph.Status) journal.State {
	switch s {
	case workgraph.StatusCompleted:
		return journal.StateCompleted
	case workgraph.StatusCanceled:
		return journal.StateCanceled
	}
	return journal.StateFailed
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*tooLargeError](err)
	return ok
}

// job is a job for the run at a time. It is due a little early, so that the executor that works it can
// continue the run at the exact instant.
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

// releaseOwnership makes w the last write of this owner: the run has no owner after it, and a job wakes it
// for its next timer. This value decides nothing more. Commands that arrive meanwhile are applied after the
// run is read anew, by this executor if it can. The caller holds r.mu.
func (r *run) releaseOwnership(w *journal.Append) {
	w.Release, w.Claims = true, r.t.canClaim()
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

// unrelease undoes releaseOwnership if its write could not be queued. The caller holds r.mu.
func (r *run) unrelease() {
	if r.released == nil {
		return
	}
	close(r.released)
	r.released = nil
	r.gone.Store(false)
}

// confirm adds the outbox item that confirms the claim of the run's task, to the write with which the run
// begins.
func (r *run) confirm(w *journal.Append, now time.Time) error {
	if r.task == "" || r.lineage.Borrowed {
		return nil
	}
	o, err := outbox.Confirm{TaskID: r.task, RunID: r.id, Workflow: r.lineage.Workflow, Start: now, Trace: tracing.OfSpan(r.trace)}.Out()
	if err != nil {
		return err
	}
	w.Outbox = append([]journal.Out{o}, w.Outbox...)
	return nil
}
