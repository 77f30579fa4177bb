package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of attempts that the engine itself ends.
const (
	// ReasonPayloadTooLarge is the reason when an argument or a result is over the hard limit.
	ReasonPayloadTooLarge = "PAYLOAD_TOO_LARGE"
	// ReasonRunTooLarge is the reason when the results of a run are over the hard limit together.
	ReasonRunTooLarge = "RUN_TOO_LARGE"
	// ReasonActorUnknown is the reason when no actor of that name exists here (any more).
	ReasonActorUnknown = "ACTOR_UNKNOWN"
	// ReasonUnresponsive is the reason when an actor did not return after its context had ended.
	ReasonUnresponsive = "ACTOR_UNRESPONSIVE"
)

// Causes with which the context of a call ends.
var (
	errCanceled = errors.New("the attempt was canceled")
	errTimeout  = errors.New("the attempt took longer than its timeout")
	errIdle     = errors.New("the attempt gave no sign of life for its idle timeout")
	errStopping = errors.New("the executor is stopping")
	errFenced   = errors.New("the executor no longer owns the run")
	errDraining = errors.New("the run is ending, nothing new begins")
)

// What EndReason says when this executor lets go of an attempt: whatever the call gives then, another
// executor decides.
const (
	EndStopping = "EXECUTOR_STOPPING"
	EndFenced   = "EXECUTOR_FENCED"
)

// EndReason is a stable word for why the context of a call has ended.
func EndReason(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return workgraph.ReasonTimeout
	case errors.Is(cause, errIdle):
		return workgraph.ReasonIdleTimeout
	case errors.Is(cause, errStopping):
		return EndStopping
	case errors.Is(cause, errFenced):
		return EndFenced
	}
	return workgraph.ReasonCanceled
}

// attempt is one call of an actor, from the decision that it may start to its report.
type attempt struct {
	run   *run
	start workgraph.Start
	task  sched.Task
	// cached says that the outcome is that of an equal earlier call.
	cached atomic.Bool
	// looked is set when the call asked for what is not in its input: the run's own variables, or nodes
	// further up.
	looked atomic.Bool
	// barred says that it was not begun since its run was barred.
	barred bool
	// reported is set by whoever reports the end; nobody else may after that.
	reported atomic.Bool

	mu      sync.Mutex
	cancel  context.CancelCauseFunc
	cause   error
	started time.Time
	// reporter is whose key the worker showed that told how the call ended; empty for a call made here.
	reporter string
}

// stop ends the context of the call, now or as soon as it begins. The first cause stays.
func (a *attempt) stop(cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		a.cause = cause
	}
	if a.cancel != nil {
		a.cancel(a.cause)
	}
}

// begin makes the context of the call.
func (a *attempt) begin(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cancel, a.started = cancel, dbkit.Now()
	if a.cause != nil {
		cancel(a.cause)
	}
	return ctx, cancel
}

func (a *attempt) startTime() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started
}

// perform makes the call. It runs on a goroutine of the scheduler, which lets the writer lead when this
// returns.
func (t *session) perform(a *attempt) {
	defer t.sched.Done(&a.task)
	t.e.meters.scheduled(a)
	ctx, cancel := a.begin(trace.ContextWithSpanContext(t.calls, a.run.trace))
	defer cancel(nil)
	if !t.lease.Await(ctx) && ctx.Err() == nil {
		return // the next owner makes the call
	}
	doer, info, refused := t.admit(ctx, a)
	if refused != nil {
		t.report(a, nil, refused, outbox.Trace{}, true)
		return
	}
	holds := t.e.calling.Share(a.run.namespace)
	defer holds.Free()
	// A call that is made here has its arguments in a form of their own. What a remote worker gets is made
	// when it is sent.
	if n := 2 * record.InputSize(workgraph.Input{Args: a.start.Args, Named: a.start.Named}); !a.task.Request.Remote {
		if err := holds.Wait(ctx, min(n, t.e.calling.Most())); err != nil {
			t.report(a, nil, notPerformed(context.Cause(ctx)), outbox.Trace{}, true)
			return
		}
	}
	if a.start.NeedsIntent() {
		failpoint.Hit(failpoint.IntentBefore)
		if !t.intend(ctx, a) {
			return
		}
		failpoint.Hit(failpoint.IntentAfter)
	}
	t.call(ctx, a, doer, info)
}

