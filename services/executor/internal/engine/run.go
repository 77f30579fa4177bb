package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// run is one run in the memory of its owner. The machine advances ahead of the database: every decision is
// queued with the writer at once, in order, and acted on when the writer says that it is durable.
type run struct {
	t         *session
	id        string
	namespace string
	root      string
	task      string
	priority  int // 1 to 4, 0 for the default
	schedule  string
	created   time.Time
	// trace is what attempts hang below: the span that started the run, or the one that took it up again.
	trace trace.SpanContext

	// regraphed is set once the run's graph is another one than its program's, or is to become so.
	regraphed atomic.Bool

	// mu guards the machine and everything that follows it.
	mu sync.Mutex
	replay.Position
	usage   journal.Usage
	started time.Time
	// durable is how far the writer is known to have come; over says that it wrote the end.
	durable int64
	over    bool
	pending int // writes that are not answered yet
	// quiet is closed once none is pending; nil when nobody waits for that: see awaitQuiet.
	quiet chan struct{}
	// gone is set when this value no longer stands for the run: it was parked or lost.
	gone atomic.Bool
	// mending is not nil while the machine is of no use, and closed when it is whole again: see mend.
	mending chan struct{}
	// suspect is set while one more death of its owner may quarantine the run: it gets its turn first, so
	// that it soon shows whether it is to blame.
	suspect atomic.Bool
	marks   marks
	// lineage is where the run stands among others.
	lineage record.Lineage
	// metadata is that of its row.
	metadata []byte
	// deadline is when it is ended whatever it does; zero means never.
	deadline time.Time
	// children are those that it waits for, by id; the value tells whether the child is known to be recorded.
	children map[string]bool
	// taken are the commands that were taken up by writes which are not answered yet.
	taken map[int64]bool
	// heard are those of which such an answer has come while commands of the run is read, as what is read may
	// name them still; nil at other times.
	heard map[int64]bool
	// detailsWritten is when heartbeats were last written without need.
	detailsWritten time.Time
	// said is set while some of it is in no position that was given to the writer.
	said bool
	// askAt is when prices are asked for that it waits for, the zero time at once; asking says that somebody
	// does.
	askAt  time.Time
	asking bool
	// early is set while commands wait for the end of a call under way.
	early bool
	// released is closed when the write that gives the run away was answered; nil before that write.
	released chan struct{}
	// pendingStart is what a run that was recorded and never begun begins with; nil for any other.
	pendingStart  *workgraph.Begin
	pendingSignal *command.Signal
	// refused is why a pending run must not begin after all.
	refused string
	// room is to be called when the beginning of a pending run is durable or came to nothing; nil when
	// nothing is kept for it.
	room func()
	// size is what it counts for in the memory of live runs.
	size atomic.Int64
	// beyond is what counts for it in memory.canceled. It is set before the run is live; then the term's mu
	// guards it.
	beyond int64

	// kmu guards acks, the answers that came while mu was held, for catchUp; nil while there is none. It is
	// taken after mu; acked, which holds it alone, only tries mu.
	kmu  sync.Mutex
	acks []ack

	// turn is set while the holder of mu has a turn to compute; mu guards it. ends is closed, under mu, once
	// the run is to end: from then on nothing waits for a turn.
	turn bool
	ends chan struct{}

	// opening and canceling are set while commands are taken up beside, missed when more came meanwhile.
	opening, canceling, missed atomic.Bool

	// amu guards what the acknowledged decisions set in motion. It may be taken while mu is held, not the
	// other way round.
	amu       sync.Mutex
	attempts  map[workgraph.Ref]*attempt
	timer     *time.Timer
	timerAt   time.Time
	idleTimer *time.Timer
	stopped   bool
	// evaluating aborts the evaluation under way, if there is one; aborted lets none go on.
	evaluating context.CancelCauseFunc
	aborted    bool
	// begun says that the run has come to be what its journal says.
	begun bool
	// concluding counts the UNSAFE calls that have ended and whose outcomes are not decided yet.
	concluding int
}

// extra is what goes along with a command besides the machine's own decision.
type extra struct {
	attempt endedAttempt
	from    origin
	// progress says that the run has come on with it: what counts against it in take-overs is forgotten.
	progress bool
	// keep has the position written, though nothing happened.
	keep bool
	// begins says that a run which was recorded earlier begins with this.
	begins bool
	// recover starts what is outstanding instead of what the decision alone would start.
	recover bool
	// leads says that the caller lets the writer lead right after it has given r.mu back.
	leads bool
	// after is called once the decision is durable, or cannot become so; it must not block. It is not called
	// if advance returns an error.
	after func(error)
	// again is called with r.mu held when the evaluation of the command was aborted and the machine is whole
	// again: see mend. Nil is for what comes again by itself, as commands and timers do.
	again func(*closing)
}

