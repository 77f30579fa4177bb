package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// maxEvaluation is how long the expressions of one command may be evaluated. The run is locked meanwhile. On
// a machine that is not overloaded, their cost limit ends them long before.
const maxEvaluation = 10 * time.Second

// evaluation is the context of the expressions of one command, while the run is locked: see
// workgraph.State.OnEvaluation. A turn of the namespace is held meanwhile. Callers that advance the run have
// mostly waited for the turn before they took the lock; otherwise one is taken here if it is free.
func (r *run) evaluation() (context.Context, context.CancelFunc) {
	whole, abort := context.WithCancelCause(context.Background())
	r.amu.Lock()
	r.evaluating = abort
	if r.aborted {
		abort(workgraph.ErrAborted)
	}
	r.amu.Unlock()
	give := func() {}
	if e := r.t.e; !r.turn {
		e.lateTurns.Add(1)
		// Holders of turns may wait for the run's lock, so a holder of the lock must not wait for a turn.
		if leave, ok := e.computing.Try(r.namespace); ok {
			give = leave
		}
	}
	ctx, stop := context.WithTimeoutCause(whole, maxEvaluation, fmt.Errorf("the expressions of one step of the run take longer than %s", maxEvaluation))
	return ctx, func() {
		r.amu.Lock()
		r.evaluating = nil
		r.amu.Unlock()
		stop()
		abort(nil)
		give()
	}
}

// abortEvaluation aborts the evaluation in progress, and later ones, because the run is to end or leaves this
// process. The aborted decision is made again after the end of the run: see rebuild.
//
// It does nothing to a run that does not agree with its journal yet. When the session is over, it also spares
// a run that owes the journal the outcome of an UNSAFE call, since nothing would make that decision again:
// such an evaluation ends by its own limits.
func (r *run) abortEvaluation() {
	over := r.t.background.Err() != nil && !r.gone.Load()
	r.amu.Lock()
	defer r.amu.Unlock()
	if r.begun && !(over && r.owesOutcome()) {
		r.abort()
	}
}

// owesOutcome reports whether an UNSAFE call is in flight, or its outcome is not decided. The caller holds
// r.amu.
func (r *run) owesOutcome() bool {
	if r.undecided > 0 {
		return true
	}
	for _, a := range r.attempts {
		if a.unsafe() {
			return true
		}
	}
	return false
}

// abortStart aborts a start whose caller has gone. It does nothing once the run has begun.
func (r *run) abortStart() {
	r.amu.Lock()
	defer r.amu.Unlock()
	if !r.begun {
		r.abort()
	}
}

// abort aborts this evaluation and later ones. The caller holds r.amu.
func (r *run) abort() {
	r.aborted = true
	if r.evaluating != nil {
		r.evaluating(workgraph.ErrAborted)
	}
}

// markBegun says that the machine agrees with the journal, or is about to. The caller holds r.mu.
func (r *run) markBegun() {
	r.amu.Lock()
	defer r.amu.Unlock()
	r.begun, r.aborted = true, false
}

// step takes r.mu to advance the machine. If that may evaluate expressions it first waits for a turn, without
// the lock, until the run is to end at the latest. An error is that of ctx.
func (r *run) step(ctx context.Context) (leave func(), err error) {
	if !r.evaluates() {
		return r.stepIn(nil), nil
	}
	return r.stepComputing(ctx)
}

// stepComputing is step for work that always computes.
func (r *run) stepComputing(ctx context.Context) (leave func(), err error) {
	for {
		give, err := r.t.e.computing.EnterUnless(ctx, r.namespace, r.ends)
		if err != nil {
			return nil, err
		}
		if give == nil {
			return r.stepIn(nil), nil
		}
		r.mu.Lock()
		whole := r.rebuilding
		if whole == nil {
			return r.withTurn(give), nil
		}
		r.mu.Unlock()
		give() // others can use it meanwhile
		<-whole
	}
}

// stepIn takes r.mu with the caller's turn, or with none if give is nil.
func (r *run) stepIn(give func()) (leave func()) {
	r.lock()
	return r.withTurn(give)
}

// withTurn notes that the caller, who holds r.mu, has a turn, unless give is nil.
func (r *run) withTurn(give func()) (leave func()) {
	if give == nil {
		return r.mu.Unlock
	}
	r.turn = true
	return func() {
		r.turn = false
		r.mu.Unlock()
		give()
	}
}

// stepToEnd takes r.mu to end the run. It waits for no turn, and aborts the evaluation in progress.
func (r *run) stepToEnd() (leave func()) {
	if !r.tryLock() {
		r.abortEvaluation()
		r.lock()
		r.amu.Lock()
		r.aborted = false
		r.amu.Unlock()
	}
	select {
	case <-r.ends:
	default:
		close(r.ends)
	}
	return r.mu.Unlock
}

// stepBefore is step for a timer, or stepToEnd once the deadline has passed. A zero deadline never passes. It
// returns nil if the session ends first.
func (r *run) stepBefore(deadline time.Time) (leave func()) {
	ctx, cancel := r.t.background, func() {}
	if !deadline.IsZero() {
		if !time.Now().Before(deadline) {
			return r.stepToEnd()
		}
		ctx, cancel = context.WithDeadline(ctx, deadline)
	}
	defer cancel()
	leave, err := r.step(ctx)
	switch {
	case err == nil:
		return leave
	case r.t.background.Err() == nil:
		return r.stepToEnd()
	}
	return nil
}

// noTurnError says that a run cannot be read now, because its namespace has no turn left to evaluate its
// expressions.
type noTurnError struct{ namespace string }

func (e *noTurnError) Error() string {
	return fmt.Sprintf("namespace %s computes as much as it may at once", e.namespace)
}

// evaluates reports whether a step of the run may evaluate expressions, check values against schemas, or
// expand the graph.
func (r *run) evaluates() bool { return r.programEvaluates || r.graphChanged.Load() }