// admit finds who makes the call, and says why it is not to be made.
func (t *session) admit(ctx context.Context, a *attempt) (doer workgraph.Actor, info ActorInfo, refused *workgraph.Error) {
	if ctx.Err() != nil {
		return nil, info, notPerformed(context.Cause(ctx))
	}
	if bar := a.run.barred(); bar != nil {
		a.barred = true
		return nil, info, bar
	}
	doer, info, ok, err := t.actor(ctx, a)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, info, notPerformed(context.Cause(ctx))
	case err != nil:
		return nil, info, workgraph.Errorf(workgraph.NotPerformed, ReasonActorUnknown, "it cannot be told where actor %q is: %v", a.start.Actor, errs.From(err).Message)
	case !ok:
		return nil, info, workgraph.Errorf(workgraph.Permanent, ReasonActorUnknown, "there is no actor %q here", a.start.Actor)
	}
	if n := t.e.oversize(a.start.Args, a.start.Named); n > 0 {
		return nil, info, workgraph.Errorf(workgraph.Permanent, ReasonPayloadTooLarge, "an argument has %d bytes, the limit is %d", n, t.e.cfg.MaxPayload)
	}
	return doer, info, nil
}

// call calls the actor and reports what comes of it, once: an actor that does not return is given up.
func (t *session) call(ctx context.Context, a *attempt, doer workgraph.Actor, info ActorInfo) {
	progress := reporter{t.e.hub, a}
	progress.tell(Ephemeral{Started: true, Actor: a.start.Actor, At: a.startTime()})
	ctx = context.WithValue(actor.WithReporter(ctx, progress), attemptKey{}, a)
	span := trace.SpanFromContext(ctx) // nobody's to end, and says nothing
	if a.run.recorded() {
		ctx, span = t.e.tracer.Start(ctx, "invoke "+a.start.Actor, trace.WithAttributes(
			runID(a.run.id), attribute.String("epigraph.node.id", a.start.Node),
			attribute.Int("epigraph.visit", a.start.Visit), attribute.Int("epigraph.item", a.start.Item),
			attribute.Int("epigraph.attempt", a.start.Attempt), attribute.String("epigraph.actor", a.start.Actor)))
	}
	var carried outbox.Trace
	if t.e.claims != nil {
		carried = carry(ctx)
	}
	var once sync.Once
	ended := func(out *workgraph.Outcome, err *workgraph.Error, leads bool) {
		once.Do(func() {
			if err != nil {
				span.SetStatus(codes.Error, err.Error())
				span.SetAttributes(attribute.String("error.type", err.Reason))
			}
			span.End()
			t.report(a, out, err, carried, leads)
		})
	}
	end := func(out *workgraph.Outcome, err *workgraph.Error) { ended(out, err, true) }
	if a.run.suspect.Load() && !a.task.Request.Remote && !info.Elsewhere {
		done, err := t.watched(ctx, a)
		if err != nil {
			end(nil, notPerformed(err))
			return
		}
		defer done()
	}
	leave := func() {} // gives a turn to compute back
	if info.Computes {
		var err error
		if leave, err = t.e.computing.Enter(ctx, a.run.namespace); err != nil {
			end(nil, notPerformed(err))
			return
		}
		leave = sync.OnceFunc(leave)
		defer leave()
	}
	results := t.e.results.Share(a.run.namespace)
	defer results.Free()
	ctx = actor.WithRoom(ctx, func(ctx context.Context, bytes int64) error {
		err := results.Wait(ctx, min(bytes, t.e.results.Most()))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	})
	call, give := t.bound(ctx, a)
	defer give()
	// An actor that ignores the end of its context is left behind, so that it cannot hold its run up.
	undo := context.AfterFunc(call, func() {
		time.AfterFunc(t.e.cfg.Grace, func() {
			leave()
			ended(nil, workgraph.Errorf(workgraph.Unknown, ReasonUnresponsive, "the actor did not return within %s of its end", t.e.cfg.Grace), false)
			t.sched.Done(&a.task)
		})
	})
	out, err := t.reuse(call, doer, info, a)
	leave()
	failpoint.Hit(failpoint.EffectAfter)
	undo()
	if err != nil {
		end(nil, a.classify(call, err))
		return
	}
	if refused := t.prepare(ctx, a, &out); refused != nil {
		if ctx.Err() != nil {
			refused = a.classify(ctx, ctx.Err())
		}
		refused.Usage = out.Usage
		end(nil, refused)
		return
	}
	if n := record.OutcomeSize(out); n > t.e.cfg.MaxPayload {
		tooLarge := workgraph.Errorf(workgraph.Permanent, ReasonPayloadTooLarge, "the result has %d bytes, the limit is %d", n, t.e.cfg.MaxPayload)
		tooLarge.Usage = out.Usage
		end(nil, tooLarge)
		return
	}
	end(&out, nil)
}

