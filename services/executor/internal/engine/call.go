package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// perform makes the call. It runs on a goroutine of the scheduler, which lets the writer lead after perform
// returns.
func (t *session) perform(a *attempt) {
	defer t.sched.Done(&a.task)
	t.e.meters.scheduled(a.task.Request.Queued, a.run.priority)
	ctx, cancel := a.begin(a.task.Carry(trace.ContextWithSpanContext(t.calls, a.run.trace)))
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
	// A call that is made here has its own copy of the arguments. For a remote worker the copy is made when
	// the call is sent.
	if n := 2 * record.InputSize(workgraph.Input{Args: a.start.Args, Named: a.start.Named}); !a.task.Request.Remote {
		if err := holds.Wait(ctx, min(n, t.e.calling.Most())); err != nil {
			t.report(a, nil, notPerformed(context.Cause(ctx)), outbox.Trace{}, true)
			return
		}
	}
	a.payer = t.payer(ctx, a.run)
	if refused := t.reserve(ctx, a); refused != nil {
		t.report(a, nil, refused, outbox.Trace{}, true)
		return
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

// admit finds the actor that makes the call, and the error if the call must not be made.
func (t *session) admit(ctx context.Context, a *attempt) (doer workgraph.Actor, info *program.ActorInfo, refused *workgraph.Error) {
	if ctx.Err() != nil {
		return nil, nil, notPerformed(context.Cause(ctx))
	}
	if bar := a.run.attemptBlocker(); bar != nil {
		a.blocked = true
		return nil, nil, bar
	}
	doer, found, ok, err := t.actor(ctx, a)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, notPerformed(context.Cause(ctx))
	case err != nil:
		return nil, nil, workgraph.Errorf(workgraph.NotPerformed, ReasonActorUnknown, "actor %q cannot be looked up: %v", a.start.Actor, errs.From(err).Message)
	case !ok:
		return nil, nil, workgraph.Errorf(workgraph.Permanent, ReasonActorUnknown, "there is no actor %q here", a.start.Actor)
	}
	if n := record.Oversize(t.e.cfg.MaxPayload, a.start.Args, a.start.Named); n > 0 {
		return nil, nil, workgraph.Errorf(workgraph.Permanent, journal.ReasonPayloadTooLarge, "an argument has %d bytes, the limit is %d", n, t.e.cfg.MaxPayload)
	}
	return doer, &found, nil
}

// directory finds actors for calls.
type directory struct {
	actors    program.Actors
	namespace string
}

// Find implements actor.Directory.
func (d directory) Find(ctx context.Context, names []string) (map[string]workgraph.ActorInfo, error) {
	if l, ok := d.actors.(program.Learner); ok {
		l.Learn(ctx, names)
	}
	found, err := d.actors.Find(ctx, d.namespace, names)
	if err != nil {
		return nil, err
	}
	out := make(map[string]workgraph.ActorInfo, len(found))
	for name, info := range program.Public(found) {
		out[name] = info.ActorInfo
	}
	return out, nil
}

// Below implements actor.Directory.
func (d directory) Below(ctx context.Context, prefix string) ([]string, error) {
	if l, ok := d.actors.(program.Learner); ok {
		l.Learn(ctx, []string{prefix})
	}
	names, err := d.actors.Names(ctx, d.namespace)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasPrefix(name, prefix) }), nil
}