// endedAttempt is what the journal and the accounts keep of an attempt that ends with a decision.
type endedAttempt struct {
	start time.Time
	actor string
	// reporter is whose key told how the attempt ended.
	reporter string
	cached   bool
	usage    []workgraph.Usage
	entries  []outbox.Entry
	trace    outbox.Trace
}

// origin is the durable command that a decision comes from; the zero value is none.
type origin struct {
	// id is that of the command; more says that another one waits already.
	id   int64
	more bool
	// requestID and principal are those of the request that wrote it. They go into its event.
	requestID, principal string
	// rollup is what a child used.
	rollup journal.Usage
	// change are the nodes that an amendment changes.
	change *record.GraphChange
}

var errDropped = errors.New("engine: the run is no longer held here")

// advance gives cmd to the machine and queues what it decided. The caller holds r.mu. An error of the machine
// leaves all as it was, but after an evaluation that was aborted the machine is mended. If the decision
// cannot be written the run is given up and read again.
func (r *run) advance(cmd workgraph.Command, x extra) error {
	if r.gone.Load() || r.mending != nil {
		return errDropped
	}
	defer r.stepping(cmd)()
	evs, eff, err := r.State.Advance(cmd)
	if err != nil {
		switch {
		case errors.Is(err, workgraph.ErrCorrupt):
			r.t.lose(r, err)
		case errors.Is(err, workgraph.ErrAborted):
			r.mend(x.again)
			return errDropped
		}
		return err
	}
	if x.recover {
		eff.Starts = r.State.Outstanding()
		for _, s := range eff.Spawns {
			r.children[s.Child.ID] = r.Sure && !r.Unsure[s.Child.ID]
		}
	}
	r.slim(eff.Ended)
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

// commit queues what the machine decided. The caller holds r.mu.
func (r *run) commit(evs []workgraph.Event, eff workgraph.Effects, x extra) error {
	w := &journal.Append{Namespace: r.namespace, RunID: r.id, ExpectedLastSeq: r.Seq, Progress: x.progress}
	c, err := r.fill(w, evs, eff, x)
	if err != nil {
		r.t.lose(r, err)
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
		r.t.lose(r, err)
		return err
	}
	return nil
}

// recorded reports whether spans below the run's are kept, so that what they would say is worth putting
// together.
func (r *run) recorded() bool { return r.trace.IsSampled() || !r.trace.IsValid() }

// commitSpan begins the span of a wait for durability: from handing a decision to the writer, over the flush
// that it shares with others, to the answer. The returned function ends it.
func (r *run) commitSpan(events int) func(error) {
	if !r.recorded() {
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

// slim lets a run end that did not complete, whatever its sinks hold: they stay readable as visits.
func (r *run) slim(end *workgraph.RunEnd) {
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

// tooLargeError says that the decision was taken but is too large to be written; the machine must be mended.
type tooLargeError struct{ err error }

func (e *tooLargeError) Error() string { return "decision too large: " + e.err.Error() }
func (e *tooLargeError) Unwrap() error { return e.err }

// fill puts what was decided into w, moves r.seq on and returns what follows once w is durable. The caller
// holds r.mu.
func (r *run) fill(w *journal.Append, evs []workgraph.Event, eff workgraph.Effects, x extra) (consequence, error) {
	out := make([]feed.Event, 0, len(evs))
	was := r.Graph
	if eff.Graph != nil {
		var err error
		if w.GraphHash, w.Graph, err = r.ChangeGraph(eff.Graph); err != nil {
			return consequence{}, err
		}
		r.regraphed.Store(true)
	}
	changes := record.GraphChanges(evs, was, w.GraphHash, x.from.change)
	for i := range evs {
		d := &record.Durable{Event: evs[i], GraphChange: changes[i]}
		if d.Kind == workgraph.AttemptEnded {
			d.StartTime, d.Actor, d.Cached, d.Principal = x.attempt.start, x.attempt.actor, x.attempt.cached, x.attempt.reporter
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
		if w.Outbox, err = r.accounting(x, eff.Ended, now); err != nil {
			return consequence{}, err
		}
	}
	if x.begins {
		if err := r.confirm(w, now); err != nil {
			return consequence{}, err
		}
	}
	if err := r.relatives(w, eff, now); err != nil {
		return consequence{}, err
	}
	if err := r.rebudget(w, evs, now); err != nil {
		return consequence{}, err
	}
	if eff.Ended != nil && r.schedule != "" {
		// What waits there for the end of this run goes on.
		w.Jobs = append(w.Jobs, journal.ScheduleJob(r.namespace, r.schedule, time.Time{}))
	}
	r.questions(w, eff, now)
	r.webhookJobs(w, evs, eff)
	// From the journal alone a graph that has grown is read back by way of that of the beginning, which takes
	// longer.
	c := r.consequence(out, eff)
	leaves := c.idle && c.idleTimer == 0 && !x.from.more && !x.recover
	if r.wantsSnapshot(eff.Ended != nil, leaves) || w.GraphHash != "" {
		if w.Snapshot, err = r.snapshot(); err != nil {
			return consequence{}, err
		}
		r.SnapSeq = r.Seq
	}
	r.weigh()
	c.recovered = x.recover
	c.outbox, c.hasCommands, c.applied = len(w.Outbox) > 0, w.Command, w.Applied
	if leaves {
		r.releaseOwnership(w)
		c.released = true
	}
	return c, nil
}

// wantsSnapshot spaces snapshots so that all of them together cost no more than a small multiple of the
// journal. A run that leaves memory is read back from its last one. One that is idle and stays takes none:
// with thousands of children, or commands, it is idle after each.
func (r *run) wantsSnapshot(ended, leaves bool) bool {
	since := r.Seq - r.SnapSeq
	if ended || since == 0 {
		return false
	}
	return leaves || since >= max(int64(r.t.e.cfg.SnapshotEvery), r.SnapSeq/2)
}

// idle reports whether the run holds nothing but rows: paused, or waiting for something that is not near. The
// caller holds r.mu.
func (r *run) idle() bool {
	if r.State.InFlight() > 0 {
		return false
	}
	for _, recorded := range r.children {
		if !recorded {
			return false
		}
	}
	switch st, _ := r.State.Status(); st {
	case workgraph.StatusPaused, workgraph.StatusRunning:
		at, ok := r.next()
		return !ok || time.Until(at) > r.t.e.cfg.EvictAfter
	}
	return false
}

// next is when the run goes on by itself. The caller holds r.mu.
func (r *run) next() (at time.Time, ok bool) {
	switch st, _ := r.State.Status(); st {
	case workgraph.StatusRunning:
		at, ok = r.State.NextTimer()
	case workgraph.StatusPaused:
		at, ok = r.nextAsk()
	default:
		return at, false
	}
	if d := r.deadline; !d.IsZero() && (!ok || d.Before(at)) {
		return d, true
	}
	return at, ok
}

// snapshot is the stored form of the run's position. The caller holds r.mu.
func (r *run) snapshot() ([]byte, error) {
	all := true
	for _, recorded := range r.children {
		all = all && recorded
	}
	b, err := r.Encode(all)
	if err == nil {
		r.said = false
	}
	return b, err
}

// status is the run's row as it follows from the machine. The caller holds r.mu.
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
	// What waits for prices goes on by itself, whoever owns it.
	if at, ok := r.next(); ok && (r.State.InFlight() == 0 || len(r.State.Unsettled()) > 0) {
		s.WakeTime = dbkit.Micros(at)
	}
	if end == nil {
		return s, nil, nil
	}
	s.State, s.Reason, s.EndTime = endState(end.Status), end.Reason, now
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

func endState(s workgraph.Status) journal.State {
	switch s {
	case workgraph.StatusCompleted:
		return journal.StateCompleted
	case workgraph.StatusCanceled:
		return journal.StateCanceled
	}
	return journal.StateFailed
}

// retire takes the run out of motion: nothing starts, no timer fires, calls in flight are told cause. It is
// idempotent and safe while r.mu is held.
func (r *run) retire(cause error) {
	r.amu.Lock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
	attempts := r.attempts
	r.t.memory.Add(r.namespace, -attemptWeight*int64(len(r.attempts)))
	r.attempts = nil
	r.amu.Unlock()
	for _, a := range attempts {
		a.reported.Store(true)
		a.stop(cause)
		r.t.sched.Remove(&a.task)
	}
}

// arm sets the run's one timer. A zero time takes it off.
func (r *run) arm(at time.Time) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if r.stopped || at.Equal(r.timerAt) {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.timerAt = at
	if !at.IsZero() {
		r.timer = time.AfterFunc(time.Until(at), func() { r.due(at) })
	}
}

// due lets the machine look at its timers. A wake-up that came too early for it is repeated.
func (r *run) due(at time.Time) {
	r.amu.Lock()
	if r.stopped || !at.Equal(r.timerAt) {
		r.amu.Unlock()
		return
	}
	r.timerAt = time.Time{}
	r.amu.Unlock()
	if !r.t.lease.Await(r.t.background) {
		return // the term is over in a moment, and its successor has timers of its own
	}
	leave := r.stepBefore(r.deadline)
	if leave == nil {
		return
	}
	defer leave()
	if r.asksNow() {
		r.t.spawn(func() { r.t.awaitPrices(r) })
	}
	before, now := r.Seq, time.Now().UTC()
	var cmd workgraph.Command = workgraph.TimerDue{Now: now}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		cmd = workgraph.DeadlinePassed{Now: now}
	}
	if err := r.advance(cmd, extra{}); err != nil {
		r.t.e.log.DebugContext(context.Background(), "timer refused", "err", err, "run_id", r.id)
		return
	}
	if r.Seq == before {
		if next, ok := r.next(); ok {
			if soon := time.Now().Add(time.Millisecond); next.Before(soon) {
				next = soon
			}
			if r.asking {
				next = r.deadline // whoever asks sees to the rest
			}
			r.arm(next)
		}
	}
}