// actor is who makes the call. While the journal, which knows the remote ones, cannot be asked, the attempt
// waits: that uses up none of its tries.
func (t *session) actor(ctx context.Context, a *attempt) (doer workgraph.Actor, info ActorInfo, ok bool, err error) {
	err = t.steadily(ctx, func() (err error) {
		doer, info, ok, err = t.e.actors.Actor(ctx, a.run.namespace, a.start.Actor)
		return err
	})
	return doer, info, ok, err
}

// maxFaulty is how long an answer is asked for that nobody has classified: it may be a database in distress,
// or a fault of ours.
const maxFaulty = time.Minute

// steadily repeats what asks a database until it answers, or ctx ends.
func (t *session) steadily(ctx context.Context, ask func() error) error {
	began := time.Now()
	for wait := soonestTry; ; wait = min(2*wait, time.Second) {
		err := ask()
		if err == nil {
			t.asking.Answered()
			return nil
		}
		if !passing(err) || ctx.Err() != nil || errs.Is(err, errs.ResourceExhausted) || errs.Is(err, errs.Internal) && time.Since(began) > maxFaulty {
			return err
		}
		// One line for all attempts that ask, one while it lasts, and one at the end.
		t.asking.Logger().WarnContext(ctx, "what an attempt needs to know cannot be asked", "err", err)
		sleep.For(ctx, wait)
	}
}

// intend makes the intent of an UNSAFE call durable. It reports whether the call may be made.
func (t *session) intend(ctx context.Context, a *attempt) bool {
	durable := make(chan error, 1)
	r := a.run
	r.lock()
	err := r.advance(workgraph.Attempt{Ref: a.start.Ref, Attempt: a.start.Attempt, Now: time.Now().UTC()},
		extra{leads: true, after: func(err error) { durable <- err }})
	r.mu.Unlock()
	t.writer.Lead()
	if err == nil {
		err = <-durable
	}
	switch {
	case err == nil && !t.lease.Await(ctx) && ctx.Err() == nil:
	case err == nil && ctx.Err() == nil:
		return true
	case err == nil:
		t.report(a, nil, notPerformed(context.Cause(ctx)), outbox.Trace{}, true)
	case errors.Is(err, workgraph.ErrStale) || errors.Is(err, workgraph.ErrState) || errors.Is(err, workgraph.ErrEnded):
		t.report(a, nil, notPerformed(errCanceled), outbox.Trace{}, true)
	}
	return false
}

