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
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of attempts that the engine itself ends.
const (
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

// classify turns what a call returned into the machine's error.
func (a *attempt) classify(ctx context.Context, err error) *workgraph.Error {
	var cut *workgraph.Error
	if ctx.Err() != nil {
		cut = interrupted(ctx, a)
	}
	return workgraph.Classify(err, a.start.Effect, cut)
}

func notPerformed(cause error) *workgraph.Error {
	return workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "%v", cause)
}

// unsafe reports whether nobody may make the call again whose outcome is not durable.
func (a *attempt) unsafe() bool { return a.start.Effect == workgraph.Unsafe }

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

// reporter passes on to watchers what an actor tells.
type reporter struct {
	feed *feed.Feed
	a    *attempt
}

func (r reporter) tell(e feed.Ephemeral) {
	e.Ref, e.Attempt = r.a.start.Ref, r.a.start.Attempt
	r.feed.Publish(feed.Event{RunID: r.a.run.id, RootID: r.a.run.root, Ephemeral: &e})
}

// Text implements actor.Reporter.
func (r reporter) Text(piece string) { r.tell(feed.Ephemeral{Text: piece, At: dbkit.Now()}) }

// Progress implements actor.Reporter.
func (r reporter) Progress(at json.RawMessage) { r.tell(feed.Ephemeral{Progress: at, At: dbkit.Now()}) }