// call calls the actor and reports its outcome, once. An actor that does not return is given up.
func (t *session) call(ctx context.Context, a *attempt, doer workgraph.Actor, info *program.ActorInfo) {
	progress := reporter{t.e.feed, a}
	progress.begin()
	ctx = access.WithMaker(access.WithRun(ctx, a.run.id), a.run.lineage.Maker)
	ctx = actor.WithDirectory(actor.WithNamespace(ctx, a.run.namespace), directory{t.e.actors, a.run.namespace})
	ctx = actor.WithDelegated(actor.WithWorkflow(ctx, a.run.lineage.Cataloged()), a.run.lineage.Delegated)
	ctx = context.WithValue(actor.WithReporter(ctx, progress), attemptKey{}, a)
	if a.overSoft {
		ctx = actor.WithSoftCap(ctx)
	}
	ctx, span := t.spanOf(ctx, a)
	var carried outbox.Trace
	if t.e.claims != nil {
		carried = tracing.Of(ctx)
	}
	var once sync.Once
	ended := func(out *workgraph.Outcome, err *workgraph.Error, leads bool) {
		once.Do(func() {
			progress.end()
			t.endSpan(span, a, out, err)
			t.report(a, out, err, carried, leads)
		})
	}
	end := func(out *workgraph.Outcome, err *workgraph.Error) { ended(out, err, true) }
	if a.run.suspect.Load() && !a.task.Request.Remote && !info.Elsewhere {
		done, err := t.takeSuspectTurn(ctx, a)
		if err != nil {
			end(nil, notPerformed(err))
			return
		}
		defer done()
	}
	leave := func() {} // gives the turn to compute back
	if info.Computes {
		var err error
		if leave, err = t.e.computing.Enter(ctx, a.run.namespace); err != nil {
			end(nil, notPerformed(err))
			return
		}
		leave = sync.OnceFunc(leave)
		defer leave()
	}
	ctx, free := t.withRoom(ctx, a)
	defer free()
	call, give := t.withTimeouts(ctx, a)
	defer give()
	// An actor that ignores the end of its context is abandoned, so that it cannot delay its run.
	undo := context.AfterFunc(call, func() {
		time.AfterFunc(t.e.cfg.Grace, func() {
			leave()
			ended(nil, workgraph.Errorf(workgraph.Unknown, ReasonUnresponsive, "the actor did not return within %s of the end of its context", t.e.cfg.Grace), false)
			t.sched.Done(&a.task)
		})
	})
	out, err := t.callOrReuse(call, doer, info, a)
	leave()
	failpoint.Hit(failpoint.EffectAfter)
	undo()
	if err != nil {
		end(nil, a.classify(call, err))
		return
	}
	if refused := t.accept(ctx, a, info, &out); refused != nil {
		refused.Usage = out.Usage
		end(nil, refused)
		return
	}
	end(&out, nil)
}

// withRoom gives a call room in memory for the results that it asks for. free gives all of it back.
//
//go:noinline
func (t *session) withRoom(ctx context.Context, a *attempt) (_ context.Context, free func()) {
	results := t.e.results.Share(a.run.namespace)
	return actor.WithRoom(ctx, func(ctx context.Context, bytes int64) error {
		err := results.Wait(ctx, min(bytes, t.e.results.Most()))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}), results.Free
}

// accept prepares an outcome, or says why it is refused.
//
//go:noinline
func (t *session) accept(ctx context.Context, a *attempt, info *program.ActorInfo, out *workgraph.Outcome) (refused *workgraph.Error) {
	if !a.cached.Load() {
		out.Saved = nil // no actor knows that
	}
	if !info.Internal && !info.MakesInternal {
		out.Routed = nil
	}
	if refused = t.prepare(ctx, a, info, out); refused != nil {
		if ctx.Err() != nil {
			refused = a.classify(ctx, ctx.Err())
		}
		return refused
	}
	if n := record.OutcomeSize(*out); n > t.e.cfg.MaxPayload {
		return workgraph.Errorf(workgraph.Permanent, journal.ReasonPayloadTooLarge, "the result has %d bytes, the limit is %d", n, t.e.cfg.MaxPayload)
	}
	return nil
}

// actor finds the actor that makes the call. While the journal, which knows the remote workers, cannot be
// asked, the attempt waits without using up its tries.
func (t *session) actor(ctx context.Context, a *attempt) (doer workgraph.Actor, info program.ActorInfo, ok bool, err error) {
	err = t.untilAnswered(ctx, func() (err error) {
		doer, info, ok, err = t.e.actors.Actor(ctx, a.run.namespace, a.start.Actor)
		return err
	})
	return doer, info, ok, err
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

// withTimeouts puts the node's timeouts on the context of a call.
func (t *session) withTimeouts(ctx context.Context, a *attempt) (context.Context, func()) {
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
		c.stop()
		cancel(nil)
	}
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
	call := t.callOf(ctx, a)
	defer func() { a.looked.Store(call.Looked()) }()
	return doer.Call(ctx, call)
}