// bound puts the node's timeouts on the context of a call.
func (t *session) bound(ctx context.Context, a *attempt) (context.Context, func()) {
	if a.start.Timeout <= 0 && a.start.IdleTimeout <= 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &clocks{}
	if d := a.start.Timeout; d > 0 {
		c.limits = append(c.limits, limit{d, time.AfterFunc(d, func() { cancel(errTimeout) })})
	}
	if d := a.start.IdleTimeout; d > 0 {
		idle := limit{d, time.AfterFunc(d, func() { cancel(errIdle) })}
		c.limits, c.idle = append(c.limits, idle), &idle
	}
	return context.WithValue(ctx, clocksKey{}, c), func() {
		c.hold()
		cancel(nil)
	}
}

// clocks are the timeouts of a call that is under way.
type clocks struct {
	limits []limit
	idle   *limit // one of limits, or nil
}

type limit struct {
	d     time.Duration
	timer *time.Timer
}

func (c *clocks) hold() {
	for _, l := range c.limits {
		l.timer.Stop()
	}
}

type clocksKey struct{}

// HoldTimeouts stops the timeouts of the call that ctx belongs to, for as long as nobody makes it; with
// resume they begin anew.
func HoldTimeouts(ctx context.Context) (resume func()) {
	c, _ := ctx.Value(clocksKey{}).(*clocks)
	if c == nil {
		return func() {}
	}
	c.hold()
	return func() {
		for _, l := range c.limits {
			l.timer.Reset(l.d)
		}
	}
}

type attemptKey struct{}

// ReportedBy notes whose API key the worker showed that told how the call ended which ctx belongs to.
func ReportedBy(ctx context.Context, principal string) {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reporter = principal
}

func (t *session) invoke(ctx context.Context, doer workgraph.Actor, a *attempt) (out workgraph.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			t.e.log.ErrorContext(ctx, "actor panicked", "actor", a.start.Actor, "panic", fmt.Sprint(p), "run_id", a.run.id,
				"node", a.start.Node, "stack", string(debug.Stack()))
			kind := workgraph.Permanent
			if a.start.Effect == workgraph.Unsafe {
				kind = workgraph.Unknown
			}
			err = workgraph.Errorf(kind, workgraph.ReasonPanic, "the actor panicked: %v", p)
		}
	}()
	c, _ := ctx.Value(clocksKey{}).(*clocks)
	start := a.start
	start.AttemptToken, start.RootRunID = a.run.attemptToken(start.Ref, start.Attempt), a.run.root
	start.Details = t.detailsOf(a)
	call := workgraph.NewCall(start, workgraph.CallOptions{
		Heartbeat: func(details json.RawMessage) {
			if c != nil && c.idle != nil {
				c.idle.timer.Reset(c.idle.d)
			}
			t.recordDetails(a, details)
		},
		Scope: callScope{a.run, a.start.Ref},
	})
	defer func() { a.looked.Store(call.Looked()) }()
	return doer.Call(ctx, call)
}

// classify turns what a call returned into the machine's error.
func (a *attempt) classify(ctx context.Context, err error) *workgraph.Error {
	var cut *workgraph.Error
	if ctx.Err() != nil {
		cut = interrupted(ctx, a)
	}
	return workgraph.Classify(err, a.start.Effect, cut)
}

// interrupted is the error of a call whose context has ended. After a timeout or a cancel the effect may have
// happened all the same, so the next attempt keeps its key.
func interrupted(ctx context.Context, a *attempt) *workgraph.Error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return workgraph.Errorf(workgraph.Unknown, workgraph.ReasonTimeout, "no end within %s", a.start.Timeout)
	case errors.Is(cause, errIdle):
		return workgraph.Errorf(workgraph.Unknown, workgraph.ReasonIdleTimeout, "no sign of life for %s", a.start.IdleTimeout)
	default:
		return workgraph.Errorf(workgraph.Unknown, workgraph.ReasonCanceled, "%v", cause)
	}
}

