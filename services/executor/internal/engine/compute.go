package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// maxEvaluation is how long the expressions of one command may be evaluated. A run is locked meanwhile; what
// they may cost ends them long before on a machine that is not overloaded.
const maxEvaluation = 10 * time.Second

// evaluation is the context of the expressions of one command, for which the run is locked: see
// workgraph.State.OnEvaluation. Whatever leads here, a turn of the run's namespace is held meanwhile, if
// there is one: who is about to advance the run has mostly waited for it before, without the lock.
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
		// Those who have the turns may wait for the run's lock, so nobody who has that waits for a turn.
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

// interrupt aborts the evaluation under way, and those to come: the run is to end, or is no longer of this
// process. What was being decided comes to nothing; it is decided after what ends the run: see mend. A run
// that has not begun to be what its journal says is left to go on, and so is one that owes the outcome of an
// UNSAFE call to the journal when the term is over, as nobody decides it again then: such an evaluation ends
// by its own limits.
func (r *run) abortEvaluation() {
	over := r.t.background.Err() != nil && !r.gone.Load()
	r.amu.Lock()
	defer r.amu.Unlock()
	if r.begun && !(over && r.owesOutcome()) {
		r.abort()
	}
}

// owes reports whether an UNSAFE call is under way, or its outcome is not decided. The caller holds r.amu.
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

// giveUp aborts a start whose caller has gone; it does nothing when the run has begun.
func (r *run) abortStart() {
	r.amu.Lock()
	defer r.amu.Unlock()
	if !r.begun {
		r.abort()
	}
}

// abort is called with r.amu held.
func (r *run) abort() {
	r.aborted = true
	if r.evaluating != nil {
		r.evaluating(workgraph.ErrAborted)
	}
}

// begins says that the machine is what the journal says, or is about to. The caller holds r.mu.
func (r *run) markBegun() {
	r.amu.Lock()
	defer r.amu.Unlock()
	r.begun, r.aborted = true, false
}

// step takes r.mu to advance the machine. If that may evaluate expressions it waits for a turn first: while
// the run is not locked, and no longer than until the run is to end. An error is that of ctx.
func (r *run) step(ctx context.Context) (leave func(), err error) {
	if !r.evaluates() {
		return r.stepIn(nil), nil
	}
	return r.stepComputing(ctx)
}

// compute is step for what computes in any case.
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

// stepIn takes r.mu with a turn that the caller has; nil if it has none.
func (r *run) stepIn(give func()) (leave func()) {
	r.lock()
	return r.withTurn(give)
}

// holding marks that the caller, who holds r.mu, has a turn, if it has.
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

// stepToEnd takes r.mu to end the run: it waits for no turn, and an evaluation under way is aborted.
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

// stepBefore is step for a timer, or stepToEnd once the deadline has passed, which is never if it is zero. It
// returns nil when the term ends first.
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

// noTurnError says that a run cannot be read now, since its namespace has no turn left in which its
// expressions could be evaluated.
type noTurnError struct{ namespace string }

func (e *noTurnError) Error() string {
	return fmt.Sprintf("namespace %s computes as much as it may at once", e.namespace)
}

// computingLimit leaves processors to others where there are several.
func computingLimit(processors int) int { return max(1, processors/2) }

// evaluates reports whether a step of the run may evaluate expressions, hold values against schemas, or let
// the graph grow.
func (r *run) evaluates() bool { return r.Program.Machine.Evaluates() || r.graphChanged.Load() }