// callOf is what the actor gets.
//
//go:noinline
func (t *session) callOf(ctx context.Context, a *attempt) *workgraph.Call {
	c, _ := ctx.Value(clocksKey{}).(*clocks)
	start := a.told()
	start.AttemptToken = a.run.attemptToken(start.Ref, start.Attempt)
	start.Details = t.detailsOf(a)
	return workgraph.NewCall(start, workgraph.CallOptions{
		Heartbeat: func(details json.RawMessage) {
			if c != nil && c.idle != nil {
				c.idle.timer.Reset(c.idle.d)
			}
			t.recordDetails(a, details)
		},
		Scope: callScope{a.run, a.start.Ref},
	})
}

// told is the start with what the call is told of its run.
func (a *attempt) told() workgraph.Start {
	start, of := a.start, &a.run.lineage
	start.Thread = cmp.Or(start.Thread, of.Thread)
	start.RootRunID, start.ParentRunID = a.run.root, of.Parent
	start.UserID, start.ChatID, start.TaskID, start.GraphName = of.User, of.Chat, a.run.task, a.run.Program.Name
	start.Agent, start.Standing = of.Agent, of.Standing
	return start
}

// finish reports the end of an attempt to the machine, once, and wakes the writer. An attempt that only the
// end of this ownership session has interrupted is not reported: the next owner finds it unchanged in the
// journal.
func (t *session) finish(a *attempt, out *workgraph.Outcome, fail *workgraph.Error, carried outbox.Trace) {
	t.report(a, out, fail, carried, false)
}

// report is finish for a caller that may run on a goroutine of the scheduler, which leads says: that
// goroutine lets the writer lead when perform returns, so no other goroutine need be woken.
func (t *session) report(a *attempt, out *workgraph.Outcome, fail *workgraph.Error, carried outbox.Trace, leads bool) {
	if !a.reported.CompareAndSwap(false, true) {
		return
	}
	r := a.run
	r.removeAttempt(a)
	if fail != nil {
		short := *fail
		if len(fail.Message) > record.MaxMessage {
			short.Message = fail.Message[:record.MaxMessage] + "…"
		}
		short.Reason, short.Message = phrase.Clean(fail.Reason, maxErrorReason), phrase.Clean(strings.ToValidUTF8(short.Message, ""), record.MaxMessage+4)
		short.Usage = plausible(fail.Usage)
		fail = &short
	}
	if out != nil && len(out.Usage) > 0 {
		fair := *out
		fair.Usage = plausible(out.Usage)
		out = &fair
	}
	a.mu.Lock()
	reporter := a.reporter
	a.mu.Unlock()
	if fail != nil && a.left() {
		r.outcomeDecided(a)
		return
	}
	usage := usageOf(out, fail)
	now := time.Now().UTC()
	entries := r.entries(a, usage, fail != nil, dbkit.Micros(now)) // with costs that calls report
	if began := a.startTime(); len(entries) > 0 && !began.IsZero() {
		entries[0].DurationMS = max(now.Sub(began).Milliseconds(), 0)
	}
	t.price(a, usage, now)
	x := extra{progress: true, leads: leads, attempt: endedAttempt{start: a.startTime(), actor: a.start.Actor, reporter: reporter,
		cached: a.cached.Load() && out != nil, kept: a.kept, trace: carried, usage: usage, entries: entries}}
	if len(entries) == 0 {
		x.attempt.unused = a.reserved
	}
	if out != nil {
		x.attempt.payer = out.Payer
	}
	if out == nil {
		x.attempt.kept = nil
	}
	t.e.meters.ended(a.start.Actor, fail, usage)
	if out != nil && out.Expand != nil {
		r.graphChanged.Store(true)
	}
	held := int64(0) // bytes of a result that waits for a turn
	if out != nil {
		held = int64(record.OutcomeSize(*out) + record.WaitSize(out) + thread.Bytes(out.Threads))
	}
	t.memory.Add(r.namespace, held)
	leave, err := r.step(t.calls)
	t.memory.Add(r.namespace, -held)
	switch {
	case err == nil:
	case a.unsafe():
		leave = r.stepIn(nil) // nobody makes the call again, so its outcome must not wait for a turn
	default:
		return // the next owner makes the call again
	}
	defer leave()
	if r.endLeft(a, x.attempt) {
		return
	}
	if a.blocked && r.startAgain(a) {
		r.outcomeDecided(a)
		return
	}
	if bar := r.attemptBlockerLocked(); a.blocked && bar != nil {
		fail = bar
	}
	if slices.ContainsFunc(usage, func(u workgraph.Usage) bool { return u.Unsettled }) {
		r.askAt = time.Now().Add(r.askPause(0))
	}
	if out != nil {
		r.Details.Drop(a.start.Ref)
	}
	r.decideEnd(a, workgraph.Ended{Ref: a.start.Ref, Attempt: a.start.Attempt, Outcome: out, Err: fail, Now: now, Capped: a.capped}, x, nil)
}