func notPerformed(cause error) *workgraph.Error {
	return workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "%v", cause)
}

// finish reports the end of an attempt to the machine, once, and wakes the writer. An attempt that was only
// interrupted by the end of this ownership is not reported: the next owner finds it in the journal as it is.
func (t *session) finish(a *attempt, out *workgraph.Outcome, fail *workgraph.Error, carried outbox.Trace) {
	t.report(a, out, fail, carried, false)
}

// report is finish; leads says that the caller runs on a goroutine of the scheduler, which lets the writer
// lead as soon as perform returns, so that no other goroutine need be woken.
func (t *session) report(a *attempt, out *workgraph.Outcome, fail *workgraph.Error, carried outbox.Trace, leads bool) {
	if !a.reported.CompareAndSwap(false, true) {
		return
	}
	r := a.run
	r.forget(a)
	if fail != nil {
		short := *fail
		if len(fail.Message) > maxMessage {
			short.Message = fail.Message[:maxMessage] + "…"
		}
		short.Reason, short.Message = clean(fail.Reason, maxErrorReason), clean(strings.ToValidUTF8(short.Message, ""), maxMessage+4)
		short.Usage = plausible(fail.Usage)
		fail = &short
	}
	if out != nil && len(out.Usage) > 0 {
		fair := *out
		fair.Usage = plausible(out.Usage)
		out = &fair
	}
	a.mu.Lock()
	cause, reporter := a.cause, a.reporter
	a.mu.Unlock()
	if fail != nil && (errors.Is(cause, errStopping) || errors.Is(cause, errFenced) || errors.Is(cause, errDropped)) {
		r.concluded(a)
		return
	}
	usage := usageOf(out, fail)
	now := time.Now().UTC()
	entries := r.entries(a, usage, fail != nil, dbkit.Micros(now)) // with what the calls say themselves
	t.price(a, usage, now)
	x := extra{progress: true, leads: leads, attempt: endedAttempt{start: a.startTime(), actor: a.start.Actor, reporter: reporter,
		cached: a.cached.Load() && out != nil, trace: carried, usage: usage, entries: entries}}
	t.e.meters.ended(a, fail, usage)
	if out != nil && out.Expand != nil {
		r.regraphed.Store(true)
	}
	held := int64(0) // of a result that waits for a turn
	if out != nil {
		held = int64(record.OutcomeSize(*out) + record.WaitSize(out))
	}
	t.memory.Add(r.namespace, held)
	leave, err := r.step(t.calls)
	t.memory.Add(r.namespace, -held)
	switch {
	case err == nil:
	case a.unsafe():
		leave = r.stepIn(nil) // nobody makes the call again, so its outcome waits for no turn any more
	default:
		return // the successor of this term makes the call again
	}
	defer leave()
	if a.barred && r.letBegin(a) {
		r.concluded(a)
		return
	}
	if bar := r.blocker(); a.barred && bar != nil {
		fail = bar
	}
	if slices.ContainsFunc(usage, func(u workgraph.Usage) bool { return u.Unsettled }) {
		r.askAt = time.Now().Add(r.askPause(0))
	}
	if out != nil {
		r.dropDetails(a.start.Ref)
	}
	r.conclude(a, workgraph.Ended{Ref: a.start.Ref, Attempt: a.start.Attempt, Outcome: out, Err: fail, Now: now}, x, nil)
}

