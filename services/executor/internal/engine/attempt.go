package engine

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of attempts that the engine itself ends.
const (
	// ReasonRunTooLarge is the reason when the results of a run together exceed the hard limit.
	ReasonRunTooLarge = "RUN_TOO_LARGE"
	// ReasonActorUnknown is the reason when no actor of that name exists here, or none exists any longer.
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
	errDraining = errors.New("the run is ending; nothing new begins")
)

// Results of EndReason when this executor gives an attempt up. Another executor decides about the attempt,
// whatever the call returns.
const (
	EndStopping = "EXECUTOR_STOPPING"
	EndFenced   = "EXECUTOR_FENCED"
)

// EndReason returns a stable word for why the context of a call has ended.
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

// attempt is one call of an actor, from the decision that it may start to the report of its end.
type attempt struct {
	run   *run
	start workgraph.Start
	task  sched.Task
	// cached is set if the outcome is that of an equal earlier call.
	cached atomic.Bool
	// looked is set if the call read something beyond its input: variables of the run, or results of
	// ancestors.
	looked atomic.Bool
	// kept is the outcome of the call, to be saved with its end, and keepAs is how that of the children is to
	// be saved that it asks for. At most one of the two is set.
	kept   *workgraph.KeptOutcome
	keepAs *workgraph.KeepAs
	// blocked is set if the call was not made because the run must not begin new calls.
	blocked bool
	// capped is set if the call was not made because a cap above the run leaves no room for it.
	capped bool
	// reserved is what was reserved for the call, or nil.
	reserved *outbox.Entry
	// payer is who pays for the call; nil for the task of the run, or if it has none for its namespace alone.
	payer *record.Payer
	// overSoft says that a budget above the call is over its soft cap.
	overSoft bool
	// reported is set by the first reporter of the end. Later reports are ignored.
	reported atomic.Bool

	mu      sync.Mutex
	cancel  context.CancelCauseFunc
	cause   error
	started time.Time
	// reporter is the principal of the worker that reported the end; empty for a call made here.
	reporter string
	// said is what the call has written so far; nil without any text.
	said *feed.Said
}

// stop ends the context of the call, now or as soon as the call begins. The first cause stays.
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

// left reports whether the attempt was asked to stop only because its run is not decided for here any more.
// The next owner makes the call again.
func (a *attempt) left() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Is(a.cause, errStopping) || errors.Is(a.cause, errFenced) || errors.Is(a.cause, errDropped)
}

func (a *attempt) startTime() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.started
}

// clocks are the timeouts of a call in flight.
type clocks struct {
	limits []limit
	idle   *limit // one of limits, or nil
}

type limit struct {
	d     time.Duration
	timer *time.Timer
}

func (c *clocks) stop() {
	for _, l := range c.limits {
		l.timer.Stop()
	}
}

type clocksKey struct{}

// HoldTimeouts stops the timeouts of the call that ctx belongs to while no worker makes the call. resume
// restarts them from zero.
func HoldTimeouts(ctx context.Context) (resume func()) {
	c, _ := ctx.Value(clocksKey{}).(*clocks)
	if c == nil {
		return func() {}
	}
	c.stop()
	return func() {
		for _, l := range c.limits {
			l.timer.Reset(l.d)
		}
	}
}

type attemptKey struct{}

// ReportedBy records the principal of the worker that reported how the call of ctx ended.
func ReportedBy(ctx context.Context, principal string) {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reporter = principal
}

// classify turns the error of a call into the machine's error.
func (a *attempt) classify(ctx context.Context, err error) *workgraph.Error {
	var cut *workgraph.Error
	if ctx.Err() != nil {
		cut = contextError(ctx, a)
	}
	return workgraph.Classify(err, a.start.Effect, cut)
}

func notPerformed(cause error) *workgraph.Error {
	return workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "%v", cause)
}

// unsafe reports whether the call must not be repeated while its outcome is not durable.
func (a *attempt) unsafe() bool { return a.start.Effect == workgraph.Unsafe }

// contextError is the error of a call whose context has ended. The effect may have happened in spite of a
// timeout or a cancel, so the next attempt keeps the effect key.
func contextError(ctx context.Context, a *attempt) *workgraph.Error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		return workgraph.Errorf(workgraph.Unknown, workgraph.ReasonTimeout, "no end within %s", a.start.Timeout)
	case errors.Is(cause, errIdle):
		return workgraph.Errorf(workgraph.Unknown, workgraph.ReasonIdleTimeout, "no sign of life for %s", a.start.IdleTimeout)
	default:
		return workgraph.Errorf(workgraph.Unknown, workgraph.ReasonCanceled, "%v", cause)
	}
}

// reporter passes on to watchers what an actor reports.
type reporter struct {
	feed *feed.Feed
	a    *attempt
}

func (r reporter) event(e feed.Ephemeral) feed.Event {
	e.Ref, e.Attempt = r.a.start.Ref, r.a.start.Attempt
	return feed.Event{Namespace: r.a.run.namespace, RunID: r.a.run.id, RootID: r.a.run.root, Ephemeral: &e}
}

func (r reporter) publish(e feed.Ephemeral) { r.feed.Publish(r.event(e)) }

// Text implements actor.Reporter.
func (r reporter) Text(piece string) { r.say(feed.Ephemeral{Text: piece}) }

// Raw implements actor.Reporter.
func (r reporter) Raw(piece string) { r.say(feed.Ephemeral{Text: piece, Raw: true}) }

func (r reporter) say(e feed.Ephemeral) {
	if e.Text == "" {
		return
	}
	r.a.mu.Lock()
	if r.a.said == nil {
		r.a.said = &feed.Said{}
	}
	said := r.a.said
	r.a.mu.Unlock()
	e.At = dbkit.Now()
	r.feed.Say(said, r.event(e))
}

// begin reports that the call begins.
//
//go:noinline
func (r reporter) begin() {
	r.publish(feed.Ephemeral{Started: true, Actor: r.a.start.Actor, At: r.a.startTime()})
}

// end ends the reports of the call. The text that it wrote is in its outcome now.
func (r reporter) end() {
	r.a.mu.Lock()
	said := r.a.said
	r.a.mu.Unlock()
	if said != nil {
		r.feed.Silence(said)
	}
}

// Watched implements actor.Reporter.
func (r reporter) Watched() bool { return r.feed.Watched(r.a.run.id, r.a.run.root) }

// Progress implements actor.Reporter.
func (r reporter) Progress(at json.RawMessage) {
	r.publish(feed.Ephemeral{Progress: at, At: dbkit.Now()})
}