// decideEnd gives the end of an attempt to the machine, after first, which ends the run, unless it is nil.
// The caller holds r.mu.
func (r *run) decideEnd(a *attempt, end workgraph.Ended, x extra, first *ending) {
	t, cmd := r.t, end
	cmd.Outcome, cmd.Err = r.admitOutcome(end.Outcome, end.Err)
	if r.early {
		r.early, x.from.more = false, true
		defer t.pollCommandsSoon()
	}
	x.again = func(first *ending) {
		x.leads = false
		r.decideEnd(a, end, x, first)
	}
	var err error
	if first != nil && a.unsafe() {
		// A reader that sees the end of the run sees this outcome, too.
		err = r.advanceAfter(first, cmd, x)
	} else {
		r.endFirst(first)
		err = r.advance(cmd, x)
	}
	if errors.Is(err, errDropped) && r.rebuilding != nil {
		return // it is decided again
	}
	r.suspect.Store(false)
	r.outcomeDecided(a)
	switch {
	case err == nil, errors.Is(err, errDropped):
	case errors.Is(err, workgraph.ErrStale), errors.Is(err, workgraph.ErrEnded):
		t.giveBack(r.namespace, x.unused()) // it was decided without the call, which nobody makes again
	case isTooLarge(err):
		cmd.Outcome, cmd.Err = nil, &workgraph.Error{Type: workgraph.Permanent, Reason: journal.ReasonPayloadTooLarge,
			Message: "the decision about the result cannot be written: " + errs.From(err).Message, Usage: x.attempt.usage}
		x.leads = false
		r.rebuild(func(first *ending) { r.advanceInstead(first, cmd, x) })
	default:
		t.e.log.ErrorContext(t.calls, "end of attempt refused", "err", err, "run_id", r.id, "node", a.start.Node, "visit", a.start.Visit)
	}
}

// admitOutcome counts what the run will hold. A result for which there is no room is refused; its usage still
// counts. The caller holds r.mu.
func (r *run) admitOutcome(out *workgraph.Outcome, fail *workgraph.Error) (*workgraph.Outcome, *workgraph.Error) {
	if out == nil {
		return out, fail
	}
	n, limit := int64(record.OutcomeSize(*out)+record.WaitSize(out)), r.t.e.cfg.MaxRunBytes
	if r.ResultBytes+n > limit {
		full := workgraph.Errorf(workgraph.Permanent, ReasonRunTooLarge,
			"the results of this run hold %d bytes, with this one they would exceed %d: keep large results outside and pass references", r.ResultBytes, limit)
		full.Usage = out.Usage
		return nil, full
	}
	r.ResultBytes += n
	r.weigh()
	return out, nil
}

// maxErrorReason bounds an error's reason in bytes.
const maxErrorReason = 256

func usageOf(out *workgraph.Outcome, fail *workgraph.Error) []workgraph.Usage {
	if out != nil {
		return out.Usage
	}
	if fail != nil {
		return fail.Usage
	}
	return nil
}

// attemptToken is the token of an attempt of the run.
func (r *run) attemptToken(ref workgraph.Ref, attempt int) string {
	return r.t.e.Tokens().Sign(attempttoken.Token{Namespace: r.namespace, RunID: r.id, Node: ref.Node, Visit: ref.Visit, Item: ref.Item, Attempt: attempt})
}