// conclude decides what follows from the end of an attempt: after what ends the run, if there is such. The
// caller holds r.mu.
func (r *run) conclude(a *attempt, end workgraph.Ended, x extra, first *closing) {
	t, cmd := r.t, end
	cmd.Outcome, cmd.Err = r.holdOutcome(end.Outcome, end.Err)
	if r.early {
		r.early, x.from.more = false, true
		defer t.pollCommandsSoon()
	}
	x.again = func(first *closing) {
		x.leads = false
		r.conclude(a, end, x, first)
	}
	var err error
	if first != nil && a.unsafe() {
		// Whoever sees that the run ends sees this outcome, too.
		err = r.advanceAfter(first, cmd, x)
	} else {
		r.endFirst(first)
		err = r.advance(cmd, x)
	}
	if errors.Is(err, errDropped) && r.mending != nil {
		return // it is decided again
	}
	r.suspect.Store(false)
	r.concluded(a)
	switch {
	case err == nil, errors.Is(err, errDropped), errors.Is(err, workgraph.ErrStale), errors.Is(err, workgraph.ErrEnded):
	case isTooLarge(err):
		cmd.Outcome, cmd.Err = nil, &workgraph.Error{Type: workgraph.Permanent, Reason: ReasonPayloadTooLarge,
			Message: "what the result leads to cannot be written: " + errs.From(err).Message, Usage: x.attempt.usage}
		x.leads = false
		r.mend(func(first *closing) { r.insist(first, cmd, x) })
	default:
		t.e.log.ErrorContext(t.calls, "end of attempt refused", "err", err, "run_id", r.id, "node", a.start.Node, "visit", a.start.Visit)
	}
}

// unsafe reports whether nobody may make the call again whose outcome is not durable.
func (a *attempt) unsafe() bool { return a.start.Effect == workgraph.Unsafe }

// holdOutcome counts what the run is to hold. A result for which there is no room left is refused, but not
// what it cost. The caller holds r.mu.
func (r *run) holdOutcome(out *workgraph.Outcome, fail *workgraph.Error) (*workgraph.Outcome, *workgraph.Error) {
	if out == nil {
		return out, fail
	}
	n, limit := int64(record.OutcomeSize(*out)+record.WaitSize(out)), r.t.e.cfg.MaxRunBytes
	if r.kept+n > limit {
		full := workgraph.Errorf(workgraph.Permanent, ReasonRunTooLarge,
			"the results of this run hold %d bytes, with this one they would exceed %d: keep large results outside and pass references", r.kept, limit)
		full.Usage = out.Usage
		return nil, full
	}
	r.kept += n
	r.weigh()
	return out, nil
}

// maxMessage bounds the text of an error in bytes: lists of runs tell it.
const maxMessage = 8 << 10

// maxErrorReason bounds an error's reason in bytes.
const maxErrorReason = 256

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*tooLargeError](err)
	return ok
}

// forget takes an attempt that has ended out of those in flight; the outcome of an UNSAFE one is owed until
// concluded is called.
func (r *run) forget(a *attempt) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if a.unsafe() {
		r.concluding++
	}
	if r.attempts[a.start.Ref] == a {
		delete(r.attempts, a.start.Ref)
		r.t.memory.Add(r.namespace, -attemptWeight)
	}
}

// concluded says that the outcome of an attempt is with the writer, or nobody waits for it.
func (r *run) concluded(a *attempt) {
	r.amu.Lock()
	defer r.amu.Unlock()
	if a.unsafe() {
		r.concluding--
	}
}

func usageOf(out *workgraph.Outcome, fail *workgraph.Error) []workgraph.Usage {
	if out != nil {
		return out.Usage
	}
	if fail != nil {
		return fail.Usage
	}
	return nil
}

// reporter passes on to watchers what an actor tells.
type reporter struct {
	hub *hub
	a   *attempt
}

func (r reporter) tell(e Ephemeral) {
	e.Ref, e.Attempt = r.a.start.Ref, r.a.start.Attempt
	r.hub.publish(Event{RunID: r.a.run.id, RootID: r.a.run.root, Ephemeral: &e})
}

// Text implements actor.Reporter.
func (r reporter) Text(piece string) { r.tell(Ephemeral{Text: piece, At: dbkit.Now()}) }

// Progress implements actor.Reporter.
func (r reporter) Progress(at json.RawMessage) { r.tell(Ephemeral{Progress: at, At: dbkit.Now()}) }
